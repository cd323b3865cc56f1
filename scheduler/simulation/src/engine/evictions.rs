//! Pods that end early: deleted by preemption, evicted by a drain, or ended with their node.
//!
//! A deleted pod keeps its resources until its containers end: after its grace period, or earlier if its work is done.
//! Its controller creates the replacement at once, a StatefulSet only after the end of the pod.

use super::Simulation;
use super::events::{Event, NodeIndex, PodIndex};
use super::pods::{Phase, uid};
use crate::trace::GRACE_PERIOD_ANNOTATION;
use berth_api::{Duration, Pod};

/// The default grace period of a pod.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// A deleted pod whose containers are still running.
#[derive(Debug)]
pub(super) struct TerminatingPod {
    node: NodeIndex,
    is_counted_by_quota: bool,
}

fn grace_period(pod: &Pod) -> Duration {
    let stated = pod.metadata.annotations.get(GRACE_PERIOD_ANNOTATION);
    let stated = stated.and_then(|seconds| seconds.parse().ok());
    stated.map_or(GRACE_PERIOD, Duration::from_secs)
}

impl Simulation {
    // --- drains --------------------------------------------------------------------------------------------

    /// A node is cordoned, and its pods are evicted as their disruption budgets allow.
    pub(super) fn node_drains(&mut self, node: NodeIndex) {
        if self.cordon(node, true) {
            self.nodes.draining.insert(node);
            self.drain(node);
        }
    }

    /// A drained node accepts pods again.
    pub(super) fn node_returns(&mut self, node: NodeIndex) {
        self.nodes.draining.remove(&node);
        self.cordon(node, false);
    }

