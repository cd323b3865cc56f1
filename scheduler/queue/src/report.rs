//! The reports of the queue to the writer of pod statuses: the pods that PreEnqueue plugins have rejected or admitted
//! (KEP-5501; ).
//!
//! The queue reports the current state, and only for pods whose status can differ. `pod_status` decides whether and
//! when to write.

use super::entry::{Gate, QueuedPodInfo};
use berth_api::{Pod, Str, Time};
use berth_framework::condition::{NOT_READY_FOR_SCHEDULING, POD_SCHEDULED, is_report};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The report of PreEnqueue plugins about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreEnqueueReport {
    /// A plugin rejects the pod.
    Rejected {
        /// The pod.
        pod: Arc<Pod>,
        /// The plugin.
        plugin: Str,
        /// The reason of the condition; see
        /// [`PreEnqueue::condition_reason`](berth_framework::plugin::PreEnqueue::condition_reason).
        reason: &'static str,
        /// Its message.
        message: Str,
        /// Whether the rejection belongs to a completed attempt; see
        /// [`PreEnqueue::follows_attempt`](berth_framework::plugin::PreEnqueue::follows_attempt).
        follows_attempt: bool,
    },
    /// Every plugin admits the pod.
    Passed {
        /// The pod.
        pod: Arc<Pod>,
    },
}

impl PreEnqueueReport {
    /// The pod that the report is about.
    pub fn pod(&self) -> &Arc<Pod> {
        match self {
            Self::Rejected { pod, .. } | Self::Passed { pod } => pod,
        }
    }

    /// The reason of the condition to write; `None` if it must be cleared. A rejection by SchedulingGates keeps the API
    /// server's reason.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Rejected { reason, .. } => Some(reason),
            Self::Passed { .. } => None,
        }
    }
}

/// The latest pending report of a pod.
#[derive(Debug)]
struct WaitingReport {
    place: u64,
    report: PreEnqueueReport,
    since: Time,
    /// Whether the pod was admitted before the rejection; the admission is reported first.
    had_passed: bool,
}

/// The pending reports.
#[derive(Debug, Default)]
pub(super) struct Reports {
    by_uid: FxHashMap<Str, WaitingReport>,
    /// The pods in the order in which they were first reported.
    line: BTreeMap<u64, Str>,
    next: u64,
}

impl Reports {
    fn put(&mut self, report: PreEnqueueReport, now: Time) {
        let uid = report.pod().uid().clone();
        let Some(waiting) = self.by_uid.get_mut(&uid) else {
            let waiting = WaitingReport {
                place: self.next,
                report,
                since: now,
                had_passed: false,
            };
            self.line.insert(self.next, uid.clone());
            self.by_uid.insert(uid, waiting);
            self.next += 1;
            return;
        };
        // The delay of a report counts from the rejection, which an admission ended.
        if waiting.report.reason().is_none() && report.reason().is_some() {
            waiting.since = now;
            waiting.had_passed = true;
        }
        waiting.report = report;
    }

    /// A plugin rejects the pod. No report if the pod's status states it and no other report is pending.
    pub(super) fn rejected(
        &mut self,
        pod: &Arc<Pod>,
        before: Option<&Gate>,
        gate: &Gate,
        now: Time,
    ) {
        let is_as_before = before == Some(gate);
        if is_as_before && statement(pod, gate) && !self.by_uid.contains_key(pod.uid()) {
            return;
        }
        let report = PreEnqueueReport::Rejected {
            pod: pod.clone(),
            plugin: gate.plugin.clone(),
            reason: gate.reason,
            message: gate.message.clone(),
            follows_attempt: gate.follows_attempt,
        };
        self.put(report, now);
    }

    /// Every plugin admits the pod. No report for a pod without a previous rejection in the queue or in its status.
    pub(super) fn passed(&mut self, pod: &Arc<Pod>, before: Option<&Gate>, now: Time) {
        let condition = pod.condition(POD_SCHEDULED);
        let states_rejected = condition.is_some_and(|c| c.reason == NOT_READY_FOR_SCHEDULING);
        if before.is_some() || states_rejected {
            self.put(PreEnqueueReport::Passed { pod: pod.clone() }, now);
        }
    }

    /// The status of a rejected pod has changed: the condition was removed, or has other content, for example from
    /// another scheduler that led before. The rejection is reported again.
    pub(super) fn shown(&mut self, info: &QueuedPodInfo, new: &Arc<Pod>, now: Time) {
        let Some(gate) = info.own.gate.as_ref() else {
            return;
        };
        let (before, after) = (
            info.pod.condition(POD_SCHEDULED),
            new.condition(POD_SCHEDULED),
        );
        let is_lost = match after {
            None => before.is_some(),
            Some(_) => !statement(new, gate),
        };
        if info.pod.uid() == new.uid() && before != after && is_lost {
            self.rejected(new, None, gate, now);
        }
    }

    /// The pod was deleted.
    pub(super) fn forget(&mut self, uid: &str) {
        if let Some(waiting) = self.by_uid.remove(uid) {
            self.line.remove(&waiting.place);
        }
    }

    /// The oldest pending report, with the time of the rejection or admission.
    pub(super) fn take_next(&mut self) -> Option<(PreEnqueueReport, Time)> {
        let first = self.line.first_entry()?;
        let waiting = self.by_uid.get_mut(first.get())?;
        if std::mem::take(&mut waiting.had_passed)
            && let PreEnqueueReport::Rejected { pod, .. } = &waiting.report
        {
            let passed = PreEnqueueReport::Passed { pod: pod.clone() };
            return Some((passed, waiting.since));
        }
        let waiting = self.by_uid.remove(&first.remove())?;
        Some((waiting.report, waiting.since))
    }
}

/// Returns whether the pod's condition states the message of the plugin.
fn statement(pod: &Pod, gate: &Gate) -> bool {
    pod.condition(POD_SCHEDULED)
        .is_some_and(|c| is_report(&c.reason) && c.message == gate.message)
}
