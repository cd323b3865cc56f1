//! Added nodes: the number of nodes of a shape that the waiting pods need.

use crate::InputError;
use crate::changes::others::Others;
use crate::changes::{Added, merge};
use crate::changes::{daemons, strict};
use crate::documents::Document;
use crate::json::{ClusterJson, ObjectKey, known};
use berth_api::{Kind, Quantity};
use berth_explain::what_if::{AddedNodes, WhatIfReport};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The most nodes that are added.
pub(crate) const NODES_MAX: usize = 1000;
/// The pods of a node whose shape does not state them: the default of kubelets.
const PODS_DEFAULT: &str = "110";

/// The shape of added nodes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum NodeShape {
    /// The name of an existing node, whose labels, taints, devices and volume limits the new nodes have, too; or
    /// resources such as `cpu=8,memory=32Gi`.
    Named(String),
    /// A Node. The report names the shape by the place.
    Manifest(Document),
}

impl From<&str> for NodeShape {
    fn from(text: &str) -> Self {
        Self::Named(text.to_owned())
    }
}

/// A node with its ResourceSlices and CSINode.
#[derive(Debug, Clone)]
pub(crate) struct SpareNode {
    text: String,
    node: Value,
    /// The name of the model; names in `parts` are derived from it.
    like: String,
    /// Its ResourceSlices and CSINode.
    parts: Vec<(Kind, Value)>,
}

impl SpareNode {
    /// The node of a shape.
    ///
    /// # Errors
    /// When the shape is neither an existing node, nor a Node, nor resources.
    pub(crate) fn new(shape: &NodeShape, raw: &ClusterJson) -> Result<Self, InputError> {
        match shape {
            NodeShape::Named(text) => Self::named_by(text, raw),
            NodeShape::Manifest(document) => Self::of_manifest(document),
        }
    }

    fn named_by(text: &str, raw: &ClusterJson) -> Result<Self, InputError> {
        let wrong = |reason: String| InputError::Shape {
            shape: text.to_owned(),
            reason,
        };
        let mut shape = Self {
            text: text.to_owned(),
            node: json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}),
            like: String::new(),
            parts: Vec::new(),
        };
        let key = (Kind::Node, String::new(), text.to_owned());
        if let Some(node) = raw.get(&key) {
            shape.node = node.clone();
            text.clone_into(&mut shape.like);
            shape.parts = parts(raw, text);
            if let Some(spec) = shape.node.get_mut("spec") {
                merge(spec, json!({"unschedulable": null}));
            }
            return Ok(shape);
        }
        if !text.contains('=') {
            let similar = strict::similar(raw, &key);
            return Err(wrong(format!(
                "there is no such node{similar}; give the name of a node, a file with a Node, or resources such as \
                 cpu=8,memory=32Gi"
            )));
        }
        let mut resources = json!({"pods": PODS_DEFAULT});
        for pair in text.split(',') {
            let (name, amount) = pair.split_once('=').unwrap_or((pair, ""));
            let parsed: Result<Quantity, _> = amount.parse();
            if name.is_empty() || parsed.is_err() {
                return Err(wrong(format!(
                    "{pair:?} is no resource with a quantity, such as cpu=8"
                )));
            }
            resources[name] = amount.into();
        }
        shape.node["status"]["allocatable"] = resources;
        Ok(shape)
    }

    fn of_manifest(Document { place, object }: &Document) -> Result<Self, InputError> {
        strict::check(place, object)?;
        match known(place, object.clone())? {
            Some((key, node)) if key.0 == Kind::Node => {
                strict::check_new(&ClusterJson::new(), place, &key, &node)?;
                Ok(Self {
                    text: place.clone(),
                    node,
                    like: key.2,
                    parts: Vec::new(),
                })
            }
            _ => Err(InputError::object(place, "it is no Node")),
        }
    }

    /// Adds a number of nodes with their parts, and a pod of each DaemonSet.
    ///
    /// # Errors
    /// When a DaemonSet is malformed.
    pub(crate) fn add(
        &self,
        raw: &mut ClusterJson,
        others: &Others,
        nodes: usize,
    ) -> Result<(), InputError> {
        let mut new: BTreeSet<ObjectKey> = BTreeSet::new();
        let base = if self.like.is_empty() {
            "new-node"
        } else {
            self.like.as_str()
        };
        let mut number = 0;
        while new.len() < nodes {
            number += 1;
            let name = format!("{base}-new-{number}");
            let key = (Kind::Node, String::new(), name.clone());
            if raw.contains_key(&key) {
                continue;
            }
            raw.insert(key.clone(), self.named(&name));
            for (kind, part) in &self.parts {
                let (name, part) = renamed(*kind, part, &self.like, &name);
                raw.insert((*kind, String::new(), name), part);
            }
            new.insert(key);
        }
        let mut added = Added::default();
        for (place, set) in &others.daemons {
            daemons::apply(raw, place, set, &mut added, |node| new.contains(node))?;
        }
        others.priorities.resolve(raw, &added)
    }

    fn named(&self, name: &str) -> Value {
        let mut node = self.node.clone();
        let metadata = &mut node["metadata"];
        metadata["name"] = name.into();
        metadata["uid"] = format!("what-if-Node-{name}").into();
        if !metadata["labels"].is_object() {
            metadata["labels"] = json!({});
        }
        metadata["labels"]["kubernetes.io/hostname"] = name.into();
        node
    }
}

