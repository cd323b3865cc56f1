//! What the volume plugins ask of a pod's volumes: their claims, and the CSI volume behind an in-tree one.

use berth_api::pod::{
    AwsElasticBlockStore, AzureDisk, Cinder, GcePersistentDisk, PortworxVolume, Volume,
};
use berth_api::{PersistentVolume, PersistentVolumeClaim, Pod, Str};
use berth_framework::Cluster;
use std::sync::Arc;

/// The annotation of a CSINode that lists the in-tree plugins whose volumes are migrated to CSI drivers.
pub(crate) const MIGRATED_PLUGINS_ANNOTATION: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// A claim of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodClaim {
    /// The claim's name, in the pod's namespace.
    pub(crate) name: Str,
    /// Whether the claim lives and dies with the pod.
    pub(crate) is_ephemeral: bool,
}

/// The claim of one volume, if it has one.
pub(crate) fn claim_of(pod: &Pod, volume: &Volume) -> Option<PodClaim> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(PodClaim {
            name: source.claim_name.clone(),
            is_ephemeral: false,
        });
    }
    volume.ephemeral.as_ref().map(|_| PodClaim {
        name: Str::from(format!("{}-{}", pod.name(), volume.name)),
        is_ephemeral: true,
    })
}

/// The claims of a pod, in the order of its volumes.
pub(crate) fn claims(pod: &Pod) -> impl Iterator<Item = PodClaim> {
    pod.spec
        .volumes
        .iter()
        .filter_map(|volume| claim_of(pod, volume))
}

/// The names of the claims that a pod shares with others, in the order of its volumes.
pub(crate) fn shared_claims(pod: &Pod) -> impl Iterator<Item = &Str> {
    let volumes = pod.spec.volumes.iter();
    volumes.filter_map(|volume| Some(&volume.persistent_volume_claim.as_ref()?.claim_name))
}

/// Whether the pod uses the claim, by name or as its ephemeral one.
pub(crate) fn uses_claim(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.namespace == *pod.namespace()
        && claims(pod).any(|used| used.name == claim.metadata.name)
}

/// What upstream says of a claim that is not there.
pub(crate) fn claim_not_found(name: &str) -> String {
    format!("persistentvolumeclaim {name:?} not found")
}

/// What upstream says of a volume that is not there.
pub(crate) fn volume_not_found(name: &str) -> String {
    format!("persistentvolume {name:?} not found")
}

/// What upstream says of a class that is not there.
pub(crate) fn class_not_found(name: &str) -> String {
    format!("storageclass.storage.k8s.io {name:?} not found")
}

/// A claim of the pod's namespace.
///
/// # Errors
/// When it is not there, in upstream's words.
pub(crate) fn look_up<'a>(
    cluster: &'a Cluster,
    pod: &Pod,
    name: &str,
) -> Result<&'a Arc<PersistentVolumeClaim>, String> {
    cluster
        .persistent_volume_claims
        .get(pod.namespace(), name)
        .ok_or_else(|| claim_not_found(name))
}

/// Checks that an ephemeral claim was made for the pod, and is not one that merely has the name.
///
/// # Errors
/// When it was not.
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

// === in-tree volumes that are migrated to CSI drivers ===

/// The in-tree plugins whose volumes are migrated to a CSI driver, with the driver.
const MIGRATED: [(&str, &str); 5] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
];

/// The CSI driver to which the volumes of an in-tree plugin are migrated.
pub(crate) fn driver_of_plugin(plugin: &str) -> Option<&'static str> {
    let found = MIGRATED.iter().find(|(name, _)| *name == plugin);
    found.map(|(_, driver)| *driver)
}

/// A migrated in-tree volume: its CSI driver, and the handle by which the driver knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InTree {
    pub(crate) driver: &'static str,
    pub(crate) handle: String,
}

/// The in-tree sources that a pod's volume and a persistent volume have in common.
struct Sources<'a> {
    ebs: Option<&'a AwsElasticBlockStore>,
    gce: Option<&'a GcePersistentDisk>,
    azure: Option<&'a AzureDisk>,
    cinder: Option<&'a Cinder>,
    portworx: Option<&'a PortworxVolume>,
}

impl Sources<'_> {
    fn in_tree(&self) -> Option<InTree> {
        let (plugin, handle) = if let Some(ebs) = self.ebs {
            // `aws://zone/vol-1` and `vol-1` are the same volume.
            let id = ebs.volume_id.rsplit('/').next().unwrap_or_default();
            ("kubernetes.io/aws-ebs", id.to_owned())
        } else if let Some(gce) = self.gce {
            let handle = format!(
                "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{}",
                gce.pd_name
            );
            ("kubernetes.io/gce-pd", handle)
        } else if let Some(azure) = self.azure {
            ("kubernetes.io/azure-disk", azure.disk_uri.to_string())
        } else if let Some(cinder) = self.cinder {
            ("kubernetes.io/cinder", cinder.volume_id.to_string())
        } else if let Some(portworx) = self.portworx {
            (
                "kubernetes.io/portworx-volume",
                portworx.volume_id.to_string(),
            )
        } else {
            return None;
        };
        let driver = driver_of_plugin(plugin)?;
        Some(InTree { driver, handle })
    }
}

/// The migrated in-tree volume that a pod declares inline.
pub(crate) fn inline_in_tree(volume: &Volume) -> Option<InTree> {
    Sources {
        ebs: volume.aws_elastic_block_store.as_ref(),
        gce: volume.gce_persistent_disk.as_ref(),
        azure: volume.azure_disk.as_ref(),
        cinder: volume.cinder.as_ref(),
        portworx: volume.portworx_volume.as_ref(),
    }
    .in_tree()
}

/// The migrated in-tree volume of a persistent volume.
pub(crate) fn volume_in_tree(volume: &PersistentVolume) -> Option<InTree> {
    let spec = &volume.spec;
    Sources {
        ebs: spec.aws_elastic_block_store.as_ref(),
        gce: spec.gce_persistent_disk.as_ref(),
        azure: spec.azure_disk.as_ref(),
        cinder: spec.cinder.as_ref(),
        portworx: spec.portworx_volume.as_ref(),
    }
    .in_tree()
}
