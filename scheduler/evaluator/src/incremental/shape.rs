//! The shape of a pod: the kept answers for all pods with the same fragments, in addition to the columns and classes that pods
//! of other shapes share.
//!
//! The shape knows the greatest sum in each class for each block of 64 nodes, and for each group of 64 blocks, so that a
//! decision reads groups instead of nodes. After a change of a node, its block is read again.

use super::cell::{Answer, Cell, NO_NODE};
use super::changes::{Changes, has_nominated};
use super::classes::{ClassId, NO_CLASS};
use super::column::Column;
use super::ledgers::Ledgers;
use super::node_classes::NodeClasses;
use super::plan::{Plan, Unkeepable};
use super::rows::{RowId, Rows};
use super::scratch::Scratch;
use super::store::Keepable;
use crate::{Evaluator, Memos};
use berth_framework::Slot;
use berth_framework::vectors::in_vectors;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// The number of nodes of a block, and of blocks of a group: all are read again after a change of one.
pub(super) const BLOCK: usize = 64;

/// The columns for a pod, up to date.
pub(super) struct PodColumns<'a> {
    pub(super) node: &'a mut Column,
    pub(super) pods: &'a mut Column,
    pub(super) rows: &'a Rows,
}

impl PodColumns<'_> {
    /// The columns of both groups of plugins.
    pub(super) fn both(&self) -> [&Column; 2] {
        [self.node, self.pods]
    }

    /// What the second column answers about a node, and the sum of the scores of a feasible node that are not normalised,
    /// weights included.
    #[inline]
    pub(super) fn of(&self, slot: Slot) -> (Answer, i32) {
        let place = if self.pods.is_by_row {
            self.rows.of(slot).map(|row| row as usize)
        } else {
            Some(slot.index())
        };
        let Some(place) = place else {
            return (NO_NODE, 0);
        };
        let sum = self.node.cells[slot.index()].sum() + self.pods.cells[place].sum();
        (self.pods.answer(place), sum)
    }
}

/// The nodes of one class in a block about which the second column has one answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockBest {
    pub(super) class: ClassId,
    pub(super) answer: Answer,
    /// The greatest sum.
    pub(super) sum: i32,
    /// How many nodes have it.
    pub(super) nodes: u16,
    /// The number of all these nodes.
    pub(super) all: u16,
}

/// One entry for each class and answer.
pub(super) type Entries = SmallVec<[BlockBest; 2]>;

/// The maximum number of entries of a group, and of rows from which a block is read. Beyond it, the search for an entry takes
/// longer than reading the blocks or the nodes.
const MERGED_MAX: usize = 16;

