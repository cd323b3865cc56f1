//! The volumes of pods: the claims that they use, and the CSI volumes behind in-tree ones.
//!
//! In-tree plugins are migrated: their volumes are handled by a CSI driver, which knows each under a handle of its own
//! (csi-translation-lib).

mod migration;

pub use migration::{MIGRATED_PLUGINS_ANNOTATION, Migration};

use crate::pod::{
    AwsElasticBlockStore, AzureDisk, Cinder, GcePersistentDisk, PortworxVolume, Volume,
};
use crate::storage::CsiVolume;
use crate::{PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, Str};

/// A persistent volume claim that a pod uses, in the pod's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodClaim {
    /// The claim's name.
    pub name: Str,
    /// Whether the claim is created from a template in the pod and deleted with it.
    pub is_ephemeral: bool,
}

impl PodClaim {
    /// The claim of one volume of a pod, if it has one.
    pub fn of(pod: &Pod, volume: &Volume) -> Option<Self> {
        if let Some(source) = &volume.persistent_volume_claim {
            return Some(Self {
                name: source.claim_name.clone(),
                is_ephemeral: false,
            });
        }
        volume.ephemeral.as_ref().map(|_| Self {
            name: Str::from(format!("{}-{}", pod.name(), volume.name)),
            is_ephemeral: true,
        })
    }
}

/// The claims of a pod, in the order of its volumes.
pub fn claims(pod: &Pod) -> impl Iterator<Item = PodClaim> {
    let volumes = pod.spec.volumes.iter();
    volumes.filter_map(|volume| PodClaim::of(pod, volume))
}

/// The names of the claims that a pod names itself, in the order of its volumes: all but the ephemeral ones.
pub fn shared_claims(pod: &Pod) -> impl Iterator<Item = &Str> {
    let volumes = pod.spec.volumes.iter();
    volumes.filter_map(|volume| Some(&volume.persistent_volume_claim.as_ref()?.claim_name))
}

/// Returns whether the pod uses the claim.
pub fn uses_claim(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.namespace == *pod.namespace()
        && claims(pod).any(|used| used.name == claim.metadata.name)
}

/// The in-tree plugins whose volumes are migrated to a CSI driver, with the driver.
const MIGRATED: [(&str, &str); 5] = [
    (AWS_EBS, "ebs.csi.aws.com"),
    (GCE_PD, "pd.csi.storage.gke.io"),
    (AZURE_DISK, "disk.csi.azure.com"),
    (CINDER, "cinder.csi.openstack.org"),
    (PORTWORX, "pxd.portworx.com"),
];

const AWS_EBS: &str = "kubernetes.io/aws-ebs";
const GCE_PD: &str = "kubernetes.io/gce-pd";
const AZURE_DISK: &str = "kubernetes.io/azure-disk";
const CINDER: &str = "kubernetes.io/cinder";
const PORTWORX: &str = "kubernetes.io/portworx-volume";

/// The CSI driver to which the volumes of an in-tree plugin are migrated.
pub fn migrated_driver(plugin: &str) -> Option<&'static str> {
    let found = MIGRATED.iter().find(|(name, _)| *name == plugin);
    found.map(|(_, driver)| *driver)
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
    fn csi_volume(&self) -> Option<CsiVolume> {
        let (plugin, handle) = if let Some(ebs) = self.ebs {
            // `aws://zone/vol-1` and `vol-1` are the same volume.
            let id = ebs.volume_id.rsplit('/').next().unwrap_or_default();
            (AWS_EBS, Str::new(id))
        } else if let Some(gce) = self.gce {
            let name = gce.pd_name.as_str();
            let handle = format!("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{name}");
            (GCE_PD, Str::from(handle))
        } else if let Some(azure) = self.azure {
            (AZURE_DISK, azure.disk_uri.clone())
        } else if let Some(cinder) = self.cinder {
            (CINDER, cinder.volume_id.clone())
        } else if let Some(portworx) = self.portworx {
            (PORTWORX, portworx.volume_id.clone())
        } else {
            return None;
        };
        Some(CsiVolume {
            driver: Str::new(migrated_driver(plugin)?),
            volume_handle: handle,
        })
    }
}

impl Volume {
    /// The CSI volume behind a volume that a pod declares inline with an in-tree source that is migrated.
    pub fn migrated(&self) -> Option<CsiVolume> {
        Sources {
            ebs: self.aws_elastic_block_store.as_ref(),
            gce: self.gce_persistent_disk.as_ref(),
            azure: self.azure_disk.as_ref(),
            cinder: self.cinder.as_ref(),
            portworx: self.portworx_volume.as_ref(),
        }
        .csi_volume()
    }
}

impl PersistentVolume {
    /// The CSI volume that this is, or to which it is migrated. `None` for volumes that no CSI driver attaches.
    pub fn csi_volume(&self) -> Option<CsiVolume> {
        let spec = &self.spec;
        if let Some(csi) = &spec.csi {
            let is_known = !(csi.driver.is_empty() || csi.volume_handle.is_empty());
            return is_known.then(|| csi.clone());
        }
        Sources {
            ebs: spec.aws_elastic_block_store.as_ref(),
            gce: spec.gce_persistent_disk.as_ref(),
            azure: spec.azure_disk.as_ref(),
            cinder: spec.cinder.as_ref(),
            portworx: spec.portworx_volume.as_ref(),
        }
        .csi_volume()
    }
}

impl StorageClass {
    /// The CSI volume that represents the volume to be provisioned for a claim of the class. No driver uses its handle.
    pub fn volume_to_provision(&self, claim: &PersistentVolumeClaim) -> Option<CsiVolume> {
        let driver = match migrated_driver(&self.provisioner) {
            Some(driver) => Str::new(driver),
            None => self.provisioner.clone(),
        };
        let meta = &claim.metadata;
        let volume_handle = Str::from(format!("\0{}/{}", meta.namespace, meta.name));
        (!driver.is_empty()).then_some(CsiVolume {
            driver,
            volume_handle,
        })
    }
}
