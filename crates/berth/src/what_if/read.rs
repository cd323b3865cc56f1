//! Reads the cluster: files, or the API.

use super::{Others, Raw};
use crate::cli::WhatIfArgs;
use crate::exit::Failure;
use berth_api::Kind;
use berth_apiserver::schema;
use berth_client::request::{self, Resource};
use berth_client::{ApiError, ConnectOptions, Transport, connect};
use serde_json::Value;
use std::path::PathBuf;

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// How many objects a page of a list has.
const PAGE: u32 = 500;

/// The documents of a file with their places; lists are flattened.
pub(super) fn documents(file: &PathBuf) -> Result<Vec<(String, Value)>, Failure> {
    let shown = file.display();
    let unreadable = |reason: String| Failure::Usage(format!("failed to read {shown}: {reason}"));
    let size = std::fs::metadata(file)
        .map_err(|e| unreadable(e.to_string()))?
        .len();
    if size > FILE_BYTES_MAX {
        return Err(unreadable(format!(
            "it has more than the {FILE_BYTES_MAX} bytes that are read at once"
        )));
    }
    let text = std::fs::read_to_string(file).map_err(|e| unreadable(e.to_string()))?;
    let mut found = Vec::new();
    for (index, document) in crate::manifest::split(&text).into_iter().enumerate() {
        let place = format!("{shown}, document {}", index + 1);
        let value = match serde_json::from_str(&document) {
            Ok(value) => value,
            Err(_) => {
                let parsed = schema::parse_yaml(document.as_bytes());
                parsed
                    .map_err(|e| Failure::Usage(format!("failed to parse {place}: {e}")))?
                    .value
            }
        };
        flatten(place, value, &mut found);
    }
    Ok(found)
}

fn flatten(place: String, mut value: Value, found: &mut Vec<(String, Value)>) {
    if value.is_null() {
        return;
    }
    let is_list = value["kind"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("List"));
    match value["items"].take() {
        Value::Array(items) if is_list => {
            for (index, item) in items.into_iter().enumerate() {
                flatten(format!("{place}, item {}", index + 1), item, found);
            }
        }
        _ => found.push((place, value)),
    }
}

/// Lists everything that the scheduler reads.
pub(super) async fn list_all(
    args: &WhatIfArgs,
    raw: &mut Raw,
    others: &mut Others,
) -> Result<(), Failure> {
    let transport = connect(&ConnectOptions {
        kubeconfig: args.kubeconfig.clone(),
        server: None,
        user_agent: format!("berth-what-if/{}", env!("CARGO_PKG_VERSION")),
    })
    .await
    .map_err(Failure::environment)?;
    for kind in Kind::ALL {
        let (group, version, plural) = kind.resource();
        let resource = Resource {
            group,
            version,
            plural,
        };
        let mut keep = |item: Value| {
            let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default();
            let key = (*kind, text("namespace").to_owned(), text("name").to_owned());
            raw.insert(key, item);
        };
        let listed = list(&transport, resource, &mut keep).await;
        let is_needed = Kind::ESSENTIAL.contains(kind);
        match listed {
            Err(ApiError::Status { code: 404, .. }) if !is_needed => {}
            Err(error) => {
                return Err(Failure::Environment(format!(
                    "failed to list {} at {}: {error}",
                    kind.name(),
                    transport.server()
                )));
            }
            Ok(()) => {}
        }
    }
    // They matter for changes alone.
    if args.file.is_empty() {
        return Ok(());
    }
    for (resource, api_version, kind, what) in OTHERS {
        let mut found = Vec::new();
        let mut keep = |mut item: Value| {
            item["apiVersion"] = api_version.into();
            item["kind"] = kind.into();
            found.push(item);
        };
        match list(&transport, resource, &mut keep).await {
            Ok(()) => {
                for item in found {
                    others.take("the cluster", item)?;
                }
            }
            Err(error) => others.notes.push(format!(
                "the {kind}s of the cluster could not be listed ({error}), so {what}"
            )),
        }
    }
    Ok(())
}

/// What the scheduler does not read and new pods depend on: resource, API version, kind, and what is missing without it.
const OTHERS: [(Resource, &str, &str, &str); 2] = [
    (
        Resource {
            group: "",
            version: "v1",
            plural: "resourcequotas",
        },
        "v1",
        "ResourceQuota",
        "new pods are only limited by the quotas among the changes",
    ),
    (
        Resource {
            group: "apps",
            version: "v1",
            plural: "daemonsets",
        },
        "apps/v1",
        "DaemonSet",
        "new nodes only get the pods of DaemonSets among the changes",
    ),
];

async fn list(
    transport: &Transport,
    resource: Resource,
    keep: &mut impl FnMut(Value),
) -> Result<(), ApiError> {
    let mut token = String::new();
    loop {
        let request = request::list(resource, "", PAGE, &token);
        let mut page: Value = transport.request(&request).await?;
        if let Value::Array(items) = page["items"].take() {
            items.into_iter().for_each(&mut *keep);
        }
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => token = next.to_owned(),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_are_flattened() {
        let mut found = Vec::new();
        let pod = |name: &str| json!({"kind": "Pod", "metadata": {"name": name}});
        let list =
            json!({"kind": "List", "items": [pod("a"), {"kind": "PodList", "items": [pod("b")]}]});
        flatten("f".to_owned(), list, &mut found);
        let places: Vec<&str> = found.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["f, item 1", "f, item 2, item 1"]);
    }
}
