//! Sending calls and processing their results: lanes, retries and subsequent calls (D-11, D-13, D-14, D-19).

use super::enqueue::carry_on;
use super::object::{CallEntry, TrackedObject, WaitingPlace, is_status_patch};
use super::status::StatusChange;
use super::writes::{PodWrites, VersionNumber, version_number};
use super::{Backlog, Dispatcher, overwritten, text};
use berth_api::{Duration, Time};
use berth_framework::call::{CallErrorKind, CallResult, Response};
use berth_framework::write::MergeError;
use berth_framework::{ApiCall, CallError, CallId};

/// The pause of a call for an earlier version of its object, unless an update shows a later version before.
const UPDATE_AWAITED_MAX: Duration = Duration::from_secs(30);

impl Dispatcher {
    /// The calls to send now. They are in flight from now on, and each must be answered with [`Dispatcher::complete`].
    pub fn next_calls(&mut self, now: Time) -> Vec<(CallId, ApiCall)> {
        self.release_due(now);
        let mut calls = Vec::new();
        while let Some((lane, at)) = self.backlog.lanes.pick() {
            let Some(object) = self.backlog.objects.get_mut(at) else {
                debug_assert!(false, "an object that is ready has a call");
                continue;
            };
            object.place = WaitingPlace::Nowhere;
            if object.waiting.is_empty() {
                debug_assert!(false, "an object that is ready has a call");
                continue;
            }
            let mut entry = object.waiting.remove(0);
            self.backlog.types.ends_to_wait(entry.call_type());
            let Some(call) = self.backlog.call_to_send(at, &entry) else {
                // Nothing is left to do, so the call succeeded.
                self.end(entry, Ok(Response::default()), now);
                self.backlog.place(at, None);
                self.backlog.tidy(at);
                continue;
            };
            entry.call = call;
            entry.not_before = None;
            entry.awaits_update = false;
            entry.first_sent.get_or_insert(now);
            self.counts.sent += 1;
            self.counts.retried += u64::from(entry.attempts > 0);
            entry.attempts = entry.attempts.saturating_add(1);
            calls.push((entry.id, entry.call.clone()));
            self.in_flight.insert(entry.id, at);
            self.backlog.lanes.start(lane);
            if let Some(object) = self.backlog.objects.get_mut(at) {
                object.in_flight = Some(Box::new(entry));
            }
        }
        calls
    }

    /// Reports that are due, and pauses that have ended.
    fn release_due(&mut self, now: Time) {
        while let Some((time, at)) = self.backlog.timers.first().copied() {
            if time > now {
                break;
            }
            self.backlog.unplace(at);
            if let Some(first) = self
                .backlog
                .objects
                .get_mut(at)
                .and_then(|object| object.waiting.first_mut())
            {
                first.not_before = None;
            } else {
                self.make_due_report(at, now);
            }
            self.backlog.place(at, None);
            self.backlog.tidy(at);
        }
    }

    /// Ends a sent call. The id of a call that is not in flight is ignored.
    pub fn complete(
        &mut self,
        id: CallId,
        result: Result<impl Into<Response>, CallError>,
        now: Time,
    ) {
        self.completed(id, result.map(Into::into), now);
    }

    fn completed(&mut self, id: CallId, result: CallResult, now: Time) {
        let Some(at) = self.in_flight.remove(&id) else {
            return;
        };
        let Some(object) = self.backlog.objects.get_mut(at) else {
            return;
        };
        let Some(entry) = object.in_flight.take() else {
            return;
        };
        self.backlog.lanes.end(entry.call_type().lane());
        match meaning(&entry, object.is_done(&entry.call), result) {
            Ok(response) => {
                let version = response.resource_version.as_deref();
                if let Some(object) = self.backlog.objects.get_mut(at) {
                    object.note_version(&entry.call, version);
                }
                let version = version.and_then(version_number);
                self.note_written(at, &entry.call, version, now);
                self.end(*entry, Ok(response), now);
            }
            // The object is already deleted, so the deletion succeeded.
            Err(error) if is_deletion_of_nothing(&entry.call, error.kind) => {
                self.note_written(at, &entry.call, None, now);
                self.end(*entry, Err(error), now);
            }
            Err(error) => self.failed(at, *entry, error, now),
        }
        self.backlog.drop_needless_report(at);
        // D-14: the next waiting call, at the end of its lane.
        self.backlog.place(at, None);
        self.backlog.tidy(at);
    }

