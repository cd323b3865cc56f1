//! What Kubernetes knows of its lists and maps beyond their types: by which key the entries of a list are
//! merged, which lists are sets, which objects are replaced whole.
//!
//! The generated types carry none of it, so it stands here as data, one row a field. It drives strategic merge
//! patches (`patch`) and is published in the OpenAPI documents (`openapi`), where clients read it. A list that
//! has no row is atomic: a patch replaces it whole. Source: the `patchStrategy` and `patchMergeKey` struct tags
//! and the `+listType`, `+listMapKey`, `+mapType` and `+structType` markers of the API types of Kubernetes 1.36.
//!
//! Merge key and map keys of a list may differ (Service ports merge by `port`, as a map they are keyed by
//! `port` and `protocol`); each patch type uses its own.

/// How the entries of a list relate to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListType {
    /// Entries are unique scalars.
    Set,
    /// Entries are objects that these fields together identify.
    Map(&'static [&'static str]),
}

/// What is known of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldRule {
    /// The field's name in JSON.
    pub name: &'static str,
    /// The type of the list; `None` is atomic.
    pub list_type: Option<ListType>,
    /// The field that identifies an entry in a strategic merge patch.
    pub merge_key: Option<&'static str>,
    /// A strategic merge patch merges the list instead of replacing it.
    pub merge: bool,
    /// Clients send `$retainKeys`: of a union, only the named members survive.
    pub retain_keys: bool,
    /// A strategic merge patch replaces the object instead of merging it.
    pub replace: bool,
    /// The field is a map that is owned whole (`Some(true)`), or an atomic type used member by member
    /// (`Some(false)`).
    pub atomic_map: Option<bool>,
    /// The value that a missing field stands for.
    pub default: Option<&'static str>,
}

/// What is known of one type.
#[derive(Debug, Clone, Copy)]
pub struct TypeRules {
    /// The type's name in OpenAPI, such as `io.k8s.api.core.v1.PodSpec`.
    pub name: &'static str,
    /// Objects of this type are owned whole.
    pub atomic: bool,
    /// The fields with a rule.
    pub fields: &'static [FieldRule],
}

impl FieldRule {
    /// The strategies as `x-kubernetes-patch-strategy` spells them; `None` when there is none.
    pub fn patch_strategy(&self) -> Option<&'static str> {
        match (self.merge, self.retain_keys, self.replace) {
            (true, true, _) => Some("merge,retainKeys"),
            (true, false, _) => Some("merge"),
            (false, true, _) => Some("retainKeys"),
            (false, false, true) => Some("replace"),
            (false, false, false) => None,
        }
    }

    const fn map(mut self, keys: &'static [&'static str]) -> Self {
        self.list_type = Some(ListType::Map(keys));
        self
    }

    const fn set(mut self) -> Self {
        self.list_type = Some(ListType::Set);
        self
    }

    const fn merge_by(mut self, key: &'static str) -> Self {
        self.merge_key = Some(key);
        self.merge = true;
        self
    }

    const fn merge_values(mut self) -> Self {
        self.merge = true;
        self
    }

    const fn retain_keys(mut self) -> Self {
        self.retain_keys = true;
        self
    }

    const fn replace(mut self) -> Self {
        self.replace = true;
        self
    }

    const fn atomic(mut self) -> Self {
        self.atomic_map = Some(true);
        self
    }

    const fn granular(mut self) -> Self {
        self.atomic_map = Some(false);
        self
    }

    const fn defaults_to(mut self, value: &'static str) -> Self {
        self.default = Some(value);
        self
    }
}

const fn field(name: &'static str) -> FieldRule {
    FieldRule {
        name,
        list_type: None,
        merge_key: None,
        merge: false,
        retain_keys: false,
        replace: false,
        atomic_map: None,
        default: None,
    }
}

const fn rules(name: &'static str, fields: &'static [FieldRule]) -> TypeRules {
    TypeRules {
        name,
        atomic: false,
        fields,
    }
}

const fn atomic(name: &'static str) -> TypeRules {
    TypeRules {
        name,
        atomic: true,
        fields: &[],
    }
}

/// The rules of a type by its OpenAPI name.
pub fn type_rules(name: &str) -> Option<&'static TypeRules> {
    TYPES
        .binary_search_by(|rules| rules.name.cmp(name))
        .ok()
        .and_then(|i| TYPES.get(i))
}

/// The rule of a field of a type by its OpenAPI name.
pub fn field_rule(type_name: &str, field: &str) -> Option<&'static FieldRule> {
    type_rules(type_name)?
        .fields
        .iter()
        .find(|rule| rule.name == field)
}

