//! A recorded decision.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// One pod against one cluster.
#[derive(Debug, Deserialize)]
pub(super) struct DecisionCase {
    pub(super) id: String,
    pub(super) objects: Vec<Value>,
    pub(super) pod: Value,
    pub(super) config: Option<Value>,
    pub(super) expect: DecisionExpectation,
}

/// The answer of the real scheduler.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DecisionExpectation {
    pub(super) pre_filter: Option<Rejection>,
    pub(super) pre_filter_nodes: Option<Vec<String>>,
    /// Nothing for a node that passes.
    #[serde(default)]
    pub(super) filter: BTreeMap<String, Option<Rejection>>,
    #[serde(default)]
    pub(super) scores: BTreeMap<String, NodeScores>,
    #[serde(default)]
    pub(super) skipped_score_plugins: Vec<String>,
    pub(super) fit_error: Option<String>,
    #[serde(default)]
    pub(super) unschedulable_plugins: Vec<String>,
    pub(super) post_filter: Option<PostFiltered>,
    /// Only the outcome, for a decision without further information, such as one observed on a cluster. The other
    /// expectations are not compared then.
    pub(super) outcome: Option<ObservedOutcome>,
}

/// The externally observed outcome of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ObservedOutcome {
    /// The pod was bound to this node: it must be feasible.
    Bound(String),
    /// The pod was reported as unschedulable with this message: no node may be feasible, for the same reasons. The part
    /// of the message about preemption is not compared.
    Unschedulable(String),
}

/// A plugin's no.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Rejection {
    pub(super) code: String,
    pub(super) plugin: String,
    #[serde(default)]
    pub(super) reasons: Vec<String>,
}

/// The result of PostFilter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PostFiltered {
    /// The node for which pods were evicted.
    pub(super) nominated_node_name: Option<String>,
    /// The pods that were deleted for it, as namespace and name, sorted.
    #[serde(default)]
    pub(super) victims: Vec<String>,
    /// The reason, if no node was nominated.
    pub(super) status: Option<Rejection>,
}

/// The scores of one node: the weighted score of each plugin, and their sum.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct NodeScores {
    pub(super) total: i64,
    pub(super) plugins: BTreeMap<String, i64>,
}
