//! The assumed changes, with the values to revert them.

use super::Slot;
use crate::pod_info::PodInfo;
use berth_api::Str;
use std::sync::Arc;

/// A change that is only supposed.
#[derive(Debug, Clone)]
pub(super) enum Undo {
    Added {
        slot: Slot,
        uid: Str,
        generation: u64,
    },
    Removed {
        slot: Slot,
        pod: Arc<PodInfo>,
        /// Its place in the row.
        at: usize,
        generation: u64,
    },
}

/// The changes that are only supposed, in order, in levels that are reverted one by one.
#[derive(Debug, Clone, Default)]
pub(super) struct Journal {
    changes: Vec<Undo>,
    /// For each level, how many changes there were before it.
    levels: Vec<usize>,
}

impl Journal {
    /// Begins a level.
    pub(super) fn begin(&mut self) {
        self.levels.push(self.changes.len());
    }

    /// Returns whether there is a level: changes are only supposed.
    pub(super) fn is_open(&self) -> bool {
        !self.levels.is_empty()
    }

    /// Records a change of the last level.
    pub(super) fn push(&mut self, change: Undo) {
        debug_assert!(self.is_open(), "only what is supposed is reverted");
        self.changes.push(change);
    }

    /// The last change of the last level, which is to be reverted. `None` ends the level.
    pub(super) fn pop(&mut self) -> Option<Undo> {
        if self.changes.len() > self.levels.last().copied()? {
            return self.changes.pop();
        }
        self.levels.pop();
        None
    }
}
