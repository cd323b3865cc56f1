//! Decoding, by example.

mod reach;

use super::model::{Presence, ValueShape};
use super::*;
use serde_json::json;

fn check(group: &str, version: &str, kind: &str, object: Value) -> Decoded {
    Schemas::get().check(GroupVersionKind::new(group, version, kind), &object)
}

#[test]
fn unknown_fields_are_named_by_their_place() {
    let cases = [
        (
            "in the spec",
            json!({"spec": {"nodeSelektor": {"a": "b"}}}),
            vec!["spec.nodeSelektor"],
        ),
        ("at the root", json!({"specs": {}}), vec!["specs"]),
        (
            "in a list entry",
            json!({"spec": {"containers": [{"name": "c", "foo": 1}]}}),
            vec!["spec.containers[0].foo"],
        ),
        (
            "deep in the second entry",
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "ports": [{"containerPort": 1, "portt": 2}]}]}}),
            vec!["spec.containers[1].ports[0].portt"],
        ),
        (
            "in the metadata",
            json!({"metadata": {"label": {}}}),
            vec!["metadata.label"],
        ),
        (
            "free keys are no fields",
            json!({"metadata": {"labels": {"x": "y"}}, "spec": {"nodeSelector": {"z": "1"}}}),
            vec![],
        ),
        (
            "managed fields are free",
            json!({"metadata": {"managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {"f:x": {}}}}]}}),
            vec![],
        ),
        (
            "an unknown null is unknown",
            json!({"spec": {"nope": null}}),
            vec!["spec.nope"],
        ),
    ];
    for (name, object, expect) in cases {
        let decoded = check("", "v1", "Pod", object);
        assert_eq!(decoded.unknown_fields, expect, "{name}");
        assert_eq!(decoded.type_errors, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn values_of_another_type_are_named() {
    let cases = [
        (
            "text for a flag",
            json!({"spec": {"hostNetwork": "yes"}}),
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            "number for a name, indices left out",
            json!({"spec": {"containers": [{"name": 1}]}}),
            "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string",
        ),
        (
            "text for a container",
            json!({"spec": {"containers": ["c"]}}),
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            "object for a list",
            json!({"spec": {"containers": {}}}),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "number for a label",
            json!({"metadata": {"labels": {"a": 1}}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "fraction for a whole number",
            json!({"spec": {"priority": 1.5}}),
            "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            "more than 32 bits",
            json!({"spec": {"priority": 3_000_000_000_u64}}),
            "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            "an object of another sort",
            json!([]),
            "json: cannot unmarshal array into Go value of type v1.Pod",
        ),
        (
            "no quantity",
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1x"}}}]}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "no time",
            json!({"metadata": {"creationTimestamp": "today"}}),
            "metadata.creationTimestamp: parsing time \"today\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"today\" as \"2006\"",
        ),
    ];
    for (name, object, expect) in cases {
        let decoded = check("", "v1", "Pod", object);
        assert_eq!(decoded.type_errors, [expect], "{name}");
        assert_eq!(decoded.unknown_fields, Vec::<String>::new(), "{name}");
    }
    let secret = check("", "v1", "Secret", json!({"data": {"k": "a*b="}}));
    assert_eq!(
        secret.type_errors,
        ["data.k: illegal base64 data at input byte 1"]
    );
}

/// API-78: the answers of kube-apiserver 1.36.2 to these times.
#[test]
fn times_are_read_as_go_does() {
    let lease = |time: &str| {
        let lease = json!({"spec": {"renewTime": time}});
        check("coordination.k8s.io", "v1", "Lease", lease).type_errors
    };
    let pod = |time: &str| {
        let pod = json!({"metadata": {"creationTimestamp": time}, "spec": {"containers": []}});
        check("", "v1", "Pod", pod).type_errors
    };
    for time in [
        "9999-12-31T23:59:59Z",
        "0000-01-01T00:00:00Z",
        "2026-01-01T0:00:00Z",
        "2026-01-01T00:00:00,5Z",
        "2026-01-01T00:00:00+24:00",
    ] {
        assert_eq!(pod(time), Vec::<String>::new(), "{time}");
    }
    for time in [
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00+25:00",
        "2026-01-01 00:00:00Z",
        "2026-01-01t00:00:00Z",
        "2026-01-01T00:00:00z",
        "2026-01-01T00:00Z",
        "2026-01-01",
    ] {
        assert_eq!(pod(time).len(), 1, "{time}");
    }
    for (time, errors) in [
        ("2026-01-01T00:00:00.000000Z", 0),
        ("2026-01-01T00:00:00Z", 1),
        ("2026-01-01T00:00:00.000Z", 1),
        ("2026-01-01T00:00:00.000000000Z", 1),
    ] {
        assert_eq!(lease(time).len(), errors, "{time}");
    }
}

#[test]
fn what_is_right_passes() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "creationTimestamp": null, "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "containers": [{
                "name": "c", "image": "i",
                "resources": {"requests": {"cpu": 1, "memory": "1Gi"}},
                "livenessProbe": {"httpGet": {"port": "http"}},
                "readinessProbe": {"httpGet": {"port": 80}},
            }],
            "schedulingGates": [{"name": "example.com/foo"}],
            "nodeSelector": null,
        },
    });
    assert_eq!(check("", "v1", "Pod", pod), Decoded::default());
    let secret = json!({"data": {"k": "YQ==", "empty": null}, "stringData": {"x": "y"}});
    assert_eq!(check("", "v1", "Secret", secret), Decoded::default());
    let claim = json!({"spec": {"devices": {"config": [{"opaque": {"driver": "d", "parameters": {"any": [1]}}}]}}});
    assert_eq!(
        check("resource.k8s.io", "v1", "ResourceClaim", claim),
        Decoded::default()
    );
}

