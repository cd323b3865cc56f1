//! Custom resources: the types that CustomResourceDefinitions define, and what follows from a definition.
//!
//! A version of a definition becomes a [`CustomType`]: its structural schema, with which objects are pruned, defaulted
//! and validated, and a `Model` of the same schema for server-side apply. `definition` turns definitions into resources
//! and keeps their conditions; `schema` checks the schemas themselves.

pub mod conversion;
pub mod definition;
mod json_path;
mod model;
mod objects;
pub(crate) mod rules;
pub(crate) mod schema;

pub(crate) use json_path::JsonPath;

use self::conversion::ConversionWebhook;
use self::rules::Rules;
use crate::field::FieldError;
use crate::openapi::descriptions;
use crate::schema::GroupVersionKind;
use crate::schema::model::{Model, TypeId};
use crate::schema::{Decoded, Schemas};
use crate::strategy::{KindStrategy, Subresource};
use crate::view::{FieldView, copy_field, meta_mut, remove};
use regex::Regex;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::sync::Arc;

/// The type of one version of a custom resource.
#[derive(Debug, Clone)]
pub struct CustomType {
    /// The schema, as its definition states it.
    schema: Value,
    /// The same for server-side apply.
    model: Model,
    root: TypeId,
    /// The compiled patterns of the schema.
    patterns: FxHashMap<String, Regex>,
    /// The rules of the schema.
    rules: Rules,
    /// Whether the status is a subresource.
    pub(crate) has_status: bool,
    /// The paths of the replicas and the selector of the subresource `scale`.
    pub scale: Option<ScalePaths>,
    /// The version in which objects are stored, such as `example.com/v1`.
    pub stored_version: String,
    /// The webhook that converts objects between the versions; `None` where these differ in nothing but their names.
    pub converter: Option<Arc<ConversionWebhook>>,
    /// The warning about each request, for a deprecated version.
    pub deprecated: Option<String>,
}

/// The paths of the subresource `scale`, as JSON pointers.
#[derive(Debug, Clone)]
pub struct ScalePaths {
    /// The wanted number of replicas.
    pub spec: String,
    /// The number of replicas.
    pub status: String,
    /// The selector of the pods, as text.
    pub selector: Option<String>,
}

impl CustomType {
    /// A type of a version of a definition.
    fn new(version: &Value, stored_version: String) -> Self {
        let schema = version.part("schema").part("openAPIV3Schema");
        let subresources = version.part("subresources");
        let pointer = |path: &str| path.replace('.', "/");
        let scale = subresources.field("scale").map(|scale| ScalePaths {
            spec: pointer(scale.text("specReplicasPath")),
            status: pointer(scale.text("statusReplicasPath")),
            selector: scale.maybe_text("labelSelectorPath").map(pointer),
        });
        let (model, root) = model::of(schema);
        Self {
            model,
            root,
            patterns: objects::patterns(schema),
            rules: Rules::of(schema),
            has_status: subresources.field("status").is_some(),
            scale,
            stored_version,
            converter: None,
            deprecated: None,
            schema: schema.clone(),
        }
    }

    /// The faults of an object, which was another one before a change.
    fn faults(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut faults = objects::validate(&self.schema, &self.patterns, object);
        self.rules
            .validate(&self.schema, (object, old), &mut faults);
        faults
    }

    /// The model that server-side apply reads.
    pub(crate) fn model(&self) -> (&Model, TypeId) {
        (&self.model, self.root)
    }

    /// The schema as OpenAPI publishes it.
    pub(crate) fn published(&self, group_version_kind: Value, metadata: &Value) -> Value {
        let mut schema = self.schema.clone();
        publish_embedded(&mut schema, metadata);
        publish_object(&mut schema, metadata);
        schema["x-kubernetes-group-version-kind"] = json!([group_version_kind]);
        schema
    }

    /// Drops the fields that the schema does not have, and brings the metadata into its normal form.
    pub(crate) fn decode(&self, object: &mut Value) -> Decoded {
        let mut decoded = Decoded::default();
        objects::prune(&self.schema, object, &mut decoded.unknown_fields);
        let metadata = Value::Object(std::mem::take(meta_mut(object)));
        let mut whole = json!({ "metadata": metadata });
        let kind = GroupVersionKind::new("", "v1", "PartialObjectMetadata");
        let found = Schemas::get().normalize(kind, &mut whole);
        object["metadata"] = whole["metadata"].take();
        // Those of the metadata first, then the others by their paths.
        decoded.unknown_fields.sort();
        decoded.unknown_fields.splice(..0, found.unknown_fields);
        decoded.type_errors = found.type_errors;
        decoded
    }

    /// An object in this version, of whose schema it has the defaults. Without a webhook, versions differ in nothing
    /// else.
    pub(crate) fn shown(&self, object: &Value, api_version: &str) -> Value {
        let mut shown = object.clone();
        objects::fill_defaults(&self.schema, &mut shown);
        shown["apiVersion"] = api_version.into();
        shown
    }
}

/// Adds the fields that every object has to a schema.
fn publish_object(schema: &mut Value, metadata: &Value) {
    for (field, mut published) in [
        ("apiVersion", json!({"type": "string"})),
        ("kind", json!({"type": "string"})),
        ("metadata", json!({"allOf": [metadata]})),
    ] {
        published["description"] = descriptions::of_object(field).into();
        schema["properties"][field] = published;
    }
}

/// Adds them to the schemas of objects that are embedded in others.
fn publish_embedded(schema: &mut Value, metadata: &Value) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(|map| map.values_mut()) {
        publish_embedded(property, metadata);
    }
    for field in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(field).filter(|below| below.is_object()) {
            publish_embedded(below, metadata);
        }
    }
    if schema.flag("x-kubernetes-embedded-resource") {
        publish_object(schema, metadata);
    }
}

impl KindStrategy for CustomType {
    fn default(&self, object: &mut Value) {
        objects::drop_nulls(&self.schema, object);
        objects::fill_defaults(&self.schema, object);
    }

    fn prepare_for_create(&self, object: &mut Value, _now: &str) {
        if self.has_status {
            remove(object, "status");
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        self.faults(object, None)
    }

    fn validate_update(&self, new: &Value, old: &Value, _part: Subresource) -> Vec<FieldError> {
        self.faults(new, Some(old))
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, _now: &str) {
        match part {
            Subresource::Status => {
                let mut object = old.clone();
                copy_field(&mut object, new, "status");
                *new = object;
            }
            _ if self.has_status => copy_field(new, old, "status"),
            _ => {}
        }
    }
}
