//! The extension points: one trait each, in the order in which they run for a pod.
//!
//! A plugin implements the traits of its extension points. The plugin itself has no name: the name belongs to its
//! [registration](crate::registry::Registration), and the framework adds it to statuses.

mod group;

pub use group::{
    GroupDryRun, GroupPlacement, GroupPostFilterResult, GroupProgress, GroupProposal,
    PlacementFeasible, PlacementGenerate, PlacementScore, PodGroupPostFilter,
    PodGroupPostFilterContext,
};

use crate::cluster::Cluster;
use crate::condition;
use crate::event::{Change, EventRegistration};
use crate::features::FeatureGates;
use crate::lack::Lack;
use crate::pod_info::PodInfo;
use crate::stage::{Answer, Outbox, StageContext, Step, Wait, Wake};
use crate::state::CycleState;
use crate::status::{Code, Status};
use crate::table::{Columns, NodeView, Slot};
use crate::work::{OutOfItems, Work};

pub use crate::statuses::{KeptStatuses, NodeStatuses};
use berth_api::{Duration, Pod, Str, Time};
use std::any::Any;
use std::sync::Arc;

/// The greatest score of a node after normalisation.
pub const MAX_NODE_SCORE: i64 = 100;

/// The state that a plugin may read while it decides.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The time of the decision.
    pub now: Time,
    /// Nodes, pods and everything else.
    pub cluster: &'a Cluster,
    /// The feature gates.
    pub features: &'a FeatureGates,
    /// The work of the attempt. Without it, each search has its own limit.
    pub work: Option<&'a Work>,
}

/// The error of a pod with too many items for an attempt.
const TOO_LARGE: &str =
    "the pod is too large to be compared with more nodes and pods in one attempt";

impl<'a> Context<'a> {
    /// The state that a step of an extension point that can wait may read.
    pub fn of_step(cx: &StageContext<'a>) -> Self {
        Self {
            now: cx.now,
            cluster: cx.cluster,
            features: cx.features,
            work: None,
        }
    }

    /// Counts `items` of the pod, each read `times` times, for example once per node. Pods with few items are not
    /// counted.
    ///
    /// # Errors
    /// The attempt has used up its limit of items.
    pub fn look_at(&self, items: usize, times: usize) -> Result<(), Status> {
        let counted = self.work.map_or(Ok(()), |work| work.look_at(items, times));
        counted.map_err(|OutOfItems| Status::error(TOO_LARGE))
    }
}

/// Registers the cluster events that may help a pod that the plugin rejected.
pub trait EnqueueExtensions: Send + Sync + 'static {
    /// The events. Without one, the plugin's pods wait for the periodic flush.
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration>;
}

/// Decides whether a pod may enter the active queue at all.
pub trait PreEnqueue: Send + Sync + 'static {
    /// Success admits the pod; any other status gates it until one of the plugin's events occurs.
    fn pre_enqueue(&self, cx: &Context<'_>, pod: &Pod) -> Status;

    /// The reason of the `PodScheduled` condition of a pod that the plugin rejects (KEP-5501).
    fn condition_reason(&self) -> &'static str {
        condition::NOT_READY_FOR_SCHEDULING
    }

    /// Returns whether the rejection belongs to an attempt of a cycle, such as while victims are evicted. The pod's
    /// status then keeps the result of that cycle for 30 s, so that autoscalers read Unschedulable there. Any other
    /// rejection replaces the result after 5 s, because more nodes do not help a pod that is not ready.
    fn follows_attempt(&self) -> bool {
        false
    }

    /// Returns whether the queue can ignore the change for the pod: the plugin rejects the pod now, and the pod does not
    /// have to be tried because of the change later. `false`, the default, means that the hints decide whether the change
    /// helps. The queue asks this about every pod that the change could help, so the answer must cost no more than a
    /// look-up.
    fn rejects_regardless(&self, _cluster: &Cluster, _pod: &Pod, _change: &Change<'_>) -> bool {
        false
    }
}

/// A pod that waits to be scheduled, as [`QueueSort`] sees it.
#[derive(Debug, Clone, Copy)]
pub struct QueuedPod<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The time at which it was queued, or at which its last attempt ended.
    pub timestamp: Time,
}

/// The position of a pod in the active queue as a number. Lower numbers are scheduled first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SortKey(pub i64, pub i64);

