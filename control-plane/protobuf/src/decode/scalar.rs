//! Values without keys and items, which are read without a visitor.

use super::{Value, lossy_text};
use crate::error::ProtobufError;
use crate::facts::ValueShape;
use crate::wire::{Reader, Wire};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_api::{GoTime, TimeLayout};
use serde::de::{Error, Expected, Unexpected};
use std::borrow::Cow;

/// A value without keys and items.
pub(super) enum Scalar<'de> {
    Null,
    Bool(bool),
    Integer(i64),
    Double(f64),
    Borrowed(&'de str),
    Owned(String),
    /// The value has keys or items, or is JSON.
    Other(Unexpected<'static>),
}

impl<'de> Scalar<'de> {
    fn text(bytes: &'de [u8]) -> Self {
        match lossy_text(bytes) {
            Cow::Borrowed(text) => Self::Borrowed(text),
            Cow::Owned(text) => Self::Owned(text),
        }
    }

    /// The error of a visitor that expects something else.
    pub(super) fn unexpected(self, expected: &dyn Expected) -> ProtobufError {
        let found = match &self {
            Self::Null => Unexpected::Unit,
            Self::Bool(value) => Unexpected::Bool(*value),
            Self::Integer(value) => Unexpected::Signed(*value),
            Self::Double(value) => Unexpected::Float(*value),
            Self::Borrowed(text) => Unexpected::Str(text),
            Self::Owned(text) => Unexpected::Str(text),
            Self::Other(found) => *found,
        };
        ProtobufError::invalid_type(found, expected)
    }
}

impl<'de> Value<'_, '_, 'de> {
    pub(super) fn is_no_time(&self) -> bool {
        matches!(self.shape, ValueShape::Time | ValueShape::MicroTime)
            && self.wire == Wire::Bytes(&[])
    }

    /// The error of a visitor that expects something else.
    pub(super) fn unexpected(&self, expected: &dyn Expected) -> ProtobufError {
        match self.scalar() {
            Ok(scalar) => scalar.unexpected(expected),
            Err(error) => error,
        }
    }

    /// The value without a visitor, so that this is compiled once.
    pub(super) fn scalar(&self) -> Result<Scalar<'de>, ProtobufError> {
        Ok(match (self.shape, self.wire) {
            (ValueShape::String, Wire::Bytes(bytes)) => Scalar::text(bytes),
            (ValueShape::Int32 | ValueShape::Int64, Wire::Varint(bits)) => {
                Scalar::Integer(bits.cast_signed())
            }
            (ValueShape::Bool, Wire::Varint(bits)) => Scalar::Bool(bits != 0),
            (ValueShape::Float, Wire::Fixed64(bits)) => double(f64::from_bits(bits)),
            (ValueShape::Quantity, Wire::Bytes(bytes)) => match first(bytes)? {
                [] => Scalar::Borrowed("0"),
                text => Scalar::text(text),
            },
            (ValueShape::Time | ValueShape::MicroTime, Wire::Bytes(&[])) => Scalar::Null,
            (ValueShape::Time, Wire::Bytes(bytes)) => {
                Scalar::Owned(time(bytes)?.text(TimeLayout::Seconds))
            }
            (ValueShape::MicroTime, Wire::Bytes(bytes)) => {
                Scalar::Owned(time(bytes)?.text(TimeLayout::Micros))
            }
            (ValueShape::IntOrString, Wire::Bytes(bytes)) => int_or_string(bytes)?,
            (ValueShape::Bytes, Wire::Bytes(bytes)) => Scalar::Owned(STANDARD.encode(bytes)),
            (ValueShape::List(_), _) | (ValueShape::Strings, Wire::Bytes(_)) => {
                Scalar::Other(Unexpected::Seq)
            }
            (ValueShape::Map(_), _) => Scalar::Other(Unexpected::Map),
            (ValueShape::Object(_) | ValueShape::SchemaOr(_), Wire::Bytes(_)) => {
                Scalar::Other(Unexpected::Map)
            }
            (ValueShape::Any | ValueShape::Raw | ValueShape::Fields, Wire::Bytes(_)) => {
                Scalar::Other(Unexpected::Other("JSON"))
            }
            _ => return Err(ProtobufError::wire_type()),
        })
    }
}

/// A number without a fraction is an integer in JSON.
fn double(value: f64) -> Scalar<'static> {
    const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= INTEGER_MAX {
        return Scalar::Integer(value as i64);
    }
    Scalar::Double(value)
}

fn int_or_string(bytes: &[u8]) -> Result<Scalar<'_>, ProtobufError> {
    const IS_STRING: u64 = 1;
    let mut reader = Reader::new(bytes);
    let (mut kind, mut integer, mut string) = (0, 0, &[][..]);
    while let Some((number, wire)) = reader.next_field()? {
        match (number, wire) {
            (1, Wire::Varint(bits)) => kind = bits,
            (2, Wire::Varint(bits)) => integer = bits.cast_signed(),
            (3, Wire::Bytes(bytes)) => string = bytes,
            _ => {}
        }
    }
    Ok(match kind {
        IS_STRING => Scalar::text(string),
        _ => Scalar::Integer(integer),
    })
}

/// A time: any number of seconds, as API servers store them.
fn time(bytes: &[u8]) -> Result<GoTime, ProtobufError> {
    let mut reader = Reader::new(bytes);
    let (mut seconds, mut nanos) = (0, 0);
    while let Some((number, wire)) = reader.next_field()? {
        match (number, wire) {
            (1, Wire::Varint(bits)) => seconds = bits.cast_signed(),
            (2, Wire::Varint(bits)) => nanos = bits.cast_signed(),
            _ => {}
        }
    }
    Ok(GoTime::new(seconds, nanos))
}

/// The first field of a message.
pub(super) fn first(bytes: &[u8]) -> Result<&[u8], ProtobufError> {
    let mut reader = Reader::new(bytes);
    let mut found = &[][..];
    while let Some((number, wire)) = reader.next_field()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => found = bytes,
            (1, _) => return Err(ProtobufError::wire_type()),
            _ => {}
        }
    }
    Ok(found)
}
