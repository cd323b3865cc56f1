//! The nodes of each domain, as lists through an array.

use super::places::{DomainPlaces, Number};
use berth_framework::Slot;

const NO_SLOT: u32 = u32::MAX;

/// A node's neighbours in its domain.
#[derive(Debug, Clone, Copy)]
struct Links {
    before: u32,
    after: u32,
}

/// The nodes of each domain.
#[derive(Debug, Default)]
pub(super) struct DomainMembers {
    links: Vec<Links>,
    /// The first node of each domain, by its number.
    first: Vec<u32>,
}

fn at(slot: Slot) -> u32 {
    u32::try_from(slot.index()).unwrap_or(NO_SLOT)
}

impl DomainMembers {
    /// All pods, by their places.
    pub(super) fn of_all(places: &DomainPlaces) -> Self {
        let mut members = Self::default();
        members.grow(places.by_slot().len());
        for (place, slot) in places.by_slot().iter().zip(0..) {
            if let Some(domain) = place.domain() {
                members.insert(domain, Slot::from_index(slot));
            }
        }
        members
    }

    pub(super) fn grow(&mut self, slots: usize) {
        if self.links.len() < slots {
            let alone = Links {
                before: NO_SLOT,
                after: NO_SLOT,
            };
            self.links.resize(slots, alone);
        }
    }

    pub(super) fn insert(&mut self, domain: Number, slot: Slot) {
        let domain = domain as usize;
        if self.first.len() <= domain {
            self.first.resize(domain + 1, NO_SLOT);
        }
        let after = std::mem::replace(&mut self.first[domain], at(slot));
        if after != NO_SLOT {
            self.links[after as usize].before = at(slot);
        }
        self.links[slot.index()] = Links {
            before: NO_SLOT,
            after,
        };
    }

    pub(super) fn remove(&mut self, domain: Number, slot: Slot) {
        let Links { before, after } = self.links[slot.index()];
        match before {
            NO_SLOT => self.first[domain as usize] = after,
            before => self.links[before as usize].after = after,
        }
        if after != NO_SLOT {
            self.links[after as usize].before = before;
        }
    }

    /// The nodes of a domain, in no particular order.
    pub(super) fn of(&self, domain: Number) -> impl Iterator<Item = Slot> {
        let known = |at: u32| (at != NO_SLOT).then_some(at);
        let first = self.first.get(domain as usize).copied().and_then(known);
        std::iter::successors(first, move |at| known(self.links[*at as usize].after))
            .map(Slot::from_index)
    }

    pub(super) fn bytes(&self) -> usize {
        self.links.capacity() * size_of::<Links>() + self.first.capacity() * size_of::<u32>()
    }
}
