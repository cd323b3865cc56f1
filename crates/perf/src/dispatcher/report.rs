//! What was measured of the dispatcher, and how it is printed.

use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// What was measured in all.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// How many calls it takes a second.
    pub throughput: Vec<ThroughputFigures>,
    /// How long bindings wait; without and with status patches pending, in turn.
    pub waiting: Vec<WaitingFigures>,
}

/// How many calls of one kind are taken a second.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThroughputFigures {
    /// What was done.
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

/// How long bindings wait to be sent.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingFigures {
    /// How they come.
    pub arrivals: &'static str,
    /// How many status patches are pending when the first is made.
    pub patches: usize,
    /// How many bindings are made.
    pub bindings: usize,
    /// The median wait, in milliseconds of virtual time.
    pub wait_millis_median: f64,
    /// What 99 of 100 wait at most, in milliseconds of virtual time.
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

impl fmt::Display for Report {
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
        Ok(())
    }
}
