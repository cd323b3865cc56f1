//! The devices that a pod's claims request: the matching devices of the cluster, and the pods to which they are
//! allocated.

use crate::answer::{DeviceHolder, DeviceNode, DeviceRequest, NodeDevice};
use crate::limits::{DEVICE_STEPS_MAX, EXAMPLES_MAX};
use crate::snapshot::Snapshot;
use crate::words::taint_text;
use berth_api::Pod;
use berth_api::devices::ResourceClaim;
use berth_devices::{
    AllocateError, Allocator, AllocatorFeatures, ClaimRequests, DeviceId, DeviceState,
    RequestSurvey, SearchBudget,
};
use berth_framework::allocator::{allocator_features, target};
use berth_framework::{Cluster, NodeView};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The existing claims of a pod, in the order of its spec.
fn claims_of(cluster: &Cluster, pod: &Pod) -> Vec<Arc<ResourceClaim>> {
    let claims = cluster.devices().claims();
    let entries = pod.spec.resource_claims.iter();
    let names = entries.filter_map(|entry| {
        if let Some(name) = &entry.resource_claim_name {
            return Some(name);
        }
        let mut made = pod.status.resource_claim_statuses.iter();
        let made = made.find(|made| made.name == entry.name)?;
        made.resource_claim_name.as_ref()
    });
    let found = names.filter_map(|name| claims.get(pod.namespace(), name));
    found.cloned().collect()
}

/// The requested devices of waiting pods, such as `2 × gpu.example.com`.
pub(crate) fn requests_text(cluster: &Cluster, pod: &Pod) -> String {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for claim in claims_of(cluster, pod) {
        for request in &claim.spec.devices.requests {
            let exactly = request.exactly.iter();
            let first = exactly.chain(request.first_available.first()).next();
            if let Some(requested) = first {
                let class = requested.device_class_name.to_string();
                *counts.entry(class).or_default() += requested.count.max(1);
            }
        }
    }
    let parts = counts
        .iter()
        .map(|(class, count)| format!("{count} × {class}"));
    parts.collect::<Vec<_>>().join(", ")
}

/// The claims of a pod that need devices, prepared for all nodes.
struct PodDevices {
    features: AllocatorFeatures,
    claims: Vec<Arc<ResourceClaim>>,
    requests: Vec<ClaimRequests>,
    budget: SearchBudget,
}

impl PodDevices {
    /// The claims of a pod; `None` if none needs devices.
    fn new(snapshot: &Snapshot, pod: &Pod) -> Option<Self> {
        let claims = needing(&snapshot.cluster, pod);
        let features = allocator_features(&snapshot.features);
        let class = |name: &str| snapshot.cluster.devices().classes().get(name).cloned();
        let requests = claims
            .iter()
            .map(|claim| ClaimRequests::new(claim, features, class));
        (!claims.is_empty()).then(|| Self {
            features,
            requests: requests.collect(),
            budget: SearchBudget::of_steps(DEVICE_STEPS_MAX),
            claims: claims.clone(),
        })
    }

    /// The devices of a node for each alternative of each request.
    fn survey(
        &mut self,
        cluster: &Cluster,
        node: NodeView<'_>,
    ) -> Result<Vec<RequestSurvey>, AllocateError> {
        let claims: Vec<&ClaimRequests> = self.requests.iter().collect();
        let allocator = Allocator::new(cluster.devices().inventory(), self.features);
        allocator.survey(target(node), &claims, &mut self.budget)
    }
}

/// The existing claims of a pod without allocated devices.
pub(crate) fn needing(cluster: &Cluster, pod: &Pod) -> Vec<Arc<ResourceClaim>> {
    let mut claims = claims_of(cluster, pod);
    claims.retain(|claim| !claim.is_allocated());
    claims
}

/// A request, summed up over all nodes.
#[derive(Default)]
struct RequestSum {
    of_class: HashSet<DeviceId>,
    selected: HashMap<DeviceId, DeviceState>,
    /// The number of missing devices, the node, and its number of free devices, for the node that lacks the least.
    closest: Option<(usize, String, usize)>,
}

