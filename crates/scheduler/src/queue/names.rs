//! Finds queued pods by namespace and name.
//!
//! The table holds entries only; hashes and names are kept with the pods. So a pod leaves without its name being
//! read again, which at a million pods is what a pop would spend its time on.

use super::entry::{EntryId, QueueEntries};
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

/// The hash under which a name is filed.
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

    /// Files a pod under its hash; no other pod has its name.
    pub(super) fn insert(&mut self, id: EntryId, hash: u64, entries: &QueueEntries) {
        self.0.insert_unique(hash, id, |other| {
            entries.get(*other).map_or(0, |entry| entry.name_hash)
        });
    }

    /// Removes a pod that was filed under `hash`; false when it was not.
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
