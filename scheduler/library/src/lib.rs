//! Berth's scheduler as a library: kube-scheduler's decisions about a cluster in memory, for autoscalers, admission queues
//! and simulations.
//!
//! The library is a function of its inputs: objects, a configuration, a question and a time. It has no socket, file, clock,
//! thread or runtime, and needs no API server.
//!
//! # Schedule pods, and read the reasons
//!
//! ```
//! use berth_core::{ClusterObjects, Configuration, Session, Time};
//!
//! let cluster = ClusterObjects::from_yaml("cluster.yaml", r#"
//! apiVersion: v1
//! kind: Node
//! metadata: {name: node-1}
//! status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
//! ---
//! apiVersion: v1
//! kind: Pod
//! metadata: {name: web}
//! spec: {containers: [{name: c, image: web, resources: {requests: {cpu: "1"}}}]}
//! ---
//! apiVersion: v1
//! kind: Pod
//! metadata: {name: database}
//! spec: {containers: [{name: c, image: db, resources: {requests: {cpu: "6"}}}]}
//! "#)?;
//! let now: Time = "2026-03-01T12:00:00Z".parse().unwrap();
//! let mut session = Session::new(&cluster, &Configuration::default(), now)?;
//! let report = session.schedule(now);
//! for placed in &report.placed {
//!     println!("{} is placed on {}", placed.pod, placed.node);
//! }
//! for pending in &report.pending {
//!     println!("{} waits: {}", pending.pod, pending.reason);
//! }
//! let explanation = session.explain("default", "database").unwrap();
//! println!("{}", explanation.summary);
//! # assert_eq!(report.placed[0].node, "node-1");
//! # assert!(report.pending[0].reason.starts_with("0/1 nodes are available: 1 Insufficient cpu."));
//! # assert!(!explanation.summary.is_empty());
//! # Ok::<(), berth_core::InputError>(())
//! ```
//!
//! # How many nodes of this shape do the pending pods need?
//!
//! The question of an autoscaler. `examples/autoscaler` is a loop of such questions.
//!
//! ```
//! use berth_core::{ClusterObjects, Configuration, Time, WhatIf, what_if};
//!
//! # fn node(name: &str) -> String {
//! #     format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 110}}}}}}\n---\n")
//! # }
//! # fn pod(name: &str) -> String {
//! #     format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: 3}}}}}}]}}}}\n---\n")
//! # }
//! # let dump = node("n1") + &pod("a") + &pod("b") + &pod("c");
//! # let now = Time::EPOCH;
//! let cluster = ClusterObjects::from_yaml("cluster.yaml", &dump)?;
//! let question = WhatIf::add_nodes("cpu=8,memory=32Gi");
//! let report = what_if(&cluster, &Configuration::default(), &question, now)?;
//! let needed = report.add_nodes.unwrap();
//! println!("{} nodes for {} of {} pods", needed.nodes, needed.placed, needed.waiting);
//! # assert_eq!((needed.nodes, needed.placed, needed.waiting), (1, 2, 2));
//! # Ok::<(), berth_core::InputError>(())
//! ```
//!
//! # Which workloads of a queue fit now?
//!
//! The question of an admission queue. Nothing is bound, and scheduling gates are ignored.
//!
//! ```
//! use berth_core::{ClusterObjects, Configuration, Time, fit_queue};
//!
//! # fn node(name: &str) -> String {
//! #     format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 110}}}}}}\n---\n")
//! # }
//! # fn pod(name: &str) -> String {
//! #     format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{schedulingGates: [{{name: queue}}], containers: [{{name: c, image: i, resources: {{requests: {{cpu: 2}}}}}}]}}}}\n---\n")
//! # }
//! # let dump = node("n1") + &pod("big-1") + &pod("big-2") + &pod("big-3") + &pod("small");
//! # let now = Time::EPOCH;
//! let cluster = ClusterObjects::from_yaml("cluster.yaml", &dump)?;
//! let queue = [vec!["default/big-1", "default/big-2", "default/big-3"], vec!["default/small"]];
//! let fits = fit_queue(&cluster, &Configuration::default(), &queue, now)?;
//! for (workload, fit) in queue.iter().zip(&fits) {
//!     match fit.pending.first() {
//!         None => println!("{workload:?} fits"),
//!         Some(pod) => println!("{workload:?} waits: {}", pod.reason),
//!     }
//! }
//! # assert_eq!(fits.iter().map(|fit| fit.fits()).collect::<Vec<_>>(), [false, true]);
//! # Ok::<(), berth_core::InputError>(())
//! ```
//!
//! # Limits
//!
//! - Extenders are not called; a configuration with extenders is an error.
//! - Kubelets and controllers do not run, except those of resource claims and volumes: a bound pod is running at once and
//!   never ends. The pods of [`fit_queue`] get no new claims, and a volume that a rejected workload has bound stays bound
//!   for the workloads behind it.
//! - A run lasts at most 15 minutes of virtual time and 20 attempts per pod on average.
//! - [`WhatIf::add_nodes`] tries at most [`ADDED_NODES_MAX`] nodes, [`WhatIf::fit`] at most [`FIT_PODS_MAX`] pods; the answers
//!   state that a limit was reached (`is_limited`).
//! - The limits of an explanation are the constants in [`explain_limits`].
//! - A session and each question decode and copy the objects: time and memory grow with their number.
//!
//! # Versions
//!
//! Berth follows semantic versioning. Before 1.0.0, a minor version may change this interface; the changelog lists each change.
//! Decisions follow the emulated release of Kubernetes, not the version of the library: a difference from kube-scheduler is
//! a defect and is fixed in a patch version. Types that grow are `#[non_exhaustive]`. The types in [`api`], [`plugins`] and
//! [`answer`] are re-exported from crates with the same version number.
//!
//! **Architecture invariants:** no I/O, no clock, no thread. No crate with sockets, TLS or a runtime is among the dependencies.

/// The examples of the page about the library.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/use/library.md")]
struct LibraryPage;

mod changes;
mod cluster;
mod configuration;
mod documents;
mod error;
mod json;
mod session;
mod what_if;

pub use berth_api::{Kind, Release, Time};
pub use berth_explain::what_if::{
    AddedNodes, Balance, BufferRoom, DisplacedPod, Fate, Fit, NodeFit, PendingPod, PlacedPod,
    Usage, WhatIfReport, WorkloadFit,
};
pub use berth_explain::{answer, limits as explain_limits};
pub use changes::{
    BufferRequest, ClassPriority, PriorityClasses, is_priority_class, is_read_by_buffers,
};
pub use cluster::ClusterObjects;
pub use configuration::{Configuration, GROUP_GATES, is_named, with_groups};
pub use documents::{Document, documents, split};
pub use error::InputError;
pub use json::{decoded, note_volume_templates};
pub use session::{Session, fit_queue};
pub use what_if::{ADDED_NODES_MAX, ChangedCluster, FIT_PODS_MAX, NodeShape, WhatIf, what_if};

/// Kubernetes objects as types, with the fields that scheduling reads.
pub mod api {
    pub use berth_api::*;
}

/// Plugins: the in-tree ones, and the interface of others.
pub mod plugins {
    pub use berth_framework::registry::{Registration, Registry};
    pub use berth_plugins::registry::in_tree;
}
