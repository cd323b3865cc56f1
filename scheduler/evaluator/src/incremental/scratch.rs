//! Room to work in, shared by everything that is kept.

use berth_api::Str;
use berth_framework::{NodeTable, Slot, Status};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// By slot: when it was noted last, and whether the node itself had changed. Only as long as the last noted slot: a pass
    /// over all nodes needs none.
    notes: Vec<(u64, bool)>,
    stamp: u64,
    /// The nodes that were noted, each once.
    pub(super) dirty: Vec<Slot>,
    pub(super) left: Vec<Slot>,
    pub(super) answered: Vec<(Slot, Status)>,
    pub(super) raw: Vec<i64>,
    /// The rows that passed all filters, by number.
    pub(super) fits: Vec<bool>,
    /// The raw scores of one plugin, and the sums, by row.
    pub(super) scores: Vec<i32>,
    pub(super) sums: Vec<i32>,
}

impl Scratch {
    /// Forgets all notes.
    pub(super) fn begin(&mut self) {
        self.stamp += 1;
        self.dirty.clear();
    }

    /// Forgets all notes. All nodes are to be evaluated, without a note.
    pub(super) fn begin_with_all(&mut self, table: &NodeTable) {
        self.begin();
        self.dirty.extend(table.occupied());
    }

    /// Returns whether a node was noted because it has changed itself.
    pub(super) fn has_changed(&self, slot: Slot) -> bool {
        self.notes.get(slot.index()) == Some(&(self.stamp, true))
    }

    /// Notes a node about which answers may be others.
    pub(super) fn note(&mut self, slot: Slot) {
        let slots = self.notes.len().max(slot.index() + 1);
        self.notes.resize(slots, (0, false));
        let note = &mut self.notes[slot.index()];
        if note.0 != self.stamp {
            *note = (self.stamp, false);
            self.dirty.push(slot);
        }
    }

    /// Notes a node that has changed itself.
    pub(super) fn note_changed(&mut self, slot: Slot) {
        self.note(slot);
        self.notes[slot.index()].1 = true;
    }

    /// Notes the node with a name, if it is known.
    pub(super) fn note_named(&mut self, table: &NodeTable, node: &Str) {
        if let Some(slot) = table.slot(node) {
            self.note(slot);
        }
    }

    /// The nodes that were noted, each once.
    pub(super) fn noted(&self) -> &[Slot] {
        &self.dirty
    }
}
