//! Publishes the submitted events: several requests at a time, one at a time for each object.

use super::send::{EventApi, EventJob, JobEnd, deliver};
use super::series::{Correlator, Write};
use super::{Event, REQUESTS_MAX, Regarding};
use crate::ApiError;
use crate::clock::seed;
use berth_api::Time;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, interval_at};

/// The interval of the search for series that are over, or were not written for long.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Losses are logged this often.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// An event that waits to be published.
pub(super) struct WaitingEvent {
    pub(super) event: Event,
    pub(super) at: Time,
    pub(super) place: OwnedSemaphorePermit,
}

/// Publishes until all senders are dropped and all events are published.
pub(super) async fn run(
    api: impl EventApi,
    instance: String,
    mut queue: mpsc::Receiver<WaitingEvent>,
    losses: Arc<Losses>,
) {
    let mut correlator = Correlator::default();
    let mut lanes = Lanes::default();
    let mut sending = FuturesUnordered::new();
    let mut jitter = fastrand::Rng::with_seed(seed(&instance));
    let mut reporting = interval_at(Instant::now() + REPORT_EVERY, REPORT_EVERY);
    let mut looking = interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    // The time of the latest event, and the time of its arrival: series follow the clock of the events.
    let mut clock = (Time::EPOCH, Instant::now());
    let mut due: VecDeque<(Event, Write)> = VecDeque::new();
    let mut is_open = true;
    while is_open || !sending.is_empty() {
        let has_room = sending.len() < REQUESTS_MAX;
        let next = tokio::select! {
            Some(JobEnd { event, result }) = sending.next() => {
                if let Err(error) = result {
                    losses.failed(&event, &error);
                }
                lanes.leave(&event.regarding)
            }
            waiting = queue.recv(), if is_open && has_room => match waiting {
                Some(WaitingEvent { event, at, place }) => {
                    if at > clock.0 {
                        clock = (at, Instant::now());
                    }
                    let write = correlator.take(&event, at);
                    write.and_then(|write| lanes.enter(EventJob { event, at, write, _place: Some(place) }))
                }
                None => {
                    is_open = false;
                    None
                }
            },
            () = std::future::ready(()), if has_room && !due.is_empty() => {
                let at = clock.0 + clock.1.elapsed();
                let job = due.pop_front();
                job.and_then(|(event, write)| lanes.enter(EventJob { event, at, write, _place: None }))
            }
            _ = looking.tick(), if is_open && due.is_empty() => {
                due.extend(correlator.tick(clock.0 + clock.1.elapsed()));
                None
            }
            _ = reporting.tick() => {
                losses.notify();
                None
            }
        };
        if let Some(job) = next {
            sending.push(deliver(&api, &instance, job, jitter.fork()));
        }
    }
    losses.notify();
}

/// The objects with a write in flight, and the waiting writes about each. The total number of waiting events is limited
/// on submission.
#[derive(Default)]
struct Lanes {
    lanes: HashMap<Regarding, VecDeque<EventJob>>,
}

impl Lanes {
    /// Returns the job when it may be sent now; otherwise it waits behind others of its object.
    fn enter(&mut self, job: EventJob) -> Option<EventJob> {
        if let Some(lane) = self.lanes.get_mut(&job.event.regarding) {
            lane.push_back(job);
            return None;
        }
        let regarding = job.event.regarding.clone();
        self.lanes.insert(regarding, VecDeque::new());
        Some(job)
    }

    /// The write about the object has ended. Returns the next write.
    fn leave(&mut self, regarding: &Regarding) -> Option<EventJob> {
        let next = self.lanes.get_mut(regarding).and_then(VecDeque::pop_front);
        if next.is_none() {
            self.lanes.remove(regarding);
        }
        next
    }
}

/// Counts the dropped events until the log has reported them.
#[derive(Debug, Default)]
pub(super) struct Losses {
    counts: Mutex<PublishCounts>,
}

#[derive(Debug, Default)]
struct PublishCounts {
    /// There was no place for them.
    dropped: u64,
    /// They were not taken.
    failed: u64,
    /// The last failed event.
    last: Option<LastFailed>,
}

#[derive(Debug)]
struct LastFailed {
    reason: String,
    object: String,
    error: String,
}

impl Losses {
    /// There was no place for an event.
    pub(super) fn dropped(&self) {
        self.with(|counts| counts.dropped += 1);
    }

    /// An event was not taken.
    pub(super) fn failed(&self, event: &Event, error: &ApiError) {
        // The event would be deleted with its namespace, so it is dropped.
        if error.is_namespace_terminating() {
            return;
        }
        let regarding = &event.regarding;
        let last = LastFailed {
            reason: event.reason.to_string(),
            object: format!("{}/{}", regarding.namespace, regarding.name),
            error: error.to_string(),
        };
        self.with(|counts| {
            counts.failed += 1;
            counts.last = Some(last);
        });
    }

    /// Logs the losses since the last such line.
    pub(super) fn notify(&self) {
        let PublishCounts {
            dropped,
            failed,
            last,
        } = self.with(std::mem::take);
        if dropped > 0 {
            tracing::warn!(
                count = dropped,
                "events were dropped: too many waited to be published"
            );
        }
        if let Some(LastFailed {
            reason,
            object,
            error,
        }) = last
        {
            tracing::warn!(
                count = failed,
                last.reason = reason,
                last.object = object,
                last.error = error,
                "failed to publish events"
            );
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut PublishCounts) -> T) -> T {
        act(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
