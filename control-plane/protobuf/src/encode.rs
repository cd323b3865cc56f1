//! Messages from JSON values.

use crate::envelope;
use crate::facts::{Alternative, ValueShape};
use crate::tree::{Node, Tree};
use crate::types::{FieldTarget, MessageType, ProtobufField, Types};
use crate::wire::Writer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_api::GoTime;
use serde::de::Error as _;
use serde_json::{Number, Value};

/// The message of an object. Nulls, and fields that the type does not have, are omitted; a value of another type than
/// the field counts as zero.
pub fn encode(message: &MessageType, object: &Value) -> Vec<u8> {
    let mut writer = Writer::default();
    encode_message(&mut writer, message, object);
    writer.into_bytes()
}

/// As [`encode`], for an object that is given as JSON: its tree is not built.
///
/// # Errors
/// The text is not JSON.
pub fn encode_json(message: &MessageType, json: &[u8]) -> serde_json::Result<Vec<u8>> {
    // Once for the whole text, not for each string in it.
    let text = std::str::from_utf8(json).map_err(serde_json::Error::custom)?;
    let tree = Tree::read(text)?;
    // A message is shorter than its JSON, but for values such as empty messages.
    let mut writer = Writer::with_capacity(json.len());
    put_object(&mut writer, message, tree.root());
    Ok(writer.into_bytes())
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
    put_object(writer, message, object);
}

fn put_object<N: Node>(writer: &mut Writer, message: &MessageType, object: N) {
    if object.is_object() {
        put_fields(writer, message, object);
    }
}

/// An object with more members is encoded by looking up each field of its type.
const MEMBERS_MAX: usize = 24;

fn put_fields<N: Node>(writer: &mut Writer, message: &MessageType, object: N) {
    // Objects have few of the fields of their types, so their members are looked up, and sorted by number.
    if message.embeds {
        return put_every_field(writer, message, object);
    }
    let mut found: [Option<(u32, &ProtobufField, N)>; MEMBERS_MAX] = [None; MEMBERS_MAX];
    let mut count = 0;
    for (name, value) in object.members() {
        let Some((number, field)) = message.named(name).filter(|_| !value.is_null()) else {
            continue;
        };
        match found.get_mut(count) {
            Some(slot) => *slot = Some((number, field, value)),
            None => return put_every_field(writer, message, object),
        }
        count += 1;
    }
    let found = found.get_mut(..count).unwrap_or_default();
    found.sort_unstable_by_key(|member| member.map(|(number, ..)| number));
    for (number, field, value) in found.iter().flatten() {
        put(writer, *number, field.shape, *value);
    }
}

fn put_every_field<N: Node>(writer: &mut Writer, message: &MessageType, object: N) {
    for (number, target) in message.fields() {
        match target {
            FieldTarget::Embedded(at) => {
                let inner = Types::get().at(*at);
                writer.message(number, |w| put_fields(w, inner, object));
            }
            FieldTarget::Field(field) => {
                if let Some(value) = object.member(field.name).filter(|v| !v.is_null()) {
                    put(writer, number, field.shape, value);
                }
            }
        }
    }
}

pub(crate) fn put<N: Node>(writer: &mut Writer, number: u32, shape: &ValueShape, value: N) {
    let text = || value.text().unwrap_or_default();
    let int = || value.number().and_then(Number::as_i64).unwrap_or_default();
    match shape {
        ValueShape::String => writer.bytes(number, text().as_bytes()),
        ValueShape::Bool => writer.varint(number, value.flag().unwrap_or_default().into()),
        ValueShape::Int32 | ValueShape::Int64 => writer.varint(number, int()),
        ValueShape::Bytes => writer.bytes(number, &STANDARD.decode(text()).unwrap_or_default()),
        ValueShape::Quantity => writer.message(number, |w| w.bytes(1, text().as_bytes())),
        ValueShape::IntOrString => writer.message(number, |w| {
            w.varint(1, value.text().is_some().into());
            w.varint(2, int());
            w.bytes(3, text().as_bytes());
        }),
        ValueShape::Time | ValueShape::MicroTime => {
            if let Ok(time) = GoTime::read(text()) {
                writer.message(number, |w| {
                    w.varint(1, time.seconds());
                    w.varint(2, time.nanos().into());
                });
            }
        }
        ValueShape::Strings => writer.message(number, |w| {
            for item in value.items().into_iter().flatten() {
                if let Some(text) = item.text() {
                    w.bytes(1, text.as_bytes());
                }
            }
        }),
        ValueShape::Raw | ValueShape::Fields if value.text().is_some() => {
            writer.message(number, |w| w.bytes(1, text().as_bytes()));
        }
        ValueShape::Any | ValueShape::Raw | ValueShape::Fields => {
            writer.message(number, |w| w.bytes(1, value.json().as_bytes()))
        }
        ValueShape::Float => {
            let double = value.number().and_then(Number::as_f64);
            writer.double(number, double.unwrap_or_default());
        }
        // No message has a field of this shape.
        ValueShape::Duration => {}
        ValueShape::SchemaOr(other) => writer.message(number, |w| put_schema_or(w, *other, value)),
        ValueShape::Object(at) => {
            let inner = Types::get().at(*at);
            writer.message(number, |w| put_object(w, inner, value));
        }
        ValueShape::List(items) => {
            for value in value.items().into_iter().flatten() {
                put(writer, number, items, value);
            }
        }
        ValueShape::Map(values) => {
            for (key, value) in value.members() {
                writer.message(number, |w| {
                    w.bytes(1, key.as_bytes());
                    put(w, 2, values, value);
                });
            }
        }
    }
}

/// A schema, or its alternative.
fn put_schema_or<N: Node>(writer: &mut Writer, other: Alternative, value: N) {
    let schema = Types::get().schema();
    match (other, value.flag(), value.items()) {
        (Alternative::Bool, Some(flag), _) => writer.varint(1, flag.into()),
        (Alternative::Bool, None, _) => {
            writer.varint(1, 1);
            put(writer, 2, schema, value);
        }
        (Alternative::Array, _, Some(list)) => {
            for value in list {
                put(writer, 2, schema, value);
            }
        }
        (Alternative::Strings, _, Some(list)) => {
            for value in list {
                put(writer, 2, &ValueShape::String, value);
            }
        }
        (Alternative::Array | Alternative::Strings, _, None) => put(writer, 1, schema, value),
    }
}
