//! Group commit: writes wait here for the single writer thread, which commits all waiting writes in one transaction. A
//! write becomes visible to watchers and is acknowledged when its transaction is on the disk.

use super::KindStore;
use super::data_dir::{DataDir, DataDirError};
use super::history::{EventKind, StoredEvent};
use super::progress::VisibleProgress;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The maximum number of entries that wait for the disk. Further writers wait.
const PENDING_MAX: usize = 65_536;

/// The entry to be written to the disk.
#[derive(Debug)]
pub(super) enum JournalEntry {
    /// A change of an object.
    Write {
        /// The number of the kind.
        kind: usize,
        /// The number of changes of the kind, with this one.
        number: u64,
        /// The change.
        event: Arc<StoredEvent>,
    },
    /// The history of a kind has been dropped up to a revision.
    Compact {
        /// The number of the kind.
        kind: usize,
        /// The revision of the last change that was dropped.
        up_to: u64,
        /// The versions that are no longer needed.
        versions: Vec<u64>,
    },
}

impl JournalEntry {
    /// The entry for changes of a kind that have left the history, the last of them with the revision `up_to`.
    pub(super) fn compact(kind: usize, up_to: u64, dropped: &[Arc<StoredEvent>]) -> Self {
        let mut versions = Vec::with_capacity(dropped.len());
        for event in dropped {
            versions.extend(event.previous.as_ref().map(|previous| previous.revision()));
            if event.kind == EventKind::Deleted {
                versions.push(event.revision());
            }
        }
        Self::Compact {
            kind,
            up_to,
            versions,
        }
    }
}

#[derive(Debug, Default)]
struct Pending {
    entries: Vec<JournalEntry>,
    /// The store is closing or the disk has failed: no further writes.
    closed: bool,
}

/// The entries that wait for the disk.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pending: Mutex<Pending>,
    arrived: Condvar,
    room: Condvar,
}

/// The journal, held by one writer. Revisions are drawn and entries are appended in the same order.
pub(super) struct Appending<'a> {
    pending: MutexGuard<'a, Pending>,
    arrived: &'a Condvar,
}

impl Appending<'_> {
    pub(super) fn push(&mut self, entry: JournalEntry) {
        if !self.pending.closed {
            self.pending.entries.push(entry);
            self.arrived.notify_one();
        }
    }
}

/// The state of the thread that writes to the disk.
pub(super) struct Committer {
    pub(super) data: DataDir,
    pub(super) kinds: Vec<String>,
    pub(super) stores: Vec<Arc<KindStore>>,
    pub(super) visible: Arc<AtomicU64>,
    pub(super) progress: watch::Sender<VisibleProgress>,
}

impl Journal {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while too much is waiting for the disk. The wait ends with a commit, or with the failure of one.
    pub(super) fn wait_for_room(&self) {
        let mut pending = self.pending();
        while pending.entries.len() >= PENDING_MAX && !pending.closed {
            pending = self
                .room
                .wait(pending)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn append(&self) -> Appending<'_> {
        Appending {
            pending: self.pending(),
            arrived: &self.arrived,
        }
    }

    /// No more entries are taken; the thread ends when it has written the rest.
    pub(super) fn close(&self) {
        self.pending().closed = true;
        self.arrived.notify_all();
        self.room.notify_all();
    }

    /// The entries that have arrived, after waiting for the first; `None` when the journal is closed and empty.
    fn take(&self) -> Option<Vec<JournalEntry>> {
        let mut pending = self.pending();
        while pending.entries.is_empty() {
            if pending.closed {
                return None;
            }
            pending = self
                .arrived
                .wait(pending)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let entries = mem::take(&mut pending.entries);
        self.room.notify_all();
        Some(entries)
    }
}

impl Committer {
    /// Writes to the disk until the journal is closed or a write fails. After a failed write the contents of the disk
    /// are unknown, so there are no further writes, and the data directory must be opened again.
    pub(super) fn run(self, journal: &Journal) {
        while let Some(entries) = journal.take() {
            if let Err(error) = self.data.commit(&self.kinds, &entries) {
                self.fail(&error);
                journal.close();
                // Writers have been waiting for room.
                while journal.take().is_some() {}
                return;
            }
            self.publish(&entries);
        }
    }

    fn publish(&self, entries: &[JournalEntry]) {
        let mut newest = vec![0; self.stores.len()];
        let mut revision = 0;
        for entry in entries {
            if let JournalEntry::Write {
                kind,
                number,
                event,
            } = entry
            {
                revision = event.revision();
                if let Some(newest) = newest.get_mut(*kind) {
                    *newest = *number;
                }
            }
        }
        if revision == 0 {
            return;
        }
        self.visible.store(revision, Ordering::SeqCst);
        for (store, number) in self.stores.iter().zip(newest) {
            if number > 0 {
                store.newest.send_modify(|n| *n = number.max(*n));
            }
        }
        self.progress.send_modify(|p| p.revision = revision);
    }

    fn fail(&self, error: &DataDirError) {
        tracing::error!(%error, "failed to write to the data directory; no more requests are served");
        let text: Arc<str> = error.to_string().into();
        self.progress.send_modify(|p| p.failure = Some(text));
    }
}
