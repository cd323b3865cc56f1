//! Volumes, claims and provisioners.

use crate::node_selector::NodeSelector;
use crate::pod::{
    AwsElasticBlockStore, AzureDisk, Cinder, GcePersistentDisk, PortworxVolume,
    ResourceRequirements,
};
use crate::string::null_default;
use crate::{LabelSelector, ObjectMeta, Quantity, ResourceList, Str};
use serde::{Deserialize, Serialize};

/// The annotation that names the class of a claim or volume; it takes precedence over the field.
pub const BETA_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// The annotation of a claim whose binding is complete.
pub const BIND_COMPLETED_ANNOTATION: &str = "pv.kubernetes.io/bind-completed";
/// The annotation of a volume that was bound by a program rather than by its owner.
pub const BOUND_BY_CONTROLLER_ANNOTATION: &str = "pv.kubernetes.io/bound-by-controller";
/// The annotation of a claim that is to be provisioned for a node.
pub const SELECTED_NODE_ANNOTATION: &str = "volume.kubernetes.io/selected-node";
/// The name of the resource that volumes have.
pub const STORAGE: &str = "storage";

fn class<'a>(metadata: &'a ObjectMeta, field: Option<&'a Str>) -> &'a str {
    metadata
        .annotations
        .get(BETA_CLASS_ANNOTATION)
        .or(field.map(Str::as_str))
        .unwrap_or("")
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolume {
    /// Name, labels and annotations.
    pub metadata: ObjectMeta,
    /// The source and properties of the volume.
    pub spec: PersistentVolumeSpec,
    /// The phase of the volume.
    pub status: VolumePhase,
}

impl PersistentVolume {
    /// The class; empty for none.
    pub fn class(&self) -> &str {
        class(&self.metadata, self.spec.storage_class_name.as_ref())
    }

    /// The size.
    pub fn capacity(&self) -> Quantity {
        self.spec.capacity.get(STORAGE).copied().unwrap_or_default()
    }
}

/// The source and properties of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// The size, under `storage`.
    pub capacity: ResourceList,
    /// The way in which the volume can be mounted.
    #[serde(deserialize_with = "null_default")]
    pub access_modes: Vec<Str>,
    /// The class.
    pub storage_class_name: Option<Str>,
    /// `Filesystem` (also when absent) or `Block`.
    pub volume_mode: Option<Str>,
    /// The class of its changeable attributes.
    pub volume_attributes_class_name: Option<Str>,
    /// The claim that the volume is for.
    pub claim_ref: Option<ClaimRef>,
    /// The nodes from which the volume can be reached.
    pub node_affinity: Option<VolumeNodeAffinity>,
    /// A volume of a CSI driver.
    pub csi: Option<CsiVolume>,
    /// A GCE disk.
    pub gce_persistent_disk: Option<GcePersistentDisk>,
    /// An EBS volume.
    pub aws_elastic_block_store: Option<AwsElasticBlockStore>,
    /// An Azure disk.
    pub azure_disk: Option<AzureDisk>,
    /// A Cinder volume.
    pub cinder: Option<Cinder>,
    /// A Portworx volume.
    pub portworx_volume: Option<PortworxVolume>,
}

/// A reference to the claim of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRef {
    /// The claim's namespace.
    #[serde(deserialize_with = "null_default")]
    pub namespace: Str,
    /// The claim's name.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// The claim's identity; empty while it is not known.
    #[serde(deserialize_with = "null_default")]
    pub uid: Str,
}

/// The nodes from which a volume can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeNodeAffinity {
    /// The nodes; absent for all.
    pub required: Option<NodeSelector>,
}

/// A volume of a CSI driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiVolume {
    /// The driver.
    #[serde(deserialize_with = "null_default")]
    pub driver: Str,
    /// The name of the volume at the driver.
    #[serde(deserialize_with = "null_default")]
    pub volume_handle: Str,
}

/// The phase of a volume or claim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumePhase {
    /// Of volumes `Available`, `Bound`, `Released`, `Failed`; of claims `Pending`, `Bound`, `Lost`.
    #[serde(deserialize_with = "null_default")]
    pub phase: Str,
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaim {
    /// Name, namespace and annotations.
    pub metadata: ObjectMeta,
    /// The desired volume.
    pub spec: PersistentVolumeClaimSpec,
    /// The phase of the claim.
    pub status: VolumePhase,
}

impl PersistentVolumeClaim {
    /// The class; empty for none.
    pub fn class(&self) -> &str {
        class(&self.metadata, self.spec.storage_class_name.as_ref())
    }

    /// Returns whether the claim has a volume and the binding is complete.
    pub fn is_fully_bound(&self) -> bool {
        !self.spec.volume_name.is_empty()
            && self
                .metadata
                .annotations
                .contains_key(BIND_COMPLETED_ANNOTATION)
    }

    /// The size that is wanted, if one is.
    pub fn request(&self) -> Option<Quantity> {
        self.spec.resources.requests.get(STORAGE).copied()
    }
}

