//! The claims of the pods of a StatefulSet, and their owners. They are compared with the set at each reconcile, not
//! only when a pod is created.
//!
//! `persistentVolumeClaimRetentionPolicy` (KEP-1847) is implemented with owner references: a claim that is deleted with
//! its set is owned by the set, a claim that is deleted with a scaled-down pod is owned by that pod. The garbage
//! collector deletes it after its owner.

use super::identity;
use crate::runtime::{CacheDifference, ControllerContext, Index};
use berth_objects::access::{AccessError, StoredObject};
use berth_objects::object::{
    CLAIM, ControllerKey, ControllerKind, POD, STATEFUL_SET, add_owner, controller_reference,
    is_deleting, name, namespace, owner_references, remove_owners, uid,
};
use serde_json::Value;

/// The sets whose claim has changed.
pub(super) fn sets_of(
    cx: &ControllerContext<ControllerKey>,
    diff: &CacheDifference,
) -> Vec<ControllerKey> {
    let Some(claim) = diff.new.as_ref().or(diff.old.as_ref()) else {
        return Vec::new();
    };
    let sets = cx
        .cache(STATEFUL_SET)
        .by(Index::Namespace, namespace(claim));
    sets.filter(|set| identity::has_claim(set, name(claim)))
        .map(|set| ControllerKey::of(set))
        .collect()
}

/// Creates the claims of a pod that do not exist. A claim that is being deleted is an error: its successor is created
/// when it was deleted.
pub(super) fn create_missing(
    cx: &mut ControllerContext<ControllerKey>,
    set: &StoredObject,
    at: i64,
) -> Result<(), AccessError> {
    let pod = identity::pod_name(set, at);
    let mut problems: Vec<AccessError> = Vec::new();
    for claim in identity::claims(set, at) {
        let key = ControllerKey::of(&claim);
        if let Some(present) = cx.cache(CLAIM).get(&key) {
            if is_deleting(present) {
                problems.push(conflict(format!("pvc {} is being deleted", key.name)));
            }
            continue;
        }
        match cx.create(CLAIM, claim) {
            Ok(_) => {
                let message = format!(
                    "Create Claim {} Pod {pod} in StatefulSet {} success",
                    key.name,
                    name(set)
                );
                cx.normal(set, "SuccessfulCreate", message);
            }
            Err(error) if error.is_namespace_terminating() => return Err(error),
            Err(error) => {
                let message = format!(
                    "Create Claim {} for Pod {pod} in StatefulSet {} failed error: {error}",
                    key.name,
                    name(set)
                );
                if error.reason != "AlreadyExists" {
                    cx.warn(set, "FailedCreate", message);
                }
                problems.push(AccessError {
                    message: format!("failed to create PVC {}: {error}", key.name),
                    ..error
                });
            }
        }
    }
    match problems.len() {
        0 => Ok(()),
        1 => Err(problems.remove(0)),
        _ => {
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            let first = problems.remove(0);
            Err(AccessError {
                message: format!("[{}]", texts.join(", ")),
                ..first
            })
        }
    }
}

fn conflict(message: String) -> AccessError {
    AccessError {
        code: 409,
        reason: "Conflict",
        message,
    }
}

/// Returns whether a claim of a missing pod will be deleted with an earlier pod of the same name: the pod is created
/// afterwards.
pub(super) fn is_stale(cx: &ControllerContext<ControllerKey>, set: &StoredObject, at: i64) -> bool {
    let pod = identity::pod_name(set, at);
    Policy::of(set).with_pod
        && identity::claim_keys(set, at).any(|key| {
            let claim = cx.cache(CLAIM).get(&key);
            claim.is_some_and(|claim| owner_references(claim).iter().any(|r| names(r, POD, &pod)))
        })
}

