//! The kinds that the scheduler follows, and an object of any of them.

use crate::custom::{CustomKind, CustomObject};
use crate::devices::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use crate::groups::{self, CompositePodGroup, PodGroup};
use crate::storage::{
    CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass,
    VolumeAttachment,
};
use crate::workload::{
    PodDisruptionBudget, ReplicaSet, ReplicationController, Service, StatefulSet,
};
use crate::{Namespace, Node, ObjectMeta, Pod, Str};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

macro_rules! kinds {
    ($($variant:ident: $group:literal, $version:literal, $plural:literal, $kind:literal, $get:ident, $doc:literal;)*) => {
        /// A kind that the scheduler watches.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $(#[doc = $doc] $variant,)*
            /// A kind that only a plugin knows.
            Custom(CustomKind),
        }

        impl Kind {
            /// All kinds except custom kinds. An API server may lack kinds outside of [`Kind::ESSENTIAL`]; then there
            /// are no such objects.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// API group (empty for core), version and plural.
            pub fn resource(self) -> (&'static str, &'static str, &'static str) {
                match self {
                    $(Self::$variant => ($group, $version, $plural),)*
                    Self::Custom(kind) => (kind.group, kind.version, kind.plural),
                }
            }

            /// API group and version as in objects, such as `v1` or `apps/v1`.
            pub fn api_version(self) -> Str {
                match self.resource() {
                    ("", version, _) => version.into(),
                    (group, version, _) => format!("{group}/{version}").into(),
                }
            }

            /// The name in objects, such as `Pod`; the plural for custom kinds.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $kind,)*
                    Self::Custom(kind) => kind.plural,
                }
            }

            /// Decodes an object of this kind from the API's JSON.
            ///
            /// # Errors
            /// When the JSON is malformed or a field has the wrong type.
            pub fn decode(self, json: &[u8]) -> Result<Object, serde_json::Error> {
                let mut json = serde_json::Deserializer::from_slice(json);
                let object = self.decode_from(&mut json)?;
                json.end()?;
                Ok(object)
            }

            /// Decodes an object of this kind from any format whose fields have the names that they have in JSON.
            ///
            /// # Errors
            /// When the input is malformed or a field has the wrong type.
            pub fn decode_from<'de, D: Deserializer<'de>>(self, input: D) -> Result<Object, D::Error> {
                Ok(match self {
                    $(Self::$variant => Object::$variant(Arc::new(Deserialize::deserialize(input)?)),)*
                    Self::Custom(kind) => Object::Custom(Arc::new(CustomObject::decode(kind, input)?)),
                })
            }
        }

        /// An object of a kind that the scheduler follows. Cloning shares.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Object {
            $(#[doc = $doc] $variant(Arc<$variant>),)*
            /// An object of a kind that only a plugin knows.
            Custom(Arc<CustomObject>),
        }

        /// The fields that scheduling reads, in the API's JSON: for recordings, which [`Kind::decode`] reads. Never for
        /// the API, because the other fields are missing.
        impl Serialize for Object {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(object) => object.serialize(serializer),)*
                    Self::Custom(object) => object.value.serialize(serializer),
                }
            }
        }

        impl Object {
            /// The kind of the object.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$variant(_) => Kind::$variant,)*
                    Self::Custom(object) => Kind::Custom(object.kind),
                }
            }

            /// The metadata of the object.
            pub fn metadata(&self) -> &ObjectMeta {
                match self {
                    $(Self::$variant(object) => &object.metadata,)*
                    Self::Custom(object) => &object.metadata,
                }
            }

            /// The object, if its kind is one that only a plugin knows.
            pub fn as_custom(&self) -> Option<&Arc<CustomObject>> {
                match self {
                    Self::Custom(object) => Some(object),
                    _ => None,
                }
            }

            $(
                #[doc = concat!("The object, if its kind is `", $kind, "`.")]
                pub fn $get(&self) -> Option<&Arc<$variant>> {
                    match self {
                        Self::$variant(object) => Some(object),
                        _ => None,
                    }
                }
            )*
        }
    };
}

