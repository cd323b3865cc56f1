//! Telling the victims to go.
//!
//! A victim that is only about to be bound is stopped in memory; any other gets a condition that says why, and is
//! deleted. Pods of lower priority that were promised the node lose the promise: it will be full.

use super::candidates::Candidate;
use super::{DISRUPTION_TARGET, NAME, PREEMPTION_BY_SCHEDULER, PREFIX, done};
use berth_api::{Duration, Pod, Str};
use berth_framework::call::{ConditionPatch, EventKind, PodEvent, PodRef};
use berth_framework::plugin::{Nominating, PostFilterContext, PostFilterStep};
use berth_framework::stage::{Wait, WaitOn, Wake};
use berth_framework::{ApiCall, CallId, Feature, PodInfo, Slot, Status};
use std::sync::Arc;

/// How long one eviction is waited for. The dispatcher ends every call sooner, so this only bounds the wait.
const EVICTION_WAIT_MAX: Duration = Duration::from_secs(5 * 60);

/// Evictions one by one: what is still to be done.
struct Evictions {
    node: Slot,
    name: Str,
    /// The next one last.
    left: Vec<Arc<PodInfo>>,
}

fn event(preemptor: &Pod, victim: &Pod, node: &Str, in_memory: bool) -> PodEvent {
    let suffix = if in_memory {
        " (in kube-scheduler memory)."
    } else {
        ""
    };
    PodEvent {
        regarding: PodRef::of(victim),
        related: Some(PodRef::of(preemptor)),
        kind: EventKind::Normal,
        reason: "Preempted",
        action: "Preempting",
        note: format!(
            "Preempted by pod {} on node {node}{suffix}",
            preemptor.uid()
        ),
    }
}

/// Evicts one victim. Gives the call, if one is needed.
fn evict(
    cx: &mut PostFilterContext<'_>,
    preemptor: &Pod,
    victim: &Pod,
    node: &Str,
) -> Option<CallId> {
    if cx.outbox.preempt(victim.uid(), NAME) {
        cx.outbox.publish(event(preemptor, victim, node, true));
        return None;
    }
    let scheduler = match preemptor.spec.scheduler_name.as_str() {
        "" => "default-scheduler",
        name => name,
    };
    let message = format!("{scheduler}: preempting to accommodate a higher priority pod");
    let call = cx.outbox.call(ApiCall::DeletePod {
        pod: PodRef::of(victim),
        condition: ConditionPatch::of(
            victim,
            DISRUPTION_TARGET,
            "True",
            PREEMPTION_BY_SCHEDULER,
            &message,
        ),
    });
    cx.outbox.publish(event(preemptor, victim, node, false));
    Some(call)
}

/// Takes back what was promised to pods of lower priority.
fn clear_nominations(cx: &mut PostFilterContext<'_>, preemptor: &Pod, node: Slot) {
    for other in cx.dry_run.nominated_to(node) {
        if other.pod.priority() < preemptor.priority() {
            cx.outbox.call(ApiCall::PatchPodStatus {
                pod: PodRef::of(&other.pod),
                condition: None,
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
    let Candidate {
        node,
        name,
        victims,
    } = candidate;
    // Those that go already need not be told again.
    let live = victims
        .pods
        .into_iter()
        .filter(|victim| !victim.pod.is_terminating());
    if !cx.features.enabled(Feature::SchedulerAsyncPreemption) {
        let mut left: Vec<Arc<PodInfo>> = live.collect();
        left.reverse();
        return next(cx, pod, Evictions { node, name, left });
    }
    clear_nominations(cx, &pod.pod, node);
    for victim in live {
        let _ = evict(cx, &pod.pod, &victim.pod, &name);
    }
    done(Status::success(), Nominating::Set(name))
}

fn next(cx: &mut PostFilterContext<'_>, pod: &PodInfo, mut evictions: Evictions) -> PostFilterStep {
    while let Some(victim) = evictions.left.pop() {
        if let Some(call) = evict(cx, &pod.pod, &victim.pod, &evictions.name) {
            let deadline = cx.now + EVICTION_WAIT_MAX;
            cx.dry_run.state().write(Some(evictions));
            return PostFilterStep::Wait(Wait {
                on: WaitOn::Call(call),
                deadline,
            });
        }
    }
    clear_nominations(cx, &pod.pod, evictions.node);
    done(Status::success(), Nominating::Set(evictions.name))
}

/// Goes on when an eviction has ended.
pub(super) fn resume(cx: &mut PostFilterContext<'_>, pod: &PodInfo, wake: Wake) -> PostFilterStep {
    let broken = |text: String| done(Status::error(format!("{PREFIX}{text}")), Nominating::Keep);
    match wake {
        Wake::Call(Ok(())) => {}
        Wake::Call(Err(error)) => return broken(error.to_string()),
        Wake::Deadline | Wake::Job(_) => {
            return broken(format!(
                "no answer to an eviction within {} s",
                EVICTION_WAIT_MAX.as_secs()
            ));
        }
    }
    let kept = cx
        .dry_run
        .state()
        .read_mut::<Option<Evictions>>()
        .and_then(Option::take);
    match kept {
        Some(evictions) => next(cx, pod, evictions),
        None => broken("nothing is being evicted".to_owned()),
    }
}
