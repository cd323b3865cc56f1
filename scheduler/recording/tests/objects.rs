//! Objects of every kind are the same after they were written to a recording and read again.

// A test reads files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use berth_api::Kind;
use flate2::read::MultiGzDecoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Every object in a value, however deep.
fn each(value: &Value, found: &mut impl FnMut(Kind, &Value)) {
    match value {
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
            if let Some(kind) = Kind::by_name(text("apiVersion"), text("kind")) {
                found(kind, value);
            }
            fields.values().for_each(|value| each(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| each(value, found)),
        _ => {}
    }
}

#[test]
fn objects_of_recorded_answers_survive() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/conformance/vectors");
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for name in ["decisions", "allocations", "http"] {
        let file = File::open(vectors.join(format!("{name}.jsonl.gz"))).expect("vectors");
        // The vectors repeat similar objects: every fifth line has all of their fields.
        for line in BufReader::new(MultiGzDecoder::new(file)).lines().step_by(5) {
            let value: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
            each(&value, &mut |kind, json| {
                let Ok(object) = kind.decode(json.to_string().as_bytes()) else {
                    return;
                };
                let written = serde_json::to_vec(&object).expect("JSON");
                let read = kind.decode(&written).unwrap_or_else(|error| {
                    panic!("{error}: {}", String::from_utf8_lossy(&written))
                });
                assert_eq!(read, object, "{json}");
                *counts.entry(kind.name()).or_default() += 1;
            });
        }
    }
    for kind in [
        "Pod",
        "Node",
        "Namespace",
        "PersistentVolume",
        "ResourceSlice",
        "ResourceClaim",
    ] {
        assert!(
            counts.get(kind).is_some_and(|count| *count > 10),
            "{kind}: {counts:?}"
        );
    }
}

/// The values that the vectors do not contain.
#[test]
fn unknown_values_and_exact_times_survive() {
    for (kind, json) in [
        (
            Kind::Node,
            r#"{"spec":{"taints":[{"key":"a","effect":"Odd"},{"key":"b","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z"}]}}"#,
        ),
        (
            Kind::Pod,
            r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00.123456789Z"},"spec":{"nodeName":"n","nodeSelector":{},"tolerations":[{"operator":"Odd"}],"containers":[{"name":"c","resources":{"requests":{"cpu":"0.1","memory":"1Gi","example.com/a":"3"}}}]},"status":{"nominatedNodeName":"m","startTime":"2026-01-01T00:00:00Z","phase":"Pending"}}"#,
        ),
        (
            Kind::ResourceClaim,
            r#"{"spec":{"devices":{"requests":[{"name":"r","exactly":{"allocationMode":"Odd","tolerations":[{"effect":"Odd"}]}}]}},"status":{"devices":[{"driver":"d","data":{"a":1},"networkData":{"ips":["1"]},"conditions":[{"type":"Ready","lastTransitionTime":"2026-01-01T00:00:00Z"}]}]}}"#,
        ),
        (
            Kind::ResourceSlice,
            r#"{"spec":{"devices":[{"name":"d","attributes":{"a":{"int":1},"b":{"bool":true},"c":{"string":"s"},"d":{"version":"1.0.0"},"e":{"strings":["x"]},"f":{"odd":1}},"capacity":{"m":{"value":"1Gi"}}}]}}"#,
        ),
        (
            Kind::PersistentVolumeClaim,
            r#"{"spec":{"storageClassName":""}}"#,
        ),
    ] {
        let object = kind.decode(json.as_bytes()).expect(json);
        let written = serde_json::to_vec(&object).expect("JSON");
        assert_eq!(kind.decode(&written).expect(json), object, "{json}");
    }
}
