//! The duration of work within a step, for metrics.

/// Measures how much time has passed. Only metrics read it; no decision does, so that a run can be repeated.
pub trait Stopwatch: Send + Sync {
    /// Nanoseconds since some fixed moment.
    fn nanos(&self) -> u64;

    /// The last reading, if one is kept: a stage begins when the previous one has ended.
    fn last_nanos(&self) -> u64 {
        self.nanos()
    }
}

/// A stopwatch that does not run: every duration is zero.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoStopwatch;

impl Stopwatch for NoStopwatch {
    fn nanos(&self) -> u64 {
        0
    }
}
