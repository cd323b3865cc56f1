//! What would happen: the scheduling core over a changed copy of a cluster.
//!
//! [`World`] is a scheduler with an API server that carries out its calls at once: pods are bound, victims are deleted.
//! Time is virtual. Nothing leaves the process.

use berth_api::pod::PodCondition;
use berth_api::resources::{CPU, MEMORY};
use berth_api::{Duration, Kind, Node, Object, Pod, Selector, Str, Time};
use berth_framework::ApiCall;
use berth_framework::registry::Registry;
use berth_scheduler::profile::ProfileErrors;
use berth_scheduler::{ClusterChange, CycleResult, Outcome, Scheduler, SchedulerOptions};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often a pod is tried on average, before a run is given up. Preemption tries a pod a few times.
const ATTEMPTS_PER_POD_MAX: usize = 20;
/// How long a run lasts at most, in virtual time: longer than any backoff.
const RUN_MAX: Duration = Duration::from_secs(15 * 60);
/// How many nodes are tried when a cluster is consolidated.
pub const CONSOLIDATION_NODES_MAX: usize = 500;

/// A pod with its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacedPod {
    /// `namespace/name`.
    pub pod: String,
    /// The node.
    pub node: String,
}

/// A pod without a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPod {
    /// `namespace/name`.
    pub pod: String,
    /// Why.
    pub reason: String,
}

/// How full a cluster is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Nodes, cordoned ones included.
    pub nodes: usize,
    /// Pods on nodes.
    pub pods: usize,
    /// Pods that wait.
    pub pending: usize,
    /// Requested CPU, in percent of what the nodes offer.
    pub cpu_percent: f64,
    /// Requested memory, in percent of what the nodes offer.
    pub memory_percent: f64,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The cluster before the change.
    pub before: Usage,
    /// The cluster after it.
    pub after: Usage,
    /// Waiting pods that get a node.
    pub placed: Vec<PlacedPod>,
    /// Pods that are evicted by preemption, with the node that they leave.
    pub evicted: Vec<PlacedPod>,
    /// Pods that wait.
    pub pending: Vec<PendingPod>,
    /// Pods among the changes that quotas do not admit, and why. They are not created.
    #[serde(default)]
    pub not_admitted: Vec<PendingPod>,
    /// Pods that a drain moves, with their new node.
    pub moved: Vec<PlacedPod>,
    /// Pods that keep a node from being drained, and why.
    pub blocked: Vec<PendingPod>,
    /// The nodes that can be drained, in this order.
    pub drained: Vec<String>,
    /// What the report does not cover.
    pub notes: Vec<String>,
}

/// Objects by kind, namespace and name.
pub type Objects = BTreeMap<(Kind, String, String), Object>;

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
pub struct World {
    scheduler: Scheduler,
    objects: Objects,
    now: Time,
    /// The resource version of the last change: the scheduler ignores versions that are not newer.
    version: u128,
    placed: BTreeMap<String, String>,
    evicted: Vec<PlacedPod>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("objects", &self.objects.len())
            .finish_non_exhaustive()
    }
}

fn pod_key(namespace: &str, name: &str) -> (Kind, String, String) {
    (Kind::Pod, namespace.to_owned(), name.to_owned())
}

impl World {
    /// A scheduler that knows these objects.
    ///
    /// # Errors
    /// When the profiles are wrong.
    pub fn new(
        options: SchedulerOptions,
        registry: &Registry,
        objects: Objects,
        now: Time,
    ) -> Result<Self, ProfileErrors> {
        let mut scheduler = Scheduler::new(options, registry, now)?;
        let order = |object: &&Object| match object.kind() {
            Kind::Pod => 2,
            Kind::Node => 1,
            _ => 0,
        };
        let mut sorted: Vec<&Object> = objects.values().collect();
        sorted.sort_by_key(order);
        for object in sorted {
            scheduler.apply(ClusterChange::Applied(object.clone()), now);
        }
        let versions = objects.values().filter_map(|object| {
            let version = &object.metadata().resource_version;
            version.parse::<u128>().ok()
        });
        Ok(Self {
            scheduler,
            version: versions.max().unwrap_or(0),
            objects,
            now,
            placed: BTreeMap::new(),
            evicted: Vec::new(),
        })
    }

