//! The result of a simulation.

use super::Simulation;
use super::measure::Interval;
use super::plan::{Shape, in_units};
use super::pods::{Phase, SimulatedPod};
use crate::report::{PodRow, ResourceUse, Run, Series, Summary, WaitingTimes, jain, quantiles};
use berth_api::Time;
use std::collections::BTreeMap;

/// The waiting times of some pods.
#[derive(Default)]
struct Waits {
    pods: u64,
    never_bound: u64,
    to_binding: Vec<f64>,
    to_start: Vec<f64>,
}

impl Waits {
    fn add(&mut self, pod: &SimulatedPod, arrival: Time) {
        self.pods += 1;
        let since = |time: Time| time.since(arrival).as_secs_f64();
        match pod.bound {
            Some(bound) => self.to_binding.push(since(bound)),
            None => self.never_bound += 1,
        }
        self.to_start.extend(pod.started.map(since));
    }

    fn finish(mut self) -> WaitingTimes {
        WaitingTimes {
            pods: self.pods,
            never_bound: self.never_bound,
            to_binding: quantiles(&mut self.to_binding),
            to_start: quantiles(&mut self.to_start),
        }
    }
}

fn finished<K: Ord>(waits: BTreeMap<K, Waits>) -> BTreeMap<K, WaitingTimes> {
    waits
        .into_iter()
        .map(|(key, waits)| (key, waits.finish()))
        .collect()
}

/// The size of a pod: its largest requested share of the largest node, in millionths.
fn size(shape: &Shape) -> &'static str {
    match shape.share {
        ..=125_000 => "small",
        125_001..=500_000 => "medium",
        _ => "large",
    }
}

impl Simulation {
    /// The result up to the present time.
    pub(super) fn outcome(&mut self, with_pods: bool) -> Run {
        let fragmentation = self.fragmentation();
        self.measure.close_interval(fragmentation);
        let (mut all, mut by_namespace) = (Waits::default(), BTreeMap::<String, Waits>::new());
        let mut by_priority = BTreeMap::<i32, Waits>::new();
        let mut by_size = BTreeMap::<String, Waits>::new();
        for (index, pod) in self.pods.all.iter().enumerate() {
            if pod.phase == Phase::Future {
                continue;
            }
            let planned = &self.plan.pods[index];
            let shape = &self.plan.shapes[planned.shape as usize];
            let namespace = self.plan.namespaces[shape.namespace as usize].as_str();
            all.add(pod, planned.arrival);
            if !by_namespace.contains_key(namespace) {
                by_namespace.insert(namespace.to_owned(), Waits::default());
            }
            if let Some(waits) = by_namespace.get_mut(namespace) {
                waits.add(pod, planned.arrival);
            }
            by_priority
                .entry(shape.pod.priority())
                .or_default()
                .add(pod, planned.arrival);
            let size = size(shape);
            if !by_size.contains_key(size) {
                by_size.insert(size.to_owned(), Waits::default());
            }
            if let Some(waits) = by_size.get_mut(size) {
                waits.add(pod, planned.arrival);
            }
        }
        let pods = if with_pods {
            self.pod_rows()
        } else {
            Vec::new()
        };
        Run {
            config: String::new(),
            seed: 0,
            start: self.start.rfc3339(),
            end: (self.start + self.measure.length()).rfc3339(),
            seconds: self.measure.seconds(),
            summary: self.summary(),
            waiting: all.finish(),
            by_namespace: finished(by_namespace),
            by_priority: finished(by_priority),
            by_size: finished(by_size),
            series: self.series(),
            buffers: self.buffers.outcome(self.measure.length()),
            pods,
            notes: Vec::new(),
        }
    }

    fn summary(&mut self) -> Summary {
        let shares = self.measure.shares();
        let seconds = self.measure.seconds().max(f64::MIN_POSITIVE);
        let counts = &self.measure.counts;
        let mut summary = Summary {
            finished: counts.finished,
            lost: counts.lost,
            attempts: counts.attempts,
            failed_attempts: counts.failed_attempts,
            preempted: counts.preempted,
            disrupted: counts.disrupted,
            lost_work_seconds: counts.lost_work_seconds,
            nodes_mean: self.measure.nodes_area() / seconds,
            nodes_used_mean: self.measure.nodes_used_area() / seconds,
            nodes_added: self.node_groups.added,
            nodes_removed: self.node_groups.removed,
            cost: self.measure.cost(),
            fairness: jain(&shares),
            ..Summary::default()
        };
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        let (nodes, used) = self.measure.nodes();
        summary.nodes_max = count(counts.nodes_max.max(nodes));
        summary.nodes_used_max = count(counts.nodes_used_max.max(used));
        for pod in &self.pods.all {
            summary.arrived += u64::from(pod.phase != Phase::Future);
            summary.bound += u64::from(pod.bound.is_some());
            match pod.phase {
                Phase::OnNode => summary.running += 1,
                Phase::Held | Phase::Pending | Phase::Replacing => {
                    summary.waiting += 1;
                    summary.never_bound += u64::from(pod.bound.is_none());
                }
                Phase::Future | Phase::Finished | Phase::Lost => {}
            }
        }
        // The first one is the number of pods, which pods do not request.
        for (resource, name) in self.plan.resources.iter().enumerate().skip(1) {
            let lost = self.measure.counts.lost_work[resource];
            if lost > 0.0 {
                summary
                    .lost_work
                    .insert(name.to_string(), in_units(name, lost));
            }
            let used = self.resource_use(resource, seconds);
            summary.resources.insert(name.to_string(), used);
        }
        summary
    }

