//! Whether there is room: resources and ports.

use super::Scene;
use crate::shapes::EXTENDED;
use berth_api::{Node, Pod, Str};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn lacking(scene: &Scene<'_>, pod: &Pod, node: &Node) -> Option<String> {
    let neighbours: Vec<&Pod> = scene.on(node, pod).collect();
    let offers = |resource: &str| {
        node.status
            .allocatable
            .get(resource)
            .map_or(0, |quantity| quantity.milli_value())
    };
    if (neighbours.len() as i64 + 1) * 1000 > offers("pods") {
        return Some("pods".to_owned());
    }
    let mut used: BTreeMap<Str, i64> = BTreeMap::new();
    for other in &neighbours {
        for (resource, amount) in requested(other) {
            *used.entry(resource).or_default() += amount;
        }
    }
    // Devices provide the extended resource of a class.
    let requested = requested(pod);
    for (resource, amount) in requested.into_iter().filter(|(name, _)| *name != EXTENDED) {
        let taken = used.get(&resource).copied().unwrap_or(0);
        if amount > 0 && taken + amount > offers(&resource) {
            return Some(resource.to_string());
        }
    }
    let taken: BTreeSet<Port> = neighbours.iter().flat_map(|other| ports(other)).collect();
    let clash = |port: &Port| {
        taken.iter().any(|other| {
            let (same_port, any) = (port.1 == other.1 && port.2 == other.2, "0.0.0.0");
            same_port && (port.0 == other.0 || port.0 == any || other.0 == any)
        })
    };
    let clash = ports(pod).into_iter().find(clash);
    clash.map(|(_, _, port)| format!("host port {port}"))
}

/// In thousandths: containers run together, init containers one after another before them.
fn requested(pod: &Pod) -> BTreeMap<Str, i64> {
    let mut sum: BTreeMap<Str, i64> = BTreeMap::new();
    for container in &pod.spec.containers {
        for (resource, quantity) in container.resources.requests.iter() {
            *sum.entry(resource.clone()).or_default() += quantity.milli_value();
        }
    }
    for container in &pod.spec.init_containers {
        for (resource, quantity) in container.resources.requests.iter() {
            let most = sum.entry(resource.clone()).or_default();
            *most = (*most).max(quantity.milli_value());
        }
    }
    sum
}

/// Address, protocol, number.
type Port = (Str, Str, i32);

fn ports(pod: &Pod) -> Vec<Port> {
    let or = |text: &Str, default: &str| {
        if text.is_empty() {
            default.into()
        } else {
            text.clone()
        }
    };
    let all = pod.spec.containers.iter().flat_map(|c| &c.ports);
    all.filter(|port| port.host_port > 0)
        .map(|port| {
            (
                or(&port.host_ip, "0.0.0.0"),
                or(&port.protocol, "TCP"),
                port.host_port,
            )
        })
        .collect()
}
