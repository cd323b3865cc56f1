//! An indexed heap of queued pods: add, update and remove by entry in O(log n).
//!
//! The reason for a custom heap: a plugin that reads the pods can determine the order, which `Ord` priorities of the
//! heaps in crates do not allow; and all heaps of the queue share one table of positions, because a pod is in one place
//! only. Each item contains its key, so a comparison with a keyed order follows no pointer; four children per node
//! share one or two cache lines.

use super::entry::EntryId;
use berth_api::Time;
use berth_framework::plugin::SortKey;

/// The number of children of a node.
const ARITY: usize = 4;

/// The key of an item; the derived order applies if the queue sort has keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// First by time: the end of a backoff, or the start of the wait. Equal for all entries where time does not matter.
    pub(super) at: Time,
    /// Then by the queue sort, if it has keys.
    pub(super) sort: SortKey,
    /// Then by arrival.
    pub(super) arrival: u64,
}

/// An entry with its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeapItem {
    /// The key of the order.
    pub(super) key: Key,
    /// The entry.
    pub(super) id: EntryId,
}

/// The position of each entry in the heap that contains it.
#[derive(Debug, Default)]
pub(super) struct Positions(Vec<u32>);

impl Positions {
    fn set(&mut self, id: EntryId, position: usize) {
        let at = id.index();
        if at >= self.0.len() {
            self.0.resize(at + 1, u32::MAX);
        }
        self.0[at] = u32::try_from(position).unwrap_or(u32::MAX);
    }

    fn get(&self, id: EntryId) -> Option<usize> {
        self.0.get(id.index()).map(|position| *position as usize)
    }
}

/// A heap with the smallest item first. The order is an argument of each operation and must be the same each time.
#[derive(Debug, Default)]
pub(super) struct Heap {
    items: Vec<HeapItem>,
}

impl Heap {
    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The first item.
    pub(super) fn first(&self) -> Option<&HeapItem> {
        self.items.first()
    }

    /// All items, in no particular order.
    pub(super) fn items(&self) -> &[HeapItem] {
        &self.items
    }

    /// Returns whether `id` is in this heap.
    pub(super) fn contains(&self, id: EntryId, positions: &Positions) -> bool {
        positions
            .get(id)
            .and_then(|at| self.items.get(at))
            .is_some_and(|item| item.id == id)
    }

    /// Adds an entry that is in no heap.
    pub(super) fn push(
        &mut self,
        item: HeapItem,
        positions: &mut Positions,
        less: impl Fn(&HeapItem, &HeapItem) -> bool,
    ) {
        debug_assert!(
            !self.contains(item.id, positions),
            "an entry is in a heap once"
        );
        self.items.push(item);
        self.sift_up(self.items.len() - 1, positions, &less);
    }

    /// Removes an entry; `None` if it is not in this heap.
    pub(super) fn remove(
        &mut self,
        id: EntryId,
        positions: &mut Positions,
        less: impl Fn(&HeapItem, &HeapItem) -> bool,
    ) -> Option<HeapItem> {
        let at = positions.get(id)?;
        if self.items.get(at)?.id != id {
            return None;
        }
        let removed = self.items.swap_remove(at);
        positions.set(id, u32::MAX as usize);
        if at < self.items.len() {
            let at = self.sift_up(at, positions, &less);
            self.sift_down(at, positions, &less);
        }
        Some(removed)
    }

    fn sift_up(
        &mut self,
        mut at: usize,
        positions: &mut Positions,
        less: &impl Fn(&HeapItem, &HeapItem) -> bool,
    ) -> usize {
        let item = self.items[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if !less(&item, &self.items[parent]) {
                break;
            }
            self.items[at] = self.items[parent];
            positions.set(self.items[at].id, at);
            at = parent;
        }
        self.items[at] = item;
        positions.set(item.id, at);
        at
    }

    fn sift_down(
        &mut self,
        mut at: usize,
        positions: &mut Positions,
        less: &impl Fn(&HeapItem, &HeapItem) -> bool,
    ) {
        let item = self.items[at];
        // The item is written once, at its last position: its children move up until none is smaller.
        loop {
            let first = at * ARITY + 1;
            let Some(children) = self
                .items
                .get(first..(first + ARITY).min(self.items.len()))
                .filter(|children| !children.is_empty())
            else {
                break;
            };
            let mut smallest = 0;
            for child in 1..children.len() {
                if less(&children[child], &children[smallest]) {
                    smallest = child;
                }
            }
            if !less(&children[smallest], &item) {
                break;
            }
            let child = first + smallest;
            self.items[at] = self.items[child];
            positions.set(self.items[at].id, at);
            at = child;
        }
        self.items[at] = item;
        positions.set(item.id, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(n: u64, key: i64) -> HeapItem {
        HeapItem {
            key: Key {
                at: Time::from_nanos(key),
                sort: SortKey::default(),
                arrival: n,
            },
            id: EntryId::new(n as usize),
        }
    }

    fn less(a: &HeapItem, b: &HeapItem) -> bool {
        a.key < b.key
    }

    /// After any additions and removals, exactly the remaining entries are removed in order.
    #[test]
    fn the_order_holds_after_random_adds_and_removes() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut heap, mut positions) = (Heap::default(), Positions::default());
            let mut expected: Vec<(i64, u64)> = Vec::new();
            for n in 0..300 {
                if random.u8(0..3) > 0 || expected.is_empty() {
                    let key = random.i64(0..40);
                    heap.push(item(n, key), &mut positions, less);
                    expected.push((key, n));
                } else {
                    let (_, gone) = expected.swap_remove(random.usize(0..expected.len()));
                    let id = EntryId::new(gone as usize);
                    assert!(
                        heap.remove(id, &mut positions, less).is_some(),
                        "seed {seed}"
                    );
                    assert!(
                        heap.remove(id, &mut positions, less).is_none(),
                        "seed {seed}"
                    );
                }
            }
            expected.sort_unstable();
            let mut got = Vec::new();
            while let Some(first) = heap.first().copied() {
                heap.remove(first.id, &mut positions, less);
                got.push((first.key.at.as_nanos(), first.key.arrival));
            }
            assert_eq!(got, expected, "seed {seed}");
        }
    }
}
