//! On which nodes preemption helps, and which of them is chosen.

use super::victims::{Victims, select, started};
use super::{REASON_NO_VICTIMS, REASON_NOT_HELPFUL, Wanted};
use berth_api::{Str, Time};
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
    pub(super) victims: Victims,
    /// Whether an extender chose other victims than it was sent.
    pub(super) by_extender: bool,
}

/// The result of the search.
pub(super) struct Found {
    /// Those that violate no budget first.
    pub(super) candidates: Vec<Candidate>,
    /// Why preemption does not help on the other nodes.
    pub(super) statuses: NodeStatuses,
}

/// The random offset of the search, another one for every attempt (P-8). It is derived from the pod and the time, so
/// that a run can be repeated.
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
    wanted: Wanted<'_>,
    now: Time,
) -> Result<Found, String> {
    let Wanted {
        args,
        pod,
        statuses,
    } = wanted;
    let table = &dry_run.cluster().nodes;
    // No pod has a lower priority.
    let lowest = table.lowest_priority().unwrap_or(i32::MAX);
    if lowest >= pod.pod.priority() {
        return Ok(Found {
            candidates: Vec::new(),
            statuses: no_victims(statuses),
        });
    }
    let nodes = table.iter().map(|node| node.slot());
    let potential: Vec<Slot> = nodes
        .filter(|slot| statuses.get(*slot).code() == Code::Unschedulable)
        .collect();
    let enough = args.candidates(potential.len());
    let start = offset(pod, potential.len(), now);
    let mut why_not = NodeStatuses::new();
    why_not.absent = Status::unresolvable(REASON_NOT_HELPFUL);
    let (mut within, mut violating) = (Vec::new(), Vec::new());
    let mut errors = Vec::new();
    for node in potential[start..].iter().chain(&potential[..start]) {
        if !within.is_empty() && within.len() + violating.len() >= enough {
            break;
        }
        match selected(dry_run, pod, *node, now) {
            Ok(victims) if victims.pods.is_empty() => {
                let view = dry_run.cluster().nodes.get(*node);
                let name = view.map(|view| view.name().clone()).unwrap_or_default();
                errors.push(format!("expected at least one victim pod on node {name:?}"));
            }
            Ok(victims) => {
                let list = if victims.violations == 0 {
                    &mut within
                } else {
                    &mut violating
                };
                if list.len() < enough {
                    list.push((*node, victims));
                }
            }
            Err(status) if status.is_rejected() => {
                why_not.insert(*node, status);
            }
            Err(status) => errors.push(status.message()),
        }
    }
    within.append(&mut violating);
    if within.is_empty() && !errors.is_empty() {
        return Err(errors.join(", "));
    }
    let table = &dry_run.cluster().nodes;
    let candidates = within.into_iter().filter_map(|(node, victims)| {
        let name = table.get(node)?.name().clone();
        Some(Candidate {
            node,
            name,
            victims,
            by_extender: false,
        })
    });
    Ok(Found {
        candidates: candidates.collect(),
        statuses: why_not,
    })
}

/// The status of every node if no pod has a lower priority.
fn no_victims(statuses: &NodeStatuses) -> NodeStatuses {
    let no_victims = Status::unresolvable(REASON_NO_VICTIMS);
    let not_helpful = Status::unresolvable(REASON_NOT_HELPFUL);
    let mut totals = Totals(Vec::new());
    let mut nodes = 0;
    statuses.totals(|status, count| {
        if status.code() == Code::Unschedulable {
            nodes += count;
        }
    });
    if nodes > 0 {
        totals.0.push((no_victims, nodes));
    }
    let mut said = NodeStatuses::kept(Arc::new(totals));
    said.absent = not_helpful;
    said
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

/// An earlier result for a node.
struct Known(Result<Victims, Status>);

/// The victims on a node, or why preemption does not help there: the kept result, or a new one.
fn selected(
    dry_run: &mut dyn DryRun,
    pod: &PodInfo,
    node: Slot,
    now: Time,
) -> Result<Victims, Status> {
    let known = dry_run.recall(node).and_then(|known| known.downcast_ref());
    if let Some(Known(result)) = known {
        return result.clone();
    }
    let result = select(dry_run, pod, node, now);
    // The text of an error may name objects of this pod, such as its claims.
    if result.as_ref().err().is_none_or(Status::is_rejected) {
        dry_run.remember(node, Box::new(Known(result.clone())));
    }
    result
}

/// The cost of a candidate; the least is chosen. The parts are compared one after another.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    violations: usize,
    highest_priority: i32,
    /// The sum of the victims' priorities, each with an offset so that the lowest is zero.
    sum_of_priorities: i64,
    victims: usize,
    /// The later the oldest of the most important victims started, the better.
    earliest_start: std::cmp::Reverse<Time>,
}

impl Cost {
    fn of(victims: &Victims, now: Time) -> Self {
        let pods = &victims.pods;
        let highest = pods.first().map_or(i32::MIN, |first| first.pod.priority());
        let starts = pods
            .iter()
            .filter(|victim| victim.pod.priority() == highest)
            .map(|victim| started(&victim.pod, now));
        let sum = pods
            .iter()
            .map(|victim| i64::from(victim.pod.priority()) - i64::from(i32::MIN));
        Self {
            violations: victims.violations,
            highest_priority: highest,
            sum_of_priorities: sum.fold(0, i64::saturating_add),
            victims: pods.len(),
            earliest_start: std::cmp::Reverse(starts.min().unwrap_or(now)),
        }
    }
}

/// Removes the candidate with the least cost; of several the first by name, so that a run can be repeated.
pub(super) fn choose(candidates: &mut Vec<Candidate>, now: Time) -> Option<Candidate> {
    let costs = candidates
        .iter()
        .map(|candidate| (Cost::of(&candidate.victims, now), &candidate.name));
    let (best, _) = costs.enumerate().min_by(|(_, a), (_, b)| a.cmp(b))?;
    Some(candidates.swap_remove(best))
}
