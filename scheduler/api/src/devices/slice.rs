//! ResourceSlices: the devices that drivers publish, and the rules that taint them.

use crate::node_selector::NodeSelector;
use crate::string::null_default;
use crate::{ObjectMeta, Quantity, Str, Time};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// Devices of a driver: a part of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSlice {
    /// The name.
    pub metadata: ObjectMeta,
    /// The devices.
    #[serde(deserialize_with = "null_default")]
    pub spec: ResourceSliceSpec,
}

/// The devices of a slice and the nodes that can use them. Exactly one of `node_name`, `node_selector`, `all_nodes` and
/// `per_device_node_selection` is set in a valid slice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSliceSpec {
    /// The driver.
    #[serde(deserialize_with = "null_default")]
    pub driver: Str,
    /// The pool that the slice is a part of.
    #[serde(deserialize_with = "null_default")]
    pub pool: ResourcePool,
    /// The only node that can use the devices.
    #[serde(deserialize_with = "null_default")]
    pub node_name: Option<Str>,
    /// The nodes that can use the devices: exactly one term.
    pub node_selector: Option<NodeSelector>,
    /// Whether every node can use the devices.
    #[serde(deserialize_with = "null_default")]
    pub all_nodes: bool,
    /// Whether each device states which nodes can use it.
    #[serde(deserialize_with = "null_default")]
    pub per_device_node_selection: bool,
    /// The devices, in the driver's order.
    #[serde(deserialize_with = "null_default")]
    pub devices: Vec<Device>,
    /// Counters that the devices of the pool consume.
    #[serde(deserialize_with = "null_default")]
    pub shared_counters: Vec<CounterSet>,
    /// Operations of the kubelet that the devices do not need (gate DRAOptionalNodeOperations). They are copied into
    /// allocations.
    #[serde(deserialize_with = "null_default")]
    pub skip_node_operations: Vec<Str>,
}

/// The pool of a slice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcePool {
    /// The name, unique among the pools of the driver.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// Slices of the highest generation form the pool.
    #[serde(deserialize_with = "null_default")]
    pub generation: i64,
    /// The number of slices of this generation that the driver publishes.
    #[serde(deserialize_with = "null_default")]
    pub resource_slice_count: i64,
}

/// Counters that several devices consume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CounterSet {
    /// The name, unique in the pool.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// The counters by name.
    #[serde(deserialize_with = "null_default")]
    pub counters: BTreeMap<Str, Counter>,
}

/// An amount of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counter {
    /// The amount.
    pub value: Quantity,
}

/// The counters of one set that a device consumes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceCounterConsumption {
    /// The set.
    #[serde(deserialize_with = "null_default")]
    pub counter_set: Str,
    /// The amounts by counter.
    #[serde(deserialize_with = "null_default")]
    pub counters: BTreeMap<Str, Counter>,
    /// Devices can use the set at the same time only if they have a group in common (gate
    /// DRADeviceCompatibilityGroups). Devices without groups can only be combined with devices without groups.
    #[serde(deserialize_with = "null_default")]
    pub compatibility_groups: Vec<Str>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// The name, unique in its pool.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// Attributes by qualified name.
    #[serde(deserialize_with = "null_default")]
    pub attributes: BTreeMap<Str, DeviceAttribute>,
    /// Capacities by qualified name.
    #[serde(deserialize_with = "null_default")]
    pub capacity: BTreeMap<Str, DeviceCapacity>,
    /// Shared counters that the device consumes once it is allocated.
    #[serde(deserialize_with = "null_default")]
    pub consumes_counters: Vec<DeviceCounterConsumption>,
    /// The only node that can use the device, in a slice with per-device node selection.
    #[serde(deserialize_with = "null_default")]
    pub node_name: Option<Str>,
    /// The nodes that can use the device, in a slice with per-device node selection.
    pub node_selector: Option<NodeSelector>,
    /// Whether every node can use the device, in a slice with per-device node selection.
    #[serde(deserialize_with = "null_default")]
    pub all_nodes: bool,
    /// Taints that requests must tolerate.
    #[serde(deserialize_with = "null_default")]
    pub taints: Vec<DeviceTaint>,
    /// Whether an allocation of the device is usable on the chosen node alone.
    #[serde(deserialize_with = "null_default")]
    pub binds_to_node: bool,
    /// Conditions that must be true before a pod with the device is bound.
    #[serde(deserialize_with = "null_default")]
    pub binding_conditions: Vec<Str>,
    /// Conditions that report that the device could not be prepared.
    #[serde(deserialize_with = "null_default")]
    pub binding_failure_conditions: Vec<Str>,
    /// Whether several requests can share the device.
    #[serde(deserialize_with = "null_default")]
    pub allow_multiple_allocations: bool,
    /// Resources of the node that the device uses or provides, by name (gate DRANodeAllocatableResources).
    #[serde(deserialize_with = "null_default")]
    pub node_allocatable_resources: BTreeMap<Str, NodeAllocatableResource>,
}

