//! The difference between a status patch and a pod: only the difference is sent (D-19).

use super::status::{ConditionChange, StatusChange, is_out_of_date};
use super::writes::Base;
use berth_framework::call::ConditionPatch;
use berth_framework::condition::{NOT_READY_FOR_SCHEDULING, POD_SCHEDULED};

impl StatusChange {
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

    /// Removes fields that are equal to the stored pod, and updates `status_changes` of the conditions. `None` if no
    /// change is left.
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
}

/// Returns whether a condition differs from the pod, and updates `status_changes`.
fn changes(new: &mut ConditionPatch, base: &Base<'_>) -> bool {
    let old = base.condition(&new.kind);
    new.status_changes = old.as_ref().is_none_or(|old| *old.status != *new.status);
    let is_generation_equal =
        old.is_some_and(|old| old.observed_generation == new.observed_generation);
    !(is_generation_equal && base.shows(new))
}

/// Returns whether the pod waits for a node and has a report of PreEnqueue that can be removed.
fn is_removable(base: &Base<'_>) -> bool {
    let condition = base.condition(POD_SCHEDULED);
    !base.stored.is_assigned() && condition.is_some_and(|c| *c.reason == *NOT_READY_FOR_SCHEDULING)
}

#[cfg(test)]
mod tests {
    use super::super::status::tests::{change, condition, other, set};
    use super::super::writes::Writes;
    use super::*;
    use berth_api::Pod;
    use berth_framework::call::PodRef;
    use berth_framework::testing::pod;

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
