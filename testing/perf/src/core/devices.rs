//! The devices of clusters and the claims of pods: one driver, one class, realistic attributes.

use super::Row;
use crate::generate;
use berth_api::{Kind, Object};
use serde_json::{Value, json};

const DRIVER: &str = "gpu.example.com";
/// The pool of the devices that all nodes can use.
const NETWORK_POOL: &str = "network";
/// The maximum number of devices of a slice, as in the API.
const SLICE_DEVICES_MAX: usize = 128;
/// The entry of a pod for its claim.
const ENTRY: &str = "gpus";
const TEMPLATE: &str = "gpus";

/// The devices of a node: ten in small clusters, eight in large ones.
fn per_node(nodes: usize) -> usize {
    if nodes <= 500 { 10 } else { 8 }
}

/// A GPU. Four share a PCIe root, and every other group of four is of the older model.
fn gpu(index: usize, group: usize) -> Value {
    let model = if group.is_multiple_of(2) {
        "H100"
    } else {
        "A100"
    };
    json!({
        "name": format!("gpu-{index}"),
        "attributes": {
            "model": {"string": model},
            "index": {"int": index},
            "driverVersion": {"version": "550.54.15"},
            "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:{group:02x}")},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    })
}

/// A card with eight slices of memory that can be allocated whole, in halves and in quarters.
fn card(card: usize) -> Vec<Value> {
    let part = |name: String, profile: &str, slices: usize| {
        json!({
            "name": name,
            "attributes": {"profile": {"string": profile}},
            "capacity": {"memory": {"value": format!("{slices}0Gi")}},
            "consumesCounters": [{
                "counterSet": format!("card-{card}"),
                "counters": {"slices": {"value": slices.to_string()}},
            }],
        })
    };
    let mut parts = vec![part(format!("card-{card}"), "8g", 8)];
    parts.extend((0..2).map(|n| part(format!("card-{card}-half-{n}"), "4g", 4)));
    parts.extend((0..4).map(|n| part(format!("card-{card}-quarter-{n}"), "2g", 2)));
    parts
}

fn slice(name: &str, pool: &str, count: usize, mut spec: Value) -> Object {
    spec["driver"] = json!(DRIVER);
    spec["pool"] = json!({"name": pool, "generation": 1, "resourceSliceCount": count});
    let object =
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": spec});
    generate::decoded(Kind::ResourceSlice, &object)
}

/// The class and the slices of a cluster of `nodes` nodes.
pub(super) fn objects(row: Row, nodes: usize) -> Vec<Object> {
    let expression = format!("device.driver == {DRIVER:?}");
    let class = json!({
        "metadata": {"name": DRIVER, "uid": "class", "resourceVersion": "1"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    });
    let mut objects = vec![generate::decoded(Kind::DeviceClass, &class)];
    let all = nodes * per_node(nodes);
    if row == Row::NetworkDevices {
        let devices: Vec<Value> = (0..all).map(|index| gpu(index, index / 4)).collect();
        let chunks = devices.chunks(SLICE_DEVICES_MAX);
        let count = chunks.len();
        objects.extend(chunks.enumerate().map(|(at, devices)| {
            let spec = json!({"allNodes": true, "devices": devices});
            slice(&format!("network-{at}"), NETWORK_POOL, count, spec)
        }));
        return objects;
    }
    for node in 0..nodes {
        let name = format!("node-{node}");
        if row == Row::Partitions {
            let counters = (0..2).map(|card| {
                let counters = json!({"slices": {"value": "8"}});
                json!({"name": format!("card-{card}"), "counters": counters})
            });
            let counters: Vec<Value> = counters.collect();
            let counters = json!({"nodeName": name, "sharedCounters": counters});
            objects.push(slice(&format!("{name}-counters"), &name, 2, counters));
            let devices: Vec<Value> = (0..2).flat_map(card).collect();
            let devices = json!({"nodeName": name, "devices": devices});
            objects.push(slice(&name, &name, 2, devices));
            continue;
        }
        let devices = (0..per_node(nodes)).map(|index| gpu(index, node + index / 4));
        let devices: Vec<Value> = devices.collect();
        let spec = json!({"nodeName": name, "devices": devices});
        objects.push(slice(&name, &name, 1, spec));
    }
    objects
}

/// A request for devices that an expression selects.
fn request(name: &str, count: usize, expression: &str) -> Value {
    json!({
        "name": name, "deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": count,
        "selectors": [{"cel": {"expression": expression}}],
    })
}

/// The spec of the claim of each pod.
fn spec(row: Row) -> Value {
    let attribute = |name: &str| format!("device.attributes[{DRIVER:?}].{name}");
    let model = attribute("model");
    let exactly = |count: usize, expression: &str| {
        let mut exactly = request("", count, expression);
        if let Some(fields) = exactly.as_object_mut() {
            fields.remove("name");
        }
        json!([{"name": "r", "exactly": exactly}])
    };
    let memory = format!("device.capacity[{DRIVER:?}].memory.compareTo(quantity(\"40Gi\")) >= 0");
    match row {
        Row::MatchingDevices => json!({"devices": {
            "requests": exactly(4, &memory),
            "constraints": [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}],
        }}),
        Row::DeviceLists => {
            let alternatives = [
                request("new", 2, &format!("{model} == \"H200\"")),
                request("current", 2, &format!("{model} == \"H100\"")),
                request("old", 1, &format!("{model} == \"A100\"")),
            ];
            json!({"devices": {"requests": [{"name": "r", "firstAvailable": alternatives}]}})
        }
        Row::Partitions => {
            let profile = attribute("profile");
            json!({"devices": {"requests": exactly(1, &format!("{profile} == \"2g\""))}})
        }
        _ => json!({"devices": {"requests": exactly(1, &memory)}}),
    }
}

/// Adds a claim generated from a template to a pod. Returns the claim.
pub(super) fn claim(row: Row, pod: &mut Value) -> Value {
    let name = format!("{}-gpus", pod["metadata"]["name"].as_str().unwrap_or("pod"));
    pod["spec"]["resourceClaims"] = json!([{"name": ENTRY, "resourceClaimTemplateName": TEMPLATE}]);
    pod["status"]["resourceClaimStatuses"] = json!([{"name": ENTRY, "resourceClaimName": name}]);
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": ENTRY}]);
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"],
                "uid": pod["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": spec(row),
    })
}
