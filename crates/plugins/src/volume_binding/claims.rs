//! The claims of a pod, by whether they are bound.

use crate::volumes::{check_owner, claim_not_found};
use berth_api::volumes::claims;
use berth_api::{PersistentVolumeClaim, Pod};
use berth_framework::Cluster;
use std::sync::Arc;

/// The claims of a pod.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Those with a volume.
    pub(super) bound: Vec<Arc<PersistentVolumeClaim>>,
    /// Those that are bound once the pod has a node, the smallest first.
    pub(super) delayed: Vec<Arc<PersistentVolumeClaim>>,
    /// Whether some are unbound whose class binds at once.
    pub(super) has_immediate: bool,
}

/// Checks that every claim exists and can be used; returns whether there is one.
///
/// # Errors
/// The problem of the first that cannot, with kube-scheduler's text.
pub(super) fn check_all(cluster: &Cluster, pod: &Pod) -> Result<bool, String> {
    let mut has_claim = false;
    for used in claims(pod) {
        has_claim = true;
        let name = &used.name;
        let claim = cluster.persistent_volume_claims.get(pod.namespace(), name);
        let claim = claim.ok_or_else(|| {
            if used.is_ephemeral {
                format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {:?}",
                    name.as_str()
                )
            } else {
                claim_not_found(name)
            }
        })?;
        let name = claim.metadata.name.as_str();
        if claim.status.phase == "Lost" {
            let volume = claim.spec.volume_name.as_str();
            return Err(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            ));
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if used.is_ephemeral {
            check_owner(pod, claim)?;
        }
    }
    Ok(has_claim)
}

/// Whether the volume of the claim is chosen only when a pod needs it.
fn is_delayed(cluster: &Cluster, claim: &PersistentVolumeClaim) -> Result<bool, String> {
    let name = claim.class();
    if name.is_empty() {
        return Ok(false);
    }
    let Some(class) = cluster.storage_classes.get(name) else {
        return Ok(false);
    };
    match &class.volume_binding_mode {
        None => Err(format!(
            "VolumeBindingMode not set for StorageClass {name:?}"
        )),
        Some(mode) => Ok(mode == "WaitForFirstConsumer"),
    }
}

impl Claims {
    /// Sorts the claims of a pod. A claim that names a volume and is not bound to it yet is left to the volume
    /// controller.
    ///
    /// # Errors
    /// When a class cannot be used.
    pub(super) fn of(cluster: &Cluster, pod: &Pod) -> Result<Self, String> {
        let mut sorted = Self::default();
        for used in claims(pod) {
            let Some(claim) = cluster
                .persistent_volume_claims
                .get(pod.namespace(), &used.name)
            else {
                return Err(claim_not_found(&used.name));
            };
            if claim.is_fully_bound() {
                sorted.bound.push(claim.clone());
            } else if is_delayed(cluster, claim)? && claim.spec.volume_name.is_empty() {
                sorted.delayed.push(claim.clone());
            } else {
                sorted.has_immediate = true;
            }
        }
        sorted
            .delayed
            .sort_by_key(|claim| claim.request().unwrap_or_default());
        Ok(sorted)
    }
}
