//! Which single changes let a pod be scheduled. Each is tried on the snapshot before it is proposed.
//!
//! Candidates are derived from what the closest nodes lack. A change of one node is tried on that node, unless it can
//! matter on others: for terms over topology domains, and for volumes. A change of the pod is tried on all nodes.

use crate::answer::Remedy;
use crate::change::{Change, Edit, Less, PodRef, TaintRef, with_edits};
use crate::examine::{Examination, feasible};
use crate::lacks::{self, Distance, plugins};
use crate::limits::{CHANGES_TRIED_MAX, FILTER_RUNS_MAX, NODES_WITH_DELETIONS_MAX, REMEDIES_MAX};
use crate::snapshot::Snapshot;
use berth_api::Object;
use berth_api::resources::PODS;
use berth_api::volumes;
use berth_framework::plugin::DryRun;
use berth_framework::{Code, Feature, PodInfo, Slot};
use berth_scheduler::profile::Profile;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many of the closest nodes candidates are derived from.
pub(crate) const NODES_CONSIDERED_MAX: usize = 64;
/// How many single pods are tried on a node.
const SINGLE_PODS_MAX: usize = 32;

/// A search for remedies.
pub(crate) struct Remedies<'a> {
    profile: &'a Profile,
    pod: &'a Arc<PodInfo>,
    all_nodes: Vec<Slot>,
    /// Whether a change on one node can change the answer of another one.
    is_about_all: bool,
    /// How often a node was filtered.
    runs: usize,
    tried: usize,
    found: Vec<Remedy>,
    reached: Vec<String>,
}

/// The result.
pub(crate) struct Found {
    /// The cheapest first.
    pub(crate) remedies: Vec<Remedy>,
    /// The limits that were reached.
    pub(crate) notes: Vec<String>,
}

/// Whether a change on one node can change the answer of another one.
fn looks_at_other_nodes(snapshot: &Snapshot, pod: &PodInfo) -> bool {
    let spec = &pod.pod.spec;
    !spec.topology_spread_constraints.is_empty()
        || pod.has_affinity()
        || !spec.volumes.is_empty()
        || !spec.resource_claims.is_empty()
        || snapshot.cluster.nodes.pods_with_affinity() > 0
}

/// Searches remedies for a pod that fits nowhere. `closest` are nodes with what they lack, the closest first.
pub(crate) fn search(
    snapshot: &mut Snapshot,
    (profile, pod): (&Profile, &Arc<PodInfo>),
    examination: &Examination,
    closest: &[Distance],
) -> Found {
    let mut search = Remedies {
        profile,
        pod,
        all_nodes: snapshot.cluster.nodes.occupied().collect(),
        is_about_all: looks_at_other_nodes(snapshot, pod),
        runs: 0,
        tried: 0,
        found: Vec::new(),
        reached: Vec::new(),
    };
    for (change, nodes) in candidates(snapshot, pod, examination, closest) {
        search.try_out(snapshot, change, nodes);
    }
    search.try_deletions(snapshot, closest);
    if examination.pre_filter.is_none() {
        search.try_new_node(snapshot, closest);
    }
    search.finish()
}

/// Tries the removal of all scheduling gates: the first change that a gated pod needs.
pub(crate) fn without_gates(pod: &PodInfo) -> Option<Change> {
    let gates = &pod.pod.spec.scheduling_gates;
    (!gates.is_empty()).then(|| Change::RemoveSchedulingGates {
        gates: gates.iter().map(|gate| gate.name.to_string()).collect(),
    })
}

