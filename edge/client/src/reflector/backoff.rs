//! The pauses between requests that fail.

use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// The first and the longest pause after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Pauses that double, with jitter so that clients do not retry at the same time.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    jitter: fastrand::Rng,
}

impl Default for Backoff {
    fn default() -> Self {
        let seed = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.subsec_nanos());
        Self {
            next: BACKOFF.0,
            jitter: fastrand::Rng::with_seed(u64::from(seed)),
        }
    }
}

impl Backoff {
    pub(super) async fn wait(&mut self) {
        let pause = self.next.mul_f64(1.0 + self.jitter.f64());
        self.next = (self.next * 2).min(BACKOFF.1);
        sleep(pause).await;
    }

    /// As [`Backoff::wait`], but the pauses grow to `longest` at most.
    pub(super) async fn wait_at_most(&mut self, longest: Duration) {
        self.next = self.next.min(longest);
        self.wait().await;
    }

    /// The longest pause, cut short when the consumer hangs up.
    pub(super) async fn wait_longest<T>(&mut self, updates: &mpsc::Sender<T>) {
        let pause = BACKOFF.1.mul_f64(1.0 + self.jitter.f64());
        let _ = timeout(pause, updates.closed()).await;
    }

    pub(super) fn reset(&mut self) {
        self.next = BACKOFF.0;
    }
}
