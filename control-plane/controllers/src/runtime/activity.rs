//! Counts the runs of controllers: a cluster at rest must cost nothing.

use std::sync::atomic::{AtomicU64, Ordering};

/// The work of a controller since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// The name of the controller.
    pub controller: &'static str,
    /// The number of times that it reconciled a key.
    pub runs: u64,
    /// The number of times that its task woke up: for a watched change, or at a time that it had set.
    pub wakeups: u64,
}

/// Counts for one controller.
#[derive(Debug)]
pub(super) struct Counter {
    controller: &'static str,
    runs: AtomicU64,
    wakeups: AtomicU64,
}

impl Counter {
    pub(super) fn new(controller: &'static str) -> Self {
        Self {
            controller,
            runs: AtomicU64::new(0),
            wakeups: AtomicU64::new(0),
        }
    }

    pub(super) fn ran(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn woke(&self) {
        self.wakeups.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Activity {
        Activity {
            controller: self.controller,
            runs: self.runs.load(Ordering::Relaxed),
            wakeups: self.wakeups.load(Ordering::Relaxed),
        }
    }
}
