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
use super::rows::Rows;
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

/// The maximum number of entries of a group. With more, the search for an entry costs more than reading the blocks.
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
    #[inline]
    fn mark_stale(&mut self, slot: Slot) {
        let block = slot.index() / BLOCK;
        self.stale[block / BLOCK] |= 1 << (block % BLOCK);
    }

    /// Reads the blocks again in which a node has changed.
    fn read_blocks(&mut self, columns: &PodColumns<'_>, classes: &NodeClasses) {
        // All blocks are read into one place: to clear it takes longer than to read a block of a few rows.
        let (mut keys, mut sums, mut nodes) = ([0; BLOCK], [0; BLOCK], [0; BLOCK]);
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
                        let (keys, sums, nodes) = (&mut keys, &mut sums, &mut nodes);
                        let len = read_block(columns, classes, block, keys, sums, nodes);
                        best.clear();
                        add_entries(&mut keys[..len], &sums[..len], &nodes[..len], best);
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

/// Reads the nodes of a block, or its rows: of each the [key](key_of) of its entry, the sum, and the number of nodes. Returns
/// how many there are.
#[inline(always)]
fn read_block(
    columns: &PodColumns<'_>,
    classes: &NodeClasses,
    block: usize,
    keys: &mut [u32; BLOCK],
    sums: &mut [i32; BLOCK],
    nodes: &mut [u32; BLOCK],
) -> usize {
    let start = block * BLOCK;
    let end = (start + BLOCK).min(classes.class_of.len());
    let of_class = &classes.class_of[start..end];
    let of_node = &columns.node.cells[start..end];
    let cells = &columns.pods.cells;
    let mut len = end - start;
    if columns.pods.is_by_row && classes.is_uniform(block) {
        // The nodes differ in their rows alone.
        let of_rows = columns.rows.of_block(block);
        len = of_rows.len();
        let sum = of_node[0].sum();
        for (at, (row, of_row)) in of_rows.iter().enumerate().take(BLOCK) {
            let cell = cells[*row as usize];
            keys[at] = key_of(of_class[0], cell.answer());
            sums[at] = sum + cell.sum();
            nodes[at] = u32::from(*of_row);
        }
    } else {
        let by_row = columns.pods.is_by_row.then_some(&columns.rows.row_of);
        // The cells of slots are next to each other, the cells of rows are not.
        let mut of_rows = [Cell::NO_NODE; BLOCK];
        let of_pods = match by_row {
            Some(rows) => {
                for (of_row, row) in of_rows.iter_mut().zip(&rows[start..end]) {
                    *of_row = cells.get(*row as usize).copied().unwrap_or(*of_row);
                }
                &of_rows[..len]
            }
            None => &cells[start..end],
        };
        let of_nodes = of_class.iter().zip(of_node.iter().zip(of_pods));
        for ((key, sum), (class, (of_node, of_pods))) in
            keys.iter_mut().zip(&mut *sums).zip(of_nodes)
        {
            *key = key_of(*class, of_pods.answer());
            *sum = of_node.sum() + of_pods.sum();
        }
        let answers = &columns.pods.answers;
        if !answers.is_empty() {
            let of_nodes = of_class.iter().zip(&answers[start..end]);
            for (key, (class, answer)) in keys.iter_mut().zip(of_nodes) {
                *key = key_of(*class, *answer);
            }
        }
        nodes[..len].fill(1);
    }
    len
}

/// Adds an entry for each key. The parts of one key are found together, in two passes over all.
#[inline(always)]
fn add_entries(keys: &mut [u32], sums: &[i32], nodes: &[u32], entries: &mut Entries) {
    let mut left: u32 = nodes.iter().sum();
    for first in 0..keys.len() {
        let key = keys[first];
        if key == NO_KEY {
            continue;
        }
        let mut greatest = i32::MIN;
        for (of, sum) in keys.iter().zip(sums) {
            greatest = greatest.max(if *of == key { *sum } else { i32::MIN });
        }
        let (mut with_greatest, mut all) = (0, 0);
        for (of, (sum, nodes)) in keys.iter_mut().zip(sums.iter().zip(nodes)) {
            let nodes = if *of == key { *nodes } else { 0 };
            all += nodes;
            with_greatest += if *sum == greatest { nodes } else { 0 };
            *of = if *of == key { NO_KEY } else { *of };
        }
        entries.push(BlockBest {
            class: key as ClassId,
            answer: (key >> ClassId::BITS) as Answer,
            sum: greatest,
            // At most the nodes of a block.
            nodes: with_greatest as u16,
            all: all as u16,
        });
        left -= all;
        if left == 0 {
            return;
        }
    }
}

impl BlockBest {
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
