//! The number of pods on each node that a selector matches, counted by kinds of pods.

use berth_api::{Labels, Selector};
use berth_framework::pod_info::LabelSignature;
use berth_framework::{NodeTable, Slot};

/// The pods that a selector matches, by slot. Constraints with equal selectors share one.
#[derive(Debug)]
pub(super) struct SelectorTally {
    pub(super) selector: Selector,
    /// A pod that counts has all bits of it.
    pub(super) signature: LabelSignature,
    pub(super) counts: Vec<u32>,
}

impl SelectorTally {
    /// Counts the pods of a namespace on existing nodes.
    pub(super) fn open(selector: &Selector, namespace: &str, nodes: &NodeTable) -> Self {
        let mut tally = Self {
            selector: selector.clone(),
            signature: LabelSignature::required(Some(namespace), selector),
            counts: vec![0; nodes.slots()],
        };
        if nodes.is_supposing() {
            // The census does not count the pods of a dry run.
            for node in nodes.iter() {
                let counted = node.pods().iter().filter(|other| {
                    let other = &other.pod;
                    !other.is_terminating()
                        && other.namespace() == namespace
                        && tally.matches(other.labels())
                });
                tally.counts[node.slot().index()] = counted.count() as u32;
            }
            return tally;
        }
        let is_node = nodes.is_node();
        for alike in nodes.census().alike(&[tally.signature]) {
            let is_countable = !alike.is_terminating && alike.namespace == namespace;
            if !is_countable || !tally.matches(alike.labels) {
                continue;
            }
            for (slot, pods) in alike.per_node {
                if is_node[slot.index()] {
                    tally.counts[slot.index()] += pods;
                }
            }
        }
        tally
    }

    pub(super) fn matches(&self, labels: &Labels) -> bool {
        self.selector.matches(labels)
    }

    pub(super) fn count(&self, slot: Slot) -> i64 {
        self.counts.get(slot.index()).map_or(0, |n| i64::from(*n))
    }
}
