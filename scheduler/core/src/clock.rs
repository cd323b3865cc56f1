//! The time of the current step, and the stopwatch for durations, which is used for metrics only.
//!
//! Time is part of every input and does not change during a step. Durations within a step are measured with a stopwatch
//! of the edge. In virtual machines one reading costs a large fraction of a microsecond, so the stopwatch is read once
//! per stage of an attempt, at its end: a stage begins when the previous one ends. Single plugins are timed in one of
//! ten attempts.

use berth_api::{Duration, Time};
use berth_telemetry::Stopwatch;
use berth_telemetry::metrics::Sampler;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A stopwatch that keeps its last reading.
pub(crate) struct Laps {
    stopwatch: Box<dyn Stopwatch>,
    last: AtomicU64,
}

impl Stopwatch for Laps {
    fn nanos(&self) -> u64 {
        let nanos = self.stopwatch.nanos();
        self.last.store(nanos, Ordering::Relaxed);
        nanos
    }

    fn last_nanos(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
}

/// A moment by both clocks: the time of a step, and a reading of the stopwatch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    time: Time,
    nanos: u64,
}

/// The time of the current step, and the stopwatch.
pub(crate) struct CoreClock {
    now: Time,
    /// The reading of the stopwatch at the beginning of the step.
    step_nanos: u64,
    laps: Arc<Laps>,
    /// Chooses the attempts in which single plugins are timed.
    sampler: Sampler,
}

impl CoreClock {
    pub(crate) fn new(now: Time, stopwatch: Box<dyn Stopwatch>) -> Self {
        let last = AtomicU64::new(0);
        Self {
            now,
            step_nanos: 0,
            laps: Arc::new(Laps { stopwatch, last }),
            sampler: Sampler::default(),
        }
    }

    /// A step begins.
    pub(crate) fn begin_step(&mut self, now: Time) {
        self.now = now;
        self.step_nanos = self.laps.nanos();
    }

    /// The time of an untimed step.
    pub(crate) fn set(&mut self, now: Time) {
        self.now = now;
        self.step_nanos = self.laps.last_nanos();
    }

    /// The time of the step.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// The stopwatch, for the parts that time their own work.
    pub(crate) fn laps(&self) -> &Laps {
        &self.laps
    }

    /// The stopwatch, for a part that keeps it.
    pub(crate) fn shared_laps(&self) -> Arc<dyn Stopwatch> {
        self.laps.clone()
    }

    /// The end of the last timed stage, which is the beginning of the current one.
    pub(crate) fn stage_begin(&self) -> Moment {
        Moment {
            time: self.now,
            nanos: self.laps.last_nanos(),
        }
    }

    /// This very moment.
    pub(crate) fn read(&self) -> Moment {
        Moment {
            time: self.now,
            nanos: self.laps.nanos(),
        }
    }

    /// Nanoseconds from then until now.
    pub(crate) fn nanos_since(&self, then: Moment) -> u64 {
        self.between(then, self.laps.nanos())
    }

    /// Seconds from then until now.
    pub(crate) fn seconds_since(&self, then: Moment) -> f64 {
        self.nanos_since(then) as f64 / 1e9
    }

    /// Nanoseconds from then until the last reading: the end of the last timed stage.
    pub(crate) fn nanos_until_last(&self, then: Moment) -> u64 {
        self.between(then, self.laps.last_nanos())
    }

    /// Uses the clock that has advanced further, because an attempt can span several steps.
    fn between(&self, then: Moment, nanos: u64) -> u64 {
        let measured = nanos.saturating_sub(then.nanos);
        let passed = u64::try_from(self.now.since(then.time).as_nanos()).unwrap_or(u64::MAX);
        measured.max(passed)
    }

    /// The time of the last reading of the stopwatch.
    pub(crate) fn last_wall(&self) -> Time {
        let nanos = self.laps.last_nanos().saturating_sub(self.step_nanos);
        self.now + Duration::from_nanos(nanos)
    }

    /// Returns whether single plugins are timed in the next attempt.
    pub(crate) fn chooses_attempt(&mut self) -> bool {
        self.sampler.choose()
    }
}

impl fmt::Debug for CoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}
