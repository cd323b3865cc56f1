//! The events of an update of a pod.

use berth_api::requests::{self, Footprint, SumOptions};
use berth_api::{Pod, Str};
use berth_framework::features::Behaviour;
use berth_framework::{ActionType, ClusterEvent, EventResource, Feature, FeatureGates};
use smallvec::SmallVec;

/// The events of one update of a pod, at least one.
pub type PodEvents = SmallVec<[ClusterEvent; 2]>;

/// Determines the events of an update, each once and in upstream's order; the generic `Update` if no property changed
/// that scheduling distinguishes.
pub fn pod_update_events(old: &Pod, new: &Pod, features: &FeatureGates) -> PodEvents {
    let resource = if new.is_assigned() {
        EventResource::AssignedPod
    } else {
        EventResource::of_unassigned(features, true)
    };
    // The order is kube-scheduler's: the hints are evaluated for one event after the other.
    let mut events: PodEvents = [
        (old.labels() != new.labels(), ActionType::UPDATE_POD_LABEL),
        (
            is_scaled_down(old, new, features),
            ActionType::UPDATE_POD_SCALE_DOWN,
        ),
        (
            features.enabled(Feature::InPlacePodVerticalScalingSchedulerPreemption)
                && is_scaled_down(new, old, features),
            ActionType::UPDATE_POD_SCALE_UP,
        ),
        (
            !old.spec.scheduling_gates.is_empty() && new.spec.scheduling_gates.is_empty(),
            ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
        ),
        (
            old.spec.tolerations.len() != new.spec.tolerations.len(),
            ActionType::UPDATE_POD_TOLERATION,
        ),
        (
            claims(old) != claims(new)
                || old.status.extended_resource_claim_status
                    != new.status.extended_resource_claim_status,
            ActionType::UPDATE_POD_GENERATED_RESOURCE_CLAIM,
        ),
    ]
    .into_iter()
    .filter(|(happened, _)| *happened)
    .map(|(_, action)| ClusterEvent::new(resource.clone(), action))
    .collect();
    if events.is_empty() {
        events.push(ClusterEvent::new(resource, ActionType::UPDATE));
    }
    events
}

/// Returns whether some request was removed or is smaller, in milli-units.
fn is_scaled_down(old: &Pod, new: &Pod, features: &FeatureGates) -> bool {
    let options = SumOptions {
        use_status: features.enabled(Feature::InPlacePodVerticalScaling),
        pod_level: true,
        non_zero: false,
        footprint: if features.has(Behaviour::ResizeFootprintOfPod) {
            Footprint::Pod
        } else {
            Footprint::Containers
        },
    };
    let before = requests::pod_requests(old, options);
    if before.is_empty() {
        return false;
    }
    let after = requests::pod_requests(new, options);
    before.iter().any(|(name, quantity)| {
        after
            .get(name)
            .is_none_or(|now| now.milli_value() < quantity.milli_value())
    })
}

/// The generated claims, whatever their order.
fn claims(pod: &Pod) -> SmallVec<[(&Str, Option<&Str>); 4]> {
    let mut claims: SmallVec<[_; 4]> = pod
        .status
        .resource_claim_statuses
        .iter()
        .map(|status| (&status.name, status.resource_claim_name.as_ref()))
        .collect();
    claims.sort_unstable();
    claims
}
