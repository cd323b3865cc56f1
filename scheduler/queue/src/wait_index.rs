//! The index of waiting pods by the keys that they wait for: maps a registration and a key to the pods that an event
//! can help, ordered by the amounts that they need.
//!
//! All keys are in one ordered set, combined with their profile, gate and registration: a pod costs a few entries of 24
//! bytes, and an unused key costs nothing. A hash collision makes an event examine an additional pod and never skips
//! one: the caller checks each pod.

use super::entry::{EntryId, QueuedPodInfo};
use super::hooks::{ProfileId, QueueProfile};
use berth_api::Str;
use berth_framework::event::{Touched, Waits};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::hash::BuildHasher;

/// The section of one registration: profile, gate, and the registration's index in the profile.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) struct Drawer<'a> {
    pub(super) profile: ProfileId,
    pub(super) gate: Option<&'a str>,
    pub(super) registration: usize,
}

impl Drawer<'_> {
    /// The number of `key`; without a key, the number of pods that wait for anything.
    fn number(self, key: Option<u64>) -> u64 {
        FxBuildHasher.hash_one((self, key))
    }
}

/// One index entry of a pod: a number and an amount.
type Place = (u64, i64);

/// Waiting pods by the keys that they wait for.
#[derive(Debug, Default)]
pub(super) struct WaitIndex {
    filed: BTreeSet<(u64, i64, EntryId)>,
    /// The places of each entry, to find it again.
    places: Vec<Option<Box<[Place]>>>,
}

impl WaitIndex {
    /// Files a pod for each indexed registration of the plugins that rejected it.
    pub(super) fn insert(
        &mut self,
        id: EntryId,
        profile: Option<(ProfileId, &QueueProfile)>,
        info: &QueuedPodInfo,
    ) {
        let places = places(profile, info);
        if places.is_empty() {
            return;
        }
        for (number, amount) in &places {
            self.filed.insert((*number, *amount, id));
        }
        if self.places.len() <= id.index() {
            self.places.resize(id.index() + 1, None);
        }
        let before = self.places[id.index()].replace(places.into_boxed_slice());
        debug_assert_eq!(before, None, "a pod is filed once");
    }

    /// Removes all index entries of a pod.
    pub(super) fn remove(&mut self, id: EntryId) {
        let Some(places) = self.places.get_mut(id.index()).and_then(Option::take) else {
            return;
        };
        for (number, amount) in places {
            let removed = self.filed.remove(&(number, amount, id));
            debug_assert!(removed, "a filed pod is found again");
        }
    }

    /// Calls `found` for the pods of a section with an affected key, in the order of amounts for equal keys. A pod
    /// occurs once per key.
    pub(super) fn find(
        &self,
        drawer: Drawer<'_>,
        touched: &Touched,
        mut found: impl FnMut(EntryId),
    ) {
        if !touched.helps_anything() {
            return;
        }
        let anything = (drawer.number(None), i64::MAX);
        let keys = touched.keys().iter();
        for (number, up_to) in keys
            .map(|(key, up_to)| (drawer.number(Some(key.as_u64())), *up_to))
            .chain([anything])
        {
            let range = (number, i64::MIN, EntryId::FIRST)..=(number, up_to, EntryId::LAST);
            for (_, _, id) in self.filed.range(range) {
                found(*id);
            }
        }
    }

    /// Checks that the index is equal to a new index of the same pods.
    ///
    /// # Errors
    /// The first disagreement.
    pub(super) fn check(&self, expected: &Self) -> Result<(), String> {
        if let Some(place) = self.filed.symmetric_difference(&expected.filed).next() {
            let is_filed = self.filed.contains(place);
            return Err(format!(
                "entry {place:?} of the wait index exists: {is_filed}"
            ));
        }
        let places = |of: &Self| -> Vec<(usize, Box<[Place]>)> {
            let places = of.places.iter().cloned().enumerate();
            places
                .filter_map(|(at, places)| Some((at, places?)))
                .collect()
        };
        if places(self) != places(expected) {
            return Err("a pod is not found again in the wait index".to_owned());
        }
        Ok(())
    }
}

/// The index entries of a pod, sorted, each once.
fn places(
    profile: Option<(ProfileId, &QueueProfile)>,
    info: &QueuedPodInfo,
) -> SmallVec<[Place; 8]> {
    let mut places = SmallVec::new();
    let Some((profile, known)) = profile else {
        return places;
    };
    // A group is indexed under the keys of all its evaluated members.
    for plugin in info.rejectors() {
        for (registration, waits) in known.indexed(plugin) {
            let drawer = Drawer {
                profile,
                gate: info.gating_plugin().map(Str::as_str),
                registration: *registration,
            };
            match &info.own.group {
                None => file(drawer, &waits(&info.pod), &mut places),
                Some(group) if group.is_woken_by_anything() => {
                    file(drawer, &Waits::for_anything(), &mut places);
                }
                Some(group) => {
                    for pod in group.asked() {
                        file(drawer, &waits(pod), &mut places);
                    }
                }
            }
        }
    }
    places.sort_unstable();
    places.dedup();
    places
}

fn file(drawer: Drawer<'_>, waits: &Waits, places: &mut SmallVec<[Place; 8]>) {
    if waits.is_for_anything() {
        places.push((drawer.number(None), 0));
        return;
    }
    let keys = waits.keys().iter();
    places.extend(keys.map(|(key, amount)| (drawer.number(Some(key.as_u64())), *amount)));
}
