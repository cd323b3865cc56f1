//! Watches: a stream of the changes of a kind, narrowed by namespace and selectors.
//!
//! An object that starts to match is reported as ADDED, an object that no longer matches as DELETED, independently of
//! the underlying change. The stream ends with its timeout, with the server, or with an ERROR event if the watcher was
//! too slow.

use crate::encode::MediaFormat;
use crate::encode::{self, AnswerShape};
use crate::registry::{Api, in_version};
use crate::stopping::stopped;
use crate::storage::{Cursor, EventKind, ObjectVersion, StoredEvent};
use berth_objects::catalog::ServedResource;
use berth_objects::selectors::Selectors;
use berth_objects::status::ApiError;
use berth_objects::view::meta_mut;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, Stream};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The number of events that are taken from the history at once.
const READ_MAX: usize = 256;
/// A chunk is sent when it has grown to this.
const CHUNK_BYTES: usize = 64 * 1024;

/// The request of a watcher.
#[derive(Debug)]
pub(crate) struct WatchRequest {
    pub(crate) resource: Arc<ServedResource>,
    /// The namespace; `None` is all of them.
    pub(crate) namespace: Option<String>,
    pub(crate) selectors: Selectors,
    pub(crate) shape: AnswerShape,
    /// Whether the watcher requests its progress while there are no events.
    pub(crate) bookmarks: bool,
    /// The interval of bookmarks.
    pub(crate) bookmark_interval: Duration,
    pub(crate) timeout: Duration,
}

/// The start of a watch.
#[derive(Debug)]
pub(crate) struct Start {
    /// The existing objects, which are sent first.
    pub(crate) initial: Vec<Arc<ObjectVersion>>,
    /// The revision that a bookmark names as the end of the initial objects.
    pub(crate) initial_end: Option<u64>,
    /// The position after them.
    pub(crate) cursor: Cursor,
}

/// The events that a watch has still to send.
struct Backlog {
    initial: VecDeque<Arc<ObjectVersion>>,
    initial_end: Option<u64>,
    events: VecDeque<Arc<StoredEvent>>,
    cursor: Cursor,
    /// The revision up to which the watcher is complete.
    seen: u64,
}

impl Backlog {
    /// The next object of the initial list.
    fn next_initial(&mut self) -> Option<Arc<ObjectVersion>> {
        let version = self.initial.pop_front()?;
        self.seen = self.seen.max(version.revision());
        Some(version)
    }

    /// The revision of the initial list, once, when the whole list was taken.
    fn take_initial_end(&mut self) -> Option<u64> {
        let revision = self.initial_end.take_if(|_| self.initial.is_empty())?;
        self.seen = self.seen.max(revision);
        Some(revision)
    }

    /// The next event after the initial list.
    fn next_event(&mut self) -> Option<Arc<StoredEvent>> {
        if !self.initial.is_empty() {
            return None;
        }
        let event = self.events.pop_front()?;
        self.seen = event.revision();
        Some(event)
    }

    /// Reads further events; returns whether there were any.
    fn read(&mut self) -> Result<bool, ApiError> {
        let (events, complete) = self.cursor.read(READ_MAX).map_err(|lost| {
            ApiError::expired(format!(
                "too old resource version: {} ({})",
                self.seen, lost.oldest
            ))
        })?;
        self.seen = complete.unwrap_or(self.seen).max(self.seen);
        let any = !events.is_empty();
        self.events.extend(events);
        Ok(any)
    }
}

/// A running watch.
struct Watcher {
    request: WatchRequest,
    prefix: String,
    backlog: Backlog,
    /// Whether the next table carries the column definitions.
    columns: bool,
    api: Arc<Api>,
    stopping: watch::Receiver<bool>,
    deadline: Instant,
    next_bookmark: Instant,
    ended: bool,
}

/// The chunks of a watch.
pub(crate) fn chunks(
    request: WatchRequest,
    start: Start,
    api: Arc<Api>,
    stopping: watch::Receiver<bool>,
) -> impl Stream<Item = Bytes> + Send {
    let now = Instant::now();
    let prefix = request.resource.key_prefix(request.namespace.as_deref());
    let watcher = Watcher {
        deadline: now + request.timeout,
        next_bookmark: now + request.bookmark_interval,
        request,
        prefix,
        backlog: Backlog {
            initial: start.initial.into(),
            initial_end: start.initial_end,
            events: VecDeque::new(),
            cursor: start.cursor,
            seen: 0,
        },
        columns: true,
        api,
        stopping,
        ended: false,
    };
    // The stream owns the watcher, and ends with it.
    stream::unfold(watcher, |mut watcher| async move {
        let chunk = watcher.next_chunk().await?;
        Some((chunk, watcher))
    })
}

