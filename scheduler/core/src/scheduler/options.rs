//! The options of a scheduler.

use berth_api::Duration;
use berth_dispatcher::DispatcherOptions;
use berth_evaluator::EvaluatorKind;
use berth_framework::FeatureGates;
use berth_framework::extender::Extenders;
use berth_profile::ProfileSpec;
use berth_queue::QueueConfig;
use berth_telemetry::{NoStopwatch, Stopwatch};
use std::fmt;

/// The options of a scheduler.
pub struct SchedulerOptions {
    /// The profiles; at least one.
    pub profiles: Vec<ProfileSpec>,
    /// The feature gates.
    pub features: FeatureGates,
    /// The seed of all random decisions.
    pub seed: u64,
    /// The default for profiles without a value; see [`ProfileSpec::percentage_of_nodes_to_score`].
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The backoff after the first failure (`podInitialBackoffSeconds`).
    pub pod_initial_backoff: Duration,
    /// The longest backoff (`podMaxBackoffSeconds`).
    pub pod_max_backoff: Duration,
    /// The time for which a pod waits for an event before it is retried without one.
    pub pod_max_in_unschedulable_pods_duration: Duration,
    /// The evaluator that decides.
    pub evaluator: EvaluatorKind,
    /// Whether each decision of the incremental evaluator is compared with the plain evaluator's, as in each debug build. The
    /// scheduler panics if they differ, which is a bug.
    pub compares_evaluators: bool,
    /// The dispatcher.
    pub dispatcher: DispatcherOptions,
    /// The extenders.
    pub extenders: Extenders,
    /// Measures durations, for metrics only.
    pub stopwatch: Box<dyn Stopwatch>,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        let queue = QueueConfig::default();
        Self {
            profiles: vec![ProfileSpec::default()],
            features: FeatureGates::default(),
            seed: 0,
            percentage_of_nodes_to_score: None,
            pod_initial_backoff: queue.pod_initial_backoff,
            pod_max_backoff: queue.pod_max_backoff,
            pod_max_in_unschedulable_pods_duration: queue.pod_max_in_unschedulable_pods_duration,
            evaluator: EvaluatorKind::default(),
            compares_evaluators: cfg!(debug_assertions),
            dispatcher: DispatcherOptions::default(),
            extenders: Extenders::default(),
            stopwatch: Box::new(NoStopwatch),
        }
    }
}

impl fmt::Debug for SchedulerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerOptions")
            .field("profiles", &self.profiles)
            .field("features", &self.features)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}
