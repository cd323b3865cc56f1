//! A scheduler in virtual time, and an API server that answers as the test specifies and stores the pods.

use crate::GroupEvent;
use crate::core::ApiEvent;
use crate::trace::AttemptTrace;
use crate::{ClusterChange, CycleResult, ScheduleOutcome, Scheduler, SchedulerOptions};
use berth_api::{Duration, Kind, Object, Pod, Time};
use berth_framework::ApiCall;
use berth_framework::call::{CallError, CallErrorKind, CallId, Response};
use berth_framework::job::{Job, JobId};
use berth_framework::registry::Registry;
use berth_framework::testing::{NodeBuilder, PodBuilder, finished};
use berth_queue::QueuedIn;
use berth_telemetry::LogLine;
use berth_telemetry::metrics::Metric;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub use berth_profile::testing::registered;

/// The time at which a driver begins.
pub const BEGINNING: Time = Time::from_secs(1_000);

/// A scheduler and its surroundings. After each step, the invariants of the scheduler are checked and its outputs
/// are taken.
pub struct Driver {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The time.
    pub now: Time,
    /// The calls that wait for an answer, oldest first.
    pub calls: Vec<(CallId, ApiCall)>,
    /// The jobs that wait to be run, oldest first.
    pub jobs: Vec<(JobId, Job)>,
    /// The events, oldest first.
    pub events: Vec<ApiEvent>,
    /// The events about groups, oldest first.
    pub group_events: Vec<GroupEvent>,
    /// The lines of the log.
    pub log: Vec<LogLine>,
    /// The traced attempts.
    pub traces: Vec<AttemptTrace>,
    /// The pods as the API stores them, by name.
    pub pods: BTreeMap<String, Pod>,
    version: u64,
    /// Whether the watch shows what a call has written before the call is answered.
    pub is_shown_first: bool,
    /// Whether the invariants of the scheduler are checked after each step, which walks the whole queue.
    pub is_checked: bool,
}

impl Driver {
    /// A scheduler with these plugins and options; the seed is 1 unless the options are changed.
    pub fn new(registry: &Registry, change: impl FnOnce(&mut SchedulerOptions)) -> Self {
        let mut options = SchedulerOptions {
            seed: 1,
            ..SchedulerOptions::default()
        };
        change(&mut options);
        let scheduler = Scheduler::new(options, registry, BEGINNING);
        Self {
            scheduler: scheduler.unwrap_or_else(|e| panic!("{e}")),
            now: BEGINNING,
            calls: Vec::new(),
            jobs: Vec::new(),
            events: Vec::new(),
            group_events: Vec::new(),
            log: Vec::new(),
            traces: Vec::new(),
            pods: BTreeMap::new(),
            version: 10,
            is_shown_first: false,
            is_checked: true,
        }
    }

    /// Takes the outputs of the scheduler.
    pub fn take(&mut self) {
        let outputs = self.scheduler.take_outputs(self.now);
        self.calls.extend(outputs.calls);
        self.jobs.extend(outputs.jobs);
        self.events.extend(outputs.events);
        self.group_events.extend(outputs.group_events);
        self.log.extend(outputs.log);
        self.traces.extend(outputs.traces);
        if self.is_checked {
            self.scheduler.check().unwrap_or_else(|e| panic!("{e}"));
        }
    }

    // --- the watch ---------------------------------------------------------------------------------------------

    fn show(&mut self, change: ClusterChange) -> &mut Self {
        self.scheduler.apply(change, self.now);
        self.take();
        self
    }

    /// The watch shows an object.
    pub fn applied(&mut self, object: Object) -> &mut Self {
        self.show(ClusterChange::Applied(object))
    }

