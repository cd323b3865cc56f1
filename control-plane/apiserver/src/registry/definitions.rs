//! CustomResourceDefinitions: their resources, their conditions, and the deletion of their objects.
//!
//! After each change of a definition, [`sync`] accepts its names, writes its conditions, and replaces the
//! catalog of served resources. It is called by a task of the server and before the server accepts requests.

use super::api_services;
use super::{Api, DeleteRequest, ListRequest, Method, Requester, UpdateInputs, WriteOptions};
use berth_objects::catalog::definition::{
    CLEANUP, GROUP, Names, is_terminating, status, stored_resource,
};
use berth_objects::catalog::{ServedResource, find};
use berth_objects::status::ApiError;
use berth_objects::view::{FieldView, meta, meta_mut};
use serde_json::{Value, json};
use std::sync::Arc;

/// The name under which `metadata.managedFields` lists writes of conditions.
const MANAGER: &str = "kube-apiserver";

fn definitions() -> Option<&'static Arc<ServedResource>> {
    find(GROUP, "customresourcedefinitions")
}

/// Brings the conditions of all definitions, and the served resources, up to date with the definitions.
/// Returns whether objects of a deleted definition remain.
pub(crate) fn sync(api: &Api) -> bool {
    let Some(resource) = definitions() else {
        return false;
    };
    let definitions = accept(api, resource);
    api.served.replace(&definitions);
    api_services::sync(api);
    let mut is_busy = false;
    let mut served = definitions.clone();
    for definition in definitions.iter().filter(|d| is_terminating(d)) {
        let is_empty = delete_objects(api, definition);
        is_busy |= !is_empty;
        if is_empty {
            // A client that no longer finds the definition may create it again immediately, and would use the old
            // resources in discovery. The resources are therefore removed before the definition.
            if is_the_last_finalizer(definition) {
                served.retain(|other| !Arc::ptr_eq(other, definition));
                api.served.replace(&served);
                api_services::sync(api);
            }
            let write = |current: &Value| {
                let mut new = current.clone();
                let left: Vec<&str> = current.part("metadata").strings("finalizers");
                let left: Vec<&str> = left.into_iter().filter(|f| *f != CLEANUP).collect();
                meta_mut(&mut new).insert("finalizers".to_owned(), json!(left));
                Ok(new)
            };
            write_definition(api, resource, meta(definition, "name"), "", write);
        }
    }
    is_busy
}

/// Returns whether the definition is deleted when the server has removed its own finalizer.
fn is_the_last_finalizer(definition: &Value) -> bool {
    let finalizers: Vec<&str> = definition.part("metadata").strings("finalizers");
    finalizers.iter().all(|finalizer| *finalizer == CLEANUP)
}

fn write_definition(
    api: &Api,
    resource: &ServedResource,
    name: &str,
    sub: &str,
    write: impl Fn(&Value) -> Result<Value, ApiError>,
) {
    let options = WriteOptions {
        manager: MANAGER.to_owned(),
        requester: Requester::component(MANAGER),
        ..WriteOptions::default()
    };
    let change = UpdateInputs {
        resource,
        namespace: "",
        name,
        sub,
        options: &options,
        by: Method::Put,
        is_decoded: false,
    };
    // A definition that was changed or deleted in the meantime is examined again.
    if let Err(error) = api.update(&change, write) {
        tracing::debug!(name, %error, "failed to write a CustomResourceDefinition");
    }
}

/// Updates the conditions of all definitions, and returns the definitions. Unchanged definitions with correct
/// conditions need no computation.
fn accept(api: &Api, resource: &ServedResource) -> Vec<Arc<Value>> {
    let listed = || {
        let listed = api.list(resource, &ListRequest::default());
        listed.map(|l| l.items).unwrap_or_default()
    };
    let versions = listed();
    let revisions: Vec<u64> = versions.iter().map(|v| v.revision()).collect();
    let mut all: Vec<Arc<Value>> = versions.iter().map(|v| v.object()).collect();
    // Nothing has changed since all conditions were right.
    if api.served.is_settled(&revisions) {
        return all;
    }
    let mut has_written = false;
    for version in versions {
        let definition = &*version.object();
        let status = status(definition, &Names::new(&all, definition), &api.now_text());
        if status != definition["status"] {
            let write = |current: &Value| {
                let mut new = current.clone();
                new["status"] = status.clone();
                Ok(new)
            };
            write_definition(api, resource, meta(definition, "name"), "status", write);
            has_written = true;
            // The accepted names of this definition can conflict with the next one.
            all = listed().iter().map(|v| v.object()).collect();
        }
    }
    if !has_written {
        api.served.settle(revisions);
    }
    all
}

/// Deletes the objects of a definition. Returns whether all are deleted.
fn delete_objects(api: &Api, definition: &Value) -> bool {
    let Some(resource) = stored_resource(definition) else {
        return true;
    };
    let objects = |api: &Api| {
        let listed = api.list(&resource, &ListRequest::default());
        listed.map(|l| l.items).unwrap_or_default()
    };
    for version in objects(api) {
        let object = &version.object();
        let (namespace, name) = (meta(object, "namespace"), meta(object, "name"));
        let request = DeleteRequest::default();
        if let Err(error) = api.delete(&resource, namespace, name, &request) {
            tracing::debug!(namespace, name, %error, "failed to delete a custom resource");
        }
    }
    objects(api).is_empty()
}
