//! Applies manifests given on the command line to the control plane of this process.

use crate::exit::Failure;
use crate::manifest::Document;
use berth_apiserver::access::{Access, KindInfo};

/// Creates every object, or replaces it where it is there already. Returns kind and name of each.
///
/// # Errors
/// Names the file, the document, the object and what is wrong with it.
pub(crate) fn apply(api: &dyn Access, documents: &[Document]) -> Result<Vec<String>, Failure> {
    let kinds = api.kinds();
    let mut applied = Vec::with_capacity(documents.len());
    for document in documents {
        let kind = served(&kinds, document)?;
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
            Failure::Usage(format!(
                "failed to apply {} {} ({}): {error}",
                document.kind(),
                document.name(),
                document.place
            ))
        })?;
        // A generated name is known only now.
        let name = written["metadata"]["name"].as_str().unwrap_or_default();
        applied.push(format!("{} {name}", document.kind()));
    }
    Ok(applied)
}

fn served<'a>(kinds: &'a [KindInfo], document: &Document) -> Result<&'a KindInfo, Failure> {
    let (group, version) = document
        .api_version()
        .rsplit_once('/')
        .unwrap_or(("", document.api_version()));
    kinds
        .iter()
        .find(|k| k.kind == document.kind() && k.resource.group == group && k.version == version)
        .ok_or_else(|| {
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
            Failure::Usage(format!(
                "failed to apply {} {} ({}): no kind {} in {}; {hint}",
                document.kind(),
                document.name(),
                document.place,
                document.kind(),
                document.api_version(),
            ))
        })
}
