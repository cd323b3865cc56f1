//! The measurements, and their output.

use super::Row;
use super::world::CoreRun;
use crate::stats::buckets;
use serde::Serialize;
use std::fmt;

/// The operating system counts processor time in milliseconds, which is too coarse for shorter runs.
const CPU_TIME_SHOWN_FROM: f64 = 0.03;

/// The measurements.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CorePerfReport {
    /// The seed of all random values.
    pub seed: u64,
    /// The rows, size by size.
    pub rows: Vec<MeasuredRow>,
}

/// One row at one size.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeasuredRow {
    /// The row.
    pub row: Row,
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Pods on them before.
    pub existing: usize,
    /// With the plain evaluator, on a sample of the pods.
    pub plain: Option<Figures>,
    /// With the incremental evaluator, on all of them.
    pub incremental: Option<Figures>,
    /// The speed of the incremental evaluator relative to the plain one.
    pub ratio: Option<f64>,
    /// Decisions per second of the plain evaluator in a small cluster, just before and after: the speed of the machine.
    pub calibration: f64,
    /// Decisions of the sample that differ; none, unless there is a bug.
    pub differing: Option<usize>,
}

impl MeasuredRow {
    pub(super) fn of(
        row: Row,
        nodes: usize,
        existing: usize,
        plain: Option<CoreRun>,
        incremental: Option<CoreRun>,
    ) -> Self {
        let comparable = plain
            .as_ref()
            .zip(incremental.as_ref())
            .filter(|(a, b)| !row.depends_on_pods() || a.nodes.len() == b.nodes.len());
        let differing = comparable.map(|(a, b)| {
            let pairs = a.nodes.iter().zip(&b.nodes);
            pairs.filter(|(a, b)| a != b).count()
        });
        let (plain, incremental) = (plain.map(Figures::of), incremental.map(Figures::of));
        let both = plain.as_ref().zip(incremental.as_ref());
        let ratio = both.map(|(a, b)| b.speed() / a.speed());
        Self {
            row,
            nodes,
            existing,
            plain,
            incremental,
            ratio,
            calibration: 0.0,
            differing,
        }
    }
}

/// The figures of one evaluator.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Decisions.
    pub decisions: usize,
    /// Decisions that gave a pod its node.
    pub scheduled: usize,
    /// Calls of queueing hints, including the calls while the pods were added.
    pub hint_calls: u64,
    /// The working time of the core, from the first decision to the last confirmed binding, in seconds.
    pub seconds: f64,
    /// Decisions per second over that time.
    pub decisions_per_second: f64,
    /// Decisions per second of processor time: the rate on a machine without other load. Absent if the operating system
    /// does not report it, and for runs of a few milliseconds.
    pub decisions_per_cpu_second: Option<f64>,
    /// The time of the first decision, which computes all answers, in milliseconds.
    pub first_decision_millis: f64,
    /// The resident memory of the process at the end, including all kept answers, in MiB. The rows of one run share a
    /// process: for the memory of one row, run it alone.
    pub resident_mebibytes: Option<f64>,
    /// The median time of a decision and its consequences, in microseconds.
    pub decision_micros_median: f64,
    /// The 99th percentile of this time, in microseconds.
    pub decision_micros_p99: f64,
}

impl Figures {
    /// Decisions per second, without the other load of the machine if possible.
    fn speed(&self) -> f64 {
        let cpu = self.decisions_per_cpu_second;
        cpu.unwrap_or(self.decisions_per_second)
    }

    pub(super) fn of(run: CoreRun) -> Self {
        let micros = run.micros;
        let first_decision_millis = micros.first().copied().unwrap_or_default() / 1e3;
        let buckets = buckets(&micros);
        let decisions_per_second = micros.len() as f64 / run.seconds.max(f64::EPSILON);
        Self {
            decisions: micros.len(),
            scheduled: run.scheduled,
            hint_calls: run.hint_calls,
            seconds: run.seconds,
            decisions_per_second,
            decisions_per_cpu_second: run
                .cpu_share
                .filter(|_| run.seconds > CPU_TIME_SHOWN_FROM)
                .map(|share| decisions_per_second / share),
            first_decision_millis,
            resident_mebibytes: run.resident.map(|bytes| bytes as f64 / f64::from(1 << 20)),
            decision_micros_median: buckets.map_or(0.0, |b| b.perc50),
            decision_micros_p99: buckets.map_or(0.0, |b| b.perc99),
        }
    }
}

impl fmt::Display for CorePerfReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "every node scored, calls answered at once and shown by a watch at once, seed {}",
            self.seed
        )?;
        writeln!(
            f,
            "{:<22} {:>7} {:<11} {:>9} {:>9} {:>9} {:>11} {:>11} {:>9} {:>9} {:>9} {:>8} {:>11} {:>8}",
            "row",
            "nodes",
            "evaluator",
            "decisions",
            "scheduled",
            "hints",
            "decisions/s",
            "of CPU time",
            "median µs",
            "p99 µs",
            "first ms",
            "MiB",
            "calibration",
            "ratio"
        )?;
        for row in &self.rows {
            for (name, side) in [("plain", &row.plain), ("incremental", &row.incremental)] {
                if let Some(figures) = side {
                    write!(
                        f,
                        "{:<22} {:>7} {name:<11} {figures} {:>11.0}",
                        row.row, row.nodes, row.calibration
                    )?;
                    if let (Some(ratio), "incremental") = (row.ratio, name) {
                        write!(f, " {ratio:>8.1}")?;
                    }
                    writeln!(f)?;
                }
            }
            if let Some(differing @ 1..) = row.differing {
                writeln!(f, "  {differing} decisions differ: that is a bug")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.decisions_per_cpu_second;
        write!(
            f,
            "{:>9} {:>9} {:>9} {:>11.0} {:>11} {:>9.1} {:>9.1} {:>9.1} {:>8}",
            self.decisions,
            self.scheduled,
            self.hint_calls,
            self.decisions_per_second,
            cpu.map_or_else(|| "-".to_owned(), |number| format!("{number:.0}")),
            self.decision_micros_median,
            self.decision_micros_p99,
            self.first_decision_millis,
            self.resident_mebibytes
                .map_or_else(|| "-".to_owned(), |number| format!("{number:.0}"))
        )
    }
}
