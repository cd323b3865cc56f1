//! A second queue, as plain as the rules: one list, loops instead of heaps and indexes, every result computed on
//! demand. It is written from the rules alone and shares with the queue only pods, events and the events of updates.

mod hints;
mod operations;

use super::script::event_of;
use berth_api::{Duration, Object, Pod, Str, Time};
use berth_framework::{Cluster, ClusterEvent, FeatureGates};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The place of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Active,
    Backoff,
    Error,
    Unschedulable,
    Gated,
}

impl Place {
    pub(super) const ALL: [Self; 5] = [
        Self::Active,
        Self::Backoff,
        Self::Error,
        Self::Unschedulable,
        Self::Gated,
    ];

    fn waits(self) -> bool {
        matches!(self, Self::Unschedulable | Self::Gated)
    }

    fn incoming(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Backoff | Self::Error => "backoff",
            Self::Unschedulable | Self::Gated => "unschedulable",
        }
    }
}

/// A pod with its history.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) pod: Arc<Pod>,
    pub(super) since: Time,
    pub(super) attempts: u32,
    pub(super) rejections: u32,
    pub(super) errors: u32,
    pub(super) flushed: bool,
    /// The time at which the flush last ran its PreEnqueue plugins.
    pub(super) gate_flushed: Time,
    pub(super) first_active: Option<Time>,
    pub(super) unschedulable: BTreeSet<Str>,
    pub(super) pending: BTreeSet<Str>,
    pub(super) gate: Option<Str>,
    pub(super) place: Place,
    arrival: u64,
}

impl Known {
    pub(super) fn rejectors(&self) -> BTreeSet<Str> {
        &self.unschedulable | &self.pending
    }

    /// The start of the time until the flush.
    pub(super) fn waits_since(&self) -> Time {
        match self.place {
            Place::Gated => self.since.max(self.gate_flushed),
            _ => self.since,
        }
    }
}

/// The result of an event for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Skip,
    AfterBackoff,
    AtOnce,
}