/// Orders the active queue. Exactly one per scheduler.
pub trait QueueSort: Send + Sync + 'static {
    /// Returns whether `a` precedes `b`.
    fn less(&self, a: QueuedPod<'_>, b: QueuedPod<'_>) -> bool;

    /// The same order as numbers, for plugins whose order depends on the pod and its timestamp only: `a` precedes `b`
    /// exactly if its key is smaller. With keys, the queue orders pods without reading them.
    fn sort_key(&self) -> Option<fn(QueuedPod<'_>) -> SortKey> {
        None
    }
}

/// The result of PreFilter.
#[derive(Debug)]
pub enum PreFilterResult {
    /// All nodes are filtered.
    AllNodes,
    /// Only these nodes are possible, by name, sorted.
    Nodes(Vec<Str>),
    /// The plugin's Filter is not called for this pod.
    Skip,
    /// The pod is rejected on every node, or the plugin failed.
    Reject(Status),
}

/// Runs once per pod, before any node is filtered.
pub trait PreFilter: Send + Sync + 'static {
    /// Precomputes values for Filter.
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult;

    /// Takes into account that `other` is added to `node`, by a nomination or in a dry run.
    fn add_pod(
        &self,
        _cx: &Context<'_>,
        _state: &mut CycleState,
        _pod: &PodInfo,
        _other: &PodInfo,
        _node: NodeView<'_>,
    ) -> Status {
        Status::success()
    }

    /// Takes into account that `other` is removed from `node`: the exact inverse of `add_pod`.
    fn remove_pod(
        &self,
        _cx: &Context<'_>,
        _state: &mut CycleState,
        _pod: &PodInfo,
        _other: &PodInfo,
        _node: NodeView<'_>,
    ) -> Status {
        Status::success()
    }
}

/// Decides whether a pod may run on a node.
pub trait Filter: Send + Sync + 'static {
    /// Success or a rejection: `Unschedulable` if removing pods may help, `UnschedulableAndUnresolvable` if it does
    /// not.
    fn filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status;

    /// The values behind the rejection of a node: each thing that it lacks for the pod. Explanations call it for single
    /// nodes; none, the default, leaves them with the reasons of the status.
    fn lacking(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        _node: NodeView<'_>,
    ) -> Vec<Lack> {
        Vec::new()
    }

    /// Filters several nodes: removes the rejected ones from `nodes`, and passes their statuses to `reject`. The
    /// default calls [`Filter::filter`] for each node; an override must give the same answers.
    fn filter_many(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &mut Vec<Slot>,
        reject: &mut dyn FnMut(Slot, Status),
    ) {
        nodes.retain(|slot| {
            let Some(view) = cx.cluster.nodes.get(*slot) else {
                return false;
            };
            let status = self.filter(cx, state, pod, view);
            let fits = status.is_success();
            if !fits {
                reject(*slot, status);
            }
            fits
        });
    }

    /// Filters rows of equal amounts in one pass, instead of nodes: sets `fits` to false at least for the rows whose nodes
    /// [`Filter::filter`] rejects. Their nodes are filtered individually. `fits` and each column of `amounts` have one entry per
    /// row. Called only for pods with [`Kept::ByAmounts`](crate::keep::Kept::ByAmounts). The default accepts no row.
    fn filter_amounts(&self, _state: &CycleState, _amounts: &Columns, fits: &mut [bool]) {
        fits.fill(false);
    }
}

/// The change of the nominated node of the pod by PostFilter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Nominating {
    /// It does not change.
    #[default]
    Keep,
    /// It becomes this node; empty clears it.
    Set(Str),
}

/// The result of PostFilter.
#[derive(Debug)]
pub struct PostFilterResult {
    /// Success if the pod may fit soon; Unschedulable if the plugin did not help.
    pub status: Status,
    /// The nomination.
    pub nominating: Nominating,
}

/// The progress of PostFilter.
#[derive(Debug)]
pub enum PostFilterStep {
    /// It is done.
    Done(PostFilterResult),
    /// The plugin is called again after this event; the whole cycle is parked until then.
    Wait(Wait),
}

impl PostFilterStep {
    /// Done, with this status and nomination.
    pub fn done(status: Status, nominating: Nominating) -> Self {
        Self::Done(PostFilterResult { status, nominating })
    }
}

impl Answer for PostFilterStep {
    fn code(&self) -> Code {
        match self {
            Self::Done(result) => result.status.code(),
            Self::Wait(_) => Code::Wait,
        }
    }

    fn waits(&self) -> bool {
        matches!(self, Self::Wait(_))
    }

