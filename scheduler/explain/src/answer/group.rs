//! The answer about a group of pods.

use super::{ClosestNode, PodName, PodState, Preemption, QueuePlace, is_default};
use serde::{Deserialize, Serialize};

/// The place of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum GroupState {
    /// Pods or groups refer to it, but it does not exist.
    #[default]
    Missing,
    /// An ancestor does not exist, or the ancestors form a cycle.
    Incomplete,
    /// Fewer members exist than must be able to run.
    WaitingForMembers,
    /// A member is gated: the group is not tried.
    Gated,
    /// In activeQ: it is tried when it is its turn.
    Active,
    /// In backoffQ: it is tried when its backoff has ended.
    Backoff,
    /// Rejected: it is tried when an event may help it.
    Unschedulable,
    /// An attempt is under way.
    Scheduling,
    /// Enough members have a node.
    Started,
}

/// A change after which a group can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum GroupChange {
    /// Remove the scheduling gates of members.
    #[default]
    RemoveSchedulingGates,
    /// Create further members.
    CreatePods,
    /// Uncordon nodes.
    Uncordon,
    /// Lower `minCount`.
    LowerMinCount,
    /// Create the group again without topology constraint.
    DropTopology,
    /// Create the group and its pods again with a higher priority.
    RaisePriority,
    /// Add nodes.
    AddNodes,
    /// Raise limits of deferred quotas.
    RaiseQuota,
    /// Wait for the end of pods, so that deferred quotas have room.
    EndPods,
}

answers! {
    /// The explanation of a group of pods: the answer of `/explain/podgroup/NAMESPACE/NAME`.
    GroupAnswer {
        /// The time at which the answer was computed.
        at: String,
        /// `PodGroup` or `CompositePodGroup`.
        kind: String,
        /// The namespace of the group.
        namespace: String,
        /// The name of the group.
        name: String,
        /// The root of its hierarchy, if it is another group: the whole hierarchy is scheduled as one.
        root: Option<String>,
        /// The priority.
        priority: i32,
        /// The place of the group.
        state: GroupState,
        /// The answer in one or two sentences.
        summary: String,
        /// `gang` or `basic`.
        policy: String,
        /// The number of members that must be able to run: pods, or children of a composite group.
        need: usize,
        /// The number of known members.
        known: usize,
        /// The number of members with a node; for a composite group, the number of started children.
        scheduled: usize,
        /// The number of further members that fit now, on the best domain if the group is restricted to one.
        places: Option<usize>,
        /// Its place in the queue, and the place of its whole hierarchy.
        queue: Option<QueuePlace>,
        /// Whether it was scheduled once, according to its status.
        condition: Option<GroupConditionView>,
        /// The label that must have the same value on all nodes of the group.
        topology_key: Option<String>,
        /// The values of this label, the value with room for the most members first.
        domains: Vec<Domain>,
        /// The number of values.
        domain_count: usize,
        /// The groups below it.
        children: Vec<ChildGroup>,
        /// The members, first the waiting members that fit nowhere.
        members: Vec<GroupMember>,
        /// The number of members below the group.
        member_count: usize,
        /// Changes after which the group can start, the cheapest first. Each was tried on a copy of the cluster.
        remedies: Vec<GroupRemedy>,
        /// The effect that preemption would have for it.
        preemption: Option<Preemption>,
        /// The limits that were reached, and the gaps of the answer.
        notes: Vec<String>,
    }

    /// A condition of a group.
    GroupConditionView {
        /// `True` or `False`.
        status: String,
        /// The reason.
        reason: String,
        /// The message.
        message: String,
        /// Since when.
        since: Option<String>,
    }

    /// The nodes with one value of a label.
    Domain {
        /// The value.
        name: String,
        /// The number of nodes.
        nodes: usize,
        /// The number of waiting members that fit.
        places: usize,
    }

    /// A group below another one.
    ChildGroup {
        /// `PodGroup` or `CompositePodGroup`.
        kind: String,
        /// The name.
        name: String,
        /// The name of its parent.
        parent: String,
        /// The number of members that must be able to run.
        need: usize,
        /// The number of known members.
        known: usize,
        /// The number of members with a node.
        scheduled: usize,
        /// The number of further members of a pod group that fit now.
        places: Option<usize>,
    }

    /// A pod of a group.
    GroupMember {
        /// The name.
        name: String,
        /// Its pod group.
        group: String,
        /// The place of the member.
        state: PodState,
        /// The node that it has.
        node: Option<String>,
        /// The node on which it fits now, with the other members.
        place: Option<String>,
        /// The scheduling gates and the PreEnqueue plugins that reject it.
        gates: Vec<String>,
        /// The resources that the closest nodes lack for it after the placement of the other members.
        closest: Vec<ClosestNode>,
    }

    /// A change after which a group can start.
    GroupRemedy {
        /// The change.
        text: String,
        /// The kind of change.
        change: GroupChange,
        /// The new minimum, priority, or number of pods or nodes.
        value: Option<i64>,
        /// The model for new nodes: they have its labels, taints and resources.
        like: Option<String>,
        /// The changed nodes or pods.
        names: Vec<String>,
        /// The pods that preemption evicts after the change.
        victims: Vec<PodName>,
        /// The sort key: a small number is a change with little disruption.
        cost: u32,
    }
}
