//! The volumes of a pod, with the sources that scheduling reads.

use crate::Str;
use crate::string::null_default;
use serde::{Deserialize, Deserializer, Serialize};

/// A volume; only the sources that scheduling reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// The name, unique in its pod.
    pub name: Str,
    /// A claim.
    pub persistent_volume_claim: Option<PersistentVolumeClaimSource>,
    /// A claim that is created and deleted with the pod; its name is `<pod>-<volume>`.
    pub ephemeral: Option<EphemeralSource>,
    /// A GCE disk.
    pub gce_persistent_disk: Option<GcePersistentDisk>,
    /// An EBS volume.
    pub aws_elastic_block_store: Option<AwsElasticBlockStore>,
    /// An iSCSI target.
    pub iscsi: Option<Iscsi>,
    /// A Ceph image.
    pub rbd: Option<Rbd>,
    /// An Azure disk.
    pub azure_disk: Option<AzureDisk>,
    /// A Cinder volume.
    pub cinder: Option<Cinder>,
    /// A Portworx volume.
    pub portworx_volume: Option<PortworxVolume>,
    /// A CSI volume written into the pod.
    pub csi: Option<CsiInline>,
    /// An image mounted as a volume.
    pub image: Option<ImageVolume>,
}

impl Volume {
    /// Returns whether the volume is that of a claim: one that the pod names, or one that is created for it.
    pub fn uses_claim(&self) -> bool {
        self.persistent_volume_claim.is_some() || self.ephemeral.is_some()
    }

    /// Returns whether the volume has a source that scheduling reads.
    fn has_source(&self) -> bool {
        let Self {
            name: _,
            persistent_volume_claim,
            ephemeral,
            gce_persistent_disk,
            aws_elastic_block_store,
            iscsi,
            rbd,
            azure_disk,
            cinder,
            portworx_volume,
            csi,
            image,
        } = self;
        persistent_volume_claim.is_some()
            || ephemeral.is_some()
            || gce_persistent_disk.is_some()
            || aws_elastic_block_store.is_some()
            || iscsi.is_some()
            || rbd.is_some()
            || azure_disk.is_some()
            || cinder.is_some()
            || portworx_volume.is_some()
            || csi.is_some()
            || image.is_some()
    }
}

/// Secrets and similar volumes do not matter to scheduling, and the volume of the service account has another name
/// in each pod.
pub(super) fn volumes_with_a_source<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Volume>, D::Error> {
    let mut volumes: Vec<Volume> = null_default(deserializer)?;
    volumes.retain(Volume::has_source);
    volumes.shrink_to_fit();
    Ok(volumes)
}

/// A claim as a volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSource {
    /// The claim's name, in the pod's namespace.
    pub claim_name: Str,
}

/// A claim made for one pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralSource {}

/// A GCE disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GcePersistentDisk {
    /// The disk.
    pub pd_name: Str,
    /// Whether it is only read.
    pub read_only: bool,
}

/// An EBS volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AwsElasticBlockStore {
    /// The volume.
    #[serde(rename = "volumeID")]
    pub volume_id: Str,
}

/// An iSCSI target.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Iscsi {
    /// The target's qualified name.
    pub iqn: Str,
    /// Whether it is only read.
    pub read_only: bool,
}

/// A Ceph image.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rbd {
    /// The monitors.
    #[serde(deserialize_with = "null_default")]
    pub monitors: Vec<Str>,
    /// The image.
    pub image: Str,
    /// The pool.
    pub pool: Str,
    /// Whether it is only read.
    pub read_only: bool,
}

/// An Azure disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AzureDisk {
    /// The URI of the disk.
    #[serde(rename = "diskURI", deserialize_with = "null_default")]
    pub disk_uri: Str,
    /// `Shared`, `Dedicated` or `Managed`.
    pub kind: Option<Str>,
}

/// A Cinder volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cinder {
    /// The volume.
    #[serde(rename = "volumeID", deserialize_with = "null_default")]
    pub volume_id: Str,
}

/// A Portworx volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortworxVolume {
    /// The volume.
    #[serde(rename = "volumeID", deserialize_with = "null_default")]
    pub volume_id: Str,
}

/// A CSI volume written into the pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiInline {
    /// The driver.
    pub driver: Str,
}

/// An image mounted as a volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageVolume {
    /// The image.
    #[serde(deserialize_with = "null_default")]
    pub reference: Str,
}
