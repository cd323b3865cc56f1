//! Objects within custom resources (`x-kubernetes-embedded-resource`): their types and their metadata.

use super::place::Place;
use crate::schema::{Decoded, GroupVersionKind, Schemas};
use crate::validation::errors::{ErrorPath, Errors, Shown};
use crate::validation::metadata;
use crate::view::{FieldView, set_if_zero};
use berth_api::names::dns1035_label;
use serde_json::{Value, json};

/// Adds the faults of the objects in a value. They are the same before and after a change.
pub(super) fn check(errors: &mut Errors, schema: &Value, value: &Value, path: &ErrorPath<'_>) {
    match value {
        Value::Object(map) => {
            if schema.flag("x-kubernetes-embedded-resource") {
                check_object(errors, value, path);
            }
            let properties = schema.part("properties");
            for (name, value) in map {
                match properties.get(name) {
                    Some(schema) => check(errors, schema, value, &path.child(name)),
                    None => {
                        let schema = schema.part("additionalProperties");
                        check(errors, schema, value, &path.key(name));
                    }
                }
            }
        }
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                check(errors, schema.part("items"), value, &path.index(i));
            }
        }
        _ => {}
    }
}

fn check_object(errors: &mut Errors, object: &Value, path: &ErrorPath<'_>) {
    for name in ["apiVersion", "kind"] {
        let path = path.child(name);
        let text = match object.get(name) {
            None => {
                errors.required(&path, "");
                continue;
            }
            Some(Value::String(text)) => text,
            Some(other) => {
                errors.invalid(&path, Shown::from(other), "must be a string");
                continue;
            }
        };
        if text.is_empty() {
            errors.invalid(&path, "", "must not be empty");
        } else if name == "apiVersion" && text.matches('/').count() > 1 {
            let detail = format!("unexpected GroupVersion string: {text}");
            errors.invalid(&path, text, detail);
        } else if name == "kind" {
            let faults = dns1035_label(&text.to_lowercase()).join(",");
            if !faults.is_empty() {
                let detail = format!("may have mixed case, but should otherwise match: {faults}");
                errors.invalid(&path, text, detail);
            }
        }
    }
    if let Some(metadata) = object.get("metadata") {
        let mut metadata = metadata.clone();
        // The name of an embedded object is optional.
        set_if_zero(&mut metadata, "name", "fakename");
        metadata::validate_embedded(errors, &metadata, &path.child("metadata"));
    }
}

/// Brings the metadata of the objects in a value into its normal form.
pub(super) fn normalize(schema: &Value, object: &mut Value, decoded: &mut Decoded) {
    let mut found = Decoded::default();
    normalize_value(schema, object, &Place::ROOT, &mut found);
    found.unknown_fields.sort();
    decoded.unknown_fields.append(&mut found.unknown_fields);
    decoded.type_errors.append(&mut found.type_errors);
}

fn normalize_value(schema: &Value, value: &mut Value, place: &Place<'_>, found: &mut Decoded) {
    match value {
        Value::Object(map) => {
            let is_object = schema.flag("x-kubernetes-embedded-resource");
            let properties = schema.part("properties");
            for (name, value) in map {
                if is_object && matches!(name.as_str(), "apiVersion" | "kind") && !value.is_string()
                {
                    let shown = Shown::from(&*value).0;
                    let place = place.field(name);
                    let fault = format!("{place}: Invalid value: {shown}: must be a string");
                    found.type_errors.push(fault);
                }
                if is_object && name == "metadata" {
                    let (unknown, errors) = normalize_metadata(value);
                    let unknown = unknown.iter().map(|path| format!("{place}.{path}"));
                    found.unknown_fields.extend(unknown);
                    let shown = Shown::from(&*value).0;
                    let place = place.field(name);
                    let errors = errors.iter();
                    let errors = errors.map(|e| format!("{place}: Invalid value: {shown}: {e}"));
                    found.type_errors.extend(errors);
                }
                match properties.get(name) {
                    Some(schema) => normalize_value(schema, value, &place.field(name), found),
                    None => {
                        let schema = schema.part("additionalProperties");
                        normalize_value(schema, value, &place.field(name), found);
                    }
                }
            }
        }
        Value::Array(list) => {
            for (i, value) in list.iter_mut().enumerate() {
                normalize_value(schema.part("items"), value, &place.index(i), found);
            }
        }
        _ => {}
    }
}

/// Brings the metadata of an object into its normal form: unknown fields are dropped. Returns their paths and the errors of
/// the types of the others.
pub(super) fn normalize_metadata(metadata: &mut Value) -> (Vec<String>, Vec<String>) {
    let mut whole = json!({ "metadata": metadata.take() });
    let kind = GroupVersionKind::new("", "v1", "PartialObjectMetadata");
    let found = Schemas::get().normalize(kind, &mut whole);
    if let Some(normal) = whole.get_mut("metadata") {
        *metadata = normal.take();
    }
    // kube-apiserver decodes the metadata separately.
    let errors = found.type_errors.iter();
    let errors = errors.map(|e| e.replacen("ObjectMeta.metadata.", "ObjectMeta.", 1));
    (found.unknown_fields, errors.collect())
}
