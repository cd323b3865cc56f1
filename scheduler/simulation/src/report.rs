//! The result of simulations as data: the JSON of `berth simulate -o json`. Within a version, fields are added, never
//! changed or removed.

mod compare;
mod csv;
mod page;
mod stats;

pub use compare::{Comparison, METRICS, Metric, Spread};
pub use csv::{pods_csv, series_csv};
pub use page::page;
pub use stats::{Quantiles, jain, quantiles};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The result of one trace with one or several configurations and seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// Each simulation: the seeds of the first configuration, then the seeds of the next one.
    pub runs: Vec<Run>,
    /// The means over the seeds, for each configuration in the order of the command line, with the differences from
    /// the first one.
    pub comparison: Vec<Comparison>,
}

impl Report {
    /// The report of these simulations.
    pub fn new(runs: Vec<Run>) -> Self {
        Self {
            version: VERSION,
            comparison: compare::compare(&runs),
            runs,
        }
    }
}

/// One simulation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The name of the configuration: its file, or `default`.
    pub config: String,
    /// The seed.
    pub seed: u64,
    /// The virtual time at which the simulation begins, RFC 3339.
    pub start: String,
    /// The virtual time at which it ends, after the last event.
    pub end: String,
    /// The length of the simulation in seconds.
    pub seconds: f64,
    /// The totals.
    pub summary: Summary,
    /// The waiting times of all pods.
    pub waiting: WaitingTimes,
    /// By namespace.
    pub by_namespace: BTreeMap<String, WaitingTimes>,
    /// By priority.
    pub by_priority: BTreeMap<i32, WaitingTimes>,
    /// By size: `small` pods request at most an eighth of the largest node, `medium` ones at most half of it, in the
    /// resource with the largest requested share; others are `large`.
    pub by_size: BTreeMap<String, WaitingTimes>,
    /// Each capacity buffer, in the order of the trace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<BufferUse>,
    /// The course of the simulation.
    pub series: Series,
    /// Each pod of the trace, in the order of arrival. Empty unless requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodRow>,
    /// The parts that the simulation left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The totals of a simulation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Pods that arrived.
    pub arrived: u64,
    /// Pods that were bound at least once.
    pub bound: u64,
    /// Pods that ran to their end.
    pub finished: u64,
    /// Pods on nodes at the end of the simulation.
    pub running: u64,
    /// Pods without a node at the end of the simulation, including pods without any attempt.
    pub waiting: u64,
    /// The number of waiting pods that were never bound.
    pub never_bound: u64,
    /// Pods that ended with their node or by an eviction and were not replaced.
    pub lost: u64,
    /// Attempts of the scheduler to place a pod.
    pub attempts: u64,
    /// Attempts that found no node.
    pub failed_attempts: u64,
    /// Pods that were evicted by preemption.
    pub preempted: u64,
    /// Pods whose node failed, left or was drained.
    pub disrupted: u64,
    /// Run time that ended with an eviction or disruption, in seconds of a pod.
    pub lost_work_seconds: f64,
    /// The same for each resource: the requested amount times seconds.
    pub lost_work: BTreeMap<String, f64>,
    /// Each resource over the whole simulation.
    pub resources: BTreeMap<String, ResourceUse>,
    /// The largest number of nodes at the same time.
    pub nodes_max: u64,
    /// The mean number of nodes.
    pub nodes_mean: f64,
    /// The largest number of nodes with pods at the same time.
    pub nodes_used_max: u64,
    /// The mean number of nodes with pods.
    pub nodes_used_mean: f64,
    /// Nodes that node groups added.
    pub nodes_added: u64,
    /// Nodes that node groups removed.
    pub nodes_removed: u64,
    /// The sum of the prices of all nodes over the time for which each existed.
    pub cost: f64,
    /// Fairness between namespaces: Jain's index of the share of the requested resource time that each received, from
    /// 1 / (number of namespaces) to 1 (all received the same share). Absent with fewer than two namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
}

/// One resource over a simulation. Amounts are in cores, bytes and units.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUse {
    /// The mean allocatable amount of all nodes.
    pub capacity_mean: f64,
    /// The allocatable amount of all nodes at the end.
    pub capacity_end: f64,
    /// The mean amount that pods on nodes request.
    pub allocated_mean: f64,
    /// The amount that pods on nodes request at the end.
    pub allocated_end: f64,
    /// The mean share of the allocatable amount that is requested, from 0 to 1.
    pub utilization_mean: f64,
    /// The largest share.
    pub utilization_max: f64,
    /// The share at the end.
    pub utilization_end: f64,
    /// The mean share of the allocatable amount that is free and that no waiting pod can use, while pods wait (see
    /// [`Series::fragmentation`]).
    pub fragmentation_mean: f64,
}

/// One capacity buffer over a simulation. A chunk has room when it fits on the nodes that exist and are not cordoned.
/// Room is counted at each change of a node or of the pods on it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BufferUse {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The number of chunks.
    pub chunks: u32,
    /// The share of the time in which all chunks had room, from 0 to 1.
    pub all_room_share: f64,
    /// The mean number of chunks with room.
    pub room_mean: f64,
    /// The number of chunks with room at the end.
    pub room_end: u32,
}

/// Waiting times of some pods, in seconds from the arrival.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingTimes {
    /// Pods that arrived.
    pub pods: u64,
    /// The number of these pods that were never bound. They are not included in the times.
    pub never_bound: u64,
    /// From the arrival to the first binding.
    pub to_binding: Quantiles,
    /// From the arrival to the first start of the containers.
    pub to_start: Quantiles,
}

/// The course of a simulation, in intervals of the same length. Values are means over the interval, weighted by time,
/// except where stated.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// The length of an interval in seconds.
    pub interval_seconds: f64,
    /// The end of each interval, in seconds since the start.
    pub at: Vec<f64>,
    /// Pods on nodes.
    pub running: Vec<f64>,
    /// Pods without a node, including gated pods and pods that wait for a quota.
    pub waiting: Vec<f64>,
    /// The largest number of pods without a node in the interval.
    pub waiting_max: Vec<f64>,
    /// Nodes.
    pub nodes: Vec<f64>,
    /// Nodes with pods.
    pub nodes_used: Vec<f64>,
    /// The cost since the start, at the end of the interval.
    pub cost: Vec<f64>,
    /// The allocatable amount of each resource.
    pub capacity: BTreeMap<String, Vec<f64>>,
    /// The requested amount of the pods on nodes, for each resource.
    pub allocated: BTreeMap<String, Vec<f64>>,
    /// The requested amount of the pods without a node, for each resource.
    pub requested: BTreeMap<String, Vec<f64>>,
    /// The share of the allocatable amount that is free on nodes without room for any waiting pod, at the end of the
    /// interval; zero while no pod waits. Only resources are considered.
    pub fragmentation: BTreeMap<String, Vec<f64>>,
}

/// One pod of the trace. Times are in seconds since the start.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The priority.
    pub priority: i32,
    /// `small`, `medium` or `large`, as in [`Run::by_size`].
    pub size: String,
    /// The requests, in cores, bytes and units.
    pub requests: BTreeMap<String, f64>,
    /// The arrival.
    pub arrived: f64,
    /// The first binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// The first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<f64>,
    /// The end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<f64>,
    /// The last node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// `finished`, `running`, `waiting` or `lost`.
    pub outcome: String,
    /// The attempts of the scheduler.
    pub attempts: u32,
    /// Evictions and disruptions.
    pub evictions: u32,
}
