//! Accepting calls: the interaction of a new call with the calls for its object (D-7 to D-9, D-24, D-26).

use super::object::{CallEntry, WaitingPlace};
use super::status::StatusChange;
use super::{Backlog, Dispatcher, overwritten, skipped, text};
use berth_api::Time;
use berth_framework::call::{CallErrorKind, Response};
use berth_framework::write::{MergeError, POD_STATUS_PATCH};
use berth_framework::{ApiCall, CallError, CallId, Write};
use std::cmp::Ordering;

impl Dispatcher {
    /// Accepts a call, to be sent when its turn comes.
    ///
    /// Pass the object to the dispatcher ([`Dispatcher::sync`]) immediately before or after: otherwise the dispatcher
    /// cannot detect a needless call.
    pub fn enqueue(&mut self, call: ApiCall, now: Time) -> CallId {
        let id = self.ids.take();
        self.enqueue_as(id, call, now);
        id
    }

    /// Accepts a call with an ID of [`Dispatcher::ids`].
    pub fn enqueue_as(&mut self, id: CallId, call: ApiCall, now: Time) {
        self.backlog.tracked += 1;
        let mut entry = CallEntry::new(id, call, now);
        if self.closed {
            self.end(entry, skipped(text::CLOSED), now);
            return;
        }
        if !self.backlog.types.is_registered(entry.call_type()) {
            let error = CallError::new(CallErrorKind::Refused, text::UNREGISTERED);
            self.end(entry, Err(error), now);
            return;
        }
        let key = entry.call.key();
        let at = self.backlog.objects.find_or_insert(key);
        let object = self.backlog.objects.get(at);
        if object.is_some_and(|object| object.gone) {
            self.end(entry, skipped(text::GONE), now);
            return;
        }
        match &entry.call {
            ApiCall::Write(_) => {}
            ApiCall::BindPod { .. } | ApiCall::DeletePod { .. } => self.backlog.drop_later(at),
            ApiCall::PatchPodStatus { .. } | ApiCall::ClearPreEnqueueStatus { .. } => {
                if let Some(object) = self.backlog.objects.get_mut(at) {
                    object.writes_again();
                }
                self.backlog.supersede_later(at, &mut entry);
            }
        }
        if self.options.asynchronous {
            self.meet(at, entry, now);
            self.drop_needless(at, text::NO_EFFECT, now);
        } else if let Some(entry) = self.admit(entry, now) {
            self.backlog.set_waiting(at, entry, None);
        }
        self.backlog.tidy(at);
    }

    /// Refuses a call above the limit; see [`tracked_max`](super::DispatcherOptions::tracked_max).
    fn admit(&mut self, entry: CallEntry, now: Time) -> Option<CallEntry> {
        let max = self.options.tracked_max;
        let statuses = self.backlog.types.waiting(&POD_STATUS_PATCH);
        let (full, what) = match entry.is_status_patch() {
            _ if self.backlog.tracked > max => (true, "calls"),
            true => (statuses >= max / 2, "status patches"),
            false => (false, ""),
        };
        if !full {
            return Some(entry);
        }
        self.counts.refused += 1;
        let held = if what == "calls" { max } else { statuses };
        let message = format!(
            "the API dispatcher holds {held} {what} that have not been answered: call refused; it is made again \
             when the pod is next tried"
        );
        let error = CallError::new(CallErrorKind::Unavailable, message);
        self.end(entry, Err(error), now);
        None
    }

    /// Combines a new call with the existing calls for its object.
    fn meet(&mut self, at: u32, new: CallEntry, now: Time) {
        let Some(object) = self.backlog.objects.get_mut(at) else {
            return;
        };
        let old = object.waiting.last().or(object.in_flight.as_deref());
        let waits = !object.waiting.is_empty();
        let relevance = |entry: &CallEntry| entry.call_type().relevance();
        let order = old.map_or(Ordering::Greater, |old| {
            relevance(&new).cmp(&relevance(old))
        });
        match order {
            // D-7.1
            Ordering::Less => self.end(new, skipped(text::LESS_RELEVANT), now),
            // D-7.3, and D-7.2 for a call that waits for the call in flight. The component that made it is notified,
            // too.
            Ordering::Greater if waits => {
                if let Some(old) = self.backlog.replace(at, new) {
                    self.end(old, overwritten(text::MORE_RELEVANT), now);
                }
            }
            Ordering::Equal if old.is_some_and(|old| is_same(&old.call, &new.call)) => {
                self.backlog.join(at, new);
            }
            Ordering::Equal if waits => self.merge(at, new, now),
            // D-7.2, D-9: the first waiting call, or a call that waits for the call in flight.
            Ordering::Greater | Ordering::Equal => {
                if let Some(new) = self.admit(new, now) {
                    self.backlog.add(at, new);
                }
            }
        }
    }

