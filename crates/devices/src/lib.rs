//! The structured allocator of Dynamic Resource Allocation (KEP-4381): chooses the devices of resource claims on a
//! node.
//!
//! An [`Inventory`] follows the ResourceSlices that drivers publish and the devices that are allocated to claims. A
//! pod's claims are checked and their CEL selectors compiled once ([`ClaimRequests`]); an [`Allocator`] then searches
//! one node after another for devices. Pools, slices and devices have a fixed order and the first solution is taken, so
//! the same input always has the same result.
//!
//! The search follows the "incubating" allocator of Kubernetes 1.36: prioritised lists (KEP-4816), admin access
//! (KEP-5018), device taints (KEP-5055), partitionable devices (KEP-4815), consumable capacity (KEP-5075) and binding
//! conditions (KEP-5007).
//!
//! **Architecture invariant:** no I/O, no clock, no randomness. A search ends when its [`Budget`] is used up.

mod allocated;
mod budget;
mod capacity;
mod claims;
mod constraints;
mod count;
mod counters;
mod features;
mod inventory;
mod pools;
mod result;
mod search;
mod selectors;
mod slice;

pub use allocated::{AllocatedDevices, PoolAllocations};
pub use budget::Budget;
pub use claims::ClaimRequests;
pub use count::count_devices;
pub use features::AllocatorFeatures;
pub use inventory::{Inventory, PoolId, SharedView};
pub use search::{AllocateError, Allocator, TargetNode};
pub use slice::PreparedSlice;

/// The most devices that can be allocated to one claim.
pub const ALLOCATION_RESULTS_MAX: usize = 32;

/// The most alternatives of a request.
pub const ALTERNATIVES_MAX: i64 = 8;
