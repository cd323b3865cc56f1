//! The writes of VolumeBinding: the claim of a volume, and the node for which a volume is to be provisioned.
//!
//! A write is for the version of the object on which the decision is based. If the object was changed since, the API
//! server refuses the write, and the decision is made again.

use berth_api::storage::{BOUND_BY_CONTROLLER_ANNOTATION, ClaimRef, SELECTED_NODE_ANNOTATION};
use berth_api::{Kind, Object, PersistentVolume, PersistentVolumeClaim, Str};
use berth_framework::{CallType, Write};
use serde_json::json;
use std::sync::Arc;

/// Reserves volumes for claims.
static VOLUME_UPDATE: CallType = CallType::new("persistent_volume_update", Kind::PersistentVolume);
/// Selects nodes for claims.
static CLAIM_UPDATE: CallType = CallType::new(
    "persistent_volume_claim_update",
    Kind::PersistentVolumeClaim,
);

/// The types of calls that the plugin makes.
pub(crate) const CALLS: &[&CallType] = &[&VOLUME_UPDATE, &CLAIM_UPDATE];

/// Reserves a volume for a claim. `None` if it is reserved already, with the UID of the claim. If the volume had no
/// claim reference, an annotation is written, which allows the volume controller to revert the reservation.
pub(super) fn give(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Write> {
    let given = volume.spec.claim_ref.as_ref();
    let wanted = ClaimRef {
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
    };
    if given == Some(&wanted) {
        return None;
    }
    let by_controller = given.is_none();
    let mut body = json!({"spec": {"claimRef": {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": wanted.namespace,
        "name": wanted.name,
        "uid": wanted.uid,
    }}});
    if by_controller {
        body["metadata"] = json!({"annotations": {BOUND_BY_CONTROLLER_ANNOTATION: "yes"}});
    }
    let write = Write::patch(&VOLUME_UPDATE, "", &volume.metadata.name, body);
    Some(write.of_version(&volume.metadata).seen_as(move |object| {
        let Object::PersistentVolume(volume) = object else {
            return object.clone();
        };
        if volume.spec.claim_ref.as_ref() == Some(&wanted) {
            return object.clone();
        }
        let mut volume = PersistentVolume::clone(volume);
        volume.spec.claim_ref = Some(wanted.clone());
        if by_controller {
            let annotations = &mut volume.metadata.annotations;
            *annotations = annotations.with(BOUND_BY_CONTROLLER_ANNOTATION, "yes");
        }
        Object::PersistentVolume(Arc::new(volume))
    }))
}

/// Requests a volume for a claim that `node` can access. `None` if the claim has this node already.
pub(super) fn select_node(claim: &PersistentVolumeClaim, node: &Str) -> Option<Write> {
    let meta = &claim.metadata;
    if meta.annotations.get(SELECTED_NODE_ANNOTATION) == Some(node.as_str()) {
        return None;
    }
    let body = json!({"metadata": {"annotations": {SELECTED_NODE_ANNOTATION: node}}});
    let write = Write::patch(&CLAIM_UPDATE, &meta.namespace, &meta.name, body);
    let node = node.clone();
    Some(write.of_version(meta).seen_as(move |object| {
        let Object::PersistentVolumeClaim(claim) = object else {
            return object.clone();
        };
        let mut claim = PersistentVolumeClaim::clone(claim);
        let annotations = &mut claim.metadata.annotations;
        *annotations = annotations.with(SELECTED_NODE_ANNOTATION, &node);
        Object::PersistentVolumeClaim(Arc::new(claim))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::write::Action;

    fn claim(json: &str) -> PersistentVolumeClaim {
        serde_json::from_str(json).expect("a claim")
    }

    fn volume(claim_ref: &str) -> PersistentVolume {
        let json = format!(
            r#"{{"metadata":{{"name":"v","uid":"uid-v","resourceVersion":"7"}},"spec":{{"claimRef":{claim_ref}}}}}"#
        );
        serde_json::from_str(&json).expect("a volume")
    }

    const CLAIM: &str =
        r#"{"metadata":{"name":"c","namespace":"ns","uid":"uid-c","resourceVersion":"5"}}"#;

    /// PL-146: only volumes that were not pre-bound to the claim get the annotation. Berth never writes whole objects,
    /// so the fields that it does not know stay unchanged.
    #[test]
    fn a_volume_is_given_to_a_claim() {
        let claim = claim(CLAIM);
        let claim_ref = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "c", "uid": "uid-c",
        });
        let annotated = json!({"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}});
        for (situation, given, body) in [
            (
                "free",
                "null",
                Some(json!({"spec": {"claimRef": claim_ref}, "metadata": annotated})),
            ),
            (
                "meant for the claim",
                r#"{"namespace":"ns","name":"c"}"#,
                Some(json!({"spec": {"claimRef": claim_ref}})),
            ),
            (
                "given already",
                r#"{"namespace":"ns","name":"c","uid":"uid-c"}"#,
                None,
            ),
        ] {
            let volume = volume(given);
            let write = give(&volume, &claim);
            let action = write.as_ref().map(|write| write.action().clone());
            assert_eq!(action, body.map(Action::Patch), "{situation}");
            let Some(write) = write else { continue };
            assert_eq!(
                write.resource_version().map(Str::as_str),
                Some("7"),
                "{situation}"
            );
            let before = Object::PersistentVolume(Arc::new(volume));
            let after = write.applied_to(&before);
            assert!(!write.is_shown_by(&before), "{situation}");
            assert!(write.is_shown_by(&after), "{situation}");
            let annotations = &after.metadata().annotations;
            let noted = annotations.get(BOUND_BY_CONTROLLER_ANNOTATION).is_some();
            assert_eq!(noted, situation == "free", "{situation}");
        }
    }

    #[test]
    fn a_node_is_selected_for_a_claim() {
        let before = claim(CLAIM);
        let write = select_node(&before, &"n1".into()).expect("a write");
        let body =
            json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}});
        assert_eq!(write.action(), &Action::Patch(body));
        let after = write.applied_to(&Object::PersistentVolumeClaim(Arc::new(before)));
        assert!(write.is_shown_by(&after));
        let after = after.as_persistent_volume_claim().expect("a claim");
        assert_eq!(select_node(after, &"n1".into()), None);
        assert!(select_node(after, &"n2".into()).is_some());
    }
}
