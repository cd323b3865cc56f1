//! The recorded transcript, and the differences that the comparison must detect.

use super::*;
use flate2::read::GzDecoder;
use serde_json::json;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

fn differences(mapping: &mut Mapping, recorded: &Value, live: &Value) -> usize {
    let mut found = Vec::new();
    mapping.compare(recorded, live, &mut found);
    found.len()
}

#[test]
fn a_recorded_value_maps_to_one_live_value() {
    let mut mapping = Mapping::default();
    let pod =
        |uid: &str, version: &str| json!({"metadata": {"uid": uid, "resourceVersion": version}});
    let cases = [
        ("learned", pod("a", "1"), pod("x", "7"), 0),
        ("the same again", pod("a", "1"), pod("x", "7"), 0),
        ("another live version", pod("a", "1"), pod("x", "8"), 1),
        ("the live UID of another", pod("b", "2"), pod("x", "9"), 1),
    ];
    for (name, recorded, live, expect) in cases {
        assert_eq!(
            differences(&mut mapping, &recorded, &live),
            expect,
            "{name}"
        );
    }
    assert_eq!(
        mapping.live(&pod("a", "1")),
        pod("x", "7"),
        "requests carry the live values"
    );
    assert_eq!(
        mapping.live_text("/p?resourceVersion=1&x=a"),
        "/p?resourceVersion=7&x=x"
    );
}

#[test]
fn what_may_vary_may_and_nothing_else() {
    let cases = [
        (
            "times",
            json!({"creationTimestamp": "2026-01-01T00:00:00Z"}),
            json!({"creationTimestamp": "2027-01-01T00:00:00Z"}),
            0,
        ),
        (
            "no time",
            json!({"creationTimestamp": "2026-01-01T00:00:00Z"}),
            json!({"creationTimestamp": "soon"}),
            1,
        ),
        (
            "ages",
            json!({"cells": ["5s"]}),
            json!({"cells": ["3m10s"]}),
            0,
        ),
        (
            "no age",
            json!({"cells": ["5s"]}),
            json!({"cells": ["<unknown>"]}),
            1,
        ),
        ("missing", json!({"a": 1}), json!({}), 1),
        ("additional", json!({}), json!({"a": 1}), 1),
        ("managed fields", json!({"managedFields": []}), json!({}), 1),
        (
            "an entry too few",
            json!({"a": [1, 2]}),
            json!({"a": [1]}),
            1,
        ),
        (
            "resources that are not served",
            json!({"resources": [{"name": "a"}, {"name": "b", "kind": "B"}]}),
            json!({"resources": [{"name": "b", "kind": "B"}]}),
            0,
        ),
        (
            "a resource that is served otherwise",
            json!({"resources": [{"name": "b", "kind": "B"}]}),
            json!({"resources": [{"name": "b", "kind": "C"}]}),
            1,
        ),
    ];
    for (name, recorded, live, expect) in cases {
        let found = differences(&mut Mapping::default(), &recorded, &live);
        assert_eq!(found, expect, "{name}");
    }
}

/// Kubernetes 1.37 serves DeviceTaintRules as `resource.k8s.io/v1`.
const TAINT_RULES: (&str, &str) = (
    "discovery-aggregated",
    ".items[resource.k8s.io].resources[devicetaintrules]: recorded nothing",
);
/// Since 1.38, the answer to a binding has the resource version of the pod.
const VERSION_OF_BINDING: (&str, &str) = ("bind", ".metadata.resourceVersion: recorded nothing");

/// The cases whose answer differs in a release, with the difference, in order.
fn differing(release: Release) -> &'static [(&'static str, &'static str)] {
    match release {
        Release::V1_36 => &[],
        Release::V1_37 => &[TAINT_RULES],
        Release::V1_38 => &[VERSION_OF_BINDING, TAINT_RULES],
    }
}

#[test]
fn the_recorded_transcript_comes_out_as_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/http.jsonl.gz");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) => panic!("{}: {e}", path.display()),
    };
    let mut packed = Vec::new();
    let mut file = BufReader::new(file);
    std::io::copy(&mut file, &mut packed).expect("a readable file");
    for release in Release::ALL {
        let report = replay(BufReader::new(GzDecoder::new(&packed[..])), release);
        println!("{release}: {report}");
        let expected = differing(release);
        assert_eq!(report.failed.len(), expected.len(), "{release}: {report}");
        for (mismatch, (case, difference)) in report.failed.iter().zip(expected) {
            assert_eq!(mismatch.case, *case, "{release}");
            assert!(
                mismatch.what.contains(difference),
                "{release}: {mismatch:?}"
            );
        }
        assert!(report.passed.len() >= 65, "{release}: {report}");
    }
}
