//! Pods with resource claims from the decision to the binding: devices are allocated, written, shared and freed.

use crate::drivers::{driver, driver_of};
use berth_api::Kind;
use berth_framework::call::CallErrorKind;
use berth_framework::testing::{PodBuilder, node, pod};
use berth_framework::write::Action;
use berth_framework::{ApiCall, Feature, FeatureGates};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

pub(crate) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// A pod that uses these claims.
pub(crate) fn using(name: &str, claims: &[&str]) -> PodBuilder {
    let entries = claims
        .iter()
        .map(|c| json!({"name": c, "resourceClaimName": c}));
    let entries = Value::Array(entries.collect());
    pod(name).with(|pod| {
        pod.spec.resource_claims = serde_json::from_value(entries).expect("claims");
    })
}

/// A claim for one device.
pub(crate) fn claim(name: &str) -> Value {
    let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    })
}

/// The claim as the API has it once a status was written.
pub(crate) fn with_status(name: &str, status: Value) -> Value {
    let mut claim = claim(name);
    claim["metadata"]["finalizers"] = json!([FINALIZER]);
    claim["status"] = status;
    claim
}

/// A world with these nodes, each with one device.
pub(crate) fn world(nodes: &[&str]) -> Driver {
    world_with(FeatureGates::default(), nodes)
}

pub(crate) fn world_with(features: FeatureGates, nodes: &[&str]) -> Driver {
    let mut w = driver_of(features);
    w.object(Kind::DeviceClass, json!({"metadata": {"name": "gpu"}}));
    for name in nodes {
        w.node(node(name).capacity("8", "8Gi", "20"));
        w.object(Kind::ResourceSlice, slice(name));
    }
    w
}

pub(crate) fn slice(node: &str) -> Value {
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let device = json!({"name": "gpu-0", "attributes": {"model": {"string": "a100"}}});
    json!({"metadata": {"name": node}, "spec": {
        "driver": "gpu.example.com", "pool": pool, "nodeName": node, "devices": [device]}})
}

pub(crate) fn is_claim_write(call: &ApiCall) -> bool {
    matches!(call, ApiCall::Write(write) if write.object().kind == Kind::ResourceClaim)
}

/// The writes to claims that wait for an answer: the claim, the subresource and the body.
pub(crate) fn writes(w: &Driver) -> Vec<(String, &'static str, Value)> {
    let writes = w.calls.iter().filter_map(|(_, call)| match call {
        ApiCall::Write(write) if is_claim_write(call) => Some(write),
        _ => None,
    });
    writes
        .map(|write| {
            let body = match write.action() {
                Action::Patch(body) | Action::StrategicPatch(body) => body.clone(),
                other => panic!("{other:?}"),
            };
            (write.object().name.to_string(), write.subresource(), body)
        })
        .collect()
}

/// Answers the only write to a claim.
pub(crate) fn answer_write(w: &mut Driver, failure: Option<CallErrorKind>) -> Value {
    let written = writes(w);
    let [(_, _, body)] = &written[..] else {
        panic!("{written:?}");
    };
    let body = body.clone();
    w.answer_which(is_claim_write, failure, false);
    body
}

/// Answers the finalizer and the allocation of a claim, and shows the claim. Returns its status.
pub(crate) fn allocate(w: &mut Driver, name: &str) -> Value {
    let body = answer_write(w, None);
    assert_eq!(body, json!({"metadata": {"finalizers": [FINALIZER]}}));
    let status = answer_write(w, None)["status"].clone();
    w.object(Kind::ResourceClaim, with_status(name, status.clone()));
    status
}

/// Answers the writes to the status of pods, which precede their bindings.
pub(crate) fn answer_statuses(w: &mut Driver) {
    let is_status = |call: &ApiCall| matches!(call, ApiCall::PatchPodStatus { .. });
    while w.calls.iter().any(|(_, call)| is_status(call)) {
        w.answer_which(is_status, None, false);
    }
}

pub(crate) fn bindings(w: &Driver) -> Vec<String> {
    let calls = w.calls.iter().filter_map(|(_, call)| match call {
        ApiCall::BindPod { pod, node } => Some(format!("{} on {node}", pod.name)),
        _ => None,
    });
    calls.collect()
}

