//! The devices of a node for each request of claims, each evaluated by itself: for explanations. Requests that compete
//! for the same devices, constraints and combinations are left to the search.

use super::{AllocateError, At, DeviceSearch, Location, Shares};
use crate::AllocatorFeatures;
use crate::claims::Mode;
use crate::inventory::Inventory;
use crate::target::TargetNode;
use berth_api::Str;
use berth_api::devices::{Device, DeviceTaint, RequestedDevices};

/// Identifies a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    /// The driver.
    pub driver: Str,
    /// The pool.
    pub pool: Str,
    /// The device.
    pub device: Str,
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// Whether a request can have a device that it selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceState {
    /// It can.
    Free,
    /// The device is allocated.
    Held,
    /// The request does not tolerate this taint.
    Tainted(DeviceTaint),
    /// The device has too little capacity left.
    NoCapacity,
    /// The counters of the pool are used up by other devices.
    NoCounters,
}

/// The devices of a node for an alternative of a request.
#[derive(Debug, Clone)]
pub struct RequestSurvey {
    /// The index of the claim in the surveyed claims.
    pub claim: usize,
    /// The request, by its place in the claim.
    pub request: usize,
    /// The alternative; zero if the request is no list.
    pub alternative: usize,
    /// `request`, or `request/alternative`.
    pub name: Str,
    /// The number of devices that are requested; `None` for all.
    pub wanted: Option<usize>,
    /// The devices of the class.
    pub of_class: Vec<DeviceId>,
    /// The devices of the class that the selectors of the request select.
    pub selected: Vec<(DeviceId, DeviceState)>,
}

impl RequestSurvey {
    /// The number of devices that the request can have.
    pub fn free(&self) -> usize {
        let states = self.selected.iter();
        states
            .filter(|(_, state)| *state == DeviceState::Free)
            .count()
    }

    /// The number of devices that are missing.
    pub fn missing(&self) -> usize {
        match self.wanted {
            Some(wanted) => wanted.saturating_sub(self.free()),
            // All devices are needed, and one at least.
            None => self.selected.len().max(1) - self.free().min(self.selected.len()),
        }
    }
}

impl Inventory {
    /// The devices that a node can use, in the order in which they are allocated.
    ///
    /// # Errors
    /// A node selector of a slice is invalid.
    pub fn devices_of(
        &self,
        node: TargetNode<'_>,
        features: AllocatorFeatures,
    ) -> Result<Vec<(DeviceId, &Device)>, String> {
        let mut found = Vec::new();
        for pool in self.pools_for(node, features)? {
            for slice in pool.slices() {
                for (index, device) in slice.devices().iter().enumerate() {
                    if slice.selects_for_device(index, node)? {
                        let id = DeviceId {
                            driver: pool.id.driver.clone(),
                            pool: pool.id.name.clone(),
                            device: device.name.clone(),
                        };
                        found.push((id, device));
                    }
                }
            }
        }
        Ok(found)
    }
}

impl DeviceSearch<'_, '_> {
    /// The devices of the node for an alternative of a request.
    pub(crate) fn survey(&mut self, at: At) -> Result<RequestSurvey, AllocateError> {
        let prepared = self.alternative(at);
        if let Some(problem) = &prepared.problem {
            return Err(AllocateError::Failed(problem.clone()));
        }
        let claims = self.claims;
        let requested = claims[at.claim].requested(at.request, at.alternative);
        let mut survey = RequestSurvey {
            claim: at.claim,
            request: at.request,
            alternative: at.alternative,
            name: prepared.name.clone(),
            wanted: match prepared.mode {
                Mode::Exactly(count) => Some(count),
                Mode::All => None,
            },
            of_class: Vec::new(),
            selected: Vec::new(),
        };
        for pool in 0..self.pools.len() {
            for location in self.locations(pool) {
                self.budget.step()?;
                if !self.is_of_class(at, location)? {
                    continue;
                }
                let id = self.id_of(location);
                survey.of_class.push(id.clone());
                // Devices of the class that are not selected are counted too: they show that the selectors exclude
                // them.
                if self.is_selected(at, location)? {
                    let state = self.state_of(at, location, requested)?;
                    survey.selected.push((id, state));
                }
            }
        }
        Ok(survey)
    }

    fn id_of(&self, location: Location) -> DeviceId {
        let (_, device) = self.at(location);
        let pool = self.pools[location.pool].id;
        DeviceId {
            driver: pool.driver.clone(),
            pool: pool.name.clone(),
            device: device.name.clone(),
        }
    }

    /// Returns whether the selectors of the class select the device, and the node can use it.
    fn is_of_class(&mut self, at: At, location: Location) -> Result<bool, AllocateError> {
        let (slice, _) = self.at(location);
        let is_usable = slice
            .selects_for_device(location.device, self.target)
            .map_err(AllocateError::Failed)?;
        let alternative = self.alternative(at);
        match &alternative.class {
            Some(class) if is_usable => {
                let name = || format!("class {}", class.metadata.name);
                self.all_match(&alternative.class_selectors, slice, location, name)
            }
            _ => Ok(is_usable),
        }
    }

    fn state_of(
        &mut self,
        at: At,
        location: Location,
        requested: &RequestedDevices,
    ) -> Result<DeviceState, AllocateError> {
        // In the order of severity: for a device in use nothing else is checked.
        if self.is_in_use(at, location) {
            return Ok(DeviceState::Held);
        }
        let (_, device) = self.at(location);
        if self.features.device_taints {
            let mut taints = device.taints.iter();
            let untolerated = taints.find(|taint| {
                let mut tolerations = requested.tolerations.iter();
                taint.effect.forbids_allocation() && !tolerations.any(|t| t.tolerates(taint))
            });
            if let Some(taint) = untolerated {
                return Ok(DeviceState::Tainted(taint.clone()));
            }
        }
        if !self.has_capacity(at, location, requested, Shares::All)? {
            return Ok(DeviceState::NoCapacity);
        }
        if !device.consumes_counters.is_empty() {
            let features = self.features;
            let counters = self.counters(location.pool);
            // The counters are taken only to see whether they suffice.
            match counters.try_take(device, features) {
                Ok(taken) => counters.give_back(device, taken),
                Err(_) => return Ok(DeviceState::NoCounters),
            }
        }
        Ok(DeviceState::Free)
    }
}
