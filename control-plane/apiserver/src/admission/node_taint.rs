//! TaintNodesByCondition: a new node does not get pods before it is found to be ready.

use berth_objects::view::{FieldView, child_mut};
use berth_objects::well_known::NOT_READY;
use serde_json::{Value, json};

const EFFECT: &str = "NoSchedule";

/// Adds the taint of nodes that are not ready.
pub(super) fn add(node: &mut Value) {
    let is_there = |taint: &Value| taint.text("key") == NOT_READY && taint.text("effect") == EFFECT;
    if node.part("spec").items("taints").iter().any(is_there) {
        return;
    }
    let taints = child_mut(node, "spec").entry("taints");
    let taints = taints.or_insert_with(|| json!([]));
    if taints.is_null() {
        *taints = json!([]);
    }
    if let Some(taints) = taints.as_array_mut() {
        taints.push(json!({"key": NOT_READY, "effect": EFFECT}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gets_the_taint_once_and_keeps_its_own() {
        let taint = json!({"key": NOT_READY, "effect": EFFECT});
        let own = json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"});
        let evicts = json!({"key": NOT_READY, "effect": "NoExecute"});
        for (given, expect) in [
            (json!({}), json!([taint])),
            (json!({"spec": {"taints": null}}), json!([taint])),
            (json!({"spec": {"taints": [own]}}), json!([own, taint])),
            (json!({"spec": {"taints": [taint]}}), json!([taint])),
            (
                json!({"spec": {"taints": [evicts]}}),
                json!([evicts, taint]),
            ),
        ] {
            let mut node = given.clone();
            add(&mut node);
            assert_eq!(node["spec"]["taints"], expect, "{given}");
        }
    }
}
