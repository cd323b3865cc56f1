//! Cells: reading fields, and the texts that several kinds share.

use crate::object::timestamp;
use crate::view::{FieldView, meta};
use jiff::Timestamp;
use serde_json::Value;

/// Computes a cell.
pub(crate) type CellFn = fn(&Value, Timestamp) -> Value;

/// The text for an empty value.
pub(crate) const NONE: &str = "<none>";
/// The text for an unknown value.
pub(crate) const UNKNOWN: &str = "<unknown>";
/// The text for a value that was never set.
pub(crate) const UNSET: &str = "<unset>";

/// A string of an object, empty when it is absent.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// A text, or its replacement if it is empty.
pub(crate) fn or(text: String, otherwise: &str) -> String {
    if text.is_empty() {
        otherwise.to_owned()
    } else {
        text
    }
}

/// Texts with commas between them.
pub(crate) fn join<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join(",")
}

/// The strings of a list.
pub(crate) fn strings<'a>(object: &'a Value, pointer: &str) -> Vec<&'a str> {
    items(object, pointer)
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

/// A condition of an object by its type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "/status/conditions")
        .iter()
        .find(|c| text(c, "/type") == kind)
}

/// An integer of an object, zero when it is absent.
pub(crate) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// A boolean of an object, false when it is absent.
pub(crate) fn flag(object: &Value, pointer: &str) -> bool {
    object
        .pointer(pointer)
        .and_then(Value::as_bool)
        .unwrap_or(false)
}

/// The entries of a list, none when it is absent.
pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The number of entries that a map has.
pub(crate) fn size(object: &Value, pointer: &str) -> usize {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

/// The age of the object.
pub(crate) fn age(object: &Value, now: Timestamp) -> String {
    since(meta(object, "creationTimestamp"), now)
}

/// The time since a time; `<unknown>` for none.
pub(crate) fn since(time: &str, now: Timestamp) -> String {
    match timestamp(time) {
        Some(time) => human_seconds(now.duration_since(time).as_secs()),
        None => UNKNOWN.to_owned(),
    }
}

/// A duration in at most two units, coarser the longer it is.
pub(crate) fn human_seconds(seconds: i64) -> String {
    // A clock that differs by a second is tolerated.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    let two = |large: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, 'm', seconds % 60, 's')
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, 'h', minutes % 60, 'm')
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 192 {
        two(days, 'd', hours % 24, 'h')
    } else if years < 2 {
        format!("{days}d")
    } else if years < 8 {
        two(years, 'y', days % 365, 'd')
    } else {
        format!("{years}y")
    }
}

/// A value as kubectl's `jsonpath` prints it.
pub(super) fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            berth_cel::shortest_text(number.as_f64().unwrap_or_default())
        }
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        Value::Array(_) | Value::Object(_) => crate::raw_json::go_text(value),
    }
}

/// A label selector, or `<none>`.
pub(crate) fn selector(selector: &Value) -> String {
    or(selector_text(Some(selector)), NONE)
}

/// A label selector as text: `a=b,c in (d,e)`, keys in order.
pub fn selector_text(selector: Option<&Value>) -> String {
    let Some(selector) = selector.and_then(Value::as_object) else {
        return String::new();
    };
    let is_structured =
        selector.contains_key("matchLabels") || selector.contains_key("matchExpressions");
    let labels = if is_structured {
        selector.map("matchLabels")
    } else {
        // Replication controllers and services select by plain labels.
        Some(selector)
    };
    let mut parts: Vec<(String, String)> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            let value = value.as_str().unwrap_or("");
            (key.clone(), format!("{key}={value}"))
        })
        .collect();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    for expression in expressions.into_iter().flatten() {
        let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or("");
        let key = text("key");
        let mut values: Vec<&str> = expression.strings("values").into_iter().collect();
        values.sort_unstable();
        let values = values.join(",");
        let part = match text("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        parts.push((key.to_owned(), part));
    }
    parts.sort();
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    parts.join(",")
}

/// The first of these fields that is set.
pub(super) fn first_of<'a>(object: &'a Value, pointers: &[&str]) -> &'a str {
    let mut texts = pointers.iter().map(|p| text(object, p));
    texts.find(|t| !t.is_empty()).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_coarser_the_longer_they_are() {
        const DAY: i64 = 86_400;
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (130, "2m10s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600 + 60, "8h"),
            (2 * DAY, "2d"),
            (2 * DAY + 3600, "2d1h"),
            (8 * DAY + 3600, "8d"),
            (2 * 365 * DAY, "2y"),
            (2 * 365 * DAY + DAY, "2y1d"),
            (9 * 365 * DAY + DAY, "9y"),
        ];
        for (seconds, expect) in cases {
            assert_eq!(human_seconds(seconds), expect, "{seconds}");
        }
    }
}
