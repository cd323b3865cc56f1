//! The structured allocator of Dynamic Resource Allocation (KEP-4381): chooses the devices of resource claims on a
//! node.
//!
//! An [`Inventory`] follows the ResourceSlices that drivers publish and the devices that are allocated to claims. A
//! pod's claims are checked and their CEL selectors compiled once ([`ClaimRequests`]); an [`Allocator`] then searches
//! the nodes for devices one after another. Pools, slices and devices have a fixed order and the first solution is
//! taken, so the same input always has the same result.
//!
//! The search follows the "incubating" allocator of Kubernetes 1.36: prioritised lists (KEP-4816), admin access
//! (KEP-5018), device taints (KEP-5055), partitionable devices (KEP-4815), consumable capacity (KEP-5075) and binding
//! conditions (KEP-5007). The additions and changes of Kubernetes 1.37 and 1.38 are in [`AllocatorFeatures`]:
//! fractional ranges of capacity, attributes with several values (KEP-5491), derived attributes (KEP-6080),
//! compatibility groups (KEP-5963) and optional node operations (KEP-5945). A device that uses a disabled feature is
//! not allocated ([`SkippedDevices`]).
//!
//! **Architecture invariant:** no I/O, no clock, no randomness. A search ends when its [`SearchBudget`] is used up.

mod allocated;
mod allocator;
mod budget;
mod capacity;
mod claims;
mod constraints;
mod count;
mod counters;
mod derived;
mod device_set;
mod error;
mod features;
mod inventory;
mod location;
mod pool;
mod result;
mod search;
mod selectors;
mod slice;
mod target;

pub use allocated::{AllocatedDevices, PoolAllocations};
pub use allocator::Allocator;
pub use budget::{OutOfSteps, SearchBudget};
pub use claims::ClaimRequests;
pub use count::count_devices;
pub use error::{AllocateError, SkippedDevices};
pub use features::{AllocatorFeatures, AllocatorFixes};
pub use inventory::{Inventory, SharedView};
pub use pool::PoolId;
pub use search::{DeviceId, DeviceState, RequestSurvey};
pub use slice::PreparedSlice;
pub use target::TargetNode;

/// The most devices that can be allocated to one claim.
pub const ALLOCATION_RESULTS_MAX: usize = 32;

/// The most alternatives of a request.
pub const ALTERNATIVES_MAX: i64 = 8;
