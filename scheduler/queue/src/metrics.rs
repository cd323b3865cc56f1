//! The metrics that the queue counts and, with a stopwatch, times.

use super::entry::{QueuedIn, QueuedPodInfo};
use berth_api::Str;
use berth_framework::Code;
use berth_telemetry::metrics::{Families, HistogramValue, Metric, MetricKind, Metrics};

/// The extension point that the queue runs.
const PRE_ENQUEUE: &str = "PreEnqueue";

/// The label of `inflight_events` that counts the pods in flight.
pub const POD_POPPED: &str = "PodPopped";

/// The metrics of the queue, except `pending_pods`, which is in [`super::QueueCounts`]. Durations are zero without a
/// stopwatch.
#[derive(Debug, Clone, Default)]
pub(super) struct QueueMetrics(Metrics);

impl QueueMetrics {
    /// `queue_incoming_pods_total`; gated pods count as unschedulable.
    pub(super) fn pods_arrived(&mut self, place: QueuedIn, event: &str, pods: usize) {
        let labels = [place.incoming_label(), event];
        self.0.add(Metric::QueueIncomingPods, &labels, pods as f64);
    }

    /// `queue_incoming_entities_total`, with pod groups.
    pub(super) fn entity_arrived(&mut self, place: QueuedIn, event: &str, word: &str) {
        let labels = [place.incoming_label(), event, word];
        self.0.count(Metric::QueueIncomingEntities, &labels);
    }

    /// `unschedulable_pods`: the number of queued pods that a plugin has rejected.
    pub(super) fn unschedulable(&mut self, plugin: &str, profile: &str, change: f64) {
        self.0
            .add(Metric::UnschedulablePods, &[plugin, profile], change);
    }

    /// Starts or stops to count a pod under its rejecting plugins.
    pub(super) fn count_rejectors(&mut self, info: &QueuedPodInfo, change: f64) {
        // The members of a group are counted separately.
        if info.own.group.is_some() {
            return;
        }
        for plugin in info.rejectors() {
            self.unschedulable(plugin, &info.pod.spec.scheduler_name, change);
        }
    }

    /// `inflight_events`: the number of entries of the event log; pods in flight are under [`POD_POPPED`].
    pub(super) fn inflight(&mut self, event: &str, change: f64) {
        self.0.add(Metric::InflightEvents, &[event], change);
    }

    /// The log of events for pods in flight overflowed and collapsed into one entry.
    pub(super) fn event_log_collapsed(&mut self) {
        self.0.count(Metric::EventLogCollapses, &[]);
    }

    /// `pre_queueing_hint_evaluations_total`.
    pub(super) fn narrowing(&mut self, plugin: &str, result: &str) {
        let metric = Metric::PreQueueingHintEvaluations;
        self.0.count(metric, &[plugin, result]);
    }

    /// one run of PreEnqueue and its resulting code.
    pub(super) fn pre_enqueue(&mut self, profile: &Str, code: Code, nanos: u64) {
        let labels = [PRE_ENQUEUE, code.as_str(), profile.as_str()];
        let metric = Metric::FrameworkExtensionPointDuration;
        self.0.observe(metric, &labels, nanos as f64 / 1e9);
    }

    /// One call of a PreEnqueue plugin.
    pub(super) fn pre_enqueue_plugin(&mut self, plugin: &str, code: Code, nanos: u64) {
        self.0.observe_plugin(plugin, PRE_ENQUEUE, code, nanos);
    }

    /// calls of one plugin's hints.
    pub(super) fn hints_took(&mut self, labels: [&str; 3], took: &HistogramValue) {
        let metric = Metric::QueueingHintExecutionDuration;
        self.0.merge(metric, &labels, took);
    }

    /// Resets counters and histograms; gauges do not change (M-3).
    pub(super) fn reset(&mut self) {
        for metric in Metric::ALL {
            if !matches!(metric.family().kind, MetricKind::Gauge) {
                self.0.forget(*metric);
            }
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> &Metrics {
        &self.0
    }
}
