//! The objects of a group of pods.

use crate::shapes::ZONE;
use crate::world::Others;
use berth_api::groups::PodGroup;
use berth_api::{Node, Pod, Str};
use std::sync::Arc;

/// A group by namespace and name.
pub(crate) type GroupName = (Str, Str);

/// The group of a pod.
pub(crate) fn group_of(pod: &Pod) -> Option<GroupName> {
    let group = pod.spec.scheduling_group.as_ref()?;
    (!group.pod_group_name.is_empty())
        .then(|| (pod.namespace().clone(), group.pod_group_name.clone()))
}

/// The number of members of a gang that must be placed together; 0 for other groups.
pub(crate) fn quorum(group: &PodGroup) -> usize {
    let gang = group.spec.scheduling_policy.gang.as_ref();
    gang.map_or(0, |gang| usize::try_from(gang.min).unwrap_or_default())
}

/// Returns whether its members are evicted together.
pub(crate) fn is_evicted_as_a_whole(group: &PodGroup) -> bool {
    group.spec.disruption_mode.all.is_some()
}

/// Returns whether all members must be in one zone.
pub(crate) fn is_in_one_zone(group: &PodGroup) -> bool {
    !group.spec.scheduling_constraints.topology.is_empty()
}

/// The zone of a node.
pub(crate) fn zone_of(node: &Node) -> Option<&str> {
    node.metadata.labels.get(ZONE)
}

/// A group as one component knows it.
pub(crate) fn stored<'a>(others: &'a Others, name: &GroupName) -> Option<&'a Arc<PodGroup>> {
    others.group(&name.0, &name.1)
}