#[test]
fn unknown_kinds_are_not_checked() {
    assert!(!Schemas::get().knows(GroupVersionKind::new("example.com", "v1", "Widget")));
    assert!(!Schemas::get().knows(GroupVersionKind::new("", "v1", "Widget")));
    let mut widget = json!({"spec": {"anything": null}});
    let decoded = Schemas::get().normalize(
        GroupVersionKind::new("example.com", "v1", "Widget"),
        &mut widget,
    );
    assert_eq!(decoded, Decoded::default());
    assert_eq!(widget, json!({"spec": {"anything": null}}));
}

#[test]
fn the_tables_are_read_without_faults() {
    assert_eq!(Schemas::get().faults, Vec::<String>::new());
}

fn normal(group: &str, version: &str, kind: &str, mut object: Value) -> Value {
    Schemas::get().normalize(GroupVersionKind::new(group, version, kind), &mut object);
    object
}

/// API-80. Each list and map of each type.
#[test]
fn empty_lists_and_maps_are_recorded() {
    let model = Schemas::get().model();
    let mut checked = 0;
    for of in model.object_types() {
        let id = model.find(&of.name).expect("a known type");
        for field in of.fields.iter().filter(|field| !field.pointer) {
            let empty = match field.shape {
                ValueShape::List(_) => json!([]),
                ValueShape::Map(_) => json!({}),
                _ => continue,
            };
            let expected = match field.presence {
                Presence::OmittedWhenZero => None,
                Presence::AlwaysWritten if of.name.starts_with("apiextensions.") => {
                    Some(empty.clone())
                }
                Presence::AlwaysWritten => Some(Value::Null),
                Presence::AsWritten => continue,
            };
            let place = format!("{}.{}", of.name, field.name);
            let mut object = json!({&*field.name: empty.clone()});
            let decoded = normal::normalize(model, ApiRelease::EVERY, id, &mut object);
            assert_eq!(object.get(&*field.name), expected.as_ref(), "{place}");
            assert!(decoded.empties.has(&format!("/{}", field.name)), "{place}");
            object[&*field.name] = Value::Null;
            decoded.empties.put_into(&mut object);
            assert_eq!(object[&*field.name], empty, "{place}");
            checked += 1;
        }
    }
    assert!(checked > 400, "{checked} fields");
}

#[test]
fn places_of_empty_lists_are_found_in_maps_and_lists() {
    let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "env": []}],
        "nodeSelector": {}}});
    let kind = GroupVersionKind::new("", "v1", "Pod");
    let mut object = pod.clone();
    let empties = Schemas::get().normalize(kind, &mut object).empties;
    assert!(empties.has_below("spec") && !empties.has_below("metadata"));
    empties.put_into(&mut object);
    assert_eq!(object["spec"]["containers"][1]["env"], json!([]));
    assert_eq!(object["spec"]["nodeSelector"], json!({}));
}

