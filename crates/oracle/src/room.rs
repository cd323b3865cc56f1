//! Whether a node has room: resources and host ports.

use berth_api::pod::{Container, ContainerStatus};
use berth_api::quantity::QuantityFormat;
use berth_api::{Node, Pod, Quantity, ResourceList, Str};

/// The requests of a pod by its spec, with the place of the pod itself as the resource `pods`.
pub fn requests(pod: &Pod) -> ResourceList {
    total(pod, |container, _| &container.resources.requests)
}

/// The resources that a kubelet has allocated to a pod, which a resize changes before it changes the containers.
pub fn allocated(pod: &Pod) -> ResourceList {
    total(pod, |container, statuses| {
        let mut own = statuses.iter().filter(|s| s.name == container.name);
        match own.find(|status| status.resources.is_some()) {
            Some(status) => &status.allocated_resources,
            None => &container.resources.requests,
        }
    })
}

/// Init containers run one after the other, each beside the sidecars that were started before it (KEP-753); then the
/// containers run together beside all sidecars. Requests of the pod as a whole replace those sums (KEP-2837).
fn total<'p>(
    pod: &'p Pod,
    of: impl Fn(&'p Container, &'p [ContainerStatus]) -> &'p ResourceList,
) -> ResourceList {
    let mut sidecars = ResourceList::default();
    let mut most = ResourceList::default();
    for container in &pod.spec.init_containers {
        let mut running = sidecars.clone();
        running.add_all(of(container, &pod.status.init_container_statuses));
        most.max_all(&running);
        if container.is_sidecar() {
            sidecars = running;
        }
    }
    let mut running = sidecars;
    for container in &pod.spec.containers {
        running.add_all(of(container, &pod.status.container_statuses));
    }
    most.max_all(&running);
    let whole = pod.spec.resources.iter();
    for (resource, amount) in whole.flat_map(|whole| whole.requests.iter()) {
        if matches!(resource.as_str(), "cpu" | "memory") || resource.starts_with("hugepages-") {
            most.set(resource.clone(), *amount);
        }
    }
    most.add_all(&pod.spec.overhead);
    let one = Quantity::from_value(1, QuantityFormat::DecimalSI);
    most.set("pods".into(), one);
    most
}

/// A resource of which a node has not enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// The resource; `pods` for the number of pods.
    pub resource: Str,
    /// The amount that the pod requests.
    pub requested: Quantity,
    /// The amount that the other pods of the node use.
    pub used: Quantity,
    /// The amount that the node has; zero if it does not have the resource.
    pub allocatable: Quantity,
}

/// The resources of which a node has not enough for these requests beside those that are in use, by name.
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
    /// Returns whether two pods of a node cannot use these ports.
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
