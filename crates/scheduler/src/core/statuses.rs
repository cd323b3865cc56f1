//! Statuses that the API does not show as they should be: those it would not take, and those that were overtaken.
//!
//! A status patch is repeated a few times, then its call ends (D-19). What it had to say is still true, and nothing else
//! would say it until the pod is next tried, which may be never: it is **owed**, and offered again every now and then
//! until the API takes it, a newer patch says something else, or it is no longer true.
//!
//! A pod that is bound can be left saying that it is not scheduled: a binding whose every answer was lost may have been
//! carried out all the same, and what its failure wrote, or a scheduler that led before, may arrive after it. kubelets
//! put that right once they start the pod; whoever sees it here does so at once.

use super::Scheduler;
use crate::queue::{POD_SCHEDULED, QueuedIn, is_report};
use berth_api::{Duration, Pod, Str, Time};
use berth_framework::ApiCall;
use berth_framework::call::{CallErrorKind, CallResult, ConditionPatch, PodRef};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long the API is left alone before a status is offered again.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// How many statuses may be owed. Further ones are forgotten: they are written when their pod is next tried.
const OWED_MAX: usize = 1 << 16;

/// The statuses that are owed.
#[derive(Debug, Default)]
pub(crate) struct OwedStatuses {
    by_pod: FxHashMap<Str, (Time, ApiCall)>,
    due: BTreeSet<(Time, Str)>,
}

impl OwedStatuses {
    /// The API would not take a status.
    pub(super) fn owe(&mut self, call: &ApiCall, now: Time) {
        let Some(pod) = call.pod().filter(|_| is_status(call)) else {
            return;
        };
        let uid = pod.uid.clone();
        self.settle(&uid);
        if self.by_pod.len() < OWED_MAX {
            let due = now + AGAIN_AFTER;
            self.by_pod.insert(uid.clone(), (due, call.clone()));
            self.due.insert((due, uid));
        }
    }

    /// A call has ended that was made after the one that is owed, or while that was still on its way: when the API has
    /// taken what it says of the pod, or shows it already, nothing older is to be said.
    pub(super) fn ended(&mut self, call: &ApiCall, result: &CallResult) {
        let says_it = match result {
            Ok(_) => true,
            Err(error) => error.kind == CallErrorKind::Skipped,
        };
        let overrules = match call {
            ApiCall::PatchPodStatus { condition, .. } => condition.is_some(),
            call => is_status(call),
        };
        if let Some(pod) = call.pod()
            && says_it
            && overrules
        {
            self.settle(&pod.uid);
        }
    }

    /// A call is made: a newer status takes the place of the one that is owed, and a pod that is deleted needs none.
    pub(super) fn called(&mut self, call: &ApiCall) {
        if let Some(pod) = call.pod()
            && (is_status(call) || matches!(call, ApiCall::DeletePod { .. }))
        {
            self.settle(&pod.uid);
        }
    }

    /// Nothing is owed of a pod any more.
    pub(super) fn settle(&mut self, uid: &str) {
        if let Some((due, _)) = self.by_pod.remove(uid) {
            self.due.remove(&(due, uid.into()));
        }
    }

    /// Whether what is told of further pods would not be forgotten should the API not take that either.
    pub(super) fn has_room(&self) -> bool {
        self.by_pod.len() < OWED_MAX / 2
    }

    /// The first that is due; it counts as settled.
    fn take_due(&mut self, now: Time) -> Option<ApiCall> {
        let (due, uid) = self.due.first().cloned()?;
        if due > now {
            return None;
        }
        self.due.remove(&(due, uid.clone()));
        self.by_pod.remove(&uid).map(|(_, call)| call)
    }

    /// When the next is due.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }
}

fn is_status(call: &ApiCall) -> bool {
    match call {
        ApiCall::PatchPodStatus { .. } | ApiCall::ClearPreEnqueueStatus { .. } => true,
        ApiCall::BindPod { .. } | ApiCall::DeletePod { .. } | ApiCall::Write(_) => false,
    }
}

/// Whether the call tells what PreEnqueue plugins say.
fn reports(call: &ApiCall) -> bool {
    match call {
        ApiCall::ClearPreEnqueueStatus { .. } => true,
        ApiCall::PatchPodStatus { condition, .. } => {
            condition.as_ref().is_some_and(|c| is_report(&c.reason))
        }
        _ => false,
    }
}

impl Scheduler {
    /// Offers the statuses again that are due, as far as they are still true.
    pub(super) fn offer_statuses(&mut self, now: Time) {
        while let Some(call) = self.io.owed.take_due(now) {
            let Some(call) = self.still_true(call) else {
                continue;
            };
            let reported = call.pod().filter(|_| reports(&call)).cloned();
            let id = self.io.call(call, Duration::ZERO, now);
            if let Some(pod) = reported {
                self.reporting.insert(id, pod);
            }
        }
    }

    /// What of an owed status is true now: the condition if the pod still waits as it says, and the node that is kept
    /// free for it now.
    fn still_true(&self, call: ApiCall) -> Option<ApiCall> {
        let pod = call.pod()?.clone();
        let stored = self.cache.stored(&pod.uid)?;
        if stored.is_assigned() {
            let admits = matches!(&call, ApiCall::PatchPodStatus { condition: Some(c), .. } if c.status == "True");
            return admits.then_some(call);
        }
        // A pod that is being tried or bound has its status written when that fails.
        let (place, info) = self.queue.get(&pod.namespace, &pod.name)?;
        if *info.pod.uid() != pod.uid {
            return None;
        }
        let is_kept_out = place == QueuedIn::Gated;
        let kept_free = self.queue.nominator().node_of(&pod.uid).cloned();
        let nominated_node = Some(kept_free.unwrap_or_default());
        Some(match call {
            ApiCall::ClearPreEnqueueStatus { .. } if !is_kept_out => {
                ApiCall::ClearPreEnqueueStatus {
                    pod,
                    nominated_node,
                }
            }
            ApiCall::PatchPodStatus { condition, .. } => ApiCall::PatchPodStatus {
                pod,
                condition: condition.filter(|c| !is_report(&c.reason) || is_kept_out),
                nominated_node,
            },
            _ => ApiCall::PatchPodStatus {
                pod,
                condition: None,
                nominated_node,
            },
        })
    }

    /// A pod is bound, and the API shows so. Should it say that it is not scheduled, that is put right.
    pub(crate) fn put_right(&mut self, pod: &Arc<Pod>, now: Time) {
        self.io.owed.settle(pod.uid());
        let denies = pod
            .condition(POD_SCHEDULED)
            .is_some_and(|c| c.status == "False");
        if !denies || pod.is_terminating() {
            return;
        }
        let call = ApiCall::PatchPodStatus {
            pod: PodRef::of(pod),
            condition: Some(ConditionPatch::of(pod, POD_SCHEDULED, "True", "", "")),
            nominated_node: None,
        };
        self.io.call(call, Duration::ZERO, now);
    }
}
