//! Finds queued pods by namespace and name.
//!
//! The table contains entries only; hashes and names are stored with the pods. A removal does not read the name of the
//! pod, which would dominate the cost of a pop at a million pods.

use super::entry::{EntryId, QueueEntries};
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

/// The hash of a name.
pub(super) fn hash_of(namespace: &str, name: &str) -> u64 {
    FxBuildHasher.hash_one((namespace, name))
}

/// Queued pods by name.
#[derive(Debug, Default)]
pub(super) struct Names(HashTable<EntryId>);

impl Names {
    /// The number of known names.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The pod of that name.
    pub(super) fn find(
        &self,
        namespace: &str,
        name: &str,
        entries: &QueueEntries,
    ) -> Option<EntryId> {
        self.0
            .find(hash_of(namespace, name), |id| {
                entries.get(*id).is_some_and(|entry| {
                    let pod = &entry.info.pod;
                    pod.name().as_str() == name && pod.namespace().as_str() == namespace
                })
            })
            .copied()
    }

    /// Adds a pod with its hash; no other pod has its name.
    pub(super) fn insert(&mut self, id: EntryId, hash: u64, entries: &QueueEntries) {
        self.0.insert_unique(hash, id, |other| {
            entries.get(*other).map_or(0, |entry| entry.name_hash)
        });
    }

    /// Removes a pod with `hash`; returns false if it was not found.
    pub(super) fn remove(&mut self, id: EntryId, hash: u64) -> bool {
        match self.0.find_entry(hash, |other| *other == id) {
            Ok(found) => {
                found.remove();
                true
            }
            Err(_) => false,
        }
    }
}
