//! The objects of the cluster, as shown by the API with the writes of this scheduler. Each change is made in the cache
//! and in the dispatcher together.

use super::{CallObject, Core};
use crate::cache::PodChange;
use berth_api::{Kind, Object, Pod, Str};
use berth_framework::ApiCall;
use berth_framework::call::CallId;
use std::sync::Arc;

impl Core {
    /// Passes a call to the dispatcher.
    pub(crate) fn call(&mut self, call: ApiCall) -> CallId {
        self.calls.make(call, self.framework.clock.now())
    }

    /// Passes the calls that plugins have requested to the dispatcher.
    pub(crate) fn make_requested_calls(&mut self) {
        let (requests, now) = (&mut self.framework.requests, self.framework.clock.now());
        self.calls.make_requested(requests, now);
    }

    /// Stores a pod as the API shows it.
    pub(crate) fn store_pod(&mut self, pod: &Arc<Pod>) -> PodChange {
        let dispatcher = self.calls.dispatcher_mut();
        dispatcher.sync(pod, self.framework.clock.now());
        let writes = dispatcher.writes(pod.uid());
        self.framework.cache.set_pod(pod.clone(), writes)
    }

    /// The pod was deleted. Returns it with the changes of our calls.
    pub(crate) fn remove_pod(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let effective = self.framework.cache.remove_pod(uid);
        let dispatcher = self.calls.dispatcher_mut();
        dispatcher.forget_object(Kind::Pod, uid, self.framework.clock.now());
        self.explanations.forget(uid);
        effective
    }

    /// Stores an object other than a pod or node, as the API shows it. Returns the former and the new object, both with
    /// the changes of our calls.
    pub(crate) fn store_object(&mut self, object: &Object) -> (Option<Object>, Object) {
        let now = self.framework.clock.now();
        let (old, new) = self.framework.cache.set_object(object.clone());
        let dispatcher = self.calls.dispatcher_mut();
        dispatcher.sync_object(object, now);
        if let Some(old) = old.as_ref().map(Object::metadata)
            && old.uid != new.metadata().uid
        {
            dispatcher.forget_object(object.kind(), &old.uid, now);
        }
        (old, new)
    }

    /// Such an object was deleted. Returns it with the changes of our calls.
    pub(crate) fn remove_object(
        &mut self,
        kind: Kind,
        namespace: &Str,
        name: &Str,
    ) -> Option<Object> {
        let object = self.framework.cache.remove_object(kind, namespace, name)?;
        let dispatcher = self.calls.dispatcher_mut();
        dispatcher.forget_object(kind, &object.metadata().uid, self.framework.clock.now());
        Some(object)
    }

    /// Calls were made about an object: the dispatcher compares them with the stored one.
    pub(crate) fn sync_stored(&mut self, made: &CallObject) {
        let now = self.framework.clock.now();
        let dispatcher = self.calls.dispatcher_mut();
        match made {
            CallObject::Pod(uid) => {
                if let Some(stored) = self.framework.cache.stored(uid) {
                    dispatcher.sync(stored, now);
                }
            }
            CallObject::Object(name) => {
                let stored = self
                    .framework
                    .cache
                    .object(name.kind, &name.namespace, &name.name);
                if let Some(stored) = stored {
                    dispatcher.sync_object(stored, now);
                }
            }
        }
    }

    /// Shows the pod from now on with the changes of our calls. Returns the former and the new one, if they differ.
    pub(crate) fn show_writes(&mut self, uid: &str) -> Option<(Arc<Pod>, Arc<Pod>)> {
        let before = self.framework.cache.effective(uid).cloned();
        let writes = self.calls.dispatcher().writes(uid);
        self.framework.cache.set_writes(uid, writes);
        let (before, after) = (before?, self.framework.cache.effective(uid)?.clone());
        (!Arc::ptr_eq(&before, &after)).then_some((before, after))
    }
}
