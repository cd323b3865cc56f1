//! A small API server for the controllers' tests: objects in a map, with versions, generations, finalizers, grace
//! periods and watches like the real server; no defaults, no validation.

use super::runtime::WallClock;
use berth_objects::access::{
    Access, AccessError, DeleteOptions, GroupResource, KindInfo, Propagation, StoredObject,
    WatchedChange, WatchedChanges, gr,
};
use berth_objects::object::{self, ControllerKey, NAMESPACE, POD, items, seconds, set};
use berth_objects::strategy::{Subresource, keep_other_half};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

/// Decides whether a call fails: its verb, kind and object.
type Fault = Box<dyn FnMut(&str, GroupResource, &Value) -> Option<AccessError> + Send>;

#[derive(Default)]
struct State {
    version: u64,
    uid: u64,
    name: u64,
    objects: BTreeMap<(GroupResource, ControllerKey), StoredObject>,
    watchers: Vec<(GroupResource, mpsc::Sender<WatchedChange>)>,
    fault: Option<Fault>,
}

/// See the module.
pub(crate) struct Fake {
    state: Mutex<State>,
    clock: WallClock,
}

const fn kind(
    group: &'static str,
    resource: &'static str,
    kind: &'static str,
    namespaced: bool,
) -> KindInfo {
    KindInfo {
        resource: gr(group, resource),
        version: "v1",
        kind,
        namespaced,
    }
}

const KINDS: [KindInfo; 24] = [
    kind("", "services", "Service", true),
    kind("", "endpoints", "Endpoints", true),
    kind("discovery.k8s.io", "endpointslices", "EndpointSlice", true),
    kind("", "pods", "Pod", true),
    kind("", "nodes", "Node", false),
    kind("", "namespaces", "Namespace", false),
    kind("", "events", "Event", true),
    kind("", "configmaps", "ConfigMap", true),
    kind("", "serviceaccounts", "ServiceAccount", true),
    kind("coordination.k8s.io", "leases", "Lease", true),
    kind("apps", "deployments", "Deployment", true),
    kind("apps", "replicasets", "ReplicaSet", true),
    kind("apps", "statefulsets", "StatefulSet", true),
    kind("apps", "daemonsets", "DaemonSet", true),
    kind("apps", "controllerrevisions", "ControllerRevision", true),
    kind("", "replicationcontrollers", "ReplicationController", true),
    kind("batch", "jobs", "Job", true),
    kind("batch", "cronjobs", "CronJob", true),
    kind("", "persistentvolumes", "PersistentVolume", false),
    kind("", "persistentvolumeclaims", "PersistentVolumeClaim", true),
    kind(
        "policy",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        true,
    ),
    kind("storage.k8s.io", "storageclasses", "StorageClass", false),
    kind("resource.k8s.io", "resourceclaims", "ResourceClaim", true),
    kind(
        "resource.k8s.io",
        "resourceclaimtemplates",
        "ResourceClaimTemplate",
        true,
    ),
];

/// An API error with that code.
pub(crate) fn refused(code: u16, reason: &'static str, message: &str) -> AccessError {
    AccessError {
        code,
        reason,
        message: message.to_owned(),
    }
}

impl Fake {
    /// An empty server whose clock follows the timer of the runtime.
    pub(crate) fn new() -> Arc<Self> {
        let start = "2026-01-01T00:00:00Z".parse().unwrap_or_default();
        Arc::new(Self {
            state: Mutex::default(),
            clock: WallClock::virtual_from(start),
        })
    }

    /// The clock it stamps objects with.
    pub(crate) fn clock(&self) -> WallClock {
        self.clock.clone()
    }

    /// Makes calls fail.
    pub(crate) fn set_fault(
        &self,
        fault: impl FnMut(&str, GroupResource, &Value) -> Option<AccessError> + Send + 'static,
    ) {
        self.lock().fault = Some(Box::new(fault));
    }

    /// Closes every watch, as for a watcher that fell behind.
    pub(crate) fn close_watches(&self) {
        self.lock().watchers.clear();
    }

    /// Changes an object through its main resource, without a check of its version.
    pub(crate) fn edit(&self, kind: GroupResource, key: (&str, &str), change: impl Fn(&mut Value)) {
        let mut object = (*self.get(kind, key.0, key.1).expect("the object exists")).clone();
        change(&mut object);
        object["metadata"]["resourceVersion"].take();
        self.update(kind, object).expect("the change is accepted");
    }

