//! The changes that let a pod be scheduled. Each is tried on the snapshot before it is proposed.
//!
//! A change of one node is tried on that node, unless it can matter on others: for terms over topology domains, and for
//! volumes. A change of the pod is tried on all nodes. If no single change of the existing objects is enough, pairs are
//! tried: the first change is made in the snapshot, the closest nodes are examined again, and single changes are
//! derived from them. Pairs are not tried if preemption makes room after a single change, or without one. A pair is not
//! proposed if one of its changes is enough, by itself or with preemption.

mod preempting;

use crate::answer::Remedy;
use crate::candidates::{Which, candidates};
use crate::change::{Edit, PodRef, TriedChange};
use crate::closest::{self, Distance};
use crate::examine::{Examination, examine_nodes, feasible};
use crate::limits::{
    CHANGES_TRIED_MAX, FILTER_RUNS_MAX, FIRST_CHANGES_MAX, NODES_WITH_DELETIONS_MAX,
    PAIRS_TRIED_MAX, REMEDIES_MAX,
};
use crate::overlay::with_edits;
use crate::preemption::ExaminedPod;
use crate::quota;
use crate::snapshot::Snapshot;
use berth_api::{Object, volumes};
use berth_framework::plugin::DryRun;
use berth_framework::{PodInfo, Slot};
use berth_scheduler::profile::Profile;
use std::sync::Arc;

/// The number of closest nodes from which candidates are derived.
pub(crate) const NODES_CONSIDERED_MAX: usize = 64;
/// The number of single pods that are tried on a node.
const SINGLE_PODS_MAX: usize = 32;

/// A search for remedies.
pub(crate) struct Remedies<'a> {
    profile: &'a Profile,
    all_nodes: Vec<Slot>,
    /// Whether any change on one node can change the answer of another node.
    is_about_all: bool,
    /// The changes already made in the snapshot and the pod.
    made: Vec<TriedChange>,
    /// Whether a new node may help. It cannot if the first change is about another node.
    may_add_node: bool,
    /// The number of node filterings.
    runs: usize,
    tried: usize,
    tried_max: usize,
    found: Vec<Remedy>,
    reached: Vec<String>,
}

/// The result.
pub(crate) struct FoundRemedies {
    /// The cheapest first.
    pub(crate) remedies: Vec<Remedy>,
    /// The limits that were reached.
    pub(crate) notes: Vec<String>,
}

/// Returns whether any change on one node can change the answer of another node.
fn looks_at_other_nodes(pod: &PodInfo) -> bool {
    let spec = &pod.pod.spec;
    !spec.topology_spread_constraints.is_empty()
        || pod.has_affinity()
        || volumes::claims(&pod.pod).next().is_some()
        || !spec.resource_claims.is_empty()
}

/// Returns whether a change on one node can change the answer of another node through the anti-affinity of pods on
/// nodes.
fn changes_anti_affinity(snapshot: &Snapshot, change: &TriedChange) -> bool {
    let cluster = &snapshot.cluster;
    match change {
        TriedChange::DeletePods { .. } => cluster.nodes.totals().with_affinity() > 0,
        TriedChange::LabelNode { key, .. } => cluster.pods.is_anti_affinity_topology(key),
        _ => false,
    }
}