#[test]
fn objects_are_kept_as_a_typed_server_keeps_them() {
    let cases = [
        (
            "unknown fields are dropped, at every depth",
            json!({"x": 1, "spec": {"containers": [{"name": "c", "y": {}}], "z": []}}),
            json!({"spec": {"containers": [{"name": "c", "resources": {}}]}}),
        ),
        (
            "nulls are dropped",
            json!({"metadata": {"creationTimestamp": null}, "spec": {"nodeSelector": null, "priority": null}}),
            json!({"metadata": {}, "spec": {"containers": null}}),
        ),
        (
            "nulls in lists and maps are zero values",
            json!({"metadata": {"labels": {"a": null}}, "spec": {"containers": [null]}}),
            json!({"metadata": {"labels": {"a": ""}}, "spec": {"containers": [{"name": "", "resources": {}}]}}),
        ),
        (
            "times of conditions stay null",
            json!({"status": {"conditions": [{"type": "T", "status": "", "lastProbeTime": null, "message": null}]}}),
            json!({"status": {"conditions": [{"type": "T", "status": "", "lastProbeTime": null, "lastTransitionTime": null}]}}),
        ),
        (
            "empty lists and maps are dropped, or null if they are always written; empty objects stay",
            json!({"metadata": {"labels": {}, "finalizers": []}, "spec": {"containers": [], "schedulingGates": [], "securityContext": {}}}),
            json!({"metadata": {}, "spec": {"containers": null, "securityContext": {}}}),
        ),
        (
            "zero values are dropped, unless they mean something",
            json!({"spec": {"hostNetwork": false, "nodeName": "", "priority": 0, "enableServiceLinks": false, "containers": [{"name": ""}]}}),
            json!({"spec": {"priority": 0, "enableServiceLinks": false, "containers": [{"name": "", "resources": {}}]}}),
        ),
        (
            "quantities are canonical, resources in thousandths",
            json!({"spec": {"overhead": {"cpu": "1000m", "memory": "1024Mi", "a": 2, "b": 0.5, "c": "100u"}, "containers": []}}),
            json!({"spec": {"overhead": {"cpu": "1", "memory": "1Gi", "a": "2", "b": "500m", "c": "1m"}, "containers": null}}),
        ),
        (
            "a time in a year of five digits",
            json!({"metadata": {"deletionTimestamp": "9999-12-31T23:59:59-01:00"}}),
            json!({"metadata": {"deletionTimestamp": "10000-01-01T00:59:59Z"}, "spec": {"containers": null}}),
        ),
        (
            "Go's zero time is none",
            json!({"metadata": {"creationTimestamp": "0001-01-01T02:00:00+02:00", "deletionTimestamp": "0001-01-01T00:00:01Z"}}),
            json!({"metadata": {"deletionTimestamp": "0001-01-01T00:00:01Z"}, "spec": {"containers": null}}),
        ),
        (
            "times are in UTC, to the second",
            json!({"metadata": {"deletionTimestamp": "2026-01-01T02:00:00.5+02:00"}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"containers": null}}),
        ),
    ];
    for (name, object, expect) in cases {
        let mut got = normal("", "v1", "Pod", object);
        assert_eq!(normal("", "v1", "Pod", got.clone()), got, "{name}: again");
        for part in ["metadata", "spec", "status"] {
            if expect.get(part).is_none()
                && let Some(map) = got.as_object_mut()
            {
                map.remove(part);
            }
        }
        assert_eq!(got, expect, "{name}");
    }
    let lease = json!({"spec": {"renewTime": "2026-01-01T00:00:00.123456Z", "acquireTime": "2026-01-01T01:00:00.000000+01:00"}});
    assert_eq!(
        normal("coordination.k8s.io", "v1", "Lease", lease)["spec"],
        json!({"renewTime": "2026-01-01T00:00:00.123456Z", "acquireTime": "2026-01-01T00:00:00.000000Z"})
    );
}

#[test]
fn what_a_typed_server_always_writes_is_added() {
    let cases = [
        (
            "a budget's counters are there from the start",
            ("policy", "v1", "PodDisruptionBudget"),
            json!({"metadata": {}}),
            json!({"metadata": {}, "spec": {}, "status": {
                "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
            }}),
        ),
        (
            "an event's times are null",
            ("events.k8s.io", "v1", "Event"),
            json!({"metadata": {}, "eventTime": "2026-01-01T00:00:00.000000Z", "regarding": {}}),
            json!({
                "metadata": {}, "eventTime": "2026-01-01T00:00:00.000000Z", "regarding": {},
                "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null, "deprecatedSource": {},
            }),
        ),
        (
            "what is given stays, what is a pointer upstream is not made up",
            ("apps", "v1", "Deployment"),
            json!({"metadata": {}, "spec": {"replicas": 0, "strategy": {"type": "Recreate"}, "template": {}}, "status": {"replicas": 1}}),
            json!({
                "metadata": {},
                "spec": {
                    "replicas": 0, "selector": null, "strategy": {"type": "Recreate"},
                    "template": {"metadata": {}, "spec": {"containers": null}},
                },
                "status": {"replicas": 1},
            }),
        ),
    ];
    for (name, (group, version, kind), object, expect) in cases {
        let got = normal(group, version, kind, object);
        assert_eq!(got, expect, "{name}");
        assert_eq!(
            normal(group, version, kind, got.clone()),
            got,
            "{name}: again"
        );
    }
}

