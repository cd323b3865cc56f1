//! The steps from a chosen node to reserved claims: Reserve, PreBind and Unreserve.
//!
//! ```text
//! Reserve    allocates devices on the node; from here on every pod sees them as allocated
//! PreBind    claim after claim: finalizer, then allocation and reservation in one write; an allocated claim only gets the
//!            reservation; then waits for binding conditions
//! Unreserve  reverts unwritten allocations, and ends written reservations
//! ```
//!
//! A written allocation is kept when the attempt fails: the claim has its devices then, and the next attempt uses them
//! or deallocates them in PostFilter.

use super::bind_error::BindError;
use super::claims::{is_of_group, pod_consumer};
use super::conditions::{self, Readiness};
use super::extended::{self, Mapping, Variant};
use super::filter;
use super::node_allocatable::{self, Allocated};
use super::state::{ClaimsState, allocator_features, has_binding_conditions};
use super::{DynamicResources, writes};
use berth_api::devices::{AllocationResult, ConsumerReference};
use berth_api::pod::NodeAllocatableResourceClaimStatus;
use berth_api::{Duration, Kind, Pod, ResourceClaim, Str, Time};
use berth_devices::{Allocator, TargetNode};
use berth_framework::call::{CallError, CallErrorKind, EventKind, PodEvent, PodRef};
use berth_framework::object_name::ObjectName;
use berth_framework::plugin::Context;
use berth_framework::stage::{StageContext, Step, Wait, WaitOn, Wake, WakeReason};
use berth_framework::write::PodEdit;
use berth_framework::{Cluster, Status, Write};
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The time for which PreBind waits for one write. The dispatcher ends every call sooner.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(5 * 60);
/// The time for which PreBind waits for a newer version of a claim after a conflict.
const CONFLICT_WAIT_MAX: Duration = Duration::from_secs(5);
/// The time that PreBind waits for another member of the group to write an allocation that both use.
const SHARED_WAIT_MAX: Duration = Duration::from_secs(5);
/// The time for which PreBind waits until the watch shows a claim that was created, as in kube-scheduler.
const CREATED_WAIT_MAX: Duration = Duration::from_secs(120);
/// The number of times that a write to one claim is made.
const ATTEMPTS_MAX: u32 = 5;

/// The decision of Reserve.
pub(super) struct Reserved {
    node: Str,
    claims: Vec<ReservedClaim>,
    /// The claim that is being written.
    current: usize,
    stage: BindStage,
    /// Whether PreBind has waited, so that the assumptions of Reserve are shown.
    has_waited: bool,
    /// The resources that the devices take from the node, to be written to the pod's status.
    node_resources: Option<NodeResources>,
    /// The time at which devices must be ready; known once all claims are written.
    deadline: Option<Time>,
}

/// A claim that is being reserved.
struct ReservedClaim {
    claim: Arc<ResourceClaim>,
    /// The pod or the group for which it is reserved.
    consumer: ConsumerReference,
    /// The devices to allocate; `None` if the claim is allocated already.
    allocation: Option<AllocationResult>,
    /// Whether another member of the pod's group was given these devices first and writes the allocation.
    is_shared: bool,
    /// The deadline of the wait for that write.
    shared_until: Option<Time>,
    /// The assumed write, by which every pod sees the claim as allocated.
    assumed: Option<Write>,
    /// The reservation that was sent last.
    write: Option<Write>,
    attempts: u32,
    /// Whether a reservation was sent, with any result.
    is_sent: bool,
    /// Set for the claim that is created for the pod's extended resources.
    created: Option<Created>,
}

/// The resources that the devices of a pod take from its node.
struct NodeResources {
    statuses: Vec<NodeAllocatableResourceClaimStatus>,
    /// Whether the write was sent, with any result.
    is_sent: bool,
}

/// The progress of a claim that is created for extended resources.
struct Created {
    mappings: Vec<Mapping>,
    /// Whether its creation was sent, with any result.
    is_sent: bool,
    /// Whether the pod's status names it.
    is_published: bool,
}

