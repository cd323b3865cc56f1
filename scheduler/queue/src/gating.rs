//! PreEnqueue for groups: one rejected member gates the whole group.
//!
//! The plugins run for one member after the other until one is rejected: a group with a rejected first member costs one
//! run, for any number of members. Each member states its own reason, or the reason of the member that gates the group
//! (KEP-5501). A member with its own reason has an index entry, as a single pod: an event that can help it runs its
//! plugins again. It never leaves its group.

use super::SchedulingQueue;
use super::entry::{EntryId, Gate, QueuedGroup, QueuedPodInfo};
use super::outputs::AskedAs;
use berth_api::{Pod, Str};
use berth_framework::condition::NOT_READY_FOR_SCHEDULING;
use berth_framework::plugin::Context;
use rustc_hash::FxHashSet;
use std::sync::Arc;

impl SchedulingQueue {
    /// Runs the PreEnqueue plugins for the members of a detached group, starting at the last rejected member, until one
    /// member is rejected: that gates the whole group. Members of a group that was not gated are not evaluated again
    /// unless `again` is set.
    pub(super) fn ask_about_group(&mut self, cx: &Context<'_>, id: EntryId, again: bool) {
        let Some(entry) = self.places.get_mut(id) else {
            return;
        };
        let Some(mut group) = entry.info.own.group.take() else {
            return;
        };
        let before = entry.info.own.gate.take();
        let blocker_before = group.blocker.take();
        let unasked = std::mem::take(&mut group.unasked);
        let mut passed: FxHashSet<Str> = FxHashSet::default();
        let mut ask = |at: usize| {
            let (uid, info) = group.members.get_index(at)?;
            match self.rejection_of_member(cx, &info.pod) {
                Some(gate) => Some((uid.clone(), gate)),
                None => {
                    passed.insert(uid.clone());
                    None
                }
            }
        };
        // The member that gated the group is first: while it is rejected, no other member is evaluated or copied.
        let stop = if again || before.is_some() {
            let first = blocker_before.as_ref();
            let first = first.and_then(|uid| group.members.get_index_of(uid));
            let (first, len) = (first.unwrap_or(0), group.members.len());
            (0..len).find_map(|n| ask((first + n) % len))
        } else {
            let mut unasked = unasked.iter();
            unasked.find_map(|uid| ask(group.members.get_index_of(uid)?))
        };
        let (blocker, gate) = stop.unzip();
        group.blocker = blocker;
        let changed = if before == gate && blocker_before == group.blocker {
            unasked.clone()
        } else {
            group.members.keys().cloned().collect()
        };
        let unasked: FxHashSet<&Str> = unasked.iter().collect();
        let of_others = gate.as_ref().map(|gate| gate_of_others(&group, gate));
        for uid in &changed {
            let is_blocker = group.blocker.as_ref() == Some(uid);
            let Some(info) = group.members.get_mut(uid) else {
                continue;
            };
            let stated = info.own.gate.as_ref();
            let own = match &gate {
                Some(gate) if is_blocker => Some(gate.clone()),
                Some(_) if passed.contains(uid) => None,
                // The group was gated before. Members with an index entry are evaluated by the events that can help
                // them; no event helps the others, unless the reason is one of the whole group.
                Some(gate) if before.is_some() && !unasked.contains(uid) => {
                    if self.places.has_member(uid) {
                        continue;
                    }
                    let is_sibling = stated.is_some_and(|stated| stated.is_of_sibling);
                    let is_asked = !is_sibling || gate.is_of_group();
                    let own = is_asked.then(|| self.rejection_of_member(cx, &info.pod));
                    own.flatten()
                }
                Some(_) => self.rejection_of_member(cx, &info.pod),
                None => None,
            };
            let own = own.or_else(|| of_others.clone());
            self.out.set_gate(info, own, cx.now);
        }
        if let Some(entry) = self.places.get_mut(id) {
            if let Some(gate) = &gate {
                entry.info.unschedulable_plugins.insert(&gate.plugin);
            }
            entry.info.own.gate = gate;
            entry.info.own.group = Some(group);
        }
        self.index_members(id, &changed);
    }

