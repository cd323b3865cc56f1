//! Hard topology spread constraints.

use crate::node::{SCHEDULING_EFFECTS, has_selected_labels, matches_affinity, untolerated};
use crate::selector::selects;
use berth_api::pod::TopologySpreadConstraint;
use berth_api::{Node, Pod};
use std::collections::BTreeMap;

/// The hard constraints of a pod.
pub fn hard_constraints(pod: &Pod) -> impl Iterator<Item = &TopologySpreadConstraint> {
    let constraints = pod.spec.topology_spread_constraints.iter();
    constraints.filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule")
}

/// Returns whether a constraint of the pod `owner` counts the pod `other` by its namespace and labels.
pub fn selects_for_spread(owner: &Pod, constraint: &TopologySpreadConstraint, other: &Pod) -> bool {
    let has_value_of_owner = |key: &str| {
        let value = owner.labels().get(key);
        value.is_none() || value == other.labels().get(key)
    };
    owner.namespace() == other.namespace()
        && selects(constraint.label_selector.as_ref(), other.labels())
        && constraint
            .match_label_keys
            .iter()
            .all(|key| has_value_of_owner(key))
}

/// The number of pods in each domain for a hard constraint of the pod `owner`. Only nodes count that have the keys of
/// all its constraints and that satisfy the node policies of the constraint.
pub fn domain_counts<'n>(
    owner: &Pod,
    constraint: &TopologySpreadConstraint,
    nodes: impl Iterator<Item = &'n Node>,
    placed: impl Iterator<Item = (&'n Pod, &'n Node)>,
) -> BTreeMap<&'n str, i64> {
    let ignores_affinity = constraint.node_affinity_policy.as_deref() == Some("Ignore");
    let honors_taints = constraint.node_taints_policy.as_deref() == Some("Honor");
    let domain = |node: &'n Node| {
        let mut keys = hard_constraints(owner).map(|constraint| &constraint.topology_key);
        let counts = keys.all(|key| node.labels().contains_key(key))
            && (ignores_affinity
                || (has_selected_labels(owner, node) && matches_affinity(owner, node)))
            && (!honors_taints
                || untolerated(&owner.spec.tolerations, node, SCHEDULING_EFFECTS)
                    .next()
                    .is_none());
        node.labels()
            .get(&constraint.topology_key)
            .filter(|_| counts)
    };
    let mut counts: BTreeMap<&str, i64> =
        nodes.filter_map(domain).map(|domain| (domain, 0)).collect();
    for (other, node) in placed {
        if !other.is_terminating()
            && selects_for_spread(owner, constraint, other)
            && let Some(domain) = domain(node)
        {
            *counts.entry(domain).or_default() += 1;
        }
    }
    counts
}

/// The number of pods in the domain with the fewest pods; zero if there are fewer domains than `minDomains`.
pub fn least_count(constraint: &TopologySpreadConstraint, counts: &BTreeMap<&str, i64>) -> i64 {
    let domains_min = i64::from(constraint.min_domains.unwrap_or(1));
    let least = counts.values().copied().min().unwrap_or(0);
    if (counts.len() as i64) < domains_min {
        0
    } else {
        least
    }
}