/// The step that PreBind waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BindStage {
    /// Nothing yet.
    Start,
    /// A claim is being created.
    Creating,
    /// The watch shows the claim that was created.
    Appearing,
    /// The finalizer is being written.
    Protecting,
    /// Another member of the group is writing the allocation.
    Sharing,
    /// The reservation is being written.
    Reserving,
    /// A newer version of the claim, after a conflict.
    Refreshing,
    /// The claim for extended resources is being written to the pod's status.
    Publishing,
    /// The resources of the devices are being written to the status of the pod.
    Counting,
    /// Binding conditions.
    Conditions,
}

/// The identity of a share: it must differ between the shares of a device, and needs no randomness for that.
fn share_id(claim: &ResourceClaim, index: usize, now: Time) -> Str {
    let meta = &claim.metadata;
    // A claim that is not created yet has no UID, so the UID of its pod is used. Names are not used, because they
    // differ in a replay of a recording with pseudonyms.
    let pod = meta.controller().map(|owner| &owner.uid);
    let hash = |salt: u8| FxBuildHasher.hash_one((salt, &meta.uid, pod, index, now));
    let (high, low) = (hash(0), hash(1));
    // The form of a UUID of version 8, which is for any scheme.
    Str::from(format!(
        "{:08x}-{:04x}-8{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        0x8000 | (low >> 48 & 0x3fff),
        low & 0xffff_ffff_ffff
    ))
}

/// Allocates devices on the chosen node.
pub(super) fn reserve(
    plugin: &DynamicResources,
    cx: &mut StageContext<'_>,
    state: &mut ClaimsState,
    pod: &Pod,
    node: &Str,
) -> Status {
    let mut allocations = Vec::new();
    let Some(view) = cx.cluster.nodes.node(node) else {
        return Status::error(format!("node {node:?} not found", node = node.as_str()));
    };
    let extended = match &state.extended {
        Some(extended) => {
            let context = Context {
                now: cx.now,
                cluster: cx.cluster,
                features: cx.features,
                work: None,
            };
            match extended.on_node(&context, view) {
                Ok(variant) => variant,
                Err(status) => return status,
            }
        }
        None => None,
    };
    let requests = state.requests(extended.as_ref().map(|variant| &variant.requests));
    // Unlike in kube-scheduler, Filter keeps no allocations, so the search for the chosen node is repeated.
    if !requests.is_empty() {
        let allocator = Allocator::new(
            cx.cluster.devices().inventory(),
            allocator_features(cx.features),
        );
        let target = TargetNode {
            name: node,
            labels: view.labels(),
            skips_operations: filter::skips_operations(view),
        };
        let budget = &mut filter::budget(&plugin.args, cx.features);
        match allocator.allocate(target, &requests, budget) {
            Ok(Some(found)) => allocations = found,
            Ok(None) => return Status::error("claim allocation not found for node"),
            Err(error) => return filter::failed(error, node),
        }
    }
    let mut allocations = allocations.into_iter();
    let mut claims = Vec::with_capacity(state.claims.len() + 1);
    let existing = state.claims.iter();
    let existing = existing.map(|found| {
        let (claim, consumer) = (found.claim.clone(), found.consumer.clone());
        (claim, consumer, found.allocation().is_none(), None)
    });
    let new = extended.as_ref().map(|variant| {
        let created = Created {
            mappings: variant.mappings.clone(),
            is_sent: false,
            is_published: false,
        };
        let claim = Arc::new(extended::named(variant, pod, cx.now));
        (claim, pod_consumer(pod), true, Some(created))
    });
    for (claim, consumer, needs_devices, created) in existing.chain(new) {
        // The devices were allocated for another member of the group, which writes them (G-31).
        let is_shared = claim.status.is_assumed && !writes::is_assumed_for(&claim, pod);
        let mut allocation = match (needs_devices, is_shared) {
            (true, _) => allocations.next(),
            (false, true) => claim.status.allocation.clone(),
            (false, false) => None,
        };
        // The allocator does not generate IDs of shares.
        if let Some(allocation) = allocation.as_mut().filter(|_| !is_shared) {
            for (index, result) in allocation.devices.results.iter_mut().enumerate() {
                if result.share_id.is_some() {
                    result.share_id = Some(share_id(&claim, index, cx.now));
                }
            }
        }
        let assumed = allocation.as_ref().map(|allocation| match created {
            Some(_) => writes::assume_created(&claim, allocation, pod),
            None => writes::assume(&claim, allocation, pod, &consumer),
        });
        // From here on, no other pod gets the devices (PL-160).
        if let Some(write) = &assumed {
            cx.outbox.assume(write.clone());
        }
        claims.push(ReservedClaim {
            claim,
            consumer,
            allocation,
            is_shared,
            shared_until: None,
            assumed,
            write: None,
            attempts: 0,
            is_sent: false,
            created,
        });
    }
    let node_resources = match node_resources(cx, pod, &claims, extended.as_deref()) {
        Ok(statuses) => statuses,
        Err(status) => return status,
    };
    state.reserved = Some(Reserved {
        node: node.clone(),
        node_resources,
        claims,
        current: 0,
        stage: BindStage::Start,
        has_waited: false,
        deadline: None,
    });
    Status::success()
}

