//! ResourceClaims: requests of pods for devices, and allocations.

use super::{DeviceTaint, DeviceTaintEffect, Digest};
use crate::node_selector::NodeSelector;
use crate::shared::shareable;
use crate::string::null_default;
use crate::{ObjectMeta, Quantity, RawJson, Shared, Str, Time};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// Pods whose claims have this annotation got the claim for their extended resources.
pub const EXTENDED_RESOURCE_CLAIM_ANNOTATION: &str =
    "resource.kubernetes.io/extended-resource-claim";

/// Keeps an allocated claim from being deleted.
pub const CLAIM_FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// The most pods that can use a claim at the same time.
pub const CLAIM_CONSUMERS_MAX: usize = 256;

/// A claim on devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaim {
    /// Name, namespace and owners.
    pub metadata: ObjectMeta,
    /// The desired state. It never changes.
    #[serde(deserialize_with = "null_default")]
    pub spec: Shared<ResourceClaimSpec>,
    /// The devices that were allocated and the pods that use them.
    #[serde(deserialize_with = "null_default")]
    pub status: ResourceClaimStatus,
}

impl ResourceClaim {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    /// Returns whether devices are allocated to the claim.
    pub fn is_allocated(&self) -> bool {
        self.status.allocation.is_some()
    }

    /// The pods that may use the claim, `namespace/name`.
    pub fn reserving_pods(&self) -> impl Iterator<Item = String> {
        let consumers = self.status.reserved_for.iter();
        let pods = consumers.filter(|consumer| consumer.resource == "pods");
        pods.map(|consumer| format!("{}/{}", self.metadata.namespace, consumer.name))
    }

    /// Returns whether the claim contains JSON that only drivers read. API servers compare it byte by byte.
    pub fn has_raw_json(&self) -> bool {
        let Self { spec, status, .. } = self;
        let devices = &status.devices;
        spec.devices.config.iter().any(|c| c.opaque.is_some())
            || status
                .allocation
                .as_ref()
                .is_some_and(AllocationResult::has_raw_json)
            || devices
                .iter()
                .any(|device| device.data != Digest::default())
    }
}

shareable!(ResourceClaimSpec);

/// The requested devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimSpec {
    /// The requests and the settings that apply to them together.
    #[serde(deserialize_with = "null_default")]
    pub devices: DeviceClaim,
}

/// The requests of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClaim {
    /// The requests.
    #[serde(deserialize_with = "null_default")]
    pub requests: Vec<DeviceRequest>,
    /// Conditions on the devices of several requests.
    #[serde(deserialize_with = "null_default")]
    pub constraints: Vec<DeviceConstraint>,
    /// Configuration that is copied into the allocation.
    #[serde(deserialize_with = "null_default")]
    pub config: Vec<DeviceClaimConfiguration>,
}

/// A request: exactly these devices, or the first available of several alternatives.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// The name, unique in its claim.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// These devices.
    pub exactly: Option<RequestedDevices>,
    /// Alternatives, the best first.
    #[serde(deserialize_with = "null_default")]
    pub first_available: Vec<RequestedDevices>,
}

/// The number of devices that a request is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum AllocationMode {
    /// Exactly the requested count.
    #[default]
    ExactCount,
    /// All that match.
    All,
    /// A mode that this version does not know.
    Unknown(Str),
}

impl Serialize for AllocationMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::ExactCount => "ExactCount",
            Self::All => "All",
            Self::Unknown(text) => text,
        })
    }
}

impl<'de> Deserialize<'de> for AllocationMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Str::deserialize(deserializer)?;
        Ok(match &*text {
            "ExactCount" => Self::ExactCount,
            "All" => Self::All,
            _ => Self::Unknown(text),
        })
    }
}

/// The requested devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestedDevices {
    /// The name of an alternative; empty otherwise.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// Their class.
    #[serde(deserialize_with = "null_default")]
    pub device_class_name: Str,
    /// Conditions on a device, in addition to the conditions of the class. All must hold.
    #[serde(deserialize_with = "null_default")]
    pub selectors: Vec<DeviceSelector>,
    /// The number of devices.
    #[serde(deserialize_with = "null_default")]
    pub allocation_mode: AllocationMode,
    /// The number of devices for [`AllocationMode::ExactCount`]. The API server replaces zero by one.
    #[serde(deserialize_with = "null_default")]
    pub count: i64,
    /// Whether the devices are for administration, in parallel with their ordinary use. Alternatives never have it.
    pub admin_access: Option<bool>,
    /// Taints of devices that the request tolerates.
    #[serde(deserialize_with = "null_default")]
    pub tolerations: Vec<DeviceToleration>,
    /// The capacity that is needed of a device's capacity.
    pub capacity: Option<CapacityRequirements>,
    /// Attributes that are computed for each device, for the constraints of the claim (gate DRADerivedAttributes).
    #[serde(deserialize_with = "null_default")]
    pub derived_attributes: Vec<DerivedAttribute>,
}

