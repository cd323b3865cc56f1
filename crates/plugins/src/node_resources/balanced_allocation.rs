//! `NodeResourcesBalancedAllocation`: prefers nodes whose resources are used more evenly with the pod.
//!
//! A node is balanced if the same share of each resource is requested. The score compares the balance with the pod and
//! without it, from 50 to 100: 75 if the pod does not change it, more if it improves it.

use super::amounts::{CountedResources, FOR_BALANCE, Scored, ScoredColumns, requested};
use super::args::{BalancedAllocationArgs, ScoredResource, complete_resources};
use super::by_amounts::Pair;
use super::strategy::Share;
use crate::extended_resources::without_backing_classes;
use berth_framework::amounts::{Amounts, ByAmounts, ScoresByAmounts};
use berth_framework::plugin::{Context, MAX_NODE_SCORE, Plugin};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::{NodeScore, preferred};
use berth_framework::{CycleState, NodeTable, PodInfo, Slot, Status};
use smallvec::SmallVec;

/// The plugin's name.
pub const NAME: &str = "NodeResourcesBalancedAllocation";

/// Balanced use of resources.
#[derive(Debug, Default)]
pub struct NodeResourcesBalancedAllocation {
    resources: Vec<ScoredResource>,
}

impl NodeResourcesBalancedAllocation {
    /// The plugin with these arguments.
    pub fn new(args: BalancedAllocationArgs) -> Self {
        Self {
            resources: args.resources,
        }
    }
}

/// The fraction that is requested with the pod, and without it.
#[inline]
fn fractions(share: Share) -> (f64, f64) {
    let fraction = |held: i64| {
        let fraction = held as f64 / share.allocatable as f64;
        // Not `min`, which also treats values that are no numbers.
        if fraction > 1.0 { 1.0 } else { fraction }
    };
    let without = share.requested.saturating_sub(share.own);
    (fraction(share.requested), fraction(without))
}

/// The score of one node by its balance with the pod and without it.
#[inline]
fn score((with, without): (i64, i64)) -> i64 {
    let half = MAX_NODE_SCORE / 2;
    half + (half + with - without) / 2
}

/// The balance with the pod and without it, for two resources.
#[inline]
fn balances_of_pair([a, b]: [Share; 2]) -> (i64, i64) {
    let (a, b) = (fractions(a), fractions(b));
    (balance(&[a.0, b.0]), balance(&[a.1, b.1]))
}

/// The balance with the pod and without it, for any number of resources. Not inlined: two resources are the default.
#[inline(never)]
fn balances_of_any(columns: &ScoredColumns<'_>, node: Slot) -> (i64, i64) {
    let all = columns.of(node).map(fractions);
    let (with, without): (SmallVec<[f64; 4]>, SmallVec<[f64; 4]>) = all.unzip();
    (balance(&with), balance(&without))
}

/// 100 if the same share of all resources is used, less by their standard deviation.
#[inline]
fn balance(fractions: &[f64]) -> i64 {
    let deviation = match *fractions {
        [] | [_] => 0.0,
        [a, b] => ((a - b) / 2.0).abs(),
        _ => {
            let count = fractions.len() as f64;
            let mean = fractions.iter().sum::<f64>() / count;
            let squares: f64 = fractions.iter().map(|f| (f - mean) * (f - mean)).sum();
            (squares / count).sqrt()
        }
    };
    // At most 100: the conversion to 32 bits takes less time.
    i64::from(((1.0 - deviation) * MAX_NODE_SCORE as f64) as i32)
}

/// Bounds of the score of some nodes, which are equal for nodes that hold exactly the same.
#[inline]
fn score_bounds(pair: &Pair, nodes: &Amounts<'_>) -> (i64, i64) {
    let least = pair.least(nodes);
    if least[0].allocatable <= 0 || least[1].allocatable <= 0 {
        // Resources that a node does not offer are left out.
        return (0, MAX_NODE_SCORE);
    }
    if nodes.are_exact() {
        let score = score(balances_of_pair(least));
        return (score, score);
    }
    bounds_between(least, pair.most(nodes))
}

/// Bounds of the score of nodes whose use of two resources is between the shares of `least` and of `most`.
fn bounds_between(least: [Share; 2], most: [Share; 2]) -> (i64, i64) {
    let least = [fractions(least[0]), fractions(least[1])];
    let most = [fractions(most[0]), fractions(most[1])];
    // The difference by which more of the first resource is used. Rounding keeps the order of numbers, so these are exact bounds.
    let with = balance_bounds(least[0].0 - most[1].0, most[0].0 - least[1].0);
    let without = balance_bounds(least[0].1 - most[1].1, most[0].1 - least[1].1);
    let (mut low, mut high) = (with.0 - without.1, with.1 - without.0);
    // Unless a resource is used up, the pod adds the same to each node: the gain rises or falls from one end to the other.
    if most.iter().all(|(with, _)| *with < 1.0) {
        let added = [0, 1].map(|at| least[at].0 - least[at].1);
        let shift = added[0] - added[1];
        let half = MAX_NODE_SCORE as f64 / 2.0;
        let gain = |difference: f64| (difference.abs() - (difference + shift).abs()) * half;
        let ends = [least[0].1 - most[1].1, most[0].1 - least[1].1].map(gain);
        // Each balance is rounded down: less than 1 is lost of each.
        low = low.max((ends[0].min(ends[1]) - GAIN_ERROR).floor() as i64);
        high = high.min((ends[0].max(ends[1]) + GAIN_ERROR).ceil() as i64);
    }
    (score((low, 0)), score((high, 0)))
}

