//! Explanations: the reasons why a pod is pending, its remedies, the reasons for the node of a pod, the free resources
//! of a node, and the state of the queue.
//!
//! The scheduler keeps little state for this. [`Snapshot::take`] copies the cluster, and [`PodFacts::take`] the state
//! of one pod in the queue and the dispatcher. A copy of the cluster takes a few milliseconds; [`Copied`] limits how
//! often one is made. Everything else is computed from the copies, on another thread, with the plain evaluator: an
//! explanation changes its copy of the cluster and reverts its changes.
//!
//! | module | contents |
//! |---|---|
//! | `answer` | the answers, in the form of their JSON |
//! | `snapshot`, `facts`, `copied` | the copies of the state of a scheduler, and how often they are made |
//! | `examine` | the answers of every filter about every node |
//! | `devices` | the matching devices of the nodes for the claims of a pod, and the pods to which they are allocated |
//! | `gates` | ages of scheduling gates, and the usual ages at which they are removed |
//! | `closest` | the nodes that lack the least for a pod, with the lacks that the plugins report |
//! | `change`, `overlay` | changes, and trials of them on the copy |
//! | `candidates`, `remedies` | the tried changes, and the successful changes |
//! | `preemption`, `preempts` | the effect of preemption, explained and compared |
//! | `decision` | the scores of a decision, computed from its inputs |
//! | `pod`, `group`, `node`, `queue` | the explanations of single objects and of the queue |
//! | `text` | the answers as text |
//! | `amounts` | the amounts of a resource that a pod requests and that a node has free |
//! | `packing` | pods placed in sequence on a copy of the cluster, with nodes that do not exist yet |
//! | `owner` | the pod group or the controller of a pod |
//! | `waiting` | the waiting pods by the codes of their reasons and by owner |
//! | `spread` | the spread of each workload over its domains, without former revisions |
//! | `engine` | the core in virtual time with its API server, for what-if and simulations |
//! | `what_if` | the core over a changed copy of a cluster |
//! | `words` | numbers, times and taints in words |
//! | `when` | the estimated start of a waiting pod, from a run of the core in virtual time |
//!
//! **Architecture invariants:** no I/O, no clock, no thread. The work for one answer is bounded by the constants in
//! [`limits`]; an answer lists the limits that it reached.

mod amounts;
pub mod answer;
mod candidates;
mod change;
mod closest;
mod copied;
mod decision;
mod devices;
pub mod engine;
mod examine;
mod facts;
mod gates;
mod group;
mod node;
mod overlay;
mod owner;
mod packing;
mod pod;
mod preemption;
mod preempts;
mod queue;
mod quota;
mod remedies;
mod snapshot;
pub mod spread;
pub mod text;
mod waiting;
pub mod what_if;
mod when;
mod words;

pub use amounts::{free, wanted};
pub use change::{Edit, TriedChange};
pub use copied::{COPY_AGE_MAX, COPY_SHARE, Copied};
pub use facts::{GroupFacts, PodFacts};
pub use gates::gate_accounts;
pub use group::explain_group;
pub use node::explain_node;
pub use owner::owner_of;
pub use packing::Packing;
pub use pod::explain_pod;
pub use preempts::Preempted;
pub use queue::{QueueFacts, explain_queue, gate_text, placed_per_second};
pub use quota::quota_lines;
pub use snapshot::Snapshot;
pub use spread::explain_spread;
pub use waiting::{WaitingPods, waiting_pods};
pub use when::{WhenFacts, explain_when};

/// The limits of one explanation.
pub mod limits {
    /// The number of listed closest nodes.
    pub const CLOSEST_MAX: usize = 5;
    /// The number of returned remedies, the cheapest ones.
    pub const REMEDIES_MAX: usize = 8;
    /// The number of tried single changes.
    pub const CHANGES_TRIED_MAX: usize = 64;
    /// The number of first changes of pairs, if no single change is enough.
    pub const FIRST_CHANGES_MAX: usize = 16;
    /// The total number of tried second changes.
    pub const PAIRS_TRIED_MAX: usize = 128;
    /// The number of single changes after which preemption is tried.
    pub const PREEMPTIONS_TRIED_MAX: usize = 16;
    /// The number of higher priorities with which preemption is tried.
    pub const PRIORITIES_TRIED_MAX: usize = 4;
    /// The total number of node filterings while changes are tried.
    pub const FILTER_RUNS_MAX: usize = 100_000;
    /// The number of nodes on which deletions of pods are tried.
    pub const NODES_WITH_DELETIONS_MAX: usize = 8;
    /// The number of examined devices per explanation of a pod.
    pub const DEVICE_STEPS_MAX: u64 = 5_000_000;
    /// The number of example nodes per reason.
    pub const EXAMPLES_MAX: usize = 5;
    /// The number of nodes in a table of scores.
    pub const SCORED_NODES_MAX: usize = 5;
    /// The number of kinds of waiting pods for which a node is examined.
    pub const KINDS_MAX: usize = 100;
    /// The number of listed groups of waiting pods.
    pub const GROUPS_MAX: usize = 50;
    /// The number of listed devices of a node.
    pub const DEVICES_LISTED_MAX: usize = 200;
    /// The number of listed pods of a node.
    pub const PODS_LISTED_MAX: usize = 200;
}
