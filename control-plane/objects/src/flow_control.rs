//! The FlowSchemas and PriorityLevelConfigurations of every cluster, from `facts/flowcontrol.jsonl`: the mandatory and
//! the suggested objects of kube-apiserver 1.36. They describe priorities; this server does not queue requests by them.

use crate::view::FieldView;
use serde_json::{Value, json};

const FACTS: &str = include_str!("../facts/flowcontrol.jsonl");
const GROUP_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
/// The names of the objects whose specification is fixed.
pub const MANDATORY: [&str; 2] = ["catch-all", "exempt"];

fn facts() -> impl Iterator<Item = Value> {
    FACTS
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
}

/// The objects, with their plural names.
pub fn bootstrap() -> impl Iterator<Item = (&'static str, Value)> {
    facts().map(|fact| {
        let plural = match fact.text("kind") {
            "FlowSchema" => "flowschemas",
            _ => "prioritylevelconfigurations",
        };
        let object = json!({
            "apiVersion": GROUP_VERSION,
            "kind": fact["kind"],
            "metadata": {
                "name": fact["name"],
                "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"},
            },
            "spec": fact["spec"],
        });
        (plural, object)
    })
}

/// The specification that an object of this kind and name must have, if it is fixed.
pub(crate) fn mandatory_flow_spec(kind: &str, name: &str) -> Option<Value> {
    let mut facts = facts().filter(|_| MANDATORY.contains(&name));
    let fact = facts.find(|fact| fact.text("kind") == kind && fact.text("name") == name)?;
    Some(fact.part("spec").clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_is_read_and_each_mandatory_object_is_one_of_them() {
        assert_eq!(facts().count(), FACTS.lines().count());
        for kind in ["FlowSchema", "PriorityLevelConfiguration"] {
            for name in MANDATORY {
                assert!(mandatory_flow_spec(kind, name).is_some(), "{kind} {name}");
            }
            assert_eq!(mandatory_flow_spec(kind, "global-default"), None);
        }
    }
}
