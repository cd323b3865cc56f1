//! The scheduling queue: the order of attempts, and the events that pods wait for.
//!
//! A pod that can be attempted is in the **active queue**, ordered by the QueueSort plugin. A failed pod waits for its
//! **backoff**, or in the **unschedulable pool** for an event that helps one of its rejecting plugins. A pod that a
//! PreEnqueue plugin rejects is **gated**: no event examines it except the events of that plugin. A popped pod is **in
//! flight** until it is returned or [`SchedulingQueue::done`] is called; events during the flight are logged, so no
//! wake-up is lost.
//!
//! **Architecture invariants:** no clock (time is an argument), no lock, no I/O, no randomness. A pod is in exactly one
//! place. The cost of an event depends on the pods that it can help: they are found through indexes by gating and
//! rejecting plugin, by the lists of PreQueueingHints, and by what they wait for, never by a walk of the queue. All
//! memory is bounded by the number of pods.
//!
//! Sources: KEP-3521 (gates), KEP-4247 (queueing hints), KEP-5142 (popping from the backoff queue), KEP-5501
//! (reports of PreEnqueue), KEP-6132 (PreQueueingHint). Tests name the rules.

mod backoff;
mod config;
mod counts;
mod entry;
mod events;
mod flushes;
mod gating;
mod group_attempts;
mod groups;
mod heap;
mod hints;
mod hooks;
mod inflight;
mod label;
mod lookup;
mod members;
mod metrics;
mod moves;
mod names;
mod nominator;
mod outputs;
mod place;
mod pod_events;
mod pool;
mod reconfigure;
mod report;
mod sort_order;
mod templates;
#[cfg(test)]
mod tests;
mod wait_index;
mod waiting;
mod walk;

pub use config::QueueConfig;
pub use counts::QueueCounts;
pub use entry::{FailuresInARow, PluginSet, PodTemplateKey, QueuedGroup, QueuedIn, QueuedPodInfo};
pub use events::Moved;
pub use group_attempts::GroupEnd;
pub use hooks::{EXTENDER, PluginEvents, ProfileHooks, default_registrations};
pub use inflight::InFlight;
pub use metrics::POD_POPPED;
pub use nominator::Nominator;
pub use place::QueuePlaces;
pub use pod_events::{PodEvents, pod_update_events};
pub use report::PreEnqueueReport;

use berth_api::{Kind, Object, Pod, Time};
use berth_framework::event::Change;
use berth_framework::features::Behaviour;
use berth_framework::plugin::{Context, Nominating};
use berth_framework::{ClusterEvent, Feature};
use berth_telemetry::metrics::Metrics;
use berth_telemetry::{Log, LogLine, Stopwatch};
use entry::{EntryId, Gate};
use flushes::Flushes;
use hints::{EventQuestion, MoveStrategy};
use hooks::Profiles;
use outputs::QueueOutputs;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use walk::Walk;

/// A returned pod is already queued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Pod {pod} is already present in {}", place_text(*.place))]
pub struct AlreadyQueued {
    /// `namespace/name`.
    pub pod: String,
    /// The place.
    pub place: QueuedIn,
}

fn place_text(place: QueuedIn) -> &'static str {
    match place {
        QueuedIn::Active => "the active queue",
        QueuedIn::Backoff | QueuedIn::ErrorBackoff => "the backoff queue",
        QueuedIn::Unschedulable | QueuedIn::Gated => "unschedulable queue",
    }
}

/// The pods that wait to be scheduled. See the [module](self).
pub struct SchedulingQueue {
    config: QueueConfig,
    places: QueuePlaces,
    in_flight: InFlight,
    nominator: Nominator,
    out: QueueOutputs,
    walk: Walk,
    /// The periodic flushes; `None` once the queue is closed.
    flushes: Option<Flushes>,
}

impl SchedulingQueue {
    /// An empty queue. Its periodic flushes start at `now`.
    pub fn new(config: QueueConfig, profiles: Vec<ProfileHooks>, now: Time) -> Self {
        let sort = profiles.first().map(|profile| profile.queue_sort.clone());
        let mut out = QueueOutputs::new(&config.features);
        let profiles = profiles_of(&config, profiles, &mut out.log);
        let places = QueuePlaces::new(&config, sort, profiles);
        Self {
            flushes: Some(Flushes::new(now, places.pops_from_backoff())),
            places,
            in_flight: InFlight::new(config.in_flight_events_max),
            nominator: Nominator::default(),
            out,
            walk: Walk::default(),
            config,
        }
    }

    /// The custom kinds with registrations of plugins: they are watched in addition to [`Kind::ALL`].
    pub fn custom_kinds(&self) -> BTreeSet<Kind> {
        self.places.profiles.custom_kinds()
    }

