//! The store: every object of every kind, one revision counter, and a bounded history of changes per kind.
//!
//! Objects live in memory. One version of an object is one allocation ([`Version`]), serialised at most once and
//! shared by gets, lists and watches. A write takes the lock of its kind only for a look-up, a comparison of
//! revisions and an append; nothing is done per watcher: watchers read the history of their kind at their own
//! pace ([`Cursor`]) and are cut off when they fall out of it.
//!
//! All writes pass through [`Store::create`], [`Store::replace`] and [`Store::delete`]: that is the boundary
//! behind which a durable log has its place.

mod history;
mod list;

pub use history::{Cursor, Event, EventKind, Lost};
pub use list::{ListQuery, Page};

use crate::access::Object;
use bytes::Bytes;
use history::History;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// One version of an object.
#[derive(Debug)]
pub struct Version {
    object: Object,
    revision: u64,
    written: Instant,
    /// `{"metadata":…}`: the object without `apiVersion` and `kind`, which a list leaves out.
    body: OnceLock<Bytes>,
    /// The same for the other group-version that serves the object, where there is one.
    other_body: OnceLock<Bytes>,
    /// The object as a message of protobuf.
    message: OnceLock<Bytes>,
}

/// How much history a kind keeps.
#[derive(Debug, Clone, Copy)]
pub struct HistoryLimits {
    /// Events younger than this are kept, unless there are too many.
    pub age_min: Duration,
    /// This many events are kept whatever their age.
    pub events_min: usize,
    /// No more events than this are kept, however young.
    pub events_max: usize,
}

/// Why the store refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no such object.
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
        /// What was asked for.
        requested: u64,
        /// The oldest revision that can be answered.
        oldest: u64,
    },
    /// The revision has not been written yet.
    #[error("revision {requested} has not been written yet, the store is at {current}")]
    Future {
        /// What was asked for.
        requested: u64,
        /// The newest revision.
        current: u64,
    },
}

/// All objects of one kind, sorted by key.
#[derive(Debug, Default)]
struct Table {
    live: BTreeMap<Arc<str>, Arc<Version>>,
    history: History,
}

#[derive(Debug)]
struct KindStore {
    table: RwLock<Table>,
    /// The number of the newest event; a watcher sleeps on it.
    newest: watch::Sender<u64>,
}

/// The objects of every kind. Kinds are numbered from zero by the caller.
#[derive(Debug)]
pub struct Store {
    kinds: Vec<Arc<KindStore>>,
    revision: Arc<AtomicU64>,
    written: watch::Sender<u64>,
    limits: HistoryLimits,
}

// === impl Version ===

impl Version {
    fn new(object: Value, revision: u64) -> Self {
        Self {
            object: Arc::new(object),
            revision,
            written: Instant::now(),
            body: OnceLock::new(),
            other_body: OnceLock::new(),
            message: OnceLock::new(),
        }
    }

    /// An object that is shown but not stored, such as the answer to a dry run.
    pub fn unstored(object: Value) -> Arc<Self> {
        Arc::new(Self::new(object, 0))
    }

    /// The object, with its `resourceVersion`.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The revision of the write that made this version.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// When it was written.
    pub fn written(&self) -> Instant {
        self.written
    }

    /// The JSON of the object without `apiVersion` and `kind`, serialised on first use.
    pub fn body(&self) -> &Bytes {
        self.body.get_or_init(|| encode_body(&self.object))
    }

    /// The object as a message of protobuf, encoded on first use.
    pub fn message(&self, encode: impl FnOnce(&Value) -> Vec<u8>) -> &Bytes {
        self.message
            .get_or_init(|| Bytes::from(encode(&self.object)))
    }

    /// As [`Version::body`], for the object as another group-version shows it.
    pub fn other_body(&self, convert: impl FnOnce(&Value) -> Value) -> &Bytes {
        self.other_body
            .get_or_init(|| encode_body(&convert(&self.object)))
    }
}

