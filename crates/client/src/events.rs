//! Publishes events: what happened to an object, for people.
//!
//! The same thing happening again becomes a series on the first event, not another event. Publishing never holds
//! anybody up: when too much waits to be published, the newest is dropped and counted.

use crate::request::{self, EVENTS};
use crate::{ApiError, Transport};
use berth_api::{Str, Time};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// How many events may wait to be published.
const WAITING_MAX: usize = 4096;
/// How many series are remembered; the longest silent ones are forgotten first.
const SERIES_MAX: usize = 8192;
/// A series that has been silent this long is over.
const SERIES_IDLE: Duration = Duration::from_secs(6 * 60);
/// The longest note the API takes, in bytes.
const NOTE_BYTES_MAX: usize = 1024;

/// Something that happened to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What it happened to.
    pub regarding: Regarding,
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// Why, for programs, such as `FailedScheduling`.
    pub reason: Str,
    /// What was being done, such as `Scheduling`.
    pub action: Str,
    /// What happened, for people.
    pub note: String,
    /// Who says so, such as `default-scheduler`.
    pub reporting_controller: Str,
}

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Regarding {
    /// Such as `v1`.
    pub api_version: &'static str,
    /// Such as `Pod`.
    pub kind: &'static str,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Str,
    /// The name.
    pub name: Str,
    /// The identity.
    pub uid: Str,
}

/// Where events are handed in. Cloning shares it.
#[derive(Clone)]
pub struct EventPublisher {
    waiting: mpsc::Sender<(Event, Time)>,
    dropped: Arc<AtomicU64>,
}

impl EventPublisher {
    /// Starts publishing. `instance` tells this process from others of its kind.
    pub fn start(transport: Transport, instance: String) -> Self {
        let (waiting, queue) = mpsc::channel(WAITING_MAX);
        tokio::spawn(publish(transport, instance, queue));
        Self {
            waiting,
            dropped: Arc::default(),
        }
    }

    /// Hands in an event. Returns at once.
    pub fn publish(&self, event: Event, now: Time) {
        if self.waiting.try_send((event, now)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many events were dropped because too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// What makes two events the same thing again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SeriesKey {
    regarding: Regarding,
    kind: &'static str,
    reason: Str,
    action: Str,
    reporting_controller: Str,
}

#[derive(Debug)]
struct Series {
    name: String,
    count: u64,
    last: Time,
    note: String,
}

/// What has to be sent for an event.
#[derive(Debug, PartialEq, Eq)]
enum Write {
    /// A new event of this name.
    Create(String),
    /// The series of the event of this name has grown.
    Grow {
        name: String,
        count: u64,
        /// The note, where it is another one than before.
        note: bool,
    },
    /// Nothing: the series has grown, but not enough to say so.
    Nothing,
}

/// Folds events into series.
#[derive(Debug, Default)]
struct Correlator {
    series: HashMap<SeriesKey, Series>,
}

impl Correlator {
    fn take(&mut self, event: &Event, now: Time) -> Write {
        let key = SeriesKey {
            regarding: event.regarding.clone(),
            kind: event.kind,
            reason: event.reason.clone(),
            action: event.action.clone(),
            reporting_controller: event.reporting_controller.clone(),
        };
        if let Some(series) = self.series.get_mut(&key)
            && now.since(series.last) <= SERIES_IDLE
        {
            series.count += 1;
            series.last = now;
            let note = series.note != event.note;
            if note {
                series.note.clone_from(&event.note);
            }
            // The first repetitions are told one by one, later ones ever more seldom.
            return if note || series.count.is_power_of_two() {
                Write::Grow {
                    name: series.name.clone(),
                    count: series.count,
                    note,
                }
            } else {
                Write::Nothing
            };
        }
        if self.series.len() >= SERIES_MAX {
            self.forget(now);
        }
        let name = format!("{}.{:x}", event.regarding.name, now.as_nanos());
        let fresh = Series {
            name: name.clone(),
            count: 1,
            last: now,
            note: event.note.clone(),
        };
        self.series.insert(key, fresh);
        Write::Create(name)
    }

    /// Makes room: what is over goes, and if that is too little, the longer silent half.
    fn forget(&mut self, now: Time) {
        self.series
            .retain(|_, series| now.since(series.last) <= SERIES_IDLE);
        if self.series.len() >= SERIES_MAX {
            let mut times: Vec<Time> = self.series.values().map(|s| s.last).collect();
            let middle = times.len() / 2;
            let (_, median, _) = times.select_nth_unstable(middle);
            let median = *median;
            self.series.retain(|_, series| series.last > median);
        }
    }
}

async fn publish(transport: Transport, instance: String, mut queue: mpsc::Receiver<(Event, Time)>) {
    let mut correlator = Correlator::default();
    while let Some((event, now)) = queue.recv().await {
        let result = match correlator.take(&event, now) {
            Write::Create(name) => create(&transport, &instance, &event, &name, now).await,
            Write::Grow { name, count, note } => {
                let mut patch = json!({
                    "series": {"count": count, "lastObservedTime": now.rfc3339_micros()},
                });
                if note {
                    patch["note"] = truncated(&event.note).into();
                }
                let namespace = event_namespace(&event);
                let request = request::merge_patch(EVENTS, namespace, &name, &patch);
                match transport.execute(&request).await {
                    // The event has expired meanwhile: begin again.
                    Err(error) if error.is_not_found() => {
                        create(&transport, &instance, &event, &name, now).await
                    }
                    result => result,
                }
            }
            Write::Nothing => Ok(()),
        };
        if let Err(error) = result {
            tracing::warn!(reason = %event.reason, object = %event.regarding.name, %error, "failed to publish an event");
        }
    }
}

async fn create(
    transport: &Transport,
    instance: &str,
    event: &Event,
    name: &str,
    now: Time,
) -> Result<(), ApiError> {
    let namespace = event_namespace(event);
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": now.rfc3339_micros(),
        "reportingController": event.reporting_controller,
        "reportingInstance": instance,
        "action": event.action,
        "reason": event.reason,
        "regarding": {
            "apiVersion": event.regarding.api_version,
            "kind": event.regarding.kind,
            "namespace": event.regarding.namespace,
            "name": event.regarding.name,
            "uid": event.regarding.uid,
        },
        "note": truncated(&event.note),
        "type": event.kind,
    });
    transport
        .execute(&request::create(EVENTS, namespace, &body))
        .await
}

