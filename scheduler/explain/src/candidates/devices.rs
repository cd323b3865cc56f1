//! Changes after which a node may have the requested devices.

use crate::change::{PodRef, TriedChange};
use crate::devices::needing;
use berth_api::{Pod, Str};
use berth_framework::lack::{DeviceShortage, HeldDevice};
use berth_framework::{Cluster, Lack, NodeView, PodInfo};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The changes for one node that lacks devices.
pub(super) fn changes(
    cluster: &Cluster,
    pod: &PodInfo,
    node: NodeView<'_>,
    lacks: &[&Lack],
) -> Vec<TriedChange> {
    let shortages = lacks.iter().filter_map(|lack| match lack {
        Lack::Devices(shortage) => Some(shortage),
        _ => None,
    });
    let shortages: Vec<&DeviceShortage> = shortages.collect();
    let mut changes: Vec<TriedChange> = shortages.iter().flat_map(|s| of_request(s)).collect();
    let mut lacks = lacks.iter();
    let is_of_requests = lacks.any(|lack| {
        matches!(
            lack,
            Lack::Devices(_)
                | Lack::DeviceConstraint { .. }
                | Lack::DeviceCompetition { .. }
                | Lack::DevicesTogether
        )
    });
    if is_of_requests {
        changes.extend(constraints(cluster, pod));
    }
    changes.extend(deletion(pod, node, &shortages));
    changes
}

/// The name of a claim of the pod, which is in its namespace.
fn name_of(key: &str) -> String {
    key.split_once('/').map_or(key, |(_, name)| name).to_owned()
}

/// Changes of a request.
fn of_request(shortage: &DeviceShortage) -> Vec<TriedChange> {
    let claim = name_of(&shortage.claim);
    let request = shortage.request.to_string();
    let mut taints: Vec<(&Str, &Str)> = Vec::new();
    for tainted in &shortage.tainted {
        if !taints.contains(&(&tainted.key, &tainted.value)) {
            taints.push((&tainted.key, &tainted.value));
        }
    }
    let tolerated = taints
        .into_iter()
        .map(|(key, value)| TriedChange::TolerateDeviceTaint {
            claim: claim.clone(),
            request: request.clone(),
            key: key.to_string(),
            value: value.to_string(),
        });
    let mut changes: Vec<TriedChange> = tolerated.collect();
    // Selectors are proposed for removal only if they exclude a device of the class.
    if shortage.matching < shortage.exist {
        changes.push(TriedChange::RemoveDeviceSelectors {
            claim: claim.clone(),
            request: request.clone(),
        });
    }
    // Fewer devices help only if some are free.
    if shortage.free > 0 && shortage.wanted.is_some() {
        changes.push(TriedChange::RequestFewerDevices {
            claim,
            request,
            count: shortage.free,
        });
    }
    changes
}

/// The constraints of the claims, each as a separate change.
fn constraints(cluster: &Cluster, pod: &PodInfo) -> Vec<TriedChange> {
    let claims = needing(cluster, &pod.pod);
    let changes = claims.iter().flat_map(|claim| {
        let constraints = claim.spec.devices.constraints.iter().enumerate();
        constraints.map(|(index, constraint)| TriedChange::RemoveDeviceConstraint {
            claim: claim.metadata.name.to_string(),
            index,
            constraint: constraint.to_string(),
        })
    });
    changes.collect()
}

/// The pods of the node with the missing devices: of no higher priority, and of other controllers; the lowest priority
/// first.
fn deletion(
    pod: &PodInfo,
    node: NodeView<'_>,
    shortages: &[&DeviceShortage],
) -> Option<TriedChange> {
    let mut victims: BTreeMap<String, Arc<Pod>> = BTreeMap::new();
    for shortage in shortages {
        let mut found: Vec<(i32, &Str, Vec<Arc<Pod>>)> = Vec::new();
        for HeldDevice { claim, pods, .. } in &shortage.held {
            let claim = claim.as_ref()?;
            let pods = pods.iter().map(|name| deletable(pod, node, name));
            let pods: Option<Vec<Arc<Pod>>> = pods.collect();
            if let Some(pods) = pods.filter(|pods| !pods.is_empty()) {
                let priority = pods.iter().map(|pod| pod.priority()).max();
                found.push((priority.unwrap_or_default(), claim, pods));
            }
        }
        found.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        let missing = shortage.missing();
        if found.len() < missing {
            return None;
        }
        // Further devices of a claim are released with the first one.
        for (_, _, pods) in found.into_iter().take(missing) {
            victims.extend(pods.into_iter().map(|pod| (pod.key(), pod)));
        }
    }
    (!victims.is_empty()).then(|| TriedChange::DeletePods {
        node: node.name().to_string(),
        pods: victims.values().map(|pod| PodRef::of(pod)).collect(),
    })
}

/// A pod of the node by its key, if it may be deleted for the other pod.
fn deletable(pod: &PodInfo, node: NodeView<'_>, key: &str) -> Option<Arc<Pod>> {
    let owner = |pod: &Pod| pod.metadata.controller().map(|owner| owner.uid.clone());
    let mut on_node = node.pods().iter();
    let victim = on_node.find(|other| other.pod.key() == key)?;
    let is_same_owner = owner(&pod.pod).is_some_and(|uid| owner(&victim.pod) == Some(uid));
    let may = victim.pod.priority() <= pod.pod.priority() && !is_same_owner;
    may.then(|| victim.pod.clone())
}
