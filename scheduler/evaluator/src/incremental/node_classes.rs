//! The class of each node, for all pods with the same first column and the same fragment of ledgers. What the second column
//! answers about nodes is no part of it.

use super::cell::{Answer, Cell, NO_NODE, REJECTED, Rejection};
use super::changes::Changes;
use super::classes::{ClassId, Classes, NO_CLASS};
use super::column::Column;
use super::ledgers::Ledgers;
use super::plan::{Plan, Unkeepable};
use super::scratch::Scratch;
use super::shape::BLOCK;
use super::store::Keepable;
use crate::Evaluator;
use berth_framework::Slot;
use berth_framework::keep::Class;
use berth_framework::vectors::in_vectors;
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use std::sync::Arc;

/// The place of the column's answer in a class, or of a rejection of nodes with the pods that are nominated to them.
const ANSWER: usize = 0;
/// The start of the numbers of the ledgers in a class.
const OF_LEDGERS: usize = 1;
/// The number of the first rejection of nodes with the pods that are nominated to them: above all answers.
const WITH_NOMINATED: i64 = NO_NODE as i64 + 1;
/// A class that is not known yet.
const UNKNOWN: i64 = -1;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct NodeClasses {
    /// Never given to other classes of nodes.
    pub(super) id: u64,
    pub(super) ledgers: Ledgers,
    /// The position in the changes of the column; `None` at first.
    seen: Option<u64>,
    all: Classes,
    /// By slot. Shared with the statuses that were given away.
    pub(super) class_of: Arc<Vec<ClassId>>,
    /// By block: whether all nodes of the block are in one class and have one sum in the first column.
    uniform: Vec<bool>,
    /// The rejections by ledgers of nodes with the pods that are nominated to them.
    with_nominated: IndexSet<Rejection, FxBuildHasher>,
    /// Nodes whose class holds for one pod alone: they are evaluated again.
    again: Vec<Slot>,
    /// The re-evaluated nodes.
    pub(super) changes: Changes,
}

impl NodeClasses {
    /// Of no node yet, for pods like the evaluator's.
    pub(super) fn new(id: u64, evaluator: &Evaluator<'_>, plan: &Plan) -> Self {
        Self {
            id,
            ledgers: Ledgers::open(evaluator, plan),
            ..Self::default()
        }
    }

    /// Takes in what has changed since the last use: everything at first. After an error the classes are of no use.
    pub(super) fn catch_up(
        &mut self,
        evaluator: &Evaluator<'_>,
        column: &Column,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let table = &evaluator.cluster.nodes;
        scratch.begin();
        self.ledgers.follow(evaluator, scratch)?;
        if let Some(before) = self.seen {
            let changes = column.changes.since(before).ok_or(Unkeepable)?;
            for slot in changes.chain(self.again.drain(..)) {
                scratch.note(slot);
            }
            for slot in scratch.noted() {
                self.changes.push(*slot);
            }
        } else {
            scratch.begin_with_all(table);
        }
        self.seen = Some(column.changes.end());
        // There are slots of unknown nodes, too, for their pods.
        let slots = table.slots().next_multiple_of(BLOCK);
        if self.class_of.len() < slots {
            Arc::make_mut(&mut self.class_of).resize(slots, NO_CLASS);
            self.uniform.resize(slots / BLOCK, false);
        }
        if scratch.noted().is_empty() {
            return Ok(());
        }
        let class_of = Arc::make_mut(&mut self.class_of);
        let width = OF_LEDGERS + self.ledgers.class_len();
        let mut numbers = vec![0; scratch.noted().len().min(BLOCK) * width];
        // In parts that stay in the cache of the processor between the passes of the ledgers.
        for slots in scratch.noted().chunks(BLOCK) {
            let numbers = &mut numbers[..slots.len() * width];
            let (answers, of_ledgers) = numbers.split_at_mut(OF_LEDGERS * slots.len());
            self.ledgers.write_classes(slots, of_ledgers);
            for (answer, slot) in answers.iter_mut().zip(slots) {
                *answer = column.answer(slot.index()).into();
            }
            let mut ids = [UNKNOWN; BLOCK];
            in_vectors(
                #[inline(always)]
                || find_classes(&mut self.all, numbers, &mut ids[..slots.len()]),
            )?;
            for (slot, id) in slots.iter().zip(ids) {
                let before = std::mem::replace(&mut class_of[slot.index()], id as ClassId);
                if before != NO_CLASS {
                    self.all.remove(before);
                }
            }
        }
        let mut last = None;
        for slot in scratch.noted() {
            let block = slot.index() / BLOCK;
            // Consecutive slots are common, as for a new shape.
            if last != Some(block) {
                self.uniform[block] = is_uniform(class_of, column, block);
                last = Some(block);
            }
        }
        Ok(())
    }

