//! `ScheduleAnyway`: the counts of one constraint.

use super::super::constraints::{Constraint, HOSTNAME};
use super::MISSING;
use super::places::{DomainPlaces, NodeEntry, Number};
use berth_framework::Slot;
use berth_framework::table::Topology;
use smallvec::SmallVec;

/// A constraint with what it counts.
#[derive(Debug)]
pub(super) struct Soft {
    pub(super) constraint: Constraint,
    /// The tally that has the counts of its selector.
    pub(super) tally: usize,
    /// Pods by domain; hosts are counted one by one, and only where they are is kept.
    places: Option<DomainPlaces>,
    /// By slot: whether the node has the label. Only for hosts.
    labelled: Vec<bool>,
}

impl Soft {
    /// `places` is put together from the topology where hosts are not counted one by one.
    pub(super) fn new(
        constraint: Constraint,
        tally: usize,
        topology: &Topology,
        places: impl FnOnce() -> DomainPlaces,
    ) -> Self {
        let is_per_host = constraint.topology_key == HOSTNAME;
        let domains = topology.by_slot().iter().filter(|_| is_per_host);
        Self {
            constraint,
            tally,
            places: (!is_per_host).then(places),
            labelled: domains.map(|of| *of != Topology::NOWHERE).collect(),
        }
    }

    pub(super) fn is_per_host(&self) -> bool {
        self.places.is_none()
    }

    pub(super) fn grow(&mut self, slots: usize) {
        match &mut self.places {
            Some(places) => places.grow(slots),
            None if self.labelled.len() < slots => self.labelled.resize(slots, false),
            None => {}
        }
    }

    /// The value that distinguishes nodes: the number of their domain, or, of hosts, that of their own pods.
    pub(super) fn class(&self, slot: Slot, count: i64) -> i64 {
        match &self.places {
            Some(places) => {
                let place = places.of(slot);
                let labelled = place.domain().filter(|_| !place.is_unlabelled());
                labelled.map_or(MISSING, i64::from)
            }
            None if self.is_labelled(slot) => count,
            None => MISSING,
        }
    }

    /// The pods that count on the nodes of a class; nothing where the label is missing.
    pub(super) fn count(&self, class: i64) -> Option<i64> {
        let Some(places) = &self.places else {
            return (class != MISSING).then_some(class);
        };
        let number = Number::try_from(class).ok()?;
        Some(places.domain(number).sum)
    }

    /// The number of domains among nodes of these classes. Those without the label are in the domain of the
    /// empty one.
    pub(super) fn domains(&self, classes: impl Iterator<Item = i64>) -> usize {
        let numbers = classes.map(|class| Number::try_from(class).unwrap_or(Topology::EMPTY));
        let mut numbers: SmallVec<[Number; 16]> = numbers.collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len()
    }

    /// A pod that counts was added to a node or removed from it; returns whether the node's class has changed.
    pub(super) fn pod_moved(&mut self, slot: Slot, pods: i64) -> bool {
        match &mut self.places {
            Some(places) => {
                places.add(slot, pods);
                false
            }
            None => self.is_labelled(slot),
        }
    }

    fn is_labelled(&self, slot: Slot) -> bool {
        self.labelled.get(slot.index()).copied().unwrap_or(false)
    }

    /// A node that had `before` pods that count has `after` now, or is elsewhere, or gone.
    pub(super) fn node_changed(
        &mut self,
        slot: Slot,
        entry: Option<NodeEntry>,
        before: i64,
        after: i64,
    ) {
        let Some(places) = &mut self.places else {
            self.labelled[slot.index()] = entry.is_some_and(|entry| !entry.is_unlabelled);
            return;
        };
        places.leave(slot, before);
        if let Some(entry) = &entry {
            places.enter(slot, entry, after);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.as_ref().map_or(0, DomainPlaces::bytes) + self.labelled.capacity()
    }
}
