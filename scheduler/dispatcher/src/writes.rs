//! Our writes to a pod that its stored object does not show yet: in flight, or successful and not seen.
//!
//! They make the **effective** pod: the stored object as it will be once the API shows our writes.

use super::status::{ConditionChange, StatusChange, put};
use berth_api::pod::PodCondition;
use berth_api::{Pod, Str, Time};
use berth_framework::ApiCall;
use berth_framework::call::ConditionPatch;
use berth_framework::condition::{NOT_READY_FOR_SCHEDULING, POD_SCHEDULED};

/// Writes to one pod; a later write of a field replaces an earlier one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writes {
    /// The PodScheduled condition.
    condition: Option<ConditionChange>,
    /// Conditions of other types.
    others: Vec<ConditionPatch>,
    /// Whether clearing the condition removes a condition that the stored object does not show, such as our own report.
    /// An older condition that it still shows is then removed, too.
    clears_unshown: bool,
    nominated_node: Option<Str>,
    deletion: Option<(ConditionPatch, Time)>,
}

impl Writes {
    /// No writes.
    pub(super) const NONE: Self = Self {
        condition: None,
        others: Vec::new(),
        clears_unshown: false,
        nominated_node: None,
        deletion: None,
    };

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// Adds the changes of a call. A binding adds none, because the cache counts the pod on its node by itself.
    pub fn note(&mut self, call: &ApiCall, at: Time) {
        if let ApiCall::DeletePod { condition, .. } = call {
            self.deletion = Some((condition.clone(), at));
        }
        if let Some(change) = StatusChange::of(call) {
            self.note_change(change);
        }
    }

    /// Adds a change of the status.
    pub(super) fn note_change(&mut self, change: StatusChange) {
        if let Some(condition) = change.condition {
            let was_report = match &self.condition {
                Some(ConditionChange::Set(patch)) => patch.reason == NOT_READY_FOR_SCHEDULING,
                Some(ConditionChange::Clear) => self.clears_unshown,
                None => false,
            };
            self.clears_unshown = was_report && condition == ConditionChange::Clear;
            self.condition = Some(condition);
        }
        for other in change.others {
            put(&mut self.others, other);
        }
        if change.nominated_node.is_some() {
            self.nominated_node = change.nominated_node;
        }
    }

