//! Devices of Dynamic Resource Allocation: the published devices of drivers, and the requests of claims.

use super::{chance, pick};
use fastrand::Rng;
use serde_json::{Value, json};
use std::fmt;

/// The driver of all devices.
pub const DEVICE_DRIVER: &str = "sim.example.com";
/// The class of whole devices. It backs [`EXTENDED`].
pub const CLASS_PLAIN: &str = "plain";
/// The class of partitions, which share counters.
pub const CLASS_PARTITION: &str = "partition";
/// The class of devices whose capacity several claims share.
pub const CLASS_SHARED: &str = "shared";
/// The classes of devices; the attribute `kind` of a device names its class.
pub const DEVICE_CLASSES: [&str; 3] = [CLASS_PLAIN, CLASS_PARTITION, CLASS_SHARED];
/// The extended resource that devices of [`CLASS_PLAIN`] back.
pub const EXTENDED: &str = "example.com/plain";
/// The key of the taint of devices.
pub const DEVICE_TAINT: &str = "example.com/broken";
/// The value of the memory counter, and the memory of a shared device.
pub const DEVICE_MEMORY: i64 = 40;
/// The pool whose devices all nodes can use.
pub const NETWORK_POOL: &str = "network";

/// The devices that a driver publishes in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverShape {
    /// A number of whole devices; two of them share a NUMA node. The first may be tainted.
    Plain(usize, bool),
    /// A device that can be allocated whole, or as two halves.
    Partitions,
    /// A device that is shared by memory.
    Shared,
}

impl DriverShape {
    /// Any devices.
    pub fn random(rng: &mut Rng) -> Self {
        match rng.u32(..10) {
            0..6 => Self::Plain(rng.usize(1..5), chance(rng, 25)),
            6..8 => Self::Partitions,
            _ => Self::Shared,
        }
    }

    /// The contents of the slices of a pool: devices and counters.
    pub fn build(self) -> Vec<Value> {
        let kind = |class: &str| json!({"string": class});
        match self {
            Self::Plain(count, is_tainted) => {
                let devices = (0..count).map(|n| {
                    let model = if n % 2 == 0 { "a" } else { "b" };
                    let mut device = json!({"name": format!("dev-{n}"), "attributes": {
                        "kind": kind(CLASS_PLAIN), "model": {"string": model}, "numa": {"int": n / 2}}});
                    if is_tainted && n == 0 {
                        device["taints"] =
                            json!([{"key": DEVICE_TAINT, "effect": "NoSchedule"}]);
                    }
                    device
                });
                vec![json!({"devices": devices.collect::<Vec<_>>()})]
            }
            Self::Partitions => {
                let partition = |name: &str, size: &str, memory: i64| {
                    let counters = json!({"memory": {"value": memory.to_string()}});
                    json!({
                        "name": name,
                        "attributes": {"kind": kind(CLASS_PARTITION), "size": {"string": size}},
                        "consumesCounters": [{"counterSet": "card", "counters": counters}],
                    })
                };
                let counters = json!({"memory": {"value": DEVICE_MEMORY.to_string()}});
                let half = DEVICE_MEMORY / 2;
                vec![
                    json!({"sharedCounters": [{"name": "card", "counters": counters}]}),
                    json!({"devices": [
                        partition("full", "full", DEVICE_MEMORY),
                        partition("half-0", "half", half),
                        partition("half-1", "half", half),
                    ]}),
                ]
            }
            Self::Shared => {
                let capacity = json!({"memory": {"value": DEVICE_MEMORY.to_string()}});
                vec![json!({"devices": [{
                    "name": "pot",
                    "attributes": {"kind": kind(CLASS_SHARED)},
                    "capacity": capacity,
                    "allowMultipleAllocations": true,
                }]})]
            }
        }
    }
}

impl fmt::Display for DriverShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(count, false) => write!(f, "{count} devices"),
            Self::Plain(count, true) => write!(f, "{count} devices, the first tainted"),
            Self::Partitions => f.write_str("a device in partitions"),
            Self::Shared => f.write_str("a device that claims share"),
        }
    }
}

/// The devices that a claim requests: an index, which is also the number in the name of its template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceWant(pub usize);

