//! Applies a new configuration to the parts, between two cycles.

use super::{Core, Settings};
use crate::cache::Cache;
use berth_api::{Pod, Str};
use berth_framework::Cluster;
use berth_framework::cluster::{QUOTA_GATE_PLUGIN, RejectionPolicy};
use berth_framework::extender::Extenders;
use berth_profile::Profiles;
use berth_queue::SchedulingQueue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The waiting pods without a profile in `profiles`.
pub(crate) fn waiting_without(queue: &SchedulingQueue, profiles: &Profiles) -> Vec<Arc<Pod>> {
    let waiting = queue.places().pods().map(|(_, info)| &info.pod);
    let foreign = waiting.filter(|pod| profiles.get(&pod.spec.scheduler_name).is_none());
    foreign.cloned().collect()
}

/// The UIDs of the nominated pods that are not in flight and have no profile in `profiles`.
pub(crate) fn nominated_without(queue: &SchedulingQueue, profiles: &Profiles) -> Vec<Str> {
    let nominator = queue.nominator();
    let nominated = nominator.nodes().flat_map(|node| nominator.pods_on(node));
    let pods = nominated.map(|info| &info.pod);
    let foreign = pods.filter(|pod| {
        profiles.get(&pod.spec.scheduler_name).is_none() && !queue.in_flight().contains(pod.uid())
    });
    foreign.map(|pod| pod.uid().clone()).collect()
}

/// The stored pods without a profile in the current configuration.
pub(crate) fn pods_of_others(cache: &Cache, settings: &Settings) -> Vec<Arc<Pod>> {
    let pods = cache.stored_pods();
    let others = pods.filter(|pod| !settings.has_profile(pod));
    others.cloned().collect()
}

/// Applies the profiles to the cluster: the scheduler names whose pods count as group members, the names whose pods are
/// deferred, and the rejections to record.
pub(super) fn follow_profiles(cluster: &mut Cluster, profiles: &Profiles) {
    cluster.pods.count_members_of(profiles.names());
    cluster.defer_pods_of(profiles.names_with_pre_enqueue(QUOTA_GATE_PLUGIN));
    let policies = policies_of(profiles);
    cluster.rejections_mut().set_policies(policies);
}

/// The rejection policy of each profile with a plugin that reads rejections.
fn policies_of(profiles: &Profiles) -> BTreeMap<Str, RejectionPolicy> {
    let policies = profiles.iter().filter_map(|profile| {
        let mut policies = profile
            .plugins
            .iter()
            .filter_map(|plugin| plugin.rejections);
        Some((profile.name.clone(), policies.next()?))
    });
    policies.collect()
}

impl Core {
    /// Drops a waiting pod of another scheduler, with its nomination, its reports and its pending status writes.
    pub(crate) fn leave_to_others(&mut self, pod: &Pod) {
        let (queue, cx) = self.queue_with_context();
        queue.remove(&cx, pod);
        self.explanations.forget(pod.uid());
        self.leave_status(pod.uid());
    }

    /// Another scheduler writes the status of a pod from now on.
    pub(crate) fn leave_status(&mut self, uid: &str) {
        let now = self.framework.clock.now();
        self.calls.dispatcher_mut().leave_status(uid, now);
    }

    /// Replaces the settings and the state derived from the configuration.
    pub(crate) fn set_configuration(
        &mut self,
        profiles: Profiles,
        percentage_of_nodes_to_score: Option<i32>,
        extenders: Extenders,
    ) {
        follow_profiles(self.framework.cache.cluster_mut(), &profiles);
        let Settings {
            features,
            evaluator,
            compares_evaluators,
            ..
        } = self.framework.settings;
        self.framework.settings = Settings::new(
            features,
            evaluator,
            compares_evaluators,
            profiles,
            percentage_of_nodes_to_score,
            extenders,
        );
    }
}
