//! The effects of API calls: the cluster is shown as if they had succeeded, until they fail.

use crate::cache::Cache;
use crate::core::{Assumption, CallObject, Core, PluginRequests};
use crate::group_status;
use crate::pod_status::{report_event, show_writes};
use crate::preemptions::{eviction_ended, start_preemptions};
use berth_dispatcher::{Finished, has_calls, version_number};
use berth_framework::call::{CallError, CallErrorKind, CallResult};
use berth_framework::{ActionType, ApiCall, ClusterEvent, EventResource, Feature, Write};
use berth_telemetry::metrics::Metric;
use berth_telemetry::{Log, LogLine};

/// Performs the requests of plugins. From now on the cluster is shown as if all calls had succeeded.
pub(crate) fn note_requests(core: &mut Core) {
    let observations = core.requests.take_observations();
    core.count_observations(observations);
    start_preemptions(core);
    count_edits(&mut core.requests, &mut core.cache);
    for assumption in core.requests.take_assumptions() {
        match assumption {
            Assumption::Made(write) => core.cache.assume_write(write),
            Assumption::Reverted(write) => revert(core, &write),
            Assumption::GivenUp(write) => give_up(core, write),
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
fn count_edits(requests: &mut PluginRequests, cache: &mut Cache) {
    for (uid, edit) in requests.take_counted() {
        cache.count_with(&uid, edit);
    }
}

/// Applies and reverts the assumptions of plugins while the members of a group are tried. No pod is woken: the reverted
/// placements did not exist when the group was popped.
pub(crate) fn note_trial(core: &mut Core) {
    count_edits(&mut core.requests, &mut core.cache);
    for assumption in core.requests.take_assumptions() {
        match assumption {
            Assumption::Made(write) => core.cache.assume_write(write),
            Assumption::Reverted(write) => {
                let (key, call, now) =
                    (write.key(), ApiCall::from(write.clone()), core.clock.now());
                let dispatcher = core.calls.dispatcher_mut();
                dispatcher.cancel(&key, |other| *other == call, now);
                core.cache.revert_write(&write);
            }
            Assumption::GivenUp(write) => give_up(core, write),
        }
    }
}

/// Reverts a write that will not be made. Pods that were rejected because of it are retried; kube-scheduler leaves them
/// waiting for an event that may never happen.
fn revert(core: &mut Core, write: &Write) {
    let call = ApiCall::from(write.clone());
    let now = core.clock.now();
    core.calls
        .dispatcher_mut()
        .cancel(&write.key(), |other| *other == call, now);
    let Some((before, after)) = core.cache.revert_write(write) else {
        return;
    };
    let resource = EventResource::of_kind(write.object().kind);
    let event = ClusterEvent::new(resource, ActionType::UPDATE);
    core.move_all(&event, Some(&before), Some(&after), None);
    core.waits.object_changed(write.object());
}

/// A plugin has given up a write. It stays assumed while calls about its object are under way, because the API may
/// perform it, or may have performed it without an answer.
fn give_up(core: &mut Core, write: Write) {
    let (key, call, now) = (write.key(), ApiCall::from(write.clone()), core.clock.now());
    let dispatcher = core.calls.dispatcher_mut();
    dispatcher.cancel(&key, |other| *other == call, now);
    if has_calls(dispatcher, &key) {
        core.calls.keep_given_up(write)
    } else {
        revert(core, &write)
    }
}

/// A call about an object has ended. A given-up write to the object is reverted if it was refused, or if no remaining
/// call could perform it. If this call created a later version of the object, that version ends the assumption when the
/// watch shows it.
fn settle_given_up(core: &mut Core, call: &Write, result: &CallResult) {
    let key = call.key();
    let Some(write) = core.calls.given_up(&key) else {
        return;
    };
    let is_refused = |error: &CallError| write == call && error.kind.is_definite();
    let (is_later, is_refused) = match result {
        Ok(response) => {
            let version = response.resource_version.as_deref();
            let is_later = version.is_some_and(|version| write.is_outdated_by(version));
            (is_later, false)
        }
        Err(error) => (false, is_refused(error)),
    };
    if is_later || is_refused || !has_calls(core.calls.dispatcher(), &key) {
        let write = core.calls.forget_given_up(&key);
        if let Some(write) = write.filter(|_| !is_later) {
            revert(core, &write);
        }
    }
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
    let is_async = core.settings.is_on(Feature::SchedulerAsyncAPICalls);
    if let Some(took) = took.filter(|_| is_async) {
        let result = if is_done { "success" } else { "error" };
        let labels = [call.call_type().name(), result];
        let seconds = took.as_secs_f64();
        core.metrics.count(Metric::AsyncApiCallExecutions, &labels);
        core.metrics
            .observe(Metric::AsyncApiCallDuration, &labels, seconds);
    }
    match (&call, &result) {
        (ApiCall::Write(write), _) => {
            settle_given_up(core, write, &result);
            group_status::write_ended(&mut core.cache, &mut core.outbound.log, write, &result);
            let now = core.clock.now();
            core.quota_statuses.write_ended(write, &result, now);
        }
        (ApiCall::BindPod { pod, .. }, Ok(response)) => {
            let version = response.resource_version.as_deref();
            if let Some(version) = version.and_then(version_number) {
                core.cache.confirm(&pod.uid, version);
            }
        }
        _ => {}
    }
    if core.waits.call_ended(id, for_waiter) {
        return;
    }
    match &result {
        Ok(_) => {
            if let Some((event, scheduler)) = report_event(&core.cache, &call) {
                core.outbound.publish(event, &scheduler);
            }
        }
        Err(error) if error.kind.is_dropped() => {}
        // The status of a deleted pod is not a failure, so it is logged at the level of requests.
        Err(error) if is_done && error.kind != CallErrorKind::NotFound => {}
        Err(error) => log_failure(&mut core.outbound.log, &call, error),
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
