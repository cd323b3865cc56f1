//! The nodes of a DaemonSet's pods, for its controller and for what-if.

use crate::object::{items, name};
use berth_api::pod::{Affinity, PodTemplate};
use berth_api::{Labels, Node, Pod, Taint, TaintEffect};

use serde::Deserialize;
use serde_json::{Value, json};

const NODE_NAME_FIELD: &str = "metadata.name";

/// The taints that every pod of a DaemonSet tolerates, with their effects.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// The taint that pods with host network also tolerate.
const NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";

/// The relation of a node to a DaemonSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePlacement {
    /// A pod is created on it.
    pub should_run: bool,
    /// A pod that is on it may stay.
    pub may_stay: bool,
}

/// The constraints that a template asks of nodes.
#[derive(Debug)]
pub struct DaemonTemplate {
    node_name: Option<String>,
    /// A pod with the constraints alone.
    pod: Pod,
}

impl DaemonTemplate {
    /// The constraints that this pod template asks for.
    ///
    /// # Errors
    /// A constraint cannot be decoded.
    pub fn new(template: &Value) -> Result<Self, serde_json::Error> {
        let spec = &template["spec"];
        let node_name = spec["nodeName"].as_str().filter(|n| !n.is_empty());
        let constraints = PodTemplate {
            node_selector: Option::<Labels>::deserialize(&spec["nodeSelector"])?,
            affinity: Option::<Box<Affinity>>::deserialize(&spec["affinity"])?,
            tolerations: Deserialize::deserialize(tolerations(spec))?,
            ..PodTemplate::default()
        };
        Ok(Self {
            node_name: node_name.map(str::to_owned),
            pod: Pod {
                spec: constraints.into(),
                ..Pod::default()
            },
        })
    }

    /// The relation of the node to the pods of the template.
    pub fn place(&self, node: &Value) -> NodePlacement {
        let is_named = self.node_name.as_deref().is_none_or(|n| n == name(node));
        let node = judged(node);
        let is_repelled = |effect| {
            let tolerations = &self.pod.spec.tolerations;
            let effects = [effect];
            let mut taints = berth_oracle::untolerated(tolerations, &node, &effects);
            taints.next().is_some()
        };
        let may_stay = is_named
            && berth_oracle::has_selected_labels(&self.pod, &node)
            && berth_oracle::matches_affinity(&self.pod, &node)
            && !is_repelled(TaintEffect::NoExecute);
        NodePlacement {
            should_run: may_stay && !is_repelled(TaintEffect::NoSchedule),
            may_stay,
        }
    }
}

/// A node with only the relevant fields: each sync examines all nodes.
fn judged(node: &Value) -> Node {
    let mut judged = Node::default();
    judged.metadata.name = name(node).into();
    judged.metadata.labels = Labels::deserialize(&node["metadata"]["labels"]).unwrap_or_default();
    let taints = items(&node["spec"]["taints"]).iter();
    judged.spec.taints = taints.filter_map(|t| Taint::deserialize(t).ok()).collect();
    judged
}

/// The tolerations of a pod of a DaemonSet.
fn tolerations(spec: &Value) -> Value {
    let mut tolerations = items(&spec["tolerations"]).to_vec();
    let network = (spec["hostNetwork"] == true).then_some((NETWORK_UNAVAILABLE, "NoSchedule"));
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    tolerations.into()
}

/// Directs a pod to its node, and adds the tolerations of DaemonSets.
pub fn assign(pod: &mut Value, node: &str) {
    let tolerations = tolerations(&pod["spec"]);
    let spec = &mut pod["spec"];
    spec["tolerations"] = tolerations;
    let term = json!({"matchFields": [
        {"key": NODE_NAME_FIELD, "operator": "In", "values": [node]},
    ]});
    let required = json!({"nodeSelectorTerms": [term]});
    if !spec["affinity"].is_object() {
        spec["affinity"] = json!({});
    }
    if !spec["affinity"]["nodeAffinity"].is_object() {
        spec["affinity"]["nodeAffinity"] = json!({});
    }
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = required;
}

/// The node of a pod: its `nodeName`, or the node of its required affinity.
pub fn node_of(pod: &Value) -> Option<&str> {
    if let Some(node) = crate::pod::node_name(pod) {
        return Some(node);
    }
    let required =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    items(&required["nodeSelectorTerms"])
        .iter()
        .flat_map(|term| items(&term["matchFields"]))
        .find(|field| field["key"] == NODE_NAME_FIELD && field["operator"] == "In")
        .and_then(|field| field["values"][0].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_chosen_by_selector_affinity_and_taints() {
        let node = |labels: Value, taints: Value| json!({"metadata": {"name": "a", "labels": labels}, "spec": {"taints": taints}});
        let taint = |key: &str, effect: &str| json!([{"key": key, "effect": effect}]);
        let plain = json!({});
        let ssd = json!({"nodeSelector": {"disk": "ssd"}});
        let not_a = json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]},
            ]},
        }}});
        let tolerant = json!({"tolerations": [{"key": "x", "operator": "Exists"}]});
        let host = json!({"hostNetwork": true});
        for (situation, spec, node, should_run, may_stay) in [
            ("any node", &plain, node(json!({}), json!([])), true, true),
            (
                "the label",
                &ssd,
                node(json!({"disk": "ssd"}), json!([])),
                true,
                true,
            ),
            (
                "another label",
                &ssd,
                node(json!({"disk": "hdd"}), json!([])),
                false,
                false,
            ),
            (
                "the affinity",
                &not_a,
                node(json!({}), json!([])),
                false,
                false,
            ),
            (
                "NoSchedule",
                &plain,
                node(json!({}), taint("x", "NoSchedule")),
                false,
                true,
            ),
            (
                "NoExecute",
                &plain,
                node(json!({}), taint("x", "NoExecute")),
                false,
                false,
            ),
            (
                "a toleration",
                &tolerant,
                node(json!({}), taint("x", "NoExecute")),
                true,
                true,
            ),
            (
                "a cordoned node",
                &plain,
                node(
                    json!({}),
                    taint("node.kubernetes.io/unschedulable", "NoSchedule"),
                ),
                true,
                true,
            ),
            (
                "a node that is not ready",
                &plain,
                node(
                    json!({}),
                    taint("node.kubernetes.io/not-ready", "NoExecute"),
                ),
                true,
                true,
            ),
            (
                "no network",
                &plain,
                node(json!({}), taint(NETWORK_UNAVAILABLE, "NoSchedule")),
                false,
                true,
            ),
            (
                "no network, which the pod does not need",
                &host,
                node(json!({}), taint(NETWORK_UNAVAILABLE, "NoSchedule")),
                true,
                true,
            ),
        ] {
            let template = DaemonTemplate::new(&json!({"spec": spec})).expect("a template");
            let place = template.place(&node);
            let expect = NodePlacement {
                should_run,
                may_stay,
            };
            assert_eq!(place, expect, "{situation}");
        }
    }

    #[test]
    fn a_pod_is_directed_to_its_node() {
        let mut pod = json!({"spec": {"nodeSelector": {"a": "b"}}});
        assign(&mut pod, "n1");
        assert_eq!(node_of(&pod), Some("n1"));
        pod["spec"]["nodeName"] = "n2".into();
        assert_eq!(node_of(&pod), Some("n2"));
        assert_eq!(items(&pod["spec"]["tolerations"]).len(), TOLERATED.len());
    }
}
