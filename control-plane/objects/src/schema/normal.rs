//! Normalizes a JSON object to the form of a typed server, and reports values that do not fit its type.
//!
//! One pass has the effect of decoding into Go types and encoding again: unknown fields are dropped, as are nulls,
//! empty lists and zero values that Go omits; fields that Go always writes are added; quantities and times become
//! canonical. Messages equal kube-apiserver's decoder, because clients print them.

use super::Decoded;
use super::model::{Model, ModelField, ObjectType, Presence, TypeId, ValueShape};
use super::path::SchemaPath;
use crate::releases::ApiRelease;
use berth_api::quantity::ParseQuantityError;
use berth_api::{GoDuration, GoTime, Quantity, TimeLayout};
use serde_json::Value;
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// As many errors of each sort are reported.
const ERRORS_MAX: usize = 100;
/// The types of CustomResourceDefinitions, which kube-apiserver stores as JSON.
const STORED_AS_JSON: &str = "apiextensions.";

/// Normalizes an object of a type, in place, with the fields of a release. Values of another type are reported and not
/// changed.
pub(super) fn normalize(
    model: &Model,
    api: ApiRelease,
    kind: TypeId,
    object: &mut Value,
) -> Decoded {
    let mut pass = Pass {
        model,
        api,
        decoded: Decoded::default(),
        is_stored_as_json: model.object_type(kind).name.starts_with(STORED_AS_JSON),
    };
    pass.value(&ValueShape::Object(kind), object, &SchemaPath::Root, None);
    pass.decoded
}

/// Writes the text of a quantity in its canonical form.
type Canonical = fn(&str) -> Result<Cow<'_, str>, ParseQuantityError>;

struct Pass<'m> {
    model: &'m Model,
    api: ApiRelease,
    decoded: Decoded,
    /// Whether objects of the kind are stored as JSON. Protobuf has no empty lists, so empty lists of all other kinds
    /// are read as absent.
    is_stored_as_json: bool,
}

