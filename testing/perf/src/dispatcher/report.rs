//! The measurements of the dispatcher, and their output.

use serde::Serialize;
use std::fmt;

/// The measurements.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatcherReport {
    /// Pods that fit among pods that do not, with a slow API server (KEP-5229).
    pub loops: Vec<LoopFigures>,
    /// Pods that fit, together with pods that a PreEnqueue plugin rejects (KEP-5501).
    pub reports: Vec<ReportFigures>,
}

/// The cost of status writes for the scheduling loop. All times are virtual.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoopFigures {
    /// The action of the loop while a status is written.
    pub status_writes: &'static str,
    /// The latency of the server, in milliseconds.
    pub latency_millis: f64,
    /// Pods that fit on no node.
    pub rejected: usize,
    /// Pods that were bound.
    pub bound: usize,
    /// Pods bound per second, until the last one.
    pub bound_per_second: f64,
    /// The 99th percentile of the time from the creation of a pod to its binding, in milliseconds.
    pub wait_millis_p99: f64,
    /// Status patches that were sent.
    pub patches: usize,
}

/// The cost of reports of PreEnqueue for other pods. All times are virtual.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportFigures {
    /// Pods that a PreEnqueue plugin rejects.
    pub rejected: usize,
    /// Whether SchedulerPreEnqueuePodStatus is on or off.
    pub gate: &'static str,
    /// Status patches that were sent.
    pub patches: usize,
    /// Events about rejected pods.
    pub events: usize,
    /// Other pods that were bound.
    pub bound: usize,
    /// The median time from the creation of these pods to their binding, in milliseconds.
    pub wait_millis_median: f64,
    /// The 99th percentile of this time, in milliseconds.
    pub wait_millis_p99: f64,
}

impl fmt::Display for DispatcherReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<26} {:>10} {:>9} {:>9} {:>12} {:>12} {:>13}",
            "status writes",
            "latency ms",
            "rejected",
            "bound",
            "bound/s",
            "p99 wait ms",
            "patches sent"
        )?;
        for row in &self.loops {
            writeln!(
                f,
                "{:<26} {:>10.0} {:>9} {:>9} {:>12.0} {:>12.1} {:>13}",
                row.status_writes,
                row.latency_millis,
                row.rejected,
                row.bound,
                row.bound_per_second,
                row.wait_millis_p99,
                row.patches
            )?;
        }
        writeln!(
            f,
            "\n{:<26} {:>5} {:>13} {:>9} {:>9} {:>15} {:>12}",
            "rejected by PreEnqueue",
            "gate",
            "patches sent",
            "events",
            "bound",
            "median wait ms",
            "p99 wait ms"
        )?;
        for row in &self.reports {
            writeln!(
                f,
                "{:<26} {:>5} {:>13} {:>9} {:>9} {:>15.2} {:>12.2}",
                row.rejected,
                row.gate,
                row.patches,
                row.events,
                row.bound,
                row.wait_millis_median,
                row.wait_millis_p99
            )?;
        }
        Ok(())
    }
}
