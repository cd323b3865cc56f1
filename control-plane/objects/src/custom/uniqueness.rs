//! The entries of lists of the types `set` and `map`, which may not repeat.

use crate::validation::errors::{ErrorPath, Errors, Shown, json_text};
use crate::view::FieldView;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Adds the faults of the lists in a value.
pub(super) fn check(errors: &mut Errors, schema: &Value, value: &Value, path: &ErrorPath<'_>) {
    match value {
        Value::Object(map) => {
            let properties = schema.part("properties");
            let others = schema.field("additionalProperties");
            for (name, value) in map {
                if let Some(schema) = others.filter(|schema| schema.is_object()) {
                    check(errors, schema, value, &path.key(name));
                }
                if let Some(schema) = properties.get(name) {
                    check(errors, schema, value, &path.child(name));
                }
            }
        }
        Value::Array(list) => {
            match schema.text("x-kubernetes-list-type") {
                "set" => {
                    for i in repeated(list.iter().map(|value| json_text(value.clone()))) {
                        let value = list.get(i).unwrap_or(&Value::Null);
                        errors.duplicate(&path.index(i), Shown::from(value));
                    }
                }
                "map" => check_keys(errors, schema, list, path),
                _ => {}
            }
            if let Some(items) = schema.field("items") {
                for (i, value) in list.iter().enumerate() {
                    check(errors, items, value, &path.index(i));
                }
            }
        }
        _ => {}
    }
}

fn check_keys(errors: &mut Errors, schema: &Value, list: &[Value], path: &ErrorPath<'_>) {
    let is_entry = |value: &Value| value.is_object() || value.is_null();
    if let Some(i) = list.iter().position(|value| !is_entry(value)) {
        let value = list.get(i).unwrap_or(&Value::Null);
        let detail = "must be an object for an array of list-type map";
        errors.invalid(&path.index(i), Shown::from(value), detail);
        return;
    }
    let names = schema.strings("x-kubernetes-list-map-keys");
    let keys = list.iter().map(|value| {
        let keys = names.iter();
        let keys = keys.filter_map(|key| Some(((*key).to_owned(), value.get(key)?.clone())));
        Value::Object(keys.collect::<Map<_, _>>())
    });
    let keys: Vec<Value> = keys.collect();
    for i in repeated(keys.iter().map(|keys| json_text(keys.clone()))) {
        let keys = keys.get(i).unwrap_or(&Value::Null);
        errors.duplicate(&path.index(i), Shown::from(keys));
    }
}

/// The indexes of the entries that repeat an earlier one for the first time.
fn repeated(entries: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::default();
    let mut repeated = Vec::new();
    for (i, entry) in entries.enumerate() {
        let count = seen.entry(entry).or_default();
        *count += 1;
        if *count == 2 {
            repeated.push(i);
        }
    }
    repeated
}
