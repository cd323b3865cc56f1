//! Messages as a serde format: a message is a map from the names of its fields in JSON.
//!
//! Repeated fields and the entries of maps are read as far as they follow each other, as Kubernetes writes them.
//! [`crate::envelope::Envelope::decode_any_order`] accepts other orders.
//!
//! Functions that are generic over a visitor are compiled for each decoded type. To limit this, a visitor that expects
//! a scalar or a struct receives only that, and scalars are read by functions without a visitor ([`Scalar`]). JSON
//! within a message is available to visitors of any value, and to a type named `RawJson`.

use self::collections::{Entries, ListItems, MapPairs};
use self::fields::{MessageFields, Run};
use self::scalar::{Scalar, first};
use crate::error::ProtobufError;
use crate::facts::{Alternative, TypeId, ValueShape};
use crate::types::{MessageType, Types};
use crate::wire::{Reader, Wire};
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use std::borrow::Cow;
use std::cell::Cell;

mod collections;
mod fields;
mod scalar;

/// The most values in one object. API servers accept requests of 3 MiB, and a value has two bytes and more, so every
/// object that they store has fewer.
pub const VALUES_MAX: u32 = 3 * 1024 * 1024 / 2;
/// A type of this name receives the text of a field with the bytes of JSON, such as `berth_api::RawJson`.
const RAW_JSON: &str = "RawJson";
/// Messages are not nested deeper.
pub(crate) const DEPTH_MAX: u8 = 64;

/// Decodes a message.
///
/// # Errors
/// The message is truncated or malformed, or a value does not have the type that `T` expects.
pub fn decode<'de, T: Deserialize<'de>>(
    message: &'static MessageType,
    bytes: &'de [u8],
) -> Result<T, ProtobufError> {
    T::deserialize(Object::new(message, bytes))
}

/// A message as a deserializer.
#[derive(Debug, Clone, Copy)]
pub struct Object<'de> {
    message: &'static MessageType,
    bytes: &'de [u8],
    type_meta: Option<[&'de str; 2]>,
}

impl<'de> Object<'de> {
    /// The message of this type in these bytes.
    pub fn new(message: &'static MessageType, bytes: &'de [u8]) -> Self {
        Self {
            message,
            bytes,
            type_meta: None,
        }
    }

    pub(crate) fn message(&self) -> &'static MessageType {
        self.message
    }

    /// The bytes of the message.
    pub fn bytes(&self) -> &'de [u8] {
        self.bytes
    }

    /// The same with the fields `apiVersion` and `kind`, which messages do not contain.
    #[must_use]
    pub fn with_type_meta(self, api_version: &'de str, kind: &'de str) -> Self {
        Self {
            type_meta: Some([api_version, kind]),
            ..self
        }
    }
}

impl<'de> Deserializer<'de> for Object<'de> {
    type Error = ProtobufError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
        let budget = Budget::default();
        let place = ValuePlace {
            budget: &budget,
            depth: 0,
        };
        let fields = MessageFields::new(place, self.message, self.bytes, self.type_meta);
        let decoded = visitor.visit_map(fields);
        decoded.map_err(|error| error.within(self.message.name()))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ProtobufError> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

/// The number of further values of an object.
struct Budget(Cell<u32>);

impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(VALUES_MAX))
    }
}

impl Budget {
    fn spend(&self) -> Result<(), ProtobufError> {
        match self.0.get().checked_sub(1) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => Err(ProtobufError::new(format_args!(
                "the object has more than {VALUES_MAX} values"
            ))),
        }
    }
}

/// The place of a value.
#[derive(Clone, Copy)]
struct ValuePlace<'a> {
    budget: &'a Budget,
    depth: u8,
}

pub(crate) fn too_deep() -> ProtobufError {
    ProtobufError::new(format_args!("messages are nested deeper than {DEPTH_MAX}"))
}

