//! Until when a leader may write.
//!
//! A standby takes over when it has seen no renewal for the duration of the lease. So the leader writes nothing later
//! than that after it *sent* its last successful renewal, less a margin for requests that are on their way. The clock
//! goes on while the process is stopped: a leader that was suspended finds its fence closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Tells whether this process may write. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Fence {
    began: Instant,
    /// Milliseconds after `began`.
    open_until: Arc<AtomicU64>,
}

impl Fence {
    /// Closed until it is extended.
    pub fn closed() -> Self {
        Self {
            began: Instant::now(),
            open_until: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Never closed: for a scheduler that is alone.
    pub fn open() -> Self {
        let fence = Self::closed();
        fence.open_until.store(u64::MAX, Ordering::Release);
        fence
    }

    /// Whether a write may be sent now.
    pub fn is_open(&self) -> bool {
        self.millis(Instant::now()) < self.open_until.load(Ordering::Acquire)
    }

    /// Opens it until then, and no longer.
    pub fn extend(&self, until: Instant) {
        self.open_until.store(self.millis(until), Ordering::Release);
    }

    /// Closes it.
    pub fn close(&self) {
        self.open_until.store(0, Ordering::Release);
    }

    /// How long it stays open.
    pub fn remaining(&self) -> Duration {
        let until = self.open_until.load(Ordering::Acquire);
        Duration::from_millis(until.saturating_sub(self.millis(Instant::now())))
    }

    fn millis(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.began);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
