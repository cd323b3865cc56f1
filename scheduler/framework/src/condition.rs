//! The condition `PodScheduled` of pods and its reasons.

/// The type of the condition that states whether a pod is scheduled.
pub const POD_SCHEDULED: &str = "PodScheduled";

/// The reason of a pod for which a cycle finds no node. Autoscalers react to it.
pub const UNSCHEDULABLE: &str = "Unschedulable";

/// The reason of a pod that a PreEnqueue plugin rejects (KEP-5501).
pub const NOT_READY_FOR_SCHEDULING: &str = "NotReadyForScheduling";

/// The reason of a pod with scheduling gates. The API server itself writes it (KEP-3521).
pub const SCHEDULING_GATED: &str = "SchedulingGated";

/// Returns whether this reason states that a PreEnqueue plugin rejects the pod.
pub fn is_report(reason: &str) -> bool {
    matches!(reason, SCHEDULING_GATED | NOT_READY_FOR_SCHEDULING)
}
