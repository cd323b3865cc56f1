//! A second queue, as plain as the rules: one list, loops instead of heaps and indexes, everything worked out when it is
//! asked for. It is written from the rules alone and shares with the queue only pods, events and the updates' events.

use super::script::event_of;
use crate::queue::pod_update_events;
use berth_api::{Duration, Object, Pod, Str, Time};
use berth_framework::{Cluster, ClusterEvent, EventResource, FeatureGates};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where a pod is.
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
}

/// What an event says of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Skip,
    AfterBackoff,
    AtOnce,
}

/// A profile: its PreEnqueue plugins, and what each plugin hears of.
pub(super) struct ModelProfile {
    pub(super) gates: Vec<&'static str>,
    pub(super) hears: Vec<(&'static str, Vec<(ClusterEvent, bool)>)>,
}

impl ModelProfile {
    /// The plugins of the scripts; `!` marks a registration without a hint.
    pub(super) fn new(gates: &[&'static str], plugins: &[(&'static str, &'static str)]) -> Self {
        let heard = |events: &str| {
            let events = events.split_whitespace();
            events
                .map(|text| (event_of(text.trim_end_matches('!')), !text.ends_with('!')))
                .collect()
        };
        Self {
            gates: gates.to_vec(),
            hears: plugins.iter().map(|(p, e)| (*p, heard(e))).collect(),
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
    /// Everything that ever happened while pods were in flight, and since when each pod is.
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

    // --- what there is -------------------------------------------------------------------------------------

    /// The pods of a place in their order.
    pub(super) fn in_order(&self, place: Place) -> Vec<&Known> {
        let mut all: Vec<&Known> = self.known.iter().filter(|k| k.place == place).collect();
        let sort = |k: &Known| (-i64::from(k.pod.priority()), k.since);
        all.sort_by_key(|k| {
            let (ends, sort) = match place {
                Place::Active => (Time::EPOCH, sort(k)),
                Place::Backoff if self.pops_from_backoff => (self.backoff_ends(k), sort(k)),
                Place::Backoff | Place::Error => (self.backoff_ends(k), (0, Time::EPOCH)),
                Place::Unschedulable | Place::Gated => (k.since, (0, Time::EPOCH)),
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

    /// `inflight_events`: what a pod in flight may still need, and the pods in flight.
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
        match self.pops_from_backoff {
            true => Time::from_secs(time.as_millis().div_euclid(1000)),
            false => time,
        }
    }

    ///
    fn backs_off(&self, known: &Known) -> bool {
        known.rejections + known.errors > 0 && self.backoff_ends(known) >= self.window_of(self.now)
    }

    // --- moves ---------------------------------------------------------------------------------------------

    fn came(&mut self, place: Place, label: &str) {
        let key = (place.incoming(), label.to_owned());
        *self.incoming.entry(key).or_default() += 1;
    }

    /// whether the pod is let in.
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

    /// To the active queue, or behind a gate. `was` is where the pod has been.
    fn activate_at(&mut self, cluster: &Cluster, at: usize, was: Option<Place>, label: &str) {
        let from_backoff = matches!(was, Some(Place::Backoff | Place::Error));
        let was_asked = from_backoff && self.pops_from_backoff;
        if !was_asked && !self.let_in(at) {
            return self.shut_out(at, was, label);
        }
        self.known[at].place = Place::Active;
        self.came(Place::Active, label);
        if self.known[at].first_active.is_none() {
            self.known[at].first_active = Some(self.now);
            let pod = self.known[at].pod.clone();
            self.nominate(cluster, &pod, pod.status.nominated_node_name.clone());
        }
    }

    fn back_off(&mut self, at: usize, was: Option<Place>, label: &str) {
        if self.pops_from_backoff && !self.let_in(at) {
            return self.shut_out(at, was, label);
        }
        let place = match self.known[at].rejectors().is_empty() {
            true => Place::Error,
            false => Place::Backoff,
        };
        self.known[at].place = place;
        self.came(place, label);
    }

    fn shut_out(&mut self, at: usize, was: Option<Place>, label: &str) {
        self.known[at].place = Place::Gated;
        if !was.is_some_and(Place::waits) {
            self.came(Place::Gated, label);
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
                self.came(Place::Unschedulable, label);
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
            first_active: None,
            unschedulable: BTreeSet::new(),
            pending: BTreeSet::new(),
            gate: None,
            place: Place::Active,
            arrival: self.arrivals,
        });
        self.known.len() - 1
    }

    // --- hints ---------------------------------------------------------------------------------------------

    fn heard(&self, event: &ClusterEvent) -> bool {
        let registered = self.profiles.values().flat_map(|profile| &profile.hears);
        let mut registered = registered.flat_map(|(_, events)| events);
        is_for_all(event) || registered.any(|(registered, _)| hears(registered, event))
    }

    /// whether the event reaches a gated pod.
    fn reaches(&self, known: &Known, event: &ClusterEvent) -> bool {
        let Some(gate) = &known.gate else {
            return true;
        };
        let registered = self.profiles.values().flat_map(|profile| &profile.hears);
        let mut own = registered.filter(|(plugin, _)| *plugin == gate.as_str());
        !is_for_all(event) && own.any(|(_, events)| events.iter().any(|(e, _)| hears(e, event)))
    }

    ///
    fn ask(
        &mut self,
        known: &Known,
        event: &ClusterEvent,
        old: Option<&Object>,
        new: Option<&Object>,
    ) -> Answer {
        let rejectors = known.rejectors();
        if rejectors.is_empty() {
            return Answer::AfterBackoff;
        }
        if is_for_all(event) {
            let other = |new: &Object| new.as_pod().is_none_or(|new| new.uid() != known.pod.uid());
            return match new.is_some_and(other) {
                true => Answer::Skip,
                false => Answer::AfterBackoff,
            };
        }
        let Some(profile) = self.profiles.get(known.pod.spec.scheduler_name.as_str()) else {
            return Answer::AfterBackoff;
        };
        let mut answer = Answer::Skip;
        for (plugin, events) in &profile.hears {
            for (_, has_hint) in events.iter().filter(|(e, _)| hears(e, event)) {
                if !rejectors.contains(*plugin) {
                    continue;
                }
                let said = match has_hint {
                    true => hint(plugin, &known.pod, old, new),
                    false => "Queue",
                };
                let key = ((*plugin).to_owned(), event.label(), said);
                *self.hints.entry(key).or_default() += 1;
                if said == "QueueSkip" {
                    continue;
                }
                if known.pending.contains(*plugin) {
                    return Answer::AtOnce;
                }
                if known.pending.is_empty() {
                    return Answer::AfterBackoff;
                }
                answer = Answer::AfterBackoff;
            }
        }
        answer
    }

    fn note(&mut self, event: &ClusterEvent, old: Option<&Object>, new: Option<&Object>) {
        if !self.in_flight.is_empty() {
            self.log.push(Happened {
                event: event.clone(),
                old: old.cloned(),
                new: new.cloned(),
            });
        }
    }

    // --- nominations ---------------------------------------------------------------------------------------

    pub(super) fn nominate(&mut self, cluster: &Cluster, pod: &Pod, node: Str) {
        self.nominated.remove(pod.uid());
        let pending = cluster
            .pods
            .get(pod.uid())
            .is_some_and(|p| !p.is_assigned());
        if pending && !node.is_empty() {
            self.nominated.insert(pod.uid().clone(), node);
        }
    }

    fn follow(&mut self, cluster: &Cluster, old: &Pod, new: &Pod) {
        let said = |pod: &Pod| !pod.status.nominated_node_name.is_empty();
        let before = self.nominated.remove(old.uid());
        let node = match before {
            Some(node) if !said(old) && !said(new) => node,
            _ => new.status.nominated_node_name.clone(),
        };
        self.nominate(cluster, new, node);
    }

    // --- operations ----------------------------------------------------------------------------------------

    pub(super) fn add(&mut self, cluster: &Cluster, pod: &Arc<Pod>) {
        let queued = self.at(pod.name()).map(|at| self.known[at].pod.clone());
        match queued {
            _ if self.in_flight.contains_key(pod.uid()) => return self.update(cluster, pod, pod),
            Some(queued) if queued.uid() == pod.uid() => return self.update(cluster, &queued, pod),
            Some(queued) => self.delete(&queued),
            None => {}
        }
        let at = self.enter(pod);
        self.activate_at(cluster, at, None, "UnschedulablePodAdd");
    }

    ///
    pub(super) fn update(&mut self, cluster: &Cluster, old: &Arc<Pod>, new: &Arc<Pod>) {
        let (before, after) = (Object::Pod(old.clone()), Object::Pod(new.clone()));
        let events = pod_update_events(old, new, &self.features);
        if self.in_flight.contains_key(new.uid()) {
            for event in &events {
                self.note(event, Some(&before), Some(&after));
            }
            return;
        }
        let Some(at) = self.at(new.name()) else {
            let at = self.enter(new);
            return self.activate_at(cluster, at, None, "UnschedulablePodUpdate");
        };
        self.known[at].pod = new.clone();
        if self.known[at].first_active.is_some() {
            self.follow(cluster, old, new);
        }
        if !self.known[at].place.waits() {
            return;
        }
        let mut backs_off = false;
        for event in &events {
            let known = self.known[at].clone();
            let answer = self.ask(&known, event, Some(&before), Some(&after));
            if backs_off && answer != Answer::AtOnce {
                continue;
            }
            self.requeue(cluster, at, Some(known.place), answer, &event.label());
            let place = self.known[at].place;
            backs_off = matches!(place, Place::Backoff | Place::Error);
            if place == Place::Active || (backs_off && self.pops_from_backoff) {
                return;
            }
        }
    }

    pub(super) fn delete(&mut self, pod: &Pod) {
        self.nominated.remove(pod.uid());
        self.known.retain(|known| known.pod.uid() != pod.uid());
    }

    pub(super) fn pop(&mut self) -> Option<Known> {
        loop {
            let active = self.in_order(Place::Active).first().map(|k| k.pod.clone());
            let next = active.or_else(|| {
                let early = self.in_order(Place::Backoff).first()?.pod.clone();
                self.pops_from_backoff.then_some(early)
            })?;
            let at = self.at(next.name())?;
            if self.known[at].place == Place::Backoff {
                self.came(Place::Active, "PopFromBackoffQ");
            }
            if let Some(popped) = self.take_off(at) {
                return Some(popped);
            }
        }
    }

    fn take_off(&mut self, at: usize) -> Option<Known> {
        let mut known = self.known.remove(at);
        known.attempts += 1;
        if self.in_flight.contains_key(known.pod.uid()) {
            return None;
        }
        self.in_flight
            .insert(known.pod.uid().clone(), self.log.len());
        Some(known)
    }

    pub(super) fn take(&mut self, cluster: &Cluster, pod: &Pod) -> Option<Known> {
        self.activate_one(cluster, pod);
        let at = self.at(pod.name())?;
        (self.known[at].place == Place::Active).then(|| self.take_off(at))?
    }

    pub(super) fn done(&mut self, uid: &str) {
        self.in_flight.remove(uid);
    }

    /// whether the pod was taken back.
    pub(super) fn give_back(&mut self, cluster: &Cluster, mut known: Known) -> bool {
        let since = self.in_flight.remove(known.pod.uid());
        if self.at(known.pod.name()).is_some() {
            return false;
        }
        known.since = self.now;
        known.flushed = false;
        if known.rejectors().is_empty() {
            known.errors += 1;
        } else {
            known.rejections += 1;
            known.errors = 0;
        }
        let answer = match since {
            _ if known.rejectors().is_empty() => Answer::AfterBackoff,
            None => Answer::AfterBackoff,
            Some(since) => {
                let log = std::mem::take(&mut self.log);
                let mut best = Answer::Skip;
                for happened in &log[since..] {
                    let (old, new) = (happened.old.as_ref(), happened.new.as_ref());
                    best = best.max(self.ask(&known, &happened.event, old, new));
                    let is_best = best == Answer::AtOnce
                        || (best == Answer::AfterBackoff && known.pending.is_empty());
                    if is_best {
                        break;
                    }
                }
                self.log = log;
                best
            }
        };
        self.arrivals += 1;
        known.arrival = self.arrivals;
        self.known.push(known);
        let at = self.known.len() - 1;
        self.requeue(cluster, at, None, answer, "ScheduleAttemptFailure");
        true
    }

    ///
    pub(super) fn event(
        &mut self,
        cluster: &Cluster,
        event: &ClusterEvent,
        (old, new): (Option<&Object>, Option<&Object>),
        passes: &dyn Fn(&Pod) -> bool,
    ) {
        if !self.heard(event) {
            return;
        }
        for at in 0..self.known.len() {
            let known = self.known[at].clone();
            if !known.place.waits() || !passes(&known.pod) || !self.reaches(&known, event) {
                continue;
            }
            let answer = self.ask(&known, event, old, new);
            self.requeue(cluster, at, Some(known.place), answer, &event.label());
        }
        self.note(event, old, new);
    }

    pub(super) fn activate(&mut self, cluster: &Cluster, pod: &Arc<Pod>) {
        if !self.activate_one(cluster, pod) && self.in_flight.contains_key(pod.uid()) {
            let target = Object::Pod(pod.clone());
            self.note(
                &ClusterEvent::wildcard("ForceActivate"),
                None,
                Some(&target),
            );
        }
    }

    fn activate_one(&mut self, cluster: &Cluster, pod: &Pod) -> bool {
        let Some(at) = self.at(pod.name()) else {
            return false;
        };
        let was = self.known[at].place;
        if was == Place::Active {
            return false;
        }
        self.activate_at(cluster, at, Some(was), "ForceActivate");
        self.known[at].place == Place::Active
    }

    ///
    pub(super) fn flush_backoff(&mut self, cluster: &Cluster) {
        for at in 0..self.known.len() {
            let known = &self.known[at];
            let is_over =
                matches!(known.place, Place::Backoff | Place::Error) && !self.backs_off(known);
            if is_over {
                self.activate_at(cluster, at, Some(known.place), "BackoffComplete");
            }
        }
    }

    /// Q-69, with five minutes.
    pub(super) fn flush_leftover(&mut self, cluster: &Cluster) {
        let is_old = |known: &Known| {
            known.place.waits() && self.now.since(known.since) > Duration::from_secs(300)
        };
        let old: Vec<usize> = (0..self.known.len())
            .filter(|at| is_old(&self.known[*at]))
            .collect();
        for at in &old {
            let place = self.known[*at].place;
            if place == Place::Unschedulable {
                self.known[*at].flushed = true;
                self.requeue(
                    cluster,
                    *at,
                    Some(place),
                    Answer::AfterBackoff,
                    "UnschedulableTimeout",
                );
            }
        }
        if !old.is_empty() {
            self.note(&ClusterEvent::wildcard("UnschedulableTimeout"), None, None);
        }
    }
}

fn is_for_all(event: &ClusterEvent) -> bool {
    event.custom_label.is_some()
}

///
fn hears(registered: &ClusterEvent, event: &ClusterEvent) -> bool {
    let (wanted, got) = (&registered.resource, &event.resource);
    let is_pod = matches!(
        got,
        EventResource::AssignedPod | EventResource::UnschedulablePod
    );
    let same = wanted == got
        || *wanted == EventResource::Wildcard
        || (*wanted == EventResource::Pod && is_pod);
    same && registered.action.0 & event.action.0 != 0 && event.action.0 <= registered.action.0
}

/// What the hints of the scripts' plugins say.
fn hint(plugin: &str, pod: &Pod, old: Option<&Object>, new: Option<&Object>) -> &'static str {
    let queue = |queue| if queue { "Queue" } else { "QueueSkip" };
    if plugin == "SchedulingGates" {
        let itself = |new: &Object| new.as_pod().is_some_and(|new| new.uid() == pod.uid());
        return queue(new.is_some_and(itself));
    }
    let changed = new.or(old).map(Object::metadata);
    match changed.and_then(|changed| changed.labels.get("helps")) {
        Some("error") => "Error",
        Some("all") => "Queue",
        Some(helps) => queue(helps.split('+').any(|helped| helped == plugin)),
        None => "QueueSkip",
    }
}
