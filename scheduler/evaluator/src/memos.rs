//! Results about nodes for pods of one shape, as long as it holds.

use berth_framework::Slot;
use std::any::Any;
use std::fmt;

/// The results of a plugin, which belong to a shape, also while they are lent out.
#[derive(Default)]
pub(crate) struct Memos {
    /// The shape.
    pub(super) shape: Box<[u8]>,
    /// The state of the shape to which they belong: given back late, they are of no use.
    pub(super) state: u64,
    /// The version of the disruption budgets, and of what many nodes share, that they hold for.
    pub(super) version: u64,
    results: Option<Box<dyn Any + Send + Sync>>,
    /// The nodes that have changed since.
    changed: Vec<Slot>,
}

impl fmt::Debug for Memos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memos").finish_non_exhaustive()
    }
}

/// The number of changes that are noted; after more of them the results are dropped.
const CHANGES_MAX: usize = 64 * 1024;

impl Memos {
    /// The results, and the nodes that have changed since.
    pub(super) fn take(&mut self) -> (Option<Box<dyn Any + Send + Sync>>, Vec<Slot>) {
        (self.results.take(), std::mem::take(&mut self.changed))
    }

    pub(super) fn put(&mut self, results: Box<dyn Any + Send + Sync>) {
        self.results = Some(results);
    }

    #[inline]
    pub(super) fn forget(&mut self, node: Slot) {
        if self.results.is_none() {
            return;
        }
        self.changed.push(node);
        if self.changed.len() > CHANGES_MAX {
            self.clear();
        }
    }

    pub(super) fn clear(&mut self) {
        self.results = None;
        self.changed.clear();
    }
}
