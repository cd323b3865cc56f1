//! The schemas of a document: the generated ones brought into the form that Kubernetes publishes, with the
//! rules of the extensions table added.

use super::{ServedKind, group_version_kind};
use crate::schema::extensions::{self, FieldRule, ListType};
use crate::schema::kinds::{self, COMPONENTS};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What a document says of kinds.
pub(super) struct Components {
    schemas: Map<String, Value>,
    /// The schema's name by group, version and kind.
    names: BTreeMap<(String, String, String), String>,
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

impl Components {
    /// The schemas of kinds, of their lists and of what their subresources speak.
    pub(super) fn of(kinds: &[ServedKind]) -> Self {
        let mut wanted: Vec<(&str, &str, &str)> = Vec::new();
        for kind in kinds {
            wanted.push((kind.info.resource.group, kind.info.version, kind.info.kind));
            wanted.extend(
                kind.subresources
                    .iter()
                    .map(|s| (s.group, s.version, s.kind)),
            );
        }
        wanted.sort_unstable();
        wanted.dedup();

        let (definitions, described) = kinds::describe(&wanted);
        let mut components = Self {
            schemas: definitions
                .into_iter()
                .map(|(name, schema)| {
                    let schema = definition(&name, schema);
                    (name, schema)
                })
                .collect(),
            names: BTreeMap::new(),
        };
        components.schemas.insert(
            format!("{META}Patch"),
            json!({
                "description": "A patch of an object, in the language that its media type names.",
                "type": "object",
            }),
        );
        for ((group, version, kind), name) in wanted.iter().zip(described) {
            let name = name.unwrap_or_else(|| components.free_kind(group, version, kind));
            if let Some(Value::Object(schema)) = components.schemas.get_mut(&name) {
                schema.insert(
                    "x-kubernetes-group-version-kind".to_owned(),
                    json!([group_version_kind(group, version, kind)]),
                );
            }
            components.names.insert(
                (
                    (*group).to_owned(),
                    (*version).to_owned(),
                    (*kind).to_owned(),
                ),
                name,
            );
        }
        for kind in kinds.iter().filter(|k| k.verbs.contains(&"list")) {
            components.list_of(kind);
        }
        components
    }

    /// The schemas by name.
    pub(super) fn into_schemas(self) -> Map<String, Value> {
        self.schemas
    }

    /// A reference to the schema of a kind.
    pub(super) fn reference(&self, group: &str, version: &str, kind: &str) -> Value {
        let key = (group.to_owned(), version.to_owned(), kind.to_owned());
        match self.names.get(&key) {
            Some(name) => reference(name),
            None => json!({"type": "object"}),
        }
    }

    /// A reference to a type of the API machinery, such as `Status`.
    pub(super) fn meta_reference(&self, name: &str) -> Value {
        reference(&format!("{META}{name}"))
    }

    /// The schema of a kind of which no type is known: any object.
    fn free_kind(&mut self, group: &str, version: &str, kind: &str) -> String {
        let mut parts: Vec<&str> = group.split('.').filter(|part| !part.is_empty()).collect();
        parts.reverse();
        parts.extend([version, kind]);
        let name = parts.join(".");
        self.schemas.insert(
            name.clone(),
            json!({
                "description": format!("An object of kind {kind}. Its fields are not described."),
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": all_of(reference(&format!("{META}ObjectMeta"))),
                },
                "x-kubernetes-preserve-unknown-fields": true,
            }),
        );
        name
    }

    /// Adds the schema of the list of a kind.
    fn list_of(&mut self, kind: &ServedKind) {
        let (group, version, name) = (kind.info.resource.group, kind.info.version, kind.info.kind);
        let key = (group.to_owned(), version.to_owned(), name.to_owned());
        let Some(item) = self.names.get(&key).cloned() else {
            return;
        };
        let list_kind = format!("{name}List");
        let schema = json!({
            "description": format!("A list of {name} objects."),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"description": "The version of this representation.", "type": "string"},
                "items": {
                    "description": "The objects.",
                    "type": "array",
                    "items": all_of(reference(&item)),
                },
                "kind": {"description": "The kind of this representation.", "type": "string"},
                "metadata": all_of(reference(&format!("{META}ListMeta"))),
            },
            "x-kubernetes-group-version-kind": [group_version_kind(group, version, &list_kind)],
        });
        let schema_name = format!("{item}List");
        self.names.insert(
            (group.to_owned(), version.to_owned(), list_kind),
            schema_name.clone(),
        );
        self.schemas.insert(schema_name, schema);
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{COMPONENTS}{name}") })
}

/// OpenAPI 3.0 allows nothing beside a reference, so it is wrapped.
fn all_of(reference: Value) -> Value {
    json!({ "allOf": [reference] })
}

/// One generated schema in the form that Kubernetes publishes.
fn definition(name: &str, schema: Value) -> Value {
    let Value::Object(mut schema) = schema else {
        return schema;
    };
    match name.strip_prefix("io.k8s.apimachinery.pkg.") {
        Some("api.resource.Quantity") => {
            schema.remove("x-kubernetes-int-or-string");
            schema.insert(
                "oneOf".to_owned(),
                json!([{"type": "string"}, {"type": "number"}]),
            );
        }
        Some("util.intstr.IntOrString") => {
            schema.remove("x-kubernetes-int-or-string");
            schema.insert("format".to_owned(), json!("int-or-string"));
            schema.insert(
                "oneOf".to_owned(),
                json!([{"type": "integer"}, {"type": "string"}]),
            );
        }
        _ => {}
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (field, property) in properties {
            let plain = std::mem::take(property);
            *property = published(plain, extensions::field_rule(name, field));
        }
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        // The generated types always have metadata; the API does not ask for it.
        required.retain(|field| field != "metadata");
        if required.is_empty() {
            schema.remove("required");
        }
    }
    if extensions::type_rules(name).is_some_and(|rules| rules.atomic) {
        schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    }
    Value::Object(schema)
}

/// A schema inside another one.
fn published(schema: Value, rule: Option<&FieldRule>) -> Value {
    let Value::Object(mut schema) = schema else {
        return schema;
    };
    if let Some(reference) = schema.remove("$ref") {
        schema.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
    }
    for nested in ["items", "additionalProperties"] {
        if let Some(inner) = schema.remove(nested) {
            schema.insert(nested.to_owned(), published(inner, None));
        }
    }
    if schema.get("type").and_then(Value::as_str) == Some("array") {
        let list_type = match rule.and_then(|r| r.list_type) {
            Some(ListType::Set) => "set",
            Some(ListType::Map(keys)) => {
                schema.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
                "map"
            }
            None => "atomic",
        };
        schema.insert("x-kubernetes-list-type".to_owned(), json!(list_type));
    }
    let Some(rule) = rule else {
        return Value::Object(schema);
    };
    let extensions = [
        ("x-kubernetes-patch-merge-key", rule.merge_key),
        ("x-kubernetes-patch-strategy", rule.patch_strategy()),
        (
            "x-kubernetes-map-type",
            rule.atomic_map
                .map(|atomic| if atomic { "atomic" } else { "granular" }),
        ),
        ("default", rule.default),
    ];
    for (name, value) in extensions {
        if let Some(value) = value {
            schema.insert(name.to_owned(), json!(value));
        }
    }
    Value::Object(schema)
}
