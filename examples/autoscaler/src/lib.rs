//! An example: the loop of a cluster autoscaler. `berth-core` answers two questions: which nodes the pending pods need,
//! and which nodes are not needed.
//!
//! A real autoscaler replaces two parts: it reads the cluster from watches, and it creates and deletes nodes at its
//! cloud provider.

use berth_core::{
    ClusterObjects, Configuration, Document, InputError, Kind, Time, WhatIf, what_if,
};
use serde_json::json;

/// A group of equal nodes that can grow.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeGroup {
    /// The name, which is the prefix of the names of its nodes.
    pub name: String,
    /// The resources of a node, such as `cpu=8,memory=32Gi`.
    pub shape: String,
    /// The price of a node.
    pub price: f64,
    /// The most nodes of the group.
    pub nodes_max: usize,
}

impl NodeGroup {
    /// Reads `NAME:SHAPE:PRICE:MAX`.
    ///
    /// # Errors
    /// When a part is missing or is not a number.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no node group; give NAME:SHAPE:PRICE:MAX, such as small:cpu=4,memory=16Gi:0.2:10"
            )
        };
        let [name, shape, price, nodes_max] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(wrong());
        };
        Ok(Self {
            name: name.to_owned(),
            shape: shape.to_owned(),
            price: price.parse().map_err(|_| wrong())?,
            nodes_max: nodes_max.parse().map_err(|_| wrong())?,
        })
    }

    fn node_name(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    /// The nodes of the group in the cluster.
    fn nodes(&self, cluster: &ClusterObjects) -> usize {
        let exists = |number: &usize| cluster.contains(Kind::Node, "", &self.node_name(*number));
        (1..=self.nodes_max).filter(exists).count()
    }

    /// Adds nodes to the cluster, as the cloud provider would.
    fn grow(&self, cluster: &mut ClusterObjects, nodes: usize) -> Result<(), InputError> {
        let mut resources = json!({"pods": "110"});
        for (resource, amount) in self
            .shape
            .split(',')
            .filter_map(|pair| pair.split_once('='))
        {
            resources[resource] = amount.into();
        }
        let exists = |cluster: &ClusterObjects, name: &str| cluster.contains(Kind::Node, "", name);
        let names = (1..=self.nodes_max).map(|number| self.node_name(number));
        let free: Vec<String> = names.filter(|name| !exists(cluster, name)).collect();
        for name in free.into_iter().take(nodes) {
            cluster.set(Document {
                place: format!("node group {}", self.name),
                object: json!({
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                    "status": {"allocatable": resources},
                }),
            })?;
        }
        Ok(())
    }
}

/// A decision of the autoscaler.
#[derive(Debug, Clone, PartialEq)]
pub enum ScalingDecision {
    /// Add nodes to a group, for a number of pods.
    Add {
        /// The name of the group.
        group: String,
        /// The number of nodes.
        nodes: usize,
        /// The pods that get a node.
        pods: usize,
    },
    /// Remove a node, because its pods fit on other nodes.
    Remove {
        /// The node.
        node: String,
    },
    /// No group has room for these pods.
    Hopeless {
        /// Each pod, with the reason of the scheduler.
        pods: Vec<(String, String)>,
    },
}

/// Adds nodes until each pending pod has a node or no group can help. In each round, the group with the lowest price per
/// placed pod grows.
///
/// # Errors
/// When the cluster or the configuration is malformed.
pub fn scale_up(
    cluster: &mut ClusterObjects,
    configuration: &Configuration,
    groups: &[NodeGroup],
    now: Time,
) -> Result<Vec<ScalingDecision>, InputError> {
    let mut decisions = Vec::new();
    loop {
        let mut best: Option<(f64, &NodeGroup, usize, usize)> = None;
        for group in groups {
            let left = group.nodes_max - group.nodes(cluster);
            let question = WhatIf::add_nodes(group.shape.as_str());
            let report = what_if(cluster, configuration, &question, now)?;
            let needed = report
                .add_nodes
                .filter(|needed| left > 0 && needed.placed > 0);
            let Some(needed) = needed else { continue };
            // A group that cannot grow enough helps some of the pods; the next round asks again.
            let nodes = needed.nodes.min(left);
            let price = group.price * needed.nodes as f64 / needed.placed as f64;
            if best.is_none_or(|(lowest, ..)| price < lowest) {
                best = Some((price, group, nodes, needed.placed));
            }
        }
        let Some((_, group, nodes, pods)) = best else {
            break;
        };
        group.grow(cluster, nodes)?;
        decisions.push(ScalingDecision::Add {
            group: group.name.clone(),
            nodes,
            pods,
        });
    }
    let report = what_if(cluster, configuration, &WhatIf::default(), now)?;
    if !report.pending.is_empty() {
        let pods = report.pending.into_iter();
        decisions.push(ScalingDecision::Hopeless {
            pods: pods.map(|pod| (pod.pod, pod.reason)).collect(),
        });
    }
    Ok(decisions)
}

/// The nodes that are not needed, in the order in which they can be drained.
///
/// # Errors
/// When the cluster or the configuration is malformed.
pub fn scale_down(
    cluster: &ClusterObjects,
    configuration: &Configuration,
    now: Time,
) -> Result<Vec<ScalingDecision>, InputError> {
    let mut question = WhatIf::default();
    question.consolidate = true;
    let report = what_if(cluster, configuration, &question, now)?;
    let nodes = report.drained.into_iter();
    Ok(nodes.map(|node| ScalingDecision::Remove { node }).collect())
}
