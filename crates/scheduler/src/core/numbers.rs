//! The core's numbers, for the edge to serve.

use super::Scheduler;
use crate::evaluator::Tally;
use crate::metrics::{Metric, Snapshot};
use crate::profile::{Point, Profile};
use berth_api::Str;
use berth_framework::Code;

impl Scheduler {
    /// All metrics as they are now.
    pub fn metrics(&self) -> Snapshot {
        let mut metrics = self.metrics.clone();
        let counts = self.queue.counts();
        for (queue, pods) in [
            ("active", counts.active),
            ("backoff", counts.backoff),
            ("unschedulable", counts.unschedulable),
            ("gated", counts.gated),
        ] {
            metrics.set(Metric::PendingPods, &[queue], pods as f64);
        }
        let queue = self.queue.metrics();
        for ((place, event), pods) in queue.queue_incoming_pods_total() {
            metrics.set(Metric::QueueIncomingPods, &[place, event], pods as f64);
        }
        for ((plugin, profile), pods) in queue.unschedulable_pods() {
            metrics.set(Metric::UnschedulablePods, &[plugin, profile], pods as f64);
        }
        for (event, entries) in queue.inflight_events() {
            metrics.set(Metric::InflightEvents, &[event], entries as f64);
        }
        metrics.absorb(queue.durations());
        for ((plugin, result), calls) in queue.pre_queueing_hint_evaluations_total() {
            let labels = [plugin, result];
            metrics.set(Metric::PreQueueingHintEvaluations, &labels, calls as f64);
        }
        let collapses = queue.event_log_collapses_total as f64;
        metrics.set(Metric::EventLogCollapses, &[], collapses);
        for (kind, objects) in [
            ("nodes", self.cache.cluster().nodes.len()),
            ("pods", self.cache.counted_pods()),
            ("assumed_pods", self.cache.assumed_pods()),
        ] {
            metrics.set(Metric::CacheSize, &[kind], objects as f64);
        }
        let binding = self.bindings.len() as f64;
        metrics.set(Metric::Goroutines, &["binding"], binding);
        for call_type in ["pod_binding", "pod_status_patch", "pod_deletion"] {
            metrics.set(Metric::PendingAsyncApiCalls, &[call_type], 0.0);
        }
        for (call_type, calls) in self.io.dispatcher.pending() {
            metrics.set(Metric::PendingAsyncApiCalls, &[call_type], calls as f64);
        }
        metrics.snapshot()
    }

    /// Forgets what was counted and observed; gauges tell the present as before (M-3).
    pub fn reset_metrics(&mut self) {
        self.metrics.reset();
        self.queue.reset_durations();
    }

    /// Books what an evaluation did.
    pub(crate) fn book(&mut self, tally: &Tally, profile: &Profile) {
        let mut calls = |point: Point, names: &mut dyn Iterator<Item = &Str>, counts: &[u32]| {
            for (name, count) in names.zip(counts).filter(|(_, count)| **count > 0) {
                let labels = [name.as_str(), point.as_str(), profile.name.as_str()];
                let count = f64::from(*count);
                self.metrics.add(Metric::PluginEvaluation, &labels, count);
            }
        };
        calls(
            Point::PreFilter,
            &mut profile.pre_filter.iter().map(|m| &m.name),
            &tally.pre_filter,
        );
        calls(
            Point::Filter,
            &mut profile.filter.iter().map(|m| &m.name),
            &tally.filter,
        );
        calls(
            Point::PreScore,
            &mut profile.pre_score.iter().map(|m| &m.name),
            &tally.pre_score,
        );
        calls(
            Point::Score,
            &mut profile.score.iter().map(|m| &m.member.name),
            &tally.score,
        );
        if let Some(sampled) = &tally.sampled {
            self.metrics.absorb(sampled);
        }
        for span in &tally.spans {
            self.book_point(span.point.as_str(), span.code, profile, span.nanos);
        }
    }

    /// Books one run of an extension point.
    pub(crate) fn book_point(&mut self, point: &str, code: Code, profile: &Profile, nanos: u64) {
        let labels = [point, code.as_str(), profile.name.as_str()];
        let seconds = nanos as f64 / 1e9;
        self.metrics
            .observe(Metric::FrameworkExtensionPointDuration, &labels, seconds);
    }

    /// Books one call of a plugin.
    pub(crate) fn book_plugin(&mut self, plugin: &Str, point: Point, profile: &Profile) {
        let labels = [plugin.as_str(), point.as_str(), profile.name.as_str()];
        self.metrics.count(Metric::PluginEvaluation, &labels);
    }
}
