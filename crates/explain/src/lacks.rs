//! The resources that a node lacks for a pod: the rejections of the filters, taken apart.
//!
//! A filter states that a node does not fit; here that is taken apart into what would have to change: each taint, each
//! resource, each label. What is not known here is one lack, with the text of the plugin.

use crate::answer::{ClosestNode, Lack};
use crate::devices::{DeviceLack, PodDevices};
use crate::examine::{Examination, Rejecting, plugin_of, texts};
use crate::limits::CLOSEST_MAX;
use crate::quantity;
use crate::snapshot::Snapshot;
use berth_api::node_selector::CompiledNodeSelector;
use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use berth_api::taint::tolerates_taint;
use berth_api::{Pod, Str, Taint};
use berth_framework::pod_info::HostPort;
use berth_framework::{Cluster, Code, Feature, NodeView, PodInfo, Slot, Status};
use std::collections::BinaryHeap;

/// The plugins whose rejections are taken apart, by the names under which a profile has them.
pub(crate) mod plugins {
    pub(crate) const AFFINITY: &str = "NodeAffinity";
    pub(crate) const DEVICES: &str = "DynamicResources";
    pub(crate) const INTER_POD: &str = "InterPodAffinity";
    pub(crate) const PORTS: &str = "NodePorts";
    pub(crate) const RESOURCES: &str = "NodeResourcesFit";
    pub(crate) const SPREAD: &str = "PodTopologySpread";
    pub(crate) const TAINTS: &str = "TaintToleration";
    pub(crate) const UNSCHEDULABLE: &str = "NodeUnschedulable";
}

/// The amount of a resource that is short on a node.
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

/// The labels of the pod's node selector that a node does not have.
pub(crate) fn missing_labels<'a>(
    pod: &'a Pod,
    node: NodeView<'a>,
) -> impl Iterator<Item = (&'a Str, &'a Str)> {
    let selector = pod.spec.node_selector.as_ref();
    let labels = selector.into_iter().flat_map(|labels| labels.iter());
    labels.filter(move |(key, value)| node.labels().get(key) != Some(value.as_str()))
}

/// The distance of a node.
#[derive(Debug, Clone)]
pub(crate) struct Distance {
    pub(crate) node: Slot,
    pub(crate) lacks: Vec<Lack>,
}

/// One thing that a node lacks.
enum Missing<'a> {
    Resource(Short),
    Taint(&'a Taint),
    Cordon,
    Label(&'a Str, &'a Str),
    Affinity,
    Port(&'a HostPort),
    Spread,
    Devices(DeviceLack),
    /// A reason of the status, by its place: the plugin is not known here.
    Other(usize),
}

/// Compares a pod with nodes. What does not depend on the node is parsed once.
pub(crate) struct NodeComparison<'a> {
    pod: &'a PodInfo,
    /// The required node affinity.
    affinity: Option<CompiledNodeSelector>,
    comparison_operators: bool,
    cluster: &'a Cluster,
    /// The resource claims.
    pub(crate) devices: Option<PodDevices>,
}