    /// The watch shows that an object was deleted.
    pub fn gone(&mut self, object: Object) -> &mut Self {
        self.show(ClusterChange::Deleted(object))
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// The watch shows a node, in a new version.
    pub fn node(&mut self, node: NodeBuilder) -> &mut Self {
        let node = node.version(self.next_version());
        self.applied(node.object())
    }

    /// The watch shows an object of any kind with these fields, in a new version.
    pub fn object(&mut self, kind: Kind, mut fields: Value) -> &mut Self {
        fields["metadata"]["resourceVersion"] = json!(self.next_version().to_string());
        self.applied(decoded(kind, &fields))
    }

    /// The watch shows that such an object was deleted.
    pub fn object_gone(&mut self, kind: Kind, fields: &Value) {
        self.gone(decoded(kind, fields));
    }

    /// Stores a pod in a new version, which the watch shows.
    pub fn pod(&mut self, pod: PodBuilder) -> &mut Self {
        let pod = pod.version(self.next_version()).build();
        self.pods.insert(pod.name().to_string(), pod.clone());
        self.applied(PodBuilder::of(&pod).object())
    }

    /// Changes a stored pod, which the watch shows.
    pub fn change(&mut self, name: &str, change: impl FnOnce(PodBuilder) -> PodBuilder) {
        let pod = change(PodBuilder::of(&self.pods[name]));
        self.pod(pod);
    }

    /// Deletes a stored pod, which the watch shows.
    pub fn deleted(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            self.gone(PodBuilder::of(&pod).object());
        }
    }

    // --- time and attempts ---------------------------------------------------------------------------------

    /// Time passes.
    pub fn advance(&mut self, duration: Duration) -> &mut Self {
        self.now = self.now + duration;
        self.scheduler.tick(self.now);
        self.take();
        self
    }

    /// Time passes, in seconds.
    pub fn wait(&mut self, seconds: u64) -> &mut Self {
        self.advance(Duration::from_secs(seconds))
    }

    /// Tries one pod.
    pub fn schedule(&mut self) -> ScheduleOutcome {
        let outcome = self.scheduler.schedule_one(self.now);
        self.take();
        outcome
    }

    /// Tries one pod. Returns the result in a word, or the message.
    pub fn attempt(&mut self) -> String {
        ended(&self.schedule())
    }

    /// Tries one pod. Returns the pod and the result.
    pub fn attempt_named(&mut self) -> String {
        let outcome = self.schedule();
        let end = ended(&outcome);
        match outcome {
            ScheduleOutcome::Idle { .. }
            | ScheduleOutcome::Parked(_)
            | ScheduleOutcome::Group { .. } => end,
            ScheduleOutcome::Done { pod, result } => match result {
                CycleResult::Placed { .. } | CycleResult::Skipped => format!("{} {end}", pod.name),
                _ => format!("{}: {end}", pod.name),
            },
        }
    }