/// More than what is lost by rounding in a few sums of fractions.
const GAIN_ERROR: f64 = 1e-6;

/// Bounds of the balance of two resources, of which one is used more than the other by a fraction from `from` to `to`.
fn balance_bounds(from: f64, to: f64) -> (i64, i64) {
    let (from_size, to_size) = (from.abs(), to.abs());
    let nearest = if from <= 0.0 && to >= 0.0 {
        0.0
    } else {
        from_size.min(to_size)
    };
    let balance = |difference: f64| balance(&[difference, 0.0]);
    (balance(from_size.max(to_size)), balance(nearest))
}

impl ByAmounts for NodeResourcesBalancedAllocation {
    fn scores<'a>(&'a self, state: &'a CycleState) -> Option<ScoresByAmounts<'a>> {
        let scored = preferred::<Self>(state)?;
        let pair = Pair::new(&self.resources, scored, CountedResources::Requested)?;
        Some(Box::new(move |nodes| score_bounds(&pair, nodes)))
    }
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |cx| {
        let args = BalancedAllocationArgs::decode(cx.args)?;
        Ok(Extensions::of(NodeResourcesBalancedAllocation::new(args))
            .pre_score()
            .node_score()
            .by_amounts()
            .fragment_version(without_backing_classes)
            .build())
    })
    .args(ArgsKind::Typed(|fields, _| complete_resources(fields)))
    .by_default(Some(1))
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &str {
        NAME
    }
}

impl NodeScore for NodeResourcesBalancedAllocation {
    type Preference = Scored;

    /// None for pods that request none of the resources: no node should attract them all.
    fn preference(&self, cx: &Context<'_>, pod: &PodInfo) -> Result<Option<Scored>, Status> {
        let requested = requested(pod, &self.resources, FOR_BALANCE);
        let is_some = requested.iter().any(|amount| *amount != 0);
        Ok(is_some.then(|| Scored::new(cx, &self.resources, requested)))
    }