/// A profile: its PreEnqueue plugins, and the events that each plugin registers for.
pub(super) struct ModelProfile {
    pub(super) gates: Vec<&'static str>,
    pub(super) receives: Vec<(&'static str, Vec<(ClusterEvent, bool)>)>,
}

impl ModelProfile {
    /// The plugins of the scripts; `!` marks a registration without a hint.
    pub(super) fn new(gates: &[&'static str], plugins: &[(&'static str, &'static str)]) -> Self {
        let matching = |events: &str| {
            let events = events.split_whitespace();
            events
                .map(|text| (event_of(text.trim_end_matches('!')), !text.ends_with('!')))
                .collect()
        };
        Self {
            gates: gates.to_vec(),
            receives: plugins.iter().map(|(p, e)| (*p, matching(e))).collect(),
        }
    }
}

#[derive(Debug)]
struct Happened {
    event: ClusterEvent,
    old: Option<Object>,
    new: Option<Object>,
}

/// The queue.
pub(super) struct Model {
    pub(super) profiles: BTreeMap<&'static str, ModelProfile>,
    pub(super) pops_from_backoff: bool,
    pub(super) now: Time,
    pub(super) known: Vec<Known>,
    /// All events while pods were in flight, and the start of each flight.
    log: Vec<Happened>,
    pub(super) in_flight: BTreeMap<Str, usize>,
    pub(super) nominated: BTreeMap<Str, Str>,
    pub(super) incoming: BTreeMap<(&'static str, String), u64>,
    pub(super) hints: BTreeMap<(String, String, &'static str), u64>,
    arrivals: u64,
    features: FeatureGates,
}

impl Model {
    pub(super) fn new(profiles: BTreeMap<&'static str, ModelProfile>, pops: bool) -> Self {
        Self {
            profiles,
            pops_from_backoff: pops,
            now: Time::EPOCH,
            known: Vec::new(),
            log: Vec::new(),
            in_flight: BTreeMap::new(),
            nominated: BTreeMap::new(),
            incoming: BTreeMap::new(),
            hints: BTreeMap::new(),
            arrivals: 0,
            features: FeatureGates::default(),
        }
    }

    // --- the state ---------------------------------------------------------------------------------------

    /// The pods of a place in their order.
    pub(super) fn in_order(&self, place: Place) -> Vec<&Known> {
        let mut all: Vec<&Known> = self.known.iter().filter(|k| k.place == place).collect();
        let sort = |k: &Known| (-i64::from(k.pod.priority()), k.since);
        all.sort_by_key(|k| {
            let (ends, sort) = match place {
                Place::Active => (Time::EPOCH, sort(k)),
                Place::Backoff if self.pops_from_backoff => (self.backoff_ends(k), sort(k)),
                Place::Backoff | Place::Error => (self.backoff_ends(k), (0, Time::EPOCH)),
                Place::Unschedulable => (k.since, (0, Time::EPOCH)),
                Place::Gated => (k.waits_since(), (0, Time::EPOCH)),
            };
            (ends, sort, k.arrival)
        });
        all
    }

    /// `unschedulable_pods`: every queued pod counts for each of its rejectors.
    pub(super) fn unschedulable_gauge(&self) -> BTreeMap<(String, String), i64> {
        let mut gauge = BTreeMap::new();
        for known in &self.known {
            for plugin in known.rejectors() {
                let profile = known.pod.spec.scheduler_name.to_string();
                *gauge.entry((plugin.to_string(), profile)).or_default() += 1;
            }
        }
        gauge
    }

    /// `inflight_events`: the logged events that a pod in flight can still need, and the pods in flight.
    pub(super) fn in_flight_gauge(&self) -> BTreeMap<String, i64> {
        let mut gauge = BTreeMap::new();
        let from = self.in_flight.values().min().copied();
        for happened in &self.log[from.unwrap_or(self.log.len())..] {
            *gauge.entry(happened.event.label()).or_default() += 1;
        }
        if !self.in_flight.is_empty() {
            let flights = i64::try_from(self.in_flight.len()).expect("few");
            gauge.insert("PodPopped".to_owned(), flights);
        }
        gauge
    }

    pub(super) fn at(&self, name: &str) -> Option<usize> {
        let mut known = self.known.iter();
        known.position(|known| known.pod.name().as_str() == name)
    }

    // --- backoff -------------------------------------------------------------------------------------------

    /// by doubling.
    fn backoff_ends(&self, known: &Known) -> Time {
        let count = if known.errors > 0 {
            known.errors
        } else {
            known.rejections
        };
        let mut backoff = match count {
            0 => return Time::EPOCH,
            _ => 1,
        };
        for _ in 1..count {
            backoff = (backoff * 2).min(10);
        }
        self.window_of(known.since + Duration::from_secs(backoff))
    }

    fn window_of(&self, time: Time) -> Time {
        if self.pops_from_backoff {
            Time::from_secs(time.as_millis().div_euclid(1000))
        } else {
            time
        }
    }

    ///
    fn backs_off(&self, known: &Known) -> bool {
        known.rejections + known.errors > 0 && self.backoff_ends(known) >= self.window_of(self.now)
    }

    // --- moves ---------------------------------------------------------------------------------------------

    fn arrived(&mut self, place: Place, label: &str) {
        let key = (place.incoming(), label.to_owned());
        *self.incoming.entry(key).or_default() += 1;
    }

    /// returns whether PreEnqueue admits the pod.
    fn let_in(&mut self, at: usize) -> bool {
        let known = &mut self.known[at];
        let Some(profile) = self.profiles.get(known.pod.spec.scheduler_name.as_str()) else {
            known.gate = None;
            return true;
        };
        let now = known.gate.take();
        let is_now = |gate: &&&str| now.as_ref().is_some_and(|now| now.as_str() == **gate);
        let first = profile.gates.iter().filter(is_now);
        let others = profile.gates.iter().filter(|gate| !is_now(gate));
        for gate in first.chain(others) {
            let open = match *gate {
                "SchedulingGates" => known.pod.spec.scheduling_gates.is_empty(),
                gate => matches!(known.pod.labels().get(gate), None | Some("open")),
            };
            if !open {
                known.unschedulable.insert(Str::new(gate));
                known.gate = Some(Str::new(gate));
                return false;
            }
        }
        true
    }

    /// Moves the pod to the active queue, or behind a gate. `was` is its previous place.
    fn activate_at(&mut self, cluster: &Cluster, at: usize, was: Option<Place>, label: &str) {
        let from_backoff = matches!(was, Some(Place::Backoff | Place::Error));
        let was_asked = from_backoff && self.pops_from_backoff;
        if !was_asked && !self.let_in(at) {
            return self.shut_out(at, was, label);
        }
        self.known[at].place = Place::Active;
        self.arrived(Place::Active, label);
        if self.known[at].first_active.is_none() {
            self.known[at].first_active = Some(self.now);
            let pod = self.known[at].pod.clone();
            self.nominate(cluster, &pod, pod.status.nominated_node_name.clone());
        }
    }

    fn back_off(&mut self, at: usize, was: Option<Place>, label: &str) {
        let is_asked = self.pops_from_backoff || self.known[at].gate.is_some();
        if is_asked && !self.let_in(at) {
            return self.shut_out(at, was, label);
        }
        let place = if self.known[at].rejectors().is_empty() {
            Place::Error
        } else {
            Place::Backoff
        };
        self.known[at].place = place;
        self.arrived(place, label);
    }

    fn shut_out(&mut self, at: usize, was: Option<Place>, label: &str) {
        self.known[at].place = Place::Gated;
        if !was.is_some_and(Place::waits) {
            self.arrived(Place::Gated, label);
        }
    }

    ///
    fn requeue(
        &mut self,
        cluster: &Cluster,
        at: usize,
        was: Option<Place>,
        answer: Answer,
        label: &str,
    ) {
        match answer {
            Answer::Skip if was.is_some() => {}
            Answer::Skip => {
                self.known[at].place = Place::Unschedulable;
                self.arrived(Place::Unschedulable, label);
            }
            Answer::AfterBackoff if self.backs_off(&self.known[at]) => {
                self.back_off(at, was, label);
            }
            Answer::AfterBackoff | Answer::AtOnce => self.activate_at(cluster, at, was, label),
        }
    }

    fn enter(&mut self, pod: &Arc<Pod>) -> usize {
        self.arrivals += 1;
        self.known.push(Known {
            pod: pod.clone(),
            since: self.now,
            attempts: 0,
            rejections: 0,
            errors: 0,
            flushed: false,
            gate_flushed: Time::EPOCH,
            first_active: None,
            unschedulable: BTreeSet::new(),
            pending: BTreeSet::new(),
            gate: None,
            place: Place::Active,
            arrival: self.arrivals,
        });
        self.known.len() - 1
    }
}
