//! Nodes that are added: how many of a shape the waiting pods need.

use super::changes::{Added, ChangedKey, ClusterJson, Others, known, merge};
use super::read::documents;
use super::{daemons, strict};
use crate::exit::CommandFailure;
use berth_api::{Kind, Quantity};
use berth_explain::what_if::{AddedNodes, WhatIfReport};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// The most nodes that are added.
const NODES_MAX: usize = 1000;
/// The pods of a node whose shape does not state it, as of kubelets.
const PODS_DEFAULT: &str = "110";

/// A node, and what belongs to it.
#[derive(Debug, Clone)]
pub(super) struct SpareNode {
    text: String,
    node: Value,
    /// The name of the node that it is like; names in `parts` are made of it.
    like: String,
    /// Its ResourceSlices and CSINode.
    parts: Vec<(Kind, Value)>,
}

impl SpareNode {
    /// The shape of a node that exists, of a Node in a file, or of resources such as `cpu=8,memory=32Gi`.
    ///
    /// # Errors
    /// When the text is none of these.
    pub(super) fn new(text: &str, raw: &ClusterJson) -> Result<Self, CommandFailure> {
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
        if text.contains('=') {
            let mut resources = json!({"pods": PODS_DEFAULT});
            for pair in text.split(',') {
                let (name, amount) = pair.split_once('=').unwrap_or((pair, ""));
                let parsed: Result<Quantity, _> = amount.parse();
                if name.is_empty() || parsed.is_err() {
                    return Err(CommandFailure::Usage(format!(
                        "--add-nodes {text}: {pair:?} is no resource with a quantity, such as cpu=8"
                    )));
                }
                resources[name] = amount.into();
            }
            shape.node["status"]["allocatable"] = resources;
            return Ok(shape);
        }
        if Path::new(text).is_file() {
            let mut nodes = documents(Path::new(text))?;
            let Some((place, node)) = nodes.pop().filter(|_| nodes.is_empty()) else {
                return Err(CommandFailure::Usage(format!(
                    "--add-nodes {text}: the file must have one document, a Node"
                )));
            };
            strict::check(&place, &node)?;
            match known(&place, node)? {
                Some((key, node)) if key.0 == Kind::Node => {
                    strict::check_new(&ClusterJson::new(), &place, &key, &node)?;
                    shape.node = node;
                    shape.like = key.2;
                    return Ok(shape);
                }
                _ => return Err(CommandFailure::Usage(format!("{place}: it is no Node"))),
            }
        }
        let similar = strict::similar(raw, &key);
        Err(CommandFailure::Usage(format!(
            "--add-nodes {text}: there is no such node and no such file{similar}; give the name of a node, a file with a \
             Node, or resources such as cpu=8,memory=32Gi"
        )))
    }

    /// Adds so many nodes with what belongs to them, and a pod of each DaemonSet.
    ///
    /// # Errors
    /// When a DaemonSet is malformed.
    pub(super) fn add(
        &self,
        raw: &mut ClusterJson,
        others: &Others,
        nodes: usize,
    ) -> Result<(), CommandFailure> {
        let mut new: BTreeSet<ChangedKey> = BTreeSet::new();
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
        others.priorities.resolve(raw, &added)?;
        // Missing objects of these pods were noted when the DaemonSets were read.
        others.claims.make(raw, &added);
        Ok(())
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

/// Finds the smallest number of nodes with which as few pods wait as with any number. `run` runs with so
/// many nodes. Returns the report of the run with that number.
///
/// # Errors
/// Those of `run`.
pub(super) fn smallest(
    shape: &SpareNode,
    run: impl Fn(usize) -> Result<WhatIfReport, CommandFailure>,
) -> Result<WhatIfReport, CommandFailure> {
    let none = run(0)?;
    let waiting: BTreeSet<String> = none.pending.iter().map(|pod| pod.pod.clone()).collect();
    // The pods that the DaemonSets create on the new nodes need their room, too.
    let left = |report: &WhatIfReport| report.pending.len();
    let mut added = AddedNodes {
        shape: shape.text.clone(),
        waiting: waiting.len(),
        is_limited: waiting.len() > NODES_MAX,
        ..AddedNodes::default()
    };
    let max = waiting.len().min(NODES_MAX);
    let least = match max {
        0 => 0,
        max => left(&run(max)?),
    };
    if least >= waiting.len() {
        return Ok(WhatIfReport {
            add_nodes: Some(added),
            ..none
        });
    }
    // With `low` nodes more pods wait, with `high` nodes as few as possible.
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
    let best = run(high)?;
    let pending = best.pending.iter();
    let still_waiting = pending.filter(|pod| waiting.contains(&pod.pod)).count();
    added.nodes = high;
    added.placed = waiting.len() - still_waiting;
    Ok(WhatIfReport {
        add_nodes: Some(added),
        ..best
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_explain::what_if::PendingPod;

    #[test]
    fn the_smallest_number_of_nodes_is_found() {
        let shape = SpareNode::new("cpu=8,memory=32Gi", &ClusterJson::new()).expect("a shape");
        // Each node takes so many of the waiting pods; some fit on none.
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
                Ok(WhatIfReport {
                    pending: pending.collect(),
                    ..WhatIfReport::default()
                })
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
        assert!(SpareNode::new("node-1", &raw).is_ok());
        for (text, expected) in [
            ("node-2", "did you mean \"node-1\"?"),
            ("cpu=lots", "\"cpu=lots\" is no resource"),
        ] {
            let error = SpareNode::new(text, &raw).expect_err("no shape");
            let error = format!("{error:?}").replace("\\\"", "\"");
            assert!(error.contains(expected), "{error}");
        }
    }
}