    fn rate<'a>(
        &'a self,
        requested: &'a Scored,
        nodes: &'a NodeTable,
    ) -> impl Fn(Slot) -> i64 + 'a {
        let resources = &self.resources;
        let columns = ScoredColumns::new(nodes, resources, requested, CountedResources::Requested);
        let pair = columns.pair();
        move |slot| {
            score(match pair.and_then(|pair| pair.of(slot)) {
                Some(shares) => balances_of_pair(shares),
                None => balances_of_any(&columns, slot),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, pod_info};
    use serde_json::{Value, json};

    /// CPU in milli-CPU and memory in bytes.
    type Amounts = (i64, i64);

    fn world(nodes: &[(Amounts, Amounts)]) -> World {
        let mut world = World::new();
        for (i, ((cpu, memory), used)) in nodes.iter().enumerate() {
            let name = format!("n{i}");
            let allocatable = json!({"cpu": format!("{cpu}m"), "memory": memory, "pods": 10});
            world = world
                .node(&name, json!({"status": {"allocatable": allocatable}}))
                .bound(&name, &format!("on-{name}"), requesting(used.0, used.1));
        }
        world
    }

    fn requesting(milli_cpu: i64, memory: i64) -> Value {
        json!({"containers": [{"name": "c", "resources":
            {"requests": {"cpu": format!("{milli_cpu}m"), "memory": memory}}}]})
    }

    fn plugin(args: Value) -> NodeResourcesBalancedAllocation {
        NodeResourcesBalancedAllocation::new(
            BalancedAllocationArgs::decode(&args).expect("arguments"),
        )
    }

    /// PL-75: worked by hand. Nodes as (offered, in use), then the pod, then the scores.
    #[test]
    fn the_worked_scores() {
        for (name, nodes, pod, scores) in [
            // With the pod: |0.75 − 0.5|/2 = 0.125, so 87 after 100: 50 + (50 − 13)/2; and 0.5 = 0.5.
            (
                "empty nodes",
                vec![((4000, 10000), (0, 0)), ((6000, 10000), (0, 0))],
                (3000, 5000),
                vec![68, 75],
            ),
            // 85 → 82: 50 + 47/2; 97 → 95: 50 + 48/2.
            (
                "nodes in use",
                vec![((10000, 20000), (3000, 0)), ((10000, 20000), (3000, 5000))],
                (3000, 5000),
                vec![73, 74],
            ),
            // 90 → 80: 50 + 40/2.
            (
                "different sizes",
                vec![((10000, 20000), (3000, 0)), ((10000, 50000), (3000, 5000))],
                (3000, 5000),
                vec![73, 70],
            ),
            // 50 → 100: 50 + 100/2; 100 → 50: 50 + 0/2.
            (
                "from one end to the other",
                vec![((6000, 10000), (6000, 0)), ((10000, 0), (0, 0))],
                (0, 10000),
                vec![100, 75],
            ),
            (
                "out of balance",
                vec![((6000, 10000), (0, 0))],
                (0, 10000),
                vec![50],
            ),
            // 100 → 75: 50 + 25/2.
            (
                "half out of balance",
                vec![((6000, 10000), (0, 0)), ((6000, 10000), (3000, 5000))],
                (3000, 0),
                vec![62, 62],
            ),
            // 95 → 95, and 97 → 100 (0.45 to 0.5 against 0.5): 50 + 53/2.
            (
                "evened out",
                vec![((10000, 10000), (4500, 5000))],
                (500, 0),
                vec![76],
            ),
            // 100 → 62 (0.75 against 0): 50 + 12/2.
            (
                "mostly out of balance",
                vec![((4000, 10000), (0, 0))],
                (3000, 0),
                vec![56],
            ),
            (
                "beyond capacity counts as full",
                vec![((4000, 10000), (0, 0))],
                (9000, 99999),
                vec![75],
            ),
        ] {
            let pod = pod_info("p", requesting(pod.0, pod.1));
            let got = world(&nodes).scores(&plugin(json!(null)), &pod);
            assert_eq!(got, Some(scores), "{name}");
        }
    }

    /// PL-76: pods that request nothing are left alone; an explicit zero is nothing too.
    #[test]
    fn best_effort_pods_are_skipped() {
        let world = world(&[((4000, 10000), (0, 0))]);
        for (spec, skipped) in [
            (json!({"containers": [{"name": "c"}]}), true),
            (requesting(0, 0), true),
            (requesting(0, 1), false),
        ] {
            let got = world.scores(&plugin(json!(null)), &pod_info("p", spec.clone()));
            assert_eq!(got.is_none(), skipped, "{spec}");
        }
    }

    /// PL-77: unlike Fit, pods without requests hold nothing, pod-level requests count, and so does what the
    /// status states about containers. The node offers 4 CPU and 100 bytes.
    #[test]
    fn what_counts_as_requested() {
        let node = json!({"status": {"allocatable": {"cpu": "4", "memory": 100, "pods": 10}}});
        let world = || {
            World::new().node("n", node.clone()).bound(
                "n",
                "idle",
                json!({"containers": [{"name": "c"}]}),
            )
        };
        let containers =
            || json!([{"name": "c", "resources": {"requests": {"cpu": "2", "memory": 50}}}]);
        for (name, pod, score) in [
            (
                "balanced",
                json!({"spec": {"containers": containers()}}),
                75,
            ),
            // 0.75 and 0.5: 87 after 100.
            (
                "pod-level CPU",
                json!({"spec": {"resources": {"requests": {"cpu": "3"}}, "containers": containers()}}),
                68,
            ),
            (
                "CPU that is allocated already",
                json!({
                    "spec": {"containers": containers()},
                    "status": {"containerStatuses": [
                        {"name": "c", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "2"}}}
                    ]},
                }),
                68,
            ),
        ] {
            let pod = PodInfo::new(std::sync::Arc::new(crate::testing::full_pod("p", pod)));
            let got = world().scores(&plugin(json!(null)), &pod);
            assert_eq!(got, Some(vec![score]), "{name}");
        }
    }

    /// PL-78: three resources deviate by their standard deviation; a resource that the pod does not request
    /// or the node does not offer is left out.
    #[test]
    fn more_than_two_resources() {
        let args = json!({"resources": [{"name": "cpu"}, {"name": "memory"}, {"name": "example.com/gpu"}]});
        let node = |gpus: Value| json!({"status": {"allocatable": {"cpu": "4", "memory": 100, "example.com/gpu": gpus}}});
        let world = World::new()
            .node("gpu", node(json!(10)))
            .node("none", node(json!(0)));
        let pod = |gpus: Value| {
            pod_info(
                "p",
                json!({"containers": [{"name": "c", "resources":
            {"requests": {"cpu": "2", "memory": 50, "example.com/gpu": gpus}}}]}),
            )
        };
        for (gpus, scores) in [
            // 0.5, 0.5 and 0.2: mean 0.4, deviation √(0.06/3) = 0.1414: 85 after 100, 50 + 35/2.
            (json!(2), vec![67, 75]),
            (json!(0), vec![75, 75]),
        ] {
            assert_eq!(
                world.scores(&plugin(args.clone()), &pod(gpus.clone())),
                Some(scores),
                "{gpus}"
            );
        }
    }
}
