//! Groups in the queue: a group is queued, attempted and returned as one (KEP-4671).
//!
//! A member of a missing group, or with a missing ancestor, is **incomplete**; a member that is added during an attempt of
//! its group is **pending** until the group returns. With the gate GenericWorkload off, there are no groups.

use super::entry::{EntryId, Members, QueuedGroup, QueuedIn, QueuedPodInfo};
use berth_api::{Pod, Str};
use berth_framework::cluster::GroupKey;
use indexmap::IndexMap;
use rustc_hash::FxHashMap;

/// The place of a group.
#[derive(Debug)]
pub(super) enum RootPlace {
    /// It is queued.
    Queued(EntryId),
    /// It is in an attempt; the returned and the new members.
    InFlight(Members),
}

/// The place of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MemberPlace {
    /// With its root, queued or in flight.
    Root(GroupKey),
    /// Its group, this group, is not complete.
    Incomplete(GroupKey),
}

/// All groups, and the members that are queued, pending or incomplete.
#[derive(Debug, Default)]
pub(super) struct GroupStore {
    pub(super) roots: FxHashMap<GroupKey, RootPlace>,
    pub(super) incomplete: FxHashMap<GroupKey, Members>,
    /// For each place of the queue, the number of additional pods of its entries.
    pub(super) further_members: [usize; QueuedIn::ALL.len()],
    /// The number of started attempts of groups.
    pub(super) attempts: u64,
    places: FxHashMap<Str, MemberPlace>,
    by_name: FxHashMap<(Str, Str), Str>,
}

impl GroupStore {
    /// Returns whether there is no member.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Records the place of a member.
    pub(super) fn locate(&mut self, pod: &Pod, place: MemberPlace) {
        let name = (pod.namespace().clone(), pod.name().clone());
        self.by_name.insert(name, pod.uid().clone());
        self.places.insert(pod.uid().clone(), place);
    }

    /// Removes a member that is neither queued nor pending nor incomplete.
    pub(super) fn forget(&mut self, pod: &Pod) {
        self.places.remove(pod.uid());
        let name = (pod.namespace().clone(), pod.name().clone());
        if self.by_name.get(&name) == Some(pod.uid()) {
            self.by_name.remove(&name);
        }
    }

    /// The place of a member.
    pub(super) fn place_of(&self, uid: &str) -> Option<&MemberPlace> {
        self.places.get(uid)
    }

    /// The member of that name.
    pub(super) fn uid_of(&self, namespace: &Str, name: &Str) -> Option<&Str> {
        if self.by_name.is_empty() {
            return None;
        }
        self.by_name.get(&(namespace.clone(), name.clone()))
    }

    /// The entry of the member with that name.
    pub(super) fn entry_of(&self, namespace: &str, name: &str) -> Option<EntryId> {
        if self.by_name.is_empty() {
            return None;
        }
        self.entry_of_member(self.uid_of(&namespace.into(), &name.into())?)
    }

    /// The entry of a member.
    pub(super) fn entry_of_member(&self, uid: &str) -> Option<EntryId> {
        match self.places.get(uid)? {
            MemberPlace::Root(root) => match self.roots.get(root)? {
                RootPlace::Queued(id) => Some(*id),
                RootPlace::InFlight(_) => None,
            },
            MemberPlace::Incomplete(_) => None,
        }
    }

    /// The number of incomplete members.
    pub(super) fn incomplete_len(&self) -> usize {
        self.incomplete.values().map(IndexMap::len).sum()
    }

    /// The pending members.
    pub(super) fn pending(&self) -> impl Iterator<Item = &QueuedPodInfo> {
        fn of_root(place: &RootPlace) -> Option<&Members> {
            match place {
                RootPlace::InFlight(pending) => Some(pending),
                RootPlace::Queued(_) => None,
            }
        }
        self.roots
            .values()
            .filter_map(of_root)
            .flat_map(IndexMap::values)
    }

    /// Checks that the place of each member is correct. `of_entry` returns the members of an entry.
    pub(super) fn check<'e>(
        &self,
        of_entry: impl Fn(EntryId) -> Option<&'e QueuedGroup>,
    ) -> Result<(), String> {
        let mut found = 0;
        let mut all: Vec<(&Members, MemberPlace)> = Vec::new();
        for (key, place) in &self.roots {
            let members = match place {
                RootPlace::InFlight(pending) => pending,
                RootPlace::Queued(id) => match of_entry(*id) {
                    Some(group) if group.key() == key && !group.is_empty() => &group.members,
                    other => return Err(format!("{key} is queued as {other:?}")),
                },
            };
            all.push((members, MemberPlace::Root(key.clone())));
        }
        for (key, members) in &self.incomplete {
            all.push((members, MemberPlace::Incomplete(key.clone())));
        }
        for (members, place) in all {
            for (uid, info) in members {
                found += 1;
                let pod = &info.pod;
                if self.places.get(uid) != Some(&place) || uid != pod.uid() {
                    return Err(format!("member {} is not noted in {place:?}", pod.key()));
                }
                if self.uid_of(pod.namespace(), pod.name()) != Some(uid) {
                    return Err(format!("member {} is not known by its name", pod.key()));
                }
            }
        }
        if found == self.places.len() && found == self.by_name.len() {
            Ok(())
        } else {
            Err(format!("{found} members, {} are noted", self.places.len()))
        }
    }
}
