//! The slots of the table and the names of nodes that they are given to.

use berth_api::Str;
use rustc_hash::FxHashMap;

/// A node's place in the table. A node keeps its slot while it exists; a later node may get the slot of a deleted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub(super) u32);

impl Slot {
    /// The slot with this index.
    pub fn from_index(index: u32) -> Self {
        Self(index)
    }

    /// The index into columns.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Slots by the name of the node, which may be unknown while there are pods on it.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots {
    by_name: FxHashMap<Str, Slot>,
    free: Vec<Slot>,
}

impl Slots {
    /// The slot of a name.
    pub(super) fn get(&self, name: &str) -> Option<Slot> {
        self.by_name.get(name).copied()
    }

    /// Gives a slot to a name: one that was free, or the next of a table with this number of slots.
    pub(super) fn open(&mut self, name: &Str, slots: usize) -> Slot {
        let next = || Slot(u32::try_from(slots).unwrap_or(u32::MAX));
        let slot = self.free.pop().unwrap_or_else(next);
        self.by_name.insert(name.clone(), slot);
        slot
    }

    /// The slot of the name is free again.
    pub(super) fn close(&mut self, name: &str) {
        self.free.extend(self.by_name.remove(name));
    }
}
