//! Pod groups and composite pod groups (KEP-4671, KEP-6012): pods that are scheduled as one.
//!
//! The versions of the API since 1.37 have the same fields, so one type reads them all. The version of 1.36, v1alpha2,
//! has three of them in another form, and is read into the same type.

use crate::string::null_default;
use crate::{ObjectMeta, Str, Time};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// The API group of pod groups.
pub const API_GROUP: &str = "scheduling.k8s.io";
/// The condition of a pod group that states whether it was scheduled once.
pub const POD_GROUP_INITIALLY_SCHEDULED: &str = "PodGroupInitiallyScheduled";
/// The version of pod groups in 1.36.
pub const V1ALPHA2: &str = "v1alpha2";
/// [`POD_GROUP_INITIALLY_SCHEDULED`] in v1alpha2.
pub const POD_GROUP_SCHEDULED_OF_V1ALPHA2: &str = "PodGroupScheduled";
/// The names of the disruption mode in v1alpha2, each with the member of the union since then.
pub const DISRUPTION_MODES_OF_V1ALPHA2: [(&str, &str); 2] =
    [("Pod", "single"), ("PodGroup", "all")];
/// The same of a composite pod group.
pub const COMPOSITE_INITIALLY_SCHEDULED: &str = "CompositePodGroupInitiallyScheduled";

/// The group of a pod: a one-of with one member.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSchedulingGroup {
    /// The pod group, in the namespace of the pod.
    #[serde(deserialize_with = "null_default")]
    pub pod_group_name: Str,
}

/// Pods that are scheduled together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroup {
    /// Name, namespace and identity.
    pub metadata: ObjectMeta,
    /// The wanted behaviour.
    #[serde(deserialize_with = "null_default")]
    pub spec: GroupSpec,
    /// The state of the group.
    #[serde(deserialize_with = "null_default")]
    pub status: GroupStatus,
}

/// Groups that are scheduled together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CompositePodGroup {
    /// Name, namespace and identity.
    pub metadata: ObjectMeta,
    /// The wanted behaviour.
    #[serde(deserialize_with = "null_default")]
    pub spec: GroupSpec,
    /// The state of the group.
    #[serde(deserialize_with = "null_default")]
    pub status: GroupStatus,
}

/// The wanted behaviour of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSpec {
    /// The composite pod group that this group is a child of.
    pub parent_composite_pod_group_name: Option<Str>,
    /// The workload from which the group was made.
    #[serde(alias = "podGroupTemplateRef")]
    pub workload_ref: Option<WorkloadRef>,
    /// The condition for the start of the group.
    #[serde(deserialize_with = "null_default")]
    pub scheduling_policy: GroupSchedulingPolicy,
    /// The domains in which the group may start.
    #[serde(deserialize_with = "null_default")]
    pub scheduling_constraints: SchedulingConstraints,
    /// The resource claims that the pods of the group share.
    #[serde(deserialize_with = "null_default")]
    pub resource_claims: Vec<GroupResourceClaim>,
    /// Whether the group is evicted as a whole.
    #[serde(deserialize_with = "disruption_mode")]
    pub disruption_mode: DisruptionMode,
    /// The priority; `None` counts as zero.
    pub priority: Option<i32>,
    /// `PreemptLowerPriority` (also when absent) or `Never`.
    pub preemption_policy: Option<Str>,
}

impl GroupSpec {
    /// The name of the parent, if the group has one.
    pub fn parent(&self) -> Option<&Str> {
        let parent = self.parent_composite_pod_group_name.as_ref();
        parent.filter(|name| !name.is_empty())
    }

    /// The number of members that must be able to run; `None` for a basic group.
    pub fn gang_min(&self) -> Option<usize> {
        let gang = self.scheduling_policy.gang.as_ref()?;
        Some(usize::try_from(gang.min).unwrap_or(0))
    }

    /// The number of members that must be able to run for the group to start: one for a basic group.
    pub fn min(&self) -> usize {
        self.gang_min().unwrap_or(1)
    }

    /// The label for which all pods of the group need nodes with the same value.
    pub fn topology_key(&self) -> Option<&Str> {
        let first = self.scheduling_constraints.topology.first()?;
        (!first.key.is_empty()).then_some(&first.key)
    }

