//! Judges evictions for groups and evictions of members of groups.

use super::groups::{is_alike, place};
use super::{Checker, Violation};
use crate::rules::{
    GroupName, forbids, group_of, is_evicted_as_a_whole, is_in_one_zone, only_room_counts, quorum,
    stored, zone_of,
};
use berth_api::{Node, Pod, Str};
use std::collections::{BTreeMap, BTreeSet};

/// The result of the cycle of a group that was not placed.
#[derive(Debug, Clone, Default)]
pub struct GroupPlan {
    /// The UIDs of the attempted members.
    pub members: Vec<Str>,
    /// The nodes to which members are nominated now, by UID.
    pub nominated: BTreeMap<Str, Str>,
}

/// The pods that are evicted together: all pods of a group, or one pod.
type UnitOfEviction = Result<GroupName, Str>;

impl Checker {
    /// The priority of the pod as a victim: the priority of its group.
    pub(super) fn priority_as_victim(&self, pod: &Pod) -> i32 {
        let group = group_of(pod).and_then(|name| stored(&self.others, &name));
        group.map_or_else(|| pod.priority(), |group| group.spec.priority.unwrap_or(0))
    }

    /// The group with which the pod is evicted.
    pub(super) fn evicted_with(&self, pod: &Pod) -> Option<GroupName> {
        let name = group_of(pod)?;
        let group = stored(&self.others, &name)?;
        is_evicted_as_a_whole(group).then_some(name)
    }
}

/// The evictions for groups and of groups, as a checker judges them.
pub(super) struct GroupEvictions<'a>(pub(super) &'a Checker);

impl<'a> GroupEvictions<'a> {
    fn unit(&self, pod: &Pod) -> UnitOfEviction {
        self.0.evicted_with(pod).ok_or_else(|| pod.uid().clone())
    }

    /// A group that is evicted as a whole loses all of its pods, or none. Pods on deleted nodes are left to the garbage
    /// collector.
    pub(super) fn check_whole(&self, victims: &[&Pod]) -> Result<(), Violation> {
        let units: BTreeSet<GroupName> = victims
            .iter()
            .filter_map(|victim| self.0.evicted_with(victim))
            .collect();
        let going: BTreeSet<&Str> = victims.iter().map(|victim| victim.uid()).collect();
        let stays = self.0.pods.values().find(|pod| {
            self.0.nodes.contains_key(&pod.spec.node_name)
                && !pod.is_terminal()
                && !pod.is_terminating()
                && !self.0.victims.contains(pod.uid())
                && !going.contains(pod.uid())
                && group_of(pod).is_some_and(|group| units.contains(&group))
        });
        match (stays, victims.first()) {
            (Some(pod), Some(victim)) => Err(Violation::NeedlessPreemption {
                victim: victim.name().clone(),
                reason: format!("pod {} of the same group stays", pod.name()),
            }),
            _ => Ok(()),
        }
    }

    /// Victims of a group must have a lower priority, must all be needed and together suffice, and are not needed if
    /// the group fits anyway.
    pub(super) fn check_need_of_group(
        &self,
        victims: &[&Pod],
        plan: &GroupPlan,
    ) -> Result<(), Violation> {
        let members: Vec<&Pod> = plan
            .members
            .iter()
            .filter_map(|uid| self.0.pod(uid))
            .collect();
        let (Some(victim), Some(first)) = (victims.first(), members.first()) else {
            return Ok(());
        };
        let needless = |victim: &Pod, reason: String| {
            Err(Violation::NeedlessPreemption {
                victim: victim.name().clone(),
                reason,
            })
        };
        let Some(name) = group_of(first) else {
            return Ok(());
        };
        let Some(group) = stored(&self.0.others, &name) else {
            return needless(victim, format!("group {} does not exist", name.1));
        };
        let priority = group.spec.priority.unwrap_or(0);
        if let Some(victim) = victims
            .iter()
            .find(|victim| self.0.priority_as_victim(victim) >= priority)
        {
            let reason = format!("it is no less important than group {}", name.1);
            return needless(victim, reason);
        }
        self.check_once_for_group(victim, priority, plan)?;
        if !members.iter().all(|pod| only_room_counts(pod)) {
            return Ok(());
        }
        let scene = self.0.scene();
        let placed: Vec<&str> = scene
            .placed
            .iter()
            .filter(|(pod, _)| group_of(pod).as_ref() == Some(&name))
            .map(|(_, node)| *node)
            .collect();
        let missing = quorum(group).saturating_sub(placed.len()).max(1);
        // While nodes may be excluded for members, the checker does not know the excluded nodes.
        let zone = self.zone_with_room(&members, is_in_one_zone(group), &placed, missing);
        if self.0.rejecting.is_empty()
            && let Some(zone) = zone
        {
            let reason = format!("group {} can start{zone} as it is", name.1);
            return needless(victim, reason);
        }
        let going = |pod: &Pod| victims.iter().any(|victim| victim.uid() == pod.uid());
        // Pods of lower priority that are already being deleted need no eviction, and do not stay either.
        let gone = |pod: &Pod| {
            going(pod)
                || self.0.priority_as_victim(pod) < priority
                    && (pod.is_terminating() || self.0.victims.contains(pod.uid()))
        };
        // As in kube-scheduler, a plugin that PreFilter skipped ignores nominated pods.
        let fits = self.fit_as_nominated(&members, plan, false, gone);
        if plan.nominated.len() < missing || fits.is_err() {
            let hosts: Vec<String> = self.hosts(plan).collect();
            let obstacle = fits.err().unwrap_or_default();
            let reason = format!(
                "group {} cannot start with its members on {hosts:?} {obstacle}",
                name.1
            );
            return needless(victim, reason);
        }
        let units: BTreeSet<UnitOfEviction> = victims.iter().map(|pod| self.unit(pod)).collect();
        for kept in &units {
            let goes = |pod: &Pod| going(pod) && self.unit(pod) != *kept;
            if self.fit_as_nominated(&members, plan, true, goes).is_ok() {
                let of_unit = victims.iter().find(|pod| self.unit(pod) == *kept);
                let hosts: Vec<String> = self.hosts(plan).collect();
                let reason = format!(
                    "group {} can start without its eviction on {hosts:?}",
                    name.1
                );
                return needless(of_unit.unwrap_or(victim), reason);
            }
        }
        Ok(())
    }

