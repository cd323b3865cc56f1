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
use berth_api::Pod;

/// The CPU of the largest node, in milli-CPU.
const MILLI_CPU_MAX: f64 = 128_000.0;
/// The GPUs of the largest node, in milli.
const GPU_MILLI_MAX: f64 = 8_000.0;

/// Fills nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct BestFit;

impl Policy for BestFit {
    const NAME: &'static str = "GpuBestFit";

    fn rate(&self, demand: &Demand, room: &Room<'_>) -> i64 {
        let milli_cpu = room.milli_cpu - demand.milli_cpu;
        let gpu_milli = i64::from(room.free_in_all()) - i64::from(demand.milli * demand.count);
        let rest = 0.5 * milli_cpu as f64 / MILLI_CPU_MAX + 0.5 * gpu_milli as f64 / GPU_MILLI_MAX;
        (((1.0 - rest) * 100.0) as i64).clamp(0, 100)
    }

    fn choose(&self, demand: &Demand, room: &Room<'_>, _pod: &Pod) -> Option<usize> {
        room.fitting(demand).min_by_key(|gpu| room.free()[*gpu])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_rest_has_the_highest_rate() {
        let one = |milli_cpu, milli, count| Demand {
            milli_cpu,
            milli,
            count,
        };
        for (case, demand, milli_cpu, free, rate) in [
            // ½ · 52/128 + ½ · 1/8 = 0.2656
            (
                "a whole GPU",
                one(12_000, 1_000, 1),
                64_000,
                vec![1_000, 1_000],
                73,
            ),
            // ½ · 2/128 + ½ · 0.2/8 = 0.0203
            ("the last room", one(2_000, 300, 1), 4_000, vec![500, 0], 97),
            // ½ · 120/128 + ½ · 8/8 = 0.96875
            (
                "the largest node",
                one(8_000, 0, 0),
                128_000,
                vec![1_000; 8],
                3,
            ),
        ] {
            let room = Room::new(milli_cpu, &free, "");
            assert_eq!(BestFit.rate(&demand, &room), rate, "{case}");
        }
    }

    #[test]
    fn the_fullest_gpu_that_suffices_is_shared() {
        let demand = Demand {
            milli_cpu: 1_000,
            milli: 300,
            count: 1,
        };
        for (free, gpu) in [
            (vec![1_000, 400, 300, 200], Some(2)),
            (vec![1_000, 200], Some(0)),
            (vec![200], None),
        ] {
            let room = Room::new(8_000, &free, "");
            assert_eq!(
                BestFit.choose(&demand, &room, &Pod::default()),
                gpu,
                "{free:?}"
            );
        }
    }
}
