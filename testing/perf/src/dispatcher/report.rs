//! The measurements of the dispatcher, and their output.

use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The measurements.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatcherReport {
    /// The number of calls per second.
    pub throughput: Vec<ThroughputFigures>,
    /// The time for which bindings wait; without and with status patches pending, in turn.
    pub waiting: Vec<WaitingFigures>,
    /// Pods that fit among pods that do not, beside a slow API server (KEP-5229).
    pub loops: Vec<LoopFigures>,
    /// Pods that fit beside pods that a PreEnqueue plugin rejects (KEP-5501).
    pub reports: Vec<ReportFigures>,
}

/// The cost of writes of status for the scheduling loop. All times are virtual.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoopFigures {
    /// The action of the loop while a status is written.
    pub status_writes: &'static str,
    /// The time of the server for a call, in milliseconds.
    pub latency_millis: f64,
    /// Pods that fit on no node.
    pub rejected: usize,
    /// Pods that were bound.
    pub bound: usize,
    /// Pods bound per second, until the last one.
    pub bound_per_second: f64,
    /// The wait of 99 of 100 pods at most from their creation to their binding, in milliseconds.
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
    /// The wait of 99 of 100 of them, in milliseconds.
    pub wait_millis_p99: f64,
}

/// The number of calls of one kind per second.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThroughputFigures {
    /// The action.
    pub what: &'static str,
    /// To how many calls.
    pub calls: usize,
    /// Per second.
    pub per_second: f64,
}

impl ThroughputFigures {
    pub(super) fn of(what: &'static str, calls: usize, took: Duration) -> Self {
        Self {
            what,
            calls,
            per_second: calls as f64 / took.as_secs_f64().max(f64::EPSILON),
        }
    }
}

/// The time for which bindings wait to be sent.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingFigures {
    /// The arrivals.
    pub arrivals: &'static str,
    /// The number of status patches that are pending when the first is made.
    pub patches: usize,
    /// The number of bindings that are made.
    pub bindings: usize,
    /// The median wait, in milliseconds of virtual time.
    pub wait_millis_median: f64,
    /// The wait of 99 of 100, in milliseconds of virtual time.
    pub wait_millis_p99: f64,
    /// Calls sent, on average, between a binding being made and being sent.
    pub sent_before_mean: f64,
    /// Status patches sent by the time that the last binding is answered.
    pub patches_sent: u64,
    /// Status patches pending then.
    pub patches_left: usize,
    /// The median time that handing a binding in and asking for calls takes, in microseconds by the clock.
    pub micros_median: f64,
}

impl fmt::Display for DispatcherReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<26} {:>9} {:>12}", "calls", "how many", "per second")?;
        for row in &self.throughput {
            writeln!(
                f,
                "{:<26} {:>9} {:>12.0}",
                row.what, row.calls, row.per_second
            )?;
        }
        writeln!(
            f,
            "\n{:<26} {:>9} {:>15} {:>12} {:>12} {:>13} {:>10}",
            "bindings come",
            "patches",
            "median wait ms",
            "p99 wait ms",
            "sent before",
            "patches sent",
            "median µs"
        )?;
        for row in &self.waiting {
            writeln!(
                f,
                "{:<26} {:>9} {:>15.2} {:>12.2} {:>12.1} {:>13} {:>10.2}",
                row.arrivals,
                row.patches,
                row.wait_millis_median,
                row.wait_millis_p99,
                row.sent_before_mean,
                row.patches_sent,
                row.micros_median
            )?;
        }
        writeln!(
            f,
            "\n{:<26} {:>10} {:>9} {:>9} {:>12} {:>12} {:>13}",
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