    fn hosts(&self, plan: &GroupPlan) -> impl Iterator<Item = String> {
        let members = plan.nominated.iter();
        members.filter_map(|(uid, node)| Some(format!("{}: {node}", self.0.pod(uid)?.name())))
    }

    /// While victims are still being deleted on a node to which a member is nominated, no more pods may be evicted.
    fn check_once_for_group(
        &self,
        victim: &Pod,
        priority: i32,
        plan: &GroupPlan,
    ) -> Result<(), Violation> {
        for (uid, node) in &self.0.nominated {
            if !plan.members.contains(uid) || !self.0.nodes.contains_key(node) {
                continue;
            }
            let earlier =
                self.0.pods.values().find(|pod| {
                    pod.priority() < priority && self.0.is_evicted_from_node(pod, node)
                });
            if let (Some(earlier), Some(member)) = (earlier, self.0.pod(uid)) {
                return Err(Violation::RepeatedPreemption {
                    pod: member.name().clone(),
                    victim: victim.name().clone(),
                    earlier: earlier.name().clone(),
                });
            }
        }
        Ok(())
    }

    /// The zone where `missing` members fit, if they are alike and none is nominated; `Some("")` if zones do not
    /// matter.
    fn zone_with_room(
        &self,
        members: &[&Pod],
        is_in_one_zone: bool,
        placed_on: &[&str],
        missing: usize,
    ) -> Option<String> {
        let first = members.first()?;
        // Members respect the nominations of each other.
        let is_nominated = |pod: &Pod| self.0.nominated.contains_key(pod.uid());
        if members
            .iter()
            .any(|pod| !is_alike(pod, first) || is_nominated(pod))
        {
            return None;
        }
        let nominated: Vec<(&Pod, &str)> = self
            .0
            .nominated
            .iter()
            .filter_map(|(uid, node)| Some((self.0.pod(uid)?, node.as_str())))
            .collect();
        let all = || self.0.nodes.values().map(|node| &**node);
        let scene = self.0.scene();
        if !is_in_one_zone {
            let nodes: Vec<&Node> = all().collect();
            return place(&scene, &nominated, members, &nodes, missing).map(|_| String::new());
        }
        let taken = placed_on
            .iter()
            .map(|name| self.0.nodes.get(*name).and_then(|node| zone_of(node)));
        let taken: BTreeSet<Option<&str>> = taken.collect();
        let zones: BTreeSet<&str> = if taken.is_empty() {
            all().filter_map(zone_of).collect()
        } else if taken.len() > 1 || taken.contains(&None) {
            // Members in two zones, or in none, end with an error.
            BTreeSet::new()
        } else {
            taken.into_iter().flatten().collect()
        };
        zones.into_iter().find_map(|zone| {
            let nodes: Vec<&Node> = all().filter(|node| zone_of(node) == Some(zone)).collect();
            place(&scene, &nominated, members, &nodes, missing).map(|_| format!(" in zone {zone}"))
        })
    }

    /// Checks that the members fit on their nominated nodes after some pods were deleted; with `others`, also together
    /// with the other nominated pods of at least the same priority.
    ///
    /// # Errors
    /// The obstacle.
    fn fit_as_nominated(
        &self,
        members: &[&Pod],
        plan: &GroupPlan,
        others: bool,
        gone: impl Fn(&Pod) -> bool,
    ) -> Result<(), String> {
        let mut scene = self.0.scene().without(|pod, _| gone(pod));
        let priority = members.iter().map(|pod| pod.priority()).max();
        let nominees = self.0.nominated.iter().filter(|_| others);
        let nominees = nominees.filter_map(|(uid, node)| {
            let pod = self.0.pod(uid)?;
            let is_other = !self.0.placed.contains_key(uid)
                && !plan.members.contains(uid)
                && Some(pod.priority()) >= priority;
            is_other.then_some((pod, node.as_str()))
        });
        let mut announced = scene.with(nominees);
        for member in members {
            let node = plan.nominated.get(member.uid());
            let Some(node) = node.and_then(|node| self.0.nodes.get(node)) else {
                continue;
            };
            let obstacle = forbids(&scene, member, node);
            if let Some(obstacle) = obstacle.or_else(|| forbids(&announced, member, node)) {
                return Err(format!("{}: {obstacle:?}", member.name()));
            }
            scene = scene.with([(*member, node.name().as_str())]);
            announced = announced.with([(*member, node.name().as_str())]);
        }
        Ok(())
    }
}
