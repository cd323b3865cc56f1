//! Counters that the devices of a pool share (KEP-4815).

use crate::pools::{NodePool, PoolState};
use berth_api::devices::Device;
use berth_api::{Quantity, Str};
use rustc_hash::FxHashMap;

/// What is left of the counters of a pool: by set, then by counter.
#[derive(Debug, Default)]
pub(crate) struct Counters<'i> {
    left: FxHashMap<&'i Str, FxHashMap<&'i Str, Quantity>>,
}

impl<'i> Counters<'i> {
    /// What the allocated devices of the pool leave.
    pub(crate) fn of_pool(pool: &NodePool<'i>) -> Self {
        let mut counters = Self::default();
        let PoolState::Usable(usable) = &pool.state else {
            return counters;
        };
        for slice in &usable.counter_slices {
            for set in &slice.slice().spec.shared_counters {
                let values = set.counters.iter();
                let values = values.map(|(name, counter)| (name, counter.value));
                counters.left.insert(&set.name, values.collect());
            }
        }
        let Some(allocated) = pool.allocated else {
            return counters;
        };
        for slice in usable.slices.iter().chain(&usable.elsewhere) {
            for device in slice.devices() {
                let name = device.name.as_str();
                if allocated.is_exclusive(name) || allocated.is_shared(name) {
                    counters.take(device);
                }
            }
        }
        counters
    }

    fn add(&mut self, device: &Device, sign: impl Fn(Quantity, Quantity) -> Quantity) {
        for consumed in &device.consumes_counters {
            let Some(set) = self.left.get_mut(&consumed.counter_set) else {
                continue;
            };
            for (name, amount) in &consumed.counters {
                if let Some(left) = set.get_mut(name) {
                    *left = sign(*left, amount.value);
                }
            }
        }
    }

    fn take(&mut self, device: &Device) {
        self.add(device, |left, amount| left - amount);
    }

    /// Gives back what a device took.
    pub(crate) fn give_back(&mut self, device: &Device) {
        self.add(device, |left, amount| left + amount);
    }

    /// Takes what a device consumes, if enough is left. A pool with a counter that is overcommitted has nothing left.
    pub(crate) fn try_take(&mut self, device: &Device) -> bool {
        self.take(device);
        let mut left = self.left.values().flat_map(FxHashMap::values);
        let fits = left.all(|left| left.sign() >= 0);
        if !fits {
            self.give_back(device);
        }
        fits
    }
}
