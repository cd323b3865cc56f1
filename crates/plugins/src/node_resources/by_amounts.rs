//! Requests and scored resources against many nodes at once.

use super::amounts::{CountedResources, Scored};
use super::args::ScoredResource;
use super::fit::FitRequests;
use super::strategy::Share;
use berth_api::resources::{CPU, MEMORY};
use berth_framework::amounts::{Amounts, Fits};
use berth_framework::table::ResourceId;

/// On how many of the nodes a pod with these requests fits.
pub(super) fn fits(requests: &FitRequests, nodes: &Amounts<'_>) -> Fits {
    let pods = ResourceId::PODS;
    let plain = [
        (1, pods, false),
        (requests.milli_cpu, ResourceId::CPU, false),
        (requests.memory, ResourceId::MEMORY, false),
        (
            requests.ephemeral_storage,
            ResourceId::EPHEMERAL_STORAGE,
            false,
        ),
    ];
    let mut all = Fits::All;
    for (amount, id, or_none) in plain {
        match fits_one(amount, id, or_none, nodes) {
            Fits::None => return Fits::None,
            Fits::Some => all = Fits::Some,
            Fits::All => {}
        }
    }
    for scalar in &requests.scalars {
        let fits = match scalar.id {
            Some(id) => fits_one(scalar.amount, id, scalar.has_devices, nodes),
            None if scalar.has_devices => Fits::All,
            None => Fits::None,
        };
        match fits {
            Fits::None => return Fits::None,
            Fits::Some => all = Fits::Some,
            Fits::All => {}
        }
    }
    all
}

/// The same for one resource; `or_none`: a node that offers none is enough.
fn fits_one(amount: i64, id: ResourceId, or_none: bool, nodes: &Amounts<'_>) -> Fits {
    let offered = nodes.offered(id);
    if amount <= 0 || (or_none && offered <= 0) {
        return Fits::All;
    }
    let (least, most) = nodes.requested(id);
    if amount <= offered.saturating_sub(most) {
        Fits::All
    } else if amount <= offered.saturating_sub(least) {
        Fits::Some
    } else {
        Fits::None
    }
}

/// One of the scored resources, with what a pod would add.
#[derive(Debug, Clone, Copy)]
struct PairResource {
    id: ResourceId,
    own: i64,
    weight: i64,
    counted: CountedResources,
}

impl PairResource {
    /// `None` for resources other than CPU and memory.
    fn new(resource: &ScoredResource, own: i64, counted: CountedResources) -> Option<Self> {
        let id = match resource.name.as_str() {
            CPU => ResourceId::CPU,
            MEMORY => ResourceId::MEMORY,
            _ => return None,
        };
        Some(Self {
            id,
            own,
            weight: resource.weight,
            counted,
        })
    }

    /// The amount that the pods of nodes request, at least and at most.
    #[inline]
    fn held(&self, nodes: &Amounts<'_>) -> (i64, i64) {
        match self.counted {
            CountedResources::Requested => nodes.requested(self.id),
            CountedResources::NonZero if self.id == ResourceId::CPU => nodes.non_zero_milli_cpu(),
            CountedResources::NonZero => nodes.non_zero_memory(),
        }
    }

    #[inline]
    fn share(&self, nodes: &Amounts<'_>, held: i64) -> Share {
        Share {
            requested: held.saturating_add(self.own),
            own: self.own,
            allocatable: nodes.offered(self.id),
            weight: self.weight,
        }
    }
}

/// CPU and memory, in this order or the other, with what a pod would add.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair([PairResource; 2]);

impl Pair {
    /// `None` if other resources are scored, or devices provide some.
    pub(super) fn new(
        resources: &[ScoredResource],
        pod: &Scored,
        counted: CountedResources,
    ) -> Option<Self> {
        let ([a, b], [own_a, own_b]) = (resources, &pod.requested[..]) else {
            return None;
        };
        if !pod.devices.is_empty() {
            return None;
        }
        Some(Self([
            PairResource::new(a, *own_a, counted)?,
            PairResource::new(b, *own_b, counted)?,
        ]))
    }

    /// The least shares of nodes.
    #[inline]
    pub(super) fn least(&self, nodes: &Amounts<'_>) -> [Share; 2] {
        let [a, b] = &self.0;
        [
            a.share(nodes, a.held(nodes).0),
            b.share(nodes, b.held(nodes).0),
        ]
    }

    /// The greatest shares of nodes.
    #[inline]
    pub(super) fn most(&self, nodes: &Amounts<'_>) -> [Share; 2] {
        let [a, b] = &self.0;
        [
            a.share(nodes, a.held(nodes).1),
            b.share(nodes, b.held(nodes).1),
        ]
    }
}

#[cfg(test)]
mod tests {
    use crate::node_resources::{FitArgs, NodeResourcesBalancedAllocation, NodeResourcesFit};
    use crate::testing::{node, pod, pod_info};
    use berth_framework::amounts::{Amounts, ByAmounts, Fits};
    use berth_framework::plugin::{Context, Filter, PreFilter, PreScore, Score};
    use berth_framework::table::Columns;
    use berth_framework::{Cluster, CycleState, FeatureGates, PodInfo, Slot};
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn requesting(cpu: u32, memory: u32) -> Value {
        let requests = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Ki")});
        json!({"containers": [{"name": "c", "resources": {"requests": requests}}]})
    }

