//! The same GPUs as devices of Dynamic Resource Allocation, with consumable capacity (KEP-5075).
//!
//! Each GPU is a device of capacity 1,000 milli that several claims can share. A pod claims a part of one device, or
//! the whole capacity of several. The standard allocator takes the first devices that fit, and no standard plugin
//! scores nodes by the capacity that is left.

use crate::devices::{GPU_MILLI, WHOLE, requested_milli};
use berth_api::{Kind, Object, ResourceList, Str};
use berth_simulation::Trace;
use serde_json::{Value, json};
use std::sync::Arc;

/// The driver and the device class.
const DRIVER: &str = "gpu.example.com";
/// The entry of a pod for its claim.
const ENTRY: &str = "gpus";

/// Replaces the GPUs of nodes by devices, and the requests of pods by claims.
pub fn claim_gpus(trace: &mut Trace) {
    let class = json!({
        "metadata": {"name": DRIVER, "uid": "class"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {DRIVER:?}")}}]},
    });
    let mut objects = vec![decoded(Kind::DeviceClass, &class)];
    for node in &mut trace.nodes {
        let milli = node.node.status.allocatable.get(GPU_MILLI);
        let gpus = milli.map_or(0, |milli| milli.value() / i64::from(WHOLE));
        if gpus > 0 {
            objects.push(slice(&node.name, gpus));
            let node = Arc::make_mut(&mut node.node);
            node.status.allocatable = without_gpus(&node.status.allocatable);
        }
    }
    for pod in &mut trace.pods {
        let milli = requested_milli(&pod.pod);
        if milli == 0 {
            continue;
        }
        let name: Str = format!("{}-gpus", pod.name).into();
        objects.push(claim(&name, milli));
        let with_claim = Arc::make_mut(&mut pod.pod);
        let reference = json!([{"name": ENTRY, "resourceClaimName": name.as_str()}]);
        with_claim.spec.resource_claims = serde_json::from_value(reference).unwrap_or_default();
        for container in &mut with_claim.spec.containers {
            container.resources.requests = without_gpus(&container.resources.requests);
        }
    }
    trace.objects.extend(objects);
}

/// The default profile with nodes filled instead of spread.
pub fn packed() -> Value {
    let resources = json!([{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]);
    json!({
        "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
        "pluginConfig": [{
            "name": "NodeResourcesFit",
            "args": {"scoringStrategy": {"type": "MostAllocated", "resources": resources}},
        }],
    })
}

fn without_gpus(list: &ResourceList) -> ResourceList {
    let others = list.iter().filter(|(name, _)| **name != GPU_MILLI);
    ResourceList::from_pairs(others.map(|(name, amount)| (name.clone(), *amount)))
}

/// Decodes an object created by this module; an error is a defect.
fn decoded(kind: Kind, value: &Value) -> Object {
    let text = value.to_string();
    match kind.decode(text.as_bytes()) {
        Ok(object) => object,
        Err(error) => panic!("{}: {error}: {text}", kind.name()),
    }
}

/// The GPUs of a node.
fn slice(node: &Str, gpus: i64) -> Object {
    let range = json!({"min": "1", "step": "1", "max": WHOLE.to_string()});
    let capacity = json!({
        "milli": {
            "value": WHOLE.to_string(),
            "requestPolicy": {"default": WHOLE.to_string(), "validRange": range},
        },
    });
    let devices: Vec<Value> = (0..gpus)
        .map(|gpu| {
            json!({
                "name": format!("gpu-{gpu}"),
                "allowMultipleAllocations": true,
                "capacity": capacity,
            })
        })
        .collect();
    let slice = json!({
        "metadata": {"name": format!("{node}-gpus"), "uid": format!("{node}-gpus")},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": node.as_str(), "generation": 1, "resourceSliceCount": 1},
            "nodeName": node.as_str(),
            "devices": devices,
        },
    });
    decoded(Kind::ResourceSlice, &slice)
}

/// A part of one GPU, or all of several.
fn claim(name: &Str, milli: u64) -> Object {
    let count = (milli / u64::from(WHOLE)).max(1);
    let each = milli.min(u64::from(WHOLE));
    let exactly = json!({
        "deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": count,
        "capacity": {"requests": {"milli": each.to_string()}},
    });
    let claim = json!({
        "metadata": {"name": name.as_str(), "namespace": "default", "uid": name.as_str()},
        "spec": {"devices": {"requests": [{"name": ENTRY, "exactly": exactly}]}},
    });
    decoded(Kind::ResourceClaim, &claim)
}
