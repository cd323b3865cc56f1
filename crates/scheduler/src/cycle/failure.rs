//! What becomes of a pod whose attempt has failed (section 5.8).

use super::{Attempt, CycleResult};
use crate::core::{Explanation, LogLevel, Scheduler, reasons};
use crate::evaluator::FitError;
use crate::metrics::Metric;
use crate::queue::QueuedPodInfo;
use berth_api::{Duration, Time};
use berth_framework::call::{ConditionPatch, PodRef};
use berth_framework::plugin::{Context, Nominating};
use berth_framework::{ApiCall, Feature, Status};

/// Why an attempt has failed.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    /// Whether the pod was turned down, rather than something having gone wrong.
    rejected: bool,
    error: Option<Box<FitError>>,
    nominating: Nominating,
}

impl Failure {
    /// The pod fits nowhere.
    pub(crate) fn unfit(error: Box<FitError>, nominating: Nominating) -> Self {
        Self {
            message: error.to_string(),
            rejected: true,
            error: Some(error),
            nominating,
        }
    }

    /// A status that comes without a diagnosis.
    pub(crate) fn of_status(status: &Status, nominating: Nominating) -> Self {
        Self {
            message: status.message(),
            rejected: status.is_rejected(),
            error: None,
            nominating,
        }
    }
}

/// A pod that returns to the queue when its status has been written.
#[derive(Debug)]
pub(crate) struct Returning {
    info: QueuedPodInfo,
}

impl Returning {
    pub(crate) fn is_about(&self, uid: &str) -> bool {
        self.info.pod.uid().as_str() == uid
    }
}

/// What the API shows of a pod whose attempt failed (C-48).
enum Found {
    /// It is still waiting for a node.
    Pending,
    /// It is gone.
    Gone,
    /// It has a node.
    Bound,
    /// Another pod has its name now.
    Replaced,
}

impl Scheduler {
    /// Handles the failure of an attempt: back into the queue, nomination, event, condition.
    pub(crate) fn fail(&mut self, attempt: Attempt, failure: Failure, now: Time) -> CycleResult {
        self.note_calls(now);
        let seconds = attempt.seconds(now, &*self.stopwatch);
        let pod = attempt.pod_ref();
        self.io.take_activations(&pod.uid);
        let Attempt {
            mut info, profile, ..
        } = attempt;
        let (result, reason) = if failure.rejected {
            ("unschedulable", "Unschedulable")
        } else {
            ("error", "SchedulerError")
        };
        let labels = [result, profile.name.as_str()];
        self.metrics.count(Metric::ScheduleAttempts, &labels);
        self.metrics
            .observe(Metric::SchedulingAttemptDuration, &labels, seconds);

        info.clear_rejectors();
        if let Some(error) = &failure.error {
            let diagnosis = &error.diagnosis;
            info.unschedulable_plugins = diagnosis.unschedulable_plugins.iter().cloned().collect();
            info.pending_plugins = diagnosis.pending_plugins.iter().cloned().collect();
        }
        let outcome = if failure.rejected {
            CycleResult::Unschedulable {
                message: failure.message.clone(),
            }
        } else {
            CycleResult::Error {
                message: failure.message.clone(),
            }
        };

        let found = self.look_up(&pod);
        if let Found::Replaced = found {
            self.queue.done(&pod.uid);
            return outcome;
        }
        // Of a bound pod nothing of this is true any more.
        let call = match found {
            Found::Gone | Found::Bound => None,
            _ => self.status_patch(&pod, reason, &failure),
        };
        let waits_for_patch =
            call.is_some() && !self.features.enabled(Feature::SchedulerAsyncAPICalls);
        let mut returning = None;
        match found {
            Found::Pending => {
                self.explain(&info, &failure, now);
                if waits_for_patch {
                    returning = Some(Returning { info });
                } else {
                    self.return_to_queue(Returning { info }, now);
                }
            }
            Found::Gone | Found::Bound => {
                let why = match found {
                    Found::Gone => "Pod is gone and not tried again",
                    _ => "Pod has been assigned to node. Abort adding it back to queue.",
                };
                self.io.log(LogLevel::Info, format!("{why} ({pod})"));
                self.queue.done(&pod.uid);
            }
            Found::Replaced => {}
        }
        if let Some(object) = self.cache.effective(&pod.uid).cloned() {
            let cx = Context {
                now,
                cluster: self.cache.cluster(),
                features: &self.features,
            };
            self.queue
                .add_nominated_pod(&cx, &object, &failure.nominating);
        }
        self.failed_scheduling_event(&pod, &profile, &failure.message);
        if let Some(call) = call {
            let id = self.io.call(call, Duration::ZERO, now);
            if let Some(returning) = returning {
                self.returning.insert(id, returning);
            }
        }
        // While it was being bound here, nothing else could be written.
        let stored = self.cache.stored(&pod.uid);
        if let Some(stored) = stored.filter(|pod| pod.is_assigned()).cloned() {
            self.put_right(&stored, now);
        }
        outcome
    }

