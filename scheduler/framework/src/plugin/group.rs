//! The extension points of groups: where and when a group can start, and how room is made for it.

use super::Context;
use crate::call::ApiCall;
use crate::cluster::{Cluster, GroupKey};
use crate::features::FeatureGates;
use crate::pod_info::PodInfo;
use crate::stage::{Observation, Preemption};
use crate::status::Status;
use crate::table::Slot;
use berth_api::{Str, Time};
use std::sync::Arc;

/// The progress of the placement of a group in one cycle.
#[derive(Debug, Clone, Copy)]
pub struct GroupProgress<'a> {
    /// The group.
    pub group: &'a GroupKey,
    /// The members with a node, whether assigned before or in this cycle.
    pub scheduled: usize,
    /// The members that were not tried yet.
    pub remaining: usize,
}

/// Decides whether a group can start: before the first member is tried, and after each member.
pub trait PlacementFeasible: Send + Sync + 'static {
    /// Success if the group can start with the members that are placed, Wait if it may with further ones. A rejection
    /// or an error ends the attempt.
    fn placement_feasible(&self, cx: &Context<'_>, progress: &GroupProgress<'_>) -> Status;
}

/// Nodes on which a group may be placed as a whole, such as the nodes of a rack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPlacement {
    /// The name, such as the value of the label.
    pub name: Str,
    /// The nodes.
    pub nodes: Vec<Slot>,
}

/// Divides nodes into the placements that are tried for a group.
pub trait PlacementGenerate: Send + Sync + 'static {
    /// The placements among `nodes`, by name. `scheduled` are the members that have a node, as namespace and name with
    /// the node. `None` if the plugin does not restrict the group.
    ///
    /// # Errors
    /// The reason why the group cannot be placed anywhere.
    fn placements(
        &self,
        cx: &Context<'_>,
        group: &GroupKey,
        scheduled: &[(String, Str)],
        nodes: &[Slot],
    ) -> Result<Option<Vec<GroupPlacement>>, Status>;
}

/// Pods that may be placed on some nodes.
#[derive(Debug, Clone, Copy)]
pub struct GroupProposal<'a> {
    /// The nodes of the placement.
    pub nodes: &'a [Slot],
    /// The pods that are to be placed there.
    pub pods: &'a [&'a PodInfo],
    /// The number of members of the group that have a node.
    pub scheduled: usize,
}

/// Ranks the placements of a group.
pub trait PlacementScore: Send + Sync + 'static {
    /// The raw score. It must not be lower for more pods on the same nodes: with that, the search tries the placements
    /// in the order of their best possible scores and ends as soon as no other one can be better.
    fn placement_score(&self, cx: &Context<'_>, proposal: &GroupProposal<'_>) -> i64;

    /// The raw scores of many placements with the same pods, equal to [`PlacementScore::placement_score`] of each. A
    /// plugin implements it if it can read the pods once for all placements.
    fn placement_scores(
        &self,
        cx: &Context<'_>,
        pods: &[&PodInfo],
        scheduled: usize,
        placements: &[GroupPlacement],
    ) -> Vec<i64> {
        let scores = placements.iter().map(|placement| {
            let proposal = GroupProposal {
                nodes: &placement.nodes,
                pods,
                scheduled,
            };
            self.placement_score(cx, &proposal)
        });
        scores.collect()
    }

    /// Brings the raw scores of all placements to 0 to [`MAX_NODE_SCORE`](super::MAX_NODE_SCORE). Placements with equal
    /// raw scores get equal scores, and a higher one for a higher raw score.
    fn normalize_placements(&self, _scores: &mut [i64]) {}

    /// Returns whether the pods may fit on the nodes together. If not, the placement is not tried: with each pod
    /// evaluated alone, the result would be the same.
    fn may_have_room(&self, _cx: &Context<'_>, _proposal: &GroupProposal<'_>) -> bool {
        true
    }
}

/// Changes the cluster temporarily and tries the group again. Everything is as before when the plugin returns.
pub trait GroupDryRun {
    /// The cluster, with the changes of the dry run.
    fn cluster(&self) -> &Cluster;
    /// The members that wait, in the order in which they are tried.
    fn members(&self) -> Vec<Arc<PodInfo>>;
    /// The node to which a member is nominated.
    fn nominated_node(&self, uid: &str) -> Option<Str>;
    /// The pods that are nominated to a node and are not on it yet.
    fn nominated_to(&self, node: &str) -> Vec<Arc<PodInfo>>;
    /// Removes a pod from its node.
    fn remove_pod(&mut self, node: Slot, pod: &Arc<PodInfo>);
    /// Adds a removed pod to its node again.
    fn add_pod(&mut self, node: Slot, pod: &Arc<PodInfo>);
    /// Tries the whole group, and places the members for which a node is found.
    ///
    /// # Errors
    /// The reason why the group cannot start.
    fn place(&mut self) -> Result<(), Status>;
    /// The nodes of the members that [`GroupDryRun::place`] has placed.
    fn placed(&self) -> Vec<(Arc<PodInfo>, Slot)>;
    /// Returns whether the placed members still fit on their nodes, one after the other, after a change of these pods.
    fn still_fits(&mut self, changed: &[(Slot, Arc<PodInfo>)]) -> bool;
}

/// The state that PodGroupPostFilter can use.
pub struct PodGroupPostFilterContext<'a> {
    /// The time.
    pub now: Time,
    /// The feature gates.
    pub features: &'a FeatureGates,
    /// The cluster, to read and for dry runs.
    pub dry_run: &'a mut dyn GroupDryRun,
}

/// The result of PodGroupPostFilter.
#[derive(Debug)]
pub struct GroupPostFilterResult {
    /// Success if the group may start soon; Unschedulable if the plugin did not help.
    pub status: Status,
    /// The nodes to which members are nominated, by UID; `None` leaves all nominations as they are.
    pub nominations: Option<Vec<(Str, Str)>>,
    /// The pods to evict.
    pub preemption: Option<Preemption>,
    /// Further API calls.
    pub calls: Vec<ApiCall>,
    /// The observations for metrics.
    pub observations: Vec<Observation>,
}

impl GroupPostFilterResult {
    /// A result without changes of the nominations.
    pub fn of(status: Status) -> Self {
        Self {
            status,
            nominations: None,
            preemption: None,
            calls: Vec::new(),
            observations: Vec::new(),
        }
    }
}

/// Runs when a group cannot start, to make room for it.
pub trait PodGroupPostFilter: Send + Sync + 'static {
    /// `group` is the group without parent.
    fn post_filter_group(
        &self,
        cx: &mut PodGroupPostFilterContext<'_>,
        group: &GroupKey,
    ) -> GroupPostFilterResult;
}
