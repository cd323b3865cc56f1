//! Nodes by class: which of a class are feasible, and which of those score best.
//!
//! A class holds its feasible nodes in blocks of 64 slots: a mask of the members, the greatest score among them, and
//! a mask of those that have it. Of each 64 blocks it holds the greatest score and how many nodes have it. A change of
//! one node touches one block, and the best of a class is found among the maxima: of 1,000,000 nodes there are 245.

use berth_framework::Slot;
use berth_framework::keep::Class;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::Range;

/// A class among those of its shape.
pub(super) type ClassId = u16;

/// The greatest number of classes.
pub(super) const CLASSES_MAX: usize = 8192;

/// A sum of weighted scores.
pub(super) type Sum = i32;

/// The answer of a node, as an index into the shape's statuses; see [`FEASIBLE`] and [`NO_NODE`].
pub(super) type NodeAnswer = u16;

/// The answer of a node that no filter rejected.
pub(super) const FEASIBLE: NodeAnswer = 0;

/// There is no node.
pub(super) const NO_NODE: NodeAnswer = NodeAnswer::MAX;

const BLOCK: usize = u64::BITS as usize;

/// The best score of a class and how many nodes have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Best {
    pub(super) score: Sum,
    pub(super) nodes: u32,
}

impl Best {
    /// The best of both.
    fn join(&mut self, other: Self) {
        if other.nodes == 0 {
            return;
        }
        if self.nodes == 0 || other.score > self.score {
            *self = other;
        } else if other.score == self.score {
            self.nodes += other.nodes;
        }
    }
}

/// The nodes of one class.
#[derive(Debug, Default)]
pub(super) struct ClassSet {
    /// The numbers that make the class.
    pub(super) key: Class,
    /// False once the class was given up.
    is_in_use: bool,
    /// The number of nodes that gave each answer but [`FEASIBLE`].
    pub(super) rejected: SmallVec<[(NodeAnswer, u32); 2]>,
    /// The number of feasible nodes by the node itself.
    pub(super) feasible: usize,
    /// The block of each entry of the lists below; ascending.
    blocks: Vec<u32>,
    members: Vec<u64>,
    greatest: Vec<Sum>,
    best: Vec<u64>,
    /// By group of [`BLOCK`] blocks: the best of them; no nodes where there is none.
    groups: Vec<Best>,
    /// A bit for each group that is to be computed again.
    stale: Vec<u64>,
}

/// Feasible nodes of one class and one block, to be added together.
#[derive(Debug, Default)]
struct FeasibleBlock {
    block: u32,
    members: u64,
    /// The greatest score among the members, and those that have it.
    greatest: Sum,
    best: u64,
}

impl FeasibleBlock {
    fn of(slot: Slot, score: Sum) -> Self {
        let (block, bit) = split(slot);
        Self {
            block,
            members: bit,
            greatest: score,
            best: bit,
        }
    }

    /// Adds a node; false if it belongs to another block.
    #[inline]
    fn add(&mut self, slot: Slot, score: Sum) -> bool {
        let (block, bit) = split(slot);
        if self.block != block {
            return false;
        }
        self.members |= bit;
        match score.cmp(&self.greatest) {
            Ordering::Greater => (self.greatest, self.best) = (score, bit),
            Ordering::Equal => self.best |= bit,
            Ordering::Less => {}
        }
        true
    }
}

/// The number of classes that a [`Filling`] holds. A zone of a large cluster is a class of its own.
const FILLING_MAX: usize = 8;

/// Puts all nodes into their classes, in slot order. It holds the classes of the last nodes, so that most nodes need no
/// look-up, with the nodes of one block each.
#[derive(Debug, Default)]
pub(super) struct Filling {
    latest: SmallVec<[(Class, ClassId, Option<FeasibleBlock>); FILLING_MAX]>,
    /// The entry to be replaced next.
    oldest: usize,
    /// The entry of the selected class.
    selected: usize,
}

