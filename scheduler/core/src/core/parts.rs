//! Several parts at once: the cluster with the settings and the time, as plugins read it, and the evaluator.

use super::{Core, Settings};
use crate::attempt::Attempt;
use crate::cache::Cache;
use crate::clock::CoreClock;
use berth_api::Pod;
use berth_evaluator::{Evaluation, Evaluator};
use berth_framework::plugin::Context;
use berth_framework::{PodInfo, Work};
use berth_profile::Profile;
use berth_queue::SchedulingQueue;
use std::sync::Arc;

impl Core {
    /// Returns whether a profile schedules the pod, or an attempt with a profile of an earlier configuration is under
    /// way or has made a binding that the watch has not shown.
    pub(crate) fn is_responsible(&self, pod: &Pod) -> bool {
        let uid = pod.uid();
        self.settings.has_profile(pod)
            || self.queue.in_flight().contains(uid)
            || self.unbound.contains(uid)
            || self.cache.is_assumed(uid)
    }

    /// The cluster, the time and the feature gates, for plugins that decide about queued pods and groups.
    pub(crate) fn context(&self) -> Context<'_> {
        context_of(&self.settings, &self.clock, &self.cache)
    }

    /// The queue, with the context for its plugins.
    pub(crate) fn queue_with_context(&mut self) -> (&mut SchedulingQueue, Context<'_>) {
        let cx = context_of(&self.settings, &self.clock, &self.cache);
        (&mut self.queue, cx)
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
