//! Makes room for a group: finds the pods that must be evicted so that the whole group can start (KEP-5710).
//!
//! ```text
//! a full cluster, a gang of higher priority
//!     → all pods of lower priority are removed in memory, and the gang is tried once
//!     → pods are added back one at a time, the most important first, as long as every member fits on its node
//!     → the remaining pods are the victims
//! ```
//!
//! Pods are evicted in **units**: a pod alone, or all pods of a group whose disruption mode is `all`.

use super::evict::Preemptor;
use super::units::{Budgets, Unit, units_below};
use super::{DefaultPreemption, NAME, as_known, is_going_for_a_preemptor};
use berth_api::Str;
use berth_framework::call::{PodRef, RelatedObject};
use berth_framework::cluster::GroupKey;
use berth_framework::plugin::{
    GroupDryRun, GroupPostFilterResult, PodGroupPostFilter, PodGroupPostFilterContext,
};
use berth_framework::stage::{Disruption, Eviction, Observation, Preemption};
use berth_framework::{ApiCall, Code, Feature, PodInfo, Status};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The start of every message.
const PREFIX: &str = "pod group preemption: ";
/// The text if no pod of lower priority runs.
const NO_VICTIMS: &str = "No preemption victims found for incoming preemptor";
/// The name in events instead of a node name, because the victims are on many nodes.
const CLUSTER: &str = "cluster";

fn with_prefix(status: &Status) -> Status {
    match status.code() {
        Code::Error => Status::error(format!("{PREFIX}{}", status.message())),
        code => Status::new(code, [format!("{PREFIX}{}", status.message()).into()]),
    }
}

fn unschedulable(text: &str) -> GroupPostFilterResult {
    GroupPostFilterResult::of(Status::unschedulable(format!("{PREFIX}{text}")))
}

/// Returns whether victims of a member are still terminating on its nominated node.
fn waits_for_victims(dry_run: &dyn GroupDryRun, priority: i32) -> bool {
    let cluster = dry_run.cluster();
    dry_run.members().iter().any(|member| {
        let node = dry_run.nominated_node(member.pod.uid());
        let node = node.and_then(|node| cluster.nodes.node(&node));
        let mut pods = node.iter().flat_map(|node| node.pods());
        pods.any(|pod| {
            pod.pod.priority() < priority && is_going_for_a_preemptor(as_known(cluster, pod))
        })
    })
}

impl PodGroupPostFilter for DefaultPreemption {
    fn post_filter_group(
        &self,
        cx: &mut PodGroupPostFilterContext<'_>,
        group: &GroupKey,
    ) -> GroupPostFilterResult {
        make_room(cx, group)
    }
}

fn make_room(cx: &mut PodGroupPostFilterContext<'_>, group: &GroupKey) -> GroupPostFilterResult {
    let Some(spec) = cx.dry_run.cluster().groups().spec(group) else {
        return unschedulable("the group does not exist");
    };
    let priority = spec.priority();
    let never = |policy: Option<&Str>| policy.is_some_and(|policy| policy == "Never");
    let of_group = never(spec.preemption_policy.as_ref());
    // The victims of an earlier preemption still terminate. Their room may be enough, so no further pods are evicted
    // (G-27).
    if waits_for_victims(cx.dry_run, priority) {
        let text = format!("{PREFIX}ongoing preemption on nominated nodes");
        return GroupPostFilterResult::of(Status::new(Code::Success, [text.into()]));
    }
    // G-28: the policy of the root with the gate, otherwise the policy of any member.
    let is_barred = if cx.features.enabled(Feature::PodGroupPreemptionPolicy) {
        of_group
    } else {
        let members = cx.dry_run.members();
        let mut members = members.iter();
        members.any(|member| never(member.pod.spec.preemption_policy.as_ref()))
    };
    if is_barred {
        return unschedulable("not eligible due to preemptionPolicy=Never.");
    }
    let units = units_below(cx.dry_run.cluster(), priority);
    if units.is_empty() {
        return unschedulable(NO_VICTIMS);
    }
    let victims = match choose(cx, units) {
        Ok(victims) => victims,
        Err(status) => return GroupPostFilterResult::of(with_prefix(&status)),
    };
    found(cx, group, priority, &victims)
}

/// The units that must be evicted, the most important first.
struct GroupVictims {
    units: Vec<Unit>,
    /// The number of their pods whose eviction violates a PodDisruptionBudget.
    violations: usize,
}

