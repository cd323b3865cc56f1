//! The paths of a document: which requests a kind answers, with which parameters and bodies.
//!
//! Clients look here for what the server supports: kubectl validates on the server only if the patch operation
//! of the kind knows `fieldValidation`, and computes a strategic merge patch only if that operation takes one.

use super::components::Components;
use super::{ServedKind, ServedSubresource, group_version_kind};
use crate::patch::PatchType;
use serde_json::{Map, Value, json};

/// Everything that the document of a group version says of requests. `root` is `api/v1` or
/// `apis/<group>/<version>`.
pub(super) fn paths(
    root: &str,
    kinds: &[ServedKind],
    components: &Components,
) -> Map<String, Value> {
    let mut paths = Map::new();
    for kind in kinds {
        let resource = Resource { kind, components };
        let scope = if kind.info.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let plural = kind.info.resource.resource;
        let collection = format!("/{root}{scope}/{plural}");
        let object = format!("{collection}/{{name}}");
        let parameters = resource.path_parameters(false);
        insert(&mut paths, &collection, resource.collection(), parameters);
        if kind.info.namespaced && kind.verbs.contains(&"list") {
            let mut everywhere = Map::new();
            everywhere.insert("get".to_owned(), resource.list("ForAllNamespaces"));
            insert(
                &mut paths,
                &format!("/{root}/{plural}"),
                everywhere,
                Vec::new(),
            );
        }
        let parameters = resource.path_parameters(true);
        insert(&mut paths, &object, resource.object(), parameters);
        for subresource in &kind.subresources {
            let path = format!("{object}/{}", subresource.name);
            let parameters = resource.path_parameters(true);
            insert(
                &mut paths,
                &path,
                resource.subresource(subresource),
                parameters,
            );
        }
    }
    paths
}

/// Adds a path that answers at least one method.
fn insert(
    paths: &mut Map<String, Value>,
    path: &str,
    mut operations: Map<String, Value>,
    parameters: Vec<Value>,
) {
    if operations.is_empty() {
        return;
    }
    if !parameters.is_empty() {
        operations.insert("parameters".to_owned(), Value::Array(parameters));
    }
    paths.insert(path.to_owned(), Value::Object(operations));
}

struct Resource<'a> {
    kind: &'a ServedKind,
    components: &'a Components,
}

/// What a request carries and how it is answered.
struct Operation<'a> {
    /// The start of the operation's ID, such as `patch`.
    verb: &'a str,
    /// The end of the operation's ID, such as `Status`.
    suffix: &'a str,
    /// The value of `x-kubernetes-action`.
    action: &'a str,
    description: String,
    parameters: Vec<Value>,
    body: Option<Value>,
    response: Value,
    /// The kind that the operation speaks of.
    spoken: (&'a str, &'a str, &'a str),
}

