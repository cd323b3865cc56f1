//! The core's numbers, for the edge to serve.

use super::Scheduler;
use super::io::LogLevel;
use crate::cycle::Attempt;
use crate::evaluator::{Stopwatch, Tally};
use crate::metrics::{Metric, Snapshot};
use crate::profile::{Point, Profile};
use berth_api::{Str, Time};
use berth_framework::{Code, Feature};
use smallvec::SmallVec;

/// From so many nanoseconds on, the log tells what a search for a node spent its time on.
const SLOW_NANOS: u64 = 100_000_000;

/// A moment by both clocks: the time that comes with inputs, which stands still during a step, and the stopwatch,
/// which stands still where nothing is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    time: Time,
    nanos: u64,
}

impl Moment {
    pub(crate) fn new(now: Time, stopwatch: &dyn Stopwatch) -> Self {
        Self {
            time: now,
            nanos: stopwatch.nanos(),
        }
    }

    /// Nanoseconds from then until now, by whichever of the two clocks has gone further.
    pub(crate) fn nanos_until(self, now: Time, stopwatch: &dyn Stopwatch) -> u64 {
        let measured = stopwatch.nanos().saturating_sub(self.nanos);
        let told = u64::try_from(now.since(self.time).as_nanos()).unwrap_or(u64::MAX);
        measured.max(told)
    }
}

/// When an extension point began, and its plugin that is being called. A plugin that waits is being called until it is
/// done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) point: Moment,
    /// Set when single calls are timed.
    pub(crate) call: Option<Moment>,
}

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
        for feature in Feature::ALL {
            let stage = feature.stage().as_str();
            let is_on = f64::from(u8::from(self.features.enabled(*feature)));
            metrics.set(Metric::FeatureEnabled, &[feature.name(), stage], is_on);
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
        if !self.io.extenders.is_empty() {
            let asked = self.prioritizing_extenders() as f64;
            metrics.set(Metric::Goroutines, &["prioritizing_extender"], asked);
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

    /// This moment.
    pub(crate) fn moment(&self, now: Time) -> Moment {
        Moment::new(now, &*self.stopwatch)
    }

    /// When an extension point begins.
    pub(crate) fn timing(&self, now: Time) -> Timing {
        Timing {
            point: self.moment(now),
            call: None,
        }
    }

    /// Tells of the search for a node that ends now, if it took long, and what for (C-13).
    pub(crate) fn tell_if_slow(&mut self, attempt: &Attempt, now: Time) {
        let total = attempt.began.nanos_until(now, &*self.stopwatch);
        if total < SLOW_NANOS {
            return;
        }
        let is_scoring = |point| matches!(point, Point::PreScore | Point::Score);
        let scoring = attempt.evaluation.tally.spans.iter();
        let scoring: SmallVec<[u64; 2]> = scoring
            .filter(|span| is_scoring(span.point))
            .map(|span| span.nanos)
            .collect();
        let millis = |nanos: u64| nanos / 1_000_000;
        let prioritizing: u64 = scoring.iter().sum();
        let mut text = format!(
            "Scheduling {} (total time: {}ms): \"Computing predicates done\" {}ms",
            attempt.pod.pod.key(),
            millis(total),
            millis(total.saturating_sub(prioritizing))
        );
        if !scoring.is_empty() {
            text += &format!(", \"Prioritizing done\" {}ms", millis(prioritizing));
        }
        self.io.log(LogLevel::Info, text);
    }

    /// Books a run of an extension point that began at `began` and ends now.
    pub(crate) fn point_ended(
        &mut self,
        point: &str,
        code: Code,
        profile: &Profile,
        (began, now): (Moment, Time),
    ) {
        let nanos = began.nanos_until(now, &*self.stopwatch);
        self.book_point(point, code, profile, nanos);
    }

    /// Books a run of an extension point.
    fn book_point(&mut self, point: &str, code: Code, profile: &Profile, nanos: u64) {
        let labels = [point, code.as_str(), profile.name.as_str()];
        let seconds = nanos as f64 / 1e9;
        self.metrics
            .observe(Metric::FrameworkExtensionPointDuration, &labels, seconds);
    }

    /// The beginning of a plugin's call, where single calls are timed.
    pub(crate) fn call_begins(&self, is_sampled: bool, now: Time) -> Option<Moment> {
        is_sampled.then(|| self.moment(now))
    }

    /// Books a call of a plugin that ends now, if it is one of those that are timed (F-7).
    pub(crate) fn call_ended(
        &mut self,
        began: Option<Moment>,
        (plugin, point): (&str, &str),
        code: Code,
        now: Time,
    ) {
        if let Some(began) = began {
            let nanos = began.nanos_until(now, &*self.stopwatch);
            self.metrics.observe_plugin(plugin, point, code, nanos);
        }
    }
}
