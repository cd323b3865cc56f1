//! Random: each node that fits has the same chance, and each GPU that suffices.

use crate::devices::{Demand, Room};
use crate::policy::Policy;
use berth_api::Pod;
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

impl Policy for Random {
    const NAME: &'static str = "GpuRandom";
    const RATES_NODES: bool = false;

    fn rate(&self, _demand: &Demand, _room: &Room<'_>) -> i64 {
        0
    }

    fn choose(&self, demand: &Demand, room: &Room<'_>, pod: &Pod) -> Option<usize> {
        let gpus: Vec<usize> = room.fitting(demand).collect();
        let mut hasher = DefaultHasher::new();
        (self.seed, pod.uid().as_str()).hash(&mut hasher);
        let mut rng = fastrand::Rng::with_seed(hasher.finish());
        rng.choice(gpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_that_suffices_is_chosen_about_as_often() {
        let demand = Demand {
            milli_cpu: 0,
            milli: 300,
            count: 1,
        };
        let room = Room::new(0, &[1_000, 200, 300, 900], "");
        let mut chosen = [0; 4];
        for uid in 0..3_000 {
            let mut pod = Pod::default();
            pod.metadata.uid = uid.to_string().into();
            let gpu = Random { seed: 7 }.choose(&demand, &room, &pod);
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
