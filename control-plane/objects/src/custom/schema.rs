//! The structural schemas that CustomResourceDefinitions may contain.

use super::objects::{patterns, prune_part};
use super::{compiled, rules, values};
use crate::validation::errors::{ErrorPath, Errors};
use crate::view::FieldView;
use serde_json::Value;
use std::collections::HashSet;

/// A schema is nested no deeper.
const DEPTH_MAX: usize = 64;
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// The keywords that only the structure of a schema may state, not its `allOf`, `anyOf`, `oneOf` and `not`.
const STRUCTURAL: [&str; 10] = [
    "additionalProperties",
    "default",
    "description",
    "nullable",
    "title",
    "type",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// The position of a schema in another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Items,
    Field,
}

/// Checks the schema of a version.
pub(super) fn check(errors: &mut Errors, schema: &Value, path: &ErrorPath) {
    check_schema(errors, schema, path, Level::Root, 0, true);
}

/// Checks a schema and its subschemas. `has_old` states whether its values have a counterpart in the object before a
/// change.
fn check_schema(
    errors: &mut Errors,
    schema: &Value,
    path: &ErrorPath,
    level: Level,
    depth: usize,
    has_old: bool,
) {
    if depth > DEPTH_MAX {
        errors.forbidden(path, format!("schemas are nested at most {DEPTH_MAX} deep"));
        return;
    }
    let kind = schema.text("type");
    let is_open = schema.flag("x-kubernetes-preserve-unknown-fields");
    let is_int_or_string = schema.flag("x-kubernetes-int-or-string");
    if kind == "array" && schema.field("items").is_none() {
        errors.required(&path.child("items"), "must be specified");
    }
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.not_supported(&path.child("type"), kind, &TYPES);
    }
    if kind.is_empty() && !is_int_or_string && !is_open {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Items => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.required(&path.child("type"), detail);
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.invalid(&path.child("type"), kind, "must be object at the root");
    }
    if schema.flag("x-kubernetes-embedded-resource") && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.invalid(&path.child("type"), kind, detail);
    }
    for (field, detail) in [
        ("$ref", "$ref is not supported"),
        ("definitions", "definitions is not supported"),
        ("dependencies", "dependencies is not supported"),
        ("patternProperties", "patternProperties is not supported"),
        ("additionalItems", "additionalItems is not supported"),
        ("id", "id is not supported"),
    ] {
        if schema.field(field).is_some() {
            errors.forbidden(&path.child(field), detail);
        }
    }
    if schema.flag("uniqueItems") {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.child("uniqueItems"), detail);
    }
    check_values(errors, schema, path);
    check_list_type(errors, schema, path);
    let additional = schema.field("additionalProperties");
    if let Some(additional) = additional {
        let at = path.child("additionalProperties");
        if level == Level::Root {
            errors.forbidden(&at, "must not be used at the root");
        }
        if schema.flag("x-kubernetes-embedded-resource") {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            errors.forbidden(&at, detail);
        }
        let has_fields = schema.map("properties").is_some_and(|map| !map.is_empty());
        if has_fields && additional.as_bool() != Some(true) {
            errors.forbidden(
                &at,
                "additionalProperties and properties are mutual exclusive",
            );
        }
    }
    if let Some(additional @ Value::Object(_)) = additional {
        let at = path.child("additionalProperties");
        check_schema(errors, additional, &at, Level::Field, depth + 1, has_old);
    }
    match schema.field("items") {
        Some(items @ Value::Object(_)) => {
            let has_old = has_old && schema.text("x-kubernetes-list-type") == "map";
            let at = path.child("items");
            check_schema(errors, items, &at, Level::Items, depth + 1, has_old);
        }
        Some(_) => errors.forbidden(
            &path.child("items"),
            "items must be a schema object and not an array",
        ),
        None => {}
    }
    for (name, property) in schema.entries("properties") {
        if level == Level::Root && name == "metadata" {
            check_metadata(errors, property, &path.child("properties").key(name));
            continue;
        }
        let at = path.child("properties").key(name);
        check_schema(errors, property, &at, Level::Field, depth + 1, has_old);
    }
    for field in ["allOf", "anyOf", "oneOf"] {
        for (i, part) in schema.items(field).iter().enumerate() {
            check_nested(
                errors,
                part,
                &path.child(field).index(i),
                is_int_or_string,
                depth + 1,
            );
        }
    }
    if let Some(not) = schema.field("not") {
        check_nested(errors, not, &path.child("not"), false, depth + 1);
    }
    if errors.is_empty() {
        rules::check(errors, schema, path, has_old);
    }
}

