//! What happens around the steps: calls and their ends, the reports and notices of the queue.

use super::Scheduler;
use super::io::LogLevel;
use super::postponed::Postponed;
use crate::dispatcher::Finished;
use crate::metrics::Metric;
use crate::queue::{NOT_READY_FOR_SCHEDULING, Notice, PreEnqueueReport, SCHEDULING_GATED};
use berth_api::{Duration, Str, Time};
use berth_framework::ApiCall;
use berth_framework::call::{CallErrorKind, ConditionPatch, EventKind, PodEvent, PodRef};
use berth_framework::stage::WakeReason;

/// How long a report of PreEnqueue is held back: most gates open within it (KEP-5501).
const REPORT_DELAY: Duration = Duration::from_secs(5);

impl Scheduler {
    /// From now on everybody sees the pods as if the calls had succeeded.
    pub(crate) fn note_calls(&mut self, now: Time) {
        self.start_preemptions(now);
        self.note_assumptions(now);
        for uid in std::mem::take(&mut self.io.called) {
            if let Some(stored) = self.cache.stored(&uid) {
                self.io.dispatcher.sync(stored, now);
            }
            self.show_writes(&uid, now);
        }
    }

    /// A call has ended: whoever waits for it goes on.
    pub(super) fn call_finished(&mut self, finished: Finished, now: Time) {
        let (for_waiter, is_done) = (finished.for_waiter(), finished.is_done());
        if let Some(pod) = finished.call.pod() {
            self.show_writes(&pod.uid, now);
        }
        self.eviction_ended(&finished, now);
        self.io.owed.ended(&finished.call, &finished.result);
        if let Some(pod) = finished.call.pod() {
            self.make_postponed(&pod.uid, now);
        }
        let Finished {
            id,
            call,
            result,
            took,
            carried_on_by,
        } = finished;
        if let Some(took) = took {
            let labels = [
                call.call_type().name(),
                if is_done { "success" } else { "error" },
            ];
            self.metrics.count(Metric::AsyncApiCallExecutions, &labels);
            let seconds = took.as_secs_f64();
            self.metrics
                .observe(Metric::AsyncApiCallDuration, &labels, seconds);
        }
        if let Some(waiter) = self.waits.by_call(id) {
            self.wake(waiter, WakeReason::Call(for_waiter), now);
            return;
        }
        let reported = self.reporting.remove(&id);
        if let (Some(pod), Some(by)) = (&reported, carried_on_by) {
            // The newer call carries the report on; if that one fails, the report has failed.
            self.reporting.insert(by, pod.clone());
        }
        if result.is_ok() && reported.is_some() {
            self.publish_report(&call);
        }
        if let Err(error) = &result
            && !error.kind.is_dropped()
            && !is_done
        {
            let level = match error.kind {
                // The pod went, or is another one by now: there is nothing left to write.
                CallErrorKind::NotFound | CallErrorKind::Conflict => LogLevel::Debug,
                _ => LogLevel::Error,
            };
            self.io.log(
                level,
                match call.pod() {
                    Some(pod) => {
                        format!(
                            "Error updating pod {pod} ({}): {error}",
                            call.call_type().name()
                        )
                    }
                    None => format!("Error updating {}: {error}", call.object()),
                },
            );
            if let Some(pod) = reported {
                self.queue.pre_enqueue_report_failed(&pod);
            }
            if matches!(
                error.kind,
                CallErrorKind::Unavailable | CallErrorKind::Timeout | CallErrorKind::Conflict
            ) {
                self.io.owed.owe(&call, now);
            }
        }
        if let Some(returning) = self.returning.remove(&id) {
            self.return_to_queue(returning, now);
        }
    }

