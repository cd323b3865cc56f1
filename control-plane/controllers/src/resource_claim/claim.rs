//! One claim: its consumers, and its deletion when it is not needed.

use super::{Cx, DELETE_PROTECTION, is_done, owning_pod};
use berth_objects::access::{AccessError, StoredObject};
use berth_objects::object::{
    ControllerKey, POD, POD_GROUP, RESOURCE_CLAIM, has_finalizer, is_deleting, items,
    remove_finalizer, set, uid,
};
use serde_json::Value;

pub(super) fn sync(cx: &mut Cx, key: &ControllerKey) -> Result<(), AccessError> {
    let Some(claim) = cx.cache(RESOURCE_CLAIM).get(key).cloned() else {
        return Ok(());
    };
    let mut holders = Vec::new();
    for holder in items(&claim["status"]["reservedFor"]) {
        if still_holds(cx, key, holder)? {
            holders.push(holder.clone());
        }
    }
    let claim = let_go(cx, claim, holders)?;
    if !items(&claim["status"]["reservedFor"]).is_empty() {
        return Ok(());
    }
    // Deletes the generated claim of an ended pod. The garbage collector deletes the claims of deleted pods.
    if let Some((pod, owner)) = owning_pod(&claim)
        && let Some(pod) = cx.cache(POD).get(&pod)
        && uid(pod) == owner
        && is_done(pod)
        && !is_deleting(&claim)
    {
        cx.delete(RESOURCE_CLAIM, &claim)?;
    }
    Ok(())
}

/// Returns whether a consumer of a claim still needs it. Consumers that are neither pods nor groups are not examined.
fn still_holds(cx: &Cx, claim: &ControllerKey, holder: &Value) -> Result<bool, AccessError> {
    let group = holder["apiGroup"].as_str().unwrap_or_default();
    let name = holder["name"].as_str().unwrap_or_default();
    if group == POD_GROUP.resource.group && holder["resource"] == POD_GROUP.resource.resource {
        return group_exists(cx, &ControllerKey::new(&claim.namespace, name), holder);
    }
    if !group.is_empty() || holder["resource"] != "pods" {
        return Ok(true);
    }
    let needs = |pod: &Value| holder["uid"] == uid(pod) && !is_done(pod);
    if let Some(pod) = cx
        .cache(POD)
        .get(&ControllerKey::new(&claim.namespace, name))
        && holder["uid"] == uid(pod)
    {
        return Ok(needs(pod));
    }
    // The pod may be newer than the watch.
    match cx.api().get(POD.resource, &claim.namespace, name) {
        Ok(pod) => Ok(needs(&pod)),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether the group that reserves a claim exists.
fn group_exists(cx: &Cx, group: &ControllerKey, holder: &Value) -> Result<bool, AccessError> {
    let is_same = |group: &Value| holder["uid"] == uid(group);
    if cx.cache(POD_GROUP).get(group).is_some_and(|g| is_same(g)) {
        return Ok(true);
    }
    match cx
        .api()
        .get(POD_GROUP.resource, &group.namespace, &group.name)
    {
        Ok(group) => Ok(is_same(&group)),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes the remaining consumers. Without consumers, the devices are released if a scheduler allocated them (its
/// finalizer is set); then the finalizer is removed, too.
fn let_go(
    cx: &mut Cx,
    claim: StoredObject,
    holders: Vec<Value>,
) -> Result<StoredObject, AccessError> {
    let before = items(&claim["status"]["reservedFor"]).len();
    let is_protected = has_finalizer(&claim, DELETE_PROTECTION);
    let is_allocated = claim["status"]["allocation"].is_object();
    let was_held = holders.len() < before;
    let frees =
        // A claim that no scheduler protects belongs to another allocator, which frees it itself.
        holders.is_empty() && is_protected && is_allocated && (was_held || is_deleting(&claim));
    let mut claim = claim;
    if was_held || frees {
        let mut new = (*claim).clone();
        if holders.is_empty() {
            remove(&mut new, "reservedFor");
        } else {
            set(&mut new, &["status", "reservedFor"], holders.into());
        }
        if frees {
            remove(&mut new, "allocation");
            remove(&mut new, "devices");
        }
        claim = cx.update_status(RESOURCE_CLAIM, new)?;
    }
    // The finalizer is removed last: until then another scheduler may not delete the claim.
    let is_unused = items(&claim["status"]["reservedFor"]).is_empty()
        && !claim["status"]["allocation"].is_object();
    if is_protected && is_unused && (frees || is_deleting(&claim)) {
        let mut new = (*claim).clone();
        remove_finalizer(&mut new, DELETE_PROTECTION);
        claim = cx.update(RESOURCE_CLAIM, new)?;
    }
    Ok(claim)
}

fn remove(claim: &mut Value, field: &str) {
    if let Some(status) = claim["status"].as_object_mut() {
        status.remove(field);
    }
}
