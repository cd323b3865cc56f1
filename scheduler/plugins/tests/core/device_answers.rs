//! Answers about nodes that are kept while devices are published, allocated and freed.

use crate::devices::{allocate, answer_write, claim, slice, using, with_status, world};
use berth_api::Kind;
use berth_framework::testing::{node, pod};
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

/// Answers about a node are kept until its devices change, though neither the node nor its pods do.
#[test]
fn a_change_of_devices_changes_kept_answers() {
    let mut w = world(&["n1"]);
    w.object(Kind::ResourceClaim, claim("mine"));
    w.object(Kind::ResourceClaim, claim("other"));
    w.pod(using("p", &["mine"]));
    w.attempt_named();
    allocate(&mut w, "mine");
    w.answer_all();
    w.pod(using("q", &["other"]));
    for (change, expected) in [
        ((Kind::ResourceSlice, slice("n1")), "cannot allocate"),
        (
            (Kind::ResourceClaim, with_status("mine", json!({}))),
            "q on n1",
        ),
    ] {
        let tried = w.attempt_named();
        assert!(tried.contains("cannot allocate"), "{tried}");
        w.answer_all();
        w.object(change.0, change.1);
        w.wait(10);
        if expected == "q on n1" {
            assert_eq!(w.attempt_named(), expected);
        }
    }
    let counts = w.scheduler.answer_cache().counts();
    assert!(counts.kept >= 3, "{counts:?}");
}

/// Adds a claim that was generated from a template for the pod of its name, and the pod. Returns the claim.
fn generated(w: &mut Driver, name: &str, requests: &Value) -> Value {
    let mut claim = claim(name);
    claim["spec"]["devices"]["requests"] = requests.clone();
    claim["metadata"]["ownerReferences"] =
        json!([{"kind": "Pod", "name": name, "uid": format!("uid-{name}"), "controller": true}]);
    w.object(Kind::ResourceClaim, claim.clone());
    w.pod(pod(name).with(|pod| {
        let entries = json!([{"name": "e", "resourceClaimTemplateName": "t"}]);
        pod.spec.resource_claims = serde_json::from_value(entries).expect("entries");
        let statuses = json!([{"name": "e", "resourceClaimName": name}]);
        pod.status.resource_claim_statuses = serde_json::from_value(statuses).expect("statuses");
    }));
    claim
}

/// Pods whose claims are generated from one template share the answers of nodes, whatever the claims request, also when
/// they take devices that all nodes can use.
#[test]
fn pods_of_one_template_share_kept_answers() {
    let gpus = |count: u8| json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count});
    let exactly = |request: Value| json!([{"name": "r", "exactly": request}]);
    let named = |mut request: Value, name: &str| {
        request["name"] = json!(name);
        request
    };
    let mut a100 = gpus(1);
    a100["selectors"] = json!([{"cel": {
        "expression": "device.attributes['gpu.example.com'].model == 'a100'"}}]);
    let list = json!([named(gpus(2), "two"), named(gpus(1), "one")]);
    let list = json!([{"name": "r", "firstAvailable": list}]);
    for (situation, requests, is_shared, expected) in [
        ("one device", exactly(gpus(1)), false, 2),
        ("a selector", exactly(a100), false, 2),
        ("a list", list, false, 2),
        ("a device of several nodes", exactly(gpus(1)), true, 2),
    ] {
        let mut w = world(&["n1", "n2", "n3"]);
        if is_shared {
            for (name, device) in [("n1", "x"), ("n2", "y"), ("n3", "z")] {
                let mut slice = slice(name);
                slice["spec"]["nodeName"] = Value::Null;
                slice["spec"]["allNodes"] = json!(true);
                slice["spec"]["devices"][0]["name"] = json!(device);
                w.object(Kind::ResourceSlice, slice);
            }
        }
        for name in ["p", "q"] {
            generated(&mut w, name, &requests);
            let tried = w.attempt_named();
            assert!(
                tried.starts_with(&format!("{name} on ")),
                "{situation}: {tried}"
            );
        }
        let counts = w.scheduler.answer_cache().counts();
        let got = (counts.kept, counts.plain, counts.group_answers);
        assert_eq!(got, (2, 0, expected), "{situation}");
    }
}

/// Devices that nodes share are given out one by one and run out for all nodes at once; one that is freed is available to all
/// again. Nodes have a device of their own as well, which only some pods select.
#[test]
fn devices_that_nodes_share_run_out_for_all() {
    let of_driver = |driver: &str| {
        let expression = format!("device.driver == '{driver}'");
        let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
            "selectors": [{"cel": {"expression": expression}}]});
        json!([{"name": "r", "exactly": exactly}])
    };
    let (nic, gpu) = (of_driver("nic.example.com"), of_driver("gpu.example.com"));
    let mut w = world(&["n1", "n2", "n3"]);
    w.node(node("n4").capacity("8", "8Gi", "20"));
    let devices: Vec<Value> = (0..3)
        .map(|n| json!({"name": format!("nic-{n}")}))
        .collect();
    let pool = json!({"name": "network", "generation": 1, "resourceSliceCount": 1});
    let spec =
        json!({"driver": "nic.example.com", "pool": pool, "allNodes": true, "devices": devices});
    w.object(
        Kind::ResourceSlice,
        json!({"metadata": {"name": "network"}, "spec": spec}),
    );
    let mut claims = Vec::new();
    for name in ["a", "b", "c"] {
        let mut claim = generated(&mut w, name, &nic);
        let tried = w.attempt_named();
        assert!(tried.starts_with(&format!("{name} on ")), "{tried}");
        answer_write(&mut w, None);
        claims.push(claim.clone());
        claim["status"] = answer_write(&mut w, None)["status"].clone();
        w.object(Kind::ResourceClaim, claim);
        w.answer_all();
    }
    generated(&mut w, "d", &nic);
    let tried = w.attempt_named();
    let why = "0/4 nodes are available: 4 cannot allocate all claims.";
    assert!(tried.contains(why), "{tried}");
    w.answer_all();
    // The devices of the nodes are still there.
    generated(&mut w, "own", &gpu);
    let tried = w.attempt_named();
    assert!(tried.starts_with("own on "), "{tried}");
    w.answer_all();
    w.object(Kind::ResourceClaim, claims[1].clone());
    w.wait(10);
    let tried = w.attempt_named();
    assert!(tried.starts_with("d on "), "{tried}");
    let counts = w.scheduler.answer_cache().counts();
    // Both groups of plugins evaluated all nodes once for each of the two kinds of pods, or shared their common
    // answers.
    assert_eq!((counts.plain, counts.group_answers), (0, 3), "{counts:?}");
}
