//! Common parts of the volume plugins: looking up claims, and kube-scheduler's texts for missing objects.

use berth_api::volumes::{claims, shared_claims};
use berth_api::{Object, PersistentVolumeClaim, Pod, Str};
use berth_framework::Cluster;
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, WaitKey, Wanted,
};
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

/// The claims that a pod names itself; those that are created for it are left out.
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

/// kube-scheduler's text for a missing claim.
pub(crate) fn claim_not_found(name: &str) -> String {
    format!("persistentvolumeclaim {name:?} not found")
}

/// kube-scheduler's text for a missing volume.
pub(crate) fn volume_not_found(name: &str) -> String {
    format!("persistentvolume {name:?} not found")
}

/// kube-scheduler's text for a missing class.
pub(crate) fn class_not_found(name: &str) -> String {
    format!("storageclass.storage.k8s.io {name:?} not found")
}

/// A claim of the pod's namespace.
///
/// # Errors
/// If it does not exist, with kube-scheduler's text.
pub(crate) fn look_up<'a>(
    cluster: &'a Cluster,
    pod: &Pod,
    name: &str,
) -> Result<&'a Arc<PersistentVolumeClaim>, String> {
    cluster
        .storage()
        .claims()
        .get(pod.namespace(), name)
        .ok_or_else(|| claim_not_found(name))
}

/// Checks that an ephemeral claim was created for the pod, and does not only have the name.
///
/// # Errors
/// If it was not.
pub(crate) fn check_owner(pod: &Pod, claim: &PersistentVolumeClaim) -> Result<(), String> {
    let meta = &claim.metadata;
    let is_owned = meta
        .controller()
        .is_some_and(|owner| owner.uid == *pod.uid());
    if is_owned && meta.namespace == *pod.namespace() {
        return Ok(());
    }
    Err(format!(
        "PVC {}/{} was not created for pod {}/{} (pod is not owner)",
        meta.namespace,
        meta.name,
        pod.namespace(),
        pod.name()
    ))
}
