//! The writes of DynamicResources: allocations, reservations, and their end.

use super::claims::{is_reserved_for, pod_consumer};
use super::extended::Mapping;
use super::json::{allocation_json, object};
use berth_api::devices::{
    AllocationResult, CLAIM_FINALIZER, ConsumerReference, ResourceClaimStatus,
};
use berth_api::pod::NodeAllocatableResourceClaimStatus;
use berth_api::{Kind, Object, Pod, ResourceClaim, Str};
use berth_framework::write::{Action, Merge, MergeError, RawField};
use berth_framework::{CallType, Write};
use serde_json::{Value, json};
use std::sync::Arc;

/// All writes to claims.
static CLAIM_UPDATE: CallType = CallType::new("resource_claim_update", Kind::ResourceClaim)
    .merging(Merge::With(merge))
    .holding_after(reserve_both);

/// The write of the claim for extended resources, and of the resources used by devices, to a pod's status. The two are
/// written one after the other. The key of these calls is the pod's name, the key of all other calls about pods is the
/// UID, so they never conflict and the relevance has no effect.
static POD_CLAIM_STATUS: CallType =
    CallType::new("pod_extended_resource_claim_status", Kind::Pod).with_relevance(0);

/// The types of calls that the plugin makes.
pub(crate) const CALLS: &[&CallType] = &[&CLAIM_UPDATE, &POD_CLAIM_STATUS];

const STATUS: &str = "status";

/// Reservations of several pods for one claim become one write. The end of a reservation is not replaced by another
/// write: no pod waits for it, and a conflict must not end it. Of any other two writes, the newer one is made, and the
/// pod whose write was replaced decides again.
fn merge(older: &Write, newer: &Write) -> Result<Write, MergeError> {
    if is_release(older) != is_release(newer) {
        return Err(MergeError::Separate);
    }
    let (Some(first), Some(second)) = (reservations(older), reservations(newer)) else {
        return Ok(newer.clone());
    };
    // They are valid for different versions of the claim. The newer one is more likely to be current.
    if older.resource_version() != newer.resource_version() {
        return Ok(newer.clone());
    }
    let all: Vec<Value> = first.iter().chain(second).cloned().collect();
    let mut write = Write::new(
        newer.call_type(),
        &newer.object().namespace,
        &newer.object().name,
        Action::StrategicPatch(json!({"status": {"reservedFor": all}})),
    )
    .to_subresource(STATUS);
    let meta = berth_api::ObjectMeta {
        uid: newer.uid().clone(),
        resource_version: newer.resource_version().cloned().unwrap_or_default(),
        ..berth_api::ObjectMeta::default()
    };
    write = match newer.resource_version() {
        Some(_) => write.of_version(&meta),
        None => write.of(&meta),
    };
    // A claim with driver configuration is replaced as a whole, not patched (PL-179).
    if older.raw_fields().is_some() || newer.raw_fields().is_some() {
        write = write.keeping_bytes([]);
    }
    Ok(write)
}

/// A reservation of one pod does not affect the reservation of another pod.
fn reserve_both(earlier: &Write, later: &Write) -> bool {
    reservations(earlier).is_some() && reservations(later).is_some()
}

/// Returns whether the write ends reservations, for any version of the claim.
fn is_release(write: &Write) -> bool {
    write.resource_version().is_none() && reservations(write).is_some()
}

/// The users in a write that changes only reservations.
fn reservations(write: &Write) -> Option<&Vec<Value>> {
    match write.action() {
        Action::StrategicPatch(body) => body["status"]["reservedFor"].as_array(),
        _ => None,
    }
}

fn new(claim: &ResourceClaim, action: Action) -> Write {
    let meta = &claim.metadata;
    Write::new(&CLAIM_UPDATE, &meta.namespace, &meta.name, action)
}

/// A change of a claim. The configuration of drivers in the claim is kept byte for byte.
fn patch(claim: &ResourceClaim, action: Action) -> Write {
    let write = new(claim, action);
    if claim.has_raw_json() {
        write.keeping_bytes([])
    } else {
        write
    }
}