impl Resource<'_> {
    fn own(&self) -> (&'static str, &'static str, &'static str) {
        let info = &self.kind.info;
        (info.resource.group, info.version, info.kind)
    }

    fn has(&self, verb: &str) -> bool {
        self.kind.verbs.contains(&verb)
    }

    fn path_parameters(&self, named: bool) -> Vec<Value> {
        let parameter = |name: &str, description: String| {
            json!({
                "name": name,
                "in": "path",
                "required": true,
                "description": description,
                "schema": {"type": "string", "uniqueItems": true},
            })
        };
        let mut parameters = Vec::new();
        if named {
            parameters.push(parameter(
                "name",
                format!("name of the {}", self.kind.info.kind),
            ));
        }
        if self.kind.info.namespaced {
            parameters.push(parameter(
                "namespace",
                "the namespace that the object lives in".to_owned(),
            ));
        }
        parameters
    }

    fn collection(&self) -> Map<String, Value> {
        let name = self.kind.info.kind;
        let own = self.reference(self.own());
        let mut operations = Map::new();
        if self.has("list") {
            operations.insert("get".to_owned(), self.list(""));
        }
        if self.has("create") {
            let operation = Operation {
                verb: "create",
                suffix: "",
                action: "post",
                description: format!("create a {name}"),
                parameters: write_parameters(),
                body: Some(any_body(&own)),
                response: own,
                spoken: self.own(),
            };
            operations.insert("post".to_owned(), self.operation(operation));
        }
        if self.has("deletecollection") {
            let operation = Operation {
                verb: "deleteCollection",
                suffix: "",
                action: "deletecollection",
                description: format!("delete every {name} that is selected"),
                parameters: [selection_parameters(), delete_parameters()].concat(),
                body: Some(any_body(&self.components.meta_reference("DeleteOptions"))),
                response: self.components.meta_reference("Status"),
                spoken: self.own(),
            };
            operations.insert("delete".to_owned(), self.operation(operation));
        }
        operations
    }

    fn list(&self, suffix: &str) -> Value {
        let (group, version, name) = self.own();
        let list = format!("{name}List");
        self.operation(Operation {
            verb: "list",
            suffix,
            action: "list",
            description: format!("list or watch objects of kind {name}"),
            parameters: [selection_parameters(), watch_parameters()].concat(),
            body: None,
            response: self.reference((group, version, &list)),
            spoken: self.own(),
        })
    }

    fn object(&self) -> Map<String, Value> {
        let mut operations = self.reads_and_writes(self.own(), &self.kind.verbs, "");
        if self.has("delete") {
            let operation = Operation {
                verb: "delete",
                suffix: "",
                action: "delete",
                description: format!("delete a {}", self.kind.info.kind),
                parameters: delete_parameters(),
                body: Some(any_body(&self.components.meta_reference("DeleteOptions"))),
                response: self.components.meta_reference("Status"),
                spoken: self.own(),
            };
            operations.insert("delete".to_owned(), self.operation(operation));
        }
        operations
    }

    fn subresource(&self, subresource: &ServedSubresource) -> Map<String, Value> {
        let spoken = (subresource.group, subresource.version, subresource.kind);
        let suffix = capitalized(subresource.name);
        let mut operations = self.reads_and_writes(spoken, subresource.verbs, &suffix);
        if subresource.verbs.contains(&"create") {
            let reference = self.reference(spoken);
            let operation = Operation {
                verb: "create",
                suffix: &suffix,
                action: "post",
                description: format!("create {} of a {}", subresource.name, self.kind.info.kind),
                parameters: write_parameters(),
                body: Some(any_body(&reference)),
                response: reference,
                spoken,
            };
            operations.insert("post".to_owned(), self.operation(operation));
        }
        operations
    }

    /// `get`, `put` and `patch` of an object or of a part of it.
    fn reads_and_writes(
        &self,
        spoken: (&str, &str, &str),
        verbs: &[&str],
        suffix: &str,
    ) -> Map<String, Value> {
        let name = self.kind.info.kind;
        let what = match suffix {
            "" => format!("the {name}"),
            part => format!("{} of the {name}", part.to_lowercase()),
        };
        let reference = self.reference(spoken);
        let mut operations = Map::new();
        let rows = [
            ("get", "get", "read", Vec::new(), None),
            (
                "update",
                "put",
                "replace",
                write_parameters(),
                Some(any_body(&reference)),
            ),
            (
                "patch",
                "patch",
                "patch",
                patch_parameters(),
                Some(self.patch_body()),
            ),
        ];
        for (verb, method, action, parameters, body) in rows {
            if !verbs.contains(&verb) {
                continue;
            }
            let operation = Operation {
                verb: action,
                suffix,
                action: method,
                description: format!("{action} {what}"),
                parameters,
                body,
                response: reference.clone(),
                spoken,
            };
            operations.insert(method.to_owned(), self.operation(operation));
        }
        operations
    }

    fn patch_body(&self) -> Value {
        let content: Map<String, Value> = [PatchType::Json, PatchType::Merge, PatchType::Strategic]
            .into_iter()
            .map(|patch_type| {
                let schema = self.components.meta_reference("Patch");
                (
                    patch_type.media_type().to_owned(),
                    json!({ "schema": schema }),
                )
            })
            .collect();
        json!({"content": content, "required": true})
    }

    fn reference(&self, (group, version, kind): (&str, &str, &str)) -> Value {
        self.components.reference(group, version, kind)
    }

    fn operation(&self, operation: Operation<'_>) -> Value {
        let (group, version, kind) = self.own();
        let group_id = match group.split('.').next() {
            Some(first) if !first.is_empty() => capitalized(first),
            _ => "Core".to_owned(),
        };
        let scope = if self.kind.info.namespaced && operation.suffix != "ForAllNamespaces" {
            "Namespaced"
        } else {
            ""
        };
        let id = format!(
            "{}{group_id}{}{scope}{kind}{}",
            operation.verb,
            capitalized(version),
            operation.suffix
        );
        let tag = format!("{}_{version}", lower_first(&group_id));
        let (group, version, kind) = operation.spoken;
        let response = operation.response;
        let mut value = json!({
            "tags": [tag],
            "description": operation.description,
            "operationId": id,
            "responses": {
                "200": {
                    "description": "OK",
                    "content": {"application/json": {"schema": response}},
                },
                "401": {"description": "Unauthorized"},
            },
            "x-kubernetes-action": operation.action,
            "x-kubernetes-group-version-kind": group_version_kind(group, version, kind),
        });
        if !operation.parameters.is_empty() {
            value["parameters"] = Value::Array(operation.parameters);
        }
        if let Some(body) = operation.body {
            value["requestBody"] = body;
        }
        value
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn lower_first(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(letters).collect()
    })
}

