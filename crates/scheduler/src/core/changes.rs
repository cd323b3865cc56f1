//! Taking in what has changed in the cluster.

use super::Scheduler;
use crate::cache::{PodChange, node_update_events};
use crate::metrics::Metric;
use crate::queue::pod_update_events;
use berth_api::{Kind, Node, Object, Pod, Str, Time};
use berth_framework::call::ObjectName;
use berth_framework::event::Change;
use berth_framework::plugin::Context;
use berth_framework::{ActionType, ClusterEvent, EventResource};
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// A change of the cluster, as a watch tells it.
#[derive(Debug, Clone, PartialEq)]
pub enum ClusterChange {
    /// An object is new or changed.
    Applied(Object),
    /// An object is gone; this is how it looked last, as far as the watch knows.
    Deleted(Object),
    /// All objects of a kind that there are now: the first list, or one after a gap.
    Replaced(Kind, Vec<Object>),
}

const ASSIGNED_POD_ADD: ClusterEvent =
    ClusterEvent::new(EventResource::AssignedPod, ActionType::ADD);
const ASSIGNED_POD_DELETE: ClusterEvent =
    ClusterEvent::new(EventResource::AssignedPod, ActionType::DELETE);
const ASSIGNED_POD_UPDATE: ClusterEvent =
    ClusterEvent::new(EventResource::AssignedPod, ActionType::UPDATE);
const UNSCHEDULABLE_POD_ADD: ClusterEvent =
    ClusterEvent::new(EventResource::UnschedulablePod, ActionType::ADD);
const UNSCHEDULABLE_POD_UPDATE: ClusterEvent =
    ClusterEvent::new(EventResource::UnschedulablePod, ActionType::UPDATE);
const UNSCHEDULABLE_POD_DELETE: ClusterEvent =
    ClusterEvent::new(EventResource::UnschedulablePod, ActionType::DELETE);
const NODE_ADD: ClusterEvent = ClusterEvent::new(EventResource::Node, ActionType::ADD);
const NODE_DELETE: ClusterEvent = ClusterEvent::new(EventResource::Node, ActionType::DELETE);

/// Whether the pod was told to go to make room.
fn is_victim(pod: &Pod) -> bool {
    pod.is_terminating() && pod.condition("DisruptionTarget").is_some()
}

impl Scheduler {
    pub(super) fn take_in(&mut self, change: ClusterChange, now: Time) {
        let awaited = match &change {
            ClusterChange::Applied(object) | ClusterChange::Deleted(object)
                if self.waits.any_for_objects() =>
            {
                Some(ObjectName::of(object))
            }
            _ => None,
        };
        match change {
            ClusterChange::Applied(Object::Pod(pod)) => self.pod_applied(pod, now),
            ClusterChange::Applied(Object::Node(node)) => self.node_applied(node, now),
            ClusterChange::Applied(object) => self.object_applied(object, now),
            // Only the pod that is meant: its name may have passed on to another one.
            ClusterChange::Deleted(Object::Pod(pod)) => self.pod_deleted(&pod, now),
            ClusterChange::Deleted(object) => {
                let metadata = object.metadata();
                self.deleted(object.kind(), &metadata.namespace, &metadata.name, now);
            }
            ClusterChange::Replaced(kind, objects) => self.replaced(kind, objects, now),
        }
        if let Some(object) = awaited {
            self.object_changed(&object, now);
        }
    }

    fn deleted(&mut self, kind: Kind, namespace: &Str, name: &Str, now: Time) {
        match kind {
            Kind::Pod => {
                if let Some(pod) = self.cache.stored_by_name(namespace, name).cloned() {
                    self.pod_deleted(&pod, now);
                }
            }
            Kind::Node => self.node_deleted(name, now),
            kind => self.object_deleted(kind, namespace, name, now),
        }
    }

    /// What is not listed any more is gone; the rest is new, changed or as it was.
    fn replaced(&mut self, kind: Kind, objects: Vec<Object>, now: Time) {
        let listed: FxHashSet<(&Str, &Str)> = objects
            .iter()
            .map(|object| {
                let metadata = object.metadata();
                (&metadata.namespace, &metadata.name)
            })
            .collect();
        for (namespace, name) in self.cache.names(kind) {
            if !listed.contains(&(&namespace, &name)) {
                self.deleted(kind, &namespace, &name, now);
                self.object_changed(&ObjectName::new(kind, &namespace, &name), now);
            }
        }
        for object in objects {
            if object.kind() == kind {
                self.take_in(ClusterChange::Applied(object), now);
            }
        }
    }

    // --- pods ----------------------------------------------------------------------------------------------

