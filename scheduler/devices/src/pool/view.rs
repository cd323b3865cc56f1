//! The view of a node on a pool.
//!
//! The slices of a pool's highest generation form the pool. A driver replaces them one by one, so a scheduler may see
//! only some of them: such a pool is incomplete, and nothing is allocated from it.

use super::{DevicePool, PoolId};
use crate::AllocatorFeatures;
use crate::allocated::PoolAllocations;
use crate::device_set::DeviceSet;
use crate::slice::PreparedSlice;
use berth_api::Str;
use berth_api::devices::Counter;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// Slices, by their places in the pool.
pub(crate) type Places = SmallVec<[usize; 4]>;

/// The view of a node on a pool.
#[derive(Debug, Clone)]
pub(crate) enum PoolView {
    /// The pool has nothing for the node, or is being replaced by a generation without devices for the node.
    Ignored,
    /// Not all slices of the generation are known.
    Incomplete,
    /// The slices contradict each other.
    Invalid,
    /// Devices can be allocated.
    Usable(UsablePool),
}

/// The slices of a pool that is complete and valid.
#[derive(Debug, Clone)]
pub(crate) struct UsablePool {
    /// With devices, sorted by name.
    slices: Places,
    /// With devices that other nodes use. Their counters are shared.
    elsewhere: Places,
    counter_slices: Places,
    has_binding_conditions: bool,
}

/// A pool that a node can see.
pub(crate) struct NodePool<'i> {
    pub(crate) id: &'i PoolId,
    pool: &'i DevicePool,
    view: Cow<'i, PoolView>,
    /// The allocated devices of the pool.
    pub(crate) allocated: Option<&'i PoolAllocations>,
}

impl<'i> NodePool<'i> {
    /// `None` if the node does not see the pool.
    pub(crate) fn new(
        id: &'i PoolId,
        pool: &'i DevicePool,
        view: Cow<'i, PoolView>,
        allocated: Option<&'i PoolAllocations>,
    ) -> Option<Self> {
        let is_seen = !matches!(*view, PoolView::Ignored);
        is_seen.then_some(Self {
            id,
            pool,
            view,
            allocated,
        })
    }

    /// Whether devices can be allocated from the pool, with the reason if not.
    pub(crate) fn view(&self) -> &PoolView {
        &self.view
    }

    fn usable(&self) -> Option<&UsablePool> {
        match &*self.view {
            PoolView::Usable(usable) => Some(usable),
            PoolView::Ignored | PoolView::Incomplete | PoolView::Invalid => None,
        }
    }

    fn places(&self, of: fn(&UsablePool) -> &Places) -> &[usize] {
        self.usable().map_or(&[][..], |usable| of(usable))
    }

    fn at<'s>(
        &'s self,
        of: fn(&UsablePool) -> &Places,
    ) -> impl Iterator<Item = &'i PreparedSlice> + use<'s, 'i> {
        let pool = self.pool;
        self.places(of).iter().map(move |at| pool.slice(*at))
    }

    /// The slices that devices can be allocated from.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &'i PreparedSlice> {
        self.at(|usable| &usable.slices)
    }

    /// The number of slices that devices can be allocated from.
    pub(crate) fn len(&self) -> usize {
        self.places(|usable| &usable.slices).len()
    }

    /// One of the slices that devices can be allocated from.
    pub(crate) fn slice(&self, index: usize) -> &'i PreparedSlice {
        let places = self.places(|usable| &usable.slices);
        self.pool.slice(places[index])
    }

    /// The devices of a slice that claims hold exclusively.
    pub(crate) fn held(&self, index: usize) -> &'i DeviceSet {
        let places = self.places(|usable| &usable.slices);
        self.pool.held(places[index])
    }

    /// The slices with devices that other nodes use.
    pub(crate) fn elsewhere(&self) -> impl Iterator<Item = &'i PreparedSlice> {
        self.at(|usable| &usable.elsewhere)
    }

    /// The slices with counters.
    pub(crate) fn counter_slices(&self) -> impl Iterator<Item = &'i PreparedSlice> {
        self.at(|usable| &usable.counter_slices)
    }

    pub(crate) fn has_binding_conditions(&self) -> bool {
        let usable = self.usable();
        usable.is_some_and(|usable| usable.has_binding_conditions)
    }
}

