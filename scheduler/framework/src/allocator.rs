//! The allocator of devices as feature gates and nodes set it up.

use crate::features::Behaviour;
use crate::{Cluster, Feature, FeatureGates, NodeView};
use berth_devices::{Allocator, AllocatorFeatures, AllocatorFixes, TargetNode};

/// The feature that nodes declare whose kubelet can skip operations of devices (KEP-5945).
const OPTIONAL_NODE_OPERATIONS: &str = "DRAOptionalNodeOperations";

/// The allocator of the devices of a cluster.
pub fn allocator<'c>(cluster: &'c Cluster, features: &FeatureGates) -> Allocator<'c> {
    Allocator::new(cluster.devices().inventory(), allocator_features(features))
}

/// The parts of the allocator that the gates enable.
pub fn allocator_features(features: &FeatureGates) -> AllocatorFeatures {
    AllocatorFeatures {
        admin_access: features.enabled(Feature::DRAAdminAccess),
        prioritized_list: features.enabled(Feature::DRAPrioritizedList),
        partitionable_devices: features.enabled(Feature::DRAPartitionableDevices),
        device_taints: features.enabled(Feature::DRADeviceTaints),
        binding_conditions: has_binding_conditions(features),
        consumable_capacity: features.enabled(Feature::DRAConsumableCapacity),
        fractional_ranges: features.enabled(Feature::DRAFractionalCapacityRange),
        list_attributes: features.enabled(Feature::DRAListTypeAttributes),
        derived_attributes: features.enabled(Feature::DRADerivedAttributes),
        compatibility_groups: features.enabled(Feature::DRADeviceCompatibilityGroups),
        optional_node_operations: features.enabled(Feature::DRAOptionalNodeOperations),
        // Kubernetes 1.36 has the feature under other field names, which are not read.
        node_allocatable: features.enabled(Feature::DRANodeAllocatableResources),
        fixes: AllocatorFixes {
            exact_counters: features.has(Behaviour::ExactDeviceCounters),
            exact_shares: features.has(Behaviour::ExactDeviceShares),
            list_selectors: features.has(Behaviour::ListAttributesInSelectors),
            qualified_capacity: features.has(Behaviour::QualifiedDeviceCapacity),
            pools_by_node: features.has(Behaviour::IncompletePoolsRejectTheirNode),
        },
    }
}

/// A node as the allocator reads it.
pub fn target(node: NodeView<'_>) -> TargetNode<'_> {
    TargetNode {
        name: node.name(),
        labels: node.labels(),
        skips_operations: skips_operations(node),
    }
}

/// Returns whether devices may have to report that they are ready before a pod is bound.
pub fn has_binding_conditions(features: &FeatureGates) -> bool {
    features.enabled(Feature::DRADeviceBindingConditions)
        && features.enabled(Feature::DRAResourceClaimDeviceStatus)
}

/// Returns whether the node declares that its kubelet can skip operations of devices.
pub fn skips_operations(node: NodeView<'_>) -> bool {
    let mut declared = node.node().status.declared_features.iter();
    declared.any(|feature| *feature == *OPTIONAL_NODE_OPERATIONS)
}
