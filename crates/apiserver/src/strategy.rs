//! What a kind does with its objects on their way into the store.

use crate::field::FieldError;
use serde_json::Value;

/// The part of an object that a request writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// The object itself: everything but its status.
    Main,
    /// `…/status`: nothing but its status (and its metadata where the kind allows it).
    Status,
}

/// What the strategies may know about a request besides its object.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// The time of the request, RFC 3339 with seconds, as it is written into objects.
    pub now: String,
    /// The namespace of the request; empty for cluster-scoped kinds.
    pub namespace: String,
}

/// The rules of one kind. Each method has the default that suits a kind without rules of its own.
///
/// The order on create: `default`, `prepare_for_create`, `validate`. On update: `default`,
/// `prepare_for_update`, `validate_update`.
pub trait Strategy: Send + Sync {
    /// Fills in defaults, as upstream's v1 defaulting does.
    fn default(&self, _object: &mut Value) {}

    /// Drops or sets what a client may not choose at creation (status, generation is done generically).
    fn prepare_for_create(&self, _object: &mut Value, _cx: &RequestContext) {}

    /// Errors of a new object, in upstream's order. Metadata is checked generically.
    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Carries over what a client may not change: for `Main` the status of `old`, for `Status` its spec.
    fn prepare_for_update(
        &self,
        new: &mut Value,
        old: &Value,
        subresource: Subresource,
        _cx: &RequestContext,
    ) {
        keep_other_half(new, old, subresource);
    }

    /// Errors of a change, in upstream's order: those of a new object, unless the kind has rules of its own. Metadata
    /// is checked generically.
    fn validate_update(
        &self,
        new: &Value,
        _old: &Value,
        _subresource: Subresource,
    ) -> Vec<FieldError> {
        self.validate(new)
    }

    /// Whether deleting this object waits (a pod that a node still runs): the grace period in seconds, or
    /// `None` when it goes at once. `requested` is the client's `gracePeriodSeconds`.
    fn grace_period_seconds(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }
}

/// A kind without rules of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Strategy for Plain {}

/// The usual division of an object: a write of the object keeps the old status, a write of the status keeps
/// everything but the status.
pub fn keep_other_half(new: &mut Value, old: &Value, subresource: Subresource) {
    match subresource {
        Subresource::Main => {
            if let Some(object) = new.as_object_mut() {
                match old.get("status") {
                    Some(status) => object.insert("status".to_owned(), status.clone()),
                    None => object.remove("status"),
                };
            }
        }
        Subresource::Status => {
            let status = new.get("status").cloned();
            let metadata = new.get("metadata").cloned();
            *new = old.clone();
            if let Some(object) = new.as_object_mut() {
                match status {
                    Some(status) => object.insert("status".to_owned(), status),
                    None => object.remove("status"),
                };
                if let Some(version) = metadata
                    .as_ref()
                    .and_then(|m| m.get("resourceVersion"))
                    .cloned()
                {
                    object["metadata"]["resourceVersion"] = version;
                }
            }
        }
    }
}
