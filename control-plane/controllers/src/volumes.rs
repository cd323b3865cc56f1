//! Brings volumes and claims together, as the controller `persistentvolume-binder` does; and plays the provisioner of
//! storage classes whose provisioner is [`SIMULATED`], so that pods with claims run on simulated nodes.
//!
//! ```text
//! a volume that is given to a claim, by the scheduler or its owner   → both are bound
//! a claim of a class Immediate                                       → the smallest free volume that will do
//! a claim for which a node was selected, or of a class Immediate     → a new volume, where it is simulated
//! a claim whose volume was deleted                                      → Lost
//! a volume whose claim was deleted                                      → Released; a simulated one is deleted
//! ```
//!
//! The controller has no state: it reads the objects, and each write is one step. A controller that stops between two
//! steps continues from there after a restart.

mod claims;
mod matching;
pub(super) mod protection;
mod provision;
#[cfg(test)]
mod tests;
mod volume;

use super::runtime::{CacheDifference, Controller, ControllerContext, Index, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, StoredObject};
use berth_objects::object::{
    CLAIM, ControllerKey, ControllerKind, STORAGE_CLASS, VOLUME, name, namespace,
};
use berth_objects::view::at_path;
use matching::class;
use serde_json::{Value, json};

/// The provisioner whose volumes exist as objects only; their CSI driver has the same name.
pub const SIMULATED: &str = "simulated.berth.dev";

/// The component that made a volume.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The claim and its volume both have it.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The controller, and not the owner, has bound the two.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The node of the pod that needs the claim.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Volumes;

/// The keys that are being processed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum VolumeWork {
    /// A claim.
    Claim(ControllerKey),
    /// A volume.
    Volume(ControllerKey),
}

type Cx = ControllerContext<VolumeWork>;

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    let found = at_path(object, path).and_then(Value::as_str);
    found.unwrap_or_default()
}

/// The claim that a volume is given to.
fn claim_of(volume: &Value) -> Option<ControllerKey> {
    let namespace = text(volume, "/spec/claimRef/namespace");
    let name = text(volume, "/spec/claimRef/name");
    (!name.is_empty()).then(|| ControllerKey::new(namespace, name))
}

/// A reference to a claim, as it is written into a volume.
fn reference(claim: &Value) -> Value {
    CLAIM.object(json!({"namespace": namespace(claim),
        "name": name(claim),
        "uid": berth_objects::object::uid(claim),
    }))
}

/// Sets the phase of an object, and further status fields; writes only changes.
fn set_status(
    cx: &mut Cx,
    kind: ControllerKind,
    object: &StoredObject,
    fields: &[(&str, Value)],
) -> Result<StoredObject, AccessError> {
    let mut new = (**object).clone();
    for (field, value) in fields {
        berth_objects::object::set(&mut new, &["status", field], value.clone());
    }
    if new["status"] == object["status"] {
        return Ok(object.clone());
    }
    cx.update_status(kind, new)
}

/// The claims of a class that have no volume yet.
fn waiting_claims(cx: &Cx, class_name: &str) -> Vec<ControllerKey> {
    let claims = cx.cache(CLAIM).iter();
    let waiting = claims.filter(|(_, claim)| {
        class(claim) == class_name && text(claim, "/spec/volumeName").is_empty()
    });
    waiting.map(|(key, _)| key.clone()).collect()
}

impl Volumes {
    fn volume_changed(cx: &mut Cx, diff: &CacheDifference) {
        for volume in [&diff.old, &diff.new].into_iter().flatten() {
            if let Some(claim) = claim_of(volume) {
                cx.enqueue(VolumeWork::Claim(claim));
            }
        }
        let claims = cx.cache(CLAIM);
        let named = [&diff.old, &diff.new].into_iter().flatten();
        let mut waiting: Vec<ControllerKey> = named
            .flat_map(|volume| claims.by(Index::VolumeName, name(volume)))
            .map(|claim| ControllerKey::of(claim))
            .collect();
        if let Some(volume) = &diff.new {
            cx.enqueue(VolumeWork::Volume(ControllerKey::of(volume)));
            if claim_of(volume).is_none() {
                waiting.extend(waiting_claims(cx, class(volume)));
            }
        }
        for claim in waiting {
            cx.enqueue(VolumeWork::Claim(claim));
        }
    }

    fn claim_changed(cx: &mut Cx, diff: &CacheDifference) {
        let mut volumes = Vec::new();
        for claim in [&diff.old, &diff.new].into_iter().flatten() {
            let given = cx.cache(VOLUME).by(Index::ClaimName, name(claim));
            volumes.extend(given.map(|volume| ControllerKey::of(volume)));
            let named = text(claim, "/spec/volumeName");
            if !named.is_empty() {
                volumes.push(ControllerKey::new("", named));
            }
        }
        if let Some(claim) = &diff.new {
            cx.enqueue(VolumeWork::Claim(ControllerKey::of(claim)));
        }
        for volume in volumes {
            cx.enqueue(VolumeWork::Volume(volume));
        }
    }
}

impl Controller for Volumes {
    type Key = VolumeWork;
    const NAME: &'static str = "persistentvolume-controller";
    const WATCHES: &'static [Watch] = &[
        watching(VOLUME, &[Index::ClaimName]),
        watching(CLAIM, &[Index::VolumeName]),
        watching(STORAGE_CLASS, &[]),
    ];

    fn observe(&mut self, cx: &mut Cx, kind: GroupResource, diff: &CacheDifference) {
        if kind == VOLUME.resource {
            Self::volume_changed(cx, diff);
        } else if kind == CLAIM.resource {
            Self::claim_changed(cx, diff);
        } else if let Some(class) = &diff.new {
            for claim in waiting_claims(cx, name(class)) {
                cx.enqueue(VolumeWork::Claim(claim));
            }
        }
    }

    fn reconcile(&mut self, cx: &mut Cx, key: &VolumeWork) -> Result<(), AccessError> {
        match key {
            VolumeWork::Claim(key) => claims::sync(cx, key),
            VolumeWork::Volume(key) => volume::sync(cx, key),
        }
    }
}
