//! Bodies as kubectl 1.32 sent them, and bodies that nobody should send.

use super::*;

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
            "renewTime": null,
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
    assert_eq!(decode(b"{}").err(), Some(ProtobufError::Magic));
    assert!(matches!(
        decode(&body("v1", "Nonsense", &[])),
        Err(ProtobufError::UnknownKind { .. })
    ));
    // What follows the message may be missing, nothing of the message may.
    let whole = decode(&good);
    for cut in 0..good.len() {
        let got = decode(good.get(..cut).unwrap_or(&[]));
        assert!(got.is_err() || got == whole, "cut at {cut}: {got:?}");
    }
    // Every byte wrong in turn: an error or another object, but an answer.
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
