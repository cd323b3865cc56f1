//! The sums over the pods on nodes, known or not. Pods that are only supposed count, too.

use crate::pod_info::PodInfo;
use berth_api::Str;
use std::collections::BTreeMap;

/// Counts over all pods on nodes.
#[derive(Debug, Clone, Default)]
pub struct PodTotals {
    with_affinity: usize,
    /// The number of pods that have each priority.
    priorities: BTreeMap<i32, usize>,
    /// The number of times that each label is mentioned by the selectors of pods' affinity and anti-affinity terms.
    affinity_labels: BTreeMap<Str, usize>,
}

impl PodTotals {
    /// The number of pods that have affinity or anti-affinity to pods.
    pub fn with_affinity(&self) -> usize {
        self.with_affinity
    }

    /// The labels of pods that the affinity and anti-affinity terms of pods look at, sorted.
    pub fn affinity_labels(&self) -> impl Iterator<Item = &Str> {
        self.affinity_labels.keys()
    }

    /// The lowest priority.
    pub fn lowest_priority(&self) -> Option<i32> {
        self.priorities.keys().next().copied()
    }

    /// A pod is added (`sign` is 1) or removed (-1).
    pub(super) fn count(&mut self, pod: &PodInfo, sign: isize) {
        add(&mut self.priorities, &pod.pod.priority(), sign);
        if pod.has_affinity() {
            self.with_affinity = self.with_affinity.saturating_add_signed(sign);
        }
        let terms = pod.affinity.iter().flat_map(|terms| terms.all());
        for requirement in terms.flat_map(|term| term.selector.requirements()) {
            add(&mut self.affinity_labels, requirement.key(), sign);
        }
    }
}

fn add<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, key: &K, sign: isize) {
    match counts.get_mut(key) {
        Some(count) => {
            *count = count.saturating_add_signed(sign);
            if *count == 0 {
                counts.remove(key);
            }
        }
        None if sign > 0 => drop(counts.insert(key.clone(), 1)),
        None => {}
    }
}
