//! Required affinity and anti-affinity between pods.
//!
//! `namespaces` returns the labels of a namespace by its name; none for an unknown namespace.

use crate::selector::selects;
use berth_api::pod::{PodAffinity, PodAffinityTerm};
use berth_api::{Labels, Node, Pod};

/// The required affinity terms of a pod.
pub fn affinity_terms(pod: &Pod) -> &[PodAffinityTerm] {
    let affinity = pod.spec.affinity.as_ref();
    required(affinity.and_then(|affinity| affinity.pod_affinity.as_ref()))
}

/// The required anti-affinity terms of a pod.
pub fn anti_affinity_terms(pod: &Pod) -> &[PodAffinityTerm] {
    let affinity = pod.spec.affinity.as_ref();
    required(affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref()))
}

fn required(affinity: Option<&PodAffinity>) -> &[PodAffinityTerm] {
    affinity.map_or(&[], |affinity| &affinity.required)
}

/// Returns whether a term of the pod `owner` matches the pod `other`.
pub fn matches_term(
    owner: &Pod,
    term: &PodAffinityTerm,
    other: &Pod,
    namespaces: &dyn Fn(&str) -> Labels,
) -> bool {
    let namespace = other.namespace();
    let is_in_reach = match &term.namespace_selector {
        None if term.namespaces.is_empty() => owner.namespace() == namespace,
        selector => {
            term.namespaces.contains(namespace)
                || (selector.is_some() && selects(selector.as_ref(), &namespaces(namespace)))
        }
    };
    is_in_reach && selects(term.label_selector.as_ref(), other.labels())
}

/// Returns whether all required affinity terms of `owner` match the pod `other`.
pub fn matches_all(owner: &Pod, other: &Pod, namespaces: &dyn Fn(&str) -> Labels) -> bool {
    let mut terms = affinity_terms(owner).iter();
    terms.all(|term| matches_term(owner, term, other, namespaces))
}

/// Returns whether two nodes are in the same domain of a label. A node without the label is in none.
pub fn are_together(key: &str, a: &Node, b: &Node) -> bool {
    let domain = a.labels().get(key);
    domain.is_some() && domain == b.labels().get(key)
}

/// Returns whether the required affinity of a pod allows a node, given the pods placed on these nodes: the domain of
/// each term has a pod that matches all terms. If no such pod exists in any domain, a pod that matches its own terms
/// fits on every node with the keys.
pub fn finds_company(
    pod: &Pod,
    node: &Node,
    placed: &[(&Pod, &Node)],
    namespaces: &dyn Fn(&str) -> Labels,
) -> bool {
    let terms = affinity_terms(pod);
    let company = placed
        .iter()
        .filter(|(other, _)| matches_all(pod, other, namespaces));
    let nodes: Vec<&Node> = company.map(|(_, there)| *there).collect();
    let has_domain = |there: &Node, term: &PodAffinityTerm| {
        let key = &term.topology_key;
        there.labels().contains_key(key)
    };
    let is_near = |term: &PodAffinityTerm| {
        let mut nodes = nodes.iter();
        nodes.any(|there| are_together(&term.topology_key, there, node))
    };
    // A matching pod outside of the domains of all terms is not counted.
    let is_first = !nodes
        .iter()
        .any(|there| terms.iter().any(|term| has_domain(there, term)));
    terms.iter().all(|term| has_domain(node, term))
        && (terms.iter().all(is_near) || (is_first && matches_all(pod, pod, namespaces)))
}