    fn resource_use(&self, resource: usize, seconds: f64) -> ResourceUse {
        let name = &self.plan.resources[resource];
        let levels = self.measure.resource(resource);
        let share = |used: f64, of: f64| if of > 0.0 { used / of } else { 0.0 };
        let end = share(levels.allocated as f64, levels.capacity as f64);
        let waited = self
            .measure
            .intervals
            .iter()
            .filter(|of| of.waiting() > 0.0);
        let wasted: Vec<f64> = waited.map(|of| of.fragmentation[resource]).collect();
        let intervals = wasted.len().max(1) as f64;
        ResourceUse {
            capacity_mean: in_units(name, levels.capacity_area / seconds),
            capacity_end: in_units(name, levels.capacity as f64),
            allocated_mean: in_units(name, levels.allocated_area / seconds),
            allocated_end: in_units(name, levels.allocated as f64),
            utilization_mean: share(levels.allocated_area, levels.capacity_area),
            utilization_max: self.measure.counts.utilization_max[resource].max(end),
            utilization_end: end,
            fragmentation_mean: wasted.iter().sum::<f64>() / intervals,
        }
    }

    fn series(&self) -> Series {
        let intervals = &self.measure.intervals;
        let column = |of: &dyn Fn(&Interval) -> f64| intervals.iter().map(of).collect::<Vec<f64>>();
        let mut series = Series {
            at: column(&|of| of.end.since(self.start).as_secs_f64()),
            running: column(&Interval::running),
            waiting: column(&Interval::waiting),
            waiting_max: column(&|of| of.waiting_max as f64),
            nodes: column(&Interval::nodes),
            nodes_used: column(&Interval::nodes_used),
            cost: column(&Interval::cost),
            ..Series::default()
        };
        series.interval_seconds = series.at.first().copied().unwrap_or(0.0);
        let resources = self.plan.resources.len();
        for (resource, name) in self.plan.resources.iter().enumerate().skip(1) {
            let amount =
                |block: usize| column(&|of| in_units(name, of.amounts(resource, resources)[block]));
            series.capacity.insert(name.to_string(), amount(0));
            series.allocated.insert(name.to_string(), amount(1));
            series.requested.insert(name.to_string(), amount(2));
            let fragmentation = column(&|of| of.fragmentation[resource]);
            series.fragmentation.insert(name.to_string(), fragmentation);
        }
        series
    }

    fn pod_rows(&self) -> Vec<PodRow> {
        let since = |time: Time| time.since(self.start).as_secs_f64();
        let rows = self.pods.all.iter().enumerate().map(|(index, pod)| {
            let planned = &self.plan.pods[index];
            let shape = &self.plan.shapes[planned.shape as usize];
            let amounts = self.plan.resources.iter().zip(&shape.requests).skip(1);
            let amounts = amounts.filter(|(_, amount)| **amount != 0);
            let node = self.nodes.all.get(pod.node as usize);
            PodRow {
                namespace: self.plan.namespaces[shape.namespace as usize].to_string(),
                name: self.plan.name(planned).to_string(),
                priority: shape.pod.priority(),
                size: size(shape).to_owned(),
                requests: amounts
                    .map(|(name, amount)| (name.to_string(), in_units(name, *amount as f64)))
                    .collect(),
                arrived: since(planned.arrival),
                bound: pod.bound.map(since),
                started: pod.started.map(since),
                ended: pod.ended.map(since),
                node: node
                    .filter(|_| pod.bound.is_some())
                    .map(|node| node.name.to_string()),
                outcome: outcome_of(pod.phase).to_owned(),
                attempts: pod.attempts,
                evictions: pod.evictions,
            }
        });
        let arrived = rows
            .zip(&self.pods.all)
            .filter(|(_, pod)| pod.phase != Phase::Future);
        arrived.map(|(row, _)| row).collect()
    }
}

fn outcome_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Future | Phase::Held | Phase::Pending | Phase::Replacing => "waiting",
        Phase::OnNode => "running",
        Phase::Finished => "finished",
        Phase::Lost => "lost",
    }
}
