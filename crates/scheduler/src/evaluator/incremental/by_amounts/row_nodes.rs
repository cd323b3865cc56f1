//! The nodes of rows. The node at a place in the slot order of several rows is found without a walk over all of them.

use berth_framework::Slot;
use smallvec::SmallVec;

/// A row with fewer nodes than this, and than a part of all slots, lists them.
const FEW: usize = 16;
const FEW_PART_OF_SLOTS: usize = 128;

/// The slots of a word, and the words that are counted together.
const WORD_SLOTS: usize = u64::BITS as usize;
const BLOCK_WORDS: usize = 64;
const BLOCK_SLOTS: usize = BLOCK_WORDS * WORD_SLOTS;

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
    /// Nodes of these rows that do not count.
    pub(super) without: Vec<Slot>,
    /// Nodes that count besides them.
    pub(super) more: Vec<Slot>,
}

/// Buffers whose memory is reused: a bit for each slot.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    listed: Vec<u64>,
    without: Vec<u64>,
}

fn fill(bits: &mut Vec<u64>, slots: usize, nodes: &[Slot]) {
    bits.clear();
    bits.resize(slots.div_ceil(WORD_SLOTS), 0);
    set(bits, nodes);
}

fn set(bits: &mut [u64], nodes: &[Slot]) {
    for slot in nodes {
        bits[slot.index() / WORD_SLOTS] |= 1 << (slot.index() % WORD_SLOTS);
    }
}

/// The node at the place `n` in the slot order of those selected. `slots` is the number of all slots.
pub(super) fn nth(
    selected: &SelectedNodes<'_>,
    slots: usize,
    n: usize,
    buffers: &mut Buffers,
) -> Option<Slot> {
    let Buffers { listed, without } = buffers;
    let mut counted: SmallVec<[&SlotBits; 8]> = SmallVec::new();
    fill(listed, slots, &[]);
    for row in &selected.rows {
        match row {
            RowNodes::Few(few) => set(listed, few),
            RowNodes::Many(bits) => counted.push(bits),
        }
    }
    let has_without = !selected.without.is_empty();
    if has_without {
        fill(without, slots, &selected.without);
        // Nodes that do not count are either in lists or in counted bits.
        for (listed, without) in listed.iter_mut().zip(without.iter_mut()) {
            (*listed, *without) = (*listed & !*without, *without & !*listed);
        }
    }
    set(listed, &selected.more);
    // Whole blocks are passed over by their counts, then whole words by their bits.
    let mut left = n;
    let ones = |words: &[u64]| words.iter().map(|word| word.count_ones()).sum::<u32>();
    for (block, in_lists) in listed.chunks(BLOCK_WORDS).enumerate() {
        let first = block * BLOCK_WORDS;
        let without = has_without.then(|| &without[first..first + in_lists.len()]);
        let in_bits = counted.iter().filter_map(|bits| bits.blocks.get(block));
        let here = ones(in_lists) + in_bits.sum::<u32>() - without.map_or(0, ones);
        let here = here as usize;
        if left >= here {
            left -= here;
            continue;
        }
        for (at, listed) in in_lists.iter().enumerate() {
            let in_bits = counted.iter().filter_map(|bits| bits.words.get(first + at));
            let in_bits = in_bits.fold(0, |all, bits| all | bits);
            let mut word = listed | (in_bits & !without.map_or(0, |without| without[at]));
            let here = word.count_ones() as usize;
            if left >= here {
                left -= here;
                continue;
            }
            for _ in 0..left {
                word &= word - 1;
            }
            return Some(slot_at(first + at, word.trailing_zeros() as usize));
        }
    }
    None
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
        let (mut buffers, mut were_many) = (Buffers::default(), [0; 3]);
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
                    let found = nth(&selected, SLOTS, n, &mut buffers);
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
