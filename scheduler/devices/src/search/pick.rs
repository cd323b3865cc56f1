//! Picking and returning a device: capacity, counters, taints and constraints.

use super::{AllocateError, At, DeviceSearch, Location, Pick, Shares, SkippedDevices, own_name};
use crate::capacity::Capacities;
use crate::constraints;
use crate::counters::{Counters, NotTaken};
use berth_api::devices::RequestedDevices;
use berth_api::{Quantity, Str};
use std::collections::BTreeMap;

impl<'a> DeviceSearch<'a, '_> {
    /// Returns whether the device has the requested capacity in addition to these shares.
    pub(super) fn has_capacity(
        &self,
        at: At,
        location: Location,
        requested: &RequestedDevices,
        shares: Shares,
    ) -> Result<bool, AllocateError> {
        let (slice, device) = self.at(location);
        if !self.features.consumable_capacity {
            return Ok(true);
        }
        // Without capacities on either side, there is nothing to compare.
        if device.capacity.is_empty() && requested.capacity.is_none() {
            return Ok(true);
        }
        let allocated = self.pools[location.pool].allocated;
        let allocated = allocated.and_then(|allocated| allocated.consumed(&device.name));
        let mut picked: Option<BTreeMap<Str, Quantity>> = None;
        // Shares picked in this search count in addition to allocated ones.
        for share in self.shares_of(location) {
            let sum = picked.get_or_insert_default();
            for (name, amount) in share {
                *sum.entry(name.clone()).or_default() += *amount;
            }
        }
        let consumed = match shares {
            Shares::All => [allocated, picked.as_ref()],
            Shares::None => [None, None],
        };
        let driver = &slice.slice().spec.driver;
        let capacities = Capacities::new(device, driver, self.features);
        let fits = capacities.fit(requested.capacity.as_ref(), consumed);
        fits.map_err(|why| {
            let claim = self.claims[at.claim].claim().key();
            let request = own_name(self.alternative(at));
            AllocateError::Failed(format!("claim {claim}, request {request}: {why}"))
        })
    }

    /// The shares of a device that were picked.
    fn shares_of(&self, location: Location) -> impl Iterator<Item = &BTreeMap<Str, Quantity>> {
        let picks = self.picks.iter().flatten();
        let picks = picks.filter(move |pick| pick.location == location);
        picks.filter_map(|pick| pick.share.as_ref())
    }

    /// Picks a selected device, and returns whether that was possible.
    ///
    /// Before Kubernetes 1.37, counters that were consumed before a later check rejects the device stay consumed until
    /// the end of the search, and so do the counters of a returned shared device. Such a search can miss a solution; it
    /// never allocates too much.
    pub(super) fn pick(
        &mut self,
        at: At,
        location: Location,
        is_required: bool,
    ) -> Result<bool, AllocateError> {
        let (_, device) = self.at(location);
        if self.is_in_use(at, location) {
            return Ok(false);
        }
        let consumes = !device.consumes_counters.is_empty();
        if consumes && !self.features.partitionable_devices {
            return Ok(false);
        }
        let is_shared = self.features.consumable_capacity && device.allow_multiple_allocations;
        // The first share of a device takes its counters.
        let takes_counters = consumes && !(is_shared && self.has_shares(location));
        let mut taken = None;
        if takes_counters {
            let features = self.features;
            match self.counters(location.pool).try_take(device, features) {
                Ok(counters) => taken = Some(counters),
                Err(NotTaken::Exhausted) => return Ok(false),
                Err(NotTaken::Incompatible) => {
                    if !features.compatibility_groups {
                        self.skipped = Some(SkippedDevices::CompatibilityGroups);
                    }
                    return Ok(false);
                }
            }
        }
        let is_exact = self.features.fixes.exact_counters;
        let is_accepted = self.is_accepted(at, location, is_required)?;
        if !is_accepted {
            if let Some(taken) = taken.filter(|_| is_exact) {
                self.counters(location.pool).give_back(device, taken);
            }
            return Ok(false);
        }
        let (slice, _) = self.at(location);
        let requested = self.claims[at.claim].requested(at.request, at.alternative);
        let capacities = Capacities::new(device, &slice.slice().spec.driver, self.features);
        self.picks[at.claim].push(Pick {
            location,
            request: at.request,
            alternative: at.alternative,
            share: is_shared.then(|| capacities.consumed(requested.capacity.as_ref())),
            taken: taken.filter(|_| is_exact || !is_shared),
        });
        Ok(true)
    }

    /// Returns whether the taints of a device are tolerated and the constraints of the claim are satisfied with it. If
    /// so, the constraints contain it from then on.
    fn is_accepted(
        &mut self,
        at: At,
        location: Location,
        is_required: bool,
    ) -> Result<bool, AllocateError> {
        let (slice, device) = self.at(location);
        let claims = self.claims;
        let requested = claims[at.claim].requested(at.request, at.alternative);
        if self.features.device_taints {
            let mut taints = device
                .taints
                .iter()
                .filter(|t| t.effect.forbids_allocation());
            let is_tolerated = |taint| requested.tolerations.iter().any(|t| t.tolerates(taint));
            if taints.any(|taint| !is_tolerated(taint)) {
                return Ok(false);
            }
        }
        let request = claims[at.claim].request_name(at.request);
        let name = &self.alternative(at).name;
        let driver = &slice.slice().spec.driver;
        for index in 0..self.constraints[at.claim].len() {
            let constraint = &self.constraints[at.claim][index];
            if !constraint.applies_to(request, name) {
                continue;
            }
            let derived = self.derived.value(
                at,
                location,
                self.claims[at.claim],
                slice,
                constraint.attribute(),
                self.budget,
            )?;
            let value = match &derived {
                Some(value) => Some(value),
                None => constraints::attribute_of(device, driver, constraint.attribute()),
            };
            if self.constraints[at.claim][index].add(request, value) {
                continue;
            }
            if is_required {
                let claim = claims[at.claim].claim().key();
                let own = own_name(self.alternative(at));
                let pool = self.pools[location.pool].id;
                let device = &device.name;
                return Err(AllocateError::Failed(format!(
                    "claim {claim}, request {own}: cannot add device {pool}/{device} because a claim constraint would not be satisfied"
                )));
            }
            self.leave_constraints(at, index);
            return Ok(false);
        }
        // The devices of a request for all of them were listed before any was picked.
        if is_required && !self.has_capacity(at, location, requested, Shares::All)? {
            let is_exact = self.features.fixes.exact_counters;
            if is_exact {
                self.leave_constraints(at, self.constraints[at.claim].len());
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// The device that was added last to the first constraints of its claim is removed from them.
    fn leave_constraints(&mut self, at: At, count: usize) {
        let request = self.claims[at.claim].request_name(at.request);
        let name = &self.alternative(at).name;
        for constraint in &mut self.constraints[at.claim][..count] {
            if constraint.applies_to(request, name) {
                constraint.remove(request);
            }
        }
    }

    /// Returns whether shares of the device are allocated or were picked.
    fn has_shares(&self, location: Location) -> bool {
        let (_, device) = self.at(location);
        let allocated = self.pools[location.pool].allocated;
        // Before Kubernetes 1.37, shares that consume no capacity are overlooked.
        let is_exact = self.features.fixes.exact_counters;
        allocated.is_some_and(|allocated| {
            if is_exact {
                allocated.is_shared(&device.name)
            } else {
                allocated.consumed(&device.name).is_some()
            }
        }) || self.shares_of(location).next().is_some()
    }

    pub(super) fn counters(&mut self, pool: usize) -> &mut Counters<'a> {
        let pools = &self.pools;
        let new = || Counters::of_pool(&pools[pool]);
        self.counters.entry(pool).or_insert_with(new)
    }

    /// Returns the device that was picked last.
    pub(super) fn give_back(&mut self, at: At) {
        let Some(pick) = self.picks[at.claim].pop() else {
            return;
        };
        let (_, device) = self.at(pick.location);
        self.leave_constraints(at, self.constraints[at.claim].len());
        if let Some(taken) = pick.taken {
            self.counters(pick.location.pool).give_back(device, taken);
        }
    }
}
