//! Judges groups of pods: a gang starts with enough members or not at all, its members are on permitted nodes, and no
//! gang that could start waits.

use super::{Checker, Violation};
use crate::rules::{
    GroupName, Scene, forbids, group_of, is_blocked, is_in_one_zone, is_ours, quorum, stored,
    zone_of,
};
use crate::world::World;
use berth_api::{Node, Pod, Str};
use std::collections::{BTreeMap, BTreeSet};

impl Checker {
    /// The groups with a placed member, as far as the scheduler knows.
    pub fn started_groups(&self) -> BTreeSet<(Str, Str)> {
        self.placed_members().keys().cloned().collect()
    }

    /// The number of placed members, by group.
    fn placed_members(&self) -> BTreeMap<GroupName, usize> {
        let mut counts = BTreeMap::new();
        for pod in self.pods.values() {
            let has_place = pod.is_assigned() || self.placed.contains_key(pod.uid());
            if let Some(group) = group_of(pod).filter(|_| has_place) {
                *counts.entry(group).or_default() += 1;
            }
        }
        counts
    }

    /// Checks members that were assigned to nodes. `started` are the groups that had a placed member before. Returns
    /// the number of newly started groups.
    ///
    /// # Errors
    /// When a gang starts with too few members.
    pub fn check_quorums(
        &self,
        chosen: &[(Str, Str)],
        started: &BTreeSet<(Str, Str)>,
    ) -> Result<u64, Violation> {
        let pods = chosen.iter().filter_map(|(uid, _)| self.pods.get(uid));
        let groups: BTreeSet<GroupName> = pods.filter_map(|pod| group_of(pod)).collect();
        let placed = self.placed_members();
        let mut count = 0;
        for group in groups.difference(started) {
            count += 1;
            let wanted = stored(&self.others, group).map_or(0, |group| quorum(group));
            let placed = placed.get(group).copied().unwrap_or_default();
            if placed < wanted {
                return Err(Violation::ShortGang {
                    group: group.1.clone(),
                    placed,
                    wanted,
                });
            }
        }
        Ok(count)
    }

    /// The rule about groups that forbids a node for a member.
    pub(super) fn broken_group_rule(&self, pod: &Pod, node: &Node) -> Option<&'static str> {
        let name = group_of(pod)?;
        let Some(group) = stored(&self.others, &name) else {
            return Some("its group does not exist");
        };
        if !is_in_one_zone(group) {
            return None;
        }
        let Some(zone) = zone_of(node) else {
            return Some("the node is in no zone, unlike the group");
        };
        let scene = self.scene();
        let mut members = scene.placed.iter().filter(|(other, _)| {
            other.uid() != pod.uid()
                && !other.is_terminating()
                && group_of(other).as_ref() == Some(&name)
        });
        let is_elsewhere = members.any(|(_, at)| {
            let at = self.nodes.get(*at).and_then(|node| zone_of(node));
            at.is_some_and(|at| at != zone)
        });
        is_elsewhere.then_some("the group is in another zone")
    }
}

/// Returns whether the group of a pod cannot be attempted: it does not exist, or one of its waiting members is rejected
/// or belongs to another scheduler.
pub(super) fn is_held_by_group(world: &World, pod: &Pod) -> bool {
    let Some(name) = group_of(pod) else {
        return false;
    };
    let Some(group) = stored(world.others(), &name) else {
        return true;
    };
    let of_group = |other: &&Pod| !other.is_terminal() && group_of(other).as_ref() == Some(&name);
    let members: Vec<&Pod> = world
        .pods()
        .values()
        .map(|pod| &**pod)
        .filter(of_group)
        .collect();
    let mut waiting = members.iter().filter(|pod| !pod.is_assigned());
    members.len() < quorum(group)
        || waiting.any(|pod| !is_ours(pod) || is_blocked(pod, world.others()))
}

/// Judges the members of groups once everything is at rest: a group that could be placed must not wait.
///
/// # Errors
/// A waiting member of a group that fits.
pub(super) fn check_groups(world: &World, scene: &Scene<'_>) -> Result<(), Violation> {
    let mut members: BTreeMap<GroupName, Vec<&Pod>> = BTreeMap::new();
    for pod in world.pods().values().filter(|pod| !pod.is_terminal()) {
        if let Some(group) = group_of(pod) {
            members.entry(group).or_default().push(pod);
        }
    }
    for (name, pods) in &members {
        if let Some(group) = stored(world.others(), name) {
            check_group(world, scene, pods, quorum(group), is_in_one_zone(group))?;
        }
    }
    Ok(())
}

