//! The claims of a pod, by whether they are bound.

use super::find::{given_volume, reports_capacity};
use crate::volumes::{VolumeError, check_owner};
use berth_api::node_selector::CompiledNodeSelector;
use berth_api::storage::SELECTED_NODE_ANNOTATION;
use berth_api::volumes::{Migration, claims};
use berth_api::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Str};
use berth_framework::Cluster;
use berth_framework::cluster::Storage;
use berth_framework::keep::{Fragment, Kept};
use std::cell::OnceCell;
use std::sync::Arc;

/// The claims of a pod.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// The volumes of bound claims, in the order of the claims; `None` for a missing volume.
    pub(super) bound: Vec<Option<BoundVolume>>,
    /// The claims that are bound once the pod has a node, the smallest first.
    pub(super) delayed: Vec<Delayed>,
    /// Whether a claim is unbound although its class binds immediately.
    pub(super) has_immediate: bool,
}

/// The volume of a claim.
#[derive(Debug)]
pub(super) struct BoundVolume {
    volume: Arc<PersistentVolume>,
    /// Compiled when the first node is checked.
    affinity: OnceCell<CompiledNodeSelector>,
    /// The volume on nodes where its plugin is migrated to a CSI driver.
    migration: Option<Migration>,
    migrated_affinity: OnceCell<CompiledNodeSelector>,
}

/// A claim without a volume.
#[derive(Debug)]
pub(super) struct Delayed {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    /// The volume that was reserved for it, if there is a suitable one.
    pub(super) given: Option<Arc<PersistentVolume>>,
}

impl BoundVolume {
    pub(super) fn of(volume: &Arc<PersistentVolume>) -> Self {
        Self {
            volume: volume.clone(),
            affinity: OnceCell::new(),
            migration: volume.migration(),
            migrated_affinity: OnceCell::new(),
        }
    }

    pub(super) fn name(&self) -> &Str {
        &self.volume.metadata.name
    }

    /// Returns whether a node can access the volume. The affinity of volumes has no node names; a term that does not
    /// parse matches no node.
    ///
    /// # Errors
    /// The reason why the volume cannot be translated to the CSI driver of the node, with kube-scheduler's text.
    pub(super) fn is_reachable(&self, storage: &Storage, node: &Node) -> Result<bool, VolumeError> {
        let migration = self.migration.as_ref();
        let migration = migration.filter(|migration| {
            let csi_node = storage.csi_nodes().get(node.name());
            csi_node.is_some_and(|csi_node| csi_node.has_migrated(migration.plugin))
        });
        let (required, compiled) = match migration {
            None => (self.volume.required_affinity(), &self.affinity),
            Some(migration) => {
                let required = migration.affinity.as_ref();
                let required =
                    required.map_err(|why| VolumeError::Untranslatable(why.to_string()))?;
                (required.as_ref(), &self.migrated_affinity)
            }
        };
        Ok(required.is_none_or(|required| {
            let affinity = compiled.get_or_init(|| CompiledNodeSelector::new(required));
            affinity.matches(node.labels(), "").unwrap_or(false)
        }))
    }
}

/// Checks that every claim exists and can be used; returns whether there is one.
///
/// # Errors
/// The problem of the first that cannot, with kube-scheduler's text.
pub(super) fn check_all(cluster: &Cluster, pod: &Pod) -> Result<bool, VolumeError> {
    let mut has_claim = false;
    for used in claims(pod) {
        has_claim = true;
        let name = &used.name;
        let claim = cluster.storage().claims().get(pod.namespace(), name);
        let claim = claim.ok_or_else(|| {
            if used.is_ephemeral {
                VolumeError::ClaimAwaited(name.clone())
            } else {
                VolumeError::ClaimNotFound(name.clone())
            }
        })?;
        if claim.status.phase == "Lost" {
            return Err(VolumeError::ClaimLost {
                claim: claim.metadata.name.clone(),
                volume: claim.spec.volume_name.clone(),
            });
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(VolumeError::ClaimDeleted(claim.metadata.name.clone()));
        }
        if used.is_ephemeral {
            check_owner(pod, claim)?;
        }
    }
    Ok(has_claim)
}

/// Returns whether the volume of the claim is chosen only when a pod needs it.
fn is_delayed(cluster: &Cluster, claim: &PersistentVolumeClaim) -> Result<bool, VolumeError> {
    let name = claim.class();
    if name.is_empty() {
        return Ok(false);
    }
    let Some(class) = cluster.storage().classes().get(name) else {
        return Ok(false);
    };
    match &class.volume_binding_mode {
        None => Err(VolumeError::NoBindingMode(name.to_owned())),
        Some(mode) => Ok(mode == "WaitForFirstConsumer"),
    }
}

impl Claims {
    /// Sorts the claims of a pod. A claim that names a volume and is not bound to it yet is left to the volume
    /// controller.
    ///
    /// # Errors
    /// When a class cannot be used.
    pub(super) fn of(cluster: &Cluster, pod: &Pod) -> Result<Self, VolumeError> {
        let mut sorted = Self::default();
        for used in claims(pod) {
            let Some(claim) = cluster.storage().claims().get(pod.namespace(), &used.name) else {
                return Err(VolumeError::ClaimNotFound(used.name));
            };
            if claim.is_fully_bound() {
                let volume = cluster.storage().volumes().get(&claim.spec.volume_name);
                sorted.bound.push(volume.map(BoundVolume::of));
            } else if is_delayed(cluster, claim)? && claim.spec.volume_name.is_empty() {
                sorted.delayed.push(Delayed {
                    claim: claim.clone(),
                    given: given_volume(cluster, claim),
                });
            } else {
                sorted.has_immediate = true;
            }
        }
        let size = |delayed: &Delayed| delayed.claim.request().unwrap_or_default();
        sorted.delayed.sort_by_key(size);
        Ok(sorted)
    }

    /// Writes the values that the answers about a pod depend on, other than the node. Pods with claims of their own
    /// share the answers, unless a volume is reserved for a claim. Volumes and capacity for one node are not included,
    /// because the log of the node table has their changes.
    pub(super) fn fragment(&self, cluster: &Cluster, fragment: &mut Fragment) -> Kept {
        for volume in &self.bound {
            let Some(volume) = volume else {
                // A missing volume rejects the pod on every node, so the other volumes do not matter.
                fragment.put(&None::<()>);
                break;
            };
            let required = volume.volume.required_affinity();
            fragment.put(&Some((required, &volume.migration)));
        }
        for Delayed { claim, given } in &self.delayed {
            let name = claim.class();
            let Some(class) = cluster.storage().classes().get(name) else {
                return Kept::Never;
            };
            if given.is_some() {
                // The volume is reserved for this claim only, so no other pod has the same answers.
                return Kept::Never;
            }
            fragment.put(
                claim
                    .metadata
                    .annotations
                    .get_str(SELECTED_NODE_ANNOTATION)
                    .unwrap_or(&Str::default()),
            );
            let spec = &claim.spec;
            fragment.put(&(name, claim.request(), &spec.access_modes, &spec.selector));
            fragment.put(&(&spec.volume_mode, &spec.volume_attributes_class_name));
            fragment.put(&(&class.provisioner, &class.allowed_topologies));
            // The version changes with the free volumes of the class.
            fragment.put(&cluster.storage().volumes().free_version(name));
            let capacity = reports_capacity(cluster, class);
            fragment.put(&capacity.then(|| cluster.storage().capacities().version()));
        }
        Kept::ByFragment
    }
}
