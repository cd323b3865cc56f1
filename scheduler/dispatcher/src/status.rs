//! The changes of a status patch: the merge of two patches, and the test whether one changes anything (D-19, D-27).

use super::writes::Base;
use berth_api::{Pod, Str};
use berth_framework::ApiCall;
use berth_framework::call::{ConditionPatch, PodRef};
use berth_framework::condition::{NOT_READY_FOR_SCHEDULING, POD_SCHEDULED, is_report};

/// The change of the PodScheduled condition by a status patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConditionChange {
    /// Sets it.
    Set(ConditionPatch),
    /// Removes it if its reason is NotReadyForScheduling.
    Clear,
}

impl ConditionChange {
    /// Returns whether status, reason and message are the same.
    pub(super) fn states_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Set(one), Self::Set(other)) => {
                one.status == other.status
                    && one.reason == other.reason
                    && one.message == other.message
            }
            (Self::Clear, Self::Clear) => true,
            _ => false,
        }
    }

    /// Returns whether the change is a report of PreEnqueue.
    pub(super) fn is_report(&self) -> bool {
        match self {
            Self::Clear => true,
            Self::Set(condition) => is_report(&condition.reason),
        }
    }
}

/// The changes of a status patch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct StatusChange {
    /// The PodScheduled condition.
    pub(super) condition: Option<ConditionChange>,
    /// Conditions of other types, at most one of each, in the order in which they were added.
    pub(super) others: Vec<ConditionPatch>,
    pub(super) nominated_node: Option<Str>,
}

impl StatusChange {
    /// The changes of the call; `None` when it is no status patch.
    pub(super) fn of(call: &ApiCall) -> Option<Self> {
        match call {
            ApiCall::PatchPodStatus {
                conditions,
                nominated_node,
                ..
            } => {
                let scheduled = call.condition(POD_SCHEDULED);
                Some(Self {
                    condition: scheduled.cloned().map(ConditionChange::Set),
                    others: others_of(conditions),
                    nominated_node: nominated_node.clone(),
                })
            }
            ApiCall::ClearPreEnqueueStatus {
                conditions,
                nominated_node,
                ..
            } => Some(Self {
                condition: Some(ConditionChange::Clear),
                others: others_of(conditions),
                nominated_node: nominated_node.clone(),
            }),
            ApiCall::BindPod { .. } | ApiCall::DeletePod { .. } | ApiCall::Write(_) => None,
        }
    }

    /// The same change of the PodScheduled condition, and nothing else.
    pub(super) fn of_condition(change: ConditionChange) -> Self {
        Self {
            condition: Some(change),
            ..Self::default()
        }
    }

    /// Returns whether the change sets or removes a condition.
    pub(super) fn changes_conditions(&self) -> bool {
        self.condition.is_some() || !self.others.is_empty()
    }

    /// Returns whether nothing is left of the change.
    pub(super) fn is_empty(&self) -> bool {
        !self.changes_conditions() && self.nominated_node.is_none()
    }

    /// The call that makes the change.
    pub(super) fn into_call(self, pod: PodRef) -> ApiCall {
        let nominated_node = self.nominated_node;
        let mut conditions = self.others;
        match self.condition {
            Some(ConditionChange::Clear) => ApiCall::ClearPreEnqueueStatus {
                pod,
                resource_version: None,
                conditions,
                nominated_node,
            },
            set => {
                if let Some(ConditionChange::Set(condition)) = set {
                    conditions.insert(0, condition);
                }
                ApiCall::PatchPodStatus {
                    pod,
                    conditions,
                    nominated_node,
                }
            }
        }
    }

    /// This change after an older one that was not made: what is new takes precedence, the rest of the old stays. Both
    /// conditions are written if their types differ.
    #[must_use]
    pub(super) fn after(self, old: Self) -> Self {
        let condition = match (self.condition, old.condition) {
            (None, old) => old,
            (Some(ConditionChange::Clear), Some(ConditionChange::Set(old)))
                if !is_report(&old.reason) =>
            {
                // Clearing reverts a rejection by PreEnqueue, not the result of a cycle.
                Some(ConditionChange::Set(old))
            }
            (new, _) => new,
        };
        let mut others = old.others;
        for new in self.others {
            put(&mut others, new);
        }
        Self {
            condition,
            others,
            nominated_node: self.nominated_node.or(old.nominated_node),
        }
    }