/// Protects a claim from being deleted while it has devices. `None` if it is protected.
pub(super) fn protect(claim: &ResourceClaim) -> Option<Write> {
    let meta = &claim.metadata;
    if meta.finalizers.iter().any(|f| **f == *CLAIM_FINALIZER) {
        return None;
    }
    let body = json!({"metadata": {"finalizers": [CLAIM_FINALIZER]}});
    Some(patch(claim, Action::StrategicPatch(body)).of(meta))
}

fn consumer_json(consumer: &ConsumerReference) -> Value {
    let mut json =
        json!({"resource": consumer.resource, "name": consumer.name, "uid": consumer.uid});
    if !consumer.api_group.is_empty() {
        json["apiGroup"] = json!(consumer.api_group);
    }
    json
}

/// The claim as if it had been allocated for these users.
fn allocated(object: &Object, allocation: &AllocationResult, users: &Users) -> Object {
    match object {
        Object::ResourceClaim(claim) if claim.status.allocation.is_none() => {
            let mut claim = ResourceClaim::clone(claim);
            let status = &mut claim.status;
            status.allocation = Some(allocation.clone());
            status.is_assumed = true;
            status.assumed_for.clone_from(&users.pods);
            for consumer in &users.consumers {
                if !status.reserved_for.iter().any(|c| c.uid == consumer.uid) {
                    status.reserved_for.push(consumer.clone());
                }
            }
            Object::ResourceClaim(Arc::new(claim))
        }
        other => other.clone(),
    }
}

/// The claim reserved for this user, too.
fn also_reserved(object: Object, consumer: &ConsumerReference) -> Object {
    match object {
        Object::ResourceClaim(claim) if !is_reserved_for(&claim, &consumer.uid) => {
            let mut claim = Arc::unwrap_or_clone(claim);
            claim.status.reserved_for.push(consumer.clone());
            Object::ResourceClaim(Arc::new(claim))
        }
        other => other,
    }
}

/// The users of a claim whose devices are assumed: the pods by UID, and the entries that `reservedFor` will have.
#[derive(Debug, Clone, Default)]
pub(super) struct Users {
    pub(super) pods: Vec<Str>,
    consumers: Vec<ConsumerReference>,
}

/// The users for which the devices of the claim are assumed, without the pod.
pub(super) fn sharers(claim: &ResourceClaim, pod: &Pod) -> Users {
    let status = &claim.status;
    let pods = status.assumed_for.iter().filter(|uid| *uid != pod.uid());
    let pods: Vec<Str> = pods.cloned().collect();
    if pods.is_empty() {
        return Users::default();
    }
    let consumers = status.reserved_for.iter();
    let consumers = consumers.filter(|consumer| consumer.uid != *pod.uid());
    Users {
        pods,
        consumers: consumers.cloned().collect(),
    }
}

/// The same and the pod, for which the claim is reserved as `consumer`.
fn with_pod(claim: &ResourceClaim, pod: &Pod, consumer: &ConsumerReference) -> Users {
    let mut users = sharers(claim, pod);
    users.pods.push(pod.uid().clone());
    if !users
        .consumers
        .iter()
        .any(|known| known.uid == consumer.uid)
    {
        users.consumers.push(consumer.clone());
    }
    users
}

/// Shows the devices as allocated to the claim, and the claim as reserved for the pod, until the write is reverted. It
/// is never sent. For other members of the pod's group that use the devices, the assumption is kept.
pub(super) fn assume(
    claim: &ResourceClaim,
    allocation: &AllocationResult,
    pod: &Pod,
    consumer: &ConsumerReference,
) -> Write {
    assume_for(claim, allocation, with_pod(claim, pod, consumer))
}

/// The same for these users.
pub(super) fn assume_for(
    claim: &ResourceClaim,
    allocation: &AllocationResult,
    users: Users,
) -> Write {
    let allocation = allocation.clone();
    new(claim, Action::Patch(Value::Null))
        .of(&claim.metadata)
        .seen_as(move |object| allocated(object, &allocation, &users))
}

/// Returns whether the claim is shown with devices that Reserve has chosen for the pod.
pub(super) fn is_assumed_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    claim.status.is_assumed && claim.status.assumed_for.contains(pod.uid())
}