impl Remedies<'_> {
    fn is_over(&mut self) -> bool {
        let limit = if self.tried >= CHANGES_TRIED_MAX {
            format!("no more than {CHANGES_TRIED_MAX} changes are tried")
        } else if self.runs >= FILTER_RUNS_MAX {
            format!("nodes are filtered no more than {FILTER_RUNS_MAX} times to try changes")
        } else {
            return false;
        };
        if !self.reached.contains(&limit) {
            self.reached.push(limit);
        }
        true
    }

    /// Tries a change that can help on these nodes.
    fn try_out(&mut self, snapshot: &mut Snapshot, change: Change, nodes: Vec<Slot>) {
        if self.is_over() {
            return;
        }
        self.tried += 1;
        let Some(edits) = change.edits(&snapshot.cluster, &self.pod.pod) else {
            return;
        };
        let is_of_pod = matches!(&edits[..], [Edit::Set(Object::Pod(_))]);
        let nodes = match is_of_pod || self.is_about_all {
            true => self.all_nodes.clone(),
            false => nodes,
        };
        let profile = self.profile;
        let (names, runs) = with_edits(snapshot, self.pod, &edits, |snapshot, pod| {
            let mut nodes = nodes;
            if let Change::AddNode { name, .. } = &change {
                nodes.extend(snapshot.cluster.nodes.slot(name));
                nodes.dedup();
            }
            let (found, runs) = feasible(snapshot, profile, pod, &nodes, usize::MAX);
            let views = found
                .iter()
                .filter_map(|slot| snapshot.cluster.nodes.get(*slot));
            let names: Vec<String> = views.map(|view| view.name().to_string()).collect();
            (names, runs)
        });
        self.runs += runs;
        if names.is_empty() {
            return;
        }
        let is_new = matches!(change, Change::AddNode { .. });
        let [only] = &names[..] else {
            self.propose(change, None, names.len());
            return;
        };
        let node = (!is_new).then(|| only.clone());
        self.propose(change, node, 1);
    }

    fn propose(&mut self, change: Change, node: Option<String>, feasible: usize) {
        let mut text = change.text();
        match (&node, feasible) {
            (Some(node), _) => {
                let is_named = text.contains(&format!("node {node}"));
                if !is_named {
                    text += &format!("; the pod fits on {node} then");
                }
            }
            (None, 1) => {}
            (None, nodes) => text += &format!("; the pod fits on {nodes} nodes then"),
        }
        self.found.push(Remedy {
            text,
            cost: change.cost(),
            change: Some(change),
            node,
            feasible,
        });
    }

    /// Which pods of one node would have to go: one, if one is enough; otherwise as few as possible, the least
    /// important ones. Only pods of no higher priority.
    fn try_deletions(&mut self, snapshot: &mut Snapshot, closest: &[Distance]) {
        let resolvable = closest.iter().filter(|distance| {
            let mut lacks = distance.lacks.iter();
            lacks.all(|lack| lack.preemption_may_help)
        });
        let nodes: Vec<Slot> = resolvable
            .take(NODES_WITH_DELETIONS_MAX)
            .map(|distance| distance.node)
            .collect();
        for node in nodes {
            if self.is_over() {
                return;
            }
            self.tried += 1;
            let (pods, runs) = snapshot.evaluate(self.profile, self.pod, |evaluator| {
                let mut runs = 0;
                if evaluator.pre_filter().is_err() {
                    return (None, runs);
                }
                (deletions(evaluator, self.pod, node, &mut runs), runs)
            });
            self.runs += runs;
            let name = snapshot.cluster.nodes.get(node);
            if let Some((pods, name)) = pods.zip(name.map(|view| view.name().to_string())) {
                let change = Change::DeletePods { node: name, pods };
                self.try_out(snapshot, change, vec![node]);
            }
        }
    }

    /// A new node like one that fits but for what is on it.
    fn try_new_node(&mut self, snapshot: &mut Snapshot, closest: &[Distance]) {
        for distance in closest.iter().take(NODES_WITH_DELETIONS_MAX) {
            let Some(view) = snapshot.cluster.nodes.get(distance.node) else {
                continue;
            };
            let like = view.name().to_string();
            let mut number = 1;
            let name = loop {
                let name = format!("{like}-new-{number}");
                if snapshot.cluster.nodes.slot(&name).is_none() {
                    break name;
                }
                number += 1;
            };
            let before = self.found.len();
            self.try_out(snapshot, Change::AddNode { like, name }, Vec::new());
            if self.found.len() > before {
                return;
            }
        }
    }

    fn finish(self) -> Found {
        let Self {
            mut found,
            reached: notes,
            ..
        } = self;
        // For the same kind of change, one that requests less or deletes fewer pods comes first.
        found.sort_by(|a, b| (a.cost, size(a), &a.text).cmp(&(b.cost, size(b), &b.text)));
        let mut texts = std::collections::BTreeSet::new();
        found.retain(|remedy| texts.insert(remedy.text.clone()));
        let mut kept: Vec<Remedy> = Vec::new();
        for remedy in found {
            let same_kind = kept
                .iter()
                .filter(|other| other.cost == remedy.cost)
                .count();
            // Other remedies of one kind add little.
            if same_kind < 3 && kept.len() < REMEDIES_MAX {
                kept.push(remedy);
            }
        }
        Found {
            remedies: kept,
            notes,
        }
    }
}

