//! Pods that are placed in sequence on a copy of the cluster, with nodes that do not exist yet: the filters of the
//! pod's profile decide whether a new node would help.
//!
//! As in a cluster autoscaler, a placed pod uses its resources and devices for all following pods, and nodes are not
//! scored. There is no preemption.

use crate::examine::is_possible;
use crate::snapshot::Snapshot;
use berth_api::{Kind, Node, Object, Pod, Time};
use berth_framework::plugin::DryRun;
use berth_framework::stage::{DryRunOutbox, StageContext, Step};
use berth_framework::{Cluster, PodInfo, Slot, Write};
use berth_scheduler::Scheduler;
use berth_scheduler::evaluator::Evaluator;
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

    /// The nodes of the copy, alternating between the zones.
    pub fn nodes(&mut self) -> Arc<[Slot]> {
        self.0.cluster.nodes.in_order()
    }

    /// Adds a node with its initial pods.
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

    /// Removes an object that is neither a pod nor a node.
    pub fn unset(&mut self, object: &Object) {
        self.0.cluster.unset(object);
    }

    /// Places equal pods, each on the first of these nodes that all filters accept, until one fits nowhere. Returns the
    /// number of placed pods.
    pub fn place(&mut self, pods: &[Arc<PodInfo>], nodes: &[Slot]) -> usize {
        let Some(first) = pods.first() else {
            return 0;
        };
        let Some(profile) = self.0.profiles.get(&first.pod.spec.scheduler_name).cloned() else {
            return 0;
        };
        let placed = self.0.evaluate(&profile, first, |evaluator| {
            let mut placed: Vec<(Slot, Arc<PodInfo>)> = Vec::new();
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
                let reserved = found.and_then(|at| {
                    from += at;
                    reserve(evaluator, pod, nodes[from])
                });
                match reserved {
                    Some(pod) => {
                        placed.push((nodes[from], pod.clone()));
                        if !evaluator.add_pod(nodes[from], &pod).is_success() {
                            break;
                        }
                    }
                    // After a placement, a spread constraint may admit nodes that have rejected an earlier pod.
                    None if from > 0 && placed.len() > placed_before => {
                        (from, placed_before) = (0, placed.len());
                    }
                    None => break,
                }
            }
            evaluator.rollback();
            placed
        });
        let count = placed.len();
        for (node, pod) in placed {
            self.0.cluster.nodes.add_pod_at(node, pod);
        }
        count
    }
}

/// Reserves the resources of a pod on a node. The devices of its claims are allocated from then on. Returns the pod as
/// it counts on the node; `None` if a plugin does not reserve it.
fn reserve(evaluator: &mut Evaluator<'_>, pod: &Arc<PodInfo>, node: Slot) -> Option<Arc<PodInfo>> {
    let name = evaluator.cluster.nodes.get(node)?.name().clone();
    let (mut outbox, mut rejected) = (DryRunOutbox::default(), false);
    for member in &evaluator.profile.reserve {
        let cx = &mut StageContext {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
            outbox: &mut outbox,
        };
        let state = &mut evaluator.evaluation.state;
        // A plugin that waits has not rejected the pod.
        if let Step::Done(status) = member.plugin.reserve(cx, state, pod, &name, None)
            && !status.is_success()
        {
            rejected = true;
            break;
        }
    }
    // A plugin may keep its own record of reservations, but the copy of the cluster contains the reservation from now
    // on.
    for member in &evaluator.profile.reserve {
        let cx = &mut StageContext {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
            outbox: &mut DryRunOutbox::default(),
        };
        let state = &mut evaluator.evaluation.state;
        member.plugin.unreserve(cx, state, pod, &name);
    }
    if rejected {
        return None;
    }
    for write in &outbox.assumed {
        assume(evaluator.cluster, write);
    }
    if outbox.edits.is_empty() {
        return Some(pod.clone());
    }
    let mut counted = Pod::clone(&pod.pod);
    outbox
        .edits
        .iter()
        .for_each(|edit| edit.apply(&mut counted));
    let footprint = evaluator.cluster.footprint;
    Some(Arc::new(PodInfo::counting(Arc::new(counted), footprint)))
}

/// Shows a resource claim as if the write had been made.
fn assume(cluster: &mut Cluster, write: &Write) {
    let name = write.object();
    if name.kind == Kind::ResourceClaim {
        let claims = cluster.devices().claims();
        let stored = claims.get(&name.namespace, &name.name);
        let stored = stored.cloned().map(Object::ResourceClaim);
        if let Some(stored) = stored.as_ref().or(write.created()) {
            cluster.set(&write.applied_to(stored));
        }
    }
}
