//! The devices that are allocated to claims.

use berth_api::devices::{AllocationResult, DeviceRequestAllocationResult};
use berth_api::{Quantity, Str};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The allocated devices of all pools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllocatedDevices {
    /// By driver, then by the name of the pool.
    drivers: FxHashMap<Str, FxHashMap<Str, PoolAllocations>>,
}

/// The allocated devices of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolAllocations {
    /// The number of claims that hold a device exclusively. More than one is a conflict that another component has
    /// made.
    exclusive: FxHashMap<Str, usize>,
    /// Devices that claims share.
    shared: FxHashMap<Str, Shares>,
}

/// The shares of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Shares {
    count: usize,
    /// The number of shares that consume capacity.
    consuming: usize,
    /// The sum of the consumed capacity.
    consumed: BTreeMap<Str, Quantity>,
}

impl AllocatedDevices {
    /// The allocated devices of a pool; `None` if there are none.
    pub fn of_pool(&self, driver: &str, pool: &str) -> Option<&PoolAllocations> {
        self.drivers.get(driver)?.get(pool)
    }

    /// Adds the devices of an allocation.
    pub fn add(&mut self, allocation: &AllocationResult) {
        for result in counted(allocation) {
            let driver = self.drivers.entry(result.driver.clone()).or_default();
            driver.entry(result.pool.clone()).or_default().add(result);
        }
    }

    /// Removes the devices of an allocation that was added.
    pub fn remove(&mut self, allocation: &AllocationResult) {
        for result in counted(allocation) {
            let Some(driver) = self.drivers.get_mut(&result.driver) else {
                continue;
            };
            if let Some(pool) = driver.get_mut(&result.pool) {
                pool.remove(result);
                if pool.exclusive.is_empty() && pool.shared.is_empty() {
                    driver.remove(&result.pool);
                }
            }
            if driver.is_empty() {
                self.drivers.remove(&result.driver);
            }
        }
    }
}

/// The results that make a device unavailable. Devices with admin access remain available to others.
fn counted(allocation: &AllocationResult) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let results = allocation.devices.results.iter();
    results.filter(|result| result.admin_access != Some(true))
}

impl PoolAllocations {
    fn add(&mut self, result: &DeviceRequestAllocationResult) {
        if result.share_id.is_none() {
            *self.exclusive.entry(result.device.clone()).or_default() += 1;
            return;
        }
        let shares = self.shared.entry(result.device.clone()).or_default();
        shares.count += 1;
        shares.consuming += usize::from(!result.consumed_capacity.is_empty());
        for (name, amount) in &result.consumed_capacity {
            *shares.consumed.entry(name.clone()).or_default() += *amount;
        }
    }

    fn remove(&mut self, result: &DeviceRequestAllocationResult) {
        if result.share_id.is_none() {
            if let Some(count) = self.exclusive.get_mut(&result.device) {
                *count -= 1;
                if *count == 0 {
                    self.exclusive.remove(&result.device);
                }
            }
            return;
        }
        let Some(shares) = self.shared.get_mut(&result.device) else {
            return;
        };
        shares.count -= 1;
        shares.consuming -= usize::from(!result.consumed_capacity.is_empty());
        for (name, amount) in &result.consumed_capacity {
            if let Some(sum) = shares.consumed.get_mut(name) {
                *sum -= *amount;
            }
        }
        if shares.count == 0 {
            self.shared.remove(&result.device);
        }
    }

    /// Returns whether a claim holds the device exclusively.
    pub fn is_exclusive(&self, device: &str) -> bool {
        self.exclusive.contains_key(device)
    }

    /// Returns whether claims share the device.
    pub fn is_shared(&self, device: &str) -> bool {
        self.shared.contains_key(device)
    }

    /// The capacity of the device that shares consume; `None` if no share consumes any.
    pub fn consumed(&self, device: &str) -> Option<&BTreeMap<Str, Quantity>> {
        let shares = self.shared.get(device)?;
        (shares.consuming > 0).then_some(&shares.consumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn allocation(results: Value) -> AllocationResult {
        let json = json!({"devices": {"results": results}});
        serde_json::from_value(json).expect("an allocation")
    }

    /// PL-165, PL-168: results with admin access do not count; shares add up.
    #[test]
    fn devices_are_counted_by_how_they_are_used() {
        let share = |id: &str, memory: &str| {
            json!({"request": "r", "driver": "d", "pool": "p", "device": "shared",
                   "shareID": id, "consumedCapacity": {"memory": memory}})
        };
        let exclusive = allocation(json!([{"driver": "d", "pool": "p", "device": "one"}]));
        let admin =
            allocation(json!([{"driver": "d", "pool": "p", "device": "two", "adminAccess": true}]));
        let first = allocation(json!([share("a", "10Gi")]));
        let second = allocation(json!([share("b", "5Gi")]));
        let mut allocated = AllocatedDevices::default();
        for allocation in [&exclusive, &admin, &first, &second] {
            allocated.add(allocation);
        }
        let pool = allocated.of_pool("d", "p").expect("allocations");
        assert!(pool.is_exclusive("one") && !pool.is_shared("one"));
        assert!(!pool.is_exclusive("two") && !pool.is_shared("two"));
        assert!(pool.is_shared("shared") && !pool.is_exclusive("shared"));
        let memory = |allocated: &AllocatedDevices| {
            let pool = allocated.of_pool("d", "p")?;
            pool.consumed("shared")?.get("memory").copied()
        };
        assert_eq!(memory(&allocated), "15Gi".parse().ok());
        allocated.remove(&first);
        assert_eq!(memory(&allocated), "5Gi".parse().ok());
        for allocation in [&exclusive, &admin, &second] {
            allocated.remove(allocation);
        }
        assert_eq!(allocated, AllocatedDevices::default(), "nothing remains");
    }
}
