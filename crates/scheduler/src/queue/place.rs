//! Puts pods into their places and takes them out: the only code that touches the heaps and the indexes.

use super::entry::{Entries, Entry, EntryId, QueuedIn, QueuedPodInfo};
use super::heap::{Heap, Item, Key};
use super::{SchedulingQueue, heap, names};
use berth_api::Time;
use berth_framework::plugin::{QueueSort, QueuedPod, SortKey};
use std::cmp::Ordering;

/// The order of one heap.
struct Order<'a> {
    entries: &'a Entries,
    /// The queue sort, where this heap follows it and it has no keys.
    sort: Option<&'a dyn QueueSort>,
}

impl Order<'_> {
    fn less(&self, a: &Item, b: &Item) -> bool {
        let Some(sort) = self.sort else {
            return a.key < b.key;
        };
        match a.key.at.cmp(&b.key.at) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => {
                let (Some(first), Some(second)) = (self.entries.get(a.id), self.entries.get(b.id))
                else {
                    return a.key < b.key;
                };
                let (first, second) = (view(&first.info), view(&second.info));
                sort.less(first, second)
                    || (!sort.less(second, first) && a.key.arrival < b.key.arrival)
            }
        }
    }
}

fn view(info: &QueuedPodInfo) -> QueuedPod<'_> {
    QueuedPod {
        pod: &info.pod,
        timestamp: info.timestamp,
    }
}

/// Whether a place is ordered by the queue sort.
fn follows_sort(place: QueuedIn, windowed: bool) -> bool {
    match place {
        QueuedIn::Active => true,
        QueuedIn::Backoff => windowed,
        QueuedIn::ErrorBackoff | QueuedIn::Unschedulable | QueuedIn::Gated => false,
    }
}

impl SchedulingQueue {
    /// The heap of a place.
    pub(super) fn heap(&self, place: QueuedIn) -> &Heap {
        &self.heaps[place as usize]
    }

    /// The entry of a queued pod.
    pub(super) fn id_of(&self, namespace: &str, name: &str) -> Option<EntryId> {
        self.names.find(namespace, name, &self.entries)
    }

    /// Takes a pod into the queue, without a place as yet: the caller attaches it. No pod of its name is queued.
    pub(super) fn enter(&mut self, info: QueuedPodInfo) -> EntryId {
        let (namespace, name) = (info.pod.namespace(), info.pod.name());
        debug_assert_eq!(self.id_of(namespace, name), None, "a pod enters once");
        let name_hash = names::hash_of(namespace, name);
        self.arrivals += 1;
        let id = self.entries.insert(Entry {
            profile: self.profiles.by_name(&info.pod.spec.scheduler_name),
            info,
            place: None,
            name_hash,
            arrival: self.arrivals,
        });
        self.names.insert(id, name_hash, &self.entries);
        id
    }

    /// Takes a pod out of the queue.
    pub(super) fn leave(&mut self, id: EntryId) -> Option<QueuedPodInfo> {
        self.detach(id);
        let Entry {
            info, name_hash, ..
        } = self.entries.remove(id)?;
        let removed = self.names.remove(id, name_hash);
        debug_assert!(removed, "a queued pod is known by its name");
        Some(info)
    }

    /// Takes a pod out of its place; it stays in the queue and must be attached again.
    pub(super) fn detach(&mut self, id: EntryId) -> Option<QueuedIn> {
        let entry = self.entries.get_mut(id)?;
        let place = entry.place.take()?;
        let entry = self.entries.get(id)?;
        if place.is_unschedulable_pool() {
            self.pool.remove(id, entry.profile, &entry.info);
        }
        let order = Order {
            entries: &self.entries,
            sort: self
                .sort
                .as_deref()
                .filter(|_| follows_sort(place, self.pops_from_backoff())),
        };
        let removed =
            self.heaps[place as usize].remove(id, &mut self.positions, |a, b| order.less(a, b));
        debug_assert!(removed.is_some(), "a pod is found where it was put");
        Some(place)
    }

    /// Puts a detached pod into a place.
    pub(super) fn attach(&mut self, id: EntryId, place: QueuedIn) {
        let windowed = self.pops_from_backoff();
        let Some(entry) = self.entries.get_mut(id) else {
            debug_assert!(false, "only a queued pod gets a place");
            return;
        };
        debug_assert_eq!(entry.place, None, "a pod is in one place");
        debug_assert_eq!(
            place == QueuedIn::Gated,
            entry.info.is_gated() && !place.is_backoff(),
            "a gated pod waits behind its gate"
        );
        entry.place = Some(place);
        let info = &entry.info;
        let follows_sort = follows_sort(place, windowed);
        let key = Key {
            at: match place {
                QueuedIn::Active => Time::EPOCH,
                QueuedIn::Backoff | QueuedIn::ErrorBackoff => {
                    self.backoff.expiry(info).unwrap_or(Time::EPOCH)
                }
                QueuedIn::Unschedulable | QueuedIn::Gated => info.timestamp,
            },
            sort: match self.sort_key {
                Some(sort_key) if follows_sort => sort_key(view(info)),
                _ => SortKey::default(),
            },
            arrival: entry.arrival,
        };
        if place.is_unschedulable_pool() {
            let profile = entry.profile.zip(self.profiles.get(entry.profile));
            self.pool.insert(id, profile, info);
        }
        let order = Order {
            entries: &self.entries,
            sort: self.sort.as_deref().filter(|_| follows_sort),
        };
        self.heaps[place as usize].push(heap::Item { key, id }, &mut self.positions, |a, b| {
            order.less(a, b)
        });
    }

    /// The entries of a place in its order, for people to look at.
    pub(super) fn in_order(&self, place: QueuedIn) -> Vec<EntryId> {
        let order = Order {
            entries: &self.entries,
            sort: self
                .sort
                .as_deref()
                .filter(|_| follows_sort(place, self.pops_from_backoff())),
        };
        let mut items = self.heap(place).items().to_vec();
        items.sort_by(|a, b| {
            if order.less(a, b) {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        });
        items.into_iter().map(|item| item.id).collect()
    }
}
