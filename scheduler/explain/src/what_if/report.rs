//! The result of a run.

use super::balance::Balance;
use crate::answer::Reason;
use crate::spread::WorkloadSpread;
use serde::{Deserialize, Serialize};

/// A pod with its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacedPod {
    /// `namespace/name`.
    pub pod: String,
    /// The node.
    pub node: String,
}

/// A pod without a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPod {
    /// `namespace/name`.
    pub pod: String,
    /// The reason.
    pub reason: String,
}

/// The end of a pod of a deleted or drained node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// Its replacement is bound to another node.
    BoundElsewhere,
    /// Its replacement was bound, and evicted by preemption.
    Evicted,
    /// Its replacement waits.
    Waiting,
    /// It ends with its node and is not replaced.
    Lost,
    /// It stays on its node.
    Stays,
}

impl Fate {
    /// Every end.
    pub const ALL: [Self; 5] = [
        Self::BoundElsewhere,
        Self::Evicted,
        Self::Waiting,
        Self::Lost,
        Self::Stays,
    ];

    /// The end in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::BoundElsewhere => "bound elsewhere",
            Self::Evicted => "evicted",
            Self::Waiting => "waiting",
            Self::Lost => "lost",
            Self::Stays => "staying",
        }
    }
}

/// A pod of a deleted or drained node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisplacedPod {
    /// `namespace/name`.
    pub pod: String,
    /// The node.
    pub from: String,
    /// Its end.
    pub fate: Fate,
    /// The node of its replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The reason why it waits, is lost or stays.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Whether it prevents the drain of its node.
    #[serde(default)]
    pub blocks: bool,
}

/// The fit of a workload of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WorkloadFit {
    /// Its pods without a node.
    pub placed: Vec<PlacedPod>,
    /// Its pods for which there is none.
    pub pending: Vec<PendingPod>,
}

impl WorkloadFit {
    /// Returns whether there is a node for each pod.
    pub fn fits(&self) -> bool {
        self.pending.is_empty()
    }
}

/// The usage of a cluster.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Nodes, cordoned ones included.
    pub nodes: usize,
    /// Pods on nodes.
    pub pods: usize,
    /// Pods that wait.
    pub pending: usize,
    /// Requested CPU, in percent of the nodes' allocatable CPU.
    pub cpu_percent: f64,
    /// Requested memory, in percent of the nodes' allocatable memory.
    pub memory_percent: f64,
}

/// The number of further pods of a template that fit, and why no further one does.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fit {
    /// `namespace/name` of the template.
    pub pod: String,
    /// The number of pods that fit.
    pub pods: usize,
    /// The nodes, the node with the most pods first.
    pub nodes: Vec<NodeFit>,
    /// Whether the maximum number of pods was reached and all of them fit.
    pub is_limited: bool,
    /// The reasons why the next pod fits nowhere, the most frequent reason first.
    pub bottleneck: Vec<Reason>,
}

/// The number of pods of a template that fit on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFit {
    /// The node.
    pub node: String,
    /// The number of pods.
    pub pods: usize,
}

/// The nodes that the waiting pods need.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AddedNodes {
    /// The shape as it was given.
    pub shape: String,
    /// The smallest number of new nodes that places as many waiting pods as any greater number.
    pub nodes: usize,
    /// The pods that wait without these nodes.
    pub waiting: usize,
    /// The number of waiting pods that get a node with these nodes.
    pub placed: usize,
    /// Whether the tried numbers of nodes were all insufficient, so that more might be needed.
    pub is_limited: bool,
}

/// The capacity that is left for a CapacityBuffer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BufferRoom {
    /// `namespace/name` of the buffer.
    pub buffer: String,
    /// The number of its chunks.
    pub chunks: usize,
    /// The chunks that fit in addition to all pods.
    pub fitting: usize,
    /// The reason why the next chunk does not fit; empty if all fit.
    pub reason: String,
}

/// The spread of a workload, and the skew after the deletion of its surplus pods.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rebalance {
    /// The spread before it.
    #[serde(flatten)]
    pub spread: WorkloadSpread,
    /// The skew with the replacements on their nodes.
    pub skew_rebalanced: usize,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WhatIfReport {
    /// The cluster before the change.
    pub before: Usage,
    /// The cluster after it.
    pub after: Usage,
    /// Waiting pods that get a node.
    pub placed: Vec<PlacedPod>,
    /// Pods evicted by preemption, with their former nodes.
    pub evicted: Vec<PlacedPod>,
    /// Pods that wait.
    pub pending: Vec<PendingPod>,
    /// Pods of the changes that quotas do not admit, with the reasons. They are not created.
    #[serde(default)]
    pub not_admitted: Vec<PendingPod>,
    /// Each pod of a deleted or drained node, and its end.
    #[serde(default)]
    pub displaced: Vec<DisplacedPod>,
    /// Pods that a drain moves, with their new nodes.
    pub moved: Vec<PlacedPod>,
    /// Pods that prevent the drain of a node, with the reasons.
    pub blocked: Vec<PendingPod>,
    /// The pods before and after the changes.
    #[serde(default)]
    pub balance: Balance,
    /// The effect of each document of the changes.
    #[serde(default)]
    pub changes: Vec<String>,
    /// The nodes that can be drained, in this order.
    pub drained: Vec<String>,
    /// The number of further pods of a template that fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// The nodes that the waiting pods need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_nodes: Option<AddedNodes>,
    /// The capacity that is left for each CapacityBuffer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<BufferRoom>,
    /// The spread of each workload with topology spread constraints, if rebalancing was requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<Rebalance>,
    /// The parts that the report does not cover.
    pub notes: Vec<String>,
}