fn event_namespace(event: &Event) -> &str {
    if event.regarding.namespace.is_empty() {
        "default"
    } else {
        &event.regarding.namespace
    }
}

/// The note, cut to what the API takes.
fn truncated(note: &str) -> String {
    if note.len() <= NOTE_BYTES_MAX {
        return note.to_owned();
    }
    let mut end = NOTE_BYTES_MAX - " ...".len();
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} ...", &note[..end])
}

/// The time by this machine's clock.
pub fn now() -> Time {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX));
    Time::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(pod: &str, note: &str) -> Event {
        Event {
            regarding: Regarding {
                api_version: "v1",
                kind: "Pod",
                namespace: "ns".into(),
                name: pod.into(),
                uid: "u".into(),
            },
            kind: "Warning",
            reason: "FailedScheduling".into(),
            action: "Scheduling".into(),
            note: note.to_owned(),
            reporting_controller: "default-scheduler".into(),
        }
    }

    #[test]
    fn the_same_thing_again_grows_a_series() {
        let mut correlator = Correlator::default();
        let mut take =
            |note: &str, seconds: i64| correlator.take(&event("p", note), Time::from_secs(seconds));
        let Write::Create(name) = take("a", 1) else {
            panic!("the first event is created")
        };
        let grow = |count, note| Write::Grow {
            name: name.clone(),
            count,
            note,
        };
        assert_eq!(take("a", 2), grow(2, false));
        assert_eq!(take("a", 3), Write::Nothing);
        assert_eq!(take("b", 4), grow(4, true));
        assert_eq!(take("c", 5), grow(5, true));
        // After a long silence it is another event.
        assert!(matches!(take("c", 5 + 361), Write::Create(other) if other != name));
    }

    #[test]
    fn series_of_a_storm_stay_bounded() {
        let mut correlator = Correlator::default();
        for i in 0..(SERIES_MAX as i64 * 3) {
            correlator.take(&event(&format!("p{i}"), ""), Time::from_millis(i));
        }
        assert!(correlator.series.len() <= SERIES_MAX);
    }

    #[test]
    fn long_notes_are_cut_at_a_character() {
        let note = "ä".repeat(600);
        let cut = truncated(&note);
        assert!(
            cut.len() <= NOTE_BYTES_MAX && cut.ends_with(" ..."),
            "{}",
            cut.len()
        );
        assert_eq!(truncated("short"), "short");
    }
}
