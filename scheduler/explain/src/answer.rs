//! The answers, as the HTTP endpoint returns them in JSON. Times are RFC 3339; durations are in seconds.

use berth_framework::Lack;
use berth_scheduler::queue::QueuedIn;
use serde::{Deserialize, Serialize};

/// Skips a field with its default value.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

macro_rules! answers {
    ($($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
            #[serde(rename_all = "camelCase", default)]
            pub struct $name {
                $($(#[$field_meta])* #[serde(skip_serializing_if = "is_default")] pub $field: $type,)*
            }
        )*
    };
}

mod cluster;
mod group;
pub mod when;

pub use cluster::{NodeAnswer, NodeResource, PodOnNode, QueueAnswer, QueueGroup, WaitingKind};
pub use group::{
    ChildGroup, Domain, GroupAnswer, GroupChange, GroupConditionView, GroupMember, GroupRemedy,
    GroupState,
};

/// The place of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PodState {
    /// The scheduler does not know.
    #[default]
    Unknown,
    /// In activeQ: it is tried when it is its turn.
    Active,
    /// In backoffQ: it is tried when its backoff has ended.
    Backoff,
    /// Rejected: it is tried when an event may help it.
    Unschedulable,
    /// A PreEnqueue plugin rejects it: it is not tried.
    Gated,
    /// Its scheduling cycle is under way.
    Scheduling,
    /// It has a node and is being bound.
    Binding,
    /// It is bound.
    Bound,
    /// It is being deleted.
    Terminating,
    /// It has run to its end.
    Finished,
    /// Another scheduler is responsible for it.
    OtherScheduler,
}

impl From<QueuedIn> for PodState {
    fn from(place: QueuedIn) -> Self {
        match place {
            QueuedIn::Active => Self::Active,
            QueuedIn::Backoff | QueuedIn::ErrorBackoff => Self::Backoff,
            QueuedIn::Unschedulable => Self::Unschedulable,
            QueuedIn::Gated => Self::Gated,
        }
    }
}

answers! {
    /// The explanation of a pod: the answer of `/explain/pod/NAMESPACE/NAME`.
    PodAnswer {
        /// The time at which the answer was computed.
        at: String,
        /// The namespace of the pod.
        namespace: String,
        /// The name of the pod.
        name: String,
        /// The UID of the pod.
        uid: String,
        /// `spec.schedulerName`.
        scheduler_name: String,
        /// `spec.priority`; zero if it is not set.
        priority: i32,
        /// The place of the pod.
        state: PodState,
        /// The answer in one or two sentences.
        summary: String,
        /// The node of a pod that is bound or being bound.
        node: Option<String>,
        /// Its place in the queue.
        queue: Option<QueuePlace>,
        /// The step during which the pod is not in the queue.
        progress: Option<String>,
        /// The last attempt that failed.
        last_attempt: Option<Attempt>,
        /// Attempts before it that failed with other messages, the oldest first.
        earlier_attempts: Vec<EarlierAttempt>,
        /// The current answers of the filters. For a gated pod: as if it were not gated.
        verdict: Option<Verdict>,
        /// The nodes that lack the least, the closest first.
        closest: Vec<ClosestNode>,
        /// The devices requested by its claims and not allocated yet.
        devices: Vec<DeviceRequest>,
        /// Changes after which the pod fits, the cheapest first. Each was tried on a copy of the cluster.
        remedies: Vec<Remedy>,
        /// The events after which the pod is tried again.
        woken_by: Vec<WakeUp>,
        /// The gates, and the PreEnqueue plugins that reject it.
        gates: Vec<Gate>,
        /// The deferred quota for which it waits.
        quota: Option<QuotaWait>,
        /// The API calls about it that have not ended, and the last failed calls.
        calls: Vec<Call>,
        /// The node that it is nominated to.
        nomination: Option<Nomination>,
        /// The effect of preemption for the pod.
        preemption: Option<Preemption>,
        /// The explanation of its group: no change is tried for a member alone.
        group: Option<GroupAnswer>,
        /// The reasons for its node.
        decision: Option<DecisionTable>,
        /// The limits that were reached, and the gaps of the answer.
        notes: Vec<String>,
    }

    /// A pod's place in the queue.
    QueuePlace {
        /// The time since which the pod waits: its first rejection, over all retries; its creation if it has scheduling
        /// gates.
        since: String,
        /// For how many seconds.
        seconds: f64,
        /// The number of pods ahead of it in the same place.
        ahead: Option<usize>,
        /// The end of its backoff.
        backoff_until: Option<String>,
        /// The number of attempts.
        attempts: u32,
        /// The time of the first attempt, without the time behind gates.
        first_attempt: Option<String>,
        /// The number of rejections by plugins.
        rejections: u32,
        /// The number of consecutive attempts that ended with an error.
        errors: u32,
        /// Whether its last move was a periodic flush, not an event.
        was_flushed: bool,
        /// The plugins that rejected it.
        rejected_by: Vec<String>,
    }

    /// A failed attempt.
    Attempt {
        /// The time.
        at: String,
        /// The number of the attempt.
        number: u32,
        /// The message of the pod's condition.
        message: String,
        /// The answers of the nodes, the most frequent first.
        reasons: Vec<Reason>,
    }

    /// A failed attempt before the last one.
    EarlierAttempt {
        /// The time.
        at: String,
        /// The number of the attempt.
        number: u32,
        /// The message of the pod's condition.
        message: String,
    }

    /// The answers of filters about all nodes.
    Verdict {
        /// The number of nodes.
        nodes: usize,
        /// The number of feasible nodes.
        feasible: usize,
        /// Some of these.
        feasible_examples: Vec<String>,
        /// The reason why PreFilter rejects the pod on every node.
        pre_filter: Option<Reason>,
        /// The number of nodes that each plugin rejects. Every filter is run on every node, so a node may be counted
        /// more than once.
        reasons: Vec<Reason>,
    }

    /// Nodes that reject a pod for one reason.
    Reason {
        /// The plugin.
        plugin: String,
        /// Its reason.
        reason: String,
        /// The reason as a code, one of [`ReasonCode`](berth_framework::ReasonCode).
        code: String,
        /// The resource that is short.
        resource: Option<String>,
        /// The amount that the pod requests: milli-CPU for `cpu`, otherwise in the unit of the resource.
        wanted: Option<i64>,
        /// The greatest free amount among these nodes.
        free: Option<i64>,
        /// The number of nodes.
        nodes: usize,
        /// Some of them.
        examples: Vec<String>,
        /// Whether removing pods could help.
        preemption_may_help: bool,
    }

    /// A node that lacks little for a pod.
    ClosestNode {
        /// The node.
        node: String,
        /// The missing items.
        lacks: Vec<LackView>,
    }

    /// One lack of a node for a pod.
    LackView {
        /// The plugin that rejects the node for it.
        plugin: String,
        /// The missing item.
        text: String,
        /// The code, one of [`ReasonCode`](berth_framework::ReasonCode).
        code: String,
        /// The lack as a value, if the plugin reports values.
        value: Option<Lack>,
        /// The resource that is short.
        resource: Option<String>,
        /// The missing amount: milli-CPU for `cpu`, otherwise in the unit of the resource.
        short: Option<i64>,
        /// Whether removing pods from the node could help.
        preemption_may_help: bool,
    }

    /// A change, or a pair of changes, after which the pod fits.
    Remedy {
        /// The change.
        text: String,
        /// The changes as values, in the order in which they are made: two if no single change is enough.
        changes: Vec<crate::TriedChange>,
        /// The node on which the pod fits then, if it is the only one.
        node: Option<String>,
        /// The number of nodes on which it fits then, among the nodes that the change can affect.
        feasible: usize,
        /// The pods that preemption evicts after the change; the pod fits then.
        victims: Vec<crate::change::PodRef>,
        /// The sort key: a small number is a change with little disruption.
        cost: u32,
    }

    /// Events after which a pod is tried again.
    WakeUp {
        /// The plugin that rejected the pod and registered for the events.
        plugin: String,
        /// The events, such as `Node/Add`.
        events: Vec<String>,
    }

    /// The gate that blocks a pod.
    Gate {
        /// The name of the scheduling gate, or of the PreEnqueue plugin.
        name: String,
        /// Whether it is an entry of `spec.schedulingGates`.
        is_scheduling_gate: bool,
        /// The message of the plugin.
        message: String,
        /// Since when it is known.
        since: String,
        /// The field manager that set it, if the pod's managed fields show it.
        set_by: Option<String>,
        /// The time for which the pod has had it, in seconds.
        age_seconds: f64,
        /// The removals of the gate from other pods that this scheduler has seen.
        usage: Option<GateUsage>,
        /// Whether probably no component removes it any more: it is much older than usual, and no removal was seen
        /// during a comparable time, or the Leases of the component that removes it are expired.
        is_orphaned: bool,
        /// The expired Lease of the component that removes it.
        expired_lease: Option<ExpiredLease>,
        /// The field manager that removed it from other pods, if their managed fields show it.
        removed_by: Option<String>,
        /// Mutating webhooks that are called for new pods, and may set it.
        webhooks: Vec<String>,
        /// The other field managers that write the pod's spec or metadata, which may remove it.
        other_managers: Vec<String>,
        /// The reports of components other than the scheduler about the pod: the events that name the gate, or events
        /// without a gate if none does. They identify the controller that removes the gate.
        events: Vec<GateEvent>,
    }

    /// The deferred quota for which a pod waits.
    QuotaWait {
        /// The name of the quota, in the namespace of the pod.
        quota: String,
        /// `Strict` or `BestEffort`.
        order: String,
        /// The place of the pod in line, from 1; zero if it is not in line.
        place: usize,
        /// The number of entries in line. All pods of a gang are one entry.
        entries: usize,
        /// The pod that is first in line, `namespace/name`.
        first: String,
        /// The key of `spec.hard` without enough room; empty if only earlier entries prevent the admission.
        key: String,
        /// The requested amount of the pod, or of its gang.
        requested: String,
        /// The used amount, including the amount reserved for admitted pods.
        used: String,
        /// The limit, or the sum of the limits of the cohort.
        limit: String,
        /// The amount that is missing.
        missing: String,
        /// The cohort, if the sum of its limits is exceeded.
        cohort: String,
        /// Whether the request exceeds the limit: it can never be admitted.
        never_fits: bool,
    }

    /// A deferred quota for which pods wait.
    QuotaLine {
        /// The namespace.
        namespace: String,
        /// The name of the quota.
        quota: String,
        /// `Strict` or `BestEffort`.
        order: String,
        /// The number of waiting pods.
        waiting: usize,
        /// The age of the oldest of them, in seconds.
        oldest_seconds: f64,
        /// The pod that is first in line.
        first: String,
        /// The reason why it waits.
        message: String,
        /// Whether it requests more than the limit, so that it can never be admitted.
        is_stuck: bool,
    }

    /// The removals of a gate.
    GateUsage {
        /// The number of removals since the start of the scheduler.
        removals: u64,
        /// The median age at the last 512 removals.
        median_seconds: Option<f64>,
        /// The 99th percentile of these ages.
        p99_seconds: Option<f64>,
        /// The time of the last observed removal.
        last: String,
        /// The pods of the last removals, `namespace/name`.
        recent: Vec<String>,
    }

    /// A gate of waiting pods.
    GateAccount {
        /// The gate.
        gate: String,
        /// The number of pods that have it.
        pods: usize,
        /// The pod that has had it longest, `namespace/name`.
        oldest: String,
        /// The time for which this pod has had it, in seconds.
        oldest_seconds: f64,
        /// The number of pods whose gate is so old that it will probably not be removed.
        orphans: usize,
        /// The removals that were seen.
        usage: Option<GateUsage>,
    }

    /// The expired leader election Lease of a component.
    ExpiredLease {
        /// The namespace and the name of the Lease.
        name: String,
        /// The holder.
        holder: String,
        /// The time of the last renewal.
        renewed_at: String,
        /// The time since its expiry, in seconds.
        expired_seconds: f64,
    }

    /// An event of another component about a gated pod.
    GateEvent {
        /// The component that reports it.
        component: String,
        /// The reason.
        reason: String,
        /// The message.
        message: String,
        /// The time of the last report.
        at: String,
    }

    /// An API call that has not ended, or that has failed.
    Call {
        /// The type, as in the metrics: `pod_status_patch`, `pod_binding`, `pod_deletion`.
        call_type: String,
        /// `Waiting`, `InFlight`, `Retrying`, `HeldBack`, or `Failed` if it is not sent again.
        state: String,
        /// The number of times it was sent.
        attempts: u32,
        /// The time at which it was made.
        made_at: Option<String>,
        /// The earliest time at which it is sent.
        not_before: Option<String>,
        /// The error of its last attempt.
        error: Option<String>,
        /// The time at which its last attempt failed.
        failed_at: Option<String>,
    }

    /// A nomination.
    Nomination {
        /// The node.
        node: String,
        /// Terminating pods of lower priority on the node.
        awaited: Vec<PodName>,
    }

    /// A pod by name.
    PodName {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
        /// The priority.
        priority: i32,
        /// Disruption budgets that do not allow its eviction.
        violated_budgets: Vec<String>,
    }

    /// A request for devices, with the devices of the cluster.
    DeviceRequest {
        /// The claim, `namespace/name`.
        claim: String,
        /// The request, or `request/alternative`.
        request: String,
        /// The device class.
        class: String,
        /// The number of requested devices; `None` for all.
        wanted: Option<usize>,
        /// The number of devices of the class.
        exist: usize,
        /// The number of devices of the class that match the selectors of the request.
        matching: usize,
        /// The number of matching devices that can be allocated.
        free: usize,
        /// The number of allocated devices.
        held: usize,
        /// The number of devices with a taint that the request does not tolerate.
        tainted: usize,
        /// The number of devices with too little free capacity or too few free counters.
        exhausted: usize,
        /// The taints.
        taints: Vec<String>,
        /// Examples of allocated devices, with their claims.
        held_by: Vec<DeviceHolder>,
        /// The node with the fewest missing devices.
        closest: Option<DeviceNode>,
    }

    /// A claim that holds a device.
    DeviceHolder {
        /// The device, `driver/pool/device`.
        device: String,
        /// The claim, `namespace/name`.
        claim: String,
        /// The pods for which the claim is reserved.
        pods: Vec<String>,
    }

    /// A node with devices for a request.
    DeviceNode {
        /// The node.
        node: String,
        /// The number of devices that can be allocated on it.
        free: usize,
        /// The number of missing devices.
        missing: usize,
    }

    /// A device that a node can use.
    NodeDevice {
        /// The device, `driver/pool/device`.
        device: String,
        /// `free`, `held` or `shared`.
        state: String,
        /// The taints.
        taints: Vec<String>,
        /// The claim to which it is allocated, `namespace/name`.
        claim: String,
        /// The pods for which the claim is reserved.
        pods: Vec<String>,
    }

    /// The effect of preemption.
    Preemption {
        /// Whether it is under way.
        is_running: bool,
        /// The node of the victims.
        node: Option<String>,
        /// The victims.
        victims: Vec<PodName>,
        /// The plugin's reason why preemption does not help.
        message: String,
    }

    /// The reasons for the node of a pod.
    DecisionTable {
        /// The time at which it was decided.
        at: String,
        /// The node.
        node: String,
        /// The number of filtered nodes.
        evaluated: usize,
        /// The number of feasible nodes.
        feasible: usize,
        /// Whether the decision was computed again from its inputs with the same result. Otherwise the scores are those
        /// of the present cluster, and `notes` of the answer states the reason.
        is_exact: bool,
        /// The number of nodes with the greatest total; one of them was drawn at random.
        ties: usize,
        /// The position of the drawn node, from 1, in the order of slots.
        drawn: Option<usize>,
        /// The chosen node and the runners-up, the greatest total first.
        nodes: Vec<ScoredNode>,
    }

    /// A node with its scores.
    ScoredNode {
        /// The node.
        node: String,
        /// The sum of the weighted scores.
        total: i64,
        /// Whether it is the node of the decision.
        is_chosen: bool,
        /// The scores of each plugin.
        scores: Vec<PluginScore>,
    }

    /// The score of one plugin.
    PluginScore {
        /// The plugin.
        plugin: String,
        /// The score that the plugin returned.
        raw: i64,
        /// The score after normalisation, 0 to 100.
        normalized: i64,
        /// The weight of the plugin.
        weight: i64,
        /// Normalised score times weight.
        weighted: i64,
    }
}
