//! Writes for tests that need one of any kind.

use crate::write::{CallType, Write};
use berth_api::{Kind, Object, PersistentVolume, PersistentVolumeClaim};
use serde_json::json;
use std::sync::Arc;

/// Writes of volumes, as VolumeBinding registers them.
pub static VOLUME_UPDATE: CallType =
    CallType::new("persistent_volume_update", Kind::PersistentVolume);
/// Writes of claims, as VolumeBinding registers them.
pub static CLAIM_UPDATE: CallType = CallType::new(
    "persistent_volume_claim_update",
    Kind::PersistentVolumeClaim,
);

/// Annotates a volume or claim, in the version that it has.
pub fn annotate(object: &Object, key: &'static str, value: &str) -> Write {
    let call_type = match object.kind() {
        Kind::PersistentVolume => &VOLUME_UPDATE,
        _ => &CLAIM_UPDATE,
    };
    let metadata = object.metadata();
    let body = json!({"metadata": {"annotations": {key: value}}});
    let value = value.to_owned();
    Write::patch(call_type, &metadata.namespace, &metadata.name, body)
        .of_version(metadata)
        .seen_as(move |object| match object {
            Object::PersistentVolume(volume) => {
                let mut volume = PersistentVolume::clone(volume);
                volume.metadata.annotations = volume.metadata.annotations.with(key, &value);
                Object::PersistentVolume(Arc::new(volume))
            }
            Object::PersistentVolumeClaim(claim) => {
                let mut claim = PersistentVolumeClaim::clone(claim);
                claim.metadata.annotations = claim.metadata.annotations.with(key, &value);
                Object::PersistentVolumeClaim(Arc::new(claim))
            }
            other => other.clone(),
        })
}
