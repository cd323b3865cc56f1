//! The counts in the domains of one topology key.

use crate::inter_pod_affinity::incoming::PodEffect;
use berth_api::Str;
use berth_framework::table::{PodsPerNode, Topology};
use berth_framework::{NodeTable, Slot};
use rustc_hash::FxHashMap;
use std::ops::{AddAssign, Neg};
use std::sync::Arc;

/// The sums over pods. Sums wrap round, so that added amounts can always be subtracted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sums {
    /// Terms that exclude the incoming pod.
    pub(super) existing_anti_affinity: i32,
    /// Pods that match all its required affinity terms, once per term.
    pub(super) affinity: i32,
    /// Pods that match a required anti-affinity term of it, once per term.
    pub(super) anti_affinity: i32,
    /// The number of preferences, whatever their points.
    pub(super) entries: i32,
    /// The points of all preferences.
    pub(super) points: i64,
}

impl Sums {
    /// The sums of one effect; `sign` is 1 or -1.
    pub(super) fn of(effect: PodEffect, sign: i32) -> Self {
        let mut sums = Self::default();
        match effect {
            PodEffect::ExistingAntiAffinity => sums.existing_anti_affinity = sign,
            PodEffect::Affinity => sums.affinity = sign,
            PodEffect::AntiAffinity => sums.anti_affinity = sign,
            PodEffect::Points(points) => {
                sums.entries = sign;
                sums.points = points.wrapping_mul(i64::from(sign));
            }
        }
        sums
    }

    fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// The number that distinguishes nodes when these are the sums of their domain.
    fn aspect(&self) -> (bool, bool, bool, i64) {
        (
            self.existing_anti_affinity > 0,
            self.affinity > 0,
            self.anti_affinity > 0,
            self.points,
        )
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut i32, amount: i32| *sum = sum.wrapping_add(amount);
        add(
            &mut self.existing_anti_affinity,
            other.existing_anti_affinity,
        );
        add(&mut self.affinity, other.affinity);
        add(&mut self.anti_affinity, other.anti_affinity);
        add(&mut self.entries, other.entries);
        self.points = self.points.wrapping_add(other.points);
    }
}

impl Neg for Sums {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            existing_anti_affinity: self.existing_anti_affinity.wrapping_neg(),
            affinity: self.affinity.wrapping_neg(),
            anti_affinity: self.anti_affinity.wrapping_neg(),
            entries: self.entries.wrapping_neg(),
            points: self.points.wrapping_neg(),
        }
    }
}

/// The sums of the pods of a node, and the domain in which they were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NodeSums {
    domain: u32,
    sums: Sums,
}

/// The counts of one topology key.
#[derive(Debug)]
pub(super) struct KeyCounts {
    pub(super) key: Str,
    /// The domains as of the last node that has changed.
    pub(super) topology: Arc<Topology>,
    /// Whether a term of the incoming pods has this key.
    pub(super) is_own: bool,
    /// Whether a required affinity term of the incoming pods has this key.
    pub(super) is_wanted_near: bool,
    /// Its column in a class; without one, its sums are in the marks and points.
    pub(super) column: Option<usize>,
    /// By slot; nodes whose pods do not count are left out.
    counted: FxHashMap<u32, NodeSums>,
    /// By domain; zeroes are left out.
    sums: FxHashMap<u32, Sums>,
}

impl KeyCounts {
    pub(super) fn open(key: &Str, nodes: &NodeTable) -> Self {
        Self {
            key: key.clone(),
            topology: nodes.topology(key),
            is_own: false,
            is_wanted_near: false,
            column: None,
            counted: FxHashMap::default(),
            sums: FxHashMap::default(),
        }
    }

    /// Returns whether it is empty.
    pub(super) fn is_idle(&self) -> bool {
        self.counted.is_empty()
    }

    /// Returns whether the sums of all domains are zero.
    pub(super) fn has_no_sums(&self) -> bool {
        self.sums.is_empty()
    }

