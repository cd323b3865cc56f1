//! Counters that the devices of a pool share (KEP-4815), and the groups of devices that can use them together
//! (KEP-5963).

use crate::AllocatorFeatures;
use crate::pool::NodePool;
use berth_api::devices::{Device, DeviceCounterConsumption};
use berth_api::{Quantity, Str};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The remaining counters of a pool, by set, and the compatibility of further devices with the users of a set.
#[derive(Debug, Default)]
pub(crate) struct Counters<'i> {
    sets: FxHashMap<&'i Str, CounterSetState<'i>>,
}

#[derive(Debug, Default)]
struct CounterSetState<'i> {
    /// The rest, by counter.
    left: FxHashMap<&'i Str, Quantity>,
    users: Users<'i>,
}

/// The devices that use a counter set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Users<'i> {
    /// There are none.
    #[default]
    None,
    /// Devices without groups.
    Ungrouped,
    /// Devices with groups; the groups that they all have in common.
    Grouped(SmallVec<[&'i Str; 2]>),
}

impl<'i> Users<'i> {
    /// The users together with another device; `None` if they cannot use the set together.
    fn with(
        &self,
        consumed: &'i DeviceCounterConsumption,
        features: AllocatorFeatures,
    ) -> Option<Self> {
        let groups = &consumed.compatibility_groups;
        match self {
            Self::None if groups.is_empty() => Some(Self::Ungrouped),
            Self::None => Some(Self::Grouped(groups.iter().collect())),
            Self::Ungrouped => groups.is_empty().then_some(Self::Ungrouped),
            // Without the gate the compatibility is unknown.
            Self::Grouped(_) if !features.compatibility_groups => None,
            Self::Grouped(common) => {
                let mut common = common.clone();
                common.retain(|group| groups.contains(group));
                (!common.is_empty()).then_some(Self::Grouped(common))
            }
        }
    }
}

/// The reason why a device cannot use the counters of its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// Not enough is left.
    Exhausted,
    /// A device that uses them has no group in common with it.
    Incompatible,
}

/// The former users of the sets that a device uses, to be restored.
#[derive(Debug, Default)]
pub(crate) struct Taken<'i> {
    users: SmallVec<[(&'i Str, Users<'i>); 1]>,
}

impl<'i> Counters<'i> {
    /// The counters that the allocated devices of the pool leave.
    pub(crate) fn of_pool(pool: &NodePool<'i>) -> Self {
        let mut counters = Self::default();
        for slice in pool.counter_slices() {
            for set in &slice.slice().spec.shared_counters {
                let values = set.counters.iter();
                let state = CounterSetState {
                    left: values
                        .map(|(name, counter)| (name, counter.value))
                        .collect(),
                    users: Users::None,
                };
                counters.sets.insert(&set.name, state);
            }
        }
        let Some(allocated) = pool.allocated else {
            return counters;
        };
        // Devices of other nodes use the counters of the pool as well.
        for slice in pool.slices().chain(pool.elsewhere()) {
            for device in slice.devices() {
                let name = device.name.as_str();
                if allocated.is_exclusive(name) || allocated.is_shared(name) {
                    counters.take(device);
                    counters.note_user(device);
                }
            }
        }
        counters
    }

    fn add(&mut self, device: &Device, sign: impl Fn(Quantity, Quantity) -> Quantity) {
        for consumed in &device.consumes_counters {
            let Some(set) = self.sets.get_mut(&consumed.counter_set) else {
                continue;
            };
            for (name, amount) in &consumed.counters {
                if let Some(left) = set.left.get_mut(name) {
                    *left = sign(*left, amount.value);
                }
            }
        }
    }

    fn take(&mut self, device: &Device) {
        self.add(device, |left, amount| left - amount);
    }

    /// Records an allocated device as a user of its counter sets. The groups of allocated devices are taken from the
    /// current slices; without a common group, no device can join them.
    fn note_user(&mut self, device: &'i Device) {
        let features = AllocatorFeatures {
            compatibility_groups: true,
            ..AllocatorFeatures::V1_36
        };
        for consumed in &device.consumes_counters {
            if let Some(set) = self.sets.get_mut(&consumed.counter_set) {
                let together = set.users.with(consumed, features);
                set.users = together.unwrap_or_else(|| Users::Grouped(SmallVec::new()));
            }
        }
    }

    /// Returns the counters that a device consumed.
    pub(crate) fn give_back(&mut self, device: &Device, taken: Taken<'i>) {
        self.add(device, |left, amount| left + amount);
        for (set, users) in taken.users.into_iter().rev() {
            if let Some(state) = self.sets.get_mut(set) {
                state.users = users;
            }
        }
    }

    /// Consumes the counters of a device, if enough is left and the device is compatible with the other users of the
    /// counters. A pool with an overcommitted counter has nothing left.
    pub(crate) fn try_take(
        &mut self,
        device: &'i Device,
        features: AllocatorFeatures,
    ) -> Result<Taken<'i>, NotTaken> {
        let mut taken = Taken::default();
        for consumed in &device.consumes_counters {
            let Some(set) = self.sets.get_mut(&consumed.counter_set) else {
                continue;
            };
            let Some(users) = set.users.with(consumed, features) else {
                // No counter was consumed yet.
                for (set, users) in taken.users.into_iter().rev() {
                    if let Some(state) = self.sets.get_mut(set) {
                        state.users = users;
                    }
                }
                return Err(NotTaken::Incompatible);
            };
            let before = std::mem::replace(&mut set.users, users);
            taken.users.push((&consumed.counter_set, before));
        }
        self.take(device);
        let mut left = self.sets.values().flat_map(|set| set.left.values());
        if left.any(|left| left.sign() < 0) {
            self.give_back(device, taken);
            return Err(NotTaken::Exhausted);
        }
        Ok(taken)
    }
}
