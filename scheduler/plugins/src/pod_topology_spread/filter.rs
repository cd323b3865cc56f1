//! `DoNotSchedule`: pods per domain, counted once and updated while a dry run adds and removes pods.

use super::constraints::{Constraint, DO_NOT_SCHEDULE, Inclusion, has_all_keys, look_at_all};
use super::tally::SelectorTally;
use super::{PodTopologySpread, REASON_NO_DOMAIN, REASON_SKEW};
use berth_api::{Pod, Str};
use berth_framework::lack::SpreadLack;
use berth_framework::plugin::{Context, Filter, PreFilter, PreFilterResult};
use berth_framework::{CycleState, Lack, NodeView, PodInfo, ReasonCode, Status};
use rustc_hash::FxHashMap;

/// A constraint with the number of pods in each of its domains, including empty domains.
#[derive(Debug)]
struct CountedConstraint {
    constraint: Constraint,
    domains: FxHashMap<Str, i64>,
    /// The number of pods in the emptiest domain.
    minimum: i64,
    /// One when the pod counts for its own constraint.
    own: i64,
}

impl CountedConstraint {
    fn update_minimum(&mut self) {
        self.minimum = self.domains.values().copied().min().unwrap_or(0);
    }

    fn pods_in(&self, domain: &str) -> i64 {
        self.domains.get(domain).copied().unwrap_or(0)
    }

    fn has_room(&self, domain: &str) -> bool {
        let there = self.pods_in(domain);
        self.constraint
            .allows(there, self.own, self.domains.len(), self.minimum)
    }

    fn lack(&self, node: NodeView<'_>) -> Option<Lack> {
        let Constraint {
            topology_key,
            max_skew,
            ..
        } = &self.constraint;
        let domain = node.labels().get_str(topology_key);
        if domain.is_some_and(|domain| self.has_room(domain)) {
            return None;
        }
        Some(Lack::Spread(SpreadLack {
            pods: domain.map_or(0, |domain| self.pods_in(domain)),
            fewest: self.constraint.fewest(self.domains.len(), self.minimum),
            topology_key: topology_key.clone(),
            domain: domain.cloned(),
            max_skew: *max_skew,
        }))
    }
}

#[derive(Debug)]
struct SpreadPreFilterState {
    counted: Vec<CountedConstraint>,
    inclusion: Inclusion,
}

impl SpreadPreFilterState {
    fn has_all_keys(&self, node: NodeView<'_>) -> bool {
        let constraints = self.counted.iter().map(|counted| &counted.constraint);
        has_all_keys(constraints, node.labels())
    }

    /// As in kube-scheduler, a terminating pod counts here, and is subtracted although it was not counted.
    fn change(&mut self, pod: &Pod, other: &Pod, node: NodeView<'_>, amount: i64) {
        if other.namespace() != pod.namespace() || !self.has_all_keys(node) {
            return;
        }
        let included = self.inclusion.on_node(pod, node.node());
        for counted in &mut self.counted {
            let constraint = &counted.constraint;
            if !constraint.selector.matches(other.labels()) || !included.includes(constraint) {
                continue;
            }
            if let Some(value) = node.labels().get_str(&constraint.topology_key) {
                *counted.domains.entry(value.clone()).or_default() += amount;
                counted.update_minimum();
            }
        }
    }
}

impl PreFilter for PodTopologySpread {
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        let pod = &pod.pod;
        let constraints = match self.constraints(cx.cluster, cx.features, pod, DO_NOT_SCHEDULE) {
            Ok(constraints) => constraints,
            Err(error) => {
                return PreFilterResult::Reject(Status::error(format!(
                    "get constraints from pod: obtaining pod's hard topology spread constraints: {error}"
                )));
            }
        };
        if constraints.is_empty() {
            return PreFilterResult::Skip;
        }
        if let Err(status) = look_at_all(cx, &constraints) {
            return PreFilterResult::Reject(status);
        }
        let inclusion = Inclusion::of(pod, cx.features);
        let nodes = &cx.cluster.nodes;
        let tally = |constraint: &Constraint| {
            SelectorTally::open(&constraint.counted, pod.namespace(), nodes)
        };
        let tallies: Vec<SelectorTally> = constraints.iter().map(tally).collect();
        let mut domains = vec![FxHashMap::<Str, i64>::default(); constraints.len()];
        for node in nodes.iter() {
            // A node counts for no constraint if it lacks the key of any (PL-98).
            if !has_all_keys(&constraints, node.labels()) {
                continue;
            }
            let included = inclusion.on_node(pod, node.node());
            let counted = constraints.iter().zip(&tallies);
            for ((constraint, tally), domains) in counted.zip(&mut domains) {
                if included.includes(constraint)
                    && let Some(value) = node.labels().get_str(&constraint.topology_key)
                {
                    // A domain without pods is entered, too, because it determines the lowest count.
                    *domains.entry(value.clone()).or_default() += tally.count(node.slot());
                }
            }
        }
        let counted = constraints
            .into_iter()
            .zip(domains)
            .map(|(constraint, domains)| {
                let mut counted = CountedConstraint {
                    own: i64::from(constraint.selector.matches(pod.labels())),
                    constraint,
                    domains,
                    minimum: 0,
                };
                counted.update_minimum();
                counted
            })
            .collect();
        state.write(SpreadPreFilterState { counted, inclusion });
        PreFilterResult::AllNodes
    }

    fn add_pod(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        other: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        if let Some(kept) = state.read_mut::<SpreadPreFilterState>() {
            kept.change(&pod.pod, &other.pod, node, 1);
        }
        Status::success()
    }

    fn remove_pod(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        other: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        if let Some(kept) = state.read_mut::<SpreadPreFilterState>() {
            kept.change(&pod.pod, &other.pod, node, -1);
        }
        Status::success()
    }
}

impl Filter for PodTopologySpread {
    fn filter(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        let Some(kept) = state.read::<SpreadPreFilterState>() else {
            return Status::error("PodTopologySpread: Filter ran without PreFilter");
        };
        for counted in &kept.counted {
            match node.labels().get(&counted.constraint.topology_key) {
                None => {
                    return Status::unresolvable(
                        ReasonCode::TopologyLabelMissing.reason(REASON_NO_DOMAIN),
                    );
                }
                Some(value) if !counted.has_room(value) => {
                    return Status::unschedulable(ReasonCode::TopologySpread.reason(REASON_SKEW));
                }
                Some(_) => {}
            }
        }
        Status::success()
    }

    fn lacking(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Vec<Lack> {
        let kept = state.read::<SpreadPreFilterState>().into_iter();
        let counted = kept.flat_map(|kept| &kept.counted);
        counted.filter_map(|counted| counted.lack(node)).collect()
    }
}
