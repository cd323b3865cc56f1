//! The rows: the nodes, pods and other objects of each cluster. They follow the templates of kube-scheduler's own
//! benchmarks (`test/integration/scheduler_perf`), in a cluster of three zones.

use super::{devices, volumes};
use crate::generate::{self, ZONES};
use berth_api::{Kind, Node, Object, Pod};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// The number of Deployments with anti-affinity to their own pods: 10,000 such pods of one Deployment do not fit on
/// 5,000 nodes.
const GROUPS: usize = 4;
/// The number of namespaces of which selectors select every second one.
const NAMESPACES: usize = 100;
/// The maximum number of existing pods in these namespaces before the measurement.
const IN_NAMESPACES_MAX: usize = 2_000;
/// The number of pods of low priority that fill a node of [`Row::Preemption`].
const VICTIMS_PER_NODE: usize = 4;
/// The nodes of [`Row::Overhead`], regardless of the options.
const FEW_NODES: usize = 10;

/// The measured row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// Pods that fit anywhere.
    Unconstrained,
    /// Pods that require one of two zones.
    NodeAffinity,
    /// Pods that must be spread over zones and nodes.
    HardSpread,
    /// Pods that should be spread over zones and nodes.
    SoftSpread,
    /// Pods that require to be in the zone of their like.
    PodAffinity,
    /// Pods that require a node without their like.
    AntiAffinity,
    /// Pods that prefer the zone of some pods and nodes without others.
    PreferredAffinity,
    /// Required affinity and anti-affinity to pods of selected namespaces.
    NamespaceSelectors,
    /// The same from a hundred namespaces in turn: five hundred kinds of pods.
    ManyShapes,
    /// Pods of all these kinds in turn, in a cluster that has some of each.
    Mixed,
    /// Pods that are all different: each has requests and labels of its own.
    Different,
    /// The same, and half of them are spread, or near and far from others, by selectors of their own.
    DifferentConstraints,
    /// Every node is full of less important pods: each pod must make room.
    Preemption,
    /// Pods that fit nowhere, for different reasons on different nodes.
    Unfit,
    /// Pods of a DaemonSet: each names its node in a required node affinity.
    Daemonset,
    /// A Deployment is replaced: before each decision an old pod is deleted and a new one created.
    RollingUpdate,
    /// Half of the nodes are replaced one by one, with the pods on them, while pods are scheduled.
    NodePool,
    /// Pods with a claim for one device that a CEL expression selects.
    Devices,
    /// Pods whose claim for one device is made from a template when they wait already.
    ClaimTemplates,
    /// Pods with a claim for four devices of one PCIe root.
    MatchingDevices,
    /// Pods with a claim for the first of three alternatives that is available.
    DeviceLists,
    /// Pods with a claim for a partition of a device; partitions share counters.
    Partitions,
    /// Pods with a claim for one of the devices that all nodes can use.
    NetworkDevices,
    /// Pods with a claim of their own that is bound to a CSI volume of a zone.
    BoundClaims,
    /// Pods with a claim of their own whose volume is provisioned for the node of the pod.
    LateClaims,
    /// Pods that fit on each of ten large nodes: the cost of a decision outside of the evaluator.
    Overhead,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => f.pad(value.get_name()),
            None => Ok(()),
        }
    }
}

impl Row {
    /// The number of nodes if `asked` were requested.
    pub(super) fn nodes(self, asked: usize) -> usize {
        match self {
            Self::Overhead => FEW_NODES,
            _ => asked,
        }
    }

    /// Returns whether a pod is complete after its first decision; otherwise it is complete when it is bound.
    pub(super) fn ends_with_decision(self) -> bool {
        self != Self::Preemption
    }

    /// Returns whether decisions depend on the total number of scheduled pods, through the existing objects, the
    /// changes during the run, or the end of the row.
    pub(super) fn depends_on_pods(self) -> bool {
        matches!(
            self,
            Self::Preemption | Self::RollingUpdate | Self::NodePool
        )
    }

