//! Evicts the victims.
//!
//! A victim that is not bound yet is stopped in memory; any other gets a condition with the reason, and is deleted.
//! Pods of lower priority that are nominated to the node lose the nomination.

use super::candidates::Candidate;
use super::units::whole_of;
use super::{DISRUPTION_TARGET, NAME, PREEMPTION_BY_SCHEDULER, PREFIX, as_known, not_found};
use berth_api::{Duration, Pod, Str};
use berth_framework::call::{
    CallErrorKind, ConditionPatch, EventKind, PodEvent, PodRef, RelatedObject,
};
use berth_framework::cluster::GroupKey;
use berth_framework::features::Behaviour;
use berth_framework::plugin::{Nominating, PostFilterContext, PostFilterStep};
use berth_framework::stage::{
    Disruption, Eviction, Observation, Preemption, Wait, WaitOn, WakeReason,
};
use berth_framework::{ApiCall, Code, Feature, PodInfo, Status};
use rustc_hash::FxHashSet;

/// The time for which the cycle waits for one eviction. The dispatcher ends every call earlier, so this only limits the
/// wait.
const EVICTION_WAIT_MAX: Duration = Duration::from_secs(5 * 60);

/// The remaining evictions, which are made one at a time.
struct Evictions {
    node: Str,
    /// The number of all victims.
    victims: usize,
    /// The current one.
    current: Option<Eviction>,
    /// The next one last.
    left: Vec<Eviction>,
}

/// The preemptor: a pod, or a group with its first pod.
pub(super) struct Preemptor<'a> {
    pub(super) pod: &'a Pod,
    /// The kind of the preemptor in messages.
    pub(super) word: &'a str,
    pub(super) uid: &'a Str,
    /// The object that events of the victims refer to.
    pub(super) related: RelatedObject,
    /// The node, as events name it.
    pub(super) node: &'a str,
}

impl Preemptor<'_> {
    /// The condition and the event of a victim (P-17).
    pub(super) fn eviction(&self, victim: &Pod) -> Eviction {
        let Self {
            word, uid, node, ..
        } = self;
        let scheduler = match self.pod.spec.scheduler_name.as_str() {
            "" => "default-scheduler",
            name => name,
        };
        let message = format!("{scheduler}: preempting to accommodate a higher priority {word}");
        Eviction {
            condition: ConditionPatch::of(
                victim,
                DISRUPTION_TARGET,
                "True",
                PREEMPTION_BY_SCHEDULER,
                &message,
            ),
            event: PodEvent {
                regarding: PodRef::of(victim),
                related: Some(self.related.clone()),
                kind: EventKind::Normal,
                reason: "Preempted",
                action: "Preempting",
                note: format!("Preempted by {word} {uid} on node {node}"),
            },
        }
    }
}

/// Clears the nominations of pods of lower priority (P-24).
fn clear_nominations(cx: &mut PostFilterContext<'_>, preemptor: &Pod, node: &str) {
    // The node may have been deleted while the cycle waited.
    let Some(node) = cx.dry_run.cluster().nodes.slot(node) else {
        return;
    };
    for other in cx.dry_run.nominated_to(node) {
        if other.pod.priority() < preemptor.priority() {
            cx.outbox.call(ApiCall::PatchPodStatus {
                pod: PodRef::of(&other.pod),
                conditions: Vec::new(),
                nominated_node: Some(Str::default()),
            });
        }
    }
}

