//! The formats of bodies: JSON and Kubernetes' protobuf.

use berth_api::{Kind, Object, PartialObject};
pub use berth_protobuf::PatchKind;
use berth_protobuf::envelope::{Envelope, MEDIA_TYPE, WatchEvent};
use bytes::Bytes;
use http::HeaderValue;
use http::header::{CONTENT_TYPE, HeaderMap};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

/// The content type of JSON.
pub const JSON: &str = "application/json";
/// `Accept` for JSON, without `metadata.managedFields` where the server offers that; see [`trimmed`].
pub(crate) const JSON_TRIMMED: &str =
    "application/json;drop=metadata.managedFields, application/json";

/// A format of bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// JSON.
    #[default]
    Json,
    /// Kubernetes' protobuf.
    Protobuf,
}

impl Format {
    /// The format of a body with these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let value = headers.get(CONTENT_TYPE);
        let is_protobuf =
            value.is_some_and(|value| value.as_bytes().starts_with(MEDIA_TYPE.as_bytes()));
        if is_protobuf {
            Self::Protobuf
        } else {
            Self::Json
        }
    }
}

/// The content types that a client uses, as `clientConnection` names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentTypes {
    /// The format of bodies of requests, where the kind has it.
    pub(crate) body: Format,
    /// The header `Accept`.
    pub(crate) accept: HeaderValue,
    /// The same for objects without `metadata.managedFields`.
    pub(crate) accept_trimmed: HeaderValue,
}

/// The parameter of a media type that asks for objects without `metadata.managedFields` (KEP-5958).
const DROP_MANAGED_FIELDS: &str = ";drop=metadata.managedFields";

/// `Accept` for objects without `metadata.managedFields`. Servers that do not know the parameter ignore it; for one
/// that refuses it, the media types follow without it.
pub(crate) fn trimmed(accept: &str) -> Result<HeaderValue, http::Error> {
    let clauses = accept.split(',').map(str::trim).filter(|c| !c.is_empty());
    let mut all: Vec<String> = clauses
        .map(|clause| format!("{clause}{DROP_MANAGED_FIELDS}"))
        .collect();
    all.push(accept.to_owned());
    Ok(HeaderValue::try_from(all.join(", "))?)
}

impl Default for ContentTypes {
    fn default() -> Self {
        Self {
            body: Format::Json,
            accept: HeaderValue::from_static(JSON),
            accept_trimmed: HeaderValue::from_static(JSON_TRIMMED),
        }
    }
}

impl ContentTypes {
    /// Bodies of requests have the type `content_type` if the kind has that form, and JSON otherwise. The accepted
    /// answers are `accept` or, if that is empty, preferably `content_type` and otherwise any type of the server.
    ///
    /// # Errors
    /// `accept` is not a valid header value.
    pub fn new(content_type: &str, accept: &str) -> Result<Self, http::Error> {
        let accept = match accept {
            "" => format!("{content_type}, */*"),
            accept => accept.to_owned(),
        };
        Ok(Self {
            body: match content_type {
                MEDIA_TYPE => Format::Protobuf,
                _ => Format::Json,
            },
            accept_trimmed: trimmed(&accept)?,
            accept: HeaderValue::try_from(accept)?,
        })
    }
}

/// Malformed bytes.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Of JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Of protobuf.
    #[error(transparent)]
    Protobuf(#[from] berth_protobuf::ProtobufError),
    /// The object cannot be identified: the unreadable fields, and the reasons.
    #[error("the identity of the object cannot be read: {0}")]
    Unidentified(String),
}

/// An object as the server encoded it.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// JSON.
    Json(&'a [u8]),
    /// The message of its kind.
    Protobuf(berth_protobuf::Object<'a>),
}

impl<'a> Payload<'a> {
    /// Decodes the object.
    ///
    /// # Errors
    /// It is malformed, or a field does not have the type that `T` expects.
    pub fn decode<T: Deserialize<'a>>(self) -> Result<T, DecodeError> {
        Ok(match self {
            Self::Json(json) => serde_json::from_slice(json)?,
            Self::Protobuf(object) => T::deserialize(object)?,
        })
    }

    /// Decodes an object of this kind.
    ///
    /// # Errors
    /// When it is malformed, or a field has a wrong type.
    pub fn of_kind(self, kind: Kind) -> Result<Object, DecodeError> {
        Ok(match self {
            Self::Json(json) => kind.decode(json)?,
            Self::Protobuf(object) => kind.decode_from(object)?,
        })
    }

    /// Decodes an object of this kind without the fields that cannot be read.
    ///
    /// # Errors
    /// No part of it can be read.
    pub fn partly_of_kind(self, kind: Kind) -> Result<PartialObject, DecodeError> {
        let error = match self.of_kind(kind) {
            Ok(object) => {
                let unread = Vec::new();
                return Ok(PartialObject { object, unread });
            }
            Err(error) => error,
        };
        let (json, unread) = match self {
            Self::Json(json) => (String::from_utf8_lossy(json), Vec::new()),
            Self::Protobuf(object) => {
                let (object, unread) = object.readable();
                (object.to_string().into(), unread)
            }
        };
        kind.decode_partly(&json, unread).ok_or(error)
    }

    /// The bytes, in the format of the server.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Json(json) => json,
            Self::Protobuf(object) => object.bytes(),
        }
    }

    /// The JSON; `None` when the object is encoded otherwise.
    pub fn json(self) -> Option<&'a [u8]> {
        match self {
            Self::Json(json) => Some(json),
            Self::Protobuf(_) => None,
        }
    }
}

