//! The API calls that the core makes, until their results are in.

use berth_api::{Str, Time};
use berth_dispatcher::Dispatcher;
use berth_framework::call::CallId;
use berth_framework::object_name::{ObjectKey, ObjectName};
use berth_framework::{ApiCall, Write};
use rustc_hash::FxHashMap;

/// The object of a call, which the cache does not know yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallObject {
    /// A pod, by UID.
    Pod(Str),
    /// Another object.
    Object(ObjectName),
}

/// The dispatcher, with the core's follow-up work for its calls.
#[derive(Debug)]
pub(crate) struct Calls {
    dispatcher: Dispatcher,
    made: Vec<CallObject>,
    /// Writes that their plugin has given up, but that the API may still perform or have performed. They are assumed
    /// until the last call about their object has ended.
    given_up: FxHashMap<ObjectKey, Write>,
}

impl Calls {
    pub(super) fn new(dispatcher: Dispatcher) -> Self {
        Self {
            dispatcher,
            made: Vec::new(),
            given_up: FxHashMap::default(),
        }
    }

    /// Passes a call to the dispatcher.
    pub(crate) fn make(&mut self, call: ApiCall, now: Time) -> CallId {
        self.made.push(match call.pod() {
            Some(pod) => CallObject::Pod(pod.uid.clone()),
            None => CallObject::Object(call.object()),
        });
        self.dispatcher.enqueue(call, now)
    }

    /// Passes a report of PreEnqueue to the dispatcher; see [`Dispatcher::report`].
    pub(crate) fn report(&mut self, call: ApiCall, due: Time, now: Time) {
        if let Some(pod) = call.pod() {
            self.made.push(CallObject::Pod(pod.uid.clone()));
        }
        self.dispatcher.report(call, due, now);
    }

    pub(crate) fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    /// The dispatcher, for everything but new calls.
    pub(crate) fn dispatcher_mut(&mut self) -> &mut Dispatcher {
        &mut self.dispatcher
    }

    /// The objects of the calls made since the last time.
    pub(crate) fn take_made(&mut self) -> Vec<CallObject> {
        std::mem::take(&mut self.made)
    }

    /// A plugin has given up a write: it stays assumed while there are calls about its object.
    pub(crate) fn keep_given_up(&mut self, write: Write) {
        self.given_up.insert(write.key(), write);
    }

    /// The given-up write to an object.
    pub(crate) fn given_up(&self, key: &ObjectKey) -> Option<&Write> {
        self.given_up.get(key)
    }

    /// The given-up write to an object is not assumed any longer.
    pub(crate) fn forget_given_up(&mut self, key: &ObjectKey) -> Option<Write> {
        self.given_up.remove(key)
    }
}