    /// A report has been written into the pod's status: an event tells the same. It is not published before,
    /// so that a rejection that passes in time writes nothing at all.
    fn publish_report(&mut self, call: &ApiCall) {
        let ApiCall::PatchPodStatus {
            pod,
            condition: Some(condition),
            ..
        } = call
        else {
            return;
        };
        // A cycle may have had its say meanwhile, and has published that itself.
        let reason = match condition.reason.as_str() {
            NOT_READY_FOR_SCHEDULING => NOT_READY_FOR_SCHEDULING,
            SCHEDULING_GATED => SCHEDULING_GATED,
            _ => return,
        };
        let Some(stored) = self.cache.stored(&pod.uid) else {
            return;
        };
        let event = PodEvent {
            regarding: pod.clone(),
            related: None,
            kind: EventKind::Warning,
            reason,
            action: "Scheduling",
            note: super::text::note(&condition.message),
        };
        self.io.publish(event, &stored.spec.scheduler_name);
    }

    /// Tells users what PreEnqueue plugins say of pods (KEP-5501). Returns whether there was something to tell.
    pub(super) fn report_pre_enqueue(&mut self, now: Time) -> bool {
        let reports = self.queue.take_pre_enqueue_reports();
        let mut any = !reports.is_empty();
        for report in reports {
            let (uid, due) = (report.pod().uid(), now + REPORT_DELAY);
            let status_first = self.io.dispatcher.has_prompt_status_patch(uid);
            if status_first || self.postponed.contains(uid) {
                self.postponed.add(report, due);
            } else if !self.takes_reports() {
                self.postponed.add_to_line(report, due);
            } else {
                self.report(&report, REPORT_DELAY, now);
            }
        }
        while self.takes_reports()
            && let Some(uid) = self.postponed.next_in_line()
        {
            any = true;
            self.make_postponed(&uid, now);
        }
        any
    }

    /// Whether there is room for one more report. Those that the API would not take count, as they are repeated.
    fn takes_reports(&self) -> bool {
        self.io.dispatcher.takes_delayed() && self.io.owed.has_room()
    }

    /// A call about the pod has ended: the report that waited for it can be made.
    fn make_postponed(&mut self, uid: &Str, now: Time) {
        if self.postponed.is_empty() || self.io.dispatcher.has_prompt_status_patch(uid) {
            return;
        }
        let Some(Postponed { report, due }) = self.postponed.take(uid) else {
            return;
        };
        if !self.takes_reports() {
            self.postponed.add_to_line(report, due);
            return;
        }
        if self.cache.stored(uid).is_some_and(|p| !p.is_assigned()) {
            let delay = if due > now {
                due.since(now)
            } else {
                Duration::ZERO
            };
            self.report(&report, delay, now);
        }
    }

    /// Hands a report to the dispatcher.
    fn report(&mut self, report: &PreEnqueueReport, delay: Duration, now: Time) {
        let pod = PodRef::of(report.pod());
        let call = match report {
            PreEnqueueReport::Rejected {
                pod: object,
                message,
                ..
            } => ApiCall::PatchPodStatus {
                pod: pod.clone(),
                condition: Some(ConditionPatch::of(
                    object,
                    "PodScheduled",
                    "False",
                    report.reason().unwrap_or(NOT_READY_FOR_SCHEDULING),
                    message,
                )),
                nominated_node: None,
            },
            PreEnqueueReport::Passed { .. } => ApiCall::ClearPreEnqueueStatus {
                pod: pod.clone(),
                nominated_node: None,
            },
        };
        let id = self.io.call(call, delay, now);
        self.reporting.insert(id, pod);
    }

    /// Whether the log is to tell what happens all the time, at [`LogLevel::Debug`]. It does not unless asked to: most
    /// of the lines would be thrown away.
    pub fn tell_details(&mut self, details: bool) {
        self.queue.tell_details(details);
    }

    /// Passes what the queue has to say on to the log.
    pub(super) fn pass_on_notices(&mut self) {
        let (notices, dropped) = self.queue.take_notices();
        for notice in notices {
            let level = match notice {
                Notice::NoProfile { .. } | Notice::EventLogCollapsed { .. } => LogLevel::Warning,
                Notice::Narrowed { .. } => LogLevel::Debug,
                _ => LogLevel::Error,
            };
            self.io.log(level, notice.to_string());
        }
        if dropped > 0 {
            let text = format!("{dropped} further notices of the scheduling queue were dropped");
            self.io.log(LogLevel::Warning, text);
        }
    }
}