    /// Rejects a node that a ledger rejects with the pods that are nominated to it (C-18), for the evaluator's pod alone.
    /// Returns whether it does.
    pub(super) fn count_nominated(
        &mut self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        slot: Slot,
    ) -> Result<bool, Unkeepable> {
        let ledgers = &mut self.ledgers;
        let Some(rejection) = ledgers.rejection_with_nominated(evaluator, plan, slot)? else {
            return Ok(false);
        };
        if !rejection.status.is_rejected() {
            return Err(Unkeepable);
        }
        let (place, _) = self.with_nominated.insert_full(rejection);
        let width = OF_LEDGERS + ledgers.class_len();
        let mut class = vec![0; width];
        class[ANSWER] = WITH_NOMINATED + place as i64;
        ledgers.write_classes(&[slot], &mut class[OF_LEDGERS..]);
        let id = self.all.id(&class)?;
        self.all.add(id, 1);
        let class_of = Arc::make_mut(&mut self.class_of);
        let before = std::mem::replace(&mut class_of[slot.index()], id);
        if before != NO_CLASS {
            self.all.remove(before);
        }
        self.uniform[slot.index() / BLOCK] = false;
        self.again.push(slot);
        self.changes.push(slot);
        Ok(true)
    }

    /// The class of a node.
    pub(super) fn of(&self, slot: Slot) -> ClassId {
        let class = self.class_of.get(slot.index());
        class.copied().unwrap_or(NO_CLASS)
    }

    /// Returns whether the nodes of a block, all of them, are in one class and have one sum in the first column.
    #[inline]
    pub(super) fn is_uniform(&self, block: usize) -> bool {
        self.uniform[block]
    }

    /// One more than the greatest number of a class.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The rejection of the nodes of a class, with the ledgers' left out; `None` if they are feasible.
    pub(super) fn rejection<'a>(
        &'a self,
        column: &'a Column,
        id: ClassId,
    ) -> Option<&'a Rejection> {
        match self.all.numbers(id)[ANSWER] {
            answer @ ..WITH_NOMINATED => column.rejection(answer as Answer),
            place => {
                let place = place - WITH_NOMINATED;
                self.with_nominated.get_index(place as usize)
            }
        }
    }

    /// The grade of the nodes of a class; `None` if they are rejected. Ledgers and the second column can still reject them.
    #[inline]
    pub(super) fn grade(&self, id: ClassId) -> Option<Answer> {
        let answer = self.all.numbers(id)[ANSWER];
        (answer < REJECTED.into()).then_some(answer as Answer)
    }

    /// The numbers of the ledgers in a class.
    pub(super) fn numbers(&self, id: ClassId) -> &[i64] {
        &self.all.numbers(id)[OF_LEDGERS..]
    }
}

/// Finds the classes of nodes, and adds the nodes to them. Number `k` of the node at place `n` is at
/// `numbers[k * ids.len() + n]`. The nodes of one class are found together, in one pass over each number.
#[inline(always)]
fn find_classes(all: &mut Classes, numbers: &[i64], ids: &mut [i64]) -> Result<(), Unkeepable> {
    let mut class = Class::new();
    for first in 0..ids.len() {
        if ids[first] != UNKNOWN {
            continue;
        }
        class.clear();
        let mut differences = [0; BLOCK];
        for numbers in numbers.chunks_exact(ids.len()) {
            class.push(numbers[first]);
            for (differences, number) in differences.iter_mut().zip(numbers) {
                *differences |= number ^ numbers[first];
            }
        }
        let is_node = class[ANSWER] != i64::from(NO_NODE);
        let id = if is_node { all.id(&class)? } else { NO_CLASS };
        let mut nodes = 0;
        for (of, differences) in ids.iter_mut().zip(differences) {
            let is_equal = differences == 0;
            *of = if is_equal { i64::from(id) } else { *of };
            nodes += usize::from(is_equal);
        }
        if is_node {
            all.add(id, nodes);
        }
    }
    Ok(())
}

fn is_uniform(class_of: &[ClassId], column: &Column, block: usize) -> bool {
    let of_class: &[ClassId; BLOCK] = &class_of.as_chunks().0[block];
    let of_node: &[Cell; BLOCK] = &column.cells.as_chunks().0[block];
    let (class, sum) = (of_class[0], of_node[0].sum());
    let mut others = 0;
    // Without a way out, so that it is vectorised.
    for (of_class, of_node) in of_class.iter().zip(of_node) {
        others |= i32::from(of_class ^ class) | (of_node.sum() ^ sum);
    }
    others == 0 && class != NO_CLASS
}

impl Keepable for NodeClasses {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.ledgers.bytes()
            + self.class_of.capacity() * size_of::<ClassId>()
            + self.uniform.capacity()
            + self.all.bytes()
            + self.changes.bytes()
    }
}
