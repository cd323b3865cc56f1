//! The parts of the scheduler that all stages use: the cluster, the queue, the calls, the waits, the outputs.
//!
//! Each part owns its fields and is changed through its methods alone. The stages are modules of functions that get the
//! [`Core`]: [`pod_status`](crate::pod_status), [`nominations`](crate::nominations), [`cycle`](crate::cycle),
//! [`preemptions`](crate::preemptions), [`binding`](crate::binding), [`failure`](crate::failure).
//! [`Scheduler`](crate::Scheduler) takes inputs and calls one stage after the other.

mod calls;
mod clock;
mod decisions;
mod explain;
mod gates;
mod measure;
mod outbound;
mod plugin_run;
mod progress;
mod requests;
mod text;
mod trace;
mod waits;

pub use decisions::{DECISIONS_MAX, PodDecision};
pub use explain::{EarlierAttempt, Explanation, RejectionReason};
pub use gates::GateRemovals;
pub use outbound::{ApiEvent, GroupEvent, Outputs};
pub use progress::{Progress, RunningPreemption};
pub use trace::{AttemptTrace, TracedPoint};

pub(crate) use calls::{CallObject, Calls};
pub(crate) use clock::{CoreClock, Moment};
pub(crate) use decisions::SearchBegin;
pub(crate) use explain::{Explanations, reasons};
pub(crate) use outbound::Outbound;
pub(crate) use plugin_run::{Answered, PointRun, Ran};
pub(crate) use requests::{Assumption, PluginRequests};
pub(crate) use text::{event_note, go_duration};
pub(crate) use waits::{WaitId, Waiter, Waits};

use crate::binding::UnboundPods;
use crate::broken_groups::BrokenGroups;
use crate::cache::Cache;
use crate::cycle::Attempt;
use crate::dispatcher::Dispatcher;
use crate::evaluator::{Evaluator, EvaluatorKind};
use crate::log::LogLine;
use crate::metrics::Metrics;
use crate::preemptions::OpenPreemptions;
use crate::profile::{Profile, Profiles};
use crate::queue::SchedulingQueue;
use berth_api::{Object, Pod, Str, Time};
use berth_framework::call::{CallId, EventKind, PodEvent, PodRef};
use berth_framework::cluster::GroupKey;
use berth_framework::event::Change;
use berth_framework::extender::Extenders;
use berth_framework::plugin::Context;
use berth_framework::{ActionType, ApiCall, ClusterEvent, EventResource, Feature, FeatureGates};
use std::sync::Arc;

/// A pod is not on its node any more.
pub(crate) const ASSIGNED_POD_DELETE: ClusterEvent =
    ClusterEvent::new(EventResource::AssignedPod, ActionType::DELETE);

/// The settings, which do not change while the scheduler runs.
pub(crate) struct Settings {
    pub(crate) features: FeatureGates,
    pub(crate) profiles: Profiles,
    /// For profiles that do not set their own; see
    /// [`ProfileSpec::percentage_of_nodes_to_score`](crate::profile::ProfileSpec).
    pub(crate) percentage_of_nodes_to_score: Option<i32>,
    pub(crate) evaluator: EvaluatorKind,
    pub(crate) extenders: Extenders,
    /// The profiles for pods with a node that wait for a resize, if preemption for them is on.
    pub(crate) resizes: Option<Profiles>,
}

impl Settings {
    pub(crate) fn is_on(&self, feature: Feature) -> bool {
        self.features.enabled(feature)
    }

    /// Returns whether one of the profiles schedules the pod.
    pub(crate) fn is_responsible(&self, pod: &Pod) -> bool {
        self.profiles.get(&pod.spec.scheduler_name).is_some()
    }

    /// Returns whether the pod has a node and is in the queue all the same, because it waits for a resize.
    pub(crate) fn makes_room_for_resize(&self, pod: &Pod) -> bool {
        let profiles = self.resizes.as_ref();
        let is_ours = profiles.is_some_and(|p| p.get(&pod.spec.scheduler_name).is_some());
        is_ours && pod.has_deferred_resize() && !pod.is_terminating() && !pod.is_terminal()
    }
}

