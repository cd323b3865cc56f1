//! Whether a pod fits a node's resources, and which node suits it best by them.
//!
//! - [`fit`]: `NodeResourcesFit`, the filter and the score by one of three strategies;
//! - [`balanced_allocation`]: `NodeResourcesBalancedAllocation`, the score that keeps resources evenly used;
//! - [`amounts`]: what both read of a pod and a node;
//! - `batch`: two resources of many nodes at once;
//! - `devices`: resources that devices provide;
//! - `room`: the filter for many nodes at once;
//! - [`strategy`] and [`shape`]: the formulas.

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
