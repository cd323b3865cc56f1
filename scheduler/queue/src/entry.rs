//! A queued pod with its history, and the slab of entries.

mod gate;
mod group;
mod plugin_set;
mod template;

pub(super) use gate::Gate;
pub use group::QueuedGroup;
pub(super) use group::{Members, placeholder};
pub use plugin_set::PluginSet;
pub use template::PodTemplateKey;

use super::hooks::ProfileId;
use berth_api::{Pod, Str, Time};
use berth_framework::ReasonCode;
use berth_framework::condition::{NOT_READY_FOR_SCHEDULING, POD_SCHEDULED, UNSCHEDULABLE};
use slab::Slab;
use std::sync::Arc;

/// The numbers of consecutive attempts of a pod with the same kind of end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FailuresInARow {
    /// Attempts without a rejecting plugin (errors).
    pub errors: u32,
    /// Attempts that used up the budget for searches.
    pub used_up: u32,
}

/// A pod with its history in the queue. The queue owns it until the pop, then the scheduling cycle, which returns it if
/// the pod does not fit.
#[derive(Debug, Clone)]
pub struct QueuedPodInfo {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The time at which the pod was queued, or at which its last attempt ended.
    pub timestamp: Time,
    /// The time at which the pod was added to the queue.
    pub added: Time,
    /// The time of the first rejection by a plugin: in this process, or according to the pod's condition when it was
    /// added. Retries do not change it.
    pub rejected_since: Option<Time>,
    /// The number of pops.
    pub attempts: u32,
    /// The number of returns with rejecting plugins.
    pub unschedulable_count: u32,
    /// Its consecutive attempts with the same kind of failure.
    pub in_a_row: FailuresInARow,
    /// Whether the flush of long-unschedulable pods moved it, not an event. Kept until the binding, so that pods bound
    /// after the flush are counted.
    pub was_flushed_from_unschedulable: bool,
    /// The time at which it first became active, without the time behind gates.
    pub initial_attempt_timestamp: Option<Time>,
    /// The plugins that rejected it, kept during the next attempt until its failure is handled.
    pub unschedulable_plugins: PluginSet,
    /// The plugins that returned Pending.
    pub pending_plugins: PluginSet,
    /// Fields that only the queue reads.
    pub(crate) own: EntryState,
}

/// Fields of an entry that only the queue reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct EntryState {
    /// Whether the last attempt was rejected for the same reasons as the previous one. This does not count as an
    /// attempt: the backoff and the time until the flush continue from the previous attempt.
    pub(crate) is_rejected_as_before: bool,
    /// The template of the pod, if the last attempt showed that its pods get equal answers.
    pub(crate) template: Option<Arc<PodTemplateKey>>,
    /// The PreEnqueue plugin that rejects the pod.
    pub(super) gate: Option<Gate>,
    /// The time at which the flush of long-unschedulable pods last ran the PreEnqueue plugins for it.
    pub(super) gate_flushed: Option<Time>,
    /// The members, if the entry is a group; its pod is then a placeholder.
    pub(crate) group: Option<Box<QueuedGroup>>,
    /// The plugins that rejected the group in the last attempt of this member, for any member or placement.
    pub(crate) group_rejectors: PluginSet,
    /// The last attempt of a group that included this entry or member; 0 before the first attempt.
    pub(super) group_attempt: u64,
}

/// The time of the first rejection of a pod in an earlier process, according to its condition.
fn rejected_since(pod: &Pod) -> Option<Time> {
    let condition = pod.condition(POD_SCHEDULED)?;
    let is_rejected = condition.status == "False"
        && (condition.reason == UNSCHEDULABLE || condition.reason == NOT_READY_FOR_SCHEDULING);
    pod.status.unscheduled_since.filter(|_| is_rejected)
}

impl QueuedPodInfo {
    /// A pod without an attempt.
    pub fn new(pod: Arc<Pod>, now: Time) -> Self {
        Self {
            rejected_since: rejected_since(&pod),
            pod,
            timestamp: now,
            added: now,
            attempts: 0,
            unschedulable_count: 0,
            in_a_row: FailuresInARow::default(),
            was_flushed_from_unschedulable: false,
            initial_attempt_timestamp: None,
            unschedulable_plugins: PluginSet::default(),
            pending_plugins: PluginSet::default(),
            own: EntryState::default(),
        }
    }

    /// The group, if the entry is one; its pod is then a placeholder.
    pub fn group(&self) -> Option<&QueuedGroup> {
        self.own.group.as_deref()
    }

