//! The rules that a node alone decides: labels, taints, and whether there is room.

use super::Surroundings;
use berth_api::node_selector::CompiledNodeSelector;
use berth_api::taint::tolerates_taint;
use berth_api::{Node, Pod, Str, Taint, TaintEffect};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The taint that a cordoned node has for the scheduler.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// The rule about labels and taints that every version of the node breaks.
pub(super) fn broken_rule(pod: &Pod, versions: &[Arc<Node>]) -> Option<String> {
    let mut rule = None;
    for node in versions.iter().rev() {
        let broken = labels(pod, node).or_else(|| taints(pod, node))?;
        rule.get_or_insert(broken);
    }
    rule
}

/// Returns whether node selector and required node affinity match.
pub(super) fn labels(pod: &Pod, node: &Node) -> Option<String> {
    let selected = pod.spec.node_selector.as_ref().is_none_or(|selector| {
        selector
            .iter()
            .all(|(key, value)| node.labels().get(key) == Some(value.as_str()))
    });
    if !selected {
        return Some("the node selector does not match".to_owned());
    }
    let affinity = pod.spec.affinity.as_ref();
    let required = affinity
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required.as_ref());
    let matched = required.is_none_or(|required| {
        CompiledNodeSelector::new(required)
            .matches(node.labels(), node.name())
            .unwrap_or(false)
    });
    (!matched).then(|| "the node affinity does not match".to_owned())
}

fn taints(pod: &Pod, node: &Node) -> Option<String> {
    // Comparison operators only tolerate more.
    let tolerated = |taint: &Taint| tolerates_taint(&pod.spec.tolerations, taint, true);
    let taint = node
        .spec
        .taints
        .iter()
        .find(|taint| taint.effect.forbids_scheduling() && !tolerated(taint));
    if let Some(taint) = taint {
        return Some(format!("the taint {} is not tolerated", taint.key));
    }
    let cordon = Taint::new(CORDON, "", TaintEffect::NoSchedule);
    (node.spec.unschedulable && !tolerated(&cordon)).then(|| "the node is cordoned".to_owned())
}

/// The sums over the pods of a node.
#[derive(Debug, Default)]
pub(super) struct Load {
    pods: i128,
    /// In thousandths.
    used: BTreeMap<Str, i128>,
    ports: BTreeMap<Port, usize>,
}

impl Load {
    pub(super) fn add(&mut self, pod: &Pod) {
        self.pods += 1;
        for (resource, amount) in requested(pod) {
            *self.used.entry(resource).or_default() += amount;
        }
        for port in ports(pod) {
            *self.ports.entry(port).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, pod: &Pod) {
        self.pods -= 1;
        for (resource, amount) in requested(pod) {
            *self.used.entry(resource).or_default() -= amount;
        }
        for port in ports(pod) {
            if let Some(count) = self.ports.get_mut(&port) {
                *count -= 1;
                if *count == 0 {
                    self.ports.remove(&port);
                }
            }
        }
    }
}

/// The resource or port that is not free beside the pods of the node, in any of its versions.
pub(super) fn lacking(
    pod: &Pod,
    load: &Load,
    versions: &[Arc<Node>],
    surroundings: &Surroundings,
) -> Option<String> {
    exceeded(pod, load, versions, surroundings).or_else(|| port_in_use(pod, load))
}

fn exceeded(
    pod: &Pod,
    load: &Load,
    versions: &[Arc<Node>],
    surroundings: &Surroundings,
) -> Option<String> {
    let wanted = requested(pod);
    let mut rule = None;
    for node in versions.iter().rev() {
        let broken = lacking_of(node, load.pods + 1, &wanted, &load.used, surroundings)?;
        rule.get_or_insert(broken);
    }
    rule
}

fn lacking_of(
    node: &Node,
    pods: i128,
    wanted: &BTreeMap<Str, i128>,
    used: &BTreeMap<Str, i128>,
    surroundings: &Surroundings,
) -> Option<String> {
    let offers = |resource: &str| {
        node.status
            .allocatable
            .get(resource)
            .map(|quantity| i128::from(quantity.milli_value()))
    };
    let most = offers("pods").unwrap_or(0);
    if pods * 1000 > most {
        return Some(format!(
            "the node has room for {} pods, and this is pod {pods}",
            most / 1000
        ));
    }
    for (resource, amount) in wanted.iter().filter(|(_, amount)| **amount > 0) {
        let offered = match offers(resource) {
            Some(offered) => offered,
            // Devices provide it.
            None if surroundings.is_backed_by_devices(resource) => continue,
            None => 0,
        };
        let taken = used.get(resource).copied().unwrap_or(0);
        if taken + amount > offered {
            return Some(format!(
                "{resource} is exceeded: {taken}m are used and {amount}m requested of {offered}m"
            ));
        }
    }
    None
}

/// In thousandths. Containers run together, init containers before them one after the other; sidecars keep running
/// (KEP-753). Requests of the pod as a whole replace the sum (KEP-2837).
fn requested(pod: &Pod) -> BTreeMap<Str, i128> {
    let mut running: BTreeMap<Str, i128> = BTreeMap::new();
    let mut most: BTreeMap<Str, i128> = BTreeMap::new();
    for container in &pod.spec.init_containers {
        for (resource, quantity) in container.resources.requests.iter() {
            let amount = i128::from(quantity.milli_value());
            let beside = running.entry(resource.clone()).or_default();
            let total = *beside + amount;
            if container.is_sidecar() {
                *beside = total;
            }
            let most = most.entry(resource.clone()).or_default();
            *most = (*most).max(total);
        }
    }
    for container in &pod.spec.containers {
        for (resource, quantity) in container.resources.requests.iter() {
            *running.entry(resource.clone()).or_default() += i128::from(quantity.milli_value());
        }
    }
    for (resource, amount) in most {
        let sum = running.entry(resource).or_default();
        *sum = (*sum).max(amount);
    }
    if let Some(whole) = &pod.spec.resources {
        for (resource, quantity) in whole.requests.iter() {
            running.insert(resource.clone(), i128::from(quantity.milli_value()));
        }
    }
    for (resource, quantity) in pod.spec.overhead.iter() {
        *running.entry(resource.clone()).or_default() += i128::from(quantity.milli_value());
    }
    running
}

fn port_in_use(pod: &Pod, load: &Load) -> Option<String> {
    let wanted = ports(pod);
    let clash = load.ports.keys().find(|taken| {
        wanted.iter().any(|port| {
            let addresses = port.0 == taken.0 || port.0 == ANY || taken.0 == ANY;
            addresses && port.1 == taken.1 && port.2 == taken.2
        })
    })?;
    Some(format!("host port {} is in use", clash.2))
}

/// The address that represents all addresses of a node.
const ANY: &str = "0.0.0.0";

/// Address, protocol and number.
type Port = (String, String, i32);

fn ports(pod: &Pod) -> Vec<Port> {
    let or = |text: &Str, default: &str| {
        if text.is_empty() {
            default.to_owned()
        } else {
            text.to_string()
        }
    };
    let containers = pod.spec.containers.iter();
    let sidecars = pod.spec.init_containers.iter().filter(|c| c.is_sidecar());
    containers
        .chain(sidecars)
        .flat_map(|container| &container.ports)
        .filter(|port| port.host_port > 0)
        .map(|port| {
            (
                or(&port.host_ip, ANY),
                or(&port.protocol, "TCP"),
                port.host_port,
            )
        })
        .collect()
}
