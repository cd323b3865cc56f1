//! The state of objects for the dispatcher: updates, deletions, and the results of our calls (D-17,
//! D-25).

use super::status::ConditionChange;
use super::{Dispatcher, Writes, skipped, text};
use berth_api::{Kind, Object, Pod, Str, Time};
use berth_framework::ApiCall;
use berth_framework::call::Response;
use berth_framework::object_name::ObjectKey;
use std::sync::Arc;

/// Returns whether a call about the object waits or is in flight.
pub fn has_calls(dispatcher: &Dispatcher, object: &ObjectKey) -> bool {
    let objects = &dispatcher.backlog.objects;
    let at = objects.find(object.kind, &object.uid);
    let object = at.and_then(|at| objects.get(at));
    object.is_some_and(|object| object.in_flight.is_some() || !object.waiting.is_empty())
}

impl Dispatcher {
    /// Sets the pod as the API shows it now. A waiting call without effect is dropped, and writes that the pod shows
    /// end.
    pub fn sync(&mut self, stored: &Arc<Pod>, now: Time) {
        if self.backlog.objects.find(Kind::Pod, stored.uid()).is_some() {
            self.sync_object(&Object::Pod(stored.clone()), now);
        }
    }

    /// Sets the object of any kind as the API shows it now; see [`Dispatcher::sync`].
    pub fn sync_object(&mut self, stored: &Object, now: Time) {
        let Some(at) = self
            .backlog
            .objects
            .find(stored.kind(), &stored.metadata().uid)
        else {
            return;
        };
        let Some(object) = self.backlog.objects.get_mut(at) else {
            return;
        };
        // A shown object exists, whatever was reported before.
        object.gone = false;
        let before = object.stored.replace(stored.clone());
        let is_same = |before: &Object| {
            before.metadata().resource_version == stored.metadata().resource_version
        };
        if let Object::Pod(pod) = stored {
            object.written.confirm(pod);
        }
        let is_all_shown = object.written.is_empty();
        let first = object.waiting.first();
        if first.is_some_and(|first| first.awaits_update) && !before.as_ref().is_some_and(is_same) {
            self.backlog.end_pause(at);
        }
        if is_all_shown {
            self.backlog.forget_written(at);
        }
        if let Some(before) = &before {
            self.backlog.drop_shown(at, before);
        }
        let message = match before {
            Some(_) => text::NO_EFFECT_AFTER_SYNC,
            None => text::NO_EFFECT,
        };
        self.drop_needless(at, message, now);
        self.backlog.tidy(at);
    }

    /// The writes to a pod that it does not show yet.
    pub fn writes(&self, uid: &str) -> Writes {
        let at = self.backlog.objects.find(Kind::Pod, uid);
        let object = at.and_then(|at| self.backlog.objects.get(at));
        object
            .map(super::object::TrackedObject::writes)
            .unwrap_or_default()
    }

    /// Returns whether the status of the pod is unknown: a status patch with an unknown result is retried or was given
    /// up, or a condition is being removed that another client may have written again.
    pub fn is_status_unclear(&self, uid: &str) -> bool {
        let at = self.backlog.objects.find(Kind::Pod, uid);
        let object = at.and_then(|at| self.backlog.objects.get(at));
        object.is_some_and(|object| {
            let mut changes = object.changes();
            let is_repeated = changes.any(|(entry, change)| {
                entry.unclear || change.condition == Some(ConditionChange::Clear)
            });
            is_repeated || object.has_refused_condition()
        })
    }

    /// Ends the assumption of old successful writes that were never seen. Returns the pods that look different now.
    pub fn expire(&mut self, now: Time) -> Vec<Str> {
        let mut changed = Vec::new();
        while let Some((time, at)) = self.backlog.expiries.first().copied() {
            if time > now {
                break;
            }
            self.backlog.forget_written(at);
            changed.extend(
                self.backlog
                    .objects
                    .get(at)
                    .map(|object| object.key.uid.clone()),
            );
            self.backlog.tidy(at);
        }
        changed
    }

    /// The object was deleted: unsent calls are dropped, and the call in flight is not retried.
    pub fn forget_object(&mut self, kind: Kind, uid: &str, now: Time) {
        let Some(at) = self.backlog.objects.find(kind, uid) else {
            return;
        };
        while let Some(entry) = self.backlog.take_first(at) {
            let result = match entry.call {
                // The desired state is reached.
                ApiCall::DeletePod { .. } => Ok(Response::default()),
                _ => skipped(text::GONE),
            };
            self.end(entry, result, now);
        }
        self.backlog.drop_later(at);
        self.backlog.forget_written(at);
        if let Some(object) = self.backlog.objects.get_mut(at) {
            object.stored = None;
            object.gone = true;
        }
        self.backlog.tidy(at);
    }

    /// Drops the waiting calls about an object for which `which` returns true; a call in flight cannot be cancelled.
    /// Returns the number of dropped calls.
    pub fn cancel(
        &mut self,
        object: &ObjectKey,
        which: impl Fn(&ApiCall) -> bool,
        now: Time,
    ) -> usize {
        let Some(at) = self.backlog.objects.find(object.kind, &object.uid) else {
            return 0;
        };
        let mut kept = Vec::new();
        let mut cancelled = 0;
        while let Some(entry) = self.backlog.take_first(at) {
            if which(&entry.call) {
                cancelled += 1;
                self.end(entry, skipped(text::CANCELLED), now);
            } else {
                kept.push(entry);
            }
        }
        for entry in kept {
            self.backlog.set_waiting(at, entry, None);
        }
        self.backlog.tidy(at);
        cancelled
    }
}
