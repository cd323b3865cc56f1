//! The shape of a pod: what is kept for all pods with the same fragments, beside the columns and ledgers that they share
//! with pods of other shapes.
//!
//! Each node is in a class by its raw scores, its answer and the numbers of the ledgers. The sum of the other scores is in
//! the columns. Of each block of 64 nodes the shape knows the greatest sum in each class, so that a decision reads blocks
//! instead of nodes. A change of a node makes its block be read again.

use super::classes::{ClassId, Classes, NO_CLASS};
use super::ledgers::Ledgers;
use super::node_answers::{FEASIBLE, Grade, Known, NO_NODE, NodeAnswer, NodeAnswers, Sum};
use super::plan::{Plan, Unkeepable};
use super::scratch::{Note, Scratch};
use crate::evaluator::{Evaluator, Memos};
use berth_framework::Slot;
use berth_framework::keep::Class;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::sync::Arc;

/// The number of nodes of a block: so many are read again when one has changed, and one entry for so many is read in each
/// decision.
const BLOCK: usize = 64;

/// The first numbers of a class: the grades of both groups, and the [code](Shape::code) of the answer.
const ANSWER: usize = 2;
/// The start of the numbers of the ledgers in a class.
const OF_LEDGERS: usize = 3;

/// The columns and the ledgers for a pod, up to date.
pub(super) struct Parts {
    pub(super) node: Box<NodeAnswers>,
    pub(super) pods: Box<NodeAnswers>,
    pub(super) ledgers: Box<Ledgers>,
}

impl Parts {
    /// The columns of both groups of plugins.
    pub(super) fn columns(&self) -> [&NodeAnswers; 2] {
        [&self.node, &self.pods]
    }

    fn changes_ends(&self) -> [u64; 3] {
        [
            &self.node.changes,
            &self.pods.changes,
            &self.ledgers.changes,
        ]
        .map(|of| of.end())
    }

    /// The sum of the scores of a feasible node that need no scale, weights included.
    pub(super) fn sum(&self, slot: Slot) -> Sum {
        self.node.cell(slot).score + self.pods.cell(slot).score
    }
}

/// The feasible nodes of one class in a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockBest {
    pub(super) class: ClassId,
    /// The greatest sum.
    pub(super) sum: Sum,
    /// How many nodes have it.
    pub(super) nodes: u16,
}

impl BlockBest {
    fn none(class: ClassId) -> Self {
        Self {
            class,
            sum: Sum::MIN,
            nodes: 0,
        }
    }

