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

/// Lists of at most so many nodes are thrown together, when a node is looked for.
const SHORT_MAX: usize = 16;
/// So often a cut is made where the node probably is, if there are so many nodes.
const LIKELY_CUTS_MAX: u32 = 4;
const LIKELY_CUTS_NODES_MIN: usize = 1024;

/// The nodes of a row.
#[derive(Debug)]
pub(super) enum RowNodes {
    /// A list, in slot order. Where pods differ, most rows have a single node.
    Few(SmallVec<[Slot; 4]>),
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
        Self::Few(SmallVec::new())
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

/// A list of nodes in slot order, of which one part is left again and again.
struct CutList<'a> {
    nodes: &'a [Slot],
    /// The number of nodes in the first part.
    first: usize,
}

impl<'a> CutList<'a> {
    fn of(nodes: &'a [Slot]) -> Self {
        Self { nodes, first: 0 }
    }

    /// Cuts it before a slot. Returns the number of nodes in the first part.
    fn cut(&mut self, slot: Slot) -> usize {
        self.first = self.nodes.partition_point(|node| *node < slot);
        self.first
    }

    /// Keeps the first part or the second.
    fn keep(&mut self, is_first: bool) {
        let (first, second) = self.nodes.split_at(self.first);
        self.nodes = if is_first { first } else { second };
    }
}

/// The nodes of short lists, in any order, of which one part is left again and again.
#[derive(Debug, Default)]
pub(super) struct ShortLists {
    nodes: Vec<Slot>,
    /// Those before this place are left out.
    start: usize,
    /// The number of nodes in the first part.
    first: usize,
}

impl ShortLists {
    fn clear(&mut self) {
        self.nodes.clear();
        self.start = 0;
    }

    fn add(&mut self, nodes: &[Slot]) {
        // Most have one node: a call to copy memory takes longer.
        for node in nodes {
            self.nodes.push(*node);
        }
    }

    fn left(&self) -> &[Slot] {
        &self.nodes[self.start..]
    }

    /// Cuts them before a slot: the nodes of the first part come first. Returns their number.
    fn cut(&mut self, slot: Slot) -> usize {
        let nodes = &mut self.nodes[self.start..];
        let mut first = 0;
        for at in 0..nodes.len() {
            // Without a branch, which could not be predicted.
            nodes.swap(at, first);
            first += usize::from(nodes[first] < slot);
        }
        self.first = first;
        first
    }

    /// Keeps the first part or the second.
    fn keep(&mut self, is_first: bool) {
        let middle = self.start + self.first;
        if is_first {
            self.nodes.truncate(middle);
        } else {
            self.start = middle;
        }
    }
}

/// Nodes as bits, when all of them are in one word.
fn word_of(nodes: &[Slot]) -> u64 {
    let bits = nodes.iter().map(|slot| 1 << (slot.index() % WORD_SLOTS));
    bits.fold(0, |all, bit: u64| all | bit)
}

/// The slots of which a part is left again and again, until the node at a place is found.
#[derive(Debug, Clone, Copy)]
struct LeftSlots {
    /// The first word, and the number of words.
    start: usize,
    words: usize,
    /// The number of nodes, and the place of the one that is looked for among them.
    nodes: usize,
    place: usize,
    /// The number of cuts so far.
    cuts: u32,
}

impl LeftSlots {
    /// The number of words that should be in the first part. The nodes of most rows are spread evenly: then the first two
    /// cuts leave the small part of the slots where the node probably is. All others halve the slots.
    fn first_words(&self) -> usize {
        let half = self.words / 2;
        let mut aim = half;
        if self.cuts < LIKELY_CUTS_MAX && self.nodes >= LIKELY_CUTS_NODES_MIN {
            let part = |nodes: usize| self.words * nodes / self.nodes;
            let (likely, error) = (part(self.place), part(2 * self.nodes.isqrt()));
            aim = if likely < half {
                likely + error
            } else {
                likely.saturating_sub(error)
            };
        }
        if self.words > BLOCK_WORDS {
            // Whole blocks, whose slots are counted.
            aim = aim.next_multiple_of(BLOCK_WORDS);
        }
        if (1..self.words).contains(&aim) {
            aim
        } else {
            half
        }
    }

    /// Keeps the first part with so many words and nodes, or the other. Returns whether it is the first.
    fn keep(&mut self, words: usize, nodes: usize) -> bool {
        let is_first = self.place < nodes;
        if is_first {
            (self.words, self.nodes) = (words, nodes);
        } else {
            self.place -= nodes;
            self.start += words;
            self.words -= words;
            self.nodes = self.nodes.saturating_sub(nodes);
        }
        self.cuts += 1;
        is_first
    }
}

/// The node at the place `n` in the slot order of those selected. `slots` is the number of all slots, and `short` a buffer.
///
/// The slots are cut in two until a word of them is left: the number of nodes in the first part shows in which one the place
/// is. A list is cut as well, so that all lists together are read a few times, however many nodes they have. When it is
/// short, it is thrown together with the others.
pub(super) fn nth(
    selected: &SelectedNodes<'_>,
    slots: usize,
    n: usize,
    short: &mut ShortLists,
) -> Option<Slot> {
    let mut bits: SmallVec<[&SlotBits; 8]> = SmallVec::new();
    let mut lists: Vec<CutList<'_>> = Vec::new();
    short.clear();
    for row in &selected.rows {
        match row {
            RowNodes::Few(few) if few.len() <= SHORT_MAX => short.add(few),
            RowNodes::Few(few) => lists.push(CutList::of(few)),
            RowNodes::Many(of_row) => bits.push(of_row),
        }
    }
    let mut more = CutList::of(&selected.more);
    let mut without = CutList::of(&selected.without);
    let in_rows: usize = selected.rows.iter().map(|row| row.len()).sum();
    let mut left = LeftSlots {
        start: 0,
        words: slots.div_ceil(WORD_SLOTS),
        nodes: (in_rows + selected.more.len()).saturating_sub(selected.without.len()),
        place: n,
        cuts: 0,
    };
    while left.words > 1 {
        let words = left.first_words();
        let middle = left.start + words;
        let first = Slot::from_index((middle * WORD_SLOTS) as u32);
        let in_lists: usize = lists.iter_mut().map(|list| list.cut(first)).sum();
        let range = left.start * WORD_SLOTS..middle * WORD_SLOTS;
        let in_bits: usize = bits.iter().map(|bits| bits.count(range.clone())).sum();
        let nodes = in_lists + short.cut(first) + in_bits + more.cut(first) - without.cut(first);
        let is_first = left.keep(words, nodes);
        short.keep(is_first);
        lists.retain_mut(|list| {
            list.keep(is_first);
            let is_short = list.nodes.len() <= SHORT_MAX;
            if is_short {
                short.add(list.nodes);
            }
            !is_short
        });
        more.keep(is_first);
        without.keep(is_first);
    }
    let in_bits = bits.iter().filter_map(|bits| bits.words.get(left.start));
    let in_lists = lists
        .iter()
        .fold(word_of(short.left()), |all, list| all | word_of(list.nodes));
    let in_rows = in_bits.fold(in_lists, |all, bits| all | bits);
    let mut word = in_rows & !word_of(without.nodes) | word_of(more.nodes);
    if word.count_ones() as usize <= left.place {
        return None;
    }
    for _ in 0..left.place {
        word &= word - 1;
    }
    Some(slot_at(left.start, word.trailing_zeros() as usize))
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
        let mut short = ShortLists::default();
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
                    let found = nth(&selected, SLOTS, n, &mut short);
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
