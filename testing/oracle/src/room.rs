//! Capacity: decides whether a node has enough resources and host ports for a pod.

use berth_api::pod::{Container, ContainerStatus};
use berth_api::quantity::QuantityFormat;
use berth_api::{Node, Pod, Quantity, ResourceList, Str};
use std::collections::BTreeMap;

/// The requests of a pod by its spec, plus one of the resource `pods` for the pod itself.
pub fn requests(pod: &Pod) -> ResourceList {
    total(pod, |container, _| &container.resources.requests)
}

/// The resources that a kubelet has allocated to a pod. A resize changes them before it changes the containers.
pub fn allocated(pod: &Pod) -> ResourceList {
    let init = allocated_by_name(&pod.status.init_container_statuses);
    let ordinary = allocated_by_name(&pod.status.container_statuses);
    total(pod, |container, is_init| {
        let stated = if is_init { &init } else { &ordinary };
        let own = stated.get(container.name.as_str()).copied();
        own.unwrap_or(&container.resources.requests)
    })
}

/// The resources that are allocated to the containers with these statuses. If a name has several statuses, the first
/// counts.
fn allocated_by_name(statuses: &[ContainerStatus]) -> BTreeMap<&str, &ResourceList> {
    let stated = statuses.iter().rev();
    let stated = stated.filter(|status| status.resources.is_some());
    stated
        .map(|status| (status.name.as_str(), &status.allocated_resources))
        .collect()
}

/// Amounts by resource.
type Sums = BTreeMap<Str, Quantity>;

/// Init containers run one after the other, each together with the sidecars that were started before it (KEP-753); then
/// the containers run together with all sidecars. Pod-level requests replace those sums (KEP-2837).
///
/// `of` returns the resources of a container; the second argument states whether it is an init container.
fn total<'a>(pod: &'a Pod, of: impl Fn(&'a Container, bool) -> &'a ResourceList) -> ResourceList {
    let mut sidecars = Sums::new();
    let mut most = Sums::new();
    let raise = |most: &mut Sums, resource: &Str, amount: Quantity| {
        let known = most.entry(resource.clone()).or_insert(amount);
        *known = amount.max(*known);
    };
    for container in &pod.spec.init_containers {
        // The earlier sidecars count already: only the resources of this container can raise a sum.
        for (resource, own) in of(container, true).iter() {
            let running = sidecars.get(resource).map_or(*own, |before| *before + *own);
            raise(&mut most, resource, running);
            if container.is_sidecar() {
                sidecars.insert(resource.clone(), running);
            }
        }
    }
    let mut running = sidecars;
    for container in &pod.spec.containers {
        for (resource, own) in of(container, false).iter() {
            let sum = running.get(resource).map_or(*own, |before| *before + *own);
            running.insert(resource.clone(), sum);
        }
    }
    for (resource, amount) in &running {
        raise(&mut most, resource, *amount);
    }
    let whole = pod.spec.resources.iter();
    for (resource, amount) in whole.flat_map(|whole| whole.requests.iter()) {
        if matches!(resource.as_str(), "cpu" | "memory") || resource.starts_with("hugepages-") {
            most.insert(resource.clone(), *amount);
        }
    }
    let mut most = ResourceList::from_pairs(most);
    most.add_all(&pod.spec.overhead);
    let one = Quantity::from_value(1, QuantityFormat::DecimalSI);
    most.set("pods".into(), one);
    most
}

/// A resource that a node lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// The resource; `pods` for the number of pods.
    pub resource: Str,
    /// The amount that the pod requests.
    pub requested: Quantity,
    /// The amount that the other pods of the node use.
    pub used: Quantity,
    /// The allocatable amount of the node; zero without the resource.
    pub allocatable: Quantity,
}

/// The resources that a node lacks for these requests in addition to the used amounts, by name.
pub fn shortages<'r>(
    requests: &'r ResourceList,
    used: &'r ResourceList,
    node: &'r Node,
) -> impl Iterator<Item = Shortage> + 'r {
    let amount = |list: &ResourceList, name: &Str| list.get(name).copied().unwrap_or_default();
    let compared = requests.iter().map(move |(name, requested)| Shortage {
        resource: name.clone(),
        requested: *requested,
        used: amount(used, name),
        allocatable: amount(&node.status.allocatable, name),
    });
    compared.filter(|s| s.requested.sign() > 0 && s.requested + s.used > s.allocatable)
}

/// A port of the node that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// The address; `0.0.0.0` for all addresses of the node.
    pub ip: Str,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Str,
    /// The number, above zero.
    pub number: i32,
}

impl HostPort {
    /// Returns whether two pods of a node cannot both use these ports.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let is_any = |port: &Self| port.ip == "0.0.0.0";
        (&self.protocol, self.number) == (&other.protocol, other.number)
            && (self.ip == other.ip || is_any(self) || is_any(other))
    }
}

/// The host ports of the containers and sidecars of a pod.
pub fn host_ports(pod: &Pod) -> impl Iterator<Item = HostPort> {
    let or = |text: &Str, default: &str| match text.as_str() {
        "" => default.into(),
        _ => text.clone(),
    };
    let sidecars = pod.spec.init_containers.iter().filter(|c| c.is_sidecar());
    let containers = pod.spec.containers.iter().chain(sidecars);
    let ports = containers.flat_map(|container| &container.ports);
    let ports = ports.filter(|port| port.host_port > 0);
    ports.map(move |port| HostPort {
        ip: or(&port.host_ip, "0.0.0.0"),
        protocol: or(&port.protocol, "TCP"),
        number: port.host_port,
    })
}