/// The desired volume of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    /// The way in which the volume is to be mounted.
    #[serde(deserialize_with = "null_default")]
    pub access_modes: Vec<Str>,
    /// The volumes that may be bound; absent for all.
    pub selector: Option<LabelSelector>,
    /// The size, under `storage`.
    #[serde(deserialize_with = "null_default")]
    pub resources: ResourceRequirements,
    /// The volume; empty while there is none.
    #[serde(deserialize_with = "null_default")]
    pub volume_name: Str,
    /// The class.
    pub storage_class_name: Option<Str>,
    /// `Filesystem` (also when absent) or `Block`.
    pub volume_mode: Option<Str>,
    /// The class of its changeable attributes.
    pub volume_attributes_class_name: Option<Str>,
}

/// The provisioning of volumes of one class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// The name.
    pub metadata: ObjectMeta,
    /// The provisioner of the volumes.
    #[serde(deserialize_with = "null_default")]
    pub provisioner: Str,
    /// `Immediate` or `WaitForFirstConsumer`.
    pub volume_binding_mode: Option<Str>,
    /// The topologies in which volumes can be made; empty for everywhere.
    #[serde(deserialize_with = "null_default")]
    pub allowed_topologies: Vec<TopologySelectorTerm>,
}

/// Nodes by their labels: every expression must match.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorTerm {
    /// The expressions.
    #[serde(deserialize_with = "null_default")]
    pub match_label_expressions: Vec<TopologySelectorExpression>,
}

/// A label with one of some values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorExpression {
    /// The label.
    #[serde(deserialize_with = "null_default")]
    pub key: Str,
    /// The values.
    #[serde(deserialize_with = "null_default")]
    pub values: Vec<Str>,
}

/// The CSI drivers of a node. It has the node's name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNode {
    /// Name and annotations.
    pub metadata: ObjectMeta,
    /// The drivers.
    #[serde(deserialize_with = "null_default")]
    pub spec: CsiNodeSpec,
}

/// The CSI drivers of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeSpec {
    /// The drivers.
    #[serde(deserialize_with = "null_default")]
    pub drivers: Vec<CsiNodeDriver>,
}

/// A CSI driver on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeDriver {
    /// The driver.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// The number of volumes that the driver attaches to the node; absent for no limit.
    pub allocatable: Option<VolumeNodeResources>,
}

/// A limit of a driver on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeNodeResources {
    /// The number of volumes; absent for no limit.
    pub count: Option<i32>,
}

/// The features of a CSI driver.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriver {
    /// The name of the driver.
    pub metadata: ObjectMeta,
    /// The features of the driver.
    #[serde(deserialize_with = "null_default")]
    pub spec: CsiDriverSpec,
}

/// The features of a CSI driver.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverSpec {
    /// Whether it reports its storage capacity.
    pub storage_capacity: Option<bool>,
    /// Whether pods with volumes of the driver may run only on nodes that have it.
    pub prevent_pod_scheduling_if_missing: Option<bool>,
}

/// The space that a CSI driver has for a class in a part of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiStorageCapacity {
    /// Name and namespace.
    pub metadata: ObjectMeta,
    /// The nodes that can reach the space; absent for none, empty for all.
    pub node_topology: Option<LabelSelector>,
    /// The class.
    #[serde(deserialize_with = "null_default")]
    pub storage_class_name: Str,
    /// The space that is left.
    pub capacity: Option<Quantity>,
    /// The largest volume that can be made.
    pub maximum_volume_size: Option<Quantity>,
}

impl CsiStorageCapacity {
    /// The size of the largest volume that can be made.
    pub fn limit(&self) -> Option<Quantity> {
        self.maximum_volume_size.or(self.capacity)
    }
}

/// A volume that is attached or being attached to a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachment {
    /// The name.
    pub metadata: ObjectMeta,
    /// The volume and its node.
    pub spec: VolumeAttachmentSpec,
}

/// The volume and its node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSpec {
    /// The CSI driver.
    #[serde(deserialize_with = "null_default")]
    pub attacher: Str,
    /// The node.
    #[serde(deserialize_with = "null_default")]
    pub node_name: Str,
    /// The volume.
    pub source: VolumeAttachmentSource,
}

/// The volume of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSource {
    /// Its name; absent for a volume that is written into a pod.
    pub persistent_volume_name: Option<Str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_annotation_names_the_class_first() {
        for (json, class) in [
            (r#"{}"#, ""),
            (r#"{"spec":{"storageClassName":"a"}}"#, "a"),
            (
                r#"{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"b"}},"spec":{"storageClassName":"a"}}"#,
                "b",
            ),
        ] {
            let claim: PersistentVolumeClaim = serde_json::from_str(json).unwrap();
            let volume: PersistentVolume = serde_json::from_str(json).unwrap();
            assert_eq!((claim.class(), volume.class()), (class, class), "{json}");
        }
    }

    #[test]
    fn a_claim_is_bound_when_both_sides_state_so() {
        for (json, bound) in [
            (r#"{"spec":{"volumeName":"v"}}"#, false),
            (
                r#"{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"yes"}}}"#,
                false,
            ),
            (
                r#"{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":""}},"spec":{"volumeName":"v"}}"#,
                true,
            ),
        ] {
            let claim: PersistentVolumeClaim = serde_json::from_str(json).unwrap();
            assert_eq!(claim.is_fully_bound(), bound, "{json}");
        }
    }
}
