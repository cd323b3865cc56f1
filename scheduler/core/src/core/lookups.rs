//! Questions of many stages about one pod or one setting, which the parts answer. No stage gets a part for them.

use super::Core;
use berth_api::{Pod, Str};
use berth_framework::extender::{Extender, Extenders};
use berth_framework::{Feature, FeatureGates, PodInfo};
use berth_queue::{QueuedIn, QueuedPodInfo};
use std::sync::Arc;

impl Core {
    // --- pods as they are known ---------------------------------------------------------------------------

    /// The pod as the API shows it.
    pub(crate) fn stored(&self, uid: &str) -> Option<&Arc<Pod>> {
        self.cache.stored(uid)
    }

    /// The pod of this name as the API shows it.
    pub(crate) fn stored_by_name(&self, namespace: &Str, name: &Str) -> Option<&Arc<Pod>> {
        self.cache.stored_by_name(namespace, name)
    }

    /// The pod with the changes of our calls.
    pub(crate) fn effective(&self, uid: &str) -> Option<&Arc<Pod>> {
        self.cache.effective(uid)
    }

    /// Returns whether the pod is counted on a node on which the API does not show it yet.
    pub(crate) fn is_assumed(&self, uid: &str) -> bool {
        self.cache.is_assumed(uid)
    }

    /// The node on which the pod is counted before the API shows it there.
    pub(crate) fn assumed_on(&self, uid: &str) -> Option<&Str> {
        self.cache.assumed_on(uid)
    }

    // --- pods in the queue --------------------------------------------------------------------------------

    /// A queued pod and where it is; `None` for pods in flight and unknown ones.
    pub(crate) fn queued(&self, namespace: &str, name: &str) -> Option<(QueuedIn, &QueuedPodInfo)> {
        self.queue.get(namespace, name)
    }

    /// Returns whether the pod has been popped and not been given back or finished.
    pub(crate) fn is_in_flight(&self, uid: &str) -> bool {
        self.queue.in_flight().contains(uid)
    }

    /// The node that the pod is nominated to.
    pub(crate) fn nominated_node(&self, uid: &str) -> Option<&Str> {
        self.queue.nominator().node_of(uid)
    }

    /// The pods that are nominated to the node.
    pub(crate) fn nominated_to(&self, node: &str) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.queue.nominator().pods_on(node).iter()
    }

    // --- settings -----------------------------------------------------------------------------------------

    pub(crate) fn features(&self) -> FeatureGates {
        self.settings.features
    }

    pub(crate) fn is_on(&self, feature: Feature) -> bool {
        self.settings.is_on(feature)
    }

    pub(crate) fn extenders(&self) -> Extenders {
        self.settings.extenders.clone()
    }

    /// The extender at a place in the order of calls.
    pub(crate) fn extender(&self, at: usize) -> Option<Arc<dyn Extender>> {
        self.settings.extenders.get(at).cloned()
    }

    /// Returns whether one of the profiles schedules the pod.
    pub(crate) fn has_profile(&self, pod: &Pod) -> bool {
        self.settings
            .profiles
            .get(&pod.spec.scheduler_name)
            .is_some()
    }

    /// Returns whether one of the profiles schedules the pod, or an attempt goes on that began with a profile of an
    /// earlier configuration.
    pub(crate) fn is_responsible(&self, pod: &Pod) -> bool {
        self.has_profile(pod) || self.is_in_flight(pod.uid()) || self.is_being_bound(pod.uid())
    }

    /// Returns whether the pod has a node and is in the queue all the same, because it waits for a resize.
    pub(crate) fn makes_room_for_resize(&self, pod: &Pod) -> bool {
        let profiles = self.settings.resizes.as_ref();
        let is_ours = profiles.is_some_and(|p| p.get(&pod.spec.scheduler_name).is_some());
        is_ours && pod.has_deferred_resize() && !pod.is_terminating() && !pod.is_terminal()
    }
}