/// The devices that claims request, in words.
const WANTS: [&str; 10] = [
    "a device",
    "a device of model a",
    "two devices",
    "two devices of one NUMA node",
    "a device, tainted or not",
    "half a device",
    "a whole partitioned device",
    "10 of the memory of a shared device",
    "30 of the memory of a shared device",
    "two devices of model a, or else one",
];

impl DeviceWant {
    /// Any request.
    pub fn random(rng: &mut Rng) -> Self {
        Self(rng.usize(..WANTS.len()))
    }

    /// The name of the template.
    pub fn template(self) -> String {
        format!("t{}", self.0)
    }

    /// The request of the template of that name.
    pub fn of_template(name: &str) -> Option<Self> {
        let number = name.strip_prefix('t')?.parse().ok()?;
        (number < WANTS.len()).then_some(Self(number))
    }

    /// The spec of the claim.
    pub fn build(self) -> Value {
        let exactly = |class: &str, count: i64| json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": count});
        let selecting = |mut request: Value, attribute: &str, value: &str| {
            let expression =
                format!("device.attributes[{DEVICE_DRIVER:?}].{attribute} == {value:?}");
            request["selectors"] = json!([{"cel": {"expression": expression}}]);
            request
        };
        let with_memory = |amount: &str| {
            let mut request = exactly(CLASS_SHARED, 1);
            request["capacity"] = json!({"requests": {"memory": amount}});
            request
        };
        let request = match self.0 {
            1 => selecting(exactly(CLASS_PLAIN, 1), "model", "a"),
            2 | 3 => exactly(CLASS_PLAIN, 2),
            4 => {
                let mut request = exactly(CLASS_PLAIN, 1);
                request["tolerations"] = json!([{"key": DEVICE_TAINT, "operator": "Exists"}]);
                request
            }
            5 => selecting(exactly(CLASS_PARTITION, 1), "size", "half"),
            6 => selecting(exactly(CLASS_PARTITION, 1), "size", "full"),
            7 => with_memory("10"),
            8 => with_memory("30"),
            9 => {
                let mut two = selecting(exactly(CLASS_PLAIN, 2), "model", "a");
                two["name"] = json!("two");
                let mut one = exactly(CLASS_PLAIN, 1);
                one["name"] = json!("one");
                return json!({"devices": {"requests": [{"name": "r", "firstAvailable": [two, one]}]}});
            }
            _ => exactly(CLASS_PLAIN, 1),
        };
        let mut devices = json!({"requests": [{"name": "r", "exactly": request}]});
        if self.0 == 3 {
            devices["constraints"] = json!([{"matchAttribute": format!("{DEVICE_DRIVER}/numa")}]);
        }
        json!({"devices": devices})
    }
}

impl fmt::Display for DeviceWant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WANTS.get(self.0).copied().unwrap_or(WANTS[0]))
    }
}

/// The source of a pod's devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceUse {
    /// The claim with that number.
    Claim(usize),
    /// A claim of its own, created from a template.
    Template(DeviceWant),
    /// A number of devices as an extended resource.
    Extended(i64),
}

impl DeviceUse {
    /// A random use. `claims` is the number of possible claims; a pod of another namespace has none of them.
    pub fn random(rng: &mut Rng, claims: usize, has_claims: bool) -> Self {
        match rng.u32(..10) {
            0..4 if has_claims => Self::Claim(rng.usize(..=claims)),
            0..8 => Self::Template(DeviceWant::random(rng)),
            _ => Self::Extended(pick(rng, &[1, 1, 2]).unwrap_or(1)),
        }
    }
}

impl fmt::Display for DeviceUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(number) => write!(f, "resource claim {}", device_claim_name(*number)),
            Self::Template(want) => write!(f, "a claim for {want}"),
            Self::Extended(count) => write!(f, "{count} {EXTENDED}"),
        }
    }
}

/// The name of a resource claim.
pub(crate) fn device_claim_name(number: usize) -> String {
    format!("r{number}")
}

/// The class of that name.
pub(crate) fn device_class(name: &str) -> Value {
    let expression = format!("device.attributes[{DEVICE_DRIVER:?}].kind == {name:?}");
    let mut class = json!({
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    });
    if name == CLASS_PLAIN {
        class["spec"]["extendedResourceName"] = json!(EXTENDED);
    }
    class
}