    /// D-7.4: a waiting call of the same type becomes part of the new one.
    fn merge(&mut self, at: u32, mut new: CallEntry, now: Time) {
        let Some(old) = self.backlog.objects.get(at).and_then(|o| o.waiting.last()) else {
            return;
        };
        match carry_on(&mut new, old) {
            Ok(()) => {}
            // The older call is sent first, and must not be lost with the newer one.
            Err(MergeError::Separate) => {
                if let Some(new) = self.admit(new, now) {
                    self.backlog.add(at, new);
                }
                return;
            }
            Err(reason) => {
                let message = format!("{}: {reason}", text::MERGE_FAILED);
                let error = CallError::new(CallErrorKind::Refused, message);
                self.end(new, Err(error), now);
                return;
            }
        }
        self.backlog.decide(at, &mut new);
        if let Some(old) = self.backlog.replace(at, new) {
            self.end(old, overwritten(text::SAME_TYPE), now);
        }
    }

    /// D-8, D-17: drops the waiting call if it would change nothing. While another call is in flight, that is unknown.
    pub(super) fn drop_needless(&mut self, at: u32, message: &str, now: Time) {
        let Some(object) = self.backlog.objects.get(at) else {
            return;
        };
        if object.in_flight.is_some() || !self.options.asynchronous {
            return;
        }
        let Some(first) = object.waiting.first() else {
            self.backlog.drop_needless_report(at);
            return;
        };
        let change = object.change_of(first);
        let is_done = object.is_done(&first.call);
        let is_needless = change.as_ref().map_or(is_done, |change| object.has(change));
        // An attempt with an unknown result may have written values that the object does not show yet.
        let is_unclear = first.unclear && change.is_some();
        let result = if change.as_ref().is_some_and(StatusChange::is_empty) {
            skipped(message)
        } else if first.attempts > 0 && object.is_hopeless(&first.call, change) {
            // A retry that cannot or must not succeed any more fails. A call that was never sent is sent, because the
            // API decides.
            let by_now = if first.is_status_patch() {
                text::BOUND
            } else {
                text::BOUND_ELSEWHERE
            };
            Err(CallError::new(CallErrorKind::Conflict, by_now))
        } else if is_unclear || !is_needless {
            return;
        } else if is_done {
            // A binding or a write that was carried out is a success.
            Ok(Response::default())
        } else {
            skipped(message)
        };
        if let Some(entry) = self.backlog.take_first(at) {
            self.end(entry, result, now);
        }
    }
}

impl Backlog {
    /// The last call about the object is equal: both get one result.
    pub(super) fn join(&mut self, at: u32, new: CallEntry) {
        let Some(object) = self.objects.get_mut(at) else {
            return;
        };
        let last = object.waiting.last_mut();
        if let Some(old) = last.or(object.in_flight.as_deref_mut()) {
            old.joined.push(new.id);
        }
    }

    /// Replaces the last waiting call by a new one, and returns the replaced call.
    pub(super) fn replace(&mut self, at: u32, new: CallEntry) -> Option<CallEntry> {
        let object = self.objects.get_mut(at)?;
        let place = object.place;
        if object.waiting.len() > 1
            && let Some(last) = object.waiting.last_mut()
        {
            // The place of the object depends on its first call, so it is unchanged.
            self.types.begins_to_wait(new.call_type());
            let old = std::mem::replace(last, new);
            self.types.ends_to_wait(old.call_type());
            return Some(old);
        }
        let old = self.take_first(at)?;
        let position = match place {
            WaitingPlace::Ready(_, position) => Some(position),
            WaitingPlace::Timer(_) | WaitingPlace::Nowhere => None,
        };
        self.set_waiting(at, new, position);
        Some(old)
    }

    // --- where objects wait --------------------------------------------------------------------------------

    /// Appends a call to the waiting calls of the object.
    pub(super) fn add(&mut self, at: u32, mut entry: CallEntry) {
        self.decide(at, &mut entry);
        self.set_waiting(at, entry, None);
    }

