//! Nodes with equal allocatable and requested amounts: a **row**. Plugins that read nothing else of nodes are called for one
//! node of each row, so that a pod unlike all before costs a call for each row and not for each node.
//!
//! A node to which pods are nominated is in a row of its own.

use super::changes::{Changes, has_nominated, note_changes};
use super::scratch::Scratch;
use super::shape::BLOCK;
use crate::Evaluator;
use berth_framework::Slot;
use berth_framework::table::Columns;
use hashbrown::HashTable;
use rustc_hash::FxHasher;
use std::hash::Hasher;
use std::sync::Arc;

/// A row among all.
pub(super) type RowId = u32;

/// The row of a slot without a node.
const NO_ROW: RowId = RowId::MAX;

#[derive(Debug)]
struct Row {
    /// Whether other nodes may join it: it has no nominated pods.
    is_shared: bool,
    /// The number of nodes; without any, the row is given up and its number used again.
    nodes: u32,
    /// One of the nodes.
    example: Slot,
    /// The value of [`Rows::opened`] when it was opened.
    opened: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The position in the changes of the table and in those of the nominations, and the number of resources; `None` at
    /// first.
    seen: Option<(u64, u64, usize)>,
    /// By slot. Shared with the statuses that were given away.
    pub(super) row_of: Arc<Vec<RowId>>,
    /// The rows of each block of slots, with the number of nodes in the block.
    of_blocks: Vec<Vec<(RowId, u16)>>,
    all: Vec<Row>,
    /// By row: plugins answer about all rows in one pass over these columns. Amounts of rows without nodes have no meaning.
    pub(super) amounts: Columns,
    /// The rows that other nodes may join, by their amounts.
    shared: HashTable<RowId>,
    free: Vec<RowId>,
    /// Grows with each row that is opened.
    pub(super) opened: u64,
    /// The nodes that have changed, or whose pods have. When all rows are rebuilt, earlier positions become unknown.
    pub(super) changes: Changes,
}

impl Rows {
    /// Takes in what has changed since the last use.
    pub(super) fn catch_up(&mut self, evaluator: &Evaluator<'_>, scratch: &mut Scratch) {
        let table = &evaluator.cluster.nodes;
        let (log, nominated) = (table.log().end(), evaluator.nominated.changes_end());
        // With a resource that no node has offered before, the amounts of all nodes are longer.
        let seen = (log, nominated, table.columns().resources());
        if self.seen == Some(seen) {
            return;
        }
        scratch.begin();
        let is_known = self.seen.is_some_and(|(log, nominated, resources)| {
            resources == seen.2 && note_changes(evaluator, scratch, log, nominated, true)
        });
        if !is_known {
            *self = Self {
                opened: self.opened,
                changes: self.changes.begin_anew(),
                amounts: table.columns().without_slots(),
                ..Self::default()
            };
            scratch.begin_with_all(table);
        }
        self.seen = Some(seen);
        let mut of_slots = std::mem::take(&mut self.row_of);
        let row_of = Arc::make_mut(&mut of_slots);
        row_of.resize(table.slots().next_multiple_of(BLOCK), NO_ROW);
        let blocks = table.slots().div_ceil(BLOCK);
        self.of_blocks.resize(blocks, Vec::new());
        for slot in scratch.noted() {
            let before = row_of[slot.index()];
            let now = self.find(evaluator, *slot);
            if now != before {
                row_of[slot.index()] = now;
                self.enter(now, *slot);
                self.leave(before, *slot, row_of);
            }
            // Also if it stays in its row: dry runs of preemption read the pods of a node, not their sums.
            if is_known {
                self.changes.push(*slot);
            }
        }
        self.row_of = of_slots;
    }

