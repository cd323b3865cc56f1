//! APIServices: one object for each served group version, as kube-apiserver registers them. These objects are local;
//! users add APIServices of aggregated servers.

use super::api::Api;
use super::list::ListRequest;
use crate::registry::request::{DeleteRequest, Method, UpdateInputs, WriteOptions};
use berth_objects::catalog::{self, ServedResource};
use berth_objects::status::ApiError;
use berth_objects::view::{FieldView, meta};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The label of objects that the server manages.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The priorities of the groups of kube-apiserver 1.36.
const GROUPS: [(&str, i64); 20] = [
    ("", 18_000),
    ("admissionregistration.k8s.io", 16_700),
    ("apiextensions.k8s.io", 16_700),
    ("apps", 17_800),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("coordination.k8s.io", 16_500),
    ("discovery.k8s.io", 16_200),
    ("events.k8s.io", 17_750),
    ("flowcontrol.apiserver.k8s.io", 16_100),
    ("networking.k8s.io", 17_200),
    ("node.k8s.io", 16_300),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("resource.k8s.io", 16_200),
    ("scheduling.k8s.io", 16_600),
    ("storage.k8s.io", 16_800),
];
/// The priorities of versions, if not the default.
const VERSIONS: [(&str, &str, i64); 7] = [
    ("", "v1", 1),
    ("autoscaling", "v2", 30),
    ("flowcontrol.apiserver.k8s.io", "v1", 21),
    ("resource.k8s.io", "v1", 21),
    ("scheduling.k8s.io", "v1alpha2", 9),
    ("scheduling.k8s.io", "v1alpha3", 9),
    ("scheduling.k8s.io", "v1beta1", 12),
];
const VERSION_PRIORITY: i64 = 15;
/// The priorities of custom resources.
const CUSTOM_GROUP_PRIORITY: i64 = 1_000;
const CUSTOM_VERSION_PRIORITY: i64 = 100;

/// Creates the APIServices of served group versions, and deletes the others.
pub(crate) fn sync(api: &Api) {
    let Some(resource) = catalog::find("apiregistration.k8s.io", "apiservices") else {
        return;
    };
    let catalog = api.catalog();
    let mut wanted = BTreeSet::new();
    for (group, version) in catalog.group_versions() {
        // The API of registrations is not registered itself.
        if *group == "apiregistration.k8s.io" {
            continue;
        }
        let name = format!("{version}.{group}");
        if api.get(resource, "", &name).is_err()
            && let Err(error) = create(api, resource, group, version)
        {
            tracing::warn!(name, %error, "failed to write an APIService, retrying later");
        }
        wanted.insert(name);
    }
    let listed = api.list(resource, &ListRequest::default());
    for version in listed.map(|l| l.items).unwrap_or_default() {
        let service = version.object();
        let name = meta(&service, "name");
        let labels = service.part("metadata").part("labels");
        if labels.field(MANAGED).is_some() && !wanted.contains(name) {
            let deleted = api.delete(resource, "", name, &DeleteRequest::default());
            if let Err(error) = deleted {
                tracing::debug!(name, %error, "failed to delete an APIService");
            }
        }
    }
}

fn create(
    api: &Api,
    resource: &ServedResource,
    group: &str,
    version: &str,
) -> Result<(), ApiError> {
    let known = GROUPS.iter().find(|(known, _)| *known == group);
    let own = VERSIONS
        .iter()
        .find(|(g, v, _)| (*g, *v) == (group, version));
    let (priorities, managed) = match known {
        Some((_, priority)) => (
            (
                *priority,
                own.map_or(VERSION_PRIORITY, |(_, _, priority)| *priority),
            ),
            "onstart",
        ),
        None => ((CUSTOM_GROUP_PRIORITY, CUSTOM_VERSION_PRIORITY), "true"),
    };
    let name = format!("{version}.{group}");
    let mut spec = json!({
        "version": version,
        "groupPriorityMinimum": priorities.0,
        "versionPriority": priorities.1,
    });
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name, "labels": {MANAGED: managed}},
        "spec": spec,
    });
    let options = WriteOptions {
        manager: "kube-apiserver".to_owned(),
        ..WriteOptions::default()
    };
    api.create(resource, "", service, &options)?;
    let change = UpdateInputs {
        resource,
        namespace: "",
        name: &name,
        sub: "status",
        options: &options,
        by: Method::Put,
        is_decoded: false,
    };
    let available = json!([{
        "type": "Available",
        "status": "True",
        "lastTransitionTime": api.now_text(),
        "reason": "Local",
        "message": "Local APIServices are always available",
    }]);
    api.update(&change, |current| {
        let mut new: Value = current.clone();
        new["status"]["conditions"] = available.clone();
        Ok(new)
    })?;
    Ok(())
}
