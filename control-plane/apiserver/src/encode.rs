//! Answers as bytes: objects, lists, tables, reduced metadata, in the view and format that the client asked for.

mod drop_fields;

pub(crate) use drop_fields::drops_managed_fields;

use crate::registry::ListPage;
use crate::storage::ObjectVersion;
use berth_objects::catalog::{Conversion, ServedResource};
use berth_objects::table::{self, Include};
use berth_objects::view::{meta, meta_mut};
use berth_protobuf::Types;
use berth_protobuf::envelope::{self, WatchEvent};
use berth_protobuf::wire::Writer;
use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::num::NonZero;
use std::sync::Arc;
use std::{mem, thread, vec};

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum MediaFormat {
    #[default]
    Json,
    Protobuf,
    Yaml,
}

/// The part of an object that the client wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ObjectView {
    /// The object as it is.
    #[default]
    Object,
    /// A row.
    Table(Include),
    /// Only its metadata.
    Metadata,
}

/// The encoding of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AnswerShape {
    /// The format.
    pub(crate) format: MediaFormat,
    /// The part of an object that is shown.
    pub(crate) view: ObjectView,
    /// Whether `metadata.managedFields` is omitted.
    pub(crate) drops_managed_fields: bool,
}

impl AnswerShape {
    /// The object without `apiVersion` and `kind`.
    fn body<'a>(&self, resource: &ServedResource, version: &'a ObjectVersion) -> Cow<'a, [u8]> {
        match (self.drops_managed_fields, body(resource, version)) {
            (true, body) => drop_fields::from_json(body),
            (false, body) => body,
        }
    }

    /// The object as a message of protobuf.
    fn message<'a>(&self, resource: &ServedResource, version: &'a ObjectVersion) -> Cow<'a, [u8]> {
        match (self.drops_managed_fields, message(resource, version)) {
            (true, message) => drop_fields::from_message(message),
            (false, message) => message,
        }
    }

    /// The object, for views of the parsed object.
    fn version<'a>(&self, version: &'a Arc<ObjectVersion>) -> Cow<'a, Arc<ObjectVersion>> {
        if self.drops_managed_fields {
            Cow::Owned(drop_fields::from_version(version))
        } else {
            Cow::Borrowed(version)
        }
    }
}

/// The object without `apiVersion` and `kind`, as this resource shows it.
fn body<'a>(resource: &ServedResource, version: &'a ObjectVersion) -> Cow<'a, [u8]> {
    if resource.custom.is_some() {
        // The defaults of the current schema, which can differ from the schema at the time of the write.
        return ObjectVersion::unstored(resource.shown(&version.object()))
            .body()
            .to_vec()
            .into();
    }
    let is_reshaped = resource.is_converted() && resource.conversion != Some(Conversion::Version);
    let body: &'a Bytes = if is_reshaped {
        version.other_body(|object| resource.shown(object))
    } else {
        version.body()
    };
    Cow::Borrowed(body)
}

/// The object as a message of protobuf, as this resource shows it.
fn message<'a>(resource: &ServedResource, version: &'a ObjectVersion) -> Cow<'a, [u8]> {
    let types = Types::get();
    match types.of_kind(&resource.api_version(), resource.kind) {
        None => Cow::Borrowed(&[]),
        Some(message) if resource.is_converted() => {
            let shown = resource.shown(&version.object());
            berth_protobuf::encode(message, &shown).into()
        }
        Some(message) => Cow::Borrowed(version.message(message).as_ref()),
    }
}

/// With fewer objects for each processor, starting threads is not worth it.
const SHARE_MIN: usize = 2_000;

/// Encodes the messages of a large list on all processors. They are kept with the objects, where [`message`] finds
/// them.
fn encode_ahead(resource: &ServedResource, versions: &[Arc<ObjectVersion>]) {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let share = versions.len().div_ceil(processors);
    if share < SHARE_MIN || resource.is_converted() {
        return;
    }
    let encode = |versions: &[Arc<ObjectVersion>]| {
        for version in versions {
            message(resource, version);
        }
    };
    let (own, others) = versions.split_at(share);
    thread::scope(|scope| {
        for share in others.chunks(share) {
            // Messages of a thread that cannot be started are encoded later.
            let _ = thread::Builder::new().spawn_scoped(scope, move || encode(share));
        }
        encode(own);
    });
}

/// Returns whether objects of this resource have a form in protobuf.
pub(super) fn has_message(resource: &ServedResource) -> bool {
    let types = Types::get();
    types
        .of_kind(&resource.api_version(), resource.kind)
        .is_some()
}

/// An object of a kind as a message of protobuf.
fn encode_kind(api_version: &str, kind: &str, object: &Value) -> Vec<u8> {
    let message = Types::get().of_kind(api_version, kind);
    message.map_or_else(Vec::new, |message| berth_protobuf::encode(message, object))
}

