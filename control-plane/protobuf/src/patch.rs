//! Changes of a few fields of a message that leave the bytes of all others as they are.
//!
//! The change is given as a strategic merge patch or a JSON merge patch (RFC 7396). Fields that it does not name, and
//! fields that [`Types`] does not have, are copied byte for byte. A server that computes such a patch itself decodes
//! the whole object and encodes it again, and then compares fields such as the parameters of device drivers as bytes.

use crate::ProtobufError;
use crate::decode::{DEPTH_MAX, text, too_deep};
use crate::encode::put;
use crate::envelope::{self, Envelope};
use crate::facts::ValueShape;
use crate::types::{FieldTarget, ListMerge, MessageType, ProtobufField, Types};
use crate::wire::{Reader, Wire, Writer};
use serde_json::{Map, Value};

/// The member of an entry of a list that determines the handling of the entry.
const DIRECTIVE: &str = "$patch";
/// The prefix of a member with the values that leave a list.
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";

/// The kind of the patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 7396: lists are replaced.
    Merge,
    /// Lists are merged as their fields state it.
    Strategic,
}

impl Envelope<'_> {
    /// The object in its envelope, after a patch. If the patch has a string for a field with raw JSON (`RawExtension`),
    /// the string is the text of that JSON.
    ///
    /// # Errors
    /// When the kind has no message, when the message is malformed, and for a patch that names a field that the type
    /// does not have or uses a directive that is not supported.
    pub fn patched(&self, patch: &Value, strategy: PatchKind) -> Result<Vec<u8>, ProtobufError> {
        let Self {
            api_version, kind, ..
        } = self;
        let message = Types::get().of_kind(api_version, kind).ok_or_else(|| {
            ProtobufError::new(format_args!(
                "no kind {kind:?} is known in version {api_version:?}"
            ))
        })?;
        let mut writer = Writer::with_capacity(self.raw.len());
        let mut patching = Patching { strategy, depth: 0 };
        patching
            .message(&mut writer, message, self.raw, fields_of(patch)?)
            .map_err(|error| error.within(message.name()))?;
        Ok(envelope::seal(api_version, kind, &writer.into_bytes()))
    }
}

fn fields_of(patch: &Value) -> Result<&Map<String, Value>, ProtobufError> {
    let fields = patch.as_object();
    fields.ok_or_else(|| ProtobufError::new("the patch has no object in the place of an object"))
}

/// A field that a patch changes.
struct FieldChange<'p> {
    number: u32,
    field: &'static ProtobufField,
    value: Option<&'p Value>,
    /// The values that leave the list.
    deleted: &'p [Value],
}

struct Patching {
    strategy: PatchKind,
    depth: u8,
}

