//! The rules that the oracle judges, about the nodes and pods of a scene.

use super::Scene;
use crate::shapes::EXTENDED;
use berth_api::pod::{PodAffinityTerm, TopologySpreadConstraint};
use berth_api::{Labels, Node, Pod, ResourceList};

/// The constraints of the node itself: taints, labels.
pub(super) fn broken_rule_of_node(pod: &Pod, node: &Node) -> Option<&'static str> {
    let tolerations = &pod.spec.tolerations;
    let mut taints = berth_oracle::untolerated(tolerations, node, berth_oracle::SCHEDULING_EFFECTS);
    if taints.next().is_some() {
        return Some("a taint is not tolerated");
    }
    if berth_oracle::is_barred_by_cordon(tolerations, node) {
        return Some("the node is cordoned");
    }
    if !berth_oracle::has_selected_labels(pod, node) {
        return Some("the node selector does not match");
    }
    (!berth_oracle::matches_affinity(pod, node)).then_some("the node affinity does not match")
}

/// The constraints on other pods: affinity, anti-affinity, spread.
pub(super) fn broken_rule_of_pods(
    scene: &Scene<'_>,
    pod: &Pod,
    node: &Node,
) -> Option<&'static str> {
    let placed: Vec<(&Pod, &Node)> = scene.elsewhere(pod).collect();
    let namespaces = |name: &str| -> Labels {
        let namespace = scene.others.namespace(name);
        namespace.map_or_else(Labels::default, |n| n.metadata.labels.clone())
    };
    let keeps_apart = |a: &Pod, b: &Pod, there: &Node| {
        let is_broken = |term: &PodAffinityTerm| {
            berth_oracle::are_together(&term.topology_key, there, node)
                && berth_oracle::matches_term(a, term, b, &namespaces)
        };
        berth_oracle::anti_affinity_terms(a).iter().any(is_broken)
    };
    let mut others = placed.iter();
    if others.any(|(other, there)| keeps_apart(pod, other, there) || keeps_apart(other, pod, there))
    {
        return Some("a pod that it must be apart from is near");
    }
    if !berth_oracle::finds_company(pod, node, &placed, &namespaces) {
        return Some("a pod that it must be near to is not there");
    }
    let is_too_many = |constraint: &TopologySpreadConstraint| {
        let Some(domain) = node.labels().get(&constraint.topology_key) else {
            return true;
        };
        let (nodes, placed) = (scene.nodes.iter().copied(), placed.iter().copied());
        let counts = berth_oracle::domain_counts(pod, constraint, nodes, placed);
        let itself = i64::from(berth_oracle::selects_for_spread(pod, constraint, pod));
        let there = counts.get(domain).copied().unwrap_or(0);
        let least = berth_oracle::least_count(constraint, &counts);
        there + itself - least > i64::from(constraint.max_skew)
    };
    let mut constraints = berth_oracle::hard_constraints(pod);
    let crowds = constraints.any(is_too_many);
    crowds.then_some("there would be too many pods in one place")
}

/// The resource or port for which the other pods of the node leave not enough.
pub(super) fn lacking(scene: &Scene<'_>, pod: &Pod, node: &Node) -> Option<String> {
    let neighbours: Vec<&Pod> = scene.on(node, pod).collect();
    let mut used = ResourceList::default();
    for other in &neighbours {
        used.add_all(&berth_oracle::requests(other));
    }
    // The extended resource of a device class is provided by devices.
    let requests = berth_oracle::requests(pod);
    let mut short = berth_oracle::shortages(&requests, &used, node)
        .map(|shortage| shortage.resource)
        .filter(|resource| *resource != EXTENDED);
    if let Some(resource) = short.next() {
        return Some(resource.to_string());
    }
    let mut ports = berth_oracle::host_ports(pod);
    let in_use = ports.find(|port| {
        let mut taken = neighbours
            .iter()
            .flat_map(|other| berth_oracle::host_ports(other));
        taken.any(|taken| port.conflicts_with(&taken))
    });
    in_use.map(|port| format!("host port {}", port.number))
}
