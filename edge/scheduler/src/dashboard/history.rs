//! The last fifteen minutes: samples of counts and totals for the time series of the page. The number of samples is
//! bounded.

use berth_api::Time;
use berth_scheduler::Scheduler;
use berth_scheduler::metrics::{
    Families, Metric, MetricKind, SeriesValue as MetricValue, Snapshot,
};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The interval of samples.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// The number of samples that are kept: fifteen minutes.
const SAMPLES_MAX: usize = 91;

const DECIDING: Metric = Metric::SchedulingAttemptDuration;
const BINDING: Metric = Metric::PodSchedulingSliDuration;

/// Counts at a time, and totals since the start of the scheduler.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    at: Time,
    /// Pods that are not bound and not gated.
    waiting: usize,
    gated: usize,
    scheduled: f64,
    /// The attempts with any result: while all pods wait, none is placed.
    deciding: Observations,
    /// The times from the first attempt of pods to their binding.
    binding: Observations,
    victims: f64,
}

/// The observations of a histogram.
#[derive(Debug, Clone, PartialEq, Default)]
struct Observations {
    counts: Vec<u64>,
    seconds: f64,
}

/// The values of a metric in the series whose first label is `first`, or in all.
fn values<'a>(
    snapshot: &'a Snapshot,
    metric: Metric,
    first: Option<&'a str>,
) -> impl Iterator<Item = &'a MetricValue> {
    let name = metric.family().name;
    let families = snapshot
        .families
        .iter()
        .filter(move |f| f.family.name == name);
    let series = families.flat_map(|family| &family.series);
    let wanted = series.filter(move |(labels, _)| {
        first.is_none_or(|first| labels.first().is_some_and(|label| *label == *first))
    });
    wanted.map(|(_, value)| value)
}

/// The sum of numbers, or the number of observations that had `first`.
fn total(snapshot: &Snapshot, metric: Metric, first: Option<&str>) -> f64 {
    let numbers = values(snapshot, metric, first).map(|value| match value {
        MetricValue::Number(number) => *number,
        MetricValue::Histogram(histogram) => histogram.sum,
    });
    numbers.sum()
}

impl Observations {
    fn of(snapshot: &Snapshot, metric: Metric) -> Self {
        let mut all = Self::default();
        for value in values(snapshot, metric, None) {
            if let MetricValue::Histogram(histogram) = value {
                all.seconds += histogram.sum;
                all.counts.resize(histogram.counts.len(), 0);
                let counts = all.counts.iter_mut().zip(&histogram.counts);
                counts.for_each(|(sum, count)| *sum += count);
            }
        }
        all
    }

    fn since(&self, before: &Self) -> Self {
        let earlier = before.counts.iter().chain(std::iter::repeat(&0));
        let counts = self.counts.iter().zip(earlier);
        Self {
            counts: counts
                .map(|(now, then)| now.saturating_sub(*then))
                .collect(),
            seconds: self.seconds - before.seconds,
        }
    }

    /// In milliseconds; `None` without observations.
    fn mean(&self) -> Option<f64> {
        let count = self.counts.iter().sum::<u64>();
        (count > 0).then(|| (self.seconds / count as f64 * 1e6).round() / 1e3)
    }

    /// The bound of the bucket with the 99th percentile, in milliseconds: the percentile is at most this. `None`
    /// without observations, and above all bounds.
    fn p99_at_most(&self, metric: Metric) -> Option<f64> {
        let MetricKind::Histogram(buckets) = metric.family().kind else {
            return None;
        };
        let count = self.counts.iter().sum::<u64>();
        let mut below = 0;
        let mut bounds = self.counts.iter().zip(buckets.bounds()).filter(|(of, _)| {
            below += **of;
            below > 0 && below * 100 >= count * 99
        });
        bounds.next().map(|(_, bound)| (bound * 1e6).round() / 1e3)
    }
}

impl Sample {
    /// The sample of this moment.
    pub(crate) fn take(scheduler: &Scheduler, now: Time) -> Self {
        let snapshot = scheduler.metrics();
        let counts = scheduler.queue().places().counts();
        let gated = counts.gated + counts.incomplete;
        Self {
            at: now,
            waiting: counts.total() - gated,
            gated,
            scheduled: total(&snapshot, Metric::ScheduleAttempts, Some("scheduled")),
            deciding: Observations::of(&snapshot, DECIDING),
            binding: Observations::of(&snapshot, BINDING),
            victims: total(&snapshot, Metric::PreemptionVictims, None),
        }
    }

