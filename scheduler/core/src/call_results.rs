//! The effects of API calls: the cluster is shown as if they had succeeded, until they fail.

use crate::core::{Assumption, CallObject, Calls, Core, Framework};
use crate::group_status;
use crate::pod_status::{report_event, show_writes};
use crate::preemptions::{self, eviction_ended};
use berth_api::Time;
use berth_dispatcher::{Finished, has_calls, version_number};
use berth_framework::call::{CallError, CallErrorKind, CallResult};
use berth_framework::{ActionType, ApiCall, ClusterEvent, EventResource, Feature, Write};
use berth_telemetry::metrics::Metric;
use berth_telemetry::{Log, LogLine};

/// Performs the requests of plugins. From now on the cluster is shown as if all calls had succeeded.
pub(crate) fn note_requests(core: &mut Core) {
    core.make_requested_calls();
    let observations = core.framework.requests.take_observations();
    core.framework.count_observations(observations);
    for (preemption, reporter) in core.framework.requests.take_preemptions() {
        preemptions::start(core, preemption, reporter);
    }
    count_edits(&mut core.framework);
    for assumption in core.framework.requests.take_assumptions() {
        let reverted = match assumption {
            Assumption::Made(write) => {
                core.framework.cache.assume_write(write);
                None
            }
            Assumption::Reverted(write) => Some(write),
            Assumption::GivenUp(write) => {
                give_up(&mut core.calls, write, core.framework.clock.now())
            }
        };
        if let Some(write) = reverted {
            revert(core, &write);
        }
    }
    for made in core.calls.take_made() {
        core.sync_stored(&made);
        if let CallObject::Pod(uid) = made {
            show_writes(core, &uid);
        }
    }
}

/// Counts placed pods on their nodes with the edits of plugins.
fn count_edits(framework: &mut Framework) {
    for (uid, edit) in framework.requests.take_counted() {
        framework.cache.count_with(&uid, edit);
    }
}

/// Applies and reverts the assumptions of plugins while the members of a group are tried. No pod is woken: the reverted
/// placements did not exist when the group was popped. A write that a plugin has given up may be under way, so it stays
/// assumed until the end of the cycle.
pub(crate) fn note_trial(framework: &mut Framework) {
    count_edits(framework);
    for assumption in framework.requests.take_assumptions() {
        match assumption {
            Assumption::Made(write) => framework.cache.assume_write(write),
            Assumption::Reverted(write) => {
                framework.cache.revert_write(&write);
                framework.requests.cancel(write);
            }
            Assumption::GivenUp(write) => framework.requests.give_up(write),
        }
    }
}

/// Reverts a write that will not be made. Pods that were rejected because of it are retried; kube-scheduler leaves them
/// waiting for an event that may never happen.
fn revert(core: &mut Core, write: &Write) {
    core.calls.cancel(write, core.framework.clock.now());
    let Some((before, after)) = core.framework.cache.revert_write(write) else {
        return;
    };
    let resource = EventResource::of_kind(write.object().kind);
    let event = ClusterEvent::new(resource, ActionType::UPDATE);
    core.move_all(&event, Some(&before), Some(&after), None);
    core.waits.object_changed(write.object());
}

/// A plugin has given up a write. It stays assumed while calls about its object are under way, because the API may
/// perform it, or may have performed it without an answer. Otherwise it is returned and is to be reverted.
fn give_up(calls: &mut Calls, write: Write, now: Time) -> Option<Write> {
    let key = write.key();
    calls.cancel(&write, now);
    if !has_calls(calls.dispatcher(), &key) {
        return Some(write);
    }
    calls.keep_given_up(write);
    None
}

/// A call about an object has ended. A given-up write to the object is returned and is to be reverted if it was refused,
/// or if no remaining call could perform it. If this call created a later version of the object, that version ends the
/// assumption when the watch shows it.
fn settle_given_up(calls: &mut Calls, call: &Write, result: &CallResult) -> Option<Write> {
    let key = call.key();
    let write = calls.given_up(&key)?;
    let is_refused = |error: &CallError| write == call && error.kind.is_definite();
    let (is_later, is_refused) = match result {
        Ok(response) => {
            let version = response.resource_version.as_deref();
            let is_later = version.is_some_and(|version| write.is_outdated_by(version));
            (is_later, false)
        }
        Err(error) => (false, is_refused(error)),
    };
    if !is_later && !is_refused && has_calls(calls.dispatcher(), &key) {
        return None;
    }
    let write = calls.forget_given_up(&key);
    write.filter(|_| !is_later)
}

/// A call has ended: ends the waits for it.
pub(crate) fn call_ended(core: &mut Core, finished: Finished) {
    if let Some(pod) = finished.call.pod() {
        show_writes(core, &pod.uid);
    }
    eviction_ended(core, &finished);
    let (for_waiter, is_done) = (finished.for_waiter(), finished.is_done());
    let Finished {
        id,
        call,
        result,
        took,
    } = finished;
    // As in kube-scheduler, these metrics have values only if the feature is enabled.
    let is_async = core
        .framework
        .settings
        .is_on(Feature::SchedulerAsyncAPICalls);
    if let Some(took) = took.filter(|_| is_async) {
        let result = if is_done { "success" } else { "error" };
        let labels = [call.call_type().name(), result];
        let seconds = took.as_secs_f64();
        core.framework
            .metrics
            .count(Metric::AsyncApiCallExecutions, &labels);
        core.framework
            .metrics
            .observe(Metric::AsyncApiCallDuration, &labels, seconds);
    }
    match (&call, &result) {
        (ApiCall::Write(write), _) => {
            if let Some(given_up) = settle_given_up(&mut core.calls, write, &result) {
                revert(core, &given_up);
            }
            group_status::write_ended(
                &mut core.framework.cache,
                &mut core.framework.outbound.log,
                write,
                &result,
            );
            let now = core.framework.clock.now();
            core.quota_statuses.write_ended(write, &result, now);
        }
        (ApiCall::BindPod { pod, .. }, Ok(response)) => {
            let version = response.resource_version.as_deref();
            if let Some(version) = version.and_then(version_number) {
                core.framework.cache.confirm(&pod.uid, version);
            }
        }
        _ => {}
    }
    if core.waits.call_ended(id, for_waiter) {
        return;
    }
    match &result {
        Ok(_) => {
            if let Some((event, scheduler)) = report_event(&core.framework.cache, &call) {
                core.framework.outbound.publish(event, &scheduler);
            }
        }
        Err(error) if error.kind.is_dropped() => {}
        // The status of a deleted pod is not a failure, so it is logged at the level of requests.
        Err(error) if is_done && error.kind != CallErrorKind::NotFound => {}
        Err(error) => log_failure(&mut core.framework.outbound.log, &call, error),
    }
}

fn log_failure(log: &mut Log, call: &ApiCall, error: &CallError) {
    const MESSAGE: &str = "Failed to write an object";
    let describe = |line: LogLine| {
        let line = match call.pod() {
            Some(pod) => line.with("pod", pod),
            None => line.with("object", call.object().to_string()),
        };
        let line = line.with("callType", call.call_type().name());
        line.with("err", error.to_string())
    };
    match error.kind {
        // The pod was deleted or recreated, so there is nothing left to write.
        CallErrorKind::NotFound | CallErrorKind::Conflict => log.v(4, MESSAGE, describe),
        _ => log.push(describe(LogLine::error(MESSAGE))),
    }
}
