//! The limit for copies of the scheduler's state.

use berth_api::{Duration, Time};

/// The maximum share of copies in the time of the scheduler's thread: one hundredth.
pub const COPY_SHARE: u32 = 100;
/// The maximum age of a copy.
pub const COPY_AGE_MAX: Duration = Duration::from_secs(1);

/// A copy, with the time until which it is reused: the longer copying took, the longer it is reused.
#[derive(Debug)]
pub struct Copied<T> {
    /// The copy.
    pub value: T,
    until: Time,
}

impl<T> Copied<T> {
    /// A copy that was finished at the time `at` after the duration `took`.
    pub fn new(value: T, at: Time, took: Duration) -> Self {
        let pause = (took * COPY_SHARE).min(COPY_AGE_MAX);
        Self {
            value,
            until: at + pause,
        }
    }

    /// The time for which the next copy has to wait.
    pub fn pause(&self, now: Time) -> Duration {
        if now < self.until {
            self.until.since(now)
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_take_a_hundredth_of_the_time() {
        let at = Time::from_secs(100);
        for (took, pause) in [(0, 0), (2, 200), (5, 500), (300, 1_000)] {
            let copied = Copied::new((), at, Duration::from_millis(took));
            assert_eq!(copied.pause(at), Duration::from_millis(pause), "{took} ms");
            let later = at + Duration::from_millis(pause);
            assert_eq!(copied.pause(later), Duration::ZERO, "{took} ms");
        }
    }
}
