//! The total resource requests of a pod.
//!
//! Sidecars, init containers, in-place resize, pod-level resources and overhead (KEP-753, KEP-1287, KEP-2837).
//! Kubernetes 1.36 and 1.37 differ in the counted amount of a pod during a resize; see [`Footprint`].

use crate::pod::{Container, ContainerStatus};
use crate::quantity::QuantityFormat;
use crate::resources::{CPU, MEMORY, ResourceSum};
use crate::{Pod, Quantity, ResourceList, Resources, Str};
use rustc_hash::FxHashMap;

/// The CPU request that is assumed of a container without one when nodes are scored: 100 milli-CPU.
pub const DEFAULT_MILLI_CPU: i64 = 100;
/// The memory request that is assumed of a container without one when nodes are scored: 200 MiB, in bytes.
pub const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// The requests with which a pod counts on its node during an in-place resize. Each container has desired requests (in
/// the spec), and allocated and actuated requests (in the status).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Footprint {
    /// The sum of the maximum of each container, up to Kubernetes 1.36.
    #[default]
    Containers,
    /// The maximum of the three sums of the pod, since Kubernetes 1.37.
    Pod,
}

/// The options of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SumOptions {
    /// Count the actual resources of containers in addition to the requests of their spec (in-place resize).
    pub use_status: bool,
    /// Let pod-level requests replace the sum of the containers.
    pub pod_level: bool,
    /// Put [`DEFAULT_MILLI_CPU`] and [`DEFAULT_MEMORY`] where a container has no request of that name.
    pub non_zero: bool,
    /// The requests of a resized pod that count, with `use_status`.
    pub footprint: Footprint,
}

impl SumOptions {
    /// The request of a pending pod, as filters read it.
    pub const PENDING: Self = Self {
        use_status: false,
        pod_level: true,
        non_zero: false,
        footprint: Footprint::Containers,
    };
    /// The resources that a pod holds on its node.
    pub const PLACED: Self = Self {
        use_status: true,
        pod_level: true,
        non_zero: false,
        footprint: Footprint::Containers,
    };
    /// The requests with which a pod counts on its node when nodes are scored.
    pub const PLACED_NON_ZERO: Self = Self {
        use_status: true,
        pod_level: true,
        non_zero: true,
        footprint: Footprint::Containers,
    };

    /// The same with this footprint.
    #[must_use]
    pub const fn counting(self, footprint: Footprint) -> Self {
        Self { footprint, ..self }
    }
}

/// The sum of the requests of a pod.
pub fn pod_requests(pod: &Pod, options: SumOptions) -> ResourceList {
    let infeasible = pod
        .condition("PodResizePending")
        .is_some_and(|c| c.reason == "Infeasible");
    let pod_level = pod
        .spec
        .resources
        .as_ref()
        .filter(|_| options.pod_level)
        .map(|r| &r.requests)
        .filter(|requests| requests.iter().any(|(name, _)| is_pod_level_resource(name)));
    let default_for = |name: &str| {
        options.non_zero && pod_level.is_none_or(|requests| requests.get(name).is_none())
    };
    let defaults = Defaults {
        cpu: default_for(CPU),
        memory: default_for(MEMORY),
    };
    let is_sum_of_pod = options.use_status && options.footprint == Footprint::Pod;
    let mut total = if is_sum_of_pod {
        largest_sum(pod, infeasible, defaults)
    } else {
        container_sum(pod, |container, status| {
            let status = status.filter(|_| options.use_status);
            container_request(container, status, infeasible, defaults)
        })
    };
    if options.use_status {
        for claim in &pod.status.node_allocatable_resource_claim_statuses {
            total.add_all(&claim.total());
        }
    }
    if let Some(requests) = pod_level {
        for (name, quantity) in requests.iter() {
            if is_pod_level_resource(name) {
                total.set(name.clone(), *quantity);
            }
        }
        if options.use_status {
            let only_named = !is_sum_of_pod;
            replace_by_pod_status(pod, &mut total, requests, only_named, infeasible);
        }
    }
    total.add_all(&pod.spec.overhead);
    total
}