/// The same for a claim that does not exist yet.
pub(super) fn assume_created(
    claim: &Arc<ResourceClaim>,
    allocation: &AllocationResult,
    pod: &Pod,
) -> Write {
    assume(claim, allocation, pod, &pod_consumer(pod))
        .creating(Object::ResourceClaim(claim.clone()))
}

/// Creates a claim for the extended resources of a pod.
pub(super) fn create(claim: &ResourceClaim, body: Value) -> Write {
    new(claim, Action::Create(body))
}

/// Deletes a claim that was created for extended resources: its finalizer is removed, and it is deleted, in any order.
/// The second write waits until the creation of the claim has been answered.
pub(super) fn delete_created(claim: &ResourceClaim) -> [Write; 2] {
    let meta = &claim.metadata;
    let body = json!({"metadata": {
        "$deleteFromPrimitiveList/finalizers": [CLAIM_FINALIZER],
    }});
    [
        patch(claim, Action::StrategicPatch(body)).of(meta),
        new(claim, Action::Delete),
    ]
}

/// Names the claim for extended resources in the pod's status.
pub(super) fn publish(claim: &ResourceClaim, mappings: &[Mapping], pod: &Pod) -> Write {
    let mappings: Vec<Value> = mappings.iter().map(Mapping::json).collect();
    let body = json!({
        "metadata": {"uid": pod.uid()},
        "status": {"extendedResourceClaimStatus": {
            "resourceClaimName": claim.metadata.name,
            "requestMappings": mappings,
        }},
    });
    let (namespace, name) = (pod.namespace(), pod.name());
    Write::patch(&POD_CLAIM_STATUS, namespace, name, body).to_subresource(STATUS)
}

/// Writes the resources that devices use of the node to the pod's status. An empty list removes the field.
pub(super) fn node_resources(pod: &Pod, statuses: &[NodeAllocatableResourceClaimStatus]) -> Write {
    let statuses = statuses.iter().map(|status| {
        object([
            ("resourceClaimName", json!(status.resource_claim_name)),
            ("containers", json!(status.containers)),
            ("mapping", json!(status.mapping)),
            ("overhead", json!(status.overhead)),
        ])
    });
    let body = json!({
        "metadata": {"uid": pod.uid()},
        "status": {"nodeAllocatableResourceClaimStatuses": statuses.collect::<Vec<_>>()},
    });
    let (namespace, name) = (pod.namespace(), pod.name());
    Write::patch(&POD_CLAIM_STATUS, namespace, name, body).to_subresource(STATUS)
}

/// Allocates devices to a claim and reserves it for a pod, as `consumer`. Holds for the version of the claim that
/// `claim` has.
pub(super) fn allocate(
    claim: &ResourceClaim,
    allocation: &AllocationResult,
    pod: &Pod,
    consumer: &ConsumerReference,
) -> Write {
    let others = claim.status.reserved_for.iter();
    let others = others.filter(|known| known.uid != consumer.uid);
    let mut reserved: Vec<Value> = others.map(consumer_json).collect();
    reserved.push(consumer_json(consumer));
    let body =
        json!({"status": {"allocation": allocation_json(allocation), "reservedFor": reserved}});
    let mut write = patch(claim, Action::Patch(body));
    if allocation.has_raw_json() {
        write = write.keeping_bytes(parameters(allocation));
    }
    let allocation = allocation.clone();
    // After this write, the claim is no longer assumed for the pod, but still for the other members that use it.
    let users = sharers(claim, pod);
    let consumer = consumer.clone();
    write
        .to_subresource(STATUS)
        .of_version(&claim.metadata)
        .seen_as(move |object| {
            let seen = match object {
                // A claim with the devices of another scheduler does not show this write.
                Object::ResourceClaim(claim)
                    if claim
                        .status
                        .allocation
                        .as_ref()
                        .is_some_and(|known| known.devices != allocation.devices) =>
                {
                    let mut claim = ResourceClaim::clone(claim);
                    claim.status.allocation = Some(allocation.clone());
                    claim.status.is_assumed = true;
                    Object::ResourceClaim(Arc::new(claim))
                }
                object => allocated(object, &allocation, &users),
            };
            also_reserved(seen, &consumer)
        })
}