fn check_group(
    world: &World,
    scene: &Scene<'_>,
    members: &[&Pod],
    wanted: usize,
    is_in_one_zone: bool,
) -> Result<(), Violation> {
    let (placed, waiting): (Vec<&Pod>, Vec<&Pod>) =
        members.iter().partition(|pod| pod.is_assigned());
    let Some(first) = waiting.first() else {
        return Ok(());
    };
    // A member that is rejected, or that belongs to another scheduler, blocks the other members.
    let is_held = |pod: &&Pod| !is_ours(pod) || is_blocked(pod, world.others());
    if waiting.iter().any(is_held) || members.len() < wanted {
        return Ok(());
    }
    // If the pods differ, the result depends on the order of the attempts.
    if waiting.iter().any(|pod| !is_alike(pod, first)) {
        return Ok(());
    }
    let at = |pod: &Pod| world.nodes().get(&pod.spec.node_name);
    let staying = || placed.iter().copied();
    let taken: BTreeSet<&str> = staying().filter_map(|pod| zone_of(at(pod)?)).collect();
    let taken_zones = taken.len();
    let missing = wanted.saturating_sub(placed.len()).max(1);
    let zones: BTreeSet<Option<&str>> = match is_in_one_zone {
        false => BTreeSet::from([None]),
        true if taken.is_empty() => {
            let zones = world.nodes().values().filter_map(|node| zone_of(node));
            zones.map(Some).collect()
        }
        true => taken.into_iter().map(Some).collect(),
    };
    // A group in several zones, or with a member outside of any zone, cannot be completed: its members end with an
    // error.
    let is_nowhere = |pod: &&Pod| at(pod).is_some_and(|node| zone_of(node).is_none());
    if is_in_one_zone && (taken_zones > 1 || staying().any(|pod| is_nowhere(&pod))) {
        return Ok(());
    }
    // Resources that are kept free for another pod are not available.
    let nominated = world
        .pods()
        .values()
        .filter(|pod| !pod.is_assigned() && !pod.status.nominated_node_name.is_empty());
    let nominated: Vec<(&Pod, &str)> = nominated
        .map(|pod| (&**pod, pod.status.nominated_node_name.as_str()))
        .collect();
    for zone in zones {
        let nodes = world.nodes().values().map(|node| &**node);
        let nodes: Vec<&Node> = nodes
            .filter(|node| zone.is_none() || zone_of(node) == zone)
            .collect();
        if let Some(node) = place(scene, &nominated, &waiting, &nodes, missing) {
            return Err(Violation::Lost {
                pod: first.name().clone(),
                node,
                whereabouts: String::new(),
            });
        }
    }
    Ok(())
}

pub(super) fn is_alike(a: &Pod, b: &Pod) -> bool {
    let labels = |pod: &Pod| pod.metadata.labels.clone();
    a.spec == b.spec && labels(a) == labels(b)
}

/// Places `wanted` of these equal pods on the nodes, one after the other, together with the nominated pods. Returns the
/// first used node if all fit.
pub(super) fn place<'a>(
    scene: &Scene<'a>,
    nominated: &[(&'a Pod, &'a str)],
    pods: &[&'a Pod],
    nodes: &[&'a Node],
    wanted: usize,
) -> Option<Str> {
    if pods.len() < wanted {
        return None;
    }
    let mut announced = scene.with(nominated.iter().copied());
    let mut scene = scene.clone();
    let mut first = None;
    for pod in pods.iter().take(wanted) {
        let fits = |node: &&&Node| {
            forbids(&scene, pod, node).is_none() && forbids(&announced, pod, node).is_none()
        };
        let node = nodes.iter().find(fits)?;
        scene = scene.with([(*pod, node.name().as_str())]);
        announced = announced.with([(*pod, node.name().as_str())]);
        first.get_or_insert_with(|| node.name().clone());
    }
    first
}
