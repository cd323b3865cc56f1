//! Nominations: the node that a pod may use before it is placed on it.
//!
//! The [queue](berth_queue::Nominator) keeps them, and the evaluator counts nominated pods on their node. A nomination
//! begins and ends with the decision about it; a status that shows this later changes nothing. A nomination is cleared
//! in one place, [`end`].

use crate::core::{Framework, is_responsible, placement_freed};
use berth_api::{Pod, Str};
use berth_framework::plugin::Nominating;
use berth_queue::{Nominator, SchedulingQueue};
use std::sync::Arc;

/// Removes the nomination of a pod and returns the node. No other pod is notified.
pub(crate) fn set_aside(nominator: &mut Nominator, uid: &str) -> Option<Str> {
    let node = nominator.node_of(uid).cloned();
    nominator.remove(uid);
    node
}

/// The reason why a nomination ends.
pub(crate) enum End<'a> {
    /// The pod was placed on this node and counts there from now on.
    Placed(&'a Str),
    /// The pod's status does not name the node any more after our calls.
    Written,
    /// Another client has changed the pod's status, or deleted the pod. The queue has received the change.
    Seen,
}

/// Clears the nomination of `nominee`: the resources are available to pods of the same or a lower priority now.
pub(crate) fn end(
    framework: &Framework,
    queue: &mut SchedulingQueue,
    nominee: &Arc<Pod>,
    why: &End<'_>,
) {
    let uid = nominee.uid();
    if let End::Placed(node) = why {
        let nominated_to = queue.nominator().node_of(uid);
        let is_used = nominated_to.is_none_or(|nominated| nominated == *node);
        queue.nominator_mut().remove(uid);
        if is_used {
            return;
        }
    }
    let is_seen = matches!(why, End::Seen);
    let (uid, priority) = (uid.clone(), nominee.priority());
    let affected = move |pod: &Pod| pod.priority() <= priority && (is_seen || *pod.uid() != uid);
    placement_freed(framework, queue, nominee, Some(&affected));
}

/// Clears the nomination of a pod to a node that may be missing in its status: after a failed binding, the pod is
/// nominated before its status is written. Plugins recognise a nominated pod by its status.
pub(crate) fn end_at(
    framework: &Framework,
    queue: &mut SchedulingQueue,
    pod: &Arc<Pod>,
    node: &Str,
    why: &End<'_>,
) {
    if pod.status.nominated_node_name == *node {
        return end(framework, queue, pod, why);
    }
    let mut nominee = Pod::clone(pod);
    nominee.status.nominated_node_name = node.clone();
    end(framework, queue, &Arc::new(nominee), why);
}

/// A call of ours has changed the status of a pod: its nomination follows the status. A pod without a profile is not
/// nominated.
pub(crate) fn follow_write(
    framework: &Framework,
    queue: &mut SchedulingQueue,
    before: &Arc<Pod>,
    after: &Arc<Pod>,
) {
    let (old, new) = (
        &before.status.nominated_node_name,
        &after.status.nominated_node_name,
    );
    if old == new || !is_responsible(framework, queue, after) {
        return;
    }
    let nominating = Nominating::Set(new.clone());
    queue
        .nominator_mut()
        .add(framework.cache.cluster(), after, &nominating);
    if !old.is_empty() {
        end(framework, queue, before, &End::Written);
    }
}
