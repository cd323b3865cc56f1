//! The schemas of custom resources, as documents publish them.

use super::descriptions;
use crate::custom::CustomType;
use crate::view::FieldView;
use serde_json::{Value, json};

/// The schema of a type. `metadata` refers to the schema of the metadata.
pub(super) fn published(custom: &CustomType, group_version_kind: Value, metadata: &Value) -> Value {
    let mut schema = custom.schema().clone();
    publish_embedded(&mut schema, metadata);
    publish_object(&mut schema, metadata);
    schema["x-kubernetes-group-version-kind"] = json!([group_version_kind]);
    schema
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
