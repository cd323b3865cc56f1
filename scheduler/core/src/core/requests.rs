//! The requests of plugins during a call: the outbox of one call, and the actions after it.

use super::{Outbound, UnboundPods};
use berth_api::Str;
use berth_dispatcher::CallIds;
use berth_framework::call::{CallId, PodEvent};
use berth_framework::extender::Extenders;
use berth_framework::job::{Job, JobId};
use berth_framework::stage::{Observation, Outbox, Preemption, WaitingPod};
use berth_framework::write::PodEdit;
use berth_framework::{ApiCall, Write};
use berth_telemetry::LogLine;

/// The statement of a plugin about a write that the API does not show yet.
#[derive(Debug)]
pub(crate) enum Assumption {
    /// The object is shown as if it had been made.
    Made(Write),
    /// It will not be made.
    Reverted(Write),
    /// It will not be made, unless it is on its way.
    GivenUp(Write),
}

/// A request for the dispatcher.
#[derive(Debug)]
pub(crate) enum CallRequest {
    /// Passes the call to the dispatcher.
    Make(CallId, ApiCall),
    /// Drops the unsent call that makes the write.
    Cancel(Write),
}

/// The requests of plugins, performed after the call of the plugin returns.
#[derive(Debug)]
pub(crate) struct PluginRequests {
    ids: CallIds,
    calls: Vec<CallRequest>,
    assumptions: Vec<Assumption>,
    /// Pods to activate, as namespace and name, each with the pod whose attempt requested it.
    activations: Vec<(Str, (Str, Str))>,
    /// Preemptions to begin, each with the profile that reports it.
    preemptions: Vec<(Preemption, Str)>,
    observations: Vec<Observation>,
    /// Placed pods by UID, each with an edit with which it counts from now on.
    counted: Vec<(Str, PodEdit)>,
}

impl PluginRequests {
    pub(super) fn new(ids: CallIds) -> Self {
        Self {
            ids,
            calls: Vec::new(),
            assumptions: Vec::new(),
            activations: Vec::new(),
            preemptions: Vec::new(),
            observations: Vec::new(),
            counted: Vec::new(),
        }
    }

    /// Requests a call.
    pub(crate) fn call(&mut self, call: ApiCall) -> CallId {
        let id = self.ids.take();
        self.calls.push(CallRequest::Make(id, call));
        id
    }

    /// Requests that the unsent call that makes a write is dropped.
    pub(crate) fn cancel(&mut self, write: Write) {
        self.calls.push(CallRequest::Cancel(write));
    }

    /// A write that was given up stays assumed for now.
    pub(crate) fn give_up(&mut self, write: Write) {
        self.assumptions.push(Assumption::GivenUp(write));
    }

    /// The requests for the dispatcher, in order. The buffer is kept, because nearly every placed pod requests a call.
    pub(super) fn take_calls(&mut self) -> impl Iterator<Item = CallRequest> {
        self.calls.drain(..)
    }

    /// Placed pods by UID, each with an edit with which it counts from now on.
    pub(crate) fn take_counted(&mut self) -> Vec<(Str, PodEdit)> {
        std::mem::take(&mut self.counted)
    }

    /// The assumptions about objects to make and to end, in order.
    pub(crate) fn take_assumptions(&mut self) -> Vec<Assumption> {
        std::mem::take(&mut self.assumptions)
    }

    /// The pods that the plugins of an attempt want tried. Other attempts go on at the same time, and have their own.
    pub(crate) fn take_activations(&mut self, attempt_of: &Str) -> Vec<(Str, Str)> {
        let taken = self
            .activations
            .extract_if(.., |(uid, _)| uid == attempt_of);
        taken.map(|(_, wanted)| wanted).collect()
    }

    pub(crate) fn take_preemptions(&mut self) -> Vec<(Preemption, Str)> {
        std::mem::take(&mut self.preemptions)
    }

    pub(crate) fn take_observations(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.observations)
    }
}

/// The outbox of one call of a plugin.
pub(super) struct CallOutbox<'a> {
    pub(super) outbound: &'a mut Outbound,
    pub(super) unbound: &'a mut UnboundPods,
    pub(super) requests: &'a mut PluginRequests,
    pub(super) extenders: &'a Extenders,
    /// The reporter of events: the profile of the pod.
    pub(super) reporter: &'a Str,
    /// The pod of the attempt.
    pub(super) attempt_of: &'a Str,
}

impl Outbox for CallOutbox<'_> {
    fn call(&mut self, call: ApiCall) -> CallId {
        self.requests.call(call)
    }

    fn job(&mut self, job: Job) -> JobId {
        self.outbound.start(job)
    }

    fn publish(&mut self, event: PodEvent) {
        self.outbound.publish(event, self.reporter);
    }

    fn assume(&mut self, write: Write) {
        self.requests.assumptions.push(Assumption::Made(write));
    }

    fn revert(&mut self, write: Write) {
        self.requests.assumptions.push(Assumption::Reverted(write));
    }

    fn give_up(&mut self, write: Write) {
        self.requests.assumptions.push(Assumption::GivenUp(write));
    }

    fn count(&mut self, edit: PodEdit) {
        self.requests.counted.push((self.attempt_of.clone(), edit));
    }

    fn activate(&mut self, namespace: &Str, name: &Str) {
        let wanted = (namespace.clone(), name.clone());
        let attempt_of = self.attempt_of.clone();
        self.requests.activations.push((attempt_of, wanted));
    }

    fn waiting_pods(&self) -> Vec<WaitingPod> {
        self.unbound.held()
    }

    fn allow(&mut self, uid: &str, plugin: &str) {
        self.unbound.allow(uid, plugin);
    }

    fn reject(&mut self, uid: &str, plugin: &str, message: &str) -> bool {
        self.unbound.reject(uid, plugin, message)
    }

    fn preempt(&mut self, uid: &str, plugin: &str) -> bool {
        self.unbound.preempt(uid, plugin)
    }

    fn start_preemption(&mut self, preemption: Preemption) {
        let reporter = self.reporter.clone();
        self.requests.preemptions.push((preemption, reporter));
    }

    fn observe(&mut self, observation: Observation) {
        self.requests.observations.push(observation);
    }

    fn log(&mut self, text: String) {
        self.outbound.log.push(LogLine::info(text));
    }

    fn extenders(&self) -> Extenders {
        self.extenders.clone()
    }
}
