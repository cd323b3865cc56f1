//! Repeated fields, and maps.

use super::{Run, Value, ValuePlace, no_scalar, one_form, text};
use crate::error::ProtobufError;
use crate::facts::ValueShape;
use crate::wire::{Reader, Wire};
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

/// The values of a repeated field, or the entries of a map.
pub(super) struct Entries<'a, 'de> {
    place: ValuePlace<'a>,
    run: &'a mut Run<'de>,
    number: u32,
    shape: &'static ValueShape,
    first: Option<Wire<'de>>,
    /// Integers that share one field.
    packed: Option<Reader<'de>>,
    /// The value of the key that was read last.
    value: Wire<'de>,
}

impl<'a, 'de> Entries<'a, 'de> {
    pub(super) fn new(
        place: ValuePlace<'a>,
        run: &'a mut Run<'de>,
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

    /// Skips the entries that were not read.
    pub(super) fn skip_rest(self) -> Result<(), ProtobufError> {
        while self.run.next_of(self.number)?.is_some() {}
        Ok(())
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

/// A repeated field.
pub(super) struct List<'e, 'a, 'de>(pub(super) &'e mut Entries<'a, 'de>);

/// A map.
pub(super) struct MapPairs<'e, 'a, 'de>(pub(super) &'e mut Entries<'a, 'de>);

/// A deserializer that is visited by one method, for one hint. The visitors of `$other`, scalars and structs are refused.
macro_rules! collection {
    ($type:ident, $visit:ident, $hint:ident, $other:ident, $found:expr) => {
        impl<'de> Deserializer<'de> for $type<'_, '_, 'de> {
            type Error = ProtobufError;

            fn deserialize_any<V: Visitor<'de>>(
                self,
                visitor: V,
            ) -> Result<V::Value, ProtobufError> {
                visitor.$visit(self)
            }

            fn $hint<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
                visitor.$visit(self)
            }

            fn $other<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProtobufError> {
                Err(ProtobufError::invalid_type($found, &visitor))
            }

            /// A struct is a message.
            fn deserialize_struct<V: Visitor<'de>>(
                self,
                _: &'static str,
                _: &'static [&'static str],
                visitor: V,
            ) -> Result<V::Value, ProtobufError> {
                Err(ProtobufError::invalid_type($found, &visitor))
            }

            one_form!();
            no_scalar!($found);
        }
    };
}

collection!(
    List,
    visit_seq,
    deserialize_seq,
    deserialize_map,
    Unexpected::Seq
);
collection!(
    MapPairs,
    visit_map,
    deserialize_map,
    deserialize_seq,
    Unexpected::Map
);

impl<'de> SeqAccess<'de> for List<'_, '_, 'de> {
    type Error = ProtobufError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ProtobufError> {
        let Some(wire) = self.0.next()? else {
            return Ok(None);
        };
        let Entries { place, shape, .. } = *self.0;
        seed.deserialize(Value { place, shape, wire }).map(Some)
    }
}

impl<'de> MapAccess<'de> for MapPairs<'_, '_, 'de> {
    type Error = ProtobufError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ProtobufError> {
        let wire = match self.0.next()? {
            Some(Wire::Bytes(bytes)) => bytes,
            Some(_) => return Err(ProtobufError::wire_type()),
            None => return Ok(None),
        };
        let mut entry = Reader::new(wire);
        let mut key = "";
        self.0.value = self.0.shape.zero_wire();
        while let Some((number, wire)) = entry.next_field()? {
            match (number, wire) {
                (1, Wire::Bytes(bytes)) => key = text(bytes)?,
                (2, wire) => self.0.value = wire,
                _ => {}
            }
        }
        seed.deserialize(BorrowedStrDeserializer::new(key))
            .map(Some)
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
        } = *self.0;
        seed.deserialize(Value { place, shape, wire })
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