/// Evicts the victims of the chosen node.
pub(super) fn start(
    cx: &mut PostFilterContext<'_>,
    pod: &PodInfo,
    candidate: Candidate,
) -> PostFilterStep {
    let Candidate { name, victims, .. } = candidate;
    let count = victims.pods.len();
    let cluster = cx.dry_run.cluster();
    let wholes = victims.pods.iter().map(|pod| whole_of(cluster, &pod.pod));
    let (wholes, alone): (Vec<_>, Vec<_>) = wholes.partition(Option::is_some);
    let wholes: FxHashSet<GroupKey> = wholes.into_iter().flatten().collect();
    let chosen = Observation::Preemption(Disruption {
        preemptor: "pod",
        victims: count,
        units: wholes.len() + alone.len(),
        violations: victims.violations,
    });
    // Terminating victims are not evicted again.
    let mut live = Vec::with_capacity(victims.pods.len());
    let preemptor = Preemptor {
        pod: &pod.pod,
        word: "pod",
        uid: pod.pod.uid(),
        related: RelatedObject::Pod(PodRef::of(&pod.pod)),
        node: &name,
    };
    for victim in &victims.pods {
        let victim = as_known(cx.dry_run.cluster(), victim);
        if !victim.is_terminating() {
            live.push(preemptor.eviction(victim));
        }
    }
    if !cx.features.enabled(Feature::SchedulerAsyncPreemption) {
        cx.outbox.observe(chosen);
        live.reverse();
        let evictions = Evictions {
            node: name,
            victims: count,
            current: None,
            left: live,
        };
        return next(cx, pod, evictions);
    }
    if !live.is_empty() {
        cx.outbox.observe(chosen);
        clear_nominations(cx, &pod.pod, &name);
        cx.outbox.start_preemption(Preemption {
            preemptor: PodRef::of(&pod.pod),
            kind: "pod",
            plugin: NAME.into(),
            victims: live,
        });
    }
    found(cx, name, count)
}

/// A node was found: the pod is nominated to it.
fn found(cx: &PostFilterContext<'_>, node: Str, victims: usize) -> PostFilterStep {
    let status = if cx.features.has(Behaviour::PreemptionReportsItsNode) {
        Status::new(
            Code::Success,
            [format!(
                "{PREFIX}found a potential placement for pod on node {node}, preempting {victims} victims"
            )
            .into()],
        )
    } else {
        Status::success()
    };
    PostFilterStep::done(status, Nominating::Set(node))
}

fn next(cx: &mut PostFilterContext<'_>, pod: &PodInfo, mut evictions: Evictions) -> PostFilterStep {
    while let Some(victim) = evictions.left.pop() {
        if cx.outbox.preempt(&victim.event.regarding.uid, NAME) {
            let mut event = victim.event;
            event.note += Eviction::IN_MEMORY;
            cx.outbox.publish(event);
            continue;
        }
        let call = cx.outbox.call(victim.call());
        evictions.current = Some(victim);
        cx.dry_run.state().write(Some(evictions));
        return PostFilterStep::Wait(Wait {
            on: WaitOn::Call(call),
            deadline: cx.now + EVICTION_WAIT_MAX,
        });
    }
    clear_nominations(cx, &pod.pod, &evictions.node);
    found(cx, evictions.node, evictions.victims)
}

/// Continues after an eviction.
pub(super) fn resume(
    cx: &mut PostFilterContext<'_>,
    pod: &PodInfo,
    reason: WakeReason,
) -> PostFilterStep {
    let broken = |text: String| {
        PostFilterStep::done(Status::error(format!("{PREFIX}{text}")), Nominating::Keep)
    };
    let kept = cx
        .dry_run
        .state()
        .read_mut::<Option<Evictions>>()
        .and_then(Option::take);
    let Some(mut evictions) = kept else {
        return broken("nothing is being evicted".to_owned());
    };
    let is_there = cx.dry_run.cluster().pods.contains_key(pod.pod.uid());
    match reason {
        WakeReason::Call(Ok(_)) => {
            if let Some(victim) = evictions.current.take() {
                cx.outbox.publish(victim.event);
            }
        }
        // The pod was deleted already, so no event is published.
        WakeReason::Call(Err(error))
            if error.kind == CallErrorKind::NotFound || error.kind.is_dropped() => {}
        WakeReason::Call(Err(error)) => return broken(error.to_string()),
        _ => {
            return broken(format!(
                "no answer to an eviction within {} s",
                EVICTION_WAIT_MAX.as_secs()
            ));
        }
    }
    if !is_there {
        // The preemptor was deleted, so no further victim is evicted (P-3).
        return PostFilterStep::done(not_found(&pod.pod), Nominating::Keep);
    }
    next(cx, pod, evictions)
}
