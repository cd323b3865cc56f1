//! Updates of events through events.k8s.io/v1, which may change only metadata and the series. Updates through core/v1
//! are not restricted.

use super::errors::{Errors, IS_IMMUTABLE, Path};
use crate::field::FieldError;
use serde_json::Value;

/// What an update through events.k8s.io/v1 may not change, in the names of core/v1 and in the order of upstream's
/// errors.
const IMMUTABLE: [&str; 14] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingController",
    "reportingInstance",
];

/// Errors of a change of a stored event: through events.k8s.io/v1 only metadata and the series may change.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let series = new.get("series").filter(|series| !series.is_null());
    if let Some(series) = series
        && old.get("series") != Some(series)
    {
        let count = series.get("count").and_then(Value::as_i64).unwrap_or(0);
        if count < 2 {
            errors.invalid(&Path::new("series.count"), "", "should be at least 2");
        }
        if series.get("lastObservedTime").is_none_or(Value::is_null) {
            errors.required(&Path::new("series.lastObservedTime"), "");
        }
    }
    for name in IMMUTABLE {
        let stored = match name {
            "reportingController" => "reportingComponent",
            name => name,
        };
        let (new, old) = (filled(new.get(stored)), filled(old.get(stored)));
        if new != old {
            errors.invalid(&Path::new(name), new, IS_IMMUTABLE);
        }
    }
    errors.into_vec()
}

/// A field, where everything that is written like a field without a value is null.
fn filled(field: Option<&Value>) -> &Value {
    match field {
        None => &Value::Null,
        Some(Value::String(text)) if text.is_empty() => &Value::Null,
        Some(Value::Object(map)) if map.is_empty() => &Value::Null,
        Some(value) if value == 0 => &Value::Null,
        Some(value) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event() -> Value {
        json!({
            "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "R", "message": "m", "source": {},
            "firstTimestamp": null, "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z", "action": "A",
            "reportingComponent": "c", "reportingInstance": "i",
        })
    }

    fn errors(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut new = event();
        change(&mut new);
        let errors = validate_update(&new, &event());
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_the_series_may_change() {
        let series = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
        for (change, expected) in [
            (("series", series), vec![]),
            (("count", json!(0)), vec![]),
            (
                ("series", json!({"count": 1})),
                vec![
                    "series.count: Invalid value: \"\": should be at least 2",
                    "series.lastObservedTime: Required value",
                ],
            ),
            (
                ("message", json!("other")),
                vec!["message: Invalid value: \"other\": field is immutable"],
            ),
            (
                ("reportingComponent", json!("other")),
                vec!["reportingController: Invalid value: \"other\": field is immutable"],
            ),
            (
                ("type", json!("Warning")),
                vec!["type: Invalid value: \"Warning\": field is immutable"],
            ),
        ] {
            let (field, value) = change;
            assert_eq!(errors(|event| event[field] = value), expected, "{field}");
        }
    }
}