#[test]
fn json_and_yaml_state_the_same() {
    let json =
        parse_json(br#"{"a": [1, -2, 1.5, true, null, "x"], "b": {"c": "d"}}"#).expect("JSON");
    let yaml = parse_yaml(b"a: [1, -2, 1.5, true, null, x]\nb:\n  c: d\n").expect("YAML");
    assert_eq!(json, yaml);
    let yaml = parse_yaml(br#"{"a": [1, -2, 1.5, true, null, "x"], "b": {"c": "d"}}"#)
        .expect("JSON as YAML");
    assert_eq!(json, yaml);
    let manifest = b"mode: 0644\non: yes\ntext: \"yes\"\nday: 2026-01-01\nbase: &b {x: 1}\nderived: {<<: *b, z: 2}\nnone: ~\n";
    assert_eq!(
        parse_yaml(manifest).expect("a manifest of YAML 1.1").value,
        json!({
            "mode": 420, "true": true, "text": "yes", "day": "2026-01-01",
            "base": {"x": 1}, "derived": {"x": 1, "z": 2}, "none": null,
        })
    );
    let keys = parse_yaml(b"1: one\ntrue: two\n").expect("YAML");
    assert_eq!(keys.value, json!({"1": "one", "true": "two"}));
}

#[test]
fn duplicate_fields_are_named_by_their_place() {
    let json = parse_json(br#"{"a": {"b": 1, "c": [{"d": 1, "d": 2}], "b": 3}}"#).expect("JSON");
    assert_eq!(json.duplicate_fields, ["a.c[0].d", "a.b"]);
    assert_eq!(
        json.value,
        json!({"a": {"b": 3, "c": [{"d": 2}]}}),
        "the last one counts"
    );
    let yaml = parse_yaml(b"a:\n  b: 1\n  c: 2\n  b: 3\n").expect("YAML");
    assert_eq!(yaml.duplicate_fields, ["a.b"]);
    assert_eq!(yaml.value, json!({"a": {"b": 3, "c": 2}}));
}

#[test]
fn what_is_no_document_is_refused() {
    let message = |bytes: &[u8]| parse_json(bytes).expect_err("malformed").to_string();
    assert_eq!(
        message(br#"{"apiVersion":"v1","#),
        "json parse error: unexpected end of JSON input"
    );
    assert!(
        message(b"{} {}").contains("trailing characters"),
        "{}",
        message(b"{} {}")
    );
    assert!(
        message(b"\xff\xff").starts_with("json parse error"),
        "not UTF-8"
    );
    // The first of several documents, and dates as texts.
    for text in [
        "a: 1\n---\nb: 2\n",
        "a: 1\n---\n",
        "---\na: 1\n...\nb: {",
        "# c\n---\na: 1\n",
    ] {
        let first = parse_yaml(text.as_bytes()).expect(text);
        assert_eq!(first.value, json!({"a": 1}), "{text}");
    }
    let dates = parse_yaml(b"a: 2026-01-01\nb: 2026-01-01T00:00:00Z\nc: 12:30:45\n");
    assert_eq!(
        dates.expect("dates").value,
        json!({"a": "2026-01-01", "b": "2026-01-01T00:00:00Z", "c": "12:30:45"})
    );
    assert!(parse_yaml(b"a: [1, 2").is_err(), "unclosed");
}

#[test]
fn documents_have_limits() {
    for bytes in [
        "[".repeat(100_000),
        format!(
            "{}1{}",
            "[".repeat(DEPTH_MAX + 1),
            "]".repeat(DEPTH_MAX + 1)
        ),
        format!("[{}1]", "1,".repeat(VALUES_MAX)),
        format!("{{\"a\": \"{}\"}}", "x".repeat(TEXT_BYTES_MAX + 1)),
        r#"{"a":"#.repeat(50_000),
    ] {
        assert!(parse_json(bytes.as_bytes()).is_err(), "{:.40}", bytes);
        assert!(
            parse_yaml(bytes.as_bytes()).is_err(),
            "{:.40} as YAML",
            bytes
        );
    }
    let deep = format!("{}1{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
    assert!(parse_json(deep.as_bytes()).is_ok(), "as deep as allowed");

    // Nine aliases of nine aliases …: a few hundred bytes that expand to a billion values.
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for i in 1..10 {
        let previous = format!("*a{}", i - 1);
        bomb += &format!("a{i}: &a{i} [{}]\n", vec![previous; 9].join(","));
    }
    assert!(parse_yaml(bomb.as_bytes()).is_err(), "alias bomb");
    // One long text, many times.
    let text = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(100_000),
        vec!["*a"; 500].join(",")
    );
    assert!(parse_yaml(text.as_bytes()).is_err(), "repeated text");
    let few = parse_yaml(b"a: &a {x: 1}\nb: *a\n").expect("a plain alias");
    assert_eq!(few.value, json!({"a": {"x": 1}, "b": {"x": 1}}));
}
