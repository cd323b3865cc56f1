//! Measurements over time: integrals over time, and the course of the simulation in intervals of equal length. The
//! number of intervals is limited: if it is exceeded, each pair of intervals is merged.

use super::Simulation;
use super::plan::{Plan, Shape};
use berth_api::{Duration, Time};
use std::collections::BTreeMap;

/// The number of intervals at which each pair is merged.
const INTERVALS_MAX: usize = 1_000;
/// The initial number of intervals up to the last arrival.
const INTERVALS_WANTED: u32 = 500;

// The integrated levels; three levels for each resource follow.
const RUNNING: usize = 0;
const WAITING: usize = 1;
const NODES: usize = 2;
const NODES_USED: usize = 3;
/// In millionths for each hour.
const PRICE: usize = 4;
const FIXED: usize = 5;

/// A closed interval.
#[derive(Debug, Clone)]
pub(super) struct Interval {
    pub(super) end: Time,
    /// The mean of each level.
    pub(super) means: Box<[f64]>,
    pub(super) waiting_max: i64,
    /// The integral of the price at its end.
    pub(super) cost: f64,
    /// The share of each resource that no waiting pod can use, at its end.
    pub(super) fragmentation: Box<[f64]>,
}

/// The shares of a namespace, in millionths of the largest node.
#[derive(Debug, Clone, Default)]
struct NamespaceUse {
    running: i64,
    waiting: i64,
    received: f64,
    asked: f64,
    since: Time,
}

impl NamespaceUse {
    fn advance(&mut self, now: Time) {
        let seconds = now.since(self.since).as_secs_f64();
        self.received += self.running as f64 * seconds;
        self.asked += (self.running + self.waiting) as f64 * seconds;
        self.since = now;
    }
}

/// Totals that are counted.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) attempts: u64,
    pub(super) failed_attempts: u64,
    pub(super) preempted: u64,
    pub(super) disrupted: u64,
    pub(super) finished: u64,
    pub(super) lost: u64,
    pub(super) lost_work_seconds: f64,
    /// For each resource.
    pub(super) lost_work: Vec<f64>,
    pub(super) nodes_max: i64,
    pub(super) nodes_used_max: i64,
    /// The largest share in use of each resource.
    pub(super) utilization_max: Vec<f64>,
}

/// The measurements.
#[derive(Debug)]
pub(super) struct Measure {
    resources: usize,
    start: Time,
    now: Time,
    levels: Vec<i64>,
    areas: Vec<f64>,
    namespaces: Vec<NamespaceUse>,
    /// The number of waiting pods, by shape.
    pub(super) waiting_shapes: BTreeMap<u32, u32>,
    pub(super) counts: Counts,
    interval: Duration,
    pub(super) intervals: Vec<Interval>,
    /// The integrals at the beginning of the current interval.
    before: Vec<f64>,
    waiting_max: i64,
}

impl Measure {
    pub(super) fn new(plan: &Plan, start: Time) -> Self {
        let resources = plan.resources.len();
        let levels = FIXED + 3 * resources;
        let last = plan.pods.last().map_or(start, |pod| pod.arrival);
        let interval = (last.since(start) / INTERVALS_WANTED).max(Duration::from_secs(1));
        // In whole seconds, so that rows are readable.
        let interval = Duration::from_secs(interval.as_secs_f64().ceil() as u64);
        let namespace = NamespaceUse {
            since: start,
            ..NamespaceUse::default()
        };
        Self {
            resources,
            start,
            now: start,
            levels: vec![0; levels],
            areas: vec![0.0; levels],
            namespaces: vec![namespace; plan.namespaces.len()],
            waiting_shapes: BTreeMap::new(),
            counts: Counts {
                lost_work: vec![0.0; resources],
                utilization_max: vec![0.0; resources],
                ..Counts::default()
            },
            interval,
            intervals: Vec::new(),
            before: vec![0.0; levels],
            waiting_max: 0,
        }
    }

    fn capacity(&self, resource: usize) -> usize {
        FIXED + resource
    }

    fn allocated(&self, resource: usize) -> usize {
        FIXED + self.resources + resource
    }

    fn requested(&self, resource: usize) -> usize {
        FIXED + 2 * self.resources + resource
    }

    // --- time ----------------------------------------------------------------------------------------------

    /// Advances the time at the current levels.
    pub(super) fn advance(&mut self, now: Time) {
        let seconds = now.since(self.now).as_secs_f64();
        self.now = now;
        if seconds <= 0.0 {
            return;
        }
        for (area, level) in self.areas.iter_mut().zip(&self.levels) {
            *area += *level as f64 * seconds;
        }
        for resource in 0..self.resources {
            let capacity = self.levels[self.capacity(resource)];
            if capacity > 0 {
                let used = self.levels[self.allocated(resource)] as f64 / capacity as f64;
                let most = &mut self.counts.utilization_max[resource];
                *most = most.max(used);
            }
        }
        self.counts.nodes_max = self.counts.nodes_max.max(self.levels[NODES]);
        self.counts.nodes_used_max = self.counts.nodes_used_max.max(self.levels[NODES_USED]);
    }