impl<'a> NodeComparison<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, pod: &'a PodInfo) -> Self {
        let affinity = pod.pod.spec.affinity.as_ref();
        let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| affinity.required.as_ref());
        Self {
            pod,
            affinity: required.map(CompiledNodeSelector::new),
            comparison_operators: snapshot
                .features
                .enabled(Feature::TaintTolerationComparisonOperators),
            cluster: &snapshot.cluster,
            devices: PodDevices::new(snapshot, &pod.pod),
        }
    }

    /// The cluster of the nodes.
    pub(crate) fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    /// The taints of a node that keep the pod away.
    pub(crate) fn untolerated<'n>(&self, node: NodeView<'n>) -> impl Iterator<Item = &'n Taint> {
        let taints = node.node().spec.taints.iter();
        taints.filter(move |taint| {
            let tolerations = &self.pod.pod.spec.tolerations;
            taint.effect.forbids_scheduling()
                && !tolerates_taint(tolerations, taint, self.comparison_operators)
        })
    }

    /// Returns whether a node does not match the required node affinity of the pod.
    pub(crate) fn misses_affinity(&self, node: NodeView<'_>) -> bool {
        let affinity = self.affinity.as_ref();
        affinity.is_some_and(|required| {
            !matches!(required.matches(node.labels(), node.name()), Ok(true))
        })
    }

    /// Takes a rejection of a node apart.
    fn each<'n>(&'n self, node: NodeView<'n>, status: &Status, mut found: impl FnMut(Missing<'n>)) {
        let mut is_known = false;
        let mut note = |missing| {
            is_known = true;
            found(missing);
        };
        match status.plugin().map_or("", |plugin| plugin.as_str()) {
            plugins::RESOURCES => {
                let short = short(self.pod, node).into_iter();
                short.for_each(|short| note(Missing::Resource(short)));
            }
            plugins::TAINTS => self.untolerated(node).for_each(|t| note(Missing::Taint(t))),
            plugins::UNSCHEDULABLE => note(Missing::Cordon),
            plugins::AFFINITY => {
                let labels = missing_labels(&self.pod.pod, node);
                labels.for_each(|(key, value)| note(Missing::Label(key, value)));
                if self.misses_affinity(node) {
                    note(Missing::Affinity);
                }
            }
            plugins::PORTS => {
                let ports = self.pod.host_ports.iter();
                let taken = ports.filter(|port| node.port_conflicts(port));
                taken.for_each(|port| note(Missing::Port(port)));
            }
            plugins::SPREAD => note(Missing::Spread),
            plugins::DEVICES => {
                let devices = self.devices.iter();
                let lacks = devices.flat_map(|devices| devices.lacks(self.cluster, node));
                lacks.for_each(|lack| note(Missing::Devices(lack)));
            }
            _ => {}
        }
        // A plugin that is not known, or whose reason is not found again, is shown with its own text.
        if !is_known {
            (0..status.reasons().len().max(1)).for_each(|at| found(Missing::Other(at)));
        }
    }

    /// The distance of a node from fitting: how many things it lacks, and how much of resources is short, in
    /// thousandths of the requests.
    fn measured(&self, node: NodeView<'_>, rejecting: &Rejecting) -> (usize, i64) {
        let (mut lacks, mut per_mille) = (0, 0_i64);
        for status in &rejecting.statuses {
            self.each(node, status, |missing| {
                lacks += 1;
                let short = match &missing {
                    Missing::Resource(short) => short.per_mille,
                    Missing::Devices(lack) => lack.per_mille(),
                    _ => 0,
                };
                per_mille = per_mille.saturating_add(short);
            });
        }
        (lacks, per_mille)
    }

    /// The distance of a node, in words.
    pub(crate) fn distance(&self, node: NodeView<'_>, rejecting: &Rejecting) -> Distance {
        let mut lacks = Vec::new();
        for status in &rejecting.statuses {
            self.each(node, status, |missing| {
                let of_resource = match &missing {
                    Missing::Resource(short) => {
                        (Some(short.resource.to_string()), Some(short.amount))
                    }
                    _ => (None, None),
                };
                lacks.push(Lack {
                    plugin: plugin_of(status),
                    text: self.text(node, status, &missing),
                    preemption_may_help: status.code() == Code::Unschedulable,
                    resource: of_resource.0,
                    short: of_resource.1,
                });
            });
        }
        Distance {
            node: rejecting.node,
            lacks,
        }
    }

    fn text(&self, node: NodeView<'_>, status: &Status, missing: &Missing<'_>) -> String {
        match missing {
            Missing::Resource(short) => match short.resource.as_str() {
                PODS => "no pod slot is free".to_owned(),
                resource => format!("{} short", quantity::with_name(resource, short.amount)),
            },
            Missing::Taint(taint) => format!("taint {taint} not tolerated"),
            Missing::Cordon => "the node is cordoned".to_owned(),
            Missing::Label(key, value) => {
                let has = match node.labels().get(key) {
                    Some(other) => format!("the node has {other}"),
                    None => "the node does not have the label".to_owned(),
                };
                format!("nodeSelector wants label {key}={value}, {has}")
            }
            Missing::Affinity => "required node affinity does not match the node".to_owned(),
            Missing::Port(port) => {
                let holders = node.pods().iter();
                let holders =
                    holders.filter(|other| other.host_ports.iter().any(|p| port.conflicts_with(p)));
                // A copy that was changed and reverted has the pods in another order.
                let holder = holders.min_by_key(|other| other.pod.key());
                let holder = holder.map_or_else(String::new, |other| {
                    format!(" is used by pod {}", other.pod.key())
                });
                format!("host port {}/{}{holder}", port.port, port.protocol)
            }
            Missing::Spread => spread(&self.pod.pod, node, status),
            Missing::Devices(lack) => lack.text().to_owned(),
            Missing::Other(at) => texts(status).into_iter().nth(*at).unwrap_or_default(),
        }
    }
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

/// The distances of the rejecting nodes, the closest ones first, and no more than `max` of them. Only these are
/// described.
pub(crate) fn closest(
    snapshot: &Snapshot,
    pod: &PodInfo,
    examination: &Examination,
    max: usize,
) -> Vec<Distance> {
    let comparison = NodeComparison::new(snapshot, pod);
    let nodes = &snapshot.cluster.nodes;
    // Fewer lacks first, then less that is short, then by name. The farthest of the closest ones is on top.
    let mut heap: BinaryHeap<((usize, i64, &Str), usize)> = BinaryHeap::new();
    for (at, rejecting) in examination.rejecting.iter().enumerate() {
        let Some(view) = nodes.get(rejecting.node) else {
            continue;
        };
        let (lacks, per_mille) = comparison.measured(view, rejecting);
        heap.push(((lacks, per_mille, view.name()), at));
        if heap.len() > max {
            heap.pop();
        }
    }
    let closest = heap.into_sorted_vec().into_iter();
    closest
        .filter_map(|(_, at)| {
            let rejecting = examination.rejecting.get(at)?;
            let view = nodes.get(rejecting.node)?;
            Some(comparison.distance(view, rejecting))
        })
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
