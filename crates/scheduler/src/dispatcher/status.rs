//! What a status patch changes: merging two of them, and telling whether one changes anything (D-19, D-27).

use super::writes::Base;
use crate::queue::{NOT_READY_FOR_SCHEDULING, POD_SCHEDULED, is_report};
use berth_api::{Pod, Str};
use berth_framework::ApiCall;
use berth_framework::call::{ConditionPatch, PodRef};

/// What a status patch does to the conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConditionChange {
    /// Sets one.
    Set(ConditionPatch),
    /// Removes PodScheduled where its reason is NotReadyForScheduling.
    Clear,
}

impl ConditionChange {
    /// Whether status, reason and message are the same.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Set(one), Self::Set(other)) => {
                one.kind == other.kind
                    && one.status == other.status
                    && one.reason == other.reason
                    && one.message == other.message
            }
            (Self::Clear, Self::Clear) => true,
            _ => false,
        }
    }

    /// Whether the change is a report of PreEnqueue.
    pub(super) fn is_report(&self) -> bool {
        match self {
            Self::Clear => true,
            Self::Set(condition) => is_report(&condition.reason),
        }
    }

    /// Whether a pod of which this was reported is rejected anew by `newer`: it had been admitted meanwhile.
    pub(super) fn is_followed_by_new_rejection(&self, newer: &Self) -> bool {
        *self == Self::Clear && *newer != Self::Clear
    }
}

/// What a status patch changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct StatusChange {
    pub(super) condition: Option<ConditionChange>,
    pub(super) nominated_node: Option<Str>,
}

impl StatusChange {
    /// What the call changes; `None` when it is no status patch.
    pub(super) fn of(call: &ApiCall) -> Option<Self> {
        match call {
            ApiCall::PatchPodStatus {
                condition,
                nominated_node,
                ..
            } => Some(Self {
                condition: condition.clone().map(ConditionChange::Set),
                nominated_node: nominated_node.clone(),
            }),
            ApiCall::ClearPreEnqueueStatus { nominated_node, .. } => Some(Self {
                condition: Some(ConditionChange::Clear),
                nominated_node: nominated_node.clone(),
            }),
            ApiCall::BindPod { .. } | ApiCall::DeletePod { .. } | ApiCall::Write(_) => None,
        }
    }

    /// Whether the change sets a condition that is not PodScheduled.
    pub(super) fn is_about_another_condition(&self) -> bool {
        match &self.condition {
            Some(ConditionChange::Set(condition)) => condition.kind != POD_SCHEDULED,
            Some(ConditionChange::Clear) | None => false,
        }
    }

    /// The call that makes the change.
    pub(super) fn into_call(self, pod: PodRef) -> ApiCall {
        let nominated_node = self.nominated_node;
        match self.condition {
            Some(ConditionChange::Clear) => ApiCall::ClearPreEnqueueStatus {
                pod,
                nominated_node,
            },
            Some(ConditionChange::Set(condition)) => ApiCall::PatchPodStatus {
                pod,
                condition: Some(condition),
                nominated_node,
            },
            None => ApiCall::PatchPodStatus {
                pod,
                condition: None,
                nominated_node,
            },
        }
    }

    /// This change after an older one that was not made: what is new wins, the rest of the old stays.
    ///
    /// # Errors
    /// When one call cannot do both.
    pub(super) fn after(self, old: Self) -> Result<Self, String> {
        let condition = match (self.condition, old.condition) {
            (None, old) => old,
            (Some(ConditionChange::Set(new)), Some(ConditionChange::Set(old)))
                if new.kind != old.kind =>
            {
                return Err(format!(
                    "one call cannot set two conditions, {} and {}",
                    old.kind, new.kind
                ));
            }
            (Some(ConditionChange::Clear), Some(ConditionChange::Set(old)))
                if !is_report(&old.reason) =>
            {
                // Clearing takes back a rejection by PreEnqueue, not what a cycle had to say.
                Some(ConditionChange::Set(old))
            }
            (new, _) => new,
        };
        Ok(Self {
            condition,
            nominated_node: self.nominated_node.or(old.nominated_node),
        })
    }

    /// Whether the change is worth no call: status, reason and message of the condition are there, and so is the
    /// nominated node (D-19).
    pub(super) fn has_no_effect(&self, base: &Base<'_>) -> bool {
        let condition = match &self.condition {
            None => true,
            Some(ConditionChange::Clear) => !is_not_ready(base),
            Some(ConditionChange::Set(new)) => {
                is_out_of_date(new, base.stored)
                    || base.condition(&new.kind).is_some_and(|old| {
                        *old.status == *new.status
                            && *old.reason == *new.reason
                            && *old.message == *new.message
                    })
            }
        };
        let nominated = self.nominated_node.as_ref();
        condition && nominated.is_none_or(|node| node == base.nominated_node())
    }

