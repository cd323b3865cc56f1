//! The measurements of the queue, and their output.

use serde::Serialize;
use std::fmt;

/// The measurements.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueReport {
    /// The seed of all random values.
    pub seed: u64,
    /// Each event with each crowd, by size.
    pub events: Vec<EventFigures>,
    /// Pods that come and go.
    pub pairs: Option<PairFigures>,
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
    /// Pods looked at each time.
    pub looked_at_per_event: f64,
    /// Pods that it helped each time.
    pub moved_per_event: f64,
    /// Calls of hints each time.
    pub hints_per_event: f64,
    /// Whether SchedulerPreQueueingHints (KEP-6132) was on or off.
    pub gate: &'static str,
    /// The median time that it took, in microseconds.
    pub micros_median: f64,
}

/// Pods that come and go while many are active.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PairFigures {
    /// Active pods.
    pub active: usize,
    /// Pods that came, and that went.
    pub pairs: usize,
    /// Pods added, and popped and done, per second while the queue stays as long as it is: the median of short slices.
    pub pairs_per_second: f64,
    /// The same over the whole time, with whatever else ran on the machine.
    pub pairs_per_second_overall: f64,
    /// Pods added per second to a queue that was empty, the median of slices.
    pub filled_per_second: f64,
    /// Pods popped and done per second until it is empty, the median of slices.
    pub drained_per_second: f64,
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
        if let Some(pairs) = &self.pairs {
            writeln!(
                f,
                "\n{} active pods: {:.0} enqueue + pop pairs/s (overall {:.0}/s); filled {:.0}/s, drained {:.0}/s",
                pairs.active,
                pairs.pairs_per_second,
                pairs.pairs_per_second_overall,
                pairs.filled_per_second,
                pairs.drained_per_second
            )?;
        }
        Ok(())
    }
}
