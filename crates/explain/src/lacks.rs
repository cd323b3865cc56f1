//! What a node lacks for a pod: the rejections of the filters, taken apart.
//!
//! A filter states that a node does not fit; here that is taken apart into what would have to change: each taint, each
//! resource, each label. What is not known here is one lack, with the text of the plugin.

use crate::answer::{ClosestNode, Lack};
use crate::examine::{Examination, Rejecting, plugin_of, texts};
use crate::limits::CLOSEST_MAX;
use crate::quantity;
use crate::snapshot::Snapshot;
use berth_api::node_selector::CompiledNodeSelector;
use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use berth_api::taint::tolerates_taint;
use berth_api::{Pod, Str, Taint};
use berth_framework::{Code, Feature, NodeView, PodInfo, Slot, Status};
use std::collections::BinaryHeap;

/// The plugins whose rejections are taken apart, by the names under which a profile has them.
pub(crate) mod plugins {
    pub(crate) const AFFINITY: &str = "NodeAffinity";
    pub(crate) const INTER_POD: &str = "InterPodAffinity";
    pub(crate) const PORTS: &str = "NodePorts";
    pub(crate) const RESOURCES: &str = "NodeResourcesFit";
    pub(crate) const SPREAD: &str = "PodTopologySpread";
    pub(crate) const TAINTS: &str = "TaintToleration";
    pub(crate) const UNSCHEDULABLE: &str = "NodeUnschedulable";
}

/// How much of a resource is short on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Short {
    pub(crate) resource: Str,
    /// In the unit of the node table.
    pub(crate) amount: i64,
    /// The share of what the pod requests, in thousandths.
    per_mille: i64,
}

/// The resources that are short on a node for a pod.
pub(crate) fn short(pod: &PodInfo, node: NodeView<'_>) -> Vec<Short> {
    let requests = &pod.requests;
    let named = [
        (CPU, requests.milli_cpu),
        (MEMORY, requests.memory),
        (EPHEMERAL_STORAGE, requests.ephemeral_storage),
        (PODS, 1),
    ];
    let scalars = requests.scalars.iter();
    let scalars = scalars.map(|(name, amount)| (name.as_str(), *amount));
    let all = named.into_iter().chain(scalars);
    all.filter(|(_, wanted)| *wanted > 0)
        .filter_map(|(resource, wanted)| {
            let free = node.allocatable_of(resource) - node.requested_of(resource);
            let amount = wanted.saturating_sub(free);
            (amount > 0).then(|| Short {
                resource: Str::new(resource),
                amount,
                per_mille: amount.saturating_mul(1000) / wanted,
            })
        })
        .collect()
}

/// The taints of a node that keep the pod away.
pub(crate) fn untolerated<'a>(
    pod: &'a Pod,
    node: NodeView<'a>,
    comparison_operators: bool,
) -> impl Iterator<Item = &'a Taint> {
    let taints = node.node().spec.taints.iter();
    taints.filter(move |taint| {
        taint.effect.forbids_scheduling()
            && !tolerates_taint(&pod.spec.tolerations, taint, comparison_operators)
    })
}

/// The labels of the pod's node selector that a node does not have.
pub(crate) fn missing_labels<'a>(
    pod: &'a Pod,
    node: NodeView<'a>,
) -> impl Iterator<Item = (&'a Str, &'a Str)> {
    let selector = pod.spec.node_selector.as_ref();
    let labels = selector.into_iter().flat_map(|labels| labels.iter());
    labels.filter(move |(key, value)| node.labels().get(key) != Some(value.as_str()))
}

/// Whether a node does not match the required node affinity of the pod.
pub(crate) fn misses_affinity(pod: &Pod, node: NodeView<'_>) -> bool {
    let affinity = pod.spec.affinity.as_ref();
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else {
        return false;
    };
    let selector = CompiledNodeSelector::new(required);
    !matches!(selector.matches(node.labels(), node.name()), Ok(true))
}

/// What a node lacks, and how far it is from fitting.
#[derive(Debug, Clone)]
pub(crate) struct Distance {
    pub(crate) node: Slot,
    pub(crate) lacks: Vec<Lack>,
    /// How much is short, in thousandths of the requests.
    per_mille: i64,
}

impl Distance {
    /// Fewer lacks first, then less that is short, then by name.
    fn key<'a>(&self, name: &'a Str) -> (usize, i64, &'a Str) {
        (self.lacks.len(), self.per_mille, name)
    }
}