    /// Leaves only what really changes something, and works out anew whether the condition's status does. `None` when
    /// nothing is left.
    pub(super) fn cut_to(mut self, base: &Base<'_>) -> Option<Self> {
        match &mut self.condition {
            None => {}
            Some(ConditionChange::Clear) if !is_not_ready(base) => self.condition = None,
            Some(ConditionChange::Clear) => {}
            Some(ConditionChange::Set(new)) => {
                let old = base.condition(&new.kind);
                new.status_changes = old.as_ref().is_none_or(|old| *old.status != *new.status);
                let same = old.is_some_and(|old| {
                    *old.status == *new.status
                        && *old.reason == *new.reason
                        && *old.message == *new.message
                        && old.observed_generation == new.observed_generation
                });
                if same || is_out_of_date(new, base.stored) {
                    self.condition = None;
                }
            }
        }
        if self.nominated_node.as_ref() == Some(base.nominated_node()) {
            self.nominated_node = None;
        }
        (self.condition.is_some() || self.nominated_node.is_some()).then_some(self)
    }

    /// Leaves only what may still be true: a pod with a node is not reported as unscheduled. `None` when nothing is
    /// left.
    pub(super) fn cut_to_truth(mut self, stored: &Pod) -> Option<Self> {
        if let Some(ConditionChange::Set(new)) = &self.condition
            && is_out_of_date(new, stored)
        {
            self.condition = None;
        }
        (self.condition.is_some() || self.nominated_node.is_some()).then_some(self)
    }
}

/// Whether the condition reports a pod as unscheduled that has a node by now.
fn is_out_of_date(new: &ConditionPatch, stored: &Pod) -> bool {
    new.kind == POD_SCHEDULED && new.status != "True" && stored.is_assigned()
}

fn is_not_ready(base: &Base<'_>) -> bool {
    base.condition(POD_SCHEDULED)
        .is_some_and(|c| *c.reason == *NOT_READY_FOR_SCHEDULING)
}

#[cfg(test)]
mod tests {
    use super::super::writes::Writes;
    use super::*;
    use crate::queue::SCHEDULING_GATED;
    use berth_framework::testing::pod;

    fn set(reason: &str) -> ConditionChange {
        ConditionChange::Set(condition(reason, "m"))
    }

    fn condition(reason: &str, message: &str) -> ConditionPatch {
        ConditionPatch {
            kind: POD_SCHEDULED.into(),
            status: "False".into(),
            reason: reason.into(),
            message: message.into(),
            observed_generation: Some(1),
            status_changes: true,
        }
    }

    fn change(condition: Option<ConditionChange>, node: Option<&str>) -> StatusChange {
        StatusChange {
            condition,
            nominated_node: node.map(Str::new),
        }
    }

    fn pod_with(reason: Option<&str>, node: &str) -> Pod {
        let mut pod = pod("p").nominated(node).build();
        if let Some(reason) = reason {
            let mut writes = Writes::default();
            let call = change(Some(set(reason)), None).into_call(PodRef::of(&pod));
            writes.note(&call, berth_api::Time::EPOCH);
            writes.apply_to(&mut pod);
        }
        pod
    }

    /// D-19, D-27: merging.
    #[test]
    fn what_is_new_wins_and_the_rest_stays() {
        let unschedulable = || Some(set("Unschedulable"));
        let not_ready = || Some(set(NOT_READY_FOR_SCHEDULING));
        let clear = || Some(ConditionChange::Clear);
        for (case, old, new, merged) in [
            (
                "a nomination keeps the condition",
                change(unschedulable(), None),
                change(None, Some("n1")),
                change(unschedulable(), Some("n1")),
            ),
            (
                "a condition keeps the nomination",
                change(None, Some("n1")),
                change(unschedulable(), None),
                change(unschedulable(), Some("n1")),
            ),
            (
                "the new values win",
                change(not_ready(), Some("n1")),
                change(unschedulable(), Some("")),
                change(unschedulable(), Some("")),
            ),
            (
                "set after clear is set",
                change(clear(), None),
                change(not_ready(), None),
                change(not_ready(), None),
            ),
            (
                "clear after an unsent rejection is clear",
                change(not_ready(), Some("n1")),
                change(clear(), None),
                change(clear(), Some("n1")),
            ),
            (
                "and so it is after one of gates",
                change(Some(set(SCHEDULING_GATED)), None),
                change(clear(), None),
                change(clear(), None),
            ),
            (
                "clear does not take back what a cycle said",
                change(unschedulable(), None),
                change(clear(), None),
                change(unschedulable(), None),
            ),
        ] {
            assert_eq!(new.after(old), Ok(merged), "{case}");
        }
    }

