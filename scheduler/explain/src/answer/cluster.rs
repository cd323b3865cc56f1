//! The answers about a node, and about the queue.

use super::{GateAccount, LackView, NodeDevice, PodName, PodState, QuotaLine, is_default};
use serde::{Deserialize, Serialize};

answers! {
    /// The pods of a node and the pods that fit: the answer of `/explain/node/NAME`.
    NodeAnswer {
        /// The time at which the answer was computed.
        at: String,
        /// The node.
        name: String,
        /// The answer in one sentence.
        summary: String,
        /// Whether it is cordoned.
        is_cordoned: bool,
        /// Its taints.
        taints: Vec<String>,
        /// The amount of each resource.
        resources: Vec<NodeResource>,
        /// Free resources that no pod can use because another resource is used up, in percent of the node: the
        /// difference between the greatest and the smallest free share of CPU and memory.
        fragmentation_percent: f64,
        /// The pods on it, the greatest requests first.
        pods: Vec<PodOnNode>,
        /// The number of pods on the node.
        pod_count: usize,
        /// The devices that it can use.
        devices: Vec<NodeDevice>,
        /// The number of its devices.
        device_count: usize,
        /// The number of its devices that are not allocated.
        devices_free: usize,
        /// Pods that are nominated to it.
        nominated: Vec<PodName>,
        /// Kinds of waiting pods that fit on it now.
        fits: Vec<WaitingKind>,
        /// Kinds of waiting pods that do not fit, the smallest lack first.
        closest_to: Vec<WaitingKind>,
        /// The limits that were reached.
        notes: Vec<String>,
    }

    /// The amounts of a resource on a node.
    NodeResource {
        /// The resource.
        name: String,
        /// The allocatable amount.
        allocatable: String,
        /// The requests of its pods.
        requested: String,
        /// The free amount.
        free: String,
        /// The requests of its pods, in percent.
        requested_percent: f64,
    }

    /// A pod on a node.
    PodOnNode {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
        /// The priority.
        priority: i32,
        /// The requests.
        requests: String,
        /// States that the pod is not bound yet, or that it is terminating.
        note: String,
    }

    /// Waiting pods that are alike.
    WaitingKind {
        /// One of them.
        example: String,
        /// The number of pods.
        pods: usize,
        /// The resources that the node lacks for them.
        lacks: Vec<LackView>,
    }

    /// The waiting pods of the queue: the answer of `/explain/queue`.
    QueueAnswer {
        /// The time at which the answer was computed.
        at: String,
        /// The answer in one sentence.
        summary: String,
        /// Pods in activeQ.
        active: usize,
        /// Pods in backoffQ.
        backoff: usize,
        /// Pods that wait for an event.
        unschedulable: usize,
        /// Pods that a PreEnqueue plugin rejects.
        gated: usize,
        /// Members of groups that do not exist, or whose ancestors do not.
        incomplete: usize,
        /// Members created while an attempt of their group was under way.
        pending_members: usize,
        /// Pods whose attempt or binding is under way.
        in_flight: usize,
        /// The waiting pods by place, reason and owner; the group with the oldest pod first.
        groups: Vec<QueueGroup>,
        /// The number of groups.
        group_count: usize,
        /// The scheduling gates of waiting pods, the gate of the most pods first.
        gates: Vec<GateAccount>,
        /// The deferred quotas for which pods wait, the longest line first.
        quotas: Vec<QuotaLine>,
        /// The rate of placed pods during the last minute, per second.
        placed_per_second: f64,
        /// Whether the record was full, so that the rate covers less than a minute.
        is_rate_of_less: bool,
        /// Pods that were scheduled after the periodic flush had moved them: missed wake-ups since the start.
        flush_rescues: u64,
    }

    /// Pods that wait for the same.
    QueueGroup {
        /// The place of the pods.
        place: PodState,
        /// The plugins that rejected them, or the gate.
        reason: String,
        /// The devices that each of them requests, such as `2 × gpu.example.com`.
        requests: String,
        /// The pod group of the pods, otherwise their controller, as `Kind/name`; empty without either. Pods of
        /// ReplicaSets have the controller of the ReplicaSet, such as `Deployment/web`.
        owner: String,
        /// Their namespace.
        namespace: String,
        /// The number of pods.
        pods: usize,
        /// The pod with the longest wait.
        oldest: String,
        /// The start of its wait.
        since: String,
        /// The duration of its wait, in seconds.
        seconds: f64,
        /// The message of its last attempt, or of its gate.
        message: String,
    }
}
