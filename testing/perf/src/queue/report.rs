//! The measurements of the queue, and their output.

use serde::Serialize;
use std::fmt;

/// The measurements.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueReport {
    /// Each event with each crowd, by size.
    pub events: Vec<EventFigures>,
}

/// One event with one crowd.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventFigures {
    /// The event.
    pub event: &'static str,
    /// The waiting pods.
    pub crowd: &'static str,
    /// The number of them.
    pub waiting: usize,
    /// The number of times it happened.
    pub events: usize,
    /// Pods examined per event.
    pub looked_at_per_event: f64,
    /// Pods moved per event.
    pub moved_per_event: f64,
    /// Calls of hints per event.
    pub hints_per_event: f64,
    /// Whether SchedulerPreQueueingHints (KEP-6132) was on or off.
    pub gate: &'static str,
    /// The median duration of an event, in microseconds.
    pub micros_median: f64,
}

impl QueueReport {
    /// Brings the sizes of each event together.
    pub(super) fn sort(&mut self) {
        self.events
            .sort_by_key(|row| (row.event, row.crowd, row.waiting, row.gate != "on"));
    }
}

impl fmt::Display for QueueReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<22} {:<16} {:>9} {:>5} {:>10} {:>7} {:>10} {:>10}",
            "event", "also waiting", "pods", "gate", "looked at", "moved", "hints", "median µs"
        )?;
        for row in &self.events {
            writeln!(
                f,
                "{:<22} {:<16} {:>9} {:>5} {:>10.1} {:>7.1} {:>10.1} {:>10.2}",
                row.event,
                row.crowd,
                row.waiting,
                row.gate,
                row.looked_at_per_event,
                row.moved_per_event,
                row.hints_per_event,
                row.micros_median
            )?;
        }
        Ok(())
    }
}
