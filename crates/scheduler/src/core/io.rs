//! What the core wants done outside, and how plugins ask for it.

use super::statuses::OwedStatuses;
use crate::binding::Permits;
use crate::dispatcher::Dispatcher;
use berth_api::{Duration, Str, Time};
use berth_framework::call::{CallId, ObjectName, PodEvent};
use berth_framework::extender::Extenders;
use berth_framework::stage::{Job, JobId, Observation, Outbox, Preemption, WaitingPod};
use berth_framework::{ApiCall, Write};
use std::fmt;

/// How many events and log lines are kept until somebody takes them; further ones are dropped and counted.
const KEPT_MAX: usize = 16 * 1024;

/// An event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub event: PodEvent,
    /// Who says so: the scheduler name of the pod's profile.
    pub reporting_controller: Str,
}

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something broke.
    Error,
    /// Something is odd.
    Warning,
    /// Worth knowing.
    Info,
    /// For who looks closely.
    Debug,
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: LogLevel,
    /// What it says.
    pub message: String,
}

/// What the edge has to do.
#[derive(Default)]
pub struct Outputs {
    /// Calls to send; each is to be answered with [`complete`](crate::Scheduler::complete).
    pub calls: Vec<(CallId, ApiCall)>,
    /// Jobs to run; each is to be answered with [`job_done`](crate::Scheduler::job_done).
    pub jobs: Vec<(JobId, Job)>,
    /// Events to publish.
    pub events: Vec<Event>,
    /// Lines to log.
    pub log: Vec<LogLine>,
    /// How many events and lines were dropped because nobody had taken the earlier ones.
    pub dropped: usize,
}

impl Outputs {
    /// Adds what came later.
    pub(crate) fn append(&mut self, mut later: Self) {
        self.calls.append(&mut later.calls);
        self.jobs.append(&mut later.jobs);
        self.events.append(&mut later.events);
        self.log.append(&mut later.log);
        self.dropped += later.dropped;
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
            && self.jobs.is_empty()
            && self.events.is_empty()
            && self.log.is_empty()
    }
}

impl fmt::Debug for Outputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outputs")
            .field("calls", &self.calls)
            .field("jobs", &self.jobs.len())
            .field("events", &self.events)
            .field("log", &self.log)
            .field("dropped", &self.dropped)
            .finish()
    }
}

/// What a plugin says about a write that the API does not show yet.
#[derive(Debug)]
pub(crate) enum Assumption {
    /// The object is shown as if it had been made.
    Made(Write),
    /// It will not be made.
    TakenBack(Write),
}

/// Everything that goes out of the core, until it is taken.
#[derive(Default)]
pub(crate) struct Io {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) permits: Permits,
    /// Who else is asked.
    pub(crate) extenders: Extenders,
    /// Statuses that the API would not take.
    pub(crate) owed: OwedStatuses,
    /// Pods about which calls were made that the cache has not been told of yet.
    pub(crate) called: Vec<Str>,
    /// Objects about which writes were made.
    pub(crate) called_objects: Vec<ObjectName>,
    /// What is to be assumed of objects, and not any more, in order.
    pub(crate) assumptions: Vec<Assumption>,
    /// Pods that plugins want tried at once, each with the attempt that asks: a pod's UID, namespace and name.
    activations: Vec<(Str, (Str, Str))>,
    /// What is to be begun, each with who reports it.
    pub(crate) preemptions: Vec<(Preemption, Str)>,
    pub(crate) observations: Vec<Observation>,
    next_job: u64,
    jobs: Vec<(JobId, Job)>,
    events: Vec<Event>,
    log: Vec<LogLine>,
    dropped: usize,
}

impl Io {
    pub(crate) fn new(dispatcher: Dispatcher, extenders: Extenders) -> Self {
        Self {
            dispatcher,
            extenders,
            ..Self::default()
        }
    }

    /// Hands a call to the dispatcher.
    pub(crate) fn call(&mut self, call: ApiCall, delay: Duration, now: Time) -> CallId {
        self.owed.called(&call);
        match call.pod() {
            Some(pod) => self.called.push(pod.uid.clone()),
            None => self.called_objects.push(call.object()),
        }
        self.dispatcher.enqueue(call, delay, now)
    }

