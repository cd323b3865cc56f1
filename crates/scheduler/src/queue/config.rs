//! The options of the queue.

use berth_api::Duration;
use berth_framework::FeatureGates;

/// The settings of the queue; the defaults are kube-scheduler's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// The backoff after the first failure (`podInitialBackoffSeconds`).
    pub pod_initial_backoff: Duration,
    /// The longest backoff (`podMaxBackoffSeconds`); zero switches backoff off.
    pub pod_max_backoff: Duration,
    /// The time for which a pod waits for an event before the flush brings it back
    /// (`--pod-max-in-unschedulable-pods-duration`); zero brings every pod back at every flush.
    pub pod_max_in_unschedulable_pods_duration: Duration,
    /// The number of events that are kept for the pods in flight. When more come, the log is replaced by a single entry
    /// that means anything, so every pod then in flight is tried again after its backoff should it fail.
    pub in_flight_events_max: usize,
    /// The feature gates; SchedulerPopFromBackoffQ, SchedulerPreQueueingHints and SchedulerPreEnqueuePodStatus
    /// matter here.
    pub features: FeatureGates,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            pod_initial_backoff: Duration::from_secs(1),
            pod_max_backoff: Duration::from_secs(10),
            pod_max_in_unschedulable_pods_duration: Duration::from_secs(5 * 60),
            in_flight_events_max: 16 * 1024,
            features: FeatureGates::default(),
        }
    }
}