    /// Applies the writes to a copy of the stored object.
    pub fn apply_to(&self, pod: &mut Pod) {
        match &self.condition {
            None => {}
            Some(ConditionChange::Set(patch)) => set_condition(pod, patch),
            Some(ConditionChange::Clear) if self.clears_unshown || carries_not_ready(pod) => {
                pod.status.conditions.retain(|c| c.kind != POD_SCHEDULED);
            }
            Some(ConditionChange::Clear) => {}
        }
        for patch in &self.others {
            set_condition(pod, patch);
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

/// The version of an object as an increasing number. Servers guarantee this since Kubernetes 1.35, and have always done
/// so; other versions cannot be ordered.
pub type VersionNumber = u64;

/// The number that a resource version is, if it is one.
pub fn version_number(resource_version: &str) -> Option<VersionNumber> {
    resource_version.parse().ok()
}

/// Successful writes to one pod that the stored object does not show yet.
///
/// Each write ends with the update that shows its version or a later one: the stored object then contains the write, or
/// a later write of another client. If the version of a write is unknown, it ends when the stored object has the
/// written values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodWrites {
    writes: Writes,
    condition_in: Option<VersionNumber>,
    /// The latest version that contains a condition of another type.
    others_in: Option<VersionNumber>,
    nominated_node_in: Option<VersionNumber>,
    deletion_in: Option<VersionNumber>,
}

impl PodWrites {
    /// The writes.
    pub(super) fn writes(&self) -> &Writes {
        &self.writes
    }

    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns whether the version of each is known.
    pub(super) fn are_versions_known(&self) -> bool {
        let Writes {
            condition,
            others,
            nominated_node,
            deletion,
            ..
        } = &self.writes;
        (condition.is_none() || self.condition_in.is_some())
            && (others.is_empty() || self.others_in.is_some())
            && (nominated_node.is_none() || self.nominated_node_in.is_some())
            && (deletion.is_none() || self.deletion_in.is_some())
    }

    /// The latest version that is known to contain one of the writes.
    pub(super) fn latest_version(&self) -> Option<VersionNumber> {
        let versions = [
            self.condition_in,
            self.others_in,
            self.nominated_node_in,
            self.deletion_in,
        ];
        versions.into_iter().flatten().max()
    }

    /// Adds the changes of a call, with the version that it created. The stored object may be newer.
    pub(super) fn note(
        &mut self,
        call: &ApiCall,
        version: Option<VersionNumber>,
        stored: Option<&Pod>,
        at: Time,
    ) {
        self.writes.note(call, at);
        if matches!(call, ApiCall::DeletePod { .. }) {
            self.deletion_in = version;
        }
        if let Some(change) = StatusChange::of(call) {
            if let Some(condition) = change.condition {
                self.condition_in = version;
                // The API removes the condition whatever its reason. Until the stored object has reached that version,
                // its condition is outdated.
                self.writes.clears_unshown |=
                    version.is_some() && condition == ConditionChange::Clear;
            }
            if !change.others.is_empty() {
                self.others_in = version;
            }
            if change.nominated_node.is_some() {
                self.nominated_node_in = version;
            }
        }
        if let Some(stored) = stored.filter(|_| version.is_some()) {
            self.end(stored, false);
        }
    }

    /// Ends the writes that the stored object shows.
    pub(super) fn confirm(&mut self, stored: &Pod) {
        self.end(stored, true);
    }

    /// Ends the writes whose version the stored object has reached. If that is unknown and `by_looks` is set, ends the
    /// writes whose values it has.
    fn end(&mut self, stored: &Pod, by_looks: bool) {
        let now_at = version_number(&stored.metadata.resource_version);
        let has_come_to = |version: Option<VersionNumber>| Some(now_at? >= version?);
        // A pod that has its node got its condition and lost its nomination with it.
        let bound = stored.is_assigned();
        let Writes {
            condition,
            others,
            clears_unshown,
            nominated_node,
            deletion,
        } = &mut self.writes;
        if let Some(change) = &condition {
            let looks = bound
                || match change {
                    ConditionChange::Set(patch) => shows(stored, patch),
                    ConditionChange::Clear if *clears_unshown => {
                        stored.condition(POD_SCHEDULED).is_none()
                    }
                    ConditionChange::Clear => !carries_not_ready(stored),
                };
            if has_come_to(self.condition_in).unwrap_or(by_looks && looks) {
                *condition = None;
                *clears_unshown = false;
            }
        }
        let are_others_shown = has_come_to(self.others_in);
        others.retain(|patch| !are_others_shown.unwrap_or(by_looks && shows(stored, patch)));
        if let Some(node) = &nominated_node {
            let looks = bound || stored.status.nominated_node_name == *node;
            if has_come_to(self.nominated_node_in).unwrap_or(by_looks && looks) {
                *nominated_node = None;
            }
        }
        // A deletion cannot be reverted: until the watch shows it, the object counts as terminating.
        if stored.is_terminating() {
            *deletion = None;
        }
    }
}

fn carries_not_ready(pod: &Pod) -> bool {
    pod.condition(POD_SCHEDULED)
        .is_some_and(|c| c.reason == NOT_READY_FOR_SCHEDULING)
}

/// Returns whether the pod carries the condition: status, reason and message count.
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

/// The known state of the pod on the server: the stored object with the successful writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base<'a> {
    pub(super) stored: &'a Pod,
    written: &'a Writes,
}

/// A condition as the server has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredCondition<'a> {
    pub(super) status: &'a Str,
    pub(super) reason: &'a Str,
    pub(super) message: &'a Str,
    pub(super) observed_generation: Option<i64>,
}

impl<'a> Base<'a> {
    pub(super) fn new(stored: &'a Pod, written: &'a Writes) -> Self {
        Self { stored, written }
    }

    pub(super) fn condition(&self, kind: &str) -> Option<StoredCondition<'a>> {
        let mut others = self.written.others.iter();
        let written = match &self.written.condition {
            Some(ConditionChange::Set(patch)) if kind == POD_SCHEDULED => Some(patch),
            _ => others.find(|patch| patch.kind == kind),
        };
        if let Some(patch) = written {
            return Some(StoredCondition {
                status: &patch.status,
                reason: &patch.reason,
                message: &patch.message,
                observed_generation: patch.observed_generation,
            });
        }
        // The stored condition is outdated if a call that clears it has succeeded.
        match &self.written.condition {
            Some(ConditionChange::Clear)
                if kind == POD_SCHEDULED
                    && (self.written.clears_unshown || carries_not_ready(self.stored)) =>
            {
                return None;
            }
            _ => {}
        }
        self.stored.condition(kind).map(|c| StoredCondition {
            status: &c.status,
            reason: &c.reason,
            message: &c.message,
            observed_generation: c.observed_generation,
        })
    }

    /// Returns whether the pod has the condition: status, reason and message count.
    pub(super) fn shows(&self, patch: &ConditionPatch) -> bool {
        self.condition(&patch.kind).is_some_and(|c| {
            *c.status == patch.status && *c.reason == patch.reason && *c.message == patch.message
        })
    }

    pub(super) fn nominated_node(&self) -> &'a Str {
        let written = self.written.nominated_node.as_ref();
        written.unwrap_or(&self.stored.status.nominated_node_name)
    }
}
