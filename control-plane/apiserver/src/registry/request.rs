//! The inputs and results of writes and deletions.

use super::requester::Requester;
use crate::storage::ObjectVersion;
use berth_objects::access::{Propagation, gr};
use berth_objects::body::{Encoding, WriteBody};
use berth_objects::catalog::ServedResource;
use berth_objects::decode::{self, FieldValidation};
use berth_objects::field::ErrorType;
use berth_objects::schema::GroupVersionKind;
use berth_objects::status::{ApiError, StatusSubject, bad_option};
use berth_objects::strategy::Subresource;
use berth_objects::view::{FieldView, meta};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The maximum size of the body of a request, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The maximum length of the name of a field manager, in bytes.
pub(crate) const MANAGER_BYTES_MAX: usize = 128;

/// The options of a write.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// All steps except storing.
    pub dry_run: bool,
    /// The handling of unknown fields.
    pub validation: FieldValidation,
    /// The name under which `metadata.managedFields` lists the writer.
    pub manager: String,
    /// Whether the request states the manager.
    pub is_manager_stated: bool,
    /// Server-side apply takes fields from other managers.
    pub force: bool,
    /// The sender.
    pub requester: Arc<Requester>,
}

/// The result of a write.
#[derive(Debug, Clone)]
pub struct WriteResult {
    /// The object as it is now.
    pub version: Arc<ObjectVersion>,
    /// The warnings for the client.
    pub warnings: Vec<String>,
}

/// The inputs of an update.
pub(crate) struct UpdateInputs<'a> {
    pub(crate) resource: &'a ServedResource,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The subresource of the request, empty for the object itself.
    pub(crate) sub: &'a str,
    pub(crate) options: &'a WriteOptions,
    pub(crate) by: Method,
    /// Whether the new object was decoded for this request and is therefore normalized.
    pub(crate) is_decoded: bool,
}

/// The method of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// A replacement, with the UID as a precondition.
    Put,
    /// A patch, which must not change the UID.
    Patch,
    /// Server-side apply: as a patch, and the new object lists its managers already.
    Apply,
}

impl UpdateInputs<'_> {
    /// The half of the object that the request writes.
    pub(super) fn half(&self) -> Subresource {
        match self.sub {
            "status" => Subresource::Status,
            "resize" => Subresource::Resize,
            "ephemeralcontainers" => Subresource::EphemeralContainers,
            "approval" => Subresource::Approval,
            _ => Subresource::Main,
        }
    }

    /// The verb of the request.
    pub(super) fn verb(&self) -> &'static str {
        match self.by {
            Method::Put => "update",
            Method::Patch | Method::Apply => "patch",
        }
    }
}

/// The namespace of a request, as webhooks see it: a namespace is in itself.
pub(super) fn namespace_of<'a>(
    resource: &ServedResource,
    namespace: &'a str,
    name: &'a str,
) -> &'a str {
    if resource.resource == gr("", "namespaces") {
        name
    } else {
        namespace
    }
}

const ORPHAN: &str = "orphan";

const FOREGROUND: &str = "foregroundDeletion";

/// No pod is given longer than this to end.
pub(super) const GRACE_SECONDS_MAX: i64 = 10 * 365 * 24 * 3600;

/// The conditions on the object that is to be deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// Its UID.
    pub uid: Option<String>,
    /// Its version.
    pub resource_version: Option<String>,
}

/// The way to delete.
#[derive(Debug, Clone, Default)]
pub struct DeleteRequest {
    /// The grace period in seconds; the default is the kind's.
    pub grace_period_seconds: Option<i64>,
    /// The preconditions.
    pub preconditions: Preconditions,
    /// The handling of dependants; the default follows from the object's finalizers.
    pub propagation: Option<Propagation>,
    /// All steps except deleting.
    pub dry_run: bool,
    /// The sender.
    pub requester: Arc<Requester>,
    /// Whether webhooks have admitted the request behind the deletion, such as an eviction.
    pub is_admitted: bool,
}

/// The time between the two writes of a deletion without grace, which clients and controllers of kube-apiserver see: it
/// stores the mark, then removes the object. Controllers that act on `deletionTimestamp` read the object in between.
pub(crate) const REMOVAL_DELAY: Duration = Duration::from_millis(2);

/// The progress of a deletion.
#[derive(Debug, Clone)]
pub struct Deletion {
    /// The object's last or present state.
    pub version: Arc<ObjectVersion>,
    /// Whether the object was removed.
    pub gone: bool,
    /// Whether the object is marked and has no finalizers: the next step removes it.
    pub is_removed_next: bool,
}

