//! The trace of one seed: every pod with its arrival, the shapes of pods, and the measured resources.

use super::SimulationError;
use crate::trace::{Trace, TracePod};
use berth_api::resources::{CPU, PODS};
use berth_api::{Duration, Pod, Quantity, ResourceList, Str, Time};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The largest number of pods of a trace.
pub(super) const PODS_MAX: u64 = 50_000_000;

/// A pod of the trace before it arrives.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) source: u32,
    pub(super) copy: u32,
    pub(super) shape: u32,
    pub(super) arrival: Time,
    pub(super) duration: Option<Duration>,
}

/// The common part of pods alike.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) pod: Arc<Pod>,
    /// In the order of [`Plan::resources`].
    pub(super) requests: Box<[i64]>,
    /// The largest requested share of the largest node, in millionths.
    pub(super) share: i64,
    /// In [`Plan::namespaces`].
    pub(super) namespace: u32,
}

/// The trace of one seed.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) world: crate::trace::World,
    pub(super) sources: Vec<TracePod>,
    /// By arrival.
    pub(super) pods: Vec<Planned>,
    pub(super) shapes: Vec<Shape>,
    /// The requested or allocatable resources, `pods` first.
    pub(super) resources: Vec<Str>,
    pub(super) namespaces: Vec<Str>,
}

impl Plan {
    /// The trace with the pods that this seed draws.
    ///
    /// # Errors
    /// When there are too many pods, or no nodes.
    pub(super) fn new(trace: &Trace, seed: u64) -> Result<Self, SimulationError> {
        if trace.nodes.is_empty() && trace.node_groups.is_empty() {
            return Err(SimulationError::NoNodes);
        }
        let mut sources = trace.pods.clone();
        for (number, generator) in trace.generators.iter().enumerate() {
            let mut rng = fastrand::Rng::with_seed(mixed(seed, u64::MAX - number as u64));
            sources.extend(generator.draw(trace.start(), &mut rng));
        }
        let count: u64 = sources.iter().map(|source| u64::from(source.count)).sum();
        if count > PODS_MAX {
            return Err(SimulationError::TooManyPods { pods: count });
        }
        let mut plan = Self {
            world: trace.world.clone(),
            sources: Vec::new(),
            pods: Vec::with_capacity(usize::try_from(count).unwrap_or(0)),
            shapes: Vec::new(),
            resources: resources(trace, &sources),
            namespaces: Vec::new(),
        };
        let largest = plan.largest_node(trace);
        let mut known: FxHashMap<*const Pod, u32> = FxHashMap::default();
        for (at, source) in sources.iter().enumerate() {
            let next = plan.shapes.len() as u32;
            let shape = *known.entry(Arc::as_ptr(&source.pod)).or_insert(next);
            if shape == next {
                plan.add_shape(&source.pod, &largest);
            }
            for copy in 0..source.count {
                let mut rng = fastrand::Rng::with_seed(mixed(seed, plan.pods.len() as u64));
                let duration = source.duration.as_ref().map(|of| of.draw(&mut rng));
                plan.pods.push(Planned {
                    source: at as u32,
                    copy,
                    shape,
                    arrival: trace.start() + source.arrival + source.every.saturating_mul(copy),
                    duration,
                });
            }
        }
        plan.pods.sort_by_key(|pod| pod.arrival);
        plan.sources = sources;
        Ok(plan)
    }

    fn add_shape(&mut self, pod: &Arc<Pod>, largest: &[i64]) {
        let requests = self.amounts(&berth_oracle::requests(pod));
        let shares = requests.iter().zip(largest).skip(1);
        let shares = shares.map(|(amount, most)| match most {
            0 => i64::from(*amount > 0) * 1_000_000,
            _ => ((i128::from(*amount) * 1_000_000) / i128::from(*most)) as i64,
        });
        let share = shares.max().unwrap_or(0);
        let name = pod.namespace();
        let namespace = self.namespaces.iter().rposition(|known| known == name);
        let namespace = namespace.unwrap_or_else(|| {
            self.namespaces.push(name.clone());
            self.namespaces.len() - 1
        }) as u32;
        self.shapes.push(Shape {
            pod: pod.clone(),
            requests,
            share,
            namespace,
        });
    }

    /// The amounts of a list in the order of the resources: CPU in milli, everything else in its unit.
    pub(super) fn amounts(&self, list: &ResourceList) -> Box<[i64]> {
        let amounts = self.resources.iter().map(|name| {
            let amount = list.get(name);
            amount.map_or(0, |amount| whole(name, *amount))
        });
        amounts.collect()
    }

    fn largest_node(&self, trace: &Trace) -> Vec<i64> {
        let nodes = trace.nodes.iter().map(|node| &node.node);
        let nodes = nodes.chain(trace.node_groups.iter().map(|group| &group.node));
        let mut largest = vec![0; self.resources.len()];
        for node in nodes {
            let amounts = self.amounts(&node.status.allocatable);
            for (most, amount) in largest.iter_mut().zip(amounts) {
                *most = amount.max(*most);
            }
        }
        largest
    }

    /// The name of a pod of the trace.
    pub(super) fn name(&self, pod: &Planned) -> Str {
        let source = &self.sources[pod.source as usize];
        numbered(&source.name, source.count, pod.copy)
    }
}

/// The name of one of several.
pub(super) fn numbered(name: &Str, count: u32, copy: u32) -> Str {
    if count > 1 {
        format!("{name}-{copy}").into()
    } else {
        name.clone()
    }
}

/// An amount in the unit for counting.
pub(super) fn whole(resource: &str, amount: Quantity) -> i64 {
    if resource == CPU {
        amount.milli_value()
    } else {
        amount.value()
    }
}

/// A counted amount, in cores, bytes or units.
pub(super) fn in_units(resource: &str, counted: f64) -> f64 {
    if resource == CPU {
        counted / 1e3
    } else {
        counted
    }
}

/// A seed of a seed.
fn mixed(seed: u64, number: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(number.wrapping_mul(0xd134_2543_de82_ef95))
}

fn resources(trace: &Trace, sources: &[TracePod]) -> Vec<Str> {
    let mut names = BTreeSet::new();
    let mut add = |list: &ResourceList| {
        names.extend(list.iter().map(|(name, _)| name.clone()));
    };
    let nodes = trace.nodes.iter().map(|node| &node.node);
    for node in nodes.chain(trace.node_groups.iter().map(|group| &group.node)) {
        add(&node.status.allocatable);
    }
    for quota in &trace.quotas {
        add(&quota.hard);
    }
    let mut known: FxHashSet<*const Pod> = FxHashSet::default();
    for source in sources {
        if known.insert(Arc::as_ptr(&source.pod)) {
            add(&berth_oracle::requests(&source.pod));
        }
    }
    for set in &trace.daemon_sets {
        add(&berth_oracle::requests(&set.pod));
    }
    for buffer in &trace.buffers {
        add(&berth_oracle::requests(&buffer.pod));
    }
    names.remove(PODS);
    std::iter::once(PODS.into()).chain(names).collect()
}