    fn interval_start(&self) -> Time {
        self.intervals.last().map_or(self.start, |last| last.end)
    }

    /// The end of the present interval.
    pub(super) fn interval_end(&self) -> Option<Time> {
        Some(self.interval_start() + self.interval)
    }

    /// Ends the current interval now.
    pub(super) fn close_interval(&mut self, fragmentation: Box<[f64]>) {
        let seconds = self.now.since(self.interval_start()).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let areas = self.areas.iter().zip(&self.before);
        self.intervals.push(Interval {
            end: self.now,
            means: areas
                .map(|(now, before)| (now - before) / seconds)
                .collect(),
            waiting_max: self.waiting_max,
            cost: self.areas[PRICE],
            fragmentation,
        });
        self.before.clone_from(&self.areas);
        self.waiting_max = self.levels[WAITING];
        if self.intervals.len() >= INTERVALS_MAX {
            self.halve();
        }
    }

    /// Each two intervals become one.
    fn halve(&mut self) {
        self.interval *= 2;
        let pairs = self.intervals.chunks(2).map(|pair| match pair {
            [first, second] => Interval {
                means: first
                    .means
                    .iter()
                    .zip(&second.means)
                    .map(|(a, b)| f64::midpoint(*a, *b))
                    .collect(),
                waiting_max: first.waiting_max.max(second.waiting_max),
                ..second.clone()
            },
            rest => rest[0].clone(),
        });
        self.intervals = pairs.collect();
    }

    // --- levels --------------------------------------------------------------------------------------------

    fn add(&mut self, level: usize, amount: i64) {
        self.levels[level] += amount;
    }

    fn add_requests(&mut self, block: fn(&Self, usize) -> usize, requests: &[i64], sign: i64) {
        for (resource, amount) in requests.iter().enumerate() {
            let level = block(self, resource);
            self.levels[level] += sign * amount;
        }
    }

    fn namespace(&mut self, shape: &Shape, running: i64, waiting: i64) {
        let now = self.now;
        let of = &mut self.namespaces[shape.namespace as usize];
        of.advance(now);
        of.running += running * shape.share;
        of.waiting += waiting * shape.share;
    }

    /// A pod waits for a node from now on.
    pub(super) fn pod_waits(&mut self, shape: &Shape, index: u32) {
        self.add(WAITING, 1);
        self.waiting_max = self.waiting_max.max(self.levels[WAITING]);
        self.add_requests(Self::requested, &shape.requests, 1);
        self.namespace(shape, 0, 1);
        *self.waiting_shapes.entry(index).or_default() += 1;
    }

    /// A waiting pod was removed.
    pub(super) fn pod_gives_up(&mut self, shape: &Shape, index: u32) {
        self.add(WAITING, -1);
        self.add_requests(Self::requested, &shape.requests, -1);
        self.namespace(shape, 0, -1);
        if let Some(waiting) = self.waiting_shapes.get_mut(&index) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting_shapes.remove(&index);
            }
        }
    }

    /// A pod that waited has a node.
    pub(super) fn pod_bound(&mut self, shape: &Shape, index: u32) {
        self.pod_gives_up(shape, index);
        self.add(RUNNING, 1);
        self.add_requests(Self::allocated, &shape.requests, 1);
        self.namespace(shape, 1, 0);
    }

    /// A pod leaves its node.
    pub(super) fn pod_leaves(&mut self, shape: &Shape) {
        self.add(RUNNING, -1);
        self.add_requests(Self::allocated, &shape.requests, -1);
        self.namespace(shape, -1, 0);
    }

    /// A pod of a DaemonSet starts or ends.
    pub(super) fn daemon_changes(&mut self, requests: &[i64], sign: i64) {
        self.add_requests(Self::allocated, requests, sign);
    }

    pub(super) fn node_joins(&mut self, capacity: &[i64], price: i64) {
        self.add(NODES, 1);
        self.add(PRICE, price);
        self.add_requests(Self::capacity, capacity, 1);
    }

    pub(super) fn node_leaves(&mut self, capacity: &[i64], price: i64) {
        self.add(NODES, -1);
        self.add(PRICE, -price);
        self.add_requests(Self::capacity, capacity, -1);
    }

    /// The number of nodes with pods changes.
    pub(super) fn node_is_used(&mut self, by: i64) {
        self.add(NODES_USED, by);
    }

    // --- counts --------------------------------------------------------------------------------------------

    pub(super) fn note_attempt(&mut self, is_failure: bool) {
        self.counts.attempts += 1;
        self.counts.failed_attempts += u64::from(is_failure);
    }

    pub(super) fn note_finished(&mut self) {
        self.counts.finished += 1;
    }

    pub(super) fn note_lost(&mut self) {
        self.counts.lost += 1;
    }

    /// A pod was evicted after it had run for this time.
    pub(super) fn note_eviction(
        &mut self,
        shape: &Shape,
        worked: Option<Duration>,
        preempted: bool,
    ) {
        if preempted {
            self.counts.preempted += 1;
        } else {
            self.counts.disrupted += 1;
        }
        let seconds = worked.unwrap_or_default().as_secs_f64();
        self.counts.lost_work_seconds += seconds;
        for (lost, amount) in self.counts.lost_work.iter_mut().zip(&shape.requests) {
            *lost += *amount as f64 * seconds;
        }
    }

    // --- results -------------------------------------------------------------------------------------------

    /// The received share of the requested resources, by namespace.
    pub(super) fn shares(&mut self) -> Vec<f64> {
        let now = self.now;
        let shares = self.namespaces.iter_mut().filter_map(|of| {
            of.advance(now);
            (of.asked > 0.0).then(|| of.received / of.asked)
        });
        shares.collect()
    }

    /// The measured time, up to the last event.
    pub(super) fn length(&self) -> Duration {
        self.now.since(self.start)
    }

    /// The same in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.length().as_secs_f64()
    }

    pub(super) fn resource(&self, resource: usize) -> ResourceLevels {
        let (capacity, allocated) = (self.capacity(resource), self.allocated(resource));
        ResourceLevels {
            capacity_area: self.areas[capacity],
            allocated_area: self.areas[allocated],
            capacity: self.levels[capacity],
            allocated: self.levels[allocated],
        }
    }

    pub(super) fn nodes_area(&self) -> f64 {
        self.areas[NODES]
    }

    pub(super) fn nodes_used_area(&self) -> f64 {
        self.areas[NODES_USED]
    }

    pub(super) fn nodes(&self) -> (i64, i64) {
        (self.levels[NODES], self.levels[NODES_USED])
    }

    /// The cost of an integral of prices.
    pub(super) fn cost(&self) -> f64 {
        cost_of(self.areas[PRICE])
    }
}

