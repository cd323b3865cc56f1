//! The extension points: one trait each, in the order in which a pod meets them.
//!
//! A plugin implements [`Plugin`] and the traits of the points it takes part in. Statuses need not name the
//! plugin: whoever calls it adds the name.

use crate::cluster::Cluster;
use crate::event::EventRegistration;
use crate::features::FeatureGates;
use crate::pod_info::PodInfo;
use crate::stage::{Answer, Outbox, StageContext, Step, Wait, Wake};
use crate::state::CycleState;
use crate::status::{Code, Status};
use crate::table::{NodeView, Slot};

pub use crate::statuses::{KeptStatuses, NodeStatuses};
use berth_api::{Duration, Pod, Str, Time};
use std::any::Any;
use std::sync::Arc;

/// The greatest score of a node after normalisation.
pub const MAX_NODE_SCORE: i64 = 100;

/// What every plugin has.
pub trait Plugin: Send + Sync + 'static {
    /// The name in configuration, metrics and events.
    fn name(&self) -> &str;
}

/// What a plugin may read while it decides.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The time of the decision.
    pub now: Time,
    /// Nodes, pods and everything else.
    pub cluster: &'a Cluster,
    /// The feature gates.
    pub features: &'a FeatureGates,
}

/// Says which cluster events may help a pod that the plugin rejected.
pub trait EnqueueExtensions: Plugin {
    /// The events. Without one, the plugin's pods wait for the periodic flush.
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration>;
}

/// The reason of the `PodScheduled` condition of a pod that a PreEnqueue plugin rejects (KEP-5501).
pub const NOT_READY_FOR_SCHEDULING: &str = "NotReadyForScheduling";
/// The reason that the API server itself writes for a pod with scheduling gates (KEP-3521).
pub const SCHEDULING_GATED: &str = "SchedulingGated";

/// Decides whether a pod may enter the active queue at all.
pub trait PreEnqueue: Plugin {
    /// Success lets the pod in; anything else gates it until one of the plugin's events comes.
    fn pre_enqueue(&self, cx: &Context<'_>, pod: &Pod) -> Status;

    /// The reason of the `PodScheduled` condition of a pod that the plugin rejects (KEP-5501).
    fn condition_reason(&self) -> &'static str {
        NOT_READY_FOR_SCHEDULING
    }

    /// Whether the plugin only sees an attempt through that a cycle has made, as while victims are told to go. What
    /// that cycle found then stands in the pod's status, and autoscalers go on reading there that it is
    /// Unschedulable; any other rejection replaces it, as more nodes do not help a pod that is not ready.
    fn follows_attempt(&self) -> bool {
        false
    }
}

/// A pod that waits to be scheduled, as [`QueueSort`] sees it.
#[derive(Debug, Clone, Copy)]
pub struct QueuedPod<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// When it was queued, or when its last attempt ended.
    pub timestamp: Time,
}

/// The place of a pod in the active queue as a number: the smaller goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SortKey(pub i64, pub i64);

/// Orders the active queue. Exactly one per scheduler.
pub trait QueueSort: Plugin {
    /// Whether `a` goes before `b`.
    fn less(&self, a: QueuedPod<'_>, b: QueuedPod<'_>) -> bool;

    /// The same order as numbers, for plugins whose order depends on nothing but the pod and its timestamp: `a`
    /// goes before `b` exactly when its key is smaller. With keys, ordering a million pods touches none of them.
    fn sort_key(&self) -> Option<fn(QueuedPod<'_>) -> SortKey> {
        None
    }
}

/// What PreFilter has found out.
#[derive(Debug)]
pub enum PreFilterResult {
    /// Every node has to be filtered.
    AllNodes,
    /// Only these nodes are possible, by name, sorted.
    Nodes(Vec<Str>),
    /// The plugin's Filter has nothing to say about this pod.
    Skip,
    /// The pod is turned down on every node, or something broke.
    Reject(Status),
}

/// Looks at the pod once, before any node.
pub trait PreFilter: Plugin {
    /// Prepares what Filter needs.
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult;

    /// Takes into account that `other` is now (supposed to be) on `node`.
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

    /// Takes into account that `other` is (supposed to be) gone from `node`: the exact inverse of `add_pod`.
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
pub trait Filter: Plugin {
    /// Success, or why not: `Unschedulable` when removing pods could help, `UnschedulableAndUnresolvable` when
    /// it cannot.
    fn filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status;

    /// The same for several nodes: takes those that are turned down out of `nodes`, and tells `reject` why. Asks
    /// about one after another unless the plugin knows better; the answers must be the same.
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
}

/// What is to become of the pod's nominated node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Nominating {
    /// It stays as it is.
    #[default]
    Keep,
    /// It becomes this node; empty clears it.
    Set(Str),
}

/// What PostFilter has come to.
#[derive(Debug)]
pub struct PostFilterResult {
    /// Success when the pod may fit soon; Unschedulable when this plugin could not help.
    pub status: Status,
    /// The nomination.
    pub nominating: Nominating,
}