/// Gives the claims of a pod the owners that the policy of the set requires.
pub(super) fn follow_policy(
    cx: &mut ControllerContext<ControllerKey>,
    set: &StoredObject,
    pod: &StoredObject,
    at: i64,
    is_scaled_down: bool,
) -> Result<(), AccessError> {
    let keys: Vec<ControllerKey> = identity::claim_keys(set, at).collect();
    for key in keys {
        let Some(claim) = cx.cache(CLAIM).get(&key).cloned() else {
            continue;
        };
        let owners = Owners {
            set,
            pod,
            policy: Policy::of(set),
            is_scaled_down,
        };
        if owners.are_right(&claim) {
            continue;
        }
        // Another controller owns the claim; its deletion is not this controller's decision.
        if owners.has_stranger(&claim) {
            let message = format!(
                "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim",
                key.name
            );
            cx.warn(set, "ConflictingController", message);
        }
        let corrected = owners.correct(&claim);
        cx.update(CLAIM, corrected).map_err(|error| AccessError {
            message: format!(
                "could not update claim {} for delete policy ownerRefs: {error}",
                key.name
            ),
            ..error
        })?;
    }
    Ok(())
}

/// The events that delete claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Policy {
    /// With their set.
    with_set: bool,
    /// With a pod that is scaled down.
    with_pod: bool,
}

impl Policy {
    fn of(set: &Value) -> Self {
        let policy = &set["spec"]["persistentVolumeClaimRetentionPolicy"];
        Self {
            with_set: policy["whenDeleted"] == "Delete",
            with_pod: policy["whenScaled"] == "Delete",
        }
    }
}

/// Returns whether a reference names this object, with any UID.
fn names(reference: &Value, kind: ControllerKind, name: &str) -> bool {
    reference["apiVersion"] == kind.api_version
        && reference["kind"] == kind.kind
        && reference["name"] == name
}

/// The owners of a claim of a pod.
struct Owners<'a> {
    set: &'a Value,
    pod: &'a Value,
    policy: Policy,
    /// Whether the pod is outside of the set's ordinals.
    is_scaled_down: bool,
}

impl Owners<'_> {
    /// The set and the pod.
    fn own(&self) -> [(ControllerKind, &Value); 2] {
        [(STATEFUL_SET, self.set), (POD, self.pod)]
    }

    /// Returns whether the set and the pod should be owners.
    fn wanted(&self) -> [bool; 2] {
        let Policy { with_set, with_pod } = self.policy;
        let by_pod = with_pod && self.is_scaled_down;
        [with_set && !by_pod, by_pod]
    }

    /// Returns whether a claim has a controller that is neither the set nor the pod, or is owned by an earlier set or
    /// pod of the same name.
    fn has_stranger(&self, claim: &Value) -> bool {
        if !self.policy.with_set && !self.policy.with_pod {
            return false;
        }
        owner_references(claim).iter().any(|reference| {
            let own = self.own();
            let known = own
                .iter()
                .find(|(kind, o)| names(reference, *kind, name(o)));
            match known {
                Some((_, owner)) => reference["uid"] != uid(owner),
                None => reference["controller"] == true,
            }
        })
    }

    /// Returns whether a claim has the owners that it should have, or owners that must not be touched.
    fn are_right(&self, claim: &Value) -> bool {
        let references = owner_references(claim);
        let has = |owner: &Value| references.iter().any(|r| r["uid"] == uid(owner));
        let own = self.own();
        let is_stale = own.iter().any(|(kind, owner)| {
            let named = references.iter().find(|r| names(r, *kind, name(owner)));
            named.is_some_and(|r| r["uid"] != uid(owner))
        });
        if is_stale {
            // It has a deleted owner; the garbage collector has to decide.
            return true;
        }
        if self.has_stranger(claim) {
            return !has(self.set) && !has(self.pod);
        }
        let is_no_controller = references.iter().any(|r| {
            own.iter().any(|(_, owner)| r["uid"] == uid(owner)) && r["controller"] != true
        });
        !is_no_controller && [has(self.set), has(self.pod)] == self.wanted()
    }

    /// The claim with the owners that it should have.
    fn correct(&self, claim: &Value) -> Value {
        let mut corrected = claim.clone();
        let own = self.own();
        remove_owners(&mut corrected, |owner| {
            own.iter().any(|(_, o)| uid(o) == owner)
        });
        if self.has_stranger(claim) {
            return corrected;
        }
        for ((kind, owner), wanted) in own.into_iter().zip(self.wanted()) {
            if wanted {
                add_owner(&mut corrected, controller_reference(kind, owner));
            }
        }
        corrected
    }
}
