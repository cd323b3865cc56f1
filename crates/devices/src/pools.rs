//! The view of a node on a pool.
//!
//! The slices of a pool's highest generation form the pool. A driver replaces them one by one, so a scheduler may see
//! only some of them: such a pool is incomplete, and nothing is allocated from it.

use crate::AllocatorFeatures;
use crate::allocated::{AllocatedDevices, PoolAllocations};
use crate::inventory::{PoolId, PoolSlices};
use crate::slice::PreparedSlice;
use berth_api::Str;
use berth_api::devices::Counter;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashSet};

type Slices<'i> = SmallVec<[&'i PreparedSlice; 4]>;

/// The view of a node on a pool.
pub(crate) enum PoolView<'i> {
    /// The node has nothing of the pool, or the pool is being replaced by one without devices for the node.
    Ignored,
    /// Not all slices of the generation are known.
    Incomplete,
    /// The slices contradict each other.
    Invalid,
    /// Devices can be allocated.
    Usable(UsablePool<'i>),
}

/// The slices of a pool that is complete and valid.
pub(crate) struct UsablePool<'i> {
    /// With devices, sorted by name.
    pub(crate) slices: Slices<'i>,
    /// With devices that other nodes use. Their counters are shared.
    pub(crate) elsewhere: Slices<'i>,
    pub(crate) counter_slices: Slices<'i>,
}

/// A pool that a node can see.
pub(crate) struct NodePool<'i> {
    pub(crate) id: &'i PoolId,
    pub(crate) state: PoolState<'i>,
    /// The allocated devices of the pool.
    pub(crate) allocated: Option<&'i PoolAllocations>,
}

pub(crate) enum PoolState<'i> {
    Incomplete,
    Invalid,
    Usable(UsablePool<'i>),
}

impl<'i> NodePool<'i> {
    pub(crate) fn new(
        id: &'i PoolId,
        view: PoolView<'i>,
        allocated: &'i AllocatedDevices,
    ) -> Option<Self> {
        let state = match view {
            PoolView::Ignored => return None,
            PoolView::Incomplete => PoolState::Incomplete,
            PoolView::Invalid => PoolState::Invalid,
            PoolView::Usable(pool) => PoolState::Usable(pool),
        };
        let allocated = allocated.of_pool(&id.driver, &id.name);
        Some(Self {
            id,
            state,
            allocated,
        })
    }

    /// The slices that devices can be allocated from.
    pub(crate) fn slices(&self) -> &[&'i PreparedSlice] {
        match &self.state {
            PoolState::Usable(pool) => &pool.slices,
            PoolState::Incomplete | PoolState::Invalid => &[],
        }
    }

    pub(crate) fn has_binding_conditions(&self) -> bool {
        let mut slices = self.slices().iter();
        slices.any(|slice| slice.has_binding_conditions())
    }
}

/// Returns whether a slice has a kind of node selection or content that a gate disables.
fn is_disabled(slice: &PreparedSlice, features: AllocatorFeatures) -> bool {
    let per_device = slice.slice().spec.per_device_node_selection;
    !features.partitionable_devices && (per_device || slice.has_counters())
}

/// The view of a node on a pool, given which of its slices are relevant to the node.
///
/// # Errors
/// Those of `is_relevant`.
pub(crate) fn view<'i>(
    all: &'i PoolSlices,
    features: AllocatorFeatures,
    is_relevant: impl Fn(&PreparedSlice) -> Result<bool, String>,
) -> Result<PoolView<'i>, String> {
    let mut relevant = Slices::new();
    // Slices for one node come before those for several: the first one's count of slices is used.
    let local = |slice: &PreparedSlice| slice.node_name().is_some() && !slice.has_counters();
    for is_local in [true, false] {
        for slice in all {
            if local(slice) != is_local || is_disabled(slice, features) || !is_relevant(slice)? {
                continue;
            }
            match relevant.first() {
                Some(first) if slice.generation() < first.generation() => continue,
                Some(first) if slice.generation() > first.generation() => relevant.clear(),
                _ => {}
            }
            relevant.push(slice);
        }
    }
    let Some(first) = relevant.first() else {
        return Ok(PoolView::Ignored);
    };
    let generation = first.generation();
    let wanted = first.slice().spec.pool.resource_slice_count;
    let is_all = |count: usize| i64::try_from(count) == Ok(wanted);
    let mut elsewhere = Slices::new();
    if !is_all(relevant.len()) {
        // Slices that are not relevant to the node count, too.
        if all.iter().any(|slice| slice.generation() > generation) {
            return Ok(PoolView::Ignored);
        }
        let mut current = all.iter().filter(|s| s.generation() == generation);
        if !is_all(current.clone().count()) {
            return Ok(PoolView::Incomplete);
        }
        if features.partitionable_devices {
            let is_new = |slice: &&PreparedSlice| {
                let mut relevant = relevant.iter();
                !relevant.any(|known| known.id() == slice.id())
            };
            elsewhere.extend(current.by_ref().map(|slice| &**slice).filter(is_new));
        }
    }
    relevant.sort_by(|a, b| a.name().cmp(b.name()));
    let (counter_slices, slices): (Slices<'_>, Slices<'_>) = relevant
        .into_iter()
        .partition(|slice| features.partitionable_devices && slice.has_counters());
    let pool = UsablePool {
        slices,
        elsewhere,
        counter_slices,
    };
    Ok(if pool.is_valid(features) {
        PoolView::Usable(pool)
    } else {
        PoolView::Invalid
    })
}

impl UsablePool<'_> {
    /// Returns whether the names of devices and counter sets are unique, and all counters that devices consume exist.
    fn is_valid(&self, features: AllocatorFeatures) -> bool {
        // A duplicate within a slice was found when the slice was read.
        if self.slices.iter().any(|slice| slice.duplicate().is_some()) {
            return false;
        }
        if self.slices.len() > 1 {
            let mut names = HashSet::new();
            let mut devices = self.slices.iter().flat_map(|slice| slice.devices());
            if !devices.all(|device| names.insert(&device.name)) {
                return false;
            }
        }
        // Without the feature, counters are ignored.
        if !features.partitionable_devices {
            return true;
        }
        let mut sets: BTreeMap<&Str, &BTreeMap<Str, Counter>> = BTreeMap::new();
        for slice in &self.counter_slices {
            for set in &slice.slice().spec.shared_counters {
                if sets.insert(&set.name, &set.counters).is_some() {
                    return false;
                }
            }
        }
        let mut slices = self
            .slices
            .iter()
            .chain(&self.counter_slices)
            .chain(&self.elsewhere);
        slices.all(|slice| {
            let mut devices = slice.devices().iter();
            devices.all(|device| {
                let mut consumed = device.consumes_counters.iter();
                consumed.all(|consumed| {
                    let set = sets.get(&consumed.counter_set);
                    set.is_some_and(|set| {
                        consumed.counters.keys().all(|name| set.contains_key(name))
                    })
                })
            })
        })
    }
}
