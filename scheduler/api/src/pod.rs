//! Pods.
//!
//! The fields that a pod has in common with the others of its template are kept once for all of them: see
//! [`PodTemplate`] and [`SharedStatus`]. Both are read and changed as if they were part of the spec and the status.

mod status;
mod volume;

use crate::node_selector::{NodeSelector, PreferredSchedulingTerm};
use crate::shared::shareable;
use crate::string::null_default;
use crate::{
    LabelSelector, Labels, ObjectMeta, PodSchedulingGroup, ResourceList, Shared, Str, Toleration,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::{Deref, DerefMut};
use volume::volumes_with_a_source;

pub use status::{
    ContainerStatus, ExtendedResourceClaimStatus, NodeAllocatableMappingStatus,
    NodeAllocatableOverheadStatus, NodeAllocatableResourceClaimStatus, PodCondition,
    PodResourceClaimStatus, PodStatus, SharedStatus,
};
pub use volume::{
    AwsElasticBlockStore, AzureDisk, Cinder, CsiInline, EphemeralSource, GcePersistentDisk,
    ImageVolume, Iscsi, PersistentVolumeClaimSource, PortworxVolume, Rbd, Volume,
};

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Name, identity and labels.
    #[serde(deserialize_with = "without_annotations")]
    pub metadata: ObjectMeta,
    /// The desired state.
    pub spec: PodSpec,
    /// The status of the pod.
    pub status: PodStatus,
}

impl Pod {
    /// A replacement for an unreadable pod on a node. Its resource usage is unknown, so the node gets no other pod, and
    /// no pod preempts it.
    pub fn in_place_of_unreadable(metadata: ObjectMeta, node_name: Str) -> Self {
        let mut spec = PodSpec {
            node_name,
            ..PodSpec::default()
        };
        spec.priority = Some(i32::MAX);
        Self {
            metadata,
            spec,
            status: PodStatus::unreadable(),
        }
    }

    /// The pod's name.
    pub fn name(&self) -> &Str {
        &self.metadata.name
    }

    /// The pod's namespace.
    pub fn namespace(&self) -> &Str {
        &self.metadata.namespace
    }

    /// The pod's identity.
    pub fn uid(&self) -> &Str {
        &self.metadata.uid
    }

    /// The pod's labels.
    pub fn labels(&self) -> &Labels {
        &self.metadata.labels
    }

    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    /// The priority; zero when none is set.
    pub fn priority(&self) -> i32 {
        self.spec.priority.unwrap_or(0)
    }

    /// The name of the pod group with which the pod is scheduled, if it names one.
    pub fn pod_group_name(&self) -> Option<&Str> {
        let group = self.spec.scheduling_group.as_ref()?;
        (!group.pod_group_name.is_empty()).then_some(&group.pod_group_name)
    }

    /// Returns whether the pod uses claims for volumes or devices, which plugins read as well.
    pub fn has_claims(&self) -> bool {
        !self.spec.resource_claims.is_empty()
            || !self.status.resource_claim_statuses.is_empty()
            || self.status.extended_resource_claim_status.is_some()
            || self.spec.volumes.iter().any(Volume::uses_claim)
    }

    /// Returns whether plugins read the same fields of another pod: at most, they differ in name, identity and times,
    /// and they use no claims.
    pub fn reads_as(&self, other: &Self) -> bool {
        let (own, others) = (&self.metadata, &other.metadata);
        self.spec.template == other.spec.template
            && own.labels == others.labels
            && own.namespace == others.namespace
            && own.annotations == others.annotations
            && own.owner_references == others.owner_references
            && !self.has_claims()
            && !other.has_claims()
    }

    /// Returns whether the pod has a node.
    pub fn is_assigned(&self) -> bool {
        !self.spec.node_name.is_empty()
    }

