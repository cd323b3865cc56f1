//! The re-evaluated nodes in order, for columns and shapes that follow them.

use super::scratch::Note;
use berth_framework::Slot;
use std::collections::VecDeque;

/// The number of changes that are remembered. A reader that missed more begins anew; the log of the node table has as many.
const CHANGES_MAX: usize = 16 * 1024;

/// The last [`CHANGES_MAX`] changes, numbered without a gap.
#[derive(Debug, Default)]
pub(super) struct Changes {
    slots: VecDeque<(Slot, Note)>,
    /// The number of the first of them.
    first: u64,
}

impl Changes {
    pub(super) fn push(&mut self, slot: Slot, note: Note) {
        if self.slots.len() >= CHANGES_MAX {
            self.slots.pop_front();
            self.first += 1;
        }
        self.slots.push_back((slot, note));
    }

    /// The number of the next change.
    pub(super) fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// The changes since they ended at `since`; `None` when that is too long ago.
    pub(super) fn since(&self, since: u64) -> Option<impl Iterator<Item = (Slot, Note)>> {
        let skipped = usize::try_from(since.checked_sub(self.first)?).ok()?;
        (skipped <= self.slots.len()).then(|| self.slots.range(skipped..).copied())
    }

    /// About how much memory they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<(Slot, Note)>()
    }
}
