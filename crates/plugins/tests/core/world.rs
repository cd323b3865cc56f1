//! A scheduler with the in-tree plugins, in virtual time, and an API server with configured answers.

use berth_api::{Duration, Kind, Object, Pod, Time};
use berth_framework::call::{CallError, CallErrorKind, CallId};
use berth_framework::stage::{Job, JobId};
use berth_framework::testing::{NodeBuilder, PodBuilder, finished};
use berth_framework::{ApiCall, FeatureGates};
use berth_scheduler::metrics::Metric;
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::{ClusterChange, CycleResult, Outcome, Scheduler, SchedulerOptions};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) struct World {
    pub(crate) core: Scheduler,
    pub(crate) now: Time,
    /// The calls that wait for an answer, oldest first.
    pub(crate) calls: Vec<(CallId, ApiCall)>,
    /// The jobs that wait to be run, oldest first.
    pub(crate) jobs: Vec<(JobId, Job)>,
    /// Reason and note of the events since the last time.
    pub(crate) events: Vec<String>,
    /// The log lines.
    pub(crate) log: Vec<String>,
    /// The pods as the API stores them.
    pub(crate) pods: BTreeMap<String, Pod>,
    version: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(FeatureGates::default())
    }

    pub(crate) fn with(features: FeatureGates) -> Self {
        Self::with_options(|options| options.features = features)
    }

    pub(crate) fn with_options(change: impl FnOnce(&mut SchedulerOptions)) -> Self {
        let now = Time::from_secs(1_000);
        let mut options = SchedulerOptions {
            seed: 1,
            ..SchedulerOptions::default()
        };
        change(&mut options);
        let core = Scheduler::new(options, &berth_plugins::in_tree(), now);
        Self {
            core: core.unwrap_or_else(|e| panic!("{e}")),
            now,
            calls: Vec::new(),
            jobs: Vec::new(),
            events: Vec::new(),
            log: Vec::new(),
            pods: BTreeMap::new(),
            version: 1,
        }
    }

    fn take(&mut self) {
        let outputs = self.core.take_outputs(self.now);
        self.calls.extend(outputs.calls);
        self.jobs.extend(outputs.jobs);
        self.log
            .extend(outputs.log.into_iter().map(|line| line.message));
        let events = outputs.events.into_iter().map(|e| e.event);
        self.events
            .extend(events.map(|e| format!("{} {}", e.reason, e.note)));
        self.core.check().unwrap_or_else(|e| panic!("{e}"));
    }

    pub(crate) fn apply(&mut self, object: Object) {
        self.core.apply(ClusterChange::Applied(object), self.now);
        self.take();
    }

    pub(crate) fn node(&mut self, node: NodeBuilder) -> &mut Self {
        self.version += 1;
        self.apply(node.version(self.version).object());
        self
    }

    /// Any other object: its kind and its fields.
    pub(crate) fn object(&mut self, kind: Kind, mut fields: Value) -> &mut Self {
        self.version += 1;
        fields["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = kind.decode(fields.to_string().as_bytes());
        self.apply(object.unwrap_or_else(|e| panic!("{e}")));
        self
    }

    /// Such an object is gone.
    pub(crate) fn object_gone(&mut self, kind: Kind, fields: &Value) {
        let object = kind.decode(fields.to_string().as_bytes());
        let gone = ClusterChange::Deleted(object.unwrap_or_else(|e| panic!("{e}")));
        self.core.apply(gone, self.now);
        self.take();
    }

    /// Stores a pod and sends it to the scheduler.
    pub(crate) fn pod(&mut self, pod: PodBuilder) -> &mut Self {
        self.version += 1;
        let pod = pod.version(self.version).build();
        self.pods.insert(pod.name().to_string(), pod.clone());
        self.apply(PodBuilder::of(&pod).object());
        self
    }

    /// Changes a stored pod and sends it to the scheduler.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(PodBuilder) -> PodBuilder) {
        let pod = change(PodBuilder::of(&self.pods[name]));
        self.pod(pod);
    }

    pub(crate) fn deleted(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            let object = PodBuilder::of(&pod).object();
            self.core.apply(ClusterChange::Deleted(object), self.now);
            self.take();
        }
    }

    pub(crate) fn advance(&mut self, seconds: u64) -> &mut Self {
        self.now = self.now + Duration::from_secs(seconds);
        self.core.tick(self.now);
        self.take();
        self
    }

    /// Runs the oldest job.
    pub(crate) fn reply(&mut self) {
        let (id, job) = self.jobs.remove(0);
        self.core.job_done(id, finished(job), self.now);
        self.take();
    }

    /// Tries one pod: which, and how it ended, in a word or the message.
    pub(crate) fn attempt(&mut self) -> String {
        let outcome = self.core.schedule_one(self.now);
        self.take();
        match outcome {
            Outcome::Idle { .. } => "idle".to_owned(),
            Outcome::Parked(_) => "parked".to_owned(),
            Outcome::Done { pod, result } => match result {
                CycleResult::Placed { node } => format!("{} on {node}", pod.name),
                CycleResult::Unschedulable { message } => format!("{}: {message}", pod.name),
                CycleResult::Error { message } => format!("{}: error: {message}", pod.name),
                CycleResult::Skipped => format!("{} skipped", pod.name),
            },
        }
    }

    /// Tries pods until none is left to try.
    pub(crate) fn attempts(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            match self.attempt().as_str() {
                "idle" => return all,
                text => all.push(text.to_owned()),
            }
            assert!(all.len() < 100, "it never ends: {all:?}");
        }
    }

    /// The deletions that wait for an answer.
    pub(crate) fn deletions(&self) -> Vec<String> {
        let calls = self.calls.iter().filter_map(|(_, call)| match call {
            ApiCall::DeletePod { pod, .. } => Some(pod.name.to_string()),
            _ => None,
        });
        calls.collect()
    }

    /// Answers the first call of which this holds. A call that goes well is carried out: pods are deleted at once, or
    /// with `grace` only marked.
    pub(crate) fn answer(
        &mut self,
        which: impl Fn(&ApiCall) -> bool,
        failure: Option<CallErrorKind>,
        grace: bool,
    ) {
        let at = self.calls.iter().position(|(_, call)| which(call));
        let (id, call) = self.calls.remove(at.expect("the call is on its way"));
        if let Some(kind) = failure {
            let error = CallError::new(kind, format!("{kind:?}"));
            self.core.complete(id, Err::<(), _>(error), self.now);
            self.take();
            return;
        }
        self.core.complete(id, Ok(()), self.now);
        self.take();
        self.carry_out(&call, grace);
    }

    /// Answers all calls with success until there is none.
    pub(crate) fn answer_all(&mut self) {
        while !self.calls.is_empty() {
            self.answer(|_| true, None, false);
        }
    }

    fn carry_out(&mut self, call: &ApiCall, grace: bool) {
        let now = self.now;
        let (name, change): (_, Box<dyn Fn(PodBuilder) -> PodBuilder>) = match call.clone() {
            ApiCall::BindPod { pod, node } => {
                (pod.name, Box::new(move |p| p.on(&node).nominated("")))
            }
            ApiCall::PatchPodStatus {
                pod,
                condition,
                nominated_node,
            } => (
                pod.name,
                Box::new(move |p| {
                    let p = match &condition {
                        Some(c) => p.condition(&c.kind, &c.status, &c.reason, &c.message),
                        None => p,
                    };
                    match &nominated_node {
                        Some(node) => p.nominated(node),
                        None => p,
                    }
                }),
            ),
            ApiCall::DeletePod { pod, .. } if !grace => {
                self.deleted(&pod.name);
                return;
            }
            ApiCall::DeletePod { pod, condition: c } => (
                pod.name,
                Box::new(move |p| {
                    p.condition(&c.kind, &c.status, &c.reason, &c.message)
                        .deleting(now)
                }),
            ),
            _ => return,
        };
        if self.pods.contains_key(name.as_str()) {
            self.change(&name, change);
        }
    }

    /// Where a pod is in the queue.
    pub(crate) fn place_of(&self, name: &str) -> Option<QueuedIn> {
        Some(self.core.queue().get("default", name)?.0)
    }

    /// The node to which a pod is nominated.
    pub(crate) fn promised(&self, name: &str) -> String {
        let nominator = self.core.queue().nominator();
        let node = nominator.node_of(&format!("uid-{name}"));
        node.map(ToString::to_string).unwrap_or_default()
    }

    pub(crate) fn metric(&self, metric: Metric, labels: &[&str]) -> f64 {
        self.core.metrics().number(metric, labels)
    }
}

