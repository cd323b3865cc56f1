//! Pods that are placed one by one on a copy of the cluster, with nodes that do not exist yet: whether a new node would
//! help, judged by the filters of the pod's profile.
//!
//! As in a cluster autoscaler, a placed pod takes its room from the following ones, and nodes are not scored. A pod
//! preempts no other pod.

use crate::examine::is_possible;
use crate::snapshot::Snapshot;
use berth_api::{Node, Object, Time};
use berth_framework::plugin::DryRun;
use berth_framework::{PodInfo, Slot};
use berth_scheduler::Scheduler;
use std::sync::Arc;

/// A copy of the cluster on which pods are placed.
#[derive(Debug)]
pub struct Packing(Snapshot);

impl Packing {
    /// Copies the cluster of a scheduler.
    pub fn new(scheduler: &Scheduler, now: Time) -> Self {
        Self(Snapshot::take(scheduler, now))
    }

    /// Copies the cluster of a scheduler again, into the memory of this copy.
    pub fn renew(&mut self, scheduler: &Scheduler, now: Time) {
        self.0.renew(scheduler, now);
    }

    /// The nodes of the copy, one of each zone in turn.
    pub fn nodes(&mut self) -> Arc<[Slot]> {
        self.0.cluster.nodes.in_order()
    }

    /// Adds a node with the pods that it has from the beginning.
    pub fn add_node(
        &mut self,
        node: Arc<Node>,
        pods: impl IntoIterator<Item = Arc<PodInfo>>,
    ) -> Slot {
        let slot = self.0.cluster.nodes.set_node(node);
        for pod in pods {
            self.0.cluster.nodes.add_pod_at(slot, pod);
        }
        slot
    }

    /// Removes a node with its pods.
    pub fn remove_node(&mut self, name: &str) {
        let nodes = &mut self.0.cluster.nodes;
        let pods = nodes.node(name).map(|view| view.pods().to_vec());
        for pod in pods.into_iter().flatten() {
            // A pod of the view is counted on the node.
            let _ = nodes.remove_pod(name, pod.pod.uid());
        }
        nodes.remove_node(name);
    }

    /// Adds an object that is neither a pod nor a node.
    pub fn set(&mut self, object: &Object) {
        self.0.cluster.set(object);
    }

    /// Places pods alike, each on the first of these nodes that all filters accept, until one fits nowhere. Returns the number
    /// of placed pods.
    pub fn place(&mut self, pods: &[Arc<PodInfo>], nodes: &[Slot]) -> usize {
        let Some(first) = pods.first() else {
            return 0;
        };
        let Some(profile) = self.0.profiles.get(&first.pod.spec.scheduler_name).cloned() else {
            return 0;
        };
        let placed = self.0.evaluate(&profile, first, |evaluator| {
            let mut placed = Vec::new();
            let Ok(possible) = evaluator.pre_filter() else {
                return placed;
            };
            evaluator.begin();
            let (mut from, mut placed_before) = (0, 0);
            while let Some(pod) = pods.get(placed.len()) {
                let found = nodes[from..].iter().position(|node| {
                    is_possible(evaluator.cluster, &possible.nodes, *node)
                        && evaluator.filter_node(*node).is_success()
                });
                match found {
                    Some(at) => {
                        from += at;
                        placed.push(nodes[from]);
                        if !evaluator.add_pod(nodes[from], pod).is_success() {
                            break;
                        }
                    }
                    // A spread constraint may admit nodes again that have rejected an earlier pod.
                    None if from > 0 && placed.len() > placed_before => {
                        (from, placed_before) = (0, placed.len());
                    }
                    None => break,
                }
            }
            evaluator.rollback();
            placed
        });
        for (pod, node) in pods.iter().zip(&placed) {
            self.0.cluster.nodes.add_pod_at(*node, pod.clone());
        }
        placed.len()
    }
}
