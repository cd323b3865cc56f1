//! One pod: the claims of its templates, and its reservations that the scheduler did not make.

use super::super::runtime::Index;
use super::{Cx, POD_CLAIM_NAME, group, is_done};
use berth_objects::access::{AccessError, StoredObject};
use berth_objects::object::{
    ControllerKey, ControllerKind, POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, annotation,
    controller_reference, controller_uid, is_deleting, items, name, namespace, set, set_annotation,
    uid,
};
use berth_objects::pod::{claims_of, made_for, node_name};
use serde_json::{Value, json};

/// The length of the part of a generated name before its random end, without the hyphen.
const BASE_MAX: usize = 57;

pub(super) fn sync(cx: &mut Cx, key: &ControllerKey) -> Result<(), AccessError> {
    let Some(pod) = cx.cache(POD).get(key).cloned() else {
        return Ok(());
    };
    if is_done(&pod) || is_deleting(&pod) {
        return Ok(());
    }
    let mut made: Vec<(String, String)> = Vec::new();
    for entry in items(&pod["spec"]["resourceClaims"]) {
        let entry_name = entry["name"].as_str().unwrap_or_default();
        match claim_for(cx, &pod, entry, entry_name) {
            Ok(None) => {}
            Ok(Some(claim)) => made.push((entry_name.to_owned(), claim)),
            Err(error) if error.is_namespace_terminating() => return Ok(()),
            Err(error) => {
                let message = format!("PodResourceClaim {entry_name}: {error}");
                cx.warn(&pod, "FailedResourceClaimCreation", message);
                return Err(error);
            }
        }
    }
    let pod = link(cx, &pod, &made)?;
    if node_name(&pod).is_some() {
        hold(cx, &pod)?;
    }
    Ok(())
}

/// The name of a claim that has to be written down for an entry, making the claim if there is none.
fn claim_for(
    cx: &mut Cx,
    pod: &StoredObject,
    entry: &Value,
    entry_name: &str,
) -> Result<Option<String>, AccessError> {
    let Some(template_name) = entry["resourceClaimTemplateName"].as_str() else {
        return Ok(None);
    };
    if let Some(group) = group::sharing(cx, pod, entry) {
        let claim = group::claim_of(&group, entry);
        let is_known = claim.is_some() && made_for(pod, entry_name) == Some(claim);
        return Ok(claim.filter(|_| !is_known).map(str::to_owned));
    }
    match made_for(pod, entry_name) {
        // Decided that none is needed.
        Some(None) => return Ok(None),
        Some(Some(claim)) => {
            let key = ControllerKey::new(namespace(pod), claim);
            if let Some(claim) = cx.cache(RESOURCE_CLAIM).get(&key) {
                return if controller_uid(claim) == Some(uid(pod)) {
                    Ok(None)
                } else {
                    Err(not_owner(pod, claim))
                };
            }
        }
        None => {}
    }
    if let Some(claim) = unlinked_claim(cx, pod, entry_name) {
        return Ok(Some(claim));
    }
    let key = ControllerKey::new(namespace(pod), template_name);
    let Some(template) = cx.cache(RESOURCE_CLAIM_TEMPLATE).get(&key) else {
        return Err(no_template(template_name));
    };
    let claim = claim_from(template, POD, pod, entry_name);
    let claim = cx.create(RESOURCE_CLAIM, claim)?;
    Ok(Some(name(&claim).to_owned()))
}

/// The name of a claim that was generated for an entry of an object and is not in its status yet.
pub(super) fn unlinked_claim(cx: &Cx, owner: &Value, entry: &str) -> Option<String> {
    let is_unlinked = |claim: &&StoredObject| {
        annotation(claim, POD_CLAIM_NAME) == Some(entry) && !is_deleting(claim)
    };
    let mut owned = cx.cache(RESOURCE_CLAIM).by(Index::Controller, uid(owner));
    owned.find(is_unlinked).map(|claim| name(claim).to_owned())
}

fn not_owner(pod: &Value, claim: &Value) -> AccessError {
    AccessError {
        code: 409,
        reason: "Conflict",
        message: format!(
            "ResourceClaim {} was not created for Pod {} (Pod is not owner)",
            ControllerKey::of(claim),
            ControllerKey::of(pod)
        ),
    }
}

