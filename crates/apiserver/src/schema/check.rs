//! What is wrong with an object before anybody validates it: fields its type does not have, values of another
//! type. The words are those of kube-apiserver's decoder, which clients print.

use super::Decoded;
use super::model::{Model, ObjectType, Shape, TypeId};
use super::path::Path;
use berth_api::Quantity;
use serde_json::Value;

/// As many errors of each sort are reported.
const ERRORS_MAX: usize = 100;

/// Checks an object against the type of its kind.
pub(super) fn check(model: &Model, kind: TypeId, object: &Value) -> Decoded {
    let mut checker = Checker {
        model,
        decoded: Decoded::default(),
    };
    checker.value(&Shape::Object(kind), object, &Path::Root, None);
    checker.decoded
}

/// The required fields that are not there.
pub(super) fn missing(model: &Model, kind: TypeId, object: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    collect_missing(
        model,
        &Shape::Object(kind),
        object,
        &Path::Root,
        &mut missing,
    );
    missing
}

fn collect_missing(
    model: &Model,
    shape: &Shape,
    value: &Value,
    path: &Path<'_>,
    missing: &mut Vec<String>,
) {
    if missing.len() >= ERRORS_MAX {
        return;
    }
    match (shape, value) {
        (Shape::Object(id), Value::Object(object)) => {
            let object_type = model.object_type(*id);
            for name in &object_type.required {
                if object.get(name).is_none_or(Value::is_null) {
                    missing.push(Path::Field(path, name).to_string());
                }
            }
            for (name, value) in object {
                if let Some(field) = object_type.fields.get(name) {
                    let path = Path::Field(path, name);
                    collect_missing(model, &field.shape, value, &path, missing);
                }
            }
        }
        (Shape::List(items), Value::Array(list)) => {
            for (i, value) in list.iter().enumerate() {
                collect_missing(model, items, value, &Path::Index(path, i), missing);
            }
        }
        (Shape::Map(values), Value::Object(map)) => {
            for (key, value) in map {
                collect_missing(model, values, value, &Path::Key(path, key), missing);
            }
        }
        _ => {}
    }
}

struct Checker<'m> {
    model: &'m Model,
    decoded: Decoded,
}

impl Checker<'_> {
    /// Checks one value; `owner` is the type whose field it stands in.
    fn value(&mut self, shape: &Shape, value: &Value, path: &Path<'_>, owner: Option<&ObjectType>) {
        match (shape, value) {
            // A null is a value that is not there, whatever the type.
            (_, Value::Null) | (Shape::Any, _) => {}
            (Shape::AnyObject, Value::Object(_))
            | (Shape::Bool, Value::Bool(_))
            | (Shape::Float, Value::Number(_))
            | (Shape::String | Shape::IntOrString, Value::String(_)) => {}
            (Shape::Object(id), Value::Object(object)) => {
                let object_type = self.model.object_type(*id);
                for (name, value) in object {
                    let path = Path::Field(path, name);
                    match object_type.fields.get(name) {
                        Some(field) => self.value(&field.shape, value, &path, Some(object_type)),
                        None => self.unknown(&path),
                    }
                }
            }
            (Shape::List(items), Value::Array(list)) => {
                for (i, value) in list.iter().enumerate() {
                    self.value(items, value, &Path::Index(path, i), owner);
                }
            }
            (Shape::Map(values), Value::Object(map)) => {
                for (key, value) in map {
                    self.value(values, value, &Path::Key(path, key), owner);
                }
            }
            (Shape::Int32, Value::Number(number)) => {
                if number.as_i64().is_none_or(|n| i32::try_from(n).is_err()) {
                    self.mismatch(&format!("number {number}"), "int32", path, owner);
                }
            }
            (Shape::Int64, Value::Number(number)) => {
                if number.as_i64().is_none() {
                    self.mismatch(&format!("number {number}"), "int64", path, owner);
                }
            }
            (Shape::IntOrString, Value::Number(number)) => {
                if number.as_i64().is_none_or(|n| i32::try_from(n).is_err()) {
                    self.error(
                        format!(
                            "json: cannot unmarshal number {number} into Go value of type int32"
                        ),
                        path,
                    );
                }
            }
            (Shape::Bytes, Value::String(text)) => self.bytes(text, path),
            (Shape::Time, Value::String(text)) => {
                self.time(text, "2006-01-02T15:04:05Z07:00", path);
            }
            (Shape::MicroTime, Value::String(text)) => {
                self.time(text, "2006-01-02T15:04:05.000000Z07:00", path);
            }
            (Shape::Quantity, Value::String(text)) => self.quantity(text, path),
            (Shape::Quantity, Value::Number(number)) => self.quantity(&number.to_string(), path),
            (Shape::Quantity, other) => self.quantity(&other.to_string(), path),
            (shape, value) => {
                let wanted = self.model.go_type(shape);
                self.mismatch(json_type(value), &wanted, path, owner);
            }
        }
    }

    fn unknown(&mut self, path: &Path<'_>) {
        if self.decoded.unknown_fields.len() < ERRORS_MAX {
            self.decoded.unknown_fields.push(path.to_string());
        }
    }

    fn mismatch(&mut self, found: &str, wanted: &str, path: &Path<'_>, owner: Option<&ObjectType>) {
        let place = match owner {
            Some(owner) => format!(
                "Go struct field {}.{}",
                owner.short_name(),
                path.field_names()
            ),
            None => "Go value".to_owned(),
        };
        self.push(format!(
            "json: cannot unmarshal {found} into {place} of type {wanted}"
        ));
    }

    /// An error of a type that decodes itself: upstream prints no place, so it is added.
    fn error(&mut self, message: String, path: &Path<'_>) {
        self.push(format!("{path}: {message}"));
    }

    fn push(&mut self, error: String) {
        if self.decoded.type_errors.len() < ERRORS_MAX {
            self.decoded.type_errors.push(error);
        }
    }

    fn quantity(&mut self, text: &str, path: &Path<'_>) {
        if let Err(e) = text.parse::<Quantity>() {
            self.error(e.to_string(), path);
        }
    }

    fn time(&mut self, text: &str, layout: &str, path: &Path<'_>) {
        if text.parse::<jiff::Timestamp>().is_err() {
            self.error(
                format!("parsing time {text:?} as \"{layout}\": cannot parse {text:?}"),
                path,
            );
        }
    }

    fn bytes(&mut self, text: &str, path: &Path<'_>) {
        use base64::Engine as _;
        // The decoder of upstream skips line breaks.
        let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        if let Err(e) = base64::engine::general_purpose::STANDARD.decode(&text) {
            let at = match e {
                base64::DecodeError::InvalidByte(at, _) => at,
                base64::DecodeError::InvalidLastSymbol { offset, .. } => offset,
                _ => text.len(),
            };
            self.error(format!("illegal base64 data at input byte {at}"), path);
        }
    }
}

/// What a JSON value is called in decoding errors.
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
