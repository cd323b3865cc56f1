//! The domains of one topology key: which nodes are in them, and how many pods count there.

use berth_framework::Slot;
use berth_framework::table::{Held, Topology};

/// The number of a domain, as the node table gives it out.
pub(super) type Number = u32;

/// The place of a node, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
    /// In no domain.
    pub(super) const NOWHERE: Self = Self(Topology::NOWHERE);
    /// The node's pods count.
    const COUNTS: u32 = 1 << 31;
    /// The node has not got the label, and is where nodes with an empty one are.
    const UNLABELLED: u32 = 1 << 30;

    /// The place of a node that the topology puts there; [`Place::NOWHERE`] stays that.
    fn counting(number: Number) -> Self {
        Self(number | Self::COUNTS)
    }

    /// The position of a node with more details.
    pub(super) fn of(entry: &NodeEntry) -> Self {
        let mut place = entry.number;
        if entry.counts {
            place |= Self::COUNTS;
        }
        if entry.is_unlabelled {
            place |= Self::UNLABELLED;
        }
        Self(place)
    }

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
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct SpreadDomain {
    /// The number of nodes in it.
    pub(super) nodes: u32,
    /// The number of them that count. Without one there is no such domain, as far as constraints go.
    pub(super) counting: u32,
    /// The pods on those.
    pub(super) sum: i64,
}

impl SpreadDomain {
    pub(super) fn exists(&self) -> bool {
        self.counting > 0
    }
}

/// The desired place of a node, according to its labels and the policies of the constraint.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeEntry {
    /// The domain.
    pub(super) number: Number,
    /// Whether the node has not got the label.
    pub(super) is_unlabelled: bool,
    /// Whether the pods of the node count.
    pub(super) counts: bool,
}

/// All domains of a key.
#[derive(Debug, Default)]
pub(super) struct DomainPlaces {
    by_slot: Vec<Place>,
    domains: Vec<SpreadDomain>,
    /// Keeps the numbers as they are.
    _held: Held,
}

impl DomainPlaces {
    /// The nodes where `place_of` puts that of each slot and domain; without it, all of them where the topology does,
    /// and counted. `counts` has the slots with pods that count, and how many.
    pub(super) fn open(
        topology: &Topology,
        slots: usize,
        place_of: Option<&dyn Fn(Slot, Number) -> Place>,
        counts: impl Iterator<Item = (Slot, i64)>,
    ) -> Self {
        let (by_slot, domains) = (topology.by_slot().iter(), topology.nodes_of());
        let mut places = Self {
            by_slot: Vec::new(),
            domains: vec![SpreadDomain::default(); domains.len()],
            _held: topology.hold(),
        };
        if let Some(place_of) = place_of {
            let by_slot = by_slot.chain(std::iter::repeat(&Topology::NOWHERE));
            let place = |(slot, number): (u32, &Number)| place_of(Slot::from_index(slot), *number);
            places.by_slot = (0..).zip(by_slot).take(slots).map(place).collect();
            for place in &places.by_slot {
                if let Some(number) = place.domain() {
                    let domain = &mut places.domains[number as usize];
                    domain.nodes += 1;
                    domain.counting += u32::from(place.counts());
                }
            }
        } else {
            places.by_slot = by_slot.map(|number| Place::counting(*number)).collect();
            for (domain, nodes) in places.domains.iter_mut().zip(domains) {
                (domain.nodes, domain.counting) = (*nodes, *nodes);
            }
        }
        for (slot, pods) in counts {
            places.add(slot, pods);
        }
        places
    }

    pub(super) fn grow(&mut self, slots: usize) {
        if self.by_slot.len() < slots {
            self.by_slot.resize(slots, Place::NOWHERE);
        }
    }

    /// The nodes of a domain.
    pub(super) fn nodes_of(&self, number: Number) -> impl Iterator<Item = Slot> {
        let slots = (0..).zip(&self.by_slot);
        let there = slots.filter(move |(_, place)| place.domain() == Some(number));
        there
            .map(|(slot, _)| Slot::from_index(slot))
            .take(self.domain(number).nodes as usize)
    }

    pub(super) fn of(&self, slot: Slot) -> Place {
        let place = self.by_slot.get(slot.index());
        place.copied().unwrap_or(Place::NOWHERE)
    }

    pub(super) fn domain(&self, number: Number) -> SpreadDomain {
        let domain = self.domains.get(number as usize);
        domain.copied().unwrap_or_default()
    }

    /// The sums of the domains that exist.
    pub(super) fn sums(&self) -> impl Iterator<Item = i64> {
        let there = self.domains.iter().filter(|domain| domain.exists());
        there.map(|domain| domain.sum)
    }

    /// Adds pods on a node, or removes them; returns the domain, if they count.
    pub(super) fn add(&mut self, slot: Slot, pods: i64) -> Option<Number> {
        let place = self.of(slot);
        let number = place.domain().filter(|_| place.counts())?;
        self.domains[number as usize].sum += pods;
        Some(number)
    }

    /// Puts a node with so many pods into its domain.
    pub(super) fn enter(&mut self, slot: Slot, entry: &NodeEntry, pods: i64) {
        let number = entry.number as usize;
        if self.domains.len() <= number {
            self.domains.resize(number + 1, SpreadDomain::default());
        }
        let domain = &mut self.domains[number];
        domain.nodes += 1;
        if entry.counts {
            domain.counting += 1;
            domain.sum += pods;
        }
        self.by_slot[slot.index()] = Place::of(entry);
    }

    /// Takes a node with so many pods out of its domain.
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

    pub(super) fn bytes(&self) -> usize {
        self.by_slot.capacity() * size_of::<Place>()
            + self.domains.capacity() * size_of::<SpreadDomain>()
    }
}
