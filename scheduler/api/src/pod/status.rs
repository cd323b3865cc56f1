//! The status of pods.

use super::ResourceRequirements;
use crate::quantity::QuantityFormat;
use crate::resources::ResourceSum;
use crate::shared::shareable;
use crate::string::null_default;
use crate::{Quantity, ResourceList, Shared, Str, Time};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::{Deref, DerefMut};

/// The status of a pod: its own fields, and the fields that it shares with other pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodStatus {
    /// The nominated node; empty for none.
    pub nominated_node_name: Str,
    /// The time at which the kubelet accepted the pod.
    pub start_time: Option<Time>,
    /// The time at which condition PodScheduled became false, if it is false.
    pub unscheduled_since: Option<Time>,
    /// The rest, which can be read and changed as if it were here.
    pub shared: Shared<SharedStatus>,
}

impl PodStatus {
    /// The status of the replacement for an unreadable pod.
    pub(super) fn unreadable() -> Self {
        let shared = SharedStatus {
            is_unreadable: true,
            ..SharedStatus::default()
        };
        Self {
            shared: shared.into(),
            ..Self::default()
        }
    }
}

impl Deref for PodStatus {
    type Target = SharedStatus;
    fn deref(&self) -> &SharedStatus {
        &self.shared
    }
}

impl DerefMut for PodStatus {
    fn deref_mut(&mut self) -> &mut SharedStatus {
        &mut self.shared
    }
}

impl<'de> Deserialize<'de> for PodStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut shared = SharedStatus::deserialize(deserializer)?;
        let decoded = std::mem::take(&mut shared.decoded_conditions);
        let is_unscheduled = |known: &&DecodedCondition| {
            known.condition.kind == "PodScheduled" && known.condition.status == "False"
        };
        let since = decoded
            .iter()
            .find(is_unscheduled)
            .and_then(|known| known.last_transition_time);
        shared.conditions = decoded.into_iter().map(|known| known.condition).collect();
        Ok(Self {
            unscheduled_since: shared.decoded_unscheduled_since.take().or(since),
            nominated_node_name: std::mem::take(&mut shared.decoded_nominated_node_name),
            start_time: shared.decoded_start_time.take(),
            shared: shared.into(),
        })
    }
}

impl Serialize for PodStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Encoded<'a> {
            nominated_node_name: &'a Str,
            start_time: Option<Time>,
            #[serde(skip_serializing_if = "Option::is_none")]
            unscheduled_since: Option<Time>,
            #[serde(flatten)]
            shared: &'a SharedStatus,
        }
        let Self {
            nominated_node_name,
            start_time,
            unscheduled_since,
            shared,
        } = self;
        Encoded {
            nominated_node_name,
            start_time: *start_time,
            unscheduled_since: *unscheduled_since,
            shared,
        }
        .serialize(serializer)
    }
}

/// The part of the status that many pods share. Times are left out: they are not read, and differ between pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SharedStatus {
    /// Decoded here for [`PodStatus`], like the next three.
    #[serde(
        rename = "nominatedNodeName",
        deserialize_with = "null_default",
        skip_serializing
    )]
    decoded_nominated_node_name: Str,
    #[serde(rename = "startTime", skip_serializing)]
    decoded_start_time: Option<Time>,
    /// Of an object that was encoded here: the API has the time in the condition.
    #[serde(rename = "unscheduledSince", skip_serializing)]
    decoded_unscheduled_since: Option<Time>,
    #[serde(
        rename = "conditions",
        deserialize_with = "null_default",
        skip_serializing
    )]
    decoded_conditions: Vec<DecodedCondition>,
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    #[serde(deserialize_with = "null_default")]
    pub phase: Str,
    /// The reason of the phase of a pod that a kubelet rejected or ended, such as `OutOfcpu`.
    #[serde(
        deserialize_with = "null_default",
        skip_serializing_if = "str::is_empty"
    )]
    pub reason: Str,
    /// The conditions.
    #[serde(skip_deserializing)]
    pub conditions: Vec<PodCondition>,
    /// The actual resources of the containers.
    #[serde(deserialize_with = "null_default")]
    pub container_statuses: Vec<ContainerStatus>,
    /// The actual resources of the init containers.
    #[serde(deserialize_with = "null_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Resources of the pod as a whole, as actuated.
    pub resources: Option<ResourceRequirements>,
    /// Resources of the pod as a whole, as admitted by the kubelet.
    pub allocated_resources: ResourceList,
    /// The claims made from templates.
    #[serde(deserialize_with = "null_default")]
    pub resource_claim_statuses: Vec<PodResourceClaimStatus>,
    /// The claim made for extended resources that devices back.
    pub extended_resource_claim_status: Option<ExtendedResourceClaimStatus>,
    /// The resources of the node that the devices of the claims use.
    #[serde(deserialize_with = "null_default")]
    pub node_allocatable_resource_claim_statuses: Vec<NodeAllocatableResourceClaimStatus>,
    /// Whether the pod is a replacement for an unreadable one ([`crate::Pod::in_place_of_unreadable`]). Not a field of
    /// the API.
    #[serde(
        rename = "berth.unreadable",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_unreadable: bool,
}

