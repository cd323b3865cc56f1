//! The objects of one kind that there are now.

use super::version::ObjectVersion;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// A key and its version.
pub(super) type LiveRow<'a> = (&'a Arc<str>, &'a Arc<ObjectVersion>);

/// Versions by key. Most accesses are for one key and use a hash table; lists need the order.
#[derive(Debug, Default)]
pub(super) struct Live {
    versions: FxHashMap<Arc<str>, Arc<ObjectVersion>>,
    keys: BTreeSet<Arc<str>>,
}

impl Live {
    /// The number of objects.
    pub(super) fn len(&self) -> usize {
        self.versions.len()
    }

    /// The row at a key.
    pub(super) fn get(&self, key: &str) -> Option<LiveRow<'_>> {
        self.versions.get_key_value(key)
    }

    /// Puts a version at a key. Returns the previous version.
    pub(super) fn insert(
        &mut self,
        key: &Arc<str>,
        version: &Arc<ObjectVersion>,
    ) -> Option<Arc<ObjectVersion>> {
        if let Some(known) = self.versions.get_mut(key) {
            return Some(std::mem::replace(known, Arc::clone(version)));
        }
        self.versions.insert(Arc::clone(key), Arc::clone(version));
        self.keys.insert(Arc::clone(key));
        None
    }

    /// Removes the version at a key.
    pub(super) fn remove(&mut self, key: &str) -> Option<Arc<ObjectVersion>> {
        let version = self.versions.remove(key)?;
        self.keys.remove(key);
        Some(version)
    }

    /// The objects with the prefix `prefix`, from a key on, in order.
    pub(super) fn from<'a>(
        &'a self,
        start: Bound<&'a str>,
        prefix: &'a str,
    ) -> impl Iterator<Item = LiveRow<'a>> {
        let keys = self.keys.range::<str, _>((start, Bound::Unbounded));
        keys.take_while(move |key| key.starts_with(prefix))
            .filter_map(|key| self.get(key))
    }
}
