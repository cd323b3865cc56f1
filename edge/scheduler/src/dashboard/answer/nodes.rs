//! Nodes: the heat map, the table, and one node.

use super::reasons::WaitingReasons;
use super::waiting::owner_text;
use super::{CELLS_MAX, NAMED_NODES_MAX, ROWS_MAX, is_named, page};
use berth_api::{Pod, Str, Time};
use berth_explain::owner_of;
use berth_framework::{Cluster, NodeView};
use berth_scheduler::Scheduler;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// The resources of the heat map that every node has.
const RESOURCES: [&str; 3] = ["cpu", "memory", "pods"];
/// In front of the name of a driver: its devices are a resource of the heat map.
const DEVICES: &str = "devices of ";
/// A cell of a cordoned node, and of one that is not ready.
const CORDONED: u8 = 1;
const NOT_READY: u8 = 2;
/// The taints of nodes that are not ready.
const NOT_READY_TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// The devices of nodes by driver: the allocated and the total number. Devices that several nodes can use are left out.
type DeviceCounts<'a> = HashMap<&'a str, BTreeMap<&'a str, (i64, i64)>>;

fn device_counts(scheduler: &Scheduler) -> DeviceCounts<'_> {
    let inventory = scheduler.cache().cluster().devices().inventory();
    let mut counts: DeviceCounts<'_> = HashMap::new();
    for slice in inventory.slices() {
        let spec = &slice.slice().spec;
        let Some(node) = spec.node_name.as_ref().filter(|node| !node.is_empty()) else {
            continue;
        };
        let pool = inventory.allocated().of_pool(&spec.driver, &spec.pool.name);
        let held = spec.devices.iter().filter(|device| {
            pool.is_some_and(|pool| pool.is_exclusive(&device.name) || pool.is_shared(&device.name))
        });
        let of_node = counts.entry(node.as_str()).or_default();
        let count = of_node.entry(spec.driver.as_str()).or_default();
        count.0 += i64::try_from(held.count()).unwrap_or(i64::MAX);
        count.1 += i64::try_from(spec.devices.len()).unwrap_or(i64::MAX);
    }
    counts
}

/// The requested and the allocatable amount of a resource.
fn amounts(view: &NodeView<'_>, resource: &str, devices: &DeviceCounts<'_>) -> (i64, i64) {
    match resource {
        "pods" => (view.pods().len() as i64, view.allocatable_of("pods")),
        name => match name.strip_prefix(DEVICES) {
            Some(driver) => {
                let of_node = devices.get(view.name().as_str());
                let count = of_node.and_then(|of_node| of_node.get(driver));
                count.copied().unwrap_or_default()
            }
            None => (view.requested_of(name), view.allocatable_of(name)),
        },
    }
}

/// The requested part of a resource, from 0 to 1; `None` if the node has none.
fn load(requested: i64, allocatable: i64) -> Option<f64> {
    (allocatable > 0).then(|| requested as f64 / allocatable as f64)
}

fn is_not_ready(view: &NodeView<'_>) -> bool {
    let mut taints = view.node().spec.taints.iter();
    taints.any(|taint| NOT_READY_TAINTS.contains(&taint.key.as_str()))
}

fn flags(view: &NodeView<'_>) -> u8 {
    let cordoned = u8::from(view.node().spec.unschedulable) * CORDONED;
    cordoned | (u8::from(is_not_ready(view)) * NOT_READY)
}