/// Each request with the devices of the cluster. The notes are the limits that were reached.
pub(crate) fn device_requests(
    snapshot: &Snapshot,
    pod: &Pod,
    notes: &mut Vec<String>,
) -> Vec<DeviceRequest> {
    let Some(mut devices) = PodDevices::new(snapshot, pod) else {
        return Vec::new();
    };
    let cluster = &snapshot.cluster;
    let mut sums: BTreeMap<(usize, usize, usize), (RequestSurvey, RequestSum)> = BTreeMap::new();
    for view in cluster.nodes.iter() {
        let surveys = match devices.survey(cluster, view) {
            Ok(surveys) => surveys,
            // An incomplete count is better than no answer.
            Err(AllocateError::OutOfSteps) => {
                notes.push(format!(
                    "devices are counted on some nodes only: no more than {DEVICE_STEPS_MAX} devices are looked at"
                ));
                break;
            }
            Err(error) => {
                // The same error on many nodes is noted once.
                let text = error.to_string();
                if !notes.contains(&text) {
                    notes.push(text);
                }
                continue;
            }
        };
        for survey in surveys {
            let key = (survey.claim, survey.request, survey.alternative);
            let (_, sum) = sums
                .entry(key)
                .or_insert_with(|| (survey.clone(), RequestSum::default()));
            let candidate = (survey.missing(), view.name().to_string(), survey.free());
            let is_closer = |known: &(usize, String, usize)| candidate < *known;
            if !survey.of_class.is_empty() && sum.closest.as_ref().is_none_or(is_closer) {
                sum.closest = Some(candidate);
            }
            sum.of_class.extend(survey.of_class);
            sum.selected.extend(survey.selected);
        }
    }
    let holders = cluster.devices().holders();
    let requests = sums.into_values();
    requests
        .map(|(survey, sum)| summed(&devices, &survey, sum, &holders))
        .collect()
}

fn summed(
    devices: &PodDevices,
    survey: &RequestSurvey,
    sum: RequestSum,
    holders: &FxHashMap<DeviceId, Arc<ResourceClaim>>,
) -> DeviceRequest {
    let claim = &devices.claims[survey.claim];
    let request = &claim.spec.devices.requests[survey.request];
    let requested = match &request.exactly {
        Some(exactly) if request.first_available.is_empty() => Some(exactly),
        _ => request.first_available.get(survey.alternative),
    };
    let count = |wanted: fn(&DeviceState) -> bool| {
        let states = sum.selected.values();
        states.filter(|state| wanted(state)).count()
    };
    let taints = sum.selected.values().filter_map(|state| match state {
        DeviceState::Tainted(taint) => Some(taint_text(&taint.key, &taint.value)),
        _ => None,
    });
    let taints: BTreeSet<String> = taints.collect();
    let mut held: Vec<&DeviceId> = sum
        .selected
        .iter()
        .filter(|(_, state)| **state == DeviceState::Held)
        .map(|(id, _)| id)
        .collect();
    held.sort();
    let held_by = held.iter().filter_map(|id| {
        let holder = holders.get(*id)?;
        Some(DeviceHolder {
            device: id.to_string(),
            claim: holder.key(),
            pods: holder.reserving_pods().collect(),
        })
    });
    DeviceRequest {
        claim: claim.key(),
        request: survey.name.to_string(),
        class: requested.map_or_else(String::new, |r| r.device_class_name.to_string()),
        wanted: survey.wanted,
        exist: sum.of_class.len(),
        matching: sum.selected.len(),
        free: count(|state| *state == DeviceState::Free),
        held: held.len(),
        tainted: count(|state| matches!(state, DeviceState::Tainted(_))),
        exhausted: count(|s| matches!(s, DeviceState::NoCapacity | DeviceState::NoCounters)),
        taints: taints.into_iter().take(EXAMPLES_MAX).collect(),
        held_by: held_by.take(EXAMPLES_MAX).collect(),
        closest: sum.closest.map(|(missing, node, free)| DeviceNode {
            node,
            free,
            missing,
        }),
    }
}

/// The devices that a node can use.
pub(crate) fn node_devices(snapshot: &Snapshot, node: NodeView<'_>) -> Vec<NodeDevice> {
    let cluster = &snapshot.cluster;
    let inventory = cluster.devices().inventory();
    if inventory.is_empty() {
        return Vec::new();
    }
    let features = allocator_features(&snapshot.features);
    let Ok(devices) = inventory.devices_of(target(node), features) else {
        return Vec::new();
    };
    let holders = cluster.devices().holders();
    let devices = devices.into_iter().map(|(id, device)| {
        let holder = holders.get(&id);
        let state = match (holder.is_some(), device.allow_multiple_allocations) {
            (false, _) => "free",
            (true, true) => "shared",
            (true, false) => "held",
        };
        let taints = device.taints.iter();
        NodeDevice {
            device: id.to_string(),
            state: state.to_owned(),
            taints: taints.map(|t| taint_text(&t.key, &t.value)).collect(),
            claim: holder.map_or_else(String::new, |holder| holder.key()),
            pods: holder.map_or_else(Vec::new, |holder| holder.reserving_pods().collect()),
        }
    });
    devices.collect()
}
