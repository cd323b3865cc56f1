//! The outputs of the queue: metrics, log, and reports of PreEnqueue. The runs of PreEnqueue plugins write all of them.

use super::entry::{Gate, QueuedPodInfo};
use super::hooks::QueueProfile;
use super::metrics::QueueMetrics;
use super::report::Reports;
use berth_api::{Pod, Str, Time};
use berth_framework::plugin::{Context, PreEnqueue};
use berth_framework::{Code, Feature, FeatureGates};
use berth_telemetry::metrics::Sampler;
use berth_telemetry::{Log, LogLine, NoStopwatch, Stopwatch};
use std::sync::Arc;

/// The kind of entry for which PreEnqueue plugins run.
#[derive(Debug, Clone, Copy)]
pub(super) enum AskedAs<'a> {
    /// A pod without group. The plugin that rejects it now runs first.
    Pod(Option<&'a Gate>),
    /// A member of a group. Its runs are not observed.
    Member,
}

/// The outputs of the queue.
pub(super) struct QueueOutputs {
    pub(super) metrics: QueueMetrics,
    pub(super) log: Log,
    pub(super) reports: Reports,
    /// Whether PreEnqueue reports are written (SchedulerPreEnqueuePodStatus).
    pub(super) reports_wanted: bool,
    /// Used only for metrics.
    pub(super) stopwatch: Arc<dyn Stopwatch>,
    sampler: Sampler,
}

impl QueueOutputs {
    pub(super) fn new(features: &FeatureGates) -> Self {
        Self {
            metrics: QueueMetrics::default(),
            log: Log::default(),
            reports: Reports::default(),
            reports_wanted: features.enabled(Feature::SchedulerPreEnqueuePodStatus),
            stopwatch: Arc::new(NoStopwatch),
            sampler: Sampler::default(),
        }
    }

    /// Runs the PreEnqueue plugins of a pod's profile. Returns the first rejection.
    pub(super) fn rejection(
        &mut self,
        cx: &Context<'_>,
        profile: Option<&QueueProfile>,
        pod: &Arc<Pod>,
        asked: AskedAs<'_>,
    ) -> Option<Gate> {
        let plugins = profile.map_or(&[][..], |profile| &profile.pre_enqueue);
        let (gate, is_observed) = match asked {
            AskedAs::Pod(gate) => (gate, true),
            AskedAs::Member => (None, false),
        };
        let is_gate =
            |plugin: &&(Str, Arc<dyn PreEnqueue>)| gate.is_some_and(|gate| gate.plugin == plugin.0);
        let first = plugins.iter().filter(is_gate);
        let others = plugins.iter().filter(|plugin| !is_gate(plugin));
        let is_sampled = is_observed && self.sampler.choose();
        let began = self.stopwatch.last_nanos();
        let stop = first.chain(others).find_map(|(name, plugin)| {
            let called = is_sampled.then(|| self.stopwatch.nanos());
            let status = plugin.pre_enqueue(cx, pod);
            if let Some(called) = called {
                let nanos = self.stopwatch.nanos().saturating_sub(called);
                self.metrics.pre_enqueue_plugin(name, status.code(), nanos);
            }
            (!status.is_success()).then_some((name, plugin, status))
        });
        // the observation has the code with which the run ended.
        let code = stop.as_ref().map_or(Code::Success, |stop| stop.2.code());
        if is_observed {
            let nanos = self.stopwatch.nanos().saturating_sub(began);
            let profile = &pod.spec.scheduler_name;
            self.metrics.pre_enqueue(profile, code, nanos);
        }
        let (name, plugin, status) = stop?;
        if code == Code::Error {
            let line = LogLine::error("Unexpected error running PreEnqueue plugin");
            let line = line.with("pod", &**pod).with("plugin", name);
            self.log.push(line.with("err", status.message()));
        } else if is_observed {
            let text = "Status after running PreEnqueue plugin";
            self.log.v(4, text, |line| {
                let line = line.with("pod", &**pod).with("plugin", name);
                line.with("status", status.message())
            });
        }
        // The message is only for the report of a pod without a group. A group has one message for many members.
        let is_stated = self.reports_wanted || !is_observed;
        Some(Gate::of(name, &**plugin, &status, is_stated))
    }

    /// Replaces a pod by its new version. A rejection that is no longer in its status is reported again.
    pub(super) fn replace_pod(&mut self, info: &mut QueuedPodInfo, new: &Arc<Pod>, now: Time) {
        if self.reports_wanted {
            self.reports.shown(info, new, now);
        }
        info.pod = new.clone();
    }

    /// Sets or clears the gate of a pod after a run. The plugin becomes a rejector of the pod, and the result is
    /// reported.
    pub(super) fn set_gate(&mut self, info: &mut QueuedPodInfo, gate: Option<Gate>, now: Time) {
        if let Some(Gate { plugin, .. }) = &gate {
            if !info.is_rejected_by(plugin) {
                let profile = &info.pod.spec.scheduler_name;
                self.metrics.unschedulable(plugin, profile, 1.0);
            }
            info.unschedulable_plugins.insert(plugin);
        }
        let before = std::mem::replace(&mut info.own.gate, gate);
        if self.reports_wanted {
            let (reports, before) = (&mut self.reports, before.as_ref());
            match &info.own.gate {
                Some(gate) => reports.rejected(&info.pod, before, gate, now),
                None => reports.passed(&info.pod, before, now),
            }
        }
    }
}
