//! The contents of metrics and the log for an attempt.

use super::{Framework, Settings};
use crate::attempt::Attempt;
use crate::clock::CoreClock;
use crate::trace::{AttemptTrace, POINTS_MAX, TracedPoint};
use berth_api::{Duration, Str, Time};
use berth_framework::stage::{Disruption, Observation};
use berth_framework::{Code, Feature};
use berth_profile::{Point, Profile};
use berth_telemetry::LogLine;
use berth_telemetry::metrics::{Metric, Metrics};
use smallvec::SmallVec;

/// A search for a node that takes at least this many nanoseconds is logged.
const SLOW_NANOS: u64 = 100_000_000;

impl Framework {
    /// Records the evaluator's work in metrics and in the trace.
    pub(crate) fn observe_evaluation(&mut self, attempt: &mut Attempt) {
        let profile = attempt.profile.clone();
        let tally = std::mem::take(&mut *attempt.evaluation.tally);
        let mut count = |point: Point, names: &mut dyn Iterator<Item = &Str>, calls: &[u32]| {
            for (name, calls) in names.zip(calls).filter(|(_, calls)| **calls > 0) {
                let labels = [name.as_str(), point.as_str(), profile.name.as_str()];
                let calls = f64::from(*calls);
                self.metrics.add(Metric::PluginEvaluation, &labels, calls);
            }
        };
        count(
            Point::PreFilter,
            &mut profile.pre_filter.iter().map(|m| &m.name),
            &tally.pre_filter,
        );
        count(
            Point::Filter,
            &mut profile.filter.iter().map(|m| &m.name),
            &tally.filter,
        );
        count(
            Point::PreScore,
            &mut profile.pre_score.iter().map(|m| &m.name),
            &tally.pre_score,
        );
        count(
            Point::Score,
            &mut profile.score.iter().map(|m| &m.member.name),
            &tally.score,
        );
        if let Some(sampled) = &tally.sampled {
            self.metrics.absorb(sampled);
        }
        // They ran in sequence, and the last one has just ended.
        let mut left: u64 = tally.spans.iter().map(|span| span.nanos).sum();
        for span in &tally.spans {
            let point = span.point.as_str();
            point_took(&mut self.metrics, point, span.code, &profile, span.nanos);
            left = left.saturating_sub(span.nanos);
            trace_point(&self.clock, attempt, point, span.code, span.nanos, left);
        }
    }

    /// Logs a search for a node that took long, with the durations of its steps (C-13).
    pub(crate) fn log_if_slow(&mut self, attempt: &Attempt) {
        let total = self.clock.nanos_until_last(attempt.began);
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
            "Scheduling took {}ms: \"Computing predicates done\" {}ms",
            millis(total),
            millis(total.saturating_sub(prioritizing))
        );
        if !scoring.is_empty() {
            text += &format!(", \"Prioritizing done\" {}ms", millis(prioritizing));
        }
        self.outbound
            .log
            .push(LogLine::info(text).with("pod", &*attempt.pod.pod));
    }

    /// An attempt has ended with this result; `result` is the label of metrics.
    pub(crate) fn attempt_took(&mut self, attempt: &Attempt, result: &str) {
        let labels = [result, attempt.profile.name.as_str()];
        let seconds = self.clock.seconds_since(attempt.began);
        self.metrics.count(Metric::ScheduleAttempts, &labels);
        self.metrics
            .observe(Metric::SchedulingAttemptDuration, &labels, seconds);
    }

    /// Counts the observations of plugins.
    pub(crate) fn count_observations(
        &mut self,
        observations: impl IntoIterator<Item = Observation>,
    ) {
        for observation in observations {
            match observation {
                Observation::PreemptionAttempt => {
                    self.metrics.count(Metric::PreemptionAttempts, &[]);
                }
                Observation::Preemption(disruption) => {
                    count_disruption(&mut self.metrics, &self.settings, disruption)
                }
                Observation::VolumeStageFailed(operation) => {
                    self.metrics
                        .count(Metric::VolumeSchedulingStageErrors, &[operation]);
                }
            }
        }
    }

    /// An attempt has ended with this result. `node` is set if the pod was bound.
    pub(crate) fn trace_ended(
        &mut self,
        attempt: &mut Attempt,
        result: &'static str,
        node: Option<&Str>,
        message: &str,
    ) {
        let Some(points) = attempt.trace.take() else {
            return;
        };
        let nanos = self.clock.nanos_until_last(attempt.began);
        let ended = self.clock.last_wall();
        self.outbound.traces.keep(AttemptTrace {
            pod: attempt.pod_ref(),
            profile: attempt.profile.name.clone(),
            attempt: attempt.info.attempts,
            result,
            node: node.cloned(),
            message: message.to_owned(),
            began: before(ended, nanos),
            ended,
            points,
        });
    }
}

/// The search for a node has ended (C-34).
pub(crate) fn search_took(clock: &CoreClock, metrics: &mut Metrics, attempt: &Attempt) {
    let seconds = clock.nanos_until_last(attempt.began) as f64 / 1e9;
    metrics.observe(Metric::SchedulingAlgorithmDuration, &[], seconds);
}

fn count_disruption(metrics: &mut Metrics, settings: &Settings, disruption: Disruption) {
    let Disruption {
        preemptor,
        victims,
        units,
        violations,
    } = disruption;
    let metric = match preemptor {
        "pod" => Metric::PreemptionVictims,
        _ => Metric::WorkloadPreemptionVictims,
    };
    metrics.observe(metric, &[], victims as f64);
    if settings.is_on(Feature::GenericWorkload) {
        let metric = Metric::PreemptionWorkloadDisruptions;
        metrics.observe(metric, &[preemptor], units as f64);
        let metric = Metric::PreemptionPdbViolations;
        metrics.add(metric, &[preemptor], violations as f64);
    }
}

/// Observes a run of an extension point (F-7).
pub(super) fn point_took(
    metrics: &mut Metrics,
    point: &str,
    code: Code,
    profile: &Profile,
    nanos: u64,
) {
    let labels = [point, code.as_str(), profile.name.as_str()];
    let seconds = nanos as f64 / 1e9;
    metrics.observe(Metric::FrameworkExtensionPointDuration, &labels, seconds);
}

/// Records a run of an extension point with its duration, and the time between its end and the last reading of the
/// stopwatch, both in nanoseconds.
pub(super) fn trace_point(
    clock: &CoreClock,
    attempt: &mut Attempt,
    point: &'static str,
    code: Code,
    nanos: u64,
    ended_before: u64,
) {
    let Some(points) = &mut attempt.trace else {
        return;
    };
    if points.len() >= POINTS_MAX {
        return;
    }
    let ended = before(clock.last_wall(), ended_before);
    points.push(TracedPoint {
        point,
        code,
        began: before(ended, nanos),
        ended,
    });
}

/// The time this number of nanoseconds earlier.
fn before(time: Time, nanos: u64) -> Time {
    time - Duration::from_nanos(nanos)
}
