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

    /// One of the nodes.
    pub(super) fn some(&self) -> Option<Slot> {
        match self {
            Self::Few(slots) => slots.first().copied(),
            Self::Many(bits) => bits.slots().next(),
        }
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

/// The node at the place `n` in the slot order of several rows, which have none in common. `slots` is the number of all
/// slots, `listed` is a buffer whose memory is reused.
pub(super) fn nth<'r>(
    rows: impl Iterator<Item = &'r RowNodes>,
    slots: usize,
    n: usize,
    listed: &mut Vec<u64>,
) -> Option<Slot> {
    listed.clear();
    listed.resize(slots.div_ceil(WORD_SLOTS), 0);
    let mut counted: SmallVec<[&SlotBits; 8]> = SmallVec::new();
    for row in rows {
        match row {
            RowNodes::Few(few) => {
                for slot in few {
                    listed[slot.index() / WORD_SLOTS] |= 1 << (slot.index() % WORD_SLOTS);
                }
            }
            RowNodes::Many(bits) => counted.push(bits),
        }
    }
    // Whole blocks are passed over by their counts, then whole words by their bits.
    let mut left = n;
    for (block, listed) in listed.chunks(BLOCK_WORDS).enumerate() {
        let in_lists: u32 = listed.iter().map(|word| word.count_ones()).sum();
        let in_bits = counted.iter().filter_map(|bits| bits.blocks.get(block));
        let here = (in_lists + in_bits.sum::<u32>()) as usize;
        if left >= here {
            left -= here;
            continue;
        }
        for (at, word) in (block * BLOCK_WORDS..).zip(listed) {
            let in_bits = counted.iter().filter_map(|bits| bits.words.get(at));
            let mut word = in_bits.fold(*word, |all, bits| all | bits);
            let here = word.count_ones() as usize;
            if left >= here {
                left -= here;
                continue;
            }
            for _ in 0..left {
                word &= word - 1;
            }
            return Some(slot_at(at, word.trailing_zeros() as usize));
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
        let (mut room, mut were_many) = (Vec::new(), [0; 3]);
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
                let all: BTreeSet<Slot> = of.iter().flat_map(|row| lists[*row].clone()).collect();
                let all: Vec<Slot> = all.into_iter().collect();
                for n in [
                    0,
                    rng.usize(..all.len().max(1)),
                    all.len().max(1) - 1,
                    all.len(),
                ] {
                    let found = nth(of.iter().map(|row| &rows[*row]), SLOTS, n, &mut room);
                    assert_eq!(
                        found,
                        all.get(n).copied(),
                        "round {round}, rows {of:?}, {n}"
                    );
                }
            }
            for (row, list) in rows.iter().zip(&lists) {
                assert_eq!(row.len(), list.len());
                assert_eq!(row.some().is_some(), !list.is_empty());
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
