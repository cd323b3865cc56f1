//! The class of each node, for all pods with the same columns by slot and the same ledgers. What columns by row say about
//! nodes is no part of it.

use super::changes::Changes;
use super::classes::{ClassId, Classes, NO_CLASS};
use super::node_answers::{FEASIBLE, Known, NO_NODE, NodeAnswer, NodeAnswers};
use super::plan::{Plan, Unkeepable};
use super::scratch::{Note, Scratch};
use super::shape::Parts;
use super::store::Keepable;
use crate::Evaluator;
use berth_framework::Slot;
use berth_framework::keep::Class;
use std::sync::Arc;

/// The first numbers of a class: the grades of both groups, and the [code](NodeClasses::code) of the answer.
const ANSWER: usize = 2;
/// The start of the numbers of the ledgers in a class.
const OF_LEDGERS: usize = 3;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct NodeClasses {
    /// Never given to other classes of nodes.
    pub(super) id: u64,
    /// The position in the changes of the columns and of the ledgers; `None` at first.
    seen: Option<[u64; 3]>,
    all: Classes,
    /// By slot. Shared with the statuses that were given away.
    pub(super) class_of: Arc<Vec<ClassId>>,
    /// The answers of ledgers about nodes with the pods that are nominated to them.
    with_nominated: Vec<Known>,
    /// Nodes that are in a class for one pod alone: to be looked at again.
    again: Vec<Slot>,
    /// The nodes that were looked at again.
    pub(super) changes: Changes,
}

