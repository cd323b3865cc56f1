//! Random: each node that fits has the same chance, and each GPU that suffices.

use crate::devices::DEVICES;
use berth_api::Pod;
use berth_framework::assignment::devices::{DeviceChoice, IndexedDevices, UnitRequest};
use berth_framework::plugin::Context;
use berth_framework::requirement::NodeScore;
use berth_framework::{NodeTable, NodeView, PodInfo, Slot, Status};
use serde::Deserialize;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RandomArgs {
    /// The seed of the choice of GPUs. The choice of nodes follows the seed of the scheduler.
    pub seed: u64,
}

/// Chooses at random. The same seed and pod give the same GPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct Random {
    /// The seed.
    pub seed: u64,
}

impl Random {
    /// The name of the plugin.
    pub const NAME: &'static str = "GpuRandom";

    /// The GPU for a pod that shares it.
    fn part(&self, pod: &Pod, request: UnitRequest, free: &[i64]) -> Option<usize> {
        let gpus: Vec<usize> = request.fitting(free).collect();
        let mut hasher = DefaultHasher::new();
        (self.seed, pod.uid().as_str()).hash(&mut hasher);
        let mut rng = fastrand::Rng::with_seed(hasher.finish());
        rng.choice(gpus)
    }
}

impl DeviceChoice for Random {
    const DEVICES: IndexedDevices = DEVICES;

    fn choose(
        &self,
        pod: &PodInfo,
        request: UnitRequest,
        _node: NodeView<'_>,
        free: &[i64],
    ) -> Option<Vec<usize>> {
        // All free GPUs are equal to a pod that has them alone.
        if request.units == DEVICES.units {
            return request.first(free);
        }
        self.part(&pod.pod, request, free).map(|gpu| vec![gpu])
    }
}

impl NodeScore for Random {
    type Preference = ();

    /// All nodes are equal. A profile without any score would not choose among them: its search ends with the first
    /// node.
    fn preference(&self, _cx: &Context<'_>, _pod: &PodInfo) -> Result<Option<()>, Status> {
        Ok(None)
    }

    fn rate<'a>(&'a self, (): &'a (), _nodes: &'a NodeTable) -> impl Fn(Slot) -> i64 + 'a {
        |_| 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_that_suffices_is_chosen_about_as_often() {
        let request = DEVICES.split(300).expect("a part");
        let free = [1_000, 200, 300, 900];
        let mut chosen = [0; 4];
        for uid in 0..3_000 {
            let mut pod = Pod::default();
            pod.metadata.uid = uid.to_string().into();
            let gpu = Random { seed: 7 }.part(&pod, request, &free);
            chosen[gpu.expect("three GPUs suffice")] += 1;
        }
        assert_eq!(chosen[1], 0);
        assert!(
            [0, 2, 3]
                .iter()
                .all(|gpu| (900..1_100).contains(&chosen[*gpu])),
            "{chosen:?}"
        );
    }
}
