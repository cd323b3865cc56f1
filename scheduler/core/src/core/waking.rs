//! Moves pods into the queue, within it, and out of it, according to the current cluster.

use super::{Core, Framework};
use berth_api::{Object, Pod, Str};
use berth_framework::event::Change;
use berth_framework::plugin::Context;
use berth_framework::{ActionType, ClusterEvent, EventResource};
use berth_queue::{QueuedPodInfo, SchedulingQueue};
use berth_telemetry::LogLine;
use std::sync::Arc;

/// A pod is not on its node any more.
pub(crate) const ASSIGNED_POD_DELETE: ClusterEvent =
    ClusterEvent::new(EventResource::AssignedPod, ActionType::DELETE);

impl Core {
    /// The queue, with the context for its plugins.
    pub(crate) fn queue_with_context(&mut self) -> (&mut SchedulingQueue, Context<'_>) {
        (&mut self.queue, self.framework.context())
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

    /// Adds a pod to the queue.
    pub(crate) fn enqueue(&mut self, pod: Arc<Pod>) {
        let (queue, cx) = self.queue_with_context();
        queue.add(&cx, pod);
    }
}

/// Returns whether a profile schedules the pod, or an attempt with a profile of an earlier configuration is under way or
/// has made a binding that the watch has not shown.
pub(crate) fn is_responsible(framework: &Framework, queue: &SchedulingQueue, pod: &Pod) -> bool {
    let uid = pod.uid();
    framework.settings.has_profile(pod)
        || queue.in_flight().contains(uid)
        || framework.unbound.contains(uid)
        || framework.cache.is_assumed(uid)
}

/// A placed pod has released its node: pods that wait for resources are retried (C-52).
pub(crate) fn placement_freed(
    framework: &Framework,
    queue: &mut SchedulingQueue,
    pod: &Arc<Pod>,
    pre_check: Option<&dyn Fn(&Pod) -> bool>,
) {
    let old = Object::Pod(pod.clone());
    let change = Change {
        old: Some(&old),
        new: None,
    };
    queue.move_all(
        &framework.context(),
        &ASSIGNED_POD_DELETE,
        change,
        pre_check,
    );
}

/// Activates the pods that the plugins of an attempt requested, because that attempt has succeeded so far (F-23).
pub(crate) fn activate_wanted(
    framework: &mut Framework,
    queue: &mut SchedulingQueue,
    attempt_of: &Str,
) {
    let wanted = framework.requests.take_activations(attempt_of);
    if wanted.is_empty() {
        return;
    }
    let cache = &framework.cache;
    let pods: Vec<Arc<Pod>> = wanted
        .iter()
        .filter_map(|(namespace, name)| cache.stored_by_name(namespace, name))
        .filter_map(|pod| cache.effective(pod.uid()).cloned())
        .collect();
    queue.activate(&framework.context(), &pods);
}

/// Runs the PreEnqueue plugins again for a waiting pod: they may reject it now, or for another reason.
pub(crate) fn recheck(framework: &Framework, queue: &mut SchedulingQueue, uid: &str) {
    if let Some(pod) = framework.cache.effective(uid) {
        queue.recheck(&framework.context(), pod);
    }
}

/// Returns a pod to the queue after an attempt.
pub(crate) fn give_back(
    framework: &mut Framework,
    queue: &mut SchedulingQueue,
    info: QueuedPodInfo,
) {
    if let Err(error) = queue.add_unschedulable(&framework.context(), info) {
        let line = LogLine::error("Pod is not given back to the queue");
        let line = line.with("err", error.to_string());
        framework.outbound.log.push(line);
    }
}
