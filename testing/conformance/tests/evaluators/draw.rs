//! Random objects, as JSON.

use super::{devices, storage};
use berth_api::Release;
use fastrand::Rng;
use serde_json::{Value, json};

const ZONES: [&str; 3] = ["a", "b", "c"];
const APPS: [&str; 3] = ["red", "green", "blue"];
const NAMESPACES: [&str; 2] = ["ns-0", "ns-1"];
const IMAGES: [&str; 3] = ["web:1", "db:2", "big:3"];

/// A namespace.
pub(crate) fn namespace(name: &str, rng: &mut Rng) -> Value {
    let labels = if rng.bool() {
        json!({"team": pick(rng, &["x", "y"])})
    } else {
        json!({})
    };
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

pub(crate) fn namespaces() -> [&'static str; 2] {
    NAMESPACES
}

pub(crate) fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

pub(crate) fn often(rng: &mut Rng, one_in: usize) -> bool {
    rng.usize(..one_in) == 0
}

pub(crate) fn zone(rng: &mut Rng) -> &'static str {
    ZONES[rng.usize(..ZONES.len())]
}

/// A random node of this name.
pub(crate) fn node(index: usize, rng: &mut Rng) -> Value {
    let name = format!("node-{index}");
    let mut labels = json!({"kubernetes.io/hostname": name});
    if !often(rng, 8) {
        labels["topology.kubernetes.io/zone"] = json!(pick(rng, &ZONES));
    }
    if often(rng, 2) {
        labels["disk"] = json!(pick(rng, &["ssd", "hdd"]));
    }
    if often(rng, 3) {
        labels["rack"] = json!(format!("r{}", rng.u8(..4)));
    }
    let mut taints = Vec::new();
    if often(rng, 6) {
        taints.push(json!({"key": "only", "value": "gpu", "effect": pick(rng, &["NoSchedule", "NoExecute"])}));
    }
    if often(rng, 3) {
        taints.push(json!({"key": "rather-not", "effect": "PreferNoSchedule"}));
    }
    let mut allocatable = json!({"cpu": format!("{}", rng.u8(1..5)), "memory": format!("{}Gi", rng.u8(1..9)), "pods": format!("{}", rng.u8(2..9))});
    if often(rng, 3) {
        allocatable["example.com/gpu"] = json!(format!("{}", rng.u8(..3)));
    }
    if often(rng, 6) {
        allocatable["example.com/device"] = json!(format!("{}", rng.u8(..3)));
    }
    if often(rng, 20) {
        allocatable = json!({});
    }
    let images: Vec<Value> = IMAGES
        .iter()
        .filter(|_| often(rng, 3))
        .map(|image| json!({"names": [image], "sizeBytes": 400_000_000}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": labels},
        "spec": {"unschedulable": often(rng, 12), "taints": taints},
        "status": {"allocatable": allocatable, "images": images}
    })
}

pub(crate) fn selector(rng: &mut Rng) -> Value {
    match rng.u8(..4) {
        0 => {
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": [pick(rng, &APPS), pick(rng, &APPS)]}]})
        }
        1 => json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
        _ => json!({"matchLabels": {"app": pick(rng, &APPS)}}),
    }
}

fn topology(rng: &mut Rng) -> &'static str {
    match rng.u8(..5) {
        0 | 1 => "topology.kubernetes.io/zone",
        2 | 3 => "kubernetes.io/hostname",
        _ => "rack",
    }
}

fn term(rng: &mut Rng) -> Value {
    let mut term = json!({"labelSelector": selector(rng), "topologyKey": topology(rng)});
    match rng.u8(..6) {
        0 => term["namespaces"] = json!([pick(rng, &NAMESPACES)]),
        1 => term["namespaceSelector"] = json!({"matchLabels": {"team": pick(rng, &["x", "y"])}}),
        2 => term["namespaceSelector"] = json!({}),
        _ => {}
    }
    if often(rng, 6) {
        term[pick(rng, &["matchLabelKeys", "mismatchLabelKeys"])] = json!(["version"]);
    }
    term
}

fn weighted(rng: &mut Rng) -> Value {
    json!([{"weight": rng.u8(1..101), "podAffinityTerm": term(rng)}])
}

