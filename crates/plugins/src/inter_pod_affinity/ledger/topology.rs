//! The domains of one topology key: which nodes have the same value of a label.

use berth_api::{Labels, Str};
use berth_framework::{NodeTable, Slot};
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

/// Stands where a node is in no domain.
const NOWHERE: u32 = u32::MAX;

/// A value of the label and how many nodes have it; none for a number that may be given anew.
#[derive(Debug)]
struct Domain {
    value: Str,
    nodes: u32,
}

/// Numbers for the values that nodes have of one label. A number is given anew when no node has its value any more.
#[derive(Debug)]
pub(super) struct Topology {
    key: Str,
    /// By slot.
    domain_of: Vec<u32>,
    domains: Vec<Domain>,
    by_value: HashTable<u32>,
    free: Vec<u32>,
    nodes: usize,
}

fn hash(value: &str) -> u64 {
    FxBuildHasher.hash_one(value)
}

impl Topology {
    /// The domains of all nodes.
    pub(super) fn new(key: &Str, nodes: &NodeTable) -> Self {
        let mut topology = Self {
            key: key.clone(),
            domain_of: vec![NOWHERE; nodes.slots()],
            domains: Vec::new(),
            by_value: HashTable::new(),
            free: Vec::new(),
            nodes: 0,
        };
        for view in nodes.iter() {
            topology.set(view.slot(), Some(view.labels()));
        }
        topology
    }

    pub(super) fn key(&self) -> &Str {
        &self.key
    }

    /// How many nodes have the label.
    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }

    /// How many values it has.
    pub(super) fn domains(&self) -> usize {
        self.by_value.len()
    }

    /// The domain that a node is in.
    pub(super) fn domain(&self, slot: Slot) -> Option<u32> {
        let domain = *self.domain_of.get(slot.index())?;
        (domain != NOWHERE).then_some(domain)
    }

    /// Adds the nodes of a domain, one of which is `slot`, unless it is elsewhere by now.
    pub(super) fn push_nodes(&self, domain: u32, slot: Slot, nodes: &mut Vec<Slot>) {
        let there = self.domains[domain as usize].nodes;
        if there == 1 && self.domain(slot) == Some(domain) {
            nodes.push(slot);
            return;
        }
        let slots = (0..).zip(&self.domain_of);
        nodes.extend(
            slots
                .filter(|(_, of)| **of == domain)
                .take(there as usize)
                .map(|(index, _)| Slot::from_index(index)),
        );
    }

    /// Takes in the labels that a node has now; none when it has gone.
    pub(super) fn set(&mut self, slot: Slot, labels: Option<&Labels>) {
        let value = labels.and_then(|labels| labels.get_str(&self.key));
        let before = self.domain(slot);
        if before.map(|domain| &self.domains[domain as usize].value) == value {
            return;
        }
        if let Some(before) = before {
            self.leave(before);
        }
        let now = value.map_or(NOWHERE, |value| self.enter(value));
        if self.domain_of.len() <= slot.index() {
            self.domain_of.resize(slot.index() + 1, NOWHERE);
        }
        self.domain_of[slot.index()] = now;
    }

    fn enter(&mut self, value: &Str) -> u32 {
        self.nodes += 1;
        let domains = &mut self.domains;
        let known = self.by_value.find(hash(value), |domain| {
            domains[*domain as usize].value == *value
        });
        if let Some(domain) = known {
            domains[*domain as usize].nodes += 1;
            return *domain;
        }
        let fresh = Domain {
            value: value.clone(),
            nodes: 1,
        };
        let domain = match self.free.pop() {
            Some(domain) => {
                domains[domain as usize] = fresh;
                domain
            }
            None => {
                domains.push(fresh);
                domains.len() as u32 - 1
            }
        };
        self.by_value.insert_unique(hash(value), domain, |domain| {
            hash(&domains[*domain as usize].value)
        });
        domain
    }

    fn leave(&mut self, domain: u32) {
        self.nodes -= 1;
        let left = &mut self.domains[domain as usize];
        left.nodes -= 1;
        if left.nodes == 0 {
            let value = std::mem::take(&mut left.value);
            if let Ok(entry) = self
                .by_value
                .find_entry(hash(&value), |known| *known == domain)
            {
                entry.remove();
            }
            self.free.push(domain);
        }
    }

    /// About how much memory this takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.domain_of.capacity() * size_of::<u32>()
            + self.domains.capacity() * size_of::<Domain>()
            + self.by_value.capacity() * (size_of::<u32>() + 1)
            + self.free.capacity() * size_of::<u32>()
    }
}
