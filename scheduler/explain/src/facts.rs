//! The facts of the queue, the dispatcher and the records of a scheduler about one pod, and about one group.

mod group;

pub use group::GroupFacts;
pub(crate) use group::{GroupFact, MemberFact};

use berth_api::{Pod, Str, Time};
use berth_framework::cluster::GroupKey;
use berth_scheduler::dispatcher::{CallView, calls_about};
use berth_scheduler::queue::{QueuedIn, QueuedPodInfo};
use berth_scheduler::{
    Explanation, GateRemovals, PodDecision, Progress, RunningPreemption, Scheduler,
};
use std::sync::Arc;

/// The scheduler's facts about a pod that are not part of the cluster.
#[derive(Debug, Clone)]
pub struct PodFacts {
    pub(crate) pod: Arc<Pod>,
    pub(crate) queued: Option<(QueuedIn, QueuedPodInfo)>,
    /// The number of pods ahead of it in the same place.
    pub(crate) ahead: Option<usize>,
    pub(crate) backoff_expiry: Option<Time>,
    pub(crate) explanation: Option<Explanation>,
    pub(crate) progress: Option<Progress>,
    pub(crate) calls: Vec<CallView>,
    pub(crate) preemptions: Vec<RunningPreemption>,
    pub(crate) nominated_node: Option<Str>,
    pub(crate) decision: Option<PodDecision>,
    pub(crate) is_assumed: bool,
    /// The removals of its gates from other pods.
    pub(crate) removals: Vec<(Str, GateRemovals)>,
    /// The facts about its group, if it waits with a group.
    pub(crate) group: Option<GroupFacts>,
}

/// The group with which a pod without a node is scheduled.
fn group_facts(scheduler: &Scheduler, pod: &Pod) -> Option<GroupFacts> {
    let key = GroupKey::of_pod(pod).filter(|_| !pod.is_assigned())?;
    GroupFacts::take(scheduler, key.kind, &key.namespace, &key.name)
}

fn removals(scheduler: &Scheduler, pod: &Pod) -> Vec<(Str, GateRemovals)> {
    let gates = pod.spec.scheduling_gates.iter();
    let known = gates.filter_map(|gate| {
        let removals = scheduler.gate_removals(&gate.name)?;
        Some((gate.name.clone(), removals.clone()))
    });
    known.collect()
}

impl PodFacts {
    /// Takes the facts about a pod; `None` if the scheduler does not have the pod.
    pub fn take(scheduler: &Scheduler, namespace: &str, name: &str) -> Option<Self> {
        let cache = scheduler.cache();
        let stored = cache.stored_by_name(namespace, name)?;
        let uid = stored.uid();
        let pod = cache.effective(uid).unwrap_or(stored);
        let queue = scheduler.queue();
        let queued = queue.get(namespace, name);
        let queued = queued.filter(|(_, info)| info.pod.uid() == uid);
        let places = queue.places();
        Some(Self {
            pod: pod.clone(),
            ahead: queued
                .filter(|(place, _)| *place == QueuedIn::Active || place.is_backoff())
                .and_then(|_| places.ahead_of(namespace, name)),
            backoff_expiry: queued
                .filter(|(place, _)| place.is_backoff())
                .and_then(|(_, info)| places.backoff_expiry(info)),
            queued: queued.map(|(place, info)| (place, info.clone())),
            explanation: scheduler.explanation(uid).cloned(),
            progress: scheduler.progress(uid),
            calls: calls_about(scheduler.dispatcher(), uid),
            preemptions: scheduler.preemptions_for(uid),
            nominated_node: queue.nominator().node_of(uid).cloned(),
            decision: scheduler.decision(uid).cloned(),
            is_assumed: cache.is_assumed(uid),
            removals: removals(scheduler, pod),
            group: group_facts(scheduler, pod),
        })
    }

    /// The pod, with the scheduler's writes that the API does not show yet.
    pub fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }
}
