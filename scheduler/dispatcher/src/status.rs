//! The changes of a status patch: the merge of two patches, and the test whether one changes anything (D-19, D-27).

use berth_api::{Pod, Str};
use berth_framework::ApiCall;
use berth_framework::call::{ConditionPatch, PodRef};
use berth_framework::condition::{POD_SCHEDULED, is_report};

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

    /// This change on top of an older unwritten change: new fields take precedence, the other old fields are kept. Both
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

/// Adds a condition, replacing an older one of its type.
pub(super) fn put(conditions: &mut Vec<ConditionPatch>, new: ConditionPatch) {
    match conditions.iter_mut().find(|old| old.kind == new.kind) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

/// Returns whether the condition reports a pod as unscheduled although it has a node.
pub(super) fn is_out_of_date(new: &ConditionPatch, stored: &Pod) -> bool {
    new.kind == POD_SCHEDULED && new.status != "True" && stored.is_assigned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use berth_framework::condition::{NOT_READY_FOR_SCHEDULING, SCHEDULING_GATED};
    use berth_framework::testing::pod;

    pub(crate) fn set(reason: &str) -> ConditionChange {
        ConditionChange::Set(condition(reason, "m"))
    }

    pub(crate) fn condition(reason: &str, message: &str) -> ConditionPatch {
        ConditionPatch {
            kind: POD_SCHEDULED.into(),
            status: "False".into(),
            reason: reason.into(),
            message: message.into(),
            observed_generation: Some(1),
            status_changes: true,
        }
    }

    pub(crate) fn change(condition: Option<ConditionChange>, node: Option<&str>) -> StatusChange {
        StatusChange {
            condition,
            others: Vec::new(),
            nominated_node: node.map(Str::new),
        }
    }

    /// A condition of another type.
    pub(crate) fn other(kind: &str, message: &str) -> ConditionPatch {
        ConditionPatch {
            kind: kind.into(),
            ..condition("r", message)
        }
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
}
