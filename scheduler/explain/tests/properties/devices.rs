//! Explanations of devices: random nodes, devices and claims, with the scheduler as the judge.

use crate::objects::{Objects, explain};
use crate::seeds;
use berth_api::{Kind, Object, Pod, ResourceClaim};
use berth_explain::{QueueFacts, Snapshot, explain_node, explain_queue, text};
use berth_framework::testing::{node, pod};
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn decoded(kind: Kind, json: &Value) -> Object {
    let decoded = kind.decode(json.to_string().as_bytes());
    decoded.unwrap_or_else(|e| panic!("{e}: {json}"))
}

fn class(name: &str, driver: &str) -> Object {
    let expression = format!("device.driver == {driver:?}");
    let selectors = json!([{"cel": {"expression": expression}}]);
    let class = json!({"metadata": {"name": name}, "spec": {"selectors": selectors}});
    decoded(Kind::DeviceClass, &class)
}

fn slice(node: &str, driver: &str, devices: &[Value]) -> Object {
    let slice = json!({
        "metadata": {"name": format!("{node}-{driver}"), "uid": format!("{node}-{driver}")},
        "spec": {
            "driver": driver, "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        },
    });
    decoded(Kind::ResourceSlice, &slice)
}

fn device(name: &str, model: &str, numa: i64, is_tainted: bool) -> Value {
    let taints = if is_tainted {
        json!([{"key": "broken", "value": "fan", "effect": "NoSchedule"}])
    } else {
        json!([])
    };
    json!({"name": name, "attributes": {"model": {"string": model}, "numa": {"int": numa}}, "taints": taints})
}

fn claim(name: &str, spec: &Value, status: &Value) -> Object {
    let claim = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec, "status": status,
    });
    decoded(Kind::ResourceClaim, &claim)
}

/// A pod on a node with a claim that has a device.
fn holder(
    objects: &mut Objects,
    name: &str,
    node: &str,
    driver: &str,
    device: &str,
    priority: i32,
) {
    let fields = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let allocation = json!({
        "devices": {"results": [{"request": "r", "driver": driver, "pool": node, "device": device}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [fields]}]},
    });
    let spec = json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": driver, "count": 1}}]}});
    let users = json!([{"resource": "pods", "name": name, "uid": name}]);
    objects.set(claim(
        name,
        &spec,
        &json!({"allocation": allocation, "reservedFor": users}),
    ));
    let uses = with_claim(name);
    let made = pod(name).on(node).priority(priority).phase("Running");
    objects.set(
        made.with(|pod| {
            pod.metadata.uid = name.into();
            pod.spec.resource_claims = uses.spec.resource_claims.clone();
        })
        .object(),
    );
}

fn with_claim(name: &str) -> Pod {
    let spec =
        json!({"spec": {"resourceClaims": [{"name": "devices", "resourceClaimName": name}]}});
    serde_json::from_value(spec).expect("a pod")
}

/// The waiting pod, with a claim.
fn wanting(objects: &mut Objects, spec: &Value) {
    objects.set(claim("wanted", spec, &json!({})));
    let uses = with_claim("wanted");
    let made = pod("p").priority(1);
    let made = made.with(|pod| pod.spec.resource_claims = uses.spec.resource_claims.clone());
    objects.set(made.object());
}

