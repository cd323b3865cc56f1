//! The written objects, and the fields that are read from answers.

use serde::Deserialize;
use serde_json::{Value, json};

const NAMESPACE: &str = "default";
pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(super) const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// The pod of scheduler_perf's default template.
pub(super) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "load", "pod": name}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "image": "registry.k8s.io/pause:3.10",
                "name": "pause",
                "ports": [{"containerPort": 80}],
                "resources": {
                    "limits": {"cpu": "100m", "memory": "500Mi"},
                    "requests": {"cpu": "100m", "memory": "500Mi"},
                },
            }],
        },
    })
}

/// The node of a pod.
pub(super) fn node_of(index: usize) -> String {
    format!("node-{}", index % 1_000)
}

pub(super) fn binding(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    })
}

/// The event that a scheduler writes about a bound pod.
pub(super) fn event(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": format!("{name}.scheduled"), "namespace": NAMESPACE},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-load",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": NAMESPACE, "name": name},
        "note": format!("Successfully assigned {NAMESPACE}/{name} to {node}"),
        "type": "Normal",
    })
}

/// An object of a list.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListItem {
    pub(super) metadata: Meta,
    pub(super) spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) name: String,
    pub(super) resource_version: String,
    #[serde(rename = "continue")]
    pub(super) next: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) node_name: String,
}

/// A list.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Items {
    pub(super) metadata: Meta,
    pub(super) items: Vec<ListItem>,
}

/// The `resourceVersion` of an answer, found without parsing the rest.
pub(super) fn revision(answer: &[u8]) -> Option<u64> {
    const FIELD: &[u8] = b"\"resourceVersion\":\"";
    let at = answer.windows(FIELD.len()).position(|w| w == FIELD)?;
    let rest = answer.get(at + FIELD.len()..)?;
    let end = rest.iter().position(|b| *b == b'"')?;
    std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_of_an_answer_is_found() {
        let answer = br#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"42","uid":"u"}}"#;
        assert_eq!(revision(answer), Some(42));
        assert_eq!(revision(b"{}"), None);
        assert_eq!(revision(br#"{"resourceVersion":"x"}"#), None);
    }
}
