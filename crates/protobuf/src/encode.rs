//! Messages from JSON values.

use crate::envelope;
use crate::types::{MessageType, SchemaOr, Shape, Target, Types};
use crate::wire::Writer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// The message of an object. Fields that the type does not have, and nulls, are left out; a value of another type than
/// the field has counts as zero.
pub fn encode(message: &MessageType, object: &Value) -> Vec<u8> {
    let mut writer = Writer::default();
    encode_message(&mut writer, message, object);
    writer.into_bytes()
}

/// The body of a request with this object. `None` when the kind of the object has no message.
pub fn encode_body(object: &Value) -> Option<Vec<u8>> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let message = Types::get().of_kind(api_version, kind)?;
    let mut writer = envelope::begin(api_version, kind);
    writer.message(envelope::RAW, |w| encode_message(w, message, object));
    Some(envelope::end(writer))
}

/// Writes the fields of an object.
pub fn encode_message(writer: &mut Writer, message: &MessageType, object: &Value) {
    if let Some(map) = object.as_object() {
        put_fields(writer, message, map);
    }
}

fn put_fields(writer: &mut Writer, message: &MessageType, map: &Map<String, Value>) {
    for (number, target) in message.fields() {
        match target {
            Target::Embedded(at) => {
                let inner = Types::get().at(*at);
                writer.message(number, |w| put_fields(w, inner, map));
            }
            Target::Field(field) => match map.get(field.name) {
                None | Some(Value::Null) => {}
                Some(value) => put(writer, number, &field.shape, value),
            },
        }
    }
}

fn put(writer: &mut Writer, number: u32, shape: &Shape, value: &Value) {
    let text = || value.as_str().unwrap_or_default();
    match shape {
        Shape::String => writer.bytes(number, text().as_bytes()),
        Shape::Bool => writer.varint(number, value.as_bool().unwrap_or_default().into()),
        Shape::Int => writer.varint(number, value.as_i64().unwrap_or_default()),
        Shape::Bytes => writer.bytes(number, &STANDARD.decode(text()).unwrap_or_default()),
        Shape::Quantity => writer.message(number, |w| w.bytes(1, text().as_bytes())),
        Shape::IntOrString => writer.message(number, |w| {
            w.varint(1, value.is_string().into());
            w.varint(2, value.as_i64().unwrap_or_default());
            w.bytes(3, text().as_bytes());
        }),
        Shape::Time | Shape::MicroTime => {
            if let Ok(time) = text().parse::<Timestamp>() {
                writer.message(number, |w| {
                    w.varint(1, time.as_second());
                    w.varint(2, time.subsec_nanosecond().into());
                });
            }
        }
        Shape::Strings => writer.message(number, |w| {
            let texts = value.as_array().into_iter().flatten();
            for text in texts.filter_map(Value::as_str) {
                w.bytes(1, text.as_bytes());
            }
        }),
        Shape::Fields if value.is_string() => {
            writer.message(number, |w| w.bytes(1, text().as_bytes()));
        }
        Shape::Json | Shape::Fields => {
            writer.message(number, |w| w.bytes(1, value.to_string().as_bytes()))
        }
        Shape::Double => writer.double(number, value.as_f64().unwrap_or_default()),
        Shape::SchemaOr(other, schema) => {
            writer.message(number, |w| put_schema_or(w, *other, schema, value))
        }
        Shape::Message(at) => {
            let inner = Types::get().at(*at);
            writer.message(number, |w| encode_message(w, inner, value));
        }
        Shape::List(items) => {
            for value in value.as_array().into_iter().flatten() {
                put(writer, number, items, value);
            }
        }
        Shape::Map(values) => {
            for (key, value) in value.as_object().into_iter().flatten() {
                writer.message(number, |w| {
                    w.bytes(1, key.as_bytes());
                    put(w, 2, values, value);
                });
            }
        }
    }
}

/// A schema, or what is in its place.
fn put_schema_or(writer: &mut Writer, other: SchemaOr, schema: &Shape, value: &Value) {
    match (other, value) {
        (SchemaOr::Bool, Value::Bool(flag)) => writer.varint(1, (*flag).into()),
        (SchemaOr::Bool, _) => {
            writer.varint(1, 1);
            put(writer, 2, schema, value);
        }
        (SchemaOr::Schemas, Value::Array(list)) => {
            for value in list {
                put(writer, 2, schema, value);
            }
        }
        (SchemaOr::Strings, Value::Array(list)) => {
            for value in list {
                put(writer, 2, &Shape::String, value);
            }
        }
        (SchemaOr::Schemas | SchemaOr::Strings, _) => put(writer, 1, schema, value),
    }
}
