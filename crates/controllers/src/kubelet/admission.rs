//! The pods that a kubelet runs. As in kubelet, a pod that is bound to a node on which it cannot run fails: its phase
//! is Failed, and the reason is that of the first check that fails. Unlike kubelet, critical pods preempt no others.

use super::resize;
use crate::node_fit::NodeFit;
use berth_api::TaintEffect;
use berth_api::names::is_dra_extended_resource_name;
use berth_objects::access::StoredObject;
use berth_objects::object::{items, seconds};
use berth_objects::pod;
use berth_objects::validation::amounts::{self, Amounts};
use berth_objects::validation::pod::requests;
use berth_objects::view::{FieldView, items_mut};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The reason why a pod is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reason: String,
    pub(super) message: String,
}

impl Rejection {
    fn new(reason: &str, message: impl Into<String>) -> Option<Self> {
        Some(Self {
            reason: reason.to_owned(),
            message: message.into(),
        })
    }

    fn of_predicate(name: &str, description: &str) -> Option<Self> {
        Self::new(name, format!("Predicate {name} failed: {description}"))
    }

    /// The status of the rejected pod.
    pub(super) fn status(&self, pod: &Value, now: Timestamp) -> Value {
        let mut status = match &pod["status"] {
            status @ Value::Object(_) => status.clone(),
            _ => json!({}),
        };
        status["phase"] = "Failed".into();
        status["reason"] = self.reason.as_str().into();
        status["message"] = format!("Pod was rejected: {}", self.message).into();
        if status["startTime"].is_null() {
            status["startTime"] = seconds(now);
        }
        status
    }
}

/// The reason why a node cannot run a pod. `others` are the pods that it runs.
pub(super) fn reject(pod: &Value, node: &Value, others: &[&StoredObject]) -> Option<Rejection> {
    let spec = pod.part("spec");
    let os = spec.part("os").text("name");
    if !matches!(os, "" | "linux") {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Rejection::new("PodOSNotSupported", message);
    }
    let fit = NodeFit::new(spec, &pod["spec"]["tolerations"]);
    let room = amounts::list(node.part("status"), "allocatable");
    let pods = room.get("pods").map_or(0, |pods| pods.value());
    let used = i64::try_from(others.len()).unwrap_or(i64::MAX);
    // The number of pods is compared first, as in kubelet.
    let lacks = if used >= pods {
        Some(Shortage::new("pods", [1, used, pods]))
    } else {
        shortage(&wanted(pod, &room), others, &room)
    };
    if let Some(shortage) = lacks {
        return Rejection::new(&format!("OutOf{}", shortage.resource), shortage.message);
    }
    if !fit.matches(node) {
        let description = "node(s) didn't match Pod's node affinity/selector";
        return Rejection::of_predicate("NodeAffinity", description);
    }
    if others.iter().any(|other| ports_conflict(pod, other)) {
        let description = "node(s) didn't have free ports for the requested pod ports";
        return Rejection::of_predicate("NodePorts", description);
    }
    if fit.is_repelled(node, TaintEffect::NoExecute) {
        let description = "node(s) had taints that the pod didn't tolerate";
        return Rejection::of_predicate("TaintToleration", description);
    }
    None
}

/// A resource of which a node has not enough.
#[derive(Debug)]
pub(super) struct Shortage {
    resource: String,
    pub(super) message: String,
}