    fn failed(text: &str) -> Self {
        Self::done(Status::error(text), Nominating::Keep)
    }
}

/// Changes the cluster temporarily and runs the filters again. [`DryRun::rollback`] reverts the changes; nothing is
/// cloned.
pub trait DryRun {
    /// The cluster, with the changes of the dry run.
    fn cluster(&self) -> &Cluster;
    /// The state of the plugins for the pod of this cycle.
    fn state(&mut self) -> &mut CycleState;
    /// Starts a set of changes.
    fn begin(&mut self);
    /// Adds a pod to a node.
    fn add_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) -> Status;
    /// Removes a pod from a node.
    fn remove_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) -> Status;
    /// Reverts everything since the last `begin`.
    fn rollback(&mut self);
    /// Runs all filters for the pod of this cycle, with nominated pods taken into account.
    fn filter(&mut self, node: Slot) -> Status;
    /// Takes the value that [`DryRun::keep`] stored for this pod or a similar pod, and the nodes whose results may have
    /// changed since: nodes with a change of the node object, or of their pods, nominations or statuses.
    fn take_kept(&mut self) -> (Option<Box<dyn Any + Send + Sync>>, Vec<Slot>) {
        (None, Vec::new())
    }
    /// Stores results about nodes. Each may depend on the pod's shape, the node, its pods and nominations, and the
    /// disruption budgets. They may be dropped at any time.
    fn keep(&mut self, _results: Box<dyn Any + Send + Sync>) {}
    /// Runs PreFilter again, which replaces the state of the plugins, for a cluster that changed while the cycle was
    /// parked. Returns a node on which the pod fits now and for which `may` returns true.
    ///
    /// # Errors
    /// PreFilter rejects the pod on every node now, or a plugin failed.
    fn look_again(&mut self, _may: &dyn Fn(Slot) -> bool) -> Result<Option<Slot>, Status> {
        Ok(None)
    }
    /// The pods that are nominated to a node and are not on it yet.
    fn nominated_to(&self, _node: Slot) -> Vec<Arc<PodInfo>> {
        Vec::new()
    }
}

/// The state that PostFilter can use.
pub struct PostFilterContext<'a> {
    /// The time.
    pub now: Time,
    /// The feature gates.
    pub features: &'a FeatureGates,
    /// The receiver of calls and jobs.
    pub outbox: &'a mut dyn Outbox,
    /// The cluster, to read and for dry runs.
    pub dry_run: &'a mut dyn DryRun,
}

/// Runs when no node is feasible, to make one feasible.
pub trait PostFilter: Send + Sync + 'static {
    /// `statuses` has the status of each node. Called without `wake` first, and after each wait with its result.
    fn post_filter(
        &self,
        cx: &mut PostFilterContext<'_>,
        pod: &PodInfo,
        statuses: &NodeStatuses,
        wake: Option<Wake<'_>>,
    ) -> PostFilterStep;

    /// Returns whether preemption helps either all or none of the pods that differ only in their names and have no
    /// nominated node, while the cluster does not change. Then one of them is retried on behalf of the others.
    fn judges_by_template(&self) -> bool {
        false
    }
}

/// Runs once per pod, before the feasible nodes are scored.
pub trait PreScore: Send + Sync + 'static {
    /// Success, or Skip if the plugin has no preference among them.
    fn pre_score(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &[Slot],
    ) -> Status;
}

/// Ranks the feasible nodes.
pub trait Score: Send + Sync + 'static {
    /// The raw score of one node.
    ///
    /// # Errors
    /// A status that fails the cycle.
    fn score(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Result<i64, Status>;

    /// The raw scores of several nodes, appended to `scores` in their order. The default calls [`Score::score`] for
    /// each node; an override must give the same answers.
    ///
    /// # Errors
    /// A status that fails the cycle.
    fn score_many(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &[Slot],
        scores: &mut Vec<i64>,
    ) -> Result<(), Status> {
        for slot in nodes {
            let Some(view) = cx.cluster.nodes.get(*slot) else {
                return Err(Status::error("the node is gone"));
            };
            scores.push(self.score(cx, state, pod, view)?);
        }
        Ok(())
    }

    /// Sets the raw score of each row of equal amounts, from 0 to [`MAX_NODE_SCORE`]: see [`Filter::filter_amounts`]. An override
    /// must give the same scores as [`Score::score`]. Returns false, the default, if nodes have to be scored individually.
    fn score_amounts(&self, _state: &CycleState, _amounts: &Columns, _scores: &mut [i32]) -> bool {
        false
    }

    /// Scales the raw scores of all feasible nodes to 0 to [`MAX_NODE_SCORE`]. The default does not change them.
    fn normalize(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        _scores: &mut [(Slot, i64)],
    ) -> Status {
        Status::success()
    }
}

