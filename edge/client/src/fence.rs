//! Until when a leader may write.
//!
//! A standby acquires the lease when it has seen no renewal for the duration of the lease. The leader therefore writes
//! nothing after that duration since it *sent* its last successful renewal, less a margin for requests in flight. The
//! clock includes suspension: a suspended leader finds its fence closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// States whether this process may write. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Fence {
    began: Instant,
    /// Milliseconds after `began`.
    open_until: Arc<AtomicU64>,
    /// Whether it is closed permanently.
    is_closed: Arc<watch::Sender<bool>>,
}

impl Fence {
    /// Closed until it is extended.
    pub fn closed() -> Self {
        Self {
            began: Instant::now(),
            open_until: Arc::new(AtomicU64::new(0)),
            is_closed: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Never closed: for a scheduler that is alone.
    pub fn open() -> Self {
        let fence = Self::closed();
        fence.open_until.store(u64::MAX, Ordering::Release);
        fence
    }

    /// Returns whether a write may be sent now.
    pub fn is_open(&self) -> bool {
        self.millis(Instant::now()) < self.open_until.load(Ordering::Acquire)
    }

    /// Opens it until then, and no longer.
    pub fn extend(&self, until: Instant) {
        self.open_until.store(self.millis(until), Ordering::Release);
    }

    /// Closes it for good.
    pub fn close(&self) {
        self.open_until.store(0, Ordering::Release);
        self.is_closed.send_replace(true);
    }

    /// Resolves when it is closed for good.
    pub async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self.is_closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// The remaining time.
    pub fn remaining(&self) -> Duration {
        let until = self.open_until.load(Ordering::Acquire);
        Duration::from_millis(until.saturating_sub(self.millis(Instant::now())))
    }

    fn millis(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.began);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiError;
    use crate::limit::RateLimit;
    use crate::request::{self, PODS};
    use crate::testing::Scripted;
    use serde_json::json;

    #[tokio::test]
    async fn writes_that_wait_for_their_turn_end_when_the_fence_is_closed_for_good() {
        let server = Scripted::start(vec![(200, json!({}))]).await;
        let fence = Fence::open();
        // The second request would have its turn in days.
        let limit = RateLimit::new(1e-5, 1);
        let client = server.client().limited(limit).fenced(fence.clone());
        let write = request::create(PODS, "default", &json!({}));
        client.execute(&write).await.expect("its turn is at once");
        let waiting = tokio::spawn(async move { client.execute(&write).await });
        tokio::task::yield_now().await;
        fence.close();
        let ended = waiting.await.expect("no panic");
        assert!(matches!(ended, Err(ApiError::NotLeading)), "{ended:?}");
    }
}
