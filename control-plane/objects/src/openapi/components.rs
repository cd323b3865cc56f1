//! The schemas of documents, from the tables of facts.

use super::descriptions;
use crate::releases::ApiRelease;
use crate::schema::GroupVersionKind;
use crate::schema::Schemas;
use crate::schema::model::{ListType, ModelField, ObjectType, Presence, TypeId, ValueShape};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The place where component schemas are listed in an OpenAPI v3 document.
pub(super) const COMPONENTS: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const MACHINERY: &str = "io.k8s.apimachinery.pkg.";

/// The name in OpenAPI of a type of the tables, such as `io.k8s.api.core.v1.Pod`.
pub(super) fn openapi_name(type_name: &str) -> String {
    match type_name.split('.').next() {
        Some("meta") => format!("{MACHINERY}apis.{type_name}"),
        Some("apiextensions") => format!("io.k8s.apiextensions-apiserver.pkg.apis.{type_name}"),
        _ => format!("io.k8s.api.{type_name}"),
    }
}

/// A reference to a schema by its name.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{COMPONENTS}{name}") })
}

/// A reference to a type of the API machinery, such as `Status`.
pub(super) fn meta_reference(name: &str) -> Value {
    reference(&format!("{META}{name}"))
}

/// OpenAPI 3.0 allows no siblings of a reference, so it is wrapped.
pub(super) fn all_of(reference: Value) -> Value {
    json!({ "allOf": [reference] })
}

