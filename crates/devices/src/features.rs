//! The optional parts of the allocator, each the effect of feature gates.

/// Which parts of the allocator are enabled.
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
}

/// The defaults of Kubernetes 1.36: all are enabled.
impl Default for AllocatorFeatures {
    fn default() -> Self {
        Self {
            admin_access: true,
            prioritized_list: true,
            partitionable_devices: true,
            device_taints: true,
            binding_conditions: true,
            consumable_capacity: true,
        }
    }
}