/// Merges the entries of blocks into one group. It is left empty if it would have too many entries: decisions read the blocks of
/// an empty group.
fn merge(group: &mut Entries, blocks: &[Entries]) {
    group.clear();
    for of in blocks.iter().flatten() {
        let mut known = group.iter();
        match known.position(|best| best.class == of.class && best.answer == of.answer) {
            Some(at) => group[at].add(of.sum, of.nodes, of.all),
            None if group.len() < MERGED_MAX => group.push(*of),
            None => return group.clear(),
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// The position in the changes of the classes and of the second column; `None` at first.
    seen: Option<[u64; 2]>,
    pub(super) blocks: Vec<Entries>,
    /// The merged entries of [`BLOCK`] blocks each; see [`merge`].
    pub(super) groups: Vec<Entries>,
    /// The bytes of the blocks whose entries are on the heap.
    on_heap: usize,
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
        columns: &PodColumns<'_>,
        classes: &NodeClasses,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let all = [&classes.changes, &columns.pods.changes];
        let seen = all.map(Changes::end);
        if self.seen == Some(seen) {
            return Ok(());
        }
        let table = &evaluator.cluster.nodes;
        scratch.begin();
        if let Some(before) = self.seen {
            for (changes, before) in all.into_iter().zip(before) {
                for slot in changes.since(before).ok_or(Unkeepable)? {
                    scratch.note(slot);
                }
            }
        }
        // New blocks are stale.
        let blocks = table.slots().div_ceil(BLOCK);
        for block in self.blocks.len()..blocks {
            self.stale.resize(block / BLOCK + 1, 0);
            self.stale[block / BLOCK] |= 1 << (block % BLOCK);
        }
        self.blocks.resize(blocks, Entries::new());
        let groups = blocks.div_ceil(BLOCK);
        self.groups.resize(groups, Entries::new());
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
            if has_nominations && is_entangled(evaluator, columns, classes, *slot) {
                self.entangled.insert(*slot);
            }
        }
        self.seen = Some(seen);
        self.state += 1;
        self.read_blocks(columns, classes);
        Ok(())
    }

    /// The block of a node is to be read again.
    fn mark_stale(&mut self, slot: Slot) {
        let block = slot.index() / BLOCK;
        self.stale[block / BLOCK] |= 1 << (block % BLOCK);
    }

    /// Reads the blocks again in which a node has changed.
    fn read_blocks(&mut self, columns: &PodColumns<'_>, classes: &NodeClasses) {
        for (word, (stale, group)) in self.stale.iter_mut().zip(&mut self.groups).enumerate() {
            let mut stale = std::mem::take(stale);
            if stale == 0 {
                continue;
            }
            let (blocks, heap) = (&mut self.blocks, &mut self.on_heap);
            in_vectors(
                #[inline(always)]
                || {
                    while stale != 0 {
                        let block = word * BLOCK + stale.trailing_zeros() as usize;
                        stale &= stale - 1;
                        let best = &mut blocks[block];
                        *heap -= on_heap(best);
                        read_block(columns, classes, block, best);
                        *heap += on_heap(best);
                    }
                },
            );
            let end = (word * BLOCK + BLOCK).min(self.blocks.len());
            merge(group, &self.blocks[word * BLOCK..end]);
        }
    }

    /// The entries of all groups, or of their blocks.
    pub(super) fn entries(&self) -> impl Iterator<Item = &BlockBest> {
        let groups = self.groups.iter().zip(self.blocks.chunks(BLOCK));
        groups.flat_map(|(group, blocks)| {
            let blocks = if group.is_empty() { blocks } else { &[] };
            group.iter().chain(blocks.iter().flatten())
        })
    }

    /// Rejects the nodes that a ledger rejects with the pods that are nominated to them (C-18). That holds for the
    /// evaluator's pod alone: these nodes are evaluated again for the next pod.
    pub(super) fn count_nominated(
        &mut self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        columns: &PodColumns<'_>,
        classes: &mut NodeClasses,
    ) -> Result<(), Unkeepable> {
        let entangled: SmallVec<[Slot; 8]> = self.entangled.iter().copied().collect();
        for slot in entangled {
            if classes.count_nominated(evaluator, plan, slot)? {
                self.mark_stale(slot);
            }
        }
        self.read_blocks(columns, classes);
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

    /// Takes the findings back, unless the shape has changed since they were lent.
    pub(super) fn revert(&mut self, memos: Memos) {
        if memos.state == self.state {
            self.memos = memos;
        }
    }
}

impl Keepable for Shape {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.blocks.capacity() * size_of::<Entries>()
            + self.groups.capacity() * size_of::<Entries>()
            + self.on_heap
    }
}

/// The bytes of the entries of a block that are on the heap.
fn on_heap(block: &Entries) -> usize {
    if block.spilled() {
        block.capacity() * size_of::<BlockBest>()
    } else {
        0
    }
}

/// Returns whether pods are nominated to a node that concern a ledger, or without which a filter rejects the node: a ledger
/// that rejects it anyway is asked before.
fn is_entangled(
    evaluator: &Evaluator<'_>,
    columns: &PodColumns<'_>,
    classes: &NodeClasses,
    slot: Slot,
) -> bool {
    let cx = evaluator.context();
    let priority = columns.pods.pod.pod.priority();
    columns.pods.needs_nominated(slot)
        || has_nominated(evaluator, slot, |pod| {
            pod.pod.priority() >= priority && classes.ledgers.concern(&cx, pod)
        })
}

/// The slots of a block.
pub(super) fn slots_of(block: usize) -> impl Iterator<Item = Slot> {
    let start = (block * BLOCK) as u32;
    (start..start + BLOCK as u32).map(Slot::from_index)
}

/// The key of a slot without a node.
const NO_KEY: u32 = u32::MAX;