    /// Returns whether the pods have claims for devices.
    pub(super) fn has_claims(self) -> bool {
        matches!(
            self,
            Self::Devices
                | Self::ClaimTemplates
                | Self::MatchingDevices
                | Self::DeviceLists
                | Self::Partitions
                | Self::NetworkDevices
        )
    }

    /// Returns whether the claims are created after all pods.
    pub(super) fn creates_claims_later(self) -> bool {
        self == Self::ClaimTemplates
    }

    /// Returns whether the pods have claims for volumes.
    fn has_volumes(self) -> bool {
        matches!(self, Self::BoundClaims | Self::LateClaims)
    }

    /// The objects other than nodes and pods, in a cluster of `nodes` nodes.
    pub(super) fn objects(self, nodes: usize) -> Vec<Object> {
        let mut all = vec![generate::namespace("default", json!({}))];
        if matches!(self, Self::NamespaceSelectors | Self::ManyShapes) {
            all.extend((0..NAMESPACES).map(|at| {
                let team = if at % 2 == 0 { "devops" } else { "research" };
                generate::namespace(&namespace_name(at), json!({"team": team}))
            }));
        }
        if self.has_claims() {
            all.extend(devices::objects(self, nodes));
        }
        if self.has_volumes() {
            all.extend(volumes::objects(nodes));
        }
        all
    }

    /// A node.
    pub(super) fn node(self, index: usize) -> Arc<Node> {
        generate::node(index, |node| match self {
            Self::Overhead => {
                node["status"]["allocatable"] =
                    json!({"cpu": "1000000", "memory": "1000Ti", "pods": "1000000"});
            }
            Self::Unfit if index.is_multiple_of(10) => {
                node["spec"]["taints"] =
                    json!([{"key": "dedicated", "value": "infra", "effect": "NoSchedule"}]);
            }
            _ => {}
        })
    }

    /// The number of pods on `nodes` nodes before `pods` are scheduled.
    pub(super) fn existing(self, nodes: usize, pods: usize) -> usize {
        match self {
            Self::Preemption => nodes * VICTIMS_PER_NODE,
            Self::Mixed | Self::NodePool => nodes,
            Self::RollingUpdate => pods,
            Self::NamespaceSelectors => nodes.min(IN_NAMESPACES_MAX),
            _ => 0,
        }
    }

    /// An existing pod, on its node.
    pub(super) fn existing_pod(self, index: usize, nodes: usize) -> Arc<Pod> {
        let mut pod = generate::pod_json(EXISTING_FROM + index);
        match self {
            Self::Preemption => request(&mut pod, "1", "500Mi"),
            Self::NamespaceSelectors => select_namespaces(&mut pod, index % NAMESPACES, index),
            Self::RollingUpdate => spread(&mut pod, "blue", "ScheduleAnyway"),
            Self::NodePool => {}
            _ => shape_mixed(&mut pod, index),
        }
        pod["spec"]["nodeName"] = format!("node-{}", index % nodes.max(1)).into();
        pod["status"]["phase"] = "Running".into();
        pod["status"]["startTime"] = "2026-01-01T00:00:01Z".into();
        generate::pod_of(&pod)
    }

    /// A pod to be scheduled, and the JSON of its claim and of the claim's volume.
    pub(super) fn pod(
        self,
        index: usize,
        nodes: usize,
        rng: &mut fastrand::Rng,
    ) -> (Arc<Pod>, Vec<(Kind, Value)>) {
        let mut pod = generate::pod_json(index);
        if self == Self::Daemonset {
            on_node(&mut pod, &format!("node-{}", index % nodes.max(1)));
        }
        self.shape(&mut pod, index, rng);
        let mut objects = Vec::new();
        if self.has_claims() {
            objects.push((Kind::ResourceClaim, devices::claim(self, &mut pod)));
        }
        if self.has_volumes() {
            objects.extend(volumes::claim(self, index, &mut pod));
        }
        (generate::pod_of(&pod), objects)
    }

