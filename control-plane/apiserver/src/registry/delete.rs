//! Deletion: preconditions, finalizers, grace periods.
//!
//! An object of a kind without a grace period is removed at once, unless it has finalizers. A pod is first marked
//! (`deletionTimestamp`, `deletionGracePeriodSeconds`), which watchers receive, and removed when its grace period is
//! zero and it has no finalizers.

use super::api::{Api, seconds_text};
use super::list::ListRequest;
use super::request::{DeleteRequest, Deletion, GRACE_SECONDS_MAX, Preconditions};
use super::revise::WRITE_ATTEMPTS_MAX;
use super::service_addresses::{self, Allocator};
use crate::registry::attributes::{Attributes, WebhookOperation, WebhookOptions};
use crate::registry::request::namespace_of;
use crate::storage::{ObjectVersion, StoreError};
use berth_objects::access::gr;
use berth_objects::catalog::definition;
use berth_objects::catalog::{ServedResource, find};
use berth_objects::object::timestamp;
use berth_objects::status::ApiError;
use berth_objects::validation::small::SYSTEM_CLASSES;
use berth_objects::view::{FieldView, at_path, meta, meta_mut};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// The next step for an object.
enum DeleteStep {
    /// It is already being deleted, and nothing changes.
    Wait,
    /// It stays for now, marked.
    Mark(Value),
    /// It is marked, which watchers and readers see, and then removed.
    MarkAndRemove(Value),
    /// It is removed.
    Remove,
}

impl Api {
    /// Deletes an object, or begins to.
    ///
    /// # Errors
    /// 404; 409 when a precondition does not hold; 403 for namespaces that must stay.
    pub fn delete(
        &self,
        resource: &ServedResource,
        namespace: &str,
        name: &str,
        request: &DeleteRequest,
    ) -> Result<Deletion, ApiError> {
        let begun = self.begin_deletion(resource, namespace, name, request)?;
        self.end_deletion(resource, begun, request)
    }

    /// The second step of a deletion: removes a marked object without finalizers, if it still exists.
    ///
    /// # Errors
    /// 409 when the client has stated a version and the object has changed since it was marked.
    pub(crate) fn end_deletion(
        &self,
        resource: &ServedResource,
        begun: Deletion,
        request: &DeleteRequest,
    ) -> Result<Deletion, ApiError> {
        if !begun.is_removed_next {
            return Ok(begun);
        }
        let store = resource.store.ok_or_else(ApiError::method_not_allowed)?;
        let marked = begun.version.object();
        let (namespace, name) = (meta(&marked, "namespace"), meta(&marked, "name"));
        let key = resource.key(namespace, name);
        let preconditions = Preconditions {
            uid: None,
            // The marked object is a new version.
            resource_version: request.preconditions.resource_version.as_ref().map(|_| {
                let version = meta(&marked, "resourceVersion");
                version.to_owned()
            }),
        };
        for _ in 0..WRITE_ATTEMPTS_MAX {
            let current = self.get(resource, namespace, name).ok();
            let is_same = |v: &Arc<ObjectVersion>| meta(&v.object(), "uid") == meta(&marked, "uid");
            // Another component has removed it: the marked version is the last known one.
            let Some(current) = current.filter(is_same) else {
                return Ok(gone(Arc::clone(&begun.version)));
            };
            preconditions.check(resource, name, &current.object())?;
            let last = Value::clone(&current.object());
            match self.store.delete(store, &key, current.revision(), last) {
                Ok(version) => return Ok(gone(version)),
                Err(StoreError::Modified) => {}
                Err(_) => return Ok(gone(Arc::clone(&begun.version))),
            }
        }
        Err(ApiError::modified(resource.subject(name)))
    }

