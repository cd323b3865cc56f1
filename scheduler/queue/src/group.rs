//! Groups in the queue: a group is queued, attempted and returned as one (KEP-4671).
//!
//! A queued group is an entry like a pod's entry, whose pod is a **stand-in** with the priority of the group. Its
//! members are in no heap. A member of a missing group, or with a missing ancestor, is **incomplete**; a member that is
//! added during an attempt of its group is **pending** until the group returns. With the gate GenericWorkload off,
//! there are no groups.

use super::entry::{EntryId, QueuedIn, QueuedPodInfo};
use super::templates::PodTemplateKey;
use berth_api::{Pod, Str};
use berth_framework::cluster::GroupKey;
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::sync::Arc;

/// Members by UID.
pub(super) type Members = IndexMap<Str, QueuedPodInfo, FxBuildHasher>;

/// The maximum number of different members that are evaluated for an event. A group with more is woken by every event
/// that can help.
const REPRESENTATIVES_MAX: usize = 32;

/// The members of a queued group.
#[derive(Debug, Clone)]
pub struct QueuedGroup {
    /// The group without parent.
    key: GroupKey,
    pub(super) members: Members,
    /// The member at which PreEnqueue stopped.
    pub(super) blocker: Option<Str>,
    /// The members for which PreEnqueue plugins did not run.
    pub(super) unasked: Vec<Str>,
    /// The members that are evaluated for an event on behalf of all, by UID.
    representatives: Vec<Str>,
    /// Whether the number of different members exceeds the limit.
    has_too_many: bool,
}

impl QueuedGroup {
    pub(super) fn new(key: GroupKey) -> Self {
        Self {
            key,
            members: Members::default(),
            blocker: None,
            unasked: Vec::new(),
            representatives: Vec::new(),
            has_too_many: false,
        }
    }

    /// The group without parent, the only queued group of its hierarchy.
    pub fn key(&self) -> &GroupKey {
        &self.key
    }

    /// The number of queued members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether no member is queued.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The queued members, in the order of their arrival.
    pub fn members(&self) -> impl Iterator<Item = &QueuedPodInfo> {
        self.members.values()
    }

    /// The queued members in the order of attempts: similar pods together; more attempts first, then earlier pods, then
    /// by name.
    pub fn into_ordered(self) -> Vec<QueuedPodInfo> {
        let rank = |info: &QueuedPodInfo| {
            let pod = &info.pod;
            let name = (pod.namespace().clone(), pod.name().clone());
            (Reverse(info.attempts), info.timestamp, name)
        };
        let mut alike: FxHashMap<Option<PodTemplateKey>, Vec<QueuedPodInfo>> = FxHashMap::default();
        for (_, info) in self.members {
            alike
                .entry(PodTemplateKey::of(&info.pod))
                .or_default()
                .push(info);
        }
        let mut alike: Vec<Vec<QueuedPodInfo>> = alike.into_values().collect();
        for members in &mut alike {
            members.sort_by_cached_key(rank);
        }
        alike.sort_by_cached_key(|members| members.first().map(rank));
        alike.into_iter().flatten().collect()
    }

    /// The pods that are evaluated for an event on behalf of all: the member at which PreEnqueue stopped, or one of
    /// each kind.
    pub(super) fn asked(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let asked = match &self.blocker {
            Some(blocker) => std::slice::from_ref(blocker),
            None => &self.representatives[..],
        };
        let infos = asked.iter().filter_map(|uid| self.members.get(uid));
        infos.map(|info| &info.pod)
    }

    /// Returns whether the group is woken by every event that can help one of its plugins.
    pub(super) fn is_woken_by_anything(&self) -> bool {
        self.blocker.is_none() && self.has_too_many
    }

    /// All members are evaluated again the next time.
    pub(super) fn forget_answers(&mut self) {
        self.unasked = self.members.keys().cloned().collect();
    }

    /// Selects the members that are evaluated from now on.
    pub(super) fn choose_representatives(&mut self) {
        let mut seen: FxHashSet<PodTemplateKey> = FxHashSet::default();
        self.representatives.clear();
        self.has_too_many = false;
        for (uid, info) in &self.members {
            let is_new = PodTemplateKey::of(&info.pod).is_none_or(|template| seen.insert(template));
            if !is_new {
                continue;
            }
            if self.representatives.len() >= REPRESENTATIVES_MAX {
                self.has_too_many = true;
                return;
            }
            self.representatives.push(uid.clone());
        }
    }
}

/// The stand-in of a queued group; no pod has its name.
pub(super) fn stand_in(key: &GroupKey, priority: i32, scheduler: &Str) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.namespace = key.namespace.clone();
    pod.metadata.name = Str::from(format!("{}/{}", key.kind.as_str(), key.name));
    pod.metadata.uid = Str::from(key.to_string());
    pod.spec.priority = Some(priority);
    pod.spec.scheduler_name = scheduler.clone();
    Arc::new(pod)
}

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
                    Some(group) if group.key == *key && !group.is_empty() => &group.members,
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
