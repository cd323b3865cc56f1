//! Results: a table for people, and data items as upstream's harness writes them.

mod data;
mod table;

pub use data::data_items;

use super::decode::{Limit, Threshold, Workload};
use super::error::RunError;
use super::run::{WorkloadMeasured, WorkloadOutcome};
use std::fmt;
use std::time::Duration;

/// The metric of thresholds that name none.
const THROUGHPUT: &str = "SchedulingThroughput";

/// All runs of a command.
#[derive(Debug, Clone, Default)]
pub struct WorkloadReport {
    /// The target of the workloads: `embedded`, `in-process` or the scheduler's command.
    pub target: String,
    /// The runs, in order.
    pub runs: Vec<WorkloadRun>,
}

/// A run of a workload.
#[derive(Debug, Clone)]
pub struct WorkloadRun {
    /// `case/workload`.
    pub name: String,
    /// The repetition, from 1.
    pub repetition: usize,
    /// The threshold of the workload.
    pub threshold: Option<Threshold>,
    /// The limits of the workload.
    pub limits: Vec<Limit>,
    /// The result.
    pub result: Result<WorkloadOutcome, RunError>,
    /// The duration, starting the cluster included.
    pub took: Duration,
}

/// The comparison of a measurement with the threshold.
#[derive(Debug, Clone, PartialEq)]
pub enum Compared {
    /// The workload has no threshold.
    None,
    /// The value meets the threshold.
    Met {
        /// The value.
        value: f64,
    },
    /// The value is on the wrong side.
    Missed {
        /// The value.
        value: f64,
    },
    /// The metric has no value.
    NotMeasured,
}

impl WorkloadRun {
    /// A run that ended.
    pub fn new(
        workload: &Workload,
        repetition: usize,
        result: Result<WorkloadOutcome, RunError>,
        took: Duration,
    ) -> Self {
        Self {
            name: workload.full_name(),
            repetition,
            threshold: workload.threshold.clone(),
            limits: workload.limits.clone(),
            result,
            took,
        }
    }

    /// Compares a measurement with the threshold of the workload.
    pub fn compare(&self, measured: &WorkloadMeasured) -> Compared {
        let Some(threshold) = &self.threshold else {
            return Compared::None;
        };
        match value_of(threshold, measured) {
            None => Compared::NotMeasured,
            Some(value) if (value < threshold.value) == threshold.expect_lower => {
                Compared::Met { value }
            }
            Some(value) => Compared::Missed { value },
        }
    }

    /// Returns whether a measurement misses the threshold, or is not known to be within a limit.
    fn misses(&self) -> bool {
        let mut measured = self.result.iter().flat_map(|outcome| &outcome.measured);
        measured.any(|measured| {
            let keeps = |limit: &Limit| matches!(limit.compare(measured), Compared::Met { .. });
            matches!(self.compare(measured), Compared::Missed { .. })
                || !self.limits.iter().all(keeps)
        })
    }
}

impl Limit {
    /// Compares a measurement with the limit.
    pub fn compare(&self, measured: &WorkloadMeasured) -> Compared {
        match measured.count_per_pod(self.count) {
            None => Compared::NotMeasured,
            Some(value) if value <= self.most => Compared::Met { value },
            Some(value) => Compared::Missed { value },
        }
    }
}

fn value_of(threshold: &Threshold, measured: &WorkloadMeasured) -> Option<f64> {
    let buckets = if threshold.metric == THROUGHPUT {
        measured.throughput
    } else {
        let wanted = threshold.labels.iter();
        let found = measured.histograms.iter().find(|histogram| {
            histogram.metric == threshold.metric
                && wanted
                    .clone()
                    .all(|(key, value)| histogram.labels.get(key) == Some(value))
        });
        found.map(|histogram| histogram.buckets)
    };
    buckets?.data().get(&threshold.bucket).copied()
}

impl WorkloadReport {
    /// Runs that gave a result.
    pub fn succeeded(&self) -> usize {
        self.runs.iter().filter(|run| run.result.is_ok()).count()
    }

    /// Runs whose workload needs a feature that the cluster lacks.
    pub fn unsupported(&self) -> usize {
        let unsupported = |run: &&WorkloadRun| matches!(run.result, Err(RunError::Unsupported(_)));
        self.runs.iter().filter(unsupported).count()
    }

    /// Runs without a result for another reason.
    pub fn failed(&self) -> usize {
        self.runs.len() - self.succeeded() - self.unsupported()
    }

    /// Runs with a measurement that misses the threshold or is not within a limit.
    pub fn missed(&self) -> usize {
        let runs = self.runs.iter();
        runs.filter(|run| run.misses()).count()
    }
}

impl fmt::Display for WorkloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table::write(self, f)
    }
}

#[cfg(test)]
mod tests;
