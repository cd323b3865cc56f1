//! The metrics of the core, with upstream's names, labels and buckets.
//!
//! One thread owns them, so no lock is needed. [`Metrics::snapshot`] is served by the edge; [`Snapshot::render`] writes
//! it in Prometheus' text format.

mod family;
#[cfg(test)]
mod reference_tests;
mod sample;
mod text;

pub use family::{Buckets, FAMILIES, Families, Family, Metric, MetricKind, Stability};
pub use sample::Sampler;
pub use text::go_number;

use berth_api::Str;
use berth_framework::Code;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::hash::Hasher;
use std::marker::PhantomData;

/// The values of a series' labels.
pub type LabelValues = SmallVec<[Str; 3]>;

/// The number of series that one metric may have; observations of further ones are dropped and counted.
const SERIES_MAX: usize = 4096;

/// The numbers of one series.
#[derive(Debug, Clone, PartialEq)]
pub enum SeriesValue {
    /// Of a counter or gauge.
    Number(f64),
    /// Of a histogram.
    Histogram(HistogramValue),
}

/// Observations by size.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramValue {
    /// The number of observations in each bucket: above the previous bound and up to its own bound. The last bucket has
    /// no bound.
    pub counts: Box<[u64]>,
    /// The sum of all observations.
    pub sum: f64,
}

impl SeriesValue {
    /// Adds another value of the same metric.
    pub fn absorb(&mut self, other: &Self) {
        match (self, other) {
            (Self::Number(sum), Self::Number(number)) => *sum += number,
            (Self::Histogram(sum), Self::Histogram(more)) => sum.absorb(more),
            _ => debug_assert!(false, "a metric has one kind of value"),
        }
    }
}

impl HistogramValue {
    /// No observations.
    pub fn new(buckets: Buckets) -> Self {
        Self {
            counts: vec![0; buckets.count() + 1].into(),
            sum: 0.0,
        }
    }

    /// Adds one observation.
    pub fn observe(&mut self, buckets: Buckets, observed: f64) {
        self.counts[buckets.of(observed)] += 1;
        self.sum += observed;
    }

    /// Adds the observations of another histogram with the same bounds.
    fn absorb(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
        self.sum += other.sum;
    }

    /// The number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The series of one metric, found by their labels without making any of these.
#[derive(Debug, Clone, Default)]
struct Series {
    entries: Vec<(LabelValues, SeriesValue)>,
    /// The places of the entries, by the hash of their labels.
    places: HashTable<usize>,
    /// The place of the entry that was found last.
    latest: usize,
}

impl Series {
    fn hash(labels: impl Iterator<Item: AsRef<str>>) -> u64 {
        let mut hasher = FxHasher::default();
        for value in labels {
            hasher.write(value.as_ref().as_bytes());
            // Separates labels, so that two labels do not hash like a single joined one.
            hasher.write_u8(0xff);
        }
        hasher.finish()
    }

    fn is(values: &LabelValues, labels: &[&str]) -> bool {
        values.iter().map(Str::as_str).eq(labels.iter().copied())
    }

    fn get(&self, labels: &[&str]) -> Option<&SeriesValue> {
        let (hash, entries) = (Self::hash(labels.iter()), &self.entries);
        let found = self
            .places
            .find(hash, |at| Self::is(&entries[*at].0, labels));
        found.map(|at| &entries[*at].1)
    }

    /// The index of the labels, if they belong to the last used entry or to the next one. Consecutive pods use the same
    /// series in the same order, so most labels are found without a hash.
    fn expected(&self, labels: &[&str]) -> Option<usize> {
        let next = (self.latest + 1) % self.entries.len().max(1);
        let mut likely = [self.latest, next].into_iter();
        likely.find(|at| {
            let entry = self.entries.get(*at);
            entry.is_some_and(|(values, _)| Self::is(values, labels))
        })
    }