/// A pod with some fields of its spec as JSON has them: affinity, selector, volumes, spread and overhead.
pub(crate) fn with_spec(pod: PodBuilder, fields: &Value) -> PodBuilder {
    let object = json!({"metadata": {"name": "x"}, "spec": fields}).to_string();
    let object = Kind::Pod.decode(object.as_bytes());
    let object = object.unwrap_or_else(|e| panic!("{fields}: {e}"));
    pod.with(|pod| {
        let read = object.as_pod().expect("a pod").spec.clone();
        pod.spec.affinity.clone_from(&read.affinity);
        pod.spec.node_selector.clone_from(&read.node_selector);
        pod.spec.volumes.clone_from(&read.volumes);
        pod.spec.overhead.clone_from(&read.overhead);
        let spread = &read.topology_spread_constraints;
        pod.spec.topology_spread_constraints.clone_from(spread);
    })
}

pub(crate) fn is_deletion(call: &ApiCall) -> bool {
    matches!(call, ApiCall::DeletePod { .. })
}

/// Whether the call writes the status of this pod.
pub(crate) fn is_status_of(name: &str) -> impl Fn(&ApiCall) -> bool {
    let name = name.to_owned();
    move |call| matches!(call, ApiCall::PatchPodStatus { pod, .. } if pod.name == *name)
}