    /// Runs the PreEnqueue plugins again for a member of a gated group with its own reason.
    pub(super) fn ask_about_member(&mut self, cx: &Context<'_>, uid: &Str) {
        let Some(id) = self.places.groups.entry_of(uid) else {
            return;
        };
        let Some(entry) = self.places.get_mut(id).filter(|e| e.info.is_gated()) else {
            return;
        };
        let (gate, group) = (entry.info.own.gate.clone(), entry.info.own.group.take());
        let Some((gate, mut group)) = gate.zip(group) else {
            debug_assert!(false, "the entry of a member is that of its group");
            return;
        };
        if group.blocker.as_ref() != Some(uid) && group.members.contains_key(uid) {
            let of_others = gate_of_others(&group, &gate);
            if let Some(info) = group.members.get_mut(uid) {
                let own = self.rejection_of_member(cx, &info.pod);
                self.out.set_gate(info, own.or(Some(of_others)), cx.now);
            }
        }
        if let Some(entry) = self.places.get_mut(id) {
            entry.info.own.group = Some(group);
        }
        self.index_members(id, std::slice::from_ref(uid));
    }

    /// A new member of a gated group can end a reason of the group that members state in addition to the gating member.
    /// One of these members is evaluated on behalf of all.
    pub(super) fn ask_about_reason_of_group(&mut self, cx: &Context<'_>, id: EntryId) {
        let Some(first) = self.with_reason_of_group(id).next().cloned() else {
            return;
        };
        self.ask_about_member(cx, &first);
        if self.with_reason_of_group(id).any(|uid| *uid == first) {
            return;
        }
        let others: Vec<Str> = self.with_reason_of_group(id).cloned().collect();
        for uid in others {
            self.ask_about_member(cx, &uid);
        }
    }

    /// Runs the PreEnqueue plugins for a member.
    fn rejection_of_member(&mut self, cx: &Context<'_>, pod: &Arc<Pod>) -> Option<Gate> {
        let profile = self.places.profile_of(pod);
        self.out.rejection(cx, profile, pod, AskedAs::Member)
    }

    /// Returns whether PreEnqueue plugins reject a popped group: a group can have become too small since its admission.
    /// One member represents all.
    pub fn is_rejected_now(&mut self, cx: &Context<'_>, info: &QueuedPodInfo) -> bool {
        let first = info.group().and_then(|group| group.members().next());
        first.is_some_and(|member| self.rejection_of_member(cx, &member.pod).is_some())
    }

    fn with_reason_of_group(&self, id: EntryId) -> impl Iterator<Item = &Str> {
        let entry = self.places.get(id).filter(|entry| entry.info.is_gated());
        let group = entry.and_then(|entry| entry.info.own.group.as_ref());
        group
            .into_iter()
            .flat_map(|group| &group.with_reason_of_group)
    }

    /// Indexes the members of a group with their own reasons, and removes the others from the index.
    pub(super) fn index_members(&mut self, id: EntryId, uids: &[Str]) {
        for uid in uids {
            self.places.index_member(id, uid);
        }
    }
}

/// The gate of the members without a rejection, in a group that `gate` gates.
fn gate_of_others(group: &QueuedGroup, gate: &Gate) -> Gate {
    let blocker = group.blocker.as_ref();
    let blocker = blocker.and_then(|uid| group.members.get(uid));
    let name = blocker.map(|info| info.pod.name().clone());
    Gate {
        reason: NOT_READY_FOR_SCHEDULING,
        message: Str::from(format!(
            "waiting for pod {:?} of the group, which {} rejects: {}",
            name.unwrap_or_default(),
            gate.plugin,
            gate.message
        )),
        is_of_sibling: true,
        ..gate.clone()
    }
}
