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

mod reserve;

pub(super) use reserve::{reserve, unreserve};

use super::bind_error::BindError;
use super::claims::is_reserved_for;
use super::conditions::{self, Readiness};
use super::extended::{self, Mapping};
use super::{DynamicResources, writes};
use berth_api::devices::{AllocationResult, ConsumerReference};
use berth_api::pod::NodeAllocatableResourceClaimStatus;
use berth_api::{Duration, Kind, Pod, ResourceClaim, Str, Time};
use berth_framework::allocator::has_binding_conditions;
use berth_framework::call::{CallError, CallErrorKind, EventKind, PodEvent, PodRef};
use berth_framework::object_name::ObjectName;
use berth_framework::stage::{StageContext, Step, Wait, WaitOn, Wake, WakeReason};
use berth_framework::{Cluster, Status, Write};
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
        self.is_shared
            && self
                .allocation
                .as_ref()
                .is_some_and(|chosen| has_devices_of(seen, chosen))
            && is_reserved_for(seen, &self.consumer.uid)
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
