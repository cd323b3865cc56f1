//! The validation of values against schemas, with the texts of kube-apiserver.
//!
//! The checks, their order, and the reported part of an `anyOf` or `oneOf` equal the OpenAPI library of Kubernetes:
//! each applicable check counts, and the part with the highest count is reported.
//!
//! The faults of a value that equals its counterpart before a change are dropped (KEP-4008). The parts of combinations
//! have no counterparts: their faults are dropped only with all faults of the value.

mod numbers;

use self::numbers::{as_whole, is_whole, number_text};
use super::correlation::Counterpart;
use super::formats;
use super::place::Place;
use crate::field::{ErrorType, FieldError};
use crate::validation::errors::{Shown, quote};
use crate::view::FieldView;
use berth_cel::Pattern;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The maximum number of reported faults of a value.
const FAULTS_MAX: usize = 100;
/// The faults of a value. `base` is the field that contains it; empty for a whole object.
pub(super) fn faults(
    schema: &Value,
    patterns: &FxHashMap<String, Arc<Pattern>>,
    value: &Value,
    base: &str,
    before: Option<Counterpart<'_>>,
) -> Vec<FieldError> {
    let check = ValueCheck { patterns, base };
    check.value(schema, value, &Place::ROOT, before).faults
}

struct ValueCheck<'p> {
    patterns: &'p FxHashMap<String, Arc<Pattern>>,
    base: &'p str,
}

/// The faults of a value, and the number of checks that applied.
#[derive(Debug, Default)]
struct Outcome {
    faults: Vec<FieldError>,
    matches: u64,
}

impl Outcome {
    fn of(fault: FieldError) -> Self {
        Self {
            faults: vec![fault],
            matches: 0,
        }
    }

    fn is_valid(&self) -> bool {
        self.faults.is_empty()
    }

    fn count(&mut self) {
        self.matches = self.matches.saturating_add(1);
    }

    /// Adds a fault, unless it is known already.
    fn add(&mut self, fault: FieldError) {
        if self.faults.len() < FAULTS_MAX && !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    fn merge(&mut self, other: Self) {
        other.faults.into_iter().for_each(|fault| self.add(fault));
        self.matches = self.matches.saturating_add(other.matches);
    }

    /// Adds the outcome of a check that applied.
    fn merge_applied(&mut self, other: Self) {
        self.merge(other);
        self.count();
    }
}

/// The types that a schema accepts.
fn types_of(schema: &Value) -> &'static [&'static str] {
    if schema.flag("x-kubernetes-int-or-string") {
        return &["integer", "string"];
    }
    match schema.text("type") {
        "array" => &["array"],
        "boolean" => &["boolean"],
        "integer" => &["integer"],
        "number" => &["number"],
        "object" => &["object"],
        "string" => &["string"],
        _ => &[],
    }
}

/// The format of a schema; empty if kube-apiserver ignores it.
fn format_of(schema: &Value) -> &str {
    let format = schema.text("format");
    let is_known = match types_of(schema) {
        ["integer"] => matches!(format, "int32" | "int64"),
        ["number"] => matches!(format, "float" | "double"),
        ["array" | "boolean" | "object"] => false,
        _ => formats::is_known(format),
    };
    if is_known { format } else { "" }
}

/// The formats in the schemas of a definition that kube-apiserver ignores.
pub(crate) fn ignored_formats(definition: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for version in definition.part("spec").items("versions") {
        let schema = version.part("schema").part("openAPIV3Schema");
        collect_ignored(schema, &mut found);
    }
    found
}

fn collect_ignored(schema: &Value, found: &mut Vec<String>) {
    let format = schema.text("format");
    if !format.is_empty() && format_of(schema).is_empty() && !found.iter().any(|f| f == format) {
        found.push(format.to_owned());
    }
    for name in ["items", "additionalProperties", "not"] {
        let below = schema.field(name).into_iter();
        below.for_each(|below| collect_ignored(below, found));
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let parts = schema.items(name).iter();
        parts.for_each(|part| collect_ignored(part, found));
    }
    let properties = schema.map("properties").into_iter().flatten();
    properties.for_each(|(_, schema)| collect_ignored(schema, found));
}