    /// Returns whether the change needs no call: the pod has each condition with its status, reason and message, and
    /// the nominated node (D-19).
    pub(super) fn has_no_effect(&self, base: &Base<'_>) -> bool {
        let condition = match &self.condition {
            None => true,
            Some(ConditionChange::Clear) => !is_removable(base),
            Some(ConditionChange::Set(new)) => is_out_of_date(new, base.stored) || base.shows(new),
        };
        let condition = condition && self.others.iter().all(|new| base.shows(new));
        let nominated = self.nominated_node.as_ref();
        condition && nominated.is_none_or(|node| node == base.nominated_node())
    }

    /// Leaves only what really changes something, and works out anew whether the condition's status does. `None` when
    /// nothing is left.
    pub(super) fn cut_to(mut self, base: &Base<'_>) -> Option<Self> {
        match &mut self.condition {
            None => {}
            Some(ConditionChange::Clear) if !is_removable(base) => self.condition = None,
            Some(ConditionChange::Clear) => {}
            Some(ConditionChange::Set(new)) => {
                let stays = changes(new, base) && !is_out_of_date(new, base.stored);
                self.condition = self.condition.take().filter(|_| stays);
            }
        }
        self.others.retain_mut(|new| changes(new, base));
        if self.nominated_node.as_ref() == Some(base.nominated_node()) {
            self.nominated_node = None;
        }
        (!self.is_empty()).then_some(self)
    }

    /// Leaves only what may still be true: a pod with a node is not reported as unscheduled, and keeps its condition.
    /// `None` when nothing is left.
    pub(super) fn cut_to_truth(mut self, stored: &Pod) -> Option<Self> {
        let is_over = self.condition.as_ref().is_some_and(|change| match change {
            ConditionChange::Set(new) => is_out_of_date(new, stored),
            ConditionChange::Clear => stored.is_assigned(),
        });
        if is_over {
            self.condition = None;
        }
        (!self.is_empty()).then_some(self)
    }
}

/// The conditions that are not PodScheduled; of two of one type, the later one.
fn others_of(conditions: &[ConditionPatch]) -> Vec<ConditionPatch> {
    let mut others = Vec::new();
    for condition in conditions.iter().filter(|c| c.kind != POD_SCHEDULED) {
        put(&mut others, condition.clone());
    }
    others
}

