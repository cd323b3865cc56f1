//! Checks whether a pod fits a node's resources, and scores nodes by their resources.
//!
//! - [`fit`]: `NodeResourcesFit`, the filter and the score by one of three strategies;
//! - [`balanced_allocation`]: `NodeResourcesBalancedAllocation`, the score that keeps resources evenly used;
//! - [`amounts`]: the amounts of a pod and a node that both scores read;
//! - `batch`: two resources of many nodes at once;
//! - `devices`: resources that devices provide;
//! - `room`: the filter for many nodes at once;
//! - [`strategy`] and [`shape`]: the formulas;
//! - `vectors`: the widest vector instructions for passes over columns.

pub mod amounts;
mod args;
pub mod balanced_allocation;
mod batch;
mod devices;
pub mod fit;
mod hints;
mod keys;
mod room;
pub mod shape;
pub mod strategy;

pub use args::{BalancedAllocationArgs, FitArgs};
pub use balanced_allocation::NodeResourcesBalancedAllocation;
pub use fit::NodeResourcesFit;