/// One value. Values of all forms have this type, so that decoded types are compiled for one deserializer.
struct Value<'e, 'a, 'de> {
    place: ValuePlace<'a>,
    shape: &'static ValueShape,
    /// The value, or the first entry of a list or map.
    wire: Wire<'de>,
    /// The fields after it and its number, for the other entries of a list or map.
    rest: Option<(&'e mut Run<'de>, u32)>,
}

impl<'e, 'a, 'de> Value<'e, 'a, 'de> {
    /// A value that is neither a list nor a map.
    fn single(place: ValuePlace<'a>, shape: &'static ValueShape, wire: Wire<'de>) -> Self {
        Self {
            place,
            shape,
            wire,
            rest: None,
        }
    }

    /// The entries of a list or map.
    ///
    /// # Errors
    /// The value itself, if it is neither.
    fn entries(self, each: &'static ValueShape) -> Result<Entries<'e, 'a, 'de>, Self> {
        match self.rest {
            Some((run, number)) => Ok(Entries::new(self.place, run, number, each, self.wire)),
            None => Err(self),
        }
    }

    /// The items of a list.
    ///
    /// # Errors
    /// The value itself, if it is not a list.
    fn items(self) -> Result<ListItems<'e, 'a, 'de>, Self> {
        match (self.shape, self.wire) {
            (ValueShape::List(each), _) => self.entries(each).map(ListItems::Entries),
            (ValueShape::Strings, Wire::Bytes(bytes)) => Ok(ListItems::Fields {
                place: self.place,
                shape: &ValueShape::String,
                number: 1,
                reader: Reader::new(bytes),
            }),
            _ => Err(self),
        }
    }

    /// The pairs of a map.
    ///
    /// # Errors
    /// The value itself, if it is not a map.
    fn pairs(self) -> Result<MapPairs<'e, 'a, 'de>, Self> {
        match self.shape {
            ValueShape::Map(each) => self.entries(each).map(MapPairs),
            _ => Err(self),
        }
    }
}

impl<'a> ValuePlace<'a> {
    /// The fields of a message at this place.
    #[inline]
    fn message<'de>(
        self,
        at: TypeId,
        bytes: &'de [u8],
    ) -> Result<MessageFields<'a, 'de>, ProtobufError> {
        let depth = self.depth + 1;
        if depth > DEPTH_MAX {
            return Err(too_deep());
        }
        let place = Self { depth, ..self };
        Ok(MessageFields::new(place, Types::get().at(at), bytes, None))
    }
}

