//! Simulated nodes and the kubelets that run pods on them: without containers, with everything that the API shows.
//!
//! A simulated node is a Node with the label [`SIMULATED`]` = "true"`. [`spawn`] makes some, named
//! `berth-node-1`, `berth-node-2`, … (not zero-padded); a node that a user creates with that label is served too,
//! any other node is left alone. All kubelets together are two tasks: one keeps leases and node conditions fresh,
//! one carries pods through their lives. Thousands of nodes cost a timer each.
//!
//! A pod that is bound to a simulated node starts (`ContainerCreating`), runs, becomes ready, ends if its annotations
//! say so, and stops gracefully when it is deleted. Annotations of the pod say how long things take, in seconds with
//! decimals:
//!
//! | annotation | meaning | default |
//! |---|---|---|
//! | `berth.dev/startup-seconds` | from bound to running | 0.5 |
//! | `berth.dev/ready-seconds` | from running to ready | 0 |
//! | `berth.dev/run-seconds` | from running to the containers' end | for ever |
//! | `berth.dev/exit-code` | what the containers end with | 0 |
//! | `berth.dev/stop-seconds` | from deletion to the end, never longer than the grace period | 0.5 |
//!
//! What follows the containers' end is the pod's `restartPolicy`: Succeeded, Failed, or a restart with backoff.
//! Readiness gates and `activeDeadlineSeconds` count as on a real node.
//!
//! An annotation of the node says how its kubelet is: `berth.dev/node-ready: "False"` reports the node as not
//! ready; `"Unknown"` makes the kubelet fall silent, so that its lease goes stale and its pods are on their own.

mod admission;
mod devices;
mod heartbeat;
mod node;
mod pods;
mod resize;
mod status;

pub use self::devices::{DEVICES_MAX, DRIVER};
pub use self::node::Shape;
pub use crate::controllers::Handle;

use self::heartbeat::Heartbeats;
use self::pods::Pods;
use crate::access::{Access, AccessError, GroupResource};
use crate::controllers::Clock;
use crate::controllers::object::{NAMESPACE, NODE};
use serde_json::json;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The label that makes a node a simulated one, with the value `true`.
pub const SIMULATED: &str = "berth.dev/simulated";
/// The node annotation that says how its kubelet is: `True` (the default), `False` or `Unknown`.
pub const NODE_READY: &str = "berth.dev/node-ready";
/// The pod annotation for the seconds from bound to running.
pub const STARTUP_SECONDS: &str = "berth.dev/startup-seconds";
/// The pod annotation for the seconds from running to ready.
pub const READY_SECONDS: &str = "berth.dev/ready-seconds";
/// The pod annotation for the seconds from running to the containers' end.
pub const RUN_SECONDS: &str = "berth.dev/run-seconds";
/// The pod annotation for the exit code of the containers.
pub const EXIT_CODE: &str = "berth.dev/exit-code";
/// The pod annotation for the seconds from deletion to the end.
pub const STOP_SECONDS: &str = "berth.dev/stop-seconds";

const DEVICE_CLASS: GroupResource = GroupResource {
    group: "resource.k8s.io",
    resource: "deviceclasses",
};
const RESOURCE_SLICE: GroupResource = GroupResource {
    group: "resource.k8s.io",
    resource: "resourceslices",
};

/// Where kubelets keep their leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// After how many new nodes other tasks have their turn.
const NODES_PER_TURN: usize = 64;

/// Receives the number of nodes as they are created.
pub type Progress = Arc<dyn Fn(usize) + Send + Sync>;

/// Which nodes to make and how their kubelets behave.
#[derive(Clone)]
pub struct Options {
    /// How many nodes to make.
    pub nodes: usize,
    /// What stands before the number in a node's name.
    pub name_prefix: String,
    /// What each node has.
    pub shape: Shape,
    /// How many GPUs a driver publishes for each node in ResourceSlices, at most [`DEVICES_MAX`].
    pub devices: u32,
    /// How long a pod takes from bound to running, unless its annotation says otherwise.
    pub startup: Duration,
    /// How long a deleted pod takes to end, unless its annotation says otherwise.
    pub stop: Duration,
    /// How often a kubelet renews its lease. Upstream: every 10 s.
    pub lease_renewal: Duration,
    /// Whether kubelets record events of pods (Pulled, Created, Started, Killing).
    pub events: bool,
    /// The time that is written into objects.
    pub clock: Clock,
    /// Receives the number of nodes as they are created.
    pub progress: Option<Progress>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 0,
            name_prefix: "berth-node-".to_owned(),
            shape: Shape::default(),
            devices: 0,
            startup: Duration::from_millis(500),
            stop: Duration::from_millis(500),
            lease_renewal: Duration::from_secs(10),
            events: true,
            clock: Clock::system(),
            progress: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("nodes", &self.nodes)
            .field("name_prefix", &self.name_prefix)
            .field("shape", &self.shape)
            .field("devices", &self.devices)
            .field("startup", &self.startup)
            .field("stop", &self.stop)
            .field("lease_renewal", &self.lease_renewal)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// Why the simulated nodes could not be made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The namespace of the leases is missing and cannot be made.
    #[error("namespace {LEASE_NAMESPACE}, where nodes keep their leases, cannot be created: {0}")]
    LeaseNamespace(AccessError),
    /// The class of the devices cannot be made.
    #[error("device class {DRIVER} cannot be created: {0}")]
    DeviceClass(AccessError),
    /// The devices of a node cannot be published.
    #[error("the resource slice of node {name} cannot be created: {source}")]
    Devices {
        /// The name of the node.
        name: String,
        /// What the API said.
        source: AccessError,
    },
    /// A node cannot be made.
    #[error("node {name} cannot be created: {source}")]
    Node {
        /// The name of the node.
        name: String,
        /// What the API said.
        source: AccessError,
    },
}

/// Makes the nodes and starts their kubelets. Nodes that exist already are kept as they are.
///
/// # Errors
/// When a node or the namespace of the leases is refused.
pub async fn spawn(api: Arc<dyn Access>, options: Options) -> Result<Handle, Error> {
    let namespace = NAMESPACE.object(json!({"metadata": {"name": LEASE_NAMESPACE},
    }));
    exists(api.create(NAMESPACE.resource, namespace)).map_err(Error::LeaseNamespace)?;
    let device_count = options.devices.min(DEVICES_MAX);
    if device_count > 0 {
        exists(api.create(DEVICE_CLASS, devices::class())).map_err(Error::DeviceClass)?;
    }
    for index in 1..=options.nodes {
        let name = format!("{}{index}", options.name_prefix);
        let node = options.shape.node(&name, index, options.clock.now());
        match api.create(NODE.resource, node) {
            Ok(node) if device_count > 0 => {
                let slice = devices::slice(&node, device_count);
                exists(api.create(RESOURCE_SLICE, slice))
                    .map_err(|source| Error::Devices { name, source })?;
            }
            result => exists(result).map_err(|source| Error::Node { name, source })?,
        }
        if let Some(progress) = &options.progress {
            progress(index);
        }
        if index.is_multiple_of(NODES_PER_TURN) {
            tokio::task::yield_now().await;
        }
    }
    let clock = options.clock.clone();
    let mut handle = Handle::new();
    handle.start(Heartbeats::new(&options), api.clone(), clock.clone());
    handle.start(Pods::new(&options), api, clock);
    Ok(handle)
}

fn exists<T>(result: Result<T, AccessError>) -> Result<(), AccessError> {
    match result {
        Err(error) if error.reason != "AlreadyExists" => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
