//! Changes after which a node may have the devices that are requested.

use crate::change::{PodRef, TriedChange};
use crate::devices::{PodDevices, best, constraint_text, holders};
use crate::lacks::NodeComparison;
use berth_api::{Pod, Str};
use berth_devices::{DeviceState, RequestSurvey};
use berth_framework::{Cluster, NodeView, PodInfo};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The changes for one node.
pub(super) fn changes(
    comparison: &NodeComparison<'_>,
    pod: &PodInfo,
    node: NodeView<'_>,
) -> Vec<TriedChange> {
    let cluster = comparison.cluster();
    let Some(devices) = &comparison.devices else {
        return Vec::new();
    };
    let Ok(surveys) = devices.survey(cluster, node) else {
        return Vec::new();
    };
    let short: Vec<&RequestSurvey> = best(&surveys)
        .into_iter()
        .filter(|survey| survey.missing() > 0)
        .collect();
    let mut changes: Vec<TriedChange> = Vec::new();
    for survey in &short {
        changes.extend(of_request(devices, survey));
    }
    changes.extend(constraints(devices, &surveys));
    changes.extend(deletion(cluster, pod, node, &short));
    changes
}

/// Changes of a request.
fn of_request(devices: &PodDevices, survey: &RequestSurvey) -> Vec<TriedChange> {
    let claim = devices.claim(survey.claim).metadata.name.to_string();
    let request = survey.name.to_string();
    let mut taints: Vec<(&Str, &Str)> = Vec::new();
    for (_, state) in &survey.selected {
        if let DeviceState::Tainted(taint) = state
            && !taints.contains(&(&taint.key, &taint.value))
        {
            taints.push((&taint.key, &taint.value));
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
    // Selectors are named only if they exclude a device of the class.
    if survey.selected.len() < survey.of_class.len() {
        changes.push(TriedChange::RemoveDeviceSelectors {
            claim: claim.clone(),
            request: request.clone(),
        });
    }
    let free = survey.free();
    // Fewer devices help only if some are free.
    if free > 0 && survey.wanted.is_some() {
        changes.push(TriedChange::RequestFewerDevices {
            claim,
            request,
            count: free,
        });
    }
    changes
}

/// The constraints of the claims, one by one.
fn constraints(devices: &PodDevices, surveys: &[RequestSurvey]) -> Vec<TriedChange> {
    let mut claims: Vec<usize> = surveys.iter().map(|survey| survey.claim).collect();
    claims.dedup();
    let of_claim = |claim: usize| {
        let claim = devices.claim(claim);
        let constraints = claim.spec.devices.constraints.iter().enumerate();
        let changes = constraints.map(|(index, constraint)| TriedChange::RemoveDeviceConstraint {
            claim: claim.metadata.name.to_string(),
            index,
            constraint: constraint_text(constraint),
        });
        changes.collect::<Vec<_>>()
    };
    claims.into_iter().flat_map(of_claim).collect()
}

/// The pods of the node that hold the missing devices: of no higher priority, and of other controllers; those of the
/// lowest priority first.
fn deletion(
    cluster: &Cluster,
    pod: &PodInfo,
    node: NodeView<'_>,
    short: &[&RequestSurvey],
) -> Option<TriedChange> {
    let holders = holders(cluster);
    let mut victims: BTreeMap<String, Arc<Pod>> = BTreeMap::new();
    for survey in short {
        let mut found: Vec<(i32, String, Vec<Arc<Pod>>)> = Vec::new();
        for (id, state) in &survey.selected {
            if *state != DeviceState::Held {
                continue;
            }
            let holder = holders.get(id)?;
            let pods: Option<Vec<Arc<Pod>>> = holder
                .pods
                .iter()
                .map(|name| deletable(pod, node, name))
                .collect();
            if let Some(pods) = pods.filter(|pods| !pods.is_empty()) {
                let priority = pods.iter().map(|pod| pod.priority()).max();
                found.push((priority.unwrap_or_default(), holder.claim.key(), pods));
            }
        }
        found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let missing = survey.missing();
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