/// The units that must be evicted. Afterwards the members are placed in the dry run.
fn choose(
    cx: &mut PodGroupPostFilterContext<'_>,
    units: Vec<Unit>,
) -> Result<GroupVictims, Status> {
    let dry_run = &mut *cx.dry_run;
    // If the group does not fit without all pods of lower priority, no eviction helps.
    for (slot, pod) in units.iter().flat_map(|unit| &unit.pods) {
        dry_run.remove_pod(*slot, pod);
    }
    dry_run.place()?;
    // Earlier units use up the allowed disruptions of the budgets, so the most important units are checked first.
    let mut budgets = Budgets::new(dry_run.cluster(), cx.features);
    let (violating, others): (Vec<usize>, Vec<usize>) =
        (0..units.len()).partition(|at| budgets.are_violated_by(&units[*at].pods));
    let mut is_victim = vec![false; units.len()];
    let mut violations = 0;
    // Units that violate a budget are added back first, so that they are evicted only if nothing else helps (G-26).
    for (rank, at) in violating.iter().chain(&others).enumerate() {
        let unit = &units[*at];
        for (slot, pod) in &unit.pods {
            dry_run.add_pod(*slot, pod);
        }
        if dry_run.still_fits(&unit.pods) {
            continue;
        }
        for (slot, pod) in &unit.pods {
            dry_run.remove_pod(*slot, pod);
        }
        is_victim[*at] = true;
        if rank < violating.len() {
            violations += unit.pods.len();
        }
    }
    let victims = units.into_iter().zip(is_victim);
    let victims = victims.filter_map(|(unit, is_victim)| is_victim.then_some(unit));
    Ok(GroupVictims {
        units: victims.collect(),
        violations,
    })
}

/// Evicts the victims, nominates the members to their nodes, and clears the nominations of pods of lower priority to
/// these nodes.
fn found(
    cx: &PodGroupPostFilterContext<'_>,
    group: &GroupKey,
    priority: i32,
    chosen: &GroupVictims,
) -> GroupPostFilterResult {
    let pods = chosen.units.iter().flat_map(|unit| &unit.pods);
    let victims: Vec<&Arc<PodInfo>> = pods.map(|(_, pod)| pod).collect();
    let placed = cx.dry_run.placed();
    let cluster = cx.dry_run.cluster();
    let text = format!(
        "{PREFIX}found a placement for podgroup, preempting {} victims",
        victims.len()
    );
    let mut result = GroupPostFilterResult::of(Status::new(Code::Success, [text.into()]));
    let Some((preemptor, _)) = placed.first() else {
        return result;
    };
    let nominations: Vec<(Str, Str)> = placed
        .iter()
        .filter_map(|(pod, slot)| {
            let node = cluster.nodes.get(*slot)?.name().clone();
            Some((pod.pod.uid().clone(), node))
        })
        .collect();
    // Less important pods lose their nominations to these nodes, as with a single preemptor (P-24).
    let nodes: BTreeSet<&Str> = nominations.iter().map(|(_, node)| node).collect();
    let own: BTreeSet<&Str> = nominations.iter().map(|(uid, _)| uid).collect();
    for node in nodes {
        for other in cx.dry_run.nominated_to(node) {
            if other.pod.priority() < priority && !own.contains(other.pod.uid()) {
                result.calls.push(ApiCall::PatchPodStatus {
                    pod: PodRef::of(&other.pod),
                    conditions: Vec::new(),
                    nominated_node: Some(Str::default()),
                });
            }
        }
    }
    let view = cluster.groups().get(group);
    let uid = view
        .map(|group| group.metadata.uid.clone())
        .unwrap_or_default();
    // Victims that already terminate are not evicted again.
    let live = victims.iter().map(|victim| as_known(cluster, victim));
    let live = live.filter(|victim| !victim.is_terminating());
    let preempting = Preemptor {
        pod: &preemptor.pod,
        word: group.kind.as_str(),
        uid: &uid,
        related: RelatedObject::Group {
            group: group.clone(),
            uid: uid.clone(),
        },
        node: CLUSTER,
    };
    let evictions: Vec<Eviction> = live.map(|victim| preempting.eviction(victim)).collect();
    if !evictions.is_empty() {
        // As with a single preemptor, the metric counts all victims, including terminating ones (P-20).
        let disruption = Observation::Preemption(Disruption {
            preemptor: group.kind.as_str(),
            victims: victims.len(),
            units: chosen.units.len(),
            violations: chosen.violations,
        });
        result.observations.push(disruption);
        result.preemption = Some(Preemption {
            preemptor: PodRef::of(&preemptor.pod),
            kind: group.kind.as_str(),
            plugin: NAME.into(),
            victims: evictions,
        });
    }
    // The nominations are set even if all victims terminate already: the members wait for them (G-27).
    result.nominations = Some(nominations);
    result
}