/// The objects of a node.
fn parts(raw: &ClusterJson, node: &str) -> Vec<(Kind, Value)> {
    let parts = raw.iter().filter(|(key, object)| match key.0 {
        Kind::ResourceSlice => object["spec"]["nodeName"] == node,
        Kind::CsiNode => key.2 == node,
        _ => false,
    });
    parts.map(|(key, object)| (key.0, object.clone())).collect()
}

/// A part of another node, with its name.
fn renamed(kind: Kind, part: &Value, like: &str, node: &str) -> (String, Value) {
    let mut part = part.clone();
    let name = match kind {
        Kind::CsiNode => node.to_owned(),
        _ => {
            let name = part["metadata"]["name"].as_str().unwrap_or_default();
            format!("{name}-{node}")
        }
    };
    part["metadata"]["name"] = name.as_str().into();
    part["metadata"]["uid"] = format!("what-if-{name}").into();
    if kind == Kind::ResourceSlice {
        part["spec"]["nodeName"] = node.into();
        let pool = part["spec"]["pool"]["name"].as_str().unwrap_or_default();
        let pool = if pool == like {
            node.to_owned()
        } else {
            format!("{pool}-{node}")
        };
        part["spec"]["pool"]["name"] = pool.into();
    }
    (name, part)
}

/// Finds the smallest number of nodes with which the fewest pods wait. `run` runs with a number of added nodes. Returns
/// the report of the run with the smallest number.
///
/// # Errors
/// The errors of `run`.
pub(crate) fn smallest(
    shape: &SpareNode,
    run: impl Fn(usize) -> Result<WhatIfReport, InputError>,
) -> Result<WhatIfReport, InputError> {
    let mut none = run(0)?;
    let waiting: BTreeSet<String> = none.pending.iter().map(|pod| pod.pod.clone()).collect();
    // The pods of DaemonSets on the new nodes need resources, too.
    let left = |report: &WhatIfReport| report.pending.len();
    let mut added = AddedNodes::default();
    added.shape.clone_from(&shape.text);
    added.waiting = waiting.len();
    added.is_limited = waiting.len() > NODES_MAX;
    let max = waiting.len().min(NODES_MAX);
    let least = match max {
        0 => 0,
        max => left(&run(max)?),
    };
    if least >= waiting.len() {
        none.add_nodes = Some(added);
        return Ok(none);
    }
    // With `low` nodes more pods wait, with `high` nodes the fewest possible pods wait.
    let (mut low, mut high) = (0, 1);
    while high < max && left(&run(high)?) > least {
        (low, high) = (high, (high * 2).min(max));
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if left(&run(middle)?) > least {
            low = middle
        } else {
            high = middle
        }
    }
    let mut best = run(high)?;
    let pending = best.pending.iter();
    let still_waiting = pending.filter(|pod| waiting.contains(&pod.pod)).count();
    added.nodes = high;
    added.placed = waiting.len() - still_waiting;
    best.add_nodes = Some(added);
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_explain::what_if::PendingPod;

    #[test]
    fn the_smallest_number_of_nodes_is_found() {
        let shape = NodeShape::from("cpu=8,memory=32Gi");
        let shape = SpareNode::new(&shape, &ClusterJson::new()).expect("a shape");
        // Each node holds a number of the waiting pods; some pods fit on none.
        for (waiting, hopeless, per_node, expected) in [
            (0, 0, 1, 0),
            (1, 0, 1, 1),
            (10, 0, 3, 4),
            (10, 4, 3, 2),
            (5, 5, 3, 0),
            (100, 1, 7, 15),
        ] {
            let run = |nodes: usize| {
                let placed = (nodes * per_node).min(waiting - hopeless);
                let pending = (placed..waiting).map(|at| PendingPod {
                    pod: format!("p{at}"),
                    reason: String::new(),
                });
                let mut report = WhatIfReport::default();
                report.pending = pending.collect();
                Ok(report)
            };
            let report = smallest(&shape, run).expect("a report");
            let added = report.add_nodes.expect("the nodes");
            assert_eq!(
                (added.nodes, added.placed),
                (expected, waiting - hopeless),
                "{waiting} {hopeless} {per_node}"
            );
        }
    }

    #[test]
    fn shapes_are_nodes_files_or_resources() {
        let key = (Kind::Node, String::new(), "node-1".to_owned());
        let raw = ClusterJson::from([(key, json!({"metadata": {"name": "node-1"}}))]);
        assert!(SpareNode::new(&"node-1".into(), &raw).is_ok());
        for (text, expected) in [
            ("node-2", "did you mean \"node-1\"?"),
            ("cpu=lots", "\"cpu=lots\" is no resource"),
        ] {
            let error = SpareNode::new(&text.into(), &raw).expect_err("no shape");
            let error = error.to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
