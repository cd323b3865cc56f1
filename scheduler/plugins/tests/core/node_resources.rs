//! Devices that take resources of their node, such as CPU (KEP-5517): PL-340 to PL-344.

use crate::drivers::driver_of;
use berth_api::pod::ContainerClaim;
use berth_api::{Kind, Release};
use berth_framework::call::CallErrorKind;
use berth_framework::testing::{PodBuilder, node, pod};
use berth_framework::write::Action;
use berth_framework::{ApiCall, Feature, FeatureGates};
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

fn gates(on: bool) -> FeatureGates {
    FeatureGates::of(Release::V1_38).with(Feature::DRANodeAllocatableResources, on)
}

/// A node with 20 CPUs and two devices: each takes 8 CPUs, and pods that use them need 1Gi, and 256Mi for each
/// container.
fn world(features: FeatureGates, memory: &str) -> Driver {
    let mut w = driver_of(features);
    w.object(Kind::DeviceClass, json!({"metadata": {"name": "ccx"}}));
    w.node(node("n").capacity("20", memory, "20"));
    let uses = json!({
        "cpu": {"mapping": {"deviceMultiplier": "8"}},
        "memory": {"overhead": {"perPod": "512Mi", "perContainer": "128Mi"}},
    });
    let devices: Vec<Value> = ["ccx-0", "ccx-1"]
        .iter()
        .map(|name| json!({"name": name, "nodeAllocatableResources": uses}))
        .collect();
    let pool = json!({"name": "n", "generation": 1, "resourceSliceCount": 1});
    w.object(
        Kind::ResourceSlice,
        json!({"metadata": {"name": "n"}, "spec": {
            "driver": "cpu.example.com", "pool": pool, "nodeName": "n", "devices": devices}}),
    );
    w
}

fn claim(name: &str, count: i64) -> Value {
    let exactly = json!({"deviceClassName": "ccx", "allocationMode": "ExactCount", "count": count});
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    })
}

/// A pod with one container for each amount of CPU, which all refer to the claim.
fn using(name: &str, claim: &str, cpus: &[&str]) -> PodBuilder {
    let entries = json!([{"name": "c", "resourceClaimName": claim}]);
    pod(name).request("cpu", cpus[0]).with(|pod| {
        pod.spec.resource_claims = serde_json::from_value(entries).expect("claims");
        for cpu in &cpus[1..] {
            let mut more = pod.spec.containers[0].clone();
            more.name = format!("c{}", pod.spec.containers.len()).into();
            let amount = cpu.parse().expect("a quantity");
            more.resources.requests.set("cpu".into(), amount);
            pod.spec.containers.push(more);
        }
        for container in &mut pod.spec.containers {
            container.resources.claims = vec![ContainerClaim { name: "c".into() }];
        }
    })
}

/// The body of the write of this kind that waits.
fn patch(w: &Driver, kind: Kind) -> Option<Value> {
    w.calls.iter().find_map(|(_, call)| match call {
        ApiCall::Write(write) if write.object().kind == kind => match write.action() {
            Action::Patch(body) | Action::StrategicPatch(body) => Some(body.clone()),
            _ => None,
        },
        _ => None,
    })
}

fn is_write_of(kind: Kind) -> impl Fn(&ApiCall) -> bool {
    move |call| matches!(call, ApiCall::Write(write) if write.object().kind == kind)
}