/// An object that names its kind, in this format.
pub(crate) fn plain(format: MediaFormat, object: &Value) -> Bytes {
    if format != MediaFormat::Protobuf {
        return Bytes::from(object.to_string());
    }
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or("");
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let message = encode_kind(api_version, kind, object);
    Bytes::from(envelope::seal(api_version, kind, &message))
}

/// Appends `{"kind":…,"apiVersion":…,` and the rest of the object.
fn put_object(
    out: &mut BytesMut,
    resource: &ServedResource,
    shape: &AnswerShape,
    version: &ObjectVersion,
) {
    put_head(out, resource.kind, &resource.api_version());
    let body = shape.body(resource, version);
    match body.strip_prefix(b"{") {
        Some(rest) if rest != b"}" => {
            out.put_u8(b',');
            out.extend_from_slice(rest);
        }
        _ => out.put_u8(b'}'),
    }
}

/// Appends `{"kind":…,"apiVersion":…`; neither needs escaping.
fn put_head(out: &mut BytesMut, kind: &str, api_version: &str) {
    for part in [
        "{\"kind\":\"",
        kind,
        "\",\"apiVersion\":\"",
        api_version,
        "\"",
    ] {
        out.extend_from_slice(part.as_bytes());
    }
}

fn put_json(out: &mut BytesMut, value: &Value) {
    // A JSON value always serialises, and the buffer grows.
    let _ = serde_json::to_writer(out.writer(), value);
}

/// The part before the body of an object is not longer.
const HEAD_BYTES: usize = 128;

/// One object.
pub(crate) fn object(
    resource: &ServedResource,
    shape: &AnswerShape,
    version: &Arc<ObjectVersion>,
    now: Timestamp,
) -> Bytes {
    let mut out = BytesMut::with_capacity(version.body().len() + HEAD_BYTES);
    watched(&mut out, resource, shape, version, true, now);
    out.freeze()
}

/// An event of a stream around an object: a line of JSON, or a frame of protobuf behind its length.
pub(crate) fn event(
    out: &mut BytesMut,
    format: MediaFormat,
    kind: &str,
    object: impl FnOnce(&mut BytesMut),
) {
    if format == MediaFormat::Protobuf {
        let mut bytes = BytesMut::new();
        object(&mut bytes);
        let object = &bytes;
        let event = WatchEvent { kind, object }.write();
        out.put_u32(u32::try_from(event.len()).unwrap_or(u32::MAX));
        out.extend_from_slice(&event);
        return;
    }
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    object(out);
    out.extend_from_slice(b"}\n");
}

/// One object of a stream; `columns` is whether a table carries its column definitions.
pub(crate) fn watched(
    out: &mut BytesMut,
    resource: &ServedResource,
    shape: &AnswerShape,
    version: &Arc<ObjectVersion>,
    columns: bool,
    now: Timestamp,
) {
    match shape.view {
        ObjectView::Object if shape.format == MediaFormat::Protobuf => {
            let message = shape.message(resource, version);
            out.extend_from_slice(&envelope::seal(
                &resource.api_version(),
                resource.kind,
                &message,
            ));
        }
        ObjectView::Object => put_object(out, resource, shape, version),
        ObjectView::Metadata => {
            let partial = table::partial_metadata(&shape.version(version).object());
            out.extend_from_slice(&plain(shape.format, &partial));
        }
        // A table of a watch has one row, and its own resource version.
        ObjectView::Table(include) => {
            let mut list_meta = Map::new();
            let object = version.object();
            let revision = meta(&object, "resourceVersion");
            if !revision.is_empty() {
                list_meta.insert("resourceVersion".to_owned(), revision.into());
            }
            let object = shape.version(version).object();
            put_json(
                out,
                &table::table(resource, [object], list_meta, include, columns, now),
            );
        }
    }
}

/// An object with a revision only.
pub(crate) fn bookmark(
    out: &mut BytesMut,
    resource: &ServedResource,
    shape: &AnswerShape,
    revision: u64,
    initial_end: bool,
    columns: bool,
) {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    if initial_end {
        metadata.insert(
            "annotations".to_owned(),
            json!({"k8s.io/initial-events-end": "true"}),
        );
    }
    match shape.view {
        ObjectView::Object if shape.format == MediaFormat::Protobuf => {
            let (kind, api_version) = (resource.kind, resource.api_version());
            let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
            out.extend_from_slice(&plain(shape.format, &object));
        }
        ObjectView::Object => {
            put_head(out, resource.kind, &resource.api_version());
            out.extend_from_slice(b",\"metadata\":");
            put_json(out, &Value::Object(metadata));
            out.extend_from_slice(resource.blank.as_bytes());
            out.put_u8(b'}');
        }
        ObjectView::Metadata => out.extend_from_slice(&plain(
            shape.format,
            &json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
            }),
        )),
        // The row of an object without fields.
        ObjectView::Table(include) => {
            let mut list_meta = Map::new();
            list_meta.insert("resourceVersion".to_owned(), revision.to_string().into());
            let mut object = resource.blank_object();
            meta_mut(&mut object).extend(metadata);
            let (objects, now) = ([Arc::new(object)], Timestamp::UNIX_EPOCH);
            put_json(
                out,
                &table::table(resource, objects, list_meta, include, columns, now),
            );
        }
    }
}

