//! The effects of a structural schema on an object: pruning and defaulting; and the patterns of a schema.

use super::compiled::pattern;
use crate::view::FieldView;
use berth_cel::Pattern;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::fmt::Write as _;
use std::sync::Arc;

/// The maximum number of reported unknown fields of an object.
const UNKNOWN_MAX: usize = 100;
/// Numbers below are whole numbers in JSON, too.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
/// The fields that every object has.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

fn preserves(schema: &Value) -> bool {
    schema.flag("x-kubernetes-preserve-unknown-fields")
}

fn is_embedded(schema: &Value) -> bool {
    schema.flag("x-kubernetes-embedded-resource")
}

/// The schema of a field of an object; `None` when it has none.
fn of_field<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let own = schema.part("properties").get(name);
    let field = own.or_else(|| schema.field("additionalProperties"));
    field.filter(|schema| schema.is_object())
}

/// Drops the fields that the schema does not have; their paths are added to `unknown`.
pub(super) fn prune(schema: &Value, object: &mut Value, unknown: &mut Vec<String>) {
    let mut pruning = Pruning {
        path: String::new(),
        unknown,
    };
    pruning.value(schema, object, true);
}

/// As [`prune`], for a part of an object.
pub(super) fn prune_part(schema: &Value, value: &mut Value, unknown: &mut Vec<String>) {
    let mut pruning = Pruning {
        path: String::new(),
        unknown,
    };
    pruning.value(schema, value, is_embedded(schema));
}

struct Pruning<'u> {
    path: String,
    unknown: &'u mut Vec<String>,
}

impl Pruning<'_> {
    /// Prunes a value. A schema without the type object has no fields.
    fn value(&mut self, schema: &Value, value: &mut Value, is_object: bool) {
        if preserves(schema) {
            return self.known_fields(schema, value, is_object);
        }
        let length = self.path.len();
        match value {
            Value::Object(map) => map.retain(|name, value| {
                if is_object && META.contains(&name.as_str()) {
                    return true;
                }
                self.enter(name);
                let field = of_field(schema, name);
                // Values of any field are allowed; their fields are not specified.
                let is_open = || schema.field("additionalProperties").is_some();
                let is_known = field.is_some() || is_open();
                if is_known {
                    let field = field.unwrap_or(&Value::Null);
                    self.value(field, value, is_embedded(field));
                } else if self.unknown.len() < UNKNOWN_MAX {
                    self.unknown.push(self.path.clone());
                }
                self.path.truncate(length);
                is_known
            }),
            Value::Array(list) => {
                let items = schema.part("items");
                for (i, value) in list.iter_mut().enumerate() {
                    self.enter_entry(i);
                    self.value(items, value, is_embedded(items));
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    /// Prunes the known fields of a value that keeps all others.
    fn known_fields(&mut self, schema: &Value, value: &mut Value, is_object: bool) {
        let length = self.path.len();
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    if is_object && META.contains(&name.as_str()) {
                        continue;
                    }
                    let field = of_field(schema, name);
                    if field.is_none() && schema.field("additionalProperties").is_none() {
                        continue;
                    }
                    self.enter(name);
                    let field = field.unwrap_or(&Value::Null);
                    self.value(field, value, is_embedded(field));
                    self.path.truncate(length);
                }
            }
            Value::Array(list) => {
                let items = schema.part("items");
                for (i, value) in list.iter_mut().enumerate() {
                    self.enter_entry(i);
                    self.known_fields(items, value, is_embedded(items));
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn enter(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }

    fn enter_entry(&mut self, index: usize) {
        // A string accepts every write.
        let _ = write!(self.path, "[{index}]");
    }
}

/// Writes numbers such as 1.0 as whole numbers, as Go does.
pub(super) fn normalize_numbers(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(normalize_numbers),
        Value::Array(list) => list.iter_mut().for_each(normalize_numbers),
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|n| n.fract() == 0.0);
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
            let Some(field) = of_field(schema, name) else {
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
                if let Some(field) = of_field(schema, name) {
                    fill_null(field, value);
                    fill_defaults(field, value);
                }
            }
        }
        Value::Array(list) => {
            let items = schema.part("items");
            for value in list {
                fill_null(items, value);
                fill_defaults(items, value);
            }
        }
        _ => {}
    }
}

/// Replaces a null that the schema does not allow with the default.
fn fill_null(schema: &Value, value: &mut Value) {
    if let (true, Some(default)) = (value.is_null(), schema.field("default"))
        && !schema.flag("nullable")
    {
        *value = default.clone();
    }
}

/// The patterns of a schema and of all schemas below it.
pub(super) fn patterns(schema: &Value) -> FxHashMap<String, Arc<Pattern>> {
    let mut found = FxHashMap::default();
    collect(schema, &mut found);
    found
}

fn collect(schema: &Value, found: &mut FxHashMap<String, Arc<Pattern>>) {
    match schema {
        Value::Object(map) => {
            if let Some(text) = map.maybe_text("pattern")
                && !found.contains_key(text)
                && let Ok(pattern) = pattern(text)
            {
                found.insert(text.to_owned(), pattern);
            }
            map.values().for_each(|value| collect(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use berth_cel::Pattern;

    /// Patterns have the meaning of RE2, as in Go.
    #[test]
    fn patterns_are_those_of_re2() {
        for (pattern, fits, fits_not) in [
            ("^[^][ ()a]+$", "xyz", "x["),
            ("^a{$", "a{", "a"),
            ("^{a}$", "{a}", "a"),
            ("^a{,3}$", "a{,3}", "aa"),
            (r"^\101$", "A", "101"),
            ("^[a&&b]+$", "a&b", "c"),
            ("^[a~~b]+$", "a~b", "c"),
            (r"^\d+$", "12", "\u{663}"),
            (r"^\w+$", "ab_1", "\u{e9}"),
            (r"^\S$", "\u{a0}", " "),
            (r"a\b", "a\u{e9}", "ab"),
        ] {
            let pattern = Pattern::new(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert!(pattern.is_match(fits), "{pattern:?} {fits}");
            assert!(!pattern.is_match(fits_not), "{pattern:?} {fits_not}");
        }
        for (pattern, fault) in [
            (
                "[a--b]",
                "error parsing regexp: invalid character class range: `a--`",
            ),
            (
                "a{1001}",
                "error parsing regexp: invalid repeat count: `{1001}`",
            ),
            (
                "(?=a)",
                "error parsing regexp: invalid or unsupported Perl syntax: `(?=`",
            ),
        ] {
            let found = Pattern::new(pattern).err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), Some(fault), "{pattern}");
        }
    }

    /// A pattern for host names with repeated classes of Unicode, as definitions in use have it.
    #[test]
    fn patterns_with_repeated_classes_of_unicode_are_compiled() {
        let letter = r"[a-zA-Z0-9\p{S}\p{L}]";
        let pattern =
            format!(r"^({letter}((-?{letter}{{0,62}})?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}}$");
        let regex = Pattern::new(&pattern).expect("it is compiled");
        assert!(regex.is_match("a.example.com") && !regex.is_match("a..com"));
    }
}
