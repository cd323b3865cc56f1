//! The store: every object of every kind, one revision counter, and a bounded history of changes per kind.
//!
//! Objects are kept in memory. One version of an object ([`ObjectVersion`]) is its JSON, serialised once and shared by
//! the disk, gets, lists and watches. A write takes the lock of its kind only for a look-up, a comparison of revisions
//! and an append. It does no work per watcher: watchers read the history of their kind at their own pace ([`Cursor`])
//! and are disconnected when they fall out of it.
//!
//! With a data directory, each change is also appended to a journal in the order of the revisions, and a separate
//! thread commits the journal to the disk. Cursors return a change when it is on the disk, and an answer leaves the
//! server after [`ObjectStore::settle`]: no client sees a change that can be lost. Without a data directory a change is
//! visible at once, at no cost.

mod data_dir;
mod history;
mod journal;
mod list;
mod live;
mod parts;
mod progress;
mod version;

pub use data_dir::{DataDir, DataDirError};
pub use history::{Cursor, EventKind, Lost, StoredEvent};
pub use list::{ListQuery, Page};
pub use parts::Parts;
pub use progress::Unsettled;
pub use version::ObjectVersion;

use berth_objects::access::StoredObject;
use history::KindHistory;
use journal::{Committer, Journal, JournalEntry};
use list::ListedRevisions;
use live::Live;
use progress::VisibleProgress;
use serde_json::Value;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use version::{Draft, keep};

/// The number of changes that leave the history of a kind while its lock is held.
const COMPACT_BATCH: usize = 1_024;
/// The history that a kind keeps.
#[derive(Debug, Clone, Copy)]
pub struct HistoryLimits {
    /// Events younger than this are kept, unless there are too many.
    pub age_min: Duration,
    /// This number of events is kept independently of their age.
    pub events_min: usize,
    /// No more events than this are kept, however young.
    pub events_max: usize,
    /// Revisions older than this are not listed any more, even without later changes. etcd: 5 to 10 minutes.
    pub listed_age: Duration,
}

/// The reason why the store refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The object does not exist.
    #[error("the object is not in the store")]
    NotFound,
    /// The name is taken.
    #[error("an object of that name is in the store")]
    Exists,
    /// The object has another revision than the writer read.
    #[error("the object has been modified")]
    Modified,
    /// The revision lies before the kept history.
    #[error("revision {requested} is older than the kept history, which begins after {oldest}")]
    Expired {
        /// The requested revision.
        requested: u64,
        /// The oldest revision that can be answered.
        oldest: u64,
    },
    /// The revision has not been written yet.
    #[error("revision {requested} has not been written yet, the store is at {current}")]
    Future {
        /// The requested revision.
        requested: u64,
        /// The newest revision.
        current: u64,
    },
}

/// All objects of one kind.
#[derive(Debug, Default)]
struct Table {
    live: Live,
    history: KindHistory,
}

impl Table {
    fn version(&self, key: &str) -> Option<Arc<ObjectVersion>> {
        self.live.get(key).map(|(_, version)| Arc::clone(version))
    }

    /// The key and the version of an object that has this revision.
    fn current(
        &self,
        key: &str,
        revision: u64,
    ) -> Result<(Arc<str>, Arc<ObjectVersion>), StoreError> {
        match self.live.get(key) {
            None => Err(StoreError::NotFound),
            Some((_, version)) if version.revision() != revision => Err(StoreError::Modified),
            Some((key, version)) => Ok((Arc::clone(key), Arc::clone(version))),
        }
    }
}

#[derive(Debug)]
struct KindStore {
    table: RwLock<Table>,
    /// The number of the newest event; a watcher sleeps on it.
    newest: watch::Sender<u64>,
}

/// The objects of every kind. Kinds are numbered from zero by the caller.
#[derive(Debug)]
pub struct ObjectStore {
    kinds: Vec<Arc<KindStore>>,
    /// The revision of the newest change.
    revision: Arc<AtomicU64>,
    /// The newest revision that clients can see. Without a data directory it is `revision` itself.
    visible: Arc<AtomicU64>,
    progress: watch::Sender<VisibleProgress>,
    limits: HistoryLimits,
    listed: Mutex<ListedRevisions>,
    journal: Option<Arc<Journal>>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

/// Draws revisions for the versions of a write.
struct Stamp<'a> {
    revision: &'a AtomicU64,
    /// The objects that are kept parsed when the lock is released.
    objects: Vec<(StoredObject, usize)>,
}