/// The JSON of an object without `apiVersion` and `kind`.
pub fn encode_body(object: &Value) -> Bytes {
    struct Body<'a>(&'a Value);
    impl Serialize for Body<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let Some(map) = self.0.as_object() else {
                return self.0.serialize(serializer);
            };
            let mut out = serializer.serialize_map(None)?;
            if let Some(metadata) = map.get("metadata") {
                out.serialize_entry("metadata", metadata)?;
            }
            for (key, value) in map {
                if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                    out.serialize_entry(key, value)?;
                }
            }
            out.end()
        }
    }
    // A JSON value always serialises: its keys are strings and it is not a reader that could fail.
    Bytes::from(serde_json::to_vec(&Body(object)).unwrap_or_else(|_| b"{}".to_vec()))
}

// === impl HistoryLimits ===

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            age_min: Duration::from_secs(75),
            events_min: 10_000,
            events_max: 200_000,
        }
    }
}

// === impl Store ===

impl Store {
    /// An empty store for this many kinds.
    pub fn new(kinds: usize, limits: HistoryLimits) -> Self {
        let kind = || {
            Arc::new(KindStore {
                table: RwLock::default(),
                newest: watch::Sender::new(0),
            })
        };
        Self {
            kinds: (0..kinds).map(|_| kind()).collect(),
            revision: Arc::new(AtomicU64::new(1)),
            written: watch::Sender::new(1),
            limits,
        }
    }

