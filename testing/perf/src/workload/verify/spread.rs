//! Hard topology spread constraints, on the final state.
//!
//! If pods were only added, no existing node changed, and all pods that count have the same constraint, then the
//! smallest count at the decision about the last pod of each domain was at most the final one. So at the end, no domain
//! may have more than `maxSkew` pods more than the smallest domain. Without these conditions the final state is not
//! conclusive, and no violation is reported.

use super::{LogWorld, PlacedEntry, Violation};
use berth_api::Pod;
use berth_api::pod::TopologySpreadConstraint;
use berth_oracle::{domain_counts, hard_constraints, least_count, selects_for_spread};
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
            for constraint in hard_constraints(&placed.pod) {
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

fn check_one(
    world: &LogWorld<'_>,
    pods: &[&PlacedEntry],
    owner: &Pod,
    constraint: &TopologySpreadConstraint,
) -> Option<Violation> {
    let counts_for = |pod: &Pod| selects_for_spread(owner, constraint, pod);
    let counted: Vec<&&PlacedEntry> = pods
        .iter()
        .filter(|placed| placed.versions.iter().any(|version| counts_for(version)))
        .collect();
    let bound = counted.iter().filter(|placed| placed.node.is_some());
    let first = bound.map(|placed| placed.created).min()?;
    let conclusive = world.unsettled < first
        && counts_for(owner)
        && counted.iter().all(|placed| {
            placed.versions.len() == 1
                && !placed.by_creator
                && placed.gone.is_none()
                && hard_constraints(&placed.pod).any(|c| c == constraint)
                && placed.pod.spec.node_selector == owner.spec.node_selector
                && placed.pod.spec.affinity == owner.spec.affinity
                && placed.pod.spec.tolerations == owner.spec.tolerations
        });
    if !conclusive {
        return None;
    }
    let latest = world.nodes.values().filter_map(|versions| versions.last());
    let nodes = latest.clone().filter_map(|version| version.node.as_deref());
    // A domain that was added after the first pod lowers the smallest count.
    let late = latest.filter(|version| version.from > first);
    let late = late.filter_map(|version| version.node.as_deref());
    if !domain_counts(owner, constraint, late, std::iter::empty()).is_empty() {
        return None;
    }
    let placed = counted.iter().filter_map(|placed| {
        let node = world.latest_node(placed.node.as_ref()?)?;
        Some((&*placed.pod, &**node))
    });
    let counts = domain_counts(owner, constraint, nodes, placed);
    let least = least_count(constraint, &counts);
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
