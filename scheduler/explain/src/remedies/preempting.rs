//! Changes after which preemption makes room: a single change of an existing object, and a higher priority.

use super::{NODES_CONSIDERED_MAX, Remedies};
use crate::answer::Remedy;
use crate::candidates::{Which, candidates};
use crate::change::{PodRef, TriedChange};
use crate::closest::Distance;
use crate::examine::{Examination, examine_nodes};
use crate::limits::{PREEMPTIONS_TRIED_MAX, PRIORITIES_TRIED_MAX};
use crate::overlay::with_edits;
use crate::snapshot::Snapshot;
use berth_framework::plugin::{NodeStatuses, Nominating};
use berth_framework::{PodInfo, Slot};
use berth_scheduler::profile::Profile;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The maximum priority of user-defined priority classes; higher values are reserved for the system.
const USER_PRIORITY_MAX: i32 = 1_000_000_000;

/// A remedy whose changes let preemption evict pods. The node and the victims are named if every node was examined.
fn preempting_remedy(
    changes: Vec<TriedChange>,
    victims: Vec<PodRef>,
    node: Option<String>,
) -> Remedy {
    let texts: Vec<String> = changes.iter().map(TriedChange::text).collect();
    let names: Vec<String> = victims
        .iter()
        .map(|pod| format!("{}/{}", pod.namespace, pod.name))
        .collect();
    let evicts = match &node {
        Some(node) => format!("preemption then evicts {} from {node}", names.join(", ")),
        None => "preemption then evicts pods of lower priority".to_owned(),
    };
    let costs = changes.iter().map(TriedChange::cost);
    let eviction = TriedChange::DeletePods {
        node: node.clone().unwrap_or_default(),
        pods: victims.clone(),
    };
    Remedy {
        text: format!("{}; {evicts}", texts.join(", and ")),
        cost: costs.fold(eviction.cost(), u32::saturating_add),
        changes,
        feasible: 0,
        victims: if node.is_some() { victims } else { Vec::new() },
        node,
    }
}

/// The victims and the node that PostFilter chooses.
fn evicting(
    snapshot: &mut Snapshot,
    profile: &Profile,
    pod: &Arc<PodInfo>,
    statuses: &NodeStatuses,
) -> Option<(Vec<PodRef>, String)> {
    let answers = snapshot.post_filter(profile, pod, statuses);
    answers.into_iter().find_map(|(result, preemptions)| {
        let Nominating::Set(node) = result.nominating else {
            return None;
        };
        let victims: Vec<PodRef> = preemptions
            .iter()
            .flat_map(|preemption| &preemption.victims)
            .map(|victim| PodRef {
                namespace: victim.event.regarding.namespace.to_string(),
                name: victim.event.regarding.name.to_string(),
            })
            .collect();
        (!node.is_empty() && !victims.is_empty()).then(|| (victims, node.to_string()))
    })
}

