//! The IDs of calls.

use berth_framework::CallId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives the IDs of one dispatcher, in ascending order. A component that collects calls gives each call its ID at once
/// and passes both to the dispatcher later ([`Dispatcher::enqueue_as`](super::Dispatcher::enqueue_as)).
#[derive(Debug, Clone, Default)]
pub struct CallIds(Arc<AtomicU64>);

impl CallIds {
    /// A new ID.
    pub fn take(&self) -> CallId {
        CallId(self.0.fetch_add(1, Ordering::Relaxed))
    }
}