/// The type of a value and, for numbers, its format.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

impl ValueCheck<'_> {
    fn value(
        &self,
        schema: &Value,
        value: &Value,
        place: &Place<'_>,
        before: Option<Counterpart<'_>>,
    ) -> Outcome {
        let mut outcome = self.checked(schema, value, place, before);
        if !outcome.is_valid() && before.is_some_and(|before| before.is_equal()) {
            outcome.faults.clear();
        }
        outcome
    }

    /// The outcome before the faults of an unchanged value are dropped.
    fn checked(
        &self,
        schema: &Value,
        value: &Value,
        place: &Place<'_>,
        before: Option<Counterpart<'_>>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        if value.is_null() {
            outcome.merge(self.of_type(schema, value, place));
            outcome.merge(self.in_enumeration(schema, value, place));
            return outcome;
        }
        let format = format_of(schema);
        if !types_of(schema).is_empty() || !format.is_empty() {
            outcome.merge_applied(self.of_type(schema, value, place));
        }
        outcome.merge_applied(self.combined(schema, value, place));
        match value {
            Value::String(text) => {
                outcome.merge_applied(self.text(schema, text, place));
                if formats::is_known(format) {
                    let fits = formats::fits(format, text);
                    let wrong = || Outcome::of(self.wrong_type(place, format, text));
                    outcome.merge_applied(if fits { Outcome::default() } else { wrong() });
                }
            }
            Value::Number(number) => outcome.merge_applied(self.number(schema, number, place)),
            Value::Array(list) => outcome.merge_applied(self.list(schema, list, place, before)),
            _ => {}
        }
        outcome.merge_applied(self.in_enumeration(schema, value, place));
        if let Value::Object(map) = value {
            outcome.merge_applied(self.object(schema, map, place, before));
        }
        outcome.count();
        outcome
    }

    fn of_type(&self, schema: &Value, value: &Value, place: &Place<'_>) -> Outcome {
        let (types, format) = (types_of(schema), format_of(schema));
        let (found, found_format) = type_of(value);
        let right = Outcome {
            faults: Vec::new(),
            matches: 1,
        };
        if value.is_null() {
            return match types {
                [] => right,
                _ if schema.flag("nullable") => right,
                types => Outcome::of(self.wrong_type(place, &types.join(","), found)),
            };
        }
        let whole = value.as_f64().is_some_and(is_whole);
        let is_number = (found == "number" && whole && types.contains(&"integer"))
            || (found == "integer" && types.contains(&"number"));
        let fits = types.contains(&found) || is_number;
        let is_plain = matches!(value, Value::String(_) | Value::Array(_));
        let has_number = types.contains(&"integer") || types.contains(&"number");
        if !is_plain && !format.is_empty() && !fits && format != found_format {
            return Outcome::of(self.wrong_type(place, format, found_format));
        }
        // The format decides on texts, and accepts lists.
        if fits || (is_plain && !format.is_empty() && !has_number) {
            return right;
        }
        Outcome::of(self.wrong_type(place, &types.join(","), found))
    }

    fn in_enumeration(&self, schema: &Value, value: &Value, place: &Place<'_>) -> Outcome {
        let known = schema.items("enum");
        if known.is_empty() || known.iter().any(|known| is_member(value, known)) {
            return Outcome::default();
        }
        let texts = known.iter().map(|known| match known {
            Value::String(text) => quote(text),
            other => quote(&other.to_string()),
        });
        let texts = texts.collect::<Vec<_>>().join(", ");
        let detail = format!("supported values: {texts}");
        let fault = self.fault(ErrorType::NotSupported, place, Some(shown(value)), detail);
        Outcome::of(fault)
    }

    fn combined(&self, schema: &Value, value: &Value, place: &Place<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        let check = |part: &Value| self.checked(part, value, place, None);
        let shown = quote(&place.to_string());
        let any = schema.items("anyOf");
        if !any.is_empty() {
            let mut best = None;
            for part in any {
                let found = check(part);
                let is_valid = found.is_valid();
                keep_better(&mut best, found);
                if is_valid {
                    break;
                }
            }
            if best.as_ref().is_none_or(|best| !best.is_valid()) {
                let detail = format!("{shown} must validate at least one schema (anyOf)");
                outcome.add(self.without_field(detail));
            }
            outcome.merge(best.unwrap_or_default());
        }
        let one = schema.items("oneOf");
        if !one.is_empty() {
            let (mut best, mut valid) = (None, 0);
            for part in one {
                let found = check(part);
                valid += usize::from(found.is_valid());
                keep_better(&mut best, found);
            }
            if valid != 1 {
                let count = match valid {
                    0 => "Found none valid".to_owned(),
                    n => format!("Found {n} valid alternatives"),
                };
                let rule = "must validate one and only one schema (oneOf).";
                outcome.add(self.without_field(format!("{shown} {rule} {count}")));
            }
            if valid < 2 {
                outcome.merge(best.unwrap_or_default());
            }
        }
        let all = schema.items("allOf");
        let mut valid = 0;
        for part in all {
            let found = check(part);
            valid += usize::from(found.is_valid());
            outcome.merge(found);
        }
        if valid != all.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            let rule = "must validate all the schemas (allOf)";
            outcome.add(self.without_field(format!("{shown} {rule}{none}")));
        }
        if schema.field("not").is_some_and(|not| check(not).is_valid()) {
            let detail = format!("{shown} must not validate the schema (not)");
            outcome.add(self.without_field(detail));
        }
        outcome.count();
        outcome
    }

    /// The first fault of a text, its format aside.
    fn text(&self, schema: &Value, text: &str, place: &Place<'_>) -> Outcome {
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(max) = schema.maybe_int("maxLength")
            && length > max
        {
            let unit = if max == 1 { "byte" } else { "bytes" };
            let detail = format!("may not be more than {max} {unit}");
            return Outcome::of(self.fault(ErrorType::TooLong, place, None, detail));
        }
        let detail = if let Some(min) = schema.maybe_int("minLength")
            && length < min
        {
            format!("should be at least {min} chars long")
        } else if let Some(pattern) = schema.maybe_text("pattern")
            && let Some(regex) = self.patterns.get(pattern)
            && !regex.is_match(text)
        {
            format!("should match '{pattern}'")
        } else {
            return Outcome::default();
        };
        Outcome::of(self.in_body(place, quote(text), &detail))
    }

    fn list(
        &self,
        schema: &Value,
        list: &[Value],
        place: &Place<'_>,
        before: Option<Counterpart<'_>>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(items) = schema.field("items") {
            let entries = before.map(|before| before.entries());
            for (i, value) in list.iter().enumerate() {
                let before = entries.as_ref().and_then(|entries| entries.at(i));
                outcome.merge(self.value(items, value, &place.index(i), before));
            }
        }
        let count = i64::try_from(list.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.maybe_int("minItems")
            && count < min
        {
            let detail = format!("should have at least {min} items");
            outcome.add(self.in_body(place, count.to_string(), &detail));
        }
        if let Some(max) = schema.maybe_int("maxItems")
            && count > max
        {
            outcome.add(self.too_many(place, count, max));
        }
        outcome.count();
        outcome
    }

    fn object(
        &self,
        schema: &Value,
        map: &Map<String, Value>,
        place: &Place<'_>,
        before: Option<Counterpart<'_>>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let count = i64::try_from(map.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.maybe_int("minProperties")
            && count < min
        {
            let detail = format!("should have at least {min} properties");
            outcome.add(self.in_body(place, count.to_string(), &detail));
        }
        if let Some(max) = schema.maybe_int("maxProperties")
            && count > max
        {
            outcome.add(self.too_many(place, count, max));
        }
        let properties = schema.part("properties");
        let others = map
            .iter()
            .filter(|(name, _)| properties.get(name).is_none());
        match schema.field("additionalProperties") {
            Some(Value::Bool(false)) => {
                for (name, _) in others {
                    let entry = place.entry(name);
                    let detail = format!("{entry} in body is a forbidden property");
                    let kind = ErrorType::Invalid;
                    outcome.add(self.fault(kind, place, Some(quote(name)), detail));
                }
            }
            Some(schema @ Value::Object(_)) => {
                for (name, value) in others {
                    let before = before.and_then(|before| before.field(name));
                    outcome.merge(self.value(schema, value, &place.entry(name), before));
                }
            }
            _ => {}
        }
        for (name, schema) in schema.map("properties").into_iter().flatten() {
            let Some(value) = map.get(name) else {
                continue;
            };
            // Both objects have the version of the request, so changes of these fields cannot be seen.
            let is_seen = !(place.is_root() && matches!(name.as_str(), "apiVersion" | "kind"));
            let before = before.filter(|_| is_seen);
            let before = before.and_then(|before| before.field(name));
            outcome.merge(self.value(schema, value, &place.field(name), before));
        }
        for name in schema.strings("required") {
            if !map.contains_key(name) {
                let place = place.entry(name);
                let kind = ErrorType::Required;
                outcome.add(self.fault(kind, &place, None, String::new()));
            }
        }
        outcome
    }

    fn fault(
        &self,
        kind: ErrorType,
        place: &Place<'_>,
        value: Option<String>,
        detail: String,
    ) -> FieldError {
        let place = place.to_string();
        let field = match (self.base, place.strip_prefix('.').unwrap_or(&place)) {
            ("", "") => "<nil>".to_owned(),
            ("", place) => place.to_owned(),
            (base, "") => base.to_owned(),
            (base, place) => format!("{base}.{place}"),
        };
        FieldError {
            kind,
            field,
            value,
            detail,
        }
    }

    fn wrong_type(&self, place: &Place<'_>, wanted: &str, found: &str) -> FieldError {
        let found = quote(found);
        let detail = format!("{place} in body must be of type {wanted}: {found}");
        self.fault(ErrorType::TypeInvalid, place, Some(found), detail)
    }

    fn in_body(&self, place: &Place<'_>, value: String, what: &str) -> FieldError {
        let detail = format!("{place} in body {what}");
        self.fault(ErrorType::Invalid, place, Some(value), detail)
    }

    fn too_many(&self, place: &Place<'_>, count: i64, max: i64) -> FieldError {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        self.fault(ErrorType::TooMany, place, Some(count.to_string()), detail)
    }

    /// A fault that is reported without its field: the detail names it.
    fn without_field(&self, detail: String) -> FieldError {
        self.fault(ErrorType::Invalid, &Place::ROOT, Some(quote("")), detail)
    }
}

/// Keeps the reported outcome of a combination: the first valid part, or else the first part with the highest count of
/// applicable checks.
fn keep_better(best: &mut Option<Outcome>, found: Outcome) {
    let is_better = match best {
        None => true,
        Some(best) if best.is_valid() => false,
        Some(best) => found.is_valid() || found.matches > best.matches,
    };
    if is_better {
        *best = Some(found);
    }
}

/// Returns whether a value is a member of an enumeration. Numbers are converted to the type of the member.
fn is_member(value: &Value, known: &Value) -> bool {
    match (value, known) {
        (Value::Null, _) => false,
        (Value::Number(value), Value::Number(known)) => match known.as_i64() {
            Some(known) => value.as_i64().or_else(|| as_whole(value.as_f64()?)) == Some(known),
            None => value.as_f64() == known.as_f64(),
        },
        (value, known) => value == known,
    }
}

/// A value as errors show it.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) if !number.is_i64() => {
            number_text(number.as_f64().unwrap_or_default())
        }
        value => Shown::from(value).0,
    }
}
