//! The storage capacity that CSI drivers report, by class.

use super::Namespaced;
use super::placed::PlacedLabels;
use berth_api::{CsiStorageCapacity, Labels, Str};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The rest of a capacity, with its namespace and name.
type CapacityKey = (i64, Str, Str);

/// The capacity of CSI drivers.
#[derive(Debug, Clone, Default)]
pub struct StorageCapacities {
    all: Namespaced<CsiStorageCapacity>,
    /// Capacities with a limit, by class, the smallest first.
    by_class: FxHashMap<Str, PlacedLabels<CapacityKey, CsiStorageCapacity>>,
    version: u64,
}

fn capacity_key(capacity: &CsiStorageCapacity) -> Option<CapacityKey> {
    let meta = &capacity.metadata;
    let limit = capacity.limit()?.value();
    Some((limit, meta.namespace.clone(), meta.name.clone()))
}

impl StorageCapacities {
    /// Sets or removes a capacity. Returns the previous version.
    pub(super) fn put(
        &mut self,
        capacity: &Arc<CsiStorageCapacity>,
        is_there: bool,
    ) -> Option<Arc<CsiStorageCapacity>> {
        let before = self.all.put(&capacity.metadata, capacity, is_there);
        if let Some(before) = &before
            && let Some(key) = capacity_key(before)
            && let Some(class) = self.by_class.get_mut(&before.storage_class_name)
        {
            class.remove(&key, before);
            if class.is_empty() {
                self.by_class.remove(&before.storage_class_name);
            }
        }
        if let Some(key) = capacity_key(capacity).filter(|_| is_there) {
            let class = self.by_class.entry(capacity.storage_class_name.clone());
            class.or_default().insert(&key, capacity);
        }
        before
    }

    /// The capacities of a class of at least this limit, in bytes. Capacities that a node with these labels certainly
    /// cannot access are left out; the caller checks the others.
    pub fn at_least<'a>(
        &'a self,
        class: &str,
        limit: i64,
        labels: &'a Labels,
    ) -> impl Iterator<Item = &'a Arc<CsiStorageCapacity>> + 'a {
        let from = (limit, Str::default(), Str::default());
        let class = self.by_class.get(class);
        class
            .into_iter()
            .flat_map(move |class| class.objects_from(&from, labels))
    }

    /// A capacity was changed that may matter to several nodes.
    pub(super) fn renew(&mut self) {
        self.version += 1;
    }

    /// Changes whenever a capacity is added, changed or removed, unless that matters to one node alone: then the log of
    /// the node table has a change of this node.
    pub fn version(&self) -> u64 {
        self.version
    }
}
