//! Answers as bytes: objects, lists, tables, reduced metadata, in the view that the client asked for.

use crate::registry::{Listed, Resource, meta, to_events_v1};
use crate::storage::Version;
use crate::table::{self, Include};
use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// How the client wants to see objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum View {
    /// As they are.
    #[default]
    Object,
    /// As rows.
    Table(Include),
    /// Only their metadata.
    Metadata,
}

/// The object without `apiVersion` and `kind`, as this resource shows it.
fn body<'a>(resource: &Resource, version: &'a Version) -> &'a Bytes {
    if resource.is_converted() {
        version.other_body(to_events_v1)
    } else {
        version.body()
    }
}

/// Appends `{"kind":…,"apiVersion":…,` and the rest of the object.
fn put_object(out: &mut BytesMut, resource: &Resource, version: &Version) {
    put_head(out, resource.kind, &resource.api_version());
    let body = body(resource, version);
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

/// One object.
pub(crate) fn object(
    resource: &Resource,
    view: &View,
    version: &Arc<Version>,
    now: Timestamp,
) -> Bytes {
    let mut out = BytesMut::new();
    watched(&mut out, resource, view, version, true, now);
    out.freeze()
}

/// One object of a stream; `columns` is whether a table carries its column definitions.
pub(crate) fn watched(
    out: &mut BytesMut,
    resource: &Resource,
    view: &View,
    version: &Arc<Version>,
    columns: bool,
    now: Timestamp,
) {
    match view {
        View::Object => put_object(out, resource, version),
        View::Metadata => put_json(out, &table::partial_metadata(version.object())),
        View::Table(include) => {
            let mut list_meta = Map::new();
            let revision = meta(version.object(), "resourceVersion");
            if !revision.is_empty() {
                list_meta.insert("resourceVersion".to_owned(), revision.into());
            }
            let versions = std::slice::from_ref(version);
            put_json(
                out,
                &table::table(resource, versions, list_meta, *include, columns, now),
            );
        }
    }
}

/// An object of which only the revision is told.
pub(crate) fn bookmark(
    out: &mut BytesMut,
    resource: &Resource,
    view: &View,
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
    match view {
        View::Object => {
            put_head(out, resource.kind, &resource.api_version());
            out.extend_from_slice(b",\"metadata\":");
            put_json(out, &Value::Object(metadata));
            out.extend_from_slice(resource.blank.as_bytes());
            out.put_u8(b'}');
        }
        View::Metadata => put_json(
            out,
            &json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
            }),
        ),
        View::Table(include) => put_json(
            out,
            &table::table(
                resource,
                &[],
                metadata,
                *include,
                columns,
                Timestamp::UNIX_EPOCH,
            ),
        ),
    }
}

/// A list.
pub(crate) fn list(resource: &Resource, view: &View, listed: &Listed, now: Timestamp) -> Bytes {
    let mut list_meta = Map::new();
    list_meta.insert(
        "resourceVersion".to_owned(),
        listed.revision.to_string().into(),
    );
    if !listed.continue_token.is_empty() {
        list_meta.insert("continue".to_owned(), listed.continue_token.clone().into());
    }
    if let Some(remaining) = listed.remaining {
        list_meta.insert("remainingItemCount".to_owned(), remaining.into());
    }
    let mut out = BytesMut::new();
    match view {
        View::Object => {
            put_head(&mut out, resource.list_kind, &resource.api_version());
            out.extend_from_slice(b",\"metadata\":");
            put_json(&mut out, &Value::Object(list_meta));
            out.extend_from_slice(b",\"items\":[");
            for (i, version) in listed.items.iter().enumerate() {
                if i > 0 {
                    out.put_u8(b',');
                }
                out.extend_from_slice(body(resource, version));
            }
            out.extend_from_slice(b"]}");
        }
        View::Metadata => {
            let items: Vec<Value> = listed
                .items
                .iter()
                .map(|v| table::partial_metadata(v.object()))
                .collect();
            put_json(
                &mut out,
                &json!({
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": list_meta,
                    "items": items,
                }),
            );
        }
        View::Table(include) => put_json(
            &mut out,
            &table::table(resource, &listed.items, list_meta, *include, true, now),
        ),
    }
    out.freeze()
}
