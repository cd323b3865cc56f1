//! The metrics of a scheduler: their names, labels, buckets and help texts, as kube-scheduler 1.36 has them.

/// The kind of numbers of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// Counts observations by size.
    Histogram(Buckets),
}

/// The upper bounds of a histogram's buckets, without the bucket `+Inf`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Buckets {
    /// `start`, `start × factor`, …, in the given number.
    Exponential {
        /// The first bound.
        start: f64,
        /// The ratio of each bound to the previous bound.
        factor: f64,
        /// The number of them.
        count: usize,
    },
    /// These.
    Listed(&'static [f64]),
}

impl Buckets {
    /// The bounds. Exponential ones are multiplied up one from the other: the sums of rounding are part of the labels.
    pub fn bounds(self) -> impl Iterator<Item = f64> {
        let (start, factor, count, listed): (_, _, _, &'static [f64]) = match self {
            Self::Exponential {
                start,
                factor,
                count,
            } => (start, factor, count, &[]),
            Self::Listed(bounds) => (0.0, 0.0, 0, bounds),
        };
        std::iter::successors(Some(start), move |bound| Some(bound * factor))
            .take(count)
            .chain(listed.iter().copied())
    }

    /// The bucket of an observation: the first whose bound is not below it.
    pub fn of(self, observed: f64) -> usize {
        match self {
            Self::Exponential {
                start,
                factor,
                count,
            } => {
                let (mut at, mut bound) = (0, start);
                while at < count && observed > bound {
                    at += 1;
                    bound *= factor;
                }
                at
            }
            Self::Listed(bounds) => bounds.partition_point(|bound| observed > *bound),
        }
    }

    /// The number of bounds.
    pub fn count(self) -> usize {
        match self {
            Self::Exponential { count, .. } => count,
            Self::Listed(bounds) => bounds.len(),
        }
    }
}

/// The stability of a metric; its help text starts with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// Never renamed, labels never changed.
    Stable,
    /// Kept for a while.
    Beta,
    /// May change.
    Alpha,
}

impl Stability {
    /// The word in the help text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stable => "STABLE",
            Self::Beta => "BETA",
            Self::Alpha => "ALPHA",
        }
    }
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Family {
    /// The full name.
    pub name: &'static str,
    /// Its meaning.
    pub help: &'static str,
    /// The kind of numbers.
    pub kind: MetricKind,
    /// The stability.
    pub stability: Stability,
    /// The labels, in the order in which values are given.
    pub labels: &'static [&'static str],
}

const fn exp(start: f64, factor: f64, count: usize) -> MetricKind {
    MetricKind::Histogram(Buckets::Exponential {
        start,
        factor,
        count,
    })
}

/// A set of metrics: an enum with a family for each of its values. Created by [`families!`](crate::families).
pub trait Families: Copy + 'static {
    /// Every family, in the order of the values.
    const FAMILIES: &'static [Family];

    /// The position of this one among them.
    fn at(self) -> usize;

    /// The family of the metric.
    fn family(self) -> &'static Family {
        &Self::FAMILIES[self.at()]
    }
}

/// Declares a set of metrics: `Set: Name: Stability kind, "full_name" ["label"] "help"; …`
#[macro_export]
macro_rules! families {
    ($(#[$attribute:meta])* $set:ident: $($id:ident: $stability:ident $kind:expr, $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $set {
            $(#[doc = concat!("`", $name, "`.")] $id,)*
        }

        impl $set {
            /// Every metric.
            pub const ALL: &'static [Self] = &[$(Self::$id,)*];
        }

        impl $crate::metrics::Families for $set {
            const FAMILIES: &'static [$crate::metrics::Family] = &[
                $($crate::metrics::Family {
                    name: $name,
                    help: $help,
                    kind: $kind,
                    stability: $crate::metrics::Stability::$stability,
                    labels: &[$($label),*],
                },)*
            ];

            fn at(self) -> usize {
                self as usize
            }
        }
    };
}

use MetricKind::{Counter, Gauge};

