//! The changes that may help a pod that was rejected.

use berth_api::volumes::MIGRATED_PLUGINS_ANNOTATION;
use berth_api::{CsiDriver, CsiNode, Object, Pod, Str};
use berth_framework::event::{Change, HintError, WaitKey, Wanted};

/// A class was added, or its volumes can be created in other places.
pub(super) fn changes_class(change: &Change<'_>) -> Result<bool, HintError> {
    let (old, new) = change.versions(Object::as_storage_class, "a storage class")?;
    let both = old.zip(new);
    Ok(both.is_none_or(|(old, new)| old.allowed_topologies != new.allowed_topologies))
}

/// Drivers were added to a node, or other in-tree plugins are migrated there.
pub(super) fn changes_migration(change: &Change<'_>) -> Result<bool, HintError> {
    let (old, new) = change.versions(Object::as_csi_node, "a CSI node")?;
    let migrated = |node: &CsiNode| {
        let annotations = &node.metadata.annotations;
        annotations.get_str(MIGRATED_PLUGINS_ANNOTATION).cloned()
    };
    let both = old.zip(new);
    Ok(both.is_none_or(|(old, new)| migrated(old) != migrated(new)))
}

/// A CSI driver by its name.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct DriverName(Str);

impl Wanted for DriverName {
    fn key(&self) -> WaitKey {
        WaitKey::of(self)
    }

    fn is_met_by(&self, provided: &Self) -> bool {
        self == provided
    }
}

/// The drivers of the pod's inline volumes.
pub(super) fn inline_drivers(pod: &Pod) -> Vec<DriverName> {
    let inline = pod.spec.volumes.iter().filter_map(|v| v.csi.as_ref());
    inline
        .map(|volume| DriverName(volume.driver.clone()))
        .collect()
}

/// A driver whose capacity no longer counts.
pub(super) fn stops_counting(change: &Change<'_>) -> Result<Vec<DriverName>, HintError> {
    let (old, new) = change.versions(Object::as_csi_driver, "a CSI driver")?;
    let counts = |driver: &CsiDriver| driver.spec.storage_capacity == Some(true);
    let stopped = new.filter(|new| old.is_some_and(counts) && !counts(new));
    Ok(stopped
        .map(|driver| DriverName(driver.metadata.name.clone()))
        .into_iter()
        .collect())
}

/// The capacity of a driver was checked, and is not checked any more.
pub(super) fn no_longer_counts(change: &Change<'_>) -> Result<bool, HintError> {
    let (old, new) = change.versions(Object::as_csi_driver, "a CSI driver")?;
    let counts = |driver: &CsiDriver| driver.spec.storage_capacity == Some(true);
    Ok(old.is_some_and(counts) && !new.is_some_and(counts))
}

/// Capacity was added.
pub(super) fn adds_capacity(change: &Change<'_>) -> Result<bool, HintError> {
    let (old, new) = change.versions(Object::as_csi_storage_capacity, "a storage capacity")?;
    let (Some(old), Some(new)) = (old, new) else {
        return Ok(true);
    };
    let grows = |limit| old.limit().is_none_or(|before| limit > before);
    Ok(new.limit().is_some_and(grows))
}
