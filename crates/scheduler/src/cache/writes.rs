//! Our own writes to a pod that its stored object does not show yet.

use berth_api::pod::PodCondition;
use berth_api::{Duration, Pod, Str, Time};
use berth_framework::ApiCall;
use berth_framework::call::{CallId, CallResult, ConditionPatch};

/// How long a write that has succeeded is believed in though no update of the object shows it: by then somebody
/// else has overwritten it.
const UNSHOWN_MAX: Duration = Duration::from_secs(30);

/// One written field.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Write<T> {
    call: CallId,
    value: T,
    /// When the call succeeded.
    succeeded: Option<Time>,
}

/// The writes to one pod that are on their way or not seen yet; a later write of a field replaces an earlier one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Writes {
    condition: Option<Write<Option<ConditionPatch>>>,
    nominated_node: Option<Write<Str>>,
    deletion: Option<Write<Time>>,
}

/// The condition that our patches are about.
const POD_SCHEDULED: &str = "PodScheduled";

impl Writes {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// A call is on its way.
    pub(super) fn note(&mut self, call: CallId, what: &ApiCall, now: Time) {
        fn write<T>(call: CallId, value: T) -> Option<Write<T>> {
            Some(Write {
                call,
                value,
                succeeded: None,
            })
        }
        match what {
            // The cache itself counts a pod that is being bound on its node.
            ApiCall::BindPod { .. } => {}
            ApiCall::PatchPodStatus {
                condition,
                nominated_node,
                ..
            } => {
                if let Some(condition) = condition {
                    self.condition = write(call, Some(condition.clone()));
                }
                if let Some(node) = nominated_node {
                    self.nominated_node = write(call, node.clone());
                }
            }
            ApiCall::ClearPreEnqueueStatus { .. } => self.condition = write(call, None),
            ApiCall::DeletePod { condition, .. } => {
                self.condition = write(call, Some(condition.clone()));
                self.deletion = write(call, now);
            }
        }
    }

    /// A call has ended: what failed was never written.
    pub(super) fn ended(&mut self, call: CallId, result: &CallResult, now: Time) {
        fn end<T>(write: &mut Option<Write<T>>, call: CallId, succeeded: Option<Time>) {
            match (write.as_mut().filter(|w| w.call == call), succeeded) {
                (Some(w), Some(_)) => w.succeeded = succeeded,
                (Some(_), None) => *write = None,
                (None, _) => {}
            }
        }
        let succeeded = result.is_ok().then_some(now);
        end(&mut self.condition, call, succeeded);
        end(&mut self.nominated_node, call, succeeded);
        end(&mut self.deletion, call, succeeded);
    }

    /// The stored object has changed: what it shows need not be remembered.
    pub(super) fn confirm(&mut self, stored: &Pod, now: Time) {
        fn confirm<T>(write: &mut Option<Write<T>>, shown: impl Fn(&T) -> bool, now: Time) {
            let settled = write.as_ref().is_some_and(|w| {
                shown(&w.value) || w.succeeded.is_some_and(|at| now.since(at) > UNSHOWN_MAX)
            });
            if settled {
                *write = None;
            }
        }
        confirm(
            &mut self.condition,
            |patch| match patch {
                Some(patch) => shows(stored, patch),
                None => !carries_not_ready(stored),
            },
            now,
        );
        confirm(
            &mut self.nominated_node,
            |node| stored.status.nominated_node_name == *node,
            now,
        );
        confirm(
            &mut self.deletion,
            |_| stored.metadata.deletion_timestamp.is_some(),
            now,
        );
    }

    /// Puts the writes into a copy of the stored object.
    pub(super) fn apply_to(&self, pod: &mut Pod) {
        if let Some(write) = &self.condition {
            match &write.value {
                Some(patch) => set_condition(pod, patch),
                None if carries_not_ready(pod) => {
                    pod.status.conditions.retain(|c| c.kind != POD_SCHEDULED);
                }
                None => {}
            }
        }
        if let Some(write) = &self.nominated_node {
            pod.status.nominated_node_name = write.value.clone();
        }
        if let Some(write) = &self.deletion {
            pod.metadata.deletion_timestamp.get_or_insert(write.value);
        }
    }
}

fn carries_not_ready(pod: &Pod) -> bool {
    pod.condition(POD_SCHEDULED)
        .is_some_and(|c| c.reason == crate::queue::NOT_READY_FOR_SCHEDULING)
}

/// Whether the pod carries the condition: status, reason and message count (C-50).
pub(crate) fn shows(pod: &Pod, patch: &ConditionPatch) -> bool {
    pod.condition(&patch.kind).is_some_and(|c| {
        c.status == patch.status && c.reason == patch.reason && c.message == patch.message
    })
}

fn set_condition(pod: &mut Pod, patch: &ConditionPatch) {
    let conditions = &mut pod.status.conditions;
    let at = match conditions.iter().position(|c| c.kind == patch.kind) {
        Some(at) => at,
        None => {
            conditions.push(PodCondition {
                kind: patch.kind.clone(),
                ..PodCondition::default()
            });
            conditions.len() - 1
        }
    };
    let condition = &mut conditions[at];
    condition.status = patch.status.clone();
    condition.reason = patch.reason.clone();
    condition.message = patch.message.clone();
    condition.observed_generation = patch.observed_generation;
}
