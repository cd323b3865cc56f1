//! A pool as its driver publishes it: its slices, and the devices that claims hold.

mod view;

pub(crate) use view::{NodePool, PoolView};

use crate::AllocatorFeatures;
use crate::allocated::PoolAllocations;
use crate::device_set::DeviceSet;
use crate::slice::PreparedSlice;
use berth_api::Str;
use berth_api::devices::ResourceSlice;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Identifies a pool. Pools are ordered by driver, then by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId {
    /// The driver.
    pub driver: Str,
    /// The name, unique among the pools of the driver.
    pub name: Str,
}

impl PoolId {
    /// The pool that a slice is a part of.
    pub(crate) fn of(slice: &ResourceSlice) -> Self {
        Self {
            driver: slice.spec.driver.clone(),
            name: slice.spec.pool.name.clone(),
        }
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.driver, self.name)
    }
}

/// The slices of a pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct DevicePool {
    /// Of all generations, in the order in which they were added.
    slices: Vec<PoolSlice>,
    /// The view of the nodes to which all slices are relevant, without and with partitionable devices. Computed on
    /// demand, because a new pool is incomplete most of the time.
    whole: [OnceLock<PoolView>; 2],
}

#[derive(Debug, Clone)]
struct PoolSlice {
    slice: Arc<PreparedSlice>,
    /// The devices that claims hold exclusively.
    held: DeviceSet,
}

impl PoolSlice {
    fn new(slice: Arc<PreparedSlice>, allocated: Option<&PoolAllocations>) -> Self {
        let mut held = DeviceSet::default();
        if let Some(allocated) = allocated {
            for (at, device) in slice.devices().iter().enumerate() {
                held.set(at, allocated.is_exclusive(&device.name));
            }
        }
        Self { slice, held }
    }
}

impl DevicePool {
    pub(crate) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// The slices of all generations, in the order in which they were added.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &Arc<PreparedSlice>> + Clone {
        self.slices.iter().map(|known| &known.slice)
    }

    /// Adds a slice, or replaces the slice of that name. Returns the replaced slice.
    pub(crate) fn set(
        &mut self,
        slice: PreparedSlice,
        allocated: Option<&PoolAllocations>,
    ) -> Option<Arc<PreparedSlice>> {
        self.whole = Default::default();
        let new = PoolSlice::new(Arc::new(slice), allocated);
        let mut known = self.slices.iter_mut();
        match known.find(|known| known.slice.name() == new.slice.name()) {
            Some(known) => Some(std::mem::replace(known, new).slice),
            None => {
                self.slices.push(new);
                None
            }
        }
    }

    /// Removes the slice of this name, and returns it.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<PreparedSlice>> {
        let mut slices = self.slices.iter();
        let at = slices.position(|known| **known.slice.name() == *name)?;
        self.whole = Default::default();
        Some(self.slices.remove(at).slice)
    }

    /// Replaces each slice by another version of it, with the same devices.
    pub(crate) fn replace(&mut self, new: impl Fn(&PreparedSlice) -> PreparedSlice) {
        for known in &mut self.slices {
            known.slice = Arc::new(new(&known.slice));
        }
    }

    /// Follows the allocations of a device. The device may be in no slice, or in several generations.
    pub(crate) fn follow(&mut self, device: &str, allocated: Option<&PoolAllocations>) {
        let is_held = allocated.is_some_and(|allocated| allocated.is_exclusive(device));
        for known in &mut self.slices {
            for at in known.slice.places_of(device) {
                known.held.set(at, is_held);
            }
        }
    }

    /// The view of a node, given the slices that are relevant to it.
    ///
    /// # Errors
    /// The errors of `is_relevant`.
    pub(crate) fn view(
        &self,
        features: AllocatorFeatures,
        is_relevant: impl Fn(&PreparedSlice) -> Result<bool, String>,
    ) -> Result<Cow<'_, PoolView>, String> {
        let mut relevant = view::Places::new();
        for (at, known) in self.slices.iter().enumerate() {
            if !view::is_disabled(&known.slice, features) && is_relevant(&known.slice)? {
                relevant.push(at);
            }
        }
        if relevant.is_empty() {
            return Ok(Cow::Owned(PoolView::Ignored));
        }
        if relevant.len() < self.slices.len() {
            return Ok(Cow::Owned(PoolView::new(self, &relevant, features)));
        }
        let whole = &self.whole[usize::from(features.partitionable_devices)];
        Ok(Cow::Borrowed(
            whole.get_or_init(|| PoolView::new(self, &relevant, features)),
        ))
    }

    fn slice(&self, at: usize) -> &PreparedSlice {
        &self.slices[at].slice
    }

    fn held(&self, at: usize) -> &DeviceSet {
        &self.slices[at].held
    }
}
