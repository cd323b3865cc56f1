//! The time that controllers write into objects, so that tests can bring their own.

use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;

/// Returns the time of day. Delays are counted by the runtime's own timer; a virtual clock follows that timer, so
/// a test that pauses and advances the runtime's time moves both.
#[derive(Clone)]
pub struct WallClock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    is_virtual: bool,
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::system()
    }
}

impl WallClock {
    /// The time of this machine.
    #[allow(clippy::disallowed_methods)] // the one place at this edge that reads the clock
    pub fn system() -> Self {
        Self {
            now: Arc::new(Timestamp::now),
            is_virtual: false,
        }
    }

    /// Begins at `start` and advances with the timer of the async runtime.
    pub fn virtual_from(start: Timestamp) -> Self {
        let origin = tokio::time::Instant::now();
        let now = move || {
            let elapsed = tokio::time::Instant::now().saturating_duration_since(origin);
            start
                .checked_add(jiff::SignedDuration::try_from(elapsed).unwrap_or_default())
                .unwrap_or(Timestamp::MAX)
        };
        Self {
            now: Arc::new(now),
            is_virtual: true,
        }
    }

    /// Returns whether the clock follows the timer of its async runtime.
    pub(crate) fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }
}