    /// Measures the duration of PreEnqueue and hints with a stopwatch, only for metrics.
    #[must_use]
    pub fn timed_by(mut self, stopwatch: Arc<dyn Stopwatch>) -> Self {
        self.out.stopwatch = stopwatch;
        self
    }

    /// Resets counters and histograms; gauges do not change (M-3).
    pub fn reset_metrics(&mut self) {
        self.out.metrics.reset();
    }

    /// A new pod without a node. A pod that is queued or in flight is treated as updated, or as recreated if its
    /// identity differs.
    ///
    /// `cx.cluster` must contain the pod; otherwise its nominated node is ignored.
    pub fn add(&mut self, cx: &Context<'_>, pod: Arc<Pod>) {
        if self.in_flight.contains(pod.uid()) {
            self.update(cx, &pod, &pod);
            return;
        }
        let event = label::of_pod(&self.config.features, true);
        if self.group_of(&pod).is_some() {
            self.add_member(cx, pod, event);
            return;
        }
        if let Some(id) = self.places.id_of(pod.namespace(), pod.name())
            && let Some(entry) = self.places.get(id)
        {
            let queued = entry.info.pod.clone();
            if queued.uid() == pod.uid() {
                self.update(cx, &queued, &pod);
                return;
            }
            self.delete(&queued);
        }
        self.enter(cx, pod, event);
    }

    /// A pod enters the queue. Since 1.37, the nominated node in its status takes effect before PreEnqueue.
    fn enter(&mut self, cx: &Context<'_>, pod: Arc<Pod>, event: &str) {
        let features = &self.config.features;
        if features.has(Behaviour::GatedPodsAreNominated) {
            self.nominator.add(cx.cluster, &pod, &Nominating::Keep);
        }
        let id = self.places.enter(QueuedPodInfo::new(pod, cx.now));
        self.move_to_active(cx, id, event, false);
    }

    /// A changed pod without a node, in any place. An unknown pod is added.
    ///
    /// Returns the events of the update.
    pub fn update(&mut self, cx: &Context<'_>, old: &Arc<Pod>, new: &Arc<Pod>) -> PodEvents {
        let events = pod_update_events(old, new, &self.config.features);
        let (before, after) = (Object::Pod(old.clone()), Object::Pod(new.clone()));
        let change = Change {
            old: Some(&before),
            new: Some(&after),
        };
        if self.in_flight.contains(new.uid()) {
            for event in &events {
                self.remember(event, change);
            }
            return events;
        }
        let added = label::of_pod(&self.config.features, false);
        if self.group_of(new).is_some() {
            if self.places.groups.place_of(new.uid()).is_some() {
                self.nominator.update(cx.cluster, old, new);
                self.update_member(cx, new, change, &events);
            } else {
                self.add_member(cx, new.clone(), added);
            }
        } else if let Some(id) = self.places.id_of(new.namespace(), new.name()) {
            self.replace(cx, id, new);
            // Also for a gated pod: an autoscaler can reserve resources for it.
            self.nominator.update(cx.cluster, old, new);
            self.reconsider_updated(cx, id, change, &events);
        } else {
            self.enter(cx, new.clone(), added);
        }
        events
    }

    /// Replaces a queued pod by its new version, or by another pod with its name.
    fn replace(&mut self, cx: &Context<'_>, id: EntryId, new: &Arc<Pod>) {
        let place = self.places.detach(id);
        let profile = self.places.profiles.by_name(&new.spec.scheduler_name);
        let Some((entry, place)) = self.places.get_mut(id).zip(place) else {
            return;
        };
        let uid = entry.info.pod.uid().clone();
        if uid != *new.uid() {
            self.out.reports.forget(&uid);
            entry.info.own.gate = entry.info.own.gate.take().map(Gate::of_another_pod);
        }
        let (before, after) = (&entry.info.pod.spec, &new.spec);
        if before.scheduler_name != after.scheduler_name {
            for (profile, change) in [(&before.scheduler_name, -1.0), (&after.scheduler_name, 1.0)]
            {
                for plugin in entry.info.rejectors() {
                    self.out.metrics.unschedulable(plugin, profile, change);
                }
            }
        }
        self.out.replace_pod(&mut entry.info, new, cx.now);
        let own = &mut entry.info.own;
        own.template.take_if(|template| !template.is_of(new));
        let is_alone = own.template.is_none();
        entry.profile = profile;
        self.places.attach(id, place);
        // A pod that does not read as before represents its former template no more.
        if is_alone {
            self.places.release(&uid);
        }
    }

