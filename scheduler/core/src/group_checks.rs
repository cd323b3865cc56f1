//! Consistency checks of the pods and groups of a hierarchy, which are scheduled as one.

use berth_api::groups::GroupSpec;
use berth_api::{Pod, Str};
use berth_framework::Feature;
use berth_framework::cluster::{GroupKey, GroupKind, Groups, HIERARCHY_DEPTH_MAX};
use berth_framework::plugin::Context;
use std::sync::Arc;

const DEFAULT_POLICY: &str = "PreemptLowerPriority";

fn policy_of(policy: Option<&Str>) -> &str {
    policy.map_or(DEFAULT_POLICY, Str::as_str)
}

/// Checks the shape of a hierarchy. Reports the first invalid group by kind and name.
fn check_shape(groups: &Groups, tree: &[GroupKey]) -> Result<(), String> {
    let mut sorted: Vec<&GroupKey> = tree.iter().collect();
    sorted.sort_unstable();
    for key in &sorted {
        let depth = groups.path_to_root(key).map_or(0, |path| path.len());
        // The children of a composite group are one level deeper.
        let depth = depth + usize::from(key.kind == GroupKind::CompositePodGroup);
        if depth > HIERARCHY_DEPTH_MAX {
            return Err(format!(
                "hierarchy depth {depth} exceeds maximum allowed depth {HIERARCHY_DEPTH_MAX}"
            ));
        }
    }
    for key in sorted {
        let Some((parent, spec)) = groups.parent(key).zip(groups.spec(key)) else {
            continue;
        };
        let Some(of_parent) = groups.spec(&parent) else {
            continue;
        };
        let workload = |spec: &GroupSpec| {
            let workload = spec.workload_ref.as_ref();
            workload.map_or(String::new(), |workload| workload.workload_name.to_string())
        };
        let (own, other) = (workload(spec), workload(of_parent));
        let (name, parent) = (key.namespaced_name(), parent.namespaced_name());
        if own != other {
            return Err(format!(
                "all groups of a hierarchy should have the same workload, got \"{own}\" (\"{name}\") and \"{other}\" \
                 (\"{parent}\")"
            ));
        }
        if of_parent.gang_min().is_some() && spec.gang_min().is_none() {
            return Err(format!(
                "the children of a group with gang policy should have gang policy, \"{name}\" in \"{parent}\" has basic \
                 policy"
            ));
        }
        if of_parent.is_disrupted_as_a_whole() && !spec.is_disrupted_as_a_whole() {
            return Err(format!(
                "the children of a group with disruption mode all should have this mode, \"{name}\" in \"{parent}\" has \
                 mode single"
            ));
        }
    }
    Ok(())
}

/// Checks the waiting members, the members with a node, and all groups of the hierarchy.
///
/// # Errors
/// The first inconsistency.
pub(crate) fn check(
    cx: &Context<'_>,
    root: &GroupKey,
    pending: &[&Arc<Pod>],
) -> Result<(), String> {
    let cluster = cx.cluster;
    let groups = cluster.groups();
    let Some(spec) = groups.spec(root) else {
        return Err(format!("{root} does not exist"));
    };
    let (priority, root_name) = (spec.priority(), root.namespaced_name());
    let tree = groups.tree(root);
    for key in &tree {
        let of_child = groups.spec(key).map_or(priority, |spec| spec.priority());
        if of_child != priority {
            return Err(format!(
                "all pod groups in a hierarchy should have the same priority as the root pod group's priority, got \
                 {of_child} (\"{}\") and {priority} (\"{root_name}\")",
                key.namespaced_name()
            ));
        }
    }
    check_shape(groups, &tree)?;
    let members = tree.iter().filter_map(|key| cluster.pods.members(key));
    let scheduled = members.flat_map(|members| members.scheduled());
    let scheduled = scheduled.filter_map(|uid| cluster.pods.get(uid));
    let mut scheduled: Vec<&Arc<Pod>> = scheduled.collect();
    // By name, so that the reported pod does not depend on the order of the set.
    scheduled.sort_unstable_by_key(|pod| pod.name());
    let all = || pending.iter().copied().chain(scheduled.iter().copied());
    let Some(first) = all().next() else {
        return Ok(());
    };
    for pod in all() {
        let (name, other) = (&pod.spec.scheduler_name, &first.spec.scheduler_name);
        if name != other {
            return Err(format!(
                "all pods in a pod group hierarchy should have the same .spec.schedulerName set, got: \"{name}\" \
                 (\"{}\") and \"{other}\" (\"{}\")",
                pod.key(),
                first.key()
            ));
        }
    }
    for pod in all() {
        let own = pod.priority();
        if own != priority {
            return Err(format!(
                "all pods in a pod group hierarchy should have the same priority as the root pod group's priority, \
                 got {own} (\"{}\") and {priority} (\"{root_name}\")",
                pod.key()
            ));
        }
    }
    let of_groups = cx.features.enabled(Feature::PodGroupPreemptionPolicy);
    let wanted = if of_groups {
        policy_of(spec.preemption_policy.as_ref())
    } else {
        policy_of(first.spec.preemption_policy.as_ref())
    };
    for pod in all() {
        let own = policy_of(pod.spec.preemption_policy.as_ref());
        if own != wanted {
            return Err(if of_groups {
                format!(
                    "all pods in a pod group hierarchy should have the same preemption policy as the root pod group's \
                     preemption policy, got \"{own}\" (\"{}\") and \"{wanted}\" (\"{root_name}\")",
                    pod.key()
                )
            } else {
                format!(
                    "all pods in a pod group hierarchy should have the same preemption policy, got \"{own}\" \
                     (\"{}\") and \"{wanted}\" (\"{}\")",
                    pod.key(),
                    first.key()
                )
            });
        }
    }
    Ok(())
}