impl Shortage {
    fn new(resource: &str, [requested, used, capacity]: [i64; 3]) -> Self {
        Self {
            resource: resource.to_owned(),
            message: format!(
                "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        }
    }
}

/// The requests of a pod. Extended resources that the node does not have, or that devices provide, are not checked: the
/// scheduler allocates devices for them, those of a device class by its own name, too.
fn wanted(pod: &Value, room: &Amounts) -> Amounts {
    let claims = pod.part("status").part("extendedResourceClaimStatus");
    let by_devices = |name: &str| {
        let mut mapped = claims.items("requestMappings").iter();
        mapped.any(|m| m.text("resourceName") == name)
    };
    let mut wanted = total(pod, pod.part("spec"));
    wanted.retain(|name, _| {
        !is_dra_extended_resource_name(name) || (room.contains_key(name) && !by_devices(name))
    });
    wanted
}

/// The resource of which a node with this room has not enough beside its other pods.
pub(super) fn shortage(
    wanted: &Amounts,
    others: &[&StoredObject],
    room: &Amounts,
) -> Option<Shortage> {
    let mut used = Amounts::new();
    for other in others {
        requests::add(&mut used, &allocated(other));
    }
    let first = ["cpu", "memory", "ephemeral-storage"];
    let rest = wanted.keys().map(String::as_str);
    let rest = rest.filter(|name| !first.contains(name));
    first.into_iter().chain(rest).find_map(|name| {
        let amount = |list: &Amounts| match (list.get(name), name) {
            (None, _) => 0,
            (Some(amount), "cpu") => amount.milli_value(),
            (Some(amount), _) => amount.value(),
        };
        let (wanted, used, room) = (amount(wanted), amount(&used), amount(room));
        (wanted > 0 && wanted > room.saturating_sub(used))
            .then(|| Shortage::new(name, [wanted, used, room]))
    })
}

/// The requests of a spec with the overhead of its pod.
pub(super) fn total(pod: &Value, spec: &Value) -> Amounts {
    let mut total = requests::with_pod_level(spec, "requests");
    requests::add(&mut total, &amounts::list(pod.part("spec"), "overhead"));
    total
}

/// The resources that are allocated to a pod, which a resize changes before it changes the containers.
fn allocated(pod: &Value) -> Amounts {
    if resize::reported(pod).all(resize::is_allocated) {
        return total(pod, pod.part("spec"));
    }
    let mut spec = pod.part("spec").clone();
    for (list, _) in resize::CONTAINERS {
        for container in items_mut(&mut spec, list) {
            let own = resize::reported(pod).find(|(c, _)| c["name"] == container["name"]);
            if let Some((_, status)) = own {
                container["resources"]["requests"] = status.part("allocatedResources").clone();
            }
        }
    }
    total(pod, &spec)
}

/// Returns whether two pods want the same port of their host.
fn ports_conflict(pod: &Value, other: &Value) -> bool {
    host_ports(pod).any(|port| {
        host_ports(other).any(|taken| {
            let meet = port.0 == taken.0 || is_any(port.0) || is_any(taken.0);
            meet && (port.1, port.2) == (taken.1, taken.2)
        })
    })
}

fn is_any(ip: &str) -> bool {
    matches!(ip, "" | "0.0.0.0")
}

/// The ports of the host that a pod uses: address, protocol and number.
fn host_ports(pod: &Value) -> impl Iterator<Item = (&str, &str, i64)> {
    let spec = &pod["spec"];
    let sidecars = items(&spec["initContainers"])
        .iter()
        .filter(|c| requests::is_sidecar(c));
    let containers = items(&spec["containers"]).iter().chain(sidecars);
    let ports = containers.flat_map(|c| items(&c["ports"]));
    ports.filter_map(|port| {
        let number = port["hostPort"].as_i64().filter(|n| *n > 0)?;
        let protocol = match port.text("protocol") {
            "" => "TCP",
            protocol => protocol,
        };
        Some((port.text("hostIP"), protocol, number))
    })
}

/// The pods that a node runs: those that its kubelet has admitted and that have not ended.
pub(super) fn runs(pod: &Value) -> bool {
    !pod::is_terminal(pod) && pod["status"]["startTime"].is_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn pod(spec: Value) -> Value {
        let mut pod =
            json!({"spec": {"containers": [{"name": "c"}]}, "status": {"startTime": "x"}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][field] = value.clone();
        }
        pod
    }

    fn requests(list: Value) -> Value {
        pod(json!({"containers": [{"name": "c", "resources": {"requests": list}}]}))
    }

    fn port(host_ip: &str, protocol: &str, number: u32) -> Value {
        pod(json!({"containers": [{"name": "c", "ports": [
            {"hostIP": host_ip, "hostPort": number, "protocol": protocol}]}]}))
    }

    #[test]
    fn a_pod_that_cannot_run_on_its_node_is_rejected() {
        let node = json!({
            "metadata": {"name": "n", "labels": {"disk": "ssd"}},
            "status": {"allocatable": {"cpu": "4", "memory": "1Gi", "pods": "3", "example.com/gpu": "1"}},
        });
        let mut tainted = node.clone();
        tainted["spec"]["taints"] = json!([{"key": "x", "effect": "NoExecute"}]);
        let others = [
            Arc::new(requests(json!({"cpu": "3500m", "example.com/gpu": "1"}))),
            Arc::new(port("127.0.0.1", "TCP", 80)),
        ];
        let full = [others[0].clone(), others[1].clone(), others[0].clone()];
        let cases = [
            (requests(json!({"cpu": "500m"})), &node, &others[..], None),
            (
                requests(json!({"cpu": "1"})),
                &node,
                &others[..],
                Some((
                    "OutOfcpu",
                    "Node didn't have enough resource: cpu, requested: 1000, used: 3500, capacity: 4000",
                )),
            ),
            (
                requests(json!({"memory": "2Gi"})),
                &node,
                &others[..],
                Some((
                    "OutOfmemory",
                    "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
                )),
            ),
            (
                requests(json!({"example.com/gpu": "1"})),
                &node,
                &others[..],
                Some((
                    "OutOfexample.com/gpu",
                    "Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1",
                )),
            ),
            (
                requests(json!({"example.com/other": "1"})),
                &node,
                &others[..],
                None,
            ),
            (
                pod(json!({})),
                &node,
                &full[..],
                Some((
                    "OutOfpods",
                    "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
                )),
            ),
            (
                pod(json!({"nodeSelector": {"disk": "hdd"}})),
                &node,
                &others[..],
                Some((
                    "NodeAffinity",
                    "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
                )),
            ),
            (
                port("0.0.0.0", "TCP", 80),
                &node,
                &others[..],
                Some((
                    "NodePorts",
                    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
                )),
            ),
            (port("", "UDP", 80), &node, &others[..], None),
            (port("10.0.0.1", "TCP", 80), &node, &others[..], None),
            (
                pod(json!({})),
                &tainted,
                &others[..],
                Some((
                    "TaintToleration",
                    "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
                )),
            ),
            (
                pod(json!({"os": {"name": "windows"}})),
                &node,
                &others[..],
                Some((
                    "PodOSNotSupported",
                    "Failed to admit pod as the OS field doesn't match node OS",
                )),
            ),
        ];
        for (pod, node, others, expect) in cases {
            let others: Vec<&StoredObject> = others.iter().collect();
            let got = reject(&pod, node, &others);
            let got = got.as_ref().map(|r| (&*r.reason, &*r.message));
            assert_eq!(got, expect, "{pod}");
        }
    }
}
