//! The writer of pod statuses: the desired PodScheduled condition and nominated node of each pod.
//!
//! The desired status is derived from the state of the scheduler and compared with the effective status of the pod: the
//! stored object with our unconfirmed writes. `dispatcher::pod_status` has a row for each pod whose desired status is
//! not effective. Only a difference becomes a call, and it is compared again when it is sent, repeated or re-offered:
//! - the result of a cycle is written at once (`cycle::failure` makes that call);
//! - a rejection by PreEnqueue plugins is written after it has lasted 5 s (KEP-5501), or 30 s if it belongs to an
//!   attempt whose result the pod states;
//! - a write that the API rejected is offered again every 30 s, as long as it is still valid;
//! - a bound pod whose condition states that it is not scheduled is corrected: a scheduler that did not receive the
//!   answer to its binding may write the failure after the API has bound the pod.

use crate::cache::Cache;
use crate::core::{Calls, Core, Framework, event_note, is_responsible};
use crate::nominations;
use crate::preemptions;
use berth_api::{Duration, Pod, Str, Time};
use berth_framework::ApiCall;
use berth_framework::call::{ConditionPatch, EventKind, PodEvent, PodRef};
use berth_framework::condition::{
    NOT_READY_FOR_SCHEDULING, POD_SCHEDULED, SCHEDULING_GATED, UNSCHEDULABLE, is_report,
};
use berth_queue::{PreEnqueueReport, QueuedIn, SchedulingQueue};
use std::sync::Arc;

/// The time for which PreEnqueue plugins must have rejected a pod before the condition with the reason
/// NotReadyForScheduling is written: most gates are removed within that time (KEP-5501).
const NOT_READY_FOR_SCHEDULING_DELAY: Duration = Duration::from_secs(5);

/// The time before a rejection that belongs to an attempt is reported. An eviction usually takes milliseconds, and the
/// result of the attempt is more useful during that time. A longer rejection is reported like any other, because
/// KEP-5501 lets no plugin opt out.
const LONG_REJECTION_OF_ATTEMPT: Duration = Duration::from_secs(30);

// --- reports of PreEnqueue ------------------------------------------------------------------------------

/// Passes the answers of PreEnqueue plugins about pods to the dispatcher, up to its limit. The rest waits in the queue.
/// Returns whether any answer was passed.
pub(crate) fn take_pre_enqueue_reports(
    queue: &mut SchedulingQueue,
    calls: &mut Calls,
    cache: &Cache,
    now: Time,
) -> bool {
    let mut any = false;
    while calls.dispatcher().takes_reports()
        && let Some((report, since)) = queue.take_pre_enqueue_report()
    {
        any = true;
        let uid = report.pod().uid();
        if cache.stored(uid).is_none_or(|pod| pod.is_assigned()) {
            continue;
        }
        let follows = matches!(
            &report,
            PreEnqueueReport::Rejected {
                follows_attempt: true,
                ..
            }
        );
        let states_result = follows && states_result_of_attempt(cache, queue, report.pod());
        write_report(calls, &report, since, states_result, now);
    }
    any
}

/// Passes one answer to the dispatcher, with the time at which it is written. `states_result` is set if the answer is a
/// rejection that belongs to the last attempt, and the pod states the result of this attempt.
fn write_report(
    calls: &mut Calls,
    report: &PreEnqueueReport,
    since: Time,
    states_result: bool,
    now: Time,
) {
    let uid = report.pod().uid();
    let mut due = since + NOT_READY_FOR_SCHEDULING_DELAY;
    // The pod still states the result of its attempt, so the report of another plugin is withdrawn.
    if let PreEnqueueReport::Rejected { pod, message, .. } = report
        && states_result
    {
        due = since + LONG_REJECTION_OF_ATTEMPT;
        let waiting = calls.dispatcher().report_of(uid);
        let is_another = waiting.is_some_and(|(call, _)| {
            let condition = call.condition(POD_SCHEDULED);
            condition.is_none_or(|condition| condition.message != *message)
        });
        if is_another {
            calls.report(removal(pod), due, now);
        }
    }
    let call = match report {
        PreEnqueueReport::Rejected { pod, message, .. } => {
            let reason = report.reason().unwrap_or(NOT_READY_FOR_SCHEDULING);
            ApiCall::PatchPodStatus {
                pod: PodRef::of(pod),
                conditions: vec![ConditionPatch::of(
                    pod,
                    POD_SCHEDULED,
                    "False",
                    reason,
                    message,
                )],
                nominated_node: None,
            }
        }
        PreEnqueueReport::Passed { pod } => removal(pod),
    };
    calls.report(call, due, now);
}

/// The removal of a report.
fn removal(pod: &Pod) -> ApiCall {
    ApiCall::ClearPreEnqueueStatus {
        pod: PodRef::of(pod),
        resource_version: None,
        conditions: Vec::new(),
        nominated_node: None,
    }
}

/// Returns whether the pod states the result of its last attempt, and keeps it while a PreEnqueue plugin only waits for
/// an action of that attempt.
fn states_result_of_attempt(cache: &Cache, queue: &SchedulingQueue, pod: &Pod) -> bool {
    let uid = pod.uid();
    let effective = cache.effective(uid).map_or(pod, |pod| &**pod);
    match effective.condition(POD_SCHEDULED) {
        Some(condition) if *condition.reason == *NOT_READY_FOR_SCHEDULING => false,
        Some(condition) if *condition.reason == *UNSCHEDULABLE => true,
        _ => {
            let queued = queue.get(pod.namespace(), pod.name());
            queued.is_some_and(|(_, info)| info.attempts > 0)
        }
    }
}