/// PL-340, PL-341: two devices use 16 CPUs, and 2 · 512Mi + 2 containers · 2 · 128Mi = 1.5Gi of memory. With the CPU of
/// the containers the pod counts as 17 CPUs, and a pod of 4 CPUs does not fit in addition.
#[test]
fn devices_count_on_their_node() {
    let mut w = world(gates(true), "2Gi");
    w.object(Kind::ResourceClaim, claim("both", 2));
    w.pod(using("p", "both", &["500m", "500m"]));
    assert_eq!(w.attempt_named(), "p on n");
    w.pod(pod("q").request("cpu", "4"));
    let text = w.attempt_named();
    assert!(text.contains("1 Insufficient cpu"), "{text}");
    w.pod(pod("r").request("cpu", "3").request("memory", "1Gi"));
    let text = w.attempt_named();
    assert!(text.contains("1 Insufficient memory"), "{text}");
    w.pod(pod("s").request("cpu", "3").request("memory", "512Mi"));
    assert_eq!(w.attempt_named(), "s on n");
    // The claim is written first, then the status of the pod.
    w.answer_which(is_write_of(Kind::ResourceClaim), None, false);
    let status = patch(&w, Kind::ResourceClaim).expect("an allocation")["status"].clone();
    w.answer_which(is_write_of(Kind::ResourceClaim), None, false);
    let mut allocated = claim("both", 2);
    allocated["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
    allocated["status"] = status;
    w.object(Kind::ResourceClaim, allocated);
    let written = patch(&w, Kind::Pod).expect("a status");
    assert_eq!(
        written["status"]["nodeAllocatableResourceClaimStatuses"],
        json!([{
            "resourceClaimName": "both",
            "containers": ["main", "c1"],
            "mapping": [{"name": "cpu", "quantity": "16"}],
            "overhead": [{"name": "memory", "perPod": "1Gi", "perContainer": "256Mi"}],
        }])
    );
}

/// PL-341: a pod is tried again if the resources used by its devices cannot be written to its status.
#[test]
fn a_pod_whose_status_cannot_be_written_is_tried_again() {
    for kind in [CallErrorKind::Refused, CallErrorKind::Conflict] {
        let mut w = world(gates(true), "2Gi");
        w.object(Kind::ResourceClaim, claim("both", 2));
        w.pod(using("p", "both", &["500m"]));
        assert_eq!(w.attempt_named(), "p on n");
        w.answer_which(is_write_of(Kind::ResourceClaim), None, false);
        w.answer_which(is_write_of(Kind::ResourceClaim), None, false);
        while w.calls.iter().any(|(_, call)| is_write_of(Kind::Pod)(call)) {
            w.answer_which(is_write_of(Kind::Pod), Some(kind), false);
            w.wait(10);
        }
        let why = "update pod default/p NodeAllocatableResourceClaimStatuses";
        let events = w.take_events();
        assert!(
            events.iter().any(|text| text.contains(why)),
            "{kind:?}: {events:?}"
        );
    }
}

/// PL-342: the resources missing on the node, and whether they are missing on the empty node as well.
#[test]
fn a_node_needs_room_for_what_devices_take() {
    for (name, cpus, claims, memory, expected) in [
        ("it fits", ["1", "1"], 2, "2Gi", None),
        (
            "too much CPU",
            ["3", "2"],
            2,
            "2Gi",
            Some("Insufficient cpu"),
        ),
        (
            "too little memory",
            ["1", "1"],
            1,
            "512Mi",
            Some("Insufficient memory"),
        ),
    ] {
        let mut w = world(gates(true), memory);
        w.object(Kind::ResourceClaim, claim("c", claims));
        w.pod(using("p", "c", &cpus));
        let text = w.attempt_named();
        match expected {
            None => assert_eq!(text, "p on n", "{name}"),
            Some(reason) => assert!(text.contains(reason), "{name}: {text}"),
        }
    }
    // With the gate off, such devices are not allocated.
    let mut w = world(gates(false), "2Gi");
    w.object(Kind::ResourceClaim, claim("c", 1));
    w.pod(using("p", "c", &["1"]));
    let text = w.attempt_named();
    assert!(
        text.contains("feature gate DRANodeAllocatableResources is disabled"),
        "{text}"
    );
}

/// PL-343: the request of the pod as a whole covers its containers and its devices.
#[test]
fn pod_level_requests_cover_the_devices() {
    for (request, fits) in [("16", false), ("17", true)] {
        let mut w = world(gates(true), "2Gi");
        w.object(Kind::ResourceClaim, claim("c", 2));
        let whole = json!({"requests": {"cpu": request}});
        w.pod(using("p", "c", &["500m", "500m"]).with(|pod| {
            pod.spec.resources = serde_json::from_value(whole).expect("resources");
        }));
        let text = w.attempt_named();
        let why = "pod level request for cpu is insufficient to cover the aggregated container and node-allocatable DRA requests";
        assert_eq!(text.contains(why), !fits, "{request}: {text}");
        assert_eq!(text == "p on n", fits, "{request}: {text}");
    }
}

/// PL-344: a claim with a mapped device serves one pod.
#[test]
fn a_claim_with_a_mapped_device_is_not_shared() {
    let mut w = world(gates(true), "4Gi");
    let mut shared = claim("c", 1);
    shared["status"] = json!({
        "allocation": {"devices": {"results": [
            {"request": "r", "driver": "cpu.example.com", "pool": "n", "device": "ccx-0"}]}},
        "reservedFor": [{"resource": "pods", "name": "other", "uid": "uid-other"}],
    });
    w.object(Kind::ResourceClaim, shared);
    w.pod(using("p", "c", &["1"]));
    let text = w.attempt_named();
    let why =
        "node allocatable resource claim c has a mapped device and cannot be shared across pods";
    assert!(text.contains(why), "{text}");
}
