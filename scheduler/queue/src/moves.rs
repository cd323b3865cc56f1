//! The moves of a single pod: past PreEnqueue into the active queue, into backoff, or back to waiting.

use super::entry::{EntryId, QueuedIn, QueuedPodInfo};
use super::hints::MoveStrategy;
use super::outputs::AskedAs;
use super::{SchedulingQueue, label};
use berth_api::{Object, Pod};
use berth_framework::event::Change;
use berth_framework::plugin::{Context, Nominating};
use berth_framework::{ClusterEvent, Feature};
use std::sync::Arc;

impl SchedulingQueue {
    /// Moves a pod according to a hint and returns its place.
    pub(super) fn requeue(
        &mut self,
        cx: &Context<'_>,
        id: EntryId,
        strategy: MoveStrategy,
        event: &str,
    ) -> QueuedIn {
        let Some(entry) = self.places.get(id) else {
            debug_assert!(false, "only a queued pod is moved");
            return QueuedIn::Unschedulable;
        };
        match strategy {
            // A returned pod has no place yet. A waiting pod stays, and is not counted again.
            MoveStrategy::Skip => {
                let place = if entry.info.is_gated() {
                    QueuedIn::Gated
                } else {
                    QueuedIn::Unschedulable
                };
                if entry.place != Some(place) {
                    self.places.detach(id);
                    self.places.attach(id, place);
                    self.arrived(id, place, event);
                }
                place
            }
            MoveStrategy::AfterBackoff
                if self.places.backoff().is_backing_off(&entry.info, cx.now) =>
            {
                self.move_to_backoff(cx, id, event)
            }
            MoveStrategy::AfterBackoff | MoveStrategy::Immediately => {
                self.move_to_active(cx, id, event, false)
            }
        }
    }

    /// Moves a pod to the active queue unless a PreEnqueue plugin rejects it. With
    /// SchedulerPopFromBackoffQ, the plugins ran when the pod entered backoff. The first time, the nominated node in
    /// the pod's status takes effect; updates take effect in every place.
    pub(super) fn move_to_active(
        &mut self,
        cx: &Context<'_>,
        id: EntryId,
        event: &str,
        from_backoff: bool,
    ) -> QueuedIn {
        let before = self.places.detach(id);
        let is_checked = from_backoff && self.places.pops_from_backoff();
        if !is_checked && !self.is_admitted(cx, id) {
            return self.attach_gated(id, before, event);
        }
        self.enter_active(cx, id, event)
    }

    /// Puts a detached pod that PreEnqueue plugins admit into the active queue.
    pub(super) fn enter_active(&mut self, cx: &Context<'_>, id: EntryId, event: &str) -> QueuedIn {
        let Some(entry) = self.places.get_mut(id) else {
            return QueuedIn::Active;
        };
        if entry.info.initial_attempt_timestamp.is_none() {
            entry.info.for_each_pod(|info| {
                info.initial_attempt_timestamp.get_or_insert(cx.now);
            });
            self.nominator
                .add(cx.cluster, &entry.info.pod, &Nominating::Keep);
        }
        self.places.attach(id, QueuedIn::Active);
        self.arrived(id, QueuedIn::Active, event);
        QueuedIn::Active
    }

    /// Moves a pod to backoff.
    fn move_to_backoff(&mut self, cx: &Context<'_>, id: EntryId, event: &str) -> QueuedIn {
        let before = self.places.detach(id);
        // For a gated pod that was attempted before: its report ends when it passes, not when its backoff ends.
        let was_gated = self.places.get(id).is_some_and(|e| e.info.is_gated());
        let is_checked = was_gated || self.places.pops_from_backoff();
        if is_checked && !self.is_admitted(cx, id) {
            return self.attach_gated(id, before, event);
        }
        let entry = self.places.get(id);
        let place = entry.map_or(QueuedIn::Backoff, |entry| entry.info.backoff_place());
        self.places.attach(id, place);
        self.arrived(id, place, event);
        place
    }

    /// Records that an event moved a pod to this place.
    pub(super) fn arrived(&mut self, id: EntryId, place: QueuedIn, event: &str) {
        let pods = self.places.get(id).map_or(1, |entry| entry.info.pods_len());
        self.out.metrics.pods_arrived(place, event, pods);
        if self.config.features.enabled(Feature::GenericWorkload) {
            let entry = self.places.get(id);
            let group = entry.and_then(|entry| entry.info.own.group.as_ref());
            let word = group.map_or("pod", |group| group.key().kind.as_str());
            self.out.metrics.entity_arrived(place, event, word);
        }
        let level = match event {
            label::SCHEDULE_ATTEMPT_FAILURE => 3,
            _ => 5,
        };
        if self.out.log.is_on(level)
            && let Some(entry) = self.places.get(id)
        {
            self.out
                .log
                .v(level, "Pod moved to an internal scheduling queue", |line| {
                    let line = line.with("pod", &*entry.info.pod).with("event", event);
                    line.with("queue", place.queue_name())
                });
        }
    }