/// The resources that the devices take from the node, which are added to the requests of the pod.
///
/// # Errors
/// When an amount cannot be computed.
fn node_resources(
    cx: &mut StageContext<'_>,
    pod: &Pod,
    claims: &[ReservedClaim],
    extended: Option<&Variant>,
) -> Result<Option<NodeResources>, Status> {
    if !node_allocatable::may_matter(cx.features, cx.cluster) {
        return Ok(None);
    }
    let allocated = claims.iter().filter_map(|reserved| {
        // Claims that were allocated before this attempt use resources of the node as well.
        let known = reserved.claim.status.allocation.as_ref();
        let of_extended = reserved.created.as_ref().and(extended);
        Some(Allocated {
            claim: &reserved.claim,
            allocation: reserved.allocation.as_ref().or(known)?,
            containers: of_extended.map(Variant::containers),
        })
    });
    let allocated: Vec<Allocated<'_>> = allocated.collect();
    let context = Context {
        now: cx.now,
        cluster: cx.cluster,
        features: cx.features,
        work: None,
    };
    let statuses = node_allocatable::statuses(&context, pod, &allocated)?;
    if statuses.is_empty() {
        return Ok(None);
    }
    // The pod counts with these amounts from here on (PL-341). PreBind writes them to its status.
    let counted = statuses.clone();
    cx.outbox.count(PodEdit::new(move |pod| {
        pod.status.node_allocatable_resource_claim_statuses = counted.clone();
    }));
    Ok(Some(NodeResources {
        statuses,
        is_sent: false,
    }))
}

/// Reverts the changes of Reserve.
pub(super) fn unreserve(cx: &mut StageContext<'_>, state: &mut ClaimsState, pod: &Pod) {
    let Some(reserved) = state.reserved.take() else {
        return;
    };
    if reserved.node_resources.is_some_and(|taken| taken.is_sent) {
        cx.outbox.call(writes::node_resources(pod, &[]).into());
    }
    for reserved in reserved.claims {
        let claim = &reserved.claim;
        if let Some(created) = &reserved.created {
            if created.is_sent {
                for write in writes::delete_created(claim) {
                    cx.outbox.call(write.into());
                }
            }
        } else if !is_of_group(&reserved.consumer)
            && (reserved.is_sent
                || reserved.shared_until.is_some()
                || is_stored_for(look_up(cx.cluster, claim), &reserved.consumer))
        {
            // The reservation for a group is kept until the group is deleted.
            cx.outbox
                .call(writes::release(claim, &reserved.consumer).into());
        }
        let seen = look_up(cx.cluster, claim);
        let others = seen.map(|seen| writes::sharers(seen, pod));
        let others = others.filter(|others| !others.pods.is_empty());
        if let (Some(others), Some(allocation)) = (others, &reserved.allocation)
            && seen.is_some_and(|seen| has_devices_of(seen, allocation))
        {
            // Other members of the group keep the devices, and write the allocation themselves. A pod that was given
            // other devices after the claim had been freed is not such a member.
            let write = writes::assume_for(claim, allocation, others);
            cx.outbox.assume(write);
            continue;
        }
        let Some(assumed) = reserved.assumed else {
            continue;
        };
        if let Some(write) = reserved.write {
            // The API may carry it out. Until the result is known, no other claim can have the devices.
            cx.outbox.assume(write.clone());
            cx.outbox.give_up(write);
        }
        cx.outbox.revert(assumed);
    }
}