/// Searches remedies for a pod that is not admitted or fits nowhere. `made` is the change already applied to the pod;
/// `closest` are nodes with their lacks, the closest first; `preempts` is whether preemption makes room without a
/// change.
pub(crate) fn search(
    snapshot: &mut Snapshot,
    examined: ExaminedPod<'_>,
    made: Option<TriedChange>,
    closest: &[Distance],
    preempts: bool,
) -> FoundRemedies {
    let ExaminedPod {
        profile,
        pod,
        examination,
    } = examined;
    let mut search = Remedies {
        profile,
        all_nodes: snapshot.cluster.nodes.occupied().collect(),
        is_about_all: looks_at_other_nodes(pod),
        made: Vec::from_iter(made),
        may_add_node: true,
        runs: 0,
        tried: 0,
        tried_max: CHANGES_TRIED_MAX,
        found: Vec::new(),
        reached: Vec::new(),
    };
    search.try_preemption_after(snapshot, pod);
    search.singles(snapshot, pod, examination, closest);
    if search.made.is_empty() {
        search.try_priorities(snapshot, pod, examination);
        let is_of_new_node = |remedy: &Remedy| remedy.changes.iter().any(TriedChange::is_new_node);
        // New nodes are the most expensive remedy, so cheaper ones are still searched if there are no others.
        let needs_more =
            |search: &Remedies<'_>| !preempts && search.found.iter().all(is_of_new_node);
        if needs_more(&search) {
            search.try_preemptions(snapshot, pod, examination, closest);
        }
        if needs_more(&search) {
            search.tried_max += PAIRS_TRIED_MAX;
            search.pairs(snapshot, pod, examination, closest);
            // Only the best pairs are checked for a sufficient single change, because each check costs trials.
            search.keep_best();
            search.prefer_single_changes(snapshot, pod, closest);
        }
    }
    search.finish()
}

/// The removal of all scheduling gates: the first change that a gated pod needs.
pub(crate) fn without_gates(pod: &PodInfo) -> Option<TriedChange> {
    let gates = &pod.pod.spec.scheduling_gates;
    (!gates.is_empty()).then(|| TriedChange::RemoveSchedulingGates {
        gates: gates.iter().map(|gate| gate.name.to_string()).collect(),
    })
}

/// A remedy whose changes let the pod fit on these nodes.
pub(crate) fn remedy(changes: Vec<TriedChange>, nodes: &[String]) -> Remedy {
    let texts: Vec<String> = changes.iter().map(TriedChange::text).collect();
    let mut text = texts.join(", and ");
    let is_new = changes.iter().any(TriedChange::is_new_node);
    let node = match nodes {
        [node] if !is_new => Some(node.clone()),
        _ => None,
    };
    match (&node, nodes.len()) {
        (Some(node), _) if text.contains(&format!("node {node}")) => {}
        (Some(node), _) => text += &format!("; the pod fits on {node} then"),
        (None, 1) => {}
        (None, nodes) => text += &format!("; the pod fits on {nodes} nodes then"),
    }
    let costs = changes.iter().map(TriedChange::cost);
    Remedy {
        text,
        cost: costs.fold(0, u32::saturating_add),
        changes,
        node,
        feasible: nodes.len(),
        victims: Vec::new(),
    }
}