    /// Evicts the pods of a node under drain.
    pub(super) fn drain(&mut self, node: NodeIndex) {
        if !self.nodes.draining.contains(&node) {
            return;
        }
        for pod in self.nodes.get(node).pods.clone() {
            let state = self.pods.get(pod);
            // A terminating pod may have a replacement on another node.
            if state.phase != Phase::OnNode || state.node != node {
                continue;
            }
            let shape = &self.plan.shapes[self.shape_of(pod) as usize];
            let owner = shape.pod.metadata.controller();
            if owner.is_some_and(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "Node")) {
                continue;
            }
            // As in the API, a pod whose containers have not started is not protected.
            if state.runs_since.is_none() || self.may_evict(pod) {
                self.delete_with_grace(pod, false);
            } else {
                self.nodes.all[node as usize].drain_is_refused = true;
            }
        }
    }

    // --- the end of a pod ----------------------------------------------------------------------------------

    /// Deletes a pod, whose containers have their grace period to end.
    pub(super) fn delete_with_grace(&mut self, index: PodIndex, is_preempted: bool) {
        let grace = grace_period(&self.plan.shapes[self.shape_of(index) as usize].pod);
        let duration = self.plan.pods[index as usize].duration;
        let state = self.pods.get(index);
        let (since, node, incarnation) = (state.runs_since, state.node, state.incarnation);
        let Some(since) = since.filter(|_| !grace.is_zero()) else {
            return self.pod_ends_early(index, is_preempted);
        };
        let now = self.engine.now();
        self.note_early_end(index, is_preempted);
        self.engine.change_pod(&uid(index, incarnation), |pod| {
            pod.metadata.deletion_timestamp = Some(now + grace);
        });
        let state = self.pods.get_mut(index);
        let terminating = TerminatingPod {
            node,
            is_counted_by_quota: std::mem::take(&mut state.is_counted_by_quota),
        };
        let key = (index, incarnation);
        self.pods.terminating.insert(key, terminating);
        let end = duration.map_or(now + grace, |duration| {
            (now + grace).min(since + duration).max(now)
        });
        let pod = index;
        self.events
            .push(end, Event::Terminated { pod, incarnation });
        self.pods.get_mut(index).phase = self.phase_after(index);
        self.replace(index, true);
    }

    /// The containers of a deleted pod have ended.
    pub(super) fn pod_terminated(&mut self, index: PodIndex, incarnation: u32) {
        let Some(pod) = self.pods.terminating.remove(&(index, incarnation)) else {
            return;
        };
        let shape = &self.plan.shapes[self.shape_of(index) as usize];
        self.measure.pod_leaves(shape);
        self.node_gives_back(pod.node, index);
        self.engine.end_pod(&uid(index, incarnation));
        if pod.is_counted_by_quota {
            self.release_quota(index, true);
        }
        self.ended_for_replacement(index);
    }

    /// The pods of a node end with it.
    pub(super) fn pods_end_with(&mut self, node: NodeIndex) {
        let terminating = self.pods.terminating.iter();
        let terminating = terminating.filter(|(_, pod)| pod.node == node);
        let terminating: Vec<(PodIndex, u32)> = terminating.map(|(key, _)| *key).collect();
        for (pod, incarnation) in terminating {
            self.pod_terminated(pod, incarnation);
        }
        for pod in self.nodes.get(node).pods.clone() {
            self.pod_ends_early(pod, false);
        }
    }

    /// A pod ends early and at once. It is replaced if it has a controller.
    pub(super) fn pod_ends_early(&mut self, index: PodIndex, is_preempted: bool) {
        self.note_early_end(index, is_preempted);
        let next = self.phase_after(index);
        self.leave_node(index, next);
        self.replace(index, false);
        self.ended_for_replacement(index);
    }

    fn note_early_end(&mut self, index: PodIndex, is_preempted: bool) {
        let shape = self.shape_of(index);
        let (now, state) = (self.engine.now(), self.pods.get_mut(index));
        state.evictions += 1;
        let worked = state.runs_since.take().map(|since| now.since(since));
        let was_healthy = i32::from(worked.is_some());
        self.measure
            .note_eviction(&self.plan.shapes[shape as usize], worked, is_preempted);
        let is_lost = i32::from(!self.is_recreated(index));
        self.budgets_change(index, -is_lost, -was_healthy);
    }

    fn is_recreated(&self, index: PodIndex) -> bool {
        let source = self.plan.pods[index as usize].source;
        self.plan.sources[source as usize].recreated
    }

    fn phase_after(&self, index: PodIndex) -> Phase {
        if self.is_recreated(index) {
            Phase::Replacing
        } else {
            Phase::Lost
        }
    }

    /// Plans the replacement of a pod that was deleted (`is_terminating`) or has ended.
    fn replace(&mut self, index: PodIndex, is_terminating: bool) {
        let shape = self.shape_of(index);
        if !self.is_recreated(index) {
            self.measure.note_lost();
            return;
        }
        self.measure
            .pod_waits(&self.plan.shapes[shape as usize], shape);
        if is_terminating && !self.waits_for_end(index) {
            self.plan_replacement(index);
        }
    }

    /// Removes a deleted pod.
    fn ended_for_replacement(&mut self, index: PodIndex) {
        match self.pods.get(index).phase {
            Phase::Lost => {
                self.pods.get_mut(index).ended = Some(self.engine.now());
                self.leave_group(self.shape_of(index));
            }
            Phase::Replacing if !self.pods.get(index).is_replacement_planned => {
                self.plan_replacement(index);
            }
            _ => {}
        }
    }

    fn plan_replacement(&mut self, index: PodIndex) {
        self.pods.get_mut(index).is_replacement_planned = true;
        let latency = self.plan.world.recreate_latency.draw(&mut self.rng);
        let at = self.engine.now() + latency;
        self.events.push(at, Event::Replace { pod: index });
    }

    /// Returns whether the replacement has the same name as the pod, as in a StatefulSet.
    pub(super) fn waits_for_end(&self, index: PodIndex) -> bool {
        let pod = &self.plan.shapes[self.shape_of(index) as usize].pod;
        let owner = pod.metadata.controller();
        owner.is_some_and(|owner| owner.kind == "StatefulSet")
    }
}