/// The bytes of a list, in pieces of about [`PIECE_BYTES`]: the text of a large list is never in memory as a whole.
#[derive(Debug)]
pub(crate) struct Pieces {
    resource: Arc<ServedResource>,
    shape: AnswerShape,
    /// The bytes before the items that are left.
    head: BytesMut,
    items: vec::IntoIter<Arc<ObjectVersion>>,
    /// Whether an item has been taken.
    begun: bool,
    tail: Bytes,
}

/// A piece of a list is complete when it has grown to this.
const PIECE_BYTES: usize = 256 * 1024;

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = mem::take(&mut self.head);
        while piece.len() < PIECE_BYTES {
            let Some(version) = self.items.next() else {
                piece.extend_from_slice(&mem::take(&mut self.tail));
                break;
            };
            let comma = mem::replace(&mut self.begun, true);
            if self.shape.format == MediaFormat::Protobuf {
                let message = self.shape.message(&self.resource, &version);
                let mut head = Writer::default();
                head.head(LIST_ITEMS, message.len());
                piece.extend_from_slice(&head.into_bytes());
                piece.extend_from_slice(&message);
                continue;
            }
            if comma {
                piece.put_u8(b',');
            }
            if self.resource.custom.is_some() {
                put_object(&mut piece, &self.resource, &self.shape, &version);
            } else {
                piece.extend_from_slice(&self.shape.body(&self.resource, &version));
            }
        }
        (!piece.is_empty()).then(|| piece.freeze())
    }
}

/// The number of the field with the objects of a list.
const LIST_ITEMS: u32 = 2;

/// A list.
pub(crate) fn list(
    resource: &Arc<ServedResource>,
    shape: &AnswerShape,
    listed: ListPage,
    now: Timestamp,
) -> Pieces {
    let mut list_meta = Map::new();
    list_meta.insert(
        "resourceVersion".to_owned(),
        listed.revision.to_string().into(),
    );
    if !listed.continue_token.is_empty() {
        list_meta.insert("continue".to_owned(), listed.continue_token.into());
    }
    if let Some(remaining) = listed.remaining {
        list_meta.insert("remainingItemCount".to_owned(), remaining.into());
    }
    let mut out = BytesMut::new();
    let mut pieces = Pieces {
        resource: Arc::clone(resource),
        shape: *shape,
        head: BytesMut::new(),
        items: Vec::new().into_iter(),
        begun: false,
        tail: Bytes::new(),
    };
    let items = &listed.items;
    match shape.view {
        ObjectView::Object if shape.format == MediaFormat::Protobuf => {
            let mut head = Writer::default();
            head.bytes(1, &encode_kind("v1", "ListMeta", &Value::Object(list_meta)));
            let head = head.into_bytes();
            encode_ahead(resource, items);
            let bytes = items.iter().map(|version| {
                let length = shape.message(resource, version).len();
                let mut head = Writer::default();
                head.head(LIST_ITEMS, length);
                head.into_bytes().len() + length
            });
            let bytes = head.len() + bytes.sum::<usize>();
            let (kind, api_version) = (resource.list_kind, resource.api_version());
            let (before, behind) = envelope::around(&api_version, kind, bytes);
            out.extend_from_slice(&before);
            out.extend_from_slice(&head);
            pieces.tail = behind.into();
            pieces.items = listed.items.into_iter();
        }
        ObjectView::Object => {
            put_head(&mut out, resource.list_kind, &resource.api_version());
            out.extend_from_slice(b",\"metadata\":");
            put_json(&mut out, &Value::Object(list_meta));
            out.extend_from_slice(b",\"items\":[");
            pieces.tail = Bytes::from_static(b"]}");
            pieces.items = listed.items.into_iter();
        }
        ObjectView::Metadata => {
            let items: Vec<Value> = items
                .iter()
                .map(|v| table::partial_metadata(&shape.version(v).object()))
                .collect();
            let list = json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": list_meta,
                "items": items,
            });
            out.extend_from_slice(&plain(shape.format, &list));
        }
        ObjectView::Table(include) => {
            let objects = items.iter().map(|v| shape.version(v).object());
            let table = table::table(resource, objects, list_meta, include, true, now);
            put_json(&mut out, &table);
        }
    }
    pieces.head = out;
    pieces
}