impl<'de> Deserializer<'de> for Value<'_, '_, 'de> {
    type Error = ProtobufError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
        let value = match self.items() {
            Ok(items) => return visitor.visit_seq(items),
            Err(value) => value,
        };
        match (value.shape, value.wire) {
            (ValueShape::SchemaOr(other), Wire::Bytes(bytes)) => {
                schema_or(value.place, *other, bytes, visitor)
            }
            (ValueShape::Object(at), Wire::Bytes(bytes)) => {
                visitor.visit_map(value.place.message(*at, bytes)?)
            }
            (ValueShape::Any | ValueShape::Raw | ValueShape::Fields, Wire::Bytes(bytes)) => {
                match first(bytes)? {
                    [] => visitor.visit_unit(),
                    json => serde_json::Deserializer::from_slice(json)
                        .deserialize_any(visitor)
                        .map_err(ProtobufError::new),
                }
            }
            (ValueShape::Map(_), _) => value.deserialize_map(visitor),
            _ => match value.scalar()? {
                Scalar::Null => visitor.visit_unit(),
                Scalar::Bool(value) => visitor.visit_bool(value),
                Scalar::Integer(value) => visitor.visit_i64(value),
                Scalar::Double(value) => visitor.visit_f64(value),
                Scalar::Borrowed(text) => visitor.visit_borrowed_str(text),
                Scalar::Owned(text) => visitor.visit_string(text),
                Scalar::Other(_) => Err(ProtobufError::wire_type()),
            },
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
        match self.scalar()? {
            Scalar::Bool(value) => visitor.visit_bool(value),
            other => Err(other.unexpected(&visitor)),
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
        match self.scalar()? {
            Scalar::Integer(value) => visitor.visit_i64(value),
            other => Err(other.unexpected(&visitor)),
        }
    }

    /// A larger number, which only another version of a type can have, is the largest.
    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
        match self.scalar()? {
            Scalar::Integer(value) => {
                visitor.visit_i64(value.clamp(i32::MIN.into(), i32::MAX.into()))
            }
            other => Err(other.unexpected(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
        // Most values.
        if let (ValueShape::String, Wire::Bytes(bytes)) = (self.shape, self.wire) {
            return match lossy_text(bytes) {
                Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                Cow::Owned(text) => visitor.visit_string(text),
            };
        }
        match self.scalar()? {
            Scalar::Borrowed(text) => visitor.visit_borrowed_str(text),
            Scalar::Owned(text) => visitor.visit_string(text),
            other => Err(other.unexpected(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
        match self.items() {
            Ok(items) => visitor.visit_seq(items),
            Err(value) => Err(value.unexpected(&visitor)),
        }
    }

    /// A struct is a message.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ProtobufError> {
        match (self.shape, self.wire) {
            (ValueShape::Object(at), Wire::Bytes(bytes)) => {
                visitor.visit_map(self.place.message(*at, bytes)?)
            }
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
        match self.pairs() {
            Ok(pairs) => visitor.visit_map(pairs),
            Err(value) => value.deserialize_struct("", &[], visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
        if self.is_no_time() {
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ProtobufError> {
        match (self.shape, self.wire) {
            (ValueShape::Raw, Wire::Bytes(bytes)) if name == RAW_JSON => {
                match lossy_text(first(bytes)?) {
                    Cow::Borrowed("") => visitor.visit_borrowed_str("null"),
                    Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                    Cow::Owned(text) => visitor.visit_string(text),
                }
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ProtobufError> {
        match (self.shape, self.wire) {
            (ValueShape::String, Wire::Bytes(bytes)) => {
                let text = lossy_text(bytes);
                let variant: StrDeserializer<'_, ProtobufError> = (&*text).into_deserializer();
                visitor.visit_enum(variant)
            }
            _ => Err(ProtobufError::wire_type()),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(
        self,
        visitor: V,
    ) -> Result<V::Value, ProtobufError> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

/// A schema, or its alternative.
fn schema_or<'de, V: Visitor<'de>>(
    place: ValuePlace<'_>,
    other: Alternative,
    bytes: &'de [u8],
    visitor: V,
) -> Result<V::Value, ProtobufError> {
    let schema = Types::get().schema();
    let number = if other == Alternative::Bool { 2 } else { 1 };
    let mut reader = Reader::new(bytes);
    let (mut one, mut flag) = (None, false);
    while let Some((found, wire)) = reader.next_field()? {
        match wire {
            wire if found == number => one = Some(wire),
            Wire::Varint(bits) if other == Alternative::Bool && found == 1 => flag = bits != 0,
            _ => {}
        }
    }
    match (one, other) {
        (Some(wire), _) => Value::single(place, schema, wire).deserialize_any(visitor),
        (None, Alternative::Bool) => visitor.visit_bool(flag),
        (None, Alternative::Array) => visitor.visit_seq(ListItems::Fields {
            place,
            shape: schema,
            number: 2,
            reader: Reader::new(bytes),
        }),
        (None, Alternative::Strings) => visitor.visit_seq(ListItems::Fields {
            place,
            shape: &ValueShape::String,
            number: 2,
            reader: Reader::new(bytes),
        }),
    }
}

/// The text of a field. Go's decoder does not check it, so API servers store any bytes; their JSON has U+FFFD for
/// invalid UTF-8.
pub(crate) fn lossy_text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

pub(crate) fn text(bytes: &[u8]) -> Result<&str, ProtobufError> {
    std::str::from_utf8(bytes).map_err(|_| ProtobufError::new("invalid UTF-8"))
}
