//! The counts of one constraint: the domain of each node, and the pods in each domain.

use super::super::constraints::{Constraint, HOSTNAME};
use super::super::{REASON_NO_DOMAIN, REASON_SKEW};
use berth_framework::table::{Held, Topology};
use berth_framework::{ReasonCode, Slot, Status};
use std::collections::BTreeMap;

/// The class of nodes without the label.
pub(super) const MISSING: i64 = -1;
/// The class of nodes that do not score, for every soft constraint.
pub(super) const IGNORED: i64 = i64::MIN;

/// Of a hard constraint, domains of up to this number of nodes are distinguished by the number of their pods, larger ones by
/// their own number. So a pod changes the class of at most this number of nodes.
const FEW_NODES: u32 = 16;

/// The place of a node, in one word: the number of its domain, and two marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
    /// In no domain.
    pub(super) const NOWHERE: Self = Self(Topology::NOWHERE);
    /// The node's pods count.
    const COUNTS: u32 = 1 << 31;
    /// The node lacks the label; it is in the domain of the empty value.
    const UNLABELLED: u32 = 1 << 30;

    /// In a domain; without one, the node lacks the label.
    pub(super) fn new(number: Option<u32>, counts: bool) -> Self {
        let place = number.unwrap_or(Topology::EMPTY | Self::UNLABELLED);
        Self(if counts { place | Self::COUNTS } else { place })
    }

    fn domain(self) -> Option<u32> {
        (self != Self::NOWHERE).then_some(self.0 & !(Self::COUNTS | Self::UNLABELLED))
    }

    fn has(self, mark: u32) -> bool {
        self != Self::NOWHERE && self.0 & mark != 0
    }
}

/// A domain.
#[derive(Debug, Default, Clone, Copy)]
struct SpreadDomain {
    /// The number of its nodes.
    nodes: u32,
    /// The number of its nodes that count. Without any, the domain does not exist for the constraint.
    counting: u32,
    /// The pods on the nodes that count.
    pods: i64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct ConstraintCounts {
    pub(super) constraint: Constraint,
    /// The tally that has the counts of its selector.
    pub(super) tally: usize,
    /// One when the pod counts for its own constraint.
    own: i64,
    is_hard: bool,
    /// By slot.
    places: Vec<Place>,
    /// By number. A soft constraint on hosts has none: it counts the pods of each node.
    domains: Vec<SpreadDomain>,
    /// Of a hard constraint, by number of pods: how many domains have it. The first is the minimum.
    by_pods: BTreeMap<i64, usize>,
    /// The number of domains that exist.
    existing: usize,
    /// Keeps the numbers of domains.
    _held: Held,
}

impl ConstraintCounts {
    /// Of no node yet.
    pub(super) fn new(
        constraint: Constraint,
        is_hard: bool,
        tally: usize,
        own: bool,
        topology: &Topology,
    ) -> Self {
        Self {
            constraint,
            tally,
            own: i64::from(own),
            is_hard,
            places: Vec::with_capacity(topology.by_slot().len()),
            domains: Vec::new(),
            by_pods: BTreeMap::new(),
            existing: 0,
            _held: topology.hold(),
        }
    }

    pub(super) fn is_per_host(&self) -> bool {
        !self.is_hard && self.constraint.topology_key == HOSTNAME
    }

    fn place(&self, slot: Slot) -> Place {
        let place = self.places.get(slot.index());
        place.copied().unwrap_or(Place::NOWHERE)
    }

    fn domain(&self, number: u32) -> SpreadDomain {
        let domain = self.domains.get(number as usize);
        domain.copied().unwrap_or_default()
    }

    /// The number in the class of a domain's nodes: the number of pods or, encoded below [`MISSING`], the domain.
    fn class_of_domain(&self, number: u32) -> i64 {
        let domain = self.domain(number);
        if self.is_hard && domain.nodes <= FEW_NODES {
            domain.pods
        } else {
            MISSING - 1 - i64::from(number)
        }
    }

    /// The number in the class of a node with this number of pods.
    pub(super) fn class(&self, slot: Slot, pods: i64) -> i64 {
        let place = self.place(slot);
        match place.domain() {
            None if self.is_hard => MISSING,
            None => IGNORED,
            Some(_) if place.has(Place::UNLABELLED) => MISSING,
            Some(_) if self.is_per_host() => pods,
            Some(number) => self.class_of_domain(number),
        }
    }

    /// The pods that count for nodes of a class; `None` where the label is missing.
    pub(super) fn pods(&self, class: i64) -> Option<i64> {
        match class {
            MISSING => None,
            0.. => Some(class),
            _ => {
                let number = u32::try_from(MISSING - 1 - class);
                Some(number.map_or(0, |number| self.domain(number).pods))
            }
        }
    }

    /// The answer of the filter for nodes of a class.
    pub(super) fn filter(&self, class: i64) -> Result<(), Status> {
        let Some(pods) = self.pods(class) else {
            return Err(Status::unresolvable(
                ReasonCode::TopologyLabelMissing.reason(REASON_NO_DOMAIN),
            ));
        };
        let minimum = self.by_pods.keys().next().copied().unwrap_or(0);
        let (constraint, existing) = (&self.constraint, self.existing);
        if constraint.allows(pods, self.own, existing, minimum) {
            return Ok(());
        }
        let reason = ReasonCode::TopologySpread.reason(REASON_SKEW);
        Err(Status::unschedulable(reason))
    }

