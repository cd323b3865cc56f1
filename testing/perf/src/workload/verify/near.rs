//! Required affinity and anti-affinity between pods.

use super::{LabelDomain, LogWorld, PlacedEntry};
use berth_api::{Labels, Node, Pod};
use berth_oracle::{affinity_terms, anti_affinity_terms, matches_all, matches_term};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Adds the node labels that the required terms of a pod refer to.
pub(super) fn topology_keys(pod: &Pod, keys: &mut HashSet<String>) {
    let terms = affinity_terms(pod).iter().chain(anti_affinity_terms(pod));
    for key in terms.map(|term| &term.topology_key) {
        if !keys.contains(key.as_str()) {
            keys.insert(key.to_string());
        }
    }
}

/// The node labels of the domains from which a pod excludes other pods.
pub(super) fn guarded_keys(pod: &Pod) -> HashSet<String> {
    let terms = anti_affinity_terms(pod).iter();
    terms.map(|term| term.topology_key.to_string()).collect()
}

/// The rule about other pods that is broken by a pod on `node`.
pub(super) fn broken_rule(
    world: &LogWorld<'_>,
    placed: &PlacedEntry,
    node: &Node,
) -> Option<String> {
    let (pod, namespaces) = (&placed.pod, world.namespaces());
    // Labels may have changed since the decision: a conflict requires every version to match, affinity any version.
    for term in anti_affinity_terms(pod) {
        let always = |other: &&PlacedEntry| {
            let mut versions = other.versions.iter();
            versions.all(|version| matches_term(pod, term, version, &namespaces))
        };
        if let Some(other) = pods_in(world, &world.in_domain, node, &term.topology_key).find(always)
        {
            return Some(format!(
                "its anti-affinity is broken by pod {} in the same {}",
                other.pod.key(),
                term.topology_key
            ));
        }
    }
    for key in &world.keys {
        let conflicts = |other: &&PlacedEntry| {
            placed.versions.len() == 1
                && anti_affinity_terms(&other.pod).iter().any(|term| {
                    term.topology_key == key.as_str()
                        && matches_term(&other.pod, term, pod, &namespaces)
                })
        };
        if let Some(other) = pods_in(world, &world.guarded, node, key).find(conflicts) {
            return Some(format!(
                "the anti-affinity of pod {} in the same {key} is broken",
                other.pod.key()
            ));
        }
    }
    company(world, placed, node, &namespaces)
}

fn pods_in<'w>(
    world: &'w LogWorld<'_>,
    index: &'w HashMap<LabelDomain, HashSet<Arc<str>>>,
    node: &Node,
    key: &str,
) -> impl Iterator<Item = &'w PlacedEntry> {
    let value = node.labels().get(key);
    let domain = value.map(|value| (key.to_owned(), value.to_owned()));
    let uids = domain.and_then(|domain| index.get(&domain));
    let uids = uids.into_iter().flatten();
    uids.filter_map(|uid| world.pods.get(uid))
}

/// Returns a message if a term of required affinity has no matching pod. The first pod of a group of pods with affinity
/// to each other needs none.
fn company(
    world: &LogWorld<'_>,
    placed: &PlacedEntry,
    node: &Node,
    namespaces: &dyn Fn(&str) -> Labels,
) -> Option<String> {
    let pod = &placed.pod;
    let terms = affinity_terms(pod);
    let all_match = |other: &Pod| matches_all(pod, other, namespaces);
    let was_there = |uid: &Arc<str>| {
        let end = world.end.get(uid);
        end.is_none_or(|end| *end >= placed.created)
    };
    // Labels that were added later count, too.
    let matches = |uid: &Arc<str>| {
        let first = world.first.get(uid).is_some_and(|first| all_match(first));
        first
            || world
                .pods
                .get(uid)
                .is_some_and(|other| other.versions.iter().any(|version| all_match(version)))
    };
    let lonely = terms.iter().find(|term| {
        let key = &term.topology_key;
        let Some(value) = node.labels().get(key) else {
            return true;
        };
        let pods = world.ever.get(&(key.to_string(), value.to_owned()));
        !pods
            .into_iter()
            .flatten()
            .any(|(uid, _)| **uid != *pod.uid().as_str() && was_there(uid) && matches(uid))
    })?;
    let mut keys = terms.iter().map(|term| &term.topology_key);
    let has_labels = keys.all(|key| node.labels().contains_key(key));
    let alone = !world.pods.iter().any(|(uid, other)| {
        other.node.is_some() && other.bound < placed.created && was_there(uid) && matches(uid)
    });
    if has_labels && all_match(pod) && alone {
        return None;
    }
    Some(format!(
        "its affinity finds no matching pod in the same {}",
        lonely.topology_key
    ))
}
