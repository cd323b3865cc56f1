//! The effect that preemption would have for a pod, for comparisons with another scheduler.

use crate::examine::examine_nodes;
use crate::snapshot::Snapshot;
use berth_api::{Pod, Str};
use berth_framework::PodInfo;
use berth_framework::plugin::Nominating;
use std::sync::Arc;

/// The effect on a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preempted {
    /// It fits without preemption.
    Fits,
    /// Preemption makes room on a node.
    Evicts {
        /// The node.
        node: String,
        /// The victims as `namespace/name`, sorted.
        victims: Vec<String>,
    },
    /// Preemption does not help.
    Not,
}

impl Snapshot {
    /// Restores the cluster before these pods were evicted or deleted: each pod is on its former node.
    pub fn restore(&mut self, pods: &[Arc<Pod>]) {
        for pod in pods {
            let node = &pod.spec.node_name;
            // A deleted pod is on no node.
            let _ = self.cluster.nodes.remove_pod(node, pod.uid());
            let footprint = self.cluster.footprint;
            let info = Arc::new(PodInfo::counting(pod.clone(), footprint));
            self.cluster.nodes.add_pod(node, info);
            self.cluster.set_pod(pod.uid().clone(), pod.clone());
        }
    }

    /// The effect that preemption would have for a pod: on this node, or on the node that the scheduler chooses. `None`
    /// if no profile is responsible for the pod.
    pub fn preempts(&mut self, pod: &Arc<Pod>, on: Option<&str>) -> Option<Preempted> {
        let profile = self.profiles.get(&pod.spec.scheduler_name)?.clone();
        let mut pending = Pod::clone(pod);
        pending.spec.node_name = Str::default();
        // A nominated node would be tried alone, and a pod that waits for victims does not preempt again.
        pending.status.nominated_node_name = Str::default();
        let pod = Arc::new(PodInfo::new(Arc::new(pending)));
        let nodes = match on {
            Some(node) => match self.cluster.nodes.slot(node) {
                Some(slot) => Some(vec![slot]),
                None => return Some(Preempted::Not),
            },
            None => None,
        };
        let examination = examine_nodes(self, &profile, &pod, nodes.as_deref());
        if !examination.feasible.is_empty() {
            return Some(Preempted::Fits);
        }
        if examination.pre_filter.is_some() {
            return Some(Preempted::Not);
        }
        let answers = self.post_filter(&profile, &pod, &examination.statuses());
        let evicts = answers.into_iter().find_map(|(result, preemptions)| {
            let Nominating::Set(node) = result.nominating else {
                return None;
            };
            let victims = preemptions.iter().flat_map(|p| &p.victims);
            let mut victims: Vec<String> = victims.map(|v| v.event.regarding.to_string()).collect();
            victims.sort_unstable();
            (!node.is_empty()).then(|| Preempted::Evicts {
                node: node.to_string(),
                victims,
            })
        });
        Some(evicts.unwrap_or(Preempted::Not))
    }
}
