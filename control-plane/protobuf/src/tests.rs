//! Bodies as kubectl 1.32 sends them, and malformed bodies.

mod kinds;

use crate::envelope::{Envelope, MAGIC};
use crate::facts::{Facts, TABLES};
use crate::wire::{Writer, without_field};
use crate::{Object, ProtobufError, Types, VALUES_MAX, encode, encode_body, encode_json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    Envelope::open(body)?.decode()
}

const DEPLOYMENT: &str = "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50ErQBCh8KA3dlYhIAGgAiACoAMgA4AEIAWgoKA2FwcBIDd2ViEoIBCA\
    MSDAoKCgNhcHASA3dlYhpoChwKABIAGgAiACoAMgA4AEIAWgoKA2FwcBIDd2ViEkgSKgoBeRIFeC95OjEqADIKCgAQ\
    ABhQIgAqAEIAagByAIABAIgBAJABAKIBABoAMgBCAEoAUgBYAGAAaACCAQCKAQCaAQDCAQAiAgoAKAA4ABoMCAAQAB\
    gAIAAoADgAGgAiAA==";
const CONFIG_MAP: &str = "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEhsKEQoBYRIAGgAiACoAMgA4AEIAEgYKAXgSAXkaACIA";
const SECRET: &str = "azhzAAoMCgJ2MRIGU2VjcmV0Eh0KEQoBcxIAGgAiACoAMgA4AEIAEgYKAXASAXEaABoAIgA=";
const ACCESS_REVIEW: &str = "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSPAoQCgASABoAIg\
    AqADIAOABCABIeChwKB2RlZmF1bHQSA2dldBoAIgAqBHBvZHMyADoAGggIABIAGgAgABoAIgA=";
const SERVICE: &str = "azhzAAoNCgJ2MRIHU2VydmljZRJpCh8KA3N2YxIAGgAiACoAMgA4AEIAWgoKA2FwcBIDc3ZjEkIKGwoHODAtODA4MB\
    IDVENQGFAiBwgAEJA/GgAoABIKCgNhcHASA3N2YxoAIglDbHVzdGVySVA6AEIAUgBaAGAAaAAaAgoAGgAiAA==";

fn bytes(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap_or_default()
}

fn at(object: &Value, pointer: &str) -> Value {
    object.pointer(pointer).cloned().unwrap_or(Value::Null)
}

#[test]
fn recorded_bodies_become_the_objects_that_they_are() {
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, Value)]);
    let cases: [Case<'_>; 5] = [
        (
            "deployment",
            DEPLOYMENT,
            &[
                ("/apiVersion", json!("apps/v1")),
                ("/kind", json!("Deployment")),
                ("/metadata/name", json!("web")),
                ("/metadata/labels", json!({"app": "web"})),
                ("/metadata/creationTimestamp", Value::Null),
                ("/spec/replicas", json!(3)),
                ("/spec/selector/matchLabels/app", json!("web")),
                ("/spec/template/spec/containers/0/image", json!("x/y:1")),
                (
                    "/spec/template/spec/containers/0/ports/0/containerPort",
                    json!(80),
                ),
            ],
        ),
        (
            "config map",
            CONFIG_MAP,
            &[("/metadata/name", json!("a")), ("/data", json!({"x": "y"}))],
        ),
        ("secret", SECRET, &[("/data", json!({"p": "cQ=="}))]),
        (
            "access review",
            ACCESS_REVIEW,
            &[
                ("/apiVersion", json!("authorization.k8s.io/v1")),
                ("/spec/resourceAttributes/verb", json!("get")),
                ("/spec/resourceAttributes/resource", json!("pods")),
            ],
        ),
        (
            "service",
            SERVICE,
            &[
                ("/spec/ports/0/port", json!(80)),
                ("/spec/ports/0/targetPort", json!(8080)),
                ("/spec/type", json!("ClusterIP")),
            ],
        ),
    ];
    for (name, body, expect) in cases {
        let object = match decode(&bytes(body)) {
            Ok(object) => object,
            Err(e) => panic!("{name}: {e}"),
        };
        for (pointer, value) in expect {
            assert_eq!(at(&object, pointer), *value, "{name} {pointer}: {object}");
        }
    }
}

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
}