    /// Nodes that offer the same, with pods that request more or less alike.
    fn cluster(rng: &mut fastrand::Rng) -> (Cluster, Vec<Slot>) {
        let mut cluster = Cluster::default();
        let (cpu, memory) = (rng.u32(..5), rng.u32(1..5));
        let allocatable =
            json!({"cpu": cpu.to_string(), "memory": format!("{memory}Gi"), "pods": 5});
        let (most_cpu, most_memory) = (rng.u32(2..4_000), rng.u32(2..4_000_000));
        let (least_cpu, least_memory) = (rng.u32(1..most_cpu), rng.u32(1..most_memory));
        let mut slots = Vec::new();
        for at in 0..rng.usize(1..6) {
            let name = format!("n{at}");
            let object = node(&name, json!({"status": {"allocatable": allocatable}}));
            let slot = cluster.nodes.set_node(Arc::new(object));
            for number in 0..rng.usize(..3) {
                let (cpu, memory) = (
                    rng.u32(least_cpu..most_cpu),
                    rng.u32(least_memory..most_memory),
                );
                let spec = requesting(cpu, memory);
                let pod = pod(&format!("p{at}-{number}"), spec);
                cluster
                    .nodes
                    .add_pod_at(slot, Arc::new(PodInfo::new(Arc::new(pod))));
            }
            slots.push(slot);
        }
        (cluster, slots)
    }

    /// The least and the most of each amount.
    fn bounds(columns: &Columns, slots: &[Slot]) -> [Vec<i64>; 2] {
        let all = || {
            slots
                .iter()
                .map(|slot| columns.held(*slot).collect::<Vec<i64>>())
        };
        [i64::min as fn(i64, i64) -> i64, i64::max].map(|better| {
            let joined =
                all().reduce(|a, b| a.into_iter().zip(b).map(|(a, b)| better(a, b)).collect());
            joined.unwrap_or_default()
        })
    }

    fn check<P: ByAmounts + PreScore + Score>(
        plugin: &P,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        (slots, amounts): (&[Slot], &Amounts<'_>),
        context: &str,
    ) {
        let (least, most) = plugin.scores(state).expect("by amounts")(amounts);
        for slot in slots {
            let view = cx.cluster.nodes.get(*slot).expect("a node");
            let score = plugin.score(cx, state, pod, view).expect("a score");
            assert!(
                (least..=most).contains(&score),
                "{context}: {score} of {least} to {most}"
            );
            let is_offered = amounts.offered(berth_framework::table::ResourceId::CPU) > 0;
            if slots.len() == 1 && is_offered {
                assert_eq!((least, most), (score, score), "{context}");
            }
        }
    }

    #[test]
    fn answers_about_single_nodes_are_within_the_bounds() {
        let features = FeatureGates::default();
        let mut saw = [0; 3];
        for seed in 0..1_000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let context = format!("seed {seed}");
            let (cluster, slots) = cluster(&mut rng);
            let columns = cluster.nodes.columns();
            let offered: Vec<i64> = columns.offered(slots[0]).collect();
            let pod = pod_info("p", requesting(rng.u32(1..2_000), rng.u32(1..2_000_000)));
            let cx = Context {
                now: berth_api::Time::from_secs(0),
                cluster: &cluster,
                features: &features,
                work: None,
            };
            let strategy = ["LeastAllocated", "MostAllocated"][rng.usize(..2)];
            let args = json!({"scoringStrategy": {"type": strategy, "resources": [
                {"name": "cpu", "weight": rng.u8(1..4)}, {"name": "memory", "weight": 2}]}});
            let fit = NodeResourcesFit::new(FitArgs::decode(&args).expect("arguments"));
            let balanced = NodeResourcesBalancedAllocation::new(
                crate::node_resources::BalancedAllocationArgs::decode(&json!(null))
                    .expect("arguments"),
            );
            let mut state = CycleState::default();
            fit.pre_filter(&cx, &mut state, &pod);
            fit.pre_score(&cx, &mut state, &pod, &[]);
            balanced.pre_score(&cx, &mut state, &pod, &[]);
            let mut groups: Vec<&[Slot]> = slots.chunks(1).collect();
            groups.push(&slots);
            for group in groups {
                let [least, most] = bounds(columns, group);
                let amounts = Amounts::new(&offered, &least, &most);
                if group.len() == 1 {
                    // The same answers, found in another way.
                    let exactly = Amounts::exactly(&offered, &least);
                    assert!(exactly.are_exact() && !amounts.are_exact());
                    check(&fit, &cx, &state, &pod, (group, &exactly), &context);
                    check(&balanced, &cx, &state, &pod, (group, &exactly), &context);
                }
                let fits = fit.fits(&state).expect("by amounts")(&amounts);
                let fitting = group.iter().filter(|slot| {
                    let view = cluster.nodes.get(**slot).expect("a node");
                    fit.filter(&cx, &state, &pod, view).is_success()
                });
                let fitting = fitting.count();
                match fits {
                    Fits::All => assert_eq!(fitting, group.len(), "{context}"),
                    Fits::None => assert_eq!(fitting, 0, "{context}"),
                    Fits::Some => assert!(group.len() > 1, "{context}"),
                }
                saw[fits as usize] += 1;
                check(&fit, &cx, &state, &pod, (group, &amounts), &context);
                check(&balanced, &cx, &state, &pod, (group, &amounts), &context);
            }
        }
        assert!(saw.iter().all(|count| *count > 100), "{saw:?}");
    }
}
