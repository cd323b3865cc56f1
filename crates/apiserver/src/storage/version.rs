//! One version of an object: the parsed object, and its encodings, each made on first use and then shared.

use crate::access::Object;
use crate::apply::fields_to_text;
use bytes::Bytes;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// One version of an object.
#[derive(Debug)]
pub struct Version {
    object: Object,
    revision: u64,
    written: Instant,
    /// `{"metadata":…}`: the object without `apiVersion` and `kind`, which a list leaves out.
    body: OnceLock<Bytes>,
    /// The same for the other group-version that serves the object, where there is one.
    other_body: OnceLock<Bytes>,
    /// The object as a message of protobuf.
    message: OnceLock<Bytes>,
}

// === impl Version ===

impl Version {
    pub(super) fn new(mut object: Value, revision: u64, written: Instant) -> Self {
        fields_to_text(&mut object);
        Self {
            object: Arc::new(object),
            revision,
            written,
            body: OnceLock::new(),
            other_body: OnceLock::new(),
            message: OnceLock::new(),
        }
    }

    /// An object that is shown but not stored, such as the answer to a dry run.
    pub fn unstored(object: Value) -> Arc<Self> {
        Arc::new(Self::new(object, 0, Instant::now()))
    }

    /// The object, with its `resourceVersion`.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The revision of the write that made this version.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// When it was written.
    pub fn written(&self) -> Instant {
        self.written
    }

    /// The JSON of the object without `apiVersion` and `kind`, serialised on first use.
    pub fn body(&self) -> &Bytes {
        self.body.get_or_init(|| encode_body(&self.object))
    }

    /// The object as a message of protobuf, encoded on first use.
    pub fn message(&self, encode: impl FnOnce(&Value) -> Vec<u8>) -> &Bytes {
        self.message
            .get_or_init(|| Bytes::from(encode(&self.object)))
    }

    /// As [`Version::body`], for the object as another group-version shows it.
    pub fn other_body(&self, convert: impl FnOnce(&Value) -> Value) -> &Bytes {
        self.other_body
            .get_or_init(|| encode_body(&convert(&self.object)))
    }
}

/// The JSON of an object without `apiVersion` and `kind`.
fn encode_body(object: &Value) -> Bytes {
    struct Body<'a>(&'a Value);
    impl Serialize for Body<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let Some(map) = self.0.as_object() else {
                return self.0.serialize(serializer);
            };
            let mut out = serializer.serialize_map(None)?;
            if let Some(metadata) = map.get("metadata") {
                out.serialize_entry("metadata", &Part(metadata, "managedFields"))?;
            }
            for (key, value) in map {
                if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                    out.serialize_entry(key, value)?;
                }
            }
            out.end()
        }
    }
    // A JSON value always serialises: its keys are strings and it is not a reader that could fail.
    Bytes::from(serde_json::to_vec(&Body(object)).unwrap_or_else(|_| b"{}".to_vec()))
}

/// A part of an object on the way to `metadata.managedFields[*].fieldsV1`, which is stored as the text of its JSON, and
/// the field that leads there.
struct Part<'a>(&'a Value, &'static str);

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.0, self.1) {
            (Value::Object(map), on) => {
                let mut out = serializer.serialize_map(Some(map.len()))?;
                for (key, value) in map {
                    match (value, on) {
                        (Value::String(text), "fieldsV1") if key == on => {
                            let json: Option<&RawValue> = serde_json::from_str(text).ok();
                            out.serialize_entry(key, &json)?;
                        }
                        _ if key == on => out.serialize_entry(key, &Part(value, "fieldsV1"))?,
                        _ => out.serialize_entry(key, value)?,
                    }
                }
                out.end()
            }
            (Value::Array(list), on) => serializer.collect_seq(list.iter().map(|v| Part(v, on))),
            (value, _) => value.serialize(serializer),
        }
    }
}

/// Writes the revision into the object's metadata.
pub(super) fn stamp(mut object: Value, revision: u64) -> Arc<Version> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    }
    Arc::new(Version::new(object, revision, Instant::now()))
}