/// An attribute that is computed from other attributes of a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DerivedAttribute {
    /// The qualified name.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// The value as a CEL expression over the variable `device`.
    #[serde(deserialize_with = "null_default")]
    pub expression: Str,
}

/// Amounts of capacity by qualified name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityRequirements {
    /// The amounts.
    #[serde(deserialize_with = "null_default")]
    pub requests: BTreeMap<Str, Quantity>,
}

/// A condition on a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSelector {
    /// The condition as a CEL expression.
    pub cel: Option<CelDeviceSelector>,
}

/// A condition on a device as a CEL expression.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CelDeviceSelector {
    /// The expression, over the variable `device`.
    #[serde(deserialize_with = "null_default")]
    pub expression: Str,
}

/// A condition on the devices of several requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceConstraint {
    /// The requests; none means all of the claim. `request/alternative` means an alternative alone.
    #[serde(deserialize_with = "null_default")]
    pub requests: Vec<Str>,
    /// All devices must have the same value of this attribute.
    pub match_attribute: Option<Str>,
    /// No two devices may have the same value of this attribute.
    pub distinct_attribute: Option<Str>,
}

impl fmt::Display for DeviceConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.match_attribute, &self.distinct_attribute) {
            (Some(attribute), _) => write!(f, "matchAttribute {attribute}"),
            (None, Some(attribute)) => write!(f, "distinctAttribute {attribute}"),
            (None, None) => f.write_str("a constraint"),
        }
    }
}

/// Taints of devices that are tolerated.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceToleration {
    /// The key of the taint; empty for all.
    #[serde(deserialize_with = "null_default")]
    pub key: Str,
    /// `Exists` or `Equal`; empty means `Equal`.
    #[serde(deserialize_with = "null_default")]
    pub operator: Str,
    /// The value of the taint, for `Equal`.
    #[serde(deserialize_with = "null_default")]
    pub value: Str,
    /// The effect of the taint; unset for all.
    #[serde(deserialize_with = "null_default")]
    pub effect: DeviceTaintEffect,
    /// For how many seconds an effect of NoExecute is tolerated; absent for ever.
    pub toleration_seconds: Option<i64>,
}

impl DeviceToleration {
    /// Returns whether the taint is tolerated.
    pub fn tolerates(&self, taint: &DeviceTaint) -> bool {
        if self.effect != DeviceTaintEffect::Unset && self.effect != taint.effect {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        match &*self.operator {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            _ => false,
        }
    }
}

/// Configuration for requests of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClaimConfiguration {
    /// The requests; none means all of the claim. `request/alternative` means an alternative alone.
    #[serde(deserialize_with = "null_default")]
    pub requests: Vec<Str>,
    /// The configuration as the driver defines it.
    pub opaque: Option<OpaqueConfiguration>,
}

/// Configuration for a driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceConfiguration {
    /// The configuration as the driver defines it.
    pub opaque: Option<OpaqueConfiguration>,
}

/// Opaque configuration for a driver: copied unchanged, and never read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpaqueConfiguration {
    /// The driver.
    #[serde(deserialize_with = "null_default")]
    pub driver: Str,
    /// The parameters.
    pub parameters: RawJson,
}

/// The devices that were allocated to a claim. Equal statuses are equal in every field. Of fields that scheduling does
/// not read only a digest is kept, so that different ones compare as equal only if their digests collide.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// The devices that were allocated.
    pub allocation: Option<AllocationResult>,
    /// The pods that may use the claim, [`CLAIM_CONSUMERS_MAX`] at most.
    #[serde(deserialize_with = "null_default")]
    pub reserved_for: Vec<ConsumerReference>,
    /// The statuses that drivers report of the devices.
    #[serde(deserialize_with = "null_default")]
    pub devices: Vec<AllocatedDeviceStatus>,
    /// Whether the allocation is a decision of Berth that is not written yet. Not a field of the API.
    #[serde(skip)]
    pub is_assumed: bool,
    /// The UIDs of the pods for which the devices are assumed: one, or several members of a group. It is no part of the
    /// API.
    #[serde(skip)]
    pub assumed_for: Vec<Str>,
}

/// The devices of a claim, and the nodes that can use them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResult {
    /// The devices.
    #[serde(deserialize_with = "null_default")]
    pub devices: DeviceAllocationResult,
    /// The nodes that can use the devices; absent for all.
    pub node_selector: Option<NodeSelector>,
    /// The time at which the devices were allocated.
    pub allocation_timestamp: Option<Time>,
}

