//! The surroundings of messages: the envelope of an object (`runtime.Unknown`), lists, and the events of watches.

use crate::decode::{Object, text};
use crate::error::ProtobufError;
use crate::order::canonical;
use crate::types::{MessageType, Types};
use crate::wire::{Reader, Wire, Writer, field_bytes};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The content type.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The first bytes of every envelope.
pub const MAGIC: &[u8] = b"k8s\0";
/// The bytes that an envelope adds to a message, or an event to an envelope, are rarely more.
const AROUND_BYTES: usize = 96;
/// The field of an envelope with the message.
pub(crate) const RAW: u32 = 2;

/// An object in its envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Group and version.
    pub api_version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The message.
    pub raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Opens an envelope.
    ///
    /// # Errors
    /// The bytes are not an envelope, or are truncated.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        let rest = bytes
            .strip_prefix(MAGIC)
            .ok_or_else(|| ProtobufError::new("the body does not begin with k8s\\0"))?;
        let mut envelope = Self {
            api_version: "",
            kind: "",
            raw: &[],
        };
        let mut has_raw = false;
        let mut reader = Reader::new(rest);
        while let Some((number, wire)) = reader.next_field()? {
            match (number, wire) {
                (1, Wire::Bytes(meta)) => {
                    let mut meta = Reader::new(meta);
                    while let Some((number, wire)) = meta.next_field()? {
                        match (number, wire) {
                            (1, Wire::Bytes(bytes)) => envelope.api_version = text(bytes)?,
                            (2, Wire::Bytes(bytes)) => envelope.kind = text(bytes)?,
                            _ => {}
                        }
                    }
                }
                (RAW, Wire::Bytes(bytes)) => {
                    envelope.raw = bytes;
                    has_raw = true;
                }
                _ => {}
            }
        }
        if has_raw {
            Ok(envelope)
        } else {
            Err(ProtobufError::new("the envelope has no message"))
        }
    }

    /// The message as a deserializer.
    ///
    /// # Errors
    /// When the kind has no message.
    pub fn object(&self) -> Result<Object<'a>, ProtobufError> {
        let Self {
            api_version, kind, ..
        } = self;
        match Types::get().of_kind(api_version, kind) {
            Some(message) => Ok(Object::new(message, self.raw)),
            None => Err(unknown(api_version, kind)),
        }
    }

    /// The list in the envelope.
    ///
    /// # Errors
    /// It is not a list of a kind with a message, or it is truncated.
    pub fn list(&self) -> Result<List<'a>, ProtobufError> {
        let item = self.kind.strip_suffix("List");
        let item = item.and_then(|kind| Types::get().of_kind(self.api_version, kind));
        let mut list = List {
            metadata: &[],
            item: item.ok_or_else(|| unknown(self.api_version, self.kind))?,
            items: Reader::new(self.raw),
        };
        let mut reader = list.items.clone();
        while let Some((number, wire)) = reader.next_field()? {
            if let (1, Wire::Bytes(bytes)) = (number, wire) {
                list.metadata = bytes;
            }
        }
        Ok(list)
    }

    /// Decodes the object, with its fields `apiVersion` and `kind`.
    ///
    /// # Errors
    /// The kind has no message, the message is truncated or malformed, or a value does not have the type that `T`
    /// expects.
    pub fn decode<T: Deserialize<'a>>(&self) -> Result<T, ProtobufError> {
        T::deserialize(self.object()?.with_type_meta(self.api_version, self.kind))
    }

    /// As [`Envelope::decode`], with the fields of messages in any order. Clients may write them so.
    ///
    /// # Errors
    /// As [`Envelope::decode`].
    pub fn decode_any_order<T: DeserializeOwned>(&self) -> Result<T, ProtobufError> {
        let Self {
            api_version, kind, ..
        } = self;
        let message = Types::get().of_kind(api_version, kind);
        let message = message.ok_or_else(|| unknown(api_version, kind))?;
        let ordered = canonical(message, self.raw).map_err(|e| e.within(message.name()))?;
        T::deserialize(Object::new(message, &ordered).with_type_meta(api_version, kind))
    }
}

/// Puts a message into an envelope.
pub fn seal(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut writer = Writer::with_capacity(AROUND_BYTES + message.len());
    write_begin(&mut writer, api_version, kind);
    writer.bytes(RAW, message);
    end(writer)
}

/// The bytes before and behind a message of a given size in its envelope.
pub fn around(api_version: &str, kind: &str, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let mut head = begin(api_version, kind);
    head.head(RAW, bytes);
    (head.into_bytes(), end(Writer::default()))
}

pub(crate) fn begin(api_version: &str, kind: &str) -> Writer {
    let mut writer = Writer::default();
    write_begin(&mut writer, api_version, kind);
    writer
}

fn write_begin(writer: &mut Writer, api_version: &str, kind: &str) {
    writer.raw(MAGIC);
    writer.message(1, |meta| {
        meta.bytes(1, api_version.as_bytes());
        meta.bytes(2, kind.as_bytes());
    });
}

pub(crate) fn end(mut writer: Writer) -> Vec<u8> {
    writer.bytes(3, b"");
    writer.bytes(4, b"");
    writer.into_bytes()
}

/// A list.
#[derive(Debug, Clone)]
pub struct List<'a> {
    metadata: &'a [u8],
    item: &'static MessageType,
    items: Reader<'a>,
}

impl<'a> List<'a> {
    /// Decodes the metadata of the list.
    ///
    /// # Errors
    /// When the metadata are malformed.
    pub fn metadata<T: Deserialize<'a>>(&self) -> Result<T, ProtobufError> {
        let message = Types::get().of_kind("v1", "ListMeta");
        let message = message.ok_or_else(|| unknown("v1", "ListMeta"))?;
        T::deserialize(Object::new(message, self.metadata))
    }
}

/// The items.
impl<'a> Iterator for List<'a> {
    type Item = Object<'a>;

    fn next(&mut self) -> Option<Object<'a>> {
        // The whole list was read once without an error.
        while let Ok(Some((number, wire))) = self.items.next_field() {
            if let (2, Wire::Bytes(item)) = (number, wire) {
                return Some(Object::new(self.item, item));
            }
        }
        None
    }
}

fn unknown(api_version: &str, kind: &str) -> ProtobufError {
    ProtobufError::new(format_args!(
        "no kind {kind:?} is known in version {api_version:?}"
    ))
}

/// An event of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchEvent<'a> {
    /// The type, such as `ADDED`.
    pub kind: &'a str,
    /// The object in its envelope.
    pub object: &'a [u8],
}

impl<'a> WatchEvent<'a> {
    /// Reads an event without the length before it.
    ///
    /// # Errors
    /// When the event is truncated.
    pub fn read(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        let mut event = Self {
            kind: "",
            object: &[],
        };
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next_field()? {
            match (number, wire) {
                (1, Wire::Bytes(bytes)) => event.kind = text(bytes)?,
                (2, Wire::Bytes(raw)) => {
                    let mut raw = Reader::new(raw);
                    while let Some((number, wire)) = raw.next_field()? {
                        if let (1, Wire::Bytes(bytes)) = (number, wire) {
                            event.object = bytes;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(event)
    }

    /// The event without the length before it.
    pub fn write(&self) -> Vec<u8> {
        let Self { kind, object } = self;
        let mut writer = Writer::with_capacity(AROUND_BYTES + kind.len() + object.len());
        writer.bytes(1, kind.as_bytes());
        // The object is long, so it is not moved to make room for its length.
        writer.head(2, field_bytes(object.len()));
        writer.bytes(1, object);
        writer.into_bytes()
    }
}