    fn shape(self, pod: &mut Value, index: usize, rng: &mut fastrand::Rng) {
        match self {
            Self::Unconstrained | Self::Overhead => {
                let (cpu, memory) =
                    [("50m", "100Mi"), ("100m", "500Mi"), ("200m", "1Gi")][rng.usize(0..3)];
                request(pod, cpu, memory);
            }
            Self::NodeAffinity => in_zones(pod, &ZONES[..2]),
            Self::HardSpread => spread(pod, "blue", "DoNotSchedule"),
            Self::SoftSpread | Self::RollingUpdate => spread(pod, "blue", "ScheduleAnyway"),
            Self::PodAffinity => near(pod, "blue", &json!({})),
            Self::AntiAffinity => apart(pod, &group(index), &json!({})),
            Self::PreferredAffinity => prefer(pod, "red", &group(index)),
            Self::NamespaceSelectors => select_namespaces(pod, 0, index),
            Self::ManyShapes => select_namespaces(pod, index % NAMESPACES, index / NAMESPACES),
            Self::Mixed => shape_mixed(pod, index),
            Self::Different => drop(own_application(pod, index)),
            Self::DifferentConstraints => own_constraints(pod, index),
            Self::Preemption => {
                request(pod, "1", "500Mi");
                pod["spec"]["priority"] = 1000.into();
            }
            Self::Unfit => {
                request(pod, "5", "500Mi");
                in_zones(pod, &ZONES[..2]);
            }
            Self::Daemonset
            | Self::NodePool
            | Self::Devices
            | Self::ClaimTemplates
            | Self::MatchingDevices
            | Self::DeviceLists
            | Self::Partitions
            | Self::NetworkDevices
            | Self::BoundClaims
            | Self::LateClaims => {}
        }
    }
}

/// The first number of existing pods, so that names are unique.
const EXISTING_FROM: usize = 10_000_000;

fn namespace_name(at: usize) -> String {
    format!("team-{at}")
}

fn group(index: usize) -> String {
    format!("green-{}", index % GROUPS)
}

fn request(pod: &mut Value, cpu: &str, memory: &str) {
    let amounts = json!({"cpu": cpu, "memory": memory});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
}

fn color(pod: &mut Value, color: &str) -> Value {
    pod["metadata"]["labels"]["color"] = color.into();
    selector(color)
}

fn selector(color: &str) -> Value {
    json!({"matchLabels": {"color": color}})
}

/// The fields that the DaemonSet controller adds to the pod of a node.
fn on_node(pod: &mut Value, node: &str) {
    pod["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet".into();
    pod["spec"]["affinity"]["nodeAffinity"] = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}],
        }]},
    });
}

fn in_zones(pod: &mut Value, zones: &[&str]) {
    pod["spec"]["affinity"]["nodeAffinity"] = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
            "matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": zones}],
        }]},
    });
}

fn spread(pod: &mut Value, of: &str, when_unsatisfiable: &str) {
    let selector = color(pod, of);
    let constraint = |key: &str, skew: i32| {
        json!({
            "maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when_unsatisfiable,
            "labelSelector": selector,
        })
    };
    pod["spec"]["topologySpreadConstraints"] = json!([
        constraint("topology.kubernetes.io/zone", 5),
        constraint("kubernetes.io/hostname", 1),
    ]);
}

/// A term with the fields of `more`.
fn term(selector: Value, topology_key: &str, more: &Value) -> Value {
    let mut term = json!({"labelSelector": selector, "topologyKey": topology_key});
    if let (Some(term), Some(more)) = (term.as_object_mut(), more.as_object()) {
        term.extend(more.clone());
    }
    term
}

fn near(pod: &mut Value, of: &str, more: &Value) {
    let selector = color(pod, of);
    pod["spec"]["affinity"]["podAffinity"] = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": [term(selector, "topology.kubernetes.io/zone", more)],
    });
}

