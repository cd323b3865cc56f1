//! What scheduling writes into volumes and claims: which claim a volume is given to, and for which node a volume is to
//! be made.
//!
//! A write is decided upon one version of the object, and holds for that version only: when somebody else has written
//! meanwhile, the API refuses it and the decision is made anew. From the decision on, until the API shows a later
//! version, everybody in the core sees the object as if the write had been made (see
//! [`Outbox::assume`](crate::stage::Outbox::assume)).

use crate::call::{ObjectKey, ObjectName};
use berth_api::storage::{BOUND_BY_CONTROLLER_ANNOTATION, ClaimRef, SELECTED_NODE_ANNOTATION};
use berth_api::{Kind, Object, ObjectMeta, PersistentVolume, PersistentVolumeClaim, Str};
use std::sync::Arc;

/// A write to a volume or a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageWrite {
    /// The volume or claim.
    pub object: ObjectName,
    /// Its identity.
    pub uid: Str,
    /// The version that was decided upon; the write is refused when there is a later one.
    pub resource_version: Str,
    /// What is written.
    pub change: StorageChange,
}

/// What is written into a volume or a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageChange {
    /// The volume is given to a claim.
    GiveTo {
        /// The claim, with its identity.
        claim: ClaimRef,
        /// Whether nobody had meant the volume for the claim before: then an annotation says that it was not its
        /// owner who did, so that it can be taken back.
        by_controller: bool,
    },
    /// A volume is to be made for the claim where this node can reach it.
    SelectNode(Str),
}

impl StorageWrite {
    /// Gives a volume to a claim. `None` when it has been given to it already, with its identity.
    pub fn give(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Self> {
        let given = volume.spec.claim_ref.as_ref();
        let wanted = ClaimRef {
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
        };
        if given == Some(&wanted) {
            return None;
        }
        let change = StorageChange::GiveTo {
            by_controller: given.is_none(),
            claim: wanted,
        };
        Some(Self::to(Kind::PersistentVolume, &volume.metadata, change))
    }

    /// Has a volume made for a claim where `node` can reach it. `None` when that was said already.
    pub fn select_node(claim: &PersistentVolumeClaim, node: &Str) -> Option<Self> {
        let meta = &claim.metadata;
        if meta.annotations.get(SELECTED_NODE_ANNOTATION) == Some(node.as_str()) {
            return None;
        }
        let change = StorageChange::SelectNode(node.clone());
        Some(Self::to(Kind::PersistentVolumeClaim, meta, change))
    }

    fn to(kind: Kind, meta: &ObjectMeta, change: StorageChange) -> Self {
        Self {
            object: ObjectName::new(kind, &meta.namespace, &meta.name),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            change,
        }
    }

    /// What calls about the object go by.
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.object.kind,
            uid: self.uid.clone(),
        }
    }

    /// Whether this version of the object came before the write: it may be shown as if it had been made.
    pub fn comes_after(&self, meta: &ObjectMeta) -> bool {
        meta.uid == self.uid && !meta.is_newer_than(&self.resource_version)
    }

    /// Whether the object shows what is to be written.
    pub fn is_shown_by(&self, object: &Object) -> bool {
        if object.metadata().uid != self.uid {
            return false;
        }
        match (&self.change, object) {
            (StorageChange::GiveTo { claim, .. }, Object::PersistentVolume(volume)) => {
                volume.spec.claim_ref.as_ref() == Some(claim)
            }
            (StorageChange::SelectNode(node), Object::PersistentVolumeClaim(claim)) => {
                claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION) == Some(node.as_str())
            }
            _ => false,
        }
    }

    /// The object as it will look once the API shows the write.
    #[must_use]
    pub fn applied_to(&self, object: &Object) -> Object {
        match (&self.change, object) {
            (
                StorageChange::GiveTo {
                    claim,
                    by_controller,
                },
                Object::PersistentVolume(volume),
            ) => {
                let mut volume = PersistentVolume::clone(volume);
                volume.spec.claim_ref = Some(claim.clone());
                if *by_controller {
                    let annotations = &mut volume.metadata.annotations;
                    *annotations = annotations.with(BOUND_BY_CONTROLLER_ANNOTATION, "yes");
                }
                Object::PersistentVolume(Arc::new(volume))
            }
            (StorageChange::SelectNode(node), Object::PersistentVolumeClaim(claim)) => {
                let mut claim = PersistentVolumeClaim::clone(claim);
                let annotations = &mut claim.metadata.annotations;
                *annotations = annotations.with(SELECTED_NODE_ANNOTATION, node);
                Object::PersistentVolumeClaim(Arc::new(claim))
            }
            _ => object.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// plugins 7.4, Reserve: the annotation is for volumes that nobody had meant for the claim.
    #[test]
    fn a_volume_is_given_to_a_claim() {
        let claim = claim(CLAIM);
        for (situation, claim_ref, written) in [
            ("free", "null", Some(true)),
            (
                "meant for the claim",
                r#"{"namespace":"ns","name":"c"}"#,
                Some(false),
            ),
            (
                "given already",
                r#"{"namespace":"ns","name":"c","uid":"uid-c"}"#,
                None,
            ),
        ] {
            let volume = volume(claim_ref);
            let write = StorageWrite::give(&volume, &claim);
            let by = write.as_ref().map(|write| match &write.change {
                StorageChange::GiveTo { by_controller, .. } => *by_controller,
                StorageChange::SelectNode(_) => panic!("{situation}: a volume has no node"),
            });
            assert_eq!(by, written, "{situation}");
            let Some(write) = write else { continue };
            assert_eq!(write.resource_version, "7", "{situation}");
            let before = Object::PersistentVolume(Arc::new(volume));
            let after = write.applied_to(&before);
            assert!(!write.is_shown_by(&before), "{situation}");
            assert!(write.is_shown_by(&after), "{situation}");
            let annotations = &after.metadata().annotations;
            let noted = annotations.get(BOUND_BY_CONTROLLER_ANNOTATION);
            assert_eq!(noted, by.filter(|by| *by).map(|_| "yes"), "{situation}");
        }
    }

    #[test]
    fn a_node_is_selected_for_a_claim() {
        let before = claim(CLAIM);
        let write = StorageWrite::select_node(&before, &"n1".into()).expect("a write");
        let after = write.applied_to(&Object::PersistentVolumeClaim(Arc::new(before)));
        assert!(write.is_shown_by(&after));
        let after = after.as_persistent_volume_claim().expect("a claim");
        assert_eq!(StorageWrite::select_node(after, &"n1".into()), None);
        assert!(StorageWrite::select_node(after, &"n2".into()).is_some());
    }

    /// plugins 7.4: an update that is newer takes the place of the assumption, an older one does not.
    #[test]
    fn a_write_comes_after_the_version_it_was_decided_upon() {
        let write = StorageWrite::select_node(&claim(CLAIM), &"n1".into()).expect("a write");
        for (uid, version, holds) in [
            ("uid-c", "5", true),
            ("uid-c", "4", true),
            ("uid-c", "6", false),
            ("uid-d", "5", false),
        ] {
            let meta = ObjectMeta {
                uid: uid.into(),
                resource_version: version.into(),
                ..ObjectMeta::default()
            };
            assert_eq!(write.comes_after(&meta), holds, "{uid} {version}");
        }
    }
}
