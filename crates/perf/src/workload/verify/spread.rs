//! Hard topology spread constraints, on the final state.
//!
//! If pods were only added, no existing node changed, and all pods that count have the same constraint, the last pod
//! of each domain was decided when the smallest count was no greater than it is at the end. So at the end no domain may
//! have more than `maxSkew` pods more than the smallest one. Where these conditions do not hold the final state proves
//! nothing, and nothing is reported.

use super::{LogWorld, PlacedEntry, Violation, node};
use berth_api::pod::TopologySpreadConstraint;
use berth_api::{Pod, Selector};
use std::collections::BTreeMap;

/// The violations that the final state proves.
pub(super) fn check(world: &LogWorld<'_>) -> Vec<Violation> {
    let mut by_namespace: BTreeMap<&str, Vec<&PlacedEntry>> = BTreeMap::new();
    for placed in world.pods.values() {
        by_namespace
            .entry(placed.pod.namespace().as_str())
            .or_default()
            .push(placed);
    }
    let mut violations = Vec::new();
    for pods in by_namespace.values() {
        let mut checked: Vec<&TopologySpreadConstraint> = Vec::new();
        for placed in pods {
            for constraint in hard(&placed.pod) {
                if checked.contains(&constraint) {
                    continue;
                }
                checked.push(constraint);
                violations.extend(check_one(world, pods, &placed.pod, constraint));
            }
        }
    }
    violations
}

fn hard(pod: &Pod) -> impl Iterator<Item = &TopologySpreadConstraint> {
    pod.spec
        .topology_spread_constraints
        .iter()
        .filter(|c| c.when_unsatisfiable == "DoNotSchedule")
}

fn check_one(
    world: &LogWorld<'_>,
    pods: &[&PlacedEntry],
    owner: &Pod,
    constraint: &TopologySpreadConstraint,
) -> Option<Violation> {
    let selector = Selector::from_label_selector(constraint.label_selector.as_ref()).ok()?;
    let counted: Vec<&&PlacedEntry> = pods
        .iter()
        .filter(|placed| placed.versions.iter().any(|v| selector.matches(v.labels())))
        .collect();
    let first = counted
        .iter()
        .filter(|placed| placed.node.is_some())
        .map(|placed| placed.created)
        .min()?;
    let conclusive = world.unsettled < first
        && selector.matches(owner.labels())
        && constraint.match_label_keys.is_empty()
        && constraint.node_taints_policy.is_none()
        && constraint.node_affinity_policy.is_none()
        && counted.iter().all(|placed| {
            placed.versions.len() == 1
                && !placed.by_creator
                && placed.gone.is_none()
                && hard(&placed.pod).any(|c| c == constraint)
                && placed.pod.spec.node_selector == owner.spec.node_selector
                && placed.pod.spec.affinity == owner.spec.affinity
        });
    if !conclusive {
        return None;
    }
    let keys: Vec<&str> = hard(owner).map(|c| c.topology_key.as_str()).collect();
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    let mut latest_node = first;
    for versions in world.nodes.values() {
        let Some(version) = versions.last() else {
            continue;
        };
        let Some(found) = &version.node else { continue };
        let eligible = node::labels(owner, found).is_none()
            && keys.iter().all(|key| found.labels().contains_key(key));
        if let (true, Some(value)) = (eligible, found.labels().get(&constraint.topology_key)) {
            counts.entry(value).or_default();
            latest_node = latest_node.max(version.from);
        }
    }
    // A domain that was new after the first pod lowers the smallest count.
    if latest_node > first {
        return None;
    }
    for placed in counted {
        let node = placed
            .node
            .as_ref()
            .and_then(|name| world.latest_node(name));
        let value = node.and_then(|node| node.labels().get(&constraint.topology_key));
        if let Some(count) = value.and_then(|value| counts.get_mut(value)) {
            *count += 1;
        }
    }
    let domains_wanted = constraint.min_domains.unwrap_or(1);
    let least = if (counts.len() as i64) < i64::from(domains_wanted) {
        0
    } else {
        counts.values().copied().min()?
    };
    let (domain, most) = counts.iter().max_by_key(|(_, count)| **count)?;
    (most - least > i64::from(constraint.max_skew)).then(|| Violation {
        pod: owner.key(),
        node: format!("of {}={domain}", constraint.topology_key),
        rule: format!(
            "the spread constraint allows a skew of {}, and at the end there are {most} pods in this domain and {least} \
             in the smallest",
            constraint.max_skew
        ),
    })
}