    /// Changes the status of an object, without a check of its version.
    pub(crate) fn edit_status(
        &self,
        kind: GroupResource,
        key: (&str, &str),
        change: impl Fn(&mut Value),
    ) {
        let mut object = (*self.get(kind, key.0, key.1).expect("the object exists")).clone();
        change(&mut object);
        object["metadata"]["resourceVersion"].take();
        self.update_status(kind, object)
            .expect("the change is accepted");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn write(
        &self,
        kind: GroupResource,
        mut new: Value,
        subresource: Subresource,
    ) -> Result<StoredObject, AccessError> {
        let mut state = self.lock();
        let verb = match subresource {
            Subresource::Status => "update_status",
            _ => "update",
        };
        state.check(verb, kind, &new)?;
        let key = ControllerKey::of(&new);
        let old = state.find(kind, &key)?;
        let expected = &new["metadata"]["resourceVersion"];
        if !expected.is_null() && *expected != old["metadata"]["resourceVersion"] {
            return Err(refused(409, "Conflict", "the object has been modified"));
        }
        keep_other_half(&mut new, &old, subresource);
        if new["spec"] != old["spec"] {
            set(
                &mut new,
                &["metadata", "generation"],
                (object::generation(&old) + 1).into(),
            );
        }
        Ok(state.store(kind, new))
    }
}

impl State {
    fn check(
        &mut self,
        verb: &str,
        kind: GroupResource,
        object: &Value,
    ) -> Result<(), AccessError> {
        match self.fault.as_mut().and_then(|f| f(verb, kind, object)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn find(&self, kind: GroupResource, key: &ControllerKey) -> Result<StoredObject, AccessError> {
        self.objects
            .get(&(kind, key.clone()))
            .cloned()
            .ok_or_else(|| {
                refused(
                    404,
                    "NotFound",
                    &format!("{} {key} not found", kind.resource),
                )
            })
    }

    fn notify(&mut self, kind: GroupResource, change: &WatchedChange) {
        self.watchers
            .retain(|(k, sender)| *k != kind || sender.try_send(change.clone()).is_ok());
    }

    /// Stores the object, or removes it if its deletion is complete.
    fn store(&mut self, kind: GroupResource, mut object: Value) -> StoredObject {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let id = (kind, ControllerKey::of(&object));
        let waits = !items(&object["metadata"]["finalizers"]).is_empty()
            || object["metadata"]["deletionGracePeriodSeconds"].as_i64() > Some(0)
            || (kind == NAMESPACE.resource && !items(&object["spec"]["finalizers"]).is_empty());
        let object = Arc::new(object);
        let change = if object::is_deleting(&object) && !waits {
            self.objects.remove(&id);
            WatchedChange::Deleted(object.clone())
        } else if self.objects.insert(id, object.clone()).is_some() {
            WatchedChange::Modified(object.clone())
        } else {
            WatchedChange::Added(object.clone())
        };
        self.notify(kind, &change);
        object
    }
}

impl Access for Fake {
    fn get(
        &self,
        kind: GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<StoredObject, AccessError> {
        self.lock().find(kind, &ControllerKey::new(namespace, name))
    }

    fn list(&self, kind: GroupResource, namespace: Option<&str>) -> Vec<StoredObject> {
        self.lock()
            .objects
            .iter()
            .filter(|((k, key), _)| *k == kind && namespace.is_none_or(|n| *key.namespace == *n))
            .map(|(_, object)| object.clone())
            .collect()
    }

    fn create(&self, kind: GroupResource, mut object: Value) -> Result<StoredObject, AccessError> {
        let mut state = self.lock();
        state.check("create", kind, &object)?;
        if let Some(prefix) = object["metadata"]["generateName"].as_str()
            && object["metadata"]["name"].is_null()
        {
            state.name += 1;
            let name = format!("{prefix}{:05}", state.name);
            object["metadata"]["name"] = name.into();
        }
        let key = ControllerKey::of(&object);
        if state.objects.contains_key(&(kind, key.clone())) {
            let message = format!("{} \"{}\" already exists", kind.resource, key.name);
            return Err(refused(409, "AlreadyExists", &message));
        }
        let namespace = ControllerKey::new("", &key.namespace);
        if let Some(namespace) = state.objects.get(&(NAMESPACE.resource, namespace))
            && object::is_deleting(namespace)
        {
            let message = format!(
                "unable to create new content in namespace {} because it is being terminated",
                key.namespace
            );
            return Err(refused(403, "Forbidden", &message));
        }
        state.uid += 1;
        let uid = format!("uid-{}", state.uid);
        set(&mut object, &["metadata", "uid"], uid.into());
        set(&mut object, &["metadata", "generation"], 1.into());
        set(
            &mut object,
            &["metadata", "creationTimestamp"],
            seconds(self.clock.now()),
        );
        if kind == NAMESPACE.resource {
            set(&mut object, &["spec", "finalizers"], json!(["kubernetes"]));
            set(&mut object, &["status", "phase"], "Active".into());
        }
        if kind == POD.resource && object["status"]["phase"].is_null() {
            set(&mut object, &["status", "phase"], "Pending".into());
        }
        Ok(state.store(kind, object))
    }

    fn update(&self, kind: GroupResource, object: Value) -> Result<StoredObject, AccessError> {
        self.write(kind, object, Subresource::Main)
    }

    fn update_status(
        &self,
        kind: GroupResource,
        object: Value,
    ) -> Result<StoredObject, AccessError> {
        self.write(kind, object, Subresource::Status)
    }

    fn finalize_namespace(&self, namespace: Value) -> Result<StoredObject, AccessError> {
        let mut state = self.lock();
        state.check("finalize", NAMESPACE.resource, &namespace)?;
        state.find(NAMESPACE.resource, &ControllerKey::of(&namespace))?;
        Ok(state.store(NAMESPACE.resource, namespace))
    }

    fn delete(
        &self,
        kind: GroupResource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), AccessError> {
        let mut state = self.lock();
        let mut object = (*state.find(kind, &ControllerKey::new(namespace, name))?).clone();
        state.check("delete", kind, &object)?;
        if options
            .uid
            .as_deref()
            .is_some_and(|uid| uid != object::uid(&object))
        {
            return Err(refused(
                409,
                "Conflict",
                "the UID in the precondition is another one",
            ));
        }
        let bound = object["spec"]["nodeName"]
            .as_str()
            .is_some_and(|n| !n.is_empty());
        let mut grace = 0;
        if kind == POD.resource && bound {
            let own = object["spec"]["terminationGracePeriodSeconds"]
                .as_i64()
                .unwrap_or(30);
            grace = options.grace_period_seconds.unwrap_or(own);
        }
        let finalizer = match options.propagation {
            Propagation::Background => None,
            Propagation::Foreground => Some("foregroundDeletion"),
            Propagation::Orphan => Some("orphan"),
        };
        if let Some(finalizer) = finalizer
            && !object::has_finalizer(&object, finalizer)
        {
            let mut finalizers = items(&object["metadata"]["finalizers"]).to_vec();
            finalizers.push(finalizer.into());
            set(&mut object, &["metadata", "finalizers"], finalizers.into());
        }
        if !object::is_deleting(&object) {
            let at = self.clock.now() + jiff::SignedDuration::from_secs(grace);
            set(&mut object, &["metadata", "deletionTimestamp"], seconds(at));
        }
        set(
            &mut object,
            &["metadata", "deletionGracePeriodSeconds"],
            grace.into(),
        );
        if kind == NAMESPACE.resource {
            set(&mut object, &["status", "phase"], "Terminating".into());
        }
        state.store(kind, object);
        Ok(())
    }

    fn watch(&self, kind: GroupResource) -> Box<dyn WatchedChanges> {
        let mut state = self.lock();
        let initial: Vec<StoredObject> = state
            .objects
            .iter()
            .filter(|((k, _), _)| *k == kind)
            .map(|(_, object)| object.clone())
            .collect();
        let (sender, receiver) = mpsc::channel(initial.len() + 4096);
        for object in initial {
            _ = sender.try_send(WatchedChange::Added(object));
        }
        state.watchers.push((kind, sender));
        Box::new(FakeChanges(receiver))
    }

    fn kinds(&self) -> Vec<KindInfo> {
        KINDS.to_vec()
    }
}

struct FakeChanges(mpsc::Receiver<WatchedChange>);

impl WatchedChanges for FakeChanges {
    fn try_next(&mut self) -> Poll<Option<WatchedChange>> {
        match self.0.try_recv() {
            Ok(change) => Poll::Ready(Some(change)),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchedChange>> {
        self.0.poll_recv(cx)
    }
}

/// Lets the runtime's paused time run until `condition` holds, for ten minutes of that time at most.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within ten minutes");
}

/// Makes a pod run and be ready, from now on.
pub(crate) fn make_ready(api: &Fake, pod: &Value) {
    let now = seconds(api.clock().now());
    let key = (object::namespace(pod), object::name(pod));
    api.edit_status(POD.resource, key, |p| {
        p["status"] = json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": now}]});
    });
}

/// Lets `seconds` of the runtime's paused time pass.
pub(crate) async fn pass(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}
