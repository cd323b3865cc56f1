//! The effects of a structural schema on an object: pruning, defaulting, validation.
//!
//! The messages of errors are those of kube-apiserver, which clients compare.

use crate::field::FieldError;
use crate::validation::errors::{ErrorPath, Errors, Shown};
use crate::validation::names;
use crate::view::FieldView;
use regex::Regex;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashSet;

/// So many unknown fields of an object are reported.
const UNKNOWN_MAX: usize = 100;
/// So many errors of an object are reported.
const ERRORS_MAX: usize = 100;
/// Numbers below are whole numbers in JSON, too.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
/// The fields that every object has.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];
/// The compiled form of a pattern has at most so many bytes. Repeated classes of Unicode, such as `\p{L}{2,63}` in
/// patterns for host names, need several megabytes.
const PATTERN_BYTES_MAX: usize = 16 << 20;

fn preserves(schema: &Value) -> bool {
    schema.flag("x-kubernetes-preserve-unknown-fields")
}

fn is_embedded(schema: &Value) -> bool {
    schema.flag("x-kubernetes-embedded-resource")
}

/// The schema of a field of an object; `None` when it has none. `Null` is a field of any value.
fn of_field<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let own = schema.part("properties").get(name);
    own.or_else(|| match schema.field("additionalProperties") {
        Some(Value::Bool(true)) => Some(&Value::Null),
        Some(schema @ Value::Object(_)) => Some(schema),
        _ => None,
    })
}

/// Drops the fields that the schema does not have; their paths are added to `unknown`.
pub(super) fn prune(schema: &Value, object: &mut Value, unknown: &mut Vec<String>) {
    prune_value(schema, object, &mut String::new(), true, unknown);
}

/// As [`prune`], for a value that is no object of its own.
pub(super) fn prune_part(schema: &Value, value: &mut Value, unknown: &mut Vec<String>) {
    prune_value(schema, value, &mut String::new(), false, unknown);
}

fn prune_value(
    schema: &Value,
    value: &mut Value,
    path: &mut String,
    is_object: bool,
    unknown: &mut Vec<String>,
) {
    let length = path.len();
    match value {
        Value::Object(map) => map.retain(|name, value| {
            if is_object && META.contains(&name.as_str()) {
                return true;
            }
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
            let kept = match of_field(schema, name) {
                Some(Value::Null) => true,
                Some(field) => {
                    prune_value(field, value, path, is_embedded(field), unknown);
                    true
                }
                None => preserves(schema),
            };
            if !kept && unknown.len() < UNKNOWN_MAX {
                unknown.push(path.clone());
            }
            path.truncate(length);
            kept
        }),
        Value::Array(list) if schema.field("items").is_some() => {
            let items = schema.part("items");
            for (i, value) in list.iter_mut().enumerate() {
                path.push_str(&format!("[{i}]"));
                prune_value(items, value, path, is_embedded(items), unknown);
                path.truncate(length);
            }
        }
        Value::Number(number) => {
            // As in Go, 1.0 is the number 1.
            let whole = number
                .as_f64()
                .filter(|n| number.is_f64() && n.fract() == 0.0);
            if let Some(whole) = whole.filter(|n| n.abs() < WHOLE_MAX) {
                *value = Value::from(whole as i64);
            }
        }
        _ => {}
    }
}

/// Drops nulls of fields that cannot be null and have no default.
pub(super) fn drop_nulls(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let Some(field) = of_field(schema, name).filter(|f| f.is_object()) else {
                return true;
            };
            drop_nulls(field, value);
            !value.is_null() || field.flag("nullable") || field.field("default").is_some()
        }),
        Value::Array(list) => {
            for value in list {
                drop_nulls(schema.part("items"), value);
            }
        }
        _ => {}
    }
}