    #[inline]
    fn add(&mut self, sum: Sum) {
        if sum > self.sum {
            (self.sum, self.nodes) = (sum, 1);
        } else if sum == self.sum {
            self.nodes += 1;
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// The position in the changes of the columns and of the ledgers; `None` at first.
    seen: Option<[u64; 3]>,
    pub(super) classes: Classes,
    /// By slot. Shared with the statuses that were given away.
    pub(super) class_of: Arc<Vec<ClassId>>,
    pub(super) blocks: Vec<SmallVec<[BlockBest; 2]>>,
    /// The number of entries of all blocks.
    entries: usize,
    /// A bit for each block that is to be read again.
    stale: Vec<u64>,
    /// The answers of ledgers about nodes with the pods that are nominated to them.
    with_nominated: Vec<Known>,
    /// Nodes with nominated pods that would change the answer of a ledger, or the order in which filters are asked.
    entangled: FxHashSet<Slot>,
    /// Nodes that answered for one pod alone: to be looked at again.
    again: Vec<Slot>,
    /// The findings of PostFilter; lent out with the verdict that a pod fits nowhere.
    memos: Memos,
    /// Counts the changes of the shape.
    state: u64,
}

impl Shape {
    /// Takes in what has changed since the shape was used last: everything at first. After an error the shape is of no use.
    pub(super) fn catch_up(
        &mut self,
        evaluator: &Evaluator<'_>,
        parts: &Parts,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let seen = parts.changes_ends();
        if self.seen == Some(seen) && self.again.is_empty() {
            return Ok(());
        }
        let slots = evaluator.cluster.nodes.slots();
        scratch.begin(slots);
        if let Some([node, pods, ledgers]) = self.seen {
            let changes = [
                (&parts.node.changes, node),
                (&parts.pods.changes, pods),
                (&parts.ledgers.changes, ledgers),
            ];
            for (changes, seen) in changes {
                for (slot, note) in changes.since(seen).ok_or(Unkeepable)? {
                    scratch.note(slot, note);
                }
            }
            for slot in std::mem::take(&mut self.again) {
                scratch.note(slot, Note::Row);
            }
        } else {
            scratch.begin_with_all(&evaluator.cluster.nodes);
        }
        self.seen = Some(seen);
        self.state += 1;
        self.place_all(evaluator, parts, slots, scratch)?;
        self.read_blocks(parts);
        Ok(())
    }

    /// Puts nodes into the classes in which they belong now.
    fn place_all(
        &mut self,
        evaluator: &Evaluator<'_>,
        parts: &Parts,
        slots: usize,
        scratch: &Scratch,
    ) -> Result<(), Unkeepable> {
        let mut shared = std::mem::take(&mut self.class_of);
        let class_of = Arc::make_mut(&mut shared);
        if class_of.len() < slots {
            class_of.resize(slots, NO_CLASS);
            self.blocks.resize(slots.div_ceil(BLOCK), SmallVec::new());
            self.stale.resize(self.blocks.len().div_ceil(BLOCK), 0);
        }
        let has_nominations = !evaluator.nominated.is_empty();
        let are_uniform = parts.ledgers.are_uniform();
        // The class of the node before, and what it was made of.
        let mut latest = (None, NO_CLASS);
        let mut class = Class::new();
        for slot in scratch.noted() {
            self.memos.forget(*slot);
            if scratch.note_of(*slot) == Note::Score && self.entangled.is_empty() {
                self.mark_stale(*slot);
                continue;
            }
            if !self.entangled.is_empty() {
                self.entangled.remove(slot);
            }
            if has_nominations {
                self.note_entangled(evaluator, parts, *slot);
            }
            let answer = self.answer(parts, *slot);
            let id = match answer {
                None => NO_CLASS,
                Some(_) if are_uniform && answer == latest.0 => {
                    self.classes.add_to(latest.1);
                    latest.1
                }
                Some(numbers) => {
                    class.clear();
                    class.extend_from_slice(&numbers);
                    parts.ledgers.class(*slot, &mut class);
                    self.classes.add(&class)?
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
            self.classes.remove(before);
        }
        self.mark_stale(slot);
    }

    /// The block of a node is to be read again.
    #[inline]
    fn mark_stale(&mut self, slot: Slot) {
        let block = slot.index() / BLOCK;
        self.stale[block / BLOCK] |= 1 << (block % BLOCK);
    }

    /// The grades of a node and the code of its answer; `None` without a node.
    #[inline]
    fn answer(&self, parts: &Parts, slot: Slot) -> Option<[i64; OF_LEDGERS]> {
        let first = parts.node.cell(slot);
        let mut second = parts.pods.cell(slot);
        if first.answer == NO_NODE || second.answer == NO_NODE {
            return None;
        }
        if first.answer == FEASIBLE && second.answer == FEASIBLE {
            return Some([i64::from(first.grade), i64::from(second.grade), 0]);
        }
        // With the nominated pods, which are counted first, only the first group rejects it.
        if first.answer != FEASIBLE && parts.pods.needs_nominated(slot) {
            second.answer = FEASIBLE;
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

    /// The answer of the nodes of a class, with the ledgers' left out; `None` if they are feasible.
    pub(super) fn answer_of<'a>(&'a self, parts: &'a Parts, id: ClassId) -> Option<&'a Known> {
        let code = self.classes.get(id).key[ANSWER];
        let answer = usize::try_from(code >> 2).ok()?;
        let known = match code & 3 {
            _ if code == 0 => return None,
            0 => &parts.node.known,
            1 => &parts.pods.known,
            _ => &self.with_nominated,
        };
        known.get(answer)
    }

    /// Returns whether the nodes of a class are feasible, as far as the ledgers do not reject them.
    #[inline]
    pub(super) fn is_feasible(&self, id: ClassId) -> bool {
        id != NO_CLASS && self.classes.get(id).key[ANSWER] == 0
    }

    /// The numbers of the ledgers in a class.
    pub(super) fn numbers(&self, id: ClassId) -> &[i64] {
        &self.classes.get(id).key[OF_LEDGERS..]
    }

    /// The raw score that a class got from a plugin whose scores are brought to scale.
    pub(super) fn raw(&self, parts: &Parts, id: ClassId, group: usize, scale: usize) -> i64 {
        let grade = Grade::try_from(self.classes.get(id).key[group]).unwrap_or(0);
        let raw = parts.columns()[group].grade(grade);
        raw.get(scale).copied().unwrap_or(0)
    }

    /// Reads the blocks again in which a node has changed.
    fn read_blocks(&mut self, parts: &Parts) {
        for word in 0..self.stale.len() {
            let mut blocks = std::mem::take(&mut self.stale[word]);
            while blocks != 0 {
                let block = word * BLOCK + blocks.trailing_zeros() as usize;
                blocks &= blocks - 1;
                self.read_block(parts, block);
            }
        }
    }

    fn read_block(&mut self, parts: &Parts, block: usize) {
        let mut best = std::mem::take(&mut self.blocks[block]);
        self.entries -= best.len();
        best.clear();
        let start = block * BLOCK;
        let [node, pods] = parts.columns().map(|column| &column.cells()[start..]);
        let cells = node.iter().zip(pods);
        // The class of the node before, and its place in the block if its nodes are feasible.
        let (mut latest, mut place) = (NO_CLASS, None);
        for (class, (node, pods)) in self.class_of[start..].iter().zip(cells).take(BLOCK) {
            if *class != latest {
                latest = *class;
                place = self.is_feasible(latest).then(|| {
                    let known = best.iter().position(|of: &BlockBest| of.class == latest);
                    known.unwrap_or_else(|| {
                        best.push(BlockBest::none(latest));
                        best.len() - 1
                    })
                });
            }
            if let Some(place) = place {
                best[place].add(node.score + pods.score);
            }
        }
        self.entries += best.len();
        self.blocks[block] = best;
    }

    /// The slots of a block with their classes.
    pub(super) fn nodes_of(&self, block: usize) -> impl Iterator<Item = (Slot, ClassId)> {
        let start = block * BLOCK;
        let classes = self.class_of[start..].iter().take(BLOCK);
        (start as u32..).map(Slot::from_index).zip(classes.copied())
    }

    /// Notes whether pods are nominated to a node that concern a ledger, or without which a filter rejects the node: a
    /// ledger that rejects it anyway is asked before.
    fn note_entangled(&mut self, evaluator: &Evaluator<'_>, parts: &Parts, slot: Slot) {
        let cx = evaluator.context();
        let Some(view) = cx.cluster.nodes.get(slot) else {
            return;
        };
        let mut is_entangled = parts.pods.needs_nominated(slot);
        let priority = parts.pods.pod.pod.priority();
        evaluator.nominated.on_node(view.name(), &mut |pod| {
            is_entangled |= pod.pod.priority() >= priority && parts.ledgers.concern(&cx, pod);
        });
        if is_entangled {
            self.entangled.insert(slot);
        }
    }

    /// Rejects the nodes that a ledger rejects with the pods that are nominated to them (C-18). That holds for the
    /// evaluator's pod alone: these nodes are looked at again for the next.
    pub(super) fn count_nominated(
        &mut self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        parts: &mut Parts,
    ) -> Result<(), Unkeepable> {
        if self.entangled.is_empty() {
            return Ok(());
        }
        let mut shared = std::mem::take(&mut self.class_of);
        let class_of = Arc::make_mut(&mut shared);
        let entangled: Vec<Slot> = self.entangled.iter().copied().collect();
        let counted = entangled.into_iter().try_for_each(|slot| {
            let ledgers = &mut parts.ledgers;
            let Some(known) = ledgers.rejection_with_nominated(evaluator, plan, slot)? else {
                return Ok(());
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
            let id = self.classes.add(&class)?;
            self.again.push(slot);
            self.put(class_of, slot, id);
            Ok(())
        });
        self.class_of = shared;
        self.read_blocks(parts);
        counted
    }

    /// Returns whether pods are nominated that would change the answer of a ledger about their node.
    pub(super) fn is_entangled(&self) -> bool {
        !self.entangled.is_empty()
    }

    /// Lends out what PostFilter found, if it holds; see [`Shape::revert`].
    pub(super) fn lend_memos(
        &mut self,
        ledgers: &Ledgers,
        shape: &[u8],
        version: u64,
    ) -> Option<Memos> {
        if !ledgers.are_indifferent() {
            self.memos.clear();
            return None;
        }
        let mut memos = std::mem::take(&mut self.memos);
        if memos.version != version {
            memos.clear();
        }
        if memos.shape.is_empty() {
            memos.shape = shape.into();
        }
        memos.version = version;
        memos.state = self.state;
        Some(memos)
    }

    /// Stores what was lent out, unless too much has happened meanwhile.
    pub(super) fn revert(&mut self, memos: Memos) {
        if memos.state == self.state {
            self.memos = memos;
        }
    }

    /// About how much memory the shape takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.class_of.capacity() * size_of::<ClassId>()
            + self.blocks.capacity() * size_of::<SmallVec<[BlockBest; 2]>>()
            + self.entries * size_of::<BlockBest>()
            + self.classes.bytes()
    }
}
