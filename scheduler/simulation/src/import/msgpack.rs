//! MessagePack (<https://github.com/msgpack/msgpack/blob/master/spec.md>), limited to the types of traces: no extension
//! types.

use serde_json::{Map, Value};
use std::fmt;

/// The depth of values within values. Kubernetes objects are not as deep.
const DEPTH_MAX: usize = 96;

/// A value. Unlike in JSON, the keys of a map can be any values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Packed {
    /// Anything but lists and maps.
    Scalar(Value),
    /// A list.
    List(Vec<Packed>),
    /// A map, in its order.
    Map(Vec<(Packed, Packed)>),
}

/// A mistake at a byte of the file, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackError {
    pub(super) at: usize,
    pub(super) message: &'static str,
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.at, self.message)
    }
}

impl Packed {
    /// The entry of a map with a text as its key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(entries) = self else {
            return None;
        };
        let is_key = |(name, _): &&(Self, Self)| name.text() == Some(key);
        entries.iter().find(is_key).map(|(_, value)| value)
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar(value) => value.as_str(),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Self::Scalar(value) => value.as_i64(),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(values) => Some(values),
            _ => None,
        }
    }

    pub(super) fn entries(&self) -> Option<&[(Self, Self)]> {
        match self {
            Self::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The value as JSON. Entries of maps whose key is no text are left out.
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::List(values) => values.iter().map(Self::json).collect(),
            Self::Map(entries) => {
                let entries = entries.iter();
                let of_text = entries.filter_map(|(key, value)| Some((key.text()?, value)));
                let entries = of_text.map(|(key, value)| (key.to_owned(), value.json()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
        }
    }
}

/// Reads the one value of a file.
pub(super) fn unpack(bytes: &[u8]) -> Result<Packed, PackError> {
    let mut reader = Reader { bytes, at: 0 };
    let value = reader.value(0)?;
    if reader.at < bytes.len() {
        return Err(reader.error("the value ends here, and the file does not"));
    }
    Ok(value)
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn error(&self, message: &'static str) -> PackError {
        PackError {
            at: self.at,
            message,
        }
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], PackError> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| self.error("the file ends within a value"))?;
        self.at += count;
        Ok(taken)
    }

    /// An unsigned number of `count` bytes, the most significant first.
    fn unsigned(&mut self, count: usize) -> Result<u64, PackError> {
        let bytes = self.take(count)?;
        Ok(bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn length(&mut self, count: usize) -> Result<usize, PackError> {
        let length = self.unsigned(count)?;
        // Every element has at least a byte.
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.bytes.len() - self.at {
            return Err(self.error("the file ends within a value"));
        }
        Ok(length)
    }

    fn value(&mut self, depth: usize) -> Result<Packed, PackError> {
        if depth > DEPTH_MAX {
            return Err(self.error("values are nested too deeply"));
        }
        let scalar = |value: Value| Ok(Packed::Scalar(value));
        let tag = self.take(1)?[0];
        match tag {
            0x00..=0x7f => scalar(tag.into()),
            0xe0..=0xff => scalar(i64::from(tag.cast_signed()).into()),
            0x80..=0x8f => self.map(usize::from(tag & 0x0f), depth),
            0x90..=0x9f => self.items(usize::from(tag & 0x0f), depth),
            0xa0..=0xbf => self.text(usize::from(tag & 0x1f)),
            0xc0 => scalar(Value::Null),
            0xc2 => scalar(false.into()),
            0xc3 => scalar(true.into()),
            // Bytes, which no part of a trace needs.
            0xc4..=0xc6 => {
                let length = self.length(1 << (tag - 0xc4))?;
                self.take(length)?;
                scalar(Value::Null)
            }
            0xca => {
                let bits = u32::try_from(self.unsigned(4)?).unwrap_or_default();
                scalar(f32::from_bits(bits).into())
            }
            0xcb => {
                let bits = self.unsigned(8)?;
                scalar(f64::from_bits(bits).into())
            }
            0xcc..=0xcf => {
                let number = self.unsigned(1 << (tag - 0xcc))?;
                scalar(number.into())
            }
            0xd0..=0xd3 => {
                let count = 1 << (tag - 0xd0);
                let shift = 64 - 8 * u32::try_from(count).unwrap_or(8);
                let number = self.unsigned(count)?;
                scalar(((number << shift).cast_signed() >> shift).into())
            }
            0xd9..=0xdb => {
                let length = self.length(1 << (tag - 0xd9))?;
                self.text(length)
            }
            0xdc | 0xdd => {
                let length = self.length(2 << (tag - 0xdc))?;
                self.items(length, depth)
            }
            0xde | 0xdf => {
                let length = self.length(2 << (tag - 0xde))?;
                self.map(length, depth)
            }
            _ => {
                self.at -= 1;
                Err(self.error("no value of a trace begins with this byte"))
            }
        }
    }

    fn text(&mut self, length: usize) -> Result<Packed, PackError> {
        let bytes = self.take(length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Packed::Scalar(text.into())),
            Err(_) => Err(self.error("the text before this byte is no UTF-8")),
        }
    }

    fn items(&mut self, length: usize, depth: usize) -> Result<Packed, PackError> {
        let items = (0..length).map(|_| self.value(depth + 1));
        items.collect::<Result<_, _>>().map(Packed::List)
    }

    fn map(&mut self, length: usize, depth: usize) -> Result<Packed, PackError> {
        let entries = (0..length).map(|_| Ok((self.value(depth + 1)?, self.value(depth + 1)?)));
        entries.collect::<Result<_, _>>().map(Packed::Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_of_the_specification() {
        for (bytes, value) in [
            (&[0x07][..], json!(7)),
            (&[0xff], json!(-1)),
            (&[0xc3], json!(true)),
            (&[0xcd, 0x01, 0x00], json!(256)),
            (&[0xd0, 0x80], json!(-128)),
            (&[0xd2, 0xff, 0xff, 0xff, 0xfe], json!(-2)),
            (&[0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0], json!(1.5)),
            (&[0xd9, 0x02, b'h', b'i'], json!("hi")),
            (&[0x92, 0xa1, b'a', 0xc0], json!(["a", null])),
            (&[0xdc, 0x00, 0x01, 0x05], json!([5])),
            (&[0x82, 0xa1, b'k', 0x01, 0x05, 0x06], json!({"k": 1})),
        ] {
            let got = unpack(bytes).map(|packed| packed.json());
            assert_eq!(got, Ok(value), "{bytes:?}");
        }
    }

    #[test]
    fn mistakes_have_a_place() {
        let deep = [0x91; 200];
        for (bytes, wanted) in [
            (&[][..], "byte 0: the file ends within a value"),
            (&[0xa5, b'h'], "byte 1: the file ends within a value"),
            (
                &[0xdf, 0xff, 0xff, 0xff, 0xff],
                "byte 5: the file ends within a value",
            ),
            (
                &[0x92, 0x01, 0xc1],
                "byte 2: no value of a trace begins with this byte",
            ),
            (
                &[0x01, 0x02],
                "byte 1: the value ends here, and the file does not",
            ),
            (
                &[0xa1, 0xff],
                "byte 2: the text before this byte is no UTF-8",
            ),
            (&deep, "byte 97: values are nested too deeply"),
        ] {
            let error = unpack(bytes).map_err(|error| error.to_string());
            assert_eq!(error, Err(wanted.to_owned()));
        }
    }
}