kinds! {
    Pod: "", "v1", "pods", "Pod", as_pod, "A pod.";
    Node: "", "v1", "nodes", "Node", as_node, "A node.";
    Namespace: "", "v1", "namespaces", "Namespace", as_namespace, "A namespace.";
    Service: "", "v1", "services", "Service", as_service, "A service.";
    ReplicationController: "", "v1", "replicationcontrollers", "ReplicationController", as_replication_controller, "A replication controller.";
    ReplicaSet: "apps", "v1", "replicasets", "ReplicaSet", as_replica_set, "A replica set.";
    StatefulSet: "apps", "v1", "statefulsets", "StatefulSet", as_stateful_set, "A stateful set.";
    PodDisruptionBudget: "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", as_pod_disruption_budget, "A disruption budget.";
    PersistentVolume: "", "v1", "persistentvolumes", "PersistentVolume", as_persistent_volume, "A volume.";
    PersistentVolumeClaim: "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", as_persistent_volume_claim, "A claim.";
    StorageClass: "storage.k8s.io", "v1", "storageclasses", "StorageClass", as_storage_class, "A storage class.";
    CsiNode: "storage.k8s.io", "v1", "csinodes", "CSINode", as_csi_node, "The CSI drivers of a node.";
    CsiDriver: "storage.k8s.io", "v1", "csidrivers", "CSIDriver", as_csi_driver, "A CSI driver.";
    CsiStorageCapacity: "storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", as_csi_storage_capacity, "The space of a CSI driver.";
    VolumeAttachment: "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", as_volume_attachment, "An attached volume.";
    DeviceClass: "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", as_device_class, "A class of devices.";
    ResourceClaim: "resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", as_resource_claim, "A claim on devices.";
    ResourceSlice: "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", as_resource_slice, "Devices of a driver.";
    DeviceTaintRule: "resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", as_device_taint_rule, "A rule that taints devices.";
    PodGroup: "scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", as_pod_group, "A pod group.";
    CompositePodGroup: "scheduling.k8s.io", "v1alpha3", "compositepodgroups", "CompositePodGroup", as_composite_pod_group, "A composite pod group.";
}

impl Kind {
    /// The kinds without which nothing can be scheduled: every API server has them.
    pub const ESSENTIAL: &'static [Self] = &[Self::Pod, Self::Node, Self::Namespace];

    /// The kind of objects with this `apiVersion` and `kind`, if the scheduler follows it.
    pub fn by_name(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = Self::ALL.iter().find(|known| known.name() == kind)?;
        let (known_group, known_version, _) = found.resource();
        let is_known = known_version == version || found.other_versions().contains(&version);
        (known_group == group && is_known).then_some(*found)
    }

    /// Other versions with the same fields, for API servers without the version of [`Kind::resource`].
    pub fn other_versions(self) -> &'static [&'static str] {
        match self {
            // Kubernetes 1.36.
            Self::DeviceTaintRule => &["v1beta2"],
            // The first release with the stable version may not serve the others any more, and 1.36 serves the last one
            // alone, which `groups` reads.
            Self::PodGroup => &["v1", "v1alpha3", groups::V1ALPHA2],
            Self::CompositePodGroup => &["v1beta1", "v1"],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_group_and_name() {
        for (api_version, kind, found) in [
            ("v1", "Pod", Some(Kind::Pod)),
            ("storage.k8s.io/v1", "CSINode", Some(Kind::CsiNode)),
            ("apps/v1", "Pod", None),
            ("apps/v1beta1", "ReplicaSet", None),
            ("v1", "ConfigMap", None),
            (
                "scheduling.k8s.io/v1alpha2",
                "PodGroup",
                Some(Kind::PodGroup),
            ),
        ] {
            assert_eq!(
                Kind::by_name(api_version, kind),
                found,
                "{api_version} {kind}"
            );
        }
    }

    #[test]
    fn every_kind_decodes_an_empty_object_of_its_own() {
        for kind in Kind::ALL {
            let object = kind
                .decode(b"{}")
                .unwrap_or_else(|e| panic!("{kind:?}: {e}"));
            assert_eq!(object.kind(), *kind);
            assert!(object.metadata().name.is_empty());
        }
    }
}
