//! Two scored resources of many nodes at once, as floating-point numbers: the compiler turns the loops into
//! [vector instructions](berth_framework::vectors), with which a score takes a tenth of the time.

use super::amounts::ScoredPair;
use berth_framework::Slot;
use berth_framework::vectors::{RUN, in_vectors, run_of};

/// Up to these amounts, sums, and percentages that are rounded down, are exact: see `strategy`.
const EXACT_MAX: u64 = 1 << 46;
/// The numbers from this one to its double are whole.
const WHOLE_FROM: f64 = (1_u64 << 52) as f64;
/// In the middle of these numbers, so that the sum with a small number, also a negative one, is rounded to the nearest whole
/// number.
const WHOLE: f64 = WHOLE_FROM * 1.5;

/// The use of one resource of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExactShare {
    /// The requested amount without the pod.
    pub(super) without: f64,
    /// The same with the pod.
    pub(super) requested: f64,
    /// The amount that the node offers.
    pub(super) allocatable: f64,
}

impl ExactShare {
    #[inline(always)]
    fn new(allocatable: i64, held: i64, own: i64) -> Self {
        Self {
            without: exact(held),
            requested: exact(held) + exact(own),
            allocatable: exact(allocatable),
        }
    }
}

/// An amount from 0 to [`EXACT_MAX`]. Unlike the conversion by `as`, this is vectorised.
#[inline(always)]
fn exact(amount: i64) -> f64 {
    f64::from_bits(amount.cast_unsigned() | WHOLE_FROM.to_bits()) - WHOLE_FROM
}

/// Rounds a small number to the nearest whole number.
#[inline(always)]
fn nearest(number: f64) -> f64 {
    (number + WHOLE) - WHOLE
}

/// The same as an integer, which is in the low bits of the sum. The conversion by `as` takes many instructions more, for
/// numbers out of range.
#[inline(always)]
fn nearest_integer(number: f64) -> i32 {
    (number + WHOLE).to_bits() as i32
}

/// The greatest whole number that is not above a small one. Unlike `floor`, this is vectorised with 128 bits, too.
#[inline(always)]
pub(super) fn floor(number: f64) -> f64 {
    let rounded = nearest(number);
    if rounded > number {
        rounded - 1.0
    } else {
        rounded
    }
}

impl ScoredPair<'_> {
    /// Sets the scores of all slots: by `score`, whose result is rounded to the nearest whole number, or by `rate` for
    /// [runs](RUN) with larger amounts or without one of the resources, and for the slots behind the last whole run.
    pub(super) fn rate_all(
        self,
        scores: &mut [i32],
        score: impl Fn([ExactShare; 2]) -> f64 + Copy,
        rate: impl Fn(Slot) -> i64,
    ) {
        let rate_each = |start: usize, scores: &mut [i32]| {
            for (slot, score) in (start as u32..).map(Slot::from_index).zip(scores) {
                // At most 100.
                *score = rate(slot) as i32;
            }
        };
        let (runs, rest) = scores.as_chunks_mut();
        rate_each(runs.len() * RUN, rest);
        // The values are copied into the closure, because a loop that reads a value behind a reference, which a write of the loop
        // could change, is not turned into vector instructions.
        in_vectors(
            #[inline(always)]
            move || {
                for (run, scores) in runs.iter_mut().enumerate() {
                    if !self.rate_run(run, scores, score) {
                        rate_each(run * RUN, scores);
                    }
                }
            },
        );
    }

    /// Sets the scores of a run. They have no meaning if the result is false: amounts are too large, or one of the resources
    /// is not offered.
    #[inline(always)]
    fn rate_run(
        self,
        run: usize,
        scores: &mut [i32; RUN],
        score: impl Fn([ExactShare; 2]) -> f64,
    ) -> bool {
        let [a, b] = self.0;
        let first = run_of(a.allocatable, run).iter().zip(run_of(a.held, run));
        let second = run_of(b.allocatable, run).iter().zip(run_of(b.held, run));
        let (mut bits, mut is_none_offered) = (a.own | b.own, false);
        // Without a way out, so that it is vectorised.
        for (found, (first, second)) in scores.iter_mut().zip(first.zip(second)) {
            let ((offered_a, held_a), (offered_b, held_b)) = (first, second);
            bits |= offered_a | held_a | offered_b | held_b;
            is_none_offered |= (*offered_a == 0) | (*offered_b == 0);
            *found = nearest_integer(score([
                ExactShare::new(*offered_a, *held_a, a.own),
                ExactShare::new(*offered_b, *held_b, b.own),
            ]));
        }
        bits.cast_unsigned() < EXACT_MAX && !is_none_offered
    }
}