    /// Returns whether the pod is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns whether the pod has run to its end: such pods hold no resources.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Returns whether the pod has a node on which it waits for a resize, because the node has not enough free.
    pub fn has_deferred_resize(&self) -> bool {
        let pending = self.condition("PodResizePending");
        self.is_assigned() && pending.is_some_and(|c| c.status == "True" && c.reason == "Deferred")
    }

    /// The condition of type `kind`.
    pub fn condition(&self, kind: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|c| c.kind == kind)
    }

    /// Regular and init containers, init containers first.
    pub fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.spec
            .init_containers
            .iter()
            .chain(&self.spec.containers)
    }
}

/// The scheduler does not read the annotations of pods, and they are long.
fn without_annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut metadata = ObjectMeta::deserialize(deserializer)?;
    metadata.annotations = Labels::default();
    Ok(metadata)
}

/// The spec of a pod: its node, and everything that its template has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodSpec {
    /// The node that the pod is bound to; empty while it has none.
    pub node_name: Str,
    /// The rest, which can be read and changed as if it were here.
    pub template: Shared<PodTemplate>,
}

impl Deref for PodSpec {
    type Target = PodTemplate;
    fn deref(&self) -> &PodTemplate {
        &self.template
    }
}

impl DerefMut for PodSpec {
    fn deref_mut(&mut self) -> &mut PodTemplate {
        &mut self.template
    }
}

impl From<PodTemplate> for PodSpec {
    fn from(template: PodTemplate) -> Self {
        Self {
            node_name: Str::default(),
            template: template.into(),
        }
    }
}

impl<'de> Deserialize<'de> for PodSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut template = PodTemplate::deserialize(deserializer)?;
        Ok(Self {
            node_name: std::mem::take(&mut template.decoded_node_name.0),
            template: template.into(),
        })
    }
}

impl Serialize for PodSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Encoded<'a> {
            #[serde(rename = "nodeName")]
            node_name: &'a Str,
            #[serde(flatten)]
            template: &'a PodTemplate,
        }
        let Self {
            node_name,
            template,
        } = self;
        Encoded {
            node_name,
            template,
        }
        .serialize(serializer)
    }
}

/// The node's name while a spec is decoded; always empty in a [`PodSpec`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(transparent)]
pub struct DecodedNodeName(#[serde(deserialize_with = "null_default")] Str);

/// The desired state of a pod, without its node: the pods of a template agree in this.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplate {
    /// On its way into [`PodSpec`].
    #[serde(rename = "nodeName", skip_serializing)]
    pub decoded_node_name: DecodedNodeName,
    /// The scheduler of the pod.
    #[serde(deserialize_with = "null_default")]
    pub scheduler_name: Str,
    /// The priority; `None` counts as zero.
    pub priority: Option<i32>,
    /// The name of the priority class.
    #[serde(deserialize_with = "null_default")]
    pub priority_class_name: Str,
    /// `PreemptLowerPriority` (also when absent) or `Never`.
    pub preemption_policy: Option<Str>,
    /// Gates; the pod is not scheduled while one is left.
    #[serde(deserialize_with = "null_default")]
    pub scheduling_gates: Vec<SchedulingGate>,
    /// Labels that the node must have; absent and empty differ.
    pub node_selector: Option<Labels>,
    /// Affinity to nodes and pods.
    pub affinity: Option<Box<Affinity>>,
    /// The tolerations of the pod.
    #[serde(deserialize_with = "null_default")]
    pub tolerations: Vec<Toleration>,
    /// The topology spread constraints.
    #[serde(deserialize_with = "null_default")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// The containers.
    #[serde(deserialize_with = "null_default")]
    pub containers: Vec<Container>,
    /// The init containers, sidecars among them.
    #[serde(deserialize_with = "null_default")]
    pub init_containers: Vec<Container>,
    /// The volumes whose source scheduling reads; others are left out.
    #[serde(deserialize_with = "volumes_with_a_source")]
    pub volumes: Vec<Volume>,
    /// The resources that the runtime itself needs.
    pub overhead: ResourceList,
    /// Resources of the pod as a whole.
    pub resources: Option<ResourceRequirements>,
    /// The seconds from the start of the pod on its node after which the kubelet ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// Whether the pod uses the node's network.
    pub host_network: bool,
    /// `false` asks for a user namespace.
    pub host_users: Option<bool>,
    /// The resource claims that the pod uses.
    #[serde(deserialize_with = "null_default")]
    pub resource_claims: Vec<PodResourceClaim>,
    /// The group with which the pod is scheduled.
    pub scheduling_group: Option<PodSchedulingGroup>,
}