// === impl Stamp ===

impl Stamp<'_> {
    fn version(&mut self, draft: Draft) -> Arc<ObjectVersion> {
        let revision = self.revision.fetch_add(1, Ordering::SeqCst) + 1;
        let (version, object) = draft.version(Some(revision), Instant::now());
        self.objects.push(object);
        Arc::new(version)
    }
}

// === impl HistoryLimits ===

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            age_min: Duration::from_secs(75),
            events_min: 100,
            events_max: 200_000,
            listed_age: Duration::from_secs(300),
        }
    }
}

// === impl Store ===

impl ObjectStore {
    /// An empty store for this many kinds, in memory.
    pub fn new(kinds: usize, limits: HistoryLimits) -> Self {
        let revision = Arc::new(AtomicU64::new(1));
        Self::of((0..kinds).map(|_| Table::default()), limits, revision)
    }

    fn of(
        tables: impl Iterator<Item = Table>,
        limits: HistoryLimits,
        revision: Arc<AtomicU64>,
    ) -> Self {
        let kind = |table: Table| {
            Arc::new(KindStore {
                newest: watch::Sender::new(table.history.end()),
                table: RwLock::new(table),
            })
        };
        Self {
            kinds: tables.map(kind).collect(),
            progress: watch::Sender::new(VisibleProgress {
                revision: revision.load(Ordering::SeqCst),
                failure: None,
            }),
            visible: Arc::clone(&revision),
            revision,
            limits,
            listed: Mutex::new(ListedRevisions::default()),
            journal: None,
            committer: Mutex::new(None),
        }
    }

    /// The store of a data directory, with its contents. `kinds` names the kinds in the order of their numbers.
    ///
    /// # Errors
    /// [`DataDirError::Damaged`] when the contents cannot be read.
    pub fn open(
        kinds: Vec<String>,
        limits: HistoryLimits,
        data: DataDir,
    ) -> Result<Self, DataDirError> {
        let mut tables: Vec<Table> = kinds.iter().map(|_| Table::default()).collect();
        let mut compacted = vec![0; kinds.len()];
        let mut newest = 1;
        data.load(
            &kinds,
            |kind, up_to| compacted[kind] = up_to,
            |record| {
                let version = Arc::new(record.version);
                newest = version.revision();
                let key: Arc<str> = record.key.into();
                let live = &mut tables[record.kind].live;
                let previous = match record.event {
                    EventKind::Deleted => live.remove(&key),
                    _ => live.insert(&key, &version),
                };
                let event = StoredEvent::new(record.event, key, version, previous);
                tables[record.kind].history.append(Arc::new(event));
            },
        )?;
        for (table, up_to) in tables.iter_mut().zip(&compacted) {
            newest = newest.max(*up_to);
            table.history.forget(*up_to);
        }
        let revision = Arc::new(AtomicU64::new(newest));
        let mut store = Self::of(tables.into_iter(), limits, revision);
        store.visible = Arc::new(AtomicU64::new(newest));
        let journal = Arc::new(Journal::default());
        let committer = Committer {
            data,
            kinds,
            stores: store.kinds.clone(),
            visible: Arc::clone(&store.visible),
            progress: store.progress.clone(),
        };
        store.journal = Some(Arc::clone(&journal));
        let thread = std::thread::Builder::new()
            .name("storage".to_owned())
            .spawn(move || committer.run(&journal));
        match thread {
            Ok(thread) => store.committer = Mutex::new(Some(thread)),
            Err(source) => {
                let dir = "storage thread".into();
                return Err(DataDirError::Io { dir, source });
            }
        }
        Ok(store)
    }

