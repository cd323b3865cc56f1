//! `NodeResourcesBalancedAllocation`: prefers nodes whose resources are used more evenly with the pod.
//!
//! A node is balanced if the same share of each resource is requested. The score compares the balance with the pod and
//! without it, from 50 to 100: 75 if the pod does not change it, more if it improves it.

use super::amounts::{CountedResources, FOR_BALANCE, Scored, ScoredColumns, requested};
use super::args::{BalancedAllocationArgs, ScoredResource, complete_resources};
use super::batch::{ExactShare, floor};
use super::strategy::Share;
use crate::extended_resources::without_backing_classes;
use berth_framework::plugin::{Context, MAX_NODE_SCORE};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::NodeScore;
use berth_framework::table::Columns;
use berth_framework::{NodeTable, PodInfo, Slot, Status};
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

/// The same as [`score`] of [`balances_of_pair`] when it is rounded to the nearest, in a form that is vectorised.
#[inline(always)]
fn exact_score([a, b]: [ExactShare; 2]) -> f64 {
    let fraction = |held: f64, share: ExactShare| {
        let fraction = held / share.allocatable;
        if fraction > 1.0 { 1.0 } else { fraction }
    };
    let max = MAX_NODE_SCORE as f64;
    let balance = |a: f64, b: f64| floor((1.0 - ((a - b) / 2.0).abs()) * max);
    let with = balance(fraction(a.requested, a), fraction(b.requested, b));
    let without = balance(fraction(a.without, a), fraction(b.without, b));
    // Balances of two resources are 50 to 100, so the sum is not negative. Its half is a whole number or a half, which
    // rounds down when a quarter is subtracted.
    max / 2.0 + (max / 2.0 + with - without) / 2.0 - 0.25
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

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |cx| {
        let args = BalancedAllocationArgs::decode(cx.args)?;
        Ok(Extensions::of(NodeResourcesBalancedAllocation::new(args))
            .pre_score()
            .node_score()
            .fragment_version(without_backing_classes)
            .build())
    })
    .args(ArgsKind::Typed(|fields, _| complete_resources(fields)))
    .by_default(Some(1))
}

impl NodeScore for NodeResourcesBalancedAllocation {
    type Preference = Scored;

    fn reads_amounts_alone(&self, scored: &Scored) -> bool {
        scored.devices.is_empty()
    }

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
        self.rate_in(requested, nodes.columns())
    }

    fn rate_amounts(&self, requested: &Scored, amounts: &Columns, scores: &mut [i32]) -> bool {
        let pair = self.scored_columns(requested, amounts).pair();
        if let Some(pair) = &pair {
            pair.rate_all(scores, exact_score, self.rate_in(requested, amounts));
        }
        pair.is_some()
    }
}

impl NodeResourcesBalancedAllocation {
    fn scored_columns<'a>(&self, requested: &'a Scored, amounts: &'a Columns) -> ScoredColumns<'a> {
        let resources = &self.resources;
        ScoredColumns::new(amounts, resources, requested, CountedResources::Requested)
    }

    fn rate_in<'a>(
        &'a self,
        requested: &'a Scored,
        amounts: &'a Columns,
    ) -> impl Fn(Slot) -> i64 + 'a {
        let columns = self.scored_columns(requested, amounts);
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

    /// PL-77: unlike in Fit, pods without requests count nothing, and pod-level requests and the resources in container
    /// statuses count. The node offers 4 CPU and 100 bytes.
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