    /// Whether one of the profiles schedules the pod.
    pub(super) fn is_responsible(&self, pod: &Pod) -> bool {
        self.profiles.get(&pod.spec.scheduler_name).is_some()
    }

    fn pod_applied(&mut self, pod: Arc<Pod>, now: Time) {
        let before = self
            .cache
            .stored_by_name(pod.namespace(), pod.name())
            .cloned();
        let old = match before {
            // Another pod of the same name: the one before is gone, and its deletion was not told.
            Some(old) if old.uid() != pod.uid() => {
                self.pod_deleted(&old, now);
                None
            }
            other => other,
        };
        if pod.is_terminal() {
            // It holds nothing any more: the same as gone.
            if old.is_some() {
                self.pod_deleted(&pod, now);
            }
            return;
        }
        match old {
            None => self.pod_added(pod, now),
            Some(old) if old.metadata.resource_version == pod.metadata.resource_version => {}
            Some(old) => self.pod_updated(&old, pod, now),
        }
    }

    fn pod_added(&mut self, pod: Arc<Pod>, now: Time) {
        let began = self.stopwatch.nanos();
        self.cache_pod(&pod, now);
        if pod.is_assigned() {
            if self.is_responsible(&pod) {
                self.put_right(&pod, now);
            }
            self.move_all(&ASSIGNED_POD_ADD, None, Some(Object::Pod(pod)), None, now);
            self.handled(&ASSIGNED_POD_ADD, began);
        } else if self.is_responsible(&pod) {
            let cx = Context {
                now,
                cluster: self.cache.cluster(),
                features: &self.features,
            };
            self.queue.add(&cx, pod);
            self.handled(&UNSCHEDULABLE_POD_ADD, began);
        }
    }

    fn pod_updated(&mut self, old: &Arc<Pod>, new: Arc<Pod>, now: Time) {
        let began = self.stopwatch.nanos();
        let responsible = self.is_responsible(old);
        let was_assumed = self.cache.is_assumed(new.uid());
        let change = self.cache_pod(&new, now);
        let updating = self.nanos_since(began);
        let preemptors = match new.is_terminating() {
            true => self.seen_going(new.uid()),
            false => Vec::new(),
        };
        if responsible && new.is_assigned() {
            self.put_right(&new, now);
        }
        if old.is_assigned() {
            let mut is_plain = false;
            for event in pod_update_events(old, &new, &self.features) {
                let (before, after) = (Object::Pod(old.clone()), Object::Pod(new.clone()));
                is_plain |= event == ASSIGNED_POD_UPDATE;
                self.move_timed(&event, (before, after), updating, now);
            }
            if !is_plain {
                self.handled(&ASSIGNED_POD_UPDATE, began);
            }
        } else if new.is_assigned() {
            // Bound. If the pod is ours, it has left the queue for good.
            if responsible {
                let leaving = self.stopwatch.nanos();
                self.queue.delete(old);
                self.explanations.forget(new.uid());
                self.handled(&UNSCHEDULABLE_POD_DELETE, leaving);
            }
            let bound = Some(Object::Pod(new.clone()));
            self.move_all(&ASSIGNED_POD_ADD, None, bound, None, now);
            self.handled(&ASSIGNED_POD_ADD, began);
            if was_assumed && let Some(assumed) = change.old {
                self.assumed_pod_moved(&assumed, &new, now);
            }
        } else if responsible {
            let events = if was_assumed {
                if new.is_terminating() && !old.is_terminating() {
                    self.assumed_pod_deleted(&new, now);
                } else {
                    self.assumed_pod_updated(old, &new, now);
                    if let Some(assumed) = change.old {
                        self.assumed_pod_moved(&assumed, &change.new, now);
                    }
                }
                pod_update_events(old, &new, &self.features)
            } else {
                let before = change.old.unwrap_or_else(|| old.clone());
                let cx = Context {
                    now,
                    cluster: self.cache.cluster(),
                    features: &self.features,
                };
                let events = self.queue.update(&cx, &before, &change.new);
                self.nomination_changed(old, &new, now);
                events
            };
            for event in events
                .iter()
                .filter(|event| **event != UNSCHEDULABLE_POD_UPDATE)
            {
                self.handled(event, began);
            }
            self.handled(&UNSCHEDULABLE_POD_UPDATE, began);
        }
        for (preemptor, plugin) in preemptors {
            self.let_in(&preemptor, &plugin, now);
        }
    }

    /// Takes in how the API shows the pod, with what our calls make of it.
    fn cache_pod(&mut self, pod: &Arc<Pod>, now: Time) -> PodChange {
        self.io.dispatcher.sync(pod, now);
        let writes = self.io.dispatcher.writes(pod.uid());
        self.cache.set_pod(pod.clone(), writes)
    }

