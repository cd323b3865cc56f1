//! Common parts of the volume plugins: looking up claims, and kube-scheduler's texts for missing objects.

use berth_api::selector::SelectorError;
use berth_api::volumes::{claims, shared_claims};
use berth_api::{Object, PersistentVolumeClaim, Pod, Str};
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, WaitKey, Wanted,
};
use berth_framework::{Cluster, Reason, ReasonCode};
use std::sync::Arc;

/// A claim that pods wait for, as namespace and name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClaimName(Str, Str);

impl Wanted for ClaimName {
    fn key(&self) -> WaitKey {
        WaitKey::of((&self.0, &self.1))
    }

    fn is_met_by(&self, provided: &Self) -> bool {
        self == provided
    }
}

/// The claims that a pod names itself, without the claims that are created for it.
pub(crate) fn shared_claim_names(pod: &Pod) -> Vec<ClaimName> {
    let claims = shared_claims(pod);
    let names = claims.map(|name| ClaimName(pod.namespace().clone(), name.clone()));
    names.collect()
}

/// All claims of a pod.
pub(crate) fn claim_names(pod: &Pod) -> Vec<ClaimName> {
    let names = claims(pod).map(|claim| ClaimName(pod.namespace().clone(), claim.name));
    names.collect()
}

/// Pods are queued when a claim that they use is created, or changed if `action` contains that.
pub(crate) fn when_own_claim(
    action: ActionType,
    used: fn(&Pod) -> Vec<ClaimName>,
) -> EventRegistration {
    let changed = |change: &Change<'_>| {
        let (_, claim) = change.versions(Object::as_persistent_volume_claim, "a claim")?;
        let name = |claim: &PersistentVolumeClaim| {
            let meta = &claim.metadata;
            ClaimName(meta.namespace.clone(), meta.name.clone())
        };
        Ok(claim.map(name).into_iter().collect())
    };
    EventRegistration::matching(EventResource::PersistentVolumeClaim, action, used, changed)
}

/// A claim of a pod, or an object that it refers to, cannot be used. The texts are kube-scheduler's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("persistentvolumeclaim {0:?} not found")]
    ClaimNotFound(Str),
    /// The claim of an ephemeral volume.
    #[error("waiting for ephemeral volume controller to create the persistentvolumeclaim {0:?}")]
    ClaimAwaited(Str),
    #[error("persistentvolumeclaim {claim:?} bound to non-existent persistentvolume {volume:?}")]
    ClaimLost { claim: Str, volume: Str },
    #[error("persistentvolumeclaim {0:?} is being deleted")]
    ClaimDeleted(Str),
    #[error("PVC {claim} was not created for pod {pod} (pod is not owner)")]
    NotOwner { claim: String, pod: String },
    #[error("PersistentVolumeClaim had no name")]
    UnnamedClaim,
    #[error("PersistentVolumeClaim had no pv name and storageClass name")]
    UnnamedVolumeAndClass,
    #[error("PersistentVolume had no name")]
    UnnamedVolume,
    #[error("persistentvolume {0:?} not found")]
    VolumeNotFound(Str),
    #[error("could not translate pv: {0}")]
    Untranslatable(String),
    #[error("storageclass.storage.k8s.io {0:?} not found")]
    ClassNotFound(String),
    /// The class of a claim that needs a new volume.
    #[error("failed to find storage class {0:?}")]
    ClassMissing(String),
    #[error("no class for claim {0:?}")]
    NoClass(String),
    #[error("VolumeBindingMode not set for StorageClass {0:?}")]
    NoBindingMode(String),
    #[error(transparent)]
    Selector(#[from] SelectorError),
}

impl VolumeError {
    /// The code of a rejection for this.
    pub(crate) fn code(&self) -> ReasonCode {
        match self {
            Self::ClaimNotFound(_)
            | Self::ClaimAwaited(_)
            | Self::ClaimLost { .. }
            | Self::ClaimDeleted(_) => ReasonCode::ClaimMissing,
            _ => ReasonCode::Other,
        }
    }
}

impl From<VolumeError> for Reason {
    fn from(error: VolumeError) -> Self {
        error.code().reason(error.to_string())
    }
}

/// A claim of the pod's namespace.
///
/// # Errors
/// If it does not exist, with kube-scheduler's text.
pub(crate) fn look_up<'a>(
    cluster: &'a Cluster,
    pod: &Pod,
    name: &Str,
) -> Result<&'a Arc<PersistentVolumeClaim>, VolumeError> {
    cluster
        .storage()
        .claims()
        .get(pod.namespace(), name)
        .ok_or_else(|| VolumeError::ClaimNotFound(name.clone()))
}

/// Checks that an ephemeral claim was created for the pod, and does not only have the name.
///
/// # Errors
/// If it was not.
pub(crate) fn check_owner(pod: &Pod, claim: &PersistentVolumeClaim) -> Result<(), VolumeError> {
    let meta = &claim.metadata;
    let is_owned = meta
        .controller()
        .is_some_and(|owner| owner.uid == *pod.uid());
    if is_owned && meta.namespace == *pod.namespace() {
        return Ok(());
    }
    Err(VolumeError::NotOwner {
        claim: format!("{}/{}", meta.namespace, meta.name),
        pod: pod.key(),
    })
}