#[test]
fn special_types_have_their_json_form() {
    // Lease.spec: leaseDurationSeconds (2), acquireTime (3), renewTime (4).
    let time = [
        vec![0x08],
        vec![0x80, 0x92, 0xb8, 0xc3, 0x06],
        vec![0x10, 0xc0, 0x84, 0x3d],
    ]
    .concat();
    let spec = [vec![0x10, 0x0f], field(3, &time), field(4, &[])].concat();
    let lease = decode(&body("coordination.k8s.io/v1", "Lease", &field(2, &spec)));
    let spec = lease.map(|l| at(&l, "/spec"));
    assert_eq!(
        spec,
        Ok(json!({
            "leaseDurationSeconds": 15,
            "acquireTime": "2025-07-09T06:15:28.001000Z",
        }))
    );
    // Pod.spec (2): overhead (32) is a map to quantities, volumes (1) have their source inlined.
    let quantity = [field(1, b"cpu"), field(2, &field(1, b"100m"))].concat();
    let overhead = [vec![0x82, 0x02, quantity.len() as u8], quantity].concat();
    let volume = [field(1, b"v"), field(2, &field(10, &field(1, b"c")))].concat();
    let spec = [field(1, &volume), overhead].concat();
    let pod = decode(&body("v1", "Pod", &field(2, &spec))).map(|p| at(&p, "/spec"));
    let spec = pod.unwrap_or_default();
    assert_eq!(at(&spec, "/overhead"), json!({"cpu": "100m"}));
    assert_eq!(at(&spec, "/volumes/0/name"), json!("v"));
    assert_eq!(
        at(&spec, "/volumes/0/persistentVolumeClaim/claimName"),
        json!("c")
    );
}

#[test]
fn what_cannot_be_read_is_refused_and_nothing_panics() {
    let good = bytes(DEPLOYMENT);
    for (body, expected) in [
        (b"{}".to_vec(), "the body does not begin with k8s\\0"),
        (
            body("v1", "Nonsense", &[]),
            "no kind \"Nonsense\" is known in version \"v1\"",
        ),
    ] {
        assert_eq!(
            decode(&body).map_err(|e| e.to_string()),
            Err(expected.to_owned())
        );
    }
    // The bytes after the message may be missing, but no byte of the message.
    let whole = decode(&good);
    for cut in 0..good.len() {
        let got = decode(good.get(..cut).unwrap_or(&[]));
        assert!(got.is_err() || got == whole, "cut at {cut}: {got:?}");
    }
    // Each byte is corrupted in turn: the result is an error or another object, never a panic.
    for i in 0..good.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bad = good.clone();
            if let Some(byte) = bad.get_mut(i) {
                *byte ^= flip;
            }
            let _ = decode(&bad);
        }
    }
}

/// The message of a pod whose spec (field 2) is this.
fn pod(spec: &[u8]) -> Vec<u8> {
    body("v1", "Pod", &field(2, spec))
}

#[test]
fn an_error_names_the_kind_and_the_field() {
    // PodSpec: containers is 2, nodeName 10, priority 25 (a varint). Container: name is 1.
    for (spec, expected) in [
        (
            vec![10 << 3, 1],
            "Pod.spec.nodeName: the wire type is not that of the field",
        ),
        (
            vec![10 << 3 | 2, 9, b'n'],
            "Pod.spec: the message is truncated or contains a wrong length",
        ),
        (
            vec![10 << 3 | 3],
            "Pod.spec: the message is truncated or contains a wrong length",
        ),
        // A length that does not fit into memory.
        (
            [vec![10 << 3 | 2], vec![0xff; 9], vec![1]].concat(),
            "Pod.spec: the message is truncated or contains a wrong length",
        ),
    ] {
        let error = decode(&pod(&spec)).map_err(|e| e.to_string());
        assert_eq!(error, Err(expected.to_owned()));
    }
}