#[cfg(test)]
mod tests {
    use crate::node_resources::{
        BalancedAllocationArgs, FitArgs, NodeResourcesBalancedAllocation, NodeResourcesFit,
    };
    use crate::testing::{node, pod, pod_info};
    use berth_framework::plugin::{Context, Filter, PreFilter, PreScore, Score};
    use berth_framework::{Cluster, CycleState, FeatureGates, PodInfo};
    use serde_json::{Value, json};
    use std::sync::Arc;

    /// Limits of the amounts of memory in a cluster.
    const MOSTS: [u64; 4] = [1 << 12, 1 << 34, 1 << 60, i64::MAX as u64];

    fn requesting(rng: &mut fastrand::Rng, most: u64) -> Value {
        let (cpu, memory) = (rng.u64(..4_000), rng.u64(..most));
        let requests = json!({"cpu": format!("{cpu}m"), "memory": memory.to_string()});
        json!({"containers": [{"name": "c", "resources": {"requests": requests}}]})
    }

    /// Some nodes offer nothing, or more than floating-point numbers can count; some slots are free.
    fn cluster(rng: &mut fastrand::Rng) -> Cluster {
        let mut cluster = Cluster::default();
        let most = MOSTS[rng.usize(..MOSTS.len())];
        for at in 0..rng.usize(1..200) {
            let cpu = if rng.u8(..20) == 0 { 0 } else { rng.u32(1..9) };
            let memory = if rng.u8(..20) == 0 {
                0
            } else {
                rng.u64(1..most)
            };
            let allocatable = json!({"cpu": cpu, "memory": memory.to_string(), "pods": 5});
            let name = format!("n{at}");
            let fields = json!({"status": {"allocatable": allocatable}});
            let slot = cluster.nodes.set_node(Arc::new(node(&name, fields)));
            for number in 0..rng.usize(..3) {
                let pod = pod(&format!("p{at}-{number}"), requesting(rng, most));
                let pod = Arc::new(PodInfo::new(Arc::new(pod)));
                cluster.nodes.add_pod_at(slot, pod);
            }
        }
        cluster
    }

    /// The slots of a table are rows, too.
    fn check_scores<P: PreScore + Score>(plugin: &P, cx: &Context<'_>, pod: &PodInfo, seed: u64) {
        let mut state = CycleState::default();
        if plugin.pre_score(cx, &mut state, pod, &[]).is_skip() {
            return;
        }
        let nodes = &cx.cluster.nodes;
        let mut scores = vec![-1; nodes.slots()];
        assert!(plugin.score_amounts(&state, nodes.columns(), &mut scores));
        for slot in nodes.occupied() {
            let view = nodes.get(slot).expect("a node");
            let expected = plugin.score(cx, &state, pod, view).expect("a score");
            let score = i64::from(scores[slot.index()]);
            let requests = &pod.requests;
            assert_eq!(score, expected, "seed {seed}, {slot:?} for {requests:?}");
        }
    }

    fn check_fits(plugin: &NodeResourcesFit, cx: &Context<'_>, pod: &PodInfo, seed: u64) {
        let mut state = CycleState::default();
        plugin.pre_filter(cx, &mut state, pod);
        let nodes = &cx.cluster.nodes;
        let mut fits = vec![true; nodes.slots()];
        plugin.filter_amounts(&state, nodes.columns(), &mut fits);
        for slot in nodes.occupied() {
            let view = nodes.get(slot).expect("a node");
            let expected = plugin.filter(cx, &state, pod, view).is_success();
            let requests = &pod.requests;
            let fits = fits[slot.index()];
            assert_eq!(fits, expected, "seed {seed}, {slot:?} for {requests:?}");
        }
    }

    #[test]
    fn rows_of_amounts_are_filtered_and_scored_as_each_node() {
        let features = FeatureGates::default();
        for seed in 0..600 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let cluster = cluster(&mut rng);
            let most = MOSTS[rng.usize(..MOSTS.len())];
            let pod = pod_info("p", requesting(&mut rng, most));
            let cx = Context {
                now: berth_api::Time::from_secs(0),
                cluster: &cluster,
                features: &features,
                work: None,
            };
            let strategy = ["LeastAllocated", "MostAllocated"][rng.usize(..2)];
            let args = json!({"scoringStrategy": {"type": strategy, "resources": [
                {"name": "cpu", "weight": rng.u8(1..101)}, {"name": "memory", "weight": rng.u8(1..4)}]}});
            let fit = FitArgs::decode(&args).expect("arguments");
            let fit = NodeResourcesFit::new(fit);
            check_fits(&fit, &cx, &pod, seed);
            check_scores(&fit, &cx, &pod, seed);
            let balanced = BalancedAllocationArgs::decode(&json!(null)).expect("arguments");
            let balanced = NodeResourcesBalancedAllocation::new(balanced);
            check_scores(&balanced, &cx, &pod, seed);
        }
    }
}
