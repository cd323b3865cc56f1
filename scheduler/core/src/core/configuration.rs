//! The parts follow a new configuration, between two cycles.

use super::{Core, Settings};
use berth_api::{Duration, Pod, Str};
use berth_framework::extender::Extenders;
use berth_profile::Profiles;
use berth_queue::{ProfileHooks, remove_pod};
use std::sync::Arc;

impl Core {
    /// The waiting pods that none of `profiles` schedules.
    pub(crate) fn waiting_without(&self, profiles: &Profiles) -> Vec<Arc<Pod>> {
        let waiting = self.queue.places().pods().map(|(_, info)| &info.pod);
        let foreign = waiting.filter(|pod| profiles.get(&pod.spec.scheduler_name).is_none());
        foreign.cloned().collect()
    }

    /// The UIDs of the nominated pods that are not in flight and that none of `profiles` schedules.
    pub(crate) fn nominated_without(&self, profiles: &Profiles) -> Vec<Str> {
        let nominator = self.queue.nominator();
        let nominated = nominator.nodes().flat_map(|node| nominator.pods_on(node));
        let pods = nominated.map(|info| &info.pod);
        let foreign = pods.filter(|pod| {
            profiles.get(&pod.spec.scheduler_name).is_none() && !self.is_in_flight(pod.uid())
        });
        foreign.map(|pod| pod.uid().clone()).collect()
    }

    /// A waiting pod is left to another scheduler: with its nomination, its reports and the statuses that are to be written.
    pub(crate) fn leave_to_others(&mut self, pod: &Pod) {
        let (queue, cx) = self.queue_with_context();
        remove_pod(queue, &cx, pod);
        self.explanations.forget(pod.uid());
        self.calls.dispatcher_mut().forget_status(pod.uid());
    }

    /// The pods, as the API shows them, that the present profiles do not schedule.
    pub(crate) fn pods_of_others(&self) -> Vec<Arc<Pod>> {
        let pods = self.cache.stored_pods();
        let others = pods.filter(|pod| !self.has_profile(pod));
        others.cloned().collect()
    }

    /// Replaces what a configuration determines.
    pub(crate) fn set_configuration(
        &mut self,
        profiles: Profiles,
        percentage_of_nodes_to_score: Option<i32>,
        extenders: Extenders,
    ) {
        let schedulers = profiles.names();
        self.cache.cluster_mut().pods.count_members_of(schedulers);
        let Settings {
            features,
            evaluator,
            ..
        } = self.settings;
        self.settings = Settings::new(
            features,
            evaluator,
            profiles,
            percentage_of_nodes_to_score,
            extenders,
        );
    }

    /// The queue follows the profiles, after [`Self::set_configuration`], and other backoffs: the first and the longest.
    pub(crate) fn set_queue_hooks(
        &mut self,
        hooks: Vec<ProfileHooks>,
        backoffs: (Duration, Duration),
    ) {
        let (queue, cx) = self.queue_with_context();
        queue.reconfigure(&cx, backoffs, hooks);
    }
}