    /// The row of a node, opened if there is none with its amounts.
    fn find(&mut self, evaluator: &Evaluator<'_>, slot: Slot) -> RowId {
        let table = &evaluator.cluster.nodes;
        if !table.is_node()[slot.index()] {
            return NO_ROW;
        }
        let has_nominations = has_nominated(evaluator, slot, |_| true);
        let hash = hash_of(table.columns().amounts(slot));
        let Self {
            shared, amounts, ..
        } = self;
        let is_equal = |row: &RowId| amounts.equals(Slot::from_index(*row), table.columns(), slot);
        if !has_nominations && let Some(known) = shared.find(hash, is_equal) {
            return *known;
        }
        let id = self.free.pop().unwrap_or(self.all.len() as RowId);
        amounts.copy(Slot::from_index(id), table.columns(), slot);
        if !has_nominations {
            let of_row = |row: &RowId| amounts.amounts(Slot::from_index(*row));
            shared.insert_unique(hash, id, |row| hash_of(of_row(row)));
        }
        self.opened += 1;
        let row = Row {
            is_shared: !has_nominations,
            nodes: 0,
            example: slot,
            opened: self.opened,
        };
        match self.all.get_mut(id as usize) {
            Some(free) => *free = row,
            None => self.all.push(row),
        }
        id
    }

    fn enter(&mut self, id: RowId, slot: Slot) {
        let Some(row) = self.all.get_mut(id as usize) else {
            return;
        };
        row.nodes += 1;
        let rows = &mut self.of_blocks[slot.index() / BLOCK];
        // From the end: consecutive nodes are often equal.
        match rows.iter_mut().rev().find(|(row, _)| *row == id) {
            Some((_, nodes)) => *nodes += 1,
            None => rows.push((id, 1)),
        }
    }

    fn leave(&mut self, id: RowId, slot: Slot, row_of: &[RowId]) {
        let Some(row) = self.all.get_mut(id as usize) else {
            return;
        };
        row.nodes -= 1;
        let rows = &mut self.of_blocks[slot.index() / BLOCK];
        if let Some(at) = rows.iter().position(|(row, _)| *row == id) {
            rows[at].1 -= 1;
            if rows[at].1 == 0 {
                rows.swap_remove(at);
            }
        }
        if row.nodes == 0 {
            if row.is_shared {
                let hash = hash_of(self.amounts.amounts(Slot::from_index(id)));
                if let Ok(known) = self.shared.find_entry(hash, |row| *row == id) {
                    known.remove();
                }
            }
            self.free.push(id);
        } else if row.example == slot {
            // Rare enough for a walk: of the nodes of a row, only one is the example.
            let mut rows = (0..).zip(row_of);
            let other = rows.find(|(_, row)| **row == id);
            row.example = other.map_or(slot, |(at, _)| Slot::from_index(at));
        }
    }

    /// The row of the node of a slot.
    #[inline]
    pub(super) fn of(&self, slot: Slot) -> Option<RowId> {
        let row = self.row_of.get(slot.index()).copied();
        row.filter(|row| *row != NO_ROW)
    }

    /// The rows of the nodes of a block, each with the number of its nodes there.
    pub(super) fn of_block(&self, block: usize) -> &[(RowId, u16)] {
        &self.of_blocks[block]
    }

    /// One more than the greatest number of a row.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether the row of a node was opened after `opened` was `since`.
    pub(super) fn is_new(&self, slot: Slot, since: u64) -> bool {
        let row = self.of(slot).and_then(|row| self.all.get(row as usize));
        row.is_some_and(|row| row.opened > since)
    }

    /// A node of a row, if it has nodes.
    pub(super) fn example(&self, row: RowId) -> Option<Slot> {
        let row = &self.all[row as usize];
        (row.nodes > 0).then_some(row.example)
    }

    /// The rows that plugins can answer about by their amounts: rows with nodes, and without nominated pods.
    pub(super) fn begin_with_all(&self, rows: &mut Vec<bool>) {
        rows.clear();
        rows.extend(self.all.iter().map(|row| row.is_shared && row.nodes > 0));
    }
}

fn hash_of(amounts: impl Iterator<Item = i64>) -> u64 {
    let mut hasher = FxHasher::default();
    amounts.for_each(|of| hasher.write_i64(of));
    hasher.finish()
}
