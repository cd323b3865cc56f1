//! The progress of the store that clients can see, and the wait for it.

use super::{ObjectStore, StoreError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The wait of an answer for the disk.
const SETTLE_PATIENCE: Duration = Duration::from_secs(30);

/// The progress that clients can see.
#[derive(Debug, Clone, Default)]
pub(super) struct VisibleProgress {
    /// Every change up to this revision is visible.
    pub(super) revision: u64,
    /// The reason why there are no further writes to the disk.
    pub(super) failure: Option<Arc<str>>,
}

/// The state of the store is not on the disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsettled {
    /// Writing to the disk has failed.
    #[error("{0}")]
    Failed(Arc<str>),
    /// The disk is too slow, or the store has been closed.
    #[error("the data directory did not take the write in time")]
    Late,
}

impl ObjectStore {
    /// Waits until `revision` is visible, at most `patience`.
    ///
    /// # Errors
    /// [`StoreError::Future`] when it is not.
    pub async fn reached(&self, revision: u64, patience: Duration) -> Result<(), StoreError> {
        let mut progress = self.progress.subscribe();
        let reached = progress.wait_for(|p| p.revision >= revision);
        match tokio::time::timeout(patience, reached).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(StoreError::Future {
                requested: revision,
                current: self.visible.load(Ordering::SeqCst),
            }),
        }
    }

    /// Waits until all previous writes are on the disk. Answers that depend on the state of the store leave the server
    /// afterwards. Returns at once without a data directory.
    ///
    /// # Errors
    /// [`Unsettled`]: it is unknown whether the changes survive a restart.
    pub async fn settle(&self) -> Result<(), Unsettled> {
        if self.journal.is_none() {
            return Ok(());
        }
        let revision = self.revision();
        let mut progress = self.progress.subscribe();
        let settled = progress.wait_for(|p| p.revision >= revision || p.failure.is_some());
        match tokio::time::timeout(SETTLE_PATIENCE, settled).await {
            Ok(Ok(progress)) if progress.revision >= revision => Ok(()),
            Ok(Ok(progress)) => Err(Unsettled::Failed(
                progress.failure.clone().unwrap_or_default(),
            )),
            _ => Err(Unsettled::Late),
        }
    }

    /// The reason why there are no further writes to the disk, after a failure.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.progress.borrow().failure.clone()
    }

    /// Waits until writing to the disk fails, and returns why. Without a data directory it never does.
    pub async fn failed(&self) -> Arc<str> {
        let mut progress = self.progress.subscribe();
        let failed = progress.wait_for(|p| p.failure.is_some()).await;
        match failed.map(|p| p.failure.clone()) {
            Ok(failure) => failure.unwrap_or_default(),
            // The sender lives in this store.
            Err(_) => std::future::pending().await,
        }
    }
}
