//! The GPUs of nodes as [`IndexedDevices`], and the resources of a node that the policies compare.
//!
//! ```text
//! node  status.allocatable alibabacloud.com/gpu-milli: 4000   four GPUs of 1,000 milli each
//! pod   requests           alibabacloud.com/gpu-milli: 300    three tenths of one GPU, which it shares
//! pod   requests           alibabacloud.com/gpu-milli: 2000   two GPUs, which it has alone
//! pod   label              alibabacloud.com/gpu-index: "0-3"  its GPUs, once it has a node
//! ```

use berth_api::{Kind, Pod};
use berth_framework::assignment::devices::{FreeUnits, IndexedDevices, UnitRequest};
use berth_framework::write::CallType;
use berth_framework::{NodeView, PodInfo};

pub use berth_simulation::import::{GPU_MILLI, GPU_MODEL};

/// The label of a pod with the indices of its GPUs, separated by hyphens.
pub const GPUS: &str = "alibabacloud.com/gpu-index";
/// A whole GPU in milli.
pub const WHOLE: u32 = 1_000;

/// The write of the label. The scheduler's own calls about pods have the relevances 1 to 3.
static POD_GPUS: CallType = CallType::new("pod_gpus", Kind::Pod).with_relevance(4);

/// The GPUs of nodes.
pub const DEVICES: IndexedDevices = IndexedDevices {
    resource: GPU_MILLI,
    units: WHOLE as i64,
    label: GPUS,
    call: &POD_GPUS,
    too_few: "node(s) had too few free GPUs",
};

/// The GPUs that a pod requests, in milli.
pub fn requested_milli(pod: &Pod) -> u64 {
    let requests = pod.spec.containers.first().map(|c| &c.resources.requests);
    let milli = requests.and_then(|requests| requests.get(GPU_MILLI));
    milli.map_or(0, |milli| u64::try_from(milli.value()).unwrap_or(0))
}

/// The request of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Demand {
    /// CPU in milli-CPU.
    pub milli_cpu: i64,
    /// The GPUs, in milli.
    pub gpus: UnitRequest,
}

impl Demand {
    /// The demand of a pod that requests these GPUs.
    pub fn of(pod: &PodInfo, gpus: UnitRequest) -> Self {
        let milli_cpu = pod.requests.milli_cpu;
        Self { milli_cpu, gpus }
    }
}

/// The free resources of a node.
#[derive(Debug, Clone)]
pub struct Room<'n> {
    /// Free CPU in milli-CPU.
    pub milli_cpu: i64,
    /// The free milli of each GPU.
    pub free: FreeUnits,
    /// The model of the GPUs; empty if the node does not state it.
    pub model: &'n str,
}

impl<'n> Room<'n> {
    /// The room of a node.
    pub fn new(milli_cpu: i64, free: &[i64], model: &'n str) -> Self {
        Self {
            milli_cpu,
            free: free.into(),
            model,
        }
    }

    /// The room of a node with these free GPUs.
    pub fn of(node: NodeView<'n>, free: &[i64]) -> Self {
        let milli_cpu = node.allocatable_of("cpu") - node.requested_of("cpu");
        let model = node.labels().get(GPU_MODEL).unwrap_or_default();
        Self::new(milli_cpu, free, model)
    }

    /// The remaining room when a pod has these GPUs; `None` if it cannot have them.
    pub fn after(&self, demand: &Demand, gpus: &[usize]) -> Option<Self> {
        Some(Self {
            milli_cpu: self.milli_cpu - demand.milli_cpu,
            free: demand.gpus.taken(&self.free, gpus)?,
            model: self.model,
        })
    }
}
