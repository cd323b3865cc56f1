//! On one node: which pods have to go for the new one to fit.
//!
//! All pods of lower priority are supposed to be gone. If the new pod fits then, they are supposed to come back one
//! by one, as long as it still fits: first those whose budget would be broken, then the others, the most important
//! first. Those for whom there is no room are the victims.

use super::REASON_NO_VICTIMS;
use berth_api::{Pod, Selector, Str, Time};
use berth_framework::plugin::DryRun;
use berth_framework::{Cluster, PodInfo, Slot, Status};
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::sync::Arc;

/// The victims of one node.
#[derive(Debug, Clone)]
pub(super) struct Victims {
    /// The most important first; never empty.
    pub(super) pods: Vec<Arc<PodInfo>>,
    /// How many of them go although their budget does not allow it.
    pub(super) violations: usize,
}

/// When a pod started; one that has not counts as starting now.
pub(super) fn started(pod: &Pod, now: Time) -> Time {
    pod.status.start_time.unwrap_or(now)
}

/// The more important first: by priority, then by age.
pub(super) fn by_importance(a: &Pod, b: &Pod, now: Time) -> Ordering {
    let priority = b.priority().cmp(&a.priority());
    priority.then_with(|| started(a, now).cmp(&started(b, now)))
}

/// Splits pods, the most important first, by whether the budgets that speak for them allow that they go. Every pod
/// uses up a part of each of its budgets.
fn split_by_budget(
    cluster: &Cluster,
    pods: Vec<Arc<PodInfo>>,
) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut left: FxHashMap<(Str, Str), i64> = FxHashMap::default();
    pods.into_iter().partition(|info| {
        let pod = &info.pod;
        let mut violates = false;
        // Without labels a pod is spoken for by nobody.
        if pod.labels().is_empty() {
            return false;
        }
        for budget in cluster.pod_disruption_budgets.of_namespace(pod.namespace()) {
            let selector = Selector::from_label_selector(budget.spec.selector.as_ref());
            let speaks = selector.is_ok_and(|s| !s.is_empty() && s.matches(pod.labels()));
            // One that is on its way out was counted already.
            if !speaks || budget.status.disrupted_pods.contains_key(pod.name()) {
                continue;
            }
            let meta = &budget.metadata;
            let key = (meta.namespace.clone(), meta.name.clone());
            let allowed = i64::from(budget.status.disruptions_allowed);
            let left = left.entry(key).or_insert(allowed);
            *left -= 1;
            violates |= *left < 0;
        }
        violates
    })
}

/// The victims on a node, or why nothing helps there. The cluster is as before afterwards.
pub(super) fn select(
    dry_run: &mut dyn DryRun,
    pod: &PodInfo,
    node: Slot,
    now: Time,
) -> Result<Victims, Status> {
    let priority = pod.pod.priority();
    let mut lower: Vec<Arc<PodInfo>> = match dry_run.cluster().nodes.get(node) {
        None => Vec::new(),
        Some(view) => {
            let pods = view.pods().iter();
            pods.filter(|other| other.pod.priority() < priority)
                .cloned()
                .collect()
        }
    };
    if lower.is_empty() {
        return Err(Status::unresolvable(REASON_NO_VICTIMS));
    }
    lower.sort_by(|a, b| by_importance(&a.pod, &b.pod, now));
    dry_run.begin();
    let selected = select_among(dry_run, node, lower, now);
    dry_run.rollback();
    selected
}

fn expect_success(status: Status) -> Result<(), Status> {
    if status.is_success() {
        Ok(())
    } else {
        Err(status)
    }
}

fn select_among(
    dry_run: &mut dyn DryRun,
    node: Slot,
    lower: Vec<Arc<PodInfo>>,
    now: Time,
) -> Result<Victims, Status> {
    for other in &lower {
        expect_success(dry_run.remove_pod(node, other))?;
    }
    expect_success(dry_run.filter(node))?;
    let (violating, others) = split_by_budget(dry_run.cluster(), lower);
    let mut victims = Victims {
        pods: Vec::new(),
        violations: 0,
    };
    for other in violating {
        if !comes_back(dry_run, node, &other)? {
            victims.pods.push(other);
            victims.violations += 1;
        }
    }
    for other in others {
        if !comes_back(dry_run, node, &other)? {
            victims.pods.push(other);
        }
    }
    victims
        .pods
        .sort_by(|a, b| by_importance(&a.pod, &b.pod, now));
    Ok(victims)
}

/// Lets a pod come back if there is room for it beside the new one.
fn comes_back(dry_run: &mut dyn DryRun, node: Slot, other: &Arc<PodInfo>) -> Result<bool, Status> {
    expect_success(dry_run.add_pod(node, other))?;
    if dry_run.filter(node).is_success() {
        return Ok(true);
    }
    expect_success(dry_run.remove_pod(node, other))?;
    Ok(false)
}
