//! The effects of cluster events and of time on the waiting pods.

use super::entry::{EntryId, QueuedIn, QueuedPodInfo};
use super::hints::{AskedPods, EventQuestion, HintTally, MoveStrategy};
use super::hooks::{Matched, ProfileId, Registration};
use super::outputs::QueueOutputs;
use super::place::QueuePlaces;
use super::walk::ExaminedPods;
use super::{SchedulingQueue, label};
use berth_api::{Duration, Pod, Str, Time};
use berth_framework::event::{Change, HintError, Narrowed};
use berth_framework::plugin::Context;
use berth_framework::{ClusterEvent, EventResource, Feature};
use berth_telemetry::LogLine;

/// The maximum number of gated pods per flush, the longest waiting first. The others follow 30 seconds later: a million
/// gated pods do not stop scheduling for seconds.
const GATED_PER_FLUSH: usize = 10_000;

/// The effects of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// The number of pods that were examined.
    pub examined: usize,
    /// The number of called hints.
    pub hints: u64,
    /// The number of pods that became active.
    pub active: usize,
    /// The number of pods that moved to backoff.
    pub backoff: usize,
    /// The number of pods that a PreEnqueue plugin rejects.
    pub gated: usize,
}

impl Moved {
    fn count(&mut self, place: QueuedIn) {
        match place {
            QueuedIn::Active => self.active += 1,
            QueuedIn::Backoff | QueuedIn::ErrorBackoff => self.backoff += 1,
            QueuedIn::Gated => self.gated += 1,
            QueuedIn::Unschedulable => {}
        }
    }
}

impl SchedulingQueue {
    /// Applies a cluster event: moves the waiting pods that it can help, and logs it for the pods in
    /// flight. With `pre_check`, only pods that pass it are considered.
    pub fn move_all(
        &mut self,
        cx: &Context<'_>,
        event: &ClusterEvent,
        change: Change<'_>,
        pre_check: Option<&dyn Fn(&Pod) -> bool>,
    ) -> Moved {
        let matched = self.places.profiles.matched(event);
        let mut moved = Moved::default();
        if !matched.is_interesting() {
            return moved;
        }
        // Pods of one template get equal answers about nodes and their pods; one of them is evaluated.
        let only_representatives = !matched.is_wildcard
            && matches!(
                event.resource,
                EventResource::Node | EventResource::AssignedPod
            );
        self.walk.begin();
        let mut tally = HintTally::new(self.out.stopwatch.clone());
        let profiles = self.places.profiles.ids().map(Some).chain([None]);
        for profile in profiles {
            let narrowed = self.narrow(cx, &matched, profile, only_representatives, change);
            let profile = self.places.profiles.known(profile);
            let question = EventQuestion {
                narrowed: &narrowed,
                ..EventQuestion::about(cx, &matched, change, profile)
            };
            let gates = matched.plugins.iter().map(|plugin| Some(plugin.as_str()));
            for gate in std::iter::once(None).chain(gates) {
                let examined = ExaminedPods { gate, pre_check };
                for pool in self.places.waiting().pools(only_representatives) {
                    let (places, log) = (&self.places, &mut self.out.log);
                    self.walk
                        .ask(&question, examined, places, pool, &mut tally, log);
                }
            }
        }
        moved.examined = self.walk.examined;
        moved.hints = tally.total();
        tally.record(&matched.label, &mut self.out.metrics);
        self.move_helped(cx, &matched.label, only_representatives, &mut moved);
        self.remember(event, change);
        moved
    }

    /// Moves the pods that an event helps. For a member of a gated group, only its PreEnqueue plugins run again.
    fn move_helped(
        &mut self,
        cx: &Context<'_>,
        event: &Str,
        only_representatives: bool,
        moved: &mut Moved,
    ) {
        let mut helped = std::mem::take(&mut self.walk.to_move);
        // A move of a group changes the entries of its members, so these are remembered by UID.
        let mut members: Vec<Str> = Vec::new();
        helped.retain(|(id, _)| {
            let entry = self.places.get(*id).filter(|entry| entry.is_of_member);
            members.extend(entry.map(|entry| entry.info.pod.uid().clone()));
            entry.is_none()
        });
        for (mut id, strategy) in helped.drain(..) {
            if only_representatives {
                id = self.places.next_for(id, cx.now);
            }
            moved.count(self.requeue(cx, id, strategy, event));
        }
        self.walk.to_move = helped;
        for uid in members {
            if self.places.has_member(&uid) {
                self.ask_about_member(cx, &uid);
            }
        }
    }

