//! Repeated fields, and maps.

use super::{Run, Value, ValuePlace, lossy_text};
use crate::error::ProtobufError;
use crate::facts::ValueShape;
use crate::wire::{Reader, Wire};
use serde::de::value::{BorrowedStrDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess};
use std::borrow::Cow;

/// The values of a repeated field, or the entries of a map.
pub(super) struct Entries<'e, 'a, 'de> {
    place: ValuePlace<'a>,
    run: &'e mut Run<'de>,
    number: u32,
    shape: &'static ValueShape,
    first: Option<Wire<'de>>,
    /// Integers that share one field.
    packed: Option<Reader<'de>>,
    /// The value of the key that was read last.
    value: Wire<'de>,
}

impl<'e, 'a, 'de> Entries<'e, 'a, 'de> {
    /// The entries that begin with `first` and continue with the next fields of this number in the run.
    pub(super) fn new(
        place: ValuePlace<'a>,
        run: &'e mut Run<'de>,
        number: u32,
        shape: &'static ValueShape,
        first: Wire<'de>,
    ) -> Self {
        Self {
            place,
            run,
            number,
            shape,
            first: Some(first),
            packed: None,
            value: Wire::Bytes(&[]),
        }
    }

    fn next(&mut self) -> Result<Option<Wire<'de>>, ProtobufError> {
        loop {
            if let Some(packed) = &mut self.packed {
                if let Some(integer) = packed.next_varint()? {
                    self.place.budget.spend()?;
                    return Ok(Some(Wire::Varint(integer.cast_unsigned())));
                }
                self.packed = None;
            }
            let wire = match self.first.take() {
                Some(first) => first,
                None => match self.run.next_of(self.number)? {
                    Some(wire) => wire,
                    None => return Ok(None),
                },
            };
            match (self.shape, wire) {
                (ValueShape::Int32 | ValueShape::Int64 | ValueShape::Bool, Wire::Bytes(bytes)) => {
                    self.packed = Some(Reader::new(bytes));
                }
                _ => {
                    self.place.budget.spend()?;
                    return Ok(Some(wire));
                }
            }
        }
    }
}

/// The items of a list.
pub(super) enum ListItems<'e, 'a, 'de> {
    /// The values of a repeated field.
    Entries(Entries<'e, 'a, 'de>),
    /// The fields with this number in a separate message.
    Fields {
        place: ValuePlace<'a>,
        shape: &'static ValueShape,
        number: u32,
        reader: Reader<'de>,
    },
}

impl<'a, 'de> ListItems<'_, 'a, 'de> {
    fn next<'v>(&mut self) -> Result<Option<Value<'v, 'a, 'de>>, ProtobufError> {
        match self {
            Self::Entries(entries) => {
                let wire = entries.next()?;
                Ok(wire.map(|wire| Value::single(entries.place, entries.shape, wire)))
            }
            Self::Fields {
                place,
                shape,
                number,
                reader,
            } => {
                while let Some((found, wire)) = reader.next_field()? {
                    if found == *number {
                        place.budget.spend()?;
                        return Ok(Some(Value::single(*place, shape, wire)));
                    }
                }
                Ok(None)
            }
        }
    }
}

impl<'de> SeqAccess<'de> for ListItems<'_, '_, 'de> {
    type Error = ProtobufError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ProtobufError> {
        match self.next()? {
            Some(value) => seed.deserialize(value).map(Some),
            None => Ok(None),
        }
    }
}

/// A map.
pub(super) struct MapPairs<'e, 'a, 'de>(pub(super) Entries<'e, 'a, 'de>);

impl<'de> MapPairs<'_, '_, 'de> {
    /// The key of the next entry; its value follows.
    fn next_name(&mut self) -> Result<Option<Cow<'de, str>>, ProtobufError> {
        let wire = match self.0.next()? {
            Some(Wire::Bytes(bytes)) => bytes,
            Some(_) => return Err(ProtobufError::wire_type()),
            None => return Ok(None),
        };
        let mut entry = Reader::new(wire);
        let mut key = &[][..];
        self.0.value = self.0.shape.zero_wire();
        while let Some((number, wire)) = entry.next_field()? {
            match (number, wire) {
                (1, Wire::Bytes(bytes)) => key = bytes,
                (2, wire) => self.0.value = wire,
                _ => {}
            }
        }
        Ok(Some(lossy_text(key)))
    }
}

impl<'de> MapAccess<'de> for MapPairs<'_, '_, 'de> {
    type Error = ProtobufError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ProtobufError> {
        match self.next_name()? {
            Some(Cow::Borrowed(key)) => seed
                .deserialize(BorrowedStrDeserializer::new(key))
                .map(Some),
            Some(Cow::Owned(key)) => {
                let key: StringDeserializer<ProtobufError> = key.into_deserializer();
                seed.deserialize(key).map(Some)
            }
            None => Ok(None),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, ProtobufError> {
        let Entries {
            place,
            shape,
            value: wire,
            ..
        } = self.0;
        seed.deserialize(Value::single(place, shape, wire))
    }
}

impl ValueShape {
    /// The value that an entry of a map without one has.
    fn zero_wire(&self) -> Wire<'static> {
        match self {
            Self::Bool | Self::Int32 | Self::Int64 => Wire::Varint(0),
            Self::Float => Wire::Fixed64(0),
            _ => Wire::Bytes(&[]),
        }
    }
}
