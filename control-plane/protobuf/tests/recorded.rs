//! The answers of kube-apiserver 1.36: of each kind one object with most of its fields, as JSON and as protobuf, a
//! list, a watch that begins with a list, and an error.

// A test reads files; it is not part of the core.
#![allow(clippy::disallowed_methods)]

use berth_api::{Kind, Object};
use berth_protobuf::envelope::{Envelope, WatchEvent};
use serde_json::{Value, json};
use std::path::PathBuf;

fn recorded(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    std::fs::read(path.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The kinds that kube-apiserver 1.36 has: it does not have these versions of groups.
fn recorded_kinds() -> impl Iterator<Item = &'static Kind> {
    let is_later = |kind: &Kind| matches!(kind, Kind::PodGroup | Kind::CompositePodGroup);
    Kind::ALL.iter().filter(move |kind| !is_later(kind))
}

fn decoded(kind: Kind, body: &[u8]) -> Result<Object, berth_protobuf::ProtobufError> {
    kind.decode_from(Envelope::open(body)?.object()?)
}

#[test]
fn both_forms_of_an_object_are_decoded_alike() {
    for kind in recorded_kinds() {
        let (_, _, plural) = kind.resource();
        let json = recorded(&format!("{plural}.json"));
        let expected = kind.decode(&json).expect(plural);
        assert!(!expected.metadata().uid.is_empty(), "{plural}");
        let protobuf = recorded(&format!("{plural}.pb"));
        let found = decoded(*kind, &protobuf).expect(plural);
        assert_eq!(shown(&found), shown(&expected), "{plural}");
    }
}

/// An object without white space: parameters of drivers are kept unchanged, and Go writes them compactly in JSON.
fn shown(object: &Object) -> String {
    format!("{object:?}").split_whitespace().collect()
}

/// Includes the fields that Berth does not read: times, field sets and embedded JSON. Nulls of the JSON are omitted.
#[test]
fn a_whole_object_is_that_of_its_json() {
    for kind in recorded_kinds() {
        let (_, _, plural) = kind.resource();
        let mut expected: Value =
            serde_json::from_slice(&recorded(&format!("{plural}.json"))).expect(plural);
        without_nulls(&mut expected);
        let body = recorded(&format!("{plural}.pb"));
        let whole = Envelope::open(&body).and_then(|body| body.decode::<Value>());
        let mut whole = whole.unwrap_or_else(|e| panic!("{plural}: {e}"));
        without_nulls(&mut whole);
        assert_eq!(whole, expected, "{plural}");
    }
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[test]
fn the_items_of_a_list_are_read_one_by_one() {
    let body = recorded("list.pb");
    let list = Envelope::open(&body)
        .and_then(|body| body.list())
        .expect("a list");
    let metadata: Value = list.metadata().expect("metadata");
    assert!(metadata["resourceVersion"].is_string(), "{metadata}");
    let names: Vec<String> = list
        .map(|item| {
            Kind::Node
                .decode_from(item)
                .expect("a node")
                .metadata()
                .name
                .to_string()
        })
        .collect();
    assert_eq!(names, ["full"]);
}

#[test]
fn the_frames_of_a_watch_are_events() {
    let bytes = recorded("watch-list.pb");
    let mut rest = bytes.as_slice();
    let mut events = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (frame, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        rest = after;
        let event = WatchEvent::read(frame).expect("an event");
        let object: Value = Envelope::open(event.object)
            .and_then(|e| e.decode())
            .expect("an object");
        let (name, annotations) = (
            &object["metadata"]["name"],
            &object["metadata"]["annotations"],
        );
        let ends_list = annotations["k8s.io/initial-events-end"] == "true";
        events.push(json!([event.kind, name, ends_list]));
    }
    assert_eq!(rest, b"");
    let expected = json!([["ADDED", "full", false], ["BOOKMARK", null, true]]);
    // The server ends the watch with another bookmark if it has the time.
    assert_eq!(json!(events[..2]), expected);
}

#[test]
fn an_error_is_a_status() {
    let body = recorded("status-404.pb");
    let status: Value = Envelope::open(&body)
        .and_then(|e| e.decode())
        .expect("a status");
    for (field, expected) in [
        ("kind", json!("Status")),
        ("code", json!(404)),
        ("reason", json!("NotFound")),
        ("message", json!("nodes \"none\" not found")),
    ] {
        assert_eq!(status[field], expected, "{field}");
    }
}
