//! What the queue counts and, with a stopwatch, times (spec section 7: the metrics of the queue).

use super::entry::{QueuedIn, QueuedPodInfo};
use super::hints::{HintCounts, HintOutcome, NarrowingResult};
use crate::metrics::{HistogramValue, Metric, Metrics};
use berth_api::Str;
use berth_framework::Code;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The extension point that the queue runs.
pub(super) const PRE_ENQUEUE: &str = "PreEnqueue";

/// The label of [`QueueMetrics::inflight_events`] that counts the pods in flight.
pub const POD_POPPED: &str = "PodPopped";

/// The counters and gauges of the queue. `pending_pods` is in [`super::QueueCounts`].
#[derive(Debug, Clone, Default)]
pub struct QueueMetrics {
    incoming: FxHashMap<Str, [u64; 3]>,
    unschedulable: FxHashMap<Str, FxHashMap<Str, i64>>,
    inflight: FxHashMap<Str, i64>,
    hints: FxHashMap<(Str, Str), HintCounts>,
    narrowings: FxHashMap<Str, [u64; 2]>,
    durations: Metrics,
    /// How often the log of events for pods in flight was full and collapsed into one entry.
    pub event_log_collapses_total: u64,
}

impl QueueMetrics {
    pub(super) fn pod_came(&mut self, place: QueuedIn, event: &str) {
        let counts = match self.incoming.get_mut(event) {
            Some(counts) => counts,
            None => self.incoming.entry(Str::new(event)).or_default(),
        };
        counts[incoming_index(place)] += 1;
    }

    pub(super) fn unschedulable(&mut self, plugin: &Str, profile: &Str, change: i64) {
        let by_plugin = match self.unschedulable.get_mut(profile) {
            Some(by_plugin) => by_plugin,
            None => self.unschedulable.entry(profile.clone()).or_default(),
        };
        match by_plugin.get_mut(plugin) {
            Some(count) => *count += change,
            None => {
                by_plugin.insert(plugin.clone(), change);
            }
        }
    }

    /// A pod begins or ceases to be counted under the plugins that rejected it.
    pub(super) fn count_rejectors(&mut self, info: &QueuedPodInfo, change: i64) {
        for plugin in info.rejectors() {
            self.unschedulable(plugin, &info.pod.spec.scheduler_name, change);
        }
    }

    pub(super) fn inflight(&mut self, event: &str, change: i64) {
        match self.inflight.get_mut(event) {
            Some(count) => *count += change,
            None => {
                self.inflight.insert(Str::new(event), change);
            }
        }
    }

    pub(super) fn hints(&mut self, plugin: &Str, event: &Str, counts: HintCounts) {
        let sums = self
            .hints
            .entry((plugin.clone(), event.clone()))
            .or_default();
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
    }

    pub(super) fn narrowing(&mut self, plugin: &Str, result: NarrowingResult) {
        self.narrowings.entry(plugin.clone()).or_default()[result as usize] += 1;
    }

    /// one run of PreEnqueue, with the code that it ended with.
    pub(super) fn pre_enqueue(&mut self, profile: &Str, code: Code, nanos: u64) {
        let labels = [PRE_ENQUEUE, code.as_str(), profile.as_str()];
        let metric = Metric::FrameworkExtensionPointDuration;
        self.durations.observe(metric, &labels, nanos as f64 / 1e9);
    }

    /// calls of one plugin's hints.
    pub(super) fn hints_took(&mut self, labels: [&str; 3], took: &HistogramValue) {
        let metric = Metric::QueueingHintExecutionDuration;
        self.durations.merge(metric, &labels, took);
    }

    pub(super) fn durations_mut(&mut self) -> &mut Metrics {
        &mut self.durations
    }

    /// The histograms of PreEnqueue and of queueing hints. They hold only zeroes when the queue has no stopwatch.
    pub fn durations(&self) -> &Metrics {
        &self.durations
    }

    /// `queue_incoming_pods_total{queue,event}`; gated pods count as unschedulable.
    pub fn queue_incoming_pods_total(&self) -> BTreeMap<(&'static str, &str), u64> {
        let mut all = BTreeMap::new();
        for (event, counts) in &self.incoming {
            for place in [QueuedIn::Active, QueuedIn::Backoff, QueuedIn::Unschedulable] {
                let count = counts[incoming_index(place)];
                if count > 0 {
                    all.insert((place.incoming_label(), event.as_str()), count);
                }
            }
        }
        all
    }

    /// `unschedulable_pods{plugin,profile}`: how many queued pods each plugin has rejected.
    pub fn unschedulable_pods(&self) -> BTreeMap<(&str, &str), i64> {
        self.unschedulable
            .iter()
            .flat_map(|(profile, by_plugin)| {
                by_plugin
                    .iter()
                    .map(|(plugin, count)| ((plugin.as_str(), profile.as_str()), *count))
            })
            .collect()
    }

    /// `inflight_events{event}`: how many entries the event log holds; pods in flight are under [`POD_POPPED`].
    pub fn inflight_events(&self) -> BTreeMap<&str, i64> {
        self.inflight
            .iter()
            .map(|(event, count)| (event.as_str(), *count))
            .collect()
    }

    /// How often the hints of each plugin answered what: the counts behind
    /// `queueing_hint_execution_duration_seconds{plugin,event,hint}`.
    pub fn queueing_hint_executions(&self) -> BTreeMap<(&str, &str, &'static str), u64> {
        let mut all = BTreeMap::new();
        for ((plugin, event), counts) in &self.hints {
            for outcome in HintOutcome::ALL {
                let count = counts[outcome as usize];
                if count > 0 {
                    all.insert((plugin.as_str(), event.as_str(), outcome.label()), count);
                }
            }
        }
        all
    }

    /// `pre_queueing_hint_evaluations_total{plugin,result}`.
    pub fn pre_queueing_hint_evaluations_total(&self) -> BTreeMap<(&str, &'static str), u64> {
        let mut all = BTreeMap::new();
        for (plugin, counts) in &self.narrowings {
            for result in NarrowingResult::ALL {
                let count = counts[result as usize];
                if count > 0 {
                    all.insert((plugin.as_str(), result.label()), count);
                }
            }
        }
        all
    }
}

fn incoming_index(place: QueuedIn) -> usize {
    match place {
        QueuedIn::Active => 0,
        QueuedIn::Backoff | QueuedIn::ErrorBackoff => 1,
        QueuedIn::Unschedulable | QueuedIn::Gated => 2,
    }
}