fn random(rng: &mut Rng) -> Objects {
    let mut objects = Objects::default();
    objects.set(class("gpu", "gpu"));
    objects.set(class("nic", "nic"));
    let mut holders = 0;
    for at in 0..rng.usize(1..=3) {
        let name = format!("n{at}");
        objects.set(
            node(&name)
                .capacity("4", "4Gi", "20")
                .label("kubernetes.io/hostname", &name)
                .object(),
        );
        for (driver, max) in [("gpu", 4), ("nic", 2)] {
            let devices: Vec<Value> = (0..rng.usize(0..=max))
                .map(|at| {
                    let model = ["a", "b"][rng.usize(..2)];
                    device(
                        &format!("{driver}{at}"),
                        model,
                        rng.i64(0..2),
                        rng.usize(..5) == 0,
                    )
                })
                .collect();
            for device in &devices {
                if rng.usize(..3) == 0 {
                    holders += 1;
                    let device = device["name"].as_str().expect("a name");
                    let holder_name = format!("h{holders}");
                    let priority = rng.i32(0..3);
                    holder(&mut objects, &holder_name, &name, driver, device, priority);
                }
            }
            if !devices.is_empty() {
                objects.set(slice(&name, driver, &devices));
            }
        }
    }
    let selectors = if rng.bool() {
        json!([{"cel": {"expression": "device.attributes[\"gpu\"].model == \"a\""}}])
    } else {
        json!([])
    };
    let mut requests = vec![json!({"name": "r0", "exactly": {
        "deviceClassName": "gpu", "count": rng.i64(1..4), "selectors": selectors}})];
    let second = ["gpu", "nic", "none"][rng.usize(..3)];
    if second != "none" {
        requests.push(
            json!({"name": "r1", "exactly": {"deviceClassName": second, "count": rng.i64(1..3)}}),
        );
    }
    let constraints = match rng.bool() {
        true if second == "nic" => json!([{"requests": ["r0"], "matchAttribute": "gpu/numa"}]),
        true => json!([{"matchAttribute": "gpu/numa"}]),
        false => json!([]),
    };
    let devices = json!({"devices": {"requests": requests, "constraints": constraints}});
    wanting(&mut objects, &devices);
    objects
}

/// Each remedy, applied to the cluster, lets the pod be placed.
#[test]
fn remedies_for_devices_free_the_pod() {
    let (mut pending, mut proposed) = (0, 0);
    let mut kinds = BTreeSet::new();
    for seed in 0..seeds() / 2 {
        let objects = random(&mut Rng::with_seed(40_000 + seed));
        let (scheduler, placed) = objects.run();
        if placed.is_some() {
            continue;
        }
        pending += 1;
        let (answer, _, _) = explain(&scheduler, "p");
        assert!(!answer.devices.is_empty(), "seed {seed}: {answer:?}");
        for remedy in &answer.remedies {
            let Some(placed) = objects.placed_after(&remedy.changes) else {
                panic!("seed {seed}: {:?} does not free the pod", remedy.text);
            };
            if let Some(node) = &remedy.node {
                assert_eq!(placed, *node, "seed {seed}: {:?}", remedy.text);
            }
            proposed += 1;
            for change in &remedy.changes {
                let debug = format!("{change:?}");
                kinds.extend(debug.split([' ', '{']).next().map(str::to_owned));
            }
        }
    }
    assert!(pending >= 20 && proposed >= 40, "{pending} {proposed}");
    for kind in [
        "AddNode",
        "DeletePods",
        "RemoveDeviceConstraint",
        "RemoveDeviceSelectors",
        "RequestFewerDevices",
        "TolerateDeviceTaint",
    ] {
        assert!(kinds.contains(kind), "never proposed: {kind}");
    }
}

/// The smallest number of requests and constraints of the claim to remove for the pod to fit on a node: all sets are
/// tried.
fn least(objects: &Objects, name: &str) -> Option<usize> {
    let mut only = objects.clone();
    only.0
        .retain(|object| object.kind() != Kind::Node || object.metadata().name == *name);
    let claim = only.0.iter().find_map(|object| match object {
        Object::ResourceClaim(claim) if claim.metadata.name == "wanted" => Some(claim.clone()),
        _ => None,
    });
    let claim = claim.expect("the claim");
    let requests = claim.spec.devices.requests.len();
    let parts = requests + claim.spec.devices.constraints.len();
    let mut sets: Vec<u32> = (0..1 << parts).collect();
    sets.sort_by_key(|set| set.count_ones());
    let fits = |set: &u32| {
        let mut changed = ResourceClaim::clone(&claim);
        let is_removed = |at: usize| set & (1 << at) != 0;
        let devices = &mut changed.spec.devices;
        let mut at = 0;
        devices.requests.retain(|_| {
            at += 1;
            !is_removed(at - 1)
        });
        devices.constraints.retain(|_| {
            at += 1;
            !is_removed(at - 1)
        });
        let left: Vec<_> = devices.requests.iter().map(|r| r.name.clone()).collect();
        devices
            .constraints
            .retain(|c| c.requests.is_empty() || c.requests.iter().any(|name| left.contains(name)));
        let mut tried = only.clone();
        tried.set(Object::ResourceClaim(changed.into()));
        tried.run().1.is_some()
    };
    let found = sets.into_iter().find(fits);
    found.map(|set| set.count_ones() as usize)
}