families! {
    /// Names a metric of the core.
    Metric:
    ScheduleAttempts: Stable Counter, "scheduler_schedule_attempts_total" ["result", "profile"]
        "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.";
    SchedulingAttemptDuration: Stable exp(0.001, 2.0, 15), "scheduler_scheduling_attempt_duration_seconds" ["result", "profile"]
        "Scheduling attempt latency in seconds (scheduling algorithm + binding)";
    SchedulingAlgorithmDuration: Alpha exp(0.001, 2.0, 15), "scheduler_scheduling_algorithm_duration_seconds" []
        "Time of the search for a node of a pod, in seconds.";
    EventHandlingDuration: Alpha exp(0.0001, 2.0, 12), "scheduler_event_handling_duration_seconds" ["event"]
        "Time to process one change of the cluster, in seconds.";
    PreemptionVictims: Stable exp(1.0, 2.0, 7), "scheduler_preemption_victims" []
        "Number of selected preemption victims";
    AttemptsAvoided: Alpha Counter, "scheduler_attempts_avoided_total" ["profile"]
        "Number of woken pods that were rejected for the reasons in their status, without an attempt, an event, an API call or a longer backoff.";
    PreemptionAttempts: Stable Counter, "scheduler_preemption_attempts_total" []
        "Total preemption attempts in the cluster till now";
    PreemptionGoroutinesDuration: Alpha exp(0.01, 2.0, 20), "scheduler_preemption_goroutines_duration_seconds" ["result"]
        "Time from the selection of victims until the API server has deleted all of them, in seconds.";
    PreemptionGoroutinesExecutions: Alpha Counter, "scheduler_preemption_goroutines_execution_total" ["result"]
        "Number of preemptions carried out asynchronously, by result.";
    VolumeSchedulingStageErrors: Alpha Counter, "scheduler_volume_scheduling_stage_error_total" ["operation"]
        "Number of failures to assume the volumes of a pod (assume) or to bind them (bind).";
    PendingPods: Stable Gauge, "scheduler_pending_pods" ["queue"]
        "Number of pending pods, by queue: 'active' pods can be scheduled now, 'backoff' pods wait after a failed attempt, 'unschedulable' pods wait for an event, 'gated' pods are blocked by a PreEnqueue plugin. Members of pod groups: 'incomplete' members wait for a missing group, 'pending' members were added during an attempt of their group.";
    DeferredQuotaHard: Alpha Gauge, "scheduler_deferred_quota_hard" ["namespace", "quota", "resource"]
        "Limit of a deferred quota, by key, in base units: cores, bytes, pods, devices. At most 1000 quotas have series.";
    DeferredQuotaUsed: Alpha Gauge, "scheduler_deferred_quota_used" ["namespace", "quota", "resource"]
        "Amount of a deferred quota that pods with a node use, by key, in base units.";
    DeferredQuotaBorrowed: Alpha Gauge, "scheduler_deferred_quota_borrowed" ["namespace", "quota", "resource"]
        "Amount that a deferred quota has borrowed from its cohort, by key, in base units. Only of quotas with a cohort.";
    DeferredQuotaWaiting: Alpha Gauge, "scheduler_deferred_quota_waiting_pods" ["namespace", "quota"]
        "Number of pods that wait for a deferred quota.";
    DeferredQuotaStuck: Alpha Gauge, "scheduler_deferred_quota_stuck" ["namespace", "quota"]
        "1 if the first pod that waits for a deferred quota requests more than the limit and can never be admitted, otherwise 0.";
    DeferredQuotaWaitDuration: Alpha exp(1.0, 4.0, 12), "scheduler_deferred_quota_wait_duration_seconds" []
        "Time in which a pod or a gang waited for its deferred quotas until it was admitted, in seconds.";
    RejectedByKubelet: Alpha Counter, "scheduler_kubelet_rejections_total" ["reason"]
        "Number of pods that a kubelet rejected before they started, by reason, in profiles with the plugin that remembers rejections. Resources other than cpu, memory, ephemeral-storage and pods are OutOfOtherResource, and reasons that are unknown to Berth are Other.";
    QueuedEntities: Alpha Gauge, "scheduler_queued_entities" ["queue", "type"]
        "Number of entries of the scheduling queue, by queue and type: a pod, a pod group or a composite pod group. Only with pod groups.";
    QueueIncomingEntities: Alpha Counter, "scheduler_queue_incoming_entities_total" ["queue", "event", "type"]
        "Number of entries added to scheduling queues, by queue, event and type: a pod, a pod group or a composite pod group. Only with pod groups.";
    PodGroupScheduleAttempts: Alpha Counter, "scheduler_podgroup_schedule_attempts_total" ["result", "profile"]
        "Number of attempts to schedule a group of pods, by result and profile. 'waiting_on_preemption': pods are evicted for the group.";
    PodGroupSchedulingAttemptDuration: Alpha exp(0.001, 2.0, 15), "scheduler_podgroup_scheduling_attempt_duration_seconds" ["result", "profile"]
        "Time of an attempt to schedule a group of pods, without binding, in seconds.";
    PodGroupSchedulingAlgorithmDuration: Alpha exp(0.001, 2.0, 15), "scheduler_podgroup_scheduling_algorithm_duration_seconds" []
        "Time to find nodes for the pods of a group, without preemption, in seconds.";
    WorkloadPreemptionAttempts: Alpha Counter, "scheduler_workload_preemption_attempts_total" ["result"]
        "Number of preemption attempts for a group of pods, by result.";
    WorkloadPreemptionVictims: Alpha exp(1.0, 2.0, 11), "scheduler_workload_preemption_victims" []
        "Number of pods that are evicted for a group of pods.";
    PreemptionWorkloadDisruptions: Alpha exp(1.0, 2.0, 11), "scheduler_preemption_workload_disruptions" ["preemptor"]
        "Number of units evicted by a preemption, by kind of preemptor. A unit is a pod, or a pod group that is evicted as a whole. Only with the feature gate GenericWorkload.";
    PreemptionEvaluationDuration: Alpha exp(0.001, 2.0, 16), "scheduler_preemption_evaluation_duration_seconds" ["preemptor", "result"]
        "Time to select the victims of a preemption, in seconds, by kind of preemptor and status. Only with the feature gate GenericWorkload.";
    PreemptionExecutionDuration: Alpha exp(0.001, 2.0, 16), "scheduler_preemption_execution_duration_seconds" ["preemptor", "result"]
        "Time from the selection of the victims until the API server has deleted all of them, in seconds, by kind of preemptor and result. Only with the feature gate GenericWorkload.";
    PreemptionPdbViolations: Alpha Counter, "scheduler_preemption_pdb_violations_total" ["preemptor"]
        "Number of evictions that violated a PodDisruptionBudget, by kind of preemptor. Only with the feature gate GenericWorkload.";
    GeneratedPlacements: Alpha Counter, "scheduler_generated_placements_total" ["profile"]
        "Number of placements that were generated for groups of pods.";
    PlacementEvaluations: Alpha Counter, "scheduler_placement_evaluations_total" ["result", "profile"]
        "Number of evaluated placements for groups of pods, by result. Placements that cannot be the best are not evaluated.";
    PlacementEvaluationDuration: Alpha exp(0.001, 2.0, 15), "scheduler_placement_evaluation_duration_seconds" ["result", "profile"]
        "Time to evaluate a placement for a group of pods, in seconds.";
    InflightEvents: Alpha Gauge, "scheduler_inflight_events" ["event"]
        "Number of stored cluster events for the pods in flight, by event. PodPopped counts the pods.";
    Goroutines: Beta Gauge, "scheduler_goroutines" ["operation"]
        "Number of operations in progress outside of the scheduling loop, such as bindings.";
    PodSchedulingSliDuration: Beta exp(0.01, 2.0, 20), "scheduler_pod_scheduling_sli_duration_seconds" ["attempts"]
        "Time from a pod's first entry into the scheduling queue until it is bound, without the time it was gated, in seconds.";
    PodSchedulingAttempts: Stable exp(1.0, 2.0, 5), "scheduler_pod_scheduling_attempts" []
        "Number of attempts to successfully schedule a pod.";
    PodScheduledAfterFlush: Alpha Counter, "scheduler_pod_scheduled_after_flush_total" []
        "Number of pods that were scheduled after the periodic flush of unschedulable pods moved them. Each is a missed wake-up.";
    FrameworkExtensionPointDuration: Stable exp(0.0001, 2.0, 12), "scheduler_framework_extension_point_duration_seconds" ["extension_point", "status", "profile"]
        "Latency for running all plugins of a specific extension point.";
    PluginEvaluation: Beta Counter, "scheduler_plugin_evaluation_total" ["plugin", "extension_point", "profile"]
        "Number of calls of plugins, by plugin, extension point and profile.";
    PluginExecutionDuration: Alpha exp(0.00001, 1.5, 20), "scheduler_plugin_execution_duration_seconds" ["plugin", "extension_point", "status"]
        "Duration of calls of a plugin at an extension point, in seconds, waits included. One of ten scheduling cycles and PreEnqueue runs is sampled.";
    QueueingHintExecutionDuration: Alpha exp(0.00001, 1.5, 20), "scheduler_queueing_hint_execution_duration_seconds" ["plugin", "event", "hint"]
        "Duration of queueing hints, in seconds, by plugin, event and hint.";
    PreQueueingHintEvaluations: Alpha Counter, "scheduler_pre_queueing_hint_evaluations_total" ["plugin", "result"]
        "Number of calls of pre-queueing hints. 'narrowed' hints return the pods that the event can help, 'all_pods' hints do not.";
    ObjectsDroppedByList: Alpha Counter, "scheduler_objects_dropped_by_list_total" ["kind"]
        "Number of objects that were dropped because a new list of their kind did not contain them, or contained another object with their name, by kind. A large number at a time indicates another store of the API server.";
    FeatureEnabled: Beta Gauge, "kubernetes_feature_enabled" ["name", "stage"]
        "1 when the feature gate is enabled, 0 when it is disabled, by name and stage.";
    QueueIncomingPods: Stable Counter, "scheduler_queue_incoming_pods_total" ["queue", "event"]
        "Number of pods added to scheduling queues by event and queue type.";
    EventLogCollapses: Alpha Counter, "scheduler_inflight_event_log_collapses_total" []
        "Number of times that the log of events for pods in flight overflowed. A pod in flight that fails is then retried after any event.";
    PermitWaitDuration: Beta exp(0.001, 2.0, 15), "scheduler_permit_wait_duration_seconds" ["result"]
        "Time that pods waited for Permit plugins, in seconds, by result.";
    CacheSize: Alpha Gauge, "scheduler_cache_size" ["type"]
        "Number of nodes, pods and assumed pods in the scheduler cache.";
    UnschedulablePods: Beta Gauge, "scheduler_unschedulable_pods" ["plugin", "profile"]
        "Number of unschedulable pods, by the plugin that rejected them. A pod counts once for each such plugin.";
    AsyncApiCallExecutions: Alpha Counter, "scheduler_async_api_call_execution_total" ["call_type", "result"]
        "Number of API calls sent by the dispatcher, by call type and result.";
    AsyncApiCallDuration: Alpha exp(0.001, 2.0, 15), "scheduler_async_api_call_execution_duration_seconds" ["call_type", "result"]
        "Duration of API calls sent by the dispatcher, in seconds, by call type and result.";
    PendingAsyncApiCalls: Alpha Gauge, "scheduler_pending_async_api_calls" ["call_type"]
        "Number of unsent API calls, by call type.";
}

