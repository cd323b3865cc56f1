//! The sums over the pods on nodes, known or not. Pods that are only supposed count, too.

use crate::pod_info::PodInfo;
use berth_api::Str;
use std::collections::BTreeMap;

/// Counts over all pods on nodes.
#[derive(Debug, Clone, Default)]
pub struct PodTotals {
    with_affinity: usize,
    with_spread_constraints: usize,
    /// The number of pods that have each priority.
    priorities: BTreeMap<i32, usize>,
    /// The number of times that each label is mentioned by the selectors of pods' affinity and anti-affinity terms.
    affinity_labels: BTreeMap<Str, usize>,
    affinity_version: u64,
}

impl PodTotals {
    /// The number of pods that have affinity or anti-affinity to pods.
    pub fn with_affinity(&self) -> usize {
        self.with_affinity
    }

    /// The number of pods that have topology spread constraints.
    pub fn with_spread_constraints(&self) -> usize {
        self.with_spread_constraints
    }

    /// The pod labels that the affinity and anti-affinity terms of pods read, sorted.
    pub fn affinity_labels(&self) -> impl Iterator<Item = &Str> {
        self.affinity_labels.keys()
    }

    /// Changes whenever there are other [affinity labels](Self::affinity_labels), and when the first pod with affinity
    /// is added or the last one removed.
    pub fn affinity_version(&self) -> u64 {
        self.affinity_version
    }

    /// The lowest priority.
    pub fn lowest_priority(&self) -> Option<i32> {
        self.priorities.keys().next().copied()
    }

    /// A pod is added (`sign` is 1) or removed (-1).
    pub(super) fn count(&mut self, pod: &PodInfo, sign: isize) {
        add(&mut self.priorities, &pod.pod.priority(), sign);
        if !pod.pod.spec.topology_spread_constraints.is_empty() {
            let before = self.with_spread_constraints;
            self.with_spread_constraints = before.saturating_add_signed(sign);
        }
        if !pod.has_affinity() {
            return;
        }
        let before = self.with_affinity;
        self.with_affinity = before.saturating_add_signed(sign);
        let mut is_other = (before > 0) != (self.with_affinity > 0);
        let terms = pod.affinity.iter().flat_map(|terms| terms.all());
        for requirement in terms.flat_map(|term| term.selector.requirements()) {
            is_other |= add(&mut self.affinity_labels, requirement.key(), sign);
        }
        self.affinity_version += u64::from(is_other);
    }
}

/// Returns whether the key was added or removed.
fn add<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, key: &K, sign: isize) -> bool {
    match counts.get_mut(key) {
        Some(count) => {
            *count = count.saturating_add_signed(sign);
            let is_last = *count == 0;
            if is_last {
                counts.remove(key);
            }
            is_last
        }
        None if sign > 0 => counts.insert(key.clone(), 1).is_none(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_version_follows_the_labels_of_affinity() {
        let pod = |affinity: &str| {
            let json = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"affinity":{affinity}}}}}"#);
            let pod = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}"));
            PodInfo::new(Arc::new(pod))
        };
        let near = |label: &str| {
            pod(&format!(
                r#"{{"podAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[
                {{"topologyKey":"zone","labelSelector":{{"matchLabels":{{"{label}":"a"}}}}}}]}}}}"#
            ))
        };
        let mut totals = PodTotals::default();
        for (situation, pod, sign, changes) in [
            ("without affinity", pod("{}"), 1, 0),
            ("the first", near("app"), 1, 1),
            ("the same label", near("app"), 1, 0),
            ("another label", near("team"), 1, 1),
            (
                "affinity without a term",
                pod(r#"{"podAffinity":{}}"#),
                1,
                0,
            ),
            ("one of two with a label", near("app"), -1, 0),
            ("the last with a label", near("team"), -1, 1),
            ("the last with any label", near("app"), -1, 1),
            ("the last", pod(r#"{"podAffinity":{}}"#), -1, 1),
        ] {
            let before = totals.affinity_version();
            totals.count(&pod, sign);
            assert_eq!(totals.affinity_version() - before, changes, "{situation}");
        }
    }
}