/// The closest node needs as few other requests as any node.
#[test]
fn the_closest_node_for_devices_is_the_closest_one() {
    let mut compared = 0;
    for seed in 0..seeds() / 5 {
        let objects = random(&mut Rng::with_seed(50_000 + seed));
        let (scheduler, placed) = objects.run();
        if placed.is_some() {
            continue;
        }
        let (answer, _, _) = explain(&scheduler, "p");
        let first = answer.closest.first().expect("a node");
        let nodes = objects.0.iter().filter(|o| o.kind() == Kind::Node);
        let by_node: Vec<(String, Option<usize>)> = nodes
            .map(|node| node.metadata().name.to_string())
            .map(|name| (name.clone(), least(&objects, &name)))
            .collect();
        let best = by_node.iter().filter_map(|(_, least)| *least).min();
        let of_first = by_node.iter().find(|(name, _)| *name == first.node);
        assert_eq!(
            (of_first.and_then(|(_, least)| *least), best),
            (Some(first.lacks.len()), Some(first.lacks.len())),
            "seed {}: {first:?}, all: {by_node:?}",
            50_000 + seed
        );
        compared += 1;
    }
    assert!(compared >= 10, "{compared} compared");
}

/// Counts and names of a request, word by word, and the same devices on the node and in the queue.
#[test]
fn devices_are_counted_by_request() {
    let mut objects = Objects::default();
    objects.set(class("gpu", "gpu"));
    for (name, devices) in [
        (
            "n1",
            vec![
                device("g0", "a", 0, false),
                device("g1", "a", 0, true),
                device("g2", "b", 1, false),
            ],
        ),
        ("n2", vec![device("g0", "a", 0, false)]),
    ] {
        objects.set(node(name).capacity("4", "4Gi", "20").object());
        objects.set(slice(name, "gpu", &devices));
    }
    holder(&mut objects, "training", "n1", "gpu", "g0", 0);
    wanting(
        &mut objects,
        &json!({"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2,
            "selectors": [{"cel": {"expression": "device.attributes[\"gpu\"].model == \"a\""}}]}}]}}),
    );
    let (scheduler, placed) = objects.run();
    assert_eq!(placed, None);
    let (answer, _, _) = explain(&scheduler, "p");
    let [request] = &answer.devices[..] else {
        panic!("{answer:?}");
    };
    assert_eq!(
        (
            request.claim.as_str(),
            request.request.as_str(),
            request.class.as_str()
        ),
        ("default/wanted", "gpus", "gpu")
    );
    let numbers = (
        request.wanted,
        request.exist,
        request.matching,
        request.free,
        request.held,
        request.tainted,
    );
    assert_eq!(numbers, (Some(2), 4, 3, 1, 1, 1));
    assert_eq!(request.taints, ["broken=fan"]);
    assert_eq!(request.held_by[0].device, "gpu/n1/g0");
    assert_eq!(request.held_by[0].pods, ["default/training"]);
    let closest = request.closest.as_ref().expect("a node");
    assert_eq!((closest.node.as_str(), closest.missing), ("n2", 1));
    let lacks = &answer.closest[0].lacks;
    assert_eq!(
        lacks[0].text,
        "request gpus of claim default/wanted wants 2: 1 of its class, 1 match, 1 free"
    );
    let texts: Vec<&str> = answer.remedies.iter().map(|r| r.text.as_str()).collect();
    assert!(
        texts.contains(
            &"request 1 device(s) in request gpus of claim wanted; the pod fits on n2 then"
        ),
        "{texts:#?}"
    );
    let printed = text::pod(&answer);
    assert!(
        printed.contains("gpu/n1/g0 is held by claim default/training of pod default/training")
    );
    let mut snapshot = Snapshot::take(&scheduler, crate::objects::NOW);
    let facts = QueueFacts::take(&scheduler, crate::objects::NOW);
    let node = explain_node(&mut snapshot, &facts, "n1").expect("the node");
    assert_eq!((node.device_count, node.devices_free), (3, 2));
    assert_eq!(node.devices[0].state, "held");
    let queue = explain_queue(&facts);
    assert_eq!(queue.groups[0].requests, "2 × gpu");
}