/// The parameters of drivers in the body that allocates.
fn parameters(allocation: &AllocationResult) -> impl Iterator<Item = RawField> {
    let config = allocation.devices.config.iter().enumerate();
    config.filter_map(|(i, config)| {
        let pointer = format!("/status/allocation/devices/config/{i}/opaque/parameters");
        Some((pointer, config.opaque.as_ref()?.parameters.clone()))
    })
}

/// Reserves an allocated claim. Holds for the version of the claim that `claim` has.
pub(super) fn reserve(claim: &ResourceClaim, consumer: &ConsumerReference) -> Write {
    let body = json!({"status": {"reservedFor": [consumer_json(consumer)]}});
    patch(claim, Action::StrategicPatch(body))
        .to_subresource(STATUS)
        .of_version(&claim.metadata)
}

/// Ends the reservation of a claim for a user.
pub(super) fn release(claim: &ResourceClaim, consumer: &ConsumerReference) -> Write {
    let body = json!({"status": {"reservedFor": [{"$patch": "delete", "uid": consumer.uid}]}});
    patch(claim, Action::StrategicPatch(body))
        .to_subresource(STATUS)
        .of(&claim.metadata)
}

/// Frees the devices of a claim. Holds for the version of the claim that `claim` has.
pub(super) fn deallocate(claim: &ResourceClaim) -> Write {
    let body = json!({"status": {"allocation": null, "reservedFor": null, "devices": null}});
    patch(claim, Action::Patch(body))
        .to_subresource(STATUS)
        .of_version(&claim.metadata)
}

/// Shows the claim as free. The end of this assumption is a change of the claim, which queues the pods that use it.
pub(super) fn freed(claim: &ResourceClaim) -> Write {
    new(claim, Action::Patch(Value::Null))
        .of(&claim.metadata)
        .seen_as(|object| match object {
            Object::ResourceClaim(claim) if claim.is_allocated() => {
                let mut claim = ResourceClaim::clone(claim);
                claim.status = ResourceClaimStatus::default();
                Object::ResourceClaim(Arc::new(claim))
            }
            other => other.clone(),
        })
}

#[cfg(test)]
mod tests {
    use super::super::tests::claim;
    use super::*;
    use crate::testing::full_pod;

    /// A claim looks allocated from the decision until its allocation is seen.
    #[test]
    fn an_assumed_allocation_is_marked() {
        let before = claim("c", json!({}));
        let allocation = AllocationResult::default();
        let pod = full_pod("p", json!({}));
        let write = assume(&before, &allocation, &pod, &pod_consumer(&pod));
        let stored = Object::ResourceClaim(Arc::new(before));
        let seen = write.applied_to(&stored);
        let seen_claim = seen.as_resource_claim().expect("a claim");
        assert!(seen_claim.is_allocated() && seen_claim.status.is_assumed);
        assert_eq!(
            write.applied_to(&seen),
            seen,
            "a second time changes nothing"
        );
    }

    /// PL-179: an API server that computes a patch would change the bytes of the configuration, which may not change.
    #[test]
    fn the_configuration_of_drivers_stays_as_it_is() {
        let opaque = json!({"driver": "d", "parameters": {"b": 1.0, "a": 1}});
        let config = |source: &str| json!([{"source": source, "opaque": opaque}]);
        let pod = full_pod("p", json!({}));
        for (situation, object, keeps) in [
            ("no configuration", json!({"spec": {}}), false),
            (
                "of the claim",
                json!({"spec": {"devices": {"config": config("")}}}),
                true,
            ),
            (
                "of the allocation",
                json!({"status": {"allocation": {"devices": {"config": config("FromClass")}}}}),
                true,
            ),
            (
                "reported by the driver",
                json!({"status": {"devices": [{"driver": "d", "data": {"b": 1, "a": 1}}]}}),
                true,
            ),
        ] {
            let claim = claim("c", object);
            let user = pod_consumer(&pod);
            let [finalizer, _] = delete_created(&claim);
            let allocation = AllocationResult::default();
            for write in [
                protect(&claim).expect("it is not protected"),
                finalizer,
                allocate(&claim, &allocation, &pod, &user),
                reserve(&claim, &user),
                release(&claim, &user),
                deallocate(&claim),
                reserve(&claim, &user)
                    .after(&reserve(&claim, &user))
                    .expect("one write"),
            ] {
                assert_eq!(
                    write.raw_fields().is_some(),
                    keeps,
                    "{situation}: {write:?}"
                );
            }
        }
        let of_class: AllocationResult =
            serde_json::from_value(json!({"devices": {"config": config("FromClass")}}))
                .expect("an allocation");
        let write = allocate(&claim("c", json!({})), &of_class, &pod, &pod_consumer(&pod));
        let raw = write.raw_fields().expect("the bytes of the class");
        let [(pointer, parameters)] = &**raw else {
            panic!("{raw:?}");
        };
        assert_eq!(
            parameters,
            &of_class.devices.config[0]
                .opaque
                .as_ref()
                .expect("one")
                .parameters
        );
        let Action::Patch(body) = write.action() else {
            panic!("{write:?}");
        };
        assert_eq!(body.pointer(pointer), Some(&json!({"b": 1.0, "a": 1})));
    }