    /// The changes since another sample.
    fn since(&self, before: &Self) -> Value {
        let seconds = self.at.since(before.at).as_secs_f64().max(0.001);
        let scheduled = (self.scheduled - before.scheduled).max(0.0);
        json!({
            "at": self.at.rfc3339(),
            "waiting": self.waiting,
            "gated": self.gated,
            "scheduledPerSecond": (scheduled / seconds * 100.0).round() / 100.0,
            "decisionMilliseconds": self.deciding.since(&before.deciding).mean(),
            "bindingMilliseconds": self.binding.since(&before.binding).mean(),
        })
    }
}

/// The last samples.
#[derive(Debug, Clone, Default)]
pub(crate) struct SampleHistory(Arc<Mutex<VecDeque<Sample>>>);

impl SampleHistory {
    /// Adds a sample; drops the oldest one at the limit.
    pub(crate) fn push(&self, sample: Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The samples for the page, each with the rates since the previous one and the common fields.
    pub(crate) fn answer(&self) -> Value {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = samples.iter().zip(samples.iter().skip(1));
        let points: Vec<Value> = pairs.map(|(before, now)| now.since(before)).collect();
        let all = samples.front().zip(samples.back());
        let p99 = |metric: Metric, of: fn(&Sample) -> &Observations| {
            let (first, last) = all?;
            of(last).since(of(first)).p99_at_most(metric)
        };
        json!({
            "samples": points,
            "decisionP99AtMost": p99(DECIDING, |sample| &sample.deciding),
            "bindingP99AtMost": p99(BINDING, |sample| &sample.binding),
            "victims": all.map_or(0.0, |(first, last)| last.victims - first.victims),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pods that take 1.5 ms to be decided and half a second to be bound.
    fn sample(at: i64, scheduled: u64) -> Sample {
        let observed = |metric: Metric, seconds: f64| {
            let MetricKind::Histogram(buckets) = metric.family().kind else {
                panic!("{metric:?} is no histogram");
            };
            let mut counts = vec![0; buckets.count() + 1];
            counts[buckets.of(seconds)] = scheduled;
            Observations {
                counts,
                seconds: seconds * scheduled as f64,
            }
        };
        Sample {
            at: Time::from_secs(at),
            waiting: 2,
            gated: 0,
            scheduled: scheduled as f64,
            deciding: observed(DECIDING, 0.0015),
            binding: observed(BINDING, 0.5),
            victims: scheduled as f64,
        }
    }

    #[test]
    fn samples_are_rates_and_means_between_two_moments() {
        let history = SampleHistory::default();
        assert_eq!(history.answer()["samples"], json!([]));
        assert_eq!(history.answer()["decisionP99AtMost"], Value::Null);
        history.push(sample(0, 0));
        history.push(sample(10, 50));
        history.push(sample(20, 50));
        let answer = history.answer();
        let samples = &answer["samples"];
        assert_eq!(samples[0]["scheduledPerSecond"], 5.0);
        assert_eq!(samples[0]["decisionMilliseconds"], 1.5);
        assert_eq!(samples[0]["bindingMilliseconds"], 500.0);
        assert_eq!(samples[1]["scheduledPerSecond"], 0.0);
        assert_eq!(samples[1]["decisionMilliseconds"], Value::Null);
        assert_eq!(answer["victims"], 50.0);
        // The bounds of the buckets above 1.5 ms and 500 ms.
        assert_eq!(answer["decisionP99AtMost"], 2.0, "{answer}");
        assert_eq!(answer["bindingP99AtMost"], 640.0, "{answer}");
    }

    /// 98 of 100 observations in a bucket are too few for the 99th percentile, 99 are enough.
    #[test]
    fn the_percentile_is_in_the_bucket_that_completes_99_of_100() {
        for (fast, slow, at_most) in [(98, 2, Some(4.0)), (99, 1, Some(1.0)), (0, 0, None)] {
            let mut counts = vec![fast, 0, slow];
            counts.resize(16, 0);
            let seconds = 0.0;
            let found = Observations { counts, seconds }.p99_at_most(DECIDING);
            assert_eq!(found, at_most, "{fast} {slow}");
        }
    }

    #[test]
    fn no_more_samples_are_kept_than_the_limit() {
        let history = SampleHistory::default();
        for at in 0..1_000 {
            history.push(sample(at * 10, 0));
        }
        let samples = history.answer()["samples"].as_array().map(Vec::len);
        assert_eq!(samples, Some(SAMPLES_MAX - 1));
    }
}