    /// The series of these labels, made when there is none; `None` when there would be too many.
    fn get_or_insert(
        &mut self,
        labels: &[&str],
        fresh: impl FnOnce() -> SeriesValue,
    ) -> Option<&mut SeriesValue> {
        let at = match self.expected(labels) {
            Some(at) => at,
            None => {
                let Self {
                    entries, places, ..
                } = self;
                let entry = places.entry(
                    Self::hash(labels.iter()),
                    |at| Self::is(&entries[*at].0, labels),
                    |at| Self::hash(entries[*at].0.iter()),
                );
                match entry {
                    Entry::Occupied(found) => *found.get(),
                    Entry::Vacant(_) if entries.len() >= SERIES_MAX => return None,
                    Entry::Vacant(place) => {
                        place.insert(entries.len());
                        let values = labels.iter().map(|value| Str::new(value)).collect();
                        entries.push((values, fresh()));
                        entries.len() - 1
                    }
                }
            }
        };
        self.latest = at;
        Some(&mut self.entries[at].1)
    }
}

/// The metrics of a set.
#[derive(Debug, Clone)]
pub struct MetricsOf<F> {
    series: Vec<Series>,
    dropped: u64,
    set: PhantomData<F>,
}

/// The metrics of the core.
pub type Metrics = MetricsOf<Metric>;

impl<F: Families> Default for MetricsOf<F> {
    fn default() -> Self {
        Self {
            series: vec![Series::default(); F::FAMILIES.len()],
            dropped: 0,
            set: PhantomData,
        }
    }
}

impl Metrics {
    /// Records one call of a plugin at an extension point, with its time in nanoseconds.
    pub fn observe_plugin(&mut self, plugin: &str, point: &str, code: Code, nanos: u64) {
        let labels = [plugin, point, code.as_str()];
        let seconds = nanos as f64 / 1e9;
        self.observe(Metric::PluginExecutionDuration, &labels, seconds);
    }
}

impl<F: Families> MetricsOf<F> {
    fn value(&mut self, metric: F, labels: &[&str]) -> Option<&mut SeriesValue> {
        let family = metric.family();
        debug_assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
        let fresh = || match family.kind {
            MetricKind::Counter | MetricKind::Gauge => SeriesValue::Number(0.0),
            MetricKind::Histogram(buckets) => SeriesValue::Histogram(HistogramValue::new(buckets)),
        };
        let value = self.series[metric.at()].get_or_insert(labels, fresh);
        self.dropped += u64::from(value.is_none());
        value
    }

    /// Adds to a counter or gauge.
    pub fn add(&mut self, metric: F, labels: &[&str], amount: f64) {
        if let Some(SeriesValue::Number(number)) = self.value(metric, labels) {
            *number += amount;
        }
    }

    /// Adds one to a counter.
    pub fn count(&mut self, metric: F, labels: &[&str]) {
        self.add(metric, labels, 1.0);
    }

    /// Sets a gauge.
    pub fn set(&mut self, metric: F, labels: &[&str], number: f64) {
        if let Some(value) = self.value(metric, labels) {
            *value = SeriesValue::Number(number);
        }
    }

    /// Records an observation in a histogram.
    pub fn observe(&mut self, metric: F, labels: &[&str], observed: f64) {
        let MetricKind::Histogram(buckets) = metric.family().kind else {
            debug_assert!(false, "{} is no histogram", metric.family().name);
            return;
        };
        if let Some(SeriesValue::Histogram(histogram)) = self.value(metric, labels) {
            histogram.observe(buckets, observed);
        }
    }

    /// Adds observations to a histogram that were made elsewhere with its bounds.
    pub fn merge(&mut self, metric: F, labels: &[&str], observed: &HistogramValue) {
        if let Some(SeriesValue::Histogram(histogram)) = self.value(metric, labels) {
            histogram.absorb(observed);
        }
    }

