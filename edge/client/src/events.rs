//! Publishes events about objects, for operators.
//!
//! A repeated event becomes a series of the first one, as in client-go. Publishing never blocks: up to [`WAITING_MAX`]
//! events wait to be published, up to [`REQUESTS_MAX`] requests are in flight at once, and the events of one object are
//! published in their order. A request that may succeed later is repeated, for up to [`RETRY_BUDGET`]. Lost events are
//! counted, and the number is logged.

mod publish;
mod send;
mod series;
#[cfg(test)]
pub(crate) mod tests;

use crate::Transport;
use berth_api::{Str, Time};
use publish::{Losses, WaitingEvent};
use send::EventApi;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The maximum number of waiting events, including events in flight. Further events are dropped and counted.
pub const WAITING_MAX: usize = 65_536;
/// The number of requests that may be on their way at once.
pub const REQUESTS_MAX: usize = 16;
/// For how long a request is sent again that might succeed later.
pub const RETRY_BUDGET: Duration = Duration::from_secs(120);
/// The longest note the API takes, in bytes.
const NOTE_BYTES_MAX: usize = 1024;

/// Something that happened to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The regarded object.
    pub regarding: Regarding,
    /// Another object that is related to it, such as the preemptor of an evicted pod.
    pub related: Option<Regarding>,
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// The reason, for programs, such as `FailedScheduling`.
    pub reason: Str,
    /// The action, such as `Scheduling`.
    pub action: Str,
    /// The note, for people.
    pub note: String,
    /// The reporting component, such as `default-scheduler`.
    pub reporting_controller: Str,
}

/// An object that an event is about, or that is related to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Regarding {
    /// Such as `v1`.
    pub api_version: Str,
    /// Such as `Pod`.
    pub kind: &'static str,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Str,
    /// The name.
    pub name: Str,
    /// The identity.
    pub uid: Str,
}

/// The entry point of events. Cloning shares it.
#[derive(Clone)]
pub struct EventPublisher {
    queue: mpsc::Sender<WaitingEvent>,
    places: Arc<Semaphore>,
    losses: Arc<Losses>,
}

impl EventPublisher {
    /// Starts publishing, within the current runtime. `instance` distinguishes this process from others of its kind.
    pub fn start(transport: Transport, instance: String) -> (Self, Publishing) {
        Self::start_with(transport, instance, WAITING_MAX)
    }

    fn start_with(api: impl EventApi, instance: String, waiting_max: usize) -> (Self, Publishing) {
        let (queue, waiting) = mpsc::channel(waiting_max);
        let places = Arc::new(Semaphore::new(waiting_max));
        let losses = Arc::new(Losses::default());
        let task = publish::run(api, instance, waiting, Arc::clone(&losses));
        let publishing = Publishing {
            task: tokio::spawn(task),
            waiting_max,
            places: Arc::clone(&places),
            losses: Arc::clone(&losses),
        };
        let publisher = Self {
            queue,
            places,
            losses,
        };
        (publisher, publishing)
    }

    /// Hands in an event. Returns at once.
    pub fn publish(&self, mut event: Event, now: Time) {
        // A sender that has a place in the queue keeps it until the event is published: so there is always room in the
        // channel.
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return self.losses.dropped();
        };
        truncate(&mut event.note);
        let waiting = WaitingEvent {
            event,
            at: now,
            place,
        };
        if self.queue.try_send(waiting).is_err() {
            self.losses.dropped();
        }
    }
}

/// The publishing task. It ends when all [`EventPublisher`]s are dropped and their events are published.
pub struct Publishing {
    task: JoinHandle<()>,
    waiting_max: usize,
    places: Arc<Semaphore>,
    losses: Arc<Losses>,
}

impl Publishing {
    /// Waits for the end, at most for this time. Unpublished events are then lost, which is logged.
    pub async fn finish(mut self, patience: Duration) {
        if timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
            let left = self.waiting_max - self.places.available_permits();
            self.losses.notify();
            tracing::warn!(
                count = left,
                "events were not published: there was no time left when it was to stop"
            );
        }
    }
}

/// Truncates a note to the maximum length of the API.
fn truncate(note: &mut String) {
    const CUT: &str = " ...";
    if note.len() > NOTE_BYTES_MAX {
        let mut end = NOTE_BYTES_MAX - CUT.len();
        while !note.is_char_boundary(end) {
            end -= 1;
        }
        note.truncate(end);
        note.push_str(CUT);
        note.shrink_to_fit();
    }
}
