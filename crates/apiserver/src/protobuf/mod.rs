//! Kubernetes' protobuf encoding of request bodies, decoded into the JSON form that everything else works on.
//!
//! A body is the four bytes `k8s\0` and a `runtime.Unknown`: group version, kind, and the message of that kind.
//! What the fields of a message are called and which types they have stands in `types.txt`. Fields that are not
//! there are skipped, as protobuf wants it. Answers are always JSON: clients that send protobuf accept that.

mod types;
mod wire;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use types::{Field, Kind, Message, Shape};
use wire::{Reader, Wire};

/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Messages are nested no deeper.
const DEPTH_MAX: usize = 64;
/// A body holds no more values.
const VALUES_MAX: usize = 250_000;

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
    /// The kind has no protobuf form here.
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
    let message = message_of(&api_version, &kind).ok_or_else(|| ProtobufError::UnknownKind {
        api_version: api_version.clone(),
        kind: kind.clone(),
    })?;
    let raw = raw.ok_or(ProtobufError::Truncated)?;
    let mut decoder = Decoder { values: 0 };
    let mut object = Map::new();
    decoder.message_into(&mut object, message, raw, 0)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// The message of a kind. Options come under the version of whatever they are options for.
fn message_of(api_version: &str, kind: &str) -> Option<&'static Message> {
    if kind == "DeleteOptions" {
        return types::find("meta.v1.DeleteOptions");
    }
    let package = match api_version.split_once('/') {
        None => format!("core.{api_version}"),
        Some((group, version)) => {
            let first = group.split('.').next().unwrap_or(group);
            format!("{first}.{version}")
        }
    };
    types::find(&format!("{package}.{kind}"))
}

fn text_of(field: &str, bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Text(field.to_owned()))
}

struct Decoder {
    values: usize,
}

impl Decoder {
    /// Decodes the fields of a message into an object.
    fn message_into(
        &mut self,
        object: &mut Map<String, Value>,
        message: &Message,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(), ProtobufError> {
        if depth > DEPTH_MAX {
            return Err(ProtobufError::TooMuch);
        }
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next_field()? {
            let Some(field) = message.field(number) else {
                continue;
            };
            self.values += 1;
            if self.values > VALUES_MAX {
                return Err(ProtobufError::TooMuch);
            }
            self.field_into(object, field, wire, depth)?;
        }
        Ok(())
    }

    fn field_into(
        &mut self,
        object: &mut Map<String, Value>,
        field: &Field,
        wire: Wire<'_>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        match field.shape {
            Shape::Inline => {
                let (Wire::Bytes(bytes), Kind::Message(name)) = (wire, field.kind) else {
                    return Err(ProtobufError::WireType(field.name.to_owned()));
                };
                match types::find(name) {
                    Some(message) => self.message_into(object, message, bytes, depth + 1)?,
                    None => return Ok(()),
                }
            }
            Shape::One => {
                let value = self.value(field, wire, depth)?;
                object.insert(field.name.to_owned(), value);
            }
            Shape::List => {
                let slot = object
                    .entry(field.name)
                    .or_insert_with(|| Value::Array(Vec::new()));
                let Some(list) = slot.as_array_mut() else {
                    return Ok(());
                };
                match wire {
                    // Integers may come packed.
                    Wire::Bytes(bytes) if field.kind == Kind::Integer => {
                        let mut packed = Reader::new(bytes);
                        while let Some(integer) = packed.next_varint()? {
                            list.push(integer.into());
                        }
                    }
                    wire => list.push(self.value(field, wire, depth)?),
                }
            }
            Shape::Map => {
                let Wire::Bytes(bytes) = wire else {
                    return Err(ProtobufError::WireType(field.name.to_owned()));
                };
                let mut entry = Reader::new(bytes);
                let (mut key, mut value) = (String::new(), None);
                while let Some((number, wire)) = entry.next_field()? {
                    match (number, wire) {
                        (1, Wire::Bytes(text)) => key = text_of(field.name, text)?,
                        (2, wire) => value = Some(self.value(field, wire, depth)?),
                        _ => {}
                    }
                }
                let slot = object
                    .entry(field.name)
                    .or_insert_with(|| Value::Object(Map::new()));
                if let Some(map) = slot.as_object_mut() {
                    map.insert(key, value.unwrap_or_else(|| field.kind.zero()));
                }
            }
        }
        Ok(())
    }

