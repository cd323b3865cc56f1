//! The schedule of the periodic flushes: of the backoff queue every second, of long-unschedulable pods every 30 seconds
//!

use super::backoff::ORDERING_WINDOW;
use berth_api::{Duration, Time};

/// The interval of the flush of pods that waited too long for an event.
const LEFTOVER_FLUSH_PERIOD: Duration = Duration::from_secs(30);

/// The next flushes.
#[derive(Debug)]
pub(super) struct Flushes {
    backoff: Time,
    leftover: Time,
}

/// The due flushes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    pub(super) backoff: bool,
    pub(super) leftover: bool,
}

impl Flushes {
    /// Starts at `now`; with `aligned`, the backoff queue is flushed at the ends of ordering windows.
    pub(super) fn new(now: Time, aligned: bool) -> Self {
        let begin = if aligned {
            now.align_down(ORDERING_WINDOW)
        } else {
            now
        };
        Self {
            backoff: begin + ORDERING_WINDOW,
            leftover: now + LEFTOVER_FLUSH_PERIOD,
        }
    }

    /// The due flushes; the next ones are later than `now`.
    pub(super) fn take_due(&mut self, now: Time) -> Due {
        let due = Due {
            backoff: now >= self.backoff,
            leftover: now >= self.leftover,
        };
        let later = now + Duration::from_nanos(1);
        if due.backoff {
            self.backoff = self.backoff_at(later);
        }
        if due.leftover {
            self.leftover = self.leftover_at(later);
        }
        due
    }

    /// The first flush of the backoff queue at or after `time`.
    pub(super) fn backoff_at(&self, time: Time) -> Time {
        tick_from(self.backoff, ORDERING_WINDOW, time)
    }

    /// The first flush of long-unschedulable pods at or after `time`.
    pub(super) fn leftover_at(&self, time: Time) -> Time {
        tick_from(self.leftover, LEFTOVER_FLUSH_PERIOD, time)
    }
}

/// The first tick of `next`, `next + period`, … at or after `time`.
fn tick_from(next: Time, period: Duration, time: Time) -> Time {
    let late = time.since(next);
    let periods = late.as_nanos().div_ceil(period.as_nanos().max(1));
    next + period.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX))
}