/// Q-87a: API servers store texts that are not UTF-8, and JSON has U+FFFD for them.
#[test]
fn texts_that_are_not_utf_8_are_read() {
    // PodSpec: containers is 2, nodeSelector 7. Container: name is 1.
    let label = [field(1, b"a\xff"), field(2, b"\xfe")].concat();
    let spec = [field(2, &field(1, b"x\xffy")), field(7, &label)].concat();
    let spec = decode(&pod(&spec)).map(|pod| at(&pod, "/spec"));
    let expected = json!({
        "containers": [{"name": "x\u{fffd}y"}],
        "nodeSelector": {"a\u{fffd}": "\u{fffd}"},
    });
    assert_eq!(spec, Ok(expected));
}

/// Q-87a: API servers store every number of seconds.
#[test]
fn times_of_every_year_are_read_and_written() {
    // PodStatus: startTime is 7.
    for (seconds, text) in [
        (253_402_300_799, "9999-12-31T23:59:59Z"),
        (253_402_300_800, "10000-01-01T00:00:00Z"),
        (-62_135_596_801, "0000-12-31T23:59:59Z"),
        (i64::MAX, "292277026596-12-04T15:30:07Z"),
        (i64::MIN, "-292277022657-01-27T08:29:52Z"),
    ] {
        let mut time = Writer::default();
        time.varint(1, seconds);
        time.varint(2, 0);
        let message = field(3, &field(7, &time.into_bytes()));
        let object = decode(&body("v1", "Pod", &message)).expect("a pod");
        assert_eq!(at(&object, "/status/startTime"), json!(text));
        let again = encode_body(&object).expect("a body");
        assert_eq!(decode(&again), Ok(object), "{text}");
    }
}

/// Q-87b: a partly malformed message.
#[test]
fn the_parts_of_a_malformed_message_that_can_be_read_are() {
    // ObjectMeta: name is 1. PodSpec: containers is 2, nodeName 10, priority 25 (a varint).
    let metadata = field(1, &field(1, b"p"));
    let node = field(10, b"n");
    let broken = vec![10 << 3 | 2, 9, b'n'];
    let priority = [0xca, 0x01, 1, 7];
    for (message, expected, unread) in [
        (
            [metadata.clone(), field(2, &node)].concat(),
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}}),
            vec![],
        ),
        (
            [metadata.clone(), field(2, &[&node[..], &priority].concat())].concat(),
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}}),
            vec!["spec.priority"],
        ),
        (
            [field(1, &broken), field(2, &node)].concat(),
            json!({"metadata": {}, "spec": {"nodeName": "n"}}),
            vec!["metadata"],
        ),
        (
            [metadata.clone(), vec![2 << 3 | 2, 9, b'n']].concat(),
            json!({"metadata": {"name": "p"}}),
            vec![""],
        ),
    ] {
        let types = Types::get().of_kind("v1", "Pod").expect("pods");
        let (readable, faults) = Object::new(types, &message).readable();
        assert_eq!(readable, expected);
        let faults: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(faults, unread, "{expected}");
    }
}

#[test]
fn an_object_has_a_limited_number_of_values() {
    let container = field(2, b"");
    for (containers, is_decoded) in [(100_000, true), (VALUES_MAX as usize, false)] {
        let result = decode(&pod(&container.repeat(containers)));
        assert_eq!(result.is_ok(), is_decoded, "{containers}");
    }
}

#[test]
fn zeros_that_json_leaves_out_are_left_out() {
    // ObjectMeta: name is 1, generation 7, creationTimestamp 8. Container: name is 1, image 2, ports 6. ContainerPort:
    // containerPort is 3.
    let meta = [field(1, b""), vec![7 << 3, 0], field(8, b"")].concat();
    let port = field(6, &[3 << 3, 0]);
    let spec = field(2, &[field(1, b""), field(2, b""), port].concat());
    let message = [field(1, &meta), field(2, &spec)].concat();
    let pod = decode(&body("v1", "Pod", &message));
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {},
        "spec": {"containers": [{"name": "", "ports": [{"containerPort": 0}]}]},
    });
    assert_eq!(pod, Ok(expected));
}

