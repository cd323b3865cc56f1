//! The GPUs of simulated nodes, as an example driver of Dynamic Resource Allocation publishes them.
//!
//! The driver is [`DRIVER`], the name that the tutorials of Kubernetes and its example driver use. Each node has one
//! ResourceSlice, which belongs to the node: the garbage collector deletes it with the node. Claims select from the
//! DeviceClass of the driver's name.

use berth_objects::object::{NODE, name, uid};
use serde_json::{Value, json};
use std::hash::Hasher;

/// The driver, and the class of its devices.
pub const DRIVER: &str = "gpu.example.com";
/// The most devices of a node: they are published in one slice.
pub const DEVICES_MAX: u32 = 128;

/// The API of slices and classes.
const API_VERSION: &str = "resource.k8s.io/v1";
const MODEL: &str = "A100-SXM4-80GB";
const MEMORY: &str = "80Gi";
const DRIVER_VERSION: &str = "550.54.15";
/// The number of devices that share a PCIe root.
const DEVICES_PER_ROOT: u32 = 2;
const NUMA_NODES: u32 = 2;

/// The class that selects all devices of the driver.
pub(super) fn class() -> Value {
    let selector = format!("device.driver == {DRIVER:?}");
    json!({
        "apiVersion": API_VERSION,
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": selector}}]},
    })
}

/// The slice of a node with this many devices.
pub(super) fn slice(node: &Value, devices: u32) -> Value {
    let node_name = name(node);
    let owner = NODE.object(json!({"name": node_name,
        "uid": uid(node),
        "controller": true,
    }));
    let devices: Vec<Value> = (0..devices)
        .map(|index| device(node_name, index, devices))
        .collect();
    json!({
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": format!("{node_name}-{DRIVER}"), "ownerReferences": [owner]},
        "spec": {
            "driver": DRIVER,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    })
}

fn device(node: &str, index: u32, of: u32) -> Value {
    let numa = index * NUMA_NODES / of.max(1);
    let root = index / DEVICES_PER_ROOT;
    json!({
        "name": format!("gpu-{index}"),
        "attributes": {
            "index": {"int": index},
            "uuid": {"string": unique(node, index)},
            "model": {"string": MODEL},
            "driverVersion": {"version": DRIVER_VERSION},
            "numaNode": {"int": numa},
            "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:{:02x}", root * 0x10)},
        },
        "capacity": {"memory": {"value": MEMORY}},
    })
}

/// An identity that is the same whenever the node is made again.
fn unique(node: &str, index: u32) -> String {
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(node.as_bytes());
    hasher.write_u32(index);
    let hash = hasher.finish();
    format!("gpu-{:08x}-{:04x}", hash >> 32, hash & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_dealt_out_to_numa_nodes_and_pcie_roots() {
        let node = json!({"metadata": {"name": "n", "uid": "u"}});
        let slice = slice(&node, 8);
        assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], "u");
        let devices = slice["spec"]["devices"].as_array().expect("devices");
        let of = |device: &Value| {
            let attributes = &device["attributes"];
            let root = &attributes["resource.kubernetes.io/pcieRoot"]["string"];
            (attributes["numaNode"]["int"].clone(), root.clone())
        };
        let expected = [
            (0, "00"),
            (0, "00"),
            (0, "10"),
            (0, "10"),
            (1, "20"),
            (1, "20"),
            (1, "30"),
            (1, "30"),
        ];
        for (device, (numa, root)) in devices.iter().zip(expected) {
            let root = format!("pci0000:{root}");
            assert_eq!(of(device), (json!(numa), json!(root)));
        }
        assert_eq!(devices.len(), 8);
    }
}