/// The class and the answer that an entry is for, as one number.
#[inline(always)]
fn key_of(class: ClassId, answer: Answer) -> u32 {
    if class == NO_CLASS {
        NO_KEY
    } else {
        u32::from(answer) << ClassId::BITS | u32::from(class)
    }
}

/// Finds the greatest sum of each class in a block.
#[inline(always)]
fn read_block(columns: &PodColumns<'_>, classes: &NodeClasses, block: usize, best: &mut Entries) {
    let of_class: &[ClassId; BLOCK] = &classes.class_of.as_chunks().0[block];
    let of_node: &[Cell; BLOCK] = &columns.node.cells.as_chunks().0[block];
    let pods = &columns.pods;
    best.clear();
    let rows = columns.rows.of_block(block);
    if pods.is_by_row && classes.is_uniform(block) && rows.len() <= MERGED_MAX {
        // The nodes differ in their rows alone.
        let (class, sum) = (of_class[0], of_node[0].sum());
        for (row, nodes) in rows {
            let cell = pods.cells[*row as usize];
            let (key, sum) = (key_of(class, cell.answer()), sum + cell.sum());
            match best
                .iter_mut()
                .find(|best| key_of(best.class, best.answer) == key)
            {
                Some(best) => best.add(sum, *nodes, *nodes),
                None => best.push(BlockBest::new(key, sum, *nodes, *nodes)),
            }
        }
        return;
    }
    let mut of_pods = [Cell::NO_NODE; BLOCK];
    if pods.is_by_row {
        let rows: &[RowId; BLOCK] = &columns.rows.row_of.as_chunks().0[block];
        for (of_pods, row) in of_pods.iter_mut().zip(rows) {
            *of_pods = pods.cells.get(*row as usize).copied().unwrap_or(*of_pods);
        }
    } else {
        of_pods = pods.cells.as_chunks().0[block];
    }
    let (mut keys, mut sums) = ([NO_KEY; BLOCK], [0; BLOCK]);
    for at in 0..BLOCK {
        keys[at] = key_of(of_class[at], of_pods[at].answer());
        sums[at] = of_node[at].sum() + of_pods[at].sum();
    }
    if !pods.answers.is_empty() {
        let answers: &[Answer; BLOCK] = &pods.answers.as_chunks().0[block];
        for at in 0..BLOCK {
            keys[at] = key_of(of_class[at], answers[at]);
        }
    }
    add_entries(&mut keys, &sums, best);
}

/// Adds an entry for each key. The nodes of one key are found together, in two passes over all.
#[inline(always)]
fn add_entries(keys: &mut [u32; BLOCK], sums: &[i32; BLOCK], entries: &mut Entries) {
    let mut left: u16 = 0;
    for key in &*keys {
        left += u16::from(*key != NO_KEY);
    }
    for first in 0..BLOCK {
        let key = keys[first];
        if key == NO_KEY {
            continue;
        }
        let mut greatest = i32::MIN;
        for at in 0..BLOCK {
            greatest = greatest.max(if keys[at] == key { sums[at] } else { i32::MIN });
        }
        let (mut nodes, mut all) = (0, 0);
        for at in 0..BLOCK {
            let is_equal = keys[at] == key;
            all += u16::from(is_equal);
            nodes += u16::from(is_equal & (sums[at] == greatest));
            keys[at] = if is_equal { NO_KEY } else { keys[at] };
        }
        entries.push(BlockBest::new(key, greatest, nodes, all));
        left -= all;
        if left == 0 {
            return;
        }
    }
}

impl BlockBest {
    #[inline(always)]
    fn new(key: u32, sum: i32, nodes: u16, all: u16) -> Self {
        Self {
            class: key as ClassId,
            answer: (key >> ClassId::BITS) as Answer,
            sum,
            nodes,
            all,
        }
    }

    /// Adds nodes, and how many of them have the greatest sum.
    #[inline(always)]
    fn add(&mut self, sum: i32, nodes: u16, all: u16) {
        self.all += all;
        // Without branches: which of the sums is greater is hard to foresee.
        let kept = if sum > self.sum { 0 } else { self.nodes };
        self.nodes = kept + if sum < self.sum { 0 } else { nodes };
        self.sum = self.sum.max(sum);
    }
}