/// Fills in the defaults of fields that are absent.
pub(super) fn fill_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            let properties = schema.map("properties");
            for (name, property) in properties.into_iter().flatten() {
                let is_missing = match map.get(name) {
                    None => true,
                    Some(value) => value.is_null() && !property.flag("nullable"),
                };
                if let (true, Some(default)) = (is_missing, property.field("default")) {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map {
                if let Some(field) = of_field(schema, name).filter(|f| f.is_object()) {
                    fill_defaults(field, value);
                }
            }
        }
        Value::Array(list) => {
            for value in list {
                fill_defaults(schema.part("items"), value);
            }
        }
        _ => {}
    }
}

/// The patterns of a schema and of all schemas below it.
pub(super) fn patterns(schema: &Value) -> FxHashMap<String, Regex> {
    let mut found = FxHashMap::default();
    collect(schema, &mut found);
    found
}

fn collect(schema: &Value, found: &mut FxHashMap<String, Regex>) {
    match schema {
        Value::Object(map) => {
            if let Some(pattern) = map.maybe_text("pattern")
                && let Some(regex) = compile(pattern)
            {
                found.insert(pattern.to_owned(), regex);
            }
            map.values().for_each(|value| collect(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

/// Compiles a pattern.
pub(super) fn compile(pattern: &str) -> Option<Regex> {
    let builder = regex::RegexBuilder::new(pattern)
        .size_limit(PATTERN_BYTES_MAX)
        .build();
    builder.ok()
}

/// The faults of an object.
pub(super) fn validate(
    schema: &Value,
    patterns: &FxHashMap<String, Regex>,
    object: &Value,
) -> Vec<FieldError> {
    let mut errors = faults(schema, patterns, object, &ErrorPath::default(), true).into_vec();
    errors.truncate(ERRORS_MAX);
    errors
}

/// The faults of a value at a place.
pub(super) fn faults(
    schema: &Value,
    patterns: &FxHashMap<String, Regex>,
    value: &Value,
    path: &ErrorPath<'_>,
    is_root: bool,
) -> Errors {
    let mut check = ObjectCheck {
        patterns,
        errors: Errors::new(),
    };
    check.value(schema, value, path, is_root);
    check.errors
}

struct ObjectCheck<'p> {
    patterns: &'p FxHashMap<String, Regex>,
    errors: Errors,
}

/// The type of a value as messages name it.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() && n.as_f64().is_some_and(|f| f.fract() != 0.0) => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl ObjectCheck<'_> {
    fn value(&mut self, schema: &Value, value: &Value, path: &ErrorPath<'_>, is_root: bool) {
        if !schema.is_object() || (value.is_null() && schema.flag("nullable")) {
            return;
        }
        let (found, wanted) = (type_of(value), schema.text("type"));
        let fits = match wanted {
            _ if schema.flag("x-kubernetes-int-or-string") => matches!(found, "integer" | "string"),
            "" => true,
            "number" => matches!(found, "integer" | "number"),
            wanted => wanted == found,
        };
        if !fits {
            let wanted = match wanted {
                "" => "integer,string",
                wanted => wanted,
            };
            let detail = format!("{path} in body must be of type {wanted}: {found:?}");
            self.errors.invalid(path, found, detail);
            // Further checks of a value of the wrong type would only repeat the error.
            return;
        }
        match value {
            Value::String(text) => self.text(schema, text, path),
            Value::Number(number) => {
                self.number(schema, number.as_f64().unwrap_or(0.0), value, path)
            }
            Value::Array(list) => self.list(schema, list, path),
            Value::Object(map) => self.object(schema, map, path, is_root),
            _ => {}
        }
        let known = schema.items("enum");
        if !known.is_empty() && !known.contains(value) {
            let texts: Vec<Cow<'_, str>> = known.iter().map(plain).collect();
            let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
            self.errors.not_supported(path, &plain(value), &texts);
        }
        // Combinations apply to values of every type.
        self.combined(schema, value, path, is_root);
    }

    fn combined(&mut self, schema: &Value, value: &Value, path: &ErrorPath<'_>, is_root: bool) {
        for part in schema.items("allOf") {
            self.value(part, value, path, is_root);
        }
        // The faults of each part.
        let faults = |parts: &[Value]| -> Vec<Errors> {
            let check = |part: &Value| {
                let mut check = ObjectCheck {
                    patterns: self.patterns,
                    errors: Errors::new(),
                };
                check.value(part, value, path, is_root);
                check.errors
            };
            parts.iter().map(check).collect()
        };
        let any = faults(schema.items("anyOf"));
        let one = faults(schema.items("oneOf"));
        let not = schema.field("not").map(std::slice::from_ref);
        let not = faults(not.unwrap_or_default());
        let fitting = one.iter().filter(|faults| faults.is_empty()).count();
        let shown = path.to_string();
        if !any.is_empty() && !any.iter().any(Errors::is_empty) {
            self.combination(&format!(
                "{shown:?} must validate at least one schema (anyOf)"
            ));
            any.into_iter()
                .take(1)
                .for_each(|faults| self.errors.extend(faults));
        }
        if !one.is_empty() && fitting != 1 {
            let count = match fitting {
                0 => "Found none valid".to_owned(),
                n => format!("Found {n} valid alternatives"),
            };
            let rule = "must validate one and only one schema (oneOf).";
            self.combination(&format!("{shown:?} {rule} {count}"));
            if fitting == 0 {
                one.into_iter()
                    .take(1)
                    .for_each(|faults| self.errors.extend(faults));
            }
        }
        if not.iter().any(Errors::is_empty) {
            self.combination(&format!("{shown:?} must not validate the schema (not)"));
        }
    }

    /// A fault of a combination, which is reported without a field.
    fn combination(&mut self, detail: &str) {
        self.errors.invalid(&ErrorPath::default(), "", detail);
    }

    fn text(&mut self, schema: &Value, text: &str, path: &ErrorPath<'_>) {
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(max) = schema.maybe_int("maxLength")
            && length > max
        {
            self.errors
                .too_long(path, usize::try_from(max).unwrap_or(0));
        }
        if let Some(min) = schema.maybe_int("minLength")
            && length < min
        {
            let detail = format!("{path} in body should be at least {min} chars long");
            self.errors.invalid(path, text, detail);
        }
        if let Some(pattern) = schema.maybe_text("pattern")
            && self
                .patterns
                .get(pattern)
                .is_some_and(|regex| !regex.is_match(text))
        {
            let detail = format!("{path} in body should match '{pattern}'");
            self.errors.invalid(path, text, detail);
        }
        let format = schema.text("format");
        if !has_format(format, text) {
            let detail = format!("{path} in body must be of type {format}: {text:?}");
            self.errors.invalid(path, text, detail);
        }
    }

    fn number(&mut self, schema: &Value, number: f64, value: &Value, path: &ErrorPath<'_>) {
        let bound = |name: &str| schema.field(name).and_then(Value::as_f64);
        let fault = if let Some(max) = bound("maximum")
            && (number > max || (number == max && schema.flag("exclusiveMaximum")))
        {
            let or = if schema.flag("exclusiveMaximum") {
                ""
            } else {
                " or equal to"
            };
            Some(format!("should be less than{or} {max}"))
        } else if let Some(min) = bound("minimum")
            && (number < min || (number == min && schema.flag("exclusiveMinimum")))
        {
            let or = if schema.flag("exclusiveMinimum") {
                ""
            } else {
                " or equal to"
            };
            Some(format!("should be greater than{or} {min}"))
        } else if let Some(factor) = bound("multipleOf")
            // A factor of zero divides nothing.
            && factor > 0.0
            && (number / factor).fract() != 0.0
        {
            Some(format!("should be a multiple of {factor}"))
        } else {
            None
        };
        if let Some(fault) = fault {
            self.errors
                .invalid(path, Shown::from(value), format!("{path} in body {fault}"));
        }
    }

    fn list(&mut self, schema: &Value, list: &[Value], path: &ErrorPath<'_>) {
        let count = i64::try_from(list.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.maybe_int("minItems")
            && count < min
        {
            let detail = format!("{path} in body should have at least {min} items");
            self.errors.invalid(path, count, detail);
        }
        if let Some(max) = schema.maybe_int("maxItems") {
            let max = usize::try_from(max).unwrap_or(0);
            self.errors.check_at_most(path, list.len(), max);
        }
        // Entries are checked before their identity: both kinds of faults are reported.
        let items = schema.part("items");
        for (i, value) in list.iter().enumerate() {
            self.value(items, value, &path.index(i), false);
        }
        let keys = match schema.text("x-kubernetes-list-type") {
            "set" => Vec::new(),
            "map" => schema.strings("x-kubernetes-list-map-keys"),
            _ => return,
        };
        let mut seen: HashSet<Vec<Option<&Value>>> = HashSet::with_capacity(list.len());
        for (i, value) in list.iter().enumerate() {
            let identity = if keys.is_empty() {
                vec![Some(value)]
            } else {
                keys.iter().map(|key| value.get(key)).collect()
            };
            if seen.insert(identity) {
                continue;
            }
            let shown = if keys.is_empty() {
                value.clone()
            } else {
                keys.iter()
                    .filter_map(|k| Some(((*k).to_owned(), value.get(k)?.clone())))
                    .collect::<Map<_, _>>()
                    .into()
            };
            self.errors.duplicate(&path.index(i), Shown::from(&shown));
        }
    }

    fn object(
        &mut self,
        schema: &Value,
        map: &Map<String, Value>,
        path: &ErrorPath<'_>,
        is_root: bool,
    ) {
        for name in schema.strings("required") {
            if !map.contains_key(name) {
                self.errors.required(&path.child(name), "");
            }
        }
        let count = i64::try_from(map.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.maybe_int("minProperties")
            && count < min
        {
            let detail = format!("{path} in body should have at least {min} properties");
            self.errors.invalid(path, count, detail);
        }
        if let Some(max) = schema.maybe_int("maxProperties") {
            let max = usize::try_from(max).unwrap_or(0);
            self.errors.check_at_most(path, map.len(), max);
        }
        if is_embedded(schema) {
            for name in ["apiVersion", "kind"] {
                if map
                    .get(name)
                    .and_then(Value::as_str)
                    .is_none_or(str::is_empty)
                {
                    self.errors.required(&path.child(name), "");
                }
            }
        }
        for (name, value) in map {
            // The metadata of an embedded object is checked as metadata, not by the schema.
            let is_metadata = name == "metadata" && (is_root || is_embedded(schema));
            if let Some(field) = of_field(schema, name).filter(|_| !is_metadata || is_root) {
                self.value(field, value, &path.child(name), false);
            }
        }
    }
}

/// A value as the list of supported values shows it.
fn plain(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    }
}

/// Returns whether a text has a format; texts have every format that is not known.
fn has_format(format: &str, text: &str) -> bool {
    let hex = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit());
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => names::parse_cidr(text).is_some(),
        "duration" => text.parse::<berth_api::GoDuration>().is_ok(),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => {
            let parts: Vec<&str> = text.split('-').collect();
            let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
            lengths == [8, 4, 4, 4, 12] && parts.into_iter().all(hex)
        }
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD
                .decode(text)
                .is_ok()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::compile;

    /// A pattern for host names with repeated classes of Unicode, as definitions in use have it.
    #[test]
    fn patterns_with_repeated_classes_of_unicode_are_compiled() {
        let letter = r"[a-zA-Z0-9\p{S}\p{L}]";
        let pattern =
            format!(r"^({letter}((-?{letter}{{0,62}})?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}}$");
        let regex = compile(&pattern).expect("it is compiled");
        assert!(regex.is_match("a.example.com") && !regex.is_match("a..com"));
    }
}
