//! Changes after which preemption makes room: a single change of what exists, and a higher priority.

use super::Remedies;
use crate::answer::Remedy;
use crate::candidates::{Which, candidates};
use crate::change::{Change, PodRef};
use crate::examine::{Examination, examine_nodes};
use crate::lacks::Distance;
use crate::limits::{PREEMPTIONS_TRIED_MAX, PRIORITIES_TRIED_MAX};
use crate::overlay::with_edits;
use crate::snapshot::Snapshot;
use berth_framework::plugin::Nominating;
use berth_framework::{PodInfo, Slot};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The highest priority that users may give to pods; higher ones are for the system.
const USER_PRIORITY_MAX: i32 = 1_000_000_000;

/// A remedy of changes after which preemption evicts pods. The node and the victims are named if every node was examined.
fn preempting_remedy(changes: Vec<Change>, victims: Vec<PodRef>, node: Option<String>) -> Remedy {
    let texts: Vec<String> = changes.iter().map(Change::text).collect();
    let names: Vec<String> = victims
        .iter()
        .map(|pod| format!("{}/{}", pod.namespace, pod.name))
        .collect();
    let evicts = match &node {
        Some(node) => format!("preemption then evicts {} from {node}", names.join(", ")),
        None => "preemption then evicts pods of lower priority".to_owned(),
    };
    let costs = changes.iter().map(Change::cost);
    let eviction = Change::DeletePods {
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

impl Remedies<'_> {
    /// Preemption for a pod that is not tried because of its gates: nothing else has to change.
    pub(super) fn try_preemption_after(&mut self, snapshot: &mut Snapshot, pod: &Arc<PodInfo>) {
        if self.made.is_empty() || !self.admits(snapshot, pod) {
            return;
        }
        if let Some((victims, node)) = self.preempting(snapshot, pod, None) {
            let mut remedy = preempting_remedy(self.made.clone(), victims, Some(node));
            // The scheduler does the rest by itself, so this comes first.
            let costs = self.made.iter().map(Change::cost);
            remedy.cost = costs.fold(0, u32::saturating_add);
            self.found.push(remedy);
        }
    }

    /// The lowest priority with which preemption finds a node, if that of the pod is too low. With a higher priority,
    /// preemption finds a node if it does with a lower one, so the priorities are halved.
    pub(super) fn try_priorities(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        examination: &Examination,
    ) {
        let may_preempt = pod.pod.spec.preemption_policy.as_deref() != Some("Never");
        let mut statuses = examination.rejecting.iter().flat_map(|r| &r.statuses);
        if !may_preempt || !statuses.any(|s| s.code() == berth_framework::Code::Unschedulable) {
            return;
        }
        let pods = snapshot.cluster.nodes.iter().flat_map(|view| view.pods());
        let priorities = pods.map(|info| info.pod.priority());
        let priorities = priorities.filter(|p| (pod.pod.priority()..USER_PRIORITY_MAX).contains(p));
        let higher: BTreeSet<i32> = priorities.map(|priority| priority + 1).collect();
        let higher: Vec<i32> = higher.into_iter().collect();
        let (mut from, mut to) = (0, higher.len());
        let mut best = None;
        // The highest one first: most often no priority helps.
        let mut at = higher.len().saturating_sub(1);
        for _ in 0..PRIORITIES_TRIED_MAX {
            if from >= to || self.is_over() {
                break;
            }
            self.tried += 1;
            match self.preempts(snapshot, pod, higher[at]) {
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

    /// Whether preemption finds a node for the pod with this priority, and which one.
    fn preempts(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        priority: i32,
    ) -> Option<(Change, String)> {
        let mut changed = berth_api::Pod::clone(&pod.pod);
        changed.spec.priority = Some(priority);
        let pod = Arc::new(PodInfo::new(Arc::new(changed)));
        let (victims, node) = self.preempting(snapshot, &pod, None)?;
        Some((Change::RaisePriority { priority, victims }, node))
    }

    /// The victims and the node of a preemption for the pod: among these nodes, or among all. `None` if the pod fits.
    fn preempting(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        nodes: Option<&[Slot]>,
    ) -> Option<(Vec<PodRef>, String)> {
        // Room that is kept for nominated pods of a lower priority counts as free now.
        let examination = examine_nodes(snapshot, self.profile, pod, nodes);
        self.runs += examination.nodes;
        if !examination.feasible.is_empty() || examination.pre_filter.is_some() {
            return None;
        }
        let answers = snapshot.post_filter(self.profile, pod, &examination.statuses());
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

    /// Single changes after which preemption makes room on one of the closest nodes.
    pub(super) fn try_preemptions(
        &mut self,
        snapshot: &mut Snapshot,
        pod: &Arc<PodInfo>,
        examination: &Examination,
        closest: &[Distance],
    ) {
        let priority = pod.pod.priority();
        let has_victims = {
            let mut nodes = snapshot.cluster.nodes.iter();
            nodes.any(|view| {
                view.pods()
                    .iter()
                    .any(|info| info.pod.priority() < priority)
            })
        };
        let may_preempt = pod.pod.spec.preemption_policy.as_deref() != Some("Never");
        if !has_victims || !may_preempt || !self.admits(snapshot, pod) {
            return;
        }
        let considered: Vec<Slot> = closest.iter().map(|distance| distance.node).collect();
        // Other nodes are no candidates of the preemption, which may choose one of them in truth.
        let nodes = match considered.len() < self.all_nodes.len() && !considered.is_empty() {
            true => Some(&considered[..]),
            false => None,
        };
        let mut changes = candidates(snapshot, pod, examination, closest, Which::Whole);
        changes.extend(candidates(
            snapshot,
            pod,
            examination,
            closest,
            Which::Parts,
        ));
        let mut tried = BTreeSet::new();
        changes.retain(|(change, _)| tried.insert(change.text()));
        changes.sort_by_key(|(change, _)| change.cost());
        for (change, _) in changes.into_iter().take(PREEMPTIONS_TRIED_MAX) {
            if self.is_over() {
                return;
            }
            self.tried += 1;
            let Some(edits) = change.edits(&snapshot.cluster, &pod.pod) else {
                continue;
            };
            let found = with_edits(snapshot, pod, &edits, |snapshot, pod| {
                self.preempting(snapshot, pod, nodes)
            });
            if let Some((victims, node)) = found {
                let node = nodes.is_none().then_some(node);
                self.found
                    .push(preempting_remedy(vec![change], victims, node));
            }
        }
    }
}