    /// The pods that each registration of a profile examines for the event: the pods that its PreQueueingHint names
    /// otherwise the pods that the wait index finds for the changed object. The functions of plugins
    /// that rejected no waiting pod are not called.
    fn narrow(
        &mut self,
        cx: &Context<'_>,
        matched: &Matched,
        profile: Option<ProfileId>,
        only_representatives: bool,
        change: Change<'_>,
    ) -> Vec<AskedPods> {
        let Some((profile, known)) = self.places.profiles.known(profile) else {
            return Vec::new();
        };
        let hints = Feature::SchedulerPreQueueingHints;
        let is_enabled = self.config.features.enabled(hints) && !matched.is_wildcard;
        // A function of a plugin can cost more than the hints that it saves, so it runs only if a pod waits for the plugin.
        let narrow = |at: &usize| {
            let Registration { plugin, on } = known.registrations.get(*at)?;
            let narrows = is_enabled || on.always_narrows && !matched.is_wildcard;
            let mut pools = self.places.waiting().pools(only_representatives);
            if !narrows || !pools.any(|pool| pool.has_rejected_by(profile, plugin)) {
                return None;
            }
            if let Some(hint) = &on.pre_queueing_hint {
                let named = named_pods(hint(cx.cluster, change), plugin, matched, &mut self.out);
                if is_enabled {
                    let result = named.as_ref().map_or("all_pods", |_| "narrowed");
                    self.out.metrics.narrowing(plugin, result);
                }
                if let Some(pods) = named {
                    return Some(AskedPods::Listed(waiting_among(&self.places, &pods)));
                }
            }
            let touched = (on.index.as_ref()?.touched)(cx.cluster, change);
            (!touched.is_everything()).then_some(AskedPods::Waiting(touched))
        };
        let asked = matched.of(profile).iter().map(narrow);
        asked.map(|pods| pods.unwrap_or(AskedPods::All)).collect()
    }

    /// Wakes the next pod of each template whose representative was placed or stopped waiting for another reason.
    /// Returns whether a pod was woken.
    pub fn wake_next_of_templates(&mut self, cx: &Context<'_>) -> bool {
        let mut any = false;
        while let Some(id) = self.places.next_due(cx.now) {
            any = true;
            self.requeue(cx, id, MoveStrategy::AfterBackoff, label::NEXT_OF_TEMPLATE);
        }
        any
    }

    /// A pod that was woken on behalf of its template has a node or waits for something else: the next pod follows.
    pub fn end_turn(&mut self, uid: &str) {
        self.places.release(uid);
    }

    /// Makes all pods with an ended backoff active. Returns their number.
    pub fn flush_backoff(&mut self, cx: &Context<'_>) -> usize {
        let mut activated = 0;
        for place in [QueuedIn::Backoff, QueuedIn::ErrorBackoff] {
            while let Some(first) = self.places.heap(place).first().copied()
                && !self.places.backoff().is_running(first.key.at, cx.now)
            {
                let to = self.move_to_active(cx, first.id, label::BACKOFF_COMPLETE, true);
                activated += usize::from(to == QueuedIn::Active);
            }
        }
        activated
    }

    /// Queues the pods that have waited too long for an event, in case an event was missed, and runs the
    /// PreEnqueue plugins of long-gated pods again.
    pub fn flush_leftover(&mut self, cx: &Context<'_>) -> Moved {
        let mut moved = Moved::default();
        let mut any =
            self.places.has_long_gated() || self.oldest_leftover(cx, QueuedIn::Gated).is_some();
        // The number of examined gated pods is bounded.
        for _ in 0..GATED_PER_FLUSH {
            let Some(id) = self.oldest_leftover(cx, QueuedIn::Gated) else {
                break;
            };
            if let Some(entry) = self.places.get_mut(id) {
                entry.info.own.gate_flushed = Some(cx.now);
                let group = entry.info.own.group.as_mut();
                group.into_iter().for_each(|group| group.forget_answers());
            }
            self.flush(cx, id, &mut moved);
        }
        while let Some(id) = self.oldest_leftover(cx, QueuedIn::Unschedulable) {
            any = true;
            if let Some(entry) = self.places.get_mut(id) {
                let flushed = |info: &mut QueuedPodInfo| info.was_flushed_from_unschedulable = true;
                entry.info.for_each_pod(flushed);
            }
            let to = self.flush(cx, id, &mut moved);
            debug_assert_ne!(to, QueuedIn::Unschedulable, "a flushed pod does not stay");
        }
        if any {
            let event = ClusterEvent::wildcard(label::UNSCHEDULABLE_TIMEOUT);
            let (old, new) = (None, None);
            self.remember(&event, Change { old, new });
        }
        moved
    }

