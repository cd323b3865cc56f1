//! The search for devices: depth first, the first solution is taken.
//!
//! ```text
//! claim 0: request 0: device 0, device 1, …   the devices of one request in the order of the pools: combinations,
//!          request 1: alternative 0, else 1   not permutations; each request begins with the first device again
//! claim 1: …
//! ```

mod pick;
mod survey;

pub use survey::{DeviceId, DeviceState, RequestSurvey};

use crate::budget::SearchBudget;
use crate::claims::{Alternative, ClaimRequests, Mode};
use crate::constraints::{self, Constraint};
use crate::counters::{Counters, Taken};
use crate::derived::DerivedValues;
use crate::error::{AllocateError, SkippedDevices};
use crate::location::{At, Location};
use crate::pool::{NodePool, PoolView};
use crate::selectors::{Compiled, MatchError};
use crate::slice::PreparedSlice;
use crate::target::TargetNode;
use crate::{ALLOCATION_RESULTS_MAX, ALTERNATIVES_MAX, AllocatorFeatures};
use berth_api::devices::Device;
use berth_api::{Quantity, Str};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The stack size below which more is allocated, and the allocated amount. The depth of a search is the number of
/// devices.
const STACK_RED_ZONE_BYTES: usize = 64 << 10;
const STACK_BYTES: usize = 1 << 20;

/// A device that was picked.
#[derive(Debug)]
pub(crate) struct Pick<'a> {
    location: Location,
    pub(crate) request: usize,
    pub(crate) alternative: usize,
    /// The capacity that the share consumes, if the device can be shared.
    pub(crate) share: Option<BTreeMap<Str, Quantity>>,
    /// The counters that are returned with the device.
    taken: Option<Taken<'a>>,
}

/// The shares of a device that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shares {
    All,
    None,
}

/// The result of a branch of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BranchOutcome {
    Found,
    NotFound,
    /// The claim would have more devices than fit into its status.
    TooManyDevices,
}

pub(crate) struct DeviceSearch<'a, 'b> {
    features: AllocatorFeatures,
    pub(crate) target: TargetNode<'a>,
    pools: Vec<NodePool<'a>>,
    pub(crate) claims: &'a [&'a ClaimRequests],
    /// The devices of requests for all of them, by claim, request and alternative.
    all_devices: FxHashMap<(usize, usize, usize), Vec<Location>>,
    constraints: Vec<Vec<Constraint<'a>>>,
    /// By claim.
    pub(crate) picks: Vec<Vec<Pick<'a>>>,
    /// The alternatives of the solution, by claim and request.
    pub(crate) selected: Vec<Vec<usize>>,
    /// By pool.
    counters: FxHashMap<usize, Counters<'a>>,
    derived: DerivedValues,
    /// The reason why a device was not used that claims select.
    skipped: Option<SkippedDevices>,
    pub(crate) budget: &'b mut SearchBudget,
}

