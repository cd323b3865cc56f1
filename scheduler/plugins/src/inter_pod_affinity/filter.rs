//! Required affinity and anti-affinity: counted once, and updated while a dry run adds and removes pods.

use super::InterPodAffinity;
use super::counts::AffinityCounts;
use super::incoming::{Incoming, PodEffect};
use super::terms::{IncomingTerm, RequiredTerms, verdict};
use berth_api::{Labels, Str};
use berth_framework::lack::PodAffinityRule;
use berth_framework::plugin::{Context, Filter, PreFilter, PreFilterResult};
use berth_framework::{CycleState, Lack, NodeView, PodInfo, Status};
use std::collections::BTreeSet;

/// The counts per domain.
#[derive(Debug, Default)]
struct RequiredCounts {
    /// The required anti-affinity terms of other pods that match this one.
    existing_anti_affinity: AffinityCounts,
    /// The pods that match all affinity terms, once per term.
    affinity: AffinityCounts,
    /// The pods that match an anti-affinity term, once per term.
    anti_affinity: AffinityCounts,
}

impl RequiredCounts {
    fn add(&mut self, key: &Str, effect: PodEffect, labels: &Labels, amount: i64) {
        match effect {
            PodEffect::ExistingAntiAffinity => self.existing_anti_affinity.add(key, labels, amount),
            PodEffect::Affinity => self.affinity.add(key, labels, amount),
            PodEffect::AntiAffinity => self.anti_affinity.add(key, labels, amount),
            PodEffect::Points(_) => {}
        }
    }
}

/// The state of one pod.
#[derive(Debug)]
struct AffinityPreFilterState {
    incoming: Incoming,
    counted: RequiredCounts,
}

impl AffinityPreFilterState {
    /// Counts the pods on all nodes.
    ///
    /// # Errors
    /// When that is more than the attempt may do.
    fn new(cx: &Context<'_>, pod: &PodInfo) -> Result<Self, Status> {
        let cluster = cx.cluster;
        let nodes = &cluster.nodes;
        let mut state = Self {
            incoming: Incoming::for_filter(cluster, pod),
            counted: RequiredCounts::default(),
        };
        state.incoming.look_at_all(cx)?;
        let counted = &mut state.counted;
        state.incoming.all_effects(nodes, |key, effect, per_node| {
            for (slot, pods) in per_node {
                if let Some(node) = nodes.get(*slot) {
                    counted.add(key, effect, node.labels(), i64::from(*pods));
                }
            }
        });
        Ok(state)
    }

    fn change(&mut self, other: &PodInfo, labels: &Labels, amount: i64) {
        let counted = &mut self.counted;
        self.incoming.effects(other, |key, effect| {
            counted.add(key, effect, labels, amount);
        });
    }

    fn satisfies_affinity(&self, labels: &Labels) -> bool {
        let mut all_there = true;
        for term in &self.incoming.required.affinity {
            let Some(value) = labels.get(term.topology_key()) else {
                return false;
            };
            all_there &= self.counted.affinity.get(term.topology_key(), value) > 0;
        }
        // The first pod of a series.
        all_there || (self.counted.affinity.is_empty() && self.incoming.matches_itself)
    }

    fn satisfies_anti_affinity(&self, labels: &Labels) -> bool {
        self.incoming.required.anti_affinity.iter().all(|term| {
            let value = labels.get(term.topology_key());
            value
                .is_none_or(|value| self.counted.anti_affinity.get(term.topology_key(), value) <= 0)
        })
    }

    fn check(&self, labels: &Labels) -> Status {
        let mut existing = self.counted.existing_anti_affinity.of_node(labels);
        verdict(
            self.satisfies_affinity(labels),
            || self.satisfies_anti_affinity(labels),
            || !existing.any(|(_, count)| count > 0),
        )
    }

    /// Each term that the domains of a node violate.
    fn lacks(&self, labels: &Labels) -> Vec<Lack> {
        let RequiredTerms {
            affinity,
            anti_affinity,
            ..
        } = &self.incoming.required;
        let counted = &self.counted;
        let is_in = |counts: &AffinityCounts, key: &Str| {
            let domain = labels.get(key);
            domain.is_some_and(|domain| counts.get(key, domain) > 0)
        };
        let keys = |terms: &[IncomingTerm]| -> BTreeSet<Str> {
            let keys = terms.iter().map(IncomingTerm::topology_key);
            keys.cloned().collect()
        };
        let mut required = keys(affinity);
        // The first pod of a series satisfies its affinity although no domain has a matching pod (PL-80).
        required.retain(|key| !self.satisfies_affinity(labels) && !is_in(&counted.affinity, key));
        let mut excluded = keys(anti_affinity);
        excluded.retain(|key| is_in(&counted.anti_affinity, key));
        let existing = counted.existing_anti_affinity.of_node(labels);
        let existing = existing.filter(|(_, count)| *count > 0);
        let existing: BTreeSet<Str> = existing.map(|(key, _)| key.clone()).collect();
        let rules = [
            (PodAffinityRule::Affinity, required),
            (PodAffinityRule::AntiAffinity, excluded),
            (PodAffinityRule::ExistingAntiAffinity, existing),
        ];
        let lacks = rules.into_iter().flat_map(|(rule, keys)| {
            keys.into_iter().map(move |topology_key| Lack::PodAffinity {
                rule,
                domain: labels.get_str(&topology_key).cloned(),
                topology_key,
            })
        });
        lacks.collect()
    }
}

impl PreFilter for InterPodAffinity {
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        let error = pod.affinity.as_ref().and_then(|terms| terms.error.as_ref());
        if let Some(error) = error {
            return PreFilterResult::Reject(Status::unresolvable(format!("parsing pod: {error}")));
        }
        let kept = match AffinityPreFilterState::new(cx, pod) {
            Ok(kept) => kept,
            Err(status) => return PreFilterResult::Reject(status),
        };
        if kept.counted.existing_anti_affinity.is_empty() && kept.incoming.required.is_empty() {
            return PreFilterResult::Skip;
        }
        state.write(kept);
        PreFilterResult::AllNodes
    }

    fn add_pod(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        _pod: &PodInfo,
        other: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        if let Some(kept) = state.read_mut::<AffinityPreFilterState>() {
            kept.change(other, node.labels(), 1);
        }
        Status::success()
    }

    fn remove_pod(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        _pod: &PodInfo,
        other: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        if let Some(kept) = state.read_mut::<AffinityPreFilterState>() {
            kept.change(other, node.labels(), -1);
        }
        Status::success()
    }
}

impl Filter for InterPodAffinity {
    fn filter(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        match state.read::<AffinityPreFilterState>() {
            Some(kept) => kept.check(node.labels()),
            None => Status::error("InterPodAffinity: Filter ran without PreFilter"),
        }
    }

    fn lacking(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Vec<Lack> {
        let kept = state.read::<AffinityPreFilterState>();
        kept.map_or_else(Vec::new, |kept| kept.lacks(node.labels()))
    }
}
