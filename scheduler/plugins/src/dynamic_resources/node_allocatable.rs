//! Resources of the node that devices use, such as CPU (KEP-5517).
//!
//! ```text
//! Filter   the requests of the pod and the resources used by the devices of its claims must fit the node
//! Reserve  the pod counts with both from here on
//! PreBind  writes the amounts to the pod's status
//! ```

use super::args::DynamicResourcesArgs;
use super::claims::is_used_by_others;
use super::filter;
use super::state::ClaimsState;
use berth_api::devices::{AllocationResult, NodeAllocatableResource};
use berth_api::pod::{
    NodeAllocatableMappingStatus, NodeAllocatableOverheadStatus, NodeAllocatableResourceClaimStatus,
};
use berth_api::requests::{SumOptions, pod_requests, pod_resources};
use berth_api::{Pod, Quantity, ResourceClaim, Resources, Str};
use berth_devices::ClaimRequests;
use berth_framework::allocator::{allocator, target};
use berth_framework::plugin::Context;
use berth_framework::{Code, Feature, FeatureGates, NodeView, Reason, ReasonCode, Status};
use std::collections::BTreeMap;

/// A claim with the devices that it has or gets.
pub(super) struct Allocated<'a> {
    pub(super) claim: &'a ResourceClaim,
    pub(super) allocation: &'a AllocationResult,
    /// The containers that use the claim of the pod's extended resources; other claims are referred to by name.
    pub(super) containers: Option<Vec<Str>>,
}

/// Returns whether devices may use resources of their node.
pub(super) fn may_matter(features: &FeatureGates, cluster: &berth_framework::Cluster) -> bool {
    features.enabled(Feature::DRANodeAllocatableResources)
        && cluster.devices().inventory().has_node_resources()
}