    fn pod_deleted(&mut self, last: &Arc<Pod>, now: Time) {
        let began = self.stopwatch.nanos();
        let Some(pod) = self.cache.stored(last.uid()).cloned() else {
            return;
        };
        let uid = pod.uid();
        let assumed = self.cache.is_assumed(uid);
        let known = self.cache.remove_pod(uid);
        let preemptors = self.seen_going(uid);
        self.io.dispatcher.forget(uid, now);
        self.postponed.forget(uid);
        self.io.owed.settle(uid);
        self.explanations.forget(uid);
        if pod.is_assigned() {
            self.move_all(
                &ASSIGNED_POD_DELETE,
                Some(Object::Pod(pod)),
                None,
                None,
                now,
            );
            if let Some(victim) = known.filter(|pod| is_victim(pod)) {
                self.wake_nominees(&victim, now);
            }
            self.handled(&ASSIGNED_POD_DELETE, began);
        } else if self.is_responsible(&pod) {
            self.queue.delete(&pod);
            if assumed {
                self.assumed_pod_deleted(&pod, now);
            } else if let Some(nominee) =
                known.filter(|known| !known.status.nominated_node_name.is_empty())
            {
                // Promised room counts from the promise on, not only when the API shows it.
                self.nomination_freed(&nominee, now);
            }
            self.handled(&UNSCHEDULABLE_POD_DELETE, began);
        }
        for (preemptor, plugin) in preemptors {
            self.let_in(&preemptor, &plugin, now);
        }
    }

    /// A pod that was placed and is not bound yet is gone or about to go: one that is held back is rejected,
    /// another one is forgotten at once, and its binding will fail by itself.
    fn assumed_pod_deleted(&mut self, pod: &Arc<Pod>, now: Time) {
        let uid = pod.uid();
        let binding = self
            .binding_of
            .get(uid)
            .and_then(|id| self.bindings.get(id));
        let assumed = match binding {
            Some(binding) if self.io.permits.reject(uid, "", "removed") => {
                Some(binding.pod().pod.clone())
            }
            // In a parked cycle: that one notices by itself.
            None if self.parked.as_ref().is_some_and(|p| p.is_about(uid)) => None,
            // Perhaps it is bound, and nobody was told of that before it went.
            _ => {
                let node = self.cache.assumed_on(uid).cloned();
                node.and_then(|node| self.cache.forget(uid, &node).ok().flatten())
            }
        };
        if let Some(assumed) = assumed {
            let assumed = Some(Object::Pod(assumed));
            self.move_all(&ASSIGNED_POD_DELETE, assumed, None, None, now);
        }
    }

    /// A pod that was placed has changed. Should Permit still turn it down, that may be what it needs.
    fn assumed_pod_updated(&mut self, old: &Arc<Pod>, new: &Arc<Pod>, now: Time) {
        if self.queue.is_in_flight(new.uid()) {
            let cx = Context {
                now,
                cluster: self.cache.cluster(),
                features: &self.features,
            };
            self.queue.update(&cx, old, new);
        }
    }

    /// A pod that counts on a node is not what it was there: others may be helped by that. kube-scheduler misses this
    /// until the pod is seen bound, and then sees only a new pod.
    fn assumed_pod_moved(&mut self, assumed: &Arc<Pod>, now_there: &Arc<Pod>, now: Time) {
        let before = || Some(Object::Pod(assumed.clone()));
        if assumed.spec.node_name != now_there.spec.node_name {
            self.move_all(&ASSIGNED_POD_DELETE, before(), None, None, now);
            return;
        }
        for event in pod_update_events(assumed, now_there, &self.features) {
            // Nobody is helped by a status.
            if event.action != ActionType::UPDATE {
                let after = Some(Object::Pod(now_there.clone()));
                self.move_all(&event, before(), after, None, now);
            }
        }
    }

    /// The node of a nomination is free again, or free for others.
    fn nomination_changed(&mut self, old: &Arc<Pod>, new: &Arc<Pod>, now: Time) {
        let (before, after) = (
            &old.status.nominated_node_name,
            &new.status.nominated_node_name,
        );
        if !before.is_empty() && before != after {
            self.nomination_freed(old, now);
        }
    }

    /// Pods of no higher priority had to respect the nomination.
    fn nomination_freed(&mut self, nominee: &Arc<Pod>, now: Time) {
        let priority = nominee.priority();
        let affected = move |pod: &Pod| pod.priority() <= priority;
        let old = Some(Object::Pod(nominee.clone()));
        self.move_all(&ASSIGNED_POD_DELETE, old, None, Some(&affected), now);
    }

    // --- nodes ---------------------------------------------------------------------------------------------