impl Remedies<'_> {
    fn is_over(&mut self) -> bool {
        let limit = if self.tried >= self.tried_max {
            format!("no more than {} changes are tried", self.tried_max)
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

    /// Tries every change that may be enough by itself.
    fn singles(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        examination: &Examination,
        closest: &[Distance],
    ) {
        for (change, nodes) in candidates(snapshot, pod, examination, closest, Which::Whole) {
            self.try_out(snapshot, pod, change, nodes);
        }
        for change in quota::changes(snapshot, pod) {
            let nodes = self.all_nodes.clone();
            self.try_out(snapshot, pod, change, nodes);
        }
        self.try_deletions(snapshot, pod, closest);
        if examination.pre_filter.is_none() && self.may_add_node {
            self.try_new_node(snapshot, pod, closest);
        }
    }

    /// Makes insufficient changes, and tries further changes after them.
    fn pairs(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        examination: &Examination,
        closest: &[Distance],
    ) {
        let considered: Vec<Slot> = match closest {
            // No node rejects the pod by itself, so none is closest.
            [] => self.all_nodes.clone(),
            closest => closest.iter().map(|distance| distance.node).collect(),
        };
        let firsts = candidates(snapshot, pod, examination, closest, Which::Parts);
        for (first, _) in firsts.into_iter().take(FIRST_CHANGES_MAX) {
            if self.is_over() {
                return;
            }
            let Some(edits) = first.edits(&snapshot.cluster, &pod.pod) else {
                continue;
            };
            self.may_add_node = is_of_pod(&edits);
            self.made.push(first);
            with_edits(snapshot, pod, &edits, |snapshot, pod| {
                let examination = examine_nodes(snapshot, self.profile, pod, Some(&considered));
                self.runs += considered.len();
                let (profile, max) = (self.profile, NODES_CONSIDERED_MAX);
                let closest = closest::closest(snapshot, profile, pod, &examination, max);
                self.singles(snapshot, pod, &examination, &closest);
            });
            self.made.pop();
        }
    }

    /// Tries a change that can help on these nodes.
    fn try_out(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        change: TriedChange,
        nodes: Vec<Slot>,
    ) {
        if self.is_over() {
            return;
        }
        self.tried += 1;
        let Some(edits) = change.edits(&snapshot.cluster, &pod.pod) else {
            return;
        };
        let is_about_all =
            is_of_pod(&edits) || self.is_about_all || changes_anti_affinity(snapshot, &change);
        let mut nodes = if is_about_all {
            self.all_nodes.clone()
        } else {
            nodes
        };
        let names = with_edits(snapshot, pod, &edits, |snapshot, pod| {
            if let TriedChange::AddNode { name, .. } = &change {
                nodes.extend(snapshot.cluster.nodes.slot(name));
                nodes.dedup();
            }
            let names = self.fits_on(snapshot, pod, &nodes);
            // After another change, other nodes may be feasible, too.
            let is_part = nodes.len() < self.all_nodes.len() && !self.made.is_empty();
            if names.is_empty() || !is_part || change.is_new_node() {
                names
            } else {
                self.fits_on(snapshot, pod, &self.all_nodes.clone())
            }
        });
        if !names.is_empty() {
            self.propose(change, &names);
        }
    }

    /// The names of the given nodes on which the pod fits, if it is admitted.
    fn fits_on(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        nodes: &[Slot],
    ) -> Vec<String> {
        if !self.admits(snapshot, pod) {
            return Vec::new();
        }
        let (found, runs) = feasible(snapshot, self.profile, pod, nodes);
        self.runs += runs;
        let views = found
            .iter()
            .filter_map(|slot| snapshot.cluster.nodes.get(*slot));
        views.map(|view| view.name().to_string()).collect()
    }

    /// Returns whether no PreEnqueue plugin rejects the pod.
    fn admits(&self, snapshot: &Snapshot, pod: &PodInfo) -> bool {
        let context = snapshot.context();
        let mut plugins = self.profile.pre_enqueue.iter();
        plugins.all(|member| member.plugin.pre_enqueue(&context, &pod.pod).is_success())
    }

    fn propose(&mut self, change: TriedChange, nodes: &[String]) {
        let mut changes = self.made.clone();
        changes.push(change);
        let proposed = remedy(changes, nodes);
        let is_same = |other: &Remedy| {
            let mut changes = proposed.changes.iter();
            other.changes.len() == proposed.changes.len()
                && changes.all(|change| other.changes.contains(change))
        };
        if !self.found.iter().any(is_same) {
            self.found.push(proposed);
        }
    }

    /// The pods of one node to delete: a single pod if one is enough; otherwise the smallest set, of the lowest
    /// priority. Only pods of no higher priority and of other controllers.
    fn try_deletions(&mut self, snapshot: &mut Snapshot, pod: &Arc<PodInfo>, closest: &[Distance]) {
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
            let (pods, runs) = snapshot.evaluate(self.profile, pod, |evaluator| {
                let mut runs = 0;
                if evaluator.pre_filter().is_err() {
                    return (None, runs);
                }
                (deletions(evaluator, pod, node, &mut runs), runs)
            });
            self.runs += runs;
            let name = snapshot.cluster.nodes.get(node);
            if let Some((pods, name)) = pods.zip(name.map(|view| view.name().to_string())) {
                let change = TriedChange::DeletePods { node: name, pods };
                self.try_out(snapshot, pod, change, vec![node]);
            }
        }
    }

    /// Tries an empty new node like one of the closest nodes, whose existing pods may be the only obstacle.
    fn try_new_node(&mut self, snapshot: &mut Snapshot, pod: &Arc<PodInfo>, closest: &[Distance]) {
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
            let change = TriedChange::AddNode { like, name };
            self.try_out(snapshot, pod, change, Vec::new());
            if self.found.len() > before {
                return;
            }
        }
    }

    /// Sorts the remedies, the cheapest first, and keeps the best.
    fn keep_best(&mut self) {
        let mut found = std::mem::take(&mut self.found);
        // Within one kind of change, a smaller reduction of requests or fewer deleted pods are first.
        found.sort_by(|a, b| (a.cost, size(a), &a.text).cmp(&(b.cost, size(b), &b.text)));
        found.dedup_by(|a, b| a.text == b.text);
        let mut kept: Vec<Remedy> = Vec::new();
        for remedy in found {
            let same_kind = kept
                .iter()
                .filter(|other| other.cost == remedy.cost)
                .count();
            // More remedies of the same kind add little information.
            if same_kind < 3 && kept.len() < REMEDIES_MAX {
                kept.push(remedy);
            }
        }
        self.found = kept;
    }

    fn finish(mut self) -> FoundRemedies {
        self.keep_best();
        FoundRemedies {
            remedies: self.found,
            notes: self.reached,
        }
    }
}