/// The amounts that the devices of a pod's claims take from the node, by claim; nothing for claims whose devices take
/// none.
///
/// # Errors
/// When the allocation does not state the consumed capacity by which an amount is computed.
pub(super) fn statuses(
    cx: &Context<'_>,
    pod: &Pod,
    claims: &[Allocated<'_>],
) -> Result<Vec<NodeAllocatableResourceClaimStatus>, Status> {
    let mut statuses = Vec::new();
    for allocated in claims {
        let mut mapped: BTreeMap<Str, Quantity> = BTreeMap::new();
        let mut overhead: BTreeMap<Str, [Option<Quantity>; 2]> = BTreeMap::new();
        let inventory = cx.cluster.devices().inventory();
        for result in &allocated.allocation.devices.results {
            let Some(device) = inventory.device(&result.driver, &result.pool, &result.device)
            else {
                // The device is not published any more, so its mappings are unknown.
                continue;
            };
            for (resource, used) in &device.node_allocatable_resources {
                if let Some(amount) = mapping(used, result, allocated.claim)? {
                    *mapped.entry(resource.clone()).or_default() += amount;
                }
                if let Some(needed) = &used.overhead {
                    let sums = overhead.entry(resource.clone()).or_default();
                    for (sum, amount) in sums.iter_mut().zip([needed.per_pod, needed.per_container])
                    {
                        *sum = match (*sum, amount) {
                            (Some(sum), Some(amount)) => Some(sum + amount),
                            (sum, amount) => sum.or(amount),
                        };
                    }
                }
            }
        }
        if mapped.is_empty() && overhead.is_empty() {
            continue;
        }
        let name = allocated.claim.metadata.name.clone();
        statuses.push(NodeAllocatableResourceClaimStatus {
            containers: match &allocated.containers {
                Some(containers) => containers.clone(),
                None => containers_of(pod, &name),
            },
            resource_claim_name: name,
            mapping: mapped
                .into_iter()
                .map(|(name, quantity)| NodeAllocatableMappingStatus { name, quantity })
                .collect(),
            overhead: overhead
                .into_iter()
                .map(
                    |(name, [per_pod, per_container])| NodeAllocatableOverheadStatus {
                        name,
                        per_pod,
                        per_container,
                    },
                )
                .collect(),
        });
    }
    Ok(statuses)
}

/// The amount that a device takes; none when it has no mapping, or when its allocation consumes nothing of the
/// capacity.
fn mapping(
    used: &NodeAllocatableResource,
    result: &berth_api::devices::DeviceRequestAllocationResult,
    claim: &ResourceClaim,
) -> Result<Option<Quantity>, Status> {
    let Some(mapping) = &used.mapping else {
        return Ok(None);
    };
    let Some(key) = &mapping.capacity_key else {
        return Ok(mapping.device_multiplier);
    };
    if result.consumed_capacity.is_empty() {
        return Err(Status::error(format!(
            "claim {}: the allocation of device {} does not state its consumed capacity {key:?}",
            claim.key(),
            result.device,
            key = key.as_str(),
        )));
    }
    // A capacity can be named with or without the domain of the driver (PL-312).
    let bare = |name: &str| -> String {
        let own = name
            .split_once('/')
            .filter(|(domain, _)| **domain == *result.driver);
        own.map_or(name, |(_, id)| id).to_owned()
    };
    let mut consumed = result.consumed_capacity.iter();
    let found = consumed.find(|(name, _)| bare(name) == bare(key));
    Ok(found.map(|(_, amount)| match mapping.capacity_multiplier {
        Some(factor) => amount.times(factor),
        None => *amount,
    }))
}

/// The containers that refer to a claim, init containers first.
fn containers_of(pod: &Pod, claim: &Str) -> Vec<Str> {
    let made = |entry: &Str| {
        let mut made = pod.status.resource_claim_statuses.iter();
        made.any(|made| made.name == *entry && made.resource_claim_name.as_ref() == Some(claim))
    };
    let entries = pod.spec.resource_claims.iter();
    let entries: Vec<&Str> = entries
        .filter(|entry| entry.resource_claim_name.as_ref() == Some(claim) || made(&entry.name))
        .map(|entry| &entry.name)
        .collect();
    let refers = |claims: &[berth_api::pod::ContainerClaim]| {
        claims.iter().any(|claim| entries.contains(&&claim.name))
    };
    pod.all_containers()
        .filter(|container| refers(&container.resources.claims))
        .map(|container| container.name.clone())
        .collect()
}

/// The pod as it counts with these amounts.
pub(super) fn counted(pod: &Pod, statuses: Vec<NodeAllocatableResourceClaimStatus>) -> Pod {
    let mut counted = pod.clone();
    counted.status.node_allocatable_resource_claim_statuses = statuses;
    counted
}

/// Filters a node on which the claims can be allocated.
pub(super) fn filter(
    args: &DynamicResourcesArgs,
    cx: &Context<'_>,
    state: &ClaimsState,
    pod: &Pod,
    extended: Option<(&ClaimRequests, Vec<Str>)>,
    node: NodeView<'_>,
) -> Status {
    let requests = state.requests(extended.as_ref().map(|(requests, _)| *requests));
    let allocator = allocator(cx.cluster, cx.features);
    // The amounts depend on the chosen devices, so the allocation itself is needed.
    let found = if requests.is_empty() {
        Ok(Some(Vec::new()))
    } else {
        filter::search(args, cx, |budget| {
            allocator.allocate(target(node), &requests, budget)
        })
    };
    let found = match found {
        Ok(Some(found)) => found,
        Ok(None) => {
            return Status::unresolvable(
                ReasonCode::DevicesUnavailable.reason(filter::CANNOT_ALLOCATE),
            );
        }
        Err(error) => return filter::failed(error, node.name()),
    };
    // The allocations are in the order of the requests: unallocated claims, then extended resources.
    let mut new = found.iter();
    let mut allocated = Vec::new();
    for known in &state.claims {
        let allocation = match known.allocation() {
            Some(allocation) => Some(allocation),
            None => new.next(),
        };
        allocated.extend(allocation.map(|allocation| Allocated {
            claim: &known.claim,
            allocation,
            containers: None,
        }));
    }
    if let Some((requests, containers)) = extended {
        allocated.extend(new.next().map(|allocation| Allocated {
            claim: requests.claim(),
            allocation,
            containers: Some(containers),
        }));
    }
    let statuses = match statuses(cx, pod, &allocated) {
        Ok(statuses) if statuses.is_empty() => return Status::success(),
        Ok(statuses) => statuses,
        Err(status) => return status,
    };
    // A claim with a mapped device cannot be shared with another pod (PL-344).
    if let Some(why) = shared(pod, &allocated, &statuses) {
        return Status::unresolvable(ReasonCode::ClaimMissing.reason(why));
    }
    fits(cx, &counted(pod, statuses), node)
}

/// The reason why a claim with a mapped device cannot be used: another pod uses it.
fn shared(
    pod: &Pod,
    claims: &[Allocated<'_>],
    statuses: &[NodeAllocatableResourceClaimStatus],
) -> Option<String> {
    let claims = claims.iter().map(|allocated| allocated.claim);
    let used: Vec<&Str> = claims
        .filter(|claim| is_used_by_others(claim, pod))
        .map(|claim| &claim.metadata.name)
        .collect();
    let mut mapped = statuses.iter().filter(|status| !status.mapping.is_empty());
    let status = mapped.find(|status| used.contains(&&status.resource_claim_name))?;
    Some(format!(
        "node allocatable resource claim {} has a mapped device and cannot be shared across pods",
        status.resource_claim_name
    ))
}

/// Returns whether the pod, including the resources used by its devices, fits the node.
fn fits(cx: &Context<'_>, counted: &Pod, node: NodeView<'_>) -> Status {
    let named = named(counted);
    if let Some(why) = not_covered(counted, &named) {
        return Status::unresolvable(ReasonCode::ClaimMissing.reason(why));
    }
    let options = SumOptions::PLACED.counting(cx.cluster.footprint);
    let wanted = pod_resources(counted, options);
    let (mut reasons, mut is_hopeless) = (Vec::new(), false);
    for resource in &named {
        let request = amount(&wanted, resource);
        let (allocatable, held) = (node.allocatable_of(resource), node.requested_of(resource));
        if request > 0 && request > allocatable.saturating_sub(held) {
            reasons.push(Reason::insufficient(resource));
            is_hopeless |= request > allocatable;
        }
    }
    match (reasons.is_empty(), is_hopeless) {
        (true, _) => Status::success(),
        (false, true) => Status::new(Code::UnschedulableAndUnresolvable, reasons),
        (false, false) => Status::new(Code::Unschedulable, reasons),
    }
}

/// The resources that devices of the pod use, by name.
fn named(counted: &Pod) -> Vec<Str> {
    let statuses = &counted.status.node_allocatable_resource_claim_statuses;
    let mapped = statuses.iter().flat_map(|status| &status.mapping);
    let needed = statuses.iter().flat_map(|status| &status.overhead);
    let names = mapped.map(|m| &m.name).chain(needed.map(|n| &n.name));
    let mut names: Vec<Str> = names.cloned().collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn amount(resources: &Resources, name: &str) -> i64 {
    resources.get(name)
}

/// The reason why the pod-level requests and limits do not cover the needs of its containers and devices.
fn not_covered(counted: &Pod, named: &[Str]) -> Option<String> {
    let whole = counted.spec.resources.as_ref()?;
    // The sum of the containers and devices, to which the pod-level values are compared.
    let options = SumOptions {
        pod_level: false,
        ..SumOptions::PLACED
    };
    let needed = pod_requests(counted, options);
    let statuses = &counted.status.node_allocatable_resource_claim_statuses;
    for name in named {
        let needs = needed.get(name).copied().unwrap_or_default();
        if whole.requests.get(name).is_some_and(|known| *known < needs) {
            return Some(format!(
                "pod level request for {name} is insufficient to cover the aggregated container and node-allocatable DRA \
                 requests"
            ));
        }
        let Some(limit) = whole.limits.get(name) else {
            continue;
        };
        // Requests and limits of huge pages are equal, so the limit must cover the sum.
        if name.starts_with("hugepages-") && *limit < needs {
            return Some(format!(
                "pod level limit for {name} is insufficient to cover the aggregated container and node-allocatable DRA limits"
            ));
        }
        // Other limits must cover each container with its overhead (PL-343).
        for container in counted.all_containers() {
            let Some(own) = container.resources.limits.get(name) else {
                continue;
            };
            let of_container = statuses
                .iter()
                .filter(|status| status.containers.contains(&container.name));
            let overhead = of_container
                .flat_map(|status| &status.overhead)
                .filter(|overhead| overhead.name == *name)
                .filter_map(|overhead| overhead.per_container);
            if overhead.fold(*own, |sum, amount| sum + amount) > *limit {
                return Some(format!(
                    "pod level limit for {name} is insufficient to cover the limit and DRA overhead for container {}",
                    container.name
                ));
            }
        }
    }
    None
}