/// How much a change changes, among changes of one kind.
fn size(remedy: &Remedy) -> i64 {
    match &remedy.change {
        Some(Change::RequestLess { less }) => less.iter().map(|less| less.amount).sum(),
        _ => 0,
    }
}

/// The pods of a node that have to go for the pod to fit.
fn deletions(
    dry_run: &mut dyn DryRun,
    pod: &PodInfo,
    node: Slot,
    runs: &mut usize,
) -> Option<Vec<PodRef>> {
    let view = dry_run.cluster().nodes.get(node)?;
    let priority = pod.pod.priority();
    let mut victims: Vec<Arc<PodInfo>> = view
        .pods()
        .iter()
        .filter(|info| info.pod.priority() <= priority && !info.pod.is_terminating())
        .cloned()
        .collect();
    // The least important first, then the one that frees least.
    victims.sort_by(|a, b| {
        let key = |info: &PodInfo| {
            let requests = &info.requests;
            (info.pod.priority(), requests.milli_cpu, requests.memory)
        };
        (key(a), a.pod.key()).cmp(&(key(b), b.pod.key()))
    });
    let reference = |info: &Arc<PodInfo>| PodRef {
        namespace: info.pod.namespace().to_string(),
        name: info.pod.name().to_string(),
    };
    for victim in victims.iter().take(SINGLE_PODS_MAX) {
        if fits_without(dry_run, node, std::slice::from_ref(victim), runs) {
            return Some(vec![reference(victim)]);
        }
    }
    if victims.len() < 2 || !fits_without(dry_run, node, &victims, runs) {
        return None;
    }
    // The most important ones stay if the pod fits all the same.
    let mut gone = victims;
    let mut at = gone.len();
    while at > 0 && *runs < FILTER_RUNS_MAX {
        at -= 1;
        let stays = gone.remove(at);
        if !fits_without(dry_run, node, &gone, runs) {
            gone.insert(at, stays);
        }
    }
    Some(gone.iter().map(reference).collect())
}

fn fits_without(
    dry_run: &mut dyn DryRun,
    node: Slot,
    gone: &[Arc<PodInfo>],
    runs: &mut usize,
) -> bool {
    *runs += 1;
    dry_run.begin();
    let removed = gone
        .iter()
        .all(|pod| dry_run.remove_pod(node, pod).is_success());
    let fits = removed && dry_run.filter(node).is_success();
    dry_run.rollback();
    fits
}