/// How far a PostFilter has come.
#[derive(Debug)]
pub enum PostFilterStep {
    /// It is done.
    Done(PostFilterResult),
    /// The plugin is called again when this has happened; the whole cycle is parked until then.
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

/// Changes the cluster for a moment and asks the filters again. What is changed is changed back by
/// [`DryRun::rollback`]; nothing is cloned.
pub trait DryRun {
    /// The cluster as it stands, changes included.
    fn cluster(&self) -> &Cluster;
    /// What the plugins keep about the pod of this cycle.
    fn state(&mut self) -> &mut CycleState;
    /// Starts a set of changes.
    fn begin(&mut self);
    /// Supposes that a pod runs on a node.
    fn add_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) -> Status;
    /// Supposes that a pod of a node is gone.
    fn remove_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) -> Status;
    /// Takes back everything since the last `begin`.
    fn rollback(&mut self);
    /// Asks all filters about the pod of this cycle, nominated pods taken into account.
    fn filter(&mut self, node: Slot) -> Status;
    /// What was remembered of a node by [`DryRun::remember`], for this pod or one like it, if nothing has changed
    /// since that could make it untrue: neither the node nor its pods, promises or disruption budgets.
    fn recall(&self, _node: Slot) -> Option<&(dyn Any + Send + Sync)> {
        None
    }
    /// Remembers what was found out about a node: something that depends on the pod's shape, the node, its pods and
    /// the promises of it, and the disruption budgets. May be forgotten at any time. Not while something is supposed.
    fn remember(&mut self, _node: Slot, _value: Box<dyn Any + Send + Sync>) {}
    /// The cluster has changed while the cycle was parked: PreFilter runs anew, and what plugins kept until then is
    /// gone. Returns a node that turns out to have room for the pod as things stand, among those for which `may` holds.
    ///
    /// # Errors
    /// PreFilter turns the pod down on every node now, or something broke.
    fn look_again(&mut self, _may: &dyn Fn(Slot) -> bool) -> Result<Option<Slot>, Status> {
        Ok(None)
    }
    /// The pods that were promised a node and are not on it yet.
    fn nominated_to(&self, _node: Slot) -> Vec<Arc<PodInfo>> {
        Vec::new()
    }
}

/// What PostFilter may use.
pub struct PostFilterContext<'a> {
    /// The time.
    pub now: Time,
    /// The feature gates.
    pub features: &'a FeatureGates,
    /// Where calls and jobs go.
    pub outbox: &'a mut dyn Outbox,
    /// The cluster, to look at and to try things on.
    pub dry_run: &'a mut dyn DryRun,
}

/// Tries to make room when no node is feasible.
pub trait PostFilter: Plugin {
    /// `statuses` has what each node answered. Called without `wake` first, and after each wait with how it has ended.
    fn post_filter(
        &self,
        cx: &mut PostFilterContext<'_>,
        pod: &PodInfo,
        statuses: &NodeStatuses,
        wake: Option<Wake<'_>>,
    ) -> PostFilterStep;
}

/// Looks at the feasible nodes once, before they are scored.
pub trait PreScore: Plugin {
    /// Success, or Skip when the plugin has no preference among them.
    fn pre_score(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &[Slot],
    ) -> Status;
}

/// Ranks the feasible nodes.
pub trait Score: Plugin {
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

    /// The raw scores of several nodes, added to `scores` in their order. Asks about one after another unless the
    /// plugin knows better; the answers must be the same.
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

    /// Brings the raw scores of all feasible nodes into 0 to [`MAX_NODE_SCORE`]; they stay as they are unless
    /// the plugin says otherwise.
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

/// Scales scores to 0 up to `max` by their greatest; `reverse` turns them round. When all are zero they stay zero,
/// or become `max` when reversed. Integer division throughout, as kube-scheduler's default normalisation.
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

/// Reserves what a pod will use on its node.
pub trait Reserve: Plugin {
    /// Reserves it. Called without `wake` first, and after each wait with how it has ended; the whole cycle is parked
    /// meanwhile.
    fn reserve(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step;

    /// Takes the reservation back. Also called when nothing was reserved, and more than once.
    fn unreserve(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
    );
}

/// How far a Permit has come.
#[derive(Debug)]
pub enum PermitStep {
    /// The plugin permits the pod, or not.
    Done(Status),
    /// The plugin holds the pod until [`Outbox::allow`] or [`Outbox::reject`] is called for it, at most this long (and
    /// at most 15 minutes); then the pod is rejected. The plugin is not called again.
    Hold(Duration),
    /// The plugin holds the pod and is called again when this has happened, or before 15 minutes are over. Until then
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
pub trait Permit: Plugin {
    /// Permits, rejects or delays. Called without `wake` first, and after each [`PermitStep::Wait`] with how the wait
    /// has ended.
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
pub trait PreBind: Plugin {
    /// Success when there is something to do, Skip when there is not.
    fn pre_flight(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        _pod: &PodInfo,
        _node: &Str,
    ) -> Status {
        Status::success()
    }

    /// Whether the plugin may run beside its neighbours in the order that also say so.
    fn runs_in_parallel(&self, _state: &CycleState, _pod: &PodInfo) -> bool {
        false
    }

    /// Prepares. Called without `wake` first, and after each wait with how it has ended; what was done so far belongs
    /// into `state`.
    fn pre_bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step;
}

/// Gives the pod its node.
pub trait Bind: Plugin {
    /// Binds; Skip leaves it to the next plugin. Called without `wake` first, and after each wait with how it has ended.
    fn bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step;
}

/// Hears of pods that were bound.
pub trait PostBind: Plugin {
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
