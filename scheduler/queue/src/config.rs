//! The options of the queue.

use berth_api::Duration;
use berth_framework::FeatureGates;

/// The settings of the queue; the defaults are kube-scheduler's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// The backoff after the first failure (`podInitialBackoffSeconds`).
    pub pod_initial_backoff: Duration,
    /// The longest backoff (`podMaxBackoffSeconds`); zero disables backoff.
    pub pod_max_backoff: Duration,
    /// The time for which a pod waits for an event before the flush queues it
    /// (`--pod-max-in-unschedulable-pods-duration`); zero: at every flush.
    pub pod_max_in_unschedulable_pods_duration: Duration,
    /// The maximum number of stored events for the pods in flight. On overflow, a single entry that means "any event"
    /// replaces the log: every pod in flight that fails is then retried after its backoff.
    pub in_flight_events_max: usize,
    /// The feature gates. The queue reads SchedulerPopFromBackoffQ, SchedulerPreQueueingHints and
    /// SchedulerPreEnqueuePodStatus.
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
