//! The ways from a stage to the parts: to look at them, and to change them.
//!
//! **Architecture invariant:** at most four files outside of `core` get a part to change it, and at most four to read it. A
//! test of the workspace checks that. The one exception is the cluster as plugins see it, which nearly every stage reads.
//! Questions and changes of more stages are methods of [`Core`] beside this file.

use super::{Calls, Core, CoreClock, Explanations, PluginRequests, Settings, Waits};
use crate::attempt::Attempt;
use crate::binding::UnboundPods;
use crate::broken_groups::BrokenGroups;
use crate::cache::Cache;
use crate::evaluator::{Evaluation, Evaluator};
use crate::preemptions::OpenPreemptions;
use berth_api::Time;
use berth_framework::plugin::Context;
use berth_framework::{Cluster, PodInfo, Work};
use berth_profile::Profile;
use berth_queue::{Nominator, SchedulingQueue};
use std::sync::Arc;

impl Core {
    // --- to look at ----------------------------------------------------------------------------------------

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The time of the step.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The cluster with the pods on their nodes, as far as they are known or assumed.
    pub(crate) fn cluster(&self) -> &Cluster {
        self.cache.cluster()
    }

    pub(crate) fn queue(&self) -> &SchedulingQueue {
        &self.queue
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    pub(crate) fn unbound(&self) -> &UnboundPods {
        &self.unbound
    }

    /// Returns whether the pod was placed and is not bound yet.
    pub(crate) fn is_being_bound(&self, uid: &str) -> bool {
        self.unbound.contains(uid)
    }

    /// Returns whether it is unknown what the status of the pod states.
    pub(crate) fn is_status_unclear(&self, uid: &str) -> bool {
        self.calls.dispatcher().is_status_unclear(uid)
    }

    pub(crate) fn preemptions(&self) -> &OpenPreemptions {
        &self.preemptions
    }

    pub(crate) fn explanations(&self) -> &Explanations {
        &self.explanations
    }

    /// The cluster, the time and the feature gates, for plugins that decide about queued pods and groups.
    pub(crate) fn context(&self) -> Context<'_> {
        context_of(&self.settings, &self.clock, &self.cache)
    }

    // --- to change -----------------------------------------------------------------------------------------

    pub(crate) fn clock_mut(&mut self) -> &mut CoreClock {
        &mut self.clock
    }

    pub(crate) fn cache_mut(&mut self) -> &mut Cache {
        &mut self.cache
    }

    pub(crate) fn queue_mut(&mut self) -> &mut SchedulingQueue {
        &mut self.queue
    }

    /// The queue, with what its plugins may read.
    pub(crate) fn queue_with_context(&mut self) -> (&mut SchedulingQueue, Context<'_>) {
        let cx = context_of(&self.settings, &self.clock, &self.cache);
        (&mut self.queue, cx)
    }

    /// The nominations, and the cluster with the nodes that they name.
    pub(crate) fn nominator_mut(&mut self) -> (&mut Nominator, &Cluster) {
        (self.queue.nominator_mut(), self.cache.cluster())
    }

    pub(crate) fn calls_mut(&mut self) -> &mut Calls {
        &mut self.calls
    }

    pub(crate) fn waits_mut(&mut self) -> &mut Waits {
        &mut self.waits
    }

    /// Stops a pod that Permit plugins hold or that is in PreBind; false if it is too late, and the pod must be deleted
    /// through the API.
    pub(crate) fn preempt_unbound(&mut self, uid: &str, plugin: &str) -> bool {
        self.unbound.preempt(uid, plugin)
    }

    pub(crate) fn unbound_mut(&mut self) -> &mut UnboundPods {
        &mut self.unbound
    }

    pub(crate) fn requests_mut(&mut self) -> &mut PluginRequests {
        &mut self.requests
    }

    pub(crate) fn preemptions_mut(&mut self) -> &mut OpenPreemptions {
        &mut self.preemptions
    }

    /// The groups whose bindings failed, and the pods as they are known.
    pub(crate) fn broken_groups_mut(&mut self) -> (&mut BrokenGroups, &Cache) {
        (&mut self.broken_groups, &self.cache)
    }

    /// The evaluator for the pod of an attempt.
    pub(crate) fn evaluator<'a>(&'a mut self, attempt: &'a mut Attempt) -> Evaluator<'a> {
        let Attempt {
            profile,
            pod,
            evaluation,
            work,
            ..
        } = attempt;
        self.evaluator_of(profile, pod, evaluation, work)
    }

    /// An evaluator for a pod with an evaluation of its own.
    pub(crate) fn evaluator_of<'a>(
        &'a mut self,
        profile: &'a Profile,
        pod: &'a Arc<PodInfo>,
        evaluation: &'a mut Evaluation,
        work: &'a Work,
    ) -> Evaluator<'a> {
        Evaluator {
            profile,
            features: &self.settings.features,
            now: self.clock.now(),
            cluster: self.cache.cluster_mut(),
            nominated: self.queue.nominator(),
            pod,
            evaluation,
            work: Some(work),
            stopwatch: self.clock.laps(),
        }
    }
}

fn context_of<'a>(settings: &'a Settings, clock: &CoreClock, cache: &'a Cache) -> Context<'a> {
    Context {
        now: clock.now(),
        cluster: cache.cluster(),
        features: &settings.features,
        work: None,
    }
}
