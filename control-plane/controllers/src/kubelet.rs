//! Simulated nodes and the kubelets that run pods on them: without containers, but with the complete API of pods and
//! nodes.
//!
//! A simulated node is a Node with the label [`SIMULATED`](berth_objects::well_known::SIMULATED)` = "true"`. [`spawn`]
//! creates some, named `berth-node-1`, `berth-node-2`, … (not zero-padded); a node of a user with that label is
//! simulated, too, and other nodes are not changed. All kubelets together are two tasks: one renews leases and node
//! conditions, on a separate thread; one processes the pods. Each of thousands of nodes costs one timer.
//!
//! A pod that is bound to a simulated node starts (`ContainerCreating`), runs, becomes ready, ends if its annotations
//! state so, and stops gracefully when it is deleted. Annotations of the pod set the durations, in seconds with
//! decimals:
//!
//! | annotation | meaning | default |
//! |---|---|---|
//! | `berth.dev/startup-seconds` | from bound to running | 0.5 |
//! | `berth.dev/ready-seconds` | from running to ready | 0 |
//! | `berth.dev/run-seconds` | from running to the containers' end | as their commands state, else 1 for pods of Jobs, for ever for others |
//! | `berth.dev/exit-code` | what the containers end with | as their commands state, else 0; of a stopped pod 143, or 137 after the grace period |
//! | `berth.dev/image-pull` | with `fail`, the images of the pod cannot be pulled | they can |
//! | `berth.dev/stop-seconds` | from deletion to the end, never longer than the grace period | 0.5 |
//!
//! The phase after the end of the containers is decided by the pod's `restartPolicy`: Succeeded, Failed, or a restart
//! with backoff. Readiness gates and `activeDeadlineSeconds` count as on a real node.
//!
//! An annotation of the node controls its kubelet: `berth.dev/node-ready: "False"` reports the node as not ready;
//! `"Unknown"` stops all reports, so that the lease expires and the pods are not updated. With `berth.dev/reject-pods:
//! "OutOfcpu=3"`, the kubelet rejects the next three pods.

mod admission;
mod annotations;
mod command;
mod container;
mod devices;
mod events;
mod heartbeat;
mod node;
mod pods;
mod refusal;
mod resize;
mod status;
mod steps;

pub use self::devices::{DEVICES_MAX, DRIVER};
pub use self::node::SimulatedNodeShape;
pub use crate::Handle;

use self::heartbeat::Heartbeats;
use self::pods::KubeletPods;
use crate::WallClock;
use berth_objects::access::{Access, AccessError, GroupResource, StoredObject};
use berth_objects::object::{NAMESPACE, NODE, annotation_number};
use berth_objects::{access, object};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The node annotation that states how its kubelet is: `True` (the default), `False` or `Unknown`.
pub const NODE_READY: &str = "berth.dev/node-ready";
/// The node annotation that makes its kubelet reject new pods: `REASON` for all, or `REASON=NUMBER` for that many.
pub const REJECT_PODS: &str = "berth.dev/reject-pods";
/// The pod annotation for the seconds from bound to running.
pub const STARTUP_SECONDS: &str = "berth.dev/startup-seconds";
/// The pod annotation for the seconds from running to ready.
pub const READY_SECONDS: &str = "berth.dev/ready-seconds";
/// The pod annotation for the seconds from running to the containers' end.
pub const RUN_SECONDS: &str = "berth.dev/run-seconds";
/// The pod annotation for the exit code of the containers.
pub const EXIT_CODE: &str = "berth.dev/exit-code";
/// The pod annotation for whether images can be pulled: `fail` if not.
pub const IMAGE_PULL: &str = "berth.dev/image-pull";
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

/// The annotation of a node of [`KubeletOptions::given`]: the number of GPUs that a driver publishes for it.
pub const GPUS: &str = "berth.dev/gpus";
/// More simulated nodes than any known use needs.
pub const NODES_MAX: usize = 1_000_000;

/// The place where kubelets keep their leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// The number of attempts to write a new node when controllers write it at the same time.
const UNTAINT_ATTEMPTS: usize = 10;
/// After how many new nodes other tasks have their turn.
const NODES_PER_TURN: usize = 64;

/// Receives the number of nodes as they are created.
pub type NodeProgress = Arc<dyn Fn(usize) + Send + Sync>;