    fn value(
        &mut self,
        field: &Field,
        wire: Wire<'_>,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        Ok(match (field.kind, wire) {
            (Kind::Text, Wire::Bytes(bytes)) => text_of(field.name, bytes)?.into(),
            // A negative number is written with all its sixty-four bits.
            (Kind::Integer, Wire::Varint(bits)) => bits.cast_signed().into(),
            (Kind::Boolean, Wire::Varint(bits)) => (bits != 0).into(),
            (Kind::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
            (Kind::Double, Wire::Fixed64(bits)) => f64::from_bits(bits).into(),
            (Kind::Quantity, Wire::Bytes(bytes)) => first_text(field, bytes)?.into(),
            (Kind::Json, Wire::Bytes(bytes)) => embedded(field, bytes)?,
            (Kind::IntOrString, Wire::Bytes(bytes)) => int_or_string(field, bytes)?,
            (Kind::Time, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%SZ")?,
            (Kind::MicroTime, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
            (Kind::Duration, Wire::Bytes(bytes)) => duration(bytes)?,
            (Kind::Strings, Wire::Bytes(bytes)) => {
                let mut texts = Vec::new();
                let mut reader = Reader::new(bytes);
                while let Some((number, wire)) = reader.next_field()? {
                    if let (1, Wire::Bytes(text)) = (number, wire) {
                        texts.push(text_of(field.name, text)?);
                    }
                }
                texts.into()
            }
            (Kind::Message(name), Wire::Bytes(bytes)) => {
                let mut object = Map::new();
                if let Some(message) = types::find(name) {
                    self.message_into(&mut object, message, bytes, depth + 1)?;
                }
                Value::Object(object)
            }
            _ => return Err(ProtobufError::WireType(field.name.to_owned())),
        })
    }
}

/// The first field of a message, which is a string.
fn first_text(field: &Field, bytes: &[u8]) -> Result<String, ProtobufError> {
    let mut reader = Reader::new(bytes);
    let mut text = String::new();
    while let Some((number, wire)) = reader.next_field()? {
        if let (1, Wire::Bytes(bytes)) = (number, wire) {
            text = text_of(field.name, bytes)?;
        }
    }
    Ok(text)
}

/// JSON within protobuf: the first field of a message.
fn embedded(field: &Field, bytes: &[u8]) -> Result<Value, ProtobufError> {
    let text = first_text(field, bytes)?;
    if text.is_empty() {
        return Ok(Value::Null);
    }
    crate::schema::parse_json(text.as_bytes())
        .map(|parsed| parsed.value)
        .map_err(|_| ProtobufError::Json(field.name.to_owned()))
}

fn int_or_string(field: &Field, bytes: &[u8]) -> Result<Value, ProtobufError> {
    const IS_STRING: u64 = 1;
    let mut reader = Reader::new(bytes);
    let (mut kind, mut integer, mut text) = (0, 0, String::new());
    while let Some((number, wire)) = reader.next_field()? {
        match (number, wire) {
            (1, Wire::Varint(bits)) => kind = bits,
            (2, Wire::Varint(bits)) => integer = bits.cast_signed(),
            (3, Wire::Bytes(bytes)) => text = text_of(field.name, bytes)?,
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

fn duration(bytes: &[u8]) -> Result<Value, ProtobufError> {
    // One field: nanoseconds.
    let (nanos, _) = seconds_and_nanos(bytes)?;
    let duration = SignedDuration::from_nanos(nanos);
    Ok(json!(format!("{}s", duration.as_secs_f64())))
}

#[cfg(test)]
mod tests;
