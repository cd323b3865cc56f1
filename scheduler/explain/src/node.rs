//! The pods of a node, its free resources, and the waiting pods to which it is closest.

use crate::answer::{
    LackView, NodeAnswer, NodeDevice, NodeResource, PodName, PodOnNode, WaitingKind,
};
use crate::closest::distance;
use crate::devices::node_devices;
use crate::examine::{Rejecting, is_possible};
use crate::limits::{DEVICES_LISTED_MAX, KINDS_MAX, PODS_LISTED_MAX};
use crate::preemption::violated_budgets;
use crate::queue::QueueFacts;
use crate::snapshot::Snapshot;
use crate::words::count;
use berth_api::Pod;
use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use berth_framework::{NodeView, PodInfo, Slot, Status, quantity};
use berth_scheduler::profile::Profile;
use std::sync::Arc;

/// The number of listed kinds of waiting pods, for fitting and for not fitting kinds each.
const KINDS_LISTED_MAX: usize = 10;

/// Explains a node; `None` if there is no such node.
pub fn explain_node(snapshot: &mut Snapshot, queue: &QueueFacts, name: &str) -> Option<NodeAnswer> {
    let view = snapshot.cluster.nodes.node(name)?;
    let slot = view.slot();
    let spec = &view.node().spec;
    let mut answer = NodeAnswer {
        at: snapshot.now.rfc3339(),
        name: name.to_owned(),
        is_cordoned: spec.unschedulable,
        taints: spec.taints.iter().map(ToString::to_string).collect(),
        resources: resources(view),
        fragmentation_percent: fragmentation(view),
        pods: pods(snapshot, view),
        pod_count: view.pods().len(),
        nominated: nominated(snapshot, view),
        devices: node_devices(snapshot, view),
        ..NodeAnswer::default()
    };
    answer.device_count = answer.devices.len();
    let is_free = |device: &&NodeDevice| device.state == "free";
    answer.devices_free = answer.devices.iter().filter(is_free).count();
    answer.devices.truncate(DEVICES_LISTED_MAX);
    if answer.pod_count > PODS_LISTED_MAX {
        let text = format!("{PODS_LISTED_MAX} of {} pods are listed", answer.pod_count);
        answer.notes.push(text);
    }
    kinds(snapshot, slot, queue, &mut answer);
    answer.summary = summary(&answer);
    Some(answer)
}

fn summary(answer: &NodeAnswer) -> String {
    let free: Vec<String> = answer
        .resources
        .iter()
        .filter(|resource| matches!(resource.name.as_str(), CPU | MEMORY))
        .map(|resource| format!("{} {}", resource.free, resource.name))
        .collect();
    let waiting: usize = answer.fits.iter().map(|kind| kind.pods).sum();
    format!(
        "{}{}; free: {}; {waiting} of the waiting pods fit.",
        count(answer.pod_count as u64, "pod"),
        if answer.is_cordoned { ", cordoned" } else { "" },
        free.join(", ")
    )
}

fn resources(view: NodeView<'_>) -> Vec<NodeResource> {
    let scalars = view.allocatable_scalars().iter().map(|name| name.as_str());
    [CPU, MEMORY, EPHEMERAL_STORAGE, PODS]
        .into_iter()
        .chain(scalars)
        .filter(|name| view.allocatable_of(name) > 0 || view.requested_of(name) > 0)
        .map(|name| {
            let (has, used) = (view.allocatable_of(name), view.requested_of(name));
            NodeResource {
                name: name.to_owned(),
                allocatable: quantity::amount(name, has),
                requested: quantity::amount(name, used),
                free: quantity::amount(name, has - used),
                requested_percent: percent(used, has),
            }
        })
        .collect()
}

fn percent(part: i64, of: i64) -> f64 {
    match of {
        0 => 0.0,
        of => (part as f64 * 1000.0 / of as f64).round() / 10.0,
    }
}

fn fragmentation(view: NodeView<'_>) -> f64 {
    let free = [CPU, MEMORY].map(|name| {
        let has = view.allocatable_of(name);
        percent((has - view.requested_of(name)).max(0), has)
    });
    let spread = (free[0] - free[1]).abs();
    (spread * 10.0).round() / 10.0
}

