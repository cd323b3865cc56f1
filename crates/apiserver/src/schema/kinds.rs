//! The kinds whose types are known, by API group and version.
//!
//! Each entry is a function that writes the JSON schema of one generated type, so that nothing is built until
//! the first request of its group version needs it.

use k8s_openapi::api::{
    apps::v1 as apps_v1, authentication::v1 as authentication_v1,
    authorization::v1 as authorization_v1, autoscaling::v1 as autoscaling_v1,
    autoscaling::v2 as autoscaling_v2, batch::v1 as batch_v1, coordination::v1 as coordination_v1,
    core::v1 as core_v1, discovery::v1 as discovery_v1, events::v1 as events_v1,
    networking::v1 as networking_v1, node::v1 as node_v1, policy::v1 as policy_v1,
    rbac::v1 as rbac_v1, resource::v1 as resource_v1, resource::v1beta2 as resource_v1beta2,
    scheduling::v1 as scheduling_v1, scheduling::v1alpha2 as scheduling_v1alpha2,
    storage::v1 as storage_v1,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta_v1;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};

/// Writes the schema of one kind into the definitions of a generator and returns a reference to it.
type Describe = fn(&mut SchemaGenerator) -> Schema;

/// The kinds of one group version.
pub(crate) struct GroupVersion {
    /// The API group, empty for core.
    pub(crate) group: &'static str,
    /// The version, such as `v1`.
    pub(crate) version: &'static str,
    /// Kind and schema.
    kinds: &'static [(&'static str, Describe)],
}

/// Where component schemas stand in an OpenAPI document.
pub(crate) const COMPONENTS: &str = "#/components/schemas/";

impl GroupVersion {
    /// The JSON schemas of all types of this group version by type name, and the type name of each kind.
    pub(crate) fn definitions(&self) -> (Map<String, Value>, Vec<(&'static str, String)>) {
        let mut generator = generator();
        let kinds = self
            .kinds
            .iter()
            .filter_map(|(kind, describe)| {
                type_name(&describe(&mut generator)).map(|name| (*kind, name))
            })
            .collect();
        (generator.take_definitions(false), kinds)
    }
}

/// The JSON schemas of the types that these kinds (group, version, kind) are made of, and of the types that every
/// API speaks; with the type name of each kind that is known.
pub(crate) fn describe(kinds: &[(&str, &str, &str)]) -> (Map<String, Value>, Vec<Option<String>>) {
    let mut generator = generator();
    let names = kinds
        .iter()
        .map(|(group, version, kind)| {
            let group_version = GROUP_VERSIONS.get(position(group, version)?)?;
            let (_, describe) = group_version.kinds.iter().find(|(name, _)| name == kind)?;
            type_name(&describe(&mut generator))
        })
        .collect();
    generator.subschema_for::<meta_v1::DeleteOptions>();
    generator.subschema_for::<meta_v1::ListMeta>();
    generator.subschema_for::<meta_v1::ObjectMeta>();
    generator.subschema_for::<meta_v1::Status>();
    (generator.take_definitions(false), names)
}

/// A generator whose references are those of OpenAPI.
fn generator() -> SchemaGenerator {
    let mut settings = SchemaSettings::openapi3();
    settings.transforms.clear();
    SchemaGenerator::new(settings)
}

/// The type that a schema refers to.
fn type_name(schema: &Schema) -> Option<String> {
    let reference = schema.get("$ref")?.as_str()?;
    reference.strip_prefix(COMPONENTS).map(str::to_owned)
}

/// Declares group versions from modules of generated types; the name of a type is its kind.
macro_rules! group_versions {
    ($($group:literal $version:literal { $($module:ident [ $($kind:ident),+ $(,)? ]),+ $(,)? })+) => {
        &[$(GroupVersion {
            group: $group,
            version: $version,
            kinds: &[$($((
                stringify!($kind),
                SchemaGenerator::subschema_for::<$module::$kind>,
            )),+),+],
        }),+]
    };
}

/// Every group version of which types are known.
pub(crate) static GROUP_VERSIONS: &[GroupVersion] = group_versions! {
    "" "v1" {
        core_v1 [
            Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume,
            PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service,
            ServiceAccount,
        ],
        meta_v1 [DeleteOptions, Status],
    }
    "apps" "v1" { apps_v1 [ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet] }
    "authentication.k8s.io" "v1" { authentication_v1 [SelfSubjectReview, TokenRequest, TokenReview] }
    "authorization.k8s.io" "v1" {
        authorization_v1 [
            LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
        ]
    }
    "autoscaling" "v1" { autoscaling_v1 [HorizontalPodAutoscaler, Scale] }
    "autoscaling" "v2" { autoscaling_v2 [HorizontalPodAutoscaler] }
    "batch" "v1" { batch_v1 [CronJob, Job] }
    "coordination.k8s.io" "v1" { coordination_v1 [Lease] }
    "discovery.k8s.io" "v1" { discovery_v1 [EndpointSlice] }
    "events.k8s.io" "v1" { events_v1 [Event] }
    "networking.k8s.io" "v1" { networking_v1 [Ingress, IngressClass, IPAddress, NetworkPolicy, ServiceCIDR] }
    "node.k8s.io" "v1" { node_v1 [RuntimeClass] }
    "policy" "v1" { policy_v1 [Eviction, PodDisruptionBudget] }
    "rbac.authorization.k8s.io" "v1" { rbac_v1 [ClusterRole, ClusterRoleBinding, Role, RoleBinding] }
    "resource.k8s.io" "v1" {
        resource_v1 [DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice]
    }
    "resource.k8s.io" "v1beta2" {
        resource_v1beta2 [
            DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
        ]
    }
    "scheduling.k8s.io" "v1" { scheduling_v1 [PriorityClass] }
    "scheduling.k8s.io" "v1alpha2" { scheduling_v1alpha2 [PodGroup, Workload] }
    "storage.k8s.io" "v1" {
        storage_v1 [
            CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
        ]
    }
};

/// The position of a group version in [`GROUP_VERSIONS`].
pub(crate) fn position(group: &str, version: &str) -> Option<usize> {
    GROUP_VERSIONS
        .iter()
        .position(|gv| gv.group == group && gv.version == version)
}
