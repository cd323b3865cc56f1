//! The contents of a simulated node.

use super::NODE_READY;
use berth_objects::object::{
    NODE, annotation, condition, labels, name, new_condition, seconds, set, update_condition,
};
use berth_objects::well_known::{NOT_READY, SIMULATED};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::hash::Hasher;
use std::net::Ipv4Addr;

/// The version that simulated kubelets report.
const KUBELET_VERSION: &str = "v1.36.0-berth";
/// Nodes get addresses from 172.16.0.0/12 …
const NODE_NETWORK: u32 = u32::from_be_bytes([172, 16, 0, 0]);
/// … the first half by their number, the other half by their name.
const NODE_ADDRESSES_HALF: u32 = 1 << 19;

/// The shape of each simulated node. Amounts are Kubernetes quantities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedNodeShape {
    /// CPUs.
    pub cpu: String,
    /// Memory.
    pub memory: String,
    /// Local storage.
    pub ephemeral_storage: String,
    /// Pods.
    pub pods: u32,
    /// GPUs, as the extended resource `gpu_resource`.
    pub gpus: u32,
    /// The name of the extended resource.
    pub gpu_resource: String,
    /// The region of all nodes.
    pub region: String,
    /// The number of zones; nodes are assigned to them in turn.
    pub zones: u32,
}

impl Default for SimulatedNodeShape {
    fn default() -> Self {
        Self {
            cpu: "4".to_owned(),
            memory: "32Gi".to_owned(),
            ephemeral_storage: "100Gi".to_owned(),
            pods: 110,
            gpus: 0,
            gpu_resource: "nvidia.com/gpu".to_owned(),
            region: "berth".to_owned(),
            zones: 3,
        }
    }
}

impl SimulatedNodeShape {
    /// The node of that name, the `index`-th (from 1), ready to be created.
    pub(super) fn node(&self, name: &str, index: usize, now: Timestamp) -> Value {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let zone = letters(index.saturating_sub(1) % self.zones.max(1));
        let arch = architecture();
        let mut node = NODE.object(json!({"metadata": {
                "name": name,
                "labels": {
                    SIMULATED: "true",
                    "beta.kubernetes.io/arch": arch,
                    "beta.kubernetes.io/os": "linux",
                    "kubernetes.io/arch": arch,
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "node.kubernetes.io/instance-type": if self.gpus > 0 { "simulated-gpu" } else { "simulated" },
                    "topology.kubernetes.io/region": self.region,
                    "topology.kubernetes.io/zone": format!("{}-{zone}", self.region),
                },
            },
            "spec": {},
        }));
        let address = Ipv4Addr::from(NODE_NETWORK | (index % NODE_ADDRESSES_HALF));
        complete(&mut node, self, address, now);
        node
    }
}

impl SimulatedNodeShape {
    /// A node of a user, as its kubelet registers it.
    pub(super) fn given(&self, mut node: Value, now: Timestamp) -> Value {
        let node_name = name(&node).to_owned();
        for (label, value) in [
            (SIMULATED, "true"),
            ("kubernetes.io/arch", architecture()),
            ("kubernetes.io/hostname", &node_name),
            ("kubernetes.io/os", "linux"),
        ] {
            if labels(&node).is_none_or(|labels| label == SIMULATED || !labels.contains_key(label))
            {
                set(&mut node, &["metadata", "labels", label], value.into());
            }
        }
        let address = address_of_name(&node_name);
        complete(&mut node, self, address, now);
        node
    }
}

/// The node without its initial taint; `None` if the node does not have the taint or is not ready.
pub(super) fn without_not_ready(node: &Value) -> Option<Value> {
    let is_ready = condition(&node["status"], "Ready").is_some_and(|c| c["status"] == "True");
    let is_that = |taint: &Value| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule";
    let taints = node["spec"]["taints"].as_array()?;
    if !is_ready || !taints.iter().any(is_that) {
        return None;
    }
    let left: Vec<Value> = taints.iter().filter(|t| !is_that(t)).cloned().collect();
    let mut node = node.clone();
    match (left.is_empty(), node["spec"].as_object_mut()) {
        (true, Some(spec)) => {
            spec.remove("taints");
        }
        _ => set(&mut node, &["spec", "taints"], left.into()),
    }
    Some(node)
}

