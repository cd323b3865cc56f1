//! Evicts pods of lower priority so that a pod fits.
//!
//! ```text
//! a full node, pods of priority 0, 0 and 5, a new pod of priority 10
//!     → evicts the fewest pods: priority 0 first, pods within their disruption budget first
//! ```
//!
//! - `victims`: the pods of one node that must be evicted for the new pod to fit;
//! - `candidates`: the nodes that are searched for victims, and the choice among them;
//! - `results`: the results about nodes, kept for pods of one shape;
//! - `extenders`: the changes of the candidates by extenders;
//! - `evict`: the eviction of the victims.
//!
//! The cycle does not wait for evictions (feature gate SchedulerAsyncPreemption): the core evicts the victims, and
//! PreEnqueue rejects the pod until that is done. A victim counts as terminating once its deletion is passed to the
//! dispatcher, and the pod gets no second nomination until then. Without the gate the cycle is parked until each
//! deletion has ended.

mod args;
mod candidates;
mod evict;
mod extenders;
mod groups;
mod results;
#[cfg(test)]
mod tests;
mod units;
mod victims;

pub use args::DefaultPreemptionArgs;

use berth_api::{Pod, Str};
use berth_framework::event::{ActionType, Change, EventRegistration, EventResource, Hint, Touched};
use berth_framework::plugin::{
    Context, DryRun, EnqueueExtensions, NodeStatuses, Nominating, PostFilter, PostFilterContext,
    PostFilterStep, PreEnqueue,
};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::stage::{Observation, Wake};
use berth_framework::{Cluster, Code, Feature, FeatureGates, PodInfo, ReasonCode, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "DefaultPreemption";

/// The start of every message of PostFilter.
const PREFIX: &str = "preemption: ";
/// The reason on a node where preemption does not help.
pub const REASON_NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
/// The reason on a node without pods of lower priority.
pub const REASON_NO_VICTIMS: &str = "No preemption victims found for incoming pod";
/// The reason why a pod is rejected while its victims are evicted.
pub const REASON_PREEMPTING: &str = "waiting for the preemption for this pod to be finished";
/// The same for a member of a pod group.
pub const REASON_GROUP_PREEMPTING: &str =
    "waiting for the preemption for this pod group to be finished";
/// The same for the pod's status (KEP-5501 asks for messages that users understand).
pub const MESSAGE_IN_STATUS: &str =
    "Waiting for the eviction of the pods of lower priority that make room for this pod";

/// The type of the condition that gives the reason of the eviction to a victim.
const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// The reason in that condition.
const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";

/// Makes room by evicting pods.
#[derive(Debug, Default)]
pub struct DefaultPreemption {
    args: DefaultPreemptionArgs,
}

impl DefaultPreemption {
    /// The plugin with these arguments.
    pub fn new(args: DefaultPreemptionArgs) -> Self {
        Self { args }
    }

    fn wanted<'a>(
        &'a self,
        features: &FeatureGates,
        pod: &'a PodInfo,
        statuses: &'a NodeStatuses,
    ) -> WantedRoom<'a> {
        WantedRoom {
            args: &self.args,
            features: *features,
            pod,
            statuses,
        }
    }
}

/// The room that is required.
#[derive(Clone, Copy)]
struct WantedRoom<'a> {
    args: &'a DefaultPreemptionArgs,
    /// The release.
    features: FeatureGates,
    /// The preemptor.
    pod: &'a PodInfo,
    /// The reason why no node is feasible.
    statuses: &'a NodeStatuses,
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |cx| {
        let args = DefaultPreemptionArgs::decode(cx.args)?;
        Ok(Extensions::of(DefaultPreemption::new(args))
            .pre_enqueue()
            .post_filter()
            .pod_group_post_filter()
            .events()
            .judges_resizes()
            .build())
    })
    .args(ArgsKind::Typed(args::complete))
    .by_default(None)
}

fn unschedulable(message: impl std::fmt::Display) -> Status {
    Status::unschedulable(format!("{PREFIX}{message}"))
}

/// The preemptor was deleted.
fn not_found(pod: &Pod) -> Status {
    Status::error(format!("{PREFIX}pod {:?} not found", pod.name().as_str()))
}

/// The pod as the core sees it, including our own writes. On its node it is counted as the API shows it.
fn as_known<'a>(cluster: &'a Cluster, counted: &'a PodInfo) -> &'a Pod {
    let known = cluster.pods.get(counted.pod.uid());
    known.unwrap_or(&counted.pod)
}

/// Searches for candidates and calls the extenders; the `round`th search in this attempt.
fn make_room(
    cx: &mut PostFilterContext<'_>,
    wanted: WantedRoom<'_>,
    round: usize,
) -> PostFilterStep {
    let nodes = cx.dry_run.cluster().nodes.len();
    if nodes == 0 {
        return PostFilterStep::done(
            Status::error(format!("{PREFIX}no nodes available")),
            Nominating::Keep,
        );
    }
    let wish = extenders::wish(cx, &wanted.pod.pod);
    match candidates::find(cx.dry_run, wanted, wish, cx.now) {
        Err(error) => {
            PostFilterStep::done(Status::error(format!("{PREFIX}{error}")), Nominating::Keep)
        }
        Ok(found) if found.candidates.is_empty() => {
            let why = found.statuses.histogram(nodes).join(", ");
            let text = format!("0/{nodes} nodes are available: {why}.");
            PostFilterStep::done(unschedulable(text), Nominating::Set(Str::default()))
        }
        Ok(found) => extenders::begin(cx, wanted, found.candidates, round),
    }
}