impl DeleteRequest {
    /// Reads `DeleteOptions` from a body, which may be empty, and from query parameters for missing fields.
    ///
    /// # Errors
    /// 400 for a body that is not `DeleteOptions`, 422 for contradictions.
    pub fn parse(
        body: Option<WriteBody<'_>>,
        query: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ApiError> {
        let options = match body {
            Some(body) if !body.bytes.is_empty() => {
                // Clients of every group send these options under their own version or under `v1`.
                let (mut value, _) = body.parse("DeleteOptions")?;
                if let Some(map) = value.as_object_mut() {
                    map.insert("apiVersion".to_owned(), "v1".into());
                }
                let text = value.to_string();
                let body = WriteBody {
                    bytes: text.as_bytes(),
                    encoding: Encoding::Json,
                };
                decode::of_kind(
                    GroupVersionKind::new("", "v1", "DeleteOptions"),
                    body,
                    FieldValidation::Ignore,
                )?
                .0
            }
            _ => json!({}),
        };
        let grace = match options.maybe_int("gracePeriodSeconds") {
            Some(seconds) => Some(seconds),
            None => match query("gracePeriodSeconds") {
                Some(text) => Some(text.parse().map_err(|_| {
                    ApiError::bad_request(format!(
                        "invalid gracePeriodSeconds {text:?}: it must be a number"
                    ))
                })?),
                None => None,
            },
        };
        let text = |field: &str| {
            options
                .get(field)
                .and_then(Value::as_str)
                .map(str::to_owned)
                .or_else(|| query(field))
        };
        let orphan = match options.maybe_flag("orphanDependents") {
            Some(orphan) => Some(orphan),
            None => query("orphanDependents").map(|text| text == "true"),
        };
        let propagation = match (text("propagationPolicy").as_deref(), orphan) {
            (Some(_), Some(_)) => {
                return Err(bad_option(
                    "DeleteOptions",
                    "propagationPolicy",
                    ErrorType::Invalid,
                    text("propagationPolicy").map(|p| format!("{p:?}")),
                    "orphanDependents and deletionPropagation cannot be both set",
                ));
            }
            (Some("Background"), None) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), None) => Some(Propagation::Foreground),
            (Some("Orphan"), None) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some(other), None) => {
                return Err(bad_option(
                    "DeleteOptions",
                    "propagationPolicy",
                    ErrorType::NotSupported,
                    Some(format!("{other:?}")),
                    "supported values: \"Background\", \"Foreground\", \"Orphan\"",
                ));
            }
            (None, None) => None,
        };
        let dry_run = options.get("dryRun").and_then(Value::as_array);
        let precondition = |field: &str| {
            options
                .get("preconditions")
                .and_then(|p| p.get(field))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        Ok(Self {
            grace_period_seconds: grace.map(|g| if g < 0 { 1 } else { g.min(GRACE_SECONDS_MAX) }),
            preconditions: Preconditions {
                uid: precondition("uid"),
                resource_version: precondition("resourceVersion"),
            },
            propagation,
            dry_run: dry_run.is_some_and(|d| d.iter().any(|v| v == "All"))
                || query("dryRun").is_some_and(|d| d == "All"),
            requester: Arc::default(),
            is_admitted: false,
        })
    }

    /// The finalizers of an object once this deletion has begun.
    pub(super) fn finalizers(&self, object: &Value) -> Vec<String> {
        let had: Vec<&str> = object
            .part("metadata")
            .strings("finalizers")
            .into_iter()
            .collect();
        let mut finalizers: Vec<String> = had
            .iter()
            .filter(|f| !matches!(**f, ORPHAN | FOREGROUND))
            .map(|f| (*f).to_owned())
            .collect();
        match self.propagation {
            Some(Propagation::Orphan) => finalizers.push(ORPHAN.to_owned()),
            Some(Propagation::Foreground) => finalizers.push(FOREGROUND.to_owned()),
            Some(Propagation::Background) => {}
            None => {
                if let Some(kept) = [FOREGROUND, ORPHAN].iter().find(|f| had.contains(f)) {
                    finalizers.push((*kept).to_owned());
                }
            }
        }
        finalizers
    }
}

impl Preconditions {
    pub(super) fn check(
        &self,
        resource: &ServedResource,
        name: &str,
        object: &Value,
    ) -> Result<(), ApiError> {
        // Upstream names the kind here where it names the resource elsewhere.
        let subject = StatusSubject {
            resource: resource.kind,
            ..resource.subject(name)
        };
        let uid = meta(object, "uid");
        if let Some(wanted) = &self.uid
            && wanted != uid
        {
            return Err(ApiError::conflict(
                subject,
                &format!(
                    "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
                ),
            ));
        }
        let version = meta(object, "resourceVersion");
        if let Some(wanted) = &self.resource_version
            && wanted != version
        {
            return Err(ApiError::conflict(
                subject,
                &format!(
                    "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
                ),
            ));
        }
        Ok(())
    }
}

/// 409 as the storage of upstream reports a UID that does not match.
pub(super) fn uid_conflict(
    resource: &ServedResource,
    key: &str,
    name: &str,
    wanted: &str,
    live: &str,
) -> ApiError {
    precondition_conflict(resource, key, name, "UID", wanted, live)
}

/// 409 as the storage of upstream reports a precondition that does not hold.
pub(super) fn precondition_conflict(
    resource: &ServedResource,
    key: &str,
    name: &str,
    what: &str,
    wanted: &str,
    live: &str,
) -> ApiError {
    ApiError::conflict(
        resource.subject(name),
        &format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {live}",
            registry_path(resource),
        ),
    )
}

/// The place where upstream keeps objects of a resource.
fn registry_path(resource: &ServedResource) -> &'static str {
    match resource.resource.resource {
        "nodes" => "minions",
        "services" => "services/specs",
        "endpoints" => "services/endpoints",
        "replicationcontrollers" => "controllers",
        other => other,
    }
}