/// The resources of the heat map: the common resources of all nodes, extended resources, and the devices of drivers.
fn resources(views: &[NodeView<'_>], devices: &DeviceCounts<'_>) -> Vec<String> {
    let mut others: Vec<String> = Vec::new();
    let mut add = |name: String| {
        if let Err(at) = others.binary_search(&name) {
            others.insert(at, name);
        }
    };
    for view in views {
        for name in view.allocatable_scalars() {
            add(name.to_string());
        }
    }
    for driver in devices.values().flat_map(BTreeMap::keys) {
        add(format!("{DEVICES}{driver}"));
    }
    RESOURCES
        .into_iter()
        .map(str::to_owned)
        .chain(others)
        .collect()
}

pub(super) fn heat(scheduler: &Scheduler, resource: &str) -> Value {
    let table = &scheduler.cache().cluster().nodes;
    let mut views: Vec<NodeView<'_>> = table.iter().collect();
    views.sort_by(|a, b| a.name().cmp(b.name()));
    let devices = device_counts(scheduler);
    let resources = resources(&views, &devices);
    let known = resources.iter().find(|known| *known == resource);
    let resource = known.map_or("cpu", String::as_str);
    let per_cell = views.len().div_ceil(CELLS_MAX).max(1);
    let has_amounts = views.len() <= NAMED_NODES_MAX;
    let cells: Vec<Value> = views
        .chunks(per_cell)
        .map(|nodes| {
            let loads = nodes.iter();
            let loads = loads.filter_map(|view| {
                let (requested, allocatable) = amounts(view, resource, &devices);
                load(requested, allocatable)
            });
            let (count, sum) = loads.fold((0_u32, 0.0), |(n, sum), load| (n + 1, sum + load));
            let mean = (count > 0).then(|| (sum / f64::from(count) * 1000.0).round() / 1000.0);
            let flags = nodes.iter().fold(0, |all, view| all | flags(view));
            let name = nodes[0].name().as_str();
            // The amounts are shown where there is space for them.
            if has_amounts {
                let (requested, allocatable) = amounts(&nodes[0], resource, &devices);
                return json!([name, mean, flags, requested, allocatable]);
            }
            json!([name, mean, flags])
        })
        .collect();
    json!({
        "resource": resource, "resources": resources, "nodesPerCell": per_cell, "hasAmounts": has_amounts, "cells": cells,
    })
}

fn loads(view: &NodeView<'_>, devices: &DeviceCounts<'_>) -> BTreeMap<String, Value> {
    let scalars = view.allocatable_scalars().iter().map(ToString::to_string);
    let of_node = devices.get(view.name().as_str());
    let drivers = of_node.into_iter().flat_map(BTreeMap::keys);
    let drivers = drivers.map(|driver| format!("{DEVICES}{driver}"));
    let names = RESOURCES.into_iter().map(str::to_owned);
    names
        .chain(scalars)
        .chain(drivers)
        .map(|name| {
            let (requested, allocatable) = amounts(view, &name, devices);
            let load = load(requested, allocatable);
            let of = json!({"requested": requested, "allocatable": allocatable, "load": load});
            (name, of)
        })
        .collect()
}

/// The amounts that make nodes of one capacity alike.
fn capacity(view: &NodeView<'_>) -> (i64, i64) {
    (view.allocatable_of("cpu"), view.allocatable_of("memory"))
}

pub(super) fn nodes(scheduler: &Scheduler, from: usize) -> Value {
    let table = &scheduler.cache().cluster().nodes;
    let mut found: Vec<NodeView<'_>> = table.iter().collect();
    // Pages need a stable order.
    found.sort_by(|a, b| a.name().cmp(b.name()));
    let mut classes: BTreeMap<(i64, i64), usize> = BTreeMap::new();
    for view in &found {
        *classes.entry(capacity(view)).or_default() += 1;
    }
    let total = found.len();
    let devices = device_counts(scheduler);
    let rows = found.iter().skip(from).take(ROWS_MAX);
    let rows = rows.map(|view| {
        json!({
            "node": view.name().as_str(),
            "unschedulable": view.node().spec.unschedulable,
            "notReady": is_not_ready(view),
            "taints": taints(view),
            "resources": loads(view, &devices),
        })
    });
    let mut answer = page(rows.collect(), total, from);
    let mut classes: Vec<_> = classes.into_iter().collect();
    // The most frequent classes show the shape of the cluster; rare ones are left out.
    classes.sort_by_key(|(_, nodes)| Reverse(*nodes));
    let classes = classes.into_iter().take(ROWS_MAX);
    let classes =
        classes.map(|((cpu, memory), nodes)| json!({"cpu": cpu, "memory": memory, "nodes": nodes}));
    answer["classes"] = classes.collect();
    answer
}

fn taints(view: &NodeView<'_>) -> Vec<String> {
    let taints = view.node().spec.taints.iter();
    taints.map(ToString::to_string).collect()
}

pub(super) fn node(scheduler: &Scheduler, name: &str) -> Value {
    let Some(view) = scheduler.cache().cluster().nodes.node(name) else {
        return json!({"missing": true, "node": name});
    };
    let mut pods: Vec<_> = view.pods().iter().collect();
    pods.sort_by_cached_key(|info| (Reverse(info.pod.priority()), info.pod.key()));
    json!({
        "node": view.name().as_str(),
        "unschedulable": view.node().spec.unschedulable,
        "notReady": is_not_ready(&view),
        "taints": taints(&view),
        "resources": loads(&view, &device_counts(scheduler)),
        "podsTotal": pods.len(),
        "pods": pods.iter().take(ROWS_MAX).map(|info| json!({
            "pod": info.pod.key(),
            "owner": owner_text(owner_of(scheduler.cache().cluster(), &info.pod).as_ref()),
            "priority": info.pod.priority(),
            "cpu": info.requests.milli_cpu,
            "memory": info.requests.memory,
        })).collect::<Vec<_>>(),
    })
}

/// Pods, owners and nodes with this text in their name; bound pods, too.
pub(super) fn search(scheduler: &Scheduler, text: &str) -> Value {
    let cache = scheduler.cache();
    let (mut pods, mut total) = (Vec::new(), 0_usize);
    let mut owners: BTreeMap<(Str, String), usize> = BTreeMap::new();
    for pod in cache.stored_pods() {
        if is_named(pod, text) {
            total += 1;
            if pods.len() < ROWS_MAX {
                pods.push(pod);
            }
        }
        let owner = owner_of(cache.cluster(), pod).filter(|(_, name)| name.contains(text));
        // Owners are counted only while they fit into the answer.
        if owner.is_some() && owners.len() < ROWS_MAX {
            let key = (pod.namespace().clone(), owner_text(owner.as_ref()));
            *owners.entry(key).or_default() += 1;
        }
    }
    pods.sort_by_key(|pod| pod.key());
    let pods = pods.into_iter().map(|pod| {
        let queued = scheduler.queue().get(pod.namespace(), pod.name());
        let place = queued.map(|(place, _)| super::place_name(place));
        json!({"pod": pod.key(), "node": pod.spec.node_name.as_str(), "place": place})
    });
    let owners = owners.into_iter().map(|((namespace, owner), pods)| {
        json!({"namespace": namespace.as_str(), "owner": owner, "pods": pods})
    });
    let table = &cache.cluster().nodes;
    let mut nodes: Vec<&str> = table
        .iter()
        .map(|view| view.name().as_str())
        .filter(|name| name.contains(text))
        .collect();
    nodes.sort_unstable();
    let nodes_total = nodes.len();
    nodes.truncate(ROWS_MAX);
    json!({
        "pods": pods.collect::<Vec<_>>(),
        "podsTotal": total,
        "owners": owners.collect::<Vec<_>>(),
        "nodes": nodes,
        "nodesTotal": nodes_total,
    })
}

/// Returns whether a pod is of an owner, itself or through its ReplicaSet.
fn is_of(cluster: &Cluster, pod: &Pod, kind: &str, name: &str) -> bool {
    let controller = pod.metadata.controller();
    let is_controller = controller.is_some_and(|owner| owner.kind == *kind && owner.name == *name);
    is_controller
        || owner_of(cluster, pod).is_some_and(|owner| owner.0 == *kind && owner.1 == *name)
}

/// The pods of an owner: `namespace/Kind/name`.
pub(super) fn owner_page(scheduler: &Scheduler, key: &str, now: Time) -> Value {
    let mut parts = key.splitn(3, '/');
    let mut part = || parts.next().unwrap_or_default();
    let (namespace, kind, name) = (part(), part(), part());
    let cache = scheduler.cache();
    let mut pods: Vec<&std::sync::Arc<Pod>> = cache
        .stored_pods()
        .filter(|pod| *pod.namespace() == *namespace && is_of(cache.cluster(), pod, kind, name))
        .collect();
    // Waiting pods are first: they are the reason to open the page.
    pods.sort_by_key(|pod| (!pod.spec.node_name.is_empty(), pod.key()));
    let bound = pods.iter().filter(|pod| pod.is_assigned()).count();
    let total = pods.len();
    let rows = pods.into_iter().take(ROWS_MAX).map(|pod| {
        let queued = scheduler.queue().get(pod.namespace(), pod.name());
        json!({
            "pod": pod.key(),
            "node": pod.spec.node_name.as_str(),
            "place": queued.map(|(place, _)| super::place_name(place)),
            "seconds": queued.map(|(_, info)| now.since(info.waits_since()).as_secs()),
            "reasons": queued.map(|queued| WaitingReasons::of(scheduler, queued).listed(scheduler)),
        })
    });
    json!({
        "namespace": namespace,
        "owner": format!("{kind}/{name}"),
        "pods": total,
        "bound": bound,
        "rows": rows.collect::<Vec<_>>(),
    })
}
