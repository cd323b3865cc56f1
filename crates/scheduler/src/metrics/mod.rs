//! The numbers that the core keeps about itself, with upstream's names, labels and buckets.
//!
//! One thread owns them, so nothing is locked. [`Metrics::snapshot`] is what the edge serves; [`Snapshot::render`]
//! writes it in Prometheus' text format.

mod family;
mod text;

pub use family::{Buckets, FAMILIES, Family, Metric, MetricKind, Stability};

use berth_api::Str;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The values of a series' labels.
pub type LabelValues = SmallVec<[Str; 3]>;

/// How many series one metric may have; observations of further ones are dropped and counted.
const SERIES_MAX: usize = 4096;

/// The numbers of one series.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of a counter or gauge.
    Number(f64),
    /// Of a histogram.
    Histogram(HistogramValue),
}

/// Observations by size.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramValue {
    /// Observations up to each bound and above the one before, and at last those above all bounds.
    pub counts: Box<[u64]>,
    /// The sum of all observations.
    pub sum: f64,
}

impl HistogramValue {
    /// How many observations there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// All metrics.
#[derive(Debug, Clone)]
pub struct Metrics {
    series: Vec<FxHashMap<LabelValues, Value>>,
    dropped: u64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            series: vec![FxHashMap::default(); FAMILIES.len()],
            dropped: 0,
        }
    }
}

impl Metrics {
    fn value(&mut self, metric: Metric, labels: &[&str]) -> Option<&mut Value> {
        let family = metric.family();
        debug_assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
        let labels: LabelValues = labels.iter().map(|value| Str::new(value)).collect();
        let series = &mut self.series[metric as usize];
        if series.len() >= SERIES_MAX && !series.contains_key(&labels) {
            self.dropped += 1;
            return None;
        }
        Some(series.entry(labels).or_insert_with(|| match family.kind {
            MetricKind::Counter | MetricKind::Gauge => Value::Number(0.0),
            MetricKind::Histogram(buckets) => Value::Histogram(HistogramValue {
                counts: vec![0; buckets.count + 1].into(),
                sum: 0.0,
            }),
        }))
    }

    /// Adds to a counter or gauge.
    pub fn add(&mut self, metric: Metric, labels: &[&str], amount: f64) {
        if let Some(Value::Number(number)) = self.value(metric, labels) {
            *number += amount;
        }
    }

    /// Adds one to a counter.
    pub fn count(&mut self, metric: Metric, labels: &[&str]) {
        self.add(metric, labels, 1.0);
    }

    /// Sets a gauge.
    pub fn set(&mut self, metric: Metric, labels: &[&str], number: f64) {
        if let Some(value) = self.value(metric, labels) {
            *value = Value::Number(number);
        }
    }

    /// Notes an observation in a histogram.
    pub fn observe(&mut self, metric: Metric, labels: &[&str], observed: f64) {
        let MetricKind::Histogram(buckets) = metric.family().kind else {
            debug_assert!(false, "{} is no histogram", metric.family().name);
            return;
        };
        let at = buckets
            .bounds()
            .take_while(|bound| observed > *bound)
            .count();
        if let Some(Value::Histogram(histogram)) = self.value(metric, labels) {
            histogram.counts[at] += 1;
            histogram.sum += observed;
        }
    }

    /// The number of a counter or gauge; zero when nothing was noted.
    pub fn number(&self, metric: Metric, labels: &[&str]) -> f64 {
        match self.get(metric, labels) {
            Some(Value::Number(number)) => *number,
            _ => 0.0,
        }
    }

    /// A series, if anything was noted.
    pub fn get(&self, metric: Metric, labels: &[&str]) -> Option<&Value> {
        let labels: LabelValues = labels.iter().map(|value| Str::new(value)).collect();
        self.series[metric as usize].get(&labels)
    }

    /// Forgets everything (M-3).
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Everything noted so far, sorted.
    pub fn snapshot(&self) -> Snapshot {
        let families = FAMILIES
            .iter()
            .zip(&self.series)
            .map(|(family, series)| {
                let mut series: Vec<(LabelValues, Value)> = series
                    .iter()
                    .map(|(labels, value)| (labels.clone(), value.clone()))
                    .collect();
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
    pub series: Vec<(LabelValues, Value)>,
}

/// All metrics at some moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// In the order of [`FAMILIES`].
    pub families: Vec<FamilySnapshot>,
}

impl Snapshot {
    /// A series of a metric.
    pub fn get(&self, metric: Metric, labels: &[&str]) -> Option<&Value> {
        let family = self.families.get(metric as usize)?;
        let same = |values: &LabelValues| values.iter().map(Str::as_str).eq(labels.iter().copied());
        Some(&family.series.iter().find(|(values, _)| same(values))?.1)
    }

    /// The number of a counter or gauge; zero when nothing was noted.
    pub fn number(&self, metric: Metric, labels: &[&str]) -> f64 {
        match self.get(metric, labels) {
            Some(Value::Number(number)) => *number,
            _ => 0.0,
        }
    }
}
