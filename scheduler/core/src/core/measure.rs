//! The contents of metrics and the log for an attempt.

use super::trace::POINTS_MAX;
use super::{AttemptTrace, Core, Moment, TracedPoint};
use crate::attempt::Attempt;
use berth_api::{Duration, Str, Time};
use berth_framework::stage::{Disruption, Observation};
use berth_framework::{Code, Feature};
use berth_profile::Point;
use berth_telemetry::LogLine;
use berth_telemetry::Stopwatch;
use berth_telemetry::metrics::{Metric, Metrics};
use smallvec::SmallVec;

/// A search for a node that takes at least this many nanoseconds is logged.
const SLOW_NANOS: u64 = 100_000_000;

impl Core {
    /// The counters and observations so far.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Forgets what was counted and observed.
    pub(crate) fn reset_metrics(&mut self) {
        self.metrics.reset();
        self.queue.reset_metrics();
    }

    /// Counts one.
    pub(crate) fn count(&mut self, metric: Metric, labels: &[&str]) {
        self.metrics.count(metric, labels);
    }

    /// Counts so many.
    pub(crate) fn add(&mut self, metric: Metric, labels: &[&str], count: f64) {
        self.metrics.add(metric, labels, count);
    }

    /// Observes a value.
    pub(crate) fn observe(&mut self, metric: Metric, labels: &[&str], value: f64) {
        self.metrics.observe(metric, labels, value);
    }

    /// The time at which the last stage that was timed has ended, which is when the present one began.
    pub(crate) fn stage_begin(&self) -> Moment {
        self.clock.stage_begin()
    }

    /// The last reading of the stopwatch, in nanoseconds: the end of what was timed last.
    pub(crate) fn last_nanos(&self) -> u64 {
        self.clock.laps().last_nanos()
    }

    /// Reads the stopwatch, in nanoseconds.
    pub(crate) fn nanos(&self) -> u64 {
        self.clock.laps().nanos()
    }

    /// From now on, attempts are traced.
    pub(crate) fn trace_attempts(&mut self) {
        self.outbound.trace_attempts();
    }

    /// The place for the points of an attempt that begins; `None` while traces are off.
    pub(crate) fn begin_trace(&self) -> Option<Vec<TracedPoint>> {
        self.outbound.begin_trace()
    }

    /// Seconds from then until now.
    pub(crate) fn seconds_since(&self, then: Moment) -> f64 {
        self.clock.nanos_since(then) as f64 / 1e9
    }

    /// Counts and observes what the evaluator has done since the last time.
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
        // They ran one after the other, and the last one has just ended.
        let mut left: u64 = tally.spans.iter().map(|span| span.nanos).sum();
        for span in &tally.spans {
            let point = span.point.as_str();
            self.point_took(point, span.code, &profile, span.nanos);
            left = left.saturating_sub(span.nanos);
            self.trace_point(attempt, (point, span.code), span.nanos, left);
        }
    }

    /// Logs the search for a node that has just ended if it took long, with what it spent its time on (C-13).
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
        self.log(LogLine::info(text).with("pod", &*attempt.pod.pod));
    }

    /// The search for a node has ended (C-34).
    pub(crate) fn search_took(&mut self, attempt: &Attempt) {
        let seconds = self.clock.nanos_until_last(attempt.began) as f64 / 1e9;
        self.metrics
            .observe(Metric::SchedulingAlgorithmDuration, &[], seconds);
    }

    /// An attempt has ended with this result, as metrics name it.
    pub(crate) fn attempt_took(&mut self, attempt: &Attempt, result: &str) {
        let labels = [result, attempt.profile.name.as_str()];
        let seconds = self.seconds_since(attempt.began);
        self.metrics.count(Metric::ScheduleAttempts, &labels);
        self.metrics
            .observe(Metric::SchedulingAttemptDuration, &labels, seconds);
    }

    /// Counts what plugins have observed since the last time.
    pub(crate) fn note_observations(&mut self) {
        let observations = self.requests.take_observations();
        self.count_observations(observations);
    }

    /// Counts what plugins have observed.
    pub(crate) fn count_observations(
        &mut self,
        observations: impl IntoIterator<Item = Observation>,
    ) {
        for observation in observations {
            match observation {
                Observation::PreemptionAttempt => {
                    self.metrics.count(Metric::PreemptionAttempts, &[]);
                }
                Observation::Preemption(disruption) => self.count_disruption(disruption),
                Observation::VolumeStageFailed(operation) => {
                    self.metrics
                        .count(Metric::VolumeSchedulingStageErrors, &[operation]);
                }
            }
        }
    }

    fn count_disruption(&mut self, disruption: Disruption) {
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
        self.metrics.observe(metric, &[], victims as f64);
        if self.settings.is_on(Feature::GenericWorkload) {
            let metric = Metric::PreemptionWorkloadDisruptions;
            self.metrics.observe(metric, &[preemptor], units as f64);
            let metric = Metric::PreemptionPdbViolations;
            self.metrics.add(metric, &[preemptor], violations as f64);
        }
    }

    /// Records a run of an extension point that took so long, and ended so many nanoseconds before the last reading of
    /// the stopwatch.
    pub(crate) fn trace_point(
        &self,
        attempt: &mut Attempt,
        (point, code): (&'static str, Code),
        nanos: u64,
        ended_before: u64,
    ) {
        let Some(points) = &mut attempt.trace else {
            return;
        };
        if points.len() >= POINTS_MAX {
            return;
        }
        let ended = before(self.clock.last_wall(), ended_before);
        points.push(TracedPoint {
            point,
            code,
            began: before(ended, nanos),
            ended,
        });
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

/// So many nanoseconds before a time.
fn before(time: Time, nanos: u64) -> Time {
    time - Duration::from_nanos(nanos)
}