    fn look_up(&self, pod: &PodRef) -> Found {
        match self.cache.stored(&pod.uid) {
            Some(stored) if stored.is_assigned() => Found::Bound,
            Some(_) => Found::Pending,
            None => match self.cache.stored_by_name(&pod.namespace, &pod.name) {
                Some(_) => Found::Replaced,
                None => Found::Gone,
            },
        }
    }

    /// Gives a pod back to the queue in its latest version, unless it needs no node any more.
    pub(crate) fn return_to_queue(&mut self, returning: Returning, now: Time) {
        let mut info = returning.info;
        let uid = info.pod.uid().clone();
        let is_pending = self
            .cache
            .stored(&uid)
            .is_some_and(|pod| !pod.is_assigned());
        let Some(pod) = self.cache.effective(&uid).filter(|_| is_pending) else {
            self.queue.done(&uid);
            return;
        };
        info.pod = pod.clone();
        let cx = Context {
            now,
            cluster: self.cache.cluster(),
            features: &self.features,
        };
        if let Err(error) = self.queue.add_unschedulable(&cx, info) {
            self.io.log(LogLevel::Error, error.to_string());
        }
    }

    /// The patch of the pod's status; none when it says all that already (C-50).
    fn status_patch(&self, pod: &PodRef, reason: &str, failure: &Failure) -> Option<ApiCall> {
        let object = self.cache.effective(&pod.uid)?;
        let condition =
            ConditionPatch::of(object, "PodScheduled", "False", reason, &failure.message);
        let said = object.condition("PodScheduled").is_some_and(|c| {
            c.status == condition.status
                && c.reason == condition.reason
                && c.message == condition.message
        });
        let said = said && !self.io.dispatcher.is_status_unclear(&pod.uid);
        let nominated_node = match &failure.nominating {
            Nominating::Set(node) if *node != object.status.nominated_node_name => {
                Some(node.clone())
            }
            _ => None,
        };
        if said && nominated_node.is_none() {
            return None;
        }
        Some(ApiCall::PatchPodStatus {
            pod: pod.clone(),
            condition: (!said).then_some(condition),
            nominated_node,
        })
    }

    fn explain(&mut self, info: &QueuedPodInfo, failure: &Failure, now: Time) {
        let cluster = self.cache.cluster();
        let error = failure.error.as_deref();
        let explanation = Explanation {
            at: now,
            attempts: info.attempts,
            message: failure.message.clone(),
            unschedulable_plugins: info.unschedulable_plugins.iter().cloned().collect(),
            pending_plugins: info.pending_plugins.iter().cloned().collect(),
            reasons: error.map_or_else(Vec::new, |error| reasons(error, cluster)),
        };
        self.explanations.put(info.pod.uid().clone(), explanation);
    }
}
