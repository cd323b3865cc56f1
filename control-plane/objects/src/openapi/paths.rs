//! The paths of a document: the requests of a kind, with their parameters and bodies.
//!
//! Clients read the capabilities of the server from the paths: kubectl validates on the server only if the patch
//! operation of the kind has `fieldValidation`, and computes a strategic merge patch only if that operation accepts
//! one.

use super::components::{group_version_kind, meta_reference, reference};
use super::{group_version_path, schema_name};
use crate::catalog::ServedResource;
use crate::patch::PatchType;
use crate::schema::GroupVersionKind;
use serde_json::{Map, Value, json};

/// A name and type of a query parameter.
type Parameter = (&'static str, &'static str);

const WRITE: &[Parameter] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
const PATCH: &[Parameter] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
const DELETE: &[Parameter] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
    ),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const LIST: &[Parameter] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];

const ON_COLLECTION: &[&str] = &["list", "create", "deletecollection"];
const ON_OBJECT: &[&str] = &["get", "update", "patch", "delete"];
const ON_SUBRESOURCE: &[&str] = &["get", "create", "update", "patch"];

/// The method of a verb, and the prefix of the operation's id.
fn method_and_prefix(verb: &str) -> (&'static str, &'static str) {
    match verb {
        "list" => ("get", "list"),
        "create" => ("post", "create"),
        "update" => ("put", "replace"),
        "patch" => ("patch", "patch"),
        "delete" => ("delete", "delete"),
        "deletecollection" => ("delete", "deleteCollection"),
        _ => ("get", "read"),
    }
}

/// Adds the paths of a resource whose schema has this name.
pub(super) fn add(paths: &mut Map<String, Value>, resource: &ServedResource, schema: &str) {
    let root = group_version_path(resource.resource.group, resource.version);
    let scope = if resource.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let plural = resource.resource.resource;
    let collection = format!("/{root}{scope}/{plural}");
    let object = format!("{collection}/{{name}}");
    let mut add = |path: &str, verbs: Vec<&str>, suffix: &str, kind, schema: &str| {
        let spoken = Spoken {
            resource,
            suffix,
            kind,
            schema,
        };
        paths.extend(Some(path.to_owned()).zip(spoken.path(path, &verbs)));
    };
    let offered = |known: &[&'static str], offered: &[&str]| -> Vec<&'static str> {
        let is_offered = |verb: &&str| offered.contains(verb);
        known.iter().copied().filter(is_offered).collect()
    };
    let own = resource.group_version_kind();
    let verbs = offered(ON_COLLECTION, &resource.verbs);
    add(&collection, verbs, "", own, schema);
    if resource.namespaced {
        let everywhere = format!("/{root}/{plural}");
        let verbs = offered(&["list"], &resource.verbs);
        add(&everywhere, verbs, "ForAllNamespaces", own, schema);
    }
    let verbs = offered(ON_OBJECT, &resource.verbs);
    add(&object, verbs, "", own, schema);
    for sub in &resource.subresources {
        let kind = GroupVersionKind::new(sub.group, sub.version, sub.kind);
        let name = schema_name(sub.group, sub.version, sub.kind);
        let path = format!("{object}/{}", sub.name);
        let verbs = offered(ON_SUBRESOURCE, &sub.verbs);
        let suffix = capitalized(sub.name);
        add(
            &path,
            verbs,
            &suffix,
            kind,
            name.as_deref().unwrap_or(schema),
        );
    }
}

/// The subject of a path: the resource, the suffix of the ids of its operations, and the bodies of requests and
/// answers.
struct Spoken<'a> {
    resource: &'a ServedResource,
    suffix: &'a str,
    kind: GroupVersionKind<'a>,
    schema: &'a str,
}

impl Spoken<'_> {
    /// The operations of a path and its parameters; none without operations.
    fn path(&self, path: &str, verbs: &[&str]) -> Option<Value> {
        let operations = verbs.iter().map(|verb| {
            let (method, prefix) = method_and_prefix(verb);
            (method.to_owned(), self.operation(verb, method, prefix))
        });
        let mut operations: Map<String, Value> = operations.collect();
        if operations.is_empty() {
            return None;
        }
        let parameters = ["name", "namespace"].into_iter();
        let parameters = parameters.filter(|name| path.contains(&format!("{{{name}}}")));
        let parameters: Vec<Value> = parameters.map(path_parameter).collect();
        if !parameters.is_empty() {
            operations.insert("parameters".to_owned(), parameters.into());
        }
        Some(operations.into())
    }

    fn operation(&self, verb: &str, method: &str, prefix: &str) -> Value {
        let own = reference(self.schema);
        let (parameters, body, response) = match verb {
            "list" => (LIST, None, reference(&format!("{}List", self.schema))),
            "create" | "update" => (WRITE, Some(any_body(&own)), own),
            "patch" => (PATCH, Some(patch_body(self.resource)), own),
            // A deletion answers with a `Status` or the object; clients expect the former.
            "delete" | "deletecollection" => {
                let options = any_body(&meta_reference("DeleteOptions"));
                (DELETE, Some(options), meta_reference("Status"))
            }
            _ => (&[] as &[Parameter], None, own),
        };
        let action = match verb {
            "list" | "deletecollection" => verb,
            _ => method,
        };
        let mut operation = json!({
            "tags": [self.tag()],
            "operationId": self.id(prefix),
            "responses": {
                "200": {
                    "description": "OK",
                    "content": {"application/json": {"schema": response}},
                },
                "401": {"description": "Unauthorized"},
            },
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": group_version_kind(self.kind),
        });
        if !parameters.is_empty() {
            operation["parameters"] = parameters.iter().map(|p| query(*p)).collect();
        }
        if let Some(body) = body {
            operation["requestBody"] = body;
        }
        operation
    }

    fn group_id(&self) -> String {
        match self.resource.resource.group.split('.').next() {
            Some(first) if !first.is_empty() => capitalized(first),
            _ => "Core".to_owned(),
        }
    }

    fn tag(&self) -> String {
        let group = self.group_id();
        let (first, rest) = group.split_at(1);
        format!("{}{rest}_{}", first.to_lowercase(), self.resource.version)
    }

    fn id(&self, prefix: &str) -> String {
        let is_namespaced = self.resource.namespaced && self.suffix != "ForAllNamespaces";
        let scope = if is_namespaced { "Namespaced" } else { "" };
        let (group, version) = (self.group_id(), capitalized(self.resource.version));
        let (kind, suffix) = (self.resource.kind, self.suffix);
        format!("{prefix}{group}{version}{scope}{kind}{suffix}")
    }
}

fn patch_body(resource: &ServedResource) -> Value {
    let mut content = json!({});
    for patch in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
        if patch != PatchType::Strategic || resource.custom.is_none() {
            content[patch.media_type()] = json!({"schema": meta_reference("Patch")});
        }
    }
    json!({"content": content, "required": true})
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn any_body(schema: &Value) -> Value {
    json!({"content": {"*/*": {"schema": schema}}})
}

fn query((name, schema_type): Parameter) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": schema_type, "uniqueItems": true}})
}

fn path_parameter(name: &str) -> Value {
    json!({
        "name": name,
        "in": "path",
        "required": true,
        "schema": {"type": "string", "uniqueItems": true},
    })
}
