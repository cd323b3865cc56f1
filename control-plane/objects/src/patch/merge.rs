//! JSON merge patch, RFC 7386: members of the patch replace members of the object, null removes.

use super::PatchError;
use serde_json::{Map, Value};

/// Applies a merge patch. The patch must be an object, because the target is one.
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