    /// Adds a call whose changes are known.
    pub(super) fn set_waiting(&mut self, at: u32, entry: CallEntry, position: Option<u64>) {
        self.types.begins_to_wait(entry.call_type());
        if self.objects.get(at).is_some_and(|o| o.waiting.is_empty()) {
            // It may have been waiting for the time of a report.
            self.unplace(at);
        }
        if let Some(object) = self.objects.get_mut(at) {
            object.waiting.push(entry);
        }
        self.place(at, position);
    }

    /// Inserts a call before the waiting calls of the object.
    pub(super) fn set_first(&mut self, at: u32, entry: CallEntry) {
        self.unplace(at);
        self.types.begins_to_wait(entry.call_type());
        if let Some(object) = self.objects.get_mut(at) {
            object.waiting.insert(0, entry);
        }
        self.place(at, None);
    }

    /// Takes the first waiting call; the next one, if any, takes its place.
    pub(super) fn take_first(&mut self, at: u32) -> Option<CallEntry> {
        if self.objects.get(at)?.waiting.is_empty() {
            return None;
        }
        self.unplace(at);
        let object = self.objects.get_mut(at)?;
        let entry = object.waiting.remove(0);
        self.types.ends_to_wait(entry.call_type());
        self.place(at, None);
        Some(entry)
    }

    /// Places the object if it has no place and its first call may be sent.
    pub(super) fn place(&mut self, at: u32, position: Option<u64>) {
        let Some(object) = self.objects.get_mut(at) else {
            return;
        };
        if object.in_flight.is_some() || object.place != WaitingPlace::Nowhere {
            return;
        }
        let wakes = match object.waiting.first() {
            Some(first) => object.pause_of(first),
            None => object.report().map(|report| report.due),
        };
        // A pause that waits for another version of the object ends when the call no longer depends on the version.
        if let Some(first) = object.waiting.first_mut() {
            first.not_before = wakes;
            first.awaits_update &= wakes.is_some();
        }
        let first = object.waiting.first();
        object.place = match (wakes, first) {
            (Some(time), _) => {
                self.timers.insert((time, at));
                WaitingPlace::Timer(time)
            }
            (None, Some(first)) => {
                let lane = first.call_type().lane();
                let position = position.unwrap_or_else(|| self.lanes.last_position());
                self.lanes.add(lane, position, at);
                WaitingPlace::Ready(lane, position)
            }
            (None, None) => WaitingPlace::Nowhere,
        };
    }

    /// Makes the first waiting call of the object ready.
    pub(super) fn end_pause(&mut self, at: u32) {
        self.unplace(at);
        if let Some(object) = self.objects.get_mut(at)
            && let Some(first) = object.waiting.first_mut()
        {
            first.awaits_update = false;
            first.not_before = None;
        }
        self.place(at, None);
    }

    pub(super) fn unplace(&mut self, at: u32) {
        let Some(object) = self.objects.get_mut(at) else {
            return;
        };
        match std::mem::take(&mut object.place) {
            WaitingPlace::Nowhere => {}
            WaitingPlace::Ready(lane, position) => self.lanes.remove(lane, position, at),
            WaitingPlace::Timer(time) => {
                self.timers.remove(&(time, at));
            }
        }
    }
}

/// Returns whether two calls, other than status patches, are equal.
fn is_same(old: &ApiCall, new: &ApiCall) -> bool {
    match (old, new) {
        (ApiCall::BindPod { node: old, .. }, ApiCall::BindPod { node: new, .. }) => old == new,
        (ApiCall::DeletePod { .. }, ApiCall::DeletePod { .. }) => true,
        (ApiCall::Write(old), ApiCall::Write(new)) => old == new,
        _ => false,
    }
}

/// Adds the unfinished part of an old call to a new call of its type. The changes of status patches are in the desired
/// status of the pod.
///
/// # Errors
/// The reason why one call cannot do both; the new call is unchanged.
pub(super) fn carry_on(new: &mut CallEntry, old: &CallEntry) -> Result<(), MergeError> {
    if let (ApiCall::Write(write), ApiCall::Write(earlier)) = (&new.call, &old.call) {
        new.call = Write::clone(write).after(earlier)?.into();
    }
    if old.attempts > 0 {
        // The pause after a failed attempt applies to any call that is sent next.
        new.awaits_update = old.awaits_update;
        new.not_before = old.not_before;
        new.attempts = old.attempts;
        new.unclear |= old.unclear;
    } else {
        new.not_before = None;
    }
    Ok(())
}
