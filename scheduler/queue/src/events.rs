//! The effects of cluster events and of time on the waiting pods.

use super::entry::{EntryId, QueuedIn};
use super::gated_members::FiledMembers;
use super::gating::ask_about_member;
use super::hints::{AskedPods, EventQuestion, HintTally, MoveStrategy};
use super::hooks::{Matched, ProfileId, Registration};
use super::metrics::NarrowingResult;
use super::walk::{ExaminedPods, WaitingPods, Walk};
use super::{SchedulingQueue, label};
use berth_api::{Duration, Pod, Str, Time};
use berth_framework::event::{Change, Narrowed, Touched};
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
        let mut members = std::mem::take(&mut self.member_walk);
        members.begin();
        let mut tally = HintTally::new(self.out.stopwatch.clone());
        let profiles = self.places.profiles.ids().map(Some).chain([None]);
        for profile in profiles {
            let narrowings = match profile {
                Some(profile) => self.narrow(cx, &matched, (profile, only_representatives), change),
                None => Vec::new(),
            };
            let narrowed = asked_of(&narrowings, &self.places);
            let question = EventQuestion {
                cluster: cx.cluster,
                matched: &matched,
                change,
                profile: self.places.profiles.get(profile),
                matching: profile.map_or(&[][..], |profile| matched.of(profile)),
                narrowed: &narrowed,
            };
            let gates = matched.plugins.iter().map(|plugin| Some(plugin.as_str()));
            for gate in std::iter::once(None).chain(gates) {
                let examined = ExaminedPods {
                    profile,
                    gate,
                    pre_check,
                };
                for pool in self.places.pools(only_representatives) {
                    let (places, log) = (&self.places, &mut self.out.log);
                    let asked = (&question, &examined);
                    self.walk.ask(asked, places, pool, &mut tally, log);
                }
            }
            if !self.gated_members.is_empty() {
                let mut log = std::mem::take(&mut self.out.log);
                let filed = FiledMembers(self);
                let narrowed = asked_of(&narrowings, &filed);
                let question = EventQuestion {
                    narrowed: &narrowed,
                    ..question
                };
                for gate in matched.plugins.iter().map(|plugin| Some(plugin.as_str())) {
                    let examined = ExaminedPods {
                        profile,
                        gate,
                        pre_check,
                    };
                    let asked = (&question, &examined);
                    let pool = self.gated_members.pool();
                    members.ask(asked, &filed, pool, &mut tally, &mut log);
                }
                self.out.log = log;
            }
        }
        moved.examined = self.walk.examined() + members.examined();
        moved.hints = tally.total();
        tally.record(&matched.label, &mut self.out.metrics);
        let mut to_move = self.walk.end();
        for (mut id, strategy) in to_move.drain(..) {
            if only_representatives {
                id = self.places.next_for(id, cx.now);
            }
            moved.count(self.requeue(cx, id, strategy, &matched.label));
        }
        self.walk.keep(to_move);
        self.ask_helped_members(cx, members);
        super::remember(self, event, change);
        moved
    }

    /// Runs the PreEnqueue plugins again for members of gated groups that an event can help.
    fn ask_helped_members(&mut self, cx: &Context<'_>, mut walk: Walk) {
        let mut helped = walk.end();
        let uids: Vec<Str> = helped
            .drain(..)
            .filter_map(|(id, _)| self.gated_members.uid_of(id).cloned())
            .collect();
        walk.keep(helped);
        self.member_walk = walk;
        for uid in uids {
            ask_about_member(self, cx, &uid);
        }
    }

    /// The pods that each registration of a profile examines for the event: the pods that its PreQueueingHint names
    /// or else the pods that wait for what the event changes. Plugins that rejected no waiting pod are
    /// skipped.
    fn narrow(
        &mut self,
        cx: &Context<'_>,
        matched: &Matched,
        (profile, only_representatives): (ProfileId, bool),
        change: Change<'_>,
    ) -> Vec<Narrowing> {
        let enabled = self
            .config
            .features
            .enabled(Feature::SchedulerPreQueueingHints)
            && !matched.is_wildcard;
        let Some(known) = self.places.profiles.get(Some(profile)) else {
            return Vec::new();
        };
        let mut narrowed = Vec::with_capacity(matched.of(profile).len());
        for registration in matched.of(profile) {
            let registration = known
                .registrations
                .get(*registration)
                .filter(|registration| {
                    let pools = self.places.pools(only_representatives);
                    let mut pools = pools.chain([self.gated_members.pool()]);
                    let narrows = enabled || registration.on.always_narrows && !matched.is_wildcard;
                    narrows && pools.any(|pool| pool.has_rejected_by(profile, &registration.plugin))
                });
            let Some(Registration { plugin, on }) = registration else {
                narrowed.push(Narrowing::None);
                continue;
            };
            let named = on.pre_queueing_hint.as_ref().and_then(|narrow| {
                let (result, named) = match narrow(cx.cluster, change) {
                    Ok(Narrowed::Pods(pods)) => {
                        self.out
                            .log
                            .v(5, "PreQueueingHint narrowed pod set", |line| {
                                let line = line.with("plugin", plugin);
                                line.with("event", &matched.label).with("pods", pods.len())
                            });
                        (NarrowingResult::Narrowed, Some(pods))
                    }
                    Ok(Narrowed::AllPods) => (NarrowingResult::AllPods, None),
                    Err(error) => {
                        let line =
                            LogLine::error("PreQueueingHintFn returns error, all pods are asked")
                                .with("plugin", plugin)
                                .with("event", &matched.label)
                                .with("err", error.to_string());
                        self.out.log.push(line);
                        (NarrowingResult::AllPods, None)
                    }
                };
                if enabled {
                    self.out.metrics.narrowing(plugin, result);
                }
                named
            });
            narrowed.push(match (named, &on.index) {
                (Some(pods), _) => Narrowing::Named(pods),
                (None, Some(index)) => match (index.touched)(cx.cluster, change) {
                    touched if touched.is_everything() => Narrowing::None,
                    touched => Narrowing::Touched(touched),
                },
                (None, None) => Narrowing::None,
            });
        }
        narrowed
    }

    /// Wakes the next pod of each template whose representative was placed or ended otherwise than by waiting again.
    /// Returns whether there was one.
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
            moved.examined += 1;
            if let Some(entry) = self.places.get_mut(id) {
                entry.info.own.gate_flushed = Some(cx.now);
                let group = entry.info.own.group.as_mut();
                group.into_iter().for_each(|group| group.forget_answers());
            }
            moved.count(self.requeue(
                cx,
                id,
                MoveStrategy::AfterBackoff,
                label::UNSCHEDULABLE_TIMEOUT,
            ));
        }
        while let Some(id) = self.oldest_leftover(cx, QueuedIn::Unschedulable) {
            any = true;
            moved.examined += 1;
            if let Some(entry) = self.places.get_mut(id) {
                entry.info.was_flushed_from_unschedulable = true;
                let members = entry.info.own.group.iter_mut();
                for member in members.flat_map(|group| group.members.values_mut()) {
                    member.was_flushed_from_unschedulable = true;
                }
            }
            let to = self.requeue(
                cx,
                id,
                MoveStrategy::AfterBackoff,
                label::UNSCHEDULABLE_TIMEOUT,
            );
            debug_assert_ne!(to, QueuedIn::Unschedulable, "a flushed pod does not stay");
            moved.count(to);
        }
        if any {
            super::remember(
                self,
                &ClusterEvent::wildcard(label::UNSCHEDULABLE_TIMEOUT),
                Change {
                    old: None,
                    new: None,
                },
            );
        }
        moved
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

/// The pods that one registration examines for an event.
#[derive(Debug)]
enum Narrowing {
    /// Every pod that its plugin rejected.
    None,
    /// The pods that its PreQueueingHint named, by namespace and name.
    Named(Vec<(Str, Str)>),
    /// The pods that wait for what the event changes.
    Touched(Touched),
}

/// The examined part of the waiting pods.
fn asked_of<'a>(narrowings: &'a [Narrowing], waiting: &impl WaitingPods) -> Vec<AskedPods<'a>> {
    let asked = narrowings.iter().map(|narrowing| match narrowing {
        Narrowing::None => AskedPods::All,
        Narrowing::Named(pods) => AskedPods::Listed(waiting_among(waiting, pods)),
        Narrowing::Touched(touched) => AskedPods::Waiting(touched),
    });
    asked.collect()
}

/// The named pods that wait for an event, each once; names are sorted.
fn waiting_among(waiting: &impl WaitingPods, pods: &[(Str, Str)]) -> Vec<EntryId> {
    let mut ids: Vec<EntryId> = pods
        .iter()
        .filter_map(|(namespace, name)| waiting.named(namespace, name))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