/// The requests of all containers of a pod. Ordinary init containers run one after another, in parallel with the
/// sidecars that were started before them.
fn container_sum(
    pod: &Pod,
    request: impl Fn(&Container, Option<&ContainerStatus>) -> ResourceList,
) -> ResourceList {
    let status_of = statuses(&pod.status.container_statuses);
    let mut total = ResourceSum::default();
    for container in &pod.spec.containers {
        total.add_all(&request(container, status_of(&container.name)));
    }
    let status_of = statuses(&pod.status.init_container_statuses);
    let init_containers = pod.spec.init_containers.iter();
    let requests = init_containers.map(|container| {
        let request = request(container, status_of(&container.name));
        (request, container.is_sidecar())
    });
    add_init_containers(total, requests)
}

/// Adds the amounts of init containers, each with whether it is a sidecar. Sidecars run in parallel with the
/// containers; an ordinary init container runs before the containers, in parallel with the sidecars started before it.
fn add_init_containers(
    mut total: ResourceSum,
    init_containers: impl Iterator<Item = (ResourceList, bool)>,
) -> ResourceList {
    let mut sidecars = ResourceSum::default();
    let mut most = ResourceSum::default();
    for (amounts, is_sidecar) in init_containers {
        if is_sidecar {
            total.add_all(&amounts);
            sidecars.add_all(&amounts);
        } else {
            for (name, amount) in amounts.iter() {
                let beside = sidecars.get(name);
                most.max(name, beside.map_or(*amount, |beside| *amount + *beside));
            }
        }
    }
    // No request is negative, so the sidecars alone never need more than in the total.
    let mut total = ResourceList::from(total);
    total.max_all(&ResourceList::from(most));
    total
}

/// The number of statuses that are searched one by one.
const FEW: usize = 8;

/// Finds statuses by the name of the container.
fn statuses<'a>(all: &'a [ContainerStatus]) -> impl Fn(&str) -> Option<&'a ContainerStatus> {
    let mut by_name: FxHashMap<&str, &ContainerStatus> = FxHashMap::default();
    if all.len() > FEW {
        for status in all {
            by_name.entry(status.name.as_str()).or_insert(status);
        }
    }
    move |name| {
        if by_name.is_empty() {
            all.iter().find(|status| status.name == *name)
        } else {
            by_name.get(name).copied()
        }
    }
}

/// The maximum of the desired, the allocated and the actuated requests of the containers of a pod, each summed
/// separately. A request that the status lacks is the desired one. An infeasible resize does not count.
fn largest_sum(pod: &Pod, infeasible: bool, defaults: Defaults) -> ResourceList {
    let desired = |container: &Container| container.resources.requests.clone();
    let of =
        |container: &Container, status: Option<&ContainerStatus>| -> (ResourceList, ResourceList) {
            let allocated = status.map(|status| &status.allocated_resources);
            let allocated = allocated.filter(|allocated| !allocated.is_empty());
            let actuated = status.and_then(|status| status.resources.as_ref());
            let actuated = actuated.map(|actuated| &actuated.requests);
            // A container without a status counts its desired requests, even if its pod cannot be resized.
            let known = allocated
                .cloned()
                .or_else(|| if infeasible { actuated.cloned() } else { None });
            let known = known.unwrap_or_else(|| desired(container));
            let actuated = actuated.cloned().unwrap_or_else(|| known.clone());
            (known, actuated)
        };
    let filled = |mut request: ResourceList| {
        defaults.fill(&mut request);
        request
    };
    let mut largest = container_sum(pod, |container, status| filled(of(container, status).0));
    largest.max_all(&container_sum(pod, |container, status| {
        filled(of(container, status).1)
    }));
    if let Some(actuated) = &pod.status.resources
        && !pod.status.allocated_resources.is_empty()
    {
        // The status of the pod as a whole contains both amounts, and replaces the containers' amounts.
        largest = pod.status.allocated_resources.clone();
        largest.max_all(&actuated.requests);
    }
    if !infeasible {
        largest.max_all(&container_sum(pod, |container, _| {
            filled(desired(container))
        }));
    }
    largest
}