/// A status patch was written. If it was a report, an event states the same. The event is published only then,
/// so that a rejection that ends in time causes no write at all.
pub(crate) fn report_event(cache: &Cache, call: &ApiCall) -> Option<(PodEvent, Str)> {
    let (ApiCall::PatchPodStatus { pod, .. }, Some(condition)) =
        (call, call.condition(POD_SCHEDULED))
    else {
        return None;
    };
    let reason = match condition.reason.as_str() {
        NOT_READY_FOR_SCHEDULING => NOT_READY_FOR_SCHEDULING,
        SCHEDULING_GATED => SCHEDULING_GATED,
        _ => return None,
    };
    let stored = cache.stored(&pod.uid)?;
    let event = PodEvent {
        regarding: pod.clone(),
        related: None,
        kind: EventKind::Warning,
        reason,
        action: "Scheduling",
        note: event_note(&condition.message),
    };
    let scheduler = stored.spec.scheduler_name.clone();
    Some((event, scheduler))
}

// --- rejected writes ------------------------------------------------------------------------------------

/// Offers due statuses again, as far as they are still valid (D-14).
pub(crate) fn offer_statuses(calls: &mut Calls, cache: &Cache, queue: &SchedulingQueue, now: Time) {
    while let Some(call) = calls.dispatcher_mut().take_due_offer(now) {
        if let Some(call) = desired_now(cache, queue, &call) {
            calls.make(call, now);
        }
    }
}

/// The part of a status that is still desired: the condition if the pod still waits as the condition states, and the
/// current nominated node of the pod.
fn desired_now(cache: &Cache, queue: &SchedulingQueue, refused: &ApiCall) -> Option<ApiCall> {
    let pod = refused.pod()?.clone();
    let mut conditions = refused.conditions().to_vec();
    if cache.stored(&pod.uid)?.is_assigned() {
        conditions.retain(|c| c.kind != POD_SCHEDULED || c.status == "True");
        return (!conditions.is_empty()).then_some(ApiCall::PatchPodStatus {
            pod,
            conditions,
            nominated_node: None,
        });
    }
    // The status of a pod that is being tried or bound is written if that fails.
    let (place, info) = queue.get(&pod.namespace, &pod.name)?;
    if *info.pod.uid() != pod.uid {
        return None;
    }
    let nominated_to = queue.nominator().node_of(&pod.uid).cloned();
    let nominated_node = Some(nominated_to.unwrap_or_default());
    let is_rejected = place == QueuedIn::Gated;
    if matches!(refused, ApiCall::ClearPreEnqueueStatus { .. }) && !is_rejected {
        return Some(ApiCall::ClearPreEnqueueStatus {
            pod,
            resource_version: None,
            conditions,
            nominated_node,
        });
    }
    conditions.retain(|c| c.kind != POD_SCHEDULED || !is_report(&c.reason) || is_rejected);
    Some(ApiCall::PatchPodStatus {
        pod,
        conditions,
        nominated_node,
    })
}

/// The API shows the pod as bound. A condition that states that it is not scheduled is corrected.
pub(crate) fn correct_status(calls: &mut Calls, pod: &Arc<Pod>, now: Time) {
    calls.dispatcher_mut().forget_status(pod.uid());
    let condition = pod.condition(POD_SCHEDULED);
    let is_wrong = condition.is_some_and(|condition| condition.status == "False");
    if !is_wrong || pod.is_terminating() {
        return;
    }
    let call = ApiCall::PatchPodStatus {
        pod: PodRef::of(pod),
        conditions: vec![ConditionPatch::of(pod, POD_SCHEDULED, "True", "", "")],
        nominated_node: None,
    };
    calls.make(call, now);
}

// --- our writes in the cluster --------------------------------------------------------------------------

/// Shows the pod from now on with the changes of our calls.
pub(crate) fn show_writes(core: &mut Core, uid: &str) {
    let Some((before, after)) = core.show_writes(uid) else {
        return;
    };
    let Core {
        framework,
        queue,
        preemptions,
        ..
    } = core;
    let stays = before.is_terminating() && !after.is_terminating();
    if stays {
        preemptions::victim_stays(framework, queue, preemptions, uid);
    }
    if !after.is_assigned() {
        nominations::follow_write(framework, queue, &before, &after);
        eviction_failed(framework, queue, &before, &after);
    } else if stays {
        preemptions::wake_nominees(framework, queue, &before);
    }
}

/// The eviction of a pod without a node has failed. The pod is queued again if it was dropped as terminating.
fn eviction_failed(
    framework: &Framework,
    queue: &mut SchedulingQueue,
    before: &Pod,
    after: &Arc<Pod>,
) {
    let uid = after.uid();
    let failed = before.is_terminating() && !after.is_terminating();
    if !failed || !is_responsible(framework, queue, after) {
        return;
    }
    let is_queued = queue.get(after.namespace(), after.name()).is_some();
    let is_held = queue.in_flight().contains(uid) || framework.unbound.contains(uid);
    if !is_queued && !is_held {
        queue.add(&framework.context(), after.clone());
    }
}
