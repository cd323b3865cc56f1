//! The rules of the simulated world: whether a pod may run on a node. Nothing is kept between questions.
//!
//! **Architecture invariant:** only the types of `berth-api` are shared with the judged scheduler. The oracle,
//! `berth-oracle`, is used only by judges.

mod devices;
mod fit;
mod group;
mod quotas;
mod ready;
#[cfg(test)]
mod tests;
mod volumes;

pub(crate) use devices::{claim_names, conflict, device_faults};
pub(crate) use group::{
    GroupName, group_of, is_evicted_as_a_whole, is_in_one_zone, quorum, stored, zone_of,
};
pub(crate) use quotas::{Account, Broken, Quota, Seen, Standing, needs, quotas};
pub(crate) use volumes::lacks_claim;

pub(crate) use ready::{
    GATE_TEXT, GATED, NOT_READY, QUOTA_TEXT, awaited_member, blocked, is_blocked, is_ours,
    is_reason_of_pod,
};

use crate::world::Others;
use berth_api::devices::AllocationResult;
use berth_api::{Kind, Node, Pod, Str};
use std::collections::BTreeMap;

/// The devices that a scheduler has chosen and the API does not show yet, by the UID of the claim, or its name while it
/// is to be created.
pub(crate) type DecidedDevices = BTreeMap<Str, AllocationResult>;

/// The reason why a pod may not run on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Forbids {
    /// The node has not enough of this resource, port or volume.
    Lacks(String),
    /// A rule about the nodes for the pod.
    Rule(&'static str),
    /// Unknown without the decisions about volumes.
    Unclear,
}

/// A cluster at one time, as known to one component.
#[derive(Debug, Clone)]
pub(crate) struct Scene<'a> {
    /// The nodes.
    pub(crate) nodes: Vec<&'a Node>,
    /// The pods that have not ended, with the name of their node. Pods of unknown nodes are not counted.
    pub(crate) placed: Vec<(&'a Pod, &'a str)>,
    /// Everything else.
    pub(crate) others: &'a Others,
    /// Devices that were chosen for claims and that the claims do not show yet.
    pub(crate) decided_devices: &'a DecidedDevices,
}

impl<'a> Scene<'a> {
    /// The pods on a node, without `pod` itself.
    fn on<'s>(&'s self, node: &'s Node, pod: &'s Pod) -> impl Iterator<Item = &'a Pod> + 's {
        let there = self.placed.iter().filter(|(_, at)| **at == **node.name());
        there
            .map(|(other, _)| *other)
            .filter(|other| other.uid() != pod.uid())
    }

    /// The pods on nodes, with their nodes, without `pod` itself.
    fn elsewhere<'s>(
        &'s self,
        pod: &'s Pod,
    ) -> impl Iterator<Item = (&'a Pod, &'a Node)> + use<'a, 's> {
        self.placed
            .iter()
            .filter(|(other, _)| other.uid() != pod.uid())
            .filter_map(|(other, at)| {
                let node = self.nodes.iter().find(|node| **node.name() == **at)?;
                Some((*other, *node))
            })
    }

    /// The devices of claims with the UIDs of the claims: the allocations in claims, and the decided ones.
    fn allocations(&self) -> impl Iterator<Item = (&'a Str, &'a AllocationResult)> + use<'a> {
        let others = self.others;
        let claims = others.of_kind(Kind::ResourceClaim);
        let shown = claims.filter_map(|object| {
            let claim = object.as_resource_claim()?;
            let allocation = claim.status.allocation.as_ref()?;
            Some((&claim.metadata.uid, allocation))
        });
        let is_shown = move |uid: &Str| {
            let mut claims = others.of_kind(Kind::ResourceClaim);
            claims.any(|object| {
                let claim = object.as_resource_claim();
                object.metadata().uid == *uid && claim.is_some_and(|claim| claim.is_allocated())
            })
        };
        let decided = self.decided_devices.iter();
        shown.chain(decided.filter(move |(uid, _)| !is_shown(uid)))
    }

    /// The scene with more pods.
    pub(crate) fn with(&self, more: impl IntoIterator<Item = (&'a Pod, &'a str)>) -> Self {
        let mut scene = self.clone();
        scene.placed.extend(more);
        scene
    }

    /// The scene without some pods.
    pub(crate) fn without(&self, which: impl Fn(&Pod, &str) -> bool) -> Self {
        let mut scene = self.clone();
        scene.placed.retain(|(pod, node)| !which(pod, node));
        scene
    }
}

/// Returns the reason why `pod` may not run on `node` together with the pods on it.
pub(crate) fn forbids(scene: &Scene<'_>, pod: &Pod, node: &Node) -> Option<Forbids> {
    fit::broken_rule_of_node(pod, node)
        .or_else(|| fit::broken_rule_of_pods(scene, pod, node))
        .map(Forbids::Rule)
        .or_else(|| fit::lacking(scene, pod, node).map(Forbids::Lacks))
        .or_else(|| devices::forbids(scene, pod, node))
        .or_else(|| volumes::forbids(scene, pod, node))
}

/// Returns whether a removal of pods can only relax the rules about the other pods around a pod.
pub(crate) fn only_room_counts(pod: &Pod) -> bool {
    let affinity = pod.spec.affinity.as_ref();
    pod.spec.topology_spread_constraints.is_empty()
        && affinity.is_none_or(|a| a.pod_affinity.is_none())
}