impl Remedies<'_> {
    /// Tries preemption for a pod that only its gates keep from an attempt: no other change is necessary.
    pub(super) fn try_preemption_after(&mut self, snapshot: &mut Snapshot, pod: &Arc<PodInfo>) {
        if self.made.is_empty() || !self.admits(snapshot, pod) {
            return;
        }
        if let Some((victims, node)) = self.preempting(snapshot, pod, None) {
            let mut remedy = preempting_remedy(self.made.clone(), victims, Some(node));
            // The cost counts only the changes, so this remedy is first: the scheduler preempts without further action.
            let costs = self.made.iter().map(TriedChange::cost);
            remedy.cost = costs.fold(0, u32::saturating_add);
            self.found.push(remedy);
        }
    }

    /// The lowest priority with which preemption finds a node, if the pod's priority is too low. If preemption finds a
    /// node with one priority, it also does with every higher one, so this is a binary search.
    pub(super) fn try_priorities(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        examination: &Examination,
    ) {
        let may_preempt = pod.pod.spec.preemption_policy.as_deref() != Some("Never");
        let mut statuses = examination.rejecting.iter().flat_map(|r| &r.statuses);
        let is_rejected = examination.pre_filter.is_none() && examination.feasible.is_empty();
        if !may_preempt
            || !is_rejected
            || !statuses.any(|s| s.code() == berth_framework::Code::Unschedulable)
            || !self.admits(snapshot, pod)
        {
            return;
        }
        let pods = snapshot.cluster.nodes.iter().flat_map(|view| view.pods());
        let priorities = pods.map(|info| info.pod.priority());
        let priorities = priorities.filter(|p| (pod.pod.priority()..USER_PRIORITY_MAX).contains(p));
        let higher: BTreeSet<i32> = priorities.map(|priority| priority + 1).collect();
        let higher: Vec<i32> = higher.into_iter().collect();
        let (mut from, mut to) = (0, higher.len());
        let mut best = None;
        // The highest priority is tried first, because in most cases no priority helps.
        let mut at = higher.len().saturating_sub(1);
        for _ in 0..PRIORITIES_TRIED_MAX {
            if from >= to || self.is_over() {
                break;
            }
            self.tried += 1;
            match self.preempts(snapshot, pod, examination, higher[at]) {
                Some(found) => {
                    to = at;
                    best = Some(found);
                }
                None => from = at + 1,
            }
            at = from + to.saturating_sub(from) / 2;
        }
        if let Some((change, node)) = best {
            self.propose(change, &[node]);
        }
    }

    /// Tries a priority. Returns the change and the node that preemption finds, if any.
    fn preempts(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        examination: &Examination,
        priority: i32,
    ) -> Option<(TriedChange, String)> {
        let mut changed = berth_api::Pod::clone(&pod.pod);
        changed.spec.priority = Some(priority);
        let pod = Arc::new(PodInfo::new(Arc::new(changed)));
        // Filters depend on the priority only through nominated pods.
        let is_examined = snapshot.nominator.is_empty();
        let (victims, node) = if is_examined {
            evicting(snapshot, self.profile, &pod, &examination.statuses())?
        } else {
            self.preempting(snapshot, &pod, None)?
        };
        Some((TriedChange::RaisePriority { priority, victims }, node))
    }

    /// The victims and the node of a preemption for the pod: among these nodes, or among all. `None` if the pod fits.
    fn preempting(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        nodes: Option<&[Slot]>,
    ) -> Option<(Vec<PodRef>, String)> {
        // The resources of nominated pods of a lower priority count as free now.
        let examination = examine_nodes(snapshot, self.profile, pod, nodes);
        self.runs += examination.nodes;
        if !examination.feasible.is_empty() || examination.pre_filter.is_some() {
            return None;
        }
        evicting(snapshot, self.profile, pod, &examination.statuses())
    }

    /// Single changes after which preemption makes room on one of the closest nodes.
    pub(super) fn try_preemptions(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        examination: &Examination,
        closest: &[Distance],
    ) {
        let mut changes = candidates(snapshot, pod, examination, closest, Which::Whole);
        changes.extend(candidates(
            snapshot,
            pod,
            examination,
            closest,
            Which::Parts,
        ));
        let mut changes: Vec<TriedChange> = changes.into_iter().map(|(change, _)| change).collect();
        let mut seen = BTreeSet::new();
        changes.retain(|change| seen.insert(change.text()));
        changes.sort_by_key(TriedChange::cost);
        changes.truncate(PREEMPTIONS_TRIED_MAX);
        self.try_preemptions_after(snapshot, pod, closest, changes);
    }

    /// Replaces the pairs if one change of a pair is enough, by itself or with preemption. The second change of a pair
    /// is derived after the first one, so it may be none of the changes that were tried alone.
    pub(super) fn prefer_single_changes(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        closest: &[Distance],
    ) {
        let mut parts: Vec<TriedChange> = Vec::new();
        let pairs = self.found.iter().filter(|remedy| remedy.changes.len() == 2);
        for part in pairs.flat_map(|remedy| &remedy.changes) {
            if !part.is_new_node() && !parts.contains(part) {
                parts.push(part.clone());
            }
        }
        parts.sort_by_key(TriedChange::cost);
        self.tried_max += 2 * parts.len();
        let before = self.found.len();
        let nodes = self.considered(closest);
        for part in &parts {
            self.try_out(snapshot, pod, part.clone(), nodes.clone());
        }
        if self.found.len() == before {
            self.try_preemptions_after(snapshot, pod, closest, parts);
        }
        if self.found.len() > before {
            self.found.retain(|remedy| remedy.changes.len() == 1);
        }
    }

    /// The closest nodes; all nodes if there are few.
    fn considered(&self, closest: &[Distance]) -> Vec<Slot> {
        match closest {
            _ if self.all_nodes.len() <= NODES_CONSIDERED_MAX => self.all_nodes.clone(),
            [] => self.all_nodes[..NODES_CONSIDERED_MAX].to_vec(),
            closest => closest.iter().map(|distance| distance.node).collect(),
        }
    }

    /// Proposes the changes after which preemption makes room on one of the closest nodes.
    fn try_preemptions_after(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        closest: &[Distance],
        changes: Vec<TriedChange>,
    ) {
        let Some(nodes) = self.nodes_for_preemption(snapshot, pod, closest) else {
            return;
        };
        // If nodes are left out, the scheduler's preemption may choose one of them.
        let is_all = nodes.len() == self.all_nodes.len();
        for change in changes {
            if self.is_over() {
                return;
            }
            self.tried += 1;
            let Some(edits) = change.edits(&snapshot.cluster, &pod.pod) else {
                continue;
            };
            let found = with_edits(snapshot, pod, &edits, |snapshot, pod| {
                // PreEnqueue rejects pods whose resource claims do not exist.
                if !self.admits(snapshot, pod) {
                    return None;
                }
                self.preempting(snapshot, pod, Some(&nodes))
            });
            if let Some((victims, node)) = found {
                let node = is_all.then_some(node);
                self.found
                    .push(preempting_remedy(vec![change], victims, node));
            }
        }
    }

    /// The nodes on which preemption is tried after a change: the closest ones. If PreFilter rejects the pod, closeness
    /// is unknown, and the first nodes with pods of lower priority are used. `None` if the pod cannot preempt.
    fn nodes_for_preemption(
        &self,
        snapshot: &Snapshot,
        pod: &PodInfo,
        closest: &[Distance],
    ) -> Option<Vec<Slot>> {
        let may_preempt = pod.pod.spec.preemption_policy.as_deref() != Some("Never");
        let priority = pod.pod.priority();
        let has_victims = |slot: &Slot| {
            let view = snapshot.cluster.nodes.get(*slot);
            let mut pods = view.iter().flat_map(|view| view.pods());
            pods.any(|info| info.pod.priority() < priority)
        };
        if !may_preempt || !self.all_nodes.iter().any(has_victims) {
            return None;
        }
        if closest.is_empty() && self.all_nodes.len() > NODES_CONSIDERED_MAX {
            let nodes = self.all_nodes.iter().copied().filter(has_victims);
            return Some(nodes.take(NODES_CONSIDERED_MAX).collect());
        }
        Some(self.considered(closest))
    }
}
