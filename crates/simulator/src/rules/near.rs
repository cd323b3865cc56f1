//! The constraints of pods on pods: affinity, anti-affinity, spread.

use super::Scene;
use super::node::{matches_affinity, matches_selector};
use crate::world::Others;
use berth_api::pod::{PodAffinity, PodAffinityTerm, TopologySpreadConstraint};
use berth_api::{LabelSelector, Labels, Node, Pod};
use std::collections::BTreeMap;

pub(super) fn broken_rule(scene: &Scene<'_>, pod: &Pod, node: &Node) -> Option<&'static str> {
    let keeps_apart = |a: &Pod, b: &Pod, there: &Node| {
        apart_terms(a).any(|term| {
            same_domain(&term.topology_key, there, node) && is_meant(scene.others, a, term, b)
        })
    };
    let is_apart = scene
        .elsewhere(pod)
        .any(|(other, there)| keeps_apart(pod, other, there) || keeps_apart(other, pod, there));
    if is_apart {
        return Some("a pod that it must be apart from is near");
    }
    if !near_terms(pod).all(|term| finds_company(scene, pod, node, term)) {
        return Some("a pod that it must be near to is not there");
    }
    let mut spread = pod.spec.topology_spread_constraints.iter();
    if spread.any(|constraint| too_many(scene, pod, node, constraint)) {
        return Some("there would be too many pods in one place");
    }
    None
}

fn terms(affinity: Option<&PodAffinity>) -> impl Iterator<Item = &PodAffinityTerm> {
    affinity.into_iter().flat_map(|a| &a.required)
}

fn apart_terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.affinity.as_ref();
    terms(affinity.and_then(|a| a.pod_anti_affinity.as_ref()))
}

fn near_terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.affinity.as_ref();
    terms(affinity.and_then(|a| a.pod_affinity.as_ref()))
}

/// A node without the label belongs to no domain.
fn same_domain(key: &str, a: &Node, b: &Node) -> bool {
    let (a, b) = (a.labels().get(key), b.labels().get(key));
    a.is_some() && a == b
}

/// The world's selectors are equalities.
fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    selector.is_some_and(|selector| {
        selector
            .match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value.as_str()))
    })
}

/// Returns whether `other` is one of the pods that a term of `owner` is about.
fn is_meant(others: &Others, owner: &Pod, term: &PodAffinityTerm, other: &Pod) -> bool {
    let in_reach = match &term.namespace_selector {
        None => owner.namespace() == other.namespace(),
        Some(selector) => {
            let namespace = others.namespace(other.namespace());
            namespace.is_some_and(|n| selects(Some(selector), &n.metadata.labels))
        }
    };
    in_reach && selects(term.label_selector.as_ref(), other.labels())
}

/// Returns whether the pods are there that the pod wants to be near to. Where there are none at all, it may be the
/// first.
fn finds_company(scene: &Scene<'_>, pod: &Pod, node: &Node, term: &PodAffinityTerm) -> bool {
    if !node.labels().contains_key(&term.topology_key) {
        return false;
    }
    let wanted: Vec<&Node> = scene
        .elsewhere(pod)
        .filter(|(other, there)| {
            there.labels().contains_key(&term.topology_key)
                && is_meant(scene.others, pod, term, other)
        })
        .map(|(_, there)| there)
        .collect();
    let near = wanted
        .iter()
        .any(|there| same_domain(&term.topology_key, there, node));
    near || (wanted.is_empty() && is_meant(scene.others, pod, term, pod))
}

/// Returns whether the pod would put its domain ahead of the emptiest one by more than is allowed. Only nodes count
/// that the pod's selector and node affinity match.
fn too_many(
    scene: &Scene<'_>,
    pod: &Pod,
    node: &Node,
    constraint: &TopologySpreadConstraint,
) -> bool {
    let key = &constraint.topology_key;
    let Some(domain) = node.labels().get(key) else {
        return true;
    };
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    let eligible = |node: &Node| matches_selector(pod, node) && matches_affinity(pod, node);
    for node in scene.nodes.iter().filter(|node| eligible(node)) {
        if let Some(domain) = node.labels().get(key) {
            counts.entry(domain).or_default();
        }
    }
    for (other, there) in scene.elsewhere(pod) {
        let counts_for = other.namespace() == pod.namespace()
            && !other.is_terminating()
            && selects(constraint.label_selector.as_ref(), other.labels());
        if let Some(domain) = there.labels().get(key)
            && counts_for
            && eligible(there)
        {
            *counts.entry(domain).or_default() += 1;
        }
    }
    let wanted = i64::from(constraint.min_domains.unwrap_or(1));
    let least = match counts.len() as i64 {
        domains if domains < wanted => 0,
        _ => counts.values().copied().min().unwrap_or(0),
    };
    let itself = i64::from(selects(constraint.label_selector.as_ref(), pod.labels()));
    let there = counts.get(domain).copied().unwrap_or(0);
    there + itself - least > i64::from(constraint.max_skew)
}