impl Patching {
    /// Writes a message after the patch.
    fn message(
        &mut self,
        writer: &mut Writer,
        message: &'static MessageType,
        bytes: &[u8],
        patch: &Map<String, Value>,
    ) -> Result<(), ProtobufError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(too_deep());
        }
        let mut changes = changes(message, patch)?;
        changes.sort_by_key(|change| change.number);
        let mut changes = changes.into_iter().peekable();
        let mut reader = Reader::new(bytes);
        loop {
            let before = reader.rest();
            let field = reader.next_field()?;
            let number = field.map_or(u32::MAX, |(number, _)| number);
            // Each change is written at the position of its field.
            while let Some(change) = changes.next_if(|change| change.number <= number) {
                self.change(writer, &change, bytes)
                    .map_err(|error| error.within(change.field.name))?;
            }
            if field.is_none() {
                break;
            }
            let is_changed = |name: &str| {
                patch.contains_key(name) || patch.contains_key(&format!("{DELETE_FROM_LIST}{name}"))
            };
            let is_written = matches!(
                message.field(number),
                Some(FieldTarget::Field(field)) if is_changed(field.name)
            );
            if !is_written {
                let length = before.len() - reader.rest().len();
                writer.raw(before.get(..length).unwrap_or_default());
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Writes the values of a field after a change.
    fn change(
        &mut self,
        writer: &mut Writer,
        change: &FieldChange<'_>,
        message: &[u8],
    ) -> Result<(), ProtobufError> {
        let FieldChange { number, field, .. } = *change;
        let known = values(message, number)?;
        match (field.shape, change.value) {
            (_, Some(Value::Null)) => Ok(()),
            (ValueShape::List(items), value) if self.strategy == PatchKind::Strategic => {
                let given = value.map_or(Ok(&[][..]), list)?;
                match field.merge {
                    ListMerge::Replace => replace(writer, number, field.shape, value),
                    ListMerge::Set => {
                        let deleted = change.deleted;
                        set(writer, number, items, &known, given, deleted)
                    }
                    ListMerge::By(key) => self.entries(writer, change, items, &known, given, key),
                }
            }
            (ValueShape::Object(at), Some(Value::Object(patch))) => {
                let bytes = known.last().copied().unwrap_or_default();
                let mut inner = Writer::with_capacity(bytes.len());
                self.message(&mut inner, Types::get().at(*at), bytes, patch)?;
                let inner = inner.into_bytes();
                // An empty patch does not create an absent field.
                if !(inner.is_empty() && known.is_empty()) {
                    writer.bytes(number, &inner);
                }
                Ok(())
            }
            (ValueShape::Map(_), Some(_)) => {
                Err(ProtobufError::new("patches of maps are not supported"))
            }
            (shape, value) => replace(writer, number, shape, value),
        }
    }

    /// Writes the objects of a list, merged by their key with the objects of the patch.
    fn entries(
        &mut self,
        writer: &mut Writer,
        change: &FieldChange<'_>,
        items: &'static ValueShape,
        known: &[&[u8]],
        given: &[Value],
        key: &str,
    ) -> Result<(), ProtobufError> {
        let ValueShape::Object(at) = items else {
            return Err(ProtobufError::new("a list with a key that has no objects"));
        };
        let item = Types::get().at(*at);
        let of = |entry: &Value| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let mut rest: Vec<(String, &Value)> = Vec::with_capacity(given.len());
        for entry in given {
            let key = of(entry).ok_or_else(|| {
                ProtobufError::new(format_args!("an entry of the patch has no text in {key:?}"))
            })?;
            rest.push((key, entry));
        }
        for bytes in known {
            let name = key_of(item, bytes, key)?;
            let at = rest.iter().position(|(given, _)| given == name);
            match at.map(|at| rest.remove(at).1) {
                None => writer.bytes(change.number, bytes),
                Some(entry) if is_deletion(entry)? => {}
                Some(entry) => {
                    let mut inner = Writer::with_capacity(bytes.len());
                    self.message(&mut inner, item, bytes, fields_of(entry)?)?;
                    writer.bytes(change.number, &inner.into_bytes());
                }
            }
        }
        for (_, entry) in rest {
            if !is_deletion(entry)? {
                put(writer, change.number, items, entry);
            }
        }
        Ok(())
    }
}

/// The changes in a patch of a message. Embedded messages have no changes.
fn changes<'p>(
    message: &'static MessageType,
    patch: &'p Map<String, Value>,
) -> Result<Vec<FieldChange<'p>>, ProtobufError> {
    let mut changes: Vec<FieldChange<'p>> = Vec::with_capacity(patch.len());
    for (name, value) in patch {
        let deleted = name.strip_prefix(DELETE_FROM_LIST);
        let known = message.fields().find_map(|(number, target)| match target {
            FieldTarget::Field(field) if field.name == deleted.unwrap_or(name) => {
                Some((number, field))
            }
            _ => None,
        });
        let (number, field) = match known {
            Some(known) => known,
            // They are not part of messages.
            None if matches!(&**name, "apiVersion" | "kind") => continue,
            None => {
                return Err(ProtobufError::new(format_args!(
                    "a patch of the unknown field {name:?}"
                )));
            }
        };
        let at = changes.iter().position(|change| change.number == number);
        let at = at.unwrap_or_else(|| {
            changes.push(FieldChange {
                number,
                field,
                value: None,
                deleted: &[],
            });
            changes.len() - 1
        });
        match deleted {
            Some(_) => changes[at].deleted = list(value)?,
            None => changes[at].value = Some(value),
        }
    }
    Ok(changes)
}

fn list(value: &Value) -> Result<&[Value], ProtobufError> {
    let list = value.as_array().map(Vec::as_slice);
    list.ok_or_else(|| ProtobufError::new("the patch has no list in the place of a list"))
}