/// The current version of the claim; a different claim with the same name is ignored.
fn look_up<'c>(cluster: &'c Cluster, claim: &ResourceClaim) -> Option<&'c Arc<ResourceClaim>> {
    let meta = &claim.metadata;
    let found = cluster.devices().claims().get(&meta.namespace, &meta.name);
    found.filter(|found| found.metadata.uid == meta.uid)
}

/// Returns whether the claim has the devices of the allocation.
fn has_devices_of(claim: &ResourceClaim, allocation: &AllocationResult) -> bool {
    let shown = claim.status.allocation.as_ref();
    shown.is_some_and(|shown| shown.devices == allocation.devices)
}

/// Returns whether both versions of a claim have the same devices.
fn is_allocated_alike(earlier: &ResourceClaim, later: &ResourceClaim) -> bool {
    let allocation = earlier.status.allocation.as_ref();
    allocation.is_some_and(|allocation| has_devices_of(later, allocation))
}

/// Returns whether the claim is reserved for the user according to the API.
fn is_stored_for(claim: Option<&Arc<ResourceClaim>>, user: &ConsumerReference) -> bool {
    is_reserved(claim.filter(|claim| !claim.status.is_assumed), user)
}

fn is_reserved(claim: Option<&Arc<ResourceClaim>>, user: &ConsumerReference) -> bool {
    claim.is_some_and(|claim| {
        let mut consumers = claim.status.reserved_for.iter();
        consumers.any(|consumer| consumer.uid == user.uid)
    })
}

fn name_of(claim: &ResourceClaim) -> ObjectName {
    let meta = &claim.metadata;
    ObjectName::new(Kind::ResourceClaim, &meta.namespace, &meta.name)
}

/// Returns whether another attempt may succeed: the claim has changed, or the write was replaced by the write of
/// another pod.
fn is_outdated(error: &CallError) -> bool {
    error.kind == CallErrorKind::Conflict || error.kind.is_dropped()
}

impl ReservedClaim {
    /// Returns whether another member of the pod's group has written the devices of this attempt, and the reservation
    /// of the pod or the group with them.
    ///
    /// No other reservation in a watch is trusted: the watch may be behind, and this scheduler or another client may
    /// have ended the reservation since. The API server confirms it.
    fn is_reserved_by_sibling(&self, seen: &ResourceClaim) -> bool {
        let mut consumers = seen.status.reserved_for.iter();
        self.is_shared
            && self
                .allocation
                .as_ref()
                .is_some_and(|chosen| has_devices_of(seen, chosen))
            && consumers.any(|consumer| consumer.uid == self.consumer.uid)
    }
}

impl Reserved {
    /// Returns whether this is for the node.
    pub(super) fn is_for(&self, node: &str) -> bool {
        *self.node == *node
    }