/// A scheduling gate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGate {
    /// The name, unique in its pod.
    pub name: Str,
}

/// A container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// The name, unique in its pod.
    pub name: Str,
    /// The image as the user wrote it.
    #[serde(deserialize_with = "null_default")]
    pub image: Str,
    /// The resources of the container.
    #[serde(deserialize_with = "null_default")]
    pub resources: ResourceRequirements,
    /// The ports.
    #[serde(deserialize_with = "null_default")]
    pub ports: Vec<ContainerPort>,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<Str>,
    /// The actions for certain exits.
    #[serde(deserialize_with = "null_default")]
    pub restart_policy_rules: Vec<ContainerRestartRule>,
    /// The mounts with options for bind mounts; others are left out.
    #[serde(deserialize_with = "mounts_with_options")]
    pub volume_mounts: Vec<VolumeMount>,
}

impl Container {
    /// Returns whether this init container keeps running in parallel with the regular containers.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_ref().is_some_and(|p| p == "Always")
    }
}

/// A volume in a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    /// The options with which the volume is mounted (gate VolumeBindMountOptions).
    #[serde(deserialize_with = "null_default")]
    pub bind_mount_options: Vec<Str>,
}

/// Nearly every container mounts a volume, and only mounts with options matter.
fn mounts_with_options<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<VolumeMount>, D::Error> {
    let mut mounts: Vec<VolumeMount> = null_default(deserializer)?;
    mounts.retain(|mount| !mount.bind_mount_options.is_empty());
    mounts.shrink_to_fit();
    Ok(mounts)
}

/// The action that a container does when it exits in a certain way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRestartRule {
    /// Such as `Restart` or `RestartAllContainers`.
    pub action: Str,
}

/// Requested and largest amounts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirements {
    /// The amounts that must be free.
    pub requests: ResourceList,
    /// The amounts that may be used at most.
    pub limits: ResourceList,
    /// The resource claims of the pod that the container refers to.
    #[serde(deserialize_with = "null_default")]
    pub claims: Vec<ContainerClaim>,
}

/// A resource claim of the pod, by its name in the pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerClaim {
    /// The name of the entry in `resourceClaims`.
    pub name: Str,
}

/// A port of a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// The port of the node; 0 for none.
    pub host_port: i32,
    /// The address of the node; empty for all.
    #[serde(rename = "hostIP", deserialize_with = "null_default")]
    pub host_ip: Str,
    /// `TCP` (also when empty), `UDP` or `SCTP`.
    #[serde(deserialize_with = "null_default")]
    pub protocol: Str,
}

/// Affinity to nodes and pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// To nodes.
    pub node_affinity: Option<NodeAffinity>,
    /// To pods.
    pub pod_affinity: Option<PodAffinity>,
    /// Away from pods.
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// Affinity to nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// The terms that a node must match.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    /// The terms that a node should match.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "null_default"
    )]
    pub preferred: Vec<PreferredSchedulingTerm>,
}

/// Affinity or anti-affinity to pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    /// The terms that must hold.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "null_default"
    )]
    pub required: Vec<PodAffinityTerm>,
    /// The terms that should hold.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "null_default"
    )]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

