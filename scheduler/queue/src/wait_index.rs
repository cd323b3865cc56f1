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

/// The registration of a plugin for events, in a profile, and a gate: the pods that wait for its events behind this gate.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) struct WaitScope<'a> {
    pub(super) profile: ProfileId,
    pub(super) gate: Option<&'a str>,
    pub(super) registration: usize,
}

impl WaitScope<'_> {
    /// The number of `key`; without a key, the number of pods that wait for anything.
    fn number(self, key: Option<u64>) -> u64 {
        FxBuildHasher.hash_one((self, key))
    }
}

/// One index entry of a pod: a number and an amount.
type IndexEntry = (u64, i64);

/// Waiting pods by the keys that they wait for.
#[derive(Debug, Default)]
pub(super) struct WaitIndex {
    entries: BTreeSet<(u64, i64, EntryId)>,
    /// The index entries of each pod, to find them again.
    of_pods: Vec<Option<Box<[IndexEntry]>>>,
}

impl WaitIndex {
    /// Adds a pod for each indexed registration of the plugins that rejected it.
    pub(super) fn insert(
        &mut self,
        id: EntryId,
        profile: Option<(ProfileId, &QueueProfile)>,
        info: &QueuedPodInfo,
    ) {
        let entries = entries(profile, info);
        if entries.is_empty() {
            return;
        }
        for (number, amount) in &entries {
            self.entries.insert((*number, *amount, id));
        }
        if self.of_pods.len() <= id.index() {
            self.of_pods.resize(id.index() + 1, None);
        }
        let before = self.of_pods[id.index()].replace(entries.into_boxed_slice());
        debug_assert_eq!(before, None, "a pod is added once");
    }

    /// Removes all index entries of a pod.
    pub(super) fn remove(&mut self, id: EntryId) {
        let Some(entries) = self.of_pods.get_mut(id.index()).and_then(Option::take) else {
            return;
        };
        for (number, amount) in entries {
            let removed = self.entries.remove(&(number, amount, id));
            debug_assert!(removed, "an added pod is found again");
        }
    }

    /// Calls `found` for the pods of a scope with an affected key, in the order of amounts for equal keys. A pod
    /// occurs once per key.
    pub(super) fn find(
        &self,
        scope: WaitScope<'_>,
        touched: &Touched,
        mut found: impl FnMut(EntryId),
    ) {
        if !touched.helps_anything() {
            return;
        }
        let anything = (scope.number(None), i64::MAX);
        let keys = touched.keys().iter();
        for (number, up_to) in keys
            .map(|(key, up_to)| (scope.number(Some(key.as_u64())), *up_to))
            .chain([anything])
        {
            let range = (number, i64::MIN, EntryId::FIRST)..=(number, up_to, EntryId::LAST);
            for (_, _, id) in self.entries.range(range) {
                found(*id);
            }
        }
    }

    /// Checks that the index is equal to a new index of the same pods.
    ///
    /// # Errors
    /// The first disagreement.
    pub(super) fn check(&self, expected: &Self) -> Result<(), String> {
        if let Some(entry) = self.entries.symmetric_difference(&expected.entries).next() {
            let is_known = self.entries.contains(entry);
            return Err(format!(
                "entry {entry:?} of the wait index exists: {is_known}"
            ));
        }
        let entries = |of: &Self| -> Vec<(usize, Box<[IndexEntry]>)> {
            let entries = of.of_pods.iter().cloned().enumerate();
            entries
                .filter_map(|(at, entries)| Some((at, entries?)))
                .collect()
        };
        if entries(self) != entries(expected) {
            return Err("a pod is not found again in the wait index".to_owned());
        }
        Ok(())
    }
}

/// The index entries of a pod, sorted, each once.
fn entries(
    profile: Option<(ProfileId, &QueueProfile)>,
    info: &QueuedPodInfo,
) -> SmallVec<[IndexEntry; 8]> {
    let mut entries = SmallVec::new();
    let Some((profile, known)) = profile else {
        return entries;
    };
    // A group is indexed under the keys of all its evaluated members.
    for plugin in info.rejectors() {
        for (registration, waits) in known.indexed(plugin) {
            let scope = WaitScope {
                profile,
                gate: info.gating_plugin().map(Str::as_str),
                registration: *registration,
            };
            match &info.own.group {
                None => add_entries(scope, &waits(&info.pod), &mut entries),
                Some(group) if group.is_woken_by_anything() => {
                    add_entries(scope, &Waits::for_anything(), &mut entries);
                }
                Some(group) => {
                    for pod in group.asked() {
                        add_entries(scope, &waits(pod), &mut entries);
                    }
                }
            }
        }
    }
    entries.sort_unstable();
    entries.dedup();
    entries
}

fn add_entries(scope: WaitScope<'_>, waits: &Waits, entries: &mut SmallVec<[IndexEntry; 8]>) {
    if waits.is_for_anything() {
        entries.push((scope.number(None), 0));
        return;
    }
    let keys = waits.keys().iter();
    entries.extend(keys.map(|(key, amount)| (scope.number(Some(key.as_u64())), *amount)));
}
