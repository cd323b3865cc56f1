//! The search for devices: depth first, the first solution is taken.
//!
//! ```text
//! claim 0: request 0: device 0, device 1, …   the devices of one request in the order of the pools: combinations,
//!          request 1: alternative 0, else 1   not permutations; each request begins with the first device again
//! claim 1: …
//! ```

use crate::budget::{Budget, OutOfSteps};
use crate::capacity;
use crate::claims::{Alternative, ClaimRequests, Mode};
use crate::constraints::{self, Constraint};
use crate::counters::Counters;
use crate::inventory::Inventory;
use crate::pools::{NodePool, PoolState};
use crate::selectors::{Compiled, MatchError};
use crate::slice::{PreparedSlice, Target};
use crate::{ALLOCATION_RESULTS_MAX, ALTERNATIVES_MAX, AllocatorFeatures, result};
use berth_api::devices::{AllocationResult, Device};
use berth_api::{Labels, Quantity, Str};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The stack that is left when more is allocated, and how much that is. The depth of a search is the number of devices.
const STACK_RED_ZONE_BYTES: usize = 64 << 10;
const STACK_BYTES: usize = 1 << 20;

/// The node that devices are allocated on.
#[derive(Debug, Clone, Copy)]
pub struct TargetNode<'n> {
    /// Its name.
    pub name: &'n str,
    /// Its labels.
    pub labels: &'n Labels,
}

/// Why a search ended without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// The budget is used up.
    #[error("the search for devices took too long")]
    OutOfSteps,
    /// There is no solution on this node, and some of its pools are invalid.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
    /// The claims or what drivers publish are wrong.
    #[error("{0}")]
    Failed(String),
}

impl From<OutOfSteps> for AllocateError {
    fn from(_: OutOfSteps) -> Self {
        Self::OutOfSteps
    }
}

/// Allocates devices on nodes.
#[derive(Debug, Clone, Copy)]
pub struct Allocator<'i> {
    inventory: &'i Inventory,
    features: AllocatorFeatures,
}

impl<'i> Allocator<'i> {
    /// An allocator of these devices.
    pub fn new(inventory: &'i Inventory, features: AllocatorFeatures) -> Self {
        Self {
            inventory,
            features,
        }
    }

    /// Allocates devices to all claims together, one allocation per claim; `None` if the node does not have them. The
    /// devices are not marked as allocated: see [`Inventory::set_allocation`]. Identities of shares are left empty.
    ///
    /// # Errors
    /// The search did not end within the budget, or the input is wrong.
    pub fn allocate(
        &self,
        node: TargetNode<'_>,
        claims: &[&ClaimRequests],
        budget: &mut Budget,
    ) -> Result<Option<Vec<AllocationResult>>, AllocateError> {
        let Some(solution) = self.search(node, claims, budget)? else {
            return Ok(None);
        };
        let claims = (0..claims.len()).map(|index| result::of_claim(&solution, index));
        claims
            .collect::<Result<_, String>>()
            .map(Some)
            .map_err(AllocateError::Failed)
    }

    /// Whether [`Self::allocate`] would allocate devices, and how much the alternatives that it would choose are
    /// preferred: for each list [`ALTERNATIVES_MAX`] minus the index of the alternative.
    ///
    /// # Errors
    /// Those of [`Self::allocate`].
    pub fn preference(
        &self,
        node: TargetNode<'_>,
        claims: &[&ClaimRequests],
        budget: &mut Budget,
    ) -> Result<Option<i64>, AllocateError> {
        let Some(solution) = self.search(node, claims, budget)? else {
            return Ok(None);
        };
        let lists = claims.iter().zip(&solution.selected);
        let lists = lists.flat_map(|(claim, selected)| claim.requests.iter().zip(selected));
        let lists = lists.filter(|(request, _)| request.is_list);
        Ok(Some(
            lists
                .map(|(_, selected)| ALTERNATIVES_MAX - *selected as i64)
                .sum(),
        ))
    }