/// Returns whether the pod is terminating because of a preemption.
fn is_going_for_a_preemptor(pod: &Pod) -> bool {
    pod.is_terminating() && is_marked_for_a_preemptor(pod)
}

/// Returns whether the condition of the pod states that it is preempted.
fn is_marked_for_a_preemptor(pod: &Pod) -> bool {
    pod.condition(DISRUPTION_TARGET).is_some_and(|condition| {
        condition.status == "True" && condition.reason == PREEMPTION_BY_SCHEDULER
    })
}

/// The reason why the pod may not preempt (now).
fn not_eligible(dry_run: &dyn DryRun, pod: &Pod, statuses: &NodeStatuses) -> Option<&'static str> {
    if pod
        .spec
        .preemption_policy
        .as_ref()
        .is_some_and(|policy| policy == "Never")
    {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    // A resize needs room on the pod's own node, and has no nomination.
    let nominated = if pod.is_assigned() {
        &pod.spec.node_name
    } else {
        &pod.status.nominated_node_name
    };
    if nominated.is_empty() {
        return None;
    }
    let cluster = dry_run.cluster();
    let node = cluster.nodes.node(nominated)?;
    if statuses.get(node.slot()).code() == Code::UnschedulableAndUnresolvable {
        // The removal of pods does not help there, so another node may be chosen.
        return None;
    }
    let waits = node.pods().iter().any(|other| {
        other.pod.priority() < pod.priority() && is_going_for_a_preemptor(as_known(cluster, other))
    });
    waits.then_some("not eligible due to a terminating pod on the nominated node.")
}

impl PreEnqueue for DefaultPreemption {
    /// A preemptor waits until its victims are evicted, or the watch shows that the last of them terminates.
    fn pre_enqueue(&self, cx: &Context<'_>, pod: &Pod) -> Status {
        if cx.features.enabled(Feature::SchedulerAsyncPreemption)
            && cx.cluster.preempting.contains(pod.uid())
        {
            let for_users = cx.features.enabled(Feature::SchedulerPreEnqueuePodStatus);
            let text = match pod.pod_group_name() {
                _ if for_users => MESSAGE_IN_STATUS,
                Some(_) => REASON_GROUP_PREEMPTING,
                None => REASON_PREEMPTING,
            };
            return Status::unresolvable(ReasonCode::Preempting.reason(text));
        }
        Status::success()
    }

    /// The preemptor found no room, and a new node would still help it.
    fn follows_attempt(&self) -> bool {
        true
    }

    /// While its preemption runs, a preemptor ignores the deletions of victims: it needs all of its own victims, and
    /// the victims of other preemptors make room for those preemptors. When the preemption ends, the core tries the
    /// preemptor, or the deletion of its last victims wakes it.
    fn rejects_regardless(&self, cluster: &Cluster, pod: &Pod, change: &Change<'_>) -> bool {
        let deleted = change.old_pod().filter(|_| change.new.is_none());
        deleted.is_some_and(is_marked_for_a_preemptor) && cluster.preempting.contains(pod.uid())
    }
}

impl PostFilter for DefaultPreemption {
    fn post_filter(
        &self,
        cx: &mut PostFilterContext<'_>,
        pod: &PodInfo,
        statuses: &NodeStatuses,
        wake: Option<Wake<'_>>,
    ) -> PostFilterStep {
        if let Some(wake) = wake {
            let reason = wake.reason();
            let wanted = self.wanted(cx.features, pod, statuses);
            return match extenders::awaited(cx) {
                Some(asking) => extenders::resume(cx, wanted, asking, reason),
                None => evict::resume(cx, pod, reason),
            };
        }
        cx.outbox.observe(Observation::PreemptionAttempt);
        // The cycle may have been parked since it took the pod, so eligibility is decided by the current version of the
        // pod.
        let Some(known) = cx.dry_run.cluster().pods.get(pod.pod.uid()) else {
            return PostFilterStep::done(not_found(&pod.pod), Nominating::Keep);
        };
        if let Some(reason) = not_eligible(cx.dry_run, known, statuses) {
            return PostFilterStep::done(unschedulable(reason), Nominating::Keep);
        }
        let wanted = self.wanted(cx.features, pod, statuses);
        make_room(cx, wanted, 1)
    }

    fn judges_by_template(&self) -> bool {
        true
    }
}

impl EnqueueExtensions for DefaultPreemption {
    /// The plugins that rejected the pod decide whether the deletion of a pod helps.
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(EventResource::Pod, ActionType::DELETE, |_, _, _| {
                Ok(Hint::Skip)
            })
            .touching(|_, _| Touched::no_pod()),
        ]
    }
}
