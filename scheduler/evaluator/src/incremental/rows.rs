//! Nodes with equal allocatable and requested amounts: a **row**. Plugins that read nothing else of nodes are called for one
//! node of each row, so that a pod unlike all before costs a call for each row and not for each node.
//!
//! A node to which pods are nominated is in a row of its own.

use super::changes::note_changes;
use super::scratch::Scratch;
use crate::Evaluator;
use berth_framework::Slot;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A row among all.
pub(super) type RowId = u32;

/// The row of a slot without a node.
const NO_ROW: RowId = RowId::MAX;

#[derive(Debug)]
struct Row {
    /// What its nodes have in common; `None` for a node with nominated pods.
    amounts: Option<Arc<[i64]>>,
    /// The number of nodes; without any, the row is given up and its number used again.
    nodes: u32,
    /// The last node that was added.
    latest: Slot,
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
    row_of: Arc<Vec<RowId>>,
    all: Vec<Row>,
    by_amounts: FxHashMap<Arc<[i64]>, RowId>,
    free: Vec<RowId>,
    opened: u64,
    /// The value of `opened` when all rows were made anew.
    began: u64,
}

impl Rows {
    /// Takes in what has changed since the last use.
    pub(super) fn catch_up(&mut self, evaluator: &Evaluator<'_>, scratch: &mut Scratch) {
        let table = &evaluator.cluster.nodes;
        let (log, nominated) = (table.log().end(), evaluator.nominated.changes_end());
        let seen = (log, nominated, table.columns().resources());
        if self.seen == Some(seen) {
            return;
        }
        scratch.begin(table.slots());
        let is_known = self.seen.is_some_and(|(log, nominated, resources)| {
            resources == seen.2 && note_changes(evaluator, scratch, (log, nominated), true)
        });
        if !is_known {
            // The count goes on, so that columns notice that their rows are gone.
            let began = self.opened + 1;
            *self = Self {
                opened: began,
                began,
                ..Self::default()
            };
            scratch.begin_with_all(table);
        }
        self.seen = Some(seen);
        let mut shared = std::mem::take(&mut self.row_of);
        let row_of = Arc::make_mut(&mut shared);
        row_of.resize(table.slots(), NO_ROW);
        let mut amounts = Vec::new();
        for slot in scratch.noted() {
            let before = row_of[slot.index()];
            let now = self.find(evaluator, *slot, &mut amounts);
            if now == before {
                continue;
            }
            row_of[slot.index()] = now;
            if let Some(row) = self.all.get_mut(now as usize) {
                row.nodes += 1;
                row.latest = *slot;
            }
            self.leave(before);
        }
        self.row_of = shared;
    }

    /// The row of a node as it is now, opened if there is none.
    fn find(&mut self, evaluator: &Evaluator<'_>, slot: Slot, amounts: &mut Vec<i64>) -> RowId {
        let table = &evaluator.cluster.nodes;
        let Some(view) = table.get(slot) else {
            return NO_ROW;
        };
        let mut has_nominations = false;
        if !evaluator.nominated.is_empty() {
            let each = &mut |_: &_| has_nominations = true;
            evaluator.nominated.on_node(view.name(), each);
        }
        amounts.clear();
        amounts.extend(table.columns().amounts(slot));
        if !has_nominations && let Some(known) = self.by_amounts.get(&amounts[..]) {
            return *known;
        }
        let amounts: Option<Arc<[i64]>> = (!has_nominations).then(|| amounts[..].into());
        self.opened += 1;
        let row = Row {
            amounts: amounts.clone(),
            nodes: 0,
            latest: slot,
            opened: self.opened,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = row;
                id
            }
            None => {
                self.all.push(row);
                self.all.len() as RowId - 1
            }
        };
        if let Some(amounts) = amounts {
            self.by_amounts.insert(amounts, id);
        }
        id
    }

    /// A node leaves a row.
    fn leave(&mut self, id: RowId) {
        let Some(row) = self.all.get_mut(id as usize) else {
            return;
        };
        row.nodes -= 1;
        if row.nodes == 0 {
            if let Some(amounts) = row.amounts.take() {
                self.by_amounts.remove(&amounts);
            }
            self.free.push(id);
        }
    }

    /// The row of each slot.
    pub(super) fn by_slot(&self) -> &Arc<Vec<RowId>> {
        &self.row_of
    }

    /// The row of the node of a slot.
    pub(super) fn of(&self, slot: Slot) -> Option<RowId> {
        let row = self.row_of.get(slot.index()).copied();
        row.filter(|row| *row != NO_ROW)
    }

    /// One more than the greatest number of a row.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Grows with each row that is opened.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    /// Returns whether rows of the time when [`Rows::opened`] was `since` still have their numbers.
    pub(super) fn are_known_since(&self, since: u64) -> bool {
        since >= self.began
    }

    /// Returns whether the row of a node was opened after [`Rows::opened`] was `since`.
    pub(super) fn is_new(&self, slot: Slot, since: u64) -> bool {
        let row = self.of(slot).and_then(|row| self.all.get(row as usize));
        row.is_some_and(|row| row.opened > since)
    }

    /// Adds a node of each row.
    pub(super) fn one_of_each(&mut self, nodes: &mut Vec<Slot>) {
        let is_lost = |(id, row): (RowId, &Row)| row.nodes > 0 && self.of(row.latest) != Some(id);
        if (0..).zip(&self.all).any(is_lost) {
            for (slot, row) in (0..).map(Slot::from_index).zip(self.row_of.iter()) {
                if let Some(row) = self.all.get_mut(*row as usize) {
                    row.latest = slot;
                }
            }
        }
        let all = self.all.iter().filter(|row| row.nodes > 0);
        nodes.extend(all.map(|row| row.latest));
    }
}