/// Group, version and kind as extensions write them.
pub(super) fn group_version_kind(kind: GroupVersionKind<'_>) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

/// The schemas of a document.
#[derive(Debug)]
pub(super) struct Components {
    /// The release whose fields are published.
    api: ApiRelease,
    schemas: Map<String, Value>,
    /// The types with a present or pending schema.
    seen: BTreeSet<String>,
}

impl Components {
    /// The schemas that every document of a release has.
    pub(super) fn new(api: ApiRelease) -> Self {
        let mut components = Self {
            api,
            schemas: Map::new(),
            seen: BTreeSet::new(),
        };
        for name in ["DeleteOptions", "ListMeta", "ObjectMeta", "Patch", "Status"] {
            if let Some(id) = Schemas::get().model().find(&format!("meta.v1.{name}")) {
                components.add_type(id);
            }
        }
        // These types encode themselves, so their fields do not describe their JSON.
        for (name, schema) in [
            (
                "api.resource.Quantity",
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            ),
            ("apis.meta.v1.Duration", json!({"type": "string"})),
            ("apis.meta.v1.FieldsV1", json!({"type": "object"})),
            (
                "apis.meta.v1.MicroTime",
                json!({"type": "string", "format": "date-time"}),
            ),
            (
                "apis.meta.v1.Time",
                json!({"type": "string", "format": "date-time"}),
            ),
            ("runtime.RawExtension", json!({"type": "object"})),
            (
                "util.intstr.IntOrString",
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
            ),
        ] {
            components.insert(format!("{MACHINERY}{name}"), schema);
        }
        components
    }

    /// Adds a schema.
    pub(super) fn insert(&mut self, name: String, schema: Value) {
        self.schemas.insert(name, schema);
    }

    /// Adds the schema of a kind and all schemas that it refers to. Returns its name.
    pub(super) fn add_kind(&mut self, kind: GroupVersionKind<'_>) -> Option<String> {
        let id = Schemas::get().find(kind)?;
        let name = self.add_type(id);
        if let Some(Value::Object(schema)) = self.schemas.get_mut(&name) {
            let kinds = schema
                .entry("x-kubernetes-group-version-kind")
                .or_insert(json!([]));
            let spoken = group_version_kind(kind);
            if let Some(kinds) = kinds.as_array_mut().filter(|k| !k.contains(&spoken)) {
                kinds.push(spoken);
            }
        }
        Some(name)
    }

    /// Adds the schema of the list of a kind whose schema has this name.
    pub(super) fn add_list(&mut self, item: &str, kind: GroupVersionKind<'_>) {
        let schema = json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "items": {"type": "array", "items": all_of(reference(item))},
                "kind": {"type": "string"},
                "metadata": all_of(meta_reference("ListMeta")),
            },
            "x-kubernetes-group-version-kind": [group_version_kind(kind)],
        });
        self.insert(format!("{item}List"), schema);
    }

    /// The schemas by name.
    pub(super) fn into_schemas(self) -> Map<String, Value> {
        self.schemas
    }

    fn add_type(&mut self, id: TypeId) -> String {
        let object_type = Schemas::get().model().object_type(id);
        let name = openapi_name(&object_type.name);
        if self.seen.insert(name.clone()) {
            let schema = self.object_schema(object_type);
            self.insert(name.clone(), schema);
        }
        name
    }

    fn object_schema(&mut self, object_type: &ObjectType) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        let api = self.api;
        let fields = object_type.fields.iter();
        let has = |name: &str| fields.clone().any(|field| &*field.name == name);
        // Only fields that exist in this release are published.
        let is_kind = has("apiVersion") && has("metadata");
        for field in fields.filter(|f| f.availability.is_in(api)) {
            if field.required {
                required.push(&*field.name);
            }
            let mut schema = self.field_schema(field);
            let description = descriptions::of_field(&object_type.name, &field.name, is_kind);
            schema["description"] = description.into();
            properties.insert(field.name.to_string(), schema);
        }
        let mut schema = json!({"type": "object"});
        if let Some(description) = descriptions::of_type(&object_type.name) {
            schema["description"] = description.into();
        }
        if !properties.is_empty() {
            schema["properties"] = Value::Object(properties);
        }
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        if object_type.atomic {
            schema["x-kubernetes-map-type"] = json!("atomic");
        }
        schema
    }

    fn field_schema(&mut self, field: &ModelField) -> Value {
        let mut schema = self.shape_schema(&field.shape);
        if matches!(field.shape, ValueShape::List(_)) {
            let list_type = match &field.list {
                ListType::Atomic => "atomic",
                ListType::Set => "set",
                ListType::Map(keys) => {
                    schema["x-kubernetes-list-map-keys"] = json!(keys);
                    "map"
                }
            };
            schema["x-kubernetes-list-type"] = json!(list_type);
        }
        if let Some(key) = &field.merge_key {
            schema["x-kubernetes-patch-merge-key"] = json!(key);
        }
        if let Some(strategy) = field.patch.text() {
            schema["x-kubernetes-patch-strategy"] = json!(strategy);
        }
        if let Some(atomic) = field.atomic {
            schema["x-kubernetes-map-type"] = json!(if atomic { "atomic" } else { "granular" });
        }
        // Lists, maps and objects have no zero value in OpenAPI.
        let is_value = !matches!(
            field.shape,
            ValueShape::List(_) | ValueShape::Map(_) | ValueShape::Object(_)
        );
        match &field.default {
            Some(default) => schema["default"] = default.clone(),
            None if is_value && field.required && field.presence == Presence::AlwaysWritten => {
                if let Some(zero) = field.shape.zero().filter(|z| !z.is_null()) {
                    schema["default"] = zero;
                }
            }
            None => {}
        }
        if !field.values.is_empty() && field.shape == ValueShape::String {
            schema["enum"] = json!(field.values);
        }
        schema
    }

    fn shape_schema(&mut self, shape: &ValueShape) -> Value {
        let machinery = |name: &str| all_of(reference(&format!("{MACHINERY}{name}")));
        match shape {
            ValueShape::Any | ValueShape::SchemaOr(_) => json!({}),
            ValueShape::Raw => machinery("runtime.RawExtension"),
            ValueShape::Fields => machinery("apis.meta.v1.FieldsV1"),
            ValueShape::Bool => json!({"type": "boolean"}),
            ValueShape::Int32 => json!({"type": "integer", "format": "int32"}),
            ValueShape::Int64 => json!({"type": "integer", "format": "int64"}),
            ValueShape::Float => json!({"type": "number", "format": "double"}),
            ValueShape::String => json!({"type": "string"}),
            ValueShape::Bytes => json!({"type": "string", "format": "byte"}),
            ValueShape::Time => machinery("apis.meta.v1.Time"),
            ValueShape::MicroTime => machinery("apis.meta.v1.MicroTime"),
            ValueShape::Duration => machinery("apis.meta.v1.Duration"),
            ValueShape::Quantity => machinery("api.resource.Quantity"),
            ValueShape::IntOrString => machinery("util.intstr.IntOrString"),
            ValueShape::Strings => json!({"type": "array", "items": {"type": "string"}}),
            // Types are referenced, because they can contain themselves.
            ValueShape::Object(id) => {
                let name = self.add_type(*id);
                all_of(reference(&name))
            }
            ValueShape::List(items) => {
                json!({"type": "array", "items": self.shape_schema(items)})
            }
            ValueShape::Map(values) => {
                json!({"type": "object", "additionalProperties": self.shape_schema(values)})
            }
        }
    }
}
