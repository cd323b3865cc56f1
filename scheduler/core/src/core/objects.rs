//! The objects of the cluster, as the API shows them with what this scheduler writes: each change is made in the
//! cache and in the dispatcher together.

use super::{CallObject, Core};
use crate::cache::{CacheError, PodChange};
use berth_api::{Kind, Object, Pod, Str};
use berth_framework::{PodInfo, Write};
use std::sync::Arc;

impl Core {
    /// Stores a pod as the API shows it.
    pub(crate) fn store_pod(&mut self, pod: &Arc<Pod>) -> PodChange {
        let dispatcher = self.calls.dispatcher_mut();
        dispatcher.sync(pod, self.clock.now());
        let writes = dispatcher.writes(pod.uid());
        self.cache.set_pod(pod.clone(), writes)
    }

    /// The pod was deleted. Returns it with what our calls wrote.
    pub(crate) fn remove_pod(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let effective = self.cache.remove_pod(uid);
        let dispatcher = self.calls.dispatcher_mut();
        dispatcher.forget_object(Kind::Pod, uid, self.clock.now());
        self.explanations.forget(uid);
        effective
    }

    /// Stores an object of another kind than pod and node, as the API shows it. Returns the former and the new one, both with
    /// the changes of our calls.
    pub(crate) fn store_object(&mut self, object: &Object) -> (Option<Object>, Object) {
        let now = self.clock.now();
        let (old, new) = self.cache.set_object(object.clone());
        let dispatcher = self.calls.dispatcher_mut();
        dispatcher.sync_object(object, now);
        if let Some(old) = old.as_ref().map(Object::metadata)
            && old.uid != new.metadata().uid
        {
            dispatcher.forget_object(object.kind(), &old.uid, now);
        }
        (old, new)
    }

    /// Such an object was deleted. Returns it with what our calls wrote.
    pub(crate) fn remove_object(
        &mut self,
        kind: Kind,
        namespace: &Str,
        name: &Str,
    ) -> Option<Object> {
        let object = self.cache.remove_object(kind, namespace, name)?;
        let dispatcher = self.calls.dispatcher_mut();
        dispatcher.forget_object(kind, &object.metadata().uid, self.clock.now());
        Some(object)
    }

    /// Calls were made about an object: the dispatcher compares them with the stored one.
    pub(crate) fn sync_stored(&mut self, made: &CallObject) {
        let now = self.clock.now();
        let dispatcher = self.calls.dispatcher_mut();
        match made {
            CallObject::Pod(uid) => {
                if let Some(stored) = self.cache.stored(uid) {
                    dispatcher.sync(stored, now);
                }
            }
            CallObject::Object(name) => {
                let stored = self.cache.object(name.kind, &name.namespace, &name.name);
                if let Some(stored) = stored {
                    dispatcher.sync_object(stored, now);
                }
            }
        }
    }

    /// Shows the pod from now on with the changes of our calls. Returns the former and the new one, if they differ.
    pub(crate) fn show_writes(&mut self, uid: &str) -> Option<(Arc<Pod>, Arc<Pod>)> {
        let before = self.cache.effective(uid).cloned();
        let writes = self.calls.dispatcher().writes(uid);
        self.cache.set_writes(uid, writes);
        let (before, after) = (before?, self.cache.effective(uid)?.clone());
        (!Arc::ptr_eq(&before, &after)).then_some((before, after))
    }

    /// Shows an object from now on as if a write had been made.
    pub(crate) fn assume_write(&mut self, write: Write) {
        self.cache.assume_write(write);
    }

    /// Shows an object without the write, which is not made. Returns the former and the new one, if the object is known.
    pub(crate) fn revert_write(&mut self, write: &Write) -> Option<(Object, Object)> {
        self.cache.revert_write(write)
    }

    /// Counts a pod on its node from now on, as if it were bound.
    ///
    /// # Errors
    /// When it is counted already, or not known.
    pub(crate) fn assume(
        &mut self,
        pod: &Arc<Pod>,
        node: &Str,
    ) -> Result<Arc<PodInfo>, CacheError> {
        self.cache.assume(pod, node)
    }

    /// The pod is no longer counted on its node. Returns it as it was counted.
    ///
    /// # Errors
    /// When it was bound meanwhile.
    pub(crate) fn forget(&mut self, uid: &str, node: &Str) -> Result<Option<Arc<Pod>>, CacheError> {
        self.cache.forget(uid, node)
    }

    /// From now on, PreEnqueue rejects the pod, as victims are evicted for it.
    pub(crate) fn begins_to_preempt(&mut self, uid: &Str) {
        self.cache.cluster_mut().preempting.insert(uid.clone());
    }

    /// Victims are not evicted for the pod any more.
    pub(crate) fn ends_to_preempt(&mut self, uid: &str) {
        self.cache.cluster_mut().preempting.remove(uid);
    }
}
