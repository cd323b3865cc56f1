//! Replays allocations of devices: the claims of a pod, allocated together on one node.
//!
//! The replay compares the allocations as a whole: devices, configuration and node selector. Of errors it compares the
//! claim and the selector. Identities of shares are not compared.

use crate::cases::{self, LaterAnswers};
use crate::report::CaseReport;
use berth_api::devices::AllocationResult;
use berth_api::{DeviceClass, Node, Release, ResourceClaim, ResourceSlice, Str};
use berth_devices::{
    Allocator, AllocatorFeatures, ClaimRequests, Inventory, SearchBudget, TargetNode,
};
use berth_framework::FeatureGates;
use berth_framework::allocator::allocator_features;
use serde::{Deserialize, Deserializer};
use std::io::BufRead;
use std::sync::Arc;

/// The answers that later releases change.
const LATER: &str = include_str!("../later/allocations.jsonl");

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AllocationCase {
    id: String,
    node: Node,
    #[serde(deserialize_with = "nullable")]
    device_classes: Vec<Arc<DeviceClass>>,
    #[serde(deserialize_with = "nullable")]
    resource_slices: Vec<Arc<ResourceSlice>>,
    #[serde(deserialize_with = "nullable")]
    allocated_claims: Vec<ResourceClaim>,
    #[serde(deserialize_with = "nullable")]
    claims: Vec<Arc<ResourceClaim>>,
    expect: ExpectedAllocation,
}

#[derive(Debug, Deserialize)]
struct ExpectedAllocation {
    fits: bool,
    error: Option<String>,
    #[serde(default)]
    allocations: Vec<AllocationResult>,
}

/// Go writes an empty list as null.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Replays cases, one JSON object a line, with the answers of a release. Unreadable lines fail under their number.
pub fn replay(reader: impl BufRead, release: Release) -> CaseReport {
    let mut report = CaseReport::new();
    let answers = match LaterAnswers::read(LATER, release) {
        Ok(answers) => answers,
        Err(what) => {
            report.fail("the later answers", what);
            return report;
        }
    };
    let features = allocator_features(&FeatureGates::of(release));
    cases::each(
        reader,
        &answers,
        &mut report,
        |case: AllocationCase, report| match check(&case, features) {
            Ok(()) => report.pass(case.id),
            Err(what) => report.fail(case.id, what),
        },
    );
    report
}

fn allocate(
    case: &AllocationCase,
    features: AllocatorFeatures,
) -> Result<Option<Vec<AllocationResult>>, String> {
    let mut inventory = Inventory::default();
    for slice in &case.resource_slices {
        inventory.set_slice(slice);
    }
    for claim in &case.allocated_claims {
        inventory.set_allocation(None, claim.status.allocation.as_ref());
    }
    let class = |name: &str| {
        let mut classes = case.device_classes.iter();
        classes.find(|class| *class.metadata.name == *name).cloned()
    };
    let claims: Vec<ClaimRequests> = case
        .claims
        .iter()
        .map(|claim| ClaimRequests::new(claim, features, class))
        .collect();
    let claims: Vec<&ClaimRequests> = claims.iter().collect();
    let node = TargetNode {
        name: &case.node.metadata.name,
        labels: case.node.labels(),
        skips_operations: false,
    };
    Allocator::new(&inventory, features)
        .allocate(node, &claims, &mut SearchBudget::unlimited())
        .map_err(|error| error.to_string())
}

fn check(case: &AllocationCase, features: AllocatorFeatures) -> Result<(), String> {
    let recorded = &case.expect;
    let got = allocate(case, features);
    match (&recorded.error, &got) {
        (Some(recorded), Err(got)) if place(recorded) == place(got) => Ok(()),
        (Some(recorded), Err(got)) => Err(format!("recorded error {recorded:?}, got {got:?}")),
        (Some(recorded), Ok(got)) => Err(format!("recorded error {recorded:?}, got {got:?}")),
        (None, Err(got)) => Err(format!(
            "recorded fits={}, got error {got:?}",
            recorded.fits
        )),
        (None, Ok(None)) if !recorded.fits => Ok(()),
        (None, Ok(None)) => Err("recorded an allocation, got none".to_owned()),
        (None, Ok(Some(_))) if !recorded.fits => Err(format!("recorded none, got {got:?}")),
        (None, Ok(Some(got))) => compare(&recorded.allocations, got),
    }
}

/// The part of an error that states its place: up to the last place that is named.
fn place(error: &str) -> Vec<&str> {
    let parts = error.split(": ");
    let is_place = |part: &&str| {
        ["claim ", "class ", "selector #", "CEL "]
            .iter()
            .any(|start| part.starts_with(start))
    };
    parts.take_while(is_place).collect()
}

fn compare(recorded: &[AllocationResult], got: &[AllocationResult]) -> Result<(), String> {
    let comparable = |allocations: &[AllocationResult]| -> Vec<AllocationResult> {
        let mut allocations = allocations.to_vec();
        for allocation in &mut allocations {
            for result in &mut allocation.devices.results {
                result.share_id = result.share_id.take().map(|_| Str::from("any"));
            }
        }
        allocations
    };
    let (recorded, got) = (comparable(recorded), comparable(got));
    if recorded == got {
        Ok(())
    } else {
        Err(format!("recorded {recorded:?}, got {got:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::io::BufReader;

    fn recorded() -> Vec<String> {
        let packed: &[u8] = include_bytes!("../vectors/allocations.jsonl.gz");
        BufReader::new(flate2::read::GzDecoder::new(packed))
            .lines()
            .map(|line| line.expect("a line"))
            .collect()
    }

    #[test]
    fn every_allocation_is_as_recorded() {
        for release in Release::ALL {
            let report = replay(recorded().join("\n").as_bytes(), release);
            assert!(report.is_ok(), "{release}: {report}");
            assert_eq!(report.passed.len(), 1_080, "{release}");
        }
    }

    /// The replay reports each kind of difference.
    #[test]
    fn a_difference_is_noticed() {
        let lines = recorded();
        let cases = lines
            .iter()
            .map(|line| -> Value { serde_json::from_str(line).expect("a case") });
        let cases: Vec<Value> = cases.collect();
        let is_noticed = |case: &Value, change: &dyn Fn(&mut Value)| {
            let mut changed = case.clone();
            change(&mut changed["expect"]);
            assert_ne!(
                case["expect"], changed["expect"],
                "the change changes something"
            );
            assert!(replay(case.to_string().as_bytes(), Release::V1_36).is_ok());
            assert!(!replay(changed.to_string().as_bytes(), Release::V1_36).is_ok());
        };
        let fits = |case: &&Value| case["expect"]["fits"] == true;
        let with_error = |case: &&Value| case["expect"]["error"].is_string();
        let one = cases.iter().find(fits).expect("an allocation");
        let results = |expect: &mut Value| expect["allocations"][0]["devices"]["results"].take();
        is_noticed(one, &|expect| expect["fits"] = json!(false));
        is_noticed(one, &|expect| expect["error"] = json!("claim a/b: no"));
        is_noticed(one, &|expect| drop(results(expect)));
        is_noticed(one, &|expect| {
            expect["allocations"][0]["nodeSelector"] = json!({})
        });
        let failed = cases.iter().find(with_error).expect("an error");
        is_noticed(failed, &|expect| expect["error"] = Value::Null);
        is_noticed(failed, &|expect| {
            expect["error"] = json!("claim default/other: selector #0: CEL runtime error: no")
        });
    }
}
