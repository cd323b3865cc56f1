//! Required affinity and anti-affinity between pods.

use super::{LogWorld, NamespaceLabels, PlacedEntry};
use berth_api::pod::{PodAffinity, PodAffinityTerm};
use berth_api::{LabelSelector, Labels, Node, Pod, Selector};
use std::collections::HashSet;
use std::sync::Arc;

fn affinity(pod: &Pod) -> &[PodAffinityTerm] {
    required(
        pod.spec
            .affinity
            .as_ref()
            .and_then(|a| a.pod_affinity.as_ref()),
    )
}

fn anti_affinity(pod: &Pod) -> &[PodAffinityTerm] {
    required(
        pod.spec
            .affinity
            .as_ref()
            .and_then(|a| a.pod_anti_affinity.as_ref()),
    )
}

fn required(affinity: Option<&PodAffinity>) -> &[PodAffinityTerm] {
    affinity.map_or(&[], |affinity| affinity.required.as_slice())
}

/// Adds the node labels that the required terms of a pod refer to.
pub(super) fn topology_keys(pod: &Pod, keys: &mut HashSet<String>) {
    let terms = affinity(pod).iter().chain(anti_affinity(pod));
    for key in terms.map(|term| &term.topology_key) {
        if !keys.contains(key.as_str()) {
            keys.insert(key.to_string());
        }
    }
}

/// The node labels in whose domains a pod does not want certain others.
pub(super) fn guarded_keys(pod: &Pod) -> HashSet<String> {
    let terms = anti_affinity(pod).iter();
    terms.map(|term| term.topology_key.to_string()).collect()
}

/// A term whose selectors are compiled.
struct VerifiedTerm {
    key: String,
    selector: Option<Selector>,
    namespaces: Vec<String>,
    namespace_selector: Option<Selector>,
}

impl VerifiedTerm {
    fn new(owner: &Pod, term: &PodAffinityTerm) -> Self {
        // A selector that is malformed matches nothing.
        let compile = |selector: Option<&LabelSelector>| {
            Selector::from_label_selector(selector)
                .or_else(|_| Selector::from_label_selector(None))
                .ok()
        };
        let mut namespaces: Vec<String> = term.namespaces.iter().map(ToString::to_string).collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(owner.namespace().to_string());
        }
        Self {
            key: term.topology_key.to_string(),
            selector: compile(term.label_selector.as_ref()),
            namespaces,
            namespace_selector: term
                .namespace_selector
                .as_ref()
                .and_then(|s| compile(Some(s))),
        }
    }

    fn matches(&self, pod: &Pod, namespaces: &NamespaceLabels) -> bool {
        let namespace = pod.namespace().as_str();
        let in_namespace = self.namespaces.iter().any(|n| n == namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| {
                let none = Labels::default();
                selector.matches(namespaces.get(namespace).unwrap_or(&none))
            });
        let selected = self.selector.as_ref();
        in_namespace && selected.is_some_and(|selector| selector.matches(pod.labels()))
    }
}

/// The rule about other pods that a pod on `node` breaks.
pub(super) fn broken_rule(
    world: &LogWorld<'_>,
    placed: &PlacedEntry,
    node: &Node,
) -> Option<String> {
    let namespaces = &world.surroundings.namespaces;
    // Labels may have changed since the decision: every version must match for a conflict, any for company.
    let always = |term: &VerifiedTerm, other: &PlacedEntry| {
        other
            .versions
            .iter()
            .all(|pod| term.matches(pod, namespaces))
    };
    for term in anti_affinity(&placed.pod) {
        let term = VerifiedTerm::new(&placed.pod, term);
        for other in pods_in(world, &world.in_domain, node, &term.key) {
            if always(&term, other) {
                return Some(format!(
                    "its anti-affinity is broken by pod {} in the same {}",
                    other.pod.key(),
                    term.key
                ));
            }
        }
    }
    for key in &world.keys {
        for other in pods_in(world, &world.guarded, node, key) {
            let conflict = anti_affinity(&other.pod).iter().any(|term| {
                term.topology_key == key.as_str()
                    && VerifiedTerm::new(&other.pod, term).matches(&placed.pod, namespaces)
                    && placed.versions.len() == 1
            });
            if conflict {
                return Some(format!(
                    "the anti-affinity of pod {} in the same {key} is broken",
                    other.pod.key()
                ));
            }
        }
    }
    company(world, placed, node)
}

fn pods_in<'w>(
    world: &'w LogWorld<'_>,
    index: &'w std::collections::HashMap<super::LabelDomain, HashSet<Arc<str>>>,
    node: &Node,
    key: &str,
) -> impl Iterator<Item = &'w PlacedEntry> {
    let domain = node
        .labels()
        .get(key)
        .map(|value| (key.to_owned(), value.to_owned()));
    let uids = domain.and_then(|domain| index.get(&domain));
    uids.into_iter()
        .flatten()
        .filter_map(|uid| world.pods.get(uid))
}

/// Returns whether required affinity finds the pods it asks for. The first of a group of pods that ask for each other
/// needs none.
fn company(world: &LogWorld<'_>, placed: &PlacedEntry, node: &Node) -> Option<String> {
    let pod = &placed.pod;
    let terms: Vec<VerifiedTerm> = affinity(pod)
        .iter()
        .map(|t| VerifiedTerm::new(pod, t))
        .collect();
    if terms.is_empty() {
        return None;
    }
    let namespaces = &world.surroundings.namespaces;
    let all_match = |other: &Pod| terms.iter().all(|term| term.matches(other, namespaces));
    let was_there = |uid: &Arc<str>| {
        let end = world.end.get(uid);
        end.is_none_or(|end| *end >= placed.created)
    };
    // Labels that came later count, too.
    let matches = |uid: &Arc<str>| {
        let first = world.first.get(uid).is_some_and(|first| all_match(first));
        first
            || world
                .pods
                .get(uid)
                .is_some_and(|other| other.versions.iter().any(|version| all_match(version)))
    };
    let lonely = terms.iter().find(|term| {
        let Some(value) = node.labels().get(&term.key) else {
            return true;
        };
        let domain = (term.key.clone(), value.to_owned());
        let pods = world.ever.get(&domain).map(Vec::as_slice);
        !pods
            .unwrap_or_default()
            .iter()
            .any(|(uid, _)| **uid != *pod.uid().as_str() && was_there(uid) && matches(uid))
    })?;
    let has_labels = terms.iter().all(|t| node.labels().contains_key(&t.key));
    let alone = !world.pods.iter().any(|(uid, other)| {
        other.node.is_some() && other.bound < placed.created && was_there(uid) && matches(uid)
    });
    if has_labels && all_match(pod) && alone {
        return None;
    }
    Some(format!(
        "its affinity finds no matching pod in the same {}",
        lonely.key
    ))
}
