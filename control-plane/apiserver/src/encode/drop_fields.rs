//! Answers without `metadata.managedFields` (KEP-5958).
//!
//! A client requests this with the parameter `drop` of a media type in `Accept`. The fields are often more than half of
//! an object, and most clients do not read them. They are removed from the encoded object; no further copy is kept.

use crate::storage::ObjectVersion;
use berth_protobuf::wire;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The known target of `drop`. Others are ignored, so that clients may name targets of later servers.
const MANAGED_FIELDS: &str = "metadata.managedFields";
/// The place where the fields are in every message of an object: `metadata` is field 1 of all kinds, `managedFields` is
/// field 17 of `ObjectMeta`.
const MESSAGE_PATH: [u32; 2] = [1, 17];

/// Returns whether a value of the parameter `drop` names the fields. Several targets are separated by `+`.
pub(crate) fn drops_managed_fields(parameter: &str) -> bool {
    parameter.split('+').any(|target| target == MANAGED_FIELDS)
}

/// A message of protobuf without the fields.
pub(super) fn from_message(message: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match wire::without_field(&message, &MESSAGE_PATH) {
        Ok(rest) => rest.into(),
        // It was encoded from an object and is well-formed.
        Err(_) => message,
    }
}

/// The JSON of an object without the fields.
pub(super) fn from_json(json: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match rest_of_json(&json) {
        Some(rest) => rest.into(),
        None => json,
    }
}

/// The object without the fields, for views of the parsed object.
pub(super) fn from_version(version: &Arc<ObjectVersion>) -> Arc<ObjectVersion> {
    let mut object = Value::clone(&version.object());
    if remove(&mut object) {
        ObjectVersion::unstored(object)
    } else {
        Arc::clone(version)
    }
}

fn remove(object: &mut Value) -> bool {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    metadata.is_some_and(|metadata| metadata.remove("managedFields").is_some())
}

/// The JSON without the fields; `None` when it has none.
fn rest_of_json(json: &[u8]) -> Option<Vec<u8>> {
    let fields = entries(json)?;
    let (_, metadata) = fields.iter().find(|(name, _)| name == "metadata")?;
    let kept = entries(metadata.get().as_bytes())?;
    kept.iter().find(|(name, _)| name == "managedFields")?;
    let mut out = Vec::with_capacity(json.len());
    write(&mut out, &fields, |out, name, value| {
        if name != "metadata" {
            out.extend_from_slice(value.get().as_bytes());
            return;
        }
        let kept: Vec<_> = kept.iter().filter(|(n, _)| n != "managedFields").collect();
        write(out, kept, |out, _, value| {
            out.extend_from_slice(value.get().as_bytes());
        });
    });
    Some(out)
}

fn write<'e, 'j: 'e>(
    out: &mut Vec<u8>,
    entries: impl IntoIterator<Item = &'e FieldEntry<'j>>,
    mut value_of: impl FnMut(&mut Vec<u8>, &str, &RawValue),
) {
    out.push(b'{');
    for (at, (name, value)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        // A string always serialises, and the buffer grows.
        let _ = serde_json::to_writer(&mut *out, &**name);
        out.push(b':');
        value_of(out, name, value);
    }
    out.push(b'}');
}

/// A field of an object and its text.
type FieldEntry<'j> = (Cow<'j, str>, &'j RawValue);

/// The fields of a JSON object, in their order.
fn entries(json: &[u8]) -> Option<Vec<FieldEntry<'_>>> {
    struct Entries;

    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<FieldEntry<'de>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = map.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    serde_json::Deserializer::from_slice(json)
        .deserialize_map(Entries)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_fields_are_one_target_of_several() {
        for (parameter, expected) in [
            ("metadata.managedFields", true),
            ("spec.unknown+metadata.managedFields", true),
            ("metadata.annotations", false),
            ("", false),
        ] {
            assert_eq!(drops_managed_fields(parameter), expected, "{parameter}");
        }
    }

    #[test]
    fn only_the_managed_fields_of_the_metadata_are_removed() {
        for (situation, json, expected) in [
            (
                "between others",
                r#"{"metadata":{"name":"a","managedFields":[{"manager":"m"}],"uid":"u"},"spec":{"managedFields":1}}"#,
                r#"{"metadata":{"name":"a","uid":"u"},"spec":{"managedFields":1}}"#,
            ),
            (
                "alone",
                r#"{"spec":{},"metadata":{"managedFields":[]}}"#,
                r#"{"spec":{},"metadata":{}}"#,
            ),
            (
                "none",
                r#"{"metadata":{"name":"a"}}"#,
                r#"{"metadata":{"name":"a"}}"#,
            ),
            (
                "no metadata",
                r#"{"spec":{"a":"\n"}}"#,
                r#"{"spec":{"a":"\n"}}"#,
            ),
            (
                "a key with an escape",
                r#"{"metadata":{"labels":{"a\"b":"c"},"a\"b":1,"managedFields":[]}}"#,
                r#"{"metadata":{"labels":{"a\"b":"c"},"a\"b":1}}"#,
            ),
        ] {
            let rest = from_json(Cow::Borrowed(json.as_bytes()));
            assert_eq!(std::str::from_utf8(&rest), Ok(expected), "{situation}");
        }
    }
}