    /// Q-62, step 4: an update can be the event that the pod waits for. Its events are evaluated for the pod one after
    /// the other until it can be popped.
    fn reconsider_updated(
        &mut self,
        cx: &Context<'_>,
        id: EntryId,
        change: Change<'_>,
        events: &[ClusterEvent],
    ) {
        let place = self.places.get(id).and_then(|entry| entry.place);
        let mut waits = place.is_some_and(QueuedIn::is_unschedulable_pool);
        if !waits {
            return;
        }
        for event in events {
            let Some(strategy) = self.strategy_for(cx, id, event, change) else {
                return;
            };
            // An earlier event moved the pod to backoff; only an event that makes it active changes its place again.
            if !waits && strategy != MoveStrategy::Immediately {
                continue;
            }
            let label = self.places.profiles.matched(event).label.clone();
            let place = self.requeue(cx, id, strategy, &label);
            if self.places.is_poppable(place) {
                return;
            }
            waits = place.is_unschedulable_pool();
        }
    }

    /// The pod was deleted, or has a node. A pod in flight is left to its cycle, and a pod with the same name
    /// and another identity stays.
    pub fn delete(&mut self, pod: &Pod) {
        self.nominator.remove(pod.uid());
        self.out.reports.forget(pod.uid());
        let Some(id) = self.places.id_of(pod.namespace(), pod.name()) else {
            return;
        };
        if self
            .places
            .get(id)
            .is_some_and(|entry| entry.info.pod.uid() == pod.uid())
            && let Some(info) = self.places.leave(id)
        {
            self.out.metrics.count_rejectors(&info, -1.0);
            self.places.release(pod.uid());
        }
    }

    /// The next pod to attempt, which is in flight from now on: the first pod of the active queue; if
    /// that is empty and SchedulerPopFromBackoffQ is on, the first pod in backoff after a rejection.
    ///
    /// Return it with [`Self::add_unschedulable`], or end its flight with [`Self::done`].
    pub fn pop(&mut self, now: Time) -> Option<QueuedPodInfo> {
        loop {
            let (id, place) = self.places.first_poppable()?;
            if place != QueuedIn::Active {
                self.arrived(id, QueuedIn::Active, label::POP_FROM_BACKOFF_Q);
            }
            if let Some(info) = self.take_off(id, now) {
                return Some(info);
            }
        }
    }

    /// Moves a pod from the queue to flight; `None` if the same pod is already in flight.
    fn take_off(&mut self, id: EntryId, now: Time) -> Option<QueuedPodInfo> {
        let mut info = self.places.leave(id)?;
        info.attempts = info.attempts.saturating_add(1);
        info.initial_attempt_timestamp.get_or_insert(now);
        self.out.metrics.count_rejectors(&info, -1.0);
        self.take_off_members(&mut info, now);
        if self.in_flight.contains(info.pod.uid()) {
            let line = LogLine::error(
                "Discarding the popped pod: the same pod is tracked in multiple places in the scheduler",
            );
            self.out.log.push(line.with("pod", &*info.pod));
            return None;
        }
        self.in_flight.start(&info.pod, &mut self.out.metrics);
        Some(info)
    }

    /// The flight of the pod has ended: it was bound, dropped or deleted. Does nothing for other pods.
    pub fn done(&mut self, uid: &str) {
        self.places.release(uid);
        self.in_flight.done(uid, &mut self.out.metrics);
    }

    /// Returns a popped pod that did not fit or failed, and ends its flight. `info` contains the latest
    /// version of the pod and the plugin sets of this attempt; two empty sets indicate an error. Returns the place of
    /// the pod.
    ///
    /// # Errors
    /// When the pod is queued already. Its flight ends anyway.
    pub fn add_unschedulable(
        &mut self,
        cx: &Context<'_>,
        mut info: QueuedPodInfo,
    ) -> Result<QueuedIn, AlreadyQueued> {
        let uid = info.pod.uid().clone();
        let is_member = self.group_of(&info.pod).is_some();
        let queued = if is_member {
            self.places.member(&uid).map(|(place, _)| place)
        } else {
            let id = self.places.id_of(info.pod.namespace(), info.pod.name());
            id.and_then(|id| self.places.get(id)?.place)
        };
        if let Some(place) = queued {
            self.done(&uid);
            return Err(AlreadyQueued {
                pod: info.pod.key(),
                place,
            });
        }
        info.was_flushed_from_unschedulable = false;
        if !std::mem::take(&mut info.own.is_rejected_as_before) {
            info.count_failure(cx.now);
        }
        self.out.metrics.count_rejectors(&info, 1.0);
        if is_member {
            return Ok(self.return_member(cx, info));
        }
        let strategy = self.strategy_after_flight(cx, &info);
        // The pod can have changed since its evaluation.
        let evaluated = info.own.template.take();
        info.own.template = evaluated.filter(|template| template.is_of(&info.pod));
        let template = info.own.template.clone();
        let id = self.places.enter(info);
        let place = self.requeue(cx, id, strategy, label::SCHEDULE_ATTEMPT_FAILURE);
        // If it is woken again, it still represents the others.
        let represents = self.places.represents_while_away(&uid, template.as_ref());
        if !(represents && place != QueuedIn::Gated) {
            self.places.release(&uid);
        }
        self.in_flight.done(&uid, &mut self.out.metrics);
        Ok(place)
    }

