//! The rejections of kubelets in the core: they are read from pods that leave their nodes, and the end of an exclusion
//! wakes pods.
//!
//! The records are part of the cluster ([`Rejections`](berth_framework::cluster::Rejections)). They receive the time at
//! the beginning of each step.

use crate::cache::Cache;
use crate::core::{Explanations, Framework};
use berth_api::{Node, Pod};
use berth_framework::ClusterEvent;
use berth_framework::PodInfo;
use berth_framework::cluster::{rejection_label, rejection_of};
use berth_framework::event::Change;
use berth_queue::SchedulingQueue;
use berth_telemetry::metrics::Metric;
use std::sync::Arc;

/// A pod has ended or was deleted. `last` is its last state. A kubelet has rejected it, or it leaves room on its node.
pub(crate) fn pod_gone(
    framework: &mut Framework,
    explanations: &mut Explanations,
    stored: &Pod,
    last: &Arc<Pod>,
) {
    let Some(reason) = rejection_of(last) else {
        if !last.is_terminating() {
            let now = framework.clock.now();
            explanations.run_times.ended(stored, now);
        }
        if stored.is_assigned() {
            let rejections = framework.cache.cluster_mut().rejections_mut();
            rejections.node_changed(&stored.spec.node_name);
        }
        return;
    };
    let now = framework.clock.now();
    let cluster = framework.cache.cluster_mut();
    let info = PodInfo::counting(last.clone(), cluster.footprint);
    let node = &last.spec.node_name;
    if cluster.rejections_mut().remember(&info, node, reason, now) {
        let label = rejection_label(reason);
        framework
            .metrics
            .add(Metric::RejectedByKubelet, &[label], 1.0);
    }
}

/// A node has changed: its records are deleted if its resources differ or if it is a new node of that name.
pub(crate) fn node_changed(cache: &mut Cache, old: &Node, new: &Node) {
    if old.status.allocatable != new.status.allocatable || old.metadata.uid != new.metadata.uid {
        cache
            .cluster_mut()
            .rejections_mut()
            .node_changed(new.name());
    }
}

/// Wakes pods if the exclusion of a node has ended. Returns whether one has.
pub(crate) fn follow_rejections(framework: &mut Framework, queue: &mut SchedulingQueue) -> bool {
    let is_free = framework.cache.cluster_mut().rejections_mut().take_freed();
    if is_free {
        let (cx, event) = (framework.context(), ClusterEvent::REJECTIONS_OVER);
        queue.move_all(
            &cx,
            &event,
            Change {
                old: None,
                new: None,
            },
            None,
        );
    }
    is_free
}
