//! The changes to try, derived from the lacks of the closest nodes and from the claims of the pod.

mod devices;

use crate::answer::LackView;
use crate::change::{Less, PodRef, TaintRef, TriedChange};
use crate::closest::Distance;
use crate::examine::Examination;
use crate::snapshot::Snapshot;
use berth_api::resources::PODS;
use berth_api::volumes;
use berth_framework::lack::PodAffinityRule;
use berth_framework::{Cluster, Code, Lack, NodeView, PodInfo, Slot};
use std::collections::BTreeMap;

/// The number of closest nodes from which the first changes of pairs are derived.
const NODES_OF_PAIRS_MAX: usize = 8;
/// The access mode of a claim that one pod may use.
const ONE_POD: &str = "ReadWriteOncePod";

/// The changes that are derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Changes that may provide everything that a node lacks.
    Whole,
    /// Changes that provide a part of it.
    Parts,
}

/// The changes to try, with the nodes on which each can help, the cheapest first.
pub(crate) fn candidates(
    snapshot: &Snapshot,
    pod: &PodInfo,
    examination: &Examination,
    closest: &[Distance],
    which: Which,
) -> Vec<(TriedChange, Vec<Slot>)> {
    let mut of_nodes = OfNodes {
        cluster: &snapshot.cluster,
        pod,
        which,
        found: of_claims(snapshot, pod, examination, closest, which),
        of_pod: BTreeMap::new(),
        least: None,
    };
    // Pairs are tried on few nodes, because their number grows with the square of the number of changes.
    let nodes_max = match which {
        Which::Whole => usize::MAX,
        Which::Parts => NODES_OF_PAIRS_MAX,
    };
    for distance in closest.iter().take(nodes_max) {
        if let Some(view) = snapshot.cluster.nodes.get(distance.node) {
            of_nodes.node(distance, view);
        }
    }
    let OfNodes {
        mut found,
        of_pod,
        least,
        ..
    } = of_nodes;
    // Among the reductions of a request, only the smallest one is useful.
    found.extend(least.map(|(_, change, node)| (change, vec![node])));
    found.extend(of_pod.into_values());
    found.sort_by_key(|(change, _)| change.cost());
    found
}

/// The changes that are derived from nodes.
struct OfNodes<'a> {
    cluster: &'a Cluster,
    pod: &'a PodInfo,
    which: Which,
    found: Vec<(TriedChange, Vec<Slot>)>,
    /// Changes of the pod by their text, with all nodes on which they can help.
    of_pod: BTreeMap<String, (TriedChange, Vec<Slot>)>,
    /// The smallest reduction of the requests.
    least: Option<(i64, TriedChange, Slot)>,
}

impl OfNodes<'_> {
    fn node(&mut self, distance: &Distance, view: NodeView<'_>) {
        // A cordoned node with the taint of its cordon is rejected twice.
        let is_of_cordon = |lack: &LackView| {
            let value = lack.value.as_ref();
            value.is_some_and(|value| matches!(value, Lack::Cordon | Lack::Taint(_)))
        };
        let is_cordon = match self.which {
            Which::Whole => distance.lacks.iter().all(is_of_cordon),
            Which::Parts => distance.lacks.iter().any(is_of_cordon),
        };
        if is_cordon && view.node().spec.unschedulable {
            let node = view.name().to_string();
            self.found
                .push((TriedChange::Uncordon { node }, vec![distance.node]));
        }
        let by_plugin = distance.lacks.chunk_by(|a, b| a.plugin == b.plugin);
        let by_plugin: Vec<&[LackView]> = by_plugin.collect();
        if by_plugin.len() == 1 || self.which == Which::Parts {
            for lacks in by_plugin {
                let values: Vec<&Lack> = lacks.iter().filter_map(|l| l.value.as_ref()).collect();
                self.plugin(&values, view);
            }
        }
    }

    /// A change of the pod that helps on this node.
    fn add(&mut self, change: TriedChange, view: NodeView<'_>) {
        let of_change = self.of_pod.entry(change.text());
        let of_change = of_change.or_insert((change, Vec::new()));
        of_change.1.push(view.slot());
    }

    /// Changes after which the plugin that reports these lacks may accept the node.
    fn plugin(&mut self, lacks: &[&Lack], view: NodeView<'_>) {
        self.taints(lacks, view);
        self.resources(lacks, view);
        self.affinity(lacks, view);
        let mut ports = Vec::new();
        for lack in lacks {
            match lack {
                Lack::PodAffinity { rule, .. } => match rule {
                    PodAffinityRule::Affinity => self.add(TriedChange::RemovePodAffinity, view),
                    PodAffinityRule::AntiAffinity => {
                        self.add(TriedChange::RemovePodAntiAffinity, view);
                    }
                    PodAffinityRule::ExistingAntiAffinity => {}
                },
                Lack::Spread(spread) => {
                    let topology_key = spread.topology_key.to_string();
                    self.add(TriedChange::RelaxSpread { topology_key }, view);
                }
                Lack::Port { port, .. } => ports.push(port.port),
                _ => {}
            }
        }
        if !ports.is_empty() {
            self.add(TriedChange::RemoveHostPorts { ports }, view);
        }
        for change in devices::changes(self.cluster, self.pod, view, lacks) {
            self.add(change, view);
        }
    }

    fn taints(&mut self, lacks: &[&Lack], view: NodeView<'_>) {
        let taints = lacks.iter().filter_map(|lack| match lack {
            Lack::Taint(taint) => Some(TaintRef::of(taint)),
            _ => None,
        });
        let taints: Vec<TaintRef> = taints.collect();
        if taints.len() > 1 && self.which == Which::Whole {
            return;
        }
        for taint in taints {
            let tolerated = taint.clone();
            self.add(TriedChange::Tolerate { taint: tolerated }, view);
            let node = view.name().to_string();
            let change = TriedChange::RemoveTaint { node, taint };
            self.found.push((change, vec![view.slot()]));
        }
    }

    /// Changes of the node selector, of labels and of the required node affinity.
    fn affinity(&mut self, lacks: &[&Lack], view: NodeView<'_>) {
        let labels = lacks.iter().filter_map(|lack| match lack {
            Lack::Label { key, value, .. } => Some((key, value)),
            _ => None,
        });
        let labels: Vec<_> = labels.collect();
        let mut lacks = lacks.iter();
        let misses_affinity = lacks.any(|lack| matches!(lack, Lack::NodeAffinity { .. }));
        let is_part = self.which == Which::Parts;
        if misses_affinity && (labels.is_empty() || is_part) {
            self.add(TriedChange::RemoveNodeAffinity, view);
        }
        if !labels.is_empty() && (!misses_affinity || is_part) {
            let keys = labels.iter().map(|(key, _)| key.to_string()).collect();
            self.add(TriedChange::RemoveNodeSelector { keys }, view);
        }
        if (labels.len() == 1 && !misses_affinity) || is_part {
            for (key, value) in labels.iter().filter(|(key, _)| !is_of_kubernetes(key)) {
                let change = TriedChange::LabelNode {
                    node: view.name().to_string(),
                    key: key.to_string(),
                    value: value.to_string(),
                };
                self.found.push((change, vec![view.slot()]));
            }
        }
    }

    fn resources(&mut self, lacks: &[&Lack], view: NodeView<'_>) {
        let short = lacks.iter().filter_map(|lack| match lack {
            Lack::Resource { resource, .. } => Some(Less {
                resource: resource.to_string(),
                amount: lack.short(),
            }),
            _ => None,
        });
        let less: Vec<Less> = short.collect();
        if less.is_empty() || less.iter().any(|less| less.resource == PODS) {
            return;
        }
        let sum = less.iter().map(|less| less.amount).sum();
        let change = TriedChange::RequestLess { less };
        let is_less = self
            .least
            .as_ref()
            .is_none_or(|(before, known, _)| (change.cost(), sum) < (known.cost(), *before));
        if is_less {
            self.least = Some((sum, change, view.slot()));
        }
    }
}

