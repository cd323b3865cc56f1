//! Extended resources that are backed by devices (KEP-5004): the claim that the scheduler creates for a pod.
//!
//! ```text
//! PreFilter   the pod requests a resource that a DeviceClass backs
//! Filter      the node does not offer the resource itself: the node's variant of the claim is allocated there
//! Reserve     the variant gets a name; its devices are assumed to be allocated
//! PreBind     the claim is created, allocated and named in the pod's status
//! PostFilter  a claim of an earlier attempt is deleted
//! ```
//!
//! Nodes differ in the resources that they offer themselves, so the claim differs from node to node.

#[cfg(test)]
mod tests;

use super::writes;
use crate::extended_resources::{class_of, have_backing_classes};
use berth_api::devices::{
    AllocationMode, DeviceClaim, DeviceRequest, EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    RequestedDevices, ResourceClaimSpec,
};
use berth_api::names::{
    DEVICE_CLASS_PREFIX, GENERATED_END_LEN, generated_start, is_extended_resource_name,
};
use berth_api::pod::Container;
use berth_api::requests::{SumOptions, pod_resources};
use berth_api::{DeviceClass, ObjectMeta, OwnerReference, Pod, ResourceClaim, Shared, Str, Time};
use berth_devices::ClaimRequests;
use berth_framework::allocator::allocator_features;
use berth_framework::keep::{Fragment, Kept};
use berth_framework::plugin::Context;
use berth_framework::{NodeView, ReasonCode, Status};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use serde_json::{Value, json};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The name of the claim in errors until it has one. It is not a valid name, so no claim of a user has it.
const UNNAMED: &str = "<extended-resources>";
/// The reason on all nodes while a claim of an earlier attempt exists.
const LEFTOVER: &str = "cannot schedule extended resource claim";
/// The reason on a node that does not offer a resource that no class backs.
pub(super) const CANNOT_FIT: &str = "cannot fit resource";
/// The number of requests of a claim that the API server admits.
const DEVICE_REQUESTS_MAX: usize = 32;
/// The characters of the random end of generated names, as in the API server.
const NAME_CHARACTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The extended resources of a pod that requests one which devices may back.
pub(super) struct Extended {
    pod: Arc<Pod>,
    /// A claim that was created in an earlier attempt.
    pub(super) leftover: Option<Arc<ResourceClaim>>,
    /// Whether Reserve has chosen the devices already. A cycle that was parked in Reserve checks its node again.
    is_reserved: bool,
    /// By name.
    resources: Vec<ExtendedResource>,
    /// The variants of the claim, by the resources that devices provide.
    variants: RefCell<Vec<(Backed, Arc<Variant>)>>,
}

/// The resources that devices provide on a node.
type Backed = SmallVec<[bool; 4]>;

/// An extended resource that the pod requests.
struct ExtendedResource {
    name: Str,
    class: Option<Arc<DeviceClass>>,
}

/// The form of the claim for some nodes.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) requests: ClaimRequests,
    /// The mappings in the status of the pod.
    pub(super) mappings: Vec<Mapping>,
}

/// The request of the claim that serves a resource of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    container: Str,
    resource: Str,
    request: Str,
}

impl Variant {
    /// The containers that use the devices, each once, in the order of the pod.
    pub(super) fn containers(&self) -> Vec<Str> {
        let mut known = FxHashSet::default();
        let containers = self.mappings.iter().map(|mapping| &mapping.container);
        let containers = containers.filter(|container| known.insert(*container));
        containers.cloned().collect()
    }
}

impl Mapping {
    /// As the pod's status has it.
    pub(super) fn json(&self) -> Value {
        json!({
            "containerName": self.container,
            "resourceName": self.resource,
            "requestName": self.request,
        })
    }
}

