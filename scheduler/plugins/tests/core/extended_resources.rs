//! Pods with extended resources that devices back, from the decision to the binding.

use crate::devices::{claim, using};
use crate::drivers::driver;
use berth_api::Kind;
use berth_framework::ApiCall;
use berth_framework::call::CallErrorKind;
use berth_framework::testing::{PodBuilder, node, pod};
use berth_framework::write::Action;
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// A pod that requests a GPU as an extended resource.
fn wants_gpu(name: &str) -> PodBuilder {
    pod(name).request("example.com/gpu", "1")
}

/// A cluster with devices that back `example.com/gpu`: one on each of these nodes.
fn world(nodes: &[&str]) -> Driver {
    let mut w = driver();
    let class =
        json!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}});
    w.object(Kind::DeviceClass, class);
    for name in nodes {
        w.node(node(name).capacity("8", "8Gi", "20"));
        let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
        let slice = json!({"metadata": {"name": name}, "spec": {
            "driver": "gpu.example.com", "pool": pool, "nodeName": name, "devices": [{"name": "gpu-0"}]}});
        w.object(Kind::ResourceSlice, slice);
    }
    w
}

/// The next write as text: object, action, and body.
fn next_write(w: &Driver) -> (String, Value) {
    let write = w.calls.iter().find_map(|(_, call)| match call {
        ApiCall::Write(write) => Some(write),
        _ => None,
    });
    let write = write.unwrap_or_else(|| panic!("no write: {:?}", w.calls));
    let (what, body) = match write.action() {
        Action::Create(body) => ("create", body.clone()),
        Action::Delete => ("delete", Value::Null),
        Action::Patch(body) | Action::StrategicPatch(body) => ("patch", body.clone()),
        other => panic!("{other:?}"),
    };
    let kind = write.object().kind.name();
    (format!("{what} {kind} {}", write.subresource()), body)
}

fn answer(w: &mut Driver, failure: Option<CallErrorKind>) -> (String, Value) {
    let write = next_write(w);
    w.answer_which(|call| matches!(call, ApiCall::Write(_)), failure, false);
    write
}

fn is_bound(w: &Driver) -> bool {
    let mut calls = w.calls.iter();
    calls.any(|(_, call)| matches!(call, ApiCall::BindPod { .. }))
}

/// Answers the creation and shows the claim. Returns it as the API has it.
fn create(w: &mut Driver) -> Value {
    let (what, mut claim) = answer(w, None);
    assert_eq!(what, "create ResourceClaim ");
    claim["metadata"]["uid"] = json!("uid-claim");
    w.object(Kind::ResourceClaim, claim.clone());
    claim
}

/// Answers all writes of a binding.
fn bind(w: &mut Driver) -> Value {
    let mut claim = create(w);
    let (what, body) = answer(w, None);
    assert_eq!(
        (what.as_str(), &body["metadata"]["finalizers"]),
        ("patch ResourceClaim ", &json!([FINALIZER]))
    );
    let (what, body) = answer(w, None);
    assert_eq!(what, "patch ResourceClaim status");
    claim["metadata"]["finalizers"] = json!([FINALIZER]);
    claim["status"] = body["status"].clone();
    w.object(Kind::ResourceClaim, claim.clone());
    let (what, body) = answer(w, None);
    assert_eq!(what, "patch Pod status");
    let name = &claim["metadata"]["name"];
    let mapping = json!({"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"});
    let expected = json!({"resourceClaimName": name, "requestMappings": [mapping]});
    assert_eq!(body["status"]["extendedResourceClaimStatus"], expected);
    claim
}

/// PL-170, PL-172: the claim is created, allocated and named in the pod's status before the pod is bound. From the
/// decision on, no other pod can have the device.
#[test]
fn a_claim_is_created_for_the_pod() {
    let mut w = world(&["n1"]);
    w.pod(wants_gpu("p"));
    assert_eq!(w.attempt_named(), "p on n1");
    w.pod(wants_gpu("q"));
    let tried = w.attempt_named();
    assert!(tried.contains("cannot allocate all claims"), "{tried}");
    let (_, body) = next_write(&w);
    assert_eq!(body["metadata"]["generateName"], "p-extended-resources-");
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "uid-p");
    let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    let request = json!({"name": "container-0-request-0", "exactly": exactly});
    assert_eq!(body["spec"]["devices"]["requests"], json!([request]));
    let claim = bind(&mut w);
    assert_eq!(claim["status"]["reservedFor"][0]["uid"], "uid-p");
    assert_eq!(
        claim["status"]["allocation"]["devices"]["results"][0]["device"],
        "gpu-0"
    );
    w.answer_which(
        |call| matches!(call, ApiCall::PatchPodStatus { .. }),
        None,
        false,
    );
    assert!(is_bound(&w), "{:?}", w.calls);
    assert_eq!(w.scheduler.cache().assumed_objects(), 0);
    // The claim is deleted with its devices: that helps the other pod.
    w.answer_all();
    w.object_gone(Kind::ResourceClaim, &claim);
    w.wait(10);
    assert_eq!(w.attempt_named(), "q on n1");
}

