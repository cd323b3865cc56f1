//! Devices (Dynamic Resource Allocation, `resource.k8s.io/v1`): the claims of pods, the classes of devices, and the
//! slices in which drivers publish them.

mod claim;
mod class;
mod slice;

pub use claim::*;
pub use class::{DeviceClass, DeviceClassSpec};
pub use slice::*;

use crate::RawJson;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::hash::{BuildHasher, Hash};

/// A hash of 64 bits of a part of an object that is only compared. Equal parts have equal digests; different parts have
/// different ones unless the hashes collide. Absent, null, an empty list and an empty object have the same digest, and
/// the order of an object's fields makes no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Digest(u64);

impl Digest {
    /// The digest of this value.
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

/// Never zero, because zero is the digest of an absent value.
fn hash(of: impl Hash) -> u64 {
    rustc_hash::FxBuildHasher.hash_one(of).max(1)
}

/// The field that contains a digest instead of the value.
const DIGEST_FIELD: &str = "berth.digest";

/// The value behind a digest is not kept. The serialized form is `null` for an absent value, otherwise an object with
/// only the digest, which decodes as the same digest.
impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self(0) => serializer.serialize_unit(),
            Self(digest) => serializer.collect_map([(DIGEST_FIELD, digest)]),
        }
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::decoded(&Value::deserialize(deserializer)?))
    }
}

impl Digest {
    /// The digest that a value is, or else its digest.
    fn decoded(value: &Value) -> Self {
        let encoded = value.as_object().filter(|fields| fields.len() == 1);
        let encoded = encoded.and_then(|fields| fields.get(DIGEST_FIELD)?.as_u64());
        encoded.map_or_else(|| Self::of(value), Self)
    }

    /// The digest of JSON that only drivers read. API servers store every text without looking at it: one that is nested
    /// too deep to be read, or is no JSON, is compared as text.
    fn of_raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = RawJson::deserialize(deserializer)?;
        let value = serde_json::from_str(raw.as_str());
        Ok(value.map_or_else(|_| Self(hash((5, &raw))), |value| Self::decoded(&value)))
    }
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

    /// Q-52: two statuses are equal if and only if every field is equal, whether Berth reads it or not.
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
        // An empty allocation is still an allocation.
        assert_ne!(status(json!({"allocation": {}})), status(json!({})));
    }

    /// Q-87a: data of a driver are no JSON, or are nested deeper than is read.
    #[test]
    fn data_of_any_form_are_compared() {
        let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let digest = |data: &str| {
            let json = format!(r#"{{"status":{{"devices":[{{"device":"d","data":{data}}}]}}}}"#);
            let claim: ResourceClaim = serde_json::from_str(&json).expect("a claim");
            claim.status.devices[0].data
        };
        assert_eq!(digest(&deep(5_000)), digest(&deep(5_000)));
        assert_ne!(digest(&deep(5_000)), digest(&deep(4_999)));
        assert_ne!(digest(&deep(5_000)), Digest::default());
        assert_eq!(digest("null"), Digest::default());
        assert_eq!(digest(r#"{"a":1,"b":2}"#), digest(r#"{"b":2,"a":1}"#));
    }

    #[test]
    fn what_a_claim_states_of_its_holders_and_devices_is_read() {
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