    /// Returns whether the pod has no claims.
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Continues after a wait, or begins.
    pub(super) fn pre_bind(
        &mut self,
        plugin: &DynamicResources,
        cx: &mut StageContext<'_>,
        pod: &Pod,
        wake: Option<Wake<'_>>,
    ) -> Step {
        self.has_waited |= wake.is_some();
        let result = match (wake.map(Wake::reason), self.stage) {
            (Some(WakeReason::Call(Ok(response))), BindStage::Protecting) => {
                let seen = look_up(cx.cluster, &self.claims[self.current].claim);
                if seen.is_some_and(|seen| seen.is_allocated() && !seen.status.is_assumed) {
                    // Another scheduler has allocated the claim.
                    self.next(plugin, cx, pod)
                } else {
                    self.write(cx, pod, response.resource_version)
                }
            }
            (Some(WakeReason::Call(Ok(_))), BindStage::Reserving) => self.reserved(plugin, cx, pod),
            (Some(WakeReason::Call(Ok(_))), BindStage::Publishing) => {
                self.written(cx);
                self.next(plugin, cx, pod)
            }
            (Some(WakeReason::Call(Err(error))), BindStage::Creating)
                if error.kind == CallErrorKind::Conflict =>
            {
                // An earlier attempt had no answer and created the claim.
                self.appear(plugin, cx, pod)
            }
            (Some(WakeReason::Call(Ok(_))), BindStage::Creating)
            | (Some(WakeReason::Object), BindStage::Appearing) => self.appear(plugin, cx, pod),
            (Some(WakeReason::Call(Err(error))), _) => self.refused(plugin, cx, pod, &error),
            (Some(WakeReason::Deadline), BindStage::Sharing) => {
                // The other member may have failed.
                self.claims[self.current].is_shared = false;
                self.next(plugin, cx, pod)
            }
            (Some(WakeReason::Deadline), BindStage::Appearing) => Err(BindError::NotShown {
                claim: self.claims[self.current].claim.key(),
                seconds: CREATED_WAIT_MAX.as_secs(),
            }),
            (
                Some(WakeReason::Deadline),
                BindStage::Creating
                | BindStage::Protecting
                | BindStage::Reserving
                | BindStage::Publishing
                | BindStage::Counting,
            ) => Err(BindError::NoAnswer {
                object: match self.claims.get(self.current) {
                    Some(reserved) => format!("claim {}", reserved.claim.key()),
                    None => format!("pod {}", pod.key()),
                },
                seconds: WRITE_WAIT_MAX.as_secs(),
            }),
            _ => self.next(plugin, cx, pod),
        };
        result.unwrap_or_else(|error| Step::Done(Status::error(error.to_string())))
    }

    /// Writes the next claim, or waits for binding conditions when all are written.
    fn next(
        &mut self,
        plugin: &DynamicResources,
        cx: &mut StageContext<'_>,
        pod: &Pod,
    ) -> Result<Step, BindError> {
        while let Some(reserved) = self.claims.get_mut(self.current) {
            if let Some(created) = reserved.created.as_mut().filter(|created| !created.is_sent) {
                created.is_sent = true;
                let write = writes::create(&reserved.claim, extended::body(&reserved.claim, pod));
                self.stage = BindStage::Creating;
                return Ok(cx.wait_for_call(WRITE_WAIT_MAX, write));
            }
            let seen = look_up(cx.cluster, &reserved.claim);
            let seen = seen.filter(|seen| seen.metadata.deletion_timestamp.is_none());
            let seen = seen.ok_or_else(|| BindError::Deleted(reserved.claim.key()))?;
            let is_stored = seen.is_allocated() && !seen.status.is_assumed;
            if is_stored && reserved.is_reserved_by_sibling(seen) {
                self.written(cx);
                continue;
            }
            match &reserved.allocation {
                // Another member of the group has written it, or an earlier write of this pod whose response was lost.
                Some(allocation) if is_stored && has_devices_of(seen, allocation) => {
                    reserved.claim = seen.clone();
                    reserved.allocation = None;
                    reserved.assumed = None;
                    reserved.write = None;
                }
                Some(_) if is_stored => {
                    return Err(BindError::Allocated(reserved.claim.key()));
                }
                Some(_) if reserved.is_shared => {
                    let until = reserved.shared_until.unwrap_or(cx.now + SHARED_WAIT_MAX);
                    reserved.shared_until = Some(until);
                    let on = WaitOn::Objects(vec![name_of(&reserved.claim)]);
                    self.stage = BindStage::Sharing;
                    return Ok(Step::Wait(Wait {
                        on,
                        deadline: until,
                    }));
                }
                None if !is_stored => {
                    return Err(BindError::Deallocated(reserved.claim.key()));
                }
                // The node was chosen for other devices.
                None if !is_allocated_alike(&reserved.claim, seen) => {
                    return Err(BindError::Allocated(reserved.claim.key()));
                }
                Some(_) => {
                    if let Some(write) = writes::protect(seen) {
                        self.stage = BindStage::Protecting;
                        return Ok(cx.wait_for_call(WRITE_WAIT_MAX, write));
                    }
                }
                None => {}
            }
            return self.write(cx, pod, None);
        }
        if let Some(taken) = self.node_resources.as_mut().filter(|taken| !taken.is_sent) {
            taken.is_sent = true;
            let write = writes::node_resources(pod, &taken.statuses);
            self.stage = BindStage::Counting;
            return Ok(cx.wait_for_call(WRITE_WAIT_MAX, write));
        }
        self.conditions(plugin, cx, pod)
    }