impl Pass<'_> {
    /// Normalizes one value; `owner` is the type whose field it is.
    fn value(
        &mut self,
        shape: &ValueShape,
        value: &mut Value,
        path: &SchemaPath<'_>,
        owner: Option<&ObjectType>,
    ) {
        match (shape, &mut *value) {
            (_, Value::Null) | (ValueShape::Any | ValueShape::SchemaOr(_), _) => {}
            (ValueShape::Raw, Value::Object(_))
            // Stored objects have the text of the JSON here.
            | (ValueShape::Fields, Value::Object(_) | Value::String(_))
            | (ValueShape::Bool, Value::Bool(_))
            | (ValueShape::Float, Value::Number(_))
            | (ValueShape::String | ValueShape::IntOrString, Value::String(_)) => {}
            (ValueShape::Object(id), Value::Object(_)) => self.object(*id, value, path),
            (ValueShape::List(items), Value::Array(list)) => {
                for (i, value) in list.iter_mut().enumerate() {
                    zero_for_null(items, value);
                    self.value(items, value, &SchemaPath::Index(path, i), owner);
                }
            }
            (ValueShape::Strings, Value::Array(list)) => {
                for (i, value) in list.iter_mut().enumerate() {
                    self.value(&ValueShape::String, value, &SchemaPath::Index(path, i), owner);
                }
            }
            (ValueShape::Map(values), Value::Object(map)) => {
                for (key, value) in map.iter_mut() {
                    zero_for_null(values, value);
                    let path = SchemaPath::Key(path, key);
                    if **values == ValueShape::Quantity {
                        self.quantity(value, Quantity::wire_text_in_milli);
                    } else {
                        self.value(values, value, &path, owner);
                    }
                }
            }
            (ValueShape::Int32 | ValueShape::IntOrString, Value::Number(number)) => {
                if number.as_i64().is_none_or(|n| i32::try_from(n).is_err()) {
                    let what = format!("number {number}");
                    let owner = owner.filter(|_| *shape == ValueShape::Int32);
                    self.mismatch(&what, "int32", path, owner, *shape == ValueShape::Int32);
                }
            }
            (ValueShape::Int64, Value::Number(number)) => {
                if number.as_i64().is_none() {
                    self.mismatch(&format!("number {number}"), "int64", path, owner, true);
                }
            }
            (ValueShape::Bytes, Value::String(text)) => {
                let error = base64_error(text);
                self.extend(path, error);
            }
            (ValueShape::Time, Value::String(_)) => self.time(value, TimeLayout::Seconds, path),
            (ValueShape::MicroTime, Value::String(_)) => {
                self.time(value, TimeLayout::Micros, path);
            }
            (ValueShape::Duration, Value::String(text)) => {
                let error = text.parse::<GoDuration>().err().map(|e| e.to_string());
                self.extend(path, error);
            }
            (ValueShape::Quantity, _) => self.quantity(value, Quantity::wire_text),
            (shape, value) => {
                let wanted = self.model.go_type(shape);
                self.mismatch(json_type(value), &wanted, path, owner, true);
            }
        }
    }

    fn object(&mut self, id: TypeId, value: &mut Value, path: &SchemaPath<'_>) {
        let Value::Object(object) = value else {
            return;
        };
        let model = self.model;
        let object_type = model.object_type(id);
        // Most objects are already normalized: no field is removed.
        let mut removed: Vec<String> = Vec::new();
        // The fields of an object and of its type have the same order.
        let mut fields = object_type.fields.iter().peekable();
        for (name, value) in object.iter_mut() {
            while fields.next_if(|field| *field.name < **name).is_some() {}
            let known = fields.next_if(|field| *field.name == **name);
            if !self.is_kept(object_type, known, name, value, path) {
                removed.push(name.clone());
            }
        }
        for name in &removed {
            object.remove(name);
        }
        for field in &object_type.fields {
            if field.presence == Presence::AlwaysWritten
                && field.availability.is_written_in(self.api)
                && !object.contains_key(&*field.name)
                && let Some(mut zero) = field.zero()
            {
                self.value(&field.shape, &mut zero, path, Some(object_type));
                object.insert(field.name.to_string(), zero);
            }
        }
    }

    /// Normalizes a member of an object. Returns whether it stays.
    fn is_kept(
        &mut self,
        object_type: &ObjectType,
        known: Option<&ModelField>,
        name: &str,
        value: &mut Value,
        path: &SchemaPath<'_>,
    ) -> bool {
        let path = SchemaPath::Field(path, name);
        let Some(field) = known.filter(|f| f.availability.is_in(self.api)) else {
            if !object_type.open && self.decoded.unknown_fields.len() < ERRORS_MAX {
                self.decoded.unknown_fields.push(path.to_string());
            }
            return object_type.open;
        };
        self.value(&field.shape, value, &path, Some(object_type));
        let is_empty_list = value.as_array().is_some_and(Vec::is_empty);
        let is_empty_map = value.as_object().is_some_and(|map| map.is_empty());
        if (is_empty_list || is_empty_map) && is_collection(field) {
            if field.presence != Presence::AsWritten {
                self.decoded.empties.add(&path, is_empty_list);
            }
            if field.presence == Presence::AlwaysWritten && !self.is_stored_as_json {
                *value = Value::Null;
            }
        }
        if value.is_null() {
            // Go prints these as null, and clients send that back.
            return field.presence == Presence::AlwaysWritten && field.zero() == Some(Value::Null);
        }
        field.presence != Presence::OmittedWhenZero || !is_zero(value)
    }

    fn quantity(&mut self, value: &mut Value, canonical: Canonical) {
        let rewritten = match &*value {
            Value::String(text) => canonical(text).map(|text| match text {
                Cow::Owned(text) => Some(text),
                Cow::Borrowed(_) => None,
            }),
            other => canonical(&other.to_string()).map(|text| Some(text.into_owned())),
        };
        match rewritten {
            Ok(Some(text)) => *value = Value::String(text),
            Ok(None) => {}
            // Decoders of quantities do not know the path.
            Err(e) => self.push(e.to_string()),
        }
    }

    /// Writes a time in UTC. Go's zero time is null (API-78).
    fn time(&mut self, value: &mut Value, layout: TimeLayout, path: &SchemaPath<'_>) {
        let text = value.as_str().unwrap_or_default();
        if is_plain_time(text, layout) {
            return;
        }
        match GoTime::parse(text, layout) {
            Ok(GoTime::ZERO) => *value = Value::Null,
            Ok(time) => *value = Value::String(time.text(layout)),
            Err(error) => self.extend(path, Some(error.to_string())),
        }
    }

    /// An error of a type that decodes itself: upstream prints no place, so it is added.
    fn extend(&mut self, path: &SchemaPath<'_>, error: Option<String>) {
        if let Some(error) = error {
            self.push(format!("{path}: {error}"));
        }
    }

    fn mismatch(
        &mut self,
        found: &str,
        wanted: &str,
        path: &SchemaPath<'_>,
        owner: Option<&ObjectType>,
        placed: bool,
    ) {
        let place = match owner {
            Some(owner) => {
                let (name, fields) = (owner.short_name(), path.field_names());
                format!("Go struct field {name}.{fields}")
            }
            None => "Go value".to_owned(),
        };
        let error = format!("json: cannot unmarshal {found} into {place} of type {wanted}");
        self.push(if placed {
            error
        } else {
            format!("{path}: {error}")
        });
    }

    fn push(&mut self, error: String) {
        if self.decoded.type_errors.len() < ERRORS_MAX {
            self.decoded.type_errors.push(error);
        }
    }
}

