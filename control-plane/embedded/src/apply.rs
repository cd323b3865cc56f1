//! Applies manifests given on the command line to the control plane of this process.

use crate::manifest::ManifestDocument;
use berth_edge::exit::CommandFailure;
use berth_objects::access::{Access, GroupResource, KindInfo};
use std::fmt;
use std::time::{Duration, Instant};

/// The time that the kind of a new CustomResourceDefinition may take to be served.
const SERVED_PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// An object that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub(crate) kind: String,
    pub(crate) resource: GroupResource,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// An object that others need is applied first: definitions, whose kinds must be served, and namespaces.
fn order(document: &ManifestDocument) -> u8 {
    match document.kind() {
        "CustomResourceDefinition" => 0,
        "Namespace" => 1,
        _ => 2,
    }
}

/// Waits until a kind is served whose definition was applied.
///
/// # Errors
/// When that takes too long.
pub async fn wait_until_served(api: &dyn Access, plural: &str) -> Result<(), CommandFailure> {
    let begun = Instant::now();
    while !api
        .kinds()
        .iter()
        .any(|kind| kind.resource.resource == plural)
    {
        if begun.elapsed() >= SERVED_PATIENCE {
            return Err(CommandFailure::Environment(format!(
                "failed to serve {plural} within {} s",
                SERVED_PATIENCE.as_secs()
            )));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// Creates every object, or replaces it if it exists.
///
/// # Errors
/// Names the file, the document, the object and the fault.
pub async fn apply(
    api: &dyn Access,
    documents: &[ManifestDocument],
) -> Result<Vec<Applied>, CommandFailure> {
    let mut ordered: Vec<&ManifestDocument> = documents.iter().collect();
    ordered.sort_by_key(|document| order(document));
    let mut kinds = api.kinds();
    let defines = ordered.iter().any(|document| order(document) == 0);
    let begun = Instant::now();
    let mut applied = Vec::with_capacity(documents.len());
    for document in ordered {
        let kind = loop {
            match served(&kinds, document) {
                Ok(kind) => break *kind,
                Err(_) if defines && begun.elapsed() < SERVED_PATIENCE => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    kinds = api.kinds();
                }
                Err(failure) => return Err(failure),
            }
        };
        applied.push(apply_one(api, document, kind)?);
    }
    Ok(applied)
}

fn apply_one(
    api: &dyn Access,
    document: &ManifestDocument,
    kind: KindInfo,
) -> Result<Applied, CommandFailure> {
    let mut object = document.object.clone();
    let namespace = document.object["metadata"]["namespace"]
        .as_str()
        .unwrap_or(if kind.namespaced { "default" } else { "" })
        .to_owned();
    if kind.namespaced {
        object["metadata"]["namespace"] = namespace.clone().into();
    }
    let written = match api.create(kind.resource, object.clone()) {
        Err(error) if error.reason == "AlreadyExists" => {
            let known = api.get(kind.resource, &namespace, document.name());
            if let Ok(known) = known {
                object["metadata"]["resourceVersion"] =
                    known["metadata"]["resourceVersion"].clone();
            }
            api.update(kind.resource, object)
        }
        answer => answer,
    };
    let written = written.map_err(|error| {
        CommandFailure::Usage(format!(
            "failed to apply {} {} ({}): {error}",
            document.kind(),
            document.name(),
            document.place
        ))
    })?;
    Ok(Applied {
        kind: document.kind().to_owned(),
        resource: kind.resource,
        namespace,
        // A generated name is known only now.
        name: written["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    })
}

fn served<'a>(
    kinds: &'a [KindInfo],
    document: &ManifestDocument,
) -> Result<&'a KindInfo, CommandFailure> {
    let (group, version) = document
        .api_version()
        .rsplit_once('/')
        .unwrap_or(("", document.api_version()));
    kinds
        .iter()
        .find(|k| k.kind == document.kind() && k.resource.group == group && k.version == version)
        .ok_or_else(|| {
            // A wrong version is the usual mistake, so the served versions are named.
            let near: Vec<String> = kinds
                .iter()
                .filter(|k| k.kind == document.kind())
                .map(|k| {
                    if k.resource.group.is_empty() {
                        k.version.to_owned()
                    } else {
                        format!("{}/{}", k.resource.group, k.version)
                    }
                })
                .collect();
            let hint = if near.is_empty() {
                "Berth's control plane does not serve this kind".to_owned()
            } else {
                format!("did you mean apiVersion {}?", near.join(" or "))
            };
            CommandFailure::Usage(format!(
                "failed to apply {} {} ({}): no kind {} in {}; {hint}",
                document.kind(),
                document.name(),
                document.place,
                document.kind(),
                document.api_version(),
            ))
        })
}
