//! `DoNotSchedule`: the books of one constraint.

use super::super::constraints::Constraint;
use super::super::{REASON_NO_DOMAIN, REASON_SKEW};
use super::MISSING;
use super::levels::Levels;
use super::members::DomainMembers;
use super::places::{DomainPlaces, NodeEntry, Number};
use berth_framework::{ReasonCode, Slot, Status};

/// Domains of up to so many nodes are distinguished by how many pods they have; larger ones by their number. A pod that
/// comes changes the class of so many nodes at most.
const FEW_NODES: u32 = 16;

/// A constraint with the pods of each of its domains.
#[derive(Debug)]
pub(super) struct Hard {
    pub(super) constraint: Constraint,
    /// The tally that has the counts of its selector.
    pub(super) tally: usize,
    /// One when the pod counts for its own constraint.
    own: i64,
    places: DomainPlaces,
    /// The nodes of each domain; built at the first use; for hosts there is none.
    members: Option<DomainMembers>,
    levels: Levels,
}

impl Hard {
    pub(super) fn new(
        constraint: Constraint,
        tally: usize,
        own: bool,
        places: DomainPlaces,
    ) -> Self {
        let mut levels = Levels::default();
        for sum in places.sums() {
            levels.insert(sum);
        }
        Self {
            constraint,
            tally,
            own: i64::from(own),
            places,
            members: None,
            levels,
        }
    }

    pub(super) fn grow(&mut self, slots: usize) {
        self.places.grow(slots);
        if let Some(members) = &mut self.members {
            members.grow(slots);
        }
    }

    /// The value that distinguishes the nodes of a domain: the number of its pods, or itself, below [`MISSING`].
    fn face(&self, number: Number) -> i64 {
        let domain = self.places.domain(number);
        if domain.nodes > FEW_NODES {
            MISSING - 1 - i64::from(number)
        } else {
            domain.sum
        }
    }

    pub(super) fn class(&self, slot: Slot) -> i64 {
        let number = self.places.of(slot).domain();
        number.map_or(MISSING, |number| self.face(number))
    }

    /// The answer of the filter for nodes of a class.
    pub(super) fn filter(&self, class: i64) -> Result<(), Status> {
        let there = match class {
            MISSING => {
                return Err(Status::unresolvable(
                    ReasonCode::TopologyLabelMissing.reason(REASON_NO_DOMAIN),
                ));
            }
            0.. => class,
            _ => match Number::try_from(MISSING - 1 - class) {
                Ok(number) if (number as usize) < self.places.numbers() => {
                    self.places.domain(number).sum
                }
                _ => 0,
            },
        };
        let (domains, minimum) = (self.levels.len(), self.levels.minimum());
        if self.constraint.allows(there, self.own, domains, minimum) {
            Ok(())
        } else {
            Err(Status::unschedulable(
                ReasonCode::TopologySpread.reason(REASON_SKEW),
            ))
        }
    }

    /// Takes the sum of a domain out of the levels, if it is there, lets it be changed, and puts it back.
    fn change(&mut self, number: Number, change: impl FnOnce(&mut DomainPlaces)) {
        let sum = |places: &DomainPlaces| {
            let domain = places.domain(number);
            domain.exists().then_some(domain.sum)
        };
        let before = sum(&self.places);
        change(&mut self.places);
        let after = sum(&self.places);
        if before == after {
            return;
        }
        // First in, then out, so that the minimum need not be looked for where one domain is all there is.
        if let Some(after) = after {
            self.levels.insert(after);
        }
        if let Some(before) = before {
            let places = &self.places;
            self.levels.remove(before, || places.sums());
        }
    }

    /// A pod that counts has come to a node or gone from it. Adds the other nodes of its domain to `changed` where
    /// their class is another now, and returns whether the node's own is.
    pub(super) fn pod_moved(&mut self, slot: Slot, pods: i64, changed: &mut Vec<Slot>) -> bool {
        let place = self.places.of(slot);
        let Some(number) = place.domain().filter(|_| place.counts()) else {
            return false;
        };
        self.change(number, |places| {
            places.add(slot, pods);
        });
        let nodes = self.places.domain(number).nodes;
        if nodes <= FEW_NODES {
            self.push_others(number, slot, changed);
        }
        nodes <= FEW_NODES
    }

    /// Adds the nodes of a domain other than `slot`.
    fn push_others(&mut self, number: Number, slot: Slot, changed: &mut Vec<Slot>) {
        let own = u32::from(self.places.of(slot).domain() == Some(number));
        if self.places.domain(number).nodes > own {
            let places = &self.places;
            let members = self
                .members
                .get_or_insert_with(|| DomainMembers::of_all(places));
            changed.extend(members.of(number).filter(|member| *member != slot));
        }
    }

    /// A node that had `before` pods that count has `after` now, or is elsewhere, or gone. Adds the other nodes to
    /// `changed` whose class is another now.
    pub(super) fn node_changed(
        &mut self,
        slot: Slot,
        entry: Option<NodeEntry>,
        before: i64,
        after: i64,
        changed: &mut Vec<Slot>,
    ) {
        let from = self.places.of(slot).domain();
        let to = entry.map(|entry| entry.number);
        let faces = [from, to.filter(|to| Some(*to) != from)]
            .map(|number| number.map(|number| (number, self.face(number))));
        if let Some(from) = from {
            self.change(from, |places| places.leave(slot, before));
            if let Some(members) = &mut self.members {
                members.remove(from, slot);
            }
        }
        if let Some(entry) = &entry {
            self.change(entry.number, |places| places.enter(slot, entry, after));
            if let Some(members) = &mut self.members {
                members.insert(entry.number, slot);
            }
        }
        for (number, face) in faces.into_iter().flatten() {
            if self.face(number) != face {
                self.push_others(number, slot, changed);
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let members = self.members.as_ref().map_or(0, DomainMembers::bytes);
        self.places.bytes() + members + self.levels.bytes()
    }
}
