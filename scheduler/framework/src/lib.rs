//! The plugin API of the scheduler.
//!
//! A plugin that judges nodes one by one states what a pod requires of them ([`requirement`]), and one that gives pods parts
//! of nodes states which ([`assignment`]; for devices, [`assignment::devices`]); other plugins implement one trait per
//! extension point ([`plugin`]). It lists its extension points when it is registered ([`registry`]),
//! reads nodes through [`table::NodeTable`] and everything else through [`cluster::Cluster`], keeps values of one pod
//! in [`state::CycleState`], and registers the changes that may help a pod that it rejected ([`event`]).
//!
//! **Architecture invariant:** no I/O, no clock, no runtime. A step that must wait returns what it waits for
//! ([`stage`]); the edge does the I/O.

pub mod allocator;
pub mod assignment;
pub mod call;
pub mod cluster;
pub mod condition;
pub mod event;
pub mod extender;
pub mod features;
pub mod job;
pub mod keep;
pub mod lack;
pub mod nominated;
pub mod object_name;
pub mod plugin;
pub mod pod_info;
pub mod quantity;
pub mod reason;
pub mod registry;
pub mod requirement;
pub mod stage;
pub mod state;
pub mod status;
pub mod statuses;
pub mod table;
#[cfg(any(test, feature = "test-builders"))]
pub mod testing;
pub mod vectors;
pub mod work;
pub mod write;

pub use call::{ApiCall, CallError, CallId};
pub use cluster::Cluster;
pub use event::{ActionType, ClusterEvent, EventResource, Hint};
pub use features::{Feature, FeatureGates};
pub use lack::Lack;
pub use pod_info::PodInfo;
pub use reason::{Reason, ReasonCode};
pub use stage::{Step, Wait, Wake, WakeReason};
pub use state::CycleState;
pub use status::{Code, Status};
pub use table::{NodeTable, NodeView, Slot};
pub use work::Work;
pub use write::{CallType, Write};
