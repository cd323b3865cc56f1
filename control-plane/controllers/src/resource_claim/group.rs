//! One PodGroup: the claims that its templates ask for, which its pods share.

use super::super::runtime::Index;
use super::pod::{claim_from, no_template, unlinked_claim};
use super::{ClaimWork, Cx};
use berth_objects::access::{AccessError, StoredObject};
use berth_objects::object::{
    ControllerKey, POD_GROUP, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, is_deleting, items, name,
    namespace, set,
};
use serde_json::{Value, json};

/// Makes the claims of a group, and writes their names to its status.
pub(super) fn sync(cx: &mut Cx, key: &ControllerKey) -> Result<(), AccessError> {
    let Some(group) = cx.cache(POD_GROUP).get(key).cloned() else {
        return Ok(());
    };
    if is_deleting(&group) {
        return Ok(());
    }
    let mut statuses = items(&group["status"]["resourceClaimStatuses"]).to_vec();
    let mut has_changed = false;
    // Each claim is made once; its name in the status is how pods find it.
    for entry in items(&group["spec"]["resourceClaims"]) {
        let entry_name = entry["name"].as_str().unwrap_or_default();
        match claim_for(cx, &group, entry, entry_name) {
            Ok(None) => {}
            Ok(Some(claim)) => {
                statuses.retain(|status| status["name"] != *entry_name);
                statuses.push(json!({"name": entry_name, "resourceClaimName": claim}));
                // A namespace that is being deleted accepts no new objects and needs none.
                has_changed = true;
            }
            Err(error) if error.is_namespace_terminating() => return Ok(()),
            Err(error) => {
                let message = format!("PodGroupResourceClaim {entry_name}: {error}");
                cx.warn(&group, "FailedResourceClaimCreation", message);
                return Err(error);
            }
        }
    }
    if !has_changed {
        return Ok(());
    }
    let mut new = (*group).clone();
    set(
        &mut new,
        &["status", "resourceClaimStatuses"],
        statuses.into(),
    );
    cx.update_status(POD_GROUP, new).map(drop)
}

/// The name of a claim that has to be written to the status for an entry, making the claim if there is none.
fn claim_for(
    cx: &mut Cx,
    group: &StoredObject,
    entry: &Value,
    entry_name: &str,
) -> Result<Option<String>, AccessError> {
    let Some(template) = entry["resourceClaimTemplateName"].as_str() else {
        return Ok(None);
    };
    if let Some(claim) = made_for(group, entry_name)
        && cx
            .cache(RESOURCE_CLAIM)
            .get(&ControllerKey::new(namespace(group), claim))
            .is_some()
    {
        return Ok(None);
    }
    if let Some(claim) = unlinked_claim(cx, group, entry_name) {
        return Ok(Some(claim));
    }
    let key = ControllerKey::new(namespace(group), template);
    let Some(found) = cx.cache(RESOURCE_CLAIM_TEMPLATE).get(&key) else {
        return Err(no_template(template));
    };
    let claim = claim_from(found, POD_GROUP, group, entry_name);
    let claim = cx.create(RESOURCE_CLAIM, claim)?;
    Ok(Some(name(&claim).to_owned()))
}

/// The claim that was generated for an entry of a group.
fn made_for<'g>(group: &'g Value, entry: &str) -> Option<&'g str> {
    let mut made = items(&group["status"]["resourceClaimStatuses"]).iter();
    made.find(|made| made["name"] == entry)?["resourceClaimName"].as_str()
}

/// The group of a pod, if the entry of the pod is one of the claims of the group: with the same name and references.
pub(super) fn sharing(cx: &Cx, pod: &Value, entry: &Value) -> Option<StoredObject> {
    let group = pod["spec"]["schedulingGroup"]["podGroupName"].as_str()?;
    let group = cx
        .cache(POD_GROUP)
        .get(&ControllerKey::new(namespace(pod), group))?;
    let fields = ["name", "resourceClaimName", "resourceClaimTemplateName"];
    let is_same = |other: &Value| fields.iter().all(|field| other[field] == entry[field]);
    let mut claims = items(&group["spec"]["resourceClaims"]).iter();
    claims.any(is_same).then(|| group.clone())
}

/// The name of the claim of a group for an entry.
pub(super) fn claim_of<'g>(group: &'g Value, entry: &'g Value) -> Option<&'g str> {
    let own = entry["resourceClaimName"].as_str();
    own.or_else(|| made_for(group, entry["name"].as_str()?))
}

/// The holder that represents all pods of a group.
pub(super) fn holder(group: &Value) -> Value {
    json!({
        "apiGroup": POD_GROUP.resource.group,
        "resource": POD_GROUP.resource.resource,
        "name": name(group),
        "uid": group["metadata"]["uid"],
    })
}

/// After a change of a group: reconciles its own claims, the claims of its pods, and the claims that it may no longer
/// reserve.
pub(super) fn changed(cx: &mut Cx, old: Option<&StoredObject>, new: Option<&StoredObject>) {
    let claims = |group: &StoredObject| !items(&group["spec"]["resourceClaims"]).is_empty();
    if let Some(group) = new.filter(|group| claims(group)) {
        cx.enqueue(ClaimWork::Group(ControllerKey::of(group)));
        let pods = cx.cache(super::POD).by(Index::PodGroup, name(group));
        let pods = pods.filter(|pod| namespace(pod) == namespace(group));
        let pods: Vec<ControllerKey> = pods.map(|pod| ControllerKey::of(pod)).collect();
        for pod in pods {
            cx.enqueue(ClaimWork::Pod(pod));
        }
    }
    let Some(gone) =
        old.filter(|old| new.is_none_or(|new| new["metadata"]["uid"] != old["metadata"]["uid"]))
    else {
        return;
    };
    for entry in items(&gone["spec"]["resourceClaims"]) {
        if let Some(claim) = claim_of(gone, entry) {
            cx.enqueue(ClaimWork::Claim(ControllerKey::new(namespace(gone), claim)));
        }
    }
}