impl Filling {
    /// Selects the class of the nodes that are added next; `None` when there are too many.
    #[inline]
    pub(super) fn select(&mut self, classes: &mut NodeClasses, class: &Class) -> Option<()> {
        let known = self.latest.iter().position(|(known, ..)| known == class);
        self.selected = match known {
            Some(at) => at,
            None => self.replace_oldest(classes, class)?,
        };
        Some(())
    }

    /// Adds a node to the selected class; `None` when none was selected.
    #[inline]
    pub(super) fn add(
        &mut self,
        classes: &mut NodeClasses,
        slot: Slot,
        answer: NodeAnswer,
        score: Sum,
    ) -> Option<ClassId> {
        let (_, id, block) = self.latest.get_mut(self.selected)?;
        if answer != FEASIBLE {
            classes.add(*id, slot, answer, score);
        } else if !block.as_mut().is_some_and(|block| block.add(slot, score)) {
            let before = block.replace(FeasibleBlock::of(slot, score));
            classes.add_block(*id, before);
        }
        Some(*id)
    }

    fn replace_oldest(&mut self, classes: &mut NodeClasses, class: &Class) -> Option<usize> {
        let entry = (class.clone(), classes.id(class)?, None);
        if self.latest.len() < FILLING_MAX {
            self.latest.push(entry);
            return Some(self.latest.len() - 1);
        }
        let at = self.oldest;
        self.oldest = (at + 1) % FILLING_MAX;
        let (_, id, block) = std::mem::replace(&mut self.latest[at], entry);
        classes.add_block(id, block);
        Some(at)
    }

    /// Adds what is still held.
    pub(super) fn finish(self, classes: &mut NodeClasses) {
        for (_, id, block) in self.latest {
            classes.add_block(id, block);
        }
    }
}

fn split(slot: Slot) -> (u32, u64) {
    let index = slot.index();
    ((index / BLOCK) as u32, 1 << (index % BLOCK))
}

/// The slots of the bits of a mask.
fn slots(block: u32, mut mask: u64) -> impl Iterator<Item = Slot> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let bit = mask.trailing_zeros();
        mask &= mask - 1;
        Some(Slot::from_index(block * BLOCK as u32 + bit))
    })
}

impl ClassSet {
    fn is_empty(&self) -> bool {
        self.feasible == 0 && self.rejected.is_empty()
    }

    #[inline]
    fn add(&mut self, slot: Slot, answer: NodeAnswer, score: Sum) {
        if answer != FEASIBLE {
            match self.rejected.iter_mut().find(|(a, _)| *a == answer) {
                Some((_, count)) => *count += 1,
                None => self.rejected.push((answer, 1)),
            }
            return;
        }
        self.add_feasible(&FeasibleBlock::of(slot, score));
    }

    /// Adds feasible nodes of one block.
    #[inline]
    fn add_feasible(&mut self, added: &FeasibleBlock) {
        let FeasibleBlock {
            block,
            members,
            greatest: score,
            best,
        } = *added;
        self.touch(block);
        self.feasible += members.count_ones() as usize;
        // Nodes mostly come in slot order when there are many.
        let place = match self.blocks.last() {
            Some(last) if *last == block => Ok(self.blocks.len() - 1),
            Some(last) if *last < block => Err(self.blocks.len()),
            _ => self.blocks.binary_search(&block),
        };
        match place {
            Ok(at) => {
                self.members[at] |= members;
                if score > self.greatest[at] {
                    (self.greatest[at], self.best[at]) = (score, best);
                } else if score == self.greatest[at] {
                    self.best[at] |= best;
                }
            }
            Err(at) => {
                self.blocks.insert(at, block);
                self.members.insert(at, members);
                self.greatest.insert(at, score);
                self.best.insert(at, best);
            }
        }
    }

