//! Deleted nodes: the effect on each of their pods.

use crate::json::{ClusterJson, shown};
use berth_api::Kind;
use berth_explain::what_if::{DisplacedPod, Fate};
use serde_json::{Value, json};

/// Replaces the pods of deleted nodes like their controllers, and removes pods without a controller that replaces them.
pub(crate) fn displace(raw: &mut ClusterJson, nodes: &[String]) -> Vec<DisplacedPod> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let node_of = |pod: &Value| pod["spec"]["nodeName"].as_str().map(str::to_owned);
    let on_them = raw.iter().filter_map(|(key, pod)| {
        let phase = pod["status"]["phase"].as_str();
        // A pod that has ended needs no new node.
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        let node = node_of(pod).filter(|node| nodes.contains(node))?;
        (key.0 == Kind::Pod && !has_ended).then(|| (key.clone(), node))
    });
    let on_them: Vec<_> = on_them.collect();
    let displaced = on_them.into_iter().map(|(key, from)| {
        let lost = raw.get(&key).and_then(not_replaced);
        let pod = DisplacedPod {
            pod: shown(&key),
            from,
            fate: if lost.is_some() {
                Fate::Lost
            } else {
                Fate::Waiting
            },
            node: None,
            reason: lost.unwrap_or_default().to_owned(),
            blocks: false,
        };
        match (pod.fate, raw.get_mut(&key)) {
            (Fate::Waiting, Some(pod)) => replace(pod),
            _ => {
                raw.remove(&key);
            }
        }
        pod
    });
    displaced.collect()
}

/// The reason why a pod is not replaced; `None` if its controller replaces it.
fn not_replaced(pod: &Value) -> Option<&'static str> {
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return Some("it was terminating");
    }
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let mut controllers = owners.into_iter().flatten();
    let owner = controllers.find(|owner| owner["controller"] == true);
    match owner.and_then(|owner| owner["kind"].as_str()) {
        None => Some("it has no controller that would replace it"),
        Some("DaemonSet") => Some("a pod of a DaemonSet ends with its node"),
        Some("Node") => Some("a static pod ends with its node"),
        Some(_) => None,
    }
}

/// Makes a pod its own replacement.
fn replace(pod: &mut Value) {
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    pod["metadata"]["uid"] = format!("{uid}-replaced").into();
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    pod["status"] = json!({"phase": "Pending"});
}
