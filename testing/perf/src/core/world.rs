//! The cluster around the core: answers every call immediately, and shows its effect as a watch would.

use super::changes::Changes;
use super::crowd::ClusterScale;
use super::{Row, volumes};
use crate::{generate, memory};
use berth_api::pod::PodCondition;
use berth_api::{Duration, Kind, Object, Pod, Str, Time};
use berth_framework::call::Response;
use berth_framework::write::Action;
use berth_framework::{ApiCall, CallId, Write};
use berth_scheduler::Stopwatch;
use berth_scheduler::metrics::{Families, Metric, SeriesValue};
use berth_scheduler::{ClusterChange, CycleResult, ScheduleOutcome, Scheduler, SchedulerOptions};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The time between two decisions by the clock of the core.
const TICK: Duration = Duration::from_micros(10);
/// The idle time by that clock after which the core counts as stuck. Longer than any backoff, shorter than the interval
/// of the flush of lost pods.
const QUIET_MAX: Duration = Duration::from_secs(30);

/// Times the extension points as production does.
struct SinceStart(Instant);

impl Stopwatch for SinceStart {
    fn nanos(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A scheduler in a generated cluster.
pub(super) struct CoreWorld {
    scheduler: Scheduler,
    now: Time,
    pods: HashMap<Str, Arc<Pod>>,
    /// The claims and volumes as the API stores them, by kind and name.
    objects: HashMap<(Kind, Str), Value>,
    /// The working time of the core since the cluster was set up.
    seconds: f64,
    bound: usize,
    versions: u64,
    /// The changes between decisions, in rows that change their cluster.
    changes: Option<Changes>,
}

/// The results of a run.
pub(super) struct CoreRun {
    /// The time of each decision and its consequences, in microseconds.
    pub(super) micros: Vec<f64>,
    /// The total working time of the core, in seconds.
    pub(super) seconds: f64,
    /// The share of the time in which this thread had a processor; absent if the operating system does not report it.
    pub(super) cpu_share: Option<f64>,
    /// Pods with a node.
    pub(super) scheduled: usize,
    /// The node of each placed pod, in the order of the decisions; empty for rejected pods.
    pub(super) nodes: Vec<Str>,
    /// Pods without a decision.
    pub(super) left: usize,
    /// Calls of queueing hints, including the calls while the pods were added.
    pub(super) hint_calls: u64,
    /// The memory of this process at the end, in bytes; absent if the operating system does not report it.
    pub(super) resident: Option<u64>,
}

impl CoreWorld {
    /// Sets up a cluster with waiting pods.
    pub(super) fn new(
        row: Row,
        scale: &ClusterScale,
        options: SchedulerOptions,
    ) -> Result<Self, String> {
        let now = Time::from_secs(1_800_000_000);
        let mut rng = fastrand::Rng::with_seed(options.seed);
        let options = SchedulerOptions {
            stopwatch: Box::new(SinceStart(Instant::now())),
            ..options
        };
        let scheduler = Scheduler::new(options, &berth_plugins::in_tree(), now)
            .map_err(|error| error.to_string())?;
        let mut world = Self {
            scheduler,
            now,
            pods: HashMap::new(),
            objects: HashMap::new(),
            seconds: 0.0,
            bound: 0,
            versions: 0,
            changes: None,
        };
        for object in row.objects(scale.nodes) {
            world.show_object(object);
        }
        for index in 0..scale.nodes {
            world.show_object(Object::Node(row.node(index)));
        }
        world.crowd(scale);
        let mut changes = Changes::of(row, scale.nodes, scale.pods, rng.fork());
        for index in 0..row.existing(scale.nodes, scale.pods) {
            let pod = row.existing_pod(index, scale.nodes);
            changes.iter_mut().for_each(|changes| changes.note(&pod));
            world.add(pod);
        }
        // In rows that change their cluster, the changes include the pods.
        let waiting = if changes.is_some() { 0 } else { scale.pods };
        let mut claims = Vec::new();
        for index in 0..waiting {
            let (pod, objects) = row.pod(index, scale.nodes, &mut rng);
            if row.creates_claims_later() {
                let mut without = Pod::clone(&pod);
                without.status.resource_claim_statuses.clear();
                world.add(Arc::new(without));
                claims.push((pod, objects));
            } else {
                world.show_stored(objects);
                world.add(pod);
            }
        }
        // The controller creates a claim, and then names it in the status of the pod.
        for (pod, objects) in claims {
            world.show_stored(objects);
            world.add(pod);
        }
        world.changes = changes;
        Ok(world)
    }

    /// The time by the clock of the core.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Adds a pod.
    pub(super) fn add(&mut self, pod: Arc<Pod>) {
        self.remember(&pod);
        self.show_object(Object::Pod(pod));
    }

    /// From now on the pod exists.
    pub(super) fn remember(&mut self, pod: &Arc<Pod>) {
        self.pods.insert(pod.uid().clone(), pod.clone());
    }

    /// Deletes the pod from the records. Returns its last state.
    pub(super) fn forget(&mut self, uid: &Str) -> Option<Arc<Pod>> {
        self.pods.remove(uid)
    }

    /// Stores objects and shows them.
    pub(super) fn show_stored(&mut self, objects: Vec<(Kind, Value)>) {
        for (kind, object) in objects {
            let change = self.store(kind, object);
            self.show(change);
        }
    }

    pub(super) fn show_object(&mut self, object: Object) {
        self.show(ClusterChange::Applied(object));
    }

    /// Stores an object in a new version.
    fn store(&mut self, kind: Kind, mut object: Value) -> ClusterChange {
        self.versions += 1;
        object["metadata"]["resourceVersion"] = json!(format!("9{:09}", self.versions));
        let decoded = generate::decoded(kind, &object);
        let name = decoded.metadata().name.clone();
        self.objects.insert((kind, name), object);
        ClusterChange::Applied(decoded)
    }

    pub(super) fn show(&mut self, change: ClusterChange) {
        self.scheduler.apply(change, self.now);
    }

    /// Runs the next step of the core, and answers its calls.
    pub(super) fn step(&mut self) -> ScheduleOutcome {
        self.now = self.now + TICK;
        let outcome = self.scheduler.schedule_one(self.now);
        self.settle_calls();
        match &outcome {
            ScheduleOutcome::Idle {
                next_wake: Some(wake),
            } if wake.since(self.now) < QUIET_MAX => self.now = self.now.max(*wake),
            ScheduleOutcome::Parked(wait) => self.now = self.now.max(wait.deadline),
            _ => {}
        }
        outcome
    }

    /// Runs the core until the next timer is at least [`QUIET_MAX`] ahead.
    pub(super) fn settle(&mut self) {
        loop {
            if let ScheduleOutcome::Idle { next_wake } = self.step()
                && next_wake.is_none_or(|wake| wake.since(self.now) >= QUIET_MAX)
            {
                self.seconds = 0.0;
                return;
            }
        }
    }

    /// Shows the changes before a decision.
    fn change(&mut self, decision: usize) {
        let Some(mut changes) = self.changes.take() else {
            return;
        };
        let shown = changes.before(decision, self);
        self.changes = Some(changes);
        let begun = Instant::now();
        for change in shown {
            self.show(change);
        }
        self.seconds += begun.elapsed().as_secs_f64();
    }

    /// Schedules until the core has completed `pods` pods.
    pub(super) fn run(mut self, row: Row, scale: &ClusterScale) -> CoreRun {
        let pods = scale.pods;
        let mut run = CoreRun {
            micros: Vec::with_capacity(pods),
            seconds: 0.0,
            cpu_share: None,
            scheduled: 0,
            nodes: Vec::with_capacity(pods),
            left: 0,
            hint_calls: 0,
            resident: None,
        };
        let mut changed = 0;
        let (begun, cpu_before) = (Instant::now(), cpu_seconds());
        loop {
            let done = if row.ends_with_decision() {
                run.micros.len()
            } else {
                self.bound
            };
            if done >= pods {
                break;
            }
            self.now = self.now + TICK;
            let before = self.seconds;
            if changed == run.micros.len() {
                self.change(changed);
                changed += 1;
            }
            let decision = Instant::now();
            let outcome = self.scheduler.schedule_one(self.now);
            self.seconds += decision.elapsed().as_secs_f64();
            self.settle_calls();
            match outcome {
                ScheduleOutcome::Done { .. } | ScheduleOutcome::Group { .. } => {
                    run.micros.push((self.seconds - before) * 1e6);
                    for (_, result) in outcome.decided() {
                        let node = match result {
                            CycleResult::Placed { node } => node.clone(),
                            _ => Str::default(),
                        };
                        run.scheduled += usize::from(!node.is_empty());
                        run.nodes.push(node);
                    }
                }
                ScheduleOutcome::Idle { next_wake } => {
                    let wake = next_wake.filter(|wake| wake.since(self.now) < QUIET_MAX);
                    let Some(wake) = wake else {
                        run.left = pods - done;
                        break;
                    };
                    self.now = self.now.max(wake);
                }
                ScheduleOutcome::Parked(wait) => self.now = self.now.max(wait.deadline),
            }
        }
        run.seconds = self.seconds;
        let wall = begun.elapsed().as_secs_f64();
        run.cpu_share = cpu_before
            .zip(cpu_seconds())
            .map(|(before, after)| ((after - before) / wall).clamp(0.0, 1.0))
            .filter(|share| *share > 0.0);
        run.hint_calls = hint_calls(&self.scheduler);
        run.resident = memory::resident().ok();
        run
    }

    /// Answers every call. The time in which the changes for the watch are created is not measured.
    pub(super) fn settle_calls(&mut self) {
        loop {
            let begun = Instant::now();
            let calls = self.scheduler.take_outputs(self.now).calls;
            self.seconds += begun.elapsed().as_secs_f64();
            if calls.is_empty() {
                return;
            }
            let answers: Vec<(CallId, Vec<ClusterChange>)> = calls
                .into_iter()
                .map(|(id, call)| (id, self.carry_out(call)))
                .collect();
            let begun = Instant::now();
            for (id, changes) in answers {
                let response = Response {
                    resource_version: changes.first().map(version),
                    ..Response::default()
                };
                self.scheduler.complete(id, Ok(response), self.now);
                for change in changes {
                    self.scheduler.apply(change, self.now);
                }
            }
            self.seconds += begun.elapsed().as_secs_f64();
        }
    }

    /// Changes a claim as the API server and then the controllers do. In these rows, the lists of claims for devices
    /// have one entry, so both kinds of patches replace it.
    fn write(&mut self, write: &Write) -> Vec<ClusterChange> {
        let name = write.object();
        let (Action::Patch(patch) | Action::StrategicPatch(patch)) = write.action() else {
            return Vec::new();
        };
        let Some(mut object) = self.objects.remove(&(name.kind, name.name.clone())) else {
            return Vec::new();
        };
        for part in ["metadata", "spec", "status"] {
            for (field, value) in patch[part].as_object().into_iter().flatten() {
                object[part][field] = value.clone();
            }
        }
        let mut changes = vec![self.store(name.kind, object.clone())];
        if name.kind == Kind::PersistentVolumeClaim
            && let Some(volume) = volumes::provision(&mut object)
        {
            changes.push(self.store(Kind::PersistentVolume, volume));
            changes.push(self.store(name.kind, object));
        }
        changes
    }

    fn carry_out(&mut self, call: ApiCall) -> Vec<ClusterChange> {
        match call {
            ApiCall::Write(write) => self.write(&write),
            call => self.carry_out_for_pod(call).into_iter().collect(),
        }
    }

    fn carry_out_for_pod(&mut self, call: ApiCall) -> Option<ClusterChange> {
        let uid = call.pod()?.uid.clone();
        if let ApiCall::DeletePod { .. } = call {
            let gone = self.pods.remove(&uid)?;
            return Some(ClusterChange::Deleted(Object::Pod(gone)));
        }
        let stored = self.pods.get_mut(&uid)?;
        self.versions += 1;
        let mut pod = Pod::clone(stored);
        pod.metadata.resource_version = Str::from(format!("9{:09}", self.versions));
        match call {
            ApiCall::BindPod { node, .. } => {
                self.bound += 1;
                pod.spec.node_name = node;
                pod.status.nominated_node_name = Str::default();
                set_condition(&mut pod, "True", "", "");
                let pod = Arc::new(pod);
                if let Some(changes) = self.changes.as_mut().filter(|c| c.follows_pods()) {
                    changes.note(&pod);
                }
                *stored = pod.clone();
                return Some(ClusterChange::Applied(Object::Pod(pod)));
            }
            ApiCall::PatchPodStatus {
                conditions,
                nominated_node,
                ..
            } => {
                for patch in conditions.iter().filter(|c| c.kind == "PodScheduled") {
                    set_condition(&mut pod, &patch.status, &patch.reason, &patch.message);
                }
                if let Some(node) = nominated_node {
                    pod.status.nominated_node_name = node;
                }
            }
            _ => {}
        }
        *stored = Arc::new(pod);
        Some(ClusterChange::Applied(Object::Pod(stored.clone())))
    }
}

/// The version of the object after a call.
fn version(change: &ClusterChange) -> Str {
    match change {
        ClusterChange::Applied(object) | ClusterChange::Deleted(object) => {
            object.metadata().resource_version.clone()
        }
        _ => Str::default(),
    }
}

/// The calls of queueing hints since the start.
fn hint_calls(scheduler: &Scheduler) -> u64 {
    let name = Metric::QueueingHintExecutionDuration.family().name;
    let snapshot = scheduler.metrics();
    let families = snapshot.families.iter().filter(|f| f.family.name == name);
    let calls = |(_, value): &(_, SeriesValue)| match value {
        SeriesValue::Histogram(observed) => observed.count(),
        SeriesValue::Number(_) => 0,
    };
    families.flat_map(|f| &f.series).map(calls).sum()
}

/// The CPU time of this thread, in seconds, as reported by Linux.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos: f64 = stat.split_whitespace().next()?.parse().ok()?;
    Some(nanos / 1e9)
}

/// Sets the pod's PodScheduled condition.
fn set_condition(pod: &mut Pod, status: &str, reason: &str, message: &str) {
    pod.status.conditions.retain(|c| c.kind != "PodScheduled");
    pod.status.conditions.push(PodCondition {
        kind: "PodScheduled".into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: pod.metadata.generation,
    });
}
