//! The places of groups and their members: a group is queued, attempted and returned as one (KEP-4671).
//!
//! A member of a missing group, or with a missing ancestor, is **incomplete**; a member that is added during an attempt of
//! its group is **pending** until the group returns. Both are outside of any entry. With the gate GenericWorkload off,
//! there are no groups.

use super::entry::{EntryId, Members, QueuedGroup, QueuedIn, QueuedPodInfo};
use berth_api::{Pod, Str};
use berth_framework::cluster::GroupKey;
use indexmap::IndexMap;
use rustc_hash::FxHashMap;

/// The place of a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum MemberPlace {
    /// With its root, queued or in flight.
    Root(GroupKey),
    /// Its group, this group, is not complete.
    Incomplete(GroupKey),
}

/// The members in one place.
#[derive(Debug)]
pub(super) enum PlacedMembers {
    /// The members of this entry.
    Queued(EntryId),
    /// Incomplete members, or the pending and the returned members of a root in an attempt.
    Outside(Members),
}

impl PlacedMembers {
    /// The members outside of an entry.
    fn outside(&self) -> Option<&Members> {
        match self {
            Self::Queued(_) => None,
            Self::Outside(members) => Some(members),
        }
    }
}

/// All groups, and the members that are queued, pending or incomplete.
#[derive(Debug, Default)]
pub(super) struct Groups {
    placed: FxHashMap<MemberPlace, PlacedMembers>,
    /// For each place of the queue, the number of additional pods of its entries.
    pub(super) further_members: [usize; QueuedIn::ALL.len()],
    /// The number of started attempts of groups.
    attempts: u64,
    places: FxHashMap<Str, MemberPlace>,
    by_name: FxHashMap<(Str, Str), Str>,
}

impl Groups {
    /// Returns whether the group has no members.
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

    /// Adds a member outside of an entry.
    pub(super) fn put_outside(&mut self, place: MemberPlace, info: QueuedPodInfo) {
        self.locate(&info.pod, place.clone());
        let nobody = || PlacedMembers::Outside(Members::default());
        match self.placed.entry(place).or_insert_with(nobody) {
            PlacedMembers::Outside(members) => drop(members.insert(info.pod.uid().clone(), info)),
            PlacedMembers::Queued(_) => debug_assert!(false, "a queued group has an entry"),
        }
    }

    /// A group is queued as this entry.
    pub(super) fn set_queued(&mut self, root: GroupKey, id: EntryId) {
        let placed = PlacedMembers::Queued(id);
        self.placed.insert(MemberPlace::Root(root), placed);
    }

    /// An attempt of a group starts. Returns its number.
    pub(super) fn begin_attempt(&mut self, root: GroupKey) -> u64 {
        let pending = PlacedMembers::Outside(Members::default());
        self.placed.insert(MemberPlace::Root(root), pending);
        self.attempts += 1;
        self.attempts
    }

    /// Removes a place, with its members outside of an entry.
    pub(super) fn take(&mut self, place: &MemberPlace) -> Members {
        match self.placed.remove(place) {
            Some(PlacedMembers::Outside(members)) => members,
            Some(PlacedMembers::Queued(_)) | None => Members::default(),
        }
    }

    /// The members in a place.
    pub(super) fn placed(&mut self, place: &MemberPlace) -> Option<&mut PlacedMembers> {
        self.placed.get_mut(place)
    }

    /// The place of a member.
    pub(super) fn place_of(&self, uid: &str) -> Option<&MemberPlace> {
        self.places.get(uid)
    }

    /// The place of a member in the queue, and the member if it is outside of an entry: incomplete members count as
    /// gated, pending members as active.
    pub(super) fn find_outside(&self, uid: &str) -> Option<(QueuedIn, &QueuedPodInfo)> {
        let place = self.places.get(uid)?;
        let info = self.placed.get(place)?.outside()?.get(uid)?;
        Some((counted_in(place), info))
    }

    /// The member of that name.
    pub(super) fn uid_of(&self, namespace: &str, name: &str) -> Option<&Str> {
        if self.by_name.is_empty() {
            return None;
        }
        self.by_name.get(&(namespace.into(), name.into()))
    }

    /// The entry of a member.
    pub(super) fn entry_of(&self, uid: &str) -> Option<EntryId> {
        match self.placed.get(self.places.get(uid)?)? {
            PlacedMembers::Queued(id) => Some(*id),
            PlacedMembers::Outside(_) => None,
        }
    }

    /// The places of members in these namespaces, in no particular order.
    pub(super) fn places(&self) -> impl Iterator<Item = &MemberPlace> {
        self.placed.keys()
    }

    /// The entries of groups, in no particular order.
    pub(super) fn entries(&self) -> impl Iterator<Item = EntryId> {
        self.placed.values().filter_map(|placed| match placed {
            PlacedMembers::Queued(id) => Some(*id),
            PlacedMembers::Outside(_) => None,
        })
    }

    /// The members outside of entries: incomplete members as gated, pending members as active.
    pub(super) fn outside(&self) -> impl Iterator<Item = (QueuedIn, &QueuedPodInfo)> {
        self.placed.iter().flat_map(|(place, placed)| {
            let members = placed.outside().into_iter().flat_map(IndexMap::values);
            members.map(|info| (counted_in(place), info))
        })
    }

    /// Checks that the place of each member is correct. `of_entry` returns the members of an entry.
    pub(super) fn check<'e>(
        &self,
        of_entry: impl Fn(EntryId) -> Option<&'e QueuedGroup>,
    ) -> Result<(), String> {
        let mut found = 0;
        // Each member must be noted under its place and name, and no other member may be noted.
        for (place, placed) in &self.placed {
            let members = match (place, placed) {
                (_, PlacedMembers::Outside(members)) => members,
                (MemberPlace::Root(key), PlacedMembers::Queued(id)) => match of_entry(*id) {
                    Some(group) if group.key() == key && !group.is_empty() => &group.members,
                    other => return Err(format!("{key} is queued as {other:?}")),
                },
                _ => return Err(format!("{place:?} is queued")),
            };
            for (uid, info) in members {
                found += 1;
                let pod = &info.pod;
                if self.places.get(uid) != Some(place) || uid != pod.uid() {
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

/// The place of the queue under which members outside of an entry are counted.
fn counted_in(place: &MemberPlace) -> QueuedIn {
    match place {
        MemberPlace::Root(_) => QueuedIn::Active,
        MemberPlace::Incomplete(_) => QueuedIn::Gated,
    }
}
