//! The pods in flight, and the events since each pop.
//!
//! All pods share one log: each pod stores the end of the log at its pop, and entries before every pod in flight are
//! dropped. The log is bounded: on overflow, a single entry that means "any event" replaces it.

use super::hooks::Matched;
use super::metrics::{POD_POPPED, QueueMetrics};
use berth_api::{Object, Pod, Str};
use berth_framework::event::Change;
use berth_telemetry::{Log, LogLine};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// An event during a flight.
#[derive(Debug)]
pub(super) struct Logged {
    pub(super) matched: Arc<Matched>,
    old: Option<Object>,
    new: Option<Object>,
}

impl Logged {
    /// The change.
    pub(super) fn change(&self) -> Change<'_> {
        Change {
            old: self.old.as_ref(),
            new: self.new.as_ref(),
        }
    }
}

#[derive(Debug)]
struct Flight {
    /// The number of the first event after the pop.
    since: u64,
    pod: Arc<Pod>,
}

/// The pods in flight with their log.
#[derive(Debug)]
pub struct InFlight {
    pods: FxHashMap<Str, Flight>,
    /// The number of pods by the number of their first event.
    starts: BTreeMap<u64, usize>,
    events: VecDeque<Logged>,
    /// The number of the first event in the log.
    first: u64,
    events_max: usize,
}

impl InFlight {
    pub(super) fn new(events_max: usize) -> Self {
        Self {
            pods: FxHashMap::default(),
            starts: BTreeMap::new(),
            events: VecDeque::new(),
            first: 0,
            events_max: events_max.max(1),
        }
    }

    fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Returns whether no pod is in flight.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Returns whether a pod with this identity is in flight.
    pub fn contains(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// The popped pods in flight, in no particular order.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values().map(|flight| &flight.pod)
    }

    /// The number of pods that are in flight.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// The number of stored events.
    pub fn events_len(&self) -> usize {
        self.events.len()
    }

    /// Adds a popped pod; it must not be in flight.
    pub(super) fn start(&mut self, pod: &Arc<Pod>, metrics: &mut QueueMetrics) {
        let since = self.next();
        let before = self.pods.insert(
            pod.uid().clone(),
            Flight {
                since,
                pod: pod.clone(),
            },
        );
        debug_assert!(before.is_none(), "a pod is in flight once");
        *self.starts.entry(since).or_default() += 1;
        metrics.inflight(POD_POPPED, 1.0);
    }

    /// Logs an event, only while pods are in flight.
    pub(super) fn remember(
        &mut self,
        matched: &Arc<Matched>,
        change: Change<'_>,
        anything: impl FnOnce() -> Arc<Matched>,
        metrics: &mut QueueMetrics,
        log: &mut Log,
    ) {
        if self.pods.is_empty() {
            return;
        }
        if self.events.len() >= self.events_max {
            let line = LogLine::warning(
                "more events came while pods were in flight than are kept: each of those pods that fails is retried \
                 after its backoff",
            );
            log.push(line.with("events", self.events.len()));
            metrics.event_log_collapsed();
            self.collapse(anything(), metrics);
            return;
        }
        metrics.inflight(&matched.label, 1.0);
        self.events.push_back(Logged {
            matched: matched.clone(),
            old: change.old.cloned(),
            new: change.new.cloned(),
        });
    }

    /// Replaces the log by a single entry that means any event: each pod now in flight that fails is retried.
    pub(super) fn collapse(&mut self, anything: Arc<Matched>, metrics: &mut QueueMetrics) {
        self.first = self.next();
        for event in self.events.drain(..) {
            metrics.inflight(&event.matched.label, -1.0);
        }
        metrics.inflight(&anything.label, 1.0);
        self.events.push_back(Logged {
            matched: anything,
            old: None,
            new: None,
        });
    }

    /// The events since the pod was popped, oldest first; `None` when it is not in flight.
    pub(super) fn events_for(&self, uid: &str) -> Option<impl Iterator<Item = &Logged>> {
        let since = self.pods.get(uid)?.since;
        let skip = usize::try_from(since.saturating_sub(self.first)).unwrap_or(usize::MAX);
        Some(self.events.range(skip.min(self.events.len())..))
    }

    /// Ends the flight of a pod. Drops the events that precede every other pod in flight. Does nothing for other pods.
    pub(super) fn done(&mut self, uid: &str, metrics: &mut QueueMetrics) {
        let Some(flight) = self.pods.remove(uid) else {
            return;
        };
        metrics.inflight(POD_POPPED, -1.0);
        if let Some(count) = self.starts.get_mut(&flight.since) {
            *count -= 1;
            if *count == 0 {
                self.starts.remove(&flight.since);
            }
        }
        let keep_from = self
            .starts
            .first_key_value()
            .map_or(self.next(), |(since, _)| *since);
        while self.first < keep_from
            && let Some(event) = self.events.pop_front()
        {
            metrics.inflight(&event.matched.label, -1.0);
            self.first += 1;
        }
    }

    /// Ends every flight.
    pub(super) fn done_all(&mut self, metrics: &mut QueueMetrics) {
        let uids: Vec<Str> = self.pods.keys().cloned().collect();
        for uid in uids {
            self.done(&uid, metrics);
        }
    }
}