    /// Adds counters, gauges and observations that were recorded elsewhere.
    pub fn absorb(&mut self, other: &Self) {
        for (at, series) in other.series.iter().enumerate() {
            for (values, value) in &series.entries {
                let labels: SmallVec<[&str; 3]> = values.iter().map(Str::as_str).collect();
                let fresh = || match value {
                    SeriesValue::Number(_) => SeriesValue::Number(0.0),
                    SeriesValue::Histogram(histogram) => SeriesValue::Histogram(HistogramValue {
                        counts: vec![0; histogram.counts.len()].into(),
                        sum: 0.0,
                    }),
                };
                match self.series[at].get_or_insert(&labels, fresh) {
                    Some(sum) => sum.absorb(value),
                    None => self.dropped += 1,
                }
            }
        }
        self.dropped += other.dropped;
    }

    /// The number of a counter or gauge; zero when nothing was noted.
    pub fn number(&self, metric: F, labels: &[&str]) -> f64 {
        match self.get(metric, labels) {
            Some(SeriesValue::Number(number)) => *number,
            _ => 0.0,
        }
    }

    /// A series, if anything was noted.
    pub fn get(&self, metric: F, labels: &[&str]) -> Option<&SeriesValue> {
        self.series[metric.at()].get(labels)
    }

    /// Drops the series of one metric.
    pub fn forget(&mut self, metric: F) {
        self.series[metric.at()] = Series::default();
    }

    /// Forgets everything (M-3).
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Everything noted so far, sorted.
    pub fn snapshot(&self) -> Snapshot {
        let families = F::FAMILIES
            .iter()
            .zip(&self.series)
            .map(|(family, series)| {
                let mut series = series.entries.clone();
                series.sort_by(|(a, _), (b, _)| a.cmp(b));
                FamilySnapshot { family, series }
            })
            .collect();
        Snapshot { families }
    }
}

/// The series of one metric at some moment.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilySnapshot {
    /// The metric.
    pub family: &'static Family,
    /// Its series, sorted by label values.
    pub series: Vec<(LabelValues, SeriesValue)>,
}

/// All metrics at some moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// In the order of their sets.
    pub families: Vec<FamilySnapshot>,
}

impl Snapshot {
    /// A series of a metric.
    pub fn get(&self, metric: impl Families, labels: &[&str]) -> Option<&SeriesValue> {
        let name = metric.family().name;
        let family = self.families.iter().find(|f| f.family.name == name)?;
        let same = |values: &LabelValues| values.iter().map(Str::as_str).eq(labels.iter().copied());
        Some(&family.series.iter().find(|(values, _)| same(values))?.1)
    }

    /// The number of a counter or gauge; zero when nothing was noted.
    pub fn number(&self, metric: impl Families, labels: &[&str]) -> f64 {
        match self.get(metric, labels) {
            Some(SeriesValue::Number(number)) => *number,
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_distinguished_by_every_label() {
        let mut metrics = Metrics::default();
        let count = |metrics: &mut Metrics, labels: &[&str]| {
            metrics.count(Metric::ScheduleAttempts, labels);
        };
        for labels in [["ab", "c"], ["a", "bc"], ["ab", "c"], ["", "abc"]] {
            count(&mut metrics, &labels);
        }
        for (labels, expected) in [
            (["ab", "c"], 2.0),
            (["a", "bc"], 1.0),
            (["", "abc"], 1.0),
            (["abc", ""], 0.0),
        ] {
            assert_eq!(
                metrics.number(Metric::ScheduleAttempts, &labels),
                expected,
                "{labels:?}"
            );
        }
    }

    #[test]
    fn there_are_no_more_series_than_a_limit() {
        let mut metrics = Metrics::default();
        for at in 0..SERIES_MAX + 10 {
            metrics.count(Metric::ScheduleAttempts, &["scheduled", &at.to_string()]);
        }
        assert_eq!(metrics.dropped, 10);
        // Existing series continue.
        metrics.count(Metric::ScheduleAttempts, &["scheduled", "0"]);
        assert_eq!(
            metrics.number(Metric::ScheduleAttempts, &["scheduled", "0"]),
            2.0
        );
    }
}
