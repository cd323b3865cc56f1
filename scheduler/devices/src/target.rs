//! A node as the allocator reads it.

use berth_api::Labels;

/// The node that devices are allocated on.
#[derive(Debug, Clone, Copy)]
pub struct TargetNode<'n> {
    /// Its name.
    pub name: &'n str,
    /// Its labels.
    pub labels: &'n Labels,
    /// Whether its kubelet can skip operations of devices (KEP-5945).
    pub skips_operations: bool,
}
