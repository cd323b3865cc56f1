//! What a cluster event and the passing of time do to the pods that wait.

use super::backoff::ORDERING_WINDOW;
use super::entry::{Entry, EntryId, QueuedIn};
use super::hints::{Asked, NarrowingResult, Question, Strategy, Tally};
use super::hooks::{Matched, ProfileId, Registration};
use super::notice::Notice;
use super::wait_index::Drawer;
use super::{LEFTOVER_FLUSH_PERIOD, SchedulingQueue, label};
use berth_api::{Duration, Pod, Str, Time};
use berth_framework::event::{Change, Narrowed};
use berth_framework::plugin::Context;
use berth_framework::{ClusterEvent, Feature};

/// What an event did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// How many pods were looked at.
    pub examined: usize,
    /// How many hints were asked.
    pub hints: u64,
    /// How many pods became active.
    pub active: usize,
    /// How many pods wait for their backoff now.
    pub backoff: usize,
    /// How many pods a PreEnqueue plugin keeps out.
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
    /// Something changed in the cluster: moves the waiting pods that it may help, and remembers it for
    /// the pods in flight. With `pre_check`, only pods that pass it are considered.
    pub fn move_all(
        &mut self,
        cx: &Context<'_>,
        event: &ClusterEvent,
        change: Change<'_>,
        pre_check: Option<&dyn Fn(&Pod) -> bool>,
    ) -> Moved {
        let matched = self.profiles.matched(event);
        let mut moved = Moved::default();
        if !matched.is_interesting() {
            return moved;
        }
        let mut to_move = std::mem::take(&mut self.to_move);
        self.walks += 1;
        let mut tally = Tally::new(self.stopwatch.clone());
        let profiles = self.profiles.ids().map(Some).chain([None]);
        for profile in profiles {
            let narrowed = match profile {
                Some(profile) => self.narrow(cx, &matched, profile, change),
                None => Vec::new(),
            };
            let heard = profile.map_or(&[][..], |profile| matched.of(profile));
            let gates = matched.plugins.iter().map(|plugin| Some(plugin.as_str()));
            for gate in std::iter::once(None).chain(gates) {
                self.ask(
                    &Question {
                        cluster: cx.cluster,
                        matched: &matched,
                        change,
                        profile: None,
                        heard,
                        narrowed: &narrowed,
                    },
                    (profile, gate),
                    pre_check,
                    (&mut to_move, &mut tally, &mut moved),
                );
            }
        }
        moved.hints = tally.total();
        tally.record(&matched.label, &mut self.metrics);
        for (id, strategy) in to_move.drain(..) {
            moved.count(self.requeue(cx, id, strategy, &matched.label));
        }
        self.to_move = to_move;
        self.log(event, change);
        moved
    }

    /// Puts a question to the pods of one profile behind one gate (or behind none), and notes whom it helps.
    fn ask(
        &mut self,
        question: &Question<'_>,
        (profile, gate): (Option<ProfileId>, Option<&str>),
        pre_check: Option<&dyn Fn(&Pod) -> bool>,
        (to_move, tally, moved): (&mut Vec<(EntryId, Strategy)>, &mut Tally, &mut Moved),
    ) {
        if !self.pool.has(gate, profile) {
            return;
        }
        let question = Question {
            profile: self.profiles.get(profile),
            ..*question
        };
        let (entries, notices, visited, walk) = (
            &self.entries,
            &mut self.notices,
            &mut self.visited,
            self.walks,
        );
        let mut put_to = |id: EntryId| {
            if visited.len() <= id.index() {
                visited.resize(id.index() + 1, 0);
            }
            if std::mem::replace(&mut visited[id.index()], walk) == walk {
                return;
            }
            let Some(entry) = entries.get(id) else {
                debug_assert!(false, "the index names queued pods only");
                return;
            };
            if pre_check.is_some_and(|passes| !passes(&entry.info.pod)) {
                return;
            }
            moved.examined += 1;
            let strategy = question.put_to(&entry.info, Some(id), tally, notices);
            if strategy != Strategy::Skip {
                to_move.push((id, strategy));
            }
        };
        let Some(known) = question.profile.filter(|_| !question.matched.is_wildcard) else {
            self.pool.all(gate, profile).for_each(put_to);
            return;
        };
        for (asked, heard) in question.narrowed.iter().zip(question.heard) {
            let Some((registration, profile_id)) = known.registrations.get(*heard).zip(profile)
            else {
                continue;
            };
            let plugin = &registration.plugin;
            let is_meant = |id: &EntryId| waits_for(entries.get(*id), gate, profile_id, plugin);
            match asked {
                Asked::All => {
                    let all = self.pool.rejected_by(gate, profile, plugin);
                    all.for_each(&mut put_to);
                }
                Asked::Listed(listed) => {
                    let listed = listed.iter().copied();
                    listed.filter(is_meant).for_each(&mut put_to);
                }
                Asked::Waiting(touched) => {
                    let pod = touched.pod();
                    let pod =
                        pod.and_then(|(namespace, name)| self.names.find(namespace, name, entries));
                    pod.into_iter().filter(is_meant).for_each(&mut put_to);
                    let drawer = Drawer {
                        profile: profile_id,
                        gate,
                        registration: *heard,
                    };
                    self.pool.by_wait.find(drawer, touched, |id| {
                        if is_meant(&id) {
                            put_to(id);
                        }
                    });
                }
            }
        }
        self.pool.rejected_by(gate, profile, "").for_each(put_to);
    }

    /// Whom each registration of a profile that hears of the event asks: those that its PreQueueingHint names (Q-91
    /// to Q-94), or else those that wait for what the event touches. A plugin that has turned down no waiting pod is
    /// not asked.
    fn narrow(
        &mut self,
        cx: &Context<'_>,
        matched: &Matched,
        profile: ProfileId,
        change: Change<'_>,
    ) -> Vec<Asked> {
        let enabled = self
            .config
            .features
            .enabled(Feature::SchedulerPreQueueingHints)
            && !matched.is_wildcard;
        let Some(known) = self.profiles.get(Some(profile)) else {
            return Vec::new();
        };
        let mut narrowed = Vec::with_capacity(matched.of(profile).len());
        for registration in matched.of(profile) {
            let registration = known
                .registrations
                .get(*registration)
                .filter(|registration| {
                    enabled && self.pool.has_rejected_by(profile, &registration.plugin)
                });
            let Some(Registration { plugin, on }) = registration else {
                narrowed.push(Asked::All);
                continue;
            };
            let named = on.pre_queueing_hint.as_ref().and_then(|narrow| {
                let (result, named) = match narrow(cx.cluster, change) {
                    Ok(Narrowed::Pods(pods)) => {
                        self.notices.detail(|| Notice::Narrowed {
                            plugin: plugin.clone(),
                            event: matched.label.clone(),
                            pods: pods.len(),
                        });
                        (NarrowingResult::Narrowed, Some(pods))
                    }
                    Ok(Narrowed::AllPods) => (NarrowingResult::AllPods, None),
                    Err(error) => {
                        self.notices.push(|| Notice::PreQueueingHintError {
                            plugin: plugin.clone(),
                            event: matched.label.clone(),
                            error,
                        });
                        (NarrowingResult::AllPods, None)
                    }
                };
                self.metrics.narrowing(plugin, result);
                named
            });
            narrowed.push(match (named, &on.index) {
                (Some(pods), _) => Asked::Listed(self.waiting_among(&pods)),
                (None, Some(index)) => match (index.touched)(cx.cluster, change) {
                    touched if touched.is_everything() => Asked::All,
                    touched => Asked::Waiting(touched),
                },
                (None, None) => Asked::All,
            });
        }
        narrowed
    }

    /// The pods among those named, sorted, that wait for an event; each once.
    fn waiting_among(&self, pods: &[(Str, Str)]) -> Vec<EntryId> {
        let mut ids: Vec<EntryId> = pods
            .iter()
            .filter_map(|(namespace, name)| self.id_of(namespace, name))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Makes every pod active whose backoff is over. Returns how many became active.
    pub fn flush_backoff(&mut self, cx: &Context<'_>) -> usize {
        let mut activated = 0;
        for place in [QueuedIn::Backoff, QueuedIn::ErrorBackoff] {
            while let Some(first) = self.heap(place).first().copied()
                && !self.backoff.is_running(first.key.at, cx.now)
            {
                let to = self.move_to_active(cx, first.id, label::BACKOFF_COMPLETE, true);
                activated += usize::from(to == QueuedIn::Active);
            }
        }
        activated
    }

    /// Brings back the pods that have waited too long for an event, in case one was missed. Gated pods stay.
    pub fn flush_leftover(&mut self, cx: &Context<'_>) -> Moved {
        let mut moved = Moved::default();
        let is_old = |queue: &Self, place| {
            queue
                .heap(place)
                .first()
                .map(|item| (item.id, item.key.at))
                .filter(|(_, since)| {
                    cx.now.since(*since) > queue.config.pod_max_in_unschedulable_pods_duration
                })
        };
        let mut any = is_old(self, QueuedIn::Gated).is_some();
        while let Some((id, _)) = is_old(self, QueuedIn::Unschedulable) {
            any = true;
            moved.examined += 1;
            if let Some(entry) = self.entries.get_mut(id) {
                entry.info.was_flushed_from_unschedulable = true;
            }
            let to = self.requeue(cx, id, Strategy::AfterBackoff, label::UNSCHEDULABLE_TIMEOUT);
            debug_assert_ne!(to, QueuedIn::Unschedulable, "a flushed pod does not stay");
            moved.count(to);
        }
        if any {
            self.log(
                &ClusterEvent::wildcard(label::UNSCHEDULABLE_TIMEOUT),
                Change {
                    old: None,
                    new: None,
                },
            );
        }
        moved
    }

    /// Runs the periodic flushes that are due: that of the backoff queue every second, that of long-unschedulable pods
    /// every 30 seconds; none once the queue is closed. Returns whether a pod became poppable.
    pub fn run_due(&mut self, cx: &Context<'_>) -> bool {
        let mut any = false;
        if self.closed {
            return any;
        }
        if cx.now >= self.next_backoff_flush {
            any |= self.flush_backoff(cx) > 0;
            self.next_backoff_flush = tick_from(
                self.next_backoff_flush,
                ORDERING_WINDOW,
                cx.now + Duration::from_nanos(1),
            );
        }
        if cx.now >= self.next_leftover_flush {
            let moved = self.flush_leftover(cx);
            any |= moved.active > 0 || (moved.backoff > 0 && self.pops_from_backoff());
            self.next_leftover_flush = tick_from(
                self.next_leftover_flush,
                LEFTOVER_FLUSH_PERIOD,
                cx.now + Duration::from_nanos(1),
            );
        }
        any
    }

    /// When [`Self::run_due`] will next have something to move; `None` when time alone changes nothing. Never before
    /// `now`.
    pub fn next_wake(&self, now: Time) -> Option<Time> {
        if self.closed {
            return None;
        }
        let backoff = [QueuedIn::Backoff, QueuedIn::ErrorBackoff]
            .into_iter()
            .filter_map(|place| self.heap(place).first())
            .map(|item| {
                let over_at = self.backoff.over_at(item.key.at);
                tick_from(self.next_backoff_flush, ORDERING_WINDOW, over_at)
            });
        let leftover = self
            .heap(QueuedIn::Unschedulable)
            .first()
            .into_iter()
            .map(|item| {
                let limit = self.config.pod_max_in_unschedulable_pods_duration;
                let old_at = item.key.at + limit + Duration::from_nanos(1);
                tick_from(self.next_leftover_flush, LEFTOVER_FLUSH_PERIOD, old_at)
            });
        Some(backoff.chain(leftover).min()?.max(now))
    }
}

/// Whether a pod waits behind `gate` (or behind none), turned down by `plugin`.
fn waits_for(entry: Option<&Entry>, gate: Option<&str>, profile: ProfileId, plugin: &str) -> bool {
    entry.is_some_and(|entry| {
        entry.place.is_some_and(QueuedIn::is_unschedulable_pool)
            && entry.profile == Some(profile)
            && entry.info.gating_plugin().map(Str::as_str) == gate
            && entry.info.is_rejected_by(plugin)
    })
}

/// The first of the ticks `next`, `next + period`, … that is not before `time`.
fn tick_from(next: Time, period: Duration, time: Time) -> Time {
    let late = time.since(next);
    let periods = late.as_nanos().div_ceil(period.as_nanos().max(1));
    next + period.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX))
}