    /// The number of domains among nodes of these classes. Nodes without the label are in the domain of the empty value.
    pub(super) fn domains_among(&self, classes: impl Iterator<Item = i64>) -> usize {
        let of_empty = MISSING - 1 - i64::from(Topology::EMPTY);
        let classes = classes.map(|class| if class == MISSING { of_empty } else { class });
        let mut classes: Vec<i64> = classes.collect();
        classes.sort_unstable();
        classes.dedup();
        classes.len()
    }

    fn domain_mut(&mut self, number: u32) -> &mut SpreadDomain {
        let at = number as usize;
        if self.domains.len() <= at {
            self.domains.resize(at + 1, SpreadDomain::default());
        }
        &mut self.domains[at]
    }

    /// Puts the node of the next slot of a new ledger into its domain. Its pods are `pods`. The domains are counted
    /// [afterwards](Self::count_domains).
    pub(super) fn place_next(&mut self, to: Place, pods: i64) {
        self.places.push(to);
        let Some(number) = to.domain().filter(|_| !self.is_per_host()) else {
            return;
        };
        let domain = self.domain_mut(number);
        domain.nodes += 1;
        if to.has(Place::COUNTS) {
            domain.counting += 1;
            domain.pods += pods;
        }
    }

    /// Counts the domains by their pods, once when all nodes are placed: each of many hosts is a domain.
    pub(super) fn count_domains(&mut self) {
        for domain in self.domains.iter().filter(|of| of.counting > 0) {
            if self.is_hard {
                *self.by_pods.entry(domain.pods).or_default() += 1;
                self.existing += 1;
            }
        }
    }

    /// Changes a domain, and keeps count of the domains by their pods.
    fn change(&mut self, number: u32, change: impl FnOnce(&mut SpreadDomain)) {
        let pods = |domain: &SpreadDomain| (domain.counting > 0).then_some(domain.pods);
        let domain = self.domain_mut(number);
        let before = pods(domain);
        change(domain);
        let after = pods(domain);
        if before == after || !self.is_hard {
            return;
        }
        if let Some(after) = after {
            *self.by_pods.entry(after).or_default() += 1;
            self.existing += 1;
        }
        if let Some(before) = before {
            let domains = self.by_pods.entry(before).or_default();
            *domains -= 1;
            if *domains == 0 {
                self.by_pods.remove(&before);
            }
            self.existing -= 1;
        }
    }

    /// Counts pods that were added to a node or, below zero, removed. Adds the other nodes of its domain to `changed` if their
    /// class has changed, and returns whether the node's own class has.
    pub(super) fn pods_moved(&mut self, slot: Slot, pods: i64, changed: &mut Vec<Slot>) -> bool {
        let place = self.place(slot);
        if self.is_per_host() {
            return place != Place::NOWHERE;
        }
        let Some(number) = place.domain().filter(|_| place.has(Place::COUNTS)) else {
            return false;
        };
        self.change(number, |domain| domain.pods += pods);
        let is_few = self.is_hard && self.domain(number).nodes <= FEW_NODES;
        if is_few {
            self.push_others(number, slot, changed);
        }
        is_few
    }

    /// Adds the nodes of a domain other than `slot`.
    fn push_others(&self, number: u32, slot: Slot, changed: &mut Vec<Slot>) {
        let own = u32::from(self.place(slot).domain() == Some(number));
        let others = self.domain(number).nodes - own;
        // Hosts are alone in their domains: no walk over all nodes for them.
        if others > 0 {
            let is_other = |(at, place): (u32, &Place)| {
                let other = Slot::from_index(at);
                (place.domain() == Some(number) && other != slot).then_some(other)
            };
            let places = (0..).zip(&self.places);
            changed.extend(places.filter_map(is_other).take(others as usize));
        }
    }

    /// Moves a node that had `before` pods that count, and has `after` now. Adds the other nodes to `changed` whose class has
    /// changed.
    pub(super) fn node_moved(
        &mut self,
        slot: Slot,
        to: Place,
        before: i64,
        after: i64,
        changed: &mut Vec<Slot>,
    ) {
        let from = self.place(slot);
        if self.places.len() <= slot.index() {
            self.places.resize(slot.index() + 1, Place::NOWHERE);
        }
        self.places[slot.index()] = to;
        if self.is_per_host() {
            return;
        }
        let classes = [from, to].map(|place| {
            let number = place.domain()?;
            Some((number, self.class_of_domain(number)))
        });
        for (place, sign, pods) in [(from, -1, -before), (to, 1, after)] {
            let Some(number) = place.domain() else {
                continue;
            };
            self.change(number, |domain| {
                domain.nodes = domain.nodes.saturating_add_signed(sign);
                if place.has(Place::COUNTS) {
                    domain.counting = domain.counting.saturating_add_signed(sign);
                    domain.pods += pods;
                }
            });
        }
        for (number, class) in classes.into_iter().flatten() {
            if self.is_hard && self.class_of_domain(number) != class {
                self.push_others(number, slot, changed);
            }
        }
    }

    /// About how much memory they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>()
            + self.domains.capacity() * size_of::<SpreadDomain>()
            + self.by_pods.len() * 2 * size_of::<(i64, usize)>()
    }
}
