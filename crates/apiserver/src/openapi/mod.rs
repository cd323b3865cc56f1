//! The OpenAPI v3 documents: what `kubectl` reads before it explains, validates or applies anything.
//!
//! There is one document for each group version and an index of them. A document holds the schemas of the
//! served kinds with the rules of [`crate::schema::extensions`] (merge keys, list types), and their paths. It
//! is built when it is first asked for, then kept; its hash is part of its URL, so that clients may cache it for
//! ever.

mod components;
mod paths;

#[cfg(test)]
mod tests;

use crate::access::KindInfo;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::OnceLock;

/// The Kubernetes version whose API this is.
const VERSION: &str = "v1.36.0";

/// A kind as it is served.
#[derive(Debug, Clone)]
pub struct ServedKind {
    /// Group, version, resource and kind.
    pub info: KindInfo,
    /// The verbs of discovery: `create`, `delete`, `deletecollection`, `get`, `list`, `patch`, `update`, `watch`.
    pub verbs: Vec<&'static str>,
    /// Its subresources.
    pub subresources: Vec<ServedSubresource>,
}

/// A subresource as it is served, such as `status` or `scale`.
#[derive(Debug, Clone, Copy)]
pub struct ServedSubresource {
    /// The last part of its path.
    pub name: &'static str,
    /// The group of the kind that it speaks.
    pub group: &'static str,
    /// The version of that kind.
    pub version: &'static str,
    /// That kind, such as `Scale`.
    pub kind: &'static str,
    /// The verbs of discovery.
    pub verbs: &'static [&'static str],
}

/// A document as it is sent.
#[derive(Debug, Clone)]
pub struct Document {
    /// The JSON text.
    pub body: Bytes,
    /// The hash of the text, for `ETag` and the index.
    pub hash: String,
}

/// All documents of a server.
#[derive(Debug)]
pub struct OpenApi {
    /// By the place in the index, such as `api/v1` or `apis/apps/v1`.
    group_versions: BTreeMap<String, GroupVersion>,
}

#[derive(Debug)]
struct GroupVersion {
    kinds: Vec<ServedKind>,
    document: OnceLock<Document>,
}

impl OpenApi {
    /// The documents of these kinds. Nothing is built yet.
    pub fn new(kinds: impl IntoIterator<Item = ServedKind>) -> Self {
        let mut group_versions: BTreeMap<String, GroupVersion> = BTreeMap::new();
        for kind in kinds {
            group_versions
                .entry(group_version_path(
                    kind.info.resource.group,
                    kind.info.version,
                ))
                .or_insert_with(|| GroupVersion {
                    kinds: Vec::new(),
                    document: OnceLock::new(),
                })
                .kinds
                .push(kind);
        }
        Self { group_versions }
    }

    /// The answer to `/openapi/v3`.
    pub fn index(&self) -> Value {
        let paths: Map<String, Value> = self
            .group_versions
            .iter()
            .map(|(path, group_version)| {
                let hash = &group_version.document(path).hash;
                let url = format!("/openapi/v3/{path}?hash={hash}");
                (path.clone(), json!({ "serverRelativeURL": url }))
            })
            .collect();
        json!({ "paths": paths })
    }

    /// The answer to `/openapi/v3/<path>`, where `path` is `api/v1` or `apis/<group>/<version>`.
    pub fn document(&self, path: &str) -> Option<&Document> {
        let path = path.trim_matches('/');
        self.group_versions
            .get(path)
            .map(|group_version| group_version.document(path))
    }
}

impl GroupVersion {
    fn document(&self, path: &str) -> &Document {
        self.document.get_or_init(|| {
            let document = build(path, &self.kinds);
            let body = document.to_string();
            let mut hasher = DefaultHasher::new();
            hasher.write(body.as_bytes());
            Document {
                hash: format!("{:016X}", hasher.finish()),
                body: Bytes::from(body),
            }
        })
    }
}

/// The document of one group version.
fn build(path: &str, kinds: &[ServedKind]) -> Value {
    let components = components::Components::of(kinds);
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths::paths(path, kinds, &components),
        "components": {
            "schemas": components.into_schemas(),
            "securitySchemes": {
                "BearerToken": {
                    "description": "A bearer token",
                    "in": "header",
                    "name": "authorization",
                    "type": "apiKey",
                },
            },
        },
    })
}

/// Where a group version lives below the server's root.
fn group_version_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

/// Group, version and kind as extensions write them.
fn group_version_kind(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}
