//! The paths of a document: which requests a kind answers, with which parameters and bodies.
//!
//! Clients look here for what the server supports: kubectl validates on the server only if the patch operation
//! of the kind knows `fieldValidation`, and computes a strategic merge patch only if that operation takes one.

use super::components::{group_version_kind, meta_reference, reference};
use super::{group_version_path, schema_name};
use crate::patch::PatchType;
use crate::registry::Resource;
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

/// Adds the paths of a resource whose schema has this name.
pub(super) fn add(paths: &mut Map<String, Value>, resource: &Resource, schema: &str) {
    let root = group_version_path(resource.resource.group, resource.version);
    let scope = if resource.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let plural = resource.resource.resource;
    let collection = format!("/{root}{scope}/{plural}");
    let object = format!("{collection}/{{name}}");
    let own = (resource.resource.group, resource.version, resource.kind);
    let builder = Builder { resource };
    let body = reference(schema);
    let list = reference(&format!("{schema}List"));
    let status = meta_reference("Status");
    let options = Some(any_body(&meta_reference("DeleteOptions")));
    let patch = Some(patch_body(resource));

    // Verb, method, prefix of the operation's id, action, parameters, body, answer.
    let on_collection = [
        ("list", "get", "list", "list", LIST, None, &list),
        (
            "create",
            "post",
            "create",
            "post",
            WRITE,
            Some(any_body(&body)),
            &body,
        ),
        (
            "deletecollection",
            "delete",
            "deleteCollection",
            "deletecollection",
            DELETE,
            options.clone(),
            &status,
        ),
    ];
    let on_object = [
        (
            "get",
            "get",
            "read",
            "get",
            &[] as &[Parameter],
            None,
            &body,
        ),
        (
            "update",
            "put",
            "replace",
            "put",
            WRITE,
            Some(any_body(&body)),
            &body,
        ),
        (
            "patch",
            "patch",
            "patch",
            "patch",
            PATCH,
            patch.clone(),
            &body,
        ),
        (
            "delete", "delete", "delete", "delete", DELETE, options, &status,
        ),
    ];
    builder.insert(
        paths,
        &collection,
        false,
        &on_collection,
        &resource.verbs,
        "",
        own,
    );
    if resource.namespaced && resource.offers("list") {
        let everywhere = format!("/{root}/{plural}");
        let rows = on_collection.get(..1).unwrap_or(&[]);
        builder.insert(
            paths,
            &everywhere,
            false,
            rows,
            &resource.verbs,
            "ForAllNamespaces",
            own,
        );
        if let Some(path) = paths.get_mut(&everywhere).and_then(Value::as_object_mut) {
            path.remove("parameters");
        }
    }
    builder.insert(paths, &object, true, &on_object, &resource.verbs, "", own);
    for sub in &resource.subresources {
        let spoken = (sub.group, sub.version, sub.kind);
        let name = schema_name(sub.group, sub.version, sub.kind);
        let body = reference(name.as_deref().unwrap_or(schema));
        let rows = [
            (
                "get",
                "get",
                "read",
                "get",
                &[] as &[Parameter],
                None,
                &body,
            ),
            (
                "create",
                "post",
                "create",
                "post",
                WRITE,
                Some(any_body(&body)),
                &body,
            ),
            (
                "update",
                "put",
                "replace",
                "put",
                WRITE,
                Some(any_body(&body)),
                &body,
            ),
            (
                "patch",
                "patch",
                "patch",
                "patch",
                PATCH,
                patch.clone(),
                &body,
            ),
        ];
        let path = format!("{object}/{}", sub.name);
        builder.insert(
            paths,
            &path,
            true,
            &rows,
            &sub.verbs,
            &capitalized(sub.name),
            spoken,
        );
    }
}

type Row<'a> = (
    &'a str,
    &'a str,
    &'a str,
    &'a str,
    &'a [Parameter],
    Option<Value>,
    &'a Value,
);

struct Builder<'a> {
    resource: &'a Resource,
}

impl Builder<'_> {
    /// Adds a path with the operations that are offered, if there is one.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call is one row of the list of paths"
    )]
    fn insert(
        &self,
        paths: &mut Map<String, Value>,
        path: &str,
        named: bool,
        rows: &[Row<'_>],
        verbs: &[&str],
        suffix: &str,
        spoken: (&str, &str, &str),
    ) {
        let mut operations = Map::new();
        for (verb, method, prefix, action, parameters, body, response) in rows {
            if !verbs.contains(verb) {
                continue;
            }
            let mut operation = json!({
                "tags": [self.tag()],
                "operationId": self.id(prefix, suffix),
                "responses": {
                    "200": {
                        "description": "OK",
                        "content": {"application/json": {"schema": response}},
                    },
                    "401": {"description": "Unauthorized"},
                },
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": group_version_kind(spoken),
            });
            if !parameters.is_empty() {
                operation["parameters"] = parameters.iter().map(|p| query(*p)).collect();
            }
            if let Some(body) = body {
                operation["requestBody"] = body.clone();
            }
            operations.insert((*method).to_owned(), operation);
        }
        if operations.is_empty() {
            return;
        }
        let mut parameters = Vec::new();
        if named {
            parameters.push(path_parameter("name"));
        }
        if self.resource.namespaced {
            parameters.push(path_parameter("namespace"));
        }
        if !parameters.is_empty() {
            operations.insert("parameters".to_owned(), parameters.into());
        }
        paths.insert(path.to_owned(), Value::Object(operations));
    }

    fn group_id(&self) -> String {
        match self.resource.resource.group.split('.').next() {
            Some(first) if !first.is_empty() => capitalized(first),
            _ => "Core".to_owned(),
        }
    }

    fn tag(&self) -> String {
        let group = self.group_id();
        let mut letters = group.chars();
        let first: String = letters
            .next()
            .into_iter()
            .flat_map(char::to_lowercase)
            .collect();
        format!("{first}{}_{}", letters.as_str(), self.resource.version)
    }

    fn id(&self, prefix: &str, suffix: &str) -> String {
        let is_namespaced = self.resource.namespaced && suffix != "ForAllNamespaces";
        let scope = if is_namespaced { "Namespaced" } else { "" };
        let (group, version) = (self.group_id(), capitalized(self.resource.version));
        format!(
            "{prefix}{group}{version}{scope}{}{suffix}",
            self.resource.kind
        )
    }
}

fn patch_body(resource: &Resource) -> Value {
    let mut types = vec![PatchType::Json, PatchType::Merge];
    if resource.custom.is_none() {
        types.push(PatchType::Strategic);
    }
    let content: Map<String, Value> = types
        .into_iter()
        .map(|t| {
            (
                t.media_type().to_owned(),
                json!({"schema": meta_reference("Patch")}),
            )
        })
        .collect();
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
