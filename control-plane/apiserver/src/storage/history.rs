//! The changes of one kind in order, and the cursors that read them.

use super::{HistoryLimits, KindStore, ObjectVersion, StoreError};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// Memory is returned when the capacity of a history is this many times its length …
const SHRINK_RATIO: usize = 8;
/// … and holds room for more than this many times that number of changes.
const SHRINK_MIN: usize = 128;

/// The kind of a change of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It is new.
    Created,
    /// It has changed.
    Updated,
    /// It was deleted.
    Deleted,
}

/// One change.
#[derive(Debug)]
pub struct StoredEvent {
    /// The kind of change.
    pub kind: EventKind,
    /// The key of the object: `namespace/name`, or `name` for cluster-scoped kinds.
    pub key: Arc<str>,
    /// The version that this change made; for a deletion the last state, with the revision of the deletion.
    pub version: Arc<ObjectVersion>,
    /// The version before.
    pub previous: Option<Arc<ObjectVersion>>,
}

/// A watcher was too slow: the changes that it has not read have left the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The oldest revision at which a watch could start now.
    pub oldest: u64,
}

/// The kept changes of one kind. Changes are numbered from zero in order of their revisions.
#[derive(Debug, Default)]
pub(super) struct KindHistory {
    events: VecDeque<Arc<StoredEvent>>,
    /// The number of the first kept event.
    first: u64,
    /// The revision of the last event that was dropped; zero when none was.
    dropped: u64,
}

/// A place in the history of a kind.
#[derive(Debug)]
pub struct Cursor {
    store: Arc<KindStore>,
    visible: Arc<AtomicU64>,
    newest: watch::Receiver<u64>,
    next: u64,
}

// === impl Event ===

impl StoredEvent {
    pub(super) fn new(
        kind: EventKind,
        key: Arc<str>,
        version: Arc<ObjectVersion>,
        previous: Option<Arc<ObjectVersion>>,
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

impl KindHistory {
    /// Appends a change and returns the number of changes ever made.
    pub(super) fn append(&mut self, event: Arc<StoredEvent>) -> u64 {
        self.events.push_back(event);
        self.end()
    }

    /// Drops changes beyond the limits, at most `max`, and returns them.
    pub(super) fn trim(
        &mut self,
        now: Instant,
        limits: &HistoryLimits,
        max: usize,
    ) -> Vec<Arc<StoredEvent>> {
        let mut dropped = Vec::new();
        while dropped.len() < max
            && let Some(oldest) = self.events.front()
        {
            let len = self.events.len();
            let stale = now.saturating_duration_since(oldest.version.written()) > limits.age_min;
            if len <= limits.events_max && (len <= limits.events_min || !stale) {
                break;
            }
            self.dropped = oldest.revision();
            self.first += 1;
            dropped.extend(self.events.pop_front());
        }
        if self.events.capacity() / SHRINK_RATIO > self.events.len().max(SHRINK_MIN) {
            self.events.shrink_to_fit();
        }
        dropped
    }

    /// As [`KindHistory::trim`] after a change was appended to a history that is too long: a write drops at most two,
    /// so that none pays for a burst of the past.
    pub(super) fn trim_excess(
        &mut self,
        now: Instant,
        limits: &HistoryLimits,
    ) -> Vec<Arc<StoredEvent>> {
        if self.events.len() > limits.events_max {
            self.trim(now, limits, 2)
        } else {
            Vec::new()
        }
    }

    /// Drops the changes up to a revision.
    pub(super) fn forget(&mut self, up_to: u64) {
        let count = self.events.partition_point(|e| e.revision() <= up_to);
        self.events.drain(..count);
        self.first += count as u64;
        self.dropped = self.dropped.max(up_to);
    }

    /// The number that the next change will have.
    pub(super) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// The oldest revision whose state is known.
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
    pub(super) fn newer_than(&self, revision: u64) -> impl Iterator<Item = &Arc<StoredEvent>> {
        self.events
            .iter()
            .rev()
            .take_while(move |e| e.revision() > revision)
    }

    fn read(&self, from: u64, max: usize) -> Result<Vec<Arc<StoredEvent>>, Lost> {
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
    pub(super) fn new(store: Arc<KindStore>, visible: Arc<AtomicU64>, next: u64) -> Self {
        let newest = store.newest.subscribe();
        Self {
            store,
            visible,
            newest,
            next,
        }
    }

    /// The next changes, at most `max`. Without changes, the revision up to which the watcher is complete.
    ///
    /// # Errors
    /// [`Lost`] when the watcher has fallen out of the history.
    pub fn read(&mut self, max: usize) -> Result<(Vec<Arc<StoredEvent>>, Option<u64>), Lost> {
        self.newest.mark_unchanged();
        let table = self
            .store
            .table
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let mut events = table.history.read(self.next, max)?;
        // Read under the lock: no change of this kind up to this revision is missing.
        let visible = self.visible.load(Ordering::SeqCst);
        events.truncate(events.partition_point(|e| e.revision() <= visible));
        self.next += events.len() as u64;
        let complete = events.is_empty().then_some(visible);
        Ok((events, complete))
    }

    /// Waits until there is something to read.
    pub async fn changed(&mut self) {
        let next = self.next;
        // The sender lives in the store that this cursor holds: it still exists.
        let _ = self.newest.wait_for(|newest| *newest > next).await;
    }
}
