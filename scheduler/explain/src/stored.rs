//! Objects as an API server stores them after a write of the scheduler: for what-if and simulations, which have no API server.

use berth_api::devices::ConsumerReference;
use berth_api::{Object, ResourceClaim, Str};
use berth_framework::write::{Action, Write};
use serde::Deserialize;
use std::sync::Arc;

/// Sets the resource version of an object of a kind whose versions the scheduler compares.
pub fn set_version(object: &mut Object, version: Str) {
    let metadata = match object {
        Object::Pod(pod) => &mut Arc::make_mut(pod).metadata,
        Object::Node(node) => &mut Arc::make_mut(node).metadata,
        Object::PodDisruptionBudget(budget) => &mut Arc::make_mut(budget).metadata,
        Object::ResourceClaim(claim) => &mut Arc::make_mut(claim).metadata,
        Object::PersistentVolume(volume) => &mut Arc::make_mut(volume).metadata,
        Object::PersistentVolumeClaim(claim) => &mut Arc::make_mut(claim).metadata,
        Object::PodGroup(group) => &mut Arc::make_mut(group).metadata,
        Object::Custom(custom) => &mut Arc::make_mut(custom).metadata,
        _ => return,
    };
    metadata.resource_version = version;
}

/// The object after a write. A claim has no marks of assumed devices then, and the users that the patch of a reservation adds or
/// removes.
pub fn written(write: &Write, object: &Object) -> Object {
    let Object::ResourceClaim(claim) = write.applied_to(object) else {
        return write.applied_to(object);
    };
    let mut claim = ResourceClaim::clone(&claim);
    let status = &mut claim.status;
    status.is_assumed = false;
    status.assumed_for.clear();
    if let Action::StrategicPatch(body) = write.action() {
        let users = body["status"]["reservedFor"].as_array();
        for user in users.into_iter().flatten() {
            status
                .reserved_for
                .retain(|known| user["uid"] != *known.uid);
            if user["$patch"] != "delete" {
                let user = ConsumerReference::deserialize(user);
                status.reserved_for.extend(user.ok());
            }
        }
    }
    Object::ResourceClaim(Arc::new(claim))
}
