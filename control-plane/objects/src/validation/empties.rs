//! Empty lists and maps of a request, where Kubernetes distinguishes them from absent ones.

use super::config::IMMUTABLE;
use crate::access::GroupResource;
use crate::field::{ErrorType, FieldError};
use crate::schema::Empties;
use crate::view::FieldView;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

/// Lists with defaults for nil, but not for an empty list.
const DEFAULT_FOR_NIL: [(&str, &str, &str); 2] = [
    (
        "autoscaling",
        "horizontalpodautoscalers",
        "/spec/behavior/scaleUp/policies",
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        "/spec/behavior/scaleDown/policies",
    ),
];
/// Immutable maps, compared with `reflect.DeepEqual`. Some are immutable only in objects with `immutable`.
const FROZEN: [(&str, &str, &str, bool, &str); 4] = [
    ("", "configmaps", "data", true, IMMUTABLE),
    ("", "configmaps", "binaryData", true, IMMUTABLE),
    ("", "secrets", "data", true, IMMUTABLE),
    (
        "storage.k8s.io",
        "storageclasses",
        "parameters",
        false,
        "updates to parameters are forbidden.",
    ),
];

impl Empties {
    /// Removes defaults that a list has got although the client has sent an empty one.
    pub fn undo_defaults(&self, kind: GroupResource, object: &mut Value) {
        if self.is_empty() {
            return;
        }
        for (group, resource, pointer) in DEFAULT_FOR_NIL {
            if (group, resource) == (kind.group, kind.resource)
                && self.has(pointer)
                && let Some(list) = object.pointer_mut(pointer)
            {
                *list = json!([]);
            }
        }
    }

    /// The errors about empty maps where the stored object has none: they count as changes.
    pub fn frozen(&self, kind: GroupResource, old: &Value) -> Vec<FieldError> {
        if self.is_empty() {
            return Vec::new();
        }
        let of_kind = FROZEN
            .iter()
            .filter(|(group, resource, ..)| (*group, *resource) == (kind.group, kind.resource));
        let changed = of_kind.filter(|(_, _, field, is_flagged, _)| {
            // A map with entries is compared like any other value.
            let is_absent = old.entries(field).is_empty();
            is_absent && self.has(&format!("/{field}")) && (!is_flagged || old.flag("immutable"))
        });
        let error = |(_, _, field, _, detail): &(_, _, &str, _, &str)| FieldError {
            kind: ErrorType::Forbidden,
            field: (*field).to_owned(),
            value: None,
            detail: (*detail).to_owned(),
        };
        changed.map(error).collect()
    }

    /// Replaces the values in errors about a normalized object by the values in the errors of `judge` about the object
    /// as it was sent: `[]` instead of `null`.
    pub fn restate(
        &self,
        errors: &mut [FieldError],
        object: &Value,
        judge: impl Fn(&Value) -> Vec<FieldError>,
    ) {
        if self.is_empty() || errors.is_empty() {
            return;
        }
        let mut sent = object.clone();
        self.put_into(&mut sent);
        let judged = judge(&sent);
        let mut values: FxHashMap<(&str, &str), &Option<String>> = FxHashMap::default();
        for error in &judged {
            values
                .entry((&error.field, &error.detail))
                .or_insert(&error.value);
        }
        for error in errors.iter_mut().filter(|error| error.value.is_some()) {
            if let Some(value) = values.get(&(&*error.field, &*error.detail)) {
                error.value.clone_from(value);
            }
        }
    }
}