/// The values of a field that are bytes.
fn values(message: &[u8], number: u32) -> Result<Vec<&[u8]>, ProtobufError> {
    let mut values = Vec::new();
    let mut reader = Reader::new(message);
    while let Some((found, wire)) = reader.next_field()? {
        if let (true, Wire::Bytes(bytes)) = (found == number, wire) {
            values.push(bytes);
        }
    }
    Ok(values)
}

/// Replaces a field.
fn replace(
    writer: &mut Writer,
    number: u32,
    shape: &ValueShape,
    value: Option<&Value>,
) -> Result<(), ProtobufError> {
    if let Some(value) = value {
        put(writer, number, shape, value);
    }
    Ok(())
}

/// Writes a list of texts that is a set.
fn set(
    writer: &mut Writer,
    number: u32,
    items: &ValueShape,
    known: &[&[u8]],
    given: &[Value],
    deleted: &[Value],
) -> Result<(), ProtobufError> {
    if !matches!(items, ValueShape::String) {
        return Err(ProtobufError::new("only sets of texts can be patched"));
    }
    let is_in = |values: &[Value], text: &[u8]| {
        let mut texts = values.iter().filter_map(Value::as_str);
        texts.any(|known| known.as_bytes() == text)
    };
    for bytes in known.iter().filter(|bytes| !is_in(deleted, bytes)) {
        writer.bytes(number, bytes);
    }
    for text in given.iter().filter_map(Value::as_str) {
        if !known.contains(&text.as_bytes()) {
            writer.bytes(number, text.as_bytes());
        }
    }
    Ok(())
}

/// The key of an object in a list.
fn key_of<'a>(item: &MessageType, bytes: &'a [u8], key: &str) -> Result<&'a str, ProtobufError> {
    let number = item.fields().find_map(|(number, target)| match target {
        FieldTarget::Field(field) if field.name == key => Some(number),
        _ => None,
    });
    let number = number.ok_or_else(|| ProtobufError::new(format_args!("no field {key:?}")))?;
    text(values(bytes, number)?.last().copied().unwrap_or_default())
}