    /// The sums of a domain.
    pub(super) fn sums(&self, domain: u32) -> Sums {
        self.sums.get(&domain).copied().unwrap_or_default()
    }

    /// Adds to the sums of a domain. Returns whether the class of its nodes changes.
    fn post(&mut self, domain: u32, amount: Sums) -> bool {
        let sums = self.sums.entry(domain).or_default();
        let aspect = sums.aspect();
        *sums += amount;
        let is_other = sums.aspect() != aspect;
        if sums.is_zero() {
            self.sums.remove(&domain);
        }
        self.column.is_none() && is_other
    }

    fn add_at(&mut self, slot: Slot, amount: Sums) -> Option<(u32, bool)> {
        let domain = self.topology.domain(slot)?;
        let index = slot.index() as u32;
        let counted = self.counted.entry(index).or_insert(NodeSums {
            domain,
            sums: Sums::default(),
        });
        debug_assert_eq!(counted.domain, domain, "a node that moves is counted anew");
        counted.sums += amount;
        if counted.sums.is_zero() {
            self.counted.remove(&index);
        }
        Some((domain, self.post(domain, amount)))
    }

    /// Adds the effect of pods, and returns the part of the sums that is in domains.
    pub(super) fn add(&mut self, effect: PodEffect, per_node: &PodsPerNode) -> Sums {
        self.counted.reserve(per_node.len());
        let domains = self.topology.domains().min(per_node.len());
        self.sums.reserve(domains.saturating_sub(self.sums.len()));
        let mut total = Sums::default();
        for (slot, pods) in per_node {
            let amount = Sums::of(effect, i32::try_from(*pods).unwrap_or(i32::MAX));
            if self.add_at(*slot, amount).is_some() {
                total += amount;
            }
        }
        total
    }

    /// Adds the effect of a pod on a node, and adds the nodes whose class changes to `changed`. Returns false if the
    /// node is in no domain.
    pub(super) fn add_and_report(
        &mut self,
        slot: Slot,
        amount: Sums,
        changed: &mut Vec<Slot>,
    ) -> bool {
        let Some((domain, is_changed)) = self.add_at(slot, amount) else {
            return false;
        };
        if is_changed {
            self.push_nodes(domain, slot, changed);
        }
        true
    }

    /// Adds the nodes of a domain. `slot` was one of them when it was counted, but may have moved since.
    fn push_nodes(&self, domain: u32, slot: Slot, nodes: &mut Vec<Slot>) {
        let there = self.topology.nodes_of().get(domain as usize);
        let there = there.copied().unwrap_or(0) as usize;
        if there == 1 && self.topology.domain(slot) == Some(domain) {
            nodes.push(slot);
            return;
        }
        let slots = self.topology.by_slot().iter().zip(0..);
        nodes.extend(
            slots
                .filter(|(of, _)| **of == domain)
                .take(there)
                .map(|(_, index)| Slot::from_index(index)),
        );
    }

    /// Forgets the pods of a node that has changed, and perhaps moved to another domain. Returns their sums.
    pub(super) fn forget(
        &mut self,
        slot: Slot,
        nodes: &NodeTable,
        changed: &mut Vec<Slot>,
    ) -> Sums {
        self.topology = nodes.topology(&self.key);
        let Some(NodeSums { domain, sums }) = self.counted.remove(&(slot.index() as u32)) else {
            return Sums::default();
        };
        if self.post(domain, -sums) {
            self.push_nodes(domain, slot, changed);
        }
        sums
    }

    /// About how much memory this takes.
    pub(super) fn bytes(&self) -> usize {
        let per_node = size_of::<(u32, NodeSums)>() + 1;
        let per_domain = size_of::<(u32, Sums)>() + 1;
        size_of::<Self>() + self.counted.capacity() * per_node + self.sums.capacity() * per_domain
    }
}
