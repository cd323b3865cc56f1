//! The OpenAPI documents, which `kubectl` reads to explain, validate and apply objects.
//!
//! Version 3 has one document for each group version and an index of them, version 2 one document for everything. A
//! document holds the schemas of the served kinds with the properties that patches need (merge keys, list types), and
//! their paths. It is built at the first request and kept until the resources change; its hash is part of its URL, so
//! that clients may cache it indefinitely.

mod components;
mod custom;
mod descriptions;
mod paths;
mod v2;

#[cfg(test)]
mod tests;

use crate::catalog::{Catalog, OpenApiDocument, ServedResource};
use crate::releases::ApiRelease;
use crate::schema::GroupVersionKind;
use components::{Components, openapi_name};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The answer to `/openapi/v3`.
pub fn index(catalog: &Catalog) -> Value {
    let paths: Map<String, Value> = catalog
        .group_versions()
        .iter()
        .filter_map(|(group, version)| {
            let path = group_version_path(group, version);
            let hash = document(catalog, &path)?.hash;
            let url = format!("/openapi/v3/{path}?hash={hash}");
            Some((path, json!({ "serverRelativeURL": url })))
        })
        .collect();
    json!({ "paths": paths })
}

/// The answer to `/openapi/v3/<path>`, where `path` is `api/v1` or `apis/<group>/<version>`.
pub fn document(catalog: &Catalog, path: &str) -> Option<OpenApiDocument> {
    let path = path.trim_matches('/');
    let resources: Vec<Arc<ServedResource>> = catalog
        .resources()
        .iter()
        .filter(|r| group_version_path(r.resource.group, r.version) == path)
        .cloned()
        .collect();
    if resources.is_empty() {
        return None;
    }
    let build = || build(catalog.api(), &resources).to_string().into_bytes();
    Some(catalog.documents().get(path, build))
}

/// The answer to `/openapi/v2`, as JSON or as protobuf.
pub fn document_v2(catalog: &Catalog, protobuf: bool) -> OpenApiDocument {
    let name = if protobuf { "v2.pb" } else { "v2" };
    catalog.documents().get(name, || {
        let document = v2::convert(build(catalog.api(), catalog.resources()));
        if protobuf {
            v2::to_protobuf(&document)
        } else {
            document.to_string().into_bytes()
        }
    })
}

/// A document of version 3 of these resources.
fn build(api: ApiRelease, resources: &[Arc<ServedResource>]) -> Value {
    let mut components = Components::new(api);
    let mut paths = Map::new();
    for resource in resources {
        let own = resource.group_version_kind();
        // A custom resource has no type in the tables; its own schema is published.
        let name = components.add_kind(own).unwrap_or_else(|| {
            let name = custom_name(resource);
            let schema = resource
                .custom
                .as_ref()
                .map_or(json!({"type": "object"}), |c| {
                    custom::published(
                        c,
                        components::group_version_kind(own),
                        &components::meta_reference("ObjectMeta"),
                    )
                });
            components.insert(name.clone(), schema);
            name
        });
        if resource.offers("list") {
            let list = GroupVersionKind {
                kind: resource.list_kind,
                ..own
            };
            components.add_list(&name, list);
        }
        for sub in &resource.subresources {
            components.add_kind(GroupVersionKind::new(sub.group, sub.version, sub.kind));
        }
        paths::add(&mut paths, resource, &name);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": format!("v{}.0", api.release())},
        "paths": paths,
        "components": {
            "schemas": components.into_schemas(),
            "securitySchemes": {
                "BearerToken": {"in": "header", "name": "authorization", "type": "apiKey"},
            },
        },
    })
}

/// The schema name of a custom resource: its group backwards, its version and its kind.
fn custom_name(resource: &ServedResource) -> String {
    let mut parts: Vec<&str> = resource
        .resource
        .group
        .split('.')
        .filter(|part| !part.is_empty())
        .collect();
    parts.reverse();
    parts.extend([resource.version, resource.kind]);
    parts.join(".")
}

/// The schema name of a subresource's kind.
fn schema_name(group: &str, version: &str, kind: &str) -> Option<String> {
    let schemas = crate::schema::Schemas::get();
    let id = schemas.find(GroupVersionKind::new(group, version, kind))?;
    Some(openapi_name(&schemas.model().object_type(id).name))
}

/// The place where a group version lives below the server's root.
fn group_version_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}
