//! The row of a pod with a desired status: what is to be written, and when.

use super::status::{ConditionChange, StatusChange};
use berth_api::Time;
use berth_framework::call::PodRef;
use std::mem;

/// The desired status of one pod, as far as the pod does not have it and no call in flight writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DesiredStatus {
    pub(super) pod: PodRef,
    /// The changes of the status patch that waits. Empty if none waits.
    pub(super) now: StatusChange,
    /// The answer of PreEnqueue plugins, until it is due.
    pub(super) report: Option<Report>,
    /// The changes that the API did not take.
    pub(super) refused: Option<RefusedChange>,
}

/// Changes of a status that failed in all attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusedChange {
    pub(super) change: StatusChange,
    /// The time at which they are offered again; `None` after that.
    pub(super) due: Option<Time>,
    /// Whether an attempt may have been carried out. Until the next patch it is unknown what the pod states.
    pub(super) is_unclear: bool,
}

/// The answer of PreEnqueue plugins about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) answer: ConditionChange,
    /// The time at which it is written.
    pub(super) due: Time,
    /// Whether it is a new rejection: after what is in flight was reported, the pod had been admitted.
    pub(super) is_new: bool,
    /// Whether a nomination was decided since, which takes the report along.
    pub(super) joins: bool,
}

impl DesiredStatus {
    /// Nothing is left to write now. Returns whether a report was to be taken along.
    pub(super) fn take_now(&mut self) -> bool {
        self.now = StatusChange::default();
        let report = self.report.as_mut();
        report.is_some_and(|report| mem::take(&mut report.joins))
    }

    /// PreEnqueue plugins give another answer, which is due at that time. Returns the report that waits from now on, if
    /// any. `sent` is the condition that a call in flight writes, `was_left` whether the pod had been left to another
    /// scheduler since, and `is_unclear` whether an earlier attempt of the waiting patch may have been carried out.
    pub(super) fn answered(
        &mut self,
        answer: ConditionChange,
        due: Time,
        sent: Option<&ConditionChange>,
        was_left: bool,
        is_unclear: bool,
    ) -> Option<Report> {
        // A pod that had passed and is rejected again has its own time.
        let is_new_after = |earlier: &ConditionChange| {
            *earlier == ConditionChange::Clear && answer != ConditionChange::Clear
        };
        let mut is_new = was_left || sent.is_some_and(is_new_after);
        let unsent = self.now.condition.as_ref();
        if let Some(unsent) = unsent.filter(|unsent| unsent.is_report()) {
            // A report that has not been sent states the present answer of the plugins (D-14).
            if !is_new_after(unsent) {
                self.now.condition = Some(answer);
                return None;
            }
            is_new = true;
            // The removal of a report that may have been carried out is repeated: only then it is known what the pod
            // states.
            if !is_unclear {
                self.now.condition = None;
            }
        }
        let earlier = self.report.as_ref();
        let kept = earlier.filter(|earlier| !is_new_after(&earlier.answer));
        is_new = earlier.map_or(is_new, |earlier| kept.is_none() || earlier.is_new);
        // If the last status patch states the answer, no other one is left to write then. A patch in flight that reports an
        // earlier rejection may fail, and the new one has its own time.
        let last = if self.now.is_empty() {
            sent.filter(|_| !is_new)
        } else {
            self.now.condition.as_ref()
        };
        if last.is_some_and(|last| last.states_the_same(&answer)) {
            return None;
        }
        Some(Report {
            due: kept.map_or(due, |kept| kept.due),
            is_new,
            joins: earlier.is_some_and(|earlier| earlier.joins),
            answer,
        })
    }
}
