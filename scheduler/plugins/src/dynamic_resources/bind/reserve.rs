//! Reserve allocates devices on the chosen node and shows them as allocated; Unreserve reverts that.

use super::{BindStage, Created, NodeResources, Reserved, ReservedClaim, has_devices_of, look_up};
use crate::dynamic_resources::claims::{is_of_group, is_reserved_for, pod_consumer};
use crate::dynamic_resources::extended::{self, Variant};
use crate::dynamic_resources::node_allocatable::{self, Allocated};
use crate::dynamic_resources::state::ClaimsState;
use crate::dynamic_resources::{DynamicResources, filter, writes};
use berth_api::{Pod, ResourceClaim, Str, Time};
use berth_framework::Status;
use berth_framework::allocator::{allocator, target};
use berth_framework::plugin::Context;
use berth_framework::stage::StageContext;
use berth_framework::write::PodEdit;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;
use std::sync::Arc;

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
pub(in crate::dynamic_resources) fn reserve(
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
        Some(extended) => match extended.on_node(&Context::of_step(cx), view) {
            Ok(variant) => variant,
            Err(status) => return status,
        },
        None => None,
    };
    let requests = state.requests(extended.as_ref().map(|variant| &variant.requests));
    // Unlike in kube-scheduler, Filter keeps no allocations, so the search for the chosen node is repeated.
    if !requests.is_empty() {
        let allocator = allocator(cx.cluster, cx.features);
        let budget = &mut filter::budget(&plugin.args, cx.features);
        match allocator.allocate(target(view), &requests, budget) {
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
    let statuses = node_allocatable::statuses(&Context::of_step(cx), pod, &allocated)?;
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
pub(in crate::dynamic_resources) fn unreserve(
    cx: &mut StageContext<'_>,
    state: &mut ClaimsState,
    pod: &Pod,
) {
    let Some(reserved) = state.reserved.take() else {
        return;
    };
    if reserved.node_resources.is_some_and(|taken| taken.is_sent) {
        cx.outbox.call(writes::node_resources(pod, &[]).into());
    }
    for reserved in reserved.claims {
        let claim = &reserved.claim;
        let seen = look_up(cx.cluster, claim);
        if let Some(created) = &reserved.created {
            if created.is_sent {
                for write in writes::delete_created(claim) {
                    cx.outbox.call(write.into());
                }
            }
        } else if !is_of_group(&reserved.consumer)
            && (reserved.is_sent
                || reserved.shared_until.is_some()
                || seen.is_some_and(|seen| {
                    !seen.status.is_assumed && is_reserved_for(seen, &reserved.consumer.uid)
                }))
        {
            // The reservation for a group is kept until the group is deleted.
            cx.outbox
                .call(writes::release(claim, &reserved.consumer).into());
        }
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