fn pods(snapshot: &Snapshot, view: NodeView<'_>) -> Vec<PodOnNode> {
    let mut infos: Vec<&Arc<PodInfo>> = view.pods().iter().collect();
    infos.sort_by_key(|info| {
        let requests = &info.requests;
        std::cmp::Reverse((requests.milli_cpu, requests.memory))
    });
    let listed = infos.into_iter().take(PODS_LISTED_MAX);
    listed
        .map(|info| {
            // The stored pod has its latest state, while the table has the pod as counted.
            let known = snapshot.cluster.pods.get(info.pod.uid());
            let pod: &Pod = known.unwrap_or(&info.pod);
            let requests = &info.requests;
            let mut parts = Vec::new();
            for (name, amount) in [(CPU, requests.milli_cpu), (MEMORY, requests.memory)]
                .into_iter()
                .chain(requests.scalars.iter().map(|(n, a)| (n.as_str(), *a)))
            {
                if amount > 0 {
                    parts.push(quantity::with_name(name, amount));
                }
            }
            PodOnNode {
                namespace: pod.namespace().to_string(),
                name: pod.name().to_string(),
                priority: pod.priority(),
                requests: parts.join(", "),
                note: if pod.is_terminating() {
                    "terminating".to_owned()
                } else {
                    String::new()
                },
            }
        })
        .collect()
}

fn nominated(snapshot: &Snapshot, view: NodeView<'_>) -> Vec<PodName> {
    let pods = snapshot.nominator.pods_on(view.name()).iter();
    let names = pods.map(|info| PodName {
        namespace: info.pod.namespace().to_string(),
        name: info.pod.name().to_string(),
        priority: info.pod.priority(),
        violated_budgets: violated_budgets(snapshot, &info.pod),
    });
    names.collect()
}

/// Examines the kinds of waiting pods on the node.
fn kinds(snapshot: &mut Snapshot, slot: Slot, queue: &QueueFacts, answer: &mut NodeAnswer) {
    let mut lacking = Vec::new();
    for group in queue.groups.iter().take(KINDS_MAX) {
        // The pods of a group have the same requirements, so one of them represents the group.
        let pod = &group.oldest;
        let Some(profile) = snapshot.profiles.get(&pod.spec.scheduler_name).cloned() else {
            continue;
        };
        let info = Arc::new(PodInfo::new(pod.clone()));
        let kind = WaitingKind {
            example: pod.key(),
            pods: group.pods,
            lacks: Vec::new(),
        };
        let lacks = lacks(snapshot, &profile, &info, slot);
        if lacks.is_empty() {
            answer.fits.push(kind);
        } else {
            lacking.push(WaitingKind { lacks, ..kind });
        }
    }
    if queue.groups.len() > KINDS_MAX {
        let text = format!(
            "the {KINDS_MAX} kinds of pods that wait longest are examined, of {}",
            queue.groups.len()
        );
        answer.notes.push(text);
    }
    // The kinds with the fewest lacks are the most useful ones.
    lacking.sort_by_key(|kind| kind.lacks.len());
    lacking.truncate(KINDS_LISTED_MAX);
    answer.closest_to = lacking;
    answer.fits.truncate(KINDS_LISTED_MAX);
}

/// The lacks of the node for a pod; none if the pod fits.
fn lacks(
    snapshot: &mut Snapshot,
    profile: &Profile,
    pod: &Arc<PodInfo>,
    slot: Slot,
) -> Vec<LackView> {
    snapshot.evaluate(profile, pod, |evaluator| {
        let statuses = match evaluator.pre_filter() {
            Err((status, _)) => vec![status],
            Ok(possible) => {
                let mut statuses = evaluator.filter_node_by_all(slot);
                if statuses.is_empty() && !is_possible(evaluator.cluster, &possible.nodes, slot) {
                    let by = possible.narrowed_by.first();
                    let status = Status::unresolvable("the node is not among those of the pod");
                    statuses.push(status.by(by.map_or("", |name| name.as_str())));
                }
                statuses
            }
        };
        let node = slot;
        distance(evaluator, &Rejecting { node, statuses }).lacks
    })
}