/// Every metric of the core, in the order of [`Metric`].
pub const FAMILIES: &[Family] = Metric::FAMILIES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_upstream_digit_by_digit() {
        let bounds = |start, factor, count| -> Vec<String> {
            let buckets = Buckets::Exponential {
                start,
                factor,
                count,
            };
            buckets.bounds().map(|b| format!("{b}")).collect()
        };
        assert_eq!(bounds(0.001, 2.0, 4), ["0.001", "0.002", "0.004", "0.008"]);
        assert_eq!(
            bounds(0.00001, 1.5, 4),
            [
                "0.00001",
                "0.000015000000000000002",
                "0.000022500000000000005",
                "0.00003375000000000001"
            ]
        );
    }

    #[test]
    fn an_observation_is_in_the_first_bucket_whose_bound_is_not_below_it() {
        let exponential = Buckets::Exponential {
            start: 0.001,
            factor: 2.0,
            count: 4,
        };
        for buckets in [exponential, Buckets::Listed(&[0.001, 0.002, 0.004, 0.008])] {
            for (observed, bucket) in [
                (0.0, 0),
                (0.001, 0),
                (0.0011, 1),
                (0.004, 2),
                (0.008, 3),
                (1.0, 4),
            ] {
                assert_eq!(buckets.of(observed), bucket, "{observed} in {buckets:?}");
            }
        }
    }

    #[test]
    fn names_are_unique_and_carry_the_prefix() {
        for (i, family) in FAMILIES.iter().enumerate() {
            let prefixes = ["scheduler_", "kubernetes_feature_"];
            let has_one = prefixes.iter().any(|p| family.name.starts_with(p));
            assert!(has_one, "{}", family.name);
            assert!(
                FAMILIES[..i].iter().all(|f| f.name != family.name),
                "{}",
                family.name
            );
        }
    }
}