/// The resources of the node that the devices of a claim use (KEP-5517).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableResourceClaimStatus {
    /// The claim.
    pub resource_claim_name: Str,
    /// The containers that refer to the claim, init containers first.
    #[serde(deserialize_with = "null_default")]
    pub containers: Vec<Str>,
    /// The amounts that the devices take, once for the claim.
    #[serde(deserialize_with = "null_default")]
    pub mapping: Vec<NodeAllocatableMappingStatus>,
    /// The amounts that the pod needs in addition to its requests.
    #[serde(deserialize_with = "null_default")]
    pub overhead: Vec<NodeAllocatableOverheadStatus>,
}

/// An amount of a resource that devices take.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableMappingStatus {
    /// The resource.
    pub name: Str,
    /// The amount.
    pub quantity: Quantity,
}

/// An amount of a resource that a pod needs because of devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableOverheadStatus {
    /// The resource.
    pub name: Str,
    /// The amount for the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<Quantity>,
    /// The amount for each container that refers to the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_container: Option<Quantity>,
}

impl NodeAllocatableResourceClaimStatus {
    /// The total amounts of the pod: the resources used by the devices, and the overhead of the pod and its containers.
    pub fn total(&self) -> ResourceList {
        let mut total = ResourceSum::default();
        for mapped in &self.mapping {
            total.add(&mapped.name, mapped.quantity);
        }
        let containers = i64::try_from(self.containers.len()).unwrap_or(i64::MAX);
        let containers = Quantity::from_value(containers, QuantityFormat::DecimalSI);
        for needed in &self.overhead {
            if let Some(amount) = needed.per_pod {
                total.add(&needed.name, amount);
            }
            if let Some(amount) = needed.per_container.filter(|_| !self.containers.is_empty()) {
                total.add(&needed.name, amount.times(containers));
            }
        }
        total.into()
    }
}

/// A condition of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    /// The type, such as `PodScheduled`.
    #[serde(rename = "type")]
    pub kind: Str,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "null_default")]
    pub status: Str,
    /// The reason, for programs.
    #[serde(deserialize_with = "null_default")]
    pub reason: Str,
    /// The reason, for people.
    #[serde(deserialize_with = "null_default")]
    pub message: Str,
    /// The observed generation of the pod.
    pub observed_generation: Option<i64>,
}

/// A condition with the time of its last status change, as decoded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct DecodedCondition {
    condition: PodCondition,
    last_transition_time: Option<Time>,
}

impl<'de> Deserialize<'de> for DecodedCondition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Fields {
            #[serde(rename = "type")]
            kind: Str,
            #[serde(deserialize_with = "null_default")]
            status: Str,
            #[serde(deserialize_with = "null_default")]
            reason: Str,
            #[serde(deserialize_with = "null_default")]
            message: Str,
            observed_generation: Option<i64>,
            last_transition_time: Option<Time>,
        }
        let fields = Fields::deserialize(deserializer)?;
        Ok(Self {
            condition: PodCondition {
                kind: fields.kind,
                status: fields.status,
                reason: fields.reason,
                message: fields.message,
                observed_generation: fields.observed_generation,
            },
            last_transition_time: fields.last_transition_time,
        })
    }
}

/// The actual resources of a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// The container.
    pub name: Str,
    /// The resources that the kubelet admitted.
    pub allocated_resources: ResourceList,
    /// The resources that the runtime applied.
    pub resources: Option<ResourceRequirements>,
}

/// The claim made from a template.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaimStatus {
    /// The entry of the pod's spec.
    pub name: Str,
    /// The claim; absent when none was needed.
    pub resource_claim_name: Option<Str>,
}

/// The claim made for extended resources.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtendedResourceClaimStatus {
    /// The claim.
    pub resource_claim_name: Str,
}

shareable!(SharedStatus);

#[cfg(test)]
mod tests {
    use crate::Pod;

    #[test]
    fn the_time_since_which_a_pod_is_unscheduled_stays() {
        let decode = |status: &str| -> Pod {
            let json = format!(
                r#"{{"status":{{"conditions":[{{"type":"PodScheduled","status":"{status}",
                "lastTransitionTime":"2026-01-01T00:00:07Z"}}]}}}}"#
            );
            serde_json::from_str(&json).expect("a pod")
        };
        assert_eq!(decode("True").status.unscheduled_since, None);
        let pod = decode("False");
        let since = "2026-01-01T00:00:07Z".parse().ok();
        assert_eq!(pod.status.unscheduled_since, since);
        let json = serde_json::to_string(&pod).expect("JSON");
        let again: Pod = serde_json::from_str(&json).expect("a pod");
        assert_eq!(again, pod);
    }
}