/// Scales scores to 0 to `max` by the greatest; `reverse` subtracts them from `max`. If all are zero they stay zero, or
/// become `max` if reversed. All divisions are integer divisions, as in kube-scheduler's default normalization.
pub fn default_normalize(max: i64, reverse: bool, scores: &mut [(Slot, i64)]) {
    let greatest = scores.iter().map(|(_, s)| *s).max().unwrap_or(0);
    for (_, score) in scores {
        if greatest == 0 {
            if reverse {
                *score = max;
            }
            continue;
        }
        let scaled = max * *score / greatest;
        *score = if reverse { max - scaled } else { scaled };
    }
}

/// Reserves resources for a pod on its node.
pub trait Reserve: Send + Sync + 'static {
    /// Reserves the resources. Called without `wake` first, and after each wait with its result. The whole cycle is
    /// parked during a wait.
    fn reserve(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step;

    /// Reverts the reservation. Also called if nothing was reserved, and more than once.
    fn unreserve(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
    );
}

/// The progress of Permit.
#[derive(Debug)]
pub enum PermitStep {
    /// The plugin permits or rejects the pod.
    Done(Status),
    /// The plugin holds the pod until [`Outbox::allow`] or [`Outbox::reject`] is called for it, at most this long (and
    /// at most 15 minutes); then the pod is rejected. The plugin is not called again.
    Hold(Duration),
    /// The plugin holds the pod and is called again after this event, at the latest after 15 minutes. Until then
    /// [`Outbox::allow`] and [`Outbox::reject`] apply, too.
    Wait(Wait),
}

impl Answer for PermitStep {
    fn code(&self) -> Code {
        match self {
            Self::Done(status) => status.code(),
            Self::Hold(_) | Self::Wait(_) => Code::Wait,
        }
    }

    fn waits(&self) -> bool {
        matches!(self, Self::Wait(_))
    }

    fn failed(text: &str) -> Self {
        Self::Done(Status::error(text))
    }
}

/// The last decision before binding; may delay it.
pub trait Permit: Send + Sync + 'static {
    /// Permits, rejects or delays. Called without `wake` first, and after each [`PermitStep::Wait`] with the result of
    /// the wait.
    fn permit(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> PermitStep;
}

/// Prepares the node or the pod's objects before binding.
pub trait PreBind: Send + Sync + 'static {
    /// Success if there is something to do, else Skip.
    fn pre_flight(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        _pod: &PodInfo,
        _node: &Str,
    ) -> Status {
        Status::success()
    }

    /// Returns whether the plugin may run in parallel with adjacent plugins for which this is also true.
    fn runs_in_parallel(&self, _state: &CycleState, _pod: &PodInfo) -> bool {
        false
    }

    /// Prepares. Called without `wake` first, and after each wait with its result; progress is kept in `state`.
    fn pre_bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step;
}

/// Binds the pod to its node.
pub trait Bind: Send + Sync + 'static {
    /// Binds; Skip leaves it to the next plugin. Called without `wake` first, and after each wait with its result.
    fn bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step;
}

/// Runs after a pod was bound.
pub trait PostBind: Send + Sync + 'static {
    /// The pod is bound.
    fn post_bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PL-24: `100·s/m`, reversed `100 − 100·s/m`; all zero stays zero or becomes 100 reversed.
    #[test]
    fn default_normalisation_scales_by_the_greatest() {
        for (raw, reverse, expected) in [
            (vec![0, 1, 2], true, vec![100, 50, 0]),
            (vec![2, 2], true, vec![0, 0]),
            (vec![0, 0], true, vec![100, 100]),
            (vec![0, 0], false, vec![0, 0]),
            (vec![1, 3], false, vec![33, 100]),
        ] {
            let mut scores: Vec<(Slot, i64)> =
                (0..).map(Slot::from_index).zip(raw.clone()).collect();
            default_normalize(MAX_NODE_SCORE, reverse, &mut scores);
            let scores: Vec<i64> = scores.into_iter().map(|(_, s)| s).collect();
            assert_eq!(scores, expected, "{raw:?} reverse={reverse}");
        }
    }
}
