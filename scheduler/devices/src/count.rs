//! The number of devices of a class on a node, for scores.

use crate::AllocatorFeatures;
use crate::budget::SearchBudget;
use crate::inventory::Inventory;
use crate::selectors::{self, Compiled};
use crate::target::TargetNode;
use berth_api::DeviceClass;

/// The number of devices of a class that a node can use, and the number of allocated ones. Devices that cannot be
/// evaluated do not count, and neither do devices of incomplete or invalid pools.
pub fn count_devices(
    inventory: &Inventory,
    node: TargetNode<'_>,
    class: &DeviceClass,
    budget: &mut SearchBudget,
) -> (i64, i64) {
    // Scores count devices by the default features, as in kube-scheduler.
    let features = AllocatorFeatures::default();
    let selectors = class.spec.selectors.iter();
    let selectors = selectors.filter_map(|selector| selector.cel.as_ref());
    let selectors: Vec<Compiled> = selectors
        .map(|cel| selectors::compile(&cel.expression, features.environment()))
        .collect();
    // A node with invalid pools has no devices for scores.
    let Ok(pools) = inventory.pools_for(node, features) else {
        return (0, 0);
    };
    let (mut all, mut allocated) = (0, 0);
    for pool in &pools {
        for slice in pool.slices() {
            for (index, device) in slice.devices().iter().enumerate() {
                let mut selectors = selectors.iter();
                let is_selected = slice.selects_for_device(index, node) == Ok(true)
                    && selectors.all(|selector| match selector {
                        Ok(selector) => matches!(selector.matches(slice, index, budget), Ok(true)),
                        Err(_) => false,
                    });
                if !is_selected {
                    continue;
                }
                all += 1;
                let is_allocated = pool.allocated.is_some_and(|allocated| {
                    allocated.is_exclusive(&device.name) || allocated.is_shared(&device.name)
                });
                allocated += i64::from(is_allocated);
            }
        }
    }
    (all, allocated)
}
