//! Discovery: which groups, versions and resources there are, in the plain and in the aggregated form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_objects::catalog::{Catalog, ServedResource, Sub};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The exact content type of an aggregated answer.
pub(crate) const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api`.
pub(crate) fn core_versions(server: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}],
    })
}

/// `/apis`.
pub(crate) fn groups(catalog: &Catalog) -> Value {
    let names = group_names(catalog).into_iter();
    let groups: Vec<Value> = names.map(|name| group_value(catalog, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub(crate) fn group(catalog: &Catalog, name: &str) -> Option<Value> {
    if name.is_empty() || !group_names(catalog).contains(&name) {
        return None;
    }
    let mut group = group_value(catalog, name);
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub(crate) fn resources(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let mut resources: Vec<Value> = Vec::new();
    for resource in of_version(catalog, group, version) {
        resources.push(resource_value(resource));
        let subs = resource.subresources.iter();
        resources.extend(subs.map(|sub| subresource_value(resource, sub)));
    }
    if resources.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version,
        "resources": resources,
    });
    // As upstream, only the list of the core group has no version.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

/// The aggregated answer of `/api` (with `core`) or of `/apis`.
pub(crate) fn aggregated(catalog: &Catalog, core: bool) -> Value {
    let mut items: Vec<Value> = Vec::new();
    let groups = if core { vec![""] } else { group_names(catalog) };
    for group in groups {
        let versions: Vec<Value> = versions(catalog, group)
            .into_iter()
            .map(|version| {
                let resources: Vec<Value> = of_version(catalog, group, version)
                    .map(|r| aggregated_resource(r))
                    .collect();
                json!({"version": version, "resources": resources, "freshness": "Current"})
            })
            .collect();
        let metadata = if group.is_empty() {
            json!({})
        } else {
            json!({"name": group})
        };
        items.push(json!({"metadata": metadata, "versions": versions}));
    }
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

/// The named groups in order of their first resource.
fn group_names(catalog: &Catalog) -> Vec<&'static str> {
    let mut names = Vec::new();
    for &(group, _) in catalog.group_versions() {
        if !group.is_empty() && !names.contains(&group) {
            names.push(group);
        }
    }
    names
}

fn versions(catalog: &Catalog, group: &str) -> Vec<&'static str> {
    catalog
        .group_versions()
        .iter()
        .copied()
        .filter(|(g, _)| *g == group)
        .map(|(_, version)| version)
        .collect()
}

fn of_version<'a>(
    catalog: &'a Catalog,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a Arc<ServedResource>> {
    catalog
        .resources()
        .iter()
        .filter(move |r| r.resource.group == group && r.version == version)
}

fn group_value(catalog: &Catalog, name: &str) -> Value {
    let versions: Vec<Value> = versions(catalog, name)
        .into_iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    let preferred = versions.first().cloned().unwrap_or(Value::Null);
    json!({"name": name, "versions": versions, "preferredVersion": preferred})
}

fn resource_value(resource: &ServedResource) -> Value {
    let mut value = Map::new();
    value.insert("name".to_owned(), resource.resource.resource.into());
    value.insert("singularName".to_owned(), resource.singular.into());
    value.insert("namespaced".to_owned(), resource.namespaced.into());
    value.insert("kind".to_owned(), resource.kind.into());
    value.insert("verbs".to_owned(), resource.verbs.clone().into());
    put_names(&mut value, resource);
    if let Some(hash) = storage_version_hash(resource) {
        value.insert("storageVersionHash".to_owned(), hash.into());
    }
    Value::Object(value)
}

/// The hash of the storage version: the first 8 bytes of the SHA-256 hash of `GROUP/VERSION/KIND`, in base64. `None`
/// for a resource without storage.
fn storage_version_hash(resource: &ServedResource) -> Option<String> {
    resource.store?;
    let group_version = match &resource.custom {
        Some(custom) => custom.stored_version.clone(),
        None => {
            let stored = resource.stored_as();
            format!("{}/{}", stored.resource.group, stored.version)
        }
    };
    let hash = digest(
        &SHA256,
        format!("{group_version}/{}", resource.kind).as_bytes(),
    );
    hash.as_ref().get(..8).map(|first| STANDARD.encode(first))
}

fn put_names(value: &mut Map<String, Value>, resource: &ServedResource) {
    for (field, names) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !names.is_empty() {
            value.insert(field.to_owned(), names.clone().into());
        }
    }
}

/// Returns whether a subresource has another kind than its resource.
fn has_own_kind(resource: &ServedResource, sub: &Sub) -> bool {
    (sub.group, sub.version) != (resource.resource.group, resource.version)
}

fn subresource_value(resource: &ServedResource, sub: &Sub) -> Value {
    let mut value = json!({
        "name": format!("{}/{}", resource.resource.resource, sub.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": sub.kind,
        "verbs": sub.verbs,
    });
    if has_own_kind(resource, sub) {
        value["group"] = sub.group.into();
        value["version"] = sub.version.into();
    }
    value
}

fn aggregated_resource(resource: &ServedResource) -> Value {
    let scope = if resource.namespaced {
        "Namespaced"
    } else {
        "Cluster"
    };
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut value = Map::new();
    value.insert("resource".to_owned(), resource.resource.resource.into());
    // An empty group and version stand for the resource's own.
    value.insert("responseKind".to_owned(), kind("", "", resource.kind));
    value.insert("scope".to_owned(), scope.into());
    value.insert("singularResource".to_owned(), resource.singular.into());
    value.insert("verbs".to_owned(), resource.verbs.clone().into());
    put_names(&mut value, resource);
    if !resource.subresources.is_empty() {
        let subresources: Vec<Value> = resource
            .subresources
            .iter()
            .map(|sub| {
                let spoken = if has_own_kind(resource, sub) {
                    kind(sub.group, sub.version, sub.kind)
                } else {
                    kind("", "", sub.kind)
                };
                json!({"subresource": sub.name, "responseKind": spoken, "verbs": sub.verbs})
            })
            .collect();
        value.insert("subresources".to_owned(), subresources.into());
    }
    Value::Object(value)
}
