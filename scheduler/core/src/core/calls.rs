//! The API calls that the core makes, until their results are in.

use super::requests::{CallRequest, PluginRequests};
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
    /// The last call.
    last: Option<CallId>,
    /// Writes that their plugin has given up, but that the API may still perform or have performed. They are assumed
    /// until the last call about their object has ended.
    given_up: FxHashMap<ObjectKey, Write>,
}

impl Calls {
    pub(super) fn new(dispatcher: Dispatcher) -> Self {
        Self {
            dispatcher,
            made: Vec::new(),
            last: None,
            given_up: FxHashMap::default(),
        }
    }

    /// Passes a call to the dispatcher.
    pub(crate) fn make(&mut self, call: ApiCall, now: Time) -> CallId {
        self.note_object(&call);
        let id = self.dispatcher.enqueue(call, now);
        self.note_order(id);
        id
    }

    /// Passes the requests of plugins about calls to the dispatcher, in their order. This precedes every other change of
    /// the dispatcher after a run of plugins.
    pub(crate) fn make_requested(&mut self, requests: &mut PluginRequests, now: Time) {
        for request in requests.take_calls() {
            match request {
                CallRequest::Make(id, call) => {
                    self.note_object(&call);
                    self.note_order(id);
                    self.dispatcher.enqueue_as(id, call, now);
                }
                CallRequest::Cancel(write) => self.cancel(&write, now),
            }
        }
    }

    /// Drops the unsent call that makes a write.
    pub(crate) fn cancel(&mut self, write: &Write, now: Time) {
        let (key, call) = (write.key(), ApiCall::from(write.clone()));
        self.dispatcher.cancel(&key, |other| *other == call, now);
    }

    fn note_object(&mut self, call: &ApiCall) {
        self.made.push(match call.pod() {
            Some(pod) => CallObject::Pod(pod.uid.clone()),
            None => CallObject::Object(call.object()),
        });
    }

    fn note_order(&mut self, id: CallId) {
        debug_assert!(self.last < Some(id), "calls are made in their order");
        self.last = Some(id);
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