impl AllocationResult {
    /// Returns whether the allocation contains JSON that only drivers read.
    pub fn has_raw_json(&self) -> bool {
        let mut config = self.devices.config.iter();
        config.any(|config| config.opaque.is_some())
    }
}

/// The devices of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceAllocationResult {
    /// The devices, in the order of the requests.
    #[serde(deserialize_with = "null_default")]
    pub results: Vec<DeviceRequestAllocationResult>,
    /// The configuration that applies to them.
    #[serde(deserialize_with = "null_default")]
    pub config: Vec<DeviceAllocationConfiguration>,
}

/// A device that was allocated to a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequestAllocationResult {
    /// The request, or `request/alternative`.
    #[serde(deserialize_with = "null_default")]
    pub request: Str,
    /// The driver.
    #[serde(deserialize_with = "null_default")]
    pub driver: Str,
    /// The pool.
    #[serde(deserialize_with = "null_default")]
    pub pool: Str,
    /// The device.
    #[serde(deserialize_with = "null_default")]
    pub device: Str,
    /// Whether the device is used for administration and remains available to others.
    pub admin_access: Option<bool>,
    /// The tolerations of the request.
    #[serde(deserialize_with = "null_default")]
    pub tolerations: Vec<DeviceToleration>,
    /// Conditions that must be true before the pod is bound.
    #[serde(deserialize_with = "null_default")]
    pub binding_conditions: Vec<Str>,
    /// Conditions that report that the device could not be prepared.
    #[serde(deserialize_with = "null_default")]
    pub binding_failure_conditions: Vec<Str>,
    /// The identity of the share, if several requests can share the device.
    #[serde(rename = "shareID")]
    pub share_id: Option<Str>,
    /// The amount that the share consumes of the device's capacity.
    #[serde(deserialize_with = "null_default")]
    pub consumed_capacity: BTreeMap<Str, Quantity>,
    /// Operations of the kubelet that the device does not need.
    #[serde(deserialize_with = "null_default")]
    pub skip_node_operations: Vec<Str>,
}

/// The source of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
pub enum AllocationConfigSource {
    /// The class of the request.
    FromClass,
    /// The claim.
    FromClaim,
    /// A source that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl AllocationConfigSource {
    /// The source as the API writes it. Unknown ones are not kept.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FromClass => "FromClass",
            Self::FromClaim => "FromClaim",
            Self::Unknown => "",
        }
    }
}

/// Configuration of allocated devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceAllocationConfiguration {
    /// The source of the configuration.
    #[serde(deserialize_with = "null_default")]
    pub source: AllocationConfigSource,
    /// The requests that it applies to; none means all.
    #[serde(deserialize_with = "null_default")]
    pub requests: Vec<Str>,
    /// The configuration as the driver defines it.
    pub opaque: Option<OpaqueConfiguration>,
}

/// A pod, or another object, that may use a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerReference {
    /// The API group; empty for pods.
    #[serde(deserialize_with = "null_default")]
    pub api_group: Str,
    /// The resource, such as `pods`.
    #[serde(deserialize_with = "null_default")]
    pub resource: Str,
    /// The name, in the claim's namespace.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// The identity.
    #[serde(deserialize_with = "null_default")]
    pub uid: Str,
}

/// The status that a driver reports of an allocated device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedDeviceStatus {
    /// The driver.
    #[serde(deserialize_with = "null_default")]
    pub driver: Str,
    /// The pool.
    #[serde(deserialize_with = "null_default")]
    pub pool: Str,
    /// The device.
    #[serde(deserialize_with = "null_default")]
    pub device: Str,
    /// The identity of the share, if several requests can share the device.
    #[serde(rename = "shareID")]
    pub share_id: Option<Str>,
    /// Conditions of the device.
    #[serde(deserialize_with = "null_default")]
    pub conditions: Vec<DeviceCondition>,
    /// Data of the driver.
    #[serde(deserialize_with = "Digest::of_raw")]
    pub data: Digest,
    /// Data of network devices.
    pub network_data: Digest,
}

/// A condition of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceCondition {
    /// The type, unique in its list.
    #[serde(deserialize_with = "null_default")]
    pub r#type: Str,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "null_default")]
    pub status: Str,
    /// The reason, in one word.
    #[serde(deserialize_with = "null_default")]
    pub reason: Str,
    /// The message for people.
    #[serde(deserialize_with = "null_default")]
    pub message: Str,
    /// The generation of the object that the condition is about.
    #[serde(deserialize_with = "null_default")]
    pub observed_generation: i64,
    /// The time at which the status changed last.
    pub last_transition_time: Digest,
}