    /// Takes the group out of its entry, for an attempt.
    pub fn take_group(&mut self) -> Option<QueuedGroup> {
        self.own.group.take().map(|group| *group)
    }

    /// The plugins that rejected the group in the attempt of this member, for any member or placement.
    pub fn set_group_rejectors(&mut self, plugins: PluginSet) {
        self.own.group_rejectors = plugins;
    }

    /// The template of the pod, if the last attempt showed that its pods get equal answers.
    pub fn template(&self) -> Option<&Arc<PodTemplateKey>> {
        self.own.template.as_ref()
    }

    /// Sets the template of the pod; `None` if its pods can get other answers.
    pub fn set_template(&mut self, template: Option<Arc<PodTemplateKey>>) {
        self.own.template = template;
    }

    /// The attempt rejected the pod exactly as the attempt before. It does not count: the backoff and the time until the
    /// flush continue from the last attempt.
    pub fn set_rejected_as_before(&mut self) {
        self.own.is_rejected_as_before = true;
    }

    /// The number of pods: the members of a group, or one.
    pub fn pods_len(&self) -> usize {
        self.own.group.as_ref().map_or(1, |group| group.len())
    }

    /// Changes the history of the pod; for a group, also of each member.
    pub(super) fn for_each_pod(&mut self, mut change: impl FnMut(&mut Self)) {
        let members = self.own.group.iter_mut();
        members
            .flat_map(|group| group.members.values_mut())
            .for_each(&mut change);
        change(self);
    }

    /// An attempt has failed.
    pub(super) fn count_failure(&mut self, now: Time) {
        self.timestamp = now;
        if self.has_rejectors() {
            self.rejected_since.get_or_insert(now);
            self.unschedulable_count = self.unschedulable_count.saturating_add(1);
            self.in_a_row.errors = 0;
        } else {
            self.in_a_row.errors = self.in_a_row.errors.saturating_add(1);
        }
    }

    /// The start of the wait: for a pod with scheduling gates, its creation; otherwise its first rejection by a plugin;
    /// without a rejection, the time at which it became active or was added.
    pub fn waits_since(&self) -> Time {
        if self.is_gated() && !self.pod.spec.scheduling_gates.is_empty() {
            let created = self.pod.metadata.creation_timestamp;
            return created.map_or(self.added, |created| created.min(self.added));
        }
        let tried = self.rejected_since.or(self.initial_attempt_timestamp);
        tried.unwrap_or(self.added)
    }

    /// The PreEnqueue plugin that rejects the pod.
    pub fn gating_plugin(&self) -> Option<&Str> {
        self.own.gate.as_ref().map(|gate| &gate.plugin)
    }

    /// The message of the PreEnqueue plugin that rejects the pod; empty without reports.
    pub fn gate_message(&self) -> &str {
        self.own
            .gate
            .as_ref()
            .map_or("", |gate| gate.message.as_str())
    }

    /// The code of the rejection by a PreEnqueue plugin.
    pub fn gate_code(&self) -> ReasonCode {
        let gate = self.own.gate.as_ref();
        gate.map(|gate| gate.code).unwrap_or_default()
    }

    /// Returns whether a member of this group waits for events of its own while another member gates the group. A
    /// member with the reason of the whole group does not: all members are evaluated again when that reason ends.
    pub(super) fn has_own_reason(&self, member: &Self) -> bool {
        let (Some(group), Some(gate), Some(of_group)) =
            (&self.own.group, &member.own.gate, &self.own.gate)
        else {
            return false;
        };
        let is_blocker = group.blocker.as_ref() == Some(member.pod.uid());
        let is_that_of_group = gate == of_group && gate.is_of_group();
        !gate.is_of_sibling && !is_blocker && !is_that_of_group
    }

    /// Returns whether a PreEnqueue plugin rejects the pod.
    pub fn is_gated(&self) -> bool {
        self.own.gate.is_some()
    }

    /// The plugins that rejected the pod or returned Pending, each once.
    pub fn rejectors(&self) -> impl Iterator<Item = &Str> {
        self.unschedulable_plugins.iter().chain(
            self.pending_plugins
                .iter()
                .filter(|plugin| !self.unschedulable_plugins.contains(plugin)),
        )
    }

    /// Returns whether `plugin` is among [`Self::rejectors`].
    pub fn is_rejected_by(&self, plugin: &str) -> bool {
        self.unschedulable_plugins.contains(plugin) || self.pending_plugins.contains(plugin)
    }

