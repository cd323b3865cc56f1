//! The nodes where preemption helps, and the choice among them.

use super::results::{Cost, NodeError, Results};
use super::victims::{DryRunVictims, select};
use super::{REASON_NO_VICTIMS, REASON_NOT_HELPFUL, WantedRoom};
use berth_api::{Str, Time};
use berth_framework::features::Behaviour;
use berth_framework::plugin::{DryRun, KeptStatuses, NodeStatuses};
use berth_framework::{Code, PodInfo, Slot, Status};
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A node where preemption helps.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) node: Slot,
    pub(super) name: Str,
    pub(super) victims: DryRunVictims,
    /// Whether an extender replaced the victims.
    pub(super) by_extender: bool,
}

/// The wanted candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// The chosen candidate only.
    Cheapest,
    /// All, for extenders.
    All,
}

/// The result of the search.
pub(super) struct FoundCandidates {
    /// Candidates without budget violations first.
    pub(super) candidates: Vec<Candidate>,
    /// The reason why preemption does not help, if there is no candidate.
    pub(super) statuses: NodeStatuses,
}

/// The random offset of the search, different for every attempt (P-8). It is derived from the pod and the time, so that
/// a run can be repeated.
fn offset(pod: &PodInfo, nodes: usize, now: Time) -> usize {
    let mut hasher = FxHasher::default();
    (pod.pod.uid(), now.as_nanos()).hash(&mut hasher);
    usize::try_from(hasher.finish() % nodes.max(1) as u64).unwrap_or(0)
}

/// Searches the nodes on which preemption may help, until there are enough candidates and one of them violates no
/// budget.
///
/// # Errors
/// The failure of a node, if there is no candidate.
pub(super) fn find(
    dry_run: &mut dyn DryRun,
    wanted: WantedRoom<'_>,
    wish: Wish,
    now: Time,
) -> Result<FoundCandidates, SearchError> {
    let WantedRoom {
        args,
        features,
        pod,
        statuses,
    } = wanted;
    let may_be_empty =
        wish == Wish::All && features.has(Behaviour::ExtendersReceiveNodesWithoutVictims);
    // No pod has a lower priority.
    let lowest = dry_run.cluster().nodes.totals().lowest_priority();
    // As a victim, a member of a group has the priority of its group.
    if dry_run.cluster().groups().is_empty() && lowest.unwrap_or(i32::MAX) >= pod.pod.priority() {
        return Ok(FoundCandidates {
            candidates: Vec::new(),
            statuses: no_victims(statuses),
        });
    }
    let mut results = up_to_date(dry_run, statuses);
    let potential = results.potential();
    let enough = args.candidates(potential);
    let start = offset(pod, potential, now);
    let mut errors = Vec::new();
    let found = results.search(
        start,
        enough,
        wish == Wish::All,
        |node| match select(dry_run, &features, pod, node) {
            Ok(victims) if victims.pods.is_empty() && !may_be_empty => {
                let view = dry_run.cluster().nodes.get(node);
                let name = view.map(|view| view.name().clone());
                Err(NodeError::NoVictims(name.unwrap_or_default()))
            }
            result => named(dry_run, node, result),
        },
        &mut errors,
    );
    if found.is_empty() && !errors.is_empty() {
        dry_run.keep(results);
        return Err(SearchError(errors));
    }
    let why_not = if found.is_empty() {
        results.hopeless().collect()
    } else {
        Vec::new()
    };
    dry_run.keep(results);
    let table = &dry_run.cluster().nodes;
    let candidates = found.into_iter().filter_map(|(node, victims)| {
        let name = table.get(node)?.name().clone();
        Some(Candidate {
            node,
            name,
            victims,
            by_extender: false,
        })
    });
    Ok(FoundCandidates {
        candidates: candidates.collect(),
        statuses: listed(why_not),
    })
}

/// The results of earlier dry runs for pods of this shape, without results about nodes that have changed since.
fn up_to_date(dry_run: &mut dyn DryRun, statuses: &NodeStatuses) -> Box<Results> {
    let may_help = |slot: Slot| statuses.get(slot).code() == Code::Unschedulable;
    let (kept, changed) = dry_run.take_kept();
    // A member of a group may be evicted with members on other nodes, so results of single nodes cannot be kept.
    let kept = kept.filter(|_| dry_run.cluster().groups().is_empty());
    if let Some(mut results) = kept.and_then(|kept| kept.downcast::<Results>().ok()) {
        for slot in changed {
            let is_node = dry_run.cluster().nodes.get(slot).is_some();
            results.changed(slot, is_node && may_help(slot));
        }
        return results;
    }
    let mut results = Box::<Results>::default();
    for node in dry_run.cluster().nodes.iter() {
        results.changed(node.slot(), may_help(node.slot()));
    }
    results
}

/// The failures of all nodes, if there is no candidate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", aggregated(.0))]
pub(super) struct SearchError(Vec<NodeError>);

fn aggregated(errors: &[NodeError]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    berth_api::aggregate(&texts)
}

/// The name of a node, and the victims on it or why preemption does not help there.
///
/// # Errors
/// A failure, whose text may name objects of this pod, such as its claims.
fn named(
    dry_run: &dyn DryRun,
    node: Slot,
    result: Result<DryRunVictims, Status>,
) -> Result<(Str, Result<DryRunVictims, Status>), NodeError> {
    let view = dry_run.cluster().nodes.get(node);
    let name = view.map(|view| view.name().clone()).unwrap_or_default();
    match result {
        Err(status) if !status.is_rejected() => Err(NodeError::Failed(status.message())),
        result => Ok((name, result)),
    }
}

/// The status of every node if no pod has a lower priority.
fn no_victims(statuses: &NodeStatuses) -> NodeStatuses {
    let no_victims = Status::unresolvable(REASON_NO_VICTIMS);
    let mut nodes = 0;
    statuses.totals(|status, count| {
        if status.code() == Code::Unschedulable {
            nodes += count;
        }
    });
    match nodes {
        0 => listed(Vec::new()),
        _ => listed(vec![(no_victims, nodes)]),
    }
}

/// The number of nodes with each status. On the other nodes, no eviction helps.
fn listed(totals: Vec<(Status, usize)>) -> NodeStatuses {
    let mut statuses = NodeStatuses::kept(Arc::new(Totals(totals)));
    statuses.absent = Status::unresolvable(REASON_NOT_HELPFUL);
    statuses
}

/// The number of nodes per status.
#[derive(Debug)]
struct Totals(Vec<(Status, usize)>);

impl KeptStatuses for Totals {
    fn get(&self, _node: Slot) -> Option<&Status> {
        None
    }

    fn len(&self) -> usize {
        self.0.iter().map(|(_, nodes)| nodes).sum()
    }

    fn each(&self, _visit: &mut dyn FnMut(Slot, &Status) -> ControlFlow<()>) {}

    fn totals(&self, visit: &mut dyn FnMut(&Status, usize)) {
        for (status, nodes) in &self.0 {
            visit(status, *nodes);
        }
    }
}

/// Removes the candidate with the least cost.
pub(super) fn choose(candidates: &mut Vec<Candidate>) -> Option<Candidate> {
    let costs = candidates
        .iter()
        .map(|candidate| Cost::of(&candidate.victims, &candidate.name));
    let (best, _) = costs.enumerate().min_by(|(_, a), (_, b)| a.cmp(b))?;
    Some(candidates.swap_remove(best))
}