    /// Q-87a: parameters that no JSON value can represent are written unchanged.
    #[test]
    fn parameters_of_any_form_are_copied() {
        let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
        for text in ["{}", r#"{"a":"\ud800"}"#, &deep] {
            let json = format!(
                r#"{{"devices":{{"config":[{{"opaque":{{"driver":"d","parameters":{text}}}}}]}}}}"#
            );
            let allocation: AllocationResult = serde_json::from_str(&json).expect("an allocation");
            let pod = full_pod("p", json!({}));
            let write = allocate(
                &claim("c", json!({})),
                &allocation,
                &pod,
                &pod_consumer(&pod),
            );
            let [(pointer, parameters)] = &**write.raw_fields().expect("the parameters") else {
                panic!("{write:?}");
            };
            assert_eq!(parameters.as_str(), text);
            let Action::Patch(body) = write.action() else {
                panic!("{write:?}");
            };
            assert!(body.pointer(pointer).is_some(), "{body}");
        }
    }

    /// PL-162: a claim with the devices shows an allocation only if it is reserved for the pod as well.
    #[test]
    fn an_allocation_is_shown_with_its_reservation() {
        let before = claim("c", json!({}));
        let allocation = AllocationResult::default();
        let pod = full_pod("p", json!({}));
        let user = pod_consumer(&pod);
        let write = allocate(&before, &allocation, &pod, &user);
        let with = |users: &[&str]| {
            let mut claim = before.clone();
            claim.status.allocation = Some(allocation.clone());
            let users = users
                .iter()
                .map(|name| pod_consumer(&full_pod(name, json!({}))));
            claim.status.reserved_for = users.collect();
            Object::ResourceClaim(Arc::new(claim))
        };
        for (users, expected) in [
            (vec![], false),
            (vec!["q"], false),
            (vec!["p"], true),
            (vec!["q", "p"], true),
        ] {
            assert_eq!(write.is_shown_by(&with(&users)), expected, "{users:?}");
        }
        let stored = Object::ResourceClaim(Arc::new(before));
        let seen = write.applied_to(&stored);
        assert!(!write.is_shown_by(&stored));
        assert_eq!(write.applied_to(&seen), seen);
    }

    #[test]
    fn reservations_of_several_pods_become_one_write() {
        let shared = claim("c", json!({"metadata": {"resourceVersion": "7"}}));
        let user = |name: &str| pod_consumer(&full_pod(name, json!({})));
        let both = reserve(&shared, &user("b")).after(&reserve(&shared, &user("a")));
        let both = both.expect("one write");
        let entry = |name: &str| json!({"resource": "pods", "name": name, "uid": name});
        let body = json!({"status": {"reservedFor": [entry("a"), entry("b")]}});
        assert_eq!(both.action(), &Action::StrategicPatch(body));
        assert_eq!(both.resource_version().map(Str::as_str), Some("7"));
        let deallocation = deallocate(&shared);
        let newer = reserve(&shared, &user("a"));
        let result = newer.clone().after(&deallocation);
        assert_eq!(result, Ok(newer));
    }
}