/// The sum of the requests of a pod, in whole units.
pub fn pod_resources(pod: &Pod, options: SumOptions) -> Resources {
    let mut resources = Resources::from_list(&pod_requests(pod, options));
    // `pods` is a capacity of nodes, never a request.
    resources.pods = 0;
    resources
}

/// The limits of a pod: the sum of the limits of its containers, replaced by pod-level limits. Overhead is added to
/// existing limits.
pub fn pod_limits(pod: &Pod) -> ResourceList {
    let mut total = ResourceSum::default();
    for container in &pod.spec.containers {
        total.add_all(&container.resources.limits);
    }
    let init_containers = pod.spec.init_containers.iter();
    let limits = init_containers
        .map(|container| (container.resources.limits.clone(), container.is_sidecar()));
    let mut total = add_init_containers(total, limits);
    // Limits of the pod replace the sum of its containers.
    let pod_level = pod.spec.resources.as_ref().map(|r| &r.limits);
    for (name, quantity) in pod_level.into_iter().flat_map(ResourceList::iter) {
        if is_pod_level_resource(name) {
            total.set(name.clone(), *quantity);
        }
    }
    let mut overhead = ResourceList::default();
    // A resource without a limit stays without one: overhead is no limit.
    for (name, quantity) in pod.spec.overhead.iter() {
        if total.get(name).is_some_and(|limit| limit.as_f64() != 0.0) {
            overhead.set(name.clone(), *quantity);
        }
    }
    total.add_all(&overhead);
    total
}

/// Returns whether a pod-level request may name this resource.
fn is_pod_level_resource(name: &str) -> bool {
    matches!(name, CPU | MEMORY) || name.starts_with("hugepages-")
}

/// During an in-place resize of the whole pod, the greater of the desired and the actuated amounts counts.
fn replace_by_pod_status(
    pod: &Pod,
    total: &mut ResourceList,
    requests: &ResourceList,
    only_named: bool,
    infeasible: bool,
) {
    let Some(actuated) = &pod.status.resources else {
        return;
    };
    let mut largest = pod.status.allocated_resources.clone();
    largest.max_all(&actuated.requests);
    if !infeasible {
        largest.max_all(requests);
    }
    for (name, quantity) in largest.iter() {
        if is_pod_level_resource(name) && (!only_named || requests.get(name).is_some()) {
            total.set(name.clone(), *quantity);
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Defaults {
    cpu: bool,
    memory: bool,
}

impl Defaults {
    /// Adds the default amounts of a container without a request.
    fn fill(self, request: &mut ResourceList) {
        if self.cpu && request.get(CPU).is_none() {
            request.set(Str::new(CPU), Quantity::from_milli(DEFAULT_MILLI_CPU));
        }
        if self.memory && request.get(MEMORY).is_none() {
            request.set(
                Str::new(MEMORY),
                Quantity::from_value(DEFAULT_MEMORY, QuantityFormat::BinarySI),
            );
        }
    }
}

fn container_request(
    container: &Container,
    status: Option<&ContainerStatus>,
    infeasible: bool,
    defaults: Defaults,
) -> ResourceList {
    let mut request = match status.and_then(|s| s.resources.as_ref().map(|r| (s, r))) {
        None => container.resources.requests.clone(),
        Some((status, actuated)) => {
            let mut largest = status.allocated_resources.clone();
            largest.max_all(&actuated.requests);
            if !infeasible {
                largest.max_all(&container.resources.requests);
            }
            largest
        }
    };
    defaults.fill(&mut request);
    request
}

#[cfg(test)]
mod tests;
