//! `DoNotSchedule`: the counts of one constraint.

use super::super::constraints::Constraint;
use super::super::{REASON_NO_DOMAIN, REASON_SKEW};
use super::MISSING;
use super::places::{DomainPlaces, NodeEntry, Number};
use berth_framework::{ReasonCode, Slot, Status};
use std::collections::BTreeMap;

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
    /// The number of domains that exist.
    domains: usize,
    /// By number of pods: how many domains have it. The first is the minimum.
    sums: BTreeMap<i64, usize>,
}

impl Hard {
    pub(super) fn new(
        constraint: Constraint,
        tally: usize,
        own: bool,
        places: DomainPlaces,
    ) -> Self {
        let all: Vec<i64> = places.sums().collect();
        let mut sums = BTreeMap::new();
        for equal in all.chunk_by(i64::eq) {
            *sums.entry(equal[0]).or_default() += equal.len();
        }
        Self {
            constraint,
            tally,
            own: i64::from(own),
            places,
            domains: all.len(),
            sums,
        }
    }

    pub(super) fn grow(&mut self, slots: usize) {
        self.places.grow(slots);
    }

    /// The number of a domain's nodes in their class: that of its pods or, below [`MISSING`], that of the domain.
    fn class_of(&self, number: Number) -> i64 {
        let domain = self.places.domain(number);
        if domain.nodes > FEW_NODES {
            MISSING - 1 - i64::from(number)
        } else {
            domain.sum
        }
    }

    pub(super) fn class(&self, slot: Slot) -> i64 {
        let number = self.places.of(slot).domain();
        number.map_or(MISSING, |number| self.class_of(number))
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
            _ => Number::try_from(MISSING - 1 - class)
                .map_or(0, |number| self.places.domain(number).sum),
        };
        let minimum = self.sums.keys().next().copied().unwrap_or(0);
        if self
            .constraint
            .allows(there, self.own, self.domains, minimum)
        {
            Ok(())
        } else {
            Err(Status::unschedulable(
                ReasonCode::TopologySpread.reason(REASON_SKEW),
            ))
        }
    }

    /// Changes a domain, and counts its sum anew, if it exists.
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
        if let Some(after) = after {
            *self.sums.entry(after).or_default() += 1;
            self.domains += 1;
        }
        if let Some(before) = before {
            let domains = self.sums.entry(before).or_default();
            *domains -= 1;
            if *domains == 0 {
                self.sums.remove(&before);
            }
            self.domains -= 1;
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
    fn push_others(&self, number: Number, slot: Slot, changed: &mut Vec<Slot>) {
        let own = u32::from(self.places.of(slot).domain() == Some(number));
        if self.places.domain(number).nodes > own {
            let there = self.places.nodes_of(number);
            changed.extend(there.filter(|other| *other != slot));
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
        let classes = [from, to.filter(|to| Some(*to) != from)]
            .map(|number| number.map(|number| (number, self.class_of(number))));
        if let Some(from) = from {
            self.change(from, |places| places.leave(slot, before));
        }
        if let Some(entry) = &entry {
            self.change(entry.number, |places| places.enter(slot, entry, after));
        }
        for (number, class) in classes.into_iter().flatten() {
            if self.class_of(number) != class {
                self.push_others(number, slot, changed);
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.bytes() + self.sums.len() * 2 * size_of::<(i64, usize)>()
    }
}