fn check_metadata(errors: &mut Errors, metadata: &Value, path: &ErrorPath) {
    let properties = metadata.map("properties").into_iter().flatten();
    let mut others =
        properties.filter(|(name, _)| !matches!(name.as_str(), "name" | "generateName"));
    let fields = metadata.as_object().into_iter().flatten();
    let mut more =
        fields.filter(|(name, _)| !matches!(name.as_str(), "type" | "properties" | "description"));
    if others.next().is_some() || more.next().is_some() {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(path, detail);
    }
}

/// A part of a combination: it restricts values, and states no structure.
fn check_nested(errors: &mut Errors, part: &Value, path: &ErrorPath, types: bool, depth: usize) {
    if depth > DEPTH_MAX {
        errors.forbidden(path, format!("schemas are nested at most {DEPTH_MAX} deep"));
        return;
    }
    for field in STRUCTURAL {
        let is_type = field == "type" && types;
        let must = match part.field(field) {
            None => continue,
            Some(Value::Bool(_)) => "must be false to be structural",
            Some(_) if matches!(field, "default" | "additionalProperties") => {
                "must be undefined to be structural"
            }
            Some(_) => "must be empty to be structural",
        };
        // Parts that may repeat the type of their schema, as for int-or-string, are marked by `types`.
        if !is_type {
            errors.forbidden(&path.child(field), must);
        }
    }
    check_values(errors, part, path);
    for (name, property) in part.entries("properties") {
        check_nested(
            errors,
            property,
            &path.child("properties").key(name),
            false,
            depth + 1,
        );
    }
    if let Some(items) = part.field("items") {
        check_nested(errors, items, &path.child("items"), false, depth + 1);
    }
    for field in ["allOf", "anyOf", "oneOf"] {
        for (i, part) in part.items(field).iter().enumerate() {
            check_nested(errors, part, &path.child(field).index(i), types, depth + 1);
        }
    }
    if let Some(not) = part.field("not") {
        check_nested(errors, not, &path.child("not"), false, depth + 1);
    }
}

fn check_values(errors: &mut Errors, schema: &Value, path: &ErrorPath) {
    if let Some(pattern) = schema.maybe_text("pattern")
        && let Err(fault) = compiled::pattern(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {fault}");
        errors.invalid(&path.child("pattern"), pattern, detail);
    }
}

fn check_list_type(errors: &mut Errors, schema: &Value, path: &ErrorPath) {
    let list_type = schema.text("x-kubernetes-list-type");
    let keys = schema.strings("x-kubernetes-list-map-keys");
    let at = path.child("x-kubernetes-list-type");
    if !list_type.is_empty() && !["atomic", "set", "map"].contains(&list_type) {
        errors.not_supported(&at, list_type, &["atomic", "set", "map"]);
    }
    let keys_at = path.child("x-kubernetes-list-map-keys");
    if list_type == "map" {
        if keys.is_empty() {
            errors.required(
                &keys_at,
                "must not be empty if x-kubernetes-list-type is map",
            );
        }
        let items = schema.part("items");
        let required: HashSet<&str> = items.strings("required").into_iter().collect();
        for (i, key) in keys.iter().enumerate() {
            if items.part("properties").get(key).is_none() {
                let detail = "entries must all be names of item properties";
                errors.invalid(&keys_at.index(i), *key, detail);
            } else if !required.contains(key)
                && items
                    .part("properties")
                    .part(key)
                    .field("default")
                    .is_none()
            {
                let at = path
                    .child("items")
                    .child("properties")
                    .key(key)
                    .child("default");
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                errors.required(&at, detail);
            }
        }
    } else if !keys.is_empty() {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.invalid(&at, list_type, detail);
    }
    let map_type = schema.text("x-kubernetes-map-type");
    if !map_type.is_empty() && !["atomic", "granular"].contains(&map_type) {
        let at = path.child("x-kubernetes-map-type");
        errors.not_supported(&at, map_type, &["atomic", "granular"]);
    }
    // A default must be a value of its schema.
    if let Some(default) = schema.field("default") {
        let at = path.child("default");
        let base = at.to_string();
        let faults = values::faults(schema, &patterns(schema), default, &base, None);
        errors.add(faults);
        let (mut pruned, mut unknown) = (default.clone(), Vec::new());
        prune_part(schema, &mut pruned, &mut unknown);
        if let Some(field) = unknown.first() {
            let detail = format!("must not have unknown fields, but has {field:?}");
            errors.invalid(&at, default, detail);
        }
    }
}