    /// Tries pods until none is left to try.
    pub fn attempts(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            match self.attempt_named().as_str() {
                "idle" => return all,
                text => all.push(text.to_owned()),
            }
            assert!(all.len() < 100, "it never ends: {all:?}");
        }
    }

    // --- answers -------------------------------------------------------------------------------------------

    /// Runs the oldest job.
    pub fn reply(&mut self) {
        let (id, job) = self.jobs.remove(0);
        self.reply_to(id, job);
    }

    /// Runs a job.
    pub fn reply_to(&mut self, id: JobId, job: Job) {
        self.scheduler.job_done(id, finished(job), self.now);
        self.take();
    }

    /// Ends a call with this result, without performing it.
    pub fn complete(&mut self, id: CallId, result: Result<impl Into<Response>, CallError>) {
        self.scheduler.complete(id, result, self.now);
        self.take();
    }

    /// Answers the oldest call: performs it, or refuses it.
    pub fn answer(&mut self, refusal: Option<&str>) -> ApiCall {
        let refusal = refusal.map(|text| CallError::new(CallErrorKind::Refused, text));
        self.answer_with(|_| true, refusal, false)
    }

    /// Answers the oldest call with an error of this kind.
    pub fn fail(&mut self, kind: CallErrorKind) {
        self.answer_which(|_| true, Some(kind), false);
    }

    /// Answers the oldest call that matches: performs it, or fails. With `grace`, pods are only marked as terminating,
    /// instead of being deleted.
    pub fn answer_which(
        &mut self,
        which: impl Fn(&ApiCall) -> bool,
        failure: Option<CallErrorKind>,
        grace: bool,
    ) {
        let failure = failure.map(|kind| CallError::new(kind, format!("{kind:?}")));
        self.answer_with(which, failure, grace);
    }

    fn answer_with(
        &mut self,
        which: impl Fn(&ApiCall) -> bool,
        failure: Option<CallError>,
        grace: bool,
    ) -> ApiCall {
        let at = self.calls.iter().position(|(_, call)| which(call));
        let (id, call) = self
            .calls
            .remove(at.expect("there is such a call to answer"));
        let is_done = failure.is_none();
        if is_done && self.is_shown_first {
            self.carry_out(&call, grace);
        }
        self.complete(id, failure.map_or(Ok(()), Err));
        if is_done && !self.is_shown_first {
            self.carry_out(&call, grace);
        }
        call
    }

    /// Answers all calls with success until there is none.
    pub fn answer_all(&mut self) -> &mut Self {
        while !self.calls.is_empty() {
            self.answer(None);
        }
        self
    }

    fn carry_out(&mut self, call: &ApiCall, grace: bool) {
        let now = self.now;
        let name = call.object().name.to_string();
        if !self.pods.contains_key(&name) {
            return;
        }
        match call {
            // As the API server does.
            ApiCall::BindPod { node, .. } => self.change(&name, |p| {
                p.on(node)
                    .nominated("")
                    .condition("PodScheduled", "True", "", "")
            }),
            ApiCall::PatchPodStatus {
                conditions,
                nominated_node,
                ..
            } => self.change(&name, |mut p| {
                for c in conditions {
                    p = p.condition(&c.kind, &c.status, &c.reason, &c.message);
                }
                match nominated_node {
                    Some(node) => p.nominated(node),
                    None => p,
                }
            }),
            ApiCall::DeletePod { condition: c, .. } if grace => self.change(&name, |p| {
                p.condition(&c.kind, &c.status, &c.reason, &c.message)
                    .deleting(now)
            }),
            ApiCall::DeletePod { .. } => self.deleted(&name),
            ApiCall::ClearPreEnqueueStatus { .. } | ApiCall::Write(_) => {}
        }
    }

    // --- results -----------------------------------------------------------------------------------------------

    /// The pods whose deletion waits for an answer.
    pub fn deletions(&self) -> Vec<String> {
        let calls = self.calls.iter().filter_map(|(_, call)| match call {
            ApiCall::DeletePod { pod, .. } => Some(pod.name.to_string()),
            _ => None,
        });
        calls.collect()
    }

    /// The events since the last call: reason and note.
    pub fn take_events(&mut self) -> Vec<String> {
        let events = std::mem::take(&mut self.events).into_iter();
        let texts = events.map(|e| format!("{} {}", e.event.reason, e.event.note));
        texts.collect()
    }

    /// The place of a pod in the queue.
    pub fn place_of(&self, name: &str) -> Option<QueuedIn> {
        Some(self.scheduler.queue().get("default", name)?.0)
    }

    /// The node to which a pod is nominated; empty if there is none.
    pub fn nominated(&self, name: &str) -> String {
        let nominator = self.scheduler.queue().nominator();
        let node = nominator.node_of(&format!("uid-{name}"));
        node.map(ToString::to_string).unwrap_or_default()
    }

    /// A metric without buckets.
    pub fn metric(&self, metric: Metric, labels: &[&str]) -> f64 {
        self.scheduler.metrics().number(metric, labels)
    }
}

fn ended(outcome: &ScheduleOutcome) -> String {
    match outcome {
        ScheduleOutcome::Idle { .. } => "idle".to_owned(),
        ScheduleOutcome::Parked(_) => "parked".to_owned(),
        ScheduleOutcome::Group { group, pods } => {
            let pods = pods
                .iter()
                .map(|(pod, result)| format!("{} {}", pod.name, in_a_word(result)));
            let pods: Vec<String> = pods.collect();
            format!("{}: {}", group.name, pods.join(", "))
        }
        ScheduleOutcome::Done { result, .. } => match result {
            CycleResult::Placed { node } => format!("on {node}"),
            CycleResult::Unschedulable { message } => message.clone(),
            CycleResult::Error { message } => format!("error: {message}"),
            CycleResult::Skipped => "skipped".to_owned(),
        },
    }
}

fn in_a_word(result: &CycleResult) -> String {
    match result {
        CycleResult::Placed { node } => format!("on {node}"),
        CycleResult::Unschedulable { .. } => "unschedulable".to_owned(),
        CycleResult::Error { .. } => "error".to_owned(),
        CycleResult::Skipped => "skipped".to_owned(),
    }
}

fn decoded(kind: Kind, fields: &Value) -> Object {
    let object = kind.decode(fields.to_string().as_bytes());
    object.unwrap_or_else(|e| panic!("{kind:?} {fields}: {e}"))
}
