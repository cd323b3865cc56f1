//! The access of the controllers and kubelets of this process to the objects: the same path as HTTP requests
//! (defaulting, admission, validation, preconditions), without the socket.

use serde_json::Value;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A stored object. One version of an object is one allocation, shared by the store, lists and watchers. `fieldsV1` in
/// its `managedFields` is the text of the JSON.
pub type StoredObject = Arc<Value>;

/// A kind by its resource name (`pods`, `deployments`) and group (empty for core).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// The API group, empty for the core group.
    pub group: &'static str,
    /// The plural, lower-case resource name.
    pub resource: &'static str,
}

/// Shorthand for [`GroupResource`].
pub const fn gr(group: &'static str, resource: &'static str) -> GroupResource {
    GroupResource { group, resource }
}

/// A change that a watch delivers.
#[derive(Debug, Clone)]
pub enum WatchedChange {
    /// The object is new, or exists at the start of the watch.
    Added(StoredObject),
    /// The object has changed.
    Modified(StoredObject),
    /// The object was deleted; its last state.
    Deleted(StoredObject),
}

/// The receiving end of a watch.
pub trait WatchedChanges: Send {
    /// The next change, if available; `Ready(None)` when the watch has ended.
    fn try_next(&mut self) -> Poll<Option<WatchedChange>>;

    /// The next change; `Ready(None)` when the watch has ended.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchedChange>>;
}

impl dyn WatchedChanges {
    /// The next change; `None` when the watch has ended.
    pub async fn next(&mut self) -> Option<WatchedChange> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

/// The effect of a deletion on the objects that this one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Propagation {
    /// The owner is deleted first; the garbage collector removes its dependants.
    #[default]
    Background,
    /// The owner stays until all its dependants are deleted.
    Foreground,
    /// Each dependant loses its owner reference and stays.
    Orphan,
}

/// The options of a deletion.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// The grace period in seconds; the default is the kind's.
    pub grace_period_seconds: Option<i64>,
    /// Delete only the object with this UID.
    pub uid: Option<String>,
    /// The handling of dependants.
    pub propagation: Propagation,
}

/// The reason why a request failed, as an API `Status`.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct AccessError {
    /// The HTTP code: 404 not found, 409 conflict or already there, 422 invalid, …
    pub code: u16,
    /// The machine-readable reason, such as `NotFound`, `AlreadyExists`, `Conflict`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl AccessError {
    /// Returns whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Returns whether the write was rejected because its namespace is being deleted. A retry is pointless.
    pub fn is_namespace_terminating(&self) -> bool {
        self.code == 403 && self.message.contains("because it is being terminated")
    }

    /// Returns whether another client wrote the object first. The caller reads it again and retries.
    pub fn is_conflict(&self) -> bool {
        self.code == 409
    }
}

/// The result of a write, without the error for a deleted object.
///
/// # Errors
/// Every error but 404.
pub fn unless_not_found<T>(result: Result<T, AccessError>) -> Result<(), AccessError> {
    match result {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// In-process access to every kind. No call waits for I/O; each is as atomic as its HTTP counterpart.
pub trait Access: Send + Sync + 'static {
    /// One object.
    ///
    /// # Errors
    /// 404 when it is not there.
    fn get(
        &self,
        kind: GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<StoredObject, AccessError>;

    /// All objects of a kind, of one namespace or (with `None`) of all, in name order.
    fn list(&self, kind: GroupResource, namespace: Option<&str>) -> Vec<StoredObject>;

    /// Creates `object`; its namespace and name are in its metadata.
    ///
    /// # Errors
    /// 409 when it exists, 422 when it is invalid, 403 when its namespace is terminating.
    fn create(&self, kind: GroupResource, object: Value) -> Result<StoredObject, AccessError>;

    /// Replaces an object. With a `metadata.resourceVersion` the write needs that version to be current.
    ///
    /// # Errors
    /// 404, 409 on another version, 422.
    fn update(&self, kind: GroupResource, object: Value) -> Result<StoredObject, AccessError>;

    /// As [`Access::update`] for the `status` subresource.
    ///
    /// # Errors
    /// 404, 409 on another version, 422.
    fn update_status(
        &self,
        kind: GroupResource,
        object: Value,
    ) -> Result<StoredObject, AccessError>;

    /// Replaces `spec.finalizers` of a namespace, as its `finalize` subresource does. A namespace that is being
    /// deleted and has no finalizer of either sort left is removed after that.
    ///
    /// # Errors
    /// 404, 409 on another version.
    fn finalize_namespace(&self, namespace: Value) -> Result<StoredObject, AccessError>;

    /// Deletes an object: at once, or by marking it when it has finalizers or a grace period.
    ///
    /// # Errors
    /// 404; 409 if the UID differs.
    fn delete(
        &self,
        kind: GroupResource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), AccessError>;

    /// All objects of a kind as `Added`, then every change of them, in order and without a gap. The channel is bounded;
    /// when a watcher falls too far behind, the channel closes and the watcher starts again.
    fn watch(&self, kind: GroupResource) -> Box<dyn WatchedChanges>;

    /// Every kind that is served, for the garbage collector and the namespace controller.
    fn kinds(&self) -> Vec<KindInfo>;
}

/// A served kind.
#[derive(Debug, Clone, Copy)]
pub struct KindInfo {
    /// Group and resource.
    pub resource: GroupResource,
    /// Version, such as `v1`.
    pub version: &'static str,
    /// The kind, such as `Pod`.
    pub kind: &'static str,
    /// Whether objects are namespaced.
    pub namespaced: bool,
}

/// The number of names of custom resources that are kept for the life of the process.
const INTERNED_MAX: usize = 100_000;

/// A name with static lifetime. Names of custom resources are few and recur, so each is kept once. Beyond a limit that
/// no real cluster reaches, all further names are replaced by one.
#[allow(clippy::disallowed_types)] // Names are kept behind a lock that is held for one lookup.
pub(crate) fn intern(name: &str) -> &'static str {
    use std::collections::HashSet;
    use std::sync::{Mutex, PoisonError};
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_with(HashSet::new);
    if let Some(known) = names.get(name) {
        return known;
    }
    if names.len() >= INTERNED_MAX {
        return "too-many-names";
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(name);
    name
}