impl<'a, 'b> DeviceSearch<'a, 'b> {
    /// A search that has not begun, in these pools.
    pub(crate) fn new(
        features: AllocatorFeatures,
        target: TargetNode<'a>,
        pools: Vec<NodePool<'a>>,
        claims: &'a [&'a ClaimRequests],
        budget: &'b mut SearchBudget,
    ) -> Self {
        Self {
            features,
            target,
            pools,
            claims,
            all_devices: FxHashMap::default(),
            constraints: Vec::with_capacity(claims.len()),
            picks: claims.iter().map(|_| Vec::new()).collect(),
            selected: claims.iter().map(|c| vec![0; c.requests.len()]).collect(),
            counters: FxHashMap::default(),
            derived: DerivedValues::default(),
            skipped: None,
            budget,
        }
    }

    /// Searches; `None` if there is no solution.
    pub(crate) fn run(mut self) -> Result<Option<Self>, AllocateError> {
        self.prepare()?;
        let first = At::default();
        if self.next(first, false, Location::default())? == BranchOutcome::Found {
            return Ok(Some(self));
        }
        let mut pools = self.pools.iter();
        if pools.any(|pool| matches!(pool.view(), PoolView::Invalid)) {
            return Err(AllocateError::InvalidPools);
        }
        match self.skipped {
            Some(skipped) => Err(AllocateError::Skipped(skipped)),
            None => Ok(None),
        }
    }

    /// The preference of the alternatives that were chosen.
    pub(crate) fn preference(&self) -> i64 {
        let lists = self.claims.iter().zip(&self.selected);
        let lists = lists.flat_map(|(claim, selected)| claim.requests.iter().zip(selected));
        let lists = lists.filter(|(request, _)| request.is_list);
        lists
            .map(|(_, selected)| ALTERNATIVES_MAX - *selected as i64)
            .sum()
    }

    /// Checks all requests and lists the devices for requests with allocation mode All.
    fn prepare(&mut self) -> Result<(), AllocateError> {
        for (claim, requests) in self.claims.iter().enumerate() {
            let mut devices_min = 0;
            for (request, prepared) in requests.requests.iter().enumerate() {
                if let Some(problem) = &prepared.problem {
                    return Err(AllocateError::Failed(problem.clone()));
                }
                let mut request_min = usize::MAX;
                for alternative in 0..prepared.alternatives.len() {
                    let at = At {
                        claim,
                        request,
                        alternative,
                        device: 0,
                    };
                    if let Some(problem) = &self.alternative(at).problem {
                        return Err(AllocateError::Failed(problem.clone()));
                    }
                    if self.alternative(at).mode == Mode::All {
                        let devices = self.all_of(at)?;
                        let key = (claim, request, alternative);
                        self.all_devices.insert(key, devices);
                    }
                    // The smallest alternative counts: another one may need more devices.
                    request_min = request_min.min(self.devices_of(at));
                }
                devices_min = request_min.saturating_add(devices_min);
            }
            if devices_min > ALLOCATION_RESULTS_MAX {
                return Err(AllocateError::Failed(format!(
                    "claim {}: number of requested devices {devices_min} exceeds the claim limit of {ALLOCATION_RESULTS_MAX}",
                    requests.claim().key()
                )));
            }
            let constraints =
                constraints::of_claim(requests, self.features).map_err(AllocateError::Failed)?;
            self.constraints.push(constraints);
        }
        Ok(())
    }

    pub(crate) fn alternative(&self, at: At) -> &'a Alternative {
        &self.claims[at.claim].requests[at.request].alternatives[at.alternative]
    }

    /// The number of devices that an alternative needs.
    fn devices_of(&self, at: At) -> usize {
        match self.alternative(at).mode {
            Mode::Exactly(count) => count,
            Mode::All => self
                .all_devices
                .get(&(at.claim, at.request, at.alternative))
                .map_or(0, Vec::len),
        }
    }

    /// All devices that an alternative selects, whether they are in use or not.
    fn all_of(&mut self, at: At) -> Result<Vec<Location>, AllocateError> {
        let claims = self.claims;
        let requested = claims[at.claim].requested(at.request, at.alternative);
        let mut devices = Vec::new();
        for pool in 0..self.pools.len() {
            let reason = match self.pools[pool].view() {
                PoolView::Usable(_) | PoolView::Ignored => None,
                PoolView::Incomplete => Some("being updated"),
                PoolView::Invalid => Some("invalid"),
            };
            if let Some(reason) = reason {
                let claim = claims[at.claim].claim().key();
                let request = own_name(self.alternative(at));
                let pool = self.pools[pool].id;
                let why = format!(
                    "claim {claim}, request {request}: asks for all devices, but resource pool {pool} is currently {reason}"
                );
                return Err(if self.features.fixes.pools_by_node {
                    AllocateError::UnusablePool(why)
                } else {
                    AllocateError::Failed(why)
                });
            }
            for location in self.locations(pool) {
                self.budget.step()?;
                // A device with the capacity but not enough of it left is one of all devices.
                let is_exact = self.features.fixes.exact_shares;
                let shares = if is_exact { Shares::None } else { Shares::All };
                if self.is_selected(at, location)?
                    && self.has_capacity(at, location, requested, shares)?
                {
                    devices.push(location);
                }
            }
        }
        Ok(devices)
    }

    /// The devices of a pool in their order.
    fn locations(&self, pool: usize) -> impl Iterator<Item = Location> + use<> {
        let slices = 0..self.pools[pool].len();
        let counts: Vec<usize> = slices
            .map(|slice| self.slice(pool, slice).devices().len())
            .collect();
        let of_slice = move |(slice, count)| {
            (0..count).map(move |device| Location {
                pool,
                slice,
                device,
            })
        };
        counts.into_iter().enumerate().flat_map(of_slice)
    }

    fn slice(&self, pool: usize, slice: usize) -> &'a PreparedSlice {
        self.pools[pool].slice(slice)
    }

    /// The slice and the device at a location.
    pub(crate) fn at(&self, location: Location) -> (&'a PreparedSlice, &'a Device) {
        let slice = self.slice(location.pool, location.slice);
        (slice, &slice.devices()[location.device])
    }

    /// The slice and the device of a pick.
    pub(crate) fn device_of(&self, pick: &Pick<'_>) -> (&'a PreparedSlice, &'a Device) {
        self.at(pick.location)
    }

    /// Searches for the device `at` and all following ones. `is_chosen` is true once an alternative of a list was
    /// chosen. The devices of a request are searched from `start` on.
    fn next(
        &mut self,
        at: At,
        is_chosen: bool,
        start: Location,
    ) -> Result<BranchOutcome, AllocateError> {
        stacker::maybe_grow(STACK_RED_ZONE_BYTES, STACK_BYTES, || {
            self.next_here(at, is_chosen, start)
        })
    }

    fn next_here(
        &mut self,
        at: At,
        is_chosen: bool,
        start: Location,
    ) -> Result<BranchOutcome, AllocateError> {
        self.budget.step()?;
        let Some(requests) = self.claims.get(at.claim) else {
            return Ok(BranchOutcome::Found);
        };
        let Some(request) = requests.requests.get(at.request) else {
            let following = At {
                claim: at.claim + 1,
                ..At::default()
            };
            return Ok(match self.next(following, false, Location::default())? {
                // The next claim may need fewer devices after a different choice for an earlier one.
                BranchOutcome::TooManyDevices => BranchOutcome::NotFound,
                outcome => outcome,
            });
        };
        if request.is_list && !is_chosen {
            return self.alternatives(at, request.alternatives.len());
        }
        let needed = self.devices_of(at);
        let is_all = self.alternative(at).mode == Mode::All;
        if is_all && needed == 0 {
            return Ok(BranchOutcome::NotFound);
        }
        if at.device >= needed {
            let following = At {
                claim: at.claim,
                request: at.request + 1,
                ..At::default()
            };
            return self.next(following, false, Location::default());
        }
        if self.picks[at.claim].len() + needed - at.device > ALLOCATION_RESULTS_MAX {
            return Ok(BranchOutcome::TooManyDevices);
        }
        if is_all {
            let location = self.all_devices[&(at.claim, at.request, at.alternative)][at.device];
            return Ok(match self.try_device(at, is_chosen, location, true)? {
                Some(outcome) => outcome,
                None => BranchOutcome::NotFound,
            });
        }
        self.devices_from(at, is_chosen, start)
    }

    /// Tries the alternatives of a list, the best first.
    fn alternatives(&mut self, at: At, count: usize) -> Result<BranchOutcome, AllocateError> {
        let mut result = BranchOutcome::TooManyDevices;
        for alternative in 0..count {
            let chosen = At { alternative, ..at };
            match self.next(chosen, true, Location::default())? {
                BranchOutcome::Found => {
                    self.selected[at.claim][at.request] = alternative;
                    return Ok(BranchOutcome::Found);
                }
                BranchOutcome::NotFound => result = BranchOutcome::NotFound,
                BranchOutcome::TooManyDevices => {}
            }
        }
        Ok(result)
    }

    /// Tries all devices from a location on.
    fn devices_from(
        &mut self,
        at: At,
        is_chosen: bool,
        start: Location,
    ) -> Result<BranchOutcome, AllocateError> {
        let claims = self.claims;
        let requested = claims[at.claim].requested(at.request, at.alternative);
        for pool in start.pool..self.pools.len() {
            // The search continues where the last device was picked, so that no set of devices is tried twice.
            let is_first = pool == start.pool;
            let first_slice = if is_first { start.slice } else { 0 };
            for slice in first_slice..self.pools[pool].len() {
                let is_first = is_first && slice == start.slice;
                let first_device = if is_first { start.device } else { 0 };
                let mut next = Location {
                    pool,
                    slice,
                    device: first_device,
                };
                while let Some(location) = self.skip_held(at, next)? {
                    next.device = location.device + 1;
                    if self.is_in_use(at, location)
                        || !self.is_selected(at, location)?
                        || !self.has_capacity(at, location, requested, Shares::All)?
                    {
                        continue;
                    }
                    match self.try_device(at, is_chosen, location, false)? {
                        None | Some(BranchOutcome::NotFound) => {}
                        Some(outcome) => return Ok(outcome),
                    }
                }
            }
        }
        Ok(BranchOutcome::NotFound)
    }

    /// The first device of a slice, from a location on, that no claim holds, or the next device if the request may use
    /// held devices. Each device costs a step, also a skipped one, so that the search is bounded.
    fn skip_held(&mut self, at: At, from: Location) -> Result<Option<Location>, AllocateError> {
        let devices = self.slice(from.pool, from.slice).devices().len();
        let device = if self.alternative(at).admin_access {
            from.device
        } else {
            let held = self.pools[from.pool].held(from.slice);
            held.next_absent(from.device).min(devices)
        };
        let is_there = device < devices;
        let skipped = device.saturating_sub(from.device);
        self.budget.steps(skipped + usize::from(is_there))?;
        Ok(is_there.then_some(Location { device, ..from }))
    }

    /// Picks a device and continues with the next one; `None` if the device cannot be picked. If no solution is found,
    /// the device is returned.
    fn try_device(
        &mut self,
        at: At,
        is_chosen: bool,
        location: Location,
        is_required: bool,
    ) -> Result<Option<BranchOutcome>, AllocateError> {
        if !self.pick(at, location, is_required)? {
            return Ok(None);
        }
        let following = At {
            device: at.device + 1,
            ..at
        };
        let start = Location {
            device: location.device + 1,
            ..location
        };
        let outcome = self.next(following, is_chosen, start)?;
        if outcome != BranchOutcome::Found {
            self.give_back(at);
        }
        Ok(Some(outcome))
    }

    /// Returns whether the request cannot have the device because it is allocated or was picked.
    fn is_in_use(&self, at: At, location: Location) -> bool {
        let is_picked = |picks: &[Pick<'_>]| {
            let mut picks = picks.iter();
            picks.any(|pick| pick.share.is_none() && pick.location == location)
        };
        if self.alternative(at).admin_access {
            return is_picked(&self.picks[at.claim]);
        }
        let (_, device) = self.at(location);
        let pool = &self.pools[location.pool];
        // A device with allocated shares may no longer be published as shareable.
        let is_for_one = !self.features.consumable_capacity
            || self.features.fixes.qualified_capacity && !device.allow_multiple_allocations;
        let has_shares = || pool.allocated.is_some_and(|a| a.is_shared(&device.name));
        pool.held(location.slice).contains(location.device)
            || is_for_one && has_shares()
            || self.picks.iter().any(|picks| is_picked(picks))
    }

    /// Returns whether the selectors of the class and of the request select the device, and it can be used on the node.
    fn is_selected(&mut self, at: At, location: Location) -> Result<bool, AllocateError> {
        let (slice, device) = self.at(location);
        if !self.features.binding_conditions && !device.binding_conditions.is_empty() {
            return Ok(false);
        }
        let alternative = self.alternative(at);
        if let Some(class) = &alternative.class {
            let name = || format!("class {}", class.metadata.name);
            if !self.all_match(&alternative.class_selectors, slice, location, name)? {
                return Ok(false);
            }
        }
        let claim = self.claims[at.claim].claim();
        let name = || format!("claim {}", claim.key());
        if !self.all_match(&alternative.selectors, slice, location, name)? {
            return Ok(false);
        }
        let is_usable = slice
            .selects_for_device(location.device, self.target)
            .map_err(AllocateError::Failed)?;
        let skipped = self.reason_to_skip(slice, device).filter(|_| is_usable);
        self.skipped = skipped.or(self.skipped);
        Ok(is_usable && skipped.is_none())
    }

    /// The reason why a device is not allocated although it matches: it needs a disabled gate or a missing node
    /// feature.
    fn reason_to_skip(&self, slice: &PreparedSlice, device: &Device) -> Option<SkippedDevices> {
        let features = self.features;
        if !slice.slice().spec.skip_node_operations.is_empty() {
            if !features.optional_node_operations {
                return Some(SkippedDevices::OptionalNodeOperations);
            }
            if !self.target.skips_operations {
                return Some(SkippedDevices::NodeOperations);
            }
        }
        let is_mapped = !device.node_allocatable_resources.is_empty();
        (is_mapped && !features.node_allocatable).then_some(SkippedDevices::NodeAllocatable)
    }

    fn all_match(
        &mut self,
        selectors: &[Compiled],
        slice: &PreparedSlice,
        location: Location,
        name: impl Fn() -> String,
    ) -> Result<bool, AllocateError> {
        for (index, selector) in selectors.iter().enumerate() {
            let failed = |what: &str, why: String| {
                let name = name();
                AllocateError::Failed(format!(
                    "{name}: selector #{index}: CEL {what} error: {why}"
                ))
            };
            let selector = match selector {
                Ok(selector) => selector,
                Err(error) => return Err(failed("compile", error.to_string())),
            };
            match selector.matches(slice, location.device, self.budget) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(MatchError::OutOfSteps) => return Err(AllocateError::OutOfSteps),
                Err(MatchError::Failed(why)) => return Err(failed("runtime", why)),
            }
        }
        Ok(true)
    }
}

/// The name of a request, or the name of an alternative without the name of its request.
fn own_name(alternative: &Alternative) -> &str {
    let name = alternative.name.as_str();
    name.rsplit_once('/').map_or(name, |(_, own)| own)
}
