//! Numbers per domain, that is, per topology key and value.

use berth_api::{Labels, Str};
use rustc_hash::FxHashMap;

/// A count per domain. [`AffinityCounts::add`] removes an entry that becomes zero.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct AffinityCounts {
    by_key: FxHashMap<Str, FxHashMap<Str, i64>>,
}

impl AffinityCounts {
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Changes the count of the node's domain of `key`. A node without the label is in no domain.
    pub(super) fn add(&mut self, key: &Str, labels: &Labels, amount: i64) {
        let Some(value) = labels.get_str(key) else {
            return;
        };
        let values = self.by_key.entry(key.clone()).or_default();
        let count = values.entry(value.clone()).or_default();
        *count += amount;
        if *count == 0 {
            values.remove(value);
            if values.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    /// Changes the sum of the node's domain of `key`; a sum of zero stays.
    pub(super) fn add_points(&mut self, key: &Str, labels: &Labels, points: i64) {
        if let Some(value) = labels.get_str(key) {
            let values = self.by_key.entry(key.clone()).or_default();
            let sum = values.entry(value.clone()).or_default();
            *sum = sum.saturating_add(points);
        }
    }

    /// The count of the node's domain of `key`.
    pub(super) fn get(&self, key: &str, value: &str) -> i64 {
        self.by_key
            .get(key)
            .and_then(|values| values.get(value))
            .copied()
            .unwrap_or(0)
    }

    /// The counts of all domains that the node is in, by topology key.
    pub(super) fn of_node(&self, labels: &Labels) -> impl Iterator<Item = (&Str, i64)> {
        self.by_key
            .iter()
            .filter_map(move |(key, values)| Some((key, *values.get(labels.get(key)?)?)))
    }
}