/// The way in which a device uses a resource of its node, such as CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableResource {
    /// The amount that an allocation of the device takes from the node.
    pub mapping: Option<NodeAllocatableMapping>,
    /// The resources that pods need for the device in addition to their requests.
    pub overhead: Option<NodeAllocatableOverhead>,
}

/// An amount of a resource of the node: derived from a capacity of the device, or fixed for each device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableMapping {
    /// The capacity whose consumed amount counts.
    pub capacity_key: Option<Str>,
    /// The factor for the consumed amount; absent for 1.
    pub capacity_multiplier: Option<Quantity>,
    /// The amount for each device, without a capacity.
    pub device_multiplier: Option<Quantity>,
}

/// The resources that pods need for a device in addition to their requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableOverhead {
    /// Once for each pod.
    pub per_pod: Option<Quantity>,
    /// For each container that refers to the claim.
    pub per_container: Option<Quantity>,
}

/// A fact about a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeviceAttribute {
    /// A number.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A text.
    String(Str),
    /// A semantic version, as text.
    Version(Str),
    /// Numbers (gate DRAListTypeAttributes).
    Ints(Vec<i64>),
    /// Truth values (gate DRAListTypeAttributes).
    Bools(Vec<bool>),
    /// Texts (gate DRAListTypeAttributes).
    Strings(Vec<Str>),
    /// Semantic versions (gate DRAListTypeAttributes).
    Versions(Vec<Str>),
    /// A value that this version does not know.
    Unknown,
}

impl Serialize for DeviceAttribute {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(value) => serializer.collect_map([("int", value)]),
            Self::Bool(value) => serializer.collect_map([("bool", value)]),
            Self::String(value) => serializer.collect_map([("string", value)]),
            Self::Version(value) => serializer.collect_map([("version", value)]),
            Self::Ints(values) => serializer.collect_map([("ints", values)]),
            Self::Bools(values) => serializer.collect_map([("bools", values)]),
            Self::Strings(values) => serializer.collect_map([("strings", values)]),
            Self::Versions(values) => serializer.collect_map([("versions", values)]),
            Self::Unknown => serializer.collect_map([] as [(&str, ()); 0]),
        }
    }
}

impl<'de> Deserialize<'de> for DeviceAttribute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Fields {
            int: Option<i64>,
            bool: Option<bool>,
            string: Option<Str>,
            version: Option<Str>,
            ints: Option<Vec<i64>>,
            bools: Option<Vec<bool>>,
            strings: Option<Vec<Str>>,
            versions: Option<Vec<Str>>,
        }
        let fields = Option::<Fields>::deserialize(deserializer)?.unwrap_or_default();
        let lists = fields.ints.map(Self::Ints);
        let lists = lists.or(fields.bools.map(Self::Bools));
        let lists = lists.or(fields.strings.map(Self::Strings));
        let lists = lists.or(fields.versions.map(Self::Versions));
        let value = lists.or(fields.int.map(Self::Int));
        let value = value.or(fields.bool.map(Self::Bool));
        let value = value.or(fields.string.map(Self::String));
        let value = value.or(fields.version.map(Self::Version));
        Ok(value.unwrap_or(Self::Unknown))
    }
}

/// An amount of something that a device has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceCapacity {
    /// The amount.
    pub value: Quantity,
    /// The way in which requests consume the amount when several share the device.
    pub request_policy: Option<CapacityRequestPolicy>,
}

/// The way in which requests consume a capacity.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityRequestPolicy {
    /// The amount of a request that names no amount.
    pub default: Option<Quantity>,
    /// The only amounts that can be consumed, ascending. A request is rounded up to the next one.
    #[serde(deserialize_with = "null_default")]
    pub valid_values: Vec<Quantity>,
    /// The range of amounts that can be consumed.
    pub valid_range: Option<CapacityRequestPolicyRange>,
}