/// The address of a node without one: derived from its name, because its number is unknown.
fn address_of_name(name: &str) -> Ipv4Addr {
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(name.as_bytes());
    let host = NODE_ADDRESSES_HALF | (hasher.finish() as u32 % NODE_ADDRESSES_HALF);
    Ipv4Addr::from(NODE_NETWORK | host)
}

/// `a`, `b`, … `z`, `aa`, …
fn letters(mut index: u32) -> String {
    let mut text = String::new();
    loop {
        text.insert(0, char::from(b'a' + (index % 26) as u8));
        index /= 26;
        if index == 0 {
            return text;
        }
        index -= 1;
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Returns whether its kubelet has fallen silent.
pub(super) fn is_silent(node: &Value) -> bool {
    annotation(node, NODE_READY) == Some("Unknown")
}

/// The address that pods see as their host's.
pub(super) fn internal_ip(node: &Value) -> &str {
    berth_objects::object::items(&node["status"]["addresses"])
        .iter()
        .find(|a| a["type"] == "InternalIP")
        .and_then(|a| a["address"].as_str())
        .unwrap_or_default()
}

/// Adds the missing fields that the kubelet of a node reports. Returns whether the node changed.
fn complete(
    node: &mut Value,
    shape: &SimulatedNodeShape,
    address: Ipv4Addr,
    now: Timestamp,
) -> bool {
    let mut changed = false;
    if !node["status"]["capacity"].is_object() {
        let mut capacity = json!({
            "cpu": shape.cpu,
            "ephemeral-storage": shape.ephemeral_storage,
            "memory": shape.memory,
            "pods": shape.pods.to_string(),
        });
        if shape.gpus > 0 {
            capacity[&shape.gpu_resource] = shape.gpus.to_string().into();
        }
        set(node, &["status", "capacity"], capacity);
        changed = true;
    }
    if !node["status"]["allocatable"].is_object() {
        set(node, &["status", "allocatable"], json!({}));
    }
    // Like a kubelet, it can allocate a resource that a user adds to the capacity.
    let capacity = node["status"]["capacity"].clone();
    for (resource, amount) in capacity.as_object().into_iter().flatten() {
        if node["status"]["allocatable"][resource].is_null() {
            node["status"]["allocatable"][resource] = amount.clone();
            changed = true;
        }
    }
    if internal_ip(node).is_empty() {
        let addresses = json!([
            {"type": "InternalIP", "address": address.to_string()},
            {"type": "Hostname", "address": name(node)},
        ]);
        set(node, &["status", "addresses"], addresses);
        changed = true;
    }
    if node["status"]["nodeInfo"]["kubeletVersion"]
        .as_str()
        .is_none_or(str::is_empty)
    {
        let info = json!({
            "architecture": architecture(),
            "bootID": "",
            "containerRuntimeVersion": "berth://simulated",
            "kernelVersion": "simulated",
            "kubeProxyVersion": "",
            "kubeletVersion": KUBELET_VERSION,
            "machineID": name(node),
            "operatingSystem": "linux",
            "osImage": "Berth simulated node",
            "systemUUID": "",
        });
        set(node, &["status", "nodeInfo"], info);
        changed = true;
    }
    report(node, now, false) || changed
}

/// The node with the current report of its kubelet; `None` if the report is unchanged. `heartbeat` renews the times of
/// unchanged conditions.
pub(super) fn reported(
    node: &Value,
    shape: &SimulatedNodeShape,
    now: Timestamp,
    heartbeat: bool,
) -> Option<Value> {
    let mut new = node.clone();
    let completed = complete(&mut new, shape, address_of_name(name(node)), now);
    (report(&mut new, now, heartbeat) || completed).then_some(new)
}

/// Sets the conditions that kubelets report; `true` when that changed something.
fn report(node: &mut Value, now: Timestamp, heartbeat: bool) -> bool {
    let ready = if annotation(node, NODE_READY) == Some("False") {
        let message = format!("the annotation {NODE_READY} requests this");
        ("Ready", "False", "KubeletNotReady", message)
    } else {
        let message = "kubelet is posting ready status".to_owned();
        ("Ready", "True", "KubeletReady", message)
    };
    let sufficient = |kind, reason, message: &str| (kind, "False", reason, message.to_owned());
    let wanted = [
        sufficient(
            "MemoryPressure",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        sufficient(
            "DiskPressure",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        sufficient(
            "PIDPressure",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        ready,
    ];
    let mut changed = false;
    for (kind, status, reason, message) in wanted {
        let old = condition(&node["status"], kind);
        // Between heartbeats, a condition is written only if it differs.
        let is_same = old.is_some_and(|c| c["status"] == status && c["reason"] == reason);
        if is_same && !heartbeat {
            continue;
        }
        let mut new = new_condition(kind, status, reason, &message, now);
        new["lastHeartbeatTime"] = seconds(now);
        if !node["status"].is_object() {
            node["status"] = json!({});
        }
        update_condition(&mut node["status"], new);
        changed = true;
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_objects::well_known::is_simulated;

    const T0: &str = "2026-01-01T00:00:00Z";

    #[test]
    fn nodes_are_dealt_out_to_zones_and_have_their_own_addresses() {
        let shape = SimulatedNodeShape {
            gpus: 8,
            ..SimulatedNodeShape::default()
        };
        let now = T0.parse().unwrap();
        let zone = |i| {
            let node = shape.node(&format!("berth-node-{i}"), i, now);
            let label = &node["metadata"]["labels"]["topology.kubernetes.io/zone"];
            label.as_str().unwrap().to_owned()
        };
        assert_eq!(
            [1, 2, 3, 4].map(zone),
            ["berth-a", "berth-b", "berth-c", "berth-a"]
        );
        let node = shape.node("berth-node-300", 300, now);
        assert_eq!(internal_ip(&node), "172.16.1.44");
        assert_eq!(
            node["status"]["allocatable"],
            json!({"cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi",
                   "nvidia.com/gpu": "8"})
        );
        let ready = condition(&node["status"], "Ready").unwrap();
        assert_eq!(
            (&ready["status"], &ready["reason"]),
            (&json!("True"), &json!("KubeletReady"))
        );
        assert_eq!(
            ["a", "z", "aa", "ab"],
            [0, 25, 26, 27].map(letters).each_ref().map(String::as_str)
        );
    }

    #[test]
    fn a_kubelet_reports_only_what_is_new() {
        let shape = SimulatedNodeShape::default();
        let node = shape.node("a", 1, T0.parse().unwrap());
        let later = "2026-01-01T00:05:00Z".parse().unwrap();
        assert_eq!(reported(&node, &shape, later, false), None);
        let beaten = reported(&node, &shape, later, true).unwrap();
        let ready = condition(&beaten["status"], "Ready").unwrap();
        assert_eq!(ready["lastHeartbeatTime"], "2026-01-01T00:05:00Z");
        assert_eq!(ready["lastTransitionTime"], T0);
        let mut notified = node.clone();
        notified["metadata"]["annotations"] = json!({NODE_READY: "False"});
        let broken = reported(&notified, &shape, later, false).unwrap();
        let ready = condition(&broken["status"], "Ready").unwrap();
        assert_eq!(
            (&ready["status"], &ready["reason"]),
            (&json!("False"), &json!("KubeletNotReady"))
        );
        assert_eq!(ready["lastTransitionTime"], "2026-01-01T00:05:00Z");
        assert_eq!(reported(&broken, &shape, later, false), None);
    }

    #[test]
    fn a_users_node_keeps_what_it_states_and_gets_what_it_lacks() {
        let user = json!({"metadata": {"name": "mine", "labels": {SIMULATED: "true"}},
                          "status": {"capacity": {"cpu": "64"}}});
        let node = reported(
            &user,
            &SimulatedNodeShape::default(),
            T0.parse().unwrap(),
            false,
        )
        .unwrap();
        assert_eq!(node["status"]["allocatable"], json!({"cpu": "64"}));
        assert!(internal_ip(&node).starts_with("172."));
        assert!(is_simulated(&node) && !is_silent(&node));
        let of_kwok =
            json!({"metadata": {"name": "k", "annotations": {"kwok.x-k8s.io/node": "fake"}}});
        assert!(is_simulated(&of_kwok));
        let mut more = node.clone();
        more["status"]["capacity"]["example.com/gpu"] = "2".into();
        more["status"]["allocatable"]["cpu"] = "60".into();
        let more = reported(
            &more,
            &SimulatedNodeShape::default(),
            T0.parse().unwrap(),
            false,
        )
        .unwrap();
        assert_eq!(
            more["status"]["allocatable"],
            json!({"cpu": "60", "example.com/gpu": "2"})
        );
    }
}