/// A set of pods and the domain in which they count.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// The pods; absent matches none.
    pub label_selector: Option<LabelSelector>,
    /// The namespaces, by name.
    #[serde(deserialize_with = "null_default")]
    pub namespaces: Vec<Str>,
    /// The namespaces, by label; absent matches none, empty all.
    pub namespace_selector: Option<LabelSelector>,
    /// The node label whose values are the domains.
    #[serde(deserialize_with = "null_default")]
    pub topology_key: Str,
}

/// A term with a weight.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedPodAffinityTerm {
    /// From 1 to 100.
    pub weight: i32,
    /// The term.
    pub pod_affinity_term: PodAffinityTerm,
}

/// The way in which a pod wants to be spread over the domains of a node label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    /// The greatest difference between domains.
    pub max_skew: i32,
    /// The node label whose values are the domains.
    #[serde(deserialize_with = "null_default")]
    pub topology_key: Str,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    #[serde(deserialize_with = "null_default")]
    pub when_unsatisfiable: Str,
    /// The counted pods; absent matches none.
    pub label_selector: Option<LabelSelector>,
    /// The minimum number of domains; absent means one.
    pub min_domains: Option<i32>,
    /// `Honor` (also when absent) or `Ignore`.
    pub node_affinity_policy: Option<Str>,
    /// `Honor` or `Ignore` (also when absent).
    pub node_taints_policy: Option<Str>,
    /// Keys of the pod's labels whose values join the selector.
    #[serde(deserialize_with = "null_default")]
    pub match_label_keys: Vec<Str>,
}

/// A resource claim of a pod: one that exists, or a template to make one from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// The name inside the pod.
    pub name: Str,
    /// The claim.
    pub resource_claim_name: Option<Str>,
    /// The template.
    pub resource_claim_template_name: Option<Str>,
}

shareable!(PodTemplate);

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(name: &str, node: &str, started: &str) -> Pod {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"app":"web"}},"annotations":{{"a":"{name}"}}}},
            "spec":{{"nodeName":"{node}","schedulerName":"default-scheduler","containers":[{{"name":"main"}}],
                "volumes":[{{"name":"token-{name}","projected":{{}}}},
                    {{"name":"data","persistentVolumeClaim":{{"claimName":"data"}}}}]}},
            "status":{{"phase":"Running","startTime":"{started}","nominatedNodeName":"{node}",
                "conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"{started}"}}]}}}}"#
        );
        serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}"))
    }

    #[test]
    fn pods_of_one_template_share_all_but_what_is_their_own() {
        let a = decoded("a", "node-1", "2026-01-01T00:00:00Z");
        let b = decoded("b", "node-2", "2026-01-01T00:00:07Z");
        assert!(a.spec.template.is_same(&b.spec.template));
        assert!(a.status.shared.is_same(&b.status.shared));
        assert_eq!(
            (&*a.spec.node_name, &*b.spec.node_name),
            ("node-1", "node-2")
        );
        assert_eq!(&*b.status.nominated_node_name, "node-2");
        assert_ne!(a.status.start_time, b.status.start_time);
        assert_eq!(a.spec.volumes.len(), 1, "only the claim is kept");
        assert!(a.metadata.annotations.is_empty());
        assert_ne!(a.spec, b.spec);
    }

    #[test]
    fn a_changed_pod_leaves_the_others_alone() {
        let a = decoded("a", "node-1", "2026-01-01T00:00:00Z");
        let mut b = a.clone();
        b.spec.scheduler_name = "other".into();
        b.status.phase = "Failed".into();
        assert_eq!(&*a.spec.scheduler_name, "default-scheduler");
        assert!(b.is_terminal() && !a.is_terminal());
    }

    #[test]
    fn absent_and_null_are_the_same() {
        let pod: Pod = serde_json::from_str(
            r#"{"spec":{"nodeName":null,"volumes":null,"containers":null},"status":{"nominatedNodeName":null,"startTime":null}}"#,
        )
        .expect("decodes");
        assert_eq!(pod, Pod::default());
    }
}
