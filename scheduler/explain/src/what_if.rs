//! The result of a change: the scheduling core over a changed copy of a cluster.
//!
//! | module | contents |
//! |---|---|
//! | `report` | the result of a run |
//! | `balance` | pods before and after the changes, counted |
//! | `fit` | how many more pods of a template fit |
//! | `drain` | draining nodes, and consolidation |
//! | `queue` | which workloads of a queue fit |
//!
//! [`WhatIfWorld`] is a scheduler with an API server that carries out its calls at once: pods are bound, victims are
//! deleted. Time is virtual. Nothing leaves the process.

mod balance;
mod drain;
mod fit;
mod queue;
mod report;

pub use balance::{Balance, PodPlace, PodPlaces};
pub use drain::{CONSOLIDATION_NODES_MAX, consolidate};
pub use report::{
    AddedNodes, BufferRoom, DisplacedPod, Fate, Fit, NodeFit, PendingPod, PlacedPod, Rebalance,
    Usage, WhatIfReport, WorkloadFit,
};

use crate::change::{Edit, PodRef, released};
use crate::queue::gate_text;
use crate::stored::{set_version, written};
use berth_api::pod::PodCondition;
use berth_api::resources::{CPU, MEMORY};
use berth_api::{Duration, Kind, Object, Pod, Str, Time};
use berth_framework::ApiCall;
use berth_framework::registry::Registry;
use berth_framework::write::{Action, Write};
use berth_scheduler::profile::ProfileErrors;
use berth_scheduler::{ClusterChange, CycleResult, ScheduleOutcome, Scheduler, SchedulerOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The average number of attempts for a pod before a run is given up. Preemption tries a pod a few times.
const ATTEMPTS_PER_POD_MAX: usize = 20;
/// The time for which a run lasts at most, in virtual time: longer than any backoff.
const RUN_MAX: Duration = Duration::from_secs(15 * 60);
/// Objects by kind, namespace and name.
pub type CopiedObjects = BTreeMap<(Kind, String, String), Object>;

/// The key of an object.
pub fn key_of(object: &Object) -> (Kind, String, String) {
    let meta = object.metadata();
    (
        object.kind(),
        meta.namespace.to_string(),
        meta.name.to_string(),
    )
}

/// A scheduler and the objects of its cluster.
pub struct WhatIfWorld {
    scheduler: Scheduler,
    objects: CopiedObjects,
    now: Time,
    /// The resource version of the last change: the scheduler ignores versions that are not newer.
    version: u128,
    placed: BTreeMap<String, String>,
    evicted: Vec<PlacedPod>,
    attempts: usize,
}

impl std::fmt::Debug for WhatIfWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("objects", &self.objects.len())
            .finish_non_exhaustive()
    }
}

/// The order in which a scheduler learns objects: pods last, because they name other objects.
fn place_of(object: &Object) -> u8 {
    match object.kind() {
        Kind::Pod => 2,
        Kind::Node => 1,
        _ => 0,
    }
}

fn pod_key(namespace: &str, name: &str) -> (Kind, String, String) {
    (Kind::Pod, namespace.to_owned(), name.to_owned())
}

impl WhatIfWorld {
    /// A scheduler that knows these objects.
    ///
    /// # Errors
    /// When the profiles are wrong.
    pub fn new(
        options: SchedulerOptions,
        registry: &Registry,
        objects: CopiedObjects,
        now: Time,
    ) -> Result<Self, ProfileErrors> {
        let mut scheduler = Scheduler::new(options, registry, now)?;
        let mut sorted: Vec<&Object> = objects.values().collect();
        sorted.sort_by_key(|object| place_of(object));
        for object in sorted {
            scheduler.apply(ClusterChange::Applied(object.clone()), now);
        }
        Ok(Self::of(scheduler, objects, now))
    }

    /// A world over a new scheduler, which learns these objects. Pods arrive in the order of their creation.
    pub(crate) fn over(mut scheduler: Scheduler, objects: &[Object], now: Time) -> Self {
        let mut sorted: Vec<&Object> = objects.iter().collect();
        sorted.sort_by_cached_key(|object| {
            let meta = object.metadata();
            let name = (meta.namespace.clone(), meta.name.clone());
            (place_of(object), meta.creation_timestamp, name)
        });
        for object in sorted {
            scheduler.apply(ClusterChange::Applied(object.clone()), now);
        }
        let objects = objects
            .iter()
            .map(|object| (key_of(object), object.clone()));
        Self::of(scheduler, objects.collect(), now)
    }

    fn of(scheduler: Scheduler, objects: CopiedObjects, now: Time) -> Self {
        let versions = objects.values().filter_map(|object| {
            let version = &object.metadata().resource_version;
            version.parse::<u128>().ok()
        });
        Self {
            scheduler,
            version: versions.max().unwrap_or(0),
            objects,
            now,
            placed: BTreeMap::new(),
            evicted: Vec::new(),
            attempts: 0,
        }
    }