/// Returns whether a label is a well-known label of Kubernetes, such as the host name or the zone of a node: it
/// describes the node, and is not set to attract pods.
fn is_of_kubernetes(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")
}

/// Claims that do not exist, claims without a volume, and claims for one pod that another pod uses.
fn of_claims(
    snapshot: &Snapshot,
    pod: &PodInfo,
    examination: &Examination,
    closest: &[Distance],
    which: Which,
) -> Vec<(TriedChange, Vec<Slot>)> {
    let is_of_volumes = |lack: &LackView| lack.value.as_ref().is_some_and(Lack::is_of_volumes);
    let mut changes = of_resource_claims(snapshot, pod);
    let mut nodes: Vec<Slot> = closest
        .iter()
        .filter(|distance| match which {
            Which::Whole => distance.lacks.iter().all(is_of_volumes),
            Which::Parts => distance.lacks.iter().any(is_of_volumes),
        })
        .map(|distance| distance.node)
        .collect();
    let is_rejected = examination.pre_filter.as_ref();
    if is_rejected.is_some_and(|status| status.code() != Code::Error) {
        nodes = snapshot.cluster.nodes.occupied().collect();
    }
    if !nodes.is_empty() {
        let claims = snapshot.cluster.storage().claims();
        for claim in volumes::claims(&pod.pod) {
            let name = claim.name.to_string();
            match claims.get(pod.pod.namespace(), &name) {
                None => changes.push(TriedChange::CreateClaim { name }),
                Some(known) if !known.is_fully_bound() => {
                    changes.push(TriedChange::CreateVolume { claim: name });
                }
                Some(known) if known.spec.access_modes.iter().any(|mode| *mode == *ONE_POD) => {
                    let users = snapshot.cluster.pods.iter().filter(|(_, other)| {
                        other.is_assigned()
                            && !other.is_terminal()
                            && volumes::uses_claim(other, known)
                    });
                    changes.extend(users.map(|(_, user)| TriedChange::DeletePods {
                        node: user.spec.node_name.to_string(),
                        pods: vec![PodRef::of(user)],
                    }));
                }
                Some(_) => {}
            }
        }
    }
    let with_nodes = changes.into_iter().map(|change| (change, nodes.clone()));
    with_nodes.collect()
}

/// Resource claims of the pod that do not exist.
fn of_resource_claims(snapshot: &Snapshot, pod: &PodInfo) -> Vec<TriedChange> {
    let named = pod.pod.spec.resource_claims.iter();
    let named = named.filter_map(|claim| claim.resource_claim_name.as_ref());
    let claims = snapshot.cluster.devices().claims();
    let missing = named.filter(|name| claims.get(pod.pod.namespace(), name).is_none());
    let changes = missing.map(|name| TriedChange::CreateResourceClaim {
        name: name.to_string(),
    });
    changes.collect()
}