    fn node_applied(&mut self, node: Arc<Node>, now: Time) {
        let began = self.stopwatch.nanos();
        let old = self.cache.node(node.name()).cloned();
        match old {
            None => {
                self.cache.set_node(node.clone());
                self.move_all(&NODE_ADD, None, Some(Object::Node(node)), None, now);
                self.handled(&NODE_ADD, began);
            }
            Some(old)
                if old.metadata.resource_version == node.metadata.resource_version
                    && old.metadata.uid == node.metadata.uid => {}
            Some(old) => {
                let events = node_update_events(&old, &node, &self.features);
                self.cache.set_node(node.clone());
                let updating = self.nanos_since(began);
                for event in events {
                    let change = (Object::Node(old.clone()), Object::Node(node.clone()));
                    self.move_timed(&event, change, updating, now);
                }
            }
        }
    }

    fn node_deleted(&mut self, name: &str, now: Time) {
        let began = self.stopwatch.nanos();
        let Some(node) = self.cache.node(name).cloned() else {
            return;
        };
        // Before the node is gone from the cache, so that hints still see it.
        self.move_all(&NODE_DELETE, Some(Object::Node(node)), None, None, now);
        self.cache.remove_node(name);
        self.handled(&NODE_DELETE, began);
    }

    // --- everything else -----------------------------------------------------------------------------------

    fn object_applied(&mut self, object: Object, now: Time) {
        let began = self.stopwatch.nanos();
        let kind = object.kind();
        let old = self.cache.set_object(object.clone());
        self.io.dispatcher.sync_object(&object, now);
        let action = match &old {
            None => ActionType::ADD,
            Some(old) => {
                let (before, after) = (old.metadata(), object.metadata());
                if before.resource_version == after.resource_version && before.uid == after.uid {
                    return;
                }
                if before.uid != after.uid {
                    self.io.dispatcher.forget_object(kind, &before.uid, now);
                }
                ActionType::UPDATE
            }
        };
        let event = ClusterEvent::new(EventResource::of_kind(kind), action);
        self.move_all(&event, old, Some(object), None, now);
        self.handled(&event, began);
    }

    fn object_deleted(&mut self, kind: Kind, namespace: &Str, name: &Str, now: Time) {
        let began = self.stopwatch.nanos();
        let Some(object) = self.cache.remove_object(kind, namespace, name) else {
            return;
        };
        let uid = &object.metadata().uid;
        self.io.dispatcher.forget_object(kind, uid, now);
        let event = ClusterEvent::new(EventResource::of_kind(kind), ActionType::DELETE);
        self.move_all(&event, Some(object), None, None, now);
        self.handled(&event, began);
    }

    // --- common --------------------------------------------------------------------------------------------

    /// Wakes the pods that an event may help.
    pub(crate) fn move_all(
        &mut self,
        event: &ClusterEvent,
        old: Option<Object>,
        new: Option<Object>,
        pre_check: Option<&dyn Fn(&Pod) -> bool>,
        now: Time,
    ) {
        let cx = Context {
            now,
            cluster: self.cache.cluster(),
            features: &self.features,
        };
        let change = Change {
            old: old.as_ref(),
            new: new.as_ref(),
        };
        self.queue.move_all(&cx, event, change, pre_check);
    }

    /// A placed pod does not need its node any more: whoever waits for room may try again (C-52).
    pub(crate) fn placement_freed(
        &mut self,
        pod: &Arc<Pod>,
        pre_check: Option<&dyn Fn(&Pod) -> bool>,
        now: Time,
    ) {
        let old = Some(Object::Pod(pod.clone()));
        self.move_all(&ASSIGNED_POD_DELETE, old, None, pre_check, now);
    }

    /// Wakes the pods that one of several events of a change may help; its time is that of the change itself, which
    /// took `updating` nanoseconds, and its own.
    fn move_timed(
        &mut self,
        event: &ClusterEvent,
        (old, new): (Object, Object),
        updating: u64,
        now: Time,
    ) {
        let began = self.stopwatch.nanos();
        self.move_all(event, Some(old), Some(new), None, now);
        let nanos = updating.saturating_add(self.nanos_since(began));
        self.observe_handling(event, nanos);
    }

    fn nanos_since(&self, began: u64) -> u64 {
        self.stopwatch.nanos().saturating_sub(began)
    }

    fn handled(&mut self, event: &ClusterEvent, began: u64) {
        self.observe_handling(event, self.nanos_since(began));
    }

    fn observe_handling(&mut self, event: &ClusterEvent, nanos: u64) {
        event.write_label(&mut self.event_label);
        let labels = [self.event_label.as_str()];
        self.metrics
            .observe(Metric::EventHandlingDuration, &labels, nanos as f64 / 1e9);
    }
}