/// A price in millionths for each hour, integrated over seconds.
fn cost_of(area: f64) -> f64 {
    area / 1e6 / 3_600.0
}

/// One resource at the end of the simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResourceLevels {
    pub(super) capacity_area: f64,
    pub(super) allocated_area: f64,
    pub(super) capacity: i64,
    pub(super) allocated: i64,
}

impl Interval {
    pub(super) fn running(&self) -> f64 {
        self.means[RUNNING]
    }

    pub(super) fn waiting(&self) -> f64 {
        self.means[WAITING]
    }

    pub(super) fn nodes(&self) -> f64 {
        self.means[NODES]
    }

    pub(super) fn nodes_used(&self) -> f64 {
        self.means[NODES_USED]
    }

    pub(super) fn cost(&self) -> f64 {
        cost_of(self.cost)
    }

    /// The mean allocatable, allocated and requested amount of a resource; `resources` is the number of resources.
    pub(super) fn amounts(&self, resource: usize, resources: usize) -> [f64; 3] {
        [0, 1, 2].map(|block| self.means[FIXED + block * resources + resource])
    }
}

impl Simulation {
    /// The share of each resource that is free on nodes on which no waiting pod has room.
    pub(super) fn fragmentation(&self) -> Box<[f64]> {
        let resources = self.plan.resources.len();
        let mut wasted = vec![0.0; resources];
        let smallest = self.smallest_waiting();
        if smallest.is_empty() {
            return wasted.into();
        }
        let mut capacity = vec![0_i64; resources];
        let mut free = vec![0_i64; resources];
        for node in self.nodes.all.iter().filter(|node| node.is_open()) {
            let is_usable = smallest.iter().any(|requests| node.has_room(requests));
            for resource in 0..resources {
                capacity[resource] += node.capacity[resource];
                if !is_usable {
                    free[resource] += (node.capacity[resource] - node.used[resource]).max(0);
                }
            }
        }
        for ((wasted, free), capacity) in wasted.iter_mut().zip(free).zip(capacity) {
            if capacity > 0 {
                *wasted = free as f64 / capacity as f64;
            }
        }
        wasted.into()
    }

    /// The minimal requests of waiting pods: requests that are at least as large as others in every resource are left
    /// out.
    fn smallest_waiting(&self) -> Vec<&[i64]> {
        let mut smallest: Vec<&[i64]> = Vec::new();
        let is_within = |a: &[i64], b: &[i64]| a.iter().zip(b).all(|(a, b)| a <= b);
        for shape in self.measure.waiting_shapes.keys() {
            let requests = &*self.plan.shapes[*shape as usize].requests;
            if smallest.iter().any(|known| is_within(known, requests)) {
                continue;
            }
            smallest.retain(|known| !is_within(requests, known));
            smallest.push(requests);
        }
        smallest
    }
}