/// The event that ended a sleep.
enum Woken {
    End,
    Change,
    Bookmark,
}

impl Watcher {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut chunk = BytesMut::new();
        while !self.ended {
            self.take_initial(&mut chunk);
            self.take_events(&mut chunk);
            if !chunk.is_empty() {
                return Some(chunk.freeze());
            }
            match self.backlog.read() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    self.ended = true;
                    return Some(error_event(self.request.shape.format, &error));
                }
            }
            let bookmark_at = if self.request.bookmarks {
                self.next_bookmark
            } else {
                self.deadline
            };
            // The end is checked first: a busy kind must not delay a shutdown.
            let woken = tokio::select! {
                biased;
                () = stopped(&mut self.stopping) => Woken::End,
                () = sleep_until(self.deadline) => Woken::End,
                () = self.backlog.cursor.changed() => Woken::Change,
                () = sleep_until(bookmark_at) => Woken::Bookmark,
            };
            match woken {
                Woken::End => self.ended = true,
                Woken::Change => {}
                Woken::Bookmark => {
                    self.next_bookmark = Instant::now() + self.request.bookmark_interval;
                    self.bookmark(&mut chunk, self.backlog.seen, false);
                    return Some(chunk.freeze());
                }
            }
        }
        None
    }

    fn take_initial(&mut self, chunk: &mut BytesMut) {
        while chunk.len() < CHUNK_BYTES {
            let Some(version) = self.backlog.next_initial() else {
                break;
            };
            if self.matches(&version) {
                self.write(chunk, "ADDED", &version);
            }
        }
        if let Some(revision) = self.backlog.take_initial_end() {
            self.bookmark(chunk, revision, true);
        }
    }

    fn take_events(&mut self, chunk: &mut BytesMut) {
        while chunk.len() < CHUNK_BYTES {
            let Some(event) = self.backlog.next_event() else {
                break;
            };
            if event.key.starts_with(&self.prefix) {
                self.take_event(chunk, &event);
            }
        }
    }

    fn take_event(&mut self, chunk: &mut BytesMut, event: &StoredEvent) {
        let was = event.previous.as_ref().is_some_and(|v| self.matches(v));
        let is = event.kind != EventKind::Deleted && self.matches(&event.version);
        match (was, is) {
            (false, true) => self.write(chunk, "ADDED", &event.version),
            (true, true) => self.write(chunk, "MODIFIED", &event.version),
            (true, false) if event.kind == EventKind::Deleted => {
                self.write(chunk, "DELETED", &event.version);
            }
            (true, false) => {
                // The object as the watcher knows it, with the revision of the change.
                if let Some(previous) = &event.previous {
                    let mut last = Value::clone(&previous.object());
                    meta_mut(&mut last).insert(
                        "resourceVersion".to_owned(),
                        event.revision().to_string().into(),
                    );
                    self.write(chunk, "DELETED", &ObjectVersion::unstored(last));
                }
            }
            (false, false) => {}
        }
    }

    fn matches(&self, version: &ObjectVersion) -> bool {
        let selectors = &self.request.selectors;
        selectors.is_everything() || selectors.matches(&version.object())
    }

    fn write(&mut self, chunk: &mut BytesMut, kind: &str, version: &Arc<ObjectVersion>) {
        if self.ended {
            return;
        }
        let (resource, shape) = (&self.request.resource, &self.request.shape);
        let converted = match in_version(&self.api, resource, vec![Arc::clone(version)]) {
            Ok(converted) => converted,
            Err(error) => {
                self.ended = true;
                chunk.extend_from_slice(&error_event(shape.format, &error));
                return;
            }
        };
        let columns = std::mem::replace(&mut self.columns, false);
        let now = self.api.now();
        for version in &converted {
            encode::event(chunk, shape.format, kind, |out| {
                encode::watched(out, resource, shape, version, columns, now);
            });
        }
    }

    fn bookmark(&mut self, chunk: &mut BytesMut, revision: u64, initial_end: bool) {
        let columns = std::mem::replace(&mut self.columns, false);
        let (resource, shape) = (&self.request.resource, &self.request.shape);
        encode::event(chunk, shape.format, "BOOKMARK", |out| {
            encode::bookmark(out, resource, shape, revision, initial_end, columns);
        });
    }
}

/// The event that ends a stream which has failed.
pub(crate) fn error_event(format: MediaFormat, error: &ApiError) -> Bytes {
    let mut chunk = BytesMut::new();
    encode::event(&mut chunk, format, "ERROR", |out| {
        out.extend_from_slice(&encode::plain(format, &error.to_status()));
    });
    chunk.freeze()
}
