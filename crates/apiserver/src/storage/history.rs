//! The changes of one kind in order, and the cursors that read them.

use super::{HistoryLimits, KindStore, StoreError, Version};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use tokio::sync::watch;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It is new.
    Created,
    /// It has changed.
    Updated,
    /// It is gone.
    Deleted,
}

/// One change.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The key of the object: `namespace/name`, or `name` for cluster-scoped kinds.
    pub key: Arc<str>,
    /// The version that this change made; for a deletion the last state, with the revision of the deletion.
    pub version: Arc<Version>,
    /// The version before.
    pub previous: Option<Arc<Version>>,
}

/// A watcher was too slow: the changes that it has not read have left the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The oldest revision from which a watch could start now.
    pub oldest: u64,
}

/// The kept changes of one kind. Changes are numbered from zero in order of their revisions.
#[derive(Debug, Default)]
pub(super) struct History {
    events: VecDeque<Arc<Event>>,
    /// The number of the first kept event.
    first: u64,
    /// The revision of the last event that was dropped; zero when none was.
    dropped: u64,
}

/// A place in the history of a kind.
#[derive(Debug)]
pub struct Cursor {
    store: Arc<KindStore>,
    revision: Arc<AtomicU64>,
    newest: watch::Receiver<u64>,
    next: u64,
}

// === impl Event ===

impl Event {
    pub(super) fn new(
        kind: EventKind,
        key: Arc<str>,
        version: Arc<Version>,
        previous: Option<Arc<Version>>,
    ) -> Self {
        Self {
            kind,
            key,
            version,
            previous,
        }
    }

    /// The revision of the change.
    pub fn revision(&self) -> u64 {
        self.version.revision()
    }
}

// === impl History ===

impl History {
    /// Appends a change, drops what is no longer kept, and returns the number of changes ever made.
    pub(super) fn append(&mut self, event: Event, limits: &HistoryLimits) -> u64 {
        let now = event.version.written();
        self.events.push_back(Arc::new(event));
        // At most two are dropped for each that comes, so that no write pays for a burst of the past.
        for _ in 0..2 {
            let Some(oldest) = self.events.front() else {
                break;
            };
            let len = self.events.len();
            let stale = now.saturating_duration_since(oldest.version.written()) > limits.age_min;
            if len > limits.events_max || (len > limits.events_min && stale) {
                self.dropped = oldest.revision();
                self.first += 1;
                self.events.pop_front();
            }
        }
        self.end()
    }

    /// The number that the next change will have.
    pub(super) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// The oldest revision whose state can be told.
    pub(super) fn oldest(&self) -> u64 {
        self.dropped
    }

    /// The number of the first change after `revision`.
    pub(super) fn position_after(&self, revision: u64) -> Result<u64, StoreError> {
        if revision < self.dropped {
            return Err(StoreError::Expired {
                requested: revision,
                oldest: self.dropped,
            });
        }
        let index = self.events.partition_point(|e| e.revision() <= revision);
        Ok(self.first + index as u64)
    }

    /// The changes after `revision`, newest first.
    pub(super) fn newer_than(&self, revision: u64) -> impl Iterator<Item = &Arc<Event>> {
        self.events
            .iter()
            .rev()
            .take_while(move |e| e.revision() > revision)
    }

    fn read(&self, from: u64, max: usize) -> Result<Vec<Arc<Event>>, Lost> {
        let Some(offset) = from.checked_sub(self.first) else {
            return Err(Lost {
                oldest: self.dropped,
            });
        };
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(self.events.iter().skip(offset).take(max).cloned().collect())
    }
}

// === impl Cursor ===

impl Cursor {
    pub(super) fn new(store: Arc<KindStore>, revision: Arc<AtomicU64>, next: u64) -> Self {
        let newest = store.newest.subscribe();
        Self {
            store,
            revision,
            newest,
            next,
        }
    }

    /// The next changes, at most `max`. When there are none, the revision up to which that is certain.
    ///
    /// # Errors
    /// [`Lost`] when the watcher has fallen out of the history.
    pub fn read(&mut self, max: usize) -> Result<(Vec<Arc<Event>>, Option<u64>), Lost> {
        self.newest.mark_unchanged();
        let table = self
            .store
            .table
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let events = table.history.read(self.next, max)?;
        self.next += events.len() as u64;
        // Read under the lock: no change of this kind up to this revision is missing.
        let complete = events
            .is_empty()
            .then(|| self.revision.load(Ordering::SeqCst));
        Ok((events, complete))
    }

    /// Waits until there is something to read.
    pub async fn changed(&mut self) {
        let next = self.next;
        // The sender lives in the store that this cursor holds: it cannot be gone.
        let _ = self.newest.wait_for(|newest| *newest > next).await;
    }
}
