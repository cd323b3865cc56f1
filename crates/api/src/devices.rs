//! Devices: the claims of pods on them, their classes, and the slices in which drivers publish them
//! (resource.k8s.io/v1).

use crate::node_selector::NodeSelector;
use crate::string::null_default;
use crate::{ObjectMeta, Str};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::hash::{BuildHasher, Hash};

/// A claim on devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaim {
    /// Name, namespace and owners.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(deserialize_with = "null_default")]
    pub spec: ResourceClaimSpec,
    /// What has become of it.
    #[serde(deserialize_with = "null_default")]
    pub status: ResourceClaimStatus,
}

impl ResourceClaim {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    /// Whether devices have been set aside for the claim.
    pub fn is_allocated(&self) -> bool {
        self.status.allocation.is_some()
    }
}

/// What is wanted of devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimSpec {
    /// The requests and what goes for them together.
    #[serde(deserialize_with = "null_default")]
    pub devices: DeviceClaim,
}

/// The requests of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClaim {
    /// The requests.
    #[serde(deserialize_with = "null_default")]
    pub requests: Vec<DeviceRequest>,
}

/// A request: exactly these devices, or the first of several alternatives that can be had.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
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

/// Which devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestedDevices {
    /// The name of an alternative; empty otherwise.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// Their class.
    #[serde(deserialize_with = "null_default")]
    pub device_class_name: Str,
}

/// What has become of a claim. Two that are alike are equal. Two that differ, be it in what is not read, are not, unless
/// the digests of the two happen to be the same, which is as good as never by chance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// The devices that were set aside.
    pub allocation: Option<AllocationResult>,
    /// Who holds the claim, 256 at most.
    #[serde(deserialize_with = "null_default")]
    pub reserved_for: Vec<ConsumerReference>,
    /// What drivers tell of the devices.
    pub devices: Digest,
}

/// The devices of a claim, and from where they can be used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResult {
    /// The devices.
    pub devices: Digest,
    /// The nodes on which the devices can be used; absent for all.
    pub node_selector: Option<NodeSelector>,
    /// When they were set aside.
    pub allocation_timestamp: Digest,
}

/// Who holds a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
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

/// Stands for a part of an object of which no more is asked than whether it has changed: a hash of 64 bits, so that equal
/// parts have equal digests, and others different ones but for a rare accident. What is absent, null or an empty list or
/// object is the same; so are objects whose fields stand in another order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Digest(u64);

impl Digest {
    /// Stands for this value.
    pub fn of(value: &Value) -> Self {
        Self(match value {
            Value::Null => 0,
            Value::Array(items) if items.is_empty() => 0,
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| match Self::of(value) {
                    Self(0) => 0,
                    digest => hash((name, digest)),
                });
                fields.fold(0, u64::wrapping_add)
            }
            Value::Array(items) => {
                let items: Vec<Self> = items.iter().map(Self::of).collect();
                hash((1, items))
            }
            Value::Bool(value) => hash((2, value)),
            Value::Number(value) => hash((3, value)),
            Value::String(value) => hash((4, value)),
        })
    }
}

/// Never zero, which stands for nothing at all.
fn hash(of: impl Hash) -> u64 {
    rustc_hash::FxBuildHasher.hash_one(of).max(1)
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::of(&value))
    }
}

/// A class of devices; only what turns extended resources into devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClass {
    /// The name.
    pub metadata: ObjectMeta,
    /// What the class stands for.
    #[serde(deserialize_with = "null_default")]
    pub spec: DeviceClassSpec,
}

/// What a class of devices stands for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpec {
    /// The extended resource that devices of the class can stand in for.
    pub extended_resource_name: Option<Str>,
}

/// Devices that a driver publishes. That there are new ones is all that is read: devices are not chosen here yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSlice {
    /// The name.
    pub metadata: ObjectMeta,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(status: Value) -> ResourceClaimStatus {
        let claim: ResourceClaim =
            serde_json::from_value(json!({"status": status})).expect("a claim");
        claim.status
    }

    /// Q-52: a status is as it was when nothing in it has changed, whatever Berth reads of it.
    #[test]
    fn statuses_are_compared_as_a_whole() {
        let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "dev-0"});
        let full = json!({
            "allocation": {
                "devices": {"results": [result], "config": [{"source": "FromClass", "opaque": {"driver": "d", "parameters": {"a": 1}}}]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
                "allocationTimestamp": "2026-01-01T00:00:00Z",
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
            "devices": [{"driver": "d", "pool": "p", "device": "dev-0", "conditions": [{"type": "Ready", "status": "True"}]}],
        });
        for (pointer, value) in [
            ("/allocation", Value::Null),
            ("/allocation/devices/results/0/device", json!("dev-1")),
            ("/allocation/devices/config/0/opaque/parameters/a", json!(2)),
            ("/allocation/nodeSelector", Value::Null),
            (
                "/allocation/allocationTimestamp",
                json!("2026-01-01T00:00:01Z"),
            ),
            ("/reservedFor/0/uid", json!("v")),
            ("/reservedFor", json!([])),
            ("/devices/0/conditions/0/status", json!("False")),
            ("/devices", json!([])),
        ] {
            let mut changed = full.clone();
            *changed.pointer_mut(pointer).expect("it is there") = value;
            assert_ne!(status(full.clone()), status(changed), "{pointer}");
        }
        let mut same = full.clone();
        same["allocation"]["devices"]["results"][0]["tolerations"] = json!([]);
        same["allocation"]["devices"]["results"][0]["shareID"] = Value::Null;
        assert_eq!(status(full), status(same));
        assert_eq!(
            status(json!({"devices": null, "reservedFor": null})),
            status(Value::Null)
        );
        // An allocation of nothing is one all the same.
        assert_ne!(status(json!({"allocation": {}})), status(json!({})));
    }

    #[test]
    fn what_a_claim_says_of_its_holders_and_devices_is_read() {
        for (allocation, is_allocated) in [
            (Value::Null, false),
            (json!({}), true),
            (json!({"devices": {"results": [{"device": "a"}]}}), true),
        ] {
            let json = json!({"status": {
                "allocation": allocation,
                "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
            }});
            let claim: ResourceClaim = serde_json::from_value(json).expect("a claim");
            assert_eq!(claim.is_allocated(), is_allocated, "{allocation}");
            let holder = &claim.status.reserved_for[0];
            assert_eq!((holder.name.as_str(), holder.uid.as_str()), ("p", "u"));
        }
    }
}