    /// The first step of a deletion: removes the object, or marks it if finalizers or a grace period delay its removal.
    ///
    /// # Errors
    /// As [`Api::delete`].
    pub(crate) fn begin_deletion(
        &self,
        resource: &ServedResource,
        namespace: &str,
        name: &str,
        request: &DeleteRequest,
    ) -> Result<Deletion, ApiError> {
        let store = resource.store.ok_or_else(ApiError::method_not_allowed)?;
        let key = resource.key(namespace, name);
        self.revise(resource, namespace, name, |current| {
            request
                .preconditions
                .check(resource, name, &current.object())?;
            let attributes = Attributes {
                resource,
                sub: "",
                namespace: namespace_of(resource, namespace, name),
                name,
                operation: WebhookOperation::Delete,
                options: WebhookOptions::Delete(request),
                empties: None,
            };
            if !request.is_admitted {
                (self.admission).admit_delete(self, &attributes, &current.object())?;
            }
            if resource.resource == gr("", "namespaces") {
                let (version, gone) = self.terminate_namespace(resource, name, request.dry_run)?;
                return Ok(Ok(Deletion {
                    gone,
                    ..pending(version)
                }));
            }
            if resource.resource == gr("scheduling.k8s.io", "priorityclasses")
                && SYSTEM_CLASSES.iter().any(|(class, _)| *class == name)
            {
                return Err(ApiError::forbidden(
                    resource.subject(name),
                    "this is a system priority class and cannot be deleted",
                ));
            }
            let mut step = self.step(resource, &current.object(), request);
            if let (true, DeleteStep::Remove) = (definition::is_definitions(resource), &step) {
                // Its objects are deleted first.
                let finalizers = vec![definition::CLEANUP.to_owned()];
                step = DeleteStep::Mark(mark(&current.object(), finalizers, self.now(), 0));
            }
            if request.dry_run {
                return Ok(Ok(match step {
                    DeleteStep::Wait => pending(current),
                    DeleteStep::Mark(marked) => pending(ObjectVersion::unstored(marked)),
                    DeleteStep::MarkAndRemove(marked) => gone(ObjectVersion::unstored(marked)),
                    DeleteStep::Remove => gone(current),
                }));
            }
            let (revision, current_object) = (current.revision(), current.object());
            let done = match step {
                DeleteStep::Wait => Ok(pending(current)),
                DeleteStep::Mark(marked) => self
                    .store
                    .replace(store, &key, revision, marked)
                    .map(pending),
                DeleteStep::MarkAndRemove(marked) => {
                    let marked = self.store.replace(store, &key, revision, marked);
                    marked.map(|version| Deletion {
                        is_removed_next: true,
                        ..pending(version)
                    })
                }
                DeleteStep::Remove => {
                    let last = Value::clone(&current.object());
                    self.store.delete(store, &key, revision, last).map(gone)
                }
            };
            if let Ok(Deletion { gone: true, .. }) = done
                && service_addresses::has_addresses(resource)
            {
                Allocator(self).release_unused(&current_object, None);
            }
            // Preconditions are compared with the newer version if there is one.
            Ok(done)
        })
    }

    fn step(
        &self,
        resource: &ServedResource,
        object: &Value,
        request: &DeleteRequest,
    ) -> DeleteStep {
        let finalizers = request.finalizers(object);
        let is_graceful = resource.resource == gr("", "pods");
        let marked_before = at_path(object, "/metadata/deletionTimestamp").is_some();
        if !is_graceful {
            return if marked_before {
                DeleteStep::Wait
            } else if finalizers.is_empty() {
                DeleteStep::Remove
            } else {
                DeleteStep::Mark(mark(object, finalizers, self.now(), 0))
            };
        }
        let grace = resource
            .strategy()
            .grace_period_seconds(object, request.grace_period_seconds)
            .unwrap_or(0)
            .clamp(0, GRACE_SECONDS_MAX);
        let marked = if marked_before {
            let before = object.part("metadata").int("deletionGracePeriodSeconds");
            let is_shorter = request.grace_period_seconds.is_some() && grace < before;
            // A pod without finalizers whose grace period is over may be removed.
            let is_free = before == 0 && finalizers.is_empty();
            if !is_shorter && !is_free {
                return DeleteStep::Wait;
            }
            shorten(object, &finalizers, before, grace.min(before))
        } else {
            mark(object, finalizers.clone(), self.now(), grace)
        };
        if grace == 0 && finalizers.is_empty() {
            DeleteStep::MarkAndRemove(marked)
        } else {
            DeleteStep::Mark(marked)
        }
    }

