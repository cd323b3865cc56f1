//! The constraints of a node alone: taints, labels.

use berth_api::taint::TolerationOperator;
use berth_api::{Node, Pod, Taint, TaintEffect};

pub(super) fn broken_rule(pod: &Pod, node: &Node) -> Option<&'static str> {
    if node.spec.taints.iter().any(|taint| keeps_off(taint, pod)) {
        return Some("a taint is not tolerated");
    }
    let cordon = Taint::new(
        "node.kubernetes.io/unschedulable",
        "",
        TaintEffect::NoSchedule,
    );
    if node.spec.unschedulable && keeps_off(&cordon, pod) {
        return Some("the node is cordoned");
    }
    if !matches_selector(pod, node) {
        return Some("the node selector does not match");
    }
    if !matches_affinity(pod, node) {
        return Some("the node affinity does not match");
    }
    None
}

fn keeps_off(taint: &Taint, pod: &Pod) -> bool {
    let acts = matches!(
        taint.effect,
        TaintEffect::NoSchedule | TaintEffect::NoExecute
    );
    acts && !pod.spec.tolerations.iter().any(|toleration| {
        (toleration.key.is_empty() || toleration.key == taint.key)
            && (toleration.effect == TaintEffect::Unset || toleration.effect == taint.effect)
            && match toleration.operator {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal => toleration.value == taint.value,
                _ => false,
            }
    })
}

pub(super) fn matches_selector(pod: &Pod, node: &Node) -> bool {
    pod.spec.node_selector.as_ref().is_none_or(|selector| {
        selector
            .iter()
            .all(|(key, value)| node.labels().get(key) == Some(value.as_str()))
    })
}

/// Required terms are alternatives; the requirements of a term must all be met. The world uses `In` and `NotIn` on
/// labels, and `In` on the name of the node.
pub(super) fn matches_affinity(pod: &Pod, node: &Node) -> bool {
    let affinity = pod.spec.affinity.as_ref();
    let required = affinity
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required.as_ref());
    required.is_none_or(|required| matches_terms(required, node))
}

/// Returns whether one of the terms matches.
pub(super) fn matches_terms(
    required: &berth_api::node_selector::NodeSelector,
    node: &Node,
) -> bool {
    required.node_selector_terms.iter().any(|term| {
        term.match_expressions.iter().all(|requirement| {
            let value = node.labels().get(&requirement.key);
            let listed = value.is_some_and(|v| requirement.values.iter().any(|w| *w == v));
            listed == (requirement.operator == "In")
        }) && term.match_fields.iter().all(|requirement| {
            // The only field is the name of the node.
            requirement.values.iter().any(|name| name == node.name())
        })
    })
}