    /// Runs the PreEnqueue plugins for a detached entry. Returns whether they admit it.
    pub(super) fn is_admitted(&mut self, cx: &Context<'_>, id: EntryId) -> bool {
        let Some((info, profile)) = self.places.with_profile(id) else {
            return true;
        };
        if info.own.group.is_some() {
            self.ask_about_group(cx, id, true);
        } else {
            let asked = AskedAs::Pod(info.own.gate.as_ref());
            let gate = self.out.rejection(cx, profile, &info.pod, asked);
            self.out.set_gate(info, gate, cx.now);
        }
        let entry = self.places.get(id);
        entry.is_none_or(|entry| !entry.info.is_gated())
    }

    /// Runs the PreEnqueue plugins again for a waiting pod in any place. A rejected pod becomes gated; a gated pod that
    /// passes becomes active; any other pod keeps its place.
    pub fn recheck(&mut self, cx: &Context<'_>, pod: &Pod) {
        let Some(id) = self.places.entry_of(pod.namespace(), pod.name()) else {
            return;
        };
        match self.places.get(id).and_then(|entry| entry.place) {
            None => {}
            Some(QueuedIn::Gated) => {
                let strategy = MoveStrategy::AfterBackoff;
                self.requeue(cx, id, strategy, label::ADMISSION_WITHDRAWN);
                // If another member still gates the group, this member was not evaluated yet.
                self.ask_about_member(cx, pod.uid());
            }
            Some(place) => {
                self.places.detach(id);
                if self.is_admitted(cx, id) {
                    self.places.attach(id, place);
                } else {
                    self.attach_gated(id, Some(place), label::ADMISSION_WITHDRAWN);
                }
            }
        }
    }

    /// Activates pods in any place, unless a PreEnqueue plugin rejects them; for a pod in flight, an event is logged
    /// . Returns the number of activated pods.
    pub fn activate<'p>(
        &mut self,
        cx: &Context<'_>,
        pods: impl IntoIterator<Item = &'p Arc<Pod>>,
    ) -> usize {
        let mut activated = 0;
        for pod in pods {
            if self.activate_one(cx, pod) {
                activated += 1;
            } else if self.in_flight.contains(pod.uid()) {
                let target = Object::Pod(pod.clone());
                let new = Some(&target);
                let event = ClusterEvent::wildcard(label::FORCE_ACTIVATE);
                self.remember(&event, Change { old: None, new });
            }
        }
        activated
    }

    fn activate_one(&mut self, cx: &Context<'_>, pod: &Pod) -> bool {
        let Some(id) = self.places.entry_of(pod.namespace(), pod.name()) else {
            return false;
        };
        let Some(place) = self.places.get(id).and_then(|entry| entry.place) else {
            return false;
        };
        place != QueuedIn::Active
            && self.move_to_active(cx, id, label::FORCE_ACTIVATE, place.is_backoff())
                == QueuedIn::Active
    }

    /// Pops one pod by name, in backoff or not; `None` if it is not queued or a PreEnqueue plugin rejects it.
    pub fn pop_specific(&mut self, cx: &Context<'_>, pod: &Pod) -> Option<QueuedPodInfo> {
        let id = self.places.id_of(pod.namespace(), pod.name())?;
        self.activate_one(cx, pod);
        if self.places.get(id)?.place != Some(QueuedIn::Active) {
            return None;
        }
        self.take_off(id, cx.now)
    }

    /// Attaches a detached pod as gated. A pod that already waited for events is not counted again.
    pub(super) fn attach_gated(
        &mut self,
        id: EntryId,
        before: Option<QueuedIn>,
        event: &str,
    ) -> QueuedIn {
        if let Some(entry) = self.places.get_mut(id) {
            entry.info.own.template = None;
            let uid = entry.info.pod.uid().clone();
            self.places.release(&uid);
        }
        self.places.attach(id, QueuedIn::Gated);
        if !before.is_some_and(QueuedIn::is_unschedulable_pool) {
            self.arrived(id, QueuedIn::Gated, event);
        }
        QueuedIn::Gated
    }
}
