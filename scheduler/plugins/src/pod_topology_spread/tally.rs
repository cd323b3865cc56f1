//! The number of pods on each node that a selector matches, counted by kinds of pods.

use berth_api::{Labels, Selector};
use berth_framework::table::LabelSignature;
use berth_framework::{NodeTable, Slot};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The pods that a selector matches, by slot. Constraints with equal selectors share one.
#[derive(Debug)]
pub(super) struct SelectorTally {
    pub(super) selector: Selector,
    /// A pod that counts has all bits of it.
    pub(super) signature: LabelSignature,
    pub(super) counts: Vec<u32>,
}

impl SelectorTally {
    /// Counts the pods of a namespace, on nodes that there are. Besides the tally, returns where any were.
    pub(super) fn open(
        selector: &Selector,
        namespace: &str,
        nodes: &NodeTable,
    ) -> (Self, Vec<Slot>) {
        let mut tally = Self {
            selector: selector.clone(),
            signature: LabelSignature::required(Some(namespace), selector),
            counts: vec![0; nodes.slots()],
        };
        let mut somewhere = Vec::new();
        if nodes.is_supposing() {
            // The census does not count the pods of a dry run.
            for node in nodes.iter() {
                let counted = node.pods().iter().filter(|other| {
                    let other = &other.pod;
                    !other.is_terminating()
                        && other.namespace() == namespace
                        && tally.matches(other.labels())
                });
                let pods = counted.count() as u32;
                if pods > 0 {
                    tally.counts[node.slot().index()] = pods;
                    somewhere.push(node.slot());
                }
            }
            return (tally, somewhere);
        }
        let is_node = nodes.is_node();
        for alike in nodes.census().alike(&[tally.signature]) {
            let is_countable = !alike.is_terminating && alike.namespace == namespace;
            if !is_countable || !tally.matches(alike.labels) {
                continue;
            }
            for (slot, pods) in alike.per_node {
                if is_node[slot.index()] {
                    let count = &mut tally.counts[slot.index()];
                    if *count == 0 {
                        somewhere.push(*slot);
                    }
                    *count += pods;
                }
            }
        }
        (tally, somewhere)
    }

    pub(super) fn matches(&self, labels: &Labels) -> bool {
        self.selector.matches(labels)
    }

    pub(super) fn count(&self, slot: Slot) -> i64 {
        self.counts.get(slot.index()).map_or(0, |n| i64::from(*n))
    }
}

/// Tallies while they are opened, each with the slots where it has counted any.
pub(super) struct Tallies<'a> {
    pub(super) opened: SmallVec<[(SelectorTally, Vec<Slot>); 1]>,
    /// The places of the tallies. A pod can have thousands of constraints, each with a selector of its own.
    pub(super) places: FxHashMap<Selector, usize>,
    pub(super) namespace: &'a str,
    pub(super) nodes: &'a NodeTable,
}

impl Tallies<'_> {
    /// The place of the tally with a selector, opened if need be.
    pub(super) fn of(&mut self, selector: &Selector) -> usize {
        if let Some(known) = self.places.get(selector) {
            return *known;
        }
        let tally = SelectorTally::open(selector, self.namespace, self.nodes);
        self.opened.push(tally);
        let place = self.opened.len() - 1;
        self.places.insert(selector.clone(), place);
        place
    }

    pub(super) fn counts(&self, tally: usize) -> impl Iterator<Item = (Slot, i64)> {
        let (tally, somewhere) = &self.opened[tally];
        somewhere.iter().map(|slot| (*slot, tally.count(*slot)))
    }
}
