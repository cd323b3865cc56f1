//! The number of times that the scheduler is copied for explanations.

use berth_api::{Duration, Time};

/// Copies take no more than this part of the time of the scheduler's thread: one hundredth.
pub const COPY_SHARE: u32 = 100;
/// A copy is used for further questions no longer than this.
pub const COPY_AGE_MAX: Duration = Duration::from_secs(1);

/// A copy, and how long it is used for further questions: the longer copying took, the longer.
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