    /// Returns whether the group is evicted as a whole or not at all.
    pub fn is_disrupted_as_a_whole(&self) -> bool {
        self.disruption_mode.all.is_some()
    }

    /// The priority; zero when none is set.
    pub fn priority(&self) -> i32 {
        self.priority.unwrap_or(0)
    }
}

/// The disruption mode: a union, and a word in v1alpha2.
fn disruption_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DisruptionMode, D::Error> {
    struct ModeVisitor;

    impl<'de> Visitor<'de> for ModeVisitor {
        type Value = DisruptionMode;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a disruption mode")
        }

        fn visit_unit<E: de::Error>(self) -> Result<DisruptionMode, E> {
            Ok(DisruptionMode::default())
        }

        fn visit_none<E: de::Error>(self) -> Result<DisruptionMode, E> {
            Ok(DisruptionMode::default())
        }

        fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<DisruptionMode, D::Error> {
            d.deserialize_any(self)
        }

        fn visit_str<E: de::Error>(self, word: &str) -> Result<DisruptionMode, E> {
            let mut modes = DISRUPTION_MODES_OF_V1ALPHA2.iter();
            let member = modes
                .find(|(known, _)| *known == word)
                .map(|(_, member)| *member);
            Ok(DisruptionMode {
                single: (member == Some("single")).then_some(Empty {}),
                all: (member == Some("all")).then_some(Empty {}),
            })
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DisruptionMode, A::Error> {
            DisruptionMode::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_any(ModeVisitor)
}

/// The template in a workload from which a group was made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", from = "WorkloadRefFields")]
pub struct WorkloadRef {
    /// The workload.
    #[serde(deserialize_with = "null_default")]
    pub workload_name: Str,
    /// The template.
    #[serde(deserialize_with = "null_default")]
    pub template_name: Str,
}

/// The fields of a [`WorkloadRef`] in all versions: in v1alpha2, they are one level deeper.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WorkloadRefFields {
    #[serde(deserialize_with = "null_default")]
    workload_name: Str,
    #[serde(deserialize_with = "null_default", alias = "podGroupTemplateName")]
    template_name: Str,
    workload: Option<Box<WorkloadRefFields>>,
}

impl From<WorkloadRefFields> for WorkloadRef {
    fn from(fields: WorkloadRefFields) -> Self {
        let WorkloadRefFields {
            workload_name,
            template_name,
            ..
        } = match fields.workload {
            Some(nested) => *nested,
            None => fields,
        };
        Self {
            workload_name,
            template_name,
        }
    }
}

/// The condition for the start of a group: a union; exactly one member is set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSchedulingPolicy {
    /// Each member alone.
    pub basic: Option<Empty>,
    /// Only if enough members can run.
    pub gang: Option<GangPolicy>,
}

/// A member of a union without fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Empty {}

/// The number of members that must be able to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct GangPolicy {
    /// Pods of a pod group (`minCount`), children of a composite one (`minGroupCount`).
    #[serde(rename = "minCount", alias = "minGroupCount")]
    pub min: i32,
}

/// The domains in which a group may start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingConstraints {
    /// At most one constraint.
    #[serde(deserialize_with = "null_default")]
    pub topology: Vec<TopologyConstraint>,
}

/// All pods of a group are on nodes with the same value of a label.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyConstraint {
    /// The label.
    #[serde(deserialize_with = "null_default")]
    pub key: Str,
}

/// A resource claim that the pods of a group share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupResourceClaim {
    /// The name, unique in its group.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// The claim.
    pub resource_claim_name: Option<Str>,
    /// The template of the claim.
    pub resource_claim_template_name: Option<Str>,
}

/// The unit in which a group is evicted: a union; without a member, pod by pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionMode {
    /// Pod by pod.
    pub single: Option<Empty>,
    /// All pods or none.
    pub all: Option<Empty>,
}

/// The state of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupStatus {
    /// The conditions, at most one of each type.
    #[serde(deserialize_with = "null_default")]
    pub conditions: Vec<GroupCondition>,
    /// The claims that were made for the group from templates.
    #[serde(deserialize_with = "null_default")]
    pub resource_claim_statuses: Vec<GroupResourceClaimStatus>,
}

