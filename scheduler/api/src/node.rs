//! Nodes.

use crate::shared::shareable;
use crate::string::null_default;
use crate::{Labels, ObjectMeta, ResourceList, Shared, Str, Taint};
use serde::{Deserialize, Serialize};

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// Name and labels.
    pub metadata: ObjectMeta,
    /// The desired state of the node.
    pub spec: NodeSpec,
    /// The resources and conditions that the node offers.
    pub status: NodeStatus,
}

/// The desired state of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Whether the node is cordoned.
    pub unschedulable: bool,
    /// The taints.
    #[serde(deserialize_with = "null_default")]
    pub taints: Vec<Taint>,
    /// The preemptions that the node does not permit.
    pub pod_preemption_policy: Option<PodPreemptionPolicy>,
}

/// The preemptions that a node does not permit (KEP-5836).
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodPreemptionPolicy {
    /// The reasons for which no pod is preempted for the resize of another one; empty allows that.
    #[serde(deserialize_with = "null_default")]
    pub disable_resize_preemption: Vec<Str>,
}

/// The resources that a node offers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// The amounts that pods may request in all.
    pub allocatable: ResourceList,
    /// Type and status of each condition.
    #[serde(deserialize_with = "null_default")]
    pub conditions: Shared<Vec<NodeCondition>>,
    /// The images of the node. Equal images of many nodes are stored once.
    #[serde(deserialize_with = "null_default")]
    pub images: Vec<Shared<ContainerImage>>,
    /// The features that the kubelet declares.
    #[serde(deserialize_with = "null_default")]
    pub declared_features: Vec<Str>,
}

/// A condition of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    /// The type, such as `Ready`.
    #[serde(rename = "type")]
    pub kind: Str,
    /// `True`, `False` or `Unknown`.
    pub status: Str,
}

/// An image on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerImage {
    /// All names of the image.
    #[serde(deserialize_with = "null_default")]
    pub names: Vec<Str>,
    /// Its size in bytes.
    pub size_bytes: i64,
}

impl Node {
    /// The node's name.
    pub fn name(&self) -> &Str {
        &self.metadata.name
    }

    /// The node's labels.
    pub fn labels(&self) -> &Labels {
        &self.metadata.labels
    }

    /// Returns whether pods may be preempted for the resize of another pod on the node.
    pub fn allows_resize_preemption(&self) -> bool {
        let policy = self.spec.pod_preemption_policy.as_ref();
        policy.is_none_or(|policy| policy.disable_resize_preemption.is_empty())
    }
}

shareable!(ContainerImage, Vec<NodeCondition>);
