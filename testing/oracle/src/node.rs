//! The rules that depend on a node alone: labels, taints and the cordon.

use crate::selector::is_met;
use berth_api::node_selector::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use berth_api::taint::TolerationOperator;
use berth_api::{Node, Pod, Str, Taint, TaintEffect, Toleration};

/// The effects of the taints that a scheduler must respect.
pub const SCHEDULING_EFFECTS: &[TaintEffect] = &[TaintEffect::NoSchedule, TaintEffect::NoExecute];

/// Returns whether a node has every label of the node selector of a pod.
pub fn has_selected_labels(pod: &Pod, node: &Node) -> bool {
    let mut selected = pod.spec.node_selector.iter().flat_map(|all| all.iter());
    selected.all(|(key, value)| node.labels().get(key) == Some(value))
}

/// Returns whether a node matches the required node affinity of a pod, if it has one.
pub fn matches_affinity(pod: &Pod, node: &Node) -> bool {
    let affinity = pod.spec.affinity.as_ref();
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| matches_terms(required, node))
}

/// Returns whether a node matches one of the terms of a node selector. An empty term matches no node.
pub fn matches_terms(selector: &NodeSelector, node: &Node) -> bool {
    let matches_term = |term: &NodeSelectorTerm| {
        let (labels, fields) = (&term.match_expressions, &term.match_fields);
        (!labels.is_empty() || !fields.is_empty())
            && labels.iter().all(|requirement| {
                is_met_by_label(requirement, node.labels().get(&requirement.key))
            })
            && fields.iter().all(|requirement| {
                let name = (requirement.key == "metadata.name").then_some(node.name().as_str());
                matches!(requirement.operator.as_str(), "In" | "NotIn")
                    && requirement.values.len() == 1
                    && is_met_by_label(requirement, name)
            })
    };
    selector.node_selector_terms.iter().any(matches_term)
}

fn is_met_by_label(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    match (requirement.operator.as_str(), &requirement.values[..]) {
        (order @ ("Gt" | "Lt"), [bound]) => {
            let pair = value.and_then(number).zip(number(bound));
            pair.is_some_and(|(value, bound)| match order {
                "Gt" => value > bound,
                _ => value < bound,
            })
        }
        (operator, values) => is_met(operator, value, values).unwrap_or(false),
    }
}

/// The taints of a node with one of these effects that no toleration tolerates.
pub fn untolerated<'n>(
    tolerations: &'n [Toleration],
    node: &'n Node,
    effects: &'n [TaintEffect],
) -> impl Iterator<Item = &'n Taint> {
    let taints = node.spec.taints.iter();
    taints.filter(|taint| effects.contains(&taint.effect) && !is_tolerated(tolerations, taint))
}

/// Returns whether a node is cordoned and no toleration of the pod matches that.
pub fn is_barred_by_cordon(tolerations: &[Toleration], node: &Node) -> bool {
    let key = "node.kubernetes.io/unschedulable";
    let cordon = Taint::new(key, "", TaintEffect::NoSchedule);
    node.spec.unschedulable && !is_tolerated(tolerations, &cordon)
}

/// `Lt` and `Gt` are always evaluated: without their feature gate, a scheduler only tolerates fewer taints.
fn is_tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| {
        let values = || canonical(&taint.value).zip(canonical(&toleration.value));
        (toleration.key.is_empty() || toleration.key == taint.key)
            && (toleration.effect == TaintEffect::Unset || toleration.effect == taint.effect)
            && match toleration.operator {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal => toleration.value == taint.value,
                TolerationOperator::Lt => values().is_some_and(|(taint, own)| taint < own),
                TolerationOperator::Gt => values().is_some_and(|(taint, own)| taint > own),
                TolerationOperator::Unknown => false,
            }
    })
}

/// A number in the canonical form of KEP-5471: without a plus sign and leading zeros.
fn canonical(text: &Str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (text.as_str() == number.to_string()).then_some(number)
}