/// The spec and the labels of the pods of one template, including fields with different results between releases.
pub(crate) fn template(release: Release, rng: &mut Rng) -> Value {
    let mut labels = json!({"app": pick(rng, &APPS)});
    if often(rng, 2) {
        labels["version"] = json!(pick(rng, &["1", "2"]));
    }
    let mut requests = json!({});
    if !often(rng, 5) {
        requests["cpu"] = json!(format!("{}m", 100 * rng.u32(1..16)));
    }
    if !often(rng, 3) {
        requests["memory"] = json!(format!("{}Mi", 128 * rng.u32(1..16)));
    }
    if often(rng, 10) {
        requests["example.com/gpu"] = json!("1");
    }
    if often(rng, 16) {
        devices::extended(&mut requests, rng);
    }
    let mut container =
        json!({"name": "c", "image": pick(rng, &IMAGES), "resources": {"requests": requests}});
    if often(rng, 6) {
        container["ports"] = json!([{"hostPort": 8000 + rng.u16(..2), "containerPort": 80}]);
    }
    let priority = [0, 0, 5, 10][rng.usize(..4)];
    let mut spec = json!({
        "containers": [container],
        "priority": priority,
        "schedulerName": if often(rng, 4) { "other" } else { "default-scheduler" },
    });
    if often(rng, 4) {
        spec["tolerations"] =
            json!([{"key": pick(rng, &["only", "rather-not"]), "operator": "Exists"}]);
    }
    if often(rng, 8) {
        spec["nodeSelector"] = json!({"disk": pick(rng, &["ssd", "hdd"])});
    }
    if often(rng, 12) {
        spec["preemptionPolicy"] = json!("Never");
    }
    let mut affinity = json!({});
    if often(rng, 6) {
        affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": pick(rng, &["In", "NotIn"]), "values": [pick(rng, &ZONES)]}]}]});
    }
    if often(rng, 20) {
        affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [format!("node-{}", rng.u8(..12))]}]}]});
    }
    if often(rng, 5) {
        affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([
            {"weight": rng.u8(1..101), "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": [pick(rng, &["ssd", "hdd"])]}]}}]);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        if often(rng, 5) {
            affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term(rng)]);
        }
        if often(rng, 12) {
            affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!([term(rng), term(rng)]);
        }
        if often(rng, 5) {
            affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"] = weighted(rng);
        }
    }
    spec["affinity"] = affinity;
    let mut constraints = Vec::new();
    for _ in 0..rng.usize(..3) {
        if often(rng, 2) {
            constraints.push(constraint(rng));
        }
    }
    if release > Release::OLDEST && often(rng, 6) {
        let mut all = constraint(rng);
        all["labelSelector"] = json!({});
        constraints.push(all);
    }
    spec["topologySpreadConstraints"] = json!(constraints);
    if often(rng, 4) {
        let volumes: Vec<Value> = (0..rng.usize(1..3))
            .map(|at| storage::volume(&format!("v{at}"), rng))
            .collect();
        spec["volumes"] = json!(volumes);
    }
    if often(rng, 4) {
        spec["resourceClaims"] = devices::entries(rng);
    }
    json!({"labels": labels, "spec": spec})
}

fn constraint(rng: &mut Rng) -> Value {
    let hard = rng.bool();
    let mut constraint = json!({
        "maxSkew": rng.u8(1..3),
        "topologyKey": topology(rng),
        "whenUnsatisfiable": if hard { "DoNotSchedule" } else { "ScheduleAnyway" },
        "labelSelector": selector(rng),
    });
    if hard && often(rng, 4) {
        constraint["minDomains"] = json!(rng.u8(1..5));
    }
    if often(rng, 4) {
        constraint["nodeTaintsPolicy"] = json!("Honor");
    }
    if often(rng, 4) {
        constraint["nodeAffinityPolicy"] = json!("Ignore");
    }
    if often(rng, 5) {
        constraint["matchLabelKeys"] = json!(["version"]);
    }
    constraint
}

/// A pod of a template. Some are already on a node, belong to another scheduler, or have a nominated node.
pub(crate) fn pod(index: usize, template: &Value, rng: &mut Rng) -> Value {
    let name = format!("pod-{index}");
    let mut spec = template["spec"].clone();
    let mut status = json!({"phase": "Pending"});
    let node = format!("node-{}", rng.u8(..12));
    match rng.u8(..30) {
        0 | 1 => {
            spec["nodeName"] = json!(node);
            status["startTime"] = json!("2026-01-01T00:00:00Z");
        }
        2 => spec["schedulerName"] = json!("a-third-one"),
        3 => status["nominatedNodeName"] = json!(node),
        4 => spec["schedulingGates"] = json!([{"name": "example.com/later"}]),
        _ => {}
    }
    let mut owners = json!([]);
    if often(rng, 3) {
        owners = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs", "controller": true}]);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": pick(rng, &NAMESPACES), "uid": format!("uid-{name}"),
            "labels": template["labels"], "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": owners,
        },
        "spec": spec,
        "status": status,
    })
}

/// A service, different every time.
pub(crate) fn service(index: usize, rng: &mut Rng) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("svc-{index}"), "namespace": pick(rng, &NAMESPACES), "uid": format!("uid-svc-{index}")},
        "spec": {"selector": {"app": pick(rng, &APPS)}},
    })
}
