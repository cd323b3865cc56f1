//! The domains of one topology key: which nodes are in them, and how many pods count there.

use berth_api::Str;
use berth_framework::Slot;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The number of a domain. It is given anew when no node is in the domain any more.
pub(super) type Number = u32;

/// Where a node is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
    /// In no domain.
    const NOWHERE: Self = Self(u32::MAX);
    /// The node's pods count.
    const COUNTS: u32 = 1 << 31;
    /// The node has not got the label, and is where nodes with an empty one are.
    const UNLABELLED: u32 = 1 << 30;

    pub(super) fn domain(self) -> Option<Number> {
        (self != Self::NOWHERE).then_some(self.0 & !(Self::COUNTS | Self::UNLABELLED))
    }

    pub(super) fn counts(self) -> bool {
        self != Self::NOWHERE && self.0 & Self::COUNTS != 0
    }

    pub(super) fn is_unlabelled(self) -> bool {
        self == Self::NOWHERE || self.0 & Self::UNLABELLED != 0
    }
}

/// A domain.
#[derive(Debug, Default)]
pub(super) struct Domain {
    value: Str,
    /// How many nodes are in it.
    pub(super) nodes: u32,
    /// How many of them count. Without one there is no such domain, as far as constraints go.
    pub(super) counting: u32,
    /// The pods on those.
    pub(super) sum: i64,
}

impl Domain {
    pub(super) fn exists(&self) -> bool {
        self.counting > 0
    }
}

/// Where each node is to be, as its labels and the policies of the constraint say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    /// The label's value.
    pub(super) value: Option<&'a Str>,
    /// Whether nodes without the label are where those with an empty one are.
    pub(super) unlabelled_too: bool,
    /// Whether the pods of the node count.
    pub(super) counts: bool,
}

/// All domains of a key.
#[derive(Debug, Default)]
pub(super) struct Places {
    by_slot: Vec<Place>,
    domains: Vec<Domain>,
    by_value: FxHashMap<Str, Number>,
    free: Vec<Number>,
}

impl Places {
    pub(super) fn grow(&mut self, slots: usize) {
        if self.by_slot.len() < slots {
            self.by_slot.resize(slots, Place::NOWHERE);
        }
    }

    pub(super) fn of(&self, slot: Slot) -> Place {
        let place = self.by_slot.get(slot.index());
        place.copied().unwrap_or(Place::NOWHERE)
    }

    pub(super) fn domain(&self, number: Number) -> &Domain {
        &self.domains[number as usize]
    }

    /// The domain of nodes with an empty label, if there is one.
    pub(super) fn empty(&self) -> Option<Number> {
        self.by_value.get("").copied()
    }

    /// One more than the greatest number that was ever given.
    pub(super) fn numbers(&self) -> usize {
        self.domains.len()
    }

    /// The sums of the domains that exist.
    pub(super) fn sums(&self) -> impl Iterator<Item = i64> {
        let there = self.domains.iter().filter(|domain| domain.exists());
        there.map(|domain| domain.sum)
    }

    /// Adds pods on a node, or takes them off; tells the domain, where they count.
    pub(super) fn add(&mut self, slot: Slot, pods: i64) -> Option<Number> {
        let place = self.of(slot);
        let number = place.domain().filter(|_| place.counts())?;
        self.domains[number as usize].sum += pods;
        Some(number)
    }

    /// The domain that an entry is for, made if need be.
    pub(super) fn number(&mut self, entry: &Entry<'_>) -> Option<Number> {
        let empty = Str::default();
        let value = match entry.value {
            Some(value) => value,
            None if entry.unlabelled_too => &empty,
            None => return None,
        };
        if let Some(number) = self.by_value.get(value) {
            return Some(*number);
        }
        let fresh = Domain {
            value: value.clone(),
            ..Domain::default()
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.domains[number as usize] = fresh;
                number
            }
            None => {
                self.domains.push(fresh);
                Number::try_from(self.domains.len() - 1).unwrap_or(Number::MAX)
            }
        };
        self.by_value.insert(value.clone(), number);
        Some(number)
    }

    /// Puts a node with so many pods into its domain.
    pub(super) fn enter(&mut self, slot: Slot, entry: &Entry<'_>, pods: i64) {
        let Some(number) = self.number(entry) else {
            return;
        };
        let domain = &mut self.domains[number as usize];
        domain.nodes += 1;
        let mut place = number;
        if entry.counts {
            domain.counting += 1;
            domain.sum += pods;
            place |= Place::COUNTS;
        }
        if entry.value.is_none() {
            place |= Place::UNLABELLED;
        }
        self.by_slot[slot.index()] = Place(place);
    }

    /// Takes a node with so many pods out of its domain; see [`Places::forget_if_empty`].
    pub(super) fn leave(&mut self, slot: Slot, pods: i64) {
        let place = self.of(slot);
        let Some(number) = place.domain() else {
            return;
        };
        let domain = &mut self.domains[number as usize];
        domain.nodes -= 1;
        if place.counts() {
            domain.counting -= 1;
            domain.sum -= pods;
        }
        self.by_slot[slot.index()] = Place::NOWHERE;
    }

    /// Frees the number of a domain without nodes.
    pub(super) fn forget_if_empty(&mut self, number: Number) {
        let domain = &mut self.domains[number as usize];
        if domain.nodes == 0 {
            let value = std::mem::take(&mut domain.value);
            if self.by_value.remove(&value).is_some() {
                self.free.push(number);
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.by_slot.capacity() * size_of::<Place>()
            + self.domains.capacity() * size_of::<Domain>()
            + self.by_value.capacity() * (size_of::<(Str, Number)>() + 1)
            + self.free.capacity() * size_of::<Number>()
    }
}

/// The different domains among some, counted.
#[derive(Debug)]
pub(super) struct Distinct {
    seen: SmallVec<[u64; 16]>,
    count: usize,
}

impl Distinct {
    pub(super) fn new(numbers: usize) -> Self {
        Self {
            seen: SmallVec::from_elem(0, numbers.div_ceil(64)),
            count: 0,
        }
    }

    pub(super) fn insert(&mut self, number: Number) {
        let word = &mut self.seen[number as usize / 64];
        let bit = 1 << (number % 64);
        self.count += usize::from(*word & bit == 0);
        *word |= bit;
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }
}
