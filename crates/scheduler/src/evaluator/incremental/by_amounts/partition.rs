//! The parts of the nodes that topology keys distinguish: the nodes that are in the same domain of each key.

use berth_api::Str;
use berth_framework::table::{Held, Topology};
use berth_framework::{NodeTable, Slot};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::sync::Arc;

/// The greatest number of parts: each has regions of its own, which a search has to look into.
pub(super) const PARTS_MAX: usize = 16;
/// The greatest number of topology keys by which nodes are parted.
const KEYS_MAX: usize = 4;
/// The number of topology keys that are remembered because they make too many parts.
const UNSUITABLE_MAX: usize = 16;

pub(super) type PartId = u16;

/// The number of a domain for each key; [`Topology::NOWHERE`] without the label.
type PartDomains = SmallVec<[u32; 2]>;

/// The topology keys by which the nodes of all indexes are parted.
#[derive(Debug, Default)]
pub(super) struct PartitionKeys {
    keys: Vec<Str>,
    unsuitable: Vec<Str>,
}

impl PartitionKeys {
    /// Adds the keys that are missing; false if there would be too many parts.
    pub(super) fn cover<'k>(
        &mut self,
        wanted: impl IntoIterator<Item = &'k Str>,
        table: &NodeTable,
    ) -> bool {
        for key in wanted {
            if self.keys.contains(key) {
                continue;
            }
            if self.keys.len() >= KEYS_MAX
                || self.unsuitable.contains(key)
                || table.topology(key).domains() > PARTS_MAX
            {
                return false;
            }
            self.keys.push(key.clone());
            let mut parts = FxHashSet::default();
            let topologies = topologies(&self.keys, table);
            let all = table.occupied();
            parts.extend(all.map(|slot| domains(&topologies, slot)));
            if parts.len() > PARTS_MAX {
                self.give_up(key);
                return false;
            }
        }
        true
    }

    /// Gives up all keys: there are too many parts by now. Each is looked at again when it is wanted.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
    }

    fn give_up(&mut self, key: &Str) {
        self.keys.retain(|other| other != key);
        if self.unsuitable.len() >= UNSUITABLE_MAX {
            self.unsuitable.clear();
        }
        self.unsuitable.push(key.clone());
    }
}

fn topologies(keys: &[Str], table: &NodeTable) -> Vec<Arc<Topology>> {
    keys.iter().map(|key| table.topology(key)).collect()
}

fn domains(topologies: &[Arc<Topology>], slot: Slot) -> PartDomains {
    let domains = topologies.iter().map(|topology| topology.domain(slot));
    domains
        .map(|domain| domain.unwrap_or(Topology::NOWHERE))
        .collect()
}

/// The parts of one index.
#[derive(Debug, Default)]
pub(super) struct Partition {
    keys: Vec<Str>,
    /// Keep the numbers of the domains as they are.
    _held: Vec<Held>,
    parts: Vec<PartDomains>,
}

impl Partition {
    pub(super) fn new(keys: &PartitionKeys, table: &NodeTable) -> Self {
        let topologies = topologies(&keys.keys, table);
        Self {
            keys: keys.keys.clone(),
            _held: topologies.iter().map(|topology| topology.hold()).collect(),
            parts: Vec::new(),
        }
    }

    /// Returns whether nodes are still parted by these keys.
    pub(super) fn is_by(&self, keys: &PartitionKeys) -> bool {
        self.keys == keys.keys
    }

    /// The number of parts.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The topologies of the keys as they are now.
    pub(super) fn topologies(&self, table: &NodeTable) -> Vec<Arc<Topology>> {
        topologies(&self.keys, table)
    }

    /// The part of a node, new ones included; `None` when there would be too many.
    pub(super) fn part_of(&mut self, topologies: &[Arc<Topology>], slot: Slot) -> Option<PartId> {
        let domains = domains(topologies, slot);
        let known = self.parts.iter().position(|known| *known == domains);
        let part = known.unwrap_or(self.parts.len());
        if part >= PARTS_MAX {
            return None;
        }
        if known.is_none() {
            self.parts.push(domains);
        }
        PartId::try_from(part).ok()
    }
}