/// The marks between the numbers of a time, with their positions, and where its seconds end.
const TIME_MARKS: [(usize, u8); 5] = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
const SECONDS_END: usize = 19;

/// Returns whether this is a time as [`Pass::time`] writes it, by a look at its numbers alone. Some that are, such as
/// the last days of months, are not recognized; they are parsed.
fn is_plain_time(text: &str, layout: TimeLayout) -> bool {
    let Some(text) = text.strip_suffix('Z').map(str::as_bytes) else {
        return false;
    };
    let Some((seconds, fraction)) = text.split_at_checked(SECONDS_END) else {
        return false;
    };
    let is_in = |at: usize, range: RangeInclusive<u8>| match seconds.get(at..at + 2) {
        Some([tens @ b'0'..=b'9', ones @ b'0'..=b'9']) => {
            range.contains(&(10 * (tens - b'0') + (ones - b'0')))
        }
        _ => false,
    };
    let is_fraction = match fraction {
        [] => layout == TimeLayout::Seconds,
        [b'.', digits @ ..] if layout == TimeLayout::Micros => {
            digits.len() == 6 && digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    };
    let is_date = is_in(0, 10..=29) && is_in(2, 0..=99) && is_in(5, 1..=12) && is_in(8, 1..=28);
    let is_time = is_in(11, 0..=23) && is_in(14, 0..=59) && is_in(17, 0..=59);
    let has_marks = TIME_MARKS
        .iter()
        .all(|(at, mark)| seconds.get(*at) == Some(mark));
    is_date && is_time && has_marks && is_fraction
}

/// Returns whether Go calls this a zero value.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}

/// Returns whether a field is a list or a map in Go.
fn is_collection(field: &ModelField) -> bool {
    let is_plain = matches!(
        field.shape,
        ValueShape::List(_) | ValueShape::Map(_) | ValueShape::Strings
    );
    is_plain && !field.pointer
}

/// A null in a list or map is the zero value of its type: it cannot be absent.
fn zero_for_null(shape: &ValueShape, value: &mut Value) {
    if value.is_null()
        && let Some(zero) = shape.zero()
    {
        *value = zero;
    }
}

fn base64_error(text: &str) -> Option<String> {
    use base64::Engine as _;
    // The decoder of Go skips line breaks.
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let error = base64::engine::general_purpose::STANDARD
        .decode(&text)
        .err()?;
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) => at,
        base64::DecodeError::InvalidLastSymbol { offset, .. } => offset,
        _ => text.len(),
    };
    Some(format!("illegal base64 data at input byte {at}"))
}

/// The name of a JSON value in decoding errors.
fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_recognized_without_parsing_is_in_its_normal_form() {
        let mut recognized = 0;
        for text in [
            "2026-11-27T10:05:38Z",
            "2026-11-28T23:59:59Z",
            "2026-11-27T10:05:38.123456Z",
            "2026-11-27T10:05:38.123Z",
            "2026-11-27T10:05:38.Z",
            "2026-11-27T10:05:38.12345xZ",
            "2026-02-30T10:05:38Z",
            "2026-11-30T10:05:38Z",
            "2026-00-01T10:05:38Z",
            "2026-13-01T10:05:38Z",
            "2026-11-00T10:05:38Z",
            "2026-11-27T24:05:38Z",
            "2026-11-27T10:60:38Z",
            "2026-11-27T10:05:60Z",
            "2026-11-27t10:05:38Z",
            "2026-11-27T10:05:38z",
            "2026-11-27T10:05:38+01:00",
            "2026-11-27T10:05Z",
            "0026-11-27T10:05:38Z",
            "+026-11-27T10:05:38Z",
            "",
            "Z",
        ] {
            for layout in [TimeLayout::Seconds, TimeLayout::Micros] {
                if is_plain_time(text, layout) {
                    let time = GoTime::parse(text, layout).expect("a time");
                    assert_eq!(time.text(layout), text);
                    recognized += 1;
                }
            }
        }
        assert_eq!(recognized, 3);
    }
}