    pub(crate) fn publish(&mut self, event: PodEvent, reporting_controller: &Str) {
        if self.events.len() >= KEPT_MAX {
            self.dropped += 1;
            return;
        }
        self.events.push(Event {
            event,
            reporting_controller: reporting_controller.clone(),
        });
    }

    pub(crate) fn log(&mut self, level: LogLevel, message: impl Into<String>) {
        if self.log.len() >= KEPT_MAX {
            self.dropped += 1;
            return;
        }
        let message = message.into();
        self.log.push(LogLine { level, message });
    }

    pub(crate) fn take(&mut self, now: Time) -> Outputs {
        Outputs {
            calls: self.dispatcher.next_calls(now),
            jobs: std::mem::take(&mut self.jobs),
            events: std::mem::take(&mut self.events),
            log: std::mem::take(&mut self.log),
            dropped: std::mem::take(&mut self.dropped),
        }
    }

    /// What a plugin of a profile asks for now.
    pub(crate) fn effects<'a>(
        &'a mut self,
        reporting_controller: &'a Str,
        now: Time,
    ) -> Effects<'a> {
        Effects {
            io: self,
            reporting_controller,
            attempt_of: None,
            now,
        }
    }

    /// The pods that the plugins of an attempt want tried. Other attempts go on at the same time, and have their own.
    pub(crate) fn take_activations(&mut self, attempt_of: &Str) -> Vec<(Str, Str)> {
        let taken = self
            .activations
            .extract_if(.., |(uid, _)| uid == attempt_of);
        taken.map(|(_, wanted)| wanted).collect()
    }
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io")
            .field("dispatcher", &self.dispatcher)
            .field("events", &self.events.len())
            .finish_non_exhaustive()
    }
}

/// The outbox of one plugin call.
pub(crate) struct Effects<'a> {
    io: &'a mut Io,
    reporting_controller: &'a Str,
    attempt_of: Option<&'a Str>,
    now: Time,
}

impl<'a> Effects<'a> {
    /// It asks in an attempt of the pod with that UID: what it wants tried is tried when that has gone well.
    pub(crate) fn in_attempt_of(mut self, uid: &'a Str) -> Self {
        self.attempt_of = Some(uid);
        self
    }
}

impl Outbox for Effects<'_> {
    fn call(&mut self, call: ApiCall) -> CallId {
        self.io.call(call, Duration::ZERO, self.now)
    }

    fn job(&mut self, job: Job) -> JobId {
        let id = JobId(self.io.next_job);
        self.io.next_job += 1;
        self.io.jobs.push((id, job));
        id
    }

    fn publish(&mut self, event: PodEvent) {
        self.io.publish(event, self.reporting_controller);
    }

    fn assume(&mut self, write: Write) {
        self.io.assumptions.push(Assumption::Made(write));
    }

    fn take_back(&mut self, write: Write) {
        self.io.assumptions.push(Assumption::TakenBack(write));
    }

    fn activate(&mut self, namespace: &Str, name: &Str) {
        if let Some(uid) = self.attempt_of {
            let wanted = (namespace.clone(), name.clone());
            self.io.activations.push((uid.clone(), wanted));
        }
    }

    fn waiting_pods(&self) -> Vec<WaitingPod> {
        self.io.permits.held()
    }

    fn allow(&mut self, uid: &str, plugin: &str) {
        self.io.permits.allow(uid, plugin);
    }

    fn reject(&mut self, uid: &str, plugin: &str, message: &str) -> bool {
        self.io.permits.reject(uid, plugin, message)
    }

    fn preempt(&mut self, uid: &str, plugin: &str) -> bool {
        self.io.permits.preempt(uid, plugin)
    }

    fn start_preemption(&mut self, preemption: Preemption) {
        let reporter = self.reporting_controller.clone();
        self.io.preemptions.push((preemption, reporter));
    }

    fn observe(&mut self, observation: Observation) {
        self.io.observations.push(observation);
    }

    fn log(&mut self, text: String) {
        self.io.log(LogLevel::Info, text);
    }

    fn extenders(&self) -> Extenders {
        self.io.extenders.clone()
    }
}