    /// D-7, case 152.
    #[test]
    fn two_kinds_of_conditions_do_not_merge() {
        let mut other = condition("r", "m");
        other.kind = "Other".into();
        let new = change(Some(ConditionChange::Set(other)), None);
        let error = new.after(change(Some(set("r")), None)).unwrap_err();
        assert_eq!(
            error,
            "one call cannot set two conditions, PodScheduled and Other"
        );
    }

    /// D-19, case 163: what has no effect.
    #[test]
    fn a_patch_without_effect_is_distinguished() {
        let mut newer_generation = condition("Unschedulable", "m");
        newer_generation.observed_generation = Some(9);
        let other_message = ConditionChange::Set(condition("Unschedulable", "other"));
        let unschedulable = || Some(set("Unschedulable"));
        let clear = || Some(ConditionChange::Clear);
        let stored = pod_with(Some("Unschedulable"), "n1");
        let gated = pod_with(Some("SchedulingGated"), "");
        let not_ready = pod_with(Some(NOT_READY_FOR_SCHEDULING), "");
        let bound = pod("p").on("n1").build();
        for (case, stored, change, needless) in [
            ("nothing at all", &stored, change(None, None), true),
            (
                "the same condition",
                &stored,
                change(unschedulable(), None),
                true,
            ),
            (
                "the same condition of another generation",
                &stored,
                change(Some(ConditionChange::Set(newer_generation)), None),
                true,
            ),
            (
                "another message",
                &stored,
                change(Some(other_message), None),
                false,
            ),
            (
                "the same nomination",
                &stored,
                change(None, Some("n1")),
                true,
            ),
            (
                "another nomination",
                &stored,
                change(None, Some("n2")),
                false,
            ),
            (
                "no nomination any more",
                &stored,
                change(None, Some("")),
                false,
            ),
            (
                "the same condition, another nomination",
                &stored,
                change(unschedulable(), Some("n2")),
                false,
            ),
            (
                "no condition there",
                &pod_with(None, ""),
                change(unschedulable(), None),
                false,
            ),
            (
                "clear of a rejection",
                &not_ready,
                change(clear(), None),
                false,
            ),
            (
                "clear of somebody else's reason",
                &gated,
                change(clear(), None),
                true,
            ),
            (
                "clear of nothing",
                &pod_with(None, ""),
                change(clear(), None),
                true,
            ),
            (
                "unschedulable, but bound",
                &bound,
                change(unschedulable(), None),
                true,
            ),
        ] {
            let base = Base::new(stored, &Writes::NONE);
            assert_eq!(change.has_no_effect(&base), needless, "{case}");
        }
    }

    /// D-19, case 228: what is there already is not written, and the transition time moves only with the status.
    #[test]
    fn only_what_changes_is_written() {
        let stored = pod_with(Some("Unschedulable"), "n1");
        let base = Base::new(&stored, &Writes::NONE);
        let same = change(Some(set("Unschedulable")), Some("n1"));
        assert_eq!(same.cut_to(&base), None);
        let cut = change(Some(set("Unschedulable")), Some("n2")).cut_to(&base);
        assert_eq!(cut, Some(change(None, Some("n2"))));
        let cut = change(Some(set("SchedulerError")), Some("n1")).cut_to(&base);
        let Some(ConditionChange::Set(patch)) = cut.clone().and_then(|c| c.condition) else {
            panic!("the condition changes: {cut:?}");
        };
        assert!(!patch.status_changes, "False before and after");
        assert_eq!(cut.and_then(|c| c.nominated_node), None);
        let mut newer = condition("Unschedulable", "m");
        newer.observed_generation = Some(9);
        let newer = change(Some(ConditionChange::Set(newer)), None);
        assert!(newer.cut_to(&base).is_some(), "the generation is written");
    }

    /// D-17, D-27: a report was written and cleared, and the stored object shows neither yet.
    #[test]
    fn clearing_a_report_of_ours_leaves_no_older_condition() {
        let stored = pod_with(Some("Unschedulable"), "");
        let mut writes = Writes::default();
        for step in [set(NOT_READY_FOR_SCHEDULING), ConditionChange::Clear] {
            let call = change(Some(step), None).into_call(PodRef::of(&stored));
            writes.note(&call, berth_api::Time::EPOCH);
        }
        let mut effective = stored.clone();
        writes.apply_to(&mut effective);
        assert_eq!(effective.condition(POD_SCHEDULED), None);
        let again = change(Some(set("Unschedulable")), None);
        assert!(!again.has_no_effect(&Base::new(&stored, &writes)));
        // Without a report of ours before, nothing but NotReadyForScheduling is cleared.
        let mut writes = Writes::default();
        let clear = change(Some(ConditionChange::Clear), None).into_call(PodRef::of(&stored));
        writes.note(&clear, berth_api::Time::EPOCH);
        assert!(again.has_no_effect(&Base::new(&stored, &writes)));
    }
}