    /// Takes a node out. `scores` are those of all slots, that of this one as it was when it came in.
    fn remove(&mut self, slot: Slot, answer: NodeAnswer, scores: &[Sum]) {
        if answer != FEASIBLE {
            if let Some(at) = self.rejected.iter().position(|(a, _)| *a == answer) {
                self.rejected[at].1 -= 1;
                if self.rejected[at].1 == 0 {
                    self.rejected.swap_remove(at);
                }
            }
            return;
        }
        self.feasible -= 1;
        let (block, bit) = split(slot);
        self.touch(block);
        let Ok(at) = self.blocks.binary_search(&block) else {
            debug_assert!(false, "a feasible node is in a block of its class");
            return;
        };
        self.members[at] &= !bit;
        if self.members[at] == 0 {
            self.blocks.remove(at);
            self.members.remove(at);
            self.greatest.remove(at);
            self.best.remove(at);
            return;
        }
        self.worsen(at, bit, scores);
    }

    /// A feasible node has another score.
    fn rescore(&mut self, slot: Slot, scores: &[Sum]) {
        let (block, bit) = split(slot);
        self.touch(block);
        let Ok(at) = self.blocks.binary_search(&block) else {
            debug_assert!(false, "a feasible node is in a block of its class");
            return;
        };
        let score = scores[slot.index()];
        if score > self.greatest[at] {
            (self.greatest[at], self.best[at]) = (score, bit);
        } else if score == self.greatest[at] {
            self.best[at] |= bit;
        } else {
            self.worsen(at, bit, scores);
        }
    }

    /// A node is not, or no longer, among the best of the block at a place.
    fn worsen(&mut self, at: usize, bit: u64, scores: &[Sum]) {
        self.best[at] &= !bit;
        if self.best[at] != 0 {
            return;
        }
        let mut greatest = Sum::MIN;
        for slot in slots(self.blocks[at], self.members[at]) {
            let score = scores[slot.index()];
            let (_, bit) = split(slot);
            if score > greatest {
                greatest = score;
                self.best[at] = bit;
            } else if score == greatest {
                self.best[at] |= bit;
            }
        }
        self.greatest[at] = greatest;
    }

    /// A block changes.
    #[inline]
    fn touch(&mut self, block: u32) {
        let group = block as usize / BLOCK;
        if self.groups.len() <= group {
            self.groups.resize(group + 1, Best::default());
            self.stale.resize(group / BLOCK + 1, 0);
        }
        self.stale[group / BLOCK] |= 1 << (group % BLOCK);
    }

    /// The places of the blocks of a group in the lists.
    fn places(&self, group: usize) -> Range<usize> {
        let first = (group * BLOCK) as u32;
        let begin = self.blocks.partition_point(|block| *block < first);
        let blocks = self.blocks[begin..].iter();
        let blocks = blocks.take_while(|block| **block < first + BLOCK as u32);
        begin..begin + blocks.count()
    }

    /// The best score among the feasible nodes; `None` without any.
    pub(super) fn summit(&mut self) -> Option<Best> {
        for word in 0..self.stale.len() {
            for group in slots(word as u32, std::mem::take(&mut self.stale[word])) {
                let mut best = Best::default();
                for at in self.places(group.index()) {
                    best.join(Best {
                        score: self.greatest[at],
                        nodes: self.best[at].count_ones(),
                    });
                }
                self.groups[group.index()] = best;
            }
        }
        let mut summit = Best::default();
        self.groups.iter().for_each(|best| summit.join(*best));
        (summit.nodes > 0).then_some(summit)
    }

    /// Some feasible node.
    pub(super) fn any(&self) -> Option<Slot> {
        slots(*self.blocks.first()?, *self.members.first()?).next()
    }

    /// Every feasible node in slot order.
    pub(super) fn feasible_nodes(&self) -> impl Iterator<Item = Slot> {
        let blocks = self.blocks.iter().zip(&self.members);
        blocks.flat_map(|(block, members)| slots(*block, *members))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.blocks.capacity() * (4 + 8 + 4 + 8)
            + self.groups.capacity() * size_of::<Best>()
    }
}

