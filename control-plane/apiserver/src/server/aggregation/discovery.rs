//! Aggregated servers in discovery. A server that does not answer is listed without resources, as stale.

use super::{ServerState, remote};
use berth_objects::view::FieldView;
use serde_json::{Map, Value, json};

/// Adds the groups of other servers to the answer of `/apis`.
pub(in crate::server) fn add_groups(state: &ServerState, list: &mut Value) {
    for service in remote(&state.api) {
        let (name, version) = listed(&service);
        if let Some(groups) = list["groups"].as_array_mut() {
            match groups.iter_mut().find(|group| group["name"] == name) {
                Some(group) => add_version(group, version),
                None => groups.push(new_group(name, version)),
            }
        }
    }
}

/// The answer of `/apis/GROUP`, with the versions of other servers.
pub(in crate::server) fn group(
    state: &ServerState,
    name: &str,
    local: Option<Value>,
) -> Option<Value> {
    let mut found = local;
    for service in remote(&state.api) {
        let (group, version) = listed(&service);
        if group != name {
            continue;
        }
        match &mut found {
            Some(found) => add_version(found, version),
            None => {
                let mut group = new_group(group, version);
                group["kind"] = "APIGroup".into();
                group["apiVersion"] = "v1".into();
                found = Some(group);
            }
        }
    }
    found
}

/// Adds the group versions of other servers to the aggregated answer of `/apis`.
pub(in crate::server) fn add_aggregated(state: &ServerState, list: &mut Value) {
    for service in remote(&state.api) {
        let (name, version) = listed(&service);
        let (resources, is_current) = state.aggregation.resources(&service);
        let freshness = if is_current { "Current" } else { "Stale" };
        let mut entry = json!({"version": version["version"], "freshness": freshness});
        if resources.is_array() {
            entry["resources"] = resources;
        }
        let Some(items) = list["items"].as_array_mut() else {
            continue;
        };
        let known = items
            .iter_mut()
            .find(|item| item.part("metadata").text("name") == name);
        match known.and_then(|item| item["versions"].as_array_mut()) {
            Some(versions) => versions.push(entry),
            None => items.push(json!({"metadata": {"name": name}, "versions": [entry]})),
        }
    }
}

/// The group of a service and its version as discovery lists it.
fn listed(service: &Value) -> (&str, Value) {
    let spec = service.part("spec");
    let (group, version) = (spec.text("group"), spec.text("version"));
    let listed = json!({"groupVersion": format!("{group}/{version}"), "version": version});
    (group, listed)
}

fn new_group(name: &str, version: Value) -> Value {
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

fn add_version(group: &mut Value, version: Value) {
    if let Some(versions) = group["versions"].as_array_mut() {
        versions.push(version);
    }
}

/// The entries of an APIResourceList as aggregated discovery lists them: subresources below their resources.
pub(super) fn aggregated_resources(list: &Value) -> Value {
    let (group, version) = list
        .text("groupVersion")
        .split_once('/')
        .unwrap_or(("", list.text("groupVersion")));
    let kind = |entry: &Value| {
        let or = |field: &str, default: &str| match entry.text(field) {
            "" => default.to_owned(),
            given => given.to_owned(),
        };
        json!({"group": or("group", group), "version": or("version", version), "kind": entry.text("kind")})
    };
    let entries = list.items("resources");
    // Subresources have a slash in their names and are listed below their resource.
    let whole = entries.iter().filter(|e| !e.text("name").contains('/'));
    let resources = whole.map(|entry| {
        let scope = if entry.flag("namespaced") {
            "Namespaced"
        } else {
            "Cluster"
        };
        let mut resource = Map::new();
        resource.insert("resource".to_owned(), entry.text("name").into());
        resource.insert("responseKind".to_owned(), kind(entry));
        resource.insert("scope".to_owned(), scope.into());
        resource.insert(
            "singularResource".to_owned(),
            entry.text("singularName").into(),
        );
        for field in ["verbs", "shortNames", "categories"] {
            if let Some(list) = entry.field(field) {
                resource.insert(field.to_owned(), list.clone());
            }
        }
        let below = entries.iter().filter_map(|sub| {
            let (parent, name) = sub.text("name").split_once('/')?;
            (parent == entry.text("name")).then(|| {
                json!({"subresource": name, "responseKind": kind(sub), "verbs": sub.part("verbs")})
            })
        });
        let below: Vec<Value> = below.collect();
        if !below.is_empty() {
            resource.insert("subresources".to_owned(), below.into());
        }
        Value::Object(resource)
    });
    resources.collect::<Vec<Value>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subresources_are_listed_below_their_resources() {
        let list = json!({
            "groupVersion": "metrics.k8s.io/v1beta1",
            "resources": [
                {"name": "nodes", "singularName": "", "namespaced": false, "kind": "NodeMetrics", "verbs": ["get", "list"]},
                {"name": "nodes/scale", "kind": "Scale", "group": "autoscaling", "version": "v1", "verbs": ["get"]},
            ],
        });
        let expect = json!([{
            "resource": "nodes", "scope": "Cluster", "singularResource": "", "verbs": ["get", "list"],
            "responseKind": {"group": "metrics.k8s.io", "version": "v1beta1", "kind": "NodeMetrics"},
            "subresources": [{
                "subresource": "scale", "verbs": ["get"],
                "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
            }],
        }]);
        assert_eq!(aggregated_resources(&list), expect);
    }
}