/// The parts.
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) clock: CoreClock,
    pub(crate) metrics: Metrics,
    pub(crate) cache: Cache,
    pub(crate) queue: SchedulingQueue,
    pub(crate) calls: Calls,
    pub(crate) waits: Waits,
    pub(crate) outbound: Outbound,
    pub(crate) unbound: UnboundPods,
    pub(crate) requests: PluginRequests,
    pub(crate) preemptions: OpenPreemptions,
    pub(crate) broken_groups: BrokenGroups,
    pub(crate) explanations: Explanations,
}

impl Core {
    pub(crate) fn new(
        settings: Settings,
        clock: CoreClock,
        queue: SchedulingQueue,
        dispatcher: Dispatcher,
    ) -> Self {
        let mut cache = Cache::default();
        cache.cluster_mut().follow(&settings.features);
        let schedulers = settings.profiles.iter().map(|profile| profile.name.clone());
        cache
            .cluster_mut()
            .pods
            .count_members_of(schedulers.collect());
        Self {
            settings,
            clock,
            metrics: Metrics::default(),
            cache,
            queue,
            calls: Calls::new(dispatcher),
            waits: Waits::default(),
            outbound: Outbound::default(),
            unbound: UnboundPods::default(),
            requests: PluginRequests::default(),
            preemptions: OpenPreemptions::default(),
            broken_groups: BrokenGroups::default(),
            explanations: Explanations::default(),
        }
    }

    /// The time of the step.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The queue, with what its plugins may read.
    pub(crate) fn queue(&mut self) -> (&mut SchedulingQueue, Context<'_>) {
        let cx = Context {
            now: self.clock.now(),
            cluster: self.cache.cluster(),
            features: &self.settings.features,
            work: None,
        };
        (&mut self.queue, cx)
    }

    /// The evaluator for the pod of an attempt.
    pub(crate) fn evaluator<'a>(&'a mut self, attempt: &'a mut Attempt) -> Evaluator<'a> {
        Evaluator {
            profile: &attempt.profile,
            features: &self.settings.features,
            now: self.clock.now(),
            cluster: self.cache.cluster_mut(),
            nominated: self.queue.nominator(),
            pod: &attempt.pod,
            evaluation: &mut attempt.evaluation,
            work: Some(&attempt.work),
            stopwatch: self.clock.laps(),
        }
    }

    // --- what wakes a pod ----------------------------------------------------------------------------------

    /// Wakes the pods that an event may help.
    pub(crate) fn move_all(
        &mut self,
        event: &ClusterEvent,
        old: Option<&Object>,
        new: Option<&Object>,
        pre_check: Option<&dyn Fn(&Pod) -> bool>,
    ) {
        let (queue, cx) = self.queue();
        queue.move_all(&cx, event, Change { old, new }, pre_check);
    }

    /// A placed pod does not need its node any more: pods that wait for room are retried (C-52).
    pub(crate) fn placement_freed(
        &mut self,
        pod: &Arc<Pod>,
        pre_check: Option<&dyn Fn(&Pod) -> bool>,
    ) {
        let old = Object::Pod(pod.clone());
        self.move_all(&ASSIGNED_POD_DELETE, Some(&old), None, pre_check);
    }

    /// Tries pods at once, whatever they wait for.
    pub(crate) fn activate(&mut self, pods: &[Arc<Pod>]) {
        let (queue, cx) = self.queue();
        queue.activate(&cx, pods);
    }

    /// Makes the pods active that the plugins of an attempt asked for, as that attempt has succeeded so far (F-23).
    pub(crate) fn activate_wanted(&mut self, attempt_of: &Str) {
        let wanted = self.requests.take_activations(attempt_of);
        if wanted.is_empty() {
            return;
        }
        let pods: Vec<Arc<Pod>> = wanted
            .iter()
            .filter_map(|(namespace, name)| self.cache.stored_by_name(namespace, name))
            .filter_map(|pod| self.cache.effective(pod.uid()).cloned())
            .collect();
        self.activate(&pods);
    }

    // --- outside -------------------------------------------------------------------------------------------

    /// Hands a call to the dispatcher.
    pub(crate) fn call(&mut self, call: ApiCall) -> CallId {
        self.calls.make(call, self.clock.now())
    }

    /// The outputs, with the calls that may be sent now.
    pub(crate) fn take_outputs(&mut self) -> Outputs {
        let calls = self.calls.dispatcher_mut().next_calls(self.clock.now());
        self.outbound.take(calls)
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