fn is_deletion(entry: &Value) -> Result<bool, ProtobufError> {
    match entry.get(DIRECTIVE).map(Value::as_str) {
        None => Ok(false),
        Some(Some("delete")) => Ok(true),
        Some(_) => Err(ProtobufError::new(
            "the only directive of patches is \"delete\"",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode_body;
    use serde_json::json;

    const RAW: &str = r#"{"kind": "X", "apiVersion":"example.com/v1", "a":1.0, "b":"x<y&z"}"#;

    fn claim() -> Value {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "c", "namespace": "ns", "uid": "u", "finalizers": ["example.com/mine"]},
            "spec": {"devices": {
                "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}],
                "config": [{"opaque": {"driver": "d", "parameters": RAW}}],
            }},
            "status": {"reservedFor": [{"resource": "pods", "name": "a", "uid": "1"}]},
        })
    }

    fn claim_spec(bytes: &[u8]) -> Vec<u8> {
        let raw = Envelope::open(bytes).expect("an envelope").raw;
        values(raw, 2).expect("a message").concat()
    }

    /// A field that no type has, as of a newer Kubernetes.
    fn with_unknown_field(bytes: &[u8]) -> Vec<u8> {
        let envelope = Envelope::open(bytes).expect("an envelope");
        let mut writer = Writer::default();
        writer.raw(envelope.raw);
        writer.bytes(99, b"of a later version");
        envelope::seal(envelope.api_version, envelope.kind, &writer.into_bytes())
    }

    #[test]
    fn a_patch_changes_what_it_names() {
        let finalizer = "resource.kubernetes.io/delete-protection";
        let pods = |uids: &[&str]| -> Value {
            let pods = uids.iter();
            pods.map(|uid| json!({"resource": "pods", "name": if *uid == "1" { "a" } else { "b" }, "uid": uid}))
                .collect()
        };
        let allocation = json!({"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}],
            "config": [{"source": "FromClass", "opaque": {"driver": "d", "parameters": RAW}}]}});
        for (situation, strategy, patch, pointer, expected) in [
            (
                "a finalizer is added",
                PatchKind::Strategic,
                json!({"metadata": {"finalizers": [finalizer]}}),
                "/metadata/finalizers",
                json!(["example.com/mine", finalizer]),
            ),
            (
                "one that is there stays",
                PatchKind::Strategic,
                json!({"metadata": {"finalizers": ["example.com/mine"]}}),
                "/metadata/finalizers",
                json!(["example.com/mine"]),
            ),
            (
                "a finalizer is removed",
                PatchKind::Strategic,
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/mine"]}}),
                "/metadata/finalizers",
                Value::Null,
            ),
            (
                "a reservation is added",
                PatchKind::Strategic,
                json!({"status": {"reservedFor": pods(&["2"])}}),
                "/status/reservedFor",
                pods(&["1", "2"]),
            ),
            (
                "a reservation is removed",
                PatchKind::Strategic,
                json!({"status": {"reservedFor": [{"$patch": "delete", "uid": "1"}]}}),
                "/status",
                json!({}),
            ),
            (
                "an allocation with its parameters",
                PatchKind::Merge,
                json!({"status": {"allocation": allocation, "reservedFor": pods(&["2"])}}),
                "/status/reservedFor",
                pods(&["2"]),
            ),
            (
                "what is absent stays absent",
                PatchKind::Strategic,
                json!({"status": {"allocation": {"devices": {"results": null}}}}),
                "/status",
                json!({"reservedFor": pods(&["1"])}),
            ),
            (
                "a status is emptied",
                PatchKind::Merge,
                json!({"status": {"allocation": null, "reservedFor": null, "devices": null}}),
                "/status",
                json!({}),
            ),
        ] {
            let before = with_unknown_field(&encode_body(&claim()).expect("a claim"));
            let envelope = Envelope::open(&before).expect("an envelope");
            let after = envelope.patched(&patch, strategy).expect(situation);
            let opened = Envelope::open(&after).expect("an envelope");
            let object: Value = opened.decode().expect("a claim");
            let changed = object.pointer(pointer).cloned().unwrap_or_default();
            assert_eq!(changed, expected, "{situation}");
            assert_eq!(claim_spec(&after), claim_spec(&before), "{situation}");
            let unknown = values(opened.raw, 99).expect("a message");
            assert_eq!(unknown, [b"of a later version"], "{situation}");
            let mut rest = object;
            for field in ["metadata", "status"] {
                rest[field] = claim()[field].clone();
            }
            let mut expected = claim();
            expected["spec"]["devices"]["config"][0]["opaque"]["parameters"] =
                serde_json::from_str(RAW).expect("JSON");
            assert_eq!(rest, expected, "{situation}");
        }
    }

    /// The parameters of an allocation that is new are the bytes of the class.
    #[test]
    fn a_text_is_written_as_the_bytes_of_raw_json() {
        let before = encode_body(&claim()).expect("a claim");
        let opaque = json!({"driver": "d", "parameters": RAW});
        let config = json!([{"source": "FromClass", "opaque": opaque}]);
        let patch = json!({"status": {"allocation": {"devices": {"config": config}}}});
        let envelope = Envelope::open(&before).expect("an envelope");
        for strategy in [PatchKind::Merge, PatchKind::Strategic] {
            let after = envelope.patched(&patch, strategy).expect("a patch");
            let found = |bytes: &[u8]| {
                let windows = bytes.windows(RAW.len());
                windows.filter(|w| *w == RAW.as_bytes()).count()
            };
            assert_eq!((found(&before), found(&after)), (1, 2));
        }
    }

    #[test]
    fn what_is_not_supported_is_an_error() {
        let body = encode_body(&claim()).expect("a claim");
        let envelope = Envelope::open(&body).expect("an envelope");
        for (patch, error) in [
            (
                json!({"metadata": {"nmae": "x"}}),
                "ResourceClaim.metadata: a patch of the unknown field \"nmae\"",
            ),
            (
                json!({"metadata": {"labels": {"a": "b"}}}),
                "ResourceClaim.metadata.labels: patches of maps are not supported",
            ),
            (
                json!({"status": {"reservedFor": [{"$patch": "replace", "uid": "1"}]}}),
                "ResourceClaim.status.reservedFor: the only directive of patches is \"delete\"",
            ),
            (
                json!({"status": {"reservedFor": [{"name": "a"}]}}),
                "ResourceClaim.status.reservedFor: an entry of the patch has no text in \"uid\"",
            ),
        ] {
            let result = envelope.patched(&patch, PatchKind::Strategic);
            assert_eq!(result.unwrap_err().to_string(), error);
        }
    }
}
