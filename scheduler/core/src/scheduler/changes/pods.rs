//! Pods that are new, changed or deleted.

use super::Intake;
use crate::core::{ASSIGNED_POD_DELETE, is_responsible, placement_freed};
use crate::nominations;
use crate::pod_status::correct_status;
use crate::preemptions::{admit, is_victim, seen_terminating, wake_nominees};
use crate::rejections::pod_gone;
use berth_api::{Object, Pod, Str};
use berth_framework::call::PodRef;
use berth_framework::{ActionType, ClusterEvent, EventResource};
use berth_queue::pod_update_events;
use std::sync::Arc;

const ASSIGNED_POD_ADD: ClusterEvent =
    ClusterEvent::new(EventResource::AssignedPod, ActionType::ADD);
const ASSIGNED_POD_UPDATE: ClusterEvent =
    ClusterEvent::new(EventResource::AssignedPod, ActionType::UPDATE);

impl Intake<'_> {
    pub(super) fn pod_applied(&mut self, pod: Arc<Pod>) {
        let cache = &self.core.framework.cache;
        let before = cache.stored_by_name(pod.namespace(), pod.name()).cloned();
        let old = match before {
            // Another pod of the same name: the previous one was deleted, and the watch did not report it.
            Some(old) if old.uid() != pod.uid() => {
                self.pod_deleted(&old);
                None
            }
            // It can be read again: its node has places again, as after the deletion of the pod in its place.
            Some(old) if old.status.is_unreadable && !pod.status.is_unreadable => {
                self.pod_deleted(&old);
                None
            }
            other => other,
        };
        if pod.is_terminal() {
            // It needs no resources any more, as if it were deleted.
            if old.is_some() {
                self.pod_deleted(&pod);
            }
            return;
        }
        match old {
            None => self.pod_added(pod),
            Some(old) if old.metadata.resource_version == pod.metadata.resource_version => {}
            Some(old) => self.pod_updated(&old, &pod),
        }
    }

    fn pod_added(&mut self, pod: Arc<Pod>) {
        let began = self.stage_began();
        self.pod_seen(
            3,
            "Add event for scheduled pod",
            "Add event for unscheduled pod",
            &pod,
        );
        self.core.store_pod(&pod);
        let is_ours = self.core.framework.settings.has_profile(&pod);
        if pod.is_assigned() {
            if is_ours {
                correct_status(&mut self.core.calls, &pod, self.core.framework.clock.now());
            }
            if self.core.framework.settings.makes_room_for_resize(&pod) {
                self.core.enqueue(pod.clone());
            }
            let new = Object::Pod(pod);
            self.core
                .move_all(&ASSIGNED_POD_ADD, None, Some(&new), None);
            self.handled(&ASSIGNED_POD_ADD, began);
        } else if is_ours {
            self.core.enqueue(pod);
            self.handled_unassigned(ActionType::ADD, began);
        }
    }

    fn pod_updated(&mut self, old: &Arc<Pod>, new: &Arc<Pod>) {
        let began = self.stage_began();
        self.pod_update_seen(old, new);
        let is_ours = self.is_responsible(old);
        if is_ours && !old.spec.scheduling_gates.is_empty() {
            let now = self.core.framework.clock.now();
            self.core.explanations.gates.note(old, new, now);
        }
        let was_assumed = self.core.framework.cache.is_assumed(new.uid());
        let change = self.core.store_pod(new);
        let preemptors = if new.is_terminating() {
            seen_terminating(
                &mut self.core.preemptions,
                &mut self.core.framework.cache,
                new.uid(),
            )
        } else {
            Vec::new()
        };
        if is_ours && new.is_assigned() {
            correct_status(&mut self.core.calls, new, self.core.framework.clock.now());
        }
        let updating = self.nanos().saturating_sub(began);
        if old.is_assigned() {
            self.resize_seen(old, new);
            let mut is_plain = false;
            let (before, after) = (Object::Pod(old.clone()), Object::Pod(new.clone()));
            for event in pod_update_events(old, new, &self.core.framework.settings.features) {
                is_plain |= event == ASSIGNED_POD_UPDATE;
                self.move_timed(&event, &before, &after, updating);
            }
            if !is_plain {
                self.handled(&ASSIGNED_POD_UPDATE, began);
            }
        } else if new.is_assigned() {
            // Bound: it has left the queue permanently.
            if is_ours {
                let leaving = self.stage_began();
                // Bound by another client, or by a call of an earlier process: the resources of its nomination are
                // free.
                let nominated_to = self.core.queue.nominator().node_of(new.uid()).cloned();
                if let Some(nominated_to) = nominated_to {
                    let placed = nominations::End::Placed(&new.spec.node_name);
                    self.nomination_ended(old, &nominated_to, &placed);
                }
                let (queue, cx) = self.core.queue_with_context();
                queue.remove(&cx, old);
                self.core.explanations.forget(new.uid());
                self.handled_unassigned(ActionType::DELETE, leaving);
            }
            let bound = Object::Pod(new.clone());
            self.core
                .move_all(&ASSIGNED_POD_ADD, None, Some(&bound), None);
            self.handled(&ASSIGNED_POD_ADD, began);
            if was_assumed && let Some(assumed) = change.old {
                self.assumed_pod_moved(&assumed, new);
            }
        } else if is_ours {
            let is_undone = was_assumed && !self.core.framework.cache.is_assumed(new.uid());
            let events = if is_undone {
                self.binding_undone(new, change.old);
                pod_update_events(old, new, &self.core.framework.settings.features)
            } else if was_assumed {
                if new.is_terminating() && !old.is_terminating() {
                    self.assumed_pod_deleted(new);
                } else {
                    self.assumed_pod_updated(old, new);
                    if let Some(assumed) = change.old {
                        self.assumed_pod_moved(&assumed, &change.new);
                    }
                }
                pod_update_events(old, new, &self.core.framework.settings.features)
            } else if !self.core.framework.settings.has_profile(new)
                && !self.core.queue.in_flight().contains(new.uid())
            {
                // Its profile was removed and its last attempt is about to end, so it is not queued again.
                pod_update_events(old, new, &self.core.framework.settings.features)
            } else {
                let before = change.old.unwrap_or_else(|| old.clone());
                // After a failed binding, the status may not show the node yet that is kept for a member of a group.
                let kept = self.core.queue.nominator().node_of(new.uid()).cloned();
                let (queue, cx) = self.core.queue_with_context();
                let events = queue.update(&cx, &before, &change.new);
                let nominated_to = &old.status.nominated_node_name;
                let now = self.core.queue.nominator().node_of(new.uid());
                let kept = kept.filter(|node| now != Some(node));
                if !nominated_to.is_empty() && *nominated_to != new.status.nominated_node_name {
                    self.nomination_ended(old, nominated_to, &nominations::End::Seen);
                } else if let Some(node) = kept {
                    self.nomination_ended(old, &node, &nominations::End::Seen);
                }
                events
            };
            let others = events.iter().filter(|e| e.action != ActionType::UPDATE);
            for event in others {
                self.handled(event, began);
            }
            self.handled_unassigned(ActionType::UPDATE, began);
        }
        for (preemptor, plugin) in preemptors {
            self.admit(&preemptor, &plugin);
        }
    }

    /// A pod with a node has changed. It is in the queue as long as it waits for a resize.
    fn resize_seen(&mut self, old: &Arc<Pod>, new: &Arc<Pod>) {
        let waits = |pod: &Pod| self.core.framework.settings.makes_room_for_resize(pod);
        match (waits(old), waits(new)) {
            (false, false) => {}
            (_, true) => {
                let (queue, cx) = self.core.queue_with_context();
                queue.update(&cx, old, new);
            }
            (true, false) => {
                self.core.queue.delete(new);
                self.core.explanations.forget(new.uid());
            }
        }
    }

    /// A change of a pod without a node was handled.
    fn handled_unassigned(&mut self, action: ActionType, began: u64) {
        let resource = EventResource::of_unassigned(&self.core.framework.settings.features, false);
        self.handled(&ClusterEvent::new(resource, action), began);
    }

    pub(super) fn pod_deleted(&mut self, last: &Arc<Pod>) {
        let began = self.stage_began();
        let Some(pod) = self.core.framework.cache.stored(last.uid()).cloned() else {
            return;
        };
        self.pod_seen(
            3,
            "Delete event for scheduled pod",
            "Delete event for unscheduled pod",
            &pod,
        );
        let uid = pod.uid();
        let was_assumed = self.core.framework.cache.is_assumed(uid);
        let effective = self.core.remove_pod(uid);
        let core = &mut *self.core;
        pod_gone(&mut core.framework, &mut core.explanations, &pod, last);
        let preemptors = seen_terminating(
            &mut self.core.preemptions,
            &mut self.core.framework.cache,
            uid,
        );
        if pod.is_assigned() {
            if self.core.framework.settings.makes_room_for_resize(&pod) {
                self.core.queue.delete(&pod);
            }
            let old = Object::Pod(pod);
            self.core
                .move_all(&ASSIGNED_POD_DELETE, Some(&old), None, None);
            if let Some(victim) = effective.filter(|pod| is_victim(pod)) {
                wake_nominees(&self.core.framework, &mut self.core.queue, &victim);
            }
            self.handled(&ASSIGNED_POD_DELETE, began);
        } else if was_assumed || self.is_responsible(&pod) {
            // A member of a group is nominated after a failed binding, before its status has the nomination.
            let room = self.core.queue.nominator().node_of(uid).cloned();
            let (queue, cx) = self.core.queue_with_context();
            queue.remove(&cx, &pod);
            let nominee = effective.and_then(|pod| {
                let stated = &pod.status.nominated_node_name;
                let node = Some(stated)
                    .filter(|node| !node.is_empty())
                    .or(room.as_ref());
                node.cloned().map(|node| (pod, node))
            });
            if was_assumed {
                self.assumed_pod_deleted(&pod);
            } else if let Some((nominee, node)) = nominee {
                self.nomination_ended(&nominee, &node, &nominations::End::Seen);
            }
            self.handled_unassigned(ActionType::DELETE, began);
        }
        for (preemptor, plugin) in preemptors {
            self.admit(&preemptor, &plugin);
        }
    }

    /// Logs an update of a pod. A bound pod is logged as deleted from the unscheduled pods and added to the scheduled
    /// ones.
    fn pod_update_seen(&mut self, old: &Pod, new: &Pod) {
        if !old.is_assigned() && new.is_assigned() {
            self.pod_seen(3, "", "Delete event for unscheduled pod", old);
            self.pod_seen(3, "Add event for scheduled pod", "", new);
        } else {
            self.pod_seen(
                4,
                "Update event for scheduled pod",
                "Update event for unscheduled pod",
                old,
            );
        }
    }

    /// Logs a change of a pod: the first text if it has a node, the second if it waits for Berth.
    #[track_caller]
    fn pod_seen(&mut self, level: u8, scheduled: &'static str, waiting: &'static str, pod: &Pod) {
        let what = match pod.is_assigned() {
            true => scheduled,
            false if self.is_responsible(pod) => waiting,
            false => return,
        };
        self.core
            .framework
            .outbound
            .log
            .v(level, what, |line| line.with("pod", pod));
    }

    fn nomination_ended(&mut self, pod: &Arc<Pod>, node: &Str, why: &nominations::End<'_>) {
        nominations::end_at(&self.core.framework, &mut self.core.queue, pod, node, why);
    }

    fn is_responsible(&self, pod: &Pod) -> bool {
        is_responsible(&self.core.framework, &self.core.queue, pod)
    }

    fn admit(&mut self, preemptor: &PodRef, plugin: &Str) {
        admit(
            &mut self.core.framework,
            &mut self.core.queue,
            preemptor,
            plugin,
        );
    }

    /// A placed pod has released its node.
    fn placement_freed(&mut self, pod: &Arc<Pod>) {
        placement_freed(&self.core.framework, &mut self.core.queue, pod, None);
    }

    // --- pods that were placed and are not shown as bound yet ----------------------------------------------

    /// The pod is deleted or terminating. A pod held by Permit plugins is rejected. Any other pod is forgotten
    /// at once, and its binding will fail.
    fn assumed_pod_deleted(&mut self, pod: &Arc<Pod>) {
        let uid = pod.uid();
        let core = &mut *self.core;
        let assumed = match self
            .bindings
            .reject_deleted(&mut core.framework.unbound, uid)
        {
            Some(held) => Some(held),
            // A parked cycle detects this by itself.
            None if self.cycle.is_about(uid) => None,
            // It may have been bound, with an answer that was not received.
            None => {
                let node = core.framework.cache.assumed_on(uid).cloned();
                node.and_then(|node| core.framework.cache.forget(uid, &node).ok().flatten())
            }
        };
        if let Some(assumed) = assumed {
            self.placement_freed(&assumed);
        }
    }

    /// The API had answered that the pod is bound, and shows a later version without a node, for example after a
    /// restore of its storage: the pod is tried again, and its resources are free.
    fn binding_undone(&mut self, pod: &Arc<Pod>, assumed: Option<Arc<Pod>>) {
        let is_held = self.core.framework.unbound.contains(pod.uid());
        if let Some(assumed) = assumed {
            self.placement_freed(&assumed);
        }
        if !is_held && !pod.is_terminating() && self.core.framework.settings.has_profile(pod) {
            self.core.enqueue(pod.clone());
        }
    }

    /// The pod has changed. If Permit rejects it later, this change may be a reason to retry it.
    fn assumed_pod_updated(&mut self, old: &Arc<Pod>, new: &Arc<Pod>) {
        if self.core.queue.in_flight().contains(new.uid()) {
            let (queue, cx) = self.core.queue_with_context();
            queue.update(&cx, old, new);
        }
    }

    /// The pod counts on another node, or with other resources or labels: this may help other pods. kube-scheduler
    /// misses this until it sees the pod bound, and then sees only a new pod.
    fn assumed_pod_moved(&mut self, assumed: &Arc<Pod>, stored: &Arc<Pod>) {
        if assumed.spec.node_name != stored.spec.node_name {
            self.placement_freed(assumed);
            return;
        }
        let events = pod_update_events(assumed, stored, &self.core.framework.settings.features);
        let (before, after) = (Object::Pod(assumed.clone()), Object::Pod(stored.clone()));
        // A changed status helps no other pod.
        for event in events.iter().filter(|e| e.action != ActionType::UPDATE) {
            self.core.move_all(event, Some(&before), Some(&after), None);
        }
    }
}
