//! The reasons why devices are not allocated.

use crate::budget::OutOfSteps;

/// The reason why a search ended without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// The budget is used up.
    #[error("the search for devices took too long")]
    OutOfSteps,
    /// There is no solution on this node, and some of its pools are invalid.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
    /// A claim asks for all devices, and a pool of this node is incomplete or invalid (Kubernetes 1.38).
    #[error("{0}")]
    UnusablePool(String),
    /// There is no solution on this node, and devices that the claims select were not used.
    #[error("{0}")]
    Skipped(SkippedDevices),
    /// The claims or what drivers publish are wrong.
    #[error("{0}")]
    Failed(String),
}

/// The reason why devices that a claim selects are not allocated, whatever else is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SkippedDevices {
    /// Their slice has `skipNodeOperations`, and the gate is off.
    #[error(
        "devices with skipNodeOperations are not allocated: feature gate DRAOptionalNodeOperations is disabled"
    )]
    OptionalNodeOperations,
    /// Their slice has `skipNodeOperations`, and the node does not declare the feature.
    #[error(
        "devices with skipNodeOperations are not allocated: the node does not declare the feature DRAOptionalNodeOperations"
    )]
    NodeOperations,
    /// They use counters together with devices that have `compatibilityGroups`, and the gate is off.
    #[error(
        "devices with compatibilityGroups are not combined with others: feature gate DRADeviceCompatibilityGroups is disabled"
    )]
    CompatibilityGroups,
    /// They have `nodeAllocatableResources`, and the gate is off.
    #[error(
        "devices with nodeAllocatableResources are not allocated: feature gate DRANodeAllocatableResources is disabled"
    )]
    NodeAllocatable,
}

impl From<OutOfSteps> for AllocateError {
    fn from(_: OutOfSteps) -> Self {
        Self::OutOfSteps
    }
}