    /// Waits until the watch shows the claim that was created; then it is allocated like any other.
    fn appear(
        &mut self,
        plugin: &DynamicResources,
        cx: &mut StageContext<'_>,
        pod: &Pod,
    ) -> Result<Step, BindError> {
        let reserved = &mut self.claims[self.current];
        let meta = &reserved.claim.metadata;
        let seen = cx
            .cluster
            .devices()
            .claims()
            .get(&meta.namespace, &meta.name);
        let seen = seen.filter(|seen| !seen.metadata.uid.is_empty());
        let Some(seen) = seen else {
            let on = WaitOn::Objects(vec![name_of(&reserved.claim)]);
            let deadline = match self.stage {
                BindStage::Appearing => self.deadline,
                _ => None,
            };
            let deadline = deadline.unwrap_or(cx.now + CREATED_WAIT_MAX);
            self.deadline = Some(deadline);
            self.stage = BindStage::Appearing;
            return Ok(Step::Wait(Wait { on, deadline }));
        };
        let owner = seen.metadata.controller();
        if owner.is_none_or(|owner| owner.uid != *pod.uid()) {
            // It is not deleted, because it is the claim of another pod.
            reserved.created = None;
            return Err(BindError::NameTaken(seen.key()));
        }
        reserved.claim = seen.clone();
        self.deadline = None;
        self.next(plugin, cx, pod)
    }

    /// The current claim is reserved: names it in the pod's status if it was created for the pod's extended resources.
    fn reserved(
        &mut self,
        plugin: &DynamicResources,
        cx: &mut StageContext<'_>,
        pod: &Pod,
    ) -> Result<Step, BindError> {
        if let Some(step) = self.publish(cx, pod) {
            return Ok(step);
        }
        self.written(cx);
        self.next(plugin, cx, pod)
    }

    fn publish(&mut self, cx: &mut StageContext<'_>, pod: &Pod) -> Option<Step> {
        let reserved = self.claims.get_mut(self.current)?;
        let created = reserved.created.as_mut()?;
        if created.is_published {
            return None;
        }
        created.is_published = true;
        let write = writes::publish(&reserved.claim, &created.mappings, pod);
        self.stage = BindStage::Publishing;
        Some(cx.wait_for_call(WRITE_WAIT_MAX, write))
    }

    /// Writes the reservation of the current claim, for this version of it if it is known.
    fn write(
        &mut self,
        cx: &mut StageContext<'_>,
        pod: &Pod,
        version: Option<Str>,
    ) -> Result<Step, BindError> {
        let reserved = &mut self.claims[self.current];
        let seen = look_up(cx.cluster, &reserved.claim);
        let mut claim = match seen {
            Some(seen) => ResourceClaim::clone(seen),
            None => return Err(BindError::Deleted(reserved.claim.key())),
        };
        if let Some(version) = version.filter(|version| !claim.metadata.is_newer_than(version)) {
            claim.metadata.resource_version = version;
        }
        let write = match &mut reserved.allocation {
            Some(_) if self.has_waited && !writes::is_assumed_for(&claim, pod) => {
                // It was allocated, and has been freed. Another claim may have the devices now.
                return Err(BindError::Allocated(claim.key()));
            }
            Some(allocation) => {
                if has_binding_conditions(cx.features) {
                    allocation.allocation_timestamp = Some(cx.now);
                }
                writes::allocate(&claim, allocation, pod, &reserved.consumer)
            }
            None => writes::reserve(&claim, &reserved.consumer),
        };
        reserved.attempts += 1;
        reserved.is_sent = true;
        reserved.write = Some(write.clone());
        self.stage = BindStage::Reserving;
        Ok(cx.wait_for_call(WRITE_WAIT_MAX, write))
    }

    /// The current claim is reserved. Its devices are assumed until the API shows them.
    fn written(&mut self, cx: &mut StageContext<'_>) {
        let reserved = &mut self.claims[self.current];
        if let Some(assumed) = reserved.assumed.take() {
            if let Some(write) = reserved.write.take() {
                cx.outbox.assume(write);
            }
            cx.outbox.revert(assumed);
        }
        self.current += 1;
        self.stage = BindStage::Start;
    }

