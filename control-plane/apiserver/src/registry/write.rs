//! Create and update: the pipeline of one write, from a decoded object to the store.
//!
//! Nothing is computed under a lock. A write is based on the version that was read. After a concurrent write, it is
//! computed again from the newer version, until it succeeds or its time has passed. A client that set a version itself
//! gets a conflict, because the computed object has that version instead of the newer one.

mod create;
mod update;

use super::request::{WriteOptions, namespace_of};
use crate::registry::attributes::{Attributes, WebhookOperation, WebhookOptions};
use berth_objects::catalog::ServedResource;
use berth_objects::releases::ApiRelease;
use berth_objects::schema::Schemas;
use berth_objects::status::ApiError;
use berth_objects::view::{FieldView, meta, meta_mut};
use serde_json::Value;

/// The creation of an object as webhooks see it.
fn created<'a>(
    resource: &'a ServedResource,
    namespace: &'a str,
    name: &'a str,
    options: &'a WriteOptions,
) -> Attributes<'a> {
    Attributes {
        resource,
        sub: "",
        namespace: namespace_of(resource, namespace, name),
        name,
        operation: WebhookOperation::Create,
        options: WebhookOptions::Write("CreateOptions", options),
        empties: None,
    }
}

/// The creation of a subresource that is an action, such as `binding`, as webhooks see it.
pub(super) fn action<'a>(
    resource: &'a ServedResource,
    sub: &'a str,
    namespace: &'a str,
    name: &'a str,
    options: &'a WriteOptions,
) -> Attributes<'a> {
    Attributes {
        sub,
        ..created(resource, namespace, name, options)
    }
}

/// Returns whether finalizers of the resource need no domain. The kinds of Kubernetes' core need one.
fn takes_plain_finalizers(resource: &ServedResource) -> bool {
    let is_extension = matches!(
        resource.resource.group,
        "admissionregistration.k8s.io"
            | "apiextensions.k8s.io"
            | "apiregistration.k8s.io"
            | "coordination.k8s.io"
    );
    is_extension || resource.custom.is_some()
}

/// Adds the fields that a typed server always writes. Only stored objects need them.
fn complete(resource: &ServedResource, api: ApiRelease, object: &mut Value) {
    Schemas::get().normalize_in(api, resource.group_version_kind(), object);
}

/// Returns whether nothing delays the removal of a deleted object any longer.
pub(super) fn is_released(object: &Value) -> bool {
    let Some(metadata) = object.get("metadata") else {
        return false;
    };
    let held = !metadata.items("finalizers").is_empty();
    let grace = metadata.int("deletionGracePeriodSeconds");
    let namespace_held =
        object.text("kind") == "Namespace" && !object.part("spec").items("finalizers").is_empty();
    metadata.get("deletionTimestamp").is_some() && !held && grace == 0 && !namespace_held
}

/// Gives the object the namespace of the request, or finds that it names another.
pub(super) fn adopt_namespace(
    resource: &ServedResource,
    namespace: &str,
    object: &mut Value,
) -> Result<(), ApiError> {
    if !resource.namespaced {
        meta_mut(object).remove("namespace");
        return Ok(());
    }
    check_namespace(namespace, object)?;
    meta_mut(object).insert("namespace".to_owned(), namespace.into());
    Ok(())
}

/// An object that admission has changed is in the namespace of the request.
fn keep_namespace(
    resource: &ServedResource,
    namespace: &str,
    object: &mut Value,
) -> Result<(), ApiError> {
    check_namespace(namespace, object)?;
    if resource.namespaced && meta(object, "namespace").is_empty() {
        meta_mut(object).insert("namespace".to_owned(), namespace.into());
    }
    Ok(())
}

/// Checks that the namespace of an object, if any, equals the namespace of the request.
pub(super) fn check_namespace(namespace: &str, object: &Value) -> Result<(), ApiError> {
    match meta(object, "namespace") {
        "" => Ok(()),
        given if given == namespace => Ok(()),
        _ => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}