fn any_body(schema: &Value) -> Value {
    json!({"content": {"*/*": {"schema": schema}}})
}

fn query(name: &str, schema_type: &str, description: &str) -> Value {
    json!({
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": schema_type, "uniqueItems": true},
    })
}

fn write_parameters() -> Vec<Value> {
    vec![
        query(
            "dryRun",
            "string",
            "With the value All nothing is stored; the answer is as if it were.",
        ),
        query(
            "fieldManager",
            "string",
            "Who makes this change, as managedFields records it.",
        ),
        query(
            "fieldValidation",
            "string",
            "What unknown and duplicate fields lead to: Ignore drops them, Warn drops them with a warning, Strict refuses the request.",
        ),
    ]
}

fn patch_parameters() -> Vec<Value> {
    let mut parameters = write_parameters();
    parameters.push(query(
        "force",
        "boolean",
        "Take over fields that other managers own. Of use in apply requests only.",
    ));
    parameters
}

fn delete_parameters() -> Vec<Value> {
    vec![
        query(
            "dryRun",
            "string",
            "With the value All nothing is deleted; the answer is as if it were.",
        ),
        query(
            "gracePeriodSeconds",
            "integer",
            "How long the object may take to end; 0 is at once.",
        ),
        query(
            "propagationPolicy",
            "string",
            "What becomes of the objects that this one owns: Orphan, Background or Foreground.",
        ),
    ]
}

fn selection_parameters() -> Vec<Value> {
    vec![
        query("labelSelector", "string", "Only objects with these labels."),
        query("fieldSelector", "string", "Only objects with these fields."),
        query(
            "limit",
            "integer",
            "At most so many objects in an answer; the rest with its continue token.",
        ),
        query(
            "continue",
            "string",
            "The token of the answer before, for what comes after it.",
        ),
        query(
            "resourceVersion",
            "string",
            "The version that the answer is to have, at least or exactly.",
        ),
        query(
            "resourceVersionMatch",
            "string",
            "How resourceVersion is meant: Exact or NotOlderThan.",
        ),
        query(
            "timeoutSeconds",
            "integer",
            "The request ends after so long.",
        ),
    ]
}

fn watch_parameters() -> Vec<Value> {
    vec![
        query(
            "watch",
            "boolean",
            "Send changes as they happen instead of a list.",
        ),
        query(
            "allowWatchBookmarks",
            "boolean",
            "Send bookmarks, events that carry a version only.",
        ),
        query(
            "sendInitialEvents",
            "boolean",
            "Begin a watch with the objects that are there, then a bookmark.",
        ),
    ]
}
