//! Questions and answers as they are on the wire: kube-scheduler's `extender/v1` (F-38). The names of fields are
//! written exactly so, and read in any case.

use super::decode::read_in_any_case;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The request for the feasible nodes of a pod, or for their scores.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderArgs<'a> {
    /// The pod as the API has it.
    pub pod: &'a RawValue,
    /// The nodes, for an extender that does not keep them itself.
    pub nodes: Option<NodeList<'a>>,
    /// Their names, for one that does.
    pub node_names: Option<&'a [&'a str]>,
}

/// Nodes as the API has them.
#[derive(Debug, Serialize)]
pub struct NodeList<'a> {
    /// Always empty.
    pub metadata: Empty,
    /// The nodes.
    pub items: Vec<&'a RawValue>,
}

/// An object without fields.
#[derive(Debug, Default, Serialize)]
pub struct Empty {}

/// The request to bind a pod to a node.
#[derive(Debug, Serialize)]
pub struct ExtenderBindingArgs<'a> {
    /// The pod's name.
    #[serde(rename = "PodName")]
    pub pod_name: &'a str,
    /// Its namespace.
    #[serde(rename = "PodNamespace")]
    pub pod_namespace: &'a str,
    /// Its identity.
    #[serde(rename = "PodUID")]
    pub pod_uid: &'a str,
    /// The node.
    #[serde(rename = "Node")]
    pub node: &'a str,
}

/// The request for the candidate nodes of a preemption.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderPreemptionArgs<'a> {
    /// The pod as the API has it.
    pub pod: &'a RawValue,
    /// Nodes with the complete victims, for an extender without a node cache.
    pub node_name_to_victims: Option<BTreeMap<&'a str, ExtenderVictims<'a>>>,
    /// Nodes with the identities of the victims, for an extender with a node cache.
    pub node_name_to_meta_victims: Option<BTreeMap<&'a str, MetaVictimsArgs<'a>>>,
}

/// The victims on a node.
#[derive(Debug, Serialize)]
pub struct ExtenderVictims<'a> {
    /// The pods as the API has them.
    #[serde(rename = "Pods")]
    pub pods: Vec<&'a RawValue>,
    /// The number of them that violate their disruption budget.
    #[serde(rename = "NumPDBViolations")]
    pub num_pdb_violations: usize,
}

/// The victims on a node, by identity.
#[derive(Debug, Serialize)]
pub struct MetaVictimsArgs<'a> {
    /// The pods.
    #[serde(rename = "Pods")]
    pub pods: Vec<MetaPodArgs<'a>>,
    /// The number of them that violate their disruption budget.
    #[serde(rename = "NumPDBViolations")]
    pub num_pdb_violations: usize,
}

/// A pod's identity.
#[derive(Debug, Serialize)]
pub struct MetaPodArgs<'a> {
    /// The UID.
    #[serde(rename = "UID")]
    pub uid: &'a str,
}

read_in_any_case! {
    /// The remaining nodes.
    pub struct ExtenderFilterResult {
        /// The nodes that stay, for an extender that does not keep nodes itself.
        pub nodes: Option<NodeNames> = "Nodes",
        /// Their names, for one that does.
        pub node_names: Option<Vec<String>> = "NodeNames",
        /// Nodes that do not stay, each with the reason.
        pub failed_nodes: BTreeMap<String, String> = "FailedNodes",
        /// The same where evictions do not help.
        pub failed_and_unresolvable_nodes: BTreeMap<String, String> = "FailedAndUnresolvableNodes",
        /// The error.
        pub error: String = "Error",
    }

    /// The names in a list of nodes.
    pub struct NodeNames {
        /// The nodes.
        pub items: Vec<NamedNode> = "items",
    }

    /// The name of a node, without its other fields.
    pub struct NamedNode {
        /// Its metadata.
        pub metadata: NamedMeta = "metadata",
    }

    /// The name in an object's metadata.
    pub struct NamedMeta {
        /// The name.
        pub name: String = "name",
    }

    /// The score of a node.
    pub struct HostPriority {
        /// The node.
        pub host: String = "Host",
        /// From 0 to 10.
        pub score: i64 = "Score",
    }

    /// Whether a pod was bound.
    pub struct ExtenderBindingResult {
        /// The error.
        pub error: String = "Error",
    }

    /// The candidate nodes of a preemption.
    pub struct ExtenderPreemptionResult {
        /// Nodes with their victims.
        pub node_name_to_meta_victims: BTreeMap<String, Option<MetaVictims>> = "NodeNameToMetaVictims",
    }

    /// The victims on a node.
    pub struct MetaVictims {
        /// The pods.
        pub pods: Vec<MetaPod> = "Pods",
        /// The number of them that violate their disruption budget.
        pub num_pdb_violations: i64 = "NumPDBViolations",
    }

    /// A pod's identity.
    pub struct MetaPod {
        /// The UID.
        pub uid: String = "UID",
    }
}
