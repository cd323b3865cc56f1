//! The framework: the parts that a run of plugins needs.
//!
//! A search, a placement and the extension points from PostFilter to PostBind take the framework instead of the core.
//! They read the cluster, assume pods on nodes, measure, and log. They cannot change the queue or the calls of the
//! dispatcher: the calls, preemptions and activations that plugins request are kept in [`PluginRequests`], and the end
//! of the stage is a value. Both are applied by the functions that take the core. The nominations belong to the queue,
//! and a search takes them as an argument.

use super::decisions::Decisions;
use super::{
    CoreClock, GroupEvent, Outbound, PluginRequests, Settings, UnboundPods, event_note,
    follow_profiles,
};
use crate::attempt::Attempt;
use crate::cache::Cache;
use berth_api::{Str, Time};
use berth_dispatcher::CallIds;
use berth_evaluator::{Evaluation, Evaluator};
use berth_framework::call::EventKind;
use berth_framework::cluster::GroupKey;
use berth_framework::plugin::Context;
use berth_framework::{PodInfo, Work};
use berth_profile::Profile;
use berth_queue::Nominator;
use berth_telemetry::metrics::Metrics;
use std::sync::Arc;

/// The parts that a run of plugins needs; see the [module](self).
pub(crate) struct Framework {
    pub(crate) settings: Settings,
    pub(crate) clock: CoreClock,
    pub(crate) metrics: Metrics,
    pub(crate) cache: Cache,
    pub(crate) outbound: Outbound,
    /// Plugins allow, reject and preempt these pods.
    pub(crate) unbound: UnboundPods,
    pub(crate) requests: PluginRequests,
    pub(crate) decisions: Decisions,
}

impl Framework {
    pub(super) fn new(settings: Settings, clock: CoreClock, ids: CallIds) -> Self {
        let mut cache = Cache::default();
        cache.cluster_mut().follow(&settings.features);
        follow_profiles(cache.cluster_mut(), &settings.profiles);
        Self {
            settings,
            clock,
            metrics: Metrics::default(),
            cache,
            outbound: Outbound::default(),
            unbound: UnboundPods::default(),
            requests: PluginRequests::new(ids),
            decisions: Decisions::default(),
        }
    }

    /// A step begins.
    pub(crate) fn begin_step(&mut self, now: Time) {
        self.clock.begin_step(now);
        let cluster = self.cache.cluster_mut();
        cluster.quotas_mut().set_time(now);
        cluster.rejections_mut().advance(now);
    }

    /// The cluster, the time and the feature gates, for plugins that decide about queued pods and groups.
    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            now: self.clock.now(),
            cluster: self.cache.cluster(),
            features: &self.settings.features,
            work: None,
        }
    }

    /// The evaluator for the pod of an attempt.
    pub(crate) fn evaluator<'a>(
        &'a mut self,
        nominated: &'a Nominator,
        attempt: &'a mut Attempt,
    ) -> Evaluator<'a> {
        let Attempt {
            profile,
            pod,
            evaluation,
            work,
            ..
        } = attempt;
        self.evaluator_of(nominated, profile, pod, work, evaluation)
    }

    /// An evaluator for a pod with an evaluation of its own.
    pub(crate) fn evaluator_of<'a>(
        &'a mut self,
        nominated: &'a Nominator,
        profile: &'a Profile,
        pod: &'a Arc<PodInfo>,
        work: &'a Work,
        evaluation: &'a mut Evaluation,
    ) -> Evaluator<'a> {
        Evaluator {
            profile,
            features: &self.settings.features,
            now: self.clock.now(),
            cluster: self.cache.cluster_mut(),
            nominated,
            pod,
            evaluation,
            work: Some(work),
            stopwatch: self.clock.laps(),
        }
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
