//! Preemptions of the other scheduler: the nominated node and the victims, compared with Berth's.
//!
//! The watch shows a preemption in parts, in any order: the nomination of the pod, and each victim with the condition
//! DisruptionTarget. Berth decides when it sees the nomination, in the cluster with the victims that it has seen
//! before; the victims are compared some seconds later ([`SETTLE`]), when all of them are visible.

use super::OPEN_MAX;
use super::report::{Disagreement, Preempting, SharedReport};
use berth_api::{Duration, Object, Pod, Str, Time};
use berth_explain::{Preempted, Snapshot};
use berth_scheduler::{ClusterChange, Scheduler};
use std::collections::VecDeque;
use std::sync::Arc;

/// The time from a nomination to the comparison of the victims.
const SETTLE: Duration = Duration::from_secs(5);
/// The time before the nomination in which evictions count as victims.
const EVICTED_BEFORE: Duration = Duration::from_secs(5);
/// The maximum number of remembered victims.
const EVICTED_MAX: usize = 1024;

/// A victim of the other scheduler, as it was before.
struct Evicted {
    at: Time,
    pod: Arc<Pod>,
}

/// A preemption whose victims are not compared yet.
struct Open {
    at: Time,
    pod: String,
    priority: i32,
    node: Str,
    /// Berth's preemptions on that node, and on the node that it selects.
    there: Preempted,
    chosen: Preempted,
}

/// Compares preemptions.
#[derive(Default)]
pub(super) struct PreemptionComparer {
    evicted: VecDeque<Evicted>,
    open: VecDeque<Open>,
}

/// Returns whether a scheduler evicts the pod for another one.
fn is_victim(pod: &Pod) -> bool {
    let condition = pod.condition("DisruptionTarget");
    condition.is_some_and(|c| c.status == "True" && c.reason == "PreemptionByScheduler")
}

impl PreemptionComparer {
    /// The time of the next comparison of victims.
    pub(super) fn next_look(&self) -> Option<Time> {
        self.open.front().map(|open| open.at + SETTLE)
    }

    /// Remembers a victim as it was before the change.
    pub(super) fn note_victim(&mut self, scheduler: &Scheduler, change: &ClusterChange, now: Time) {
        let (ClusterChange::Applied(Object::Pod(new)) | ClusterChange::Deleted(Object::Pod(new))) =
            change
        else {
            return;
        };
        let Some(old) = scheduler.cache().stored(new.uid()) else {
            return;
        };
        if !is_victim(new) || is_victim(old) || !old.is_assigned() || old.is_terminating() {
            return;
        }
        if self.evicted.len() >= EVICTED_MAX {
            self.evicted.pop_front();
        }
        self.evicted.push_back(Evicted {
            at: now,
            pod: old.clone(),
        });
    }

    /// The visible victims of a preemption on a node.
    fn victims(
        &self,
        node: &str,
        priority: i32,
        nominated: Time,
    ) -> impl Iterator<Item = &Evicted> {
        let (from, to) = (nominated - EVICTED_BEFORE, nominated + SETTLE);
        self.evicted.iter().filter(move |evicted| {
            let pod = &evicted.pod;
            let is_near = from <= evicted.at && evicted.at <= to;
            is_near && pod.spec.node_name == *node && pod.priority() < priority
        })
    }

    /// Decides about a pod that the other scheduler has nominated to a node.
    pub(super) fn nominated(
        &mut self,
        shared: &SharedReport,
        scheduler: &Scheduler,
        pod: &Arc<Pod>,
        now: Time,
    ) {
        let node = &pod.status.nominated_node_name;
        // Decisions are compared later, so the number of open decisions is bounded.
        if self.open.len() >= OPEN_MAX {
            shared.update(|report| report.preemptions.skipped += 1);
            return;
        }
        let victims = self.victims(node, pod.priority(), now);
        let victims: Vec<Arc<Pod>> = victims.map(|evicted| evicted.pod.clone()).collect();
        let mut snapshot = Snapshot::take(scheduler, now);
        // The other scheduler may have evicted its victims already.
        snapshot.restore(&victims);
        let there = snapshot.preempts(pod, Some(node));
        let chosen = snapshot.preempts(pod, None);
        let Some((there, chosen)) = there.zip(chosen) else {
            return;
        };
        self.open.push_back(Open {
            at: now,
            pod: pod.key(),
            priority: pod.priority(),
            node: node.clone(),
            there,
            chosen,
        });
    }

    /// Compares the preemptions whose victims are visible.
    pub(super) fn look(&mut self, shared: &SharedReport, now: Time) {
        while self.next_look().is_some_and(|look| now >= look)
            && let Some(open) = self.open.pop_front()
        {
            let victims = self.victims(&open.node, open.priority, open.at);
            let mut victims: Vec<String> = victims.map(|evicted| evicted.pod.key()).collect();
            victims.sort_unstable();
            // Each victim belongs to one preemption.
            self.evicted.retain(|evicted| {
                evicted.pod.spec.node_name != open.node || !victims.contains(&evicted.pod.key())
            });
            let compared = compare(&open, &victims);
            let is_disagreement =
                matches!(compared, Preempting::OtherVictims | Preempting::NotHere);
            let disagreement = is_disagreement.then(|| Disagreement {
                at: open.at.rfc3339(),
                pod: open.pod.clone(),
                other: format!("preempts on {}: {}", open.node, victims.join(", ")),
                berth: match &open.there {
                    Preempted::Evicts { node, victims } => {
                        format!("preempts on {node}: {}", victims.join(", "))
                    }
                    Preempted::Fits => format!("fits on {}", open.node),
                    Preempted::Not => format!("preemption on {} does not help", open.node),
                },
                case: None,
            });
            if let Some(disagreement) = &disagreement {
                tracing::warn!(
                    pod = disagreement.pod,
                    other = disagreement.other,
                    berth = disagreement.berth,
                    "the other scheduler and Berth disagree about a preemption"
                );
            }
            shared.update(|report| report.preempted(compared, disagreement));
        }
        let oldest = now - EVICTED_BEFORE - SETTLE;
        self.evicted.retain(|evicted| evicted.at >= oldest);
    }
}

fn compare(open: &Open, victims: &[String]) -> Preempting {
    match &open.there {
        // The other scheduler decided before room was made, or its victims are not visible.
        _ if victims.is_empty() => Preempting::Superseded,
        Preempted::Fits => Preempting::Superseded,
        Preempted::Not => Preempting::NotHere,
        Preempted::Evicts { victims: ours, .. } if ours != victims => Preempting::OtherVictims,
        Preempted::Evicts { .. } => match &open.chosen {
            Preempted::Evicts { node, .. } if *node == *open.node => Preempting::SameNode,
            _ => Preempting::OtherNode,
        },
    }
}