    /// The number of attempts to place a pod or a group so far.
    pub(crate) fn attempts(&self) -> usize {
        self.attempts
    }

    /// The pods that were placed and still exist.
    pub(crate) fn placed_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.placed.keys().filter_map(|key| {
            let (namespace, name) = key.split_once('/')?;
            self.pod(namespace, name)
        })
    }

    /// A pod, `namespace/name`, has ended, and its controller does not replace it.
    pub(crate) fn end(&mut self, pod: &str) {
        if let Some((namespace, name)) = pod.split_once('/') {
            self.delete(&pod_key(namespace, name));
        }
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<&Arc<Pod>> {
        self.objects.get(&pod_key(namespace, name))?.as_pod()
    }

    /// The objects as they are now.
    pub fn objects(&self) -> &CopiedObjects {
        &self.objects
    }

    /// The scheduler.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The present virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Sets the virtual time if it is later than the present one.
    pub fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// The node that a pod, `namespace/name`, was given.
    pub fn node_of(&self, pod: &str) -> Option<&str> {
        self.placed.get(pod).map(String::as_str)
    }

    fn set(&mut self, mut object: Object) {
        self.version = self.version.saturating_add(1);
        set_version(&mut object, self.version.to_string().into());
        self.objects.insert(key_of(&object), object.clone());
        self.scheduler
            .apply(ClusterChange::Applied(object), self.now);
    }

    fn delete(&mut self, key: &(Kind, String, String)) {
        let Some(object) = self.objects.remove(key) else {
            return;
        };
        let released = match &object {
            Object::Pod(pod) if !pod.spec.resource_claims.is_empty() => {
                let cluster = self.scheduler.cache().cluster();
                released(cluster, &[PodRef::of(pod)])
            }
            _ => Vec::new(),
        };
        self.scheduler
            .apply(ClusterChange::Deleted(object), self.now);
        // The claim controller releases the devices that no other pod uses.
        for edit in released {
            if let Edit::Set(claim) = edit {
                self.set(claim);
            }
        }
    }

    fn edit_pod(&mut self, namespace: &str, name: &str, edit: impl FnOnce(&mut Pod)) {
        let key = pod_key(namespace, name);
        if let Some(Object::Pod(pod)) = self.objects.get(&key) {
            let mut pod = Pod::clone(pod);
            edit(&mut pod);
            self.set(Object::Pod(Arc::new(pod)));
        }
    }

    /// Schedules until no pod can be tried.
    pub fn run(&mut self) {
        let until = self.now + RUN_MAX;
        let pods = self.objects.keys().filter(|key| key.0 == Kind::Pod).count();
        for _ in 0..pods.saturating_add(10).saturating_mul(ATTEMPTS_PER_POD_MAX) {
            let outcome = self.scheduler.schedule_one(self.now);
            self.carry_out();
            match outcome {
                ScheduleOutcome::Done { .. } | ScheduleOutcome::Group { .. } => {
                    self.attempts += 1;
                    for (pod, result) in outcome.decided() {
                        if let CycleResult::Placed { node } = result {
                            let key = format!("{}/{}", pod.namespace, pod.name);
                            self.placed.insert(key, node.to_string());
                        }
                    }
                }
                ScheduleOutcome::Parked(wait) if wait.deadline > until => return,
                ScheduleOutcome::Parked(wait) => self.now = wait.deadline.max(self.now),
                ScheduleOutcome::Idle { next_wake } => {
                    let counts = self.scheduler.queue().places().counts();
                    let is_over = counts.active == 0 && counts.backoff == 0;
                    match next_wake {
                        Some(wake) if !is_over && wake <= until => self.now = wake.max(self.now),
                        _ => return,
                    }
                }
            }
        }
    }

    /// Carries out the calls of the scheduler until there is none.
    fn carry_out(&mut self) {
        loop {
            let outputs = self.scheduler.take_outputs(self.now);
            if outputs.calls.is_empty() && outputs.jobs.is_empty() {
                return;
            }
            for (id, _) in outputs.jobs {
                let refused = Err("extenders are not asked".into());
                self.scheduler.job_done(id, refused, self.now);
            }
            for (id, call) in outputs.calls {
                self.scheduler.complete(id, Ok(()), self.now);
                self.made(call);
            }
        }
    }

    fn made(&mut self, call: ApiCall) {
        match call {
            ApiCall::BindPod { pod, node } => {
                self.edit_pod(&pod.namespace, &pod.name, |pod| {
                    pod.spec.node_name = node;
                    pod.status.nominated_node_name = Str::default();
                    pod.status.phase = "Running".into();
                });
            }
            ApiCall::PatchPodStatus {
                pod,
                conditions: new,
                nominated_node,
            } => self.edit_pod(&pod.namespace, &pod.name, |pod| {
                if let Some(node) = nominated_node {
                    pod.status.nominated_node_name = node;
                }
                for new in new {
                    let conditions = &mut pod.status.conditions;
                    conditions.retain(|known| known.kind != new.kind);
                    conditions.push(PodCondition {
                        kind: new.kind,
                        status: new.status,
                        reason: new.reason,
                        message: new.message,
                        observed_generation: new.observed_generation,
                    });
                }
            }),
            ApiCall::DeletePod { pod, .. } => {
                let key = pod_key(&pod.namespace, &pod.name);
                if let Some(Object::Pod(victim)) = self.objects.get(&key) {
                    self.evicted.push(PlacedPod {
                        pod: victim.key(),
                        node: victim.spec.node_name.to_string(),
                    });
                }
                self.delete(&key);
            }
            ApiCall::Write(write) => self.written(&write),
            ApiCall::ClearPreEnqueueStatus { .. } => {}
        }
    }

    /// Another object looks as the write states: an allocated claim, a bound volume.
    fn written(&mut self, write: &Write) {
        let object = write.object();
        let (namespace, name) = (object.namespace.to_string(), object.name.to_string());
        let key = (object.kind, namespace, name);
        if matches!(write.action(), Action::Delete) {
            return self.delete(&key);
        }
        let stored = self.objects.get(&key).or(write.created());
        if let Some(stored) = stored.map(|stored| written(write, stored)) {
            self.set(stored);
        }
    }

    fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.objects.values().filter_map(|object| match object {
            Object::Pod(pod) if !pod.is_terminal() => Some(pod),
            _ => None,
        })
    }

    /// The usage of the cluster.
    pub fn usage(&self) -> Usage {
        let nodes = &self.scheduler.cache().cluster().nodes;
        let percent = |resource: &str| {
            let sums = nodes.iter().fold((0_i64, 0_i64), |(used, has), view| {
                (
                    used.saturating_add(view.requested_of(resource)),
                    has.saturating_add(view.allocatable_of(resource)),
                )
            });
            match sums {
                (_, 0) => 0.0,
                (used, has) => (used as f64 * 1000.0 / has as f64).round() / 10.0,
            }
        };
        Usage {
            nodes: nodes.len(),
            pods: nodes.iter().map(|view| view.pods().len()).sum(),
            pending: self.pending().len(),
            cpu_percent: percent(CPU),
            memory_percent: percent(MEMORY),
        }
    }

    /// Returns whether a pod is one of this scheduler that has no node.
    fn waits(&self, pod: &Pod) -> bool {
        !pod.is_assigned()
            && !pod.is_terminating()
            && self
                .scheduler
                .profiles()
                .get(&pod.spec.scheduler_name)
                .is_some()
            && !self.placed.contains_key(&pod.key())
    }

    /// The reason why a pod has no node.
    fn reason_for(&self, pod: &Pod) -> String {
        if !pod.spec.scheduling_gates.is_empty() {
            return "it has scheduling gates".to_owned();
        }
        let queued = self.scheduler.queue().get(pod.namespace(), pod.name());
        if let Some((_, info)) = queued.filter(|(_, info)| info.is_gated()) {
            return gate_text(info);
        }
        let explanation = self.scheduler.explanation(pod.uid());
        explanation.map_or_else(String::new, |e| e.message.clone())
    }

    /// The pods of this scheduler that have no node.
    fn pending(&self) -> Vec<PendingPod> {
        let pending = self.pods().filter(|pod| self.waits(pod));
        pending
            .map(|pod| PendingPod {
                pod: pod.key(),
                reason: self.reason_for(pod),
            })
            .collect()
    }

    /// The events since the beginning. `before` is the cluster at that time, `displaced` are pods of nodes that were
    /// deleted or drained: replacements that had no end yet get the present one.
    pub fn report(&self, before: Usage, displaced: Vec<DisplacedPod>) -> WhatIfReport {
        let displaced = self.settle(displaced);
        let is_displaced: BTreeSet<&str> = displaced.iter().map(|pod| pod.pod.as_str()).collect();
        let placed = self.placed.iter();
        let placed = placed.filter(|(pod, _)| !is_displaced.contains(pod.as_str()));
        WhatIfReport {
            before,
            after: self.usage(),
            placed: placed
                .map(|(pod, node)| PlacedPod {
                    pod: pod.clone(),
                    node: node.clone(),
                })
                .collect(),
            pending: self.pending(),
            evicted: self.evicted.clone(),
            displaced,
            ..WhatIfReport::default()
        }
    }
}
