//! The parsed constraints of a pod, and the pods that they count.

use super::PodTopologySpread;
use super::default_selector::default_selector;
use crate::required_node_affinity::RequiredNodeAffinity;
use berth_api::pod::TopologySpreadConstraint;
use berth_api::selector::{Operator, Requirement, SelectorError};
use berth_api::taint::first_untolerated;
use berth_api::{Labels, Node, Pod, Selector, Str, TaintEffect};
use berth_framework::features::Behaviour;
use berth_framework::plugin::Context;
use berth_framework::{Cluster, Feature, FeatureGates, Status};
use std::cell::OnceCell;

/// Reject nodes where the constraint does not hold.
pub(super) const DO_NOT_SCHEDULE: &str = "DoNotSchedule";
/// Only prefer nodes where the constraint holds.
pub(super) const SCHEDULE_ANYWAY: &str = "ScheduleAnyway";
/// The label that differs from node to node.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
/// The label of zones.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// A constraint, parsed.
#[derive(Debug, Clone, Hash)]
pub(super) struct Constraint {
    pub(super) max_skew: i64,
    pub(super) topology_key: Str,
    pub(super) selector: Selector,
    /// The selector of the pods that count on nodes. It differs from `selector` where an empty one counts only the new
    /// pod.
    pub(super) counted: Selector,
    pub(super) min_domains: i64,
    pub(super) honor_affinity: bool,
    pub(super) honor_taints: bool,
}

impl Constraint {
    fn parse(
        wire: &TopologySpreadConstraint,
        labels: &Labels,
        features: &FeatureGates,
    ) -> Result<Self, SelectorError> {
        let mut selector = Selector::from_label_selector(wire.label_selector.as_ref())?;
        if features.enabled(Feature::MatchLabelKeysInPodTopologySpread) {
            let mut more = Vec::new();
            // As upstream, a key that the pod does not have is ignored.
            for key in &wire.match_label_keys {
                if let Some(value) = labels.get_str(key) {
                    let values = vec![value.clone()];
                    more.push(Requirement::new(key.clone(), Operator::In, values, "")?);
                }
            }
            selector = selector.and(more);
        }
        // Until 1.37, an empty selector counts only the new pod (PL-97).
        let counts_all = features.has(Behaviour::EmptySpreadSelectorCountsAllPods);
        let counted = if selector.is_empty() && !counts_all {
            Selector::nothing()
        } else {
            selector.clone()
        };
        Ok(Self {
            max_skew: i64::from(wire.max_skew),
            topology_key: wire.topology_key.clone(),
            selector,
            counted,
            min_domains: i64::from(wire.min_domains.unwrap_or(1)),
            honor_affinity: wire
                .node_affinity_policy
                .as_ref()
                .is_none_or(|p| p == "Honor"),
            honor_taints: wire
                .node_taints_policy
                .as_ref()
                .is_some_and(|p| p == "Honor"),
        })
    }

    /// Returns whether the constraint holds in a domain of `there` pods with the new pod, which counts `own`.
    pub(super) fn allows(&self, there: i64, own: i64, domains: usize, minimum: i64) -> bool {
        there + own - self.fewest(domains, minimum) <= self.max_skew
    }

    /// The number of pods in the emptiest domain. Each missing domain counts as an empty one.
    pub(super) fn fewest(&self, domains: usize, minimum: i64) -> i64 {
        let domains = i64::try_from(domains).unwrap_or(i64::MAX);
        if domains < self.min_domains {
            0
        } else {
            minimum
        }
    }

    /// The cost of `count` pods in a domain for a node, in raw points.
    pub(super) fn cost(&self, count: i64, weight: f64) -> f64 {
        count as f64 * weight + (self.max_skew - 1) as f64
    }
}

/// Returns whether a pod counts for constraints of pods in the namespace whose selectors match it.
pub(super) fn is_countable(other: &Pod, namespace: &Str) -> bool {
    other.namespace() == namespace && !other.is_terminating()
}

