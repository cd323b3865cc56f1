//! The nodes of rows. The node at a place in the slot order of several rows is found without a walk over all of them.

use berth_framework::Slot;
use smallvec::SmallVec;
use std::ops::Range;

/// A row with fewer nodes than this, and than a part of all slots, lists them.
const FEW: usize = 16;
const FEW_PART_OF_SLOTS: usize = 128;

/// The slots of a word, and the words that are counted together.
const WORD_SLOTS: usize = u64::BITS as usize;
const BLOCK_WORDS: usize = 64;
const BLOCK_SLOTS: usize = BLOCK_WORDS * WORD_SLOTS;

/// Lists of so many nodes are read as a whole, when a node is looked for.
const POOLED: usize = 16;

/// The nodes of a row.
#[derive(Debug)]
pub(super) enum RowNodes {
    /// A list, in slot order.
    Few(Vec<Slot>),
    /// A bit for each slot.
    Many(SlotBits),
}

/// Slots as bits, counted by blocks.
#[derive(Debug, Default)]
pub(super) struct SlotBits {
    words: Vec<u64>,
    /// The slots of each block.
    blocks: Vec<u32>,
    len: usize,
}

impl Default for RowNodes {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl RowNodes {
    /// The most memory that all rows take, in bytes for each slot: a list has a slot for each node, and a row with bits,
    /// which takes a bit for each slot, has at least one of 256 slots.
    pub(super) const BYTES_PER_SLOT_MAX: usize =
        size_of::<Slot>() + 2 * FEW_PART_OF_SLOTS / u8::BITS as usize;

    /// The number of nodes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(slots) => slots.len(),
            Self::Many(bits) => bits.len,
        }
    }

    /// The nodes, in slot order.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        let (few, many) = match self {
            Self::Few(slots) => (Some(slots), None),
            Self::Many(bits) => (None, Some(bits)),
        };
        let few = few.into_iter().flatten().copied();
        few.chain(many.into_iter().flat_map(SlotBits::slots))
    }

    /// Adds a node that is not in the row; `slots` is the number of all slots.
    pub(super) fn insert(&mut self, slot: Slot, slots: usize) {
        match self {
            Self::Few(few) => {
                let (Ok(at) | Err(at)) = few.binary_search(&slot);
                few.insert(at, slot);
                if few.len() > FEW.max(slots / FEW_PART_OF_SLOTS) {
                    let mut bits = SlotBits::default();
                    few.iter().for_each(|slot| bits.insert(*slot));
                    *self = Self::Many(bits);
                }
            }
            Self::Many(bits) => bits.insert(slot),
        }
    }

    /// Removes a node of the row. A row becomes a list again when it has half as many nodes as one that ceases to be a
    /// list, so that adding and removing a node in turns costs little.
    pub(super) fn remove(&mut self, slot: Slot, slots: usize) {
        match self {
            Self::Few(few) => {
                if let Ok(at) = few.binary_search(&slot) {
                    few.remove(at);
                }
            }
            Self::Many(bits) => {
                bits.remove(slot);
                if bits.len < FEW.max(slots / FEW_PART_OF_SLOTS) / 2 {
                    *self = Self::Few(bits.slots().collect());
                }
            }
        }
    }
}

impl SlotBits {
    fn insert(&mut self, slot: Slot) {
        let (word, block) = (slot.index() / WORD_SLOTS, slot.index() / BLOCK_SLOTS);
        if self.blocks.len() <= block {
            self.blocks.resize(block + 1, 0);
            self.words.resize((block + 1) * BLOCK_WORDS, 0);
        }
        self.words[word] |= 1 << (slot.index() % WORD_SLOTS);
        self.blocks[block] += 1;
        self.len += 1;
    }

    fn remove(&mut self, slot: Slot) {
        self.words[slot.index() / WORD_SLOTS] &= !(1 << (slot.index() % WORD_SLOTS));
        self.blocks[slot.index() / BLOCK_SLOTS] -= 1;
        self.len -= 1;
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let bits = (0..WORD_SLOTS).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| slot_at(at, bit))
        })
    }
}