/// A range of amounts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityRequestPolicyRange {
    /// The least amount. A smaller request is rounded up to it.
    pub min: Option<Quantity>,
    /// The largest amount.
    pub max: Option<Quantity>,
    /// Amounts are `min` plus a multiple of this. Other requests are rounded up.
    pub step: Option<Quantity>,
}

/// The effect of a taint of a device on requests that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeviceTaintEffect {
    /// Not set. A toleration without an effect applies to all of them.
    #[default]
    Unset,
    /// Nothing; the taint only informs.
    None,
    /// The device is not allocated.
    NoSchedule,
    /// The device is not allocated, and pods that use it are evicted.
    NoExecute,
    /// An effect that this version does not know; it has no consequence.
    Unknown,
}

/// As the API writes it; an effect that this version does not know stays one.
impl Serialize for DeviceTaintEffect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Unknown => "Unknown",
            known => known.as_str(),
        })
    }
}

impl<'de> Deserialize<'de> for DeviceTaintEffect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match &*Str::deserialize(deserializer)? {
            "" => Self::Unset,
            "None" => Self::None,
            "NoSchedule" => Self::NoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => Self::Unknown,
        })
    }
}

impl DeviceTaintEffect {
    /// The effect as the API writes it. Unknown ones are not kept.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unset | Self::Unknown => "",
            Self::None => "None",
            Self::NoSchedule => "NoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    /// Returns whether a device with the taint is not allocated to requests that do not tolerate it.
    pub const fn forbids_allocation(self) -> bool {
        matches!(self, Self::NoSchedule | Self::NoExecute)
    }
}

/// A mark on a device: requests that do not tolerate it do not get the device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaint {
    /// The key.
    #[serde(deserialize_with = "null_default")]
    pub key: Str,
    /// The value; may be empty.
    #[serde(deserialize_with = "null_default")]
    pub value: Str,
    /// The effect.
    #[serde(deserialize_with = "null_default")]
    pub effect: DeviceTaintEffect,
    /// The time at which the taint was added.
    pub time_added: Option<Time>,
}

/// Adds a taint to devices (gate DRADeviceTaintRules). `resource.k8s.io/v1beta2` in Kubernetes 1.36, `v1` since 1.37.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaintRule {
    /// The name.
    pub metadata: ObjectMeta,
    /// The devices and the taint.
    #[serde(deserialize_with = "null_default")]
    pub spec: DeviceTaintRuleSpec,
}

/// The devices of a rule and their taint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaintRuleSpec {
    /// The devices. If it is absent, the rule applies to all devices until Kubernetes 1.37, and to none since 1.38; the
    /// methods of [`DeviceTaintRule`] do as until 1.37.
    pub device_selector: Option<DeviceTaintSelector>,
    /// The taint.
    #[serde(deserialize_with = "null_default")]
    pub taint: DeviceTaint,
}

/// Devices: every field that is set must be equal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaintSelector {
    /// The driver.
    pub driver: Option<Str>,
    /// The pool.
    pub pool: Option<Str>,
    /// The device.
    pub device: Option<Str>,
}

impl DeviceTaintRule {
    /// Returns whether the rule can apply to devices of the pool.
    pub fn concerns(&self, driver: &str, pool: &str) -> bool {
        let selector = self.spec.device_selector.as_ref();
        selector.is_none_or(|selector| selector.selects_pool(driver, pool))
    }

    /// Returns whether the device gets the taint.
    pub fn taints(&self, driver: &str, pool: &str, device: &str) -> bool {
        let selector = self.spec.device_selector.as_ref();
        selector.is_none_or(|selector| selector.matches(driver, pool, device))
    }
}

impl DeviceTaintSelector {
    /// Returns whether the rule selects the device.
    pub fn matches(&self, driver: &str, pool: &str, device: &str) -> bool {
        self.selects_pool(driver, pool) && is_equal(self.device.as_ref(), device)
    }

    fn selects_pool(&self, driver: &str, pool: &str) -> bool {
        is_equal(self.driver.as_ref(), driver) && is_equal(self.pool.as_ref(), pool)
    }
}

/// Returns whether the name is the wanted one, or any will do.
fn is_equal(wanted: Option<&Str>, name: &str) -> bool {
    wanted.is_none_or(|wanted| **wanted == *name)
}