/// Fields of newer versions are skipped, for any wire type.
#[test]
fn unknown_fields_are_skipped() {
    let unknown = [
        vec![0xf8, 0x3f, 7],
        [vec![0xf9, 0x3f], vec![0; 8]].concat(),
        vec![0xfa, 0x3f, 2, 1, 1],
        [vec![0xfd, 0x3f], vec![0; 4]].concat(),
    ];
    let spec = [unknown.concat(), field(10, b"n"), unknown.concat()].concat();
    let spec = decode(&pod(&spec)).map(|pod| at(&pod, "/spec"));
    assert_eq!(spec, Ok(json!({"nodeName": "n"})));
}

#[test]
fn bodies_that_are_written_can_be_read() {
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"namespace": "ns", "name": "p", "uid": "u", "annotations": {"a\"b": "\n"}, "managedFields": [
                {"manager": "m", "fieldsV1": {"f:target": {".": {}, "k:{\"name\":\"c\"}": {}}}},
            ]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
        }),
        json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": "u", "resourceVersion": "7"},
        }),
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "l", "labels": {"a": "b", "c": ""}},
            "spec": {
                "holderIdentity": "me", "leaseDurationSeconds": 15,
                "renewTime": "2026-01-02T03:04:06.000006Z", "leaseTransitions": 0,
            },
        }),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "b"},
            "spec": {"minAvailable": "50%", "maxUnavailable": 3},
            "status": {"currentHealthy": 0, "desiredHealthy": -1, "expectedPods": 2, "disruptionsAllowed": 1_u64 << 30,
                "disruptedPods": {"p": "2026-01-02T03:04:06Z"}},
        }),
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": {"user": "u", "extra": {"scopes": ["a", "b"]}}, "status": {"allowed": false},
        }),
    ];
    for object in objects {
        let body = encode_body(&object).expect("a known kind");
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let message = Types::get().of_kind(text("apiVersion"), text("kind"));
        let message = message.expect("a known kind");
        let of_text = encode_json(message, object.to_string().as_bytes()).ok();
        assert_eq!(of_text, Some(encode(message, &object)));
        assert_eq!(decode(&body), Ok(object));
    }
    assert_eq!(
        encode_body(&json!({"apiVersion": "example.com/v1", "kind": "Foo"})),
        None
    );
}

/// Kubernetes writes integers of repeated fields one by one, newer encoders pack them.
#[test]
fn repeated_integers_may_be_packed() {
    // PodSecurityContext (14 of PodSpec): supplementalGroups is 4.
    let packed = field(4, &[1, 0x80, 1]);
    let single = vec![4 << 3, 1, 4 << 3, 0x80, 1];
    for groups in [packed, single] {
        let spec = decode(&pod(&field(14, &groups))).map(|pod| at(&pod, "/spec"));
        let expected = json!({"securityContext": {"supplementalGroups": [1, 128]}});
        assert_eq!(spec, Ok(expected));
    }
}

/// Every field of every type has a number and a shape, and each number has one field.
#[test]
fn every_line_of_the_facts_is_understood() {
    let mut name = "";
    let mut seen = std::collections::BTreeMap::<&str, usize>::new();
    assert_eq!(Facts::get().faults, [""; 0]);
    let lines = TABLES.into_iter().flat_map(str::lines);
    let is_of_type = |line: &&str| !line.starts_with('#') && !line.starts_with("  sub ");
    for line in lines.filter(is_of_type) {
        match line.strip_prefix("type ") {
            Some(rest) => name = rest.split(' ').next().unwrap_or(rest),
            None if line.starts_with("  ") && !name.is_empty() => {
                // A field without a number is read from JSON only.
                let has_number = line.split_whitespace().nth(1) != Some("-");
                *seen.entry(name).or_default() += usize::from(has_number);
            }
            None => {}
        }
    }
    assert!(seen.len() > 300, "{}", seen.len());
    for (name, lines) in seen {
        let message = Types::get().of_type(name).expect(name);
        assert_eq!(message.fields().count(), lines, "{name}");
        assert_eq!(encode(message, &Value::Null), b"", "{name}");
    }
}

/// A message of these fields.
fn message(fields: &[&dyn Fn(&mut Writer)]) -> Vec<u8> {
    let mut writer = Writer::default();
    for field in fields {
        field(&mut writer);
    }
    writer.into_bytes()
}