/// All classes of a shape.
#[derive(Debug, Default)]
pub(super) struct NodeClasses {
    ids: FxHashMap<Class, ClassId>,
    sets: Vec<ClassSet>,
    free: Vec<ClassId>,
    /// The class that was asked for last: mostly it is asked for again.
    latest: ClassId,
}

impl NodeClasses {
    /// The class with these numbers, made when it is new; `None` when there are too many.
    pub(super) fn id(&mut self, key: &Class) -> Option<ClassId> {
        let latest = self.sets.get(self.latest as usize);
        if latest.is_some_and(|set| set.is_in_use && set.key == *key) {
            return Some(self.latest);
        }
        if let Some(id) = self.ids.get(key) {
            self.latest = *id;
            return Some(*id);
        }
        if self.ids.len() >= CLASSES_MAX {
            return None;
        }
        let set = ClassSet {
            key: key.clone(),
            is_in_use: true,
            ..ClassSet::default()
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.sets[id as usize] = set;
                id
            }
            None => {
                self.sets.push(set);
                self.sets.len() as ClassId - 1
            }
        };
        self.ids.insert(key.clone(), id);
        self.latest = id;
        Some(id)
    }

    /// A class.
    pub(super) fn get(&self, id: ClassId) -> &ClassSet {
        &self.sets[id as usize]
    }

    /// A class, to look for its best nodes.
    pub(super) fn get_mut(&mut self, id: ClassId) -> &mut ClassSet {
        &mut self.sets[id as usize]
    }

    /// Every class that has nodes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ClassId, &ClassSet)> {
        (0..).zip(&self.sets).filter(|(_, set)| !set.is_empty())
    }

    /// Puts a node into a class.
    #[inline]
    pub(super) fn add(&mut self, id: ClassId, slot: Slot, answer: NodeAnswer, score: Sum) {
        self.sets[id as usize].add(slot, answer, score);
    }

    /// Puts feasible nodes into a class.
    fn add_block(&mut self, id: ClassId, block: Option<FeasibleBlock>) {
        if let Some(block) = block {
            self.sets[id as usize].add_feasible(&block);
        }
    }

    /// A node of a class has another answer, or another score, which is among the `scores` by now.
    pub(super) fn change(
        &mut self,
        id: ClassId,
        slot: Slot,
        (before, answer): (NodeAnswer, NodeAnswer),
        scores: &[Sum],
    ) {
        let set = &mut self.sets[id as usize];
        if before == FEASIBLE && answer == FEASIBLE {
            set.rescore(slot, scores);
        } else {
            set.remove(slot, before, scores);
            set.add(slot, answer, scores[slot.index()]);
        }
    }

    /// Takes a node out of its class; see [`ClassSet::remove`]. A class without nodes is given up.
    pub(super) fn remove(&mut self, id: ClassId, slot: Slot, answer: NodeAnswer, scores: &[Sum]) {
        let set = &mut self.sets[id as usize];
        set.remove(slot, answer, scores);
        if set.is_empty() {
            let key = std::mem::take(&mut set.key);
            *set = ClassSet::default();
            self.ids.remove(&key);
            self.free.push(id);
        }
    }

    /// The `n`th in slot order of the nodes that are the best of these classes, whose summits were read last.
    pub(super) fn nth_of_best(&self, classes: &[(ClassId, Best)], mut n: u32) -> Option<Slot> {
        let sets = || {
            let classes = classes.iter();
            classes.map(|(id, best)| (&self.sets[*id as usize], best.score))
        };
        let groups = sets().map(|(set, _)| set.groups.len()).max()?;
        for group in 0..groups {
            let with_best = sets().filter(|(set, score)| {
                let best = set.groups.get(group);
                best.is_some_and(|best| best.nodes > 0 && best.score == *score)
            });
            let nodes = with_best.clone().map(|(set, _)| set.groups[group].nodes);
            let here: u32 = nodes.sum();
            if n >= here {
                n -= here;
                continue;
            }
            let mut masks = [0_u64; BLOCK];
            for (set, score) in with_best {
                for at in set.places(group).filter(|at| set.greatest[*at] == score) {
                    masks[set.blocks[at] as usize % BLOCK] |= set.best[at];
                }
            }
            for (block, mask) in masks.into_iter().enumerate() {
                let here = mask.count_ones();
                if n < here {
                    let block = (group * BLOCK + block) as u32;
                    return slots(block, mask).nth(n as usize);
                }
                n -= here;
            }
        }
        None
    }

    /// About how much memory they take.
    pub(super) fn bytes(&self) -> usize {
        let sets: usize = self.sets.iter().map(ClassSet::bytes).sum();
        sets + self.ids.capacity() * (size_of::<Class>() + 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    /// Random comings and goings, compared with a plain list.
    #[test]
    fn the_best_are_those_of_a_plain_list() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut classes = NodeClasses::default();
            // In two groups of blocks.
            let slot_of = |at: usize| {
                if at < 150 {
                    at
                } else {
                    at + BLOCK * BLOCK - 150
                }
            };
            let mut scores = vec![0; BLOCK * BLOCK + 150];
            let mut nodes: Vec<Option<(i64, NodeAnswer)>> = vec![None; scores.len()];
            for _ in 0..400 {
                let at = slot_of(rng.usize(..300));
                let slot = Slot::from_index(at as u32);
                if let Some((class, answer)) = &mut nodes[at]
                    && rng.bool()
                {
                    let id = classes.id(&smallvec![*class]).unwrap();
                    let before = std::mem::replace(answer, rng.u16(..3));
                    scores[at] = rng.i32(..5);
                    classes.change(id, slot, (before, *answer), &scores);
                    continue;
                }
                if let Some((class, answer)) = nodes[at].take() {
                    let id = classes.id(&smallvec![class]).unwrap();
                    classes.remove(id, slot, answer, &scores);
                }
                if rng.u8(..4) > 0 {
                    let class = rng.i64(..3);
                    let answer = rng.u16(..3);
                    scores[at] = rng.i32(..5);
                    let id = classes.id(&smallvec![class]).unwrap();
                    classes.add(id, slot, answer, scores[at]);
                    nodes[at] = Some((class, answer));
                }
            }
            let of = |class: i64| -> Vec<usize> {
                let here = |at: &usize| nodes[*at] == Some((class, FEASIBLE));
                (0..300).map(slot_of).filter(here).collect()
            };
            let mut tied = Vec::new();
            let mut expected = Vec::new();
            for class in 0..3 {
                let members = of(class);
                let id = classes.id(&smallvec![class]).unwrap();
                let set = classes.get_mut(id);
                let got: Vec<usize> = set.feasible_nodes().map(Slot::index).collect();
                assert_eq!(got, members, "seed {seed}");
                assert_eq!(set.feasible, members.len(), "seed {seed}");
                let best = members.iter().map(|at| scores[*at]).max();
                let summit = set.summit();
                assert_eq!(summit.map(|s| s.score), best, "seed {seed}");
                let Some(summit) = summit else { continue };
                let at_best = members.iter().filter(|at| scores[**at] == summit.score);
                assert_eq!(
                    summit.nodes as usize,
                    at_best.clone().count(),
                    "seed {seed}"
                );
                expected.extend(at_best.copied());
                tied.push((id, summit));
            }
            expected.sort_unstable();
            for (n, at) in expected.iter().enumerate() {
                let got = classes.nth_of_best(&tied, n as u32).map(Slot::index);
                assert_eq!(got, Some(*at), "seed {seed}");
            }
            assert_eq!(classes.nth_of_best(&tied, expected.len() as u32), None);
        }
    }
}