/// JSON with U+FFFD for invalid UTF-8. Servers return the text of opaque parameters as clients sent it, and one such
/// object must not hide the others of a list.
pub(crate) fn utf_8(json: Bytes) -> Bytes {
    match std::str::from_utf8(&json) {
        Ok(_) => json,
        Err(_) => String::from_utf8_lossy(&json).into_owned().into(),
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct ApiAnswer {
    /// The format of the body.
    pub format: Format,
    /// The body.
    pub bytes: Bytes,
}

impl ApiAnswer {
    pub(crate) fn new(format: Format, bytes: Bytes) -> Self {
        let bytes = match format {
            Format::Json => utf_8(bytes),
            Format::Protobuf => bytes,
        };
        Self { format, bytes }
    }

    /// Decodes the object in the answer. Protobuf is made JSON first, so that types need no second decoder: answers to
    /// single requests are few.
    ///
    /// # Errors
    /// It is malformed, or a field does not have the type that `T` expects.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        if self.format == Format::Json {
            return Ok(serde_json::from_slice(&self.bytes)?);
        }
        let value: Value = Envelope::open(&self.bytes)?.decode()?;
        Ok(serde_json::from_slice(&serde_json::to_vec(&value)?)?)
    }
}

impl ApiAnswer {
    /// The object in the answer, in its envelope, after a patch: every byte that the patch does not change is as the
    /// server sent it. `None` when the answer is not protobuf.
    ///
    /// # Errors
    /// When the object is malformed, and for a patch that the format does not support.
    pub fn patched(
        &self,
        patch: &Value,
        strategy: PatchKind,
    ) -> Option<Result<Bytes, berth_protobuf::ProtobufError>> {
        let patched = || {
            Ok(Envelope::open(&self.bytes)?
                .patched(patch, strategy)?
                .into())
        };
        (self.format == Format::Protobuf).then(patched)
    }
}

/// An event of a watch.
pub struct Event<'a> {
    /// The type, such as `ADDED`.
    pub kind: &'a str,
    /// The object.
    pub object: Payload<'a>,
}

impl<'a> Event<'a> {
    /// Reads an event: a line of JSON, or the message of a frame.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn read(format: Format, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        struct Line<'a> {
            #[serde(rename = "type")]
            kind: &'a str,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        Ok(match format {
            Format::Json => {
                let Line { kind, object } = serde_json::from_slice(bytes)?;
                let object = Payload::Json(object.get().as_bytes());
                Self { kind, object }
            }
            Format::Protobuf => {
                let WatchEvent { kind, object } = WatchEvent::read(bytes)?;
                let object = Payload::Protobuf(Envelope::open(object)?.object()?);
                Self { kind, object }
            }
        })
    }
}

/// The metadata of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListMeta {
    pub(crate) resource_version: String,
    #[serde(rename = "continue")]
    pub(crate) continue_token: Option<String>,
}

impl ApiAnswer {
    /// Reads a list, and passes each item to `each`.
    pub(crate) fn list(&self, mut each: impl FnMut(Payload<'_>)) -> Result<ListMeta, DecodeError> {
        #[derive(Deserialize)]
        struct Page<'a> {
            #[serde(default)]
            metadata: ListMeta,
            #[serde(borrow, default)]
            items: Option<Vec<&'a RawValue>>,
        }
        match self.format {
            Format::Json => {
                let page: Page<'_> = serde_json::from_slice(&self.bytes)?;
                for item in page.items.into_iter().flatten() {
                    each(Payload::Json(item.get().as_bytes()));
                }
                Ok(page.metadata)
            }
            Format::Protobuf => {
                let list = Envelope::open(&self.bytes)?.list()?;
                let metadata = list.metadata()?;
                for item in list {
                    each(Payload::Protobuf(item));
                }
                Ok(metadata)
            }
        }
    }
}

#[cfg(test)]
mod tests;