    /// The nominations.
    pub fn nominator(&self) -> &Nominator {
        &self.nominator
    }

    /// The nominations, to be changed.
    pub fn nominator_mut(&mut self) -> &mut Nominator {
        &mut self.nominator
    }

    /// The next pod for which the result of PreEnqueue can differ from its status (KEP-5501), with the time of the
    /// result. `None` if SchedulerPreEnqueuePodStatus is off.
    pub fn take_pre_enqueue_report(&mut self) -> Option<(PreEnqueueReport, Time)> {
        self.out.reports.take_next()
    }

    /// The log of the queue.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.out.log
    }

    /// The metrics of the queue.
    pub fn metrics(&self) -> &Metrics {
        self.out.metrics.all()
    }

    /// The scheduler stops: all flights and the periodic flushes end. Remaining pods can still be popped.
    pub fn close(&mut self) {
        self.flushes = None;
        for pod in self.in_flight.pods() {
            self.places.release(pod.uid());
        }
        self.in_flight.done_all(&mut self.out.metrics);
    }

    /// Logs an event for the pods in flight.
    fn remember(&mut self, event: &ClusterEvent, change: Change<'_>) {
        if self.in_flight.is_empty() {
            return;
        }
        let profiles = &mut self.places.profiles;
        let matched = profiles.matched(event);
        let anything = || profiles.matched(&ClusterEvent::wildcard(label::EVENT_LOG_OVERFLOW));
        let QueueOutputs { metrics, log, .. } = &mut self.out;
        self.in_flight
            .remember(&matched, change, anything, metrics, log);
    }

    /// The effect of an event on the pod of an entry. Narrowing does not apply.
    fn strategy_for(
        &mut self,
        cx: &Context<'_>,
        id: EntryId,
        event: &ClusterEvent,
        change: Change<'_>,
    ) -> Option<MoveStrategy> {
        let matched = self.places.profiles.matched(event);
        let entry = self.places.get(id)?;
        let profile = self.places.profiles.known(entry.profile);
        let question = EventQuestion::about(cx, &matched, change, profile);
        Some(question.put_once(&entry.info, &mut self.out))
    }

    /// An event during the flight can be the event that the pod waits for. Narrowing does not apply, because the
    /// hint could not name the pod in flight.
    fn strategy_after_flight(&mut self, cx: &Context<'_>, info: &QueuedPodInfo) -> MoveStrategy {
        if !info.has_rejectors() {
            return MoveStrategy::AfterBackoff;
        }
        let Some(events) = self.in_flight.events_for(info.pod.uid()) else {
            let line = LogLine::error(
                "in flight Pod isn't found in the scheduling queue. If you see this error log, it's likely a bug in the scheduler",
            );
            self.out.log.push(line.with("pod", &*info.pod));
            return MoveStrategy::AfterBackoff;
        };
        let profiles = &self.places.profiles;
        let profile = profiles.known(profiles.by_name(&info.pod.spec.scheduler_name));
        // The strongest result of all events applies, because the pod moves once.
        let mut strategy = MoveStrategy::Skip;
        for event in events {
            let question = EventQuestion::about(cx, &event.matched, event.change(), profile);
            match question.put_once(info, &mut self.out) {
                MoveStrategy::Skip => {}
                MoveStrategy::AfterBackoff if !info.pending_plugins.is_empty() => {
                    strategy = MoveStrategy::AfterBackoff;
                }
                decided => return decided,
            }
        }
        strategy
    }
}

/// The profiles as the queue keeps them. Registrations that match no event are logged.
fn profiles_of(config: &QueueConfig, hooks: Vec<ProfileHooks>, log: &mut Log) -> Profiles {
    let profiles = Profiles::new(
        hooks,
        !config.features.has(Behaviour::NodeAddDoesNotImplyTaints),
        config.features.enabled(Feature::SchedulerPreQueueingHints),
    );
    for (plugin, error) in profiles.incorrect() {
        let line = LogLine::error("Incorrect event registration, which matches no event");
        log.push(line.with("plugin", &plugin).with("err", error));
    }
    profiles
}

impl fmt::Debug for SchedulingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulingQueue")
            .field("counts", &self.places.counts())
            .field("in_flight", &self.in_flight.len())
            .finish_non_exhaustive()
    }
}
