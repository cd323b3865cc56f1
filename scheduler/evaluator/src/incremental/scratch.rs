//! Room to work in, shared by everything that is kept.

use berth_api::Str;
use berth_framework::{NodeTable, Slot, Status};

/// The reason for the evaluation of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Note {
    #[default]
    None,
    /// Answers about it may be others.
    Answer,
    /// The node itself has changed.
    Node,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// By slot: when it was noted last, and why.
    notes: Vec<(u64, Note)>,
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
    pub(super) fn begin(&mut self, slots: usize) {
        self.stamp += 1;
        self.dirty.clear();
        if self.notes.len() < slots {
            self.notes.resize(slots, (0, Note::None));
        }
    }

    /// Forgets all notes. All nodes are to be evaluated, without a note.
    pub(super) fn begin_with_all(&mut self, table: &NodeTable) {
        self.begin(table.slots());
        self.dirty.reserve(table.slots());
        for (slot, is_node) in (0..).zip(table.is_node()) {
            if *is_node {
                self.dirty.push(Slot::from_index(slot));
            }
        }
    }

    /// The reason why a node was noted.
    pub(super) fn note_of(&self, slot: Slot) -> Note {
        match self.notes.get(slot.index()) {
            Some((stamp, note)) if *stamp == self.stamp => *note,
            _ => Note::None,
        }
    }

    /// Notes a node; the stronger of several reasons counts.
    pub(super) fn note(&mut self, slot: Slot, note: Note) {
        let before = self.note_of(slot);
        let Some(entry) = self.notes.get_mut(slot.index()) else {
            return;
        };
        if before == Note::None {
            self.dirty.push(slot);
        }
        if note > before {
            *entry = (self.stamp, note);
        }
    }

    /// Notes the node with a name, if it is known.
    pub(super) fn note_named(&mut self, table: &NodeTable, node: &Str) {
        if let Some(slot) = table.slot(node) {
            self.note(slot, Note::Answer);
        }
    }

    /// The nodes that were noted, each once.
    pub(super) fn noted(&self) -> &[Slot] {
        &self.dirty
    }
}
