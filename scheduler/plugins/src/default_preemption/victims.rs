//! The pods of one node that must be evicted for the new pod to fit.
//!
//! In a dry run all pods of lower priority are removed. If the new pod fits then, they are added back one at a time as
//! long as it still fits: first the pods whose eviction violates a budget, then the others, the most important first.
//! The pods that cannot be added back are the victims.

use super::REASON_NO_VICTIMS;
use super::units::{Budgets, Unit, units_on};
use berth_api::{Pod, Selector, Str, Time};
use berth_framework::features::Behaviour;
use berth_framework::plugin::DryRun;
use berth_framework::{Cluster, FeatureGates, PodInfo, Slot, Status};
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::sync::Arc;

/// The victims of one node.
#[derive(Debug, Clone)]
pub(super) struct DryRunVictims {
    /// The most important first. Empty only for candidates of extenders, since 1.38.
    pub(super) pods: Vec<Arc<PodInfo>>,
    /// The number of them that violate their budget.
    pub(super) violations: usize,
}

/// The start time of a pod; one that has not started is later than all others.
pub(super) fn started(pod: &Pod) -> Time {
    pod.status.start_time.unwrap_or(Time::MAX)
}

/// The more important pod first: by priority, then by age.
pub(super) fn by_importance(a: &Pod, b: &Pod) -> Ordering {
    let priority = b.priority().cmp(&a.priority());
    priority.then_with(|| started(a).cmp(&started(b)))
}

/// Splits pods, the most important first, by whether their budgets allow the eviction. Every pod is counted in each of
/// its budgets.
fn split_by_budget(
    cluster: &Cluster,
    features: &FeatureGates,
    pods: Vec<Arc<PodInfo>>,
) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut left: FxHashMap<(Str, Str), i64> = FxHashMap::default();
    pods.into_iter().partition(|info| {
        let pod = &info.pod;
        let mut violates = false;
        let empty_protects = features.has(Behaviour::EmptyBudgetSelectorProtectsAllPods);
        if pod.labels().is_empty() && !empty_protects {
            return false;
        }
        for budget in cluster.budgets().of_namespace(pod.namespace()) {
            let selector = Selector::from_label_selector(budget.spec.selector.as_ref());
            let speaks = selector
                .is_ok_and(|s| (empty_protects || !s.is_empty()) && s.matches(pod.labels()));
            // A pod in disruptedPods was counted already.
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

/// The victims on a node, or the reason why preemption does not help there. The cluster is unchanged afterwards.
pub(super) fn select(
    dry_run: &mut dyn DryRun,
    features: &FeatureGates,
    pod: &PodInfo,
    node: Slot,
) -> Result<DryRunVictims, Status> {
    let priority = pod.pod.priority();
    if !dry_run.cluster().groups().is_empty() {
        return select_units(dry_run, features, priority, node);
    }
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
    lower.sort_by(|a, b| by_importance(&a.pod, &b.pod));
    dry_run.begin();
    let selected = select_among(dry_run, features, node, lower);
    dry_run.rollback();
    selected
}

/// The victims on a node in a cluster with groups: a pod of a group of mode `all` is evicted with all pods of the
/// group, including pods on other nodes.
fn select_units(
    dry_run: &mut dyn DryRun,
    features: &FeatureGates,
    priority: i32,
    node: Slot,
) -> Result<DryRunVictims, Status> {
    let units = units_on(dry_run.cluster(), priority, node);
    if units.is_empty() {
        return Err(Status::unresolvable(REASON_NO_VICTIMS));
    }
    dry_run.begin();
    let selected = select_among_units(dry_run, features, node, units);
    dry_run.rollback();
    selected
}

fn select_among_units(
    dry_run: &mut dyn DryRun,
    features: &FeatureGates,
    node: Slot,
    units: Vec<Unit>,
) -> Result<DryRunVictims, Status> {
    // As with single pods (P-12): if the pod does not fit without all units of lower priority, no eviction helps.
    for (slot, pod) in units.iter().flat_map(|unit| &unit.pods) {
        expect_success(dry_run.remove_pod(*slot, pod))?;
    }
    expect_success(dry_run.filter(node))?;
    // Earlier units use up the allowed disruptions of the budgets, so the most important units are checked first
    // (P-13).
    let mut budgets = Budgets::new(dry_run.cluster(), features);
    let (violating, others): (Vec<Unit>, Vec<Unit>) = units
        .into_iter()
        .partition(|unit| budgets.are_violated_by(&unit.pods));
    let mut victims = DryRunVictims {
        pods: Vec::new(),
        violations: 0,
    };
    let violations = violating.len();
    for (at, unit) in violating.into_iter().chain(others).enumerate() {
        for (slot, pod) in &unit.pods {
            expect_success(dry_run.add_pod(*slot, pod))?;
        }
        if dry_run.filter(node).is_success() {
            continue;
        }
        for (slot, pod) in &unit.pods {
            expect_success(dry_run.remove_pod(*slot, pod))?;
        }
        if at < violations {
            victims.violations += unit.pods.len();
        }
        victims
            .pods
            .extend(unit.pods.into_iter().map(|(_, pod)| pod));
    }
    // The order of the evictions (P-12).
    victims.pods.sort_by(|a, b| by_importance(&a.pod, &b.pod));
    Ok(victims)
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
    features: &FeatureGates,
    node: Slot,
    lower: Vec<Arc<PodInfo>>,
) -> Result<DryRunVictims, Status> {
    for other in &lower {
        expect_success(dry_run.remove_pod(node, other))?;
    }
    expect_success(dry_run.filter(node))?;
    let (violating, others) = split_by_budget(dry_run.cluster(), features, lower);
    let mut victims = DryRunVictims {
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
    victims.pods.sort_by(|a, b| by_importance(&a.pod, &b.pod));
    Ok(victims)
}

/// Adds a pod back if the new pod still fits with it.
fn comes_back(dry_run: &mut dyn DryRun, node: Slot, other: &Arc<PodInfo>) -> Result<bool, Status> {
    expect_success(dry_run.add_pod(node, other))?;
    if dry_run.filter(node).is_success() {
        return Ok(true);
    }
    expect_success(dry_run.remove_pod(node, other))?;
    Ok(false)
}
