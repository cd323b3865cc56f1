//! All metrics of the core, served by the edge.

use super::Scheduler;
use crate::quota_waits;
use berth_framework::Feature;
use berth_telemetry::metrics::{Metric, Snapshot};

impl Scheduler {
    /// All metrics as they are now.
    pub fn metrics(&self) -> Snapshot {
        let core = &self.core;
        let mut metrics = core.framework.metrics.clone();
        let counts = core.queue.places().counts();
        for (queue, pods) in [
            ("active", counts.active),
            ("backoff", counts.backoff),
            ("unschedulable", counts.unschedulable),
            ("gated", counts.gated),
        ] {
            metrics.set(Metric::PendingPods, &[queue], pods as f64);
        }
        if core.framework.settings.is_on(Feature::GenericWorkload) {
            for (queue, pods) in [
                ("incomplete", counts.incomplete),
                ("pending", counts.pending),
            ] {
                metrics.set(Metric::PendingPods, &[queue], pods as f64);
            }
            for ((queue, word), entities) in core.queue.places().entities() {
                metrics.set(Metric::QueuedEntities, &[queue, word], entities as f64);
            }
        }
        metrics.absorb(core.queue.metrics());
        // Present from the start.
        metrics.add(Metric::EventLogCollapses, &[], 0.0);
        let versions = core.framework.settings.features.versions();
        for feature in Feature::ALL {
            let Some(spec) = feature.state(versions).spec() else {
                continue;
            };
            let stage = spec.stage.as_str();
            let is_on = f64::from(u8::from(core.framework.settings.is_on(*feature)));
            metrics.set(Metric::FeatureEnabled, &[feature.name(), stage], is_on);
        }
        for (kind, objects) in [
            ("nodes", core.framework.cache.cluster().nodes.len()),
            ("pods", core.framework.cache.counted_pods()),
            ("assumed_pods", core.framework.cache.assumed_pods()),
        ] {
            metrics.set(Metric::CacheSize, &[kind], objects as f64);
        }
        let binding = self.bindings.len() as f64;
        metrics.set(Metric::Goroutines, &["binding"], binding);
        if !core.framework.settings.extenders.is_empty() {
            let asked = self.cycle.prioritizing_extenders() as f64;
            metrics.set(Metric::Goroutines, &["prioritizing_extender"], asked);
        }
        let is_async = core
            .framework
            .settings
            .is_on(Feature::SchedulerAsyncAPICalls);
        let pending = core.calls.dispatcher().pending().into_iter();
        for (call_type, calls) in pending.filter(|_| is_async) {
            metrics.set(Metric::PendingAsyncApiCalls, &[call_type], calls as f64);
        }
        quota_waits::set_gauges(core.framework.cache.cluster().quotas(), &mut metrics);
        metrics.snapshot()
    }

    /// Resets counters and histograms; gauges show the current state as before (M-3).
    pub fn reset_metrics(&mut self) {
        self.core.framework.metrics.reset();
        self.core.queue.reset_metrics();
    }
}
