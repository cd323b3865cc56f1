//! The event labels of moves that no cluster event causes.

use berth_framework::FeatureGates;
use berth_framework::features::Behaviour;

/// A pod without a node was created, or a pod that the queue does not know was updated. The labels of these events
/// are constant text, without allocation.
pub(super) fn of_pod(features: &FeatureGates, is_new: bool) -> &'static str {
    match (features.has(Behaviour::PodEventsNameTheTarget), is_new) {
        (true, true) => "UnscheduledPodAdd",
        (true, false) => "UnscheduledPodUpdate",
        (false, true) => "UnschedulablePodAdd",
        (false, false) => "UnschedulablePodUpdate",
    }
}

/// A failed attempt.
pub(super) const SCHEDULE_ATTEMPT_FAILURE: &str = "ScheduleAttemptFailure";
/// A backoff is over.
pub(super) const BACKOFF_COMPLETE: &str = "BackoffComplete";
/// An idle scheduler takes a pod before its backoff is over.
pub(super) const POP_FROM_BACKOFF_Q: &str = "PopFromBackoffQ";
/// A pod is no longer admitted and becomes gated again.
pub(super) const ADMISSION_WITHDRAWN: &str = "AdmissionWithdrawn";
/// A plugin activated the pod.
pub(super) const FORCE_ACTIVATE: &str = "ForceActivate";
/// A pod waited too long for an event.
pub(super) const UNSCHEDULABLE_TIMEOUT: &str = "UnschedulableTimeout";
/// The pod that was woken on behalf of the template has ended; the next pod can fit.
pub(super) const NEXT_OF_TEMPLATE: &str = "NextOfTemplate";
/// A group has become complete, or has another root.
pub(super) const GROUP_COMPLETE: &str = "GroupComplete";
/// Another configuration was taken over.
pub(super) const CONFIGURATION_CHANGE: &str = "ConfigurationChange";
/// The event log overflowed.
pub(super) const EVENT_LOG_OVERFLOW: &str = "EventLogOverflow";
