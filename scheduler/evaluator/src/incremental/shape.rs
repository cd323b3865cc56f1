//! The shape of a pod: what is kept for all pods with the same fragments, beside the columns, ledgers and classes that they
//! share with pods of other shapes.
//!
//! Of each block of 64 nodes the shape knows the greatest sum in each class, so that a decision reads blocks instead of
//! nodes. A change of a node makes its block be read again.

use super::changes::Changes;
use super::classes::{ClassId, NO_CLASS};
use super::ledgers::Ledgers;
use super::node_answers::{Cell, FEASIBLE, NodeAnswer, NodeAnswers, Sum};
use super::node_classes::NodeClasses;
use super::plan::{Plan, Unkeepable};
use super::rows::RowId;
use super::scratch::{Note, Scratch};
use super::store::Keepable;
use crate::{Evaluator, Memos};
use berth_framework::Slot;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::sync::Arc;

/// The number of nodes of a block: so many are read again when one has changed, and one entry for so many is read in each
/// decision.
const BLOCK: usize = 64;

/// The columns and the ledgers for a pod, up to date.
pub(super) struct Parts {
    pub(super) node: Box<NodeAnswers>,
    pub(super) pods: Box<NodeAnswers>,
    pub(super) ledgers: Box<Ledgers>,
    /// The row of each slot.
    pub(super) row_of: Arc<Vec<RowId>>,
}

impl Parts {
    /// The columns of both groups of plugins.
    pub(super) fn columns(&self) -> [&NodeAnswers; 2] {
        [&self.node, &self.pods]
    }

    /// The cell of a node in the second column.
    #[inline]
    pub(super) fn pods_cell(&self, slot: Slot) -> Cell {
        let place = if self.pods.is_by_row {
            self.row_of[slot.index()] as usize
        } else {
            slot.index()
        };
        self.pods.cell(place)
    }

    /// The sum of the scores of a feasible node that need no scale, weights included.
    pub(super) fn sum(&self, slot: Slot) -> Sum {
        self.node.cell(slot.index()).score + self.pods_cell(slot).score
    }

    /// What a column by row answers about a node; the answers of columns by slot are in the classes.
    #[inline]
    pub(super) fn answer_by_row(&self, slot: Slot) -> NodeAnswer {
        if self.pods.is_by_row {
            self.pods_cell(slot).answer
        } else {
            FEASIBLE
        }
    }
}

/// The nodes of one class in a block about which a column by row has one answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockBest {
    pub(super) class: ClassId,
    pub(super) answer: NodeAnswer,
    /// The greatest sum.
    pub(super) sum: Sum,
    /// How many nodes have it.
    pub(super) nodes: u16,
    /// The number of all these nodes.
    pub(super) all: u16,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// The position in the changes of the classes and of the second column; `None` at first.
    seen: Option<[u64; 2]>,
    pub(super) blocks: Vec<SmallVec<[BlockBest; 2]>>,
    /// The number of entries of all blocks.
    entries: usize,
    /// A bit for each block that is to be read again.
    stale: Vec<u64>,
    /// Nodes with nominated pods that would change the answer of a ledger, or the order in which filters are asked.
    entangled: FxHashSet<Slot>,
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
        classes: &NodeClasses,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let all = [&classes.changes, &parts.pods.changes];
        let seen = all.map(Changes::end);
        if self.seen == Some(seen) {
            return Ok(());
        }
        let table = &evaluator.cluster.nodes;
        scratch.begin(table.slots());
        if let Some(before) = self.seen {
            for (changes, before) in all.into_iter().zip(before) {
                for slot in changes.since(before).ok_or(Unkeepable)? {
                    scratch.note(slot, Note::Answer);
                }
            }
        }
        let blocks = table.slots().div_ceil(BLOCK);
        for block in self.blocks.len()..blocks {
            if block % BLOCK == 0 {
                self.stale.push(0);
            }
            self.stale[block / BLOCK] |= 1 << (block % BLOCK);
        }
        self.blocks.resize(blocks, SmallVec::new());
        let has_nominations = !evaluator.nominated.is_empty();
        if self.seen.is_none() && has_nominations {
            scratch.begin_with_all(table);
        }
        for slot in scratch.noted() {
            self.memos.forget(*slot);
            self.mark_stale(*slot);
            if !self.entangled.is_empty() {
                self.entangled.remove(slot);
            }
            if has_nominations {
                self.note_entangled(evaluator, parts, *slot);
            }
        }
        self.seen = Some(seen);
        self.state += 1;
        self.read_blocks(parts, classes);
        Ok(())
    }

    /// The block of a node is to be read again.
    #[inline]
    fn mark_stale(&mut self, slot: Slot) {
        let block = slot.index() / BLOCK;
        self.stale[block / BLOCK] |= 1 << (block % BLOCK);
    }

    /// Reads the blocks again in which a node has changed.
    fn read_blocks(&mut self, parts: &Parts, classes: &NodeClasses) {
        for word in 0..self.stale.len() {
            let mut blocks = std::mem::take(&mut self.stale[word]);
            while blocks != 0 {
                let block = word * BLOCK + blocks.trailing_zeros() as usize;
                blocks &= blocks - 1;
                let mut best = std::mem::take(&mut self.blocks[block]);
                self.entries -= best.len();
                read_block(parts, classes, block, &mut best);
                self.entries += best.len();
                self.blocks[block] = best;
            }
        }
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
        classes: &mut NodeClasses,
    ) -> Result<(), Unkeepable> {
        let entangled: SmallVec<[Slot; 8]> = self.entangled.iter().copied().collect();
        for slot in entangled {
            if classes.count_nominated(evaluator, plan, parts, slot)? {
                self.mark_stale(slot);
            }
        }
        self.read_blocks(parts, classes);
        Ok(())
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
}

impl Keepable for Shape {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.blocks.capacity() * size_of::<SmallVec<[BlockBest; 2]>>()
            + self.entries * size_of::<BlockBest>()
    }
}

/// The slots of a block.
pub(super) fn slots_of(block: usize) -> impl Iterator<Item = Slot> {
    let start = (block * BLOCK) as u32;
    (start..start + BLOCK as u32).map(Slot::from_index)
}

fn read_block(
    parts: &Parts,
    classes: &NodeClasses,
    block: usize,
    best: &mut SmallVec<[BlockBest; 2]>,
) {
    best.clear();
    let start = block * BLOCK;
    // The class of the node before with the answer about it, and their place in the block.
    let (mut latest, mut place) = ((NO_CLASS, FEASIBLE), 0);
    let nodes = classes.class_of[start..]
        .iter()
        .zip(&parts.node.cells()[start..]);
    for (slot, (class, node)) in slots_of(block).zip(nodes) {
        if *class == NO_CLASS {
            continue;
        }
        let pods = parts.pods_cell(slot);
        let answer = if parts.pods.is_by_row {
            pods.answer
        } else {
            FEASIBLE
        };
        if latest != (*class, answer) {
            latest = (*class, answer);
            let known = best.iter().position(|of| (of.class, of.answer) == latest);
            place = known.unwrap_or_else(|| {
                best.push(BlockBest {
                    class: *class,
                    answer,
                    sum: Sum::MIN,
                    nodes: 0,
                    all: 0,
                });
                best.len() - 1
            });
        }
        let (of, sum) = (&mut best[place], node.score + pods.score);
        of.all += 1;
        if sum > of.sum {
            (of.sum, of.nodes) = (sum, 1);
        } else if sum == of.sum {
            of.nodes += 1;
        }
    }
}
