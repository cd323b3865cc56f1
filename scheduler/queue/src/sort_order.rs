//! The order of the queue sort, in the heaps that follow it.

use super::entry::{QueueEntries, QueuedIn, QueuedPodInfo};
use super::heap::HeapItem;
use berth_framework::plugin::{QueueSort, QueuedPod, SortKey};
use std::sync::Arc;

type KeyFn = fn(QueuedPod<'_>) -> SortKey;

/// The order of the queue sort.
pub(super) struct SortOrder {
    /// The plugin, if it has no keys.
    plugin: Option<Arc<dyn QueueSort>>,
    /// The key of a pod.
    key: Option<KeyFn>,
    /// Whether it orders the pods of one window in backoff.
    orders_backoff: bool,
}

impl SortOrder {
    /// The order of a plugin; without one, the order of waiting times.
    pub(super) fn of(sort: Option<Arc<dyn QueueSort>>, orders_backoff: bool) -> Self {
        let by_timestamp: KeyFn = |pod| SortKey(pod.timestamp.as_nanos(), 0);
        let key = sort.as_ref().map_or(Some(by_timestamp), |s| s.sort_key());
        Self {
            plugin: sort.filter(|_| key.is_none()),
            key,
            orders_backoff,
        }
    }

    /// Returns whether it orders the pods of a place.
    fn orders(&self, place: QueuedIn) -> bool {
        place == QueuedIn::Active || place == QueuedIn::Backoff && self.orders_backoff
    }

    /// The key of a pod in a place.
    pub(super) fn key(&self, place: QueuedIn, info: &QueuedPodInfo) -> SortKey {
        let key = self.orders(place).then(|| self.turn(info));
        key.flatten().unwrap_or_default()
    }

    /// The key of a pod among the pods of its template. A plugin without keys can compare any field, so that the pods of a
    /// template have no order.
    pub(super) fn turn(&self, info: &QueuedPodInfo) -> Option<SortKey> {
        Some(self.key?(view(info)))
    }

    /// The order of the heap of a place.
    pub(super) fn less<'a>(
        &'a self,
        place: QueuedIn,
        entries: &'a QueueEntries,
    ) -> impl Fn(&HeapItem, &HeapItem) -> bool + 'a {
        let plugin = self.plugin.as_deref().filter(|_| self.orders(place));
        move |a, b| {
            let Some(plugin) = plugin.filter(|_| a.key.at == b.key.at) else {
                return a.key < b.key;
            };
            let (Some(first), Some(second)) = (entries.get(a.id), entries.get(b.id)) else {
                return a.key < b.key;
            };
            let (first, second) = (view(&first.info), view(&second.info));
            plugin.less(first, second)
                || (!plugin.less(second, first) && a.key.arrival < b.key.arrival)
        }
    }
}

fn view(info: &QueuedPodInfo) -> QueuedPod<'_> {
    QueuedPod {
        pod: &info.pod,
        timestamp: info.timestamp,
    }
}