pub(super) fn no_template(template: &str) -> AccessError {
    AccessError {
        code: 404,
        reason: "NotFound",
        message: format!(
            "resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io {template:?} not found"
        ),
    }
}

/// `<pod>-<entry>-`; both parts are shortened equally if the name with the suffix of the server would be too long.
fn generate_name(pod: &str, entry: &str) -> String {
    let full = pod.len() + 1 + entry.len();
    if full <= BASE_MAX {
        return format!("{pod}-{entry}-");
    }
    let shortened = |text: &str| -> String {
        let len = text.len() * BASE_MAX / full;
        text.chars().take(len).collect()
    };
    format!("{}-{}-", shortened(pod), shortened(entry))
}

/// The claim that a template asks for, owned by a pod or a group.
pub(super) fn claim_from(
    template: &Value,
    kind: ControllerKind,
    owner: &Value,
    entry: &str,
) -> Value {
    let asked = &template["spec"];
    let mut claim = RESOURCE_CLAIM.object(json!({"metadata": {
            "generateName": generate_name(name(owner), entry),
            "namespace": namespace(owner),
            "ownerReferences": [controller_reference(kind, owner)],
        },
        "spec": asked["spec"],
    }));
    for field in ["labels", "annotations"] {
        if let Some(value) = asked["metadata"][field].as_object() {
            set(&mut claim, &["metadata", field], value.clone().into());
        }
    }
    set_annotation(&mut claim, POD_CLAIM_NAME, entry);
    claim
}

/// Writes down which claims were made.
fn link(
    cx: &mut Cx,
    pod: &StoredObject,
    made: &[(String, String)],
) -> Result<StoredObject, AccessError> {
    if made.is_empty() {
        return Ok(pod.clone());
    }
    let mut statuses = items(&pod["status"]["resourceClaimStatuses"]).to_vec();
    for (entry, claim) in made {
        let status = json!({"name": entry, "resourceClaimName": claim});
        match statuses.iter_mut().find(|status| status["name"] == **entry) {
            Some(before) => *before = status,
            None => statuses.push(status),
        }
    }
    let mut new = (**pod).clone();
    set(
        &mut new,
        &["status", "resourceClaimStatuses"],
        statuses.into(),
    );
    cx.update_status(POD, new)
}

/// Has a pod hold its claims that are allocated: one that got its node without the scheduler would lose them.
fn hold(cx: &mut Cx, pod: &StoredObject) -> Result<(), AccessError> {
    let names: Vec<ControllerKey> = claims_of(pod)
        .map(|claim| ControllerKey::new(namespace(pod), claim))
        .collect();
    let shared: Vec<(String, StoredObject)> = items(&pod["spec"]["resourceClaims"])
        .iter()
        .filter_map(|entry| {
            let group = group::sharing(cx, pod, entry)?;
            let claim = group::claim_of(&group, entry)?.to_owned();
            Some((claim, group))
        })
        .collect();
    for key in names {
        let Some(claim) = cx.cache(RESOURCE_CLAIM).get(&key).cloned() else {
            continue;
        };
        // A claim that the pods of a group share is reserved for the group.
        let mut holders = items(&claim["status"]["reservedFor"]).to_vec();
        let group = shared.iter().find(|(claim, _)| **claim == *key.name);
        let new_holder = match group {
            Some((_, group)) => group::holder(group),
            None => json!({"resource": "pods", "name": name(pod), "uid": uid(pod)}),
        };
        let holds = holders
            .iter()
            .any(|holder| holder["uid"] == uid(pod) || holder["uid"] == new_holder["uid"]);
        if holds || !claim["status"]["allocation"].is_object() || is_deleting(&claim) {
            continue;
        }
        holders.push(new_holder);
        let mut new = (*claim).clone();
        set(&mut new, &["status", "reservedFor"], holders.into());
        cx.update_status(RESOURCE_CLAIM, new)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_keep_something_of_both() {
        let long = "p".repeat(100);
        for (pod, entry, expected) in [
            ("web-0", "gpu", "web-0-gpu-".to_owned()),
            (long.as_str(), "gpu", format!("{}-{}-", "p".repeat(54), "g")),
            (
                long.as_str(),
                long.as_str(),
                format!("{}-{}-", "p".repeat(28), "p".repeat(28)),
            ),
        ] {
            let name = generate_name(pod, entry);
            assert_eq!(name, expected);
            assert!(name.len() <= BASE_MAX + 1);
        }
    }
}