/// Returns whether a slice has a kind of node selection or content that a gate disables.
pub(super) fn is_disabled(slice: &PreparedSlice, features: AllocatorFeatures) -> bool {
    let per_device = slice.slice().spec.per_device_node_selection;
    !features.partitionable_devices && (per_device || slice.has_counters())
}

impl PoolView {
    /// The view of a node, given the slices that are relevant to it.
    pub(super) fn new(
        pool: &DevicePool,
        all_relevant: &[usize],
        features: AllocatorFeatures,
    ) -> Self {
        let mut relevant = Places::new();
        // Slices for one node are first, as upstream: the slice count of the first relevant slice is used.
        let local = |slice: &PreparedSlice| slice.node_name().is_some() && !slice.has_counters();
        for is_local in [true, false] {
            for at in all_relevant {
                let slice = pool.slice(*at);
                if local(slice) != is_local {
                    continue;
                }
                match relevant.first().map(|first| pool.slice(*first)) {
                    Some(first) if slice.generation() < first.generation() => continue,
                    Some(first) if slice.generation() > first.generation() => relevant.clear(),
                    _ => {}
                }
                relevant.push(*at);
            }
        }
        let Some(first) = relevant.first().map(|first| pool.slice(*first)) else {
            return Self::Ignored;
        };
        let generation = first.generation();
        let wanted = first.slice().spec.pool.resource_slice_count;
        let is_all = |count: usize| i64::try_from(count) == Ok(wanted);
        let mut elsewhere = Places::new();
        if !is_all(relevant.len()) {
            // Slices that are not relevant to the node are counted, too.
            let mut all = pool.slices();
            if all.any(|slice| slice.generation() > generation) {
                return Self::Ignored;
            }
            let current = pool.slices().enumerate();
            let current = current.filter(|(_, slice)| slice.generation() == generation);
            if !is_all(current.clone().count()) {
                return Self::Incomplete;
            }
            if features.partitionable_devices {
                let current = current.map(|(at, _)| at);
                elsewhere.extend(current.filter(|at| !relevant.contains(at)));
            }
        }
        relevant.sort_by(|a, b| pool.slice(*a).name().cmp(pool.slice(*b).name()));
        let (counter_slices, slices): (Places, Places) = relevant
            .into_iter()
            .partition(|at| features.partitionable_devices && pool.slice(*at).has_counters());
        let mut with_devices = slices.iter().map(|at| pool.slice(*at));
        let usable = UsablePool {
            has_binding_conditions: with_devices.any(PreparedSlice::has_binding_conditions),
            slices,
            elsewhere,
            counter_slices,
        };
        if usable.is_valid(pool, features) {
            Self::Usable(usable)
        } else {
            Self::Invalid
        }
    }
}

impl UsablePool {
    /// Returns whether the names of devices and counter sets are unique, and all counters that devices consume exist.
    fn is_valid(&self, pool: &DevicePool, features: AllocatorFeatures) -> bool {
        let slices = || self.slices.iter().map(|at| pool.slice(*at));
        let counter_slices = || self.counter_slices.iter().map(|at| pool.slice(*at));
        // A duplicate within a slice was found when the slice was read.
        if slices().any(|slice| slice.duplicate().is_some()) {
            return false;
        }
        if self.slices.len() > 1 {
            let mut names = HashSet::new();
            let mut devices = slices().flat_map(|slice| slice.devices());
            if !devices.all(|device| names.insert(&device.name)) {
                return false;
            }
        }
        // Without the feature, counters are ignored.
        if !features.partitionable_devices {
            return true;
        }
        let mut sets: BTreeMap<&Str, &BTreeMap<Str, Counter>> = BTreeMap::new();
        for slice in counter_slices() {
            for set in &slice.slice().spec.shared_counters {
                if sets.insert(&set.name, &set.counters).is_some() {
                    return false;
                }
            }
        }
        let elsewhere = self.elsewhere.iter().map(|at| pool.slice(*at));
        let mut slices = slices().chain(counter_slices()).chain(elsewhere);
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
