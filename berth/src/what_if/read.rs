//! Reads the cluster: files, or the API.

use super::refusal;
use crate::cli::WhatIfArgs;
use berth_api::{Kind, Release};
use berth_client::request::{self, Resource};
use berth_client::{ApiError, Transport, connect};
use berth_core::{ClusterObjects, Document};
use berth_edge::exit::CommandFailure;
use berth_edge::release::{AskingInterval, of_server};
use berth_framework::cluster::DEFERRED_QUOTA;
use serde_json::Value;
use std::io::Read as _;
use std::path::Path;

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// The API group of CapacityBuffers.
const BUFFER_GROUP: &str = "autoscaling.x-k8s.io";
/// The number of objects that a page of a list has.
const PAGE: u32 = 500;

/// The documents of a file with their places; lists are flattened. `-` is standard input; of a directory, the files in
/// it are read that end in .yaml, .yml or .json.
///
/// # Errors
/// A file cannot be read, is too large, or is not YAML or JSON.
pub(super) fn documents(file: &Path) -> Result<Vec<Document>, CommandFailure> {
    if file.as_os_str() == "-" {
        let text = text_of("standard input", std::io::stdin().lock())?;
        return parse("standard input", &text);
    }
    if !file.is_dir() {
        let shown = file.display().to_string();
        let opened = std::fs::File::open(file).map_err(|e| unreadable(&shown, e))?;
        return parse(&shown, &text_of(&shown, opened)?);
    }
    let mut found = Vec::new();
    for file in berth_embedded::manifest::in_directory(file)? {
        found.extend(documents(&file)?);
    }
    Ok(found)
}

fn unreadable(shown: &str, reason: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::Usage(format!("failed to read {shown}: {reason}"))
}

/// Reading stops at the limit: a pipe has no size.
fn text_of(shown: &str, from: impl std::io::Read) -> Result<String, CommandFailure> {
    let mut text = String::new();
    let read = from.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|e| unreadable(shown, e))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        Err(unreadable(
            shown,
            format!("it has more than the {FILE_BYTES_MAX} bytes that are read at once"),
        ))
    } else {
        Ok(text)
    }
}

fn parse(shown: &str, text: &str) -> Result<Vec<Document>, CommandFailure> {
    berth_core::documents(shown, text).map_err(refusal)
}

/// Lists all kinds that the scheduler reads. Returns the release of the API server.
pub(super) async fn list_all(
    args: &WhatIfArgs,
    cluster: &mut ClusterObjects,
) -> Result<Release, CommandFailure> {
    let transport = connect(&args.kubeconfig.connect_options("what-if"))
        .await
        .map_err(CommandFailure::environment)?
        .asking_once();
    let release = of_server(&transport, AskingInterval::Once).await.release;
    let quotas = Kind::Custom(DEFERRED_QUOTA);
    for kind in Kind::ALL.iter().chain([&quotas]) {
        let (group, version, plural) = kind.resource();
        let mut resource = Resource {
            group,
            version,
            plural,
        };
        let mut keep = |item: Value| {
            let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default();
            let key = (*kind, text("namespace").to_owned(), text("name").to_owned());
            cluster.set_stored(key, item);
        };
        let mut listed = list(&transport, resource, &mut keep).await;
        for version in kind.other_versions() {
            if matches!(listed, Err(ApiError::Status { code: 404, .. })) {
                resource.version = version;
                listed = list(&transport, resource, &mut keep).await;
            }
        }
        let is_needed = Kind::ESSENTIAL.contains(kind);
        match listed {
            Err(ApiError::Status { code: 404, .. }) if !is_needed => {}
            Err(error @ ApiError::Status { code: 403, .. }) if *kind == quotas => {
                cluster.note(format!(
                    "objects of kind DeferredQuota of the cluster could not be listed ({error}), so no pod waits for one"
                ));
            }
            Err(error) => {
                return Err(CommandFailure::Environment(format!(
                    "failed to list {} at {} (kubeconfig {}): {error}",
                    kind.name(),
                    transport.server(),
                    args.kubeconfig.choice().described()
                )));
            }
            Ok(()) => {}
        }
    }
    list_buffers(&transport, cluster).await?;
    // They matter for new pods alone.
    if args.file.is_empty() && args.fit.is_none() && args.add_nodes.is_none() {
        return Ok(release);
    }
    for (resource, api_version, kind, what) in OTHERS {
        match items(&transport, resource, api_version, kind).await {
            Ok(found) => {
                for item in found {
                    cluster.set(of_cluster(item)).map_err(refusal)?;
                }
            }
            Err(error) => cluster.note(format!(
                "objects of kind {kind} of the cluster could not be listed ({error}), so {what}"
            )),
        }
    }
    Ok(release)
}

