//! BestFit: the node with the least weighted rest, and the GPU with the least free milli that suffices.
//!
//! The rest of a node is `Σ ½ · (free − requested) / largest` over CPU and GPU; the largest node has 128 CPU and eight
//! GPUs. The rate is `⌊100 · (1 − rest)⌋`, because scores are integers.
//!
//! ```text
//! node with 64 CPU and 2,000 milli free, pod of 12 CPU and 1,000 milli → rest 0.27, rate 73
//! ```
//!
//! Source: Weng et al., *Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
//! Descent*, USENIX ATC 2023, part 6.1, and the constants of its simulator.

use crate::devices::{Demand, Room};
use crate::policy::Policy;

/// The CPU of the largest node, in milli-CPU.
const MILLI_CPU_MAX: f64 = 128_000.0;
/// The GPUs of the largest node, in milli.
const GPU_MILLI_MAX: f64 = 8_000.0;

/// Fills nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct BestFit;

impl Policy for BestFit {
    const NAME: &'static str = "GpuBestFit";

    fn place(&self, demand: &Demand, room: &Room<'_>) -> Option<(i64, Vec<usize>)> {
        let choices = demand.gpus.choices(&room.free).into_iter();
        let gpus = choices.min_by_key(|gpus| gpus.first().map(|gpu| room.free[*gpu]))?;
        let left = room.after(demand, &gpus)?;
        let gpu_milli: i64 = left.free.iter().sum();
        let rest =
            0.5 * left.milli_cpu as f64 / MILLI_CPU_MAX + 0.5 * gpu_milli as f64 / GPU_MILLI_MAX;
        Some(((((1.0 - rest) * 100.0) as i64).clamp(0, 100), gpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::DEVICES;

    fn demand(milli_cpu: i64, gpu_milli: i64) -> Demand {
        let gpus = DEVICES.split(gpu_milli).expect("a part or whole GPUs");
        Demand { milli_cpu, gpus }
    }

    #[test]
    fn the_least_rest_has_the_highest_rate() {
        for (case, demand, milli_cpu, free, rate) in [
            // ½ · 52/128 + ½ · 1/8 = 0.2656
            (
                "a whole GPU",
                demand(12_000, 1_000),
                64_000,
                vec![1_000, 1_000],
                73,
            ),
            // ½ · 2/128 + ½ · 0.2/8 = 0.0203
            ("the last room", demand(2_000, 300), 4_000, vec![500, 0], 97),
            // ½ · 120/128 + ½ · 8/8 = 0.96875
            (
                "the largest node",
                demand(8_000, 0),
                128_000,
                vec![1_000; 8],
                3,
            ),
        ] {
            let room = Room::new(milli_cpu, &free, "");
            let placed = BestFit.place(&demand, &room);
            assert_eq!(placed.map(|(rate, _)| rate), Some(rate), "{case}");
        }
    }

    #[test]
    fn the_fullest_gpu_that_suffices_is_shared() {
        let demand = demand(1_000, 300);
        for (free, gpu) in [
            (vec![1_000, 400, 300, 200], Some(vec![2])),
            (vec![1_000, 200], Some(vec![0])),
            (vec![200], None),
        ] {
            let room = Room::new(8_000, &free, "");
            let placed = BestFit.place(&demand, &room);
            let chosen = placed.map(|(_, gpus)| gpus);
            assert_eq!(chosen, gpu, "{free:?}");
        }
    }
}
