//! The handling of the objects of a kind on their way into the store.

use crate::field::FieldError;
use crate::view::{FieldView, copy_field};
use serde_json::Value;

/// The part of an object that a request writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// The object itself, without its status.
    Main,
    /// `…/status`: only the status (and the metadata where the kind allows it).
    Status,
    /// `pods/resize`: the resources of containers and of the pod.
    Resize,
    /// `pods/ephemeralcontainers`.
    EphemeralContainers,
    /// `certificatesigningrequests/approval`: the conditions of the status.
    Approval,
}

/// The outcome of checking a change of an object.
#[derive(Debug, Clone, Default)]
pub struct CheckedUpdate {
    /// The faults that reject the change.
    pub errors: Vec<FieldError>,
    /// The faults that the object had before and may keep, for the client.
    pub warnings: Vec<String>,
}

/// The rules of one kind. The defaults of the methods are for kinds without rules.
///
/// The order on create: `default`, `prepare_for_create`, `validate`. On update: `default`,
/// `prepare_for_update`, `check_update`. `now` is the time of the request, RFC 3339 with seconds, as it is written
/// into objects.
pub trait KindStrategy: Send + Sync {
    /// Fills in defaults, as upstream's v1 defaulting does.
    fn default(&self, _object: &mut Value) {}

    /// The same for an object that is known to be in its normal form.
    fn default_normal(&self, object: &mut Value) {
        self.default(object);
    }

    /// Drops or sets fields that a client may not choose at creation (status and generation are handled generically).
    fn prepare_for_create(&self, _object: &mut Value, _now: &str) {}

    /// Errors of a new object, in upstream's order. Metadata is checked generically.
    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Restores the fields that a client may not change: for `Main` the status of `old`, for `Status` its spec.
    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, _now: &str) {
        keep_other_half(new, old, part);
    }

    /// Errors of a change, in upstream's order. The default are the errors of a new object; kinds can have other rules.
    /// Metadata is checked generically.
    fn validate_update(&self, new: &Value, _old: &Value, _part: Subresource) -> Vec<FieldError> {
        self.validate(new)
    }

    /// As [`KindStrategy::validate_update`], with the faults that an object may keep.
    fn check_update(&self, new: &Value, old: &Value, part: Subresource) -> CheckedUpdate {
        CheckedUpdate {
            errors: self.validate_update(new, old, part),
            warnings: Vec::new(),
        }
    }

    /// The grace period in seconds if the deletion of this object waits (a pod that a node still runs), or `None` if it
    /// is deleted at once. `requested` is the client's `gracePeriodSeconds`.
    fn grace_period_seconds(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }
}

/// A kind without special rules.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl KindStrategy for Plain {}

/// The metadata that a write of the status keeps, by kind.
const KEPT_BY_STATUS: [(&str, &[&str]); 7] = [
    ("APIService", RESET),
    ("CompositePodGroup", RESET),
    ("Deployment", &["labels"]),
    ("DeviceTaintRule", RESET),
    ("PodGroup", RESET),
    ("ResourceClaim", RESET),
    ("ValidatingAdmissionPolicy", RESET),
];
const RESET: &[&str] = &["annotations", "finalizers", "labels", "ownerReferences"];

/// Returns whether a write of the status of this kind keeps all of its metadata.
pub(crate) fn status_keeps_metadata(kind: &str) -> bool {
    KEPT_BY_STATUS.contains(&(kind, RESET))
}

/// The usual division of an object: a write of the object keeps the old status, a write of the status keeps the rest of
/// the object and, for most kinds, the metadata.
pub fn keep_other_half(new: &mut Value, old: &Value, subresource: Subresource) {
    if subresource != Subresource::Status {
        copy_field(new, old, "status");
        return;
    }
    let kind = old.text("kind");
    let kept = KEPT_BY_STATUS.iter().find(|(known, _)| *known == kind);
    let (Value::Object(sent), Value::Object(stored)) = (&mut *new, old) else {
        return *new = old.clone();
    };
    let is_sent = |name: &str| matches!(name, "metadata" | "status");
    sent.retain(|name, value| {
        if is_sent(name) {
            !value.is_null()
        } else {
            stored.contains_key(name)
        }
    });
    // Most clients send immutable fields as they are stored.
    for (name, value) in stored.iter().filter(|(name, _)| !is_sent(name)) {
        if sent.get(name) != Some(value) {
            sent.insert(name.clone(), value.clone());
        }
    }
    for field in kept.map_or(&[][..], |(_, fields)| fields) {
        copy_field(&mut new["metadata"], &old["metadata"], field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_write_of_the_status_changes_nothing_else_whatever_it_sends() {
        let old = json!({"apiVersion": "v1", "kind": "ResourceClaim",
            "metadata": {"name": "c", "labels": {"a": "1"}}, "spec": {"x": 1}, "status": {"y": 1}});
        let status = json!({"y": 2});
        for (what, sent) in [
            (
                "all of it",
                json!({"apiVersion": "v1", "kind": "ResourceClaim",
                "metadata": {"name": "c", "labels": {"a": "1"}}, "spec": {"x": 1}, "status": status}),
            ),
            (
                "another spec and labels",
                json!({"apiVersion": "v1", "kind": "ResourceClaim",
                "metadata": {"name": "c", "labels": {"a": "2"}}, "spec": {"x": 2}, "status": status}),
            ),
            (
                "no spec",
                json!({"metadata": {"name": "c"}, "status": status}),
            ),
            (
                "more fields",
                json!({"metadata": {"name": "c"}, "data": {}, "status": status}),
            ),
        ] {
            let mut new = sent;
            keep_other_half(&mut new, &old, Subresource::Status);
            let mut expected = old.clone();
            expected["status"] = status.clone();
            assert_eq!(new, expected, "{what}");
        }
        let mut new = json!({"metadata": {"name": "c"}, "spec": {"x": 2}, "status": null});
        keep_other_half(&mut new, &old, Subresource::Status);
        assert_eq!((&new["spec"], new.get("status")), (&old["spec"], None));
    }
}