/// PL-172: whatever fails, the device is free again, and a claim that was created is deleted.
#[test]
fn a_failure_deletes_the_claim() {
    for (situation, answered, deletes) in [
        ("the creation is refused", 0, true),
        ("the finalizer is refused", 1, true),
        ("the allocation is refused", 2, true),
        ("the pod's status is refused", 3, true),
    ] {
        let mut w = world(&["n1"]);
        w.pod(wants_gpu("p"));
        w.attempt_named();
        w.pod(wants_gpu("q"));
        w.attempt_named();
        assert_eq!(w.place_of("q"), Some(QueuedIn::Unschedulable));
        let mut claim = json!(null);
        for done in 0..answered {
            if done == 0 {
                claim = create(&mut w);
            } else {
                answer(&mut w, None);
            }
        }
        answer(&mut w, Some(CallErrorKind::Refused));
        assert_eq!(w.place_of("p"), Some(QueuedIn::ErrorBackoff), "{situation}");
        let mut made = Vec::new();
        while w.calls.iter().any(|(_, c)| matches!(c, ApiCall::Write(_))) {
            made.push(answer(&mut w, None).0);
        }
        assert_eq!(
            made.contains(&"delete ResourceClaim ".to_owned()),
            deletes,
            "{situation}: {made:?}"
        );
        if claim != json!(null) {
            w.object_gone(Kind::ResourceClaim, &claim);
        }
        assert_eq!(w.scheduler.cache().assumed_objects(), 0, "{situation}");
        assert_ne!(
            w.place_of("q"),
            Some(QueuedIn::Unschedulable),
            "{situation}"
        );
        w.wait(10);
        let tried = w.attempts();
        assert!(
            tried.iter().any(|t| t.ends_with(" on n1")),
            "{situation}: {tried:?}"
        );
    }
}

/// PL-173: a claim of an earlier attempt is deleted, and the pod is tried again when it was deleted.
#[test]
fn a_claim_of_an_earlier_attempt_is_deleted() {
    let mut w = world(&["n1"]);
    let result =
        json!({"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"});
    let leftover = json!({
        "metadata": {"name": "p-extended-resources-x", "namespace": "default", "uid": "u",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": true}],
            "finalizers": [FINALIZER]},
        "status": {"allocation": {"devices": {"results": [result]}}},
    });
    w.object(Kind::ResourceClaim, leftover.clone());
    w.pod(wants_gpu("p"));
    assert_eq!(w.attempt_named(), "parked");
    let (_, body) = answer(&mut w, None);
    assert_eq!(
        body["metadata"]["$deleteFromPrimitiveList/finalizers"],
        json!([FINALIZER])
    );
    let (what, _) = answer(&mut w, None);
    assert_eq!(what, "delete ResourceClaim ");
    assert_eq!(w.place_of("p"), Some(QueuedIn::Unschedulable));
    w.object_gone(Kind::ResourceClaim, &leftover);
    w.wait(10);
    assert_eq!(w.attempt_named(), "p on n1");
}

/// PL-174: a DeviceClass that newly backs the resource wakes the pod.
#[test]
fn a_class_wakes_the_pod() {
    let mut w = world(&["n1"]);
    w.pod(pod("p").request("example.com/nic", "1"));
    let tried = w.attempt_named();
    assert!(tried.contains("Insufficient example.com/nic"), "{tried}");
    let class =
        json!({"metadata": {"name": "nic"}, "spec": {"extendedResourceName": "example.com/nic"}});
    w.object(Kind::DeviceClass, class);
    w.wait(10);
    assert_eq!(w.attempt_named(), "p on n1");
}

/// PL-174: of several classes that name a resource the newest provides it. When that one is deleted, another one does at
/// once, with every release, and the pods that wait for the resource are tried again.
#[test]
fn another_class_provides_the_resource_of_a_deleted_one() {
    let class = |name: &str, created: &str, expression: &str| {
        json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"extendedResourceName": "example.com/nic", "selectors": [{"cel": {"expression": expression}}]},
        })
    };
    let mut w = world(&["n1"]);
    let newer = class("newer", "2026-01-02T00:00:00Z", "false");
    w.object(
        Kind::DeviceClass,
        class("older", "2026-01-01T00:00:00Z", "true"),
    );
    w.object(Kind::DeviceClass, newer.clone());
    let mut large = claim("large");
    large["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(2);
    w.object(Kind::ResourceClaim, large);
    w.pod(pod("p").request("example.com/nic", "1"));
    w.attempt_named();
    // A pod that waits for devices of another class is not tried again.
    w.pod(using("q", &["large"]));
    w.attempt_named();
    for name in ["p", "q"] {
        assert_eq!(w.place_of(name), Some(QueuedIn::Unschedulable), "{name}");
    }
    w.object_gone(Kind::DeviceClass, &newer);
    w.wait(10);
    assert_eq!(w.attempts(), ["p on n1"]);
    assert_eq!(w.place_of("q"), Some(QueuedIn::Unschedulable));
}
