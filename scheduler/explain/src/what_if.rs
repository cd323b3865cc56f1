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
//! [`WhatIfWorld`] is the [`Engine`] whose calls are answered at once: pods are bound, victims are deleted. Time is virtual.
//! Nothing leaves the process.
//!
//! A run and a simulation have different loops: a simulation advances to arrivals, ends and answers, and a run has none, so it
//! ends when no pod is in activeQ or in backoff. Deleted pods end at once, because a grace period would only delay the run.

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

use crate::engine::{ClaimTemplates, Effect, Engine, claim_to_bind};
use crate::queue::gate_text;
use berth_api::resources::{CPU, MEMORY};
use berth_api::{Duration, Kind, Object, Pod, Time};
use berth_framework::registry::Registry;
use berth_scheduler::profile::ProfileErrors;
use berth_scheduler::{CycleResult, ScheduleOutcome, Scheduler, SchedulerOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The limit of a run: the average number of attempts per pod. Preemption tries a pod a few times.
const ATTEMPTS_PER_POD_MAX: usize = 20;
/// The maximum virtual duration of a run: longer than any backoff.
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

/// The changes to which the controllers of claims react.
#[derive(Debug, Clone, Default)]
pub struct ClaimChanges {
    /// The templates of the claims of new pods.
    pub templates: ClaimTemplates,
    /// The pods that are not among the objects any more: their claims end with them.
    pub deleted: Vec<Arc<Pod>>,
}

/// A scheduler and the objects of its cluster.
#[derive(Debug)]
pub struct WhatIfWorld {
    engine: Engine,
    placed: BTreeMap<String, String>,
    evicted: Vec<PlacedPod>,
    attempts: usize,
}

/// The order in which a scheduler receives objects: pods last, because they refer to other objects.
fn place_of(object: &Object) -> u8 {
    match object.kind() {
        Kind::Pod => 2,
        Kind::Node => 1,
        _ => 0,
    }
}

impl WhatIfWorld {
    /// A scheduler with these objects.
    ///
    /// # Errors
    /// When the profiles are invalid.
    pub fn new(
        options: SchedulerOptions,
        registry: &Registry,
        objects: CopiedObjects,
        now: Time,
    ) -> Result<Self, ProfileErrors> {
        let scheduler = Scheduler::new(options, registry, now)?;
        let mut sorted: Vec<Object> = objects.into_values().collect();
        sorted.sort_by_key(place_of);
        Ok(Self::of(scheduler, sorted, now))
    }

    /// A scheduler with these objects, in which the waiting pods get their claims.
    ///
    /// # Errors
    /// When the profiles are invalid.
    pub fn with_claims(
        options: SchedulerOptions,
        registry: &Registry,
        objects: CopiedObjects,
        claims: &ClaimChanges,
        now: Time,
    ) -> Result<Self, ProfileErrors> {
        let (pods, others): (Vec<Object>, Vec<Object>) = objects
            .into_values()
            .partition(|object| object.kind() == Kind::Pod);
        let others = others.into_iter().map(|object| (key_of(&object), object));
        let mut world = Self::new(options, registry, others.collect(), now)?;
        world.engine.set_claim_templates(claims.templates.clone());
        for pod in &claims.deleted {
            world.engine.delete_claims(pod);
        }
        for object in pods {
            let object = match object {
                Object::Pod(mut pod) if !pod.is_assigned() && !pod.is_terminating() => {
                    world.engine.create_claims(Arc::make_mut(&mut pod));
                    Object::Pod(pod)
                }
                other => other,
            };
            world.engine.load([object]);
        }
        Ok(world)
    }

    /// A world with a new scheduler and these objects. Pods are added in the order of their creation.
    pub(crate) fn over(scheduler: Scheduler, objects: &[Object], now: Time) -> Self {
        let mut sorted = objects.to_vec();
        sorted.sort_by_cached_key(|object| {
            let meta = object.metadata();
            let name = (meta.namespace.clone(), meta.name.clone());
            (place_of(object), meta.creation_timestamp, name)
        });
        Self::of(scheduler, sorted, now)
    }

    fn of(scheduler: Scheduler, objects: Vec<Object>, now: Time) -> Self {
        let mut engine = Engine::new(scheduler, now, |_, _| {});
        engine.load(objects);
        Self {
            engine,
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
        self.placed.keys().filter_map(|key| self.pod(key))
    }

    /// A pod, `namespace/name`, has ended, and its controller does not replace it.
    pub(crate) fn end(&mut self, pod: &str) {
        if let Some(pod) = self.pod(pod).cloned() {
            self.engine.end_pod(pod.uid());
        }
    }

    /// A pod, `namespace/name`.
    pub fn pod(&self, pod: &str) -> Option<&Arc<Pod>> {
        let (namespace, name) = pod.split_once('/')?;
        self.scheduler().cache().stored_by_name(namespace, name)
    }

    /// The current objects, without pods that have run to completion.
    pub fn objects(&self) -> CopiedObjects {
        let objects = self.scheduler().cache().stored_objects();
        let keyed = objects.into_iter().map(|object| (key_of(&object), object));
        keyed.collect()
    }

    /// The scheduler.
    pub fn scheduler(&self) -> &Scheduler {
        self.engine.scheduler()
    }

    /// The present virtual time.
    pub fn now(&self) -> Time {
        self.engine.now()
    }

    /// Sets the virtual time if it is later than the current time.
    pub fn advance(&mut self, now: Time) {
        self.engine.advance(now);
    }

    /// The node of a pod, `namespace/name`.
    pub fn node_of(&self, pod: &str) -> Option<&str> {
        self.placed.get(pod).map(String::as_str)
    }

    /// Schedules until no pod can be tried.
    pub fn run(&mut self) {
        let until = self.now() + RUN_MAX;
        let attempts_max = self.pods().count().saturating_add(10);
        for _ in 0..attempts_max.saturating_mul(ATTEMPTS_PER_POD_MAX) {
            let evicted = &mut self.evicted;
            let outcome = self
                .engine
                .attempt(|engine, id, call| match engine.answer(id, call) {
                    Some(Effect::Deleted(victim)) => {
                        if let Some(pod) = engine.pod(&victim.uid) {
                            evicted.push(PlacedPod {
                                pod: pod.key(),
                                node: pod.spec.node_name.to_string(),
                            });
                        }
                        engine.end_pod(&victim.uid);
                    }
                    Some(Effect::Written(object)) => {
                        if let Some(claim) = claim_to_bind(&object) {
                            engine.bind_volume(&claim);
                        }
                    }
                    Some(Effect::Bound(_)) | None => {}
                });
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
                ScheduleOutcome::Parked(wait) => self.advance(wait.deadline),
                ScheduleOutcome::Idle { next_wake } => {
                    // Other waiting pods need an event, and no event follows here. The flush of unschedulable pods
                    // would only repeat their attempts.
                    let counts = self.scheduler().queue().places().counts();
                    let is_over = counts.active == 0 && counts.backoff == 0;
                    match next_wake {
                        Some(wake) if !is_over && wake <= until => self.advance(wake),
                        _ => return,
                    }
                }
            }
        }
    }

    /// The pods that have not run to completion, in no particular order.
    fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.scheduler().cache().stored_pods()
    }

    /// The usage of the cluster.
    pub fn usage(&self) -> Usage {
        let nodes = &self.scheduler().cache().cluster().nodes;
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

    /// Returns whether a pod has no node and belongs to this scheduler.
    fn waits(&self, pod: &Pod) -> bool {
        !pod.is_assigned()
            && !pod.is_terminating()
            && self
                .scheduler()
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
        let queued = self.scheduler().queue().get(pod.namespace(), pod.name());
        if let Some((_, info)) = queued.filter(|(_, info)| info.is_gated()) {
            return gate_text(info);
        }
        let explanation = self.scheduler().explanation(pod.uid());
        explanation.map_or_else(String::new, |e| e.message.clone())
    }

    /// The pods of this scheduler without a node.
    fn pending(&self) -> Vec<PendingPod> {
        let pending = self.pods().filter(|pod| self.waits(pod));
        let mut pending: Vec<&Arc<Pod>> = pending.collect();
        pending.sort_by_key(|pod| (pod.namespace(), pod.name()));
        let pending = pending.into_iter().map(|pod| PendingPod {
            pod: pod.key(),
            reason: self.reason_for(pod),
        });
        pending.collect()
    }

    /// The events since the beginning. `before` is the initial cluster, `displaced` are pods of deleted or drained
    /// nodes: the current state of their replacements becomes their end, if they have none yet.
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