/// Adds a condition in the place of an older one of its type.
pub(super) fn put(conditions: &mut Vec<ConditionPatch>, new: ConditionPatch) {
    match conditions.iter_mut().find(|old| old.kind == new.kind) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

/// Returns whether a condition changes anything of a pod. Determines anew whether its status does.
fn changes(new: &mut ConditionPatch, base: &Base<'_>) -> bool {
    let old = base.condition(&new.kind);
    new.status_changes = old.as_ref().is_none_or(|old| *old.status != *new.status);
    let is_generation_equal =
        old.is_some_and(|old| old.observed_generation == new.observed_generation);
    !(is_generation_equal && base.shows(new))
}

/// Returns whether the condition reports a pod as unscheduled that has a node by now.
fn is_out_of_date(new: &ConditionPatch, stored: &Pod) -> bool {
    new.kind == POD_SCHEDULED && new.status != "True" && stored.is_assigned()
}

/// Returns whether the pod waits for a node and has a report of PreEnqueue that can be removed.
fn is_removable(base: &Base<'_>) -> bool {
    let condition = base.condition(POD_SCHEDULED);
    !base.stored.is_assigned() && condition.is_some_and(|c| *c.reason == *NOT_READY_FOR_SCHEDULING)
}

#[cfg(test)]
mod tests {
    use super::super::writes::Writes;
    use super::*;
    use berth_framework::condition::SCHEDULING_GATED;
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
            others: Vec::new(),
            nominated_node: node.map(Str::new),
        }
    }

    /// A condition of another type.
    fn other(kind: &str, message: &str) -> ConditionPatch {
        ConditionPatch {
            kind: kind.into(),
            ..condition("r", message)
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
                "clear does not revert the result of a cycle",
                change(unschedulable(), None),
                change(clear(), None),
                change(unschedulable(), None),
            ),
        ] {
            assert_eq!(new.after(old), merged, "{case}");
        }
    }

    /// D-7, D-19: conditions are merged by type, and the newer one of a type is written.
    #[test]
    fn conditions_are_merged_by_type() {
        let with = |condition, others: &[ConditionPatch]| StatusChange {
            others: others.to_vec(),
            ..change(condition, None)
        };
        let (x1, x2, y) = (other("X", "1"), other("X", "2"), other("Y", "1"));
        let clear = || Some(ConditionChange::Clear);
        for (case, old, new, merged) in [
            (
                "another type beside PodScheduled",
                with(Some(set("Unschedulable")), &[]),
                with(None, std::slice::from_ref(&x1)),
                with(Some(set("Unschedulable")), std::slice::from_ref(&x1)),
            ),
            (
                "PodScheduled beside another type",
                with(None, std::slice::from_ref(&x1)),
                with(Some(set("Unschedulable")), &[]),
                with(Some(set("Unschedulable")), std::slice::from_ref(&x1)),
            ),
            (
                "the newer one of each type",
                with(None, &[x1.clone(), y.clone()]),
                with(Some(set("r")), std::slice::from_ref(&x2)),
                with(Some(set("r")), &[x2.clone(), y.clone()]),
            ),
            (
                "a removal beside another type",
                with(
                    Some(set(NOT_READY_FOR_SCHEDULING)),
                    std::slice::from_ref(&x1),
                ),
                with(clear(), &[]),
                with(clear(), std::slice::from_ref(&x1)),
            ),
        ] {
            let merged_now = new.after(old);
            assert_eq!(merged_now, merged, "{case}");
            // One call carries all of it.
            let call = merged_now.into_call(PodRef::of(&pod("p").build()));
            assert_eq!(StatusChange::of(&call), Some(merged), "{case}");
        }
        // Of two conditions of one type in one call, the later one counts.
        let call = ApiCall::PatchPodStatus {
            pod: PodRef::of(&pod("p").build()),
            conditions: vec![x1, condition("a", "m"), x2.clone(), condition("b", "m")],
            nominated_node: None,
        };
        assert_eq!(StatusChange::of(&call), Some(with(Some(set("b")), &[x2])));
    }

    /// D-19: a patch has no effect if the pod has every condition of the list; only the others are sent.
    #[test]
    fn each_condition_of_a_list_is_compared() {
        let stored = pod_with(Some("Unschedulable"), "");
        let mut writes = Writes::default();
        let is_there = StatusChange {
            others: vec![other("X", "1")],
            ..StatusChange::default()
        };
        let call = is_there.clone().into_call(PodRef::of(&stored));
        writes.note(&call, berth_api::Time::EPOCH);
        let base = Base::new(&stored, &writes);
        let list = |others: &[ConditionPatch]| StatusChange {
            others: others.to_vec(),
            ..change(Some(set("Unschedulable")), None)
        };
        assert!(list(&[other("X", "1")]).has_no_effect(&base));
        assert!(!list(&[other("X", "2")]).has_no_effect(&base));
        assert!(!list(&[other("X", "1"), other("Y", "1")]).has_no_effect(&base));
        let cut = list(&[other("X", "1"), other("Y", "1")]).cut_to(&base);
        let left = StatusChange {
            others: vec![other("Y", "1")],
            ..StatusChange::default()
        };
        assert_eq!(cut, Some(left));
        // A condition of another type does not hide PodScheduled, nor the reverse.
        let mut effective = stored.clone();
        writes.apply_to(&mut effective);
        let kinds: Vec<_> = effective
            .status
            .conditions
            .iter()
            .map(|c| &*c.kind)
            .collect();
        assert_eq!(kinds, ["PodScheduled", "X"]);
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
        let none = Writes::NONE;
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
                "clear of another pod's reason",
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
            let base = Base::new(stored, &none);
            assert_eq!(change.has_no_effect(&base), needless, "{case}");
        }
    }

    /// D-19, case 228: what is there already is not written, and the transition time moves only with the status.
    #[test]
    fn only_what_changes_is_written() {
        let stored = pod_with(Some("Unschedulable"), "n1");
        let none = Writes::NONE;
        let base = Base::new(&stored, &none);
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
