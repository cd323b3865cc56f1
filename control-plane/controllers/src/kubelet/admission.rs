//! Admission of pods by a kubelet. As in kubelet, a bound pod that cannot run on the node fails: its phase is Failed,
//! and its reason is the first failing check. Unlike in kubelet, critical pods preempt no other pods.

use berth_api::names::is_dra_extended_resource_name;
use berth_api::{Node, Pod, Quantity, ResourceList, Str, TaintEffect};
use berth_objects::object::{self, seconds};
use berth_objects::pod;
use berth_objects::view::FieldView;
use berth_oracle::{HostPort, Shortage};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

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

/// The resources that are compared first, in kubelet's order.
const FIRST: [&str; 4] = ["pods", "cpu", "memory", "ephemeral-storage"];

/// The part of a node that a pod uses.
#[derive(Debug)]
pub(super) struct NodeShare {
    allocated: ResourceList,
    ports: Vec<HostPort>,
}

impl NodeShare {
    /// The share of a pod: its allocated resources and its host ports.
    ///
    /// # Errors
    /// The pod cannot be decoded.
    pub(super) fn by(pod: &Value) -> Result<Self, serde_json::Error> {
        let pod = object::decoded_pod(pod)?;
        Ok(Self {
            allocated: berth_oracle::allocated(&pod),
            ports: berth_oracle::host_ports(&pod).collect(),
        })
    }
}

/// A pod and its node as the oracle judges them.
pub(super) struct JudgedPod {
    pod: Arc<Pod>,
    node: Arc<Node>,
    /// The parts of the node that its other pods use.
    taken: Vec<Arc<NodeShare>>,
}

impl JudgedPod {
    /// Decodes the objects. `taken` is the part of the node that each of its other pods uses.
    ///
    /// # Errors
    /// An object cannot be decoded.
    pub(super) fn new(
        pod: &Value,
        node: &Value,
        taken: Vec<Arc<NodeShare>>,
    ) -> Result<Self, serde_json::Error> {
        Ok(Self {
            pod: object::decoded_pod(pod)?,
            node: object::decoded_node(node)?,
            taken,
        })
    }

    /// The first checked resource with less free capacity than the pod requests, after the allocations of the other
    /// pods of the node.
    pub(super) fn shortage(&self, is_checked: impl Fn(&Str) -> bool) -> Option<Shortage> {
        let mut used = ResourceList::default();
        for taken in &self.taken {
            used.add_all(&taken.allocated);
        }
        let requests = berth_oracle::requests(&self.pod);
        let short = berth_oracle::shortages(&requests, &used, &self.node);
        let place = |name: &Str| FIRST.iter().position(|first| *name == *first);
        short
            .filter(|shortage| is_checked(&shortage.resource))
            .min_by_key(|shortage| place(&shortage.resource).unwrap_or(FIRST.len()))
    }

    /// The first check that fails, in kubelet's order.
    fn rejection(&self, by_devices: impl Fn(&str) -> bool) -> Option<Rejection> {
        let Self { pod, node, taken } = self;
        // Extended resources that the node does not have, or that devices provide, are not checked: the scheduler
        // allocates devices for them. This includes extended resources of device classes.
        let short = self.shortage(|name| {
            let is_of_node = node.status.allocatable.get(name).is_some();
            !is_dra_extended_resource_name(name) || (is_of_node && !by_devices(name))
        });
        if let Some(short) = short {
            return Rejection::new(&format!("OutOf{}", short.resource), message_of(&short));
        }
        if !berth_oracle::has_selected_labels(pod, node)
            || !berth_oracle::matches_affinity(pod, node)
        {
            let description = "node(s) didn't match Pod's node affinity/selector";
            return Rejection::of_predicate("NodeAffinity", description);
        }
        let ports: Vec<HostPort> = berth_oracle::host_ports(pod).collect();
        let mut taken = taken.iter().flat_map(|taken| &taken.ports);
        if taken.any(|taken| ports.iter().any(|port| port.conflicts_with(taken))) {
            let description = "node(s) didn't have free ports for the requested pod ports";
            return Rejection::of_predicate("NodePorts", description);
        }
        let effects = [TaintEffect::NoExecute];
        let mut taints = berth_oracle::untolerated(&pod.spec.tolerations, node, &effects);
        taints.next()?;
        let description = "node(s) had taints that the pod didn't tolerate";
        Rejection::of_predicate("TaintToleration", description)
    }
}

/// The reason why a node cannot run a pod. `taken` is the part of the node that each of its other pods uses.
pub(super) fn reject(
    pod: &Value,
    node: &Value,
    taken: Result<Vec<Arc<NodeShare>>, serde_json::Error>,
) -> Option<Rejection> {
    if !matches!(pod.part("spec").part("os").text("name"), "" | "linux") {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Rejection::new("PodOSNotSupported", message);
    }
    let claims = pod.part("status").part("extendedResourceClaimStatus");
    let by_devices = |name: &str| {
        let mut mapped = claims.items("requestMappings").iter();
        mapped.any(|m| m.text("resourceName") == name)
    };
    match taken.and_then(|taken| JudgedPod::new(pod, node, taken)) {
        Ok(judged) => judged.rejection(by_devices),
        Err(error) => Rejection::new("UnexpectedAdmissionError", error.to_string()),
    }
}

/// The message about a shortage, with kubelet's units: milli-CPU, bytes, whole numbers.
pub(super) fn message_of(short: &Shortage) -> String {
    let resource = &short.resource;
    let amount = |quantity: Quantity| match resource.as_str() {
        "cpu" => quantity.milli_value(),
        _ => quantity.value(),
    };
    format!(
        "Node didn't have enough resource: {resource}, requested: {}, used: {}, capacity: {}",
        amount(short.requested),
        amount(short.used),
        amount(short.allocatable)
    )
}

/// Returns whether a node runs the pod: its kubelet has admitted it, and it has not ended.
pub(super) fn runs(pod: &Value) -> bool {
    !pod::is_terminal(pod) && pod["status"]["startTime"].is_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: Value) -> Value {
        let mut pod = json!({"spec": {"containers": [{"name": "c"}]}, "status": {"startTime": "2026-01-01T00:00:00Z"}});
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
            let taken = others
                .iter()
                .map(|other| NodeShare::by(other).map(Arc::new));
            let got = reject(&pod, node, taken.collect());
            let got = got.as_ref().map(|r| (&*r.reason, &*r.message));
            assert_eq!(got, expect, "{pod}");
        }
    }
}