impl GroupStatus {
    /// The condition of that type.
    pub fn condition(&self, kind: &str) -> Option<&GroupCondition> {
        self.conditions.iter().find(|c| c.kind == kind)
    }
}

/// The type of a condition, as versions since v1alpha2 name it.
fn condition_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Str, D::Error> {
    let kind = Str::deserialize(deserializer)?;
    Ok(match kind.as_str() {
        POD_GROUP_SCHEDULED_OF_V1ALPHA2 => POD_GROUP_INITIALLY_SCHEDULED.into(),
        _ => kind,
    })
}

/// A condition of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupCondition {
    /// The type.
    #[serde(rename = "type", deserialize_with = "condition_type")]
    pub kind: Str,
    /// `True`, `False` or `Unknown`.
    pub status: Str,
    /// The reason, for programs.
    #[serde(deserialize_with = "null_default")]
    pub reason: Str,
    /// The message, for people.
    #[serde(deserialize_with = "null_default")]
    pub message: Str,
    /// The generation of the group that the condition is about.
    pub observed_generation: Option<i64>,
    /// The time of the last change of the status.
    pub last_transition_time: Option<Time>,
}

/// The claim that was made for a group from a template.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupResourceClaimStatus {
    /// The entry of the group's claims.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// The claim.
    pub resource_claim_name: Option<Str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Both versions of the API have the same fields; the minimum of a composite group has a name of its own.
    #[test]
    fn groups_are_read_from_every_version() {
        let group: PodGroup = serde_json::from_value(json!({
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "metadata": {"name": "g", "namespace": "ns"},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": 3}},
                "schedulingConstraints": {"topology": [{"key": "rack"}]},
                "disruptionMode": {"all": {}},
                "priority": 7,
            },
        }))
        .unwrap();
        assert_eq!(group.spec.gang_min(), Some(3));
        assert_eq!(group.spec.topology_key(), Some(&"rack".into()));
        assert!(group.spec.is_disrupted_as_a_whole());
        assert_eq!((group.spec.priority(), group.spec.parent()), (7, None));
        let composite: CompositePodGroup = serde_json::from_value(json!({
            "apiVersion": "scheduling.k8s.io/v1alpha3",
            "spec": {
                "parentCompositePodGroupName": "top",
                "schedulingPolicy": {"gang": {"minGroupCount": 2}},
                "schedulingConstraints": null,
            },
        }))
        .unwrap();
        assert_eq!(composite.spec.gang_min(), Some(2));
        assert_eq!(composite.spec.parent(), Some(&"top".into()));
    }

    /// A basic group starts with one member.
    #[test]
    fn a_basic_group_needs_one_member() {
        let basic: GroupSpec = serde_json::from_value(json!({
            "schedulingPolicy": {"basic": {}}, "disruptionMode": {"single": {}},
        }))
        .unwrap();
        assert_eq!((basic.gang_min(), basic.min()), (None, 1));
        assert!(!basic.is_disrupted_as_a_whole());
        assert_eq!(basic.topology_key(), None);
    }

    /// G-34: a group of 1.36 is read like one of a later release.
    #[test]
    fn v1alpha2_is_read_like_later_versions() {
        for (word, mode) in DISRUPTION_MODES_OF_V1ALPHA2 {
            let condition =
                |kind: &str| json!([{"type": kind, "status": "False", "reason": "Unschedulable"}]);
            let old: PodGroup = serde_json::from_value(json!({
                "metadata": {"name": "g"},
                "spec": {
                    "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
                    "schedulingPolicy": {"gang": {"minCount": 3}},
                    "schedulingConstraints": {"topology": [{"key": "rack"}]},
                    "disruptionMode": word,
                },
                "status": {"conditions": condition("PodGroupScheduled")},
            }))
            .expect("a group of v1alpha2");
            let new: PodGroup = serde_json::from_value(json!({
                "metadata": {"name": "g"},
                "spec": {
                    "workloadRef": {"workloadName": "w", "templateName": "t"},
                    "schedulingPolicy": {"gang": {"minCount": 3}},
                    "schedulingConstraints": {"topology": [{"key": "rack"}]},
                    "disruptionMode": {mode: {}},
                },
                "status": {"conditions": condition("PodGroupInitiallyScheduled")},
            }))
            .expect("a group of v1beta1");
            assert_eq!(old, new, "{word}");
        }
    }
}
