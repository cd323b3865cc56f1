//! Fields in any order. The format allows separated values of a repeated field, and several occurrences of another
//! field; decoding expects fields by number, as Kubernetes writes them. [`canonical`] reorders other messages.

use crate::decode::{DEPTH_MAX, too_deep};
use crate::error::ProtobufError;
use crate::facts::{TypeId, ValueShape};
use crate::types::{FieldTarget, MessageType, Types};
use crate::wire::{Reader, Wire, Writer};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The message with its fields by number. As the format specifies, the last of several scalars counts, and several
/// messages are merged. Unknown fields are dropped if others are moved.
///
/// # Errors
/// When the message is truncated or nested too deep.
pub(crate) fn canonical<'a>(
    message: &MessageType,
    bytes: &'a [u8],
) -> Result<Cow<'a, [u8]>, ProtobufError> {
    if is_canonical(message, bytes, 0)? {
        return Ok(Cow::Borrowed(bytes));
    }
    rewritten(message, bytes, 0).map(Cow::Owned)
}

impl FieldTarget {
    fn is_repeated(&self) -> bool {
        matches!(self, Self::Field(field) if matches!(field.shape, ValueShape::List(_) | ValueShape::Map(_)))
    }
}

/// The message that a value of a shape contains, and its bytes.
fn inner<'a>(
    shape: &ValueShape,
    wire: Wire<'a>,
) -> Result<Option<(TypeId, &'a [u8])>, ProtobufError> {
    match (shape, wire) {
        (ValueShape::Object(at), Wire::Bytes(bytes)) => Ok(Some((*at, bytes))),
        (ValueShape::List(items), wire) => inner(items, wire),
        (ValueShape::Map(values), Wire::Bytes(entry))
            if matches!(**values, ValueShape::Object(_)) =>
        {
            inner(values, entry_value(entry)?.1)
        }
        _ => Ok(None),
    }
}

/// The key and the value of an entry of a map.
fn entry_value(entry: &[u8]) -> Result<(&[u8], Wire<'_>), ProtobufError> {
    let (mut key, mut value) = (&[][..], Wire::Bytes(&[]));
    let mut reader = Reader::new(entry);
    while let Some((number, wire)) = reader.next_field()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => key = bytes,
            (2, wire) => value = wire,
            _ => {}
        }
    }
    Ok((key, value))
}

fn is_canonical(message: &MessageType, bytes: &[u8], depth: u8) -> Result<bool, ProtobufError> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    let mut reader = Reader::new(bytes);
    let mut last = 0;
    while let Some((number, wire)) = reader.next_field()? {
        let Some(target) = message.field(number) else {
            continue;
        };
        if number < last || (number == last && !target.is_repeated()) {
            return Ok(false);
        }
        last = number;
        let found = match (target, wire) {
            (FieldTarget::Embedded(at), Wire::Bytes(bytes)) => Some((*at, bytes)),
            (FieldTarget::Field(field), wire) => inner(field.shape, wire)?,
            _ => None,
        };
        if let Some((at, bytes)) = found
            && !is_canonical(Types::get().at(at), bytes, depth + 1)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn rewritten(message: &MessageType, bytes: &[u8], depth: u8) -> Result<Vec<u8>, ProtobufError> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    let mut fields: BTreeMap<u32, Vec<Wire<'_>>> = BTreeMap::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next_field()? {
        fields.entry(number).or_default().push(wire);
    }
    let mut out = Writer::default();
    for (number, wires) in fields {
        let embedded;
        let (shape, is_repeated) = match message.field(number) {
            None => continue,
            Some(FieldTarget::Embedded(at)) => {
                embedded = ValueShape::Object(*at);
                (&embedded, false)
            }
            Some(target @ FieldTarget::Field(field)) => (field.shape, target.is_repeated()),
        };
        let scalar = matches!(
            shape,
            ValueShape::Bool
                | ValueShape::Int32
                | ValueShape::Int64
                | ValueShape::String
                | ValueShape::Bytes
        );
        if is_repeated || wires.len() == 1 {
            for wire in wires {
                put(&mut out, number, shape, wire, depth)?;
            }
        } else if scalar {
            let last = wires.last().copied().unwrap_or(Wire::Bytes(&[]));
            put(&mut out, number, shape, last, depth)?;
        } else {
            let mut merged = Vec::new();
            for wire in wires {
                let Wire::Bytes(bytes) = wire else {
                    return Err(ProtobufError::wire_type());
                };
                merged.extend_from_slice(bytes);
            }
            put(&mut out, number, shape, Wire::Bytes(&merged), depth)?;
        }
    }
    Ok(out.into_bytes())
}

fn put(
    out: &mut Writer,
    number: u32,
    shape: &ValueShape,
    wire: Wire<'_>,
    depth: u8,
) -> Result<(), ProtobufError> {
    match (shape, wire) {
        (ValueShape::List(items), wire) => put(out, number, items, wire, depth)?,
        (ValueShape::Object(at), Wire::Bytes(bytes)) => {
            let message = rewritten(Types::get().at(*at), bytes, depth + 1)?;
            out.bytes(number, &message);
        }
        (ValueShape::Map(values), Wire::Bytes(entry))
            if matches!(**values, ValueShape::Object(_)) =>
        {
            let (key, value) = entry_value(entry)?;
            let mut rewritten = Writer::default();
            rewritten.bytes(1, key);
            put(&mut rewritten, 2, values, value, depth)?;
            out.bytes(number, &rewritten.into_bytes());
        }
        (_, Wire::Bytes(bytes)) => out.bytes(number, bytes),
        (_, Wire::Varint(bits)) => out.varint(number, bits.cast_signed()),
        (_, Wire::Fixed64(bits)) => out.double(number, f64::from_bits(bits)),
        (_, Wire::Fixed32) => return Err(ProtobufError::wire_type()),
    }
    Ok(())
}
