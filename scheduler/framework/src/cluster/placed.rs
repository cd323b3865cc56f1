//! Objects that only some nodes can access, such as volumes and storage capacity, by a label that these nodes have.
//!
//! Volumes that are local to a node are found by the label of the node, independent of the number of other volumes.

use berth_api::node_selector::NodeSelector;
use berth_api::selector::LabelSelector;
use berth_api::{CsiStorageCapacity, Labels, PersistentVolume, Str};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A label that a node must have, with one of some values.
pub(super) type WantedLabel<'a> = (&'a Str, &'a [Str]);

/// An object that perhaps only some nodes can access.
pub(super) trait HasPlace {
    /// Nodes at other places certainly cannot access the object. `None` if all nodes are to be checked.
    fn place(&self) -> Option<WantedLabel<'_>>;
}

impl HasPlace for PersistentVolume {
    fn place(&self) -> Option<WantedLabel<'_>> {
        let required: &NodeSelector = self.required_affinity()?;
        let [term] = &required.node_selector_terms[..] else {
            return None;
        };
        let mut expressions = term.match_expressions.iter();
        let expression = expressions.find(|expression| expression.operator == "In")?;
        Some((&expression.key, &expression.values))
    }
}

impl HasPlace for CsiStorageCapacity {
    fn place(&self) -> Option<WantedLabel<'_>> {
        let topology: &LabelSelector = self.node_topology.as_ref()?;
        if let Some((label, value)) = topology.match_labels.as_slice().first() {
            return Some((label, std::slice::from_ref(value)));
        }
        let mut expressions = topology.match_expressions.iter();
        let expression = expressions.find(|expression| expression.operator == "In")?;
        Some((&expression.key, &expression.values))
    }
}

/// Objects by a key, in its order.
type Sorted<K, T> = BTreeMap<K, Arc<T>>;

/// See the [module](self).
#[derive(Debug, Clone)]
pub(super) struct PlacedLabels<K, T> {
    by_label: FxHashMap<Str, FxHashMap<Str, Sorted<K, T>>>,
    /// Objects without a place.
    others: Sorted<K, T>,
}

impl<K, T> Default for PlacedLabels<K, T> {
    fn default() -> Self {
        Self {
            by_label: FxHashMap::default(),
            others: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone, T: HasPlace> PlacedLabels<K, T> {
    pub(super) fn is_empty(&self) -> bool {
        self.by_label.is_empty() && self.others.is_empty()
    }

    pub(super) fn insert(&mut self, key: &K, object: &Arc<T>) {
        let Some((label, values)) = object.place() else {
            self.others.insert(key.clone(), object.clone());
            return;
        };
        let by_value = self.by_label.entry(label.clone()).or_default();
        for value in values {
            let sorted = by_value.entry(value.clone()).or_default();
            sorted.insert(key.clone(), object.clone());
        }
    }

    pub(super) fn remove(&mut self, key: &K, object: &T) {
        let Some((label, values)) = object.place() else {
            self.others.remove(key);
            return;
        };
        let Some(by_value) = self.by_label.get_mut(label) else {
            return;
        };
        for value in values {
            if let Some(sorted) = by_value.get_mut(value) {
                sorted.remove(key);
                if sorted.is_empty() {
                    by_value.remove(value);
                }
            }
        }
        if by_value.is_empty() {
            self.by_label.remove(label);
        }
    }

    /// The first object from a key on that is `suitable`. Objects that a node with these labels certainly cannot access
    /// are left out; the caller checks the others.
    pub(super) fn first(
        &self,
        from: &K,
        labels: &Labels,
        suitable: impl Fn(&T) -> bool,
    ) -> Option<&Arc<T>> {
        let firsts = self.groups(labels).filter_map(|sorted| {
            let mut range = sorted.range(from..);
            range.find(|(_, object)| suitable(object))
        });
        let first = firsts.min_by_key(|(key, _)| *key);
        first.map(|(_, object)| object)
    }

    /// The objects from a key on, in no order. Objects that a node with these labels certainly cannot access are left
    /// out; the caller checks the others.
    pub(super) fn objects_from<'a>(
        &'a self,
        key: &K,
        labels: &'a Labels,
    ) -> impl Iterator<Item = &'a Arc<T>> + use<'a, K, T> {
        let key = key.clone();
        let ranges = self
            .groups(labels)
            .flat_map(move |sorted| sorted.range(key.clone()..));
        ranges.map(|(_, object)| object)
    }

    /// The groups of objects that a node with these labels may access.
    fn groups<'a, 'l>(
        &'a self,
        labels: &'l Labels,
    ) -> impl Iterator<Item = &'a Sorted<K, T>> + use<'a, 'l, K, T> {
        let placed = self.by_label.iter().filter_map(|(label, by_value)| {
            let value = labels.get_str(label)?;
            by_value.get(value)
        });
        placed.chain(std::iter::once(&self.others))
    }
}