    fn flush(&mut self, cx: &Context<'_>, id: EntryId, moved: &mut Moved) -> QueuedIn {
        moved.examined += 1;
        let (strategy, event) = (MoveStrategy::AfterBackoff, label::UNSCHEDULABLE_TIMEOUT);
        let to = self.requeue(cx, id, strategy, event);
        moved.count(to);
        to
    }

    /// The longest waiting pod of a place, if its wait exceeds the limit.
    fn oldest_leftover(&self, cx: &Context<'_>, place: QueuedIn) -> Option<EntryId> {
        let limit = self.config.pod_max_in_unschedulable_pods_duration;
        let item = self.places.heap(place).first()?;
        (cx.now.since(item.key.at) > limit).then_some(item.id)
    }

    /// Runs the due periodic flushes: of the backoff queue every second, of long-unschedulable pods every 30 seconds;
    /// none after the queue is closed. Returns whether a pod became poppable.
    pub fn run_due(&mut self, cx: &Context<'_>) -> bool {
        let mut any = false;
        let Some(due) = self
            .flushes
            .as_mut()
            .map(|flushes| flushes.take_due(cx.now))
        else {
            return any;
        };
        if due.backoff {
            any |= self.flush_backoff(cx) > 0;
        }
        if due.leftover {
            let moved = self.flush_leftover(cx);
            any |= moved.active > 0 || (moved.backoff > 0 && self.places.pops_from_backoff());
        }
        any
    }

    /// The time at which [`Self::run_due`] will next move a pod, never before `now`; `None` if time alone changes
    /// nothing.
    pub fn next_wake(&self, now: Time) -> Option<Time> {
        let flushes = self.flushes.as_ref()?;
        let backoff = [QueuedIn::Backoff, QueuedIn::ErrorBackoff]
            .into_iter()
            .filter_map(|place| self.places.heap(place).first())
            .map(|item| flushes.backoff_at(self.places.backoff().over_at(item.key.at)));
        let leftover = [QueuedIn::Unschedulable, QueuedIn::Gated]
            .into_iter()
            .filter_map(|place| self.places.heap(place).first());
        let leftover = leftover.map(|item| {
            let limit = self.config.pod_max_in_unschedulable_pods_duration;
            flushes.leftover_at(item.key.at + limit + Duration::from_nanos(1))
        });
        Some(backoff.chain(leftover).min()?.max(now))
    }
}

/// The result of a PreQueueingHint; `None` for all pods, and after an error.
fn named_pods(
    result: Result<Narrowed, HintError>,
    plugin: &Str,
    matched: &Matched,
    out: &mut QueueOutputs,
) -> Option<Vec<(Str, Str)>> {
    match result {
        Ok(Narrowed::Pods(pods)) => {
            out.log.v(5, "PreQueueingHint narrowed pod set", |line| {
                let line = line.with("plugin", plugin);
                line.with("event", &matched.label).with("pods", pods.len())
            });
            Some(pods)
        }
        Ok(Narrowed::AllPods) => None,
        Err(error) => {
            let line = LogLine::error("PreQueueingHintFn returns error, all pods are asked")
                .with("plugin", plugin)
                .with("event", &matched.label)
                .with("err", error.to_string());
            out.log.push(line);
            None
        }
    }
}

/// The named pods that wait for an event, each once; names are sorted.
fn waiting_among(places: &QueuePlaces, pods: &[(Str, Str)]) -> Vec<EntryId> {
    let named = |(namespace, name): &(Str, Str)| places.named(namespace, name);
    let mut ids: Vec<EntryId> = pods.iter().flat_map(named).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