/// The changes to try, with the nodes on which each can help.
fn candidates(
    snapshot: &Snapshot,
    pod: &PodInfo,
    examination: &Examination,
    closest: &[Distance],
) -> Vec<(Change, Vec<Slot>)> {
    let mut candidates = of_volumes(snapshot, pod, examination);
    // Changes of the pod, with all nodes on which only that is lacking.
    let mut of_pod: BTreeMap<String, (Change, Vec<Slot>)> = BTreeMap::new();
    let comparison_operators = snapshot
        .features
        .enabled(Feature::TaintTolerationComparisonOperators);
    let mut least: Option<(i64, Change, Slot)> = None;
    for distance in closest {
        let Some(view) = snapshot.cluster.nodes.get(distance.node) else {
            continue;
        };
        let mut plugins: Vec<&str> = distance.lacks.iter().map(|l| l.plugin.as_str()).collect();
        plugins.dedup();
        // A cordon is two rejections when the node has the taint of it as well.
        let is_cordon = plugins
            .iter()
            .all(|plugin| matches!(*plugin, plugins::UNSCHEDULABLE | plugins::TAINTS))
            && view.node().spec.unschedulable;
        if is_cordon {
            let node = view.name().to_string();
            candidates.push((Change::Uncordon { node }, vec![distance.node]));
        }
        let [plugin] = plugins[..] else {
            continue;
        };
        let mut add = |change: Change| {
            let of_change = of_pod.entry(change.text()).or_insert((change, Vec::new()));
            of_change.1.push(distance.node);
        };
        match plugin {
            plugins::TAINTS => {
                let untolerated = lacks::untolerated(&pod.pod, view, comparison_operators);
                let taints: Vec<_> = untolerated.collect();
                if let [taint] = taints[..] {
                    let taint = TaintRef::of(taint);
                    add(Change::Tolerate {
                        taint: taint.clone(),
                    });
                    let node = view.name().to_string();
                    candidates.push((Change::RemoveTaint { node, taint }, vec![distance.node]));
                }
            }
            plugins::RESOURCES => {
                let short = lacks::short(pod, view);
                if short.iter().any(|short| short.resource == *PODS) {
                    continue;
                }
                let sum = short.iter().map(|short| short.amount).sum();
                let less = short.iter().map(|short| Less {
                    resource: short.resource.to_string(),
                    amount: short.amount,
                });
                let change = Change::RequestLess {
                    less: less.collect(),
                };
                let is_less = least.as_ref().is_none_or(|(before, known, _)| {
                    (change.cost(), sum) < (known.cost(), *before)
                });
                if is_less {
                    least = Some((sum, change, distance.node));
                }
            }
            plugins::AFFINITY => {
                let missing: Vec<_> = lacks::missing_labels(&pod.pod, view).collect();
                match (&missing[..], lacks::misses_affinity(&pod.pod, view)) {
                    ([], true) => add(Change::RemoveNodeAffinity),
                    (labels, false) => {
                        let keys = labels.iter().map(|(key, _)| key.to_string());
                        add(Change::RemoveNodeSelector {
                            keys: keys.collect(),
                        });
                        if let [(key, value)] = labels
                            && !is_of_kubernetes(key)
                        {
                            let change = Change::LabelNode {
                                node: view.name().to_string(),
                                key: key.to_string(),
                                value: value.to_string(),
                            };
                            candidates.push((change, vec![distance.node]));
                        }
                    }
                    _ => {}
                }
            }
            plugins::INTER_POD => {
                add(Change::RemovePodAffinity);
                add(Change::RemovePodAntiAffinity);
            }
            plugins::SPREAD => {
                let constraints = pod.pod.spec.topology_spread_constraints.iter();
                for constraint in constraints.filter(|c| c.when_unsatisfiable == "DoNotSchedule") {
                    let topology_key = constraint.topology_key.to_string();
                    add(Change::RelaxSpread { topology_key });
                }
            }
            plugins::PORTS => {
                let taken = pod.host_ports.iter().filter(|p| view.port_conflicts(p));
                let ports = taken.map(|port| port.port).collect();
                add(Change::RemoveHostPorts { ports });
            }
            _ => {}
        }
    }
    candidates.extend(least.map(|(_, change, node)| (change, vec![node])));
    candidates.extend(of_pod.into_values());
    candidates.sort_by_key(|(change, _)| change.cost());
    candidates
}

/// Whether a label is Kubernetes' own, such as the host name or the zone of a node: it describes the node, and is not
/// set to attract pods.
fn is_of_kubernetes(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")
}

/// Claims that do not exist, and claims without a volume.
fn of_volumes(
    snapshot: &Snapshot,
    pod: &PodInfo,
    examination: &Examination,
) -> Vec<(Change, Vec<Slot>)> {
    let rejects_volumes = |status: &berth_framework::Status| {
        let plugin = status.plugin().map_or("", |name| name.as_str());
        plugin.starts_with("Volume") || plugin.starts_with("NodeVolume")
    };
    let of_nodes = examination.rejecting.iter();
    let mut nodes: Vec<Slot> = of_nodes
        .filter(|rejecting| rejecting.statuses.iter().all(rejects_volumes))
        .map(|rejecting| rejecting.node)
        .collect();
    match &examination.pre_filter {
        Some(status) if rejects_volumes(status) && status.code() != Code::Error => {
            nodes = snapshot.cluster.nodes.occupied().collect();
        }
        None if !nodes.is_empty() => {}
        _ => return Vec::new(),
    }
    let claims = &snapshot.cluster.persistent_volume_claims;
    let mut changes = Vec::new();
    for claim in volumes::claims(&pod.pod) {
        let name = claim.name.to_string();
        match claims.get(pod.pod.namespace(), &name) {
            None => changes.push(Change::CreateClaim { name }),
            Some(known) if !known.is_fully_bound() => {
                changes.push(Change::CreateVolume { claim: name });
            }
            Some(_) => {}
        }
    }
    let with_nodes = changes.into_iter().map(|change| (change, nodes.clone()));
    with_nodes.collect()
}
