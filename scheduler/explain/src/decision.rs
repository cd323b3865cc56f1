//! The scores of a decision, computed from its inputs.
//!
//! The copy of the cluster is reverted to the time of the decision and restored afterwards: the node table's log
//! contains every pod that was added to a node or removed from it since. Changes of nodes and volumes are listed but
//! cannot be reverted, so a table that depends on them is marked as not exact. Then the plain evaluator decides again,
//! with the random generator of that time.

use crate::answer::{DecisionTable, PluginScore, ScoredNode};
use crate::limits::SCORED_NODES_MAX;
use crate::snapshot::Snapshot;
use berth_framework::table::TableChange;
use berth_scheduler::PodDecision;
use berth_scheduler::evaluator::{Found, Placement, Scores};

/// Moves the pods to their nodes at the position `since` of the table's log. Returns the reason if this is not exact.
fn suppose_then(snapshot: &mut Snapshot, since: u64) -> Option<String> {
    let nodes = &mut snapshot.cluster.nodes;
    nodes.begin();
    let Some(changes) = nodes.log().since(since) else {
        return Some("the decision is older than the log of changes".to_owned());
    };
    // Changes that were tried in the snapshot are logged after this position.
    let changes = changes.take((snapshot.log_end.saturating_sub(since)) as usize);
    let changes: Vec<TableChange> = changes.cloned().collect();
    let mut inexact = None;
    // Changes are reverted from the last to the first.
    for change in changes.into_iter().rev() {
        let why = match change {
            TableChange::PodAdded(slot, pod) => nodes
                .remove_pod_at(slot, pod.pod.uid())
                .is_none()
                .then(|| format!("pod {} was replaced since the decision", pod.pod.key())),
            TableChange::PodRemoved(slot, pod) => {
                let is_known = nodes.get(slot).is_some();
                if is_known {
                    nodes.add_pod_at(slot, pod);
                }
                (!is_known).then(|| "a node was deleted since the decision".to_owned())
            }
            TableChange::Node(slot) => Some(match nodes.get(slot) {
                Some(view) => format!("node {} has changed since the decision", view.name()),
                None => "a node was deleted since the decision".to_owned(),
            }),
            // The former state of volumes and devices is not in the log.
            TableChange::Storage(_) | TableChange::Claim { .. } => {
                Some("volumes or devices have changed since the decision".to_owned())
            }
        };
        inexact = inexact.or(why);
    }
    inexact
}

/// Decides again. Returns the table, and the reason if it is not exact.
pub(crate) fn decide_again(
    snapshot: &mut Snapshot,
    decision: &PodDecision,
) -> (DecisionTable, Option<String>) {
    let why = suppose_then(snapshot, decision.changes_end);
    let decided = decide_then(snapshot, decision, why);
    snapshot.cluster.nodes.rollback();
    decided
}

/// Decides in the cluster of that time.
fn decide_then(
    snapshot: &mut Snapshot,
    decision: &PodDecision,
    mut why: Option<String>,
) -> (DecisionTable, Option<String>) {
    if snapshot.nominator.changes_end() != decision.nominations_end
        && !snapshot.nominator.is_empty()
    {
        why = why.or(Some(
            "nominations have changed since the decision".to_owned(),
        ));
    }
    if decision.has_extenders {
        why = why.or(Some(
            "extenders took part in the decision; the table does not have their scores".to_owned(),
        ));
    }
    let mut table = DecisionTable {
        at: decision.at.rfc3339(),
        node: decision.node.to_string(),
        evaluated: decision.evaluated,
        feasible: decision.feasible,
        ..DecisionTable::default()
    };
    let (mut start, mut rng) = (decision.start_node, decision.rng.clone());
    let percentage = decision.percentage_of_nodes;
    let found = snapshot.evaluate(&decision.profile, &decision.pod, |evaluator| {
        let found = evaluator.find(percentage, &mut start, &mut rng);
        match found {
            Found::Placed(placement) => {
                // A single feasible node is normally not scored, but the table needs its scores.
                let scores = match &placement.scores {
                    Some(scores) => Some(Scores::clone(scores)),
                    None => evaluator.score(&[placement.node]).ok(),
                };
                Some((placement, scores))
            }
            Found::Unfit(_) | Found::NoNodes(_) | Found::Failed(_) => None,
        }
    });
    let Some((placement, scores)) = found else {
        let text = "the pod fits on no node of the present cluster".to_owned();
        return (table, why.or(Some(text)));
    };
    if placement.name != decision.node || placement.feasible != decision.feasible {
        why = why.or(Some(
            "the cluster has changed since the decision in a way that the log does not have"
                .to_owned(),
        ));
    }
    table.is_exact = why.is_none();
    if let Some(scores) = scores {
        fill(snapshot, &mut table, &placement, &scores);
    }
    (table, why)
}

/// Lists the chosen node and the best others.
fn fill(snapshot: &Snapshot, table: &mut DecisionTable, placement: &Placement, scores: &Scores) {
    let best = scores.nodes.iter().map(|(_, total)| *total).max();
    let mut ties: Vec<_> = scores
        .nodes
        .iter()
        .filter(|(_, total)| Some(*total) == best)
        .map(|(slot, _)| *slot)
        .collect();
    // Ties are drawn in the order of slots, so the position of the node is found in this order.
    ties.sort_unstable();
    table.ties = ties.len();
    let drawn = ties.iter().position(|slot| *slot == placement.node);
    table.drawn = drawn.filter(|_| ties.len() > 1).map(|at| at + 1);
    // The slot may have been reused by another node since the decision.
    let is_chosen = |at: usize| {
        let view = snapshot.cluster.nodes.get(scores.nodes[at].0);
        view.is_some_and(|view| *view.name() == *table.node)
    };
    let mut order: Vec<usize> = (0..scores.nodes.len()).collect();
    order.sort_by_key(|at| (std::cmp::Reverse(scores.nodes[*at].1), scores.nodes[*at].0));
    // The chosen node is listed first, also if its score is not the best today.
    let chosen = order.iter().copied().find(|at| is_chosen(*at));
    let mut listed: Vec<usize> = chosen.into_iter().collect();
    let others = order.into_iter().filter(|at| Some(*at) != chosen);
    listed.extend(others.take(SCORED_NODES_MAX - listed.len()));
    table.nodes = listed
        .into_iter()
        .filter_map(|at| {
            let (slot, total) = scores.nodes[at];
            let view = snapshot.cluster.nodes.get(slot)?;
            let of_plugins = scores.plugins.iter().map(|of_plugin| PluginScore {
                plugin: of_plugin.plugin.to_string(),
                raw: of_plugin.raw[at],
                normalized: of_plugin.weighted[at] / of_plugin.weight.max(1),
                weight: of_plugin.weight,
                weighted: of_plugin.weighted[at],
            });
            Some(ScoredNode {
                node: view.name().to_string(),
                total,
                is_chosen: Some(at) == chosen,
                scores: of_plugins.collect(),
            })
        })
        .collect();
}