impl NodeClasses {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }

    /// Takes in what has changed since the last use: everything at first. After an error the classes are of no use.
    pub(super) fn catch_up(
        &mut self,
        evaluator: &Evaluator<'_>,
        parts: &Parts,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let all = [
            Some(&parts.node.changes),
            (!parts.pods.is_by_row).then_some(&parts.pods.changes),
            (!parts.ledgers.all.is_empty()).then_some(&parts.ledgers.changes),
        ];
        let seen = all.map(|changes| changes.map_or(0, Changes::end));
        if self.seen == Some(seen) && self.again.is_empty() {
            return Ok(());
        }
        let table = &evaluator.cluster.nodes;
        scratch.begin(table.slots());
        if let Some(before) = self.seen {
            for (changes, before) in all.into_iter().zip(before) {
                let Some(changes) = changes else { continue };
                for slot in changes.since(before).ok_or(Unkeepable)? {
                    scratch.note(slot, Note::Answer);
                }
            }
            for slot in std::mem::take(&mut self.again) {
                scratch.note(slot, Note::Answer);
            }
            for slot in scratch.noted() {
                self.changes.push(*slot);
            }
        } else {
            scratch.begin_with_all(table);
        }
        self.seen = Some(seen);
        let mut shared = std::mem::take(&mut self.class_of);
        let class_of = Arc::make_mut(&mut shared);
        class_of.resize(table.slots(), NO_CLASS);
        let are_uniform = parts.ledgers.are_uniform();
        // The class of the node before, and what it was made of.
        let mut latest = (None, NO_CLASS);
        let mut class = Class::new();
        for slot in scratch.noted() {
            let answer = Self::answer(parts, *slot);
            let id = match answer {
                None => NO_CLASS,
                Some(_) if are_uniform && answer == latest.0 => {
                    self.all.add_to(latest.1);
                    latest.1
                }
                Some(numbers) => {
                    class.clear();
                    class.extend_from_slice(&numbers);
                    parts.ledgers.class(*slot, &mut class);
                    self.all.add(&class)?
                }
            };
            latest = (answer, id);
            self.put(class_of, *slot, id);
        }
        self.class_of = shared;
        Ok(())
    }

    /// The node of a slot is in this class from now on, which counts it already.
    fn put(&mut self, class_of: &mut [ClassId], slot: Slot, id: ClassId) {
        let before = std::mem::replace(&mut class_of[slot.index()], id);
        if before != NO_CLASS {
            self.all.remove(before);
        }
    }

    /// The grades of a node and the code of its answer; `None` without a node.
    #[inline]
    fn answer(parts: &Parts, slot: Slot) -> Option<[i64; OF_LEDGERS]> {
        let (first, mut second) = (parts.node.cell(slot.index()), parts.pods_cell(slot));
        if first.answer == NO_NODE || second.answer == NO_NODE {
            return None;
        }
        if parts.pods.is_by_row {
            second.answer = FEASIBLE;
        }
        if first.answer == FEASIBLE && second.answer == FEASIBLE {
            return Some([i64::from(first.grade), i64::from(second.grade), 0]);
        }
        let filter = |of: &NodeAnswers, answer: NodeAnswer| of.known[usize::from(answer)].filter;
        // The first filter that rejects a node decides. A node that was rejected has no grade.
        let is_first = filter(&parts.node, first.answer) < filter(&parts.pods, second.answer);
        let code = if is_first {
            Self::code(0, first.answer.into())
        } else {
            Self::code(1, second.answer.into())
        };
        Some([0, 0, code])
    }

    /// The number that stands for an answer in a class: where it is known, and its place there. Zero means feasible.
    fn code(origin: usize, answer: usize) -> i64 {
        (answer << 2 | origin) as i64
    }

    /// Rejects a node that a ledger rejects with the pods that are nominated to it (C-18), for the evaluator's pod alone.
    /// Returns whether it does.
    pub(super) fn count_nominated(
        &mut self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        parts: &mut Parts,
        slot: Slot,
    ) -> Result<bool, Unkeepable> {
        let ledgers = &mut parts.ledgers;
        let Some(known) = ledgers.rejection_with_nominated(evaluator, plan, slot)? else {
            return Ok(false);
        };
        if !known.status.is_rejected() {
            return Err(Unkeepable);
        }
        let place = self.with_nominated.iter().position(|other| *other == known);
        let place = place.unwrap_or_else(|| {
            self.with_nominated.push(known);
            self.with_nominated.len() - 1
        });
        let mut class: Class = [0, 0, Self::code(2, place)].into_iter().collect();
        ledgers.class(slot, &mut class);
        let id = self.all.add(&class)?;
        self.again.push(slot);
        self.changes.push(slot);
        let mut shared = std::mem::take(&mut self.class_of);
        let class_of = Arc::make_mut(&mut shared);
        self.put(class_of, slot, id);
        self.class_of = shared;
        Ok(true)
    }

    /// The class of a node.
    pub(super) fn of(&self, slot: Slot) -> ClassId {
        let class = self.class_of.get(slot.index());
        class.copied().unwrap_or(NO_CLASS)
    }

    /// One more than the greatest number of a class.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The answer of the nodes of a class, with the ledgers' left out; `None` if they are feasible.
    pub(super) fn answer_of<'a>(&'a self, parts: &'a Parts, id: ClassId) -> Option<&'a Known> {
        let code = self.all.get(id).key[ANSWER];
        let answer = usize::try_from(code >> 2).ok()?;
        let known = match code & 3 {
            _ if code == 0 => return None,
            0 => &parts.node.known,
            1 => &parts.pods.known,
            _ => &self.with_nominated,
        };
        known.get(answer)
    }

    /// Returns whether the nodes of a class are feasible, as far as the ledgers and columns by row do not reject them.
    #[inline]
    pub(super) fn is_feasible(&self, id: ClassId) -> bool {
        id != NO_CLASS && self.all.get(id).key[ANSWER] == 0
    }

    /// The numbers of the ledgers in a class.
    pub(super) fn numbers(&self, id: ClassId) -> &[i64] {
        &self.all.get(id).key[OF_LEDGERS..]
    }

    /// The raw score that a class got from a plugin whose scores are brought to scale.
    pub(super) fn raw(&self, parts: &Parts, id: ClassId, group: usize, scale: usize) -> i64 {
        let grade = self.all.get(id).key[group].try_into().unwrap_or(0);
        let raw = parts.columns()[group].grade(grade);
        raw.get(scale).copied().unwrap_or(0)
    }
}

impl Keepable for NodeClasses {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.class_of.capacity() * size_of::<ClassId>()
            + self.all.bytes()
            + self.changes.bytes()
    }
}