    fn search<'a, 'b>(
        &self,
        node: TargetNode<'a>,
        claims: &'a [&'a ClaimRequests],
        budget: &'b mut Budget,
    ) -> Result<Option<Search<'a, 'b>>, AllocateError>
    where
        'i: 'a,
    {
        let pools = self.inventory.pools_for(node, self.features);
        let pools = pools
            .map_err(|why| AllocateError::Failed(format!("gather pool information: {why}")))?;
        let mut search = Search {
            features: self.features,
            target: Target {
                name: node.name,
                labels: node.labels,
            },
            pools,
            claims,
            all_devices: FxHashMap::default(),
            constraints: Vec::with_capacity(claims.len()),
            picks: claims.iter().map(|_| Vec::new()).collect(),
            selected: claims.iter().map(|c| vec![0; c.requests.len()]).collect(),
            counters: FxHashMap::default(),
            budget,
        };
        search.prepare()?;
        let first = At::default();
        if search.next(first, false, Location::default())? == Outcome::Found {
            return Ok(Some(search));
        }
        let mut pools = search.pools.iter();
        match pools.any(|pool| matches!(pool.state, PoolState::Invalid)) {
            true => Err(AllocateError::InvalidPools),
            false => Ok(None),
        }
    }
}

/// The place of a device in the node's pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Location {
    pool: usize,
    slice: usize,
    device: usize,
}

/// A device that the search has to find.
#[derive(Debug, Clone, Copy, Default)]
struct At {
    claim: usize,
    request: usize,
    alternative: usize,
    device: usize,
}

/// A device that was picked.
#[derive(Debug)]
pub(crate) struct Pick {
    location: Location,
    pub(crate) request: usize,
    pub(crate) alternative: usize,
    /// What the share consumes, if the device can be shared.
    pub(crate) share: Option<BTreeMap<Str, Quantity>>,
    /// Whether giving the device back gives counters back.
    took_counters: bool,
}

/// What a branch of the search has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Found,
    NotFound,
    /// The claim would have more devices than fit into its status.
    TooManyDevices,
}

pub(crate) struct Search<'a, 'b> {
    features: AllocatorFeatures,
    pub(crate) target: Target<'a>,
    pools: Vec<NodePool<'a>>,
    pub(crate) claims: &'a [&'a ClaimRequests],
    /// The devices of requests for all of them, by claim, request and alternative.
    all_devices: FxHashMap<(usize, usize, usize), Vec<Location>>,
    constraints: Vec<Vec<Constraint<'a>>>,
    /// By claim.
    pub(crate) picks: Vec<Vec<Pick>>,
    /// The alternatives of the solution, by claim and request.
    pub(crate) selected: Vec<Vec<usize>>,
    /// By pool.
    counters: FxHashMap<usize, Counters<'a>>,
    budget: &'b mut Budget,
}

