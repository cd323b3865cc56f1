//! Results about nodes for pods of one shape, as long as it holds.

use berth_framework::Slot;
use std::any::Any;
use std::fmt;

/// One value per node. They belong to a shape, also while they are lent out.
#[derive(Default)]
pub(crate) struct Memos {
    /// The shape.
    pub(super) shape: Box<[u8]>,
    /// Which of the shape's states they are about: given back late, they are of no use.
    pub(super) state: u64,
    /// The version of the disruption budgets that they hold for.
    pub(super) budgets: u64,
    by_slot: Vec<Option<Box<dyn Any + Send + Sync>>>,
}

impl fmt::Debug for Memos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memos").finish_non_exhaustive()
    }
}

impl Memos {
    pub(super) fn get(&self, node: Slot) -> Option<&(dyn Any + Send + Sync)> {
        self.by_slot.get(node.index())?.as_deref()
    }

    pub(super) fn put(&mut self, node: Slot, value: Box<dyn Any + Send + Sync>) {
        let at = node.index();
        if self.by_slot.len() <= at {
            self.by_slot.resize_with(at + 1, || None);
        }
        self.by_slot[at] = Some(value);
    }

    pub(super) fn forget(&mut self, node: Slot) {
        if let Some(memo) = self.by_slot.get_mut(node.index()) {
            *memo = None;
        }
    }

    pub(super) fn clear(&mut self) {
        self.by_slot.clear();
    }
}