/// PL-160: finalizer, then allocation and reservation in one write, then the binding. From the decision on, no
/// other pod can have the device.
#[test]
fn a_pod_is_bound_when_its_claim_has_devices() {
    let mut w = world(&["n1"]);
    w.object(Kind::ResourceClaim, claim("mine"));
    w.object(Kind::ResourceClaim, claim("other"));
    w.pod(using("p", &["mine"]));
    assert_eq!(w.attempt_named(), "p on n1");
    assert_eq!(bindings(&w), [""; 0]);
    w.pod(using("q", &["other"]));
    let rejected = "q: 0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, \
                    preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(w.attempt_named(), rejected);
    let status = allocate(&mut w, "mine");
    assert_eq!(
        status["reservedFor"],
        json!([{"resource": "pods", "name": "p", "uid": "uid-p"}])
    );
    let result =
        json!({"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"});
    assert_eq!(status["allocation"]["devices"]["results"], json!([result]));
    assert_eq!(
        status["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"],
        json!(["n1"])
    );
    answer_statuses(&mut w);
    assert_eq!(bindings(&w), ["p on n1"]);
    assert_eq!(
        w.scheduler.cache().assumed_objects(),
        0,
        "the API shows it now"
    );
    w.answer_all();
    // The pod was deleted and its claim is freed: that helps the other one.
    w.object(Kind::ResourceClaim, with_status("mine", json!({})));
    assert_ne!(w.place_of("q"), Some(QueuedIn::Unschedulable));
    w.wait(10);
    assert_eq!(w.attempt_named(), "q on n1");
}

/// PL-157, PL-160: a claim that is being allocated keeps other pods that use it waiting; then they join its users.
#[test]
fn pods_share_a_claim() {
    let mut w = world(&["n1", "n2"]);
    w.object(Kind::ResourceClaim, claim("shared"));
    w.pod(using("p", &["shared"]));
    let first = w.attempt_named();
    let on = first.strip_prefix("p on ").expect("it fits").to_owned();
    w.pod(using("q", &["shared"]));
    let tried = w.attempt_named();
    let why = "resource claim default/shared is in the process of being allocated";
    assert!(tried.contains(why), "{tried}");
    allocate(&mut w, "shared");
    w.answer_all();
    w.wait(10);
    assert_eq!(w.attempt_named(), format!("q on {on}"));
    let body = answer_write(&mut w, None);
    let reserved = json!([{"resource": "pods", "name": "q", "uid": "uid-q"}]);
    assert_eq!(body, json!({"status": {"reservedFor": reserved}}));
    answer_statuses(&mut w);
    assert_eq!(bindings(&w), [format!("q on {on}")]);
}

/// PL-163: devices that no node can use are freed, if no other pod uses the claim.
#[test]
fn a_claim_with_devices_of_a_lost_node_is_freed() {
    let lost = |reserved: Value| {
        let only = json!({"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["lost"]}]}]});
        let result =
            json!({"request": "r", "driver": "gpu.example.com", "pool": "lost", "device": "gpu-0"});
        let allocation = json!({"devices": {"results": [result]}, "nodeSelector": only});
        with_status(
            "mine",
            json!({"allocation": allocation, "reservedFor": reserved}),
        )
    };
    for (situation, reserved) in [
        ("unused", json!([])),
        (
            "reserved for the pod",
            json!([{"resource": "pods", "name": "p", "uid": "uid-p"}]),
        ),
    ] {
        let mut w = world(&["n1"]);
        w.object(Kind::ResourceClaim, lost(reserved));
        w.pod(using("p", &["mine"]));
        assert_eq!(w.attempt_named(), "parked", "{situation}");
        let body = answer_write(&mut w, None);
        let freed = json!({"status": {"allocation": null, "reservedFor": null, "devices": null}});
        assert_eq!(body, freed, "{situation}");
        w.object(Kind::ResourceClaim, with_status("mine", json!({})));
        w.wait(10);
        assert_eq!(w.attempt_named(), "p on n1", "{situation}");
    }
    // A call that fails is no reason to wait for an event that never happens.
    let mut w = world(&["n1"]);
    w.object(Kind::ResourceClaim, lost(json!([])));
    w.pod(using("p", &["mine"]));
    assert_eq!(w.attempt_named(), "parked");
    answer_write(&mut w, Some(CallErrorKind::Refused));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Backoff), "the call fails");
    assert_eq!(w.scheduler.cache().assumed_objects(), 0);
    let mut w = world(&["n1"]);
    let other = json!([{"resource": "pods", "name": "other", "uid": "other"}]);
    w.object(Kind::ResourceClaim, lost(other));
    w.pod(using("p", &["mine"]));
    let tried = w.attempt_named();
    assert!(tried.contains("still not schedulable"), "{tried}");
}