/// Returns whether only the pod changes.
fn is_of_pod(edits: &[Edit]) -> bool {
    matches!(edits, [Edit::Set(Object::Pod(_))])
}

/// The size of a change, among changes of one kind.
fn size(remedy: &Remedy) -> i64 {
    let sizes = remedy.changes.iter().map(|change| match change {
        TriedChange::RequestLess { less } => less.iter().map(|less| less.amount).sum(),
        _ => 0,
    });
    sizes.sum()
}

/// The pods of a node to delete so that the pod fits.
fn deletions(
    dry_run: &mut dyn DryRun,
    pod: &PodInfo,
    node: Slot,
    runs: &mut usize,
) -> Option<Vec<PodRef>> {
    let view = dry_run.cluster().nodes.get(node)?;
    let priority = pod.pod.priority();
    let owner = |info: &PodInfo| Some(info.pod.metadata.controller()?.uid.clone());
    let owner_of_pod = owner(pod);
    let mut victims: Vec<Arc<PodInfo>> = view
        .pods()
        .iter()
        .filter(|info| info.pod.priority() <= priority && !info.pod.is_terminating())
        // The controller of the pod would create a replacement, which waits instead of the pod.
        .filter(|info| owner_of_pod.is_none() || owner(info) != owner_of_pod)
        .cloned()
        .collect();
    // The lowest priority first, then the smallest requests.
    victims.sort_by(|a, b| {
        let key = |info: &PodInfo| {
            let requests = &info.requests;
            (info.pod.priority(), requests.milli_cpu, requests.memory)
        };
        (key(a), a.pod.key()).cmp(&(key(b), b.pod.key()))
    });
    let reference = |info: &Arc<PodInfo>| PodRef::of(&info.pod);
    for victim in victims.iter().take(SINGLE_PODS_MAX) {
        if fits_without(dry_run, node, std::slice::from_ref(victim), runs) {
            return Some(vec![reference(victim)]);
        }
    }
    if victims.len() < 2 || !fits_without(dry_run, node, &victims, runs) {
        return None;
    }
    // Pods of the highest priority are kept if the pod fits with them.
    let mut deleted = victims;
    let mut at = deleted.len();
    while at > 0 && *runs < FILTER_RUNS_MAX {
        at -= 1;
        let stays = deleted.remove(at);
        if !fits_without(dry_run, node, &deleted, runs) {
            deleted.insert(at, stays);
        }
    }
    Some(deleted.iter().map(reference).collect())
}

fn fits_without(
    dry_run: &mut dyn DryRun,
    node: Slot,
    deleted: &[Arc<PodInfo>],
    runs: &mut usize,
) -> bool {
    *runs += 1;
    dry_run.begin();
    let removed = deleted
        .iter()
        .all(|pod| dry_run.remove_pod(node, pod).is_success());
    let fits = removed && dry_run.filter(node).is_success();
    dry_run.rollback();
    fits
}
