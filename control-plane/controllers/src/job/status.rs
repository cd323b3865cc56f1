//! The status of a Job: its counts, its conditions, and the events about them.

use super::{JobRun, Success, after};
use crate::runtime::{ControllerContext, EventSubject, EventType};
use berth_objects::access::AccessError;
use berth_objects::object::{self, ControllerKey, JOB, new_condition, put_condition, seconds};
use berth_objects::pod;

impl JobRun<'_> {
    /// Writes the status, if it has changed.
    pub(super) fn write(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
    ) -> Result<(), AccessError> {
        self.suspend_or_start();
        let active = self.active().count();
        let terminating = self.terminating();
        let ready = self.active().filter(|p| pod::is_ready(p)).count();
        self.tally.write(&mut self.status);
        self.status["terminating"] = terminating.into();
        self.status["ready"] = ready.into();
        object::set_count(&mut self.status, "active", active);
        self.conclude(active + terminating);
        cx.write_status(JOB, self.job, self.status.clone())?;
        for (event_type, reason, message) in std::mem::take(&mut self.events) {
            cx.event(EventSubject::of(self.job), event_type, reason, message);
        }
        Ok(())
    }

    fn suspend_or_start(&mut self) {
        let was = object::condition(&self.status, "Suspended").map(|c| c["status"] == "True");
        let ended = self.failure.is_some() || self.success.is_some();
        if self.is_suspended() && !ended {
            if was != Some(true) {
                self.condition("Suspended", "True", "JobSuspended", "Job suspended");
                self.events
                    .push((EventType::Normal, "Suspended", "Job suspended".to_owned()));
            }
            if let Some(status) = self.status.as_object_mut() {
                status.remove("startTime");
            }
            return;
        }
        if was == Some(true) && !ended {
            self.condition("Suspended", "False", "JobResumed", "Job resumed");
            self.events
                .push((EventType::Normal, "Resumed", "Job resumed".to_owned()));
        }
        if !self.status["startTime"].is_string() {
            self.status["startTime"] = seconds(self.now);
            if let Some(limit) = self.spec()["activeDeadlineSeconds"].as_i64() {
                self.look_again(after(self.now, limit));
            }
        }
    }

    /// Adds the conditions of the end: first the announced one, then the final one when no pods are left.
    fn conclude(&mut self, left: usize) {
        let done = left == 0 && self.tally.is_settled();
        if let Some(failure) = self.failure.clone() {
            let (reason, message) = (failure.reason.clone(), failure.message.clone());
            self.once("FailureTarget", &reason, &message);
            if done {
                self.once("Failed", &reason, &message);
                self.events
                    .push((EventType::Warning, failure.event_reason(), message));
            }
        } else if let Some(Success { reason, message }) = self.success.clone() {
            self.once("SuccessCriteriaMet", &reason, &message);
            if done {
                self.once("Complete", &reason, &message);
                self.status["completionTime"] = seconds(self.now);
                self.events
                    .push((EventType::Normal, "Completed", "Job completed".to_owned()));
            }
        }
    }

    /// Adds a condition that never changes again.
    fn once(&mut self, kind: &str, reason: &str, message: &str) {
        if object::condition(&self.status, kind).is_none() {
            self.condition(kind, "True", reason, message);
        }
    }

    fn condition(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let mut condition = new_condition(kind, status, reason, message, self.now);
        condition["lastProbeTime"] = seconds(self.now);
        put_condition(&mut self.status, condition);
    }
}
