//! DaemonSets: a pod for each node on which the DaemonSet controller would create one.

use super::workloads::{contains, new_pod, pods_of, remove};
use super::{Added, DELETE, name_of, namespace_of};
use crate::InputError;
use crate::json::{ClusterJson, ObjectKey};
use berth_api::Kind;
use berth_objects::daemon_set::{DaemonTemplate, assign, node_of};
use serde_json::Value;

const VERSION: &str = "apps/v1";
const KIND: &str = "DaemonSet";

/// Returns whether an object is a DaemonSet.
pub(crate) fn is_one(object: &Value) -> bool {
    object["apiVersion"] == VERSION && object["kind"] == KIND
}

/// Creates, replaces or removes the pods of a DaemonSet like its controller, on the nodes that `concerns` selects.
///
/// # Errors
/// When the object has no name or no template that can be decoded.
pub(crate) fn apply(
    raw: &mut ClusterJson,
    place: &str,
    object: &Value,
    added: &mut Added,
    concerns: impl Fn(&ObjectKey) -> bool,
) -> Result<(), InputError> {
    let wrong = |what: &str| InputError::object(place, format!("{KIND}: {what}"));
    let name = name_of(object).ok_or_else(|| wrong("metadata.name is missing"))?;
    let namespace = namespace_of(object);
    let present = pods_of(raw, KIND, &namespace, &name);
    if object["metadata"]["annotations"][DELETE] == "delete" {
        present.iter().for_each(|key| remove(raw, key, added));
        return Ok(());
    }
    let template = &object["spec"]["template"];
    if !template.is_object() {
        return Err(wrong("spec.template is missing"));
    }
    let rule = DaemonTemplate::new(template)
        .map_err(|error| wrong(&format!("failed to decode spec.template: {error}")))?;
    let nodes: Vec<ObjectKey> = raw
        .keys()
        .filter(|key| key.0 == Kind::Node)
        .cloned()
        .collect();
    for node in nodes.into_iter().filter(concerns) {
        let here = rule.place(&raw[&node]);
        let wanted = of_node(template, &node.2);
        let (mut has_one, mut others) = (false, Vec::new());
        for key in &present {
            let pod = raw.get(key).unwrap_or(&Value::Null);
            if node_of(pod) == Some(node.2.as_str()) {
                let stays = here.may_stay && !has_one && contains(&pod["spec"], &wanted["spec"]);
                has_one |= stays;
                others.extend((!stays).then(|| key.clone()));
            }
        }
        others.iter().for_each(|key| remove(raw, key, added));
        if here.should_run && !has_one {
            let free = |number: usize| {
                let suffix = if number == 0 {
                    String::new()
                } else {
                    format!("-{number}")
                };
                (
                    Kind::Pod,
                    namespace.clone(),
                    format!("{name}-{}{suffix}", node.2),
                )
            };
            let key = (0..).map(free).find(|key| !raw.contains_key(key));
            let Some(key) = key else {
                continue;
            };
            let pod = new_pod(&key, &wanted, VERSION, KIND, &name);
            raw.insert(key.clone(), pod);
            added.pods.push(key);
        }
    }
    Ok(())
}

/// The template with the controller's additions for a node.
fn of_node(template: &Value, node: &str) -> Value {
    let mut template = template.clone();
    if !template["spec"].is_object() {
        template["spec"] = Value::Object(serde_json::Map::new());
    }
    assign(&mut template, node);
    template
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn raw() -> ClusterJson {
        let nodes = [
            ("n1", json!({})),
            (
                "n2",
                json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}),
            ),
            (
                "n3",
                json!({"unschedulable": true, "taints": [
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}),
            ),
        ];
        nodes
            .into_iter()
            .map(|(name, spec)| {
                let node =
                    json!({"metadata": {"name": name, "labels": {"name": name}}, "spec": spec});
                ((Kind::Node, String::new(), name.to_owned()), node)
            })
            .collect()
    }

    fn set(spec: Value, cpu: &str) -> Value {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "ops"},
               "spec": {"template": {"metadata": {"labels": {"app": "agent"}}, "spec": spec}}})
    }

    fn pods(raw: &ClusterJson) -> Vec<&str> {
        let pods = raw.keys().filter(|key| key.0 == Kind::Pod);
        pods.map(|key| key.2.as_str()).collect()
    }

    #[test]
    fn each_matching_node_gets_a_pod() {
        for (what, spec, expected) in [
            (
                "all nodes but the tainted one",
                json!({}),
                &["agent-n1", "agent-n3"][..],
            ),
            (
                "the taint is tolerated",
                json!({"tolerations": [{"operator": "Exists"}]}),
                &["agent-n1", "agent-n2", "agent-n3"],
            ),
            (
                "a node selector",
                json!({"nodeSelector": {"name": "n1"}}),
                &["agent-n1"],
            ),
        ] {
            let (mut raw, mut added) = (raw(), Added::default());
            apply(&mut raw, "f", &set(spec, "1"), &mut added, |_| true).expect("applied");
            assert_eq!(pods(&raw), expected, "{what}");
            assert_eq!(added.pods.len(), expected.len(), "{what}");
            let pod = &raw[&added.pods[0]];
            let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
            let names = &terms["nodeSelectorTerms"][0]["matchFields"][0]["values"];
            assert_eq!(*names, json!(["n1"]), "{what}");
        }
    }

    #[test]
    fn present_pods_stay_are_replaced_or_deleted() {
        let (mut raw, mut added) = (raw(), Added::default());
        apply(&mut raw, "f", &set(json!({}), "1"), &mut added, |_| true).expect("applied");
        for (key, pod) in &mut raw {
            if key.0 == Kind::Pod {
                pod["spec"]["nodeName"] = key.2.trim_start_matches("agent-").into();
            }
        }
        for (what, object, new, left) in [
            ("nothing changes", set(json!({}), "1"), 0, 2),
            ("another template", set(json!({}), "2"), 2, 2),
            (
                "other nodes",
                set(json!({"nodeSelector": {"name": "n1"}}), "1"),
                1,
                1,
            ),
        ] {
            let (mut raw, mut added) = (raw.clone(), Added::default());
            apply(&mut raw, "f", &object, &mut added, |_| true).expect("applied");
            assert_eq!((added.pods.len(), pods(&raw).len()), (new, left), "{what}");
        }
        let mut deleted = set(json!({}), "1");
        deleted["metadata"]["annotations"] = json!({DELETE: "delete"});
        apply(&mut raw, "f", &deleted, &mut Added::default(), |_| true).expect("applied");
        assert!(pods(&raw).is_empty());
        let refused = apply(
            &mut raw,
            "f",
            &json!({"metadata": {"name": "a"}}),
            &mut Added::default(),
            |_| true,
        );
        assert!(refused.is_err());
    }
}