    /// The newest revision of the whole store.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::SeqCst)
    }

    /// Waits until `revision` has been written, at most `patience`.
    ///
    /// # Errors
    /// [`StoreError::Future`] when it has not.
    pub async fn reached(&self, revision: u64, patience: Duration) -> Result<(), StoreError> {
        let mut written = self.written.subscribe();
        let waited = tokio::time::timeout(patience, written.wait_for(|r| *r >= revision)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            _ => Err(StoreError::Future {
                requested: revision,
                current: self.revision(),
            }),
        }
    }

    /// The current version of an object.
    pub fn get(&self, kind: usize, key: &str) -> Option<Arc<Version>> {
        let store = self.kinds.get(kind)?;
        let table = store.table.read().unwrap_or_else(PoisonError::into_inner);
        table.live.get(key).cloned()
    }

    /// As [`Store::get`], with the revision of the state that was read.
    pub fn get_at(&self, kind: usize, key: &str) -> (Option<Arc<Version>>, u64) {
        let Some(store) = self.kinds.get(kind) else {
            return (None, self.revision());
        };
        let table = store.table.read().unwrap_or_else(PoisonError::into_inner);
        (table.live.get(key).cloned(), self.revision())
    }

    /// How many objects of a kind there are.
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
    ) -> Result<Arc<Version>, StoreError> {
        self.write(kind, |table, revision| {
            if table.live.contains_key(key) {
                return Err(StoreError::Exists);
            }
            let key: Arc<str> = key.into();
            let version = stamp(object, revision());
            table.live.insert(Arc::clone(&key), Arc::clone(&version));
            Ok([Event::new(EventKind::Created, key, version, None)])
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
    ) -> Result<Arc<Version>, StoreError> {
        self.write(kind, |table, revision| {
            let Some((key, old)) = table.live.get_key_value(key) else {
                return Err(StoreError::NotFound);
            };
            if old.revision != expected {
                return Err(StoreError::Modified);
            }
            let (key, old) = (Arc::clone(key), Arc::clone(old));
            let version = stamp(object, revision());
            table.live.insert(Arc::clone(&key), Arc::clone(&version));
            Ok([Event::new(EventKind::Updated, key, version, Some(old))])
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
    ) -> Result<Arc<Version>, StoreError> {
        self.write(kind, |table, revision| {
            let Some((key, old)) = table.live.get_key_value(key) else {
                return Err(StoreError::NotFound);
            };
            if old.revision != expected {
                return Err(StoreError::Modified);
            }
            let (key, old) = (Arc::clone(key), Arc::clone(old));
            table.live.remove(&key);
            let version = stamp(last, revision());
            Ok([Event::new(EventKind::Deleted, key, version, Some(old))])
        })
    }

    /// Replaces the version `expected` of an object and removes it. Watchers see both steps, but nobody can come
    /// between them.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Modified`] when the object has another revision.
    pub fn replace_and_delete(
        &self,
        kind: usize,
        key: &str,
        expected: u64,
        last: Value,
    ) -> Result<Arc<Version>, StoreError> {
        self.write(kind, |table, revision| {
            let Some((key, old)) = table.live.get_key_value(key) else {
                return Err(StoreError::NotFound);
            };
            if old.revision != expected {
                return Err(StoreError::Modified);
            }
            let (key, old) = (Arc::clone(key), Arc::clone(old));
            table.live.remove(&key);
            let replaced = stamp(last.clone(), revision());
            let removed = stamp(last, revision());
            let before = Some(Arc::clone(&replaced));
            Ok([
                Event::new(EventKind::Updated, Arc::clone(&key), replaced, Some(old)),
                Event::new(EventKind::Deleted, key, removed, before),
            ])
        })
    }

    /// Runs one write under the lock of its kind and returns the version that it ends with. A revision is drawn only
    /// when the write goes through, so that the counter never runs ahead of what is stored.
    fn write<const EVENTS: usize>(
        &self,
        kind: usize,
        change: impl FnOnce(&mut Table, &dyn Fn() -> u64) -> Result<[Event; EVENTS], StoreError>,
    ) -> Result<Arc<Version>, StoreError> {
        let store = self.kinds.get(kind).ok_or(StoreError::NotFound)?;
        let (version, newest) = {
            let mut table = store.table.write().unwrap_or_else(PoisonError::into_inner);
            let draw = || self.revision.fetch_add(1, Ordering::SeqCst) + 1;
            let mut last = None;
            for event in change(&mut table, &draw)? {
                let version = Arc::clone(&event.version);
                last = Some((version, table.history.append(event, &self.limits)));
            }
            // A write without an event has not found what it was to change.
            last.ok_or(StoreError::NotFound)?
        };
        store.newest.send_modify(|n| *n = newest.max(*n));
        self.written.send_modify(|r| *r = version.revision.max(*r));
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
        let table = store.table.read().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: every write of this kind up to this revision is in the table.
        let current = self.revision();
        list::list(&table.live, &table.history, current, query)
    }

    /// A cursor that stands behind all changes up to `after`.
    ///
    /// # Errors
    /// [`StoreError::Expired`] when the history no longer holds them.
    pub fn watch_after(&self, kind: usize, after: u64) -> Result<Cursor, StoreError> {
        let store = self.kinds.get(kind).ok_or(StoreError::NotFound)?;
        let table = store.table.read().unwrap_or_else(PoisonError::into_inner);
        let next = table.history.position_after(after)?;
        Ok(Cursor::new(
            Arc::clone(store),
            Arc::clone(&self.revision),
            next,
        ))
    }

    /// The objects of a kind now, the revision of that state, and a cursor that stands right behind it.
    ///
    /// # Errors
    /// None besides a kind that does not exist.
    pub fn watch_now(
        &self,
        kind: usize,
        prefix: &str,
    ) -> Result<(Vec<Arc<Version>>, u64, Cursor), StoreError> {
        let store = self.kinds.get(kind).ok_or(StoreError::NotFound)?;
        let table = store.table.read().unwrap_or_else(PoisonError::into_inner);
        let items = list::prefixed(&table.live, prefix)
            .map(|(_, version)| Arc::clone(version))
            .collect();
        let cursor = Cursor::new(
            Arc::clone(store),
            Arc::clone(&self.revision),
            table.history.end(),
        );
        Ok((items, self.revision(), cursor))
    }
}

/// Writes the revision into the object's metadata.
fn stamp(mut object: Value, revision: u64) -> Arc<Version> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    }
    Arc::new(Version::new(object, revision))
}

#[cfg(test)]
mod tests;