/// The extended resources that the pod requests, by name; none if no class backs any of them.
fn requested(cx: &Context<'_>, pod: &Pod) -> Vec<ExtendedResource> {
    if !have_backing_classes(cx) {
        return Vec::new();
    }
    let requests = pod_resources(pod, SumOptions::PENDING).scalars;
    let is_extended =
        |name: &str| is_extended_resource_name(name) || name.starts_with(DEVICE_CLASS_PREFIX);
    let resources = requests
        .into_iter()
        .filter(|(name, amount)| *amount != 0 && is_extended(name));
    let resources: Vec<ExtendedResource> = resources
        .map(|(name, _)| ExtendedResource {
            class: class_of(cx.cluster, &name).cloned(),
            name,
        })
        .collect();
    if resources.iter().any(|resource| resource.class.is_some()) {
        resources
    } else {
        Vec::new()
    }
}

/// Writes the values that answers about the pod's extended resources depend on, other than the nodes and their devices.
/// Answers are not kept while a claim of an earlier attempt exists.
pub(super) fn fragment(cx: &Context<'_>, pod: &Pod, fragment: &mut Fragment) -> Kept {
    let resources = requested(cx, pod);
    if resources.is_empty() {
        return Kept::ByFragment;
    }
    if cx.cluster.devices().claims().extended_of(pod).is_some() {
        return Kept::Never;
    }
    fragment.put(&true);
    let containers = |containers: &[Container], fragment: &mut Fragment| {
        fragment.put(&containers.len());
        for container in containers {
            fragment.put(&(&container.resources.requests, container.is_sidecar()));
        }
    };
    containers(&pod.spec.init_containers, fragment);
    containers(&pod.spec.containers, fragment);
    fragment.put(&resources.len());
    for resource in &resources {
        let class = resource.class.as_ref().map(|class| &class.metadata);
        let class = class.map(|meta| (&meta.name, &meta.uid, &meta.resource_version));
        fragment.put(&(&resource.name, class));
    }
    Kept::ByFragment
}

impl Extended {
    /// The extended resources of the pod; `None` if no class backs any of them.
    pub(super) fn of(cx: &Context<'_>, pod: &Arc<Pod>) -> Option<Self> {
        let resources = requested(cx, pod);
        let existing = cx.cluster.devices().claims().extended_of(pod);
        let is_reserved = existing.is_some_and(|claim| writes::is_assumed_for(claim, pod));
        (!resources.is_empty()).then(|| Self {
            pod: pod.clone(),
            leftover: existing.filter(|_| !is_reserved).cloned(),
            is_reserved,
            resources,
            variants: RefCell::default(),
        })
    }

    /// The claim for a node; `None` if the node offers all resources itself.
    ///
    /// # Errors
    /// The reason why the pod cannot run on the node.
    pub(super) fn on_node(
        &self,
        cx: &Context<'_>,
        node: NodeView<'_>,
    ) -> Result<Option<Arc<Variant>>, Status> {
        // PostFilter deletes a claim of an earlier attempt. Until then, no node is feasible (PL-173).
        if self.leftover.is_some() {
            return Err(Status::unresolvable(
                ReasonCode::ClaimMissing.reason(LEFTOVER),
            ));
        }
        let mut backed = Backed::new();
        for resource in &self.resources {
            // Devices back the resource only on nodes that do not offer it themselves (PL-170).
            let is_backed = resource.class.is_some() && node.allocatable_of(&resource.name) == 0;
            if !is_backed && !node.offers_scalar(&resource.name) {
                return Err(Status::unresolvable(
                    ReasonCode::InsufficientResource.reason(CANNOT_FIT),
                ));
            }
            backed.push(is_backed);
        }
        // After Reserve, the devices are allocated already.
        if !backed.contains(&true) || self.is_reserved {
            return Ok(None);
        }
        // Nodes on which devices back the same resources share a compiled claim.
        let mut variants = self.variants.borrow_mut();
        if let Some((_, known)) = variants.iter().find(|(known, _)| *known == backed) {
            return Ok(Some(known.clone()));
        }
        let variant = Arc::new(self.variant(cx, &backed));
        variants.push((backed, variant.clone()));
        Ok(Some(variant))
    }

