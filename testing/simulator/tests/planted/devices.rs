//! Wrong devices: a scheduler has wrong information about devices, or a claim loses its devices.

use super::{Impostor, found, with, with_api};
use berth_api::{Kind, Object, ResourceClaim, ResourceSlice, Time};
use berth_framework::call::ApiCall;
use berth_framework::registry::Extensions;
use berth_scheduler::ClusterChange;
use berth_simulator::world::{Devices, Refusal, World};
use berth_simulator::{Api, FaithfulApi, Faults};
use serde_json::json;
use std::sync::Arc;

/// An API that delivers other objects to schedulers than it stores.
struct Altered<F>(F);

impl<F: Fn(Object) -> Object + Send + Sync> Api for Altered<F> {
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
        FaithfulApi.carry_out(world, call, now)
    }

    fn notify(&self, change: ClusterChange) -> Vec<ClusterChange> {
        vec![match change {
            ClusterChange::Applied(object) => ClusterChange::Applied((self.0)(object)),
            ClusterChange::Replaced(kind, objects) => {
                ClusterChange::Replaced(kind, objects.into_iter().map(&self.0).collect())
            }
            deleted => deleted,
        }]
    }
}

fn with_slices(change: fn(&mut ResourceSlice)) -> berth_simulator::Subject {
    with_api(Altered(move |object| match &object {
        Object::ResourceSlice(slice) => {
            let mut slice = ResourceSlice::clone(slice);
            change(&mut slice);
            Object::ResourceSlice(Arc::new(slice))
        }
        _ => object,
    }))
}

/// The violation that is found first, in words.
fn first_violation(subject: &berth_simulator::Subject, kinds: &[&str]) -> String {
    let shrunk = found(subject, Faults::NONE, kinds);
    shrunk.failure.violation.to_string()
}

#[test]
fn an_allocated_device_of_another_claim_is_detected() {
    let subject = with_api(Altered(|object| match &object {
        Object::ResourceClaim(claim) if claim.is_allocated() => {
            let mut claim = ResourceClaim::clone(claim);
            if let Some(allocation) = &mut claim.status.allocation {
                for result in &mut allocation.devices.results {
                    result.device = "unknown".into();
                }
            }
            Object::ResourceClaim(Arc::new(claim))
        }
        _ => object,
    }));
    let text = first_violation(&subject, &["wrong device"]);
    assert!(
        text.contains("allocated to another claim") || text.contains("left"),
        "{text}"
    );
}

#[test]
fn exceeded_counters_are_detected() {
    let subject = with_slices(|slice| {
        for set in &mut slice.spec.shared_counters {
            for counter in set.counters.values_mut() {
                counter.value += counter.value;
            }
        }
    });
    let text = first_violation(&subject, &["wrong device", "overcommit"]);
    assert!(
        text.contains("its counters") || text.contains("not enough devices"),
        "{text}"
    );
}

#[test]
fn exceeded_capacity_is_detected() {
    let subject = with_slices(|slice| {
        for device in &mut slice.spec.devices {
            for capacity in device.capacity.values_mut() {
                capacity.value += capacity.value;
            }
        }
    });
    let text = first_violation(&subject, &["wrong device", "overcommit"]);
    assert!(
        text.contains("its capacity") || text.contains("not enough devices"),
        "{text}"
    );
}

#[test]
fn an_untolerated_device_taint_is_detected() {
    let subject = with_slices(|slice| {
        for device in &mut slice.spec.devices {
            device.taints.clear();
        }
    });
    let text = first_violation(&subject, &["wrong device"]);
    assert!(text.contains("taint"), "{text}");
}

/// An API that frees the devices of a pod when it is bound.
struct Robber;

impl Api for Robber {
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
        let outcome = FaithfulApi.carry_out(world, call, now);
        let ApiCall::BindPod { pod, .. } = call else {
            return outcome;
        };
        let claims = world.others().of_kind(Kind::ResourceClaim);
        let claims = claims.filter_map(|object| object.as_resource_claim());
        let of_pod = claims.filter(|claim| {
            let mut consumers = claim.status.reserved_for.iter();
            consumers.any(|consumer| consumer.uid == pod.uid)
        });
        for claim in of_pod.cloned().collect::<Vec<_>>() {
            let meta = &claim.metadata;
            let body = json!({"status": {"allocation": null, "reservedFor": null}});
            let (namespace, name) = (&meta.namespace, &meta.name);
            Devices::of(world).patch_claim(namespace, name, &meta.uid, None, &body, false)?;
        }
        outcome
    }
}

#[test]
fn a_bound_pod_without_its_devices_is_detected() {
    let text = first_violation(&with_api(Robber), &["no reservation"]);
    assert!(text.contains("is not reserved for it"), "{text}");
}

#[test]
fn an_incorrect_skip_for_claims_loses_pods() {
    let subject = with("DynamicResources", |inner| {
        let events = Extensions::of(Impostor {
            inner: inner.clone(),
        })
        .events()
        .build()
        .events;
        Extensions { events, ..inner }
    });
    let text = first_violation(&subject, &["lost pod"]);
    assert!(text.contains("DynamicResources"), "{text}");
}
