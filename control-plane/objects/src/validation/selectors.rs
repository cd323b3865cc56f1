//! Label selectors in objects: validation and matching.

use super::errors::{ErrorPath, Errors, Shown};
use super::names;
use super::owner::Owner;
use crate::view::FieldView;
use serde_json::Value;

/// Errors of a map of labels; both keys and values are reported at `path`.
pub(crate) fn validate_labels(errors: &mut Errors, object: &Value, field: &str, path: &ErrorPath) {
    for (key, value) in object.labels(field) {
        errors.each_invalid(path, key, names::qualified_name(key));
        errors.each_invalid(path, value, names::label_value(value));
    }
}

pub(crate) fn labels(e: &mut Errors, _: &Owner, labels: &Value, path: &ErrorPath) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        e.each_invalid(path, key, names::qualified_name(key));
        let value = value.as_str().unwrap_or("");
        e.each_invalid(path, value, names::label_value(value));
    }
}

pub(crate) fn requirement(errors: &mut Errors, _: &Owner, requirement: &Value, path: &ErrorPath) {
    let values = requirement.strings("values");
    let at = path.child("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(
            &at,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        ),
    }
    let key = requirement.text("key");
    errors.each_invalid(&path.child("key"), key, names::qualified_name(key));
    for (i, value) in values.iter().enumerate() {
        errors.each_invalid(&at.index(i), value, names::label_value(value));
    }
}

/// A label selector as it is printed in errors: as JSON, with its fields in upstream's order.
pub(crate) fn shown(selector: &Value) -> Shown {
    let mut parts = Vec::new();
    for field in ["matchLabels", "matchExpressions"] {
        if let Some(value) = selector.field(field) {
            parts.push(format!("\"{field}\":{}", Shown::from(value).0));
        }
    }
    Shown(format!("{{{}}}", parts.join(",")))
}

/// Returns whether a selector has no requirements (and matches all objects).
pub fn is_empty(selector: &Value) -> bool {
    selector.entries("matchLabels").is_empty() && selector.items("matchExpressions").is_empty()
}

/// Returns whether `labels` (an object with the field `labels`) satisfy a label selector.
pub fn matches(selector: &Value, labelled: &Value) -> bool {
    let labels = labelled.map("labels");
    let get = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
    let labels_match = selector
        .labels("matchLabels")
        .into_iter()
        .all(|(key, value)| get(key) == Some(value));
    labels_match
        && selector.items("matchExpressions").iter().all(|r| {
            let has = get(r.text("key"));
            let among = |v: &str| r.strings("values").contains(&v);
            match r.text("operator") {
                "In" => has.is_some_and(among),
                "NotIn" => !has.is_some_and(among),
                "Exists" => has.is_some(),
                "DoesNotExist" => has.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_match_and_are_shown() {
        let selector = json!({
            "matchLabels": {"b": "1", "a": "x"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["z", "y"]},
                {"key": "d", "operator": "DoesNotExist"},
                {"key": "e", "operator": "NotIn", "values": ["q"]},
            ],
        });
        assert_eq!(
            shown(&json!({"matchExpressions": [], "matchLabels": {"b": "1"}})).0,
            r#"{"matchLabels":{"b":"1"},"matchExpressions":[]}"#
        );
        let cases = [
            (json!({"a": "x", "b": "1", "c": "y"}), true),
            (json!({"a": "x", "b": "1", "c": "y", "d": ""}), false),
            (json!({"a": "x", "b": "1", "c": "y", "e": "q"}), false),
            (json!({"a": "x", "b": "2", "c": "y"}), false),
            (json!({"a": "x", "b": "1"}), false),
        ];
        for (labels, expected) in cases {
            assert_eq!(
                matches(&selector, &json!({"labels": labels})),
                expected,
                "{labels}"
            );
        }
    }
}
