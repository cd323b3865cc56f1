//! Kubernetes' protobuf encoding, from and to the JSON form that everything else works on.
//!
//! A body is the four bytes `k8s\0` and a `runtime.Unknown`: group version, kind, and the message of that kind. The
//! numbers of fields are read from the tables of facts. Fields that are not listed there are skipped, as protobuf
//! wants it.

mod wire;

use crate::schema::Schemas;
use crate::schema::model::{
    Alternative, Field, Model, ObjectType, Shape, Target, TypeId, Wire as WireField,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_api::GoDuration;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
pub(crate) use wire::Writer;
use wire::{Reader, Wire};

/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Messages are nested no deeper.
const DEPTH_MAX: usize = 64;
/// A body holds no more values.
const VALUES_MAX: usize = 250_000;
/// The type that stands in unions of a CustomResourceDefinition's schema.
const SCHEMA: &str = "apiextensions.v1.JSONSchemaProps";

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// It does not begin as Kubernetes' protobuf does.
    #[error("the body does not begin with k8s\\0")]
    Magic,
    /// It ends within a value, or a length is wrong.
    #[error("the body is truncated or has a wrong length in it")]
    Truncated,
    /// A value is not of the type that the field has.
    #[error("field {0} has a wrong wire type")]
    WireType(String),
    /// A string is not UTF-8.
    #[error("field {0} is not valid UTF-8")]
    Text(String),
    /// Embedded JSON cannot be read.
    #[error("field {0} holds no valid JSON")]
    Json(String),
    /// The kind has no protobuf form.
    #[error("no kind {kind:?} is known in version {api_version:?}")]
    UnknownKind {
        /// Group and version.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// It is nested too deeply or holds too many values.
    #[error("the body is nested deeper than {DEPTH_MAX} or holds more than {VALUES_MAX} values")]
    TooMuch,
}

/// Decodes a body into an object with `apiVersion` and `kind`.
///
/// # Errors
/// See [`ProtobufError`].
pub fn decode(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?;
    let mut reader = Reader::new(rest);
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), None);
    while let Some((number, value)) = reader.next_field()? {
        match (number, value) {
            (1, Wire::Bytes(meta)) => {
                let mut meta = Reader::new(meta);
                while let Some((number, value)) = meta.next_field()? {
                    match (number, value) {
                        (1, Wire::Bytes(text)) => api_version = text_of("apiVersion", text)?,
                        (2, Wire::Bytes(text)) => kind = text_of("kind", text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = Some(bytes),
            _ => {}
        }
    }
    let schemas = Schemas::get();
    let Some(id) = type_of(&api_version, &kind) else {
        return Err(ProtobufError::UnknownKind { api_version, kind });
    };
    let mut decoder = Decoder {
        model: schemas.model(),
        values: 0,
    };
    let object_type = decoder.model.object_type(id);
    let raw = raw.ok_or(ProtobufError::Truncated)?;
    let mut object = Map::new();
    decoder.message(&mut object, object_type, &object_type.wires, raw, 0)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// The type of a kind. Options come under the version of whatever they are options for.
fn type_of(api_version: &str, kind: &str) -> Option<TypeId> {
    if kind == "DeleteOptions" {
        return Schemas::get().find("", "v1", kind);
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Schemas::get().find(group, version, kind)
}

fn text_of(field: &str, bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Text(field.to_owned()))
}

struct Decoder<'m> {
    model: &'m Model,
    values: usize,
}

impl Decoder<'_> {
    /// Decodes the fields of a message into an object.
    fn message(
        &mut self,
        object: &mut Map<String, Value>,
        object_type: &ObjectType,
        wires: &[WireField],
        bytes: &[u8],
        depth: usize,
    ) -> Result<(), ProtobufError> {
        if depth > DEPTH_MAX {
            return Err(ProtobufError::TooMuch);
        }
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next_field()? {
            let Ok(found) = wires.binary_search_by_key(&number, |w| w.number) else {
                continue;
            };
            self.values += 1;
            if self.values > VALUES_MAX {
                return Err(ProtobufError::TooMuch);
            }
            match wires.get(found).map(|w| &w.target) {
                Some(Target::Field(index)) => {
                    if let Some(field) = object_type.fields.get(*index) {
                        self.field(object, field, wire, depth)?;
                    }
                }
                Some(Target::Embedded(inner)) => {
                    let Wire::Bytes(bytes) = wire else {
                        return Err(ProtobufError::WireType(object_type.name.to_string()));
                    };
                    self.message(object, object_type, inner, bytes, depth + 1)?;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        object: &mut Map<String, Value>,
        field: &Field,
        wire: Wire<'_>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let name = &*field.name;
        match &field.shape {
            Shape::List(items) => {
                let slot = object.entry(name).or_insert_with(|| json!([]));
                let Some(list) = slot.as_array_mut() else {
                    return Ok(());
                };
                match wire {
                    // Integers may come packed.
                    Wire::Bytes(bytes) if matches!(**items, Shape::Int32 | Shape::Int64) => {
                        let mut packed = Reader::new(bytes);
                        while let Some(integer) = packed.next_varint()? {
                            list.push(integer.into());
                        }
                    }
                    wire => list.push(self.value(name, items, wire, depth)?),
                }
            }
            Shape::Map(values) => {
                let Wire::Bytes(bytes) = wire else {
                    return Err(ProtobufError::WireType(name.to_owned()));
                };
                let mut entry = Reader::new(bytes);
                let (mut key, mut value) = (String::new(), None);
                while let Some((number, wire)) = entry.next_field()? {
                    match (number, wire) {
                        (1, Wire::Bytes(text)) => key = text_of(name, text)?,
                        (2, wire) => value = Some(self.value(name, values, wire, depth)?),
                        _ => {}
                    }
                }
                let slot = object.entry(name).or_insert_with(|| json!({}));
                if let Some(map) = slot.as_object_mut() {
                    let zero = || values.zero().unwrap_or(json!([]));
                    map.insert(key, value.unwrap_or_else(zero));
                }
            }
            shape => {
                let value = self.value(name, shape, wire, depth)?;
                object.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }

    fn value(
        &mut self,
        name: &str,
        shape: &Shape,
        wire: Wire<'_>,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        Ok(match (shape, wire) {
            (Shape::String, Wire::Bytes(bytes)) => text_of(name, bytes)?.into(),
            (Shape::Int32 | Shape::Int64, Wire::Varint(bits)) => bits.cast_signed().into(),
            (Shape::Bool, Wire::Varint(bits)) => (bits != 0).into(),
            (Shape::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
            (Shape::Float, Wire::Fixed64(bits)) => json!(f64::from_bits(bits)),
            (Shape::Quantity, Wire::Bytes(bytes)) => first_text(name, bytes)?.into(),
            (Shape::IntOrString, Wire::Bytes(bytes)) => int_or_string(name, bytes)?,
            (Shape::Time, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%SZ")?,
            (Shape::MicroTime, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
            (Shape::Duration, Wire::Bytes(bytes)) => {
                // One field: nanoseconds.
                let (nanos, _) = seconds_and_nanos(bytes)?;
                json!(format!(
                    "{}s",
                    SignedDuration::from_nanos(nanos).as_secs_f64()
                ))
            }
            (Shape::Strings, Wire::Bytes(bytes)) => texts(name, bytes)?,
            (Shape::Any | Shape::Raw | Shape::Fields, Wire::Bytes(bytes)) => embedded(name, bytes)?,
            (Shape::SchemaOr(or), Wire::Bytes(bytes)) => self.schema_or(name, *or, bytes, depth)?,
            (Shape::Object(id), Wire::Bytes(bytes)) => {
                let object_type = self.model.object_type(*id);
                let mut object = Map::new();
                self.message(
                    &mut object,
                    object_type,
                    &object_type.wires,
                    bytes,
                    depth + 1,
                )?;
                Value::Object(object)
            }
            _ => return Err(ProtobufError::WireType(name.to_owned())),
        })
    }

    /// A message of a schema and its alternative.
    fn schema_or(
        &mut self,
        name: &str,
        or: Alternative,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        let Some(id) = self.model.find(SCHEMA) else {
            return Ok(Value::Null);
        };
        let schema = Shape::Object(id);
        let mut reader = Reader::new(bytes);
        let (mut found, mut list) = (None, Vec::new());
        while let Some((number, wire)) = reader.next_field()? {
            let is_schema = number == if or == Alternative::Bool { 2 } else { 1 };
            if is_schema {
                found = Some(self.value(name, &schema, wire, depth + 1)?);
            } else {
                let shape = match or {
                    Alternative::Array => &schema,
                    Alternative::Bool => &Shape::Bool,
                    Alternative::Strings => &Shape::String,
                };
                list.push(self.value(name, shape, wire, depth + 1)?);
            }
        }
        Ok(match (found, or) {
            (Some(schema), _) => schema,
            (None, Alternative::Bool) => list.pop().unwrap_or(false.into()),
            (None, _) => Value::Array(list),
        })
    }
}

/// The first field of a message, which is a string.
fn first_text(name: &str, bytes: &[u8]) -> Result<String, ProtobufError> {
    let list = texts(name, bytes)?;
    Ok(list.get(0).and_then(Value::as_str).unwrap_or("").to_owned())
}

/// The first field of a message, which is a list of strings.
fn texts(name: &str, bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut reader = Reader::new(bytes);
    let mut texts = Vec::new();
    while let Some((number, wire)) = reader.next_field()? {
        if let (1, Wire::Bytes(bytes)) = (number, wire) {
            texts.push(text_of(name, bytes)?);
        }
    }
    Ok(texts.into())
}

/// JSON within protobuf: the first field of a message.
fn embedded(name: &str, bytes: &[u8]) -> Result<Value, ProtobufError> {
    let text = first_text(name, bytes)?;
    if text.is_empty() {
        return Ok(Value::Null);
    }
    crate::schema::parse_json(text.as_bytes())
        .map(|parsed| parsed.value)
        .map_err(|_| ProtobufError::Json(name.to_owned()))
}

fn int_or_string(name: &str, bytes: &[u8]) -> Result<Value, ProtobufError> {
    const IS_STRING: u64 = 1;
    let mut reader = Reader::new(bytes);
    let (mut kind, mut integer, mut text) = (0, 0, String::new());
    while let Some((number, wire)) = reader.next_field()? {
        match (number, wire) {
            (1, Wire::Varint(bits)) => kind = bits,
            (2, Wire::Varint(bits)) => integer = bits.cast_signed(),
            (3, Wire::Bytes(bytes)) => text = text_of(name, bytes)?,
            _ => {}
        }
    }
    Ok(if kind == IS_STRING {
        text.into()
    } else {
        integer.into()
    })
}

/// Seconds and nanoseconds of a message; nothing at all is no time.
fn seconds_and_nanos(bytes: &[u8]) -> Result<(i64, i32), ProtobufError> {
    let mut reader = Reader::new(bytes);
    let (mut seconds, mut nanos) = (0, 0);
    while let Some((number, wire)) = reader.next_field()? {
        match (number, wire) {
            (1, Wire::Varint(bits)) => seconds = bits.cast_signed(),
            (2, Wire::Varint(bits)) => {
                nanos = i32::try_from(bits.cast_signed()).map_err(|_| ProtobufError::Truncated)?;
            }
            _ => {}
        }
    }
    Ok((seconds, nanos))
}

fn time(bytes: &[u8], format: &str) -> Result<Value, ProtobufError> {
    let (seconds, nanos) = seconds_and_nanos(bytes)?;
    if (seconds, nanos) == (0, 0) {
        return Ok(Value::Null);
    }
    let time =
        Timestamp::new(seconds, nanos).map_err(|_| ProtobufError::WireType("time".to_owned()))?;
    Ok(time.strftime(format).to_string().into())
}

/// The message of an object of a type of the tables; `None` when the type is not known.
pub(crate) fn message(type_id: TypeId, object: &Value) -> Vec<u8> {
    let mut writer = Writer::default();
    put(&mut writer, Schemas::get().model(), type_id, object);
    writer.into_bytes()
}

/// A body: the message of a kind in its envelope.
pub(crate) fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.raw(MAGIC);
    writer.message(1, |meta| {
        meta.bytes(1, api_version.as_bytes());
        meta.bytes(2, kind.as_bytes());
    });
    writer.bytes(2, message);
    writer.bytes(3, b"");
    writer.bytes(4, b"");
    writer.into_bytes()
}

/// Writes the fields of an object.
fn put(writer: &mut Writer, model: &Model, id: TypeId, object: &Value) {
    let object_type = model.object_type(id);
    if let Some(map) = object.as_object() {
        put_fields(writer, model, object_type, &object_type.wires, map);
    }
}

fn put_fields(
    writer: &mut Writer,
    model: &Model,
    object_type: &ObjectType,
    wires: &[WireField],
    map: &Map<String, Value>,
) {
    for wire in wires {
        match &wire.target {
            Target::Embedded(inner) => {
                writer.message(wire.number, |w| {
                    put_fields(w, model, object_type, inner, map)
                });
            }
            Target::Field(index) => {
                let field = object_type.fields.get(*index);
                let found = field.and_then(|f| Some((f, map.get(&*f.name)?)));
                if let Some((field, value)) = found.filter(|(_, v)| !v.is_null()) {
                    put_value(writer, model, wire.number, &field.shape, value);
                }
            }
        }
    }
}

fn put_value(writer: &mut Writer, model: &Model, number: u32, shape: &Shape, value: &Value) {
    let text = || value.as_str().unwrap_or("");
    match shape {
        Shape::String => writer.bytes(number, text().as_bytes()),
        Shape::Bool => writer.varint(number, value.as_bool().unwrap_or(false).into()),
        Shape::Int32 | Shape::Int64 => writer.varint(number, value.as_i64().unwrap_or(0)),
        Shape::Float => writer.double(number, value.as_f64().unwrap_or(0.0)),
        Shape::Bytes => writer.bytes(number, &STANDARD.decode(text()).unwrap_or_default()),
        Shape::Quantity => writer.message(number, |w| w.bytes(1, text().as_bytes())),
        Shape::IntOrString => writer.message(number, |w| {
            w.varint(1, value.is_string().into());
            w.varint(2, value.as_i64().unwrap_or(0));
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
        Shape::Duration => {
            let nanos = text().parse::<GoDuration>().map_or(0, GoDuration::as_nanos);
            writer.message(number, |w| w.varint(1, nanos));
        }
        Shape::Strings => writer.message(number, |w| {
            for text in value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                w.bytes(1, text.as_bytes());
            }
        }),
        Shape::Any | Shape::Raw | Shape::Fields => {
            writer.message(number, |w| w.bytes(1, value.to_string().as_bytes()));
        }
        Shape::SchemaOr(or) => {
            let is_bool = *or == Alternative::Bool;
            writer.message(number, |w| put_alternative(w, model, is_bool, value));
        }
        Shape::Object(id) => writer.message(number, |w| put(w, model, *id, value)),
        Shape::List(items) => {
            for value in value.as_array().into_iter().flatten() {
                put_value(writer, model, number, items, value);
            }
        }
        Shape::Map(values) => {
            for (key, value) in value.as_object().into_iter().flatten() {
                writer.message(number, |w| {
                    w.bytes(1, key.as_bytes());
                    put_value(w, model, 2, values, value);
                });
            }
        }
    }
}

/// A schema, or what stands in its place. A schema beside a flag implies the flag.
fn put_alternative(writer: &mut Writer, model: &Model, is_bool: bool, value: &Value) {
    let Some(id) = model.find(SCHEMA) else {
        return;
    };
    match value {
        Value::Bool(flag) => writer.varint(1, (*flag).into()),
        Value::Array(list) => {
            for entry in list {
                match entry.as_str() {
                    Some(text) => writer.bytes(2, text.as_bytes()),
                    None => writer.message(2, |w| put(w, model, id, entry)),
                }
            }
        }
        schema => {
            if is_bool {
                writer.varint(1, 1);
            }
            writer.message(if is_bool { 2 } else { 1 }, |w| put(w, model, id, schema));
        }
    }
}

#[cfg(test)]
mod tests;
