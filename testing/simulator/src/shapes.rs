//! The objects of the simulated world: small descriptions that can be drawn at random, printed in one line and built as
//! objects.

mod devices;
mod group;
mod node;
mod others;
mod pod;
mod quota;

pub use devices::{
    CLASS_PARTITION, CLASS_PLAIN, CLASS_SHARED, DEVICE_CLASSES, DEVICE_DRIVER, DEVICE_MEMORY,
    DEVICE_TAINT, DeviceUse, DeviceWant, DriverShape, EXTENDED, NETWORK_POOL,
};
pub use group::{GROUPS, GroupShape, group_name, group_priority, may_preempt};
pub use node::{NodeChange, NodeShape};
pub use others::{Access, Budget, ClaimShape, Reach};
pub use pod::{Domain, Near, PodShape, Slow, Spread, ZoneRule, tolerate};
pub use quota::{DEFERRED_QUOTA, QUOTAS, QuotaShape, quota_name, quota_namespace};

pub(crate) use devices::{device_claim_name, device_class};
pub(crate) use others::{
    bind_claim, claim_name, namespace, reachable_from, storage_class, volume_name,
};

use berth_api::Quantity;
use berth_api::quantity::QuantityFormat;
use fastrand::Rng;

/// The label of a node's host name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The label of a node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The label by which pods select each other.
pub const APP: &str = "app";
/// The label by which namespaces are distinguished.
pub const TEAM: &str = "team";
/// While a pod has this label, a PreEnqueue plugin of the simulator rejects it; the value is the reason.
pub const HOLD: &str = "example.com/hold";
/// While a namespace has this label, another plugin rejects the pods of one application; the value is the reason.
pub const CLOSED: &str = "example.com/closed";
/// The application that closed namespaces reject.
pub const SHUT_OUT: &str = "blue";
/// The label that slows down the placement of the pod; see [`Slow`].
pub const SLOW: &str = "example.com/slow";
/// An extended resource.
pub const GPU: &str = "example.com/gpu";
/// The driver of every volume.
pub const DRIVER: &str = "csi.example.com";
/// The class of claims that are bound to an existing volume when their node is chosen.
pub const CLASS_LATE: &str = "late";
/// The class of claims whose volume is created after their node is chosen.
pub const CLASS_MADE: &str = "made";
/// The schedulers that pods name: two profiles of the judged scheduler, and an absent scheduler.
pub const SCHEDULERS: [&str; 3] = ["default-scheduler", "second-scheduler", "absent-scheduler"];
/// The namespaces. Names of pods are unique across them.
pub const NAMESPACES: [&str; 2] = ["default", "guest"];

const ZONES: [&str; 3] = ["a", "b", "c"];
const APPS: [&str; 3] = ["red", "green", "blue"];
const TEAMS: [&str; 2] = ["x", "y"];
const TAINTS: [&str; 2] = ["dedicated", "maintenance"];
const ADDRESSES: [&str; 3] = ["", "10.0.0.1", "10.0.0.2"];
const REASONS: [&str; 3] = ["budget", "data", "review"];

/// The message for a held pod.
pub fn hold_text(reason: &str) -> String {
    format!("the pod is held until its label {HOLD}={reason} is taken off")
}

/// The message for the pods that a closed namespace rejects.
pub fn closed_text(namespace: &str, reason: &str) -> String {
    format!("namespace {namespace} is closed to app {SHUT_OUT} ({reason})")
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> Option<T> {
    (!of.is_empty()).then(|| of[rng.usize(..of.len())])
}

/// True `percent` times in a hundred.
pub(crate) fn chance(rng: &mut Rng, percent: u32) -> bool {
    rng.u32(..100) < percent
}

fn bytes(mebibytes: i64) -> Quantity {
    Quantity::from_value(mebibytes * 1024 * 1024, QuantityFormat::BinarySI)
}

fn count(n: i64) -> Quantity {
    Quantity::from_value(n, QuantityFormat::DecimalSI)
}

/// Another label by which pods may be selected.
pub(crate) fn random_app(rng: &mut Rng) -> &'static str {
    APPS[rng.usize(..APPS.len())]
}

/// A taint that nodes may have.
pub(crate) fn random_taint(rng: &mut Rng) -> &'static str {
    TAINTS[rng.usize(..TAINTS.len())]
}

/// A zone.
pub(crate) fn random_zone(rng: &mut Rng) -> &'static str {
    ZONES[rng.usize(..ZONES.len())]
}

/// The reason for the rejection of a pod or by a namespace.
pub(crate) fn random_reason(rng: &mut Rng) -> &'static str {
    REASONS[rng.usize(..REASONS.len())]
}

/// A team that a namespace may belong to.
pub(crate) fn random_team(rng: &mut Rng) -> &'static str {
    TEAMS[rng.usize(..TEAMS.len())]
}