fn slot_at(word: usize, bit: usize) -> Slot {
    Slot::from_index((word * WORD_SLOTS + bit) as u32)
}

/// Some of the nodes of several rows.
#[derive(Debug)]
pub(super) struct SelectedNodes<'r> {
    /// They have no node in common.
    pub(super) rows: Vec<&'r RowNodes>,
    /// Nodes of these rows that do not count, in slot order.
    pub(super) without: Vec<Slot>,
    /// Nodes that count besides them, in slot order.
    pub(super) more: Vec<Slot>,
}

impl SlotBits {
    /// The number of nodes in some slots, which begin and end with a word.
    fn count(&self, slots: Range<usize>) -> usize {
        let words = |words: Range<usize>| -> u32 {
            let words = self.words.get(words.start..words.end.min(self.words.len()));
            words
                .into_iter()
                .flatten()
                .map(|word| word.count_ones())
                .sum()
        };
        let (start, end) = (slots.start / WORD_SLOTS, slots.end / WORD_SLOTS);
        // Whole blocks are counted already.
        let (first, last) = (start.div_ceil(BLOCK_WORDS), end / BLOCK_WORDS);
        if first >= last {
            return words(start..end) as usize;
        }
        let blocks = self.blocks.get(first..last.min(self.blocks.len()));
        let blocks: u32 = blocks.into_iter().flatten().sum();
        (words(start..first * BLOCK_WORDS) + blocks + words(last * BLOCK_WORDS..end)) as usize
    }
}

/// A list of nodes in slot order, of which one half is left again and again.
struct HalvedList<'a> {
    nodes: &'a [Slot],
    /// The number of nodes in the first half.
    first: usize,
}

impl<'a> HalvedList<'a> {
    fn of(nodes: &'a [Slot]) -> Self {
        Self { nodes, first: 0 }
    }

    /// Cuts it before a slot. Returns the number of nodes in the first half.
    fn cut(&mut self, slot: Slot) -> usize {
        self.first = self.nodes.partition_point(|node| *node < slot);
        self.first
    }

    /// Keeps the first half or the second. Returns whether it has nodes.
    fn keep(&mut self, is_first: bool) -> bool {
        let (first, second) = self.nodes.split_at(self.first);
        self.nodes = if is_first { first } else { second };
        !self.nodes.is_empty()
    }
}

/// Nodes as bits, when all of them are in one word.
fn word_of(nodes: &[Slot]) -> u64 {
    let bits = nodes.iter().map(|slot| 1 << (slot.index() % WORD_SLOTS));
    bits.fold(0, |all, bit: u64| all | bit)
}