impl<'a> Search<'a, '_> {
    /// Checks all requests and lists the devices of those for all of them.
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
            let constraints = constraints::of_claim(requests).map_err(AllocateError::Failed)?;
            self.constraints.push(constraints);
        }
        Ok(())
    }

    fn alternative(&self, at: At) -> &'a Alternative {
        &self.claims[at.claim].requests[at.request].alternatives[at.alternative]
    }

    /// How many devices an alternative needs.
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
            let reason = match self.pools[pool].state {
                PoolState::Usable(_) => None,
                PoolState::Incomplete => Some("being updated"),
                PoolState::Invalid => Some("invalid"),
            };
            if let Some(reason) = reason {
                let claim = claims[at.claim].claim().key();
                let request = own_name(self.alternative(at));
                let pool = self.pools[pool].id;
                return Err(AllocateError::Failed(format!(
                    "claim {claim}, request {request}: asks for all devices, but resource pool {pool} is currently {reason}"
                )));
            }
            for slice in 0..self.pools[pool].slices().len() {
                for device in 0..self.slice(pool, slice).devices().len() {
                    let location = Location {
                        pool,
                        slice,
                        device,
                    };
                    self.budget.step()?;
                    if self.is_selected(at, location)? && self.has_capacity(location, requested) {
                        devices.push(location);
                    }
                }
            }
        }
        Ok(devices)
    }

    fn slice(&self, pool: usize, slice: usize) -> &'a PreparedSlice {
        self.pools[pool].slices()[slice]
    }

    /// The slice and the device at a location.
    pub(crate) fn at(&self, location: Location) -> (&'a PreparedSlice, &'a Device) {
        let slice = self.slice(location.pool, location.slice);
        (slice, &slice.devices()[location.device])
    }

    /// The slice and the device of a pick.
    pub(crate) fn device_of(&self, pick: &Pick) -> (&'a PreparedSlice, &'a Device) {
        self.at(pick.location)
    }

    /// Searches for the device `at` and all that come after it. `is_chosen` is true once an alternative of a list was
    /// chosen. The devices of a request are searched from `start` on.
    fn next(&mut self, at: At, is_chosen: bool, start: Location) -> Result<Outcome, AllocateError> {
        stacker::maybe_grow(STACK_RED_ZONE_BYTES, STACK_BYTES, || {
            self.next_here(at, is_chosen, start)
        })
    }

    fn next_here(
        &mut self,
        at: At,
        is_chosen: bool,
        start: Location,
    ) -> Result<Outcome, AllocateError> {
        self.budget.step()?;
        let Some(requests) = self.claims.get(at.claim) else {
            return Ok(Outcome::Found);
        };
        let Some(request) = requests.requests.get(at.request) else {
            let following = At {
                claim: at.claim + 1,
                ..At::default()
            };
            return Ok(match self.next(following, false, Location::default())? {
                // The next claim may need fewer devices if a different choice is made for an earlier one.
                Outcome::TooManyDevices => Outcome::NotFound,
                outcome => outcome,
            });
        };
        if request.is_list && !is_chosen {
            return self.alternatives(at, request.alternatives.len());
        }
        let needed = self.devices_of(at);
        let is_all = self.alternative(at).mode == Mode::All;
        if is_all && needed == 0 {
            return Ok(Outcome::NotFound);
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
            return Ok(Outcome::TooManyDevices);
        }
        if is_all {
            let location = self.all_devices[&(at.claim, at.request, at.alternative)][at.device];
            return Ok(match self.try_device(at, is_chosen, location, true)? {
                Some(outcome) => outcome,
                None => Outcome::NotFound,
            });
        }
        self.devices_from(at, is_chosen, start)
    }

    /// Tries the alternatives of a list, the best first.
    fn alternatives(&mut self, at: At, count: usize) -> Result<Outcome, AllocateError> {
        let mut result = Outcome::TooManyDevices;
        for alternative in 0..count {
            let chosen = At { alternative, ..at };
            match self.next(chosen, true, Location::default())? {
                Outcome::Found => {
                    self.selected[at.claim][at.request] = alternative;
                    return Ok(Outcome::Found);
                }
                Outcome::NotFound => result = Outcome::NotFound,
                Outcome::TooManyDevices => {}
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
    ) -> Result<Outcome, AllocateError> {
        let claims = self.claims;
        let requested = claims[at.claim].requested(at.request, at.alternative);
        for pool in start.pool..self.pools.len() {
            let is_first = pool == start.pool;
            let first_slice = if is_first { start.slice } else { 0 };
            for slice in first_slice..self.pools[pool].slices().len() {
                let is_first = is_first && slice == start.slice;
                let first_device = if is_first { start.device } else { 0 };
                for device in first_device..self.slice(pool, slice).devices().len() {
                    let location = Location {
                        pool,
                        slice,
                        device,
                    };
                    self.budget.step()?;
                    if self.is_in_use(at, location)
                        || !self.is_selected(at, location)?
                        || !self.has_capacity(location, requested)
                    {
                        continue;
                    }
                    match self.try_device(at, is_chosen, location, false)? {
                        None | Some(Outcome::NotFound) => {}
                        Some(outcome) => return Ok(outcome),
                    }
                }
            }
        }
        Ok(Outcome::NotFound)
    }

    /// Picks a device and goes on; `None` if the device cannot be picked. Where that leads to no solution, the device
    /// is given back.
    fn try_device(
        &mut self,
        at: At,
        is_chosen: bool,
        location: Location,
        is_required: bool,
    ) -> Result<Option<Outcome>, AllocateError> {
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
        if outcome != Outcome::Found {
            self.give_back(at);
        }
        Ok(Some(outcome))
    }

    /// Whether the request cannot have the device because it is allocated or was picked.
    fn is_in_use(&self, at: At, location: Location) -> bool {
        let is_picked = |picks: &[Pick]| {
            let mut picks = picks.iter();
            picks.any(|pick| pick.share.is_none() && pick.location == location)
        };
        if self.alternative(at).admin_access {
            return is_picked(&self.picks[at.claim]);
        }
        let (_, device) = self.at(location);
        let allocated = self.pools[location.pool].allocated;
        let is_allocated = allocated.is_some_and(|allocated| {
            allocated.is_exclusive(&device.name)
                || (!self.features.consumable_capacity && allocated.is_shared(&device.name))
        });
        is_allocated || self.picks.iter().any(|picks| is_picked(picks))
    }

    /// Whether the selectors of the class and of the request select the device, and it can be used on the node.
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
        slice
            .selects_for_device(location.device, self.target)
            .map_err(AllocateError::Failed)
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

    /// Whether the device has the capacity that is requested.
    fn has_capacity(
        &self,
        location: Location,
        requested: &berth_api::devices::RequestedDevices,
    ) -> bool {
        let (_, device) = self.at(location);
        if !self.features.consumable_capacity {
            return true;
        }
        if device.capacity.is_empty() && requested.capacity.is_none() {
            return true;
        }
        let allocated = self.pools[location.pool].allocated;
        let allocated = allocated.and_then(|allocated| allocated.consumed(&device.name));
        let mut picked: Option<BTreeMap<Str, Quantity>> = None;
        for share in self.shares_of(location) {
            let sum = picked.get_or_insert_default();
            for (name, amount) in share {
                *sum.entry(name.clone()).or_default() += *amount;
            }
        }
        let consumed = [allocated, picked.as_ref()];
        capacity::fits(device, requested.capacity.as_ref(), consumed)
    }

    /// The shares of a device that were picked.
    fn shares_of(&self, location: Location) -> impl Iterator<Item = &BTreeMap<Str, Quantity>> {
        let picks = self.picks.iter().flatten();
        let picks = picks.filter(move |pick| pick.location == location);
        picks.filter_map(|pick| pick.share.as_ref())
    }

    /// Picks a device that is selected, and returns whether that was possible.
    ///
    /// As in kube-scheduler, counters that were taken before a later check refuses the device stay taken until the end
    /// of the search, and so do the counters of a shared device that is given back. Such a search can miss a solution;
    /// it never allocates too much.
    fn pick(
        &mut self,
        at: At,
        location: Location,
        is_required: bool,
    ) -> Result<bool, AllocateError> {
        let (slice, device) = self.at(location);
        if self.is_in_use(at, location) {
            return Ok(false);
        }
        let consumes = !device.consumes_counters.is_empty();
        if consumes && !self.features.partitionable_devices {
            return Ok(false);
        }
        let claims = self.claims;
        let requested = claims[at.claim].requested(at.request, at.alternative);
        let is_shared = self.features.consumable_capacity && device.allow_multiple_allocations;
        // The first share of a device takes its counters.
        let takes_counters = consumes && !(is_shared && self.has_shares(location));
        if takes_counters && !self.counters(location.pool).try_take(device) {
            return Ok(false);
        }
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
        let constraints = &mut self.constraints[at.claim];
        for index in 0..constraints.len() {
            if !constraints[index].applies_to(request, name)
                || constraints[index].add(request, device, driver)
            {
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
            for constraint in &mut constraints[..index] {
                if constraint.applies_to(request, name) {
                    constraint.remove(request);
                }
            }
            return Ok(false);
        }
        // The devices of a request for all of them were listed before any was picked.
        if is_required && !self.has_capacity(location, requested) {
            return Ok(false);
        }
        self.picks[at.claim].push(Pick {
            location,
            request: at.request,
            alternative: at.alternative,
            share: is_shared.then(|| capacity::consumed(device, requested.capacity.as_ref())),
            took_counters: takes_counters && !is_shared,
        });
        Ok(true)
    }

    /// Whether shares of the device are allocated or were picked.
    fn has_shares(&self, location: Location) -> bool {
        let (_, device) = self.at(location);
        let allocated = self.pools[location.pool].allocated;
        allocated.is_some_and(|allocated| allocated.consumed(&device.name).is_some())
            || self.shares_of(location).next().is_some()
    }

    fn counters(&mut self, pool: usize) -> &mut Counters<'a> {
        let pools = &self.pools;
        let new = || Counters::of_pool(&pools[pool]);
        self.counters.entry(pool).or_insert_with(new)
    }

    /// Gives back the device that was picked last.
    fn give_back(&mut self, at: At) {
        let Some(pick) = self.picks[at.claim].pop() else {
            return;
        };
        let (_, device) = self.at(pick.location);
        let request = self.claims[at.claim].request_name(at.request);
        let name = &self.alternative(at).name;
        for constraint in &mut self.constraints[at.claim] {
            if constraint.applies_to(request, name) {
                constraint.remove(request);
            }
        }
        if pick.took_counters {
            self.counters(pick.location.pool).give_back(device);
        }
    }
}

/// The name of a request, or of an alternative without that of its request.
fn own_name(alternative: &Alternative) -> &str {
    let name = alternative.name.as_str();
    name.rsplit_once('/').map_or(name, |(_, own)| own)
}
