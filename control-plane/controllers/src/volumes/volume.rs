//! Volumes: free, given to a claim, or left behind by one.

use super::{
    BOUND_BY_CONTROLLER, Cx, PROVISIONED_BY, SIMULATED, VolumeWork, claim_of, set_status, text,
};
use berth_objects::access::{AccessError, StoredObject};
use berth_objects::object::{
    CLAIM, ControllerKey, VOLUME, annotation, is_deleting, name, namespace, set, uid,
};
use serde_json::Value;

/// Sets a volume's phase, and removes the volume from a claim that is bound to another one.
pub(super) fn sync(cx: &mut Cx, key: &ControllerKey) -> Result<(), AccessError> {
    let Some(volume) = cx.cache(VOLUME).get(key).cloned() else {
        return Ok(());
    };
    let given = text(&volume, "/spec/claimRef/uid");
    let Some(claim_key) = claim_of(&volume).filter(|_| !given.is_empty()) else {
        // Free, or reserved for a claim that was not seen yet.
        set_status(cx, VOLUME, &volume, &[("phase", "Available".into())])?;
        return Ok(());
    };
    let Some(claim) = find_claim(cx, &claim_key, given) else {
        return release(cx, &volume);
    };
    match text(&claim, "/spec/volumeName") {
        "" => cx.enqueue(VolumeWork::Claim(claim_key)),
        named if named == name(&volume) => {
            set_status(cx, VOLUME, &volume, &[("phase", "Bound".into())])?;
        }
        _ if is_simulated(&volume) => delete(cx, &volume)?,
        _ => revert(cx, &volume)?,
    }
    Ok(())
}

/// The claim that the volume was given to, and no later one of that name. The view may be late.
fn find_claim(cx: &Cx, key: &ControllerKey, given: &str) -> Option<StoredObject> {
    let known = cx.cache(CLAIM).get(key).cloned();
    if let Some(known) = known.filter(|claim| uid(claim) == given) {
        return Some(known);
    }
    let stored = cx.api().get(CLAIM.resource, &key.namespace, &key.name);
    stored.ok().filter(|claim| uid(claim) == given)
}

fn is_simulated(volume: &Value) -> bool {
    annotation(volume, PROVISIONED_BY) == Some(SIMULATED)
        && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete"
}

/// The claim was deleted.
fn release(cx: &mut Cx, volume: &StoredObject) -> Result<(), AccessError> {
    let released = set_status(cx, VOLUME, volume, &[("phase", "Released".into())])?;
    if is_simulated(&released) && !is_deleting(&released) {
        delete(cx, &released)?;
    }
    Ok(())
}

fn delete(cx: &mut Cx, volume: &Value) -> Result<(), AccessError> {
    debug_assert!(namespace(volume).is_empty(), "volumes are cluster-scoped");
    cx.delete(VOLUME, volume)
}

/// The claim has another volume: this one is free again, or meant for the claim as its owner had it.
fn revert(cx: &mut Cx, volume: &StoredObject) -> Result<(), AccessError> {
    let mut free = (**volume).clone();
    if annotation(volume, BOUND_BY_CONTROLLER).is_some() {
        set(&mut free, &["spec", "claimRef"], Value::Null);
        if let Some(annotations) = free["metadata"]["annotations"].as_object_mut() {
            annotations.remove(BOUND_BY_CONTROLLER);
        }
    } else if let Some(claim) = free["spec"]["claimRef"].as_object_mut() {
        claim.remove("uid");
    }
    let free = cx.update(VOLUME, free)?;
    set_status(cx, VOLUME, &free, &[("phase", "Available".into())])?;
    Ok(())
}