/// The node at the place `n` in the slot order of those selected. `slots` is the number of all slots.
///
/// The slots are halved until a word of them is left: the number of nodes in the first half shows in which half the place
/// is. A list is halved as well, so that all lists together are read a few times, however many nodes they have.
pub(super) fn nth(selected: &SelectedNodes<'_>, slots: usize, n: usize) -> Option<Slot> {
    let mut bits: SmallVec<[&SlotBits; 8]> = SmallVec::new();
    let mut lists: Vec<HalvedList<'_>> = Vec::new();
    // The nodes of short lists, in any order: they are read one by one.
    let mut pool: Vec<Slot> = Vec::new();
    for row in &selected.rows {
        match row {
            RowNodes::Few(few) if few.len() <= POOLED => pool.extend_from_slice(few),
            RowNodes::Few(few) => lists.push(HalvedList::of(few)),
            RowNodes::Many(of_row) => bits.push(of_row),
        }
    }
    let mut more = HalvedList::of(&selected.more);
    let mut without = HalvedList::of(&selected.without);
    let (mut start, mut words, mut left) = (0, slots.div_ceil(WORD_SLOTS), n);
    while words > 1 {
        let half = match words {
            ..=BLOCK_WORDS => words / 2,
            // Whole blocks, whose slots are counted.
            _ => (words / 2).next_multiple_of(BLOCK_WORDS),
        };
        let middle = start + half;
        let first = Slot::from_index((middle * WORD_SLOTS) as u32);
        let in_lists: usize = lists.iter_mut().map(|list| list.cut(first)).sum();
        let in_pool = pool.iter().filter(|slot| **slot < first).count();
        let range = start * WORD_SLOTS..middle * WORD_SLOTS;
        let in_bits: usize = bits.iter().map(|bits| bits.count(range.clone())).sum();
        let here = in_lists + in_pool + in_bits + more.cut(first) - without.cut(first);
        let is_before = left < here;
        lists.retain_mut(|list| list.keep(is_before));
        pool.retain(|slot| (*slot < first) == is_before);
        more.keep(is_before);
        without.keep(is_before);
        if is_before {
            words = half;
        } else {
            left -= here;
            words -= half;
            start = middle;
        }
    }
    let in_bits = bits.iter().filter_map(|bits| bits.words.get(start));
    let in_lists = lists
        .iter()
        .fold(word_of(&pool), |all, list| all | word_of(list.nodes));
    let in_rows = in_bits.fold(in_lists, |all, bits| all | bits);
    let mut word = in_rows & !word_of(without.nodes) | word_of(more.nodes);
    if word.count_ones() as usize <= left {
        return None;
    }
    for _ in 0..left {
        word &= word - 1;
    }
    Some(slot_at(start, word.trailing_zeros() as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Nodes move between three rows of very different sizes, so that rows are lists, bits, and lists again.
    #[test]
    fn places_are_those_in_a_sorted_list() {
        const SLOTS: usize = 9000;
        let mut rng = fastrand::Rng::with_seed(1);
        let mut rows: [RowNodes; 3] = Default::default();
        let mut lists: [BTreeSet<Slot>; 3] = Default::default();
        let mut row_of = vec![3; SLOTS];
        let mut were_many = [0; 3];
        for round in 0..200 {
            // Rows fill and drain by turns.
            for _ in 0..1500 {
                let at = rng.usize(..SLOTS);
                let to = if rng.u8(..8) == 0 { 3 } else { round / 40 % 4 };
                let slot = Slot::from_index(at as u32);
                let from = std::mem::replace(&mut row_of[at], to);
                if from < 3 {
                    rows[from].remove(slot, SLOTS);
                    lists[from].remove(&slot);
                }
                if to < 3 {
                    rows[to].insert(slot, SLOTS);
                    lists[to].insert(slot);
                }
            }
            for of in [&[0][..], &[0, 1], &[2], &[0, 1, 2]] {
                let mut all: BTreeSet<Slot> =
                    of.iter().flat_map(|row| lists[*row].clone()).collect();
                let mut selected = SelectedNodes {
                    rows: of.iter().map(|row| &rows[*row]).collect(),
                    without: Vec::new(),
                    more: Vec::new(),
                };
                // Some of the nodes do not count, others do besides, and some of both.
                for slot in all.clone() {
                    if rng.u8(..16) == 0 {
                        selected.without.push(slot);
                        all.remove(&slot);
                    }
                }
                for slot in (0..SLOTS as u32).map(Slot::from_index) {
                    if rng.u8(..64) == 0 && !all.contains(&slot) {
                        selected.more.push(slot);
                    }
                }
                all.extend(&selected.more);
                let all: Vec<Slot> = all.into_iter().collect();
                for n in [
                    0,
                    rng.usize(..all.len().max(1)),
                    all.len().max(1) - 1,
                    all.len(),
                ] {
                    let found = nth(&selected, SLOTS, n);
                    assert_eq!(
                        found,
                        all.get(n).copied(),
                        "round {round}, rows {of:?}, {n}"
                    );
                }
            }
            for (row, list) in rows.iter().zip(&lists) {
                assert_eq!(row.len(), list.len());
                assert!(row.slots().eq(list.iter().copied()));
            }
            let many = rows.each_ref().map(|row| matches!(row, RowNodes::Many(_)));
            for (count, is_many) in were_many.iter_mut().zip(many) {
                *count += usize::from(is_many);
            }
        }
        assert!(
            were_many.iter().all(|count| (10..190).contains(count)),
            "{were_many:?}"
        );
    }
}