    fn variant(&self, cx: &Context<'_>, backed: &Backed) -> Variant {
        let mut requests = Vec::new();
        let mut mappings = Vec::new();
        let uses = uses(&self.pod);
        for (resource, _) in self.resources.iter().zip(backed).filter(|(_, is)| **is) {
            if let Some(class) = &resource.class {
                let class = &class.metadata.name;
                let uses = uses.get(&resource.name).map_or(&[][..], Vec::as_slice);
                add_requests(uses, &resource.name, class, &mut requests, &mut mappings);
            }
        }
        requests.sort_by(|a, b| a.name.cmp(&b.name));
        let spec = ResourceClaimSpec {
            devices: DeviceClaim {
                requests,
                ..DeviceClaim::default()
            },
        };
        let claim = Arc::new(ResourceClaim {
            metadata: metadata(&self.pod, UNNAMED.into()),
            spec: Shared::from(spec),
            ..ResourceClaim::default()
        });
        let class = |name: &str| cx.cluster.devices().classes().get(name).cloned();
        Variant {
            requests: ClaimRequests::new(&claim, allocator_features(cx.features), class),
            mappings,
        }
    }
}

/// The metadata of the pod's claim. Its identity is unknown until the API server creates it.
fn metadata(pod: &Pod, name: Str) -> ObjectMeta {
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.name().clone(),
        uid: pod.uid().clone(),
        controller: Some(true),
    };
    let annotations = berth_api::Labels::default().with(EXTENDED_RESOURCE_CLAIM_ANNOTATION, "true");
    ObjectMeta {
        name,
        namespace: pod.namespace().clone(),
        owner_references: Shared::from(vec![owner]),
        annotations,
        ..ObjectMeta::default()
    }
}

/// The part of the name of the pod's claim before its random end.
fn name_base(pod: &Pod) -> String {
    format!("{}-extended-resources-", pod.name())
}

/// The claim to create, with its own name. The name contains the time, so that it differs from the name of an earlier
/// attempt.
pub(super) fn named(variant: &Variant, pod: &Pod, now: Time) -> ResourceClaim {
    let mut hash = FxBuildHasher.hash_one((pod.uid(), now));
    let mut name = generated_start(&name_base(pod)).to_owned();
    for _ in 0..GENERATED_END_LEN {
        let characters = NAME_CHARACTERS.len() as u64;
        name.push(char::from(NAME_CHARACTERS[(hash % characters) as usize]));
        hash /= characters;
    }
    ResourceClaim {
        metadata: metadata(pod, name.into()),
        ..ResourceClaim::clone(variant.requests.claim())
    }
}

/// The body of the claim for the API server.
pub(super) fn body(claim: &ResourceClaim, pod: &Pod) -> Value {
    let meta = &claim.metadata;
    let requests = claim.spec.devices.requests.iter().map(|request| {
        let exactly = request.exactly.as_ref().map(|exactly| {
            json!({
                "deviceClassName": exactly.device_class_name,
                "allocationMode": "ExactCount",
                "count": exactly.count,
            })
        });
        json!({"name": request.name, "exactly": exactly})
    });
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": meta.name,
            "generateName": name_base(pod),
            "namespace": meta.namespace,
            "annotations": {EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod.name(),
                "uid": pod.uid(),
                "controller": true,
            }],
        },
        "spec": {"devices": {"requests": requests.collect::<Vec<_>>()}},
    })
}

/// A container that requests a resource.
struct Use<'p> {
    /// The position of the container, init containers first.
    index: usize,
    container: &'p Container,
    /// Whether it is an ordinary init container.
    is_short_lived: bool,
    amount: i64,
}

