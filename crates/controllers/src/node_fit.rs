//! Whether a node is one that a pod may run on, by its labels, its name and its taints.

use berth_api::node_selector::{CompiledNodeSelector, NodeSelector};
use berth_api::taint::tolerates_taint;
use berth_api::{Labels, Taint, TaintEffect, Toleration};
use berth_objects::object::{items, name};
use serde::Deserialize;
use serde_json::Value;

/// The constraints of the spec of a pod on nodes.
#[derive(Debug)]
pub(crate) struct NodeFit {
    labels: Vec<(String, String)>,
    affinity: Option<CompiledNodeSelector>,
    tolerations: Vec<Toleration>,
}

impl NodeFit {
    /// Reads the node selector and the affinity of a spec, and these tolerations.
    pub(crate) fn new(spec: &Value, tolerations: &Value) -> Self {
        let required =
            &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let labels = spec["nodeSelector"].as_object().into_iter().flatten();
        Self {
            labels: labels
                .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
                .collect(),
            affinity: required.is_object().then(|| {
                let selector = NodeSelector::deserialize(required).unwrap_or_default();
                CompiledNodeSelector::new(&selector)
            }),
            tolerations: items(tolerations)
                .iter()
                .filter_map(|t| Toleration::deserialize(t).ok())
                .collect(),
        }
    }

    /// Returns whether the node selector and the affinity match a node.
    pub(crate) fn matches(&self, node: &Value) -> bool {
        let labels = &node["metadata"]["labels"];
        self.labels.iter().all(|(key, value)| labels[key] == *value)
            && self.affinity.as_ref().is_none_or(|affinity| {
                let labels = Labels::deserialize(labels).unwrap_or_default();
                affinity.matches(&labels, name(node)).unwrap_or(false)
            })
    }

    /// Returns whether a taint of a node with this effect is not tolerated.
    pub(crate) fn is_repelled(&self, node: &Value, effect: TaintEffect) -> bool {
        items(&node["spec"]["taints"])
            .iter()
            .filter_map(|t| Taint::deserialize(t).ok())
            .filter(|t| t.effect == effect)
            .any(|t| !tolerates_taint(&self.tolerations, &t, true))
    }
}
