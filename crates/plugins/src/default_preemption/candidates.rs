//! On which nodes room can be made, and which of them is chosen.

use super::REASON_NOT_HELPFUL;
use super::args::DefaultPreemptionArgs;
use super::victims::{Victims, select, started};
use berth_api::{Str, Time};
use berth_framework::plugin::{DryRun, NodeStatuses};
use berth_framework::{Code, PodInfo, Slot, Status};
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};

/// A node where room can be made.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) node: Slot,
    pub(super) name: Str,
    pub(super) victims: Victims,
}

/// What the search has come to.
pub(super) struct Found {
    /// Those that break no budget first.
    pub(super) candidates: Vec<Candidate>,
    /// Why it does not help elsewhere.
    pub(super) statuses: NodeStatuses,
}

/// Where the search begins: anywhere, for every pod and each time anew (P-8). Drawn from the pod and the time, so that
/// a run can be repeated.
fn offset(pod: &PodInfo, nodes: usize, now: Time) -> usize {
    let mut hasher = FxHasher::default();
    (pod.pod.uid(), now.as_nanos()).hash(&mut hasher);
    usize::try_from(hasher.finish() % nodes.max(1) as u64).unwrap_or(0)
}

/// Tries nodes on which evictions may help, until there are enough candidates and one of them breaks no budget.
///
/// # Errors
/// What broke, when there is no candidate.
pub(super) fn find(
    dry_run: &mut dyn DryRun,
    args: &DefaultPreemptionArgs,
    pod: &PodInfo,
    statuses: &NodeStatuses,
    now: Time,
) -> Result<Found, String> {
    let nodes = dry_run
        .cluster()
        .nodes
        .iter()
        .map(|node| (node.slot(), node.name().clone()));
    let potential: Vec<(Slot, Str)> = nodes
        .filter(|(slot, _)| statuses.get(*slot).code() == Code::Unschedulable)
        .collect();
    let wanted = args.candidates(potential.len());
    let start = offset(pod, potential.len(), now);
    let mut why_not = NodeStatuses::new();
    why_not.absent = Status::unresolvable(REASON_NOT_HELPFUL);
    let (mut within, mut violating) = (Vec::new(), Vec::new());
    let mut errors = Vec::new();
    for (node, name) in potential[start..].iter().chain(&potential[..start]) {
        if !within.is_empty() && within.len() + violating.len() >= wanted {
            break;
        }
        match select(dry_run, pod, *node, now) {
            Ok(victims) if victims.pods.is_empty() => {
                errors.push(format!("expected at least one victim pod on node {name:?}"));
            }
            Ok(victims) => {
                let list = if victims.violations == 0 {
                    &mut within
                } else {
                    &mut violating
                };
                if list.len() < wanted {
                    list.push(Candidate {
                        node: *node,
                        name: name.clone(),
                        victims,
                    });
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
    Ok(Found {
        candidates: within,
        statuses: why_not,
    })
}

/// What a candidate costs; the least is chosen. The parts are compared one after another.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    violations: usize,
    highest_priority: i32,
    /// Every victim adds its priority, moved so that the lowest is zero and each counts.
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

/// The candidate that costs least; of several the first by name, so that a run can be repeated.
pub(super) fn choose(candidates: Vec<Candidate>, now: Time) -> Option<Candidate> {
    candidates
        .into_iter()
        .min_by_key(|candidate| (Cost::of(&candidate.victims, now), candidate.name.clone()))
}
