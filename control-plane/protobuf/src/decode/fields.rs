//! The fields of a message, as the pairs of a map.

use super::{DEPTH_MAX, Value, ValuePlace, too_deep};
use crate::error::ProtobufError;
use crate::facts::ValueShape;
use crate::types::{FieldTarget, MessageType, ProtobufField, Types};
use crate::wire::{Reader, Wire};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess};

/// The fields of a message that are still to be read.
#[derive(Debug, Clone)]
pub(super) struct Run<'de> {
    message: &'static MessageType,
    reader: Reader<'de>,
}

impl<'de> Run<'de> {
    fn new(message: &'static MessageType, bytes: &'de [u8]) -> Self {
        let reader = Reader::new(bytes);
        Self { message, reader }
    }

    /// The value of the next field if it has this number.
    pub(super) fn next_of(&mut self, number: u32) -> Result<Option<Wire<'de>>, ProtobufError> {
        let mut ahead = self.reader.clone();
        match ahead.next_field()? {
            Some((found, wire)) if found == number => {
                self.reader = ahead;
                Ok(Some(wire))
            }
            _ => Ok(None),
        }
    }

    /// Skips the next fields with this number.
    fn skip(&mut self, number: u32) -> Result<(), ProtobufError> {
        while self.next_of(number)?.is_some() {}
        Ok(())
    }
}

/// The value that belongs to the key that was read last.
struct NextValue<'de> {
    number: u32,
    name: &'static str,
    shape: &'static ValueShape,
    wire: Wire<'de>,
}

/// The fields of a message, including embedded messages.
pub(super) struct MessageFields<'a, 'de> {
    place: ValuePlace<'a>,
    /// The fields before the fields of the message.
    head: &'static [&'static str],
    type_meta: [&'de str; 2],
    inner: Run<'de>,
    /// The messages around an embedded one.
    outer: Vec<Run<'de>>,
    next: Option<NextValue<'de>>,
}

impl<'a, 'de> MessageFields<'a, 'de> {
    /// The fields of a message at a place. `type_meta` precedes them.
    #[inline]
    pub(super) fn new(
        place: ValuePlace<'a>,
        message: &'static MessageType,
        bytes: &'de [u8],
        type_meta: Option<[&'de str; 2]>,
    ) -> Self {
        Self {
            place,
            head: type_meta.map_or(&[][..], |_| &["apiVersion", "kind"]),
            type_meta: type_meta.unwrap_or_default(),
            inner: Run::new(message, bytes),
            outer: Vec::new(),
            next: None,
        }
    }

    /// The value that belongs to the key that was read last.
    fn next_value(&mut self) -> Result<Value<'_, 'a, 'de>, ProtobufError> {
        let next = self.next.as_ref();
        let next = next.ok_or_else(|| ProtobufError::new("a value without a key"))?;
        Ok(Value {
            place: self.place,
            shape: next.shape,
            wire: next.wire,
            rest: Some((&mut self.inner, next.number)),
        })
    }

    /// Skips the entries of the value that were not read.
    fn end_value(&mut self) -> Result<(), ProtobufError> {
        if let Some(next) = self.next.take()
            && let ValueShape::List(_) | ValueShape::Map(_) = next.shape
        {
            let skipped = self.inner.skip(next.number);
            return skipped.map_err(|error| error.within(next.name));
        }
        Ok(())
    }

    fn within_next(&self, error: ProtobufError) -> ProtobufError {
        match &self.next {
            Some(next) => error.within(next.name),
            None => error,
        }
    }

    /// The name of the next field; its value follows. Not generic over a visitor, so that it is compiled once.
    fn next_name(&mut self) -> Result<Option<&'static str>, ProtobufError> {
        if let [name, rest @ ..] = self.head {
            let at = self.type_meta.len() - self.head.len();
            self.head = rest;
            self.next = Some(NextValue {
                number: 0,
                name,
                shape: &ValueShape::String,
                wire: Wire::Bytes(self.type_meta[at].as_bytes()),
            });
            return Ok(Some(name));
        }
        loop {
            let Some((number, wire)) = self.inner.reader.next_field()? else {
                match self.outer.pop() {
                    Some(outer) => self.inner = outer,
                    None => return Ok(None),
                }
                continue;
            };
            match self.inner.message.field(number) {
                None => {}
                Some(FieldTarget::Embedded(at)) => {
                    let Wire::Bytes(bytes) = wire else {
                        return Err(ProtobufError::wire_type());
                    };
                    if self.outer.len() >= usize::from(DEPTH_MAX) {
                        return Err(too_deep());
                    }
                    let inner = Run::new(Types::get().at(*at), bytes);
                    self.outer.push(std::mem::replace(&mut self.inner, inner));
                }
                Some(FieldTarget::Field(field)) if field.is_left_out(wire) => {}
                Some(FieldTarget::Field(field)) => {
                    self.place.budget.spend()?;
                    self.next = Some(NextValue {
                        number,
                        name: field.name,
                        shape: field.shape,
                        wire,
                    });
                    return Ok(Some(field.name));
                }
            }
        }
    }
}

impl<'de> MapAccess<'de> for MessageFields<'_, 'de> {
    type Error = ProtobufError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ProtobufError> {
        let Some(name) = self.next_name()? else {
            return Ok(None);
        };
        let key: StrDeserializer<'_, ProtobufError> = name.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, ProtobufError> {
        match seed.deserialize(self.next_value()?) {
            Ok(value) => self.end_value().map(|()| value),
            Err(error) => Err(self.within_next(error)),
        }
    }
}

impl ProtobufField {
    /// Returns whether JSON would not have this field.
    fn is_left_out(&self, wire: Wire<'_>) -> bool {
        let is_zero = matches!(wire, Wire::Varint(0) | Wire::Bytes(&[]));
        match self.shape {
            // The absent time; the zero of Unix is written with its seconds.
            ValueShape::Time | ValueShape::MicroTime => is_zero,
            ValueShape::Bool
            | ValueShape::Int32
            | ValueShape::Int64
            | ValueShape::String
            | ValueShape::Bytes => self.omits_zero && is_zero,
            _ => false,
        }
    }
}
