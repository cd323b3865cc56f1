//! Writes of plugins from the decision until the API shows them, and waits for changes of objects.

use super::Scheduler;
use super::io::Assumption;
use berth_api::Time;
use berth_framework::call::ObjectName;
use berth_framework::stage::WakeReason;
use berth_framework::{ActionType, ApiCall, ClusterEvent, EventResource, Write};

impl Scheduler {
    /// Shows objects as plugins have assumed them, from now on.
    pub(super) fn note_assumptions(&mut self, now: Time) {
        for assumption in std::mem::take(&mut self.io.assumptions) {
            match assumption {
                Assumption::Made(write) => self.cache.assume_write(write),
                Assumption::TakenBack(write) => self.take_back(&write, now),
            }
        }
        for name in std::mem::take(&mut self.io.called_objects) {
            let stored = self.cache.object(name.kind, &name.namespace, &name.name);
            if let Some(stored) = stored {
                self.io.dispatcher.sync_object(stored, now);
            }
        }
    }

    /// A write will not be made. Pods that were rejected because of it are retried; kube-scheduler leaves them waiting
    /// for an event that may never come.
    fn take_back(&mut self, write: &Write, now: Time) {
        let call = ApiCall::from(write.clone());
        self.io
            .dispatcher
            .cancel(&write.key(), |other| *other == call, now);
        let Some((before, after)) = self.cache.take_back_write(write) else {
            return;
        };
        let resource = EventResource::of_kind(write.object().kind);
        let event = ClusterEvent::new(resource, ActionType::UPDATE);
        self.move_all(&event, Some(before), Some(after), None, now);
        self.object_changed(write.object(), now);
    }

    /// An object is new, changed or gone: whoever waits for that goes on.
    pub(super) fn object_changed(&mut self, object: &ObjectName, now: Time) {
        for wait in self.waits.for_object(object) {
            if let Some(waiter) = self.waits.end(wait) {
                self.wake(waiter, WakeReason::Object, now);
            }
        }
    }
}
