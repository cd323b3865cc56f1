//! Binding conditions (KEP-5007): devices that must report that they are ready before the pod is bound.

use berth_api::devices::AllocationResult;
use berth_api::{GoDuration, ResourceClaim, Time};

/// The readiness of the devices of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Readiness {
    /// All are ready, or none has to report.
    Ready,
    /// Some have not reported.
    Pending,
    /// One has failed, and why.
    Failed(String),
}

/// The readiness of the devices of a claim.
pub(super) fn readiness(claim: &ResourceClaim) -> Readiness {
    let Some(allocation) = &claim.status.allocation else {
        return Readiness::Pending;
    };
    for result in &allocation.devices.results {
        if result.binding_conditions.is_empty() {
            continue;
        }
        let mut statuses = claim.status.devices.iter();
        let status = statuses.find(|status| {
            status.driver == result.driver
                && status.pool == result.pool
                && status.device == result.device
        });
        let Some(status) = status else {
            // The driver has not published the status of the device yet.
            return Readiness::Pending;
        };
        let is_true = |kind: &berth_api::Str| {
            let mut conditions = status.conditions.iter();
            conditions.find(|condition| condition.r#type == *kind && &*condition.status == "True")
        };
        // A failure condition takes precedence over the binding conditions (PL-164).
        let mut failures = result.binding_failure_conditions.iter();
        if let Some(failed) = failures.find_map(is_true) {
            return Readiness::Failed(format!(
                "device binding failed: claim={}, reason={}, message={:?}",
                claim.metadata.name,
                failed.reason,
                failed.message.as_str()
            ));
        }
        if !result
            .binding_conditions
            .iter()
            .all(|kind| is_true(kind).is_some())
        {
            return Readiness::Pending;
        }
    }
    Readiness::Ready
}

/// Returns whether devices of the allocation have to report that they are ready.
pub(super) fn must_report(allocation: &AllocationResult) -> bool {
    let mut results = allocation.devices.results.iter();
    results.any(|result| !result.binding_conditions.is_empty())
}

/// The time at which the devices of an allocation must be ready; `None` if none has to report.
pub(super) fn deadline(allocation: &AllocationResult, timeout: GoDuration) -> Option<Time> {
    let allocated = allocation.allocation_timestamp?;
    must_report(allocation).then(|| allocated + timeout.as_duration())
}

/// Returns whether the deadline for the reports of the allocated devices has passed.
pub(super) fn is_late(allocation: &AllocationResult, timeout: GoDuration, now: Time) -> bool {
    deadline(allocation, timeout).is_some_and(|deadline| deadline < now)
}

#[cfg(test)]
mod tests {
    use super::super::tests::claim;
    use super::*;
    use serde_json::{Value, json};

    /// PL-164.
    #[test]
    fn devices_are_ready_when_all_conditions_are_true() {
        let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "dev",
            "bindingConditions": ["Attached", "Tested"], "bindingFailureConditions": ["Broken"]});
        let is = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": "m"});
        let failed = "device binding failed: claim=c, reason=R, message=\"m\"";
        for (conditions, expected) in [
            (Value::Null, Readiness::Pending),
            (json!([is("Attached", "True")]), Readiness::Pending),
            (
                json!([is("Attached", "True"), is("Tested", "False")]),
                Readiness::Pending,
            ),
            (
                json!([is("Attached", "True"), is("Tested", "True")]),
                Readiness::Ready,
            ),
            (
                json!([
                    is("Attached", "True"),
                    is("Tested", "True"),
                    is("Broken", "True")
                ]),
                Readiness::Failed(failed.to_owned()),
            ),
        ] {
            let status = json!({
                "allocation": {"devices": {"results": [result]}, "allocationTimestamp": "1970-01-01T00:00:10Z"},
                "devices": [{"driver": "d", "pool": "p", "device": "dev", "conditions": conditions}],
            });
            let claim = claim("c", json!({"status": status}));
            assert_eq!(readiness(&claim), expected, "{conditions}");
            let allocation = claim.status.allocation.as_ref().expect("an allocation");
            let timeout = GoDuration::from_secs(5);
            for (now, late) in [(15, false), (16, true)] {
                assert_eq!(is_late(allocation, timeout, Time::from_secs(now)), late);
            }
        }
    }
}