/// The kinds that the scheduler does not read and new pods depend on: resource, API version, kind, and the missing
/// effect without it.
const OTHERS: [(Resource, &str, &str, &str); 4] = [
    (
        Resource {
            group: "resource.k8s.io",
            version: "v1",
            plural: "resourceclaimtemplates",
        },
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
        "new pods only get the claims of ResourceClaimTemplates among the changes",
    ),
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
    (
        Resource {
            group: "scheduling.k8s.io",
            version: "v1",
            plural: "priorityclasses",
        },
        "scheduling.k8s.io/v1",
        "PriorityClass",
        "new pods only get the priorities of PriorityClasses among the changes",
    ),
];

/// Lists the CapacityBuffers in the newest version that is served, and the objects that define their chunks. Most clusters
/// have none.
async fn list_buffers(
    transport: &Transport,
    cluster: &mut ClusterObjects,
) -> Result<(), CommandFailure> {
    let mut listed = Ok(Vec::new());
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let resource = Resource {
            group: BUFFER_GROUP,
            version,
            plural: "capacitybuffers",
        };
        let api_version = format!("{}/{version}", BUFFER_GROUP);
        listed = items(transport, resource, &api_version, "CapacityBuffer").await;
        if !matches!(listed, Err(ApiError::Status { code: 404, .. })) {
            break;
        }
    }
    let found = match listed {
        Ok(found) => found,
        Err(ApiError::Status { code: 404, .. }) => return Ok(()),
        Err(error) => {
            cluster.note(format!(
                "objects of kind CapacityBuffer could not be listed ({error}), so only those among the changes keep room"
            ));
            return Ok(());
        }
    };
    for buffer in found {
        cluster.set(of_cluster(buffer)).map_err(refusal)?;
    }
    if !cluster.has_buffers() {
        return Ok(());
    }
    for (group, version, plural, kind) in [
        ("", "v1", "podtemplates", "PodTemplate"),
        ("apps", "v1", "deployments", "Deployment"),
        ("batch", "v1", "jobs", "Job"),
    ] {
        let resource = Resource {
            group,
            version,
            plural,
        };
        let api_version = format!("{group}/{version}");
        let api_version = api_version.trim_start_matches('/');
        match items(transport, resource, api_version, kind).await {
            Ok(found) => {
                for item in found {
                    cluster.set(of_cluster(item)).map_err(refusal)?;
                }
            }
            Err(error) => cluster.note(format!(
                "objects of kind {kind} could not be listed ({error}), so CapacityBuffers that refer to one may keep no room"
            )),
        }
    }
    Ok(())
}

fn of_cluster(object: Value) -> Document {
    Document {
        place: "the cluster".to_owned(),
        object,
    }
}

/// The objects of a kind, with their API version and kind, which lists omit.
async fn items(
    transport: &Transport,
    resource: Resource,
    api_version: &str,
    kind: &str,
) -> Result<Vec<Value>, ApiError> {
    let mut found = Vec::new();
    let mut keep = |mut item: Value| {
        item["apiVersion"] = api_version.into();
        item["kind"] = kind.into();
        found.push(item);
    };
    list(transport, resource, &mut keep).await?;
    Ok(found)
}

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
