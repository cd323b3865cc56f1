//! Writes of events through events.k8s.io/v1: new events have a time and a type and none of the fields that only
//! core/v1 has, and an update may change only metadata and the series. Writes through core/v1 are not restricted.

use super::errors::{ErrorPath, Errors, IS_IMMUTABLE};
use crate::field::FieldError;
use crate::view::FieldView;
use serde_json::Value;

/// The fields that an update through events.k8s.io/v1 may not change, in the names of core/v1 and in the order of
/// upstream's errors.
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

/// Errors of a new event.
pub fn validate_create(event: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(series) = event.get("series").filter(|series| !series.is_null()) {
        check_series(&mut errors, series);
    }
    if filled(event.get("eventTime")).is_null() {
        errors.required(&ErrorPath::new("eventTime"), "");
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        let detail = format!("has invalid value: {kind}");
        errors.invalid(&ErrorPath::new("type"), "", detail);
    }
    for name in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        if !filled(event.get(name)).is_null() {
            errors.invalid(&ErrorPath::new(name), "", "needs to be unset");
        }
    }
    errors.into_vec()
}

fn check_series(errors: &mut Errors, series: &Value) {
    let count = series.int("count");
    if count < 2 {
        errors.invalid(&ErrorPath::new("series.count"), "", "should be at least 2");
    }
    if series.get("lastObservedTime").is_none_or(Value::is_null) {
        errors.required(&ErrorPath::new("series.lastObservedTime"), "");
    }
}

/// Errors of a change of a stored event: through events.k8s.io/v1 only metadata and the series may change.
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let series = new.get("series").filter(|series| !series.is_null());
    if let Some(series) = series
        && old.get("series") != Some(series)
    {
        check_series(&mut errors, series);
    }
    for name in IMMUTABLE {
        let stored = match name {
            "reportingController" => "reportingComponent",
            name => name,
        };
        let (new, old) = (filled(new.get(stored)), filled(old.get(stored)));
        if new != old {
            errors.invalid(&ErrorPath::new(name), new, IS_IMMUTABLE);
        }
    }
    errors.into_vec()
}

/// A field; values that are encoded like an absent field are null.
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
    fn new_events_have_a_time_and_a_type() {
        let new = |change: &Value| {
            let mut event = event();
            for (field, value) in change.as_object().into_iter().flatten() {
                event[field] = value.clone();
            }
            let errors = validate_create(&event);
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(new(&json!({})), [""; 0]);
        assert_eq!(
            new(&json!({
                "eventTime": null, "type": "", "count": 1, "source": {"host": "h"}, "series": {"count": 1},
                "lastTimestamp": "2026-01-01T00:00:00Z",
            })),
            [
                "series.count: Invalid value: \"\": should be at least 2",
                "series.lastObservedTime: Required value",
                "eventTime: Required value",
                "type: Invalid value: \"\": has invalid value: ",
                "lastTimestamp: Invalid value: \"\": needs to be unset",
                "count: Invalid value: \"\": needs to be unset",
                "source: Invalid value: \"\": needs to be unset",
            ]
        );
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
