//! The requests of stages to the outside, and the waits for their results.

use super::{Core, GroupEvent, Outputs, WaitId, Waiter, event_note};
use berth_api::Str;
use berth_framework::ApiCall;
use berth_framework::call::{CallId, EventKind, PodEvent, PodRef};
use berth_framework::cluster::GroupKey;
use berth_framework::stage::{Job, JobId, Wait};
use berth_profile::Profile;
use berth_telemetry::LogLine;

impl Core {
    /// Waits, and lets a step continue at the end of the wait.
    pub(crate) fn wait(&mut self, waiter: Waiter, wait: Wait) -> WaitId {
        self.waits.add(waiter, wait)
    }

    /// The wait is over, whatever it was for.
    pub(crate) fn end_wait(&mut self, id: WaitId) {
        self.waits.end(id);
    }

    /// Hands a job to the edge.
    pub(crate) fn start_job(&mut self, job: Job) -> JobId {
        self.outbound.start(job)
    }

    /// Hands a call to the dispatcher.
    pub(crate) fn call(&mut self, call: ApiCall) -> CallId {
        self.calls.make(call, self.clock.now())
    }

    /// The outputs, with the calls that may be sent now.
    pub(crate) fn take_outputs(&mut self) -> Outputs {
        let calls = self.calls.dispatcher_mut().next_calls(self.clock.now());
        self.outbound.take(calls)
    }

    /// From now on, the log contains information up to this level.
    pub(crate) fn set_log_verbosity(&mut self, verbosity: u8) {
        self.queue.log_mut().set_verbosity(verbosity);
        self.outbound.log.set_verbosity(verbosity);
    }

    /// Logs what the queue has logged.
    pub(crate) fn take_queue_log(&mut self) {
        self.outbound.log.append(self.queue.log_mut());
    }

    /// Logs an error, a warning or information that is always logged.
    pub(crate) fn log(&mut self, line: LogLine) {
        self.outbound.log.push(line);
    }

    /// Logs information of a level, with the keys that `values` adds.
    #[track_caller]
    pub(crate) fn v(
        &mut self,
        level: u8,
        message: &'static str,
        values: impl FnOnce(LogLine) -> LogLine,
    ) {
        self.outbound.log.v(level, message, values);
    }

    /// Publishes an event of the profile with this scheduler name.
    pub(crate) fn publish(&mut self, event: PodEvent, scheduler: &Str) {
        self.outbound.publish(event, scheduler);
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
        self.outbound.publish(event, &profile.name);
    }

    /// Publishes that a group was not scheduled.
    pub(crate) fn publish_group_failure(&mut self, group: &GroupKey, scheduler: &Str, text: &str) {
        let Some(view) = self.cache.cluster().groups().get(group) else {
            return;
        };
        let event = GroupEvent {
            group: group.clone(),
            uid: view.metadata.uid.clone(),
            kind: EventKind::Warning,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: event_note(text),
            reporting_controller: scheduler.clone(),
        };
        self.outbound.publish_of_group(event);
    }
}