    /// A write was refused. After a conflict it is made again for a newer version of the claim, at once if the watch
    /// shows one.
    fn refused(
        &mut self,
        plugin: &DynamicResources,
        cx: &mut StageContext<'_>,
        pod: &Pod,
        error: &CallError,
    ) -> Result<Step, BindError> {
        let of_pod = match self.stage {
            BindStage::Publishing => Some("ExtendedResourceClaimStatus"),
            BindStage::Counting => Some("NodeAllocatableResourceClaimStatuses"),
            _ => None,
        };
        if let Some(field) = of_pod {
            return Err(BindError::PodStatus {
                pod: pod.key(),
                field,
                error: error.clone(),
            });
        }
        let reserved = &mut self.claims[self.current];
        let seen = look_up(cx.cluster, &reserved.claim);
        let written_for = reserved.write.as_ref().and_then(Write::resource_version);
        // A write that was replaced is not repeated at once: it would replace the other one.
        let is_newer_shown = error.kind == CallErrorKind::Conflict
            && written_for.is_some_and(|version| {
                seen.is_some_and(|seen| seen.metadata.is_newer_than(version))
            });
        if self.stage == BindStage::Reserving && error.kind.is_definite() {
            reserved.write = None;
        }
        if self.stage != BindStage::Creating
            && is_outdated(error)
            && reserved.attempts < ATTEMPTS_MAX
        {
            if self.stage == BindStage::Reserving && is_newer_shown {
                return self.next(plugin, cx, pod);
            }
            self.stage = BindStage::Refreshing;
            return Ok(Step::Wait(Wait {
                on: WaitOn::Objects(vec![name_of(&reserved.claim)]),
                deadline: cx.now + CONFLICT_WAIT_MAX,
            }));
        }
        let action = match (self.stage, &reserved.allocation) {
            (BindStage::Creating, _) => "create claim for extended resources",
            (BindStage::Protecting, _) => "add finalizer to claim",
            (_, Some(_)) => "add allocation and reservation to claim",
            (_, None) => "add reservation to claim",
        };
        Err(BindError::Write {
            action,
            claim: reserved.claim.key(),
            error: error.clone(),
        })
    }

    /// Waits until the devices have reported that they are ready, if they have to.
    fn conditions(
        &mut self,
        plugin: &DynamicResources,
        cx: &mut StageContext<'_>,
        pod: &Pod,
    ) -> Result<Step, BindError> {
        if !has_binding_conditions(cx.features) {
            return Ok(Step::success());
        }
        let timeout = plugin.args.binding_timeout;
        let mut awaited = Vec::new();
        for reserved in &self.claims {
            let Some(claim) = look_up(cx.cluster, &reserved.claim) else {
                return Err(BindError::Deleted(reserved.claim.key()));
            };
            let allocation = claim.status.allocation.as_ref();
            match conditions::readiness(claim) {
                Readiness::Ready => {}
                Readiness::Failed(why) => return Err(BindError::Condition(why)),
                Readiness::Pending => {
                    // As upstream, the time since the allocation is limited, too, not only the wait of this attempt.
                    if allocation.is_some_and(|a| conditions::is_late(a, timeout, cx.now)) {
                        return Err(BindError::Late(claim.metadata.name.clone()));
                    }
                    awaited.push(name_of(claim));
                }
            }
        }
        if awaited.is_empty() {
            return Ok(Step::success());
        }
        let deadline = match self.deadline {
            Some(deadline) if deadline <= cx.now => {
                return Err(BindError::Deadline);
            }
            Some(deadline) => deadline,
            None => {
                // The event is published once, at the start of the wait.
                cx.outbox.publish(PodEvent {
                    regarding: PodRef::of(pod),
                    related: None,
                    kind: EventKind::Normal,
                    reason: "BindingConditionsPending",
                    action: "Scheduling",
                    note: format!(
                        "waiting for binding conditions for device on node {}",
                        self.node
                    ),
                });
                cx.now + timeout.as_duration()
            }
        };
        self.deadline = Some(deadline);
        self.stage = BindStage::Conditions;
        Ok(Step::Wait(Wait {
            on: WaitOn::Objects(awaited),
            deadline,
        }))
    }
}