/// PL-163: the devices of a claim are kept where the pod could not be scheduled without them either.
#[test]
fn a_claim_is_kept_when_freeing_it_does_not_help() {
    // Devices of node a; node b has none.
    let only_a = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["a"]}]}]});
    let result =
        json!({"request": "r", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"});
    let allocation = json!({"devices": {"results": [result]}, "nodeSelector": only_a});
    let has = with_status("has", json!({"allocation": allocation}));
    let nic = |name: &str, count: u64| {
        let mut claim = claim(name);
        claim["spec"]["devices"]["requests"][0]["exactly"] =
            json!({"deviceClassName": "nic", "allocationMode": "ExactCount", "count": count});
        claim
    };
    let helpless =
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    let kept = "2 cannot allocate all claims. still not schedulable";
    for (situation, other, nics, cpu, expected) in [
        (
            "no node has the other device",
            nic("wants", 1),
            None,
            "1",
            Some(kept),
        ),
        (
            "no node has enough of the other devices",
            nic("wants", 2),
            Some("b"),
            "1",
            Some(kept),
        ),
        (
            "the node without the claim's devices is too small",
            nic("wants", 1),
            Some("b"),
            "16",
            Some("2 Insufficient cpu. still not schedulable"),
        ),
        (
            "another node has the other device",
            nic("wants", 1),
            Some("b"),
            "1",
            None,
        ),
    ] {
        let mut w = world(&["a"]);
        w.node(node("b").capacity("8", "8Gi", "20"));
        let selector = json!([{"cel": {"expression": "device.driver == \"nic.example.com\""}}]);
        let class = json!({"metadata": {"name": "nic"}, "spec": {"selectors": selector}});
        w.object(Kind::DeviceClass, class);
        if let Some(name) = nics {
            let mut slice = slice(name);
            slice["metadata"]["name"] = json!("nics");
            slice["spec"]["driver"] = json!("nic.example.com");
            w.object(Kind::ResourceSlice, slice);
        }
        w.object(Kind::ResourceClaim, has.clone());
        w.object(Kind::ResourceClaim, other);
        w.pod(using("p", &["has", "wants"]).request("cpu", cpu));
        let tried = w.attempt_named();
        match expected {
            Some(why) => {
                assert_eq!(
                    tried,
                    format!("p: 0/2 nodes are available: {why}, {helpless}"),
                    "{situation}"
                );
                assert_eq!(writes(&w), [], "{situation}");
            }
            None => assert_eq!((&*tried, writes(&w).len()), ("parked", 1), "{situation}"),
        }
    }
}

/// KEP-6132: pods are scheduled by events alone when the driver publishes its devices last.
#[test]
fn devices_that_come_last_wake_the_pods() {
    let mut w = world(&[]);
    for n in ["n1", "n2"] {
        w.node(node(n).capacity("8", "8Gi", "20"));
    }
    for (pod, claim_name) in [("p", "a"), ("q", "b")] {
        w.object(Kind::ResourceClaim, claim(claim_name));
        w.pod(using(pod, &[claim_name]));
    }
    for tried in w.attempts() {
        assert!(tried.contains("cannot allocate all claims"), "{tried}");
    }
    w.answer_all();
    w.wait(1);
    w.object(Kind::ResourceSlice, slice("n1"));
    w.object(Kind::ResourceSlice, slice("n2"));
    w.wait(10);
    let mut placed = w.attempts();
    placed.sort();
    let nodes: Vec<&str> = placed
        .iter()
        .filter_map(|p| p.split(" on ").nth(1))
        .collect();
    assert_eq!(nodes.len(), 2, "{placed:?}");
    assert_ne!(nodes[0], nodes[1], "each has its own device");
}

/// PL-176: the API server takes 256 consumers of a claim. One more is not tried; it is when one of them ends.
#[test]
fn a_claim_has_so_many_consumers() {
    let consumers = |count: usize| {
        let all = (0..count)
            .map(|i| json!({"resource": "pods", "name": format!("c{i}"), "uid": format!("c{i}")}));
        let result =
            json!({"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"});
        let allocation = json!({"devices": {"results": [result]}});
        let reserved: Vec<Value> = all.collect();
        with_status(
            "shared",
            json!({"allocation": allocation, "reservedFor": reserved}),
        )
    };
    let mut w = world(&["n1"]);
    w.object(Kind::ResourceClaim, consumers(256));
    w.pod(using("p", &["shared"]));
    let tried = w.attempt_named();
    assert!(tried.contains("resourceclaim in use"), "{tried}");
    w.answer_all();
    w.object(Kind::ResourceClaim, consumers(255));
    w.wait(10);
    assert_eq!(w.attempt_named(), "p on n1");
    // A pod that is one of the 256 is not affected.
    let mut w = world(&["n1"]);
    w.object(Kind::ResourceClaim, consumers(256));
    w.pod(using("c7", &["shared"]).with(|pod| pod.metadata.uid = "c7".into()));
    assert_eq!(w.attempt_named(), "c7 on n1");
}

/// A selector that an API server accepted and that would run for seconds: the evaluation ends at its cost limit, the
/// status of the pod names the claim and the limit, and a claim with a cheap selector is allocated in the meantime.
#[test]
fn a_selector_that_is_too_expensive_is_stopped() {
    let items: Vec<String> = (0..20).map(|i| i.to_string()).collect();
    let items = format!("[{}]", items.join(","));
    let loops: Vec<String> = (0..6).map(|i| format!("{items}.all(v{i}, ")).collect();
    let expression = format!("{}v0 + v5 >= 0{}", loops.concat(), ")".repeat(loops.len()));
    let mut slow = claim("slow");
    slow["spec"]["devices"]["requests"][0]["exactly"]["selectors"] =
        json!([{"cel": {"expression": expression}}]);
    let mut w = world(&["n1"]);
    w.object(Kind::ResourceClaim, slow);
    w.object(Kind::ResourceClaim, claim("cheap"));
    w.pod(using("p", &["slow"]));
    let message = "claim default/slow: selector #0: CEL runtime error: operation cancelled: actual cost limit exceeded";
    let tried = w.attempt_named();
    assert!(tried.contains(message), "{tried}");
    let reported = w.calls.iter().any(|(_, call)| {
        matches!(call, ApiCall::PatchPodStatus { .. }) && format!("{call:?}").contains(message)
    });
    assert!(reported, "the status of the pod contains the message");
    w.pod(using("q", &["cheap"]));
    assert_eq!(w.attempt_named(), "q on n1");
}

/// A slice whose device has to report that it is attached before the pod is bound.
fn slice_with_conditions(node: &str) -> Value {
    let mut slice = slice(node);
    let device = &mut slice["spec"]["devices"][0];
    device["bindingConditions"] = json!(["Attached"]);
    device["bindingFailureConditions"] = json!(["Broken"]);
    slice
}

/// The allocated claim with this condition of its device.
fn reporting(mut claim: Value, condition: &str) -> Value {
    let condition = json!({"type": condition, "status": "True", "reason": "R", "message": "m"});
    claim["status"]["devices"] = json!([{
        "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0", "conditions": [condition]}]);
    claim
}

/// PL-164: PreBind waits until the device reports its conditions. A failure or the time-out fails the attempt; the next
/// one frees the devices.
#[test]
fn a_binding_waits_for_its_devices() {
    for (situation, reported, seconds, expected) in [
        ("ready at once", Some("Attached"), 0, Ok(())),
        ("ready late", Some("Attached"), 599, Ok(())),
        ("another condition", Some("Other"), 1, Err("")),
        (
            "broken",
            Some("Broken"),
            1,
            Err("device binding failed: claim=mine, reason=R, message=\"m\""),
        ),
        (
            "nothing in time",
            None,
            601,
            Err("device binding timeout: claim=mine"),
        ),
    ] {
        let mut w = driver();
        w.object(Kind::DeviceClass, json!({"metadata": {"name": "gpu"}}));
        w.node(node("n1").capacity("8", "8Gi", "20"));
        w.object(Kind::ResourceSlice, slice_with_conditions("n1"));
        w.object(Kind::ResourceClaim, claim("mine"));
        w.pod(using("p", &["mine"]));
        assert_eq!(w.attempt_named(), "p on n1", "{situation}");
        let status = allocate(&mut w, "mine");
        answer_statuses(&mut w);
        let allocated = with_status("mine", status);
        assert!(allocated["status"]["allocation"]["allocationTimestamp"].is_string());
        assert_eq!(bindings(&w), [""; 0], "{situation}");
        let waits = "BindingConditionsPending waiting for binding conditions for device on node n1";
        let events = w.take_events();
        assert!(events.iter().any(|e| e == waits), "{events:?}");
        w.wait(seconds);
        if let Some(condition) = reported {
            w.object(Kind::ResourceClaim, reporting(allocated, condition));
        }
        let (is_bound, why) = match expected {
            Ok(()) => (true, ""),
            Err(why) => (false, why),
        };
        answer_statuses(&mut w);
        assert_eq!(bindings(&w).len() == 1, is_bound, "{situation}");
        if is_bound || why.is_empty() {
            continue;
        }
        assert_eq!(w.place_of("p"), Some(QueuedIn::ErrorBackoff), "{situation}");
        let events = w.take_events();
        let is_reported = events.iter().any(|event| event.contains(why));
        assert!(is_reported, "{situation}: {events:?}");
        w.answer_all();
        w.wait(10);
        // The devices are of no use any more: they are freed.
        assert_eq!(w.attempt_named(), "parked", "{situation}");
        let body = answer_write(&mut w, None);
        let freed = json!({"status": {"allocation": null, "reservedFor": null, "devices": null}});
        assert_eq!(body, freed, "{situation}");
    }
}

/// PL-318, PL-319: a slice whose devices skip operations of the kubelet. Without the gate, and on a node that does not
/// declare the feature, the reasons of the node state why no device is used. With both, the allocation names the
/// skipped operations.
#[test]
fn devices_that_skip_node_operations_are_explained_or_allocated() {
    let gate = Feature::DRAOptionalNodeOperations;
    for (on, declares, expected) in [
        (
            false,
            true,
            Some("feature gate DRAOptionalNodeOperations is disabled"),
        ),
        (
            true,
            false,
            Some("the node does not declare the feature DRAOptionalNodeOperations"),
        ),
        (true, true, None),
    ] {
        let features = FeatureGates::of(berth_api::Release::V1_37).with(gate, on);
        let mut w = world_with(features, &[]);
        let declared: Vec<_> = declares.then(|| gate.name().into()).into_iter().collect();
        w.node(
            node("n1")
                .capacity("8", "8Gi", "20")
                .with(|node| node.status.declared_features = declared),
        );
        let mut virtual_devices = slice("n1");
        virtual_devices["spec"]["skipNodeOperations"] = json!(["*"]);
        w.object(Kind::ResourceSlice, virtual_devices);
        w.object(Kind::ResourceClaim, claim("c"));
        w.pod(using("p", &["c"]));
        let result = w.attempt();
        let Some(why) = expected else {
            assert_eq!(result, "on n1");
            let status = allocate(&mut w, "c");
            let allocated = &status["allocation"]["devices"]["results"][0];
            assert_eq!(allocated["skipNodeOperations"], json!(["*"]));
            continue;
        };
        for reason in [
            "1 cannot allocate all claims".to_owned(),
            format!("1 devices with skipNodeOperations are not allocated: {why}"),
        ] {
            assert!(result.contains(&reason), "{result}");
        }
    }
}

/// PL-166: a pool that is being updated fails the attempt of a claim for all devices. Since 1.38, only its node is
/// rejected.
#[test]
fn an_incomplete_pool_concerns_its_node_since_1_38() {
    let why =
        "asks for all devices, but resource pool gpu.example.com/n1 is currently being updated";
    for release in berth_api::Release::ALL {
        let mut w = world_with(FeatureGates::of(release), &["n1", "n2"]);
        let mut incomplete = slice("n1");
        incomplete["spec"]["pool"]["resourceSliceCount"] = json!(2);
        w.object(Kind::ResourceSlice, incomplete);
        let mut all = claim("all");
        let exactly = json!({"deviceClassName": "gpu", "allocationMode": "All"});
        all["spec"]["devices"]["requests"][0]["exactly"] = exactly;
        w.object(Kind::ResourceClaim, all);
        w.pod(using("p", &["all"]));
        let text = w.attempt_named();
        match release {
            berth_api::Release::V1_38 => assert_eq!(text, "p on n2"),
            _ => assert!(text.contains(why), "{release}: {text}"),
        }
    }
}