/// The nodes to make and the behaviour of their kubelets.
#[derive(Clone)]
pub struct KubeletOptions {
    /// The number of nodes that to make.
    pub nodes: usize,
    /// Further nodes to create, unchanged; their kubelets add missing fields.
    pub given: Vec<Value>,
    /// The text before the number in a node's name.
    pub name_prefix: String,
    /// The shape of each node.
    pub shape: SimulatedNodeShape,
    /// The number of GPUs that a driver publishes for each node in ResourceSlices, at most [`DEVICES_MAX`].
    pub devices: u32,
    /// The time that a pod takes from bound to running, unless its annotation states otherwise.
    pub startup: Duration,
    /// The default run time of the containers of a Job's pod, without an annotation; `None` is unlimited.
    pub job_run: Option<Duration>,
    /// The time that a deleted pod takes to end, unless its annotation states otherwise.
    pub stop: Duration,
    /// The interval at which a kubelet renews its lease. Upstream: 10 s.
    pub lease_renewal: Duration,
    /// Whether kubelets record events of pods (Pulled, Created, Started, Killing).
    pub events: bool,
    /// The time that is written into objects.
    pub clock: WallClock,
    /// Receives the number of nodes as they are created.
    pub progress: Option<NodeProgress>,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        Self {
            nodes: 0,
            given: Vec::new(),
            name_prefix: "berth-node-".to_owned(),
            shape: SimulatedNodeShape::default(),
            devices: 0,
            startup: Duration::from_millis(500),
            job_run: Some(Duration::from_secs(1)),
            stop: Duration::from_millis(500),
            lease_renewal: Duration::from_secs(10),
            events: true,
            clock: WallClock::system(),
            progress: None,
        }
    }
}

impl fmt::Debug for KubeletOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("nodes", &self.nodes)
            .field("given", &self.given.len())
            .field("name_prefix", &self.name_prefix)
            .field("shape", &self.shape)
            .field("devices", &self.devices)
            .field("startup", &self.startup)
            .field("job_run", &self.job_run)
            .field("stop", &self.stop)
            .field("lease_renewal", &self.lease_renewal)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// The reason why the simulated nodes could not be made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KubeletError {
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
        /// The error of the API.
        source: AccessError,
    },
    /// A node cannot be made.
    #[error("node {name} cannot be created: {source}")]
    Node {
        /// The name of the node.
        name: String,
        /// The error of the API.
        source: AccessError,
    },
}

/// Makes the nodes and starts their kubelets. Nodes that exist already are kept as they are.
///
/// # Errors
/// When a node or the namespace of the leases is refused.
pub async fn spawn(api: Arc<dyn Access>, options: KubeletOptions) -> Result<Handle, KubeletError> {
    let namespace = NAMESPACE.object(json!({"metadata": {"name": LEASE_NAMESPACE},
    }));
    exists(api.create(NAMESPACE.resource, namespace)).map_err(KubeletError::LeaseNamespace)?;
    let numbered = (1..=options.nodes).map(|index| {
        let name = format!("{}{index}", options.name_prefix);
        let node = options.shape.node(&name, index, options.clock.now());
        (node, options.devices.min(DEVICES_MAX))
    });
    let given = options.given.iter().map(|node| given(node, &options));
    let mut has_class = false;
    for (index, (node, devices)) in numbered.chain(given).enumerate() {
        if devices > 0 && !has_class {
            exists(api.create(DEVICE_CLASS, devices::class()))
                .map_err(KubeletError::DeviceClass)?;
            has_class = true;
        }
        make(&*api, node, devices)?;
        if let Some(progress) = &options.progress {
            progress(index + 1);
        }
        if (index + 1).is_multiple_of(NODES_PER_TURN) {
            tokio::task::yield_now().await;
        }
    }
    let clock = options.clock.clone();
    let mut handle = Handle::new();
    // However busy the process is, the heartbeats are on time.
    handle.start_apart(Heartbeats::new(&options), api.clone(), clock.clone());
    handle.start(KubeletPods::new(&options), api, clock);
    Ok(handle)
}

/// A node of a user, ready to be created, and the number of its devices.
fn given(node: &Value, options: &KubeletOptions) -> (Value, u32) {
    let devices = annotation_number(node, GPUS).unwrap_or(options.devices);
    let node = options.shape.given(node.clone(), options.clock.now());
    (node, devices.min(DEVICES_MAX))
}

/// Creates a node with its devices. Its kubelet is ready at once, so the taint of a new node is taken away.
fn make(api: &dyn Access, node: Value, devices: u32) -> Result<(), KubeletError> {
    let name = object::name(&node).to_owned();
    let failed = |source| KubeletError::Node {
        name: name.clone(),
        source,
    };
    let node = match api.create(NODE.resource, node) {
        Ok(node) => node,
        Err(error) if error.reason == "AlreadyExists" => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    untaint(api, &node).map_err(failed)?;
    if devices == 0 {
        return Ok(());
    }
    let slice = devices::slice(&node, devices);
    exists(api.create(RESOURCE_SLICE, slice))
        .map_err(|source| KubeletError::Devices { name, source })
}

/// Removes the initial taint of a node. Controllers change new nodes at the same time.
fn untaint(api: &dyn Access, node: &StoredObject) -> Result<(), AccessError> {
    let mut node = Arc::clone(node);
    for _ in 0..UNTAINT_ATTEMPTS {
        let Some(untainted) = node::without_not_ready(&node) else {
            return Ok(());
        };
        match api.update(NODE.resource, untainted) {
            Err(error) if error.is_conflict() => {
                node = api.get(NODE.resource, "", object::name(&node))?;
            }
            other => return access::unless_not_found(other),
        }
    }
    // The node lifecycle controller takes it away when it finds the node ready.
    Ok(())
}

fn exists<T>(result: Result<T, AccessError>) -> Result<(), AccessError> {
    match result {
        Err(error) if error.reason != "AlreadyExists" => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
