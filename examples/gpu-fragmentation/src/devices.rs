//! The GPUs of nodes, and which of them pods have.
//!
//! ```text
//! node  status.allocatable alibabacloud.com/gpu-milli: 4000   four GPUs of 1,000 milli each
//! pod   requests           alibabacloud.com/gpu-milli: 300    three tenths of one GPU, which it shares
//! pod   requests           alibabacloud.com/gpu-milli: 2000   two GPUs, which it has alone
//! pod   label              alibabacloud.com/gpu-index: "0-3"  its GPUs, once it has a node
//! ```
//!
//! The label is the only record. Reserve chooses the GPUs and shows the pod with the label from then on, and PreBind
//! writes the label. So a scheduler that restarts, or a second one, finds every allocation in the pods.

use berth_api::{Pod, Str};
use berth_framework::{NodeView, PodInfo, Status};

pub use berth_simulation::import::{GPU_MILLI, GPU_MODEL};

/// The label of a pod with the indices of its GPUs, separated by hyphens.
pub const GPUS: &str = "alibabacloud.com/gpu-index";
/// A whole GPU in milli.
pub const WHOLE: u32 = 1_000;
/// The largest number of GPUs of a node. Further GPUs of a node are not used.
pub const GPUS_MAX: usize = 16;

/// The request of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Demand {
    /// CPU in milli-CPU.
    pub milli_cpu: i64,
    /// The milli of each GPU, up to [`WHOLE`]; zero for a pod without GPUs.
    pub milli: u32,
    /// The number of GPUs. More than one are whole.
    pub count: u32,
}

impl Demand {
    /// The demand of a pod.
    ///
    /// # Errors
    /// The pod requests more than one GPU, but no whole number of them.
    pub fn of(pod: &PodInfo) -> Result<Self, Status> {
        let milli_cpu = pod.requests.milli_cpu;
        let requested = u32::try_from(pod.requests.scalar(GPU_MILLI)).unwrap_or(u32::MAX);
        let (milli, count) = match requested {
            0 => (0, 0),
            part if part < WHOLE => (part, 1),
            whole if whole.is_multiple_of(WHOLE) => (WHOLE, whole / WHOLE),
            _ => {
                return Err(Status::unresolvable(
                    "the request of alibabacloud.com/gpu-milli must be below 1000 or a multiple of it",
                ));
            }
        };
        Ok(Self {
            milli_cpu,
            milli,
            count,
        })
    }

    /// Returns whether the pod shares its GPU.
    pub fn is_shared(&self) -> bool {
        self.count == 1 && self.milli < WHOLE
    }
}

/// The free resources of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Room<'n> {
    /// Free CPU in milli-CPU.
    pub milli_cpu: i64,
    free: [u32; GPUS_MAX],
    gpus: usize,
    /// The model of the GPUs; empty if the node does not state it.
    pub model: &'n str,
}

impl<'n> Room<'n> {
    /// The room of a node that has nothing else.
    pub fn new(milli_cpu: i64, free: &[u32], model: &'n str) -> Self {
        let gpus = free.len().min(GPUS_MAX);
        let mut room = Self {
            milli_cpu,
            free: [0; GPUS_MAX],
            gpus,
            model,
        };
        room.free[..gpus].copy_from_slice(&free[..gpus]);
        room
    }

    /// The room of a node for `pod`, which does not count itself if it is there already.
    pub fn of(node: NodeView<'n>, pod: Option<&Pod>) -> Self {
        let milli = u64::try_from(node.allocatable_of(GPU_MILLI)).unwrap_or(0) / u64::from(WHOLE);
        let gpus = usize::try_from(milli).unwrap_or(0).min(GPUS_MAX);
        let milli_cpu = node.allocatable_of("cpu") - node.requested_of("cpu");
        let model = node.labels().get(GPU_MODEL).unwrap_or_default();
        let mut room = Self::new(milli_cpu, &[WHOLE; GPUS_MAX][..gpus], model);
        for on_node in node.pods() {
            if pod.is_some_and(|pod| pod.uid() == on_node.pod.uid()) {
                room.milli_cpu += on_node.requests.milli_cpu;
                continue;
            }
            let Ok(demand) = Demand::of(on_node) else {
                continue;
            };
            for gpu in indices(&on_node.pod) {
                if let Some(free) = room.free[..gpus].get_mut(gpu) {
                    *free = free.saturating_sub(demand.milli);
                }
            }
        }
        room
    }

    /// The free milli of each GPU.
    pub fn free(&self) -> &[u32] {
        &self.free[..self.gpus]
    }

    /// The sum of the free milli.
    pub fn free_in_all(&self) -> u32 {
        self.free().iter().sum()
    }

    /// The GPUs that have the milli of the demand free.
    pub fn fitting(&self, demand: &Demand) -> impl Iterator<Item = usize> {
        let free = self.free().iter().enumerate();
        let milli = demand.milli;
        free.filter(move |(_, free)| **free >= milli)
            .map(|(gpu, _)| gpu)
    }

    /// Returns whether the GPUs that the demand needs are free.
    pub fn fits(&self, demand: &Demand) -> bool {
        demand.count == 0 || self.fitting(demand).count() >= demand.count as usize
    }

    /// The room that is left when a pod has taken these GPUs.
    #[must_use]
    pub fn without(&self, demand: &Demand, gpus: impl IntoIterator<Item = usize>) -> Self {
        let mut room = self.clone();
        room.milli_cpu -= demand.milli_cpu;
        for gpu in gpus {
            room.free[gpu] -= demand.milli;
        }
        room
    }
}

/// The GPUs that a pod has, by its label.
pub fn indices(pod: &Pod) -> impl Iterator<Item = usize> {
    let label = pod.labels().get(GPUS).unwrap_or_default();
    label.split('-').filter_map(|index| index.parse().ok())
}

/// The value of the label for these GPUs.
pub fn label(gpus: &[usize]) -> Str {
    let indices: Vec<String> = gpus.iter().map(usize::to_string).collect();
    indices.join("-").into()
}
