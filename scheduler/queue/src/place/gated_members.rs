//! The index entries of members of gated groups that PreEnqueue plugins reject for reasons of their own, in addition to
//! the member that gates the group. An event finds such a member by its gate, rejectors and keys, as a single pod. The
//! place and the heap position belong to its group.

use super::QueuePlaces;
use crate::entry::{Entry, EntryId, Gate, QueuedIn, QueuedPodInfo};
use berth_api::Str;
use std::sync::Arc;

impl QueuePlaces {
    /// Returns whether a member of a gated group is indexed.
    pub(crate) fn has_member(&self, uid: &str) -> bool {
        self.members.contains_key(uid)
    }

    /// The index entry of a member of a gated group.
    pub(crate) fn member_entry(&self, uid: &str) -> Option<EntryId> {
        self.members.get(uid).copied()
    }

    /// Indexes a member of a group in its current state, if it waits for events of its own.
    pub(crate) fn index_member(&mut self, group: EntryId, uid: &Str) {
        let Some(of_group) = self.entries.get(group).map(|entry| &entry.info) else {
            return;
        };
        // Joins and events index the same members repeatedly, so an unchanged entry is kept.
        let member = of_group.group().and_then(|group| group.members.get(uid));
        let member = member.filter(|member| of_group.has_own_reason(member));
        let known = self.members.get(uid).and_then(|id| self.entries.get(*id));
        let is_as_before = match known.zip(member) {
            Some((known, member)) => waits_for_the_same(&known.info, member),
            None => known.is_none() && member.is_none(),
        };
        if is_as_before {
            return;
        }
        let member = member.cloned();
        self.remove_member(uid);
        let gate = member.as_ref().and_then(|member| member.own.gate.as_ref());
        let is_of_group = gate.is_some_and(Gate::is_of_group);
        if let Some(entry) = self.entries.get_mut(group)
            && let Some(group) = entry.info.own.group.as_mut()
        {
            if is_of_group {
                group.with_reason_of_group.insert(uid.clone());
            } else {
                group.with_reason_of_group.remove(uid);
            }
        }
        if let Some(info) = member {
            self.insert_member(info);
        }
    }

    fn insert_member(&mut self, info: QueuedPodInfo) {
        let uid = info.pod.uid().clone();
        let id = self.entries.insert(Entry {
            profile: self.profiles.by_name(&info.pod.spec.scheduler_name),
            info,
            place: Some(QueuedIn::Gated),
            name_hash: 0,
            arrival: 0,
            is_of_member: true,
        });
        self.members.insert(uid, id);
        if let Some(entry) = self.entries.get(id) {
            self.waiting.insert(id, entry, None, &self.profiles);
        }
    }

    /// Removes a member that is in no gated group, or has no reason of its own. Does nothing for other pods.
    pub(crate) fn remove_member(&mut self, uid: &str) {
        let id = self.members.remove(uid);
        if let Some((id, entry)) = id.and_then(|id| Some((id, self.entries.remove(id)?))) {
            self.waiting.remove(id, &entry, None);
        }
    }

    /// Removes every member of a gated group, before the profiles are replaced.
    pub(crate) fn remove_members(&mut self) {
        let uids: Vec<Str> = self.members.keys().cloned().collect();
        uids.iter().for_each(|uid| self.remove_member(uid));
    }
}

/// Returns whether the index entry of a member is up to date: it has the same pod, gate and rejectors.
pub(super) fn waits_for_the_same(known: &QueuedPodInfo, now: &QueuedPodInfo) -> bool {
    Arc::ptr_eq(&known.pod, &now.pod)
        && known.own.gate == now.own.gate
        && known.rejectors().eq(now.rejectors())
}
