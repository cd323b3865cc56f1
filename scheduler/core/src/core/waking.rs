//! Moves pods into the queue, within it, and out of it.

use super::Core;
use berth_api::{Object, Pod, Str, Time};
use berth_framework::event::Change;
use berth_framework::{ActionType, ClusterEvent, EventResource};
use berth_queue::QueuedPodInfo;
use berth_telemetry::LogLine;
use std::sync::Arc;

/// A pod is not on its node any more.
pub(crate) const ASSIGNED_POD_DELETE: ClusterEvent =
    ClusterEvent::new(EventResource::AssignedPod, ActionType::DELETE);

impl Core {
    /// A step begins.
    pub(crate) fn begin_step(&mut self, now: Time) {
        self.clock.begin_step(now);
        let cluster = self.cache.cluster_mut();
        cluster.quotas_mut().set_time(now);
        cluster.rejections_mut().advance(now);
    }

    /// Wakes the pods that an event may help.
    pub(crate) fn move_all(
        &mut self,
        event: &ClusterEvent,
        old: Option<&Object>,
        new: Option<&Object>,
        pre_check: Option<&dyn Fn(&Pod) -> bool>,
    ) {
        let (queue, cx) = self.queue_with_context();
        queue.move_all(&cx, event, Change { old, new }, pre_check);
    }

    /// A placed pod has released its node: pods that wait for resources are retried (C-52).
    pub(crate) fn placement_freed(
        &mut self,
        pod: &Arc<Pod>,
        pre_check: Option<&dyn Fn(&Pod) -> bool>,
    ) {
        let old = Object::Pod(pod.clone());
        self.move_all(&ASSIGNED_POD_DELETE, Some(&old), None, pre_check);
    }

    /// Activates pods, regardless of the events that they wait for.
    pub(crate) fn activate(&mut self, pods: &[Arc<Pod>]) {
        let (queue, cx) = self.queue_with_context();
        queue.activate(&cx, pods);
    }

    /// Activates the pods that the plugins of an attempt requested, because that attempt has succeeded so far (F-23).
    pub(crate) fn activate_wanted(&mut self, attempt_of: &Str) {
        let wanted = self.requests.take_activations(attempt_of);
        if wanted.is_empty() {
            return;
        }
        let pods: Vec<Arc<Pod>> = wanted
            .iter()
            .filter_map(|(namespace, name)| self.cache.stored_by_name(namespace, name))
            .filter_map(|pod| self.cache.effective(pod.uid()).cloned())
            .collect();
        self.activate(&pods);
    }

    /// Runs the PreEnqueue plugins again for a waiting pod: they may reject it now, or for another reason.
    pub(crate) fn recheck(&mut self, uid: &str) {
        if let Some(pod) = self.cache.effective(uid).cloned() {
            let (queue, cx) = self.queue_with_context();
            queue.recheck(&cx, &pod);
        }
    }

    /// Adds a pod to the queue.
    pub(crate) fn enqueue(&mut self, pod: Arc<Pod>) {
        let (queue, cx) = self.queue_with_context();
        queue.add(&cx, pod);
    }

    /// Returns a pod to the queue after an attempt.
    pub(crate) fn give_back(&mut self, info: QueuedPodInfo) {
        let (queue, cx) = self.queue_with_context();
        if let Err(error) = queue.add_unschedulable(&cx, info) {
            let line = LogLine::error("Pod is not given back to the queue");
            self.outbound.log.push(line.with("err", error.to_string()));
        }
    }
}
