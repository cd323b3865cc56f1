//! The last fifteen minutes: samples of counts and totals, from which the page draws its time series. The number of
//! samples is bounded.

use berth_api::Time;
use berth_scheduler::Scheduler;
use berth_scheduler::metrics::{Families, Metric, SeriesValue as MetricValue, Snapshot};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The interval at which a sample is taken.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// The number of samples that are kept: fifteen minutes.
const SAMPLES_MAX: usize = 91;

/// Counts at a time, and totals since the start of the scheduler.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    at: Time,
    active: usize,
    backoff: usize,
    unschedulable: usize,
    gated: usize,
    /// Attempts by result: all, and those that placed their pod.
    attempts: f64,
    scheduled: f64,
    /// The seconds of attempts that placed their pod, and their number.
    deciding: (f64, f64),
    /// The seconds from the first attempt of pods to their binding, and their number.
    binding: (f64, f64),
    victims: f64,
    flush_rescues: f64,
}

/// Sum and number of the observations of a histogram, in the series whose first label is `first` or in all.
fn observed(snapshot: &Snapshot, metric: Metric, first: Option<&str>) -> (f64, f64) {
    let name = metric.family().name;
    let families = snapshot.families.iter().filter(|f| f.family.name == name);
    let series = families.flat_map(|family| &family.series);
    let wanted = series.filter(|(labels, _)| {
        first.is_none_or(|first| labels.first().is_some_and(|label| *label == *first))
    });
    wanted.fold((0.0, 0.0), |(sum, count), (_, value)| match value {
        MetricValue::Histogram(histogram) => {
            let counted: u64 = histogram.counts.iter().sum();
            (sum + histogram.sum, count + counted as f64)
        }
        MetricValue::Number(number) => (sum + number, count + 1.0),
    })
}

impl Sample {
    /// The sample of this moment.
    pub(crate) fn take(scheduler: &Scheduler, now: Time) -> Self {
        let snapshot = scheduler.metrics();
        let counts = scheduler.queue().places().counts();
        Self {
            at: now,
            active: counts.active,
            backoff: counts.backoff,
            unschedulable: counts.unschedulable,
            gated: counts.gated,
            attempts: observed(&snapshot, Metric::ScheduleAttempts, None).0,
            scheduled: observed(&snapshot, Metric::ScheduleAttempts, Some("scheduled")).0,
            deciding: observed(
                &snapshot,
                Metric::SchedulingAttemptDuration,
                Some("scheduled"),
            ),
            binding: observed(&snapshot, Metric::PodSchedulingSliDuration, None),
            victims: observed(&snapshot, Metric::PreemptionVictims, None).0,
            flush_rescues: observed(&snapshot, Metric::PodScheduledAfterFlush, None).0,
        }
    }

    /// The changes since another sample.
    fn since(&self, before: &Self) -> Value {
        let seconds = self.at.since(before.at).as_secs_f64().max(0.001);
        let rate = |now: f64, then: f64| ((now - then).max(0.0) / seconds * 100.0).round() / 100.0;
        let mean = |now: (f64, f64), then: (f64, f64)| {
            let count = now.1 - then.1;
            (count > 0.0).then(|| ((now.0 - then.0) / count * 1e6).round() / 1e3)
        };
        json!({
            "at": self.at.rfc3339(),
            "active": self.active,
            "backoff": self.backoff,
            "unschedulable": self.unschedulable,
            "gated": self.gated,
            "scheduledPerSecond": rate(self.scheduled, before.scheduled),
            "attemptsPerSecond": rate(self.attempts, before.attempts),
            "decisionMilliseconds": mean(self.deciding, before.deciding),
            "bindingMilliseconds": mean(self.binding, before.binding),
            "victims": (self.victims - before.victims).max(0.0),
            "flushRescues": (self.flush_rescues - before.flush_rescues).max(0.0),
        })
    }
}

/// The last samples.
#[derive(Debug, Clone, Default)]
pub(crate) struct SampleHistory(Arc<Mutex<VecDeque<Sample>>>);

impl SampleHistory {
    /// Adds a sample; the oldest one is dropped when there are too many.
    pub(crate) fn push(&self, sample: Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The samples for the page: each with the rates since the one before.
    pub(crate) fn answer(&self) -> Value {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = samples.iter().zip(samples.iter().skip(1));
        let points: Vec<Value> = pairs.map(|(before, now)| now.since(before)).collect();
        json!({"everySeconds": SAMPLE_EVERY.as_secs(), "samples": points})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: i64, scheduled: f64) -> Sample {
        Sample {
            at: Time::from_secs(at),
            active: 1,
            backoff: 0,
            unschedulable: 2,
            gated: 0,
            attempts: scheduled * 2.0,
            scheduled,
            deciding: (scheduled * 0.002, scheduled),
            binding: (scheduled * 0.5, scheduled),
            victims: 0.0,
            flush_rescues: 0.0,
        }
    }

    #[test]
    fn samples_are_rates_and_means_between_two_moments() {
        let history = SampleHistory::default();
        assert_eq!(history.answer()["samples"], json!([]));
        history.push(sample(0, 0.0));
        history.push(sample(10, 50.0));
        history.push(sample(20, 50.0));
        let samples = history.answer()["samples"].clone();
        assert_eq!(samples[0]["scheduledPerSecond"], 5.0);
        assert_eq!(samples[0]["attemptsPerSecond"], 10.0);
        assert_eq!(samples[0]["decisionMilliseconds"], 2.0);
        assert_eq!(samples[0]["bindingMilliseconds"], 500.0);
        assert_eq!(samples[1]["scheduledPerSecond"], 0.0);
        assert_eq!(samples[1]["decisionMilliseconds"], Value::Null);
    }

    #[test]
    fn no_more_samples_are_kept_than_the_limit() {
        let history = SampleHistory::default();
        for at in 0..1_000 {
            history.push(sample(at * 10, at as f64));
        }
        let samples = history.answer()["samples"].as_array().map(Vec::len);
        assert_eq!(samples, Some(SAMPLES_MAX - 1));
    }
}
