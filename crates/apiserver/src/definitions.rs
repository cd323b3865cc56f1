//! CustomResourceDefinitions: their resources, their conditions, and the deletion of their objects.
//!
//! After each change of a definition, [`sync`] accepts its names, writes its conditions, and replaces the
//! catalog of served resources. It is called by a task of the server and before the server accepts requests.

use crate::registry::{
    Api, ConversionTargets, DeleteRequest, ListRequest, Method, Requester, UpdateInputs,
    WriteOptions, api_services,
};
use berth_objects::catalog::{Catalog, ServedResource, find};
use berth_objects::custom::definition::{
    CLEANUP, GROUP, Names, is_established, is_terminating, resources, status, stored_resource,
};
use berth_objects::status::ApiError;
use berth_objects::view::{FieldView, meta, meta_mut};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The name under which `metadata.managedFields` lists writes of conditions.
const MANAGER: &str = "kube-apiserver";

/// The state of a definition from which its resources are made: UID, generation, and whether it is established and
/// terminating.
type Basis = (String, i64, bool, bool);

/// The resources of a definition.
type DefinitionResources = (Basis, Vec<Arc<ServedResource>>);

/// The served resources.
#[derive(Debug)]
pub(crate) struct Served {
    /// Kubernetes' own resources.
    built_in: Arc<Catalog>,
    catalog: RwLock<Arc<Catalog>>,
    /// The definitions from which the catalog was made.
    made: Mutex<Vec<DefinitionResources>>,
    /// The targets of their conversion webhooks.
    pub(crate) targets: ConversionTargets,
    /// The revisions of the definitions when all of them had the right conditions.
    settled: Mutex<Vec<u64>>,
}

impl Served {
    /// Kubernetes' own resources, without those of definitions.
    pub(crate) fn new(built_in: Arc<Catalog>) -> Self {
        Self {
            catalog: RwLock::new(Arc::clone(&built_in)),
            built_in,
            made: Mutex::default(),
            targets: ConversionTargets::default(),
            settled: Mutex::default(),
        }
    }

    /// The resources that are served now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        let catalog = self.catalog.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&catalog)
    }

    /// Makes the resources of the definitions anew, except for those of definitions that are as they were.
    fn replace(&self, definitions: &[Arc<Value>]) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let bases: Vec<Basis> = definitions.iter().map(|d| basis(d)).collect();
        if made.iter().map(|(basis, _)| basis).eq(&bases) {
            return;
        }
        let mut known: FxHashMap<Basis, Vec<Arc<ServedResource>>> =
            std::mem::take(&mut *made).into_iter().collect();
        *made = definitions
            .iter()
            .zip(bases)
            .map(|(definition, basis)| {
                let resources = known.remove(&basis).unwrap_or_else(|| {
                    let is_served = is_established(definition);
                    let resources = is_served.then(|| resources(definition));
                    resources.into_iter().flatten().map(Arc::new).collect()
                });
                (basis, resources)
            })
            .collect();
        let mut catalog = Catalog::clone(&self.built_in);
        let mut served: Vec<&Arc<ServedResource>> = made.iter().flat_map(|(_, r)| r).collect();
        served.sort_by_key(|r| r.resource.group);
        for resource in served {
            catalog.add(Arc::clone(resource));
        }
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalog);
    }

    fn is_settled(&self, revisions: &[u64]) -> bool {
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) == revisions
    }

    fn settle(&self, revisions: Vec<u64>) {
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = revisions;
    }
}

fn basis(definition: &Value) -> Basis {
    let generation = definition.part("metadata").int("generation");
    let uid = meta(definition, "uid").to_owned();
    (
        uid,
        generation,
        is_established(definition),
        is_terminating(definition),
    )
}

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
    for definition in definitions.iter().filter(|d| is_terminating(d)) {
        let is_empty = delete_objects(api, definition);
        is_busy |= !is_empty;
        if is_empty {
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
    };
    // A definition that has just changed or gone is looked at again.
    if let Err(error) = api.update(&change, write) {
        tracing::debug!(name, %error, "failed to write a CustomResourceDefinition");
    }
}

/// Brings the conditions of all definitions up to date, and returns the definitions. Nothing is computed for
/// definitions that have not changed since all had the right conditions.
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
            // The names that this definition has now can decide about the next one.
            all = listed().iter().map(|v| v.object()).collect();
        }
    }
    if !has_written {
        api.served.settle(revisions);
    }
    all
}

/// Deletes the objects of a definition. Returns whether there are none.
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
