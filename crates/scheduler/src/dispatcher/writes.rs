//! Our writes to a pod that its stored object does not show: on their way, or made and not seen yet.
//!
//! They make the **effective** pod: what the stored object will look like once the API shows what we have written.

use super::status::{ConditionChange, POD_SCHEDULED, StatusChange};
use crate::queue::NOT_READY_FOR_SCHEDULING;
use berth_api::pod::PodCondition;
use berth_api::{Pod, Str, Time};
use berth_framework::ApiCall;
use berth_framework::call::ConditionPatch;

/// Writes to one pod; a later write of a field replaces an earlier one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writes {
    condition: Option<ConditionChange>,
    nominated_node: Option<Str>,
    deletion: Option<(ConditionPatch, Time)>,
}

impl Writes {
    /// No writes.
    pub(super) const NONE: Self = Self {
        condition: None,
        nominated_node: None,
        deletion: None,
    };

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// Adds what a call writes. A binding adds nothing: the cache counts the pod on its node by itself.
    pub(crate) fn note(&mut self, call: &ApiCall, at: Time) {
        if let ApiCall::DeletePod { condition, .. } = call {
            self.deletion = Some((condition.clone(), at));
        }
        let Some(change) = StatusChange::of(call) else {
            return;
        };
        if change.condition.is_some() {
            self.condition = change.condition;
        }
        if change.nominated_node.is_some() {
            self.nominated_node = change.nominated_node;
        }
    }

    /// Forgets what the stored object shows. A pod that has its node got its condition and lost its nomination with
    /// it.
    pub(super) fn confirm(&mut self, stored: &Pod) {
        let bound = stored.is_assigned();
        let shown = match &self.condition {
            None => false,
            Some(ConditionChange::Set(patch)) => bound || shows(stored, patch),
            Some(ConditionChange::Clear) => bound || !carries_not_ready(stored),
        };
        if shown {
            self.condition = None;
        }
        let nominated = &stored.status.nominated_node_name;
        if bound || self.nominated_node.as_ref() == Some(nominated) {
            self.nominated_node = None;
        }
        if stored.is_terminating() {
            self.deletion = None;
        }
    }

    /// Puts the writes into a copy of the stored object.
    pub fn apply_to(&self, pod: &mut Pod) {
        match &self.condition {
            None => {}
            Some(ConditionChange::Set(patch)) => set_condition(pod, patch),
            Some(ConditionChange::Clear) if carries_not_ready(pod) => {
                pod.status.conditions.retain(|c| c.kind != POD_SCHEDULED);
            }
            Some(ConditionChange::Clear) => {}
        }
        if let Some(node) = &self.nominated_node {
            pod.status.nominated_node_name = node.clone();
        }
        if let Some((condition, at)) = &self.deletion {
            set_condition(pod, condition);
            pod.metadata.deletion_timestamp.get_or_insert(*at);
        }
    }
}

fn carries_not_ready(pod: &Pod) -> bool {
    pod.condition(POD_SCHEDULED)
        .is_some_and(|c| c.reason == NOT_READY_FOR_SCHEDULING)
}

/// Whether the pod carries the condition: status, reason and message count.
fn shows(pod: &Pod, patch: &ConditionPatch) -> bool {
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

/// The pod as the server has it, as far as we know: the stored object with the writes that have succeeded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base<'a> {
    pub(super) stored: &'a Pod,
    written: &'a Writes,
}

/// A condition as the server has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition<'a> {
    pub(super) status: &'a Str,
    pub(super) reason: &'a Str,
    pub(super) message: &'a Str,
    pub(super) observed_generation: Option<i64>,
}

impl<'a> Base<'a> {
    pub(super) fn new(stored: &'a Pod, written: &'a Writes) -> Self {
        Self { stored, written }
    }

    pub(super) fn condition(&self, kind: &str) -> Option<Condition<'a>> {
        match &self.written.condition {
            Some(ConditionChange::Set(patch)) if patch.kind == kind => {
                return Some(Condition {
                    status: &patch.status,
                    reason: &patch.reason,
                    message: &patch.message,
                    observed_generation: patch.observed_generation,
                });
            }
            Some(ConditionChange::Clear)
                if kind == POD_SCHEDULED && carries_not_ready(self.stored) =>
            {
                return None;
            }
            _ => {}
        }
        self.stored.condition(kind).map(|c| Condition {
            status: &c.status,
            reason: &c.reason,
            message: &c.message,
            observed_generation: c.observed_generation,
        })
    }

    pub(super) fn nominated_node(&self) -> &'a Str {
        let written = self.written.nominated_node.as_ref();
        written.unwrap_or(&self.stored.status.nominated_node_name)
    }
}