    /// Returns whether a plugin rejected the pod or returned Pending; a failed pod without both had an error.
    pub fn has_rejectors(&self) -> bool {
        !(self.unschedulable_plugins.is_empty() && self.pending_plugins.is_empty())
    }

    /// The place of the pod in backoff.
    pub(super) fn backoff_place(&self) -> QueuedIn {
        if self.has_rejectors() {
            QueuedIn::Backoff
        } else {
            QueuedIn::ErrorBackoff
        }
    }

    /// Clears both plugin sets: the first step of handling a failure.
    pub fn clear_rejectors(&mut self) {
        self.unschedulable_plugins = PluginSet::default();
        self.pending_plugins = PluginSet::default();
    }
}

/// The place of a pod in the queue. A pod is in exactly one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QueuedIn {
    /// Ready to be popped.
    Active,
    /// Rejected by plugins, waiting for its backoff.
    Backoff,
    /// Failed with an error, waiting for its backoff; never popped early.
    ErrorBackoff,
    /// Rejected, waiting for an event.
    Unschedulable,
    /// Rejected by a PreEnqueue plugin, waiting for one of that plugin's events.
    Gated,
}

impl QueuedIn {
    /// Every place.
    pub const ALL: [Self; 5] = [
        Self::Active,
        Self::Backoff,
        Self::ErrorBackoff,
        Self::Unschedulable,
        Self::Gated,
    ];

    /// Returns whether the pod waits for an event.
    pub fn is_unschedulable_pool(self) -> bool {
        matches!(self, Self::Unschedulable | Self::Gated)
    }

    /// Returns whether the pod waits for its backoff.
    pub fn is_backoff(self) -> bool {
        matches!(self, Self::Backoff | Self::ErrorBackoff)
    }

    /// The name of the queue in the log, as in kube-scheduler.
    pub(super) fn queue_name(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Backoff | Self::ErrorBackoff => "Backoff",
            Self::Unschedulable | Self::Gated => "Unschedulable",
        }
    }

    /// The `queue` label of `queue_incoming_pods_total`, which counts gated pods as unschedulable.
    pub fn incoming_label(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Backoff | Self::ErrorBackoff => "backoff",
            Self::Unschedulable | Self::Gated => "unschedulable",
        }
    }
}

/// The ID of an entry of the slab, valid while its pod is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct EntryId(u32);

impl EntryId {
    /// No entry sorts before it.
    pub(super) const FIRST: Self = Self(0);
    /// No entry sorts after it.
    pub(super) const LAST: Self = Self(u32::MAX);

    pub(super) fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A queued pod with the fields that only the queue reads.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) info: QueuedPodInfo,
    /// The place; `None` only while it moves.
    pub(super) place: Option<QueuedIn>,
    pub(super) profile: Option<ProfileId>,
    /// The hash of its namespace and name.
    pub(super) name_hash: u64,
    /// The order of arrival; breaks ties between equal pods.
    pub(super) arrival: u64,
    /// Whether it is only the index entry of a member of a gated group, for the events that can help the member. The
    /// group has an entry of its own.
    pub(super) is_of_member: bool,
}

/// The queued pods.
#[derive(Debug, Default)]
pub(super) struct QueueEntries(Slab<Entry>);

impl QueueEntries {
    pub(super) fn insert(&mut self, entry: Entry) -> EntryId {
        EntryId::new(self.0.insert(entry))
    }

    pub(super) fn remove(&mut self, id: EntryId) -> Option<Entry> {
        self.0.try_remove(id.index())
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.0.get(id.index())
    }

    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.0.get_mut(id.index())
    }

    /// The pods and groups in a heap.
    pub(super) fn queued(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        self.all().filter(|(_, entry)| !entry.is_of_member)
    }

    /// The entries, with those of members of gated groups.
    pub(super) fn all(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        self.0.iter().map(|(at, entry)| (EntryId::new(at), entry))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.0.iter_mut().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_in_both_sets_is_one_rejector() {
        let mut info = QueuedPodInfo::new(Arc::default(), Time::EPOCH);
        info.unschedulable_plugins = ["a", "b"].into_iter().collect();
        info.pending_plugins = ["b", "c"].into_iter().collect();
        let names: Vec<&str> = info.rejectors().map(Str::as_str).collect();
        assert_eq!(names, ["a", "b", "c"]);
        info.clear_rejectors();
        assert!(!info.has_rejectors());
    }
}
