//! Protects volumes and claims in use: their finalizers are removed after a deletion when no pod or claim uses them any
//! more. The admission plugin StorageObjectInUseProtection sets the finalizers.

use super::super::runtime::{
    CacheDifference, Controller, ControllerContext, Index, Watch, watching,
};
use super::text;
use berth_objects::access::{AccessError, GroupResource, StoredObject};
use berth_objects::object::{
    CLAIM, ControllerKey, POD, VOLUME, has_finalizer, is_deleting, items, name, namespace,
    remove_finalizer, set,
};
use berth_objects::pod;
use berth_objects::well_known::{CLAIM_PROTECTION, VOLUME_PROTECTION};
use serde_json::Value;

/// Protects claims that scheduled pods use. Its keys are claims.
#[derive(Debug)]
pub(crate) struct ClaimProtection;

/// Protects volumes that are bound. Its keys are volumes.
#[derive(Debug)]
pub(crate) struct VolumeProtection;

/// The claims that a pod uses.
fn claims_of(pod: &Value) -> impl Iterator<Item = String> {
    items(&pod["spec"]["volumes"]).iter().filter_map(|volume| {
        let claim = text(volume, "/persistentVolumeClaim/claimName");
        match claim.is_empty() {
            false => Some(claim.to_owned()),
            true if volume["ephemeral"].is_object() => {
                Some(format!("{}-{}", name(pod), text(volume, "/name")))
            }
            true => None,
        }
    })
}

/// Gives an object its finalizer, or takes it away from one that is being deleted and not in use.
fn protect(
    cx: &mut ControllerContext<ControllerKey>,
    kind: GroupResource,
    object: &StoredObject,
    finalizer: &str,
    is_in_use: impl Fn(&ControllerContext<ControllerKey>) -> bool,
) -> Result<(), AccessError> {
    let mut changed = Value::clone(object);
    match (is_deleting(object), has_finalizer(object, finalizer)) {
        (true, true) if !is_in_use(cx) => remove_finalizer(&mut changed, finalizer),
        (false, false) => {
            let mut all = items(&object["metadata"]["finalizers"]).to_vec();
            all.push(finalizer.into());
            set(&mut changed, &["metadata", "finalizers"], all.into());
        }
        _ => return Ok(()),
    }
    cx.update(kind, changed).map(|_| ())
}

impl Controller for ClaimProtection {
    type Key = ControllerKey;
    const NAME: &'static str = "pvc-protection-controller";
    const WATCHES: &'static [Watch] = &[watching(CLAIM, &[]), watching(POD, &[Index::Namespace])];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if kind == CLAIM.resource {
            if let Some(claim) = &diff.new {
                cx.enqueue(ControllerKey::of(claim));
            }
        } else if let (Some(pod), None) = (&diff.old, &diff.new) {
            for claim in claims_of(pod) {
                cx.enqueue(ControllerKey::new(namespace(pod), &claim));
            }
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let Some(claim) = cx.cache(CLAIM).get(key).cloned() else {
            return Ok(());
        };
        protect(cx, CLAIM.resource, &claim, CLAIM_PROTECTION, |cx| {
            let mut pods = cx.cache(POD).by(Index::Namespace, &key.namespace);
            pods.any(|pod| {
                // A kubelet does not start a pod whose claim is being deleted.
                pod::node_name(pod).is_some() && claims_of(pod).any(|claim| *key.name == *claim)
            })
        })
    }
}

impl Controller for VolumeProtection {
    type Key = ControllerKey;
    const NAME: &'static str = "pv-protection-controller";
    const WATCHES: &'static [Watch] = &[watching(VOLUME, &[])];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        _: GroupResource,
        diff: &CacheDifference,
    ) {
        if let Some(volume) = &diff.new {
            cx.enqueue(ControllerKey::of(volume));
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let Some(volume) = cx.cache(VOLUME).get(key).cloned() else {
            return Ok(());
        };
        protect(cx, VOLUME.resource, &volume, VOLUME_PROTECTION, |_| {
            text(&volume, "/status/phase") == "Bound"
        })
    }
}