fn apart(pod: &mut Value, of: &str, more: &Value) {
    let selector = color(pod, of);
    pod["spec"]["affinity"]["podAntiAffinity"] = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": [term(selector, "kubernetes.io/hostname", more)],
    });
}

/// A pod of a namespace with affinity (every second pod: anti-affinity) to pods of the namespaces of one team.
fn select_namespaces(pod: &mut Value, namespace: usize, index: usize) {
    pod["metadata"]["namespace"] = namespace_name(namespace).into();
    let team = json!({"namespaceSelector": {"matchLabels": {"team": "devops"}}});
    if index.is_multiple_of(2) {
        near(pod, "blue", &team);
    } else {
        apart(pod, &group(index / 2), &team);
    }
}

fn prefer(pod: &mut Value, near: &str, apart: &str) {
    let away = color(pod, apart);
    let weighted = |weight: i32, selector: Value, key: &str| {
        json!({
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": weight, "podAffinityTerm": term(selector, key, &json!({}))},
            ],
        })
    };
    pod["metadata"]["labels"]["tier"] = near.into();
    let like = json!({"matchLabels": {"tier": near}});
    pod["spec"]["affinity"] = json!({
        "podAffinity": weighted(50, like, "topology.kubernetes.io/zone"),
        "podAntiAffinity": weighted(100, away, "kubernetes.io/hostname"),
    });
}

fn shape_mixed(pod: &mut Value, index: usize) {
    match index % 8 {
        0 | 1 => {}
        2 => in_zones(pod, &ZONES[..2]),
        3 => spread(pod, "orange", "DoNotSchedule"),
        4 => spread(pod, "violet", "ScheduleAnyway"),
        5 => near(pod, "blue", &json!({})),
        6 => apart(pod, &group(index / 8), &json!({})),
        _ => prefer(pod, "red", "yellow"),
    }
}

/// An application of its own for each pod. Returns its name.
fn own_application(pod: &mut Value, index: usize) -> String {
    let (cpu, memory) = (20 + index % 120, 50_000 + index);
    request(pod, &format!("{cpu}m"), &format!("{memory}Ki"));
    let name = format!("app-{index}");
    pod["metadata"]["labels"] = json!({"app": name, "pod-template-hash": format!("{index:010x}")});
    pod["metadata"]["ownerReferences"] = json!([]);
    name
}

/// Gives a pod an application of its own, and constraints of a kind chosen by its index; each kind is used by at least
/// an eighth of the pods.
fn own_constraints(pod: &mut Value, index: usize) {
    let name = own_application(pod, index);
    let own = format!("{name}-{}", index % 7);
    match index % 8 {
        0..=2 => {}
        3 => in_zones(pod, &[ZONES[index % 3], ZONES[(index + 1) % 3]]),
        4 => spread(pod, &own, "DoNotSchedule"),
        5 => spread(pod, &own, "ScheduleAnyway"),
        6 => apart(pod, &own, &json!({})),
        _ => prefer(pod, &name, &own),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows have one name on the command line, in tables and in JSON.
    #[test]
    fn rows_are_found_by_name() {
        for row in Row::value_variants() {
            let name = row.to_string();
            assert_eq!(Row::from_str(&name, false), Ok(*row));
            assert_eq!(json!(row), name);
        }
    }

    #[test]
    fn rows_of_different_pods_have_no_equal_pods() {
        let mut rng = fastrand::Rng::with_seed(1);
        for row in [Row::Different, Row::DifferentConstraints] {
            let pods: Vec<_> = (0..200).map(|at| row.pod(at, 10, &mut rng).0).collect();
            for (at, pod) in pods.iter().enumerate() {
                let alike = |other: &&Arc<Pod>| {
                    other.spec.containers == pod.spec.containers || other.labels() == pod.labels()
                };
                assert_eq!(pods[..at].iter().find(alike), None, "{row}: {at}");
            }
        }
    }
}