/// Every type with a rule, by name in byte order.
static TYPES: &[TypeRules] = &[
    rules(
        "io.k8s.api.apps.v1.DaemonSetStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    rules(
        "io.k8s.api.apps.v1.DeploymentSpec",
        &[field("strategy").retain_keys()],
    ),
    rules(
        "io.k8s.api.apps.v1.DeploymentStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    rules(
        "io.k8s.api.apps.v1.ReplicaSetStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    rules(
        "io.k8s.api.apps.v1.StatefulSetStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    atomic("io.k8s.api.autoscaling.v1.CrossVersionObjectReference"),
    rules(
        "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    rules(
        "io.k8s.api.batch.v1.JobStatus",
        &[field("conditions").merge_by("type")],
    ),
    rules(
        "io.k8s.api.batch.v1.PodFailurePolicyOnExitCodesRequirement",
        &[field("values").set()],
    ),
    rules(
        "io.k8s.api.batch.v1.UncountedTerminatedPods",
        &[field("failed").set(), field("succeeded").set()],
    ),
    rules(
        "io.k8s.api.core.v1.ComponentStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    atomic("io.k8s.api.core.v1.ConfigMapKeySelector"),
    rules(
        "io.k8s.api.core.v1.Container",
        &[
            field("env").map(&["name"]).merge_by("name"),
            field("ports")
                .map(&["containerPort", "protocol"])
                .merge_by("containerPort"),
            field("volumeDevices")
                .map(&["devicePath"])
                .merge_by("devicePath"),
            field("volumeMounts")
                .map(&["mountPath"])
                .merge_by("mountPath"),
        ],
    ),
    rules(
        "io.k8s.api.core.v1.ContainerPort",
        &[field("protocol").defaults_to("TCP")],
    ),
    rules(
        "io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes",
        &[field("values").set()],
    ),
    rules(
        "io.k8s.api.core.v1.ContainerStatus",
        &[
            field("allocatedResourcesStatus")
                .map(&["name"])
                .merge_by("name"),
            field("volumeMounts")
                .map(&["mountPath"])
                .merge_by("mountPath"),
        ],
    ),
    atomic("io.k8s.api.core.v1.EndpointAddress"),
    atomic("io.k8s.api.core.v1.EndpointPort"),
    rules(
        "io.k8s.api.core.v1.EphemeralContainer",
        &[
            field("env").map(&["name"]).merge_by("name"),
            field("ports")
                .map(&["containerPort", "protocol"])
                .merge_by("containerPort"),
            field("volumeDevices")
                .map(&["devicePath"])
                .merge_by("devicePath"),
            field("volumeMounts")
                .map(&["mountPath"])
                .merge_by("mountPath"),
        ],
    ),
    atomic("io.k8s.api.core.v1.FileKeySelector"),
    atomic("io.k8s.api.core.v1.LocalObjectReference"),
    rules(
        "io.k8s.api.core.v1.NamespaceStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    rules(
        "io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus",
        &[field("containers").set()],
    ),
    atomic("io.k8s.api.core.v1.NodeSelector"),
    atomic("io.k8s.api.core.v1.NodeSelectorTerm"),
    rules(
        "io.k8s.api.core.v1.NodeSpec",
        &[field("podCIDRs").set().merge_values()],
    ),
    rules(
        "io.k8s.api.core.v1.NodeStatus",
        &[
            field("addresses").map(&["type"]).merge_by("type"),
            field("conditions").map(&["type"]).merge_by("type"),
        ],
    ),
    atomic("io.k8s.api.core.v1.ObjectFieldSelector"),
    atomic("io.k8s.api.core.v1.ObjectReference"),
    rules(
        "io.k8s.api.core.v1.PersistentVolumeClaimStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    rules(
        "io.k8s.api.core.v1.PersistentVolumeSpec",
        &[field("claimRef").granular()],
    ),
    rules(
        "io.k8s.api.core.v1.PodSpec",
        &[
            field("containers").map(&["name"]).merge_by("name"),
            field("ephemeralContainers").map(&["name"]).merge_by("name"),
            field("hostAliases").map(&["ip"]).merge_by("ip"),
            field("imagePullSecrets").map(&["name"]).merge_by("name"),
            field("initContainers").map(&["name"]).merge_by("name"),
            field("nodeSelector").atomic(),
            field("resourceClaims")
                .map(&["name"])
                .merge_by("name")
                .retain_keys(),
            field("schedulingGates").map(&["name"]).merge_by("name"),
            field("topologySpreadConstraints")
                .map(&["topologyKey", "whenUnsatisfiable"])
                .merge_by("topologyKey"),
            field("volumes")
                .map(&["name"])
                .merge_by("name")
                .retain_keys(),
        ],
    ),
    rules(
        "io.k8s.api.core.v1.PodStatus",
        &[
            field("conditions").map(&["type"]).merge_by("type"),
            field("hostIPs").merge_by("ip"),
            field("podIPs").map(&["ip"]).merge_by("ip"),
            field("resourceClaimStatuses")
                .map(&["name"])
                .merge_by("name")
                .retain_keys(),
        ],
    ),
    rules(
        "io.k8s.api.core.v1.ReplicationControllerSpec",
        &[field("selector").atomic()],
    ),
    rules(
        "io.k8s.api.core.v1.ReplicationControllerStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    atomic("io.k8s.api.core.v1.ResourceFieldSelector"),
    rules(
        "io.k8s.api.core.v1.ResourceRequirements",
        &[field("claims").map(&["name"])],
    ),
    rules(
        "io.k8s.api.core.v1.ResourceStatus",
        &[field("resources").map(&["resourceID"])],
    ),
    atomic("io.k8s.api.core.v1.ScopeSelector"),
    atomic("io.k8s.api.core.v1.SecretKeySelector"),
    atomic("io.k8s.api.core.v1.SecretReference"),
    rules(
        "io.k8s.api.core.v1.ServiceAccount",
        &[field("secrets").map(&["name"]).merge_by("name")],
    ),
    rules(
        "io.k8s.api.core.v1.ServicePort",
        &[field("protocol").defaults_to("TCP")],
    ),
    rules(
        "io.k8s.api.core.v1.ServiceSpec",
        &[
            field("ports").map(&["port", "protocol"]).merge_by("port"),
            field("selector").atomic(),
        ],
    ),
    rules(
        "io.k8s.api.core.v1.ServiceStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    atomic("io.k8s.api.core.v1.TopologySelectorTerm"),
    atomic("io.k8s.api.core.v1.TypedLocalObjectReference"),
    rules(
        "io.k8s.api.discovery.v1.Endpoint",
        &[field("addresses").set()],
    ),
    atomic("io.k8s.api.discovery.v1.EndpointPort"),
    atomic("io.k8s.api.networking.v1.ServiceBackendPort"),
    rules(
        "io.k8s.api.networking.v1.ServiceCIDRStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    rules(
        "io.k8s.api.node.v1.Scheduling",
        &[field("nodeSelector").atomic()],
    ),
    rules(
        "io.k8s.api.policy.v1.PodDisruptionBudgetSpec",
        &[field("selector").replace()],
    ),
    rules(
        "io.k8s.api.policy.v1.PodDisruptionBudgetStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    atomic("io.k8s.api.rbac.v1.RoleRef"),
    atomic("io.k8s.api.rbac.v1.Subject"),
    rules(
        "io.k8s.api.resource.v1.AllocatedDeviceStatus",
        &[field("conditions").map(&["type"])],
    ),
    rules(
        "io.k8s.api.resource.v1.ResourceClaimStatus",
        &[
            field("devices").map(&["driver", "device", "pool", "shareID"]),
            field("reservedFor").map(&["uid"]).merge_by("uid"),
        ],
    ),
    rules(
        "io.k8s.api.resource.v1beta2.AllocatedDeviceStatus",
        &[field("conditions").map(&["type"])],
    ),
    rules(
        "io.k8s.api.resource.v1beta2.DeviceTaintRuleStatus",
        &[field("conditions").map(&["type"]).merge_by("type")],
    ),
    rules(
        "io.k8s.api.resource.v1beta2.ResourceClaimStatus",
        &[
            field("devices").map(&["driver", "device", "pool", "shareID"]),
            field("reservedFor").map(&["uid"]).merge_by("uid"),
        ],
    ),
    rules(
        "io.k8s.api.scheduling.v1alpha2.PodGroupSpec",
        &[field("resourceClaims")
            .map(&["name"])
            .merge_by("name")
            .retain_keys()],
    ),
    rules(
        "io.k8s.api.scheduling.v1alpha2.PodGroupStatus",
        &[
            field("conditions").map(&["type"]).merge_by("type"),
            field("resourceClaimStatuses")
                .map(&["name"])
                .merge_by("name")
                .retain_keys(),
        ],
    ),
    rules(
        "io.k8s.api.scheduling.v1alpha2.PodGroupTemplate",
        &[field("resourceClaims")
            .map(&["name"])
            .merge_by("name")
            .retain_keys()],
    ),
    rules(
        "io.k8s.api.scheduling.v1alpha2.WorkloadSpec",
        &[field("podGroupTemplates").map(&["name"])],
    ),
    rules(
        "io.k8s.api.storage.v1.CSIDriverSpec",
        &[field("volumeLifecycleModes").set()],
    ),
    rules(
        "io.k8s.api.storage.v1.CSINodeSpec",
        &[field("drivers").map(&["name"]).merge_by("name")],
    ),
    atomic("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"),
    rules(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        &[
            field("finalizers").set().merge_values(),
            field("ownerReferences").map(&["uid"]).merge_by("uid"),
        ],
    ),
    atomic("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"),
];

/// Every type with a rule, by name.
pub fn types() -> impl Iterator<Item = &'static TypeRules> {
    TYPES.iter()
}