    /// Deletes the events that were not written for `age`. Returns how many.
    pub(crate) fn expire_events(&self, age: Duration) -> usize {
        let Some(events) = find("", "events") else {
            return 0;
        };
        let Ok(listed) = self.list(events, &ListRequest::default()) else {
            return 0;
        };
        let request = |version: &ObjectVersion| DeleteRequest {
            preconditions: Preconditions {
                uid: None,
                resource_version: Some(version.revision().to_string()),
            },
            ..DeleteRequest::default()
        };
        listed
            .items
            .iter()
            .filter(|version| version.written().elapsed() >= age)
            .filter(|version| {
                let object = &*version.object();
                let (namespace, name) = (meta(object, "namespace"), meta(object, "name"));
                self.delete(events, namespace, name, &request(version))
                    .is_ok()
            })
            .count()
    }

    /// The first step of the deletions of all objects of a namespace (or, with `None`, of all) that a list would show.
    ///
    /// # Errors
    /// The error of the list or of a deletion; previous deletions remain in effect.
    pub(crate) fn begin_deletions(
        &self,
        resource: &ServedResource,
        list: &ListRequest<'_>,
        request: &DeleteRequest,
    ) -> Result<Vec<Deletion>, ApiError> {
        let listed = self.list(resource, list)?;
        let mut deleted = Vec::with_capacity(listed.items.len());
        for version in listed.items {
            let object = &*version.object();
            let (namespace, name) = (meta(object, "namespace"), meta(object, "name"));
            match self.begin_deletion(resource, namespace, name, request) {
                Ok(deletion) => deleted.push(deletion),
                Err(e) if e.code == 404 => {}
                Err(e) => return Err(e),
            }
        }
        Ok(deleted)
    }
}

fn pending(version: Arc<ObjectVersion>) -> Deletion {
    Deletion {
        version,
        gone: false,
        is_removed_next: false,
    }
}

fn gone(version: Arc<ObjectVersion>) -> Deletion {
    Deletion {
        version,
        gone: true,
        is_removed_next: false,
    }
}

/// The object with the marks of a deletion that begins now.
fn mark(object: &Value, finalizers: Vec<String>, now: Timestamp, grace: i64) -> Value {
    let mut marked = object.clone();
    let meta = meta_mut(&mut marked);
    let end = now
        .checked_add(SignedDuration::from_secs(grace))
        .unwrap_or(now);
    meta.insert("deletionTimestamp".to_owned(), seconds_text(end).into());
    meta.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
    if let Some(generation) = meta.maybe_int("generation")
        && generation > 0
    {
        meta.insert("generation".to_owned(), generation.saturating_add(1).into());
    }
    set_finalizers(meta, &finalizers);
    marked
}

/// The object with less grace than it was given before.
fn shorten(object: &Value, finalizers: &[String], before: i64, grace: i64) -> Value {
    let mut marked = object.clone();
    let meta = meta_mut(&mut marked);
    let end = meta
        .maybe_text("deletionTimestamp")
        .and_then(timestamp)
        .and_then(|end| {
            end.checked_sub(SignedDuration::from_secs(before.saturating_sub(grace)))
                .ok()
        });
    if let Some(end) = end {
        meta.insert("deletionTimestamp".to_owned(), seconds_text(end).into());
    }
    meta.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
    set_finalizers(meta, finalizers);
    marked
}

fn set_finalizers(meta: &mut Map<String, Value>, finalizers: &[String]) {
    if finalizers.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".to_owned(), finalizers.to_vec().into());
    }
}