/// Takes the rejections of a node apart.
pub(crate) fn distance(
    snapshot: &Snapshot,
    pod: &PodInfo,
    rejecting: &Rejecting,
) -> Option<Distance> {
    let view = snapshot.cluster.nodes.get(rejecting.node)?;
    let comparison_operators = snapshot
        .features
        .enabled(Feature::TaintTolerationComparisonOperators);
    let mut distance = Distance {
        node: rejecting.node,
        lacks: Vec::new(),
        per_mille: 0,
    };
    for status in &rejecting.statuses {
        let plugin = plugin_of(status);
        let before = distance.lacks.len();
        let lack = |text: String| Lack {
            plugin: plugin.clone(),
            text,
            preemption_may_help: status.code() == Code::Unschedulable,
            ..Lack::default()
        };
        match plugin.as_str() {
            plugins::RESOURCES => {
                for short in short(pod, view) {
                    distance.per_mille = distance.per_mille.saturating_add(short.per_mille);
                    let text = match short.resource.as_str() {
                        PODS => "no pod slot is free".to_owned(),
                        resource => {
                            format!("{} short", quantity::with_name(resource, short.amount))
                        }
                    };
                    distance.lacks.push(Lack {
                        resource: Some(short.resource.to_string()),
                        short: Some(short.amount),
                        ..lack(text)
                    });
                }
            }
            plugins::TAINTS => {
                let taints = untolerated(&pod.pod, view, comparison_operators);
                let lacks = taints.map(|taint| lack(format!("taint {taint} not tolerated")));
                distance.lacks.extend(lacks);
            }
            plugins::UNSCHEDULABLE => distance.lacks.push(lack("the node is cordoned".to_owned())),
            plugins::AFFINITY => {
                for (key, value) in missing_labels(&pod.pod, view) {
                    let has = match view.labels().get(key) {
                        Some(other) => format!("the node has {other}"),
                        None => "the node does not have the label".to_owned(),
                    };
                    let text = format!("nodeSelector wants label {key}={value}, {has}");
                    distance.lacks.push(lack(text));
                }
                if misses_affinity(&pod.pod, view) {
                    let text = "required node affinity does not match the node".to_owned();
                    distance.lacks.push(lack(text));
                }
            }
            plugins::PORTS => {
                let taken = pod.host_ports.iter().filter(|p| view.port_conflicts(p));
                for port in taken {
                    let holders = view.pods().iter();
                    let holders = holders
                        .filter(|other| other.host_ports.iter().any(|p| port.conflicts_with(p)));
                    // A copy that was changed and reverted has the pods in another order.
                    let holder = holders.min_by_key(|other| other.pod.key());
                    let holder = holder.map_or_else(String::new, |other| {
                        format!(" is used by pod {}", other.pod.key())
                    });
                    let text = format!("host port {}/{}{holder}", port.port, port.protocol);
                    distance.lacks.push(lack(text));
                }
            }
            plugins::SPREAD => distance.lacks.push(lack(spread(&pod.pod, view, status))),
            _ => {}
        }
        if distance.lacks.len() == before {
            let lacks = texts(status).into_iter().map(lack);
            distance.lacks.extend(lacks);
        }
    }
    Some(distance)
}

fn spread(pod: &Pod, node: NodeView<'_>, status: &Status) -> String {
    let constraints = pod.spec.topology_spread_constraints.iter();
    let required = constraints.filter(|c| c.when_unsatisfiable == "DoNotSchedule");
    let parts: Vec<String> = required
        .map(|constraint| {
            let key = &constraint.topology_key;
            match node.labels().get(key) {
                Some(value) => format!("maxSkew {} over {key} ({value})", constraint.max_skew),
                None => format!("the node has no label {key}"),
            }
        })
        .collect();
    format!("{}: {}", texts(status).join(", "), parts.join("; "))
}

/// What each rejecting node lacks, the closest ones first, and no more than `max` of them.
pub(crate) fn closest(
    snapshot: &Snapshot,
    pod: &PodInfo,
    examination: &Examination,
    max: usize,
) -> Vec<Distance> {
    let name = |node: Slot| snapshot.cluster.nodes.get(node).map(|view| view.name());
    // By key and place: the farthest of the closest ones is on top.
    let mut heap: BinaryHeap<((usize, i64, &Str), usize)> = BinaryHeap::new();
    let mut distances: Vec<Distance> = Vec::new();
    for rejecting in &examination.rejecting {
        let known = distance(snapshot, pod, rejecting).zip(name(rejecting.node));
        let Some((distance, name)) = known else {
            continue;
        };
        let key = distance.key(name);
        if heap.len() >= max {
            match heap.peek() {
                Some((farthest, at)) if key < *farthest => {
                    let at = *at;
                    heap.pop();
                    distances[at] = distance;
                    heap.push((key, at));
                }
                _ => {}
            }
            continue;
        }
        heap.push((key, distances.len()));
        distances.push(distance);
    }
    let order = heap.into_sorted_vec();
    let mut found: Vec<Option<Distance>> = distances.into_iter().map(Some).collect();
    order
        .into_iter()
        .filter_map(|(_, at)| found[at].take())
        .collect()
}

/// The closest nodes for the answer.
pub(crate) fn listed(snapshot: &Snapshot, closest: &[Distance]) -> Vec<ClosestNode> {
    let listed = closest.iter().take(CLOSEST_MAX).filter_map(|distance| {
        Some(ClosestNode {
            node: snapshot
                .cluster
                .nodes
                .get(distance.node)?
                .name()
                .to_string(),
            lacks: distance.lacks.clone(),
        })
    });
    listed.collect()
}