    /// Processes a failed call: it is retried, taken over by a newer one, or ended.
    fn failed(&mut self, at: u32, mut entry: CallEntry, error: CallError, now: Time) {
        let policy = if entry.is_status_patch() {
            self.options.status_retry
        } else {
            self.options.write_retry
        };
        self.failures.note(&entry, &error, now);
        let object = self.backlog.objects.get(at);
        let sent = StatusChange::of(&entry.call);
        let over = object.is_none_or(|o| o.gone || o.is_hopeless(&entry.call, sent));
        if over
            || entry.is_last
            || self.closed
            || !is_passing(&entry, error.kind)
            || entry.attempts >= policy.attempts_max
        {
            self.offer_again(at, &entry, error.kind, now);
            if entry.is_last {
                self.backlog.withdraw_offer(at);
            }
            self.end(entry, Err(error), now);
            return;
        }
        entry.unclear |= error.kind.may_be_done();
        let pause = policy.pause(entry.attempts, error.retry_after, self.rng.f64());
        entry.awaits_update = error.kind == CallErrorKind::Conflict
            && object.is_some_and(|object| is_of_known_version(&entry.call, object));
        let pause = if entry.awaits_update {
            UPDATE_AWAITED_MAX
        } else {
            pause
        };
        entry.not_before = Some(now + pause);
        let waits = object.is_some_and(|object| !object.waiting.is_empty());
        if self.options.asynchronous {
            self.backlog.restore(at, &mut entry);
        }
        if !waits || !self.options.asynchronous {
            self.backlog.set_first(at, entry);
            self.drop_needless(at, text::NO_EFFECT, now);
            return;
        }
        // A newer call is waiting. It takes over the unfinished part of this call.
        let Some(mut newer) = self.backlog.take_first(at) else {
            return;
        };
        let result = if newer.call_type() != entry.call_type() {
            overwritten(text::MORE_RELEVANT)
        } else {
            match carry_on(&mut newer, &entry) {
                Ok(()) => overwritten(text::SAME_TYPE),
                Err(MergeError::Separate) => {
                    self.backlog.set_first(at, newer);
                    self.backlog.set_first(at, entry);
                    self.drop_needless(at, text::NO_EFFECT, now);
                    return;
                }
                Err(_) => Err(error),
            }
        };
        self.backlog.set_first(at, newer);
        self.end(entry, result, now);
    }

    /// Remembers a call that was carried out until an update shows it.
    fn note_written(&mut self, at: u32, call: &ApiCall, version: Option<VersionNumber>, now: Time) {
        let Some(object) = self.backlog.objects.get_mut(at) else {
            return;
        };
        if object.gone {
            return;
        }
        object.note_written(call, version, now);
        if object.written.is_empty() {
            self.backlog.forget_written(at);
            return;
        }
        let believed_for = if object.written.are_versions_known() {
            self.options.unshown_max
        } else {
            self.options.unseen_max
        };
        let until = now + believed_for;
        if let Some(before) = object.expires.replace(until) {
            self.backlog.expiries.remove(&(before, at));
        }
        self.backlog.expiries.insert((until, at));
        // At most `tracked_max` writes are remembered; the oldest are dropped.
        if self.backlog.expiries.len() > self.options.tracked_max
            && let Some((_, oldest)) = self.backlog.expiries.first().copied()
        {
            self.backlog.forget_written(oldest);
            if oldest != at {
                self.backlog.tidy(oldest);
            }
        }
    }
}

impl Backlog {
    pub(super) fn forget_written(&mut self, at: u32) {
        if let Some(object) = self.objects.get_mut(at) {
            object.written = PodWrites::default();
            if let Some(time) = object.expires.take() {
                self.expiries.remove(&(time, at));
            }
        }
    }
}

/// Returns whether the answer to a deletion states that the object does not exist.
pub(super) fn is_deletion_of_nothing(call: &ApiCall, kind: CallErrorKind) -> bool {
    matches!(call, ApiCall::DeletePod { .. }) && kind == CallErrorKind::NotFound
}

/// Returns whether the answer to a status patch states that the pod does not exist, because it was deleted.
pub(super) fn is_status_of_nothing(call: &ApiCall, kind: CallErrorKind) -> bool {
    is_status_patch(call) && kind == CallErrorKind::NotFound
}

/// Returns whether a removal was sent for the version of the pod that is still the latest known one.
fn is_of_known_version(call: &ApiCall, object: &TrackedObject) -> bool {
    match call {
        ApiCall::ClearPreEnqueueStatus {
            resource_version: Some(version),
            ..
        } => object.known_version().as_ref() == Some(version),
        _ => false,
    }
}

/// The effect of a result on the state of the object: a binding that is refused with a conflict (409), because an
/// earlier attempt was carried out after all, is done.
fn meaning(entry: &CallEntry, done: bool, result: CallResult) -> CallResult {
    match (&entry.call, result) {
        (ApiCall::BindPod { .. } | ApiCall::Write(_), Err(error))
            if error.kind == CallErrorKind::Conflict && done =>
        {
            Ok(Response::default())
        }
        (_, result) => result,
    }
}

/// Returns whether another attempt may succeed.
fn is_passing(entry: &CallEntry, kind: CallErrorKind) -> bool {
    match kind {
        CallErrorKind::Unavailable | CallErrorKind::Timeout => true,
        CallErrorKind::Conflict => match &entry.call {
            // 409 for a binding: the pod has a node. 409 for a write of one version: there is a later version. The node
            // or the version may result from our own attempt whose answer was lost; an update shows that soon.
            ApiCall::BindPod { .. } => entry.unclear,
            ApiCall::Write(write) => entry.unclear || write.resource_version().is_none(),
            _ => true,
        },
        CallErrorKind::NotFound
        | CallErrorKind::Refused
        | CallErrorKind::Skipped
        | CallErrorKind::Overwritten => false,
    }
}