#[test]
fn fields_may_be_in_any_order_and_apart() {
    let container = |name: &'static str, image: &'static str| {
        move |w: &mut Writer| {
            // The image is before the name.
            w.message(2, |w| {
                w.bytes(2, image.as_bytes());
                w.bytes(1, name.as_bytes());
            });
        }
    };
    let label = |key: &'static str, value: &'static str| {
        move |w: &mut Writer| {
            w.message(11, |w| {
                w.bytes(2, value.as_bytes());
                w.bytes(1, key.as_bytes());
            });
        }
    };
    let name = |name: &'static str| move |w: &mut Writer| w.bytes(1, name.as_bytes());
    let metadata = message(&[
        &label("a", "1"),
        &name("first"),
        &label("b", "2"),
        &name("last"),
        &label("c", "3"),
    ]);
    let spec = message(&[
        &container("one", "x"),
        &|w| w.bytes(3, b"Never"),
        &container("two", "y"),
        // Unknown.
        &|w| w.bytes(14_000, b"?"),
        &|w| w.bytes(3, b"Always"),
        &container("three", "z"),
    ]);
    let more_of_the_spec = message(&[&container("four", "w"), &|w| w.bytes(10, b"node")]);
    let pod = message(&[&|w| w.bytes(2, &spec), &|w| w.bytes(1, &metadata), &|w| {
        w.bytes(2, &more_of_the_spec)
    }]);
    let body = crate::envelope::seal("v1", "Pod", &pod);
    let decoded = Envelope::open(&body).and_then(|body| body.decode_any_order::<Value>());
    let pod = decoded.expect("a pod");
    assert_eq!(at(&pod, "/metadata/name"), json!("last"));
    assert_eq!(
        at(&pod, "/metadata/labels"),
        json!({"a": "1", "b": "2", "c": "3"})
    );
    let containers = at(&pod, "/spec/containers");
    let containers = containers.as_array().expect("a list");
    let names: Vec<_> = containers.iter().map(|c| c["name"].clone()).collect();
    assert_eq!(names, ["one", "two", "three", "four"]);
    let images: Vec<_> = containers.iter().map(|c| c["image"].clone()).collect();
    assert_eq!(images, ["x", "y", "z", "w"]);
    assert_eq!(at(&pod, "/spec/restartPolicy"), json!("Always"));
    assert_eq!(at(&pod, "/spec/nodeName"), json!("node"));
}

#[test]
fn messages_that_kubernetes_writes_are_read_as_they_are() {
    for (what, body) in [("deployment", DEPLOYMENT), ("service", SERVICE)] {
        let body = bytes(body);
        let envelope = Envelope::open(&body).expect(what);
        let any = envelope.decode_any_order::<Value>();
        assert_eq!(any, envelope.decode(), "{what}");
        let message = Types::get().of_kind(envelope.api_version, envelope.kind);
        let ordered = crate::order::canonical(message.expect(what), envelope.raw);
        assert!(
            matches!(ordered, Ok(std::borrow::Cow::Borrowed(_))),
            "{what}"
        );
    }
}