/// The pod's side of the policies that define which nodes count.
#[derive(Debug)]
pub(super) struct Inclusion {
    required: RequiredNodeAffinity,
    comparison_operators: bool,
}

impl Inclusion {
    pub(super) fn of(pod: &Pod, features: &FeatureGates) -> Self {
        Self {
            required: RequiredNodeAffinity::of(pod),
            comparison_operators: features.enabled(Feature::TaintTolerationComparisonOperators),
        }
    }

    /// Whether a node counts for the constraints of the pod.
    pub(super) fn on_node<'a>(&'a self, pod: &'a Pod, node: &'a Node) -> NodeInclusion<'a> {
        NodeInclusion {
            inclusion: self,
            pod,
            node,
            is_required: OnceCell::new(),
            is_tolerated: OnceCell::new(),
        }
    }
}

/// Whether a node counts for each constraint of a pod. A pod can have thousands of constraints and thousands of
/// tolerations, so the tolerations are checked once per node.
#[derive(Debug)]
pub(super) struct NodeInclusion<'a> {
    inclusion: &'a Inclusion,
    pod: &'a Pod,
    node: &'a Node,
    is_required: OnceCell<bool>,
    is_tolerated: OnceCell<bool>,
}

impl NodeInclusion<'_> {
    /// Returns whether the node counts for a constraint.
    pub(super) fn includes(&self, constraint: &Constraint) -> bool {
        let is_required = || self.inclusion.required.matches(self.node).unwrap_or(false);
        let is_tolerated = || {
            first_untolerated(
                &self.node.spec.taints,
                &self.pod.spec.tolerations,
                TaintEffect::forbids_scheduling,
                self.inclusion.comparison_operators,
            )
            .is_none()
        };
        (!constraint.honor_affinity || *self.is_required.get_or_init(is_required))
            && (!constraint.honor_taints || *self.is_tolerated.get_or_init(is_tolerated))
    }
}

/// Counts that each constraint is compared with each node, and with each kind of pods on nodes.
///
/// # Errors
/// When that is more than the attempt may do.
pub(super) fn look_at_all(cx: &Context<'_>, constraints: &[Constraint]) -> Result<(), Status> {
    let nodes = &cx.cluster.nodes;
    let times = nodes.len().saturating_add(nodes.pod_kinds());
    cx.look_at(constraints.len(), times)
}

/// Returns whether a node is in some domain of every constraint.
pub(super) fn has_all_keys<'a>(
    constraints: impl IntoIterator<Item = &'a Constraint>,
    labels: &Labels,
) -> bool {
    let mut constraints = constraints.into_iter();
    constraints.all(|constraint| labels.contains_key(&constraint.topology_key))
}

fn parse(
    wire: &[TopologySpreadConstraint],
    action: &str,
    pod: &Pod,
    features: &FeatureGates,
) -> Result<Vec<Constraint>, SelectorError> {
    wire.iter()
        .filter(|constraint| constraint.when_unsatisfiable == action)
        .map(|constraint| Constraint::parse(constraint, pod.labels(), features))
        .collect()
}

impl PodTopologySpread {
    /// The pod's constraints of one action. A pod with any constraint of its own has no default ones.
    pub(super) fn constraints(
        &self,
        cluster: &Cluster,
        features: &FeatureGates,
        pod: &Pod,
        action: &str,
    ) -> Result<Vec<Constraint>, SelectorError> {
        let own = &pod.spec.topology_spread_constraints;
        if !own.is_empty() {
            return parse(own, action, pod, features);
        }
        let mut defaults = parse(&self.args.default_constraints, action, pod, features)?;
        if defaults.is_empty() {
            return Ok(defaults);
        }
        let selector = default_selector(cluster, pod);
        if selector.is_empty() {
            return Ok(Vec::new());
        }
        for constraint in &mut defaults {
            constraint.selector = selector.clone();
            constraint.counted = selector.clone();
        }
        Ok(defaults)
    }
}