    /// The objects as they are now.
    pub fn objects(&self) -> &Objects {
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

    /// The node that a pod, `namespace/name`, was given.
    pub fn node_of(&self, pod: &str) -> Option<&str> {
        self.placed.get(pod).map(String::as_str)
    }

    fn set(&mut self, mut object: Object) {
        self.version = self.version.saturating_add(1);
        let version = Str::from(self.version.to_string());
        match &mut object {
            Object::Pod(pod) => Arc::make_mut(pod).metadata.resource_version = version,
            Object::Node(node) => Arc::make_mut(node).metadata.resource_version = version,
            Object::PodDisruptionBudget(budget) => {
                Arc::make_mut(budget).metadata.resource_version = version;
            }
            _ => {}
        }
        self.objects.insert(key_of(&object), object.clone());
        self.scheduler
            .apply(ClusterChange::Applied(object), self.now);
    }

    fn delete(&mut self, key: &(Kind, String, String)) {
        if let Some(object) = self.objects.remove(key) {
            self.scheduler
                .apply(ClusterChange::Deleted(object), self.now);
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
                Outcome::Done { pod, result } => {
                    if let CycleResult::Placed { node } = result {
                        let key = format!("{}/{}", pod.namespace, pod.name);
                        self.placed.insert(key, node.to_string());
                    }
                }
                Outcome::Parked(wait) if wait.deadline > until => return,
                Outcome::Parked(wait) => self.now = wait.deadline.max(self.now),
                Outcome::Idle { next_wake } => {
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
                let refused = Err("extenders are not asked".to_owned());
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
                condition,
                nominated_node,
            } => self.edit_pod(&pod.namespace, &pod.name, |pod| {
                if let Some(node) = nominated_node {
                    pod.status.nominated_node_name = node;
                }
                if let Some(new) = condition {
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
            ApiCall::ClearPreEnqueueStatus { .. } | ApiCall::Write(_) => {}
        }
    }

    fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.objects.values().filter_map(|object| match object {
            Object::Pod(pod) if !pod.is_terminal() => Some(pod),
            _ => None,
        })
    }

    /// How full the cluster is.
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

    /// The pods of this scheduler that have no node.
    fn pending(&self) -> Vec<PendingPod> {
        let profiles = self.scheduler.profiles();
        let waits = |pod: &&Arc<Pod>| {
            !pod.is_assigned()
                && !pod.is_terminating()
                && profiles.get(&pod.spec.scheduler_name).is_some()
                && !self.placed.contains_key(&pod.key())
        };
        let reason = |pod: &Pod| {
            if !pod.spec.scheduling_gates.is_empty() {
                return "it has scheduling gates".to_owned();
            }
            let explanation = self.scheduler.explanation(pod.uid());
            explanation.map_or_else(String::new, |e| e.message.clone())
        };
        let pending = self.pods().filter(waits);
        pending
            .map(|pod| PendingPod {
                pod: pod.key(),
                reason: reason(pod),
            })
            .collect()
    }

    /// What happened since the beginning. `before` is the cluster at that time.
    pub fn report(self, before: Usage) -> Report {
        Report {
            before,
            after: self.usage(),
            placed: self
                .placed
                .iter()
                .map(|(pod, node)| PlacedPod {
                    pod: pod.clone(),
                    node: node.clone(),
                })
                .collect(),
            pending: self.pending(),
            evicted: self.evicted,
            ..Report::default()
        }
    }

    // --- draining ------------------------------------------------------------------------------------------

    /// Cordons a node and moves its pods away one by one, as `kubectl drain` does: pods of a DaemonSet stay, pods
    /// without a controller block the drain, and a pod is evicted only while its disruption budgets allow it. A pod
    /// that was moved counts as available again once it has a node. Returns the moved pods and those that block.
    pub fn drain(&mut self, name: &str) -> (Vec<PlacedPod>, Vec<PendingPod>) {
        let (mut moved, mut blocked) = (Vec::new(), Vec::new());
        let key = (Kind::Node, String::new(), name.to_owned());
        if let Some(Object::Node(node)) = self.objects.get(&key) {
            let mut node = Node::clone(node);
            node.spec.unschedulable = true;
            self.set(Object::Node(Arc::new(node)));
        }
        let on_node: Vec<Arc<Pod>> = self
            .pods()
            .filter(|pod| pod.spec.node_name == *name)
            .cloned()
            .collect();
        for pod in on_node {
            let block = |reason: String| PendingPod {
                pod: pod.key(),
                reason,
            };
            match pod.metadata.controller() {
                Some(owner) if owner.kind == "DaemonSet" => continue,
                Some(_) => {}
                None => {
                    blocked.push(block(
                        "it has no controller that would replace it".to_owned(),
                    ));
                    continue;
                }
            }
            if let Some(budget) = self.exhausted_budget(&pod) {
                blocked.push(block(format!(
                    "PodDisruptionBudget {budget} allows no further disruption"
                )));
                continue;
            }
            let key = pod_key(pod.namespace(), pod.name());
            self.delete(&key);
            let mut replacement = Pod::clone(&pod);
            replacement.spec.node_name = Str::default();
            replacement.metadata.uid = format!("{}-moved", pod.uid()).into();
            replacement.status = Default::default();
            replacement.status.phase = "Pending".into();
            self.set(Object::Pod(Arc::new(replacement)));
            self.run();
            match self.placed.remove(&pod.key()) {
                Some(node) => moved.push(PlacedPod {
                    pod: pod.key(),
                    node,
                }),
                None => {
                    self.spend_budgets(&pod);
                    let reason = self.pending().into_iter().find(|p| p.pod == pod.key());
                    let reason = reason.map_or_else(String::new, |p| p.reason);
                    blocked.push(block(format!("its replacement fits nowhere: {reason}")));
                }
            }
        }
        (moved, blocked)
    }

    fn budgets_of(&self, pod: &Pod) -> Vec<Arc<berth_api::PodDisruptionBudget>> {
        let budgets = self.objects.values().filter_map(|object| match object {
            Object::PodDisruptionBudget(budget) => Some(budget),
            _ => None,
        });
        budgets
            .filter(|budget| {
                let selector = Selector::from_label_selector(budget.spec.selector.as_ref());
                budget.metadata.namespace == *pod.namespace()
                    && selector.is_ok_and(|selector| selector.matches(pod.labels()))
            })
            .cloned()
            .collect()
    }

    fn exhausted_budget(&self, pod: &Pod) -> Option<String> {
        let budgets = self.budgets_of(pod);
        let mut exhausted = budgets.iter().filter(|b| b.status.disruptions_allowed <= 0);
        exhausted.next().map(|b| b.metadata.name.to_string())
    }

    /// A pod is gone and not replaced: its budgets allow one disruption less.
    fn spend_budgets(&mut self, pod: &Pod) {
        for budget in self.budgets_of(pod) {
            let mut budget = berth_api::PodDisruptionBudget::clone(&budget);
            budget.status.disruptions_allowed -= 1;
            self.set(Object::PodDisruptionBudget(Arc::new(budget)));
        }
    }

    /// The nodes by what their pods request, the least first; cordoned ones are left out.
    fn nodes_by_use(&self) -> Vec<String> {
        let mut nodes: Vec<(i64, i64, String)> = self
            .scheduler
            .cache()
            .cluster()
            .nodes
            .iter()
            .filter(|view| !view.node().spec.unschedulable)
            .map(|view| {
                let name = view.name().to_string();
                (view.requested_of(CPU), view.requested_of(MEMORY), name)
            })
            .collect();
        nodes.sort();
        nodes.into_iter().map(|(_, _, name)| name).collect()
    }
}

/// Drains one node after the other, the least used first, and keeps each drain after which no pod waits that did not
/// wait before. `world` makes a world of objects. Returns the report, with the nodes in the order in which they can be
/// drained.
///
/// # Errors
/// What `world` fails with.
pub fn consolidate<E>(
    objects: Objects,
    world: impl Fn(Objects) -> Result<World, E>,
) -> Result<Report, E> {
    let mut present = world(objects)?;
    present.run();
    let before = present.usage();
    let mut report = Report {
        before: before.clone(),
        ..Report::default()
    };
    let nodes = present.nodes_by_use();
    // A pod that is moved several times is listed with its last node.
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    if nodes.len() > CONSOLIDATION_NODES_MAX {
        let text = format!(
            "the {CONSOLIDATION_NODES_MAX} least used of {} nodes are tried",
            nodes.len()
        );
        report.notes.push(text);
    }
    for node in nodes.into_iter().take(CONSOLIDATION_NODES_MAX) {
        let mut tried = world(present.objects().clone())?;
        tried.run();
        let waited = tried.pending().len();
        let (moved, blocked) = tried.drain(&node);
        let is_fine =
            blocked.is_empty() && tried.evicted.is_empty() && tried.pending().len() <= waited;
        if is_fine {
            let key = (Kind::Node, String::new(), node.clone());
            let of_daemons: Vec<(Kind, String, String)> = tried
                .pods()
                .filter(|pod| pod.spec.node_name == *node)
                .map(|pod| pod_key(pod.namespace(), pod.name()))
                .collect();
            for pod in of_daemons {
                tried.delete(&pod);
            }
            tried.delete(&key);
            last.extend(moved.into_iter().map(|moved| (moved.pod, moved.node)));
            report.drained.push(node);
            present = tried;
        }
    }
    let moved = last.into_iter();
    report.moved = moved.map(|(pod, node)| PlacedPod { pod, node }).collect();
    report.after = present.usage();
    report.pending = present.pending();
    Ok(report)
}
