//! The optional parts of the allocator: the effects of feature gates, and the changes between releases of Kubernetes.

/// The enabled parts of the allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocatorFeatures {
    /// Requests with admin access (gate DRAAdminAccess).
    pub admin_access: bool,
    /// Requests with alternatives (gate DRAPrioritizedList).
    pub prioritized_list: bool,
    /// Shared counters and per-device node selection (gate DRAPartitionableDevices).
    pub partitionable_devices: bool,
    /// Taints of devices (gate DRADeviceTaints).
    pub device_taints: bool,
    /// Devices with binding conditions (gates DRADeviceBindingConditions and DRAResourceClaimDeviceStatus).
    pub binding_conditions: bool,
    /// Devices that several requests share (gate DRAConsumableCapacity).
    pub consumable_capacity: bool,
    /// Amounts of capacity with fractions (gate DRAFractionalCapacityRange).
    pub fractional_ranges: bool,
    /// Constraints on attributes with several values (gate DRAListTypeAttributes).
    pub list_attributes: bool,
    /// Attributes that requests compute (gate DRADerivedAttributes).
    pub derived_attributes: bool,
    /// Groups of devices that can use a counter set together (gate DRADeviceCompatibilityGroups). If it is disabled,
    /// devices with groups are combined with no others.
    pub compatibility_groups: bool,
    /// Devices that skip operations of the kubelet (gate DRAOptionalNodeOperations). If it is disabled, they are not
    /// allocated.
    pub optional_node_operations: bool,
    /// Devices that use resources of their node, such as CPU (gate DRANodeAllocatableResources). If it is disabled,
    /// they are not allocated.
    pub node_allocatable: bool,
    /// The changes without a gate.
    pub fixes: AllocatorFixes,
}

/// The changes of the allocator by releases of Kubernetes without a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllocatorFixes {
    /// Counters of a device that is returned or rejected are available again, and a shared device takes its counters
    /// once (Kubernetes 1.37).
    pub exact_counters: bool,
    /// A capacity that cannot be computed fails the claim, a request for all devices fails if a device has insufficient
    /// capacity, and constraints on distinct values compare every share of a device (Kubernetes 1.37).
    pub exact_shares: bool,
    /// Selectors can read attributes with several values, whatever the gate DRAListTypeAttributes (Kubernetes 1.37).
    pub list_selectors: bool,
    /// Names of capacities with the domain of their driver and without it are the same, and a device with shares is
    /// never allocated as a whole (Kubernetes 1.38).
    pub qualified_capacity: bool,
    /// A request for all devices fails on the nodes with an incomplete or invalid pool, instead of everywhere
    /// (Kubernetes
    /// 1.38).
    pub pools_by_node: bool,
}

impl AllocatorFixes {
    /// The features of Kubernetes 1.38.
    pub const ALL: Self = Self {
        exact_counters: true,
        exact_shares: true,
        list_selectors: true,
        qualified_capacity: true,
        pools_by_node: true,
    };
}

impl AllocatorFeatures {
    /// The defaults of Kubernetes 1.36.
    pub const V1_36: Self = Self {
        admin_access: true,
        prioritized_list: true,
        partitionable_devices: true,
        device_taints: true,
        binding_conditions: true,
        consumable_capacity: true,
        fractional_ranges: false,
        list_attributes: false,
        derived_attributes: false,
        compatibility_groups: false,
        optional_node_operations: false,
        node_allocatable: false,
        fixes: AllocatorFixes {
            exact_counters: false,
            exact_shares: false,
            list_selectors: false,
            qualified_capacity: false,
            pools_by_node: false,
        },
    };

    /// The environment in which selectors are compiled and evaluated.
    pub(crate) fn environment(self) -> berth_cel::Environment {
        let lists = self.list_attributes || self.fixes.list_selectors;
        berth_cel::Environment::of_devices(lists, false)
    }
}

/// The defaults of Kubernetes 1.36.
impl Default for AllocatorFeatures {
    fn default() -> Self {
        Self::V1_36
    }
}
