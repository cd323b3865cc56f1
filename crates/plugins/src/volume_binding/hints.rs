//! Which changes may help a pod that was turned down.

use crate::volumes::MIGRATED_PLUGINS_ANNOTATION;
use berth_api::volumes::uses_claim;
use berth_api::{Object, Pod};
use berth_framework::event::{Change, Hint, Touched, WaitKey, Waits};
use std::sync::Arc;

/// An object before and after, as its own type.
type Versions<'a, T> = (Option<&'a Arc<T>>, &'a Arc<T>);

fn versions<'a, T>(
    change: &Change<'a>,
    of: impl Fn(&'a Object) -> Option<&'a Arc<T>>,
    expected: &str,
) -> Result<Versions<'a, T>, String> {
    let new = change
        .new
        .and_then(&of)
        .ok_or_else(|| format!("expected {expected}"))?;
    match change.old {
        None => Ok((None, new)),
        Some(old) => {
            let old = of(old).ok_or_else(|| format!("expected {expected}"))?;
            Ok((Some(old), new))
        }
    }
}

fn queue_if(helps: bool) -> Hint {
    if helps { Hint::Queue } else { Hint::Skip }
}

/// A class that comes, or that can make volumes elsewhere.
pub(super) fn after_class_change(change: &Change<'_>) -> Result<Hint, String> {
    let (old, new) = versions(change, Object::as_storage_class, "a storage class")?;
    Ok(queue_if(old.is_none_or(|old| {
        old.allowed_topologies != new.allowed_topologies
    })))
}

/// A claim of the pod.
pub(super) fn after_claim_change(pod: &Pod, change: &Change<'_>) -> Result<Hint, String> {
    let (_, new) = versions(change, Object::as_persistent_volume_claim, "a claim")?;
    Ok(queue_if(uses_claim(pod, new)))
}

/// Drivers that come to a node, or take over from in-tree plugins.
pub(super) fn after_csi_node_change(change: &Change<'_>) -> Result<Hint, String> {
    let (old, new) = versions(change, Object::as_csi_node, "a CSI node")?;
    let migrated = |node: &berth_api::CsiNode| {
        let annotations = &node.metadata.annotations;
        annotations.get_str(MIGRATED_PLUGINS_ANNOTATION).cloned()
    };
    Ok(queue_if(
        old.is_none_or(|old| migrated(old) != migrated(new)),
    ))
}

/// A driver of one of the pod's inline volumes that does not count its space any more.
pub(super) fn after_driver_change(pod: &Pod, change: &Change<'_>) -> Result<Hint, String> {
    let (old, new) = versions(change, Object::as_csi_driver, "a CSI driver")?;
    let counts = |driver: &berth_api::CsiDriver| driver.spec.storage_capacity == Some(true);
    let is_used = || {
        let mut inline = pod
            .spec
            .volumes
            .iter()
            .filter_map(|volume| volume.csi.as_ref());
        inline.any(|volume| volume.driver == new.metadata.name)
    };
    Ok(queue_if(
        old.is_some_and(|old| counts(old)) && !counts(new) && is_used(),
    ))
}

/// What a pod that was turned down waits for of drivers: those of its inline volumes.
pub(super) fn waits_for_drivers(pod: &Pod) -> Waits {
    let inline = pod.spec.volumes.iter().filter_map(|v| v.csi.as_ref());
    inline
        .map(|volume| WaitKey::of(volume.driver.as_str()))
        .collect()
}

/// What a change of a driver touches.
pub(super) fn touched_by_driver(change: &Change<'_>) -> Touched {
    match change.new.and_then(|new| new.as_csi_driver()) {
        Some(new) => Touched::from_iter([WaitKey::of(new.metadata.name.as_str())]),
        None => Touched::everything(),
    }
}

/// More space.
pub(super) fn after_capacity_change(change: &Change<'_>) -> Result<Hint, String> {
    let (old, new) = versions(
        change,
        Object::as_csi_storage_capacity,
        "a storage capacity",
    )?;
    Ok(queue_if(match old.map(|old| old.limit()) {
        None => true,
        Some(before) => new
            .limit()
            .is_some_and(|limit| before.is_none_or(|before| limit > before)),
    }))
}
