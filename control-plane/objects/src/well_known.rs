//! Names of labels, taints and finalizers that several parts of the control plane read and write.

use crate::object::{annotation, labels};
use serde_json::Value;

/// The finalizer of claims that may be in use.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// The finalizer of volumes that may be in use.
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// The taint of nodes that are not ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The label of simulated nodes, with the value `true`.
pub const SIMULATED: &str = "berth.dev/simulated";
/// The annotation of nodes with a kubelet simulated by kwok, with the value `fake`.
const OF_KWOK: &str = "kwok.x-k8s.io/node";

/// Returns whether a simulated kubelet is responsible for this node.
pub fn is_simulated(node: &Value) -> bool {
    labels(node).is_some_and(|l| l.get(SIMULATED).is_some_and(|v| v == "true"))
        || annotation(node, OF_KWOK) == Some("fake")
}