/// The containers that request each resource, in the order of the pod: each request is read once, whatever the number of
/// resources.
fn uses(pod: &Pod) -> FxHashMap<&Str, Vec<Use<'_>>> {
    let spec = &pod.spec;
    let init = spec.init_containers.iter().map(|c| (c, !c.is_sidecar()));
    let containers = init.chain(spec.containers.iter().map(|c| (c, false)));
    let mut uses: FxHashMap<&Str, Vec<Use<'_>>> = FxHashMap::default();
    for (index, (container, is_short_lived)) in containers.enumerate() {
        for (name, amount) in container.resources.requests.iter() {
            let amount = amount.value();
            if amount > 0 {
                uses.entry(name).or_default().push(Use {
                    index,
                    container,
                    is_short_lived,
                    amount,
                });
            }
        }
    }
    uses
}

/// Adds the requests for a resource, with the containers that use them. Ordinary init containers end before the other
/// containers start, so they use the same devices, and one further request covers the devices that they need in
/// addition.
fn add_requests(
    uses: &[Use<'_>],
    resource: &Str,
    class: &Str,
    requests: &mut Vec<DeviceRequest>,
    mappings: &mut Vec<Mapping>,
) {
    let mapping = |container: &Container, request: &Str| Mapping {
        container: container.name.clone(),
        resource: resource.clone(),
        request: request.clone(),
    };
    let long_lived: Vec<Option<DeviceRequest>> = uses
        .iter()
        .map(|of| {
            let amount = (!of.is_short_lived).then_some(of.amount);
            amount.map(|amount| request(of.index, of.container, resource, class, amount))
        })
        .collect();
    for (of, request) in uses.iter().zip(&long_lived) {
        mappings.extend(request.iter().map(|r| mapping(of.container, &r.name)));
    }
    let is_too_long = requests.len() + long_lived.iter().flatten().count() > DEVICE_REQUESTS_MAX;
    let count = |request: &DeviceRequest| request.exactly.as_ref().map_or(0, |e| e.count);
    // The devices of the containers from each position on.
    let mut available_from: Vec<i64> = long_lived
        .iter()
        .rev()
        .scan(0_i64, |sum, request| {
            *sum = sum.saturating_add(request.as_ref().map_or(0, count));
            Some(*sum)
        })
        .collect();
    available_from.reverse();
    let mut largest: Option<DeviceRequest> = None;
    let mut reused = Vec::new();
    for (at, of) in uses.iter().enumerate().filter(|(_, of)| of.is_short_lived) {
        let mut missing = of.amount;
        // The API server refuses a claim with more requests, so nothing is mapped to them: init containers and requests
        // would multiply.
        let shared = long_lived[at..].iter().flatten();
        for available in shared.take(if is_too_long { 0 } else { usize::MAX }) {
            if missing <= 0 {
                break;
            }
            missing -= count(available);
            reused.push((of.container, Some(available.name.clone())));
        }
        let missing = of.amount.saturating_sub(available_from[at]);
        if missing > 0 {
            reused.push((of.container, None));
            if largest.as_ref().is_none_or(|known| count(known) < missing) {
                largest = Some(request(of.index, of.container, resource, class, missing));
            }
        }
    }
    let largest_name = largest.as_ref().map(|request| request.name.clone());
    for (container, name) in reused {
        mappings.extend(
            name.or(largest_name.clone())
                .map(|name| mapping(container, &name)),
        );
    }
    requests.extend(largest);
    requests.extend(long_lived.into_iter().flatten());
}

/// A request for devices of a class, named after the positions of the container and of the resource in it.
fn request(
    container_index: usize,
    container: &Container,
    resource: &str,
    class: &Str,
    count: i64,
) -> DeviceRequest {
    // Requests are sorted by name.
    let index = container.resources.requests.position(resource);
    let index = index.unwrap_or(0);
    DeviceRequest {
        name: format!("container-{container_index}-request-{index}").into(),
        exactly: Some(RequestedDevices {
            device_class_name: class.clone(),
            allocation_mode: AllocationMode::ExactCount,
            count,
            ..RequestedDevices::default()
        }),
        first_available: Vec::new(),
    }
}
