//! The work outside of the core: jobs, events and log lines, until the edge takes them.

use super::event_note;
use crate::trace::{AttemptTrace, TracedPoint, Traces};
use berth_api::Str;
use berth_framework::ApiCall;
use berth_framework::call::{CallId, EventKind, PodEvent, PodRef};
use berth_framework::cluster::GroupKey;
use berth_framework::job::{Job, JobId};
use berth_profile::Profile;
use berth_telemetry::{Log, LogLine};
use std::fmt;

/// The number of events kept until the edge takes them; further ones are dropped and counted.
const EVENTS_MAX: usize = 16 * 1024;

/// An event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiEvent {
    /// The event.
    pub event: PodEvent,
    /// The component that reports it: the scheduler name of the pod's profile.
    pub reporting_controller: Str,
}

/// An event about a group of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupEvent {
    /// The group.
    pub group: GroupKey,
    /// Its identity.
    pub uid: Str,
    /// The type.
    pub kind: EventKind,
    /// The reason, such as `FailedScheduling`.
    pub reason: &'static str,
    /// The action, such as `Scheduling`.
    pub action: &'static str,
    /// The note.
    pub note: String,
    /// The component that reports it: the scheduler name of the pods of the group.
    pub reporting_controller: Str,
}

/// The work of the edge.
#[derive(Default)]
pub struct Outputs {
    /// Calls to send; each is to be answered with [`complete`](crate::Scheduler::complete).
    pub calls: Vec<(CallId, ApiCall)>,
    /// Jobs to run; each is to be answered with [`job_done`](crate::Scheduler::job_done).
    pub jobs: Vec<(JobId, Job)>,
    /// Events to publish.
    pub events: Vec<ApiEvent>,
    /// Events about groups to publish.
    pub group_events: Vec<GroupEvent>,
    /// Lines to log.
    pub log: Vec<LogLine>,
    /// Traces of ended attempts, if tracing is enabled.
    pub traces: Vec<AttemptTrace>,
    /// The number of events and lines that were dropped because the edge had not taken the earlier ones.
    pub dropped: usize,
}

impl Outputs {
    /// Appends later outputs.
    pub(crate) fn append(&mut self, mut later: Self) {
        self.calls.append(&mut later.calls);
        self.jobs.append(&mut later.jobs);
        self.events.append(&mut later.events);
        self.group_events.append(&mut later.group_events);
        self.log.append(&mut later.log);
        self.traces.append(&mut later.traces);
        self.dropped += later.dropped;
    }

    /// Returns whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
            && self.jobs.is_empty()
            && self.events.is_empty()
            && self.group_events.is_empty()
            && self.log.is_empty()
            && self.traces.is_empty()
    }
}

impl fmt::Debug for Outputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outputs")
            .field("calls", &self.calls)
            .field("jobs", &self.jobs.len())
            .field("events", &self.events)
            .field("group_events", &self.group_events)
            .field("log", &self.log)
            .field("traces", &self.traces)
            .field("dropped", &self.dropped)
            .finish()
    }
}

/// The work outside of the core, until it is taken.
#[derive(Default)]
pub(crate) struct Outbound {
    next_job: u64,
    jobs: Vec<(JobId, Job)>,
    events: Vec<ApiEvent>,
    group_events: Vec<GroupEvent>,
    pub(crate) log: Log,
    pub(super) traces: Traces,
    dropped: usize,
}

impl Outbound {
    /// Enables traces of attempts.
    pub(crate) fn trace_attempts(&mut self) {
        self.traces.switch_on();
    }

    /// The buffer for the points of a new attempt; `None` while traces are disabled.
    pub(crate) fn begin_trace(&self) -> Option<Vec<TracedPoint>> {
        self.traces.begin()
    }

    /// Hands a job to the edge.
    pub(crate) fn start(&mut self, job: Job) -> JobId {
        let id = JobId(self.next_job);
        self.next_job += 1;
        self.jobs.push((id, job));
        id
    }

    pub(crate) fn publish(&mut self, event: PodEvent, reporting_controller: &Str) {
        if self.events.len() >= EVENTS_MAX {
            self.dropped += 1;
            return;
        }
        self.events.push(ApiEvent {
            event,
            reporting_controller: reporting_controller.clone(),
        });
    }

    /// Publishes that a pod was not scheduled.
    pub(crate) fn publish_failure(&mut self, pod: &PodRef, profile: &Profile, message: &str) {
        let event = PodEvent {
            regarding: pod.clone(),
            related: None,
            kind: EventKind::Warning,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: event_note(message),
        };
        self.publish(event, &profile.name);
    }

    pub(crate) fn publish_of_group(&mut self, event: GroupEvent) {
        if self.group_events.len() >= EVENTS_MAX {
            self.dropped += 1;
            return;
        }
        self.group_events.push(event);
    }

    /// All outputs, with the calls to send.
    pub(crate) fn take(&mut self, calls: Vec<(CallId, ApiCall)>) -> Outputs {
        let (traces, lost) = self.traces.take();
        if lost > 0 {
            let line = LogLine::warning("traces of attempts were dropped: too many at once");
            self.log.push(line.with("traces", lost));
        }
        if self.log.is_on(3) {
            for (_, call) in &calls {
                log_call(&mut self.log, call);
            }
        }
        let (log, dropped) = self.log.take();
        Outputs {
            calls,
            jobs: std::mem::take(&mut self.jobs),
            events: std::mem::take(&mut self.events),
            group_events: std::mem::take(&mut self.group_events),
            log,
            traces,
            dropped: std::mem::take(&mut self.dropped) + dropped,
        }
    }
}

/// Logs a call that is sent.
fn log_call(log: &mut Log, call: &ApiCall) {
    match call {
        ApiCall::BindPod { pod, node } => log.v(3, "Attempting to bind pod to node", |line| {
            line.with("pod", pod).with("node", node)
        }),
        ApiCall::PatchPodStatus {
            pod, conditions, ..
        } => {
            for condition in conditions {
                log.v(3, "Updating pod condition", |line| {
                    line.with("pod", pod)
                        .with("conditionType", &condition.kind)
                        .with("conditionStatus", &condition.status)
                        .with("conditionReason", &condition.reason)
                });
            }
        }
        _ => {}
    }
}