/// A schema of a custom resource has shapes that no other type has. The bytes are as Kubernetes writes them.
#[test]
fn schemas_have_numbers_json_and_alternatives() {
    let message = Types::get().of_type("apiextensions.v1.JSONSchemaProps");
    let message = message.expect("the type of schemas");
    let cases = [
        // 9: maximum, a double.
        (json!({"maximum": 5}), {
            let mut bytes = vec![9 << 3 | 1];
            bytes.extend(5f64.to_le_bytes());
            bytes
        }),
        // 8: default, JSON in field 1.
        (
            json!({"default": {"a": [1]}}),
            field(8, &field(1, br#"{"a":[1]}"#)),
        ),
    ];
    for (value, bytes) in cases {
        assert_eq!(encode(message, &value), bytes, "{value}");
        assert_eq!(crate::decode::<Value>(message, &bytes), Ok(value));
    }
    let integer = json!({"type": "integer"});
    for value in [
        json!({"items": integer}),
        json!({"items": [integer, {"type": "string"}]}),
        json!({"additionalProperties": true}),
        json!({"additionalProperties": false}),
        json!({"additionalProperties": {"maximum": 1.5, "enum": [1, "a", null]}}),
        json!({"dependencies": {"a": ["b", "c"], "d": integer}}),
        json!({"properties": {"p": {"properties": {"q": {"items": {"default": 0}}}}}}),
    ] {
        let bytes = encode(message, &value);
        assert_eq!(crate::decode::<Value>(message, &bytes), Ok(value));
    }
}

#[test]
fn a_field_of_an_inner_message_can_be_left_out() {
    let pod = |managed: bool| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "labels": {"b": "c"}, "generation": 3},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]},
        });
        if managed {
            let fields = json!({"f:spec": {"f:containers": {}}});
            pod["metadata"]["managedFields"] =
                json!([{"manager": "m", "operation": "Update", "fieldsV1": fields}]);
        }
        let message = Types::get().of_kind("v1", "Pod").unwrap();
        encode(message, &pod)
    };
    assert_ne!(pod(true), pod(false));
    assert_eq!(without_field(&pod(true), &[1, 17]).unwrap(), pod(false));
    assert_eq!(without_field(&pod(false), &[1, 17]).unwrap(), pod(false));
    let message = pod(true);
    for length in 0..message.len() {
        // A message that is cut anywhere is an error or a shorter message, never a panic.
        let _ = without_field(&message[..length], &[1, 17]);
    }
}

/// The fields of later releases that scheduling reads: encoded by their numbers, and read again.
#[test]
fn fields_of_later_releases_are_read() {
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{
                "name": "a",
                "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}, "compatibilityGroups": ["x", "y"]}],
                "nodeAllocatableResources": {"cpu": {
                    "mapping": {"capacityKey": "cores", "capacityMultiplier": "2"},
                    "overhead": {"perPod": "100m", "perContainer": "10m"}}},
            }],
            "skipNodeOperations": ["*"],
        },
    });
    let body = encode_body(&slice).expect("a known kind");
    let read = decode(&body).expect("a slice");
    for pointer in [
        "/spec/skipNodeOperations",
        "/spec/devices/0/consumesCounters/0/compatibilityGroups",
        "/spec/devices/0/nodeAllocatableResources",
    ] {
        assert_ne!(at(&read, pointer), Value::Null, "{pointer}");
        assert_eq!(at(&read, pointer), at(&slice, pointer), "{pointer}");
    }
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "spec": {"podPreemptionPolicy": {"disableResizePreemption": ["example.com/a"]}},
    });
    let read = decode(&encode_body(&node).expect("a known kind")).expect("a node");
    let pointer = "/spec/podPreemptionPolicy";
    assert_eq!(at(&read, pointer), at(&node, pointer));
}

/// The error of decoding a pod that has a name into a type that expects something else.
fn misfit<T: serde::de::DeserializeOwned + std::fmt::Debug>() -> String {
    let message = Types::get().of_kind("v1", "Pod").expect("a kind");
    let bytes = encode(message, &json!({"metadata": {"name": "a"}}));
    let decoded = crate::decode::<Only<T>>(message, &bytes);
    decoded.expect_err("another type").to_string()
}

/// A map whose values all have this type.
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
struct Only<T>(
    #[allow(dead_code, reason = "it is never decoded")] std::collections::BTreeMap<String, T>,
);

#[derive(Debug, serde::Deserialize)]
struct Nothing {}

#[test]
fn a_value_of_another_type_is_an_error_that_names_both() {
    for (error, expected) in [
        (misfit::<i64>(), "invalid type: map, expected i64"),
        (misfit::<String>(), "invalid type: map, expected a string"),
        (misfit::<bool>(), "invalid type: map, expected a boolean"),
        (
            misfit::<Vec<String>>(),
            "invalid type: map, expected a sequence",
        ),
        (
            misfit::<Only<Nothing>>(),
            "invalid type: string \"a\", expected struct Nothing",
        ),
        (
            misfit::<Only<Vec<String>>>(),
            "invalid type: string \"a\", expected a sequence",
        ),
        (
            misfit::<Only<i64>>(),
            "invalid type: string \"a\", expected i64",
        ),
    ] {
        assert!(error.contains(expected), "{error}: {expected}");
        assert!(error.starts_with("Pod.metadata"), "{error}");
    }
}
