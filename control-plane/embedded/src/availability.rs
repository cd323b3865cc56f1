//! Waits until applied objects are available, for `berth up --wait`, by the criteria of `kubectl wait` and `kubectl
//! rollout status`.

use crate::apply::Applied;
use berth_edge::exit::CommandFailure;
use berth_objects::access::{Access, gr};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The number of objects that an error names.
const NAMED_MAX: usize = 5;
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Waits until the nodes are ready and the applied objects are available.
///
/// # Errors
/// Names some unavailable objects when the time has passed.
pub async fn wait(
    api: &dyn Access,
    applied: &[Applied],
    limit: Duration,
) -> Result<(), CommandFailure> {
    let begun = Instant::now();
    loop {
        let missing = missing(api, applied);
        if missing.is_empty() {
            return Ok(());
        }
        if begun.elapsed() >= limit {
            let more = missing.len().saturating_sub(NAMED_MAX);
            let mut named = missing[..missing.len().min(NAMED_MAX)].join(", ");
            if more > 0 {
                named += &format!(" and {more} more");
            }
            return Err(CommandFailure::Environment(format!(
                "not available after {} s: {named}; give more time with --wait=DURATION",
                limit.as_secs()
            )));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The objects that are not available.
fn missing(api: &dyn Access, applied: &[Applied]) -> Vec<String> {
    let nodes = api.list(gr("", "nodes"), None);
    let nodes = nodes.iter().filter(|node| !is_node_ready(node));
    let nodes = nodes.map(|node| format!("Node {}", text(&node["metadata"]["name"])));
    let objects = applied.iter().filter(|one| {
        let object = api.get(one.resource, &one.namespace, &one.name);
        !object.is_ok_and(|object| is_available(&one.kind, &object))
    });
    nodes.chain(objects.map(ToString::to_string)).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// A node that no kubelet serves never becomes ready, and is not waited for.
fn is_node_ready(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array();
    let is_tainted = taints.into_iter().flatten().any(|t| t["key"] == NOT_READY);
    let is_served =
        text(&node["metadata"]["labels"][berth_objects::well_known::SIMULATED]) == "true";
    !is_served || (has_condition(node, "Ready") && !is_tainted)
}

fn is_available(kind: &str, object: &Value) -> bool {
    let status = |field: &str| object["status"][field].as_i64().unwrap_or_default();
    let generation = object["metadata"]["generation"]
        .as_i64()
        .unwrap_or_default();
    let is_observed = status("observedGeneration") >= generation;
    let replicas = object["spec"]["replicas"].as_i64().unwrap_or(1);
    match kind {
        "Deployment" => {
            is_observed
                && status("updatedReplicas") == replicas
                && status("availableReplicas") == replicas
        }
        "StatefulSet" | "ReplicaSet" => is_observed && status("readyReplicas") == replicas,
        "ReplicationController" => status("readyReplicas") == replicas,
        "DaemonSet" => is_observed && status("numberReady") == status("desiredNumberScheduled"),
        "Pod" => has_condition(object, "Ready") || object["status"]["phase"] == "Succeeded",
        "Job" => {
            object["spec"]["suspend"] == true
                || has_condition(object, "Complete")
                || has_condition(object, "Failed")
        }
        "PersistentVolumeClaim" => object["status"]["phase"] == "Bound",
        "CustomResourceDefinition" => has_condition(object, "Established"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kinds_are_available_as_kubectl_sees_them() {
        let condition = |kind: &str| json!([{"type": kind, "status": "True"}]);
        for (kind, object, expect) in [
            (
                "Deployment",
                json!({"metadata": {"generation": 2}, "spec": {"replicas": 2},
                       "status": {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2}}),
                false,
            ),
            (
                "Deployment",
                json!({"metadata": {"generation": 2}, "spec": {"replicas": 2},
                       "status": {"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2}}),
                true,
            ),
            (
                "Deployment",
                json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "updatedReplicas": 1}}),
                false,
            ),
            (
                "StatefulSet",
                json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "readyReplicas": 1}}),
                true,
            ),
            (
                "DaemonSet",
                json!({"metadata": {"generation": 1},
                       "status": {"observedGeneration": 1, "desiredNumberScheduled": 3, "numberReady": 2}}),
                false,
            ),
            (
                "DaemonSet",
                json!({"metadata": {"generation": 1}, "status": {}}),
                false,
            ),
            (
                "Pod",
                json!({"status": {"conditions": condition("Ready")}}),
                true,
            ),
            ("Pod", json!({"status": {"phase": "Succeeded"}}), true),
            ("Pod", json!({"status": {"phase": "Running"}}), false),
            (
                "Job",
                json!({"status": {"conditions": condition("Complete")}}),
                true,
            ),
            ("Job", json!({"spec": {"suspend": true}}), true),
            ("Job", json!({"spec": {}}), false),
            (
                "PersistentVolumeClaim",
                json!({"status": {"phase": "Pending"}}),
                false,
            ),
            ("ConfigMap", json!({}), true),
        ] {
            assert_eq!(is_available(kind, &object), expect, "{kind} {object}");
        }
    }

    #[test]
    fn nodes_are_ready_without_the_taint_of_nodes_that_are_not() {
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let served = json!({"labels": {"berth.dev/simulated": "true"}});
        for (node, expect) in [
            (json!({"metadata": served, "status": ready}), true),
            (json!({"metadata": served, "status": {}}), false),
            (
                json!({"metadata": served, "status": ready, "spec": {"taints": [{"key": NOT_READY}]}}),
                false,
            ),
            (json!({"metadata": {}, "status": {}}), true),
        ] {
            assert_eq!(is_node_ready(&node), expect, "{node}");
        }
    }
}
