//! JSON merge patch, RFC 7386: members of the patch replace members of the object, null removes.

use super::PatchError;
use serde_json::{Map, Value};

/// Applies a merge patch. The patch must be an object: what is patched is one.
pub(super) fn apply(mut current: Value, patch: Value) -> Result<Value, PatchError> {
    match patch {
        Value::Object(patch) => {
            merge(&mut current, patch);
            Ok(current)
        }
        other => Err(PatchError::Malformed(format!(
            "a JSON merge patch of an object must be an object, not {}",
            super::json::type_name(&other)
        ))),
    }
}

fn merge(target: &mut Value, patch: Map<String, Value>) {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (key, value) in patch {
        match value {
            Value::Null => {
                target.remove(&key);
            }
            Value::Object(patch) => merge(target.entry(key).or_insert(Value::Null), patch),
            value => {
                target.insert(key, value);
            }
        }
    }
}

/// The merge patch that turns one object into another.
///
/// A merge patch cannot set a member to null, so nulls of `to` are left out of the outcome.
pub fn create_merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let mut patch = Map::new();
    for key in from.keys() {
        if to.get(key).is_none_or(Value::is_null) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    for (key, new) in to {
        match from.get(key) {
            Some(old) if old == new => {}
            Some(old @ Value::Object(_)) if new.is_object() => {
                patch.insert(key.clone(), create_merge_patch(old, new));
            }
            _ if new.is_null() => {}
            _ => {
                patch.insert(key.clone(), new.clone());
            }
        }
    }
    Value::Object(patch)
}