    /// Writes the waiting changes to the disk and closes the data directory. Later changes are in memory only, and
    /// [`ObjectStore::settle`] fails for them.
    pub fn close(&self) {
        if let Some(journal) = &self.journal {
            journal.close();
        }
        let thread = self
            .committer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes to the data directory panicked");
        }
    }

    /// The revision of the newest change, visible or not.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::SeqCst)
    }

    /// Drops history beyond the limits, and parsed objects that were not used for long. Writes do this only above the
    /// limits, so this must be called periodically.
    pub fn compact(&self) {
        let now = Instant::now();
        version::remove_old(now);
        self.listed()
            .note(now, self.revision(), self.limits.listed_age);
        for (kind, store) in self.kinds.iter().enumerate() {
            loop {
                // Dropped outside of the lock.
                let dropped = {
                    let mut table = store.table.write().unwrap_or_else(PoisonError::into_inner);
                    let dropped = table.history.trim(now, &self.limits, COMPACT_BATCH);
                    if let Some(journal) = &self.journal
                        && !dropped.is_empty()
                    {
                        let up_to = table.history.oldest();
                        let entry = JournalEntry::compact(kind, up_to, &dropped);
                        journal.append().push(entry);
                    }
                    dropped
                };
                if dropped.len() < COMPACT_BATCH {
                    break;
                }
            }
        }
    }

    fn listed(&self) -> MutexGuard<'_, ListedRevisions> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current version of an object.
    pub fn get(&self, kind: usize, key: &str) -> Option<Arc<ObjectVersion>> {
        let store = self.kinds.get(kind)?;
        let table = store.table.read().unwrap_or_else(PoisonError::into_inner);
        table.version(key)
    }

    /// As [`ObjectStore::get`], with the revision of the state that was read.
    pub fn get_at(&self, kind: usize, key: &str) -> (Option<Arc<ObjectVersion>>, u64) {
        let Some(store) = self.kinds.get(kind) else {
            return (None, self.revision());
        };
        let table = store.table.read().unwrap_or_else(PoisonError::into_inner);
        (table.version(key), self.revision())
    }

    /// The number of objects of a kind.
    pub fn count(&self, kind: usize) -> usize {
        self.kinds.get(kind).map_or(0, |store| {
            let table = store.table.read().unwrap_or_else(PoisonError::into_inner);
            table.live.len()
        })
    }

    /// Adds an object.
    ///
    /// # Errors
    /// [`StoreError::Exists`].
    pub fn create(
        &self,
        kind: usize,
        key: &str,
        object: Value,
    ) -> Result<Arc<ObjectVersion>, StoreError> {
        let draft = Draft::new(object);
        self.write(kind, |table, stamp| {
            if table.live.get(key).is_some() {
                return Err(StoreError::Exists);
            }
            let key: Arc<str> = key.into();
            let version = stamp.version(draft);
            table.live.insert(&key, &version);
            Ok([StoredEvent::new(EventKind::Created, key, version, None)])
        })
    }

    /// Replaces the version `expected` of an object.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Modified`] when the object has another revision.
    pub fn replace(
        &self,
        kind: usize,
        key: &str,
        expected: u64,
        object: Value,
    ) -> Result<Arc<ObjectVersion>, StoreError> {
        let draft = Draft::new(object);
        self.write(kind, |table, stamp| {
            let (key, old) = table.current(key, expected)?;
            let version = stamp.version(draft);
            table.live.insert(&key, &version);
            Ok([StoredEvent::new(
                EventKind::Updated,
                key,
                version,
                Some(old),
            )])
        })
    }

    /// Removes the version `expected` of an object. `last` is its last state, as watchers see it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Modified`] when the object has another revision.
    pub fn delete(
        &self,
        kind: usize,
        key: &str,
        expected: u64,
        last: Value,
    ) -> Result<Arc<ObjectVersion>, StoreError> {
        let draft = Draft::new(last);
        self.write(kind, |table, stamp| {
            let (key, old) = table.current(key, expected)?;
            table.live.remove(&key);
            let version = stamp.version(draft);
            Ok([StoredEvent::new(
                EventKind::Deleted,
                key,
                version,
                Some(old),
            )])
        })
    }

    /// Runs one write under the lock of its kind and returns the resulting version. A revision is allocated only if the
    /// write succeeds, so that the counter never exceeds the stored revisions.
    fn write<const EVENTS: usize>(
        &self,
        kind: usize,
        change: impl FnOnce(&mut Table, &mut Stamp<'_>) -> Result<[StoredEvent; EVENTS], StoreError>,
    ) -> Result<Arc<ObjectVersion>, StoreError> {
        let store = self.kinds.get(kind).ok_or(StoreError::NotFound)?;
        if let Some(journal) = &self.journal {
            journal.wait_for_room();
        }
        let mut dropped = Vec::new();
        let mut stamp = Stamp {
            revision: &self.revision,
            objects: Vec::new(),
        };
        let (version, newest) = {
            let mut table = store.table.write().unwrap_or_else(PoisonError::into_inner);
            let mut journal = self.journal.as_ref().map(|journal| journal.append());
            let mut last = None;
            for event in change(&mut table, &mut stamp)? {
                let event = Arc::new(event);
                let (version, written) = (Arc::clone(&event.version), event.version.written());
                let number = table.history.append(Arc::clone(&event));
                let trimmed = table.history.trim_excess(written, &self.limits);
                if let Some(journal) = &mut journal {
                    journal.push(JournalEntry::Write {
                        kind,
                        number,
                        event,
                    });
                    if !trimmed.is_empty() {
                        journal.push(JournalEntry::compact(
                            kind,
                            table.history.oldest(),
                            &trimmed,
                        ));
                    }
                }
                dropped.extend(trimmed);
                last = Some((version, number));
            }
            // A write without an event did not find its object.
            last.ok_or(StoreError::NotFound)?
        };
        keep(stamp.objects);
        if self.journal.is_none() {
            store.newest.send_modify(|n| *n = newest.max(*n));
            self.progress
                .send_modify(|p| p.revision = version.revision().max(p.revision));
        }
        Ok(version)
    }

    /// Objects of a kind whose key begins with `query.prefix`.
    ///
    /// # Errors
    /// [`StoreError::Expired`] or [`StoreError::Future`] for the revision asked for.
    pub fn list(&self, kind: usize, query: &ListQuery<'_>) -> Result<Page, StoreError> {
        let Some(store) = self.kinds.get(kind) else {
            return Ok(Page::default());
        };
        if let Some(requested) = query.at {
            self.listed().check(requested)?;
        }
        let table = store.table.read().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: every write of this kind up to this revision is in the table.
        let current = self.revision();
        let (live, history) = (&table.live, &table.history);
        if query.filter.is_none() {
            return list::rows(live, history, current, query, |revision, rows| {
                list::page(rows, revision, query)
            });
        }
        // A filter reads every object, which must not keep writers waiting.
        let (revision, rows) = list::rows(live, history, current, query, |revision, rows| {
            let rows = rows.map(|(key, version)| (Arc::clone(key), Arc::clone(version)));
            (revision, rows.collect::<Vec<_>>())
        })?;
        drop(table);
        let rows = rows.iter().map(|(key, version)| (key, version));
        Ok(list::page(rows, revision, query))
    }

    /// A cursor after all changes up to `after`.
    ///
    /// # Errors
    /// [`StoreError::Expired`] when the history no longer holds them.
    pub fn watch_after(&self, kind: usize, after: u64) -> Result<Cursor, StoreError> {
        let store = self.kinds.get(kind).ok_or(StoreError::NotFound)?;
        let table = store.table.read().unwrap_or_else(PoisonError::into_inner);
        let next = table.history.position_after(after)?;
        Ok(Cursor::new(
            Arc::clone(store),
            Arc::clone(&self.visible),
            next,
        ))
    }

    /// The objects of a kind now, the revision of that state, and a cursor right after it.
    ///
    /// # Errors
    /// Only for a kind that does not exist.
    pub fn watch_now(
        &self,
        kind: usize,
        prefix: &str,
    ) -> Result<(Vec<Arc<ObjectVersion>>, u64, Cursor), StoreError> {
        let store = self.kinds.get(kind).ok_or(StoreError::NotFound)?;
        let table = store.table.read().unwrap_or_else(PoisonError::into_inner);
        let items = table
            .live
            .from(Bound::Included(prefix), prefix)
            .map(|(_, version)| Arc::clone(version))
            .collect();
        let cursor = Cursor::new(
            Arc::clone(store),
            Arc::clone(&self.visible),
            table.history.end(),
        );
        Ok((items, self.revision(), cursor))
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
