//! Judging which pods are evicted.

use super::group_preemption::GroupEvictions;
use super::{Checker, GroupPlan, Violation};
use crate::rules::{forbids, only_room_counts};
use berth_api::{Node, Pod, Str};
use std::sync::Arc;

/// The pod or group that a scheduler has just failed to place.
#[derive(Debug, Clone)]
pub enum Unplaced {
    /// The pod with this UID.
    Pod(Str),
    /// A group.
    Group(GroupPlan),
}

impl Checker {
    /// The pods that the scheduler may delete as victims.
    pub fn living_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values().filter(|pod| !pod.is_terminating())
    }

    /// The scheduler no longer intends to delete a pod.
    pub fn spared(&mut self, uid: &str) {
        self.victims.remove(uid);
    }

    /// The scheduler deletes these pods as victims. New victims are for the pod or group that it has just failed to
    /// place, if known. `last` are victims that it deletes after the others, and `in_memory` are pods that it rejects
    /// before they have a node. Returns the number of new victims.
    ///
    /// # Errors
    /// When a victim has no lower priority, or was not needed; when an earlier preemption is still in progress; or when
    /// a part of a group stays that is evicted as a whole.
    pub fn preempts(
        &mut self,
        victims: &[Str],
        last: &[Str],
        in_memory: &[Str],
        preemptor: Option<&Unplaced>,
    ) -> Result<usize, Violation> {
        let new: Vec<Str> = victims
            .iter()
            .filter(|uid| !self.victims.contains(*uid))
            .cloned()
            .collect();
        let known: Vec<&Pod> = new.iter().filter_map(|uid| self.pod(uid)).collect();
        // No new decision. If the configuration lacks the plugin that chose the last victim, PreEnqueue does not reject
        // the preemptor, and it is retried before that victim is deleted.
        if new.is_empty() && in_memory.is_empty() {
            return Ok(0);
        }
        let all = new.iter().chain(last).chain(in_memory);
        let all = all.filter_map(|uid| self.pod(uid));
        let all: Vec<&Pod> = all.collect();
        match preemptor {
            Some(Unplaced::Pod(uid)) => {
                if let Some(preemptor) = self.pod(uid) {
                    self.check_need(&known, preemptor)?;
                    self.check_once(&known, preemptor)?;
                    GroupEvictions(self).check_whole(&all)?;
                }
            }
            Some(Unplaced::Group(plan)) => {
                GroupEvictions(self).check_need_of_group(&all, plan)?;
                GroupEvictions(self).check_whole(&all)?;
            }
            None => {}
        }
        let count = new.len();
        self.victims.extend(new);
        Ok(count)
    }

    pub(super) fn pod(&self, uid: &str) -> Option<&Pod> {
        self.pods.get(uid).map(|pod| &**pod)
    }

    /// The pods of at least the same priority as `pod` for which a node is kept free.
    fn nominees<'a>(
        &'a self,
        pod: &'a Pod,
        node: &'a str,
    ) -> impl Iterator<Item = (&'a Pod, &'a str)> {
        self.waiting_pods()
            .map(|other| &**other)
            .filter(|other| other.uid() != pod.uid() && other.priority() >= pod.priority())
            .filter(move |other| {
                let kept = self.nominated.get(other.uid()).map(Str::as_str);
                !self.placed.contains_key(other.uid()) && kept == Some(node)
            })
            .map(move |other| (other, node))
    }

    /// Returns whether the pod fits on a node after some pods were deleted, together with the pods nominated to the
    /// node.
    fn fits_without(&self, pod: &Pod, node: &Node, gone: impl Fn(&Pod, &str) -> bool) -> bool {
        let left = self.scene().without(gone);
        let all = left.with(self.nominees(pod, node.name()));
        forbids(&left, pod, node).is_none() && forbids(&all, pod, node).is_none()
    }

    /// Victims must have a lower priority, must all be needed, and are not needed if the pod fits anyway.
    fn check_need(&self, victims: &[&Pod], preemptor: &Pod) -> Result<(), Violation> {
        let needless = |victim: &Pod, reason: String| {
            Err(Violation::NeedlessPreemption {
                victim: victim.name().clone(),
                reason,
            })
        };
        let Some(first) = victims.first() else {
            return Ok(());
        };
        let name = preemptor.name();
        if let Some(victim) = victims
            .iter()
            .find(|victim| self.priority_as_victim(victim) >= preemptor.priority())
        {
            return needless(victim, format!("it is no less important than pod {name}"));
        }
        let mut nodes = self.nodes.values();
        if let Some(node) = nodes.find(|node| {
            !self.rejecting.contains_key(node.name())
                && self.fits_without(preemptor, node, |_, _| false)
        }) {
            let reason = format!("pod {name} fits on node {} as it is", node.name());
            return needless(first, reason);
        }
        // Fewer pods do not always help, because pods can require other pods.
        if !only_room_counts(preemptor) {
            return Ok(());
        }
        // If a group is evicted as a whole, its pods on other nodes are evicted as well.
        for kept in victims {
            if self.evicted_with(kept).is_some() {
                continue;
            }
            let Some(node) = self.nodes.get(&kept.spec.node_name) else {
                continue;
            };
            let goes = |pod: &Pod, _: &str| {
                victims.iter().any(|victim| victim.uid() == pod.uid()) && pod.uid() != kept.uid()
            };
            if self.fits_without(preemptor, node, goes) {
                let reason = format!(
                    "pod {name} fits on node {} without its eviction",
                    node.name()
                );
                return needless(kept, reason);
            }
        }
        Ok(())
    }

    /// Returns whether a pod is being evicted from this node.
    pub(super) fn is_evicted_from_node(&self, pod: &Pod, node: &str) -> bool {
        let notified = pod
            .condition("DisruptionTarget")
            .is_some_and(|c| c.status == "True" && c.reason == "PreemptionByScheduler");
        pod.spec.node_name == *node
            && !pod.is_terminal()
            && ((pod.is_terminating() && notified) || self.victims.contains(pod.uid()))
    }

    /// While victims are still being deleted on the nominated node of a pod, and the pod fits there afterwards, no more
    /// pods may be evicted.
    fn check_once(&self, victims: &[&Pod], preemptor: &Pod) -> Result<(), Violation> {
        let kept = self.nominated.get(preemptor.uid());
        let (Some(node), Some(victim)) = (kept.and_then(|n| self.nodes.get(n)), victims.first())
        else {
            return Ok(());
        };
        let is_lesser = |pod: &Pod| pod.priority() < preemptor.priority();
        let mut pods = self.pods.values();
        let earlier =
            pods.find(|pod| is_lesser(pod) && self.is_evicted_from_node(pod, node.name()));
        let Some(earlier) = earlier else {
            return Ok(());
        };
        let will_do = self.fits_without(preemptor, node, |pod, at| {
            *at == **node.name() && is_lesser(pod)
        });
        if !will_do {
            return Ok(());
        }
        Err(Violation::RepeatedPreemption {
            pod: preemptor.name().clone(),
            victim: victim.name().clone(),
            earlier: earlier.name().clone(),
        })
    }
}
