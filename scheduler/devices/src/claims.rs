//! The requests of a claim, prepared for searches on many nodes.

use crate::AllocatorFeatures;
use crate::selectors::{self, Compiled};
use berth_api::Str;
use berth_api::devices::{
    AllocationMode, DeviceClass, DeviceConstraint, DeviceRequest, DeviceSelector, RequestedDevices,
    ResourceClaim,
};
use berth_cel::{AttributeExpression, CompileError, Environment};
use smallvec::SmallVec;
use std::sync::Arc;

/// A claim with the values that are computed from its requests once.
#[derive(Debug, Clone)]
pub struct ClaimRequests {
    claim: Arc<ResourceClaim>,
    pub(crate) requests: Vec<ClaimRequest>,
}

/// A request: one set of devices, or alternatives.
#[derive(Debug, Clone)]
pub(crate) struct ClaimRequest {
    pub(crate) alternatives: SmallVec<[Alternative; 1]>,
    /// Whether the request is a list of alternatives.
    pub(crate) is_list: bool,
    /// The reason why the request as a whole cannot be satisfied.
    pub(crate) problem: Option<String>,
}

/// One set of devices that satisfies a request.
#[derive(Debug, Clone)]
pub(crate) struct Alternative {
    /// `request`, or `request/alternative`.
    pub(crate) name: Str,
    pub(crate) class: Option<Arc<DeviceClass>>,
    pub(crate) class_selectors: Vec<Compiled>,
    pub(crate) selectors: Vec<Compiled>,
    /// Attributes that are computed for each device, by name.
    pub(crate) derived: Vec<(Str, Result<Arc<AttributeExpression>, CompileError>)>,
    /// The environment of all expressions.
    pub(crate) environment: Environment,
    pub(crate) mode: Mode,
    pub(crate) admin_access: bool,
    /// The reason why the alternative cannot be used. It fails the claim.
    pub(crate) problem: Option<String>,
}

/// The number of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Exactly(usize),
    All,
}

impl ClaimRequests {
    /// Prepares the requests of a claim. `class` looks up device classes. A problem of a request is an error of the
    /// searches, because kube-scheduler reports it per node.
    pub fn new(
        claim: &Arc<ResourceClaim>,
        features: AllocatorFeatures,
        class: impl Fn(&str) -> Option<Arc<DeviceClass>>,
    ) -> Self {
        let requests = claim.spec.devices.requests.iter();
        let requests = requests
            .map(|request| ClaimRequest::new(claim, request, features, &class))
            .collect();
        Self {
            claim: claim.clone(),
            requests,
        }
    }

    /// The length of the CEL expressions of a claim and of its device classes together, in bytes.
    pub fn expressions_bytes(
        claim: &ResourceClaim,
        class: impl Fn(&str) -> Option<Arc<DeviceClass>>,
    ) -> usize {
        let length = |selectors: &[DeviceSelector]| {
            let selectors = selectors.iter().filter_map(|s| s.cel.as_ref());
            selectors.map(|cel| cel.expression.len()).sum::<usize>()
        };
        let requests = claim.spec.devices.requests.iter();
        let requested = requests.flat_map(|r| r.exactly.iter().chain(&r.first_available));
        let lengths = requested.map(|requested| {
            let class = class(&requested.device_class_name);
            let of_class = class.map_or(0, |class| length(&class.spec.selectors));
            of_class.saturating_add(length(&requested.selectors))
        });
        lengths.sum()
    }

    /// The claim.
    pub fn claim(&self) -> &Arc<ResourceClaim> {
        &self.claim
    }

    /// The devices that are requested by an alternative of a request.
    pub(crate) fn requested(&self, request: usize, alternative: usize) -> &RequestedDevices {
        let request = &self.claim.spec.devices.requests[request];
        match &request.exactly {
            Some(exactly) if request.first_available.is_empty() => exactly,
            _ => &request.first_available[alternative],
        }
    }

    pub(crate) fn request_name(&self, request: usize) -> &Str {
        &self.claim.spec.devices.requests[request].name
    }

    pub(crate) fn constraints(&self) -> &[DeviceConstraint] {
        &self.claim.spec.devices.constraints
    }
}

impl ClaimRequest {
    fn new(
        claim: &ResourceClaim,
        request: &DeviceRequest,
        features: AllocatorFeatures,
        class: &impl Fn(&str) -> Option<Arc<DeviceClass>>,
    ) -> Self {
        let at = format!("claim {}, request {}", claim.key(), request.name);
        let is_list = !request.first_available.is_empty();
        let problem = problem(&at, &claim.key(), request, features);
        let new = |requested: &RequestedDevices, name: Str| {
            Alternative::new(&claim.key(), requested, name, features, class)
        };
        let alternatives = match &request.exactly {
            _ if is_list => {
                let alternatives = request.first_available.iter();
                alternatives
                    .map(|requested| {
                        let name = format!("{}/{}", request.name, requested.name);
                        new(requested, name.into())
                    })
                    .collect()
            }
            // A request without devices has a problem, which is reported when it is used.
            Some(exactly) => SmallVec::from_iter([new(exactly, request.name.clone())]),
            None => SmallVec::new(),
        };
        Self {
            alternatives,
            is_list,
            problem,
        }
    }
}

/// The fault of a request as a whole.
fn problem(
    at: &str,
    claim: &str,
    request: &DeviceRequest,
    features: AllocatorFeatures,
) -> Option<String> {
    let is_list = !request.first_available.is_empty();
    if is_list && !features.prioritized_list {
        return Some(format!(
            "{at}: has subrequests, but the DRAPrioritizedList feature is disabled"
        ));
    }
    if !features.consumable_capacity {
        let why = "has capacity requests, but the DRAConsumableCapacity feature is disabled";
        let exactly = request.exactly.as_ref();
        if exactly.is_some_and(|exactly| exactly.capacity.is_some()) {
            return Some(format!("{at}: {why}"));
        }
        let mut alternatives = request.first_available.iter();
        if let Some(found) = alternatives.find(|requested| requested.capacity.is_some()) {
            return Some(format!("claim {claim}, subrequest {}: {why}", found.name));
        }
    }
    if !is_list && request.exactly.is_none() {
        return Some(format!("{at}: unknown request type"));
    }
    None
}

impl Alternative {
    fn new(
        claim: &str,
        requested: &RequestedDevices,
        name: Str,
        features: AllocatorFeatures,
        class: &impl Fn(&str) -> Option<Arc<DeviceClass>>,
    ) -> Self {
        // Upstream names the alternative alone here.
        let own = name.rsplit('/').next().unwrap_or_default().to_owned();
        let at = format!("claim {claim}, request {own}");
        let found = class(&requested.device_class_name);
        let mut problem = None;
        let without_cel = requested.selectors.iter().position(|s| s.cel.is_none());
        let mode = match &requested.allocation_mode {
            AllocationMode::All => Mode::All,
            AllocationMode::ExactCount => {
                Mode::Exactly(usize::try_from(requested.count).unwrap_or(0))
            }
            AllocationMode::Unknown(_) => Mode::Exactly(0),
        };
        if let Some(index) = without_cel {
            problem = Some(format!(
                "{at}, selector #{index}: CEL expression empty (unsupported selector type?)"
            ));
        } else if !features.admin_access && requested.admin_access.is_some() {
            problem = Some(format!(
                "{at}: admin access is requested, but the feature is disabled"
            ));
        } else if !features.derived_attributes && !requested.derived_attributes.is_empty() {
            problem = Some(format!(
                "{at}: has derived attributes, but the DRADerivedAttributes feature is disabled"
            ));
        } else if requested.device_class_name.is_empty() {
            problem = Some(format!(
                "{at}: missing device class name (unsupported request type?)"
            ));
        } else if found.is_none() {
            let class = &requested.device_class_name;
            problem = Some(format!(
                "{at}: could not retrieve device class {class}: \
                 deviceclass.resource.k8s.io {:?} not found",
                class.as_str()
            ));
        } else if let AllocationMode::Unknown(mode) = &requested.allocation_mode {
            problem = Some(format!("{at}: unsupported count mode {mode}"));
        }
        let environment = features.environment();
        let compile = |selectors: &[DeviceSelector]| {
            let selectors = selectors
                .iter()
                .filter_map(|selector| selector.cel.as_ref());
            selectors
                .map(|cel| selectors::compile(&cel.expression, environment))
                .collect()
        };
        let class_selectors = found
            .as_ref()
            .map_or_else(Vec::new, |class| compile(&class.spec.selectors));
        let derived = requested.derived_attributes.iter().map(|derived| {
            let compiled = AttributeExpression::compile(&derived.expression, environment);
            (derived.name.clone(), compiled.map(Arc::new))
        });
        Self {
            name,
            derived: derived.collect(),
            environment,
            class: found,
            class_selectors,
            selectors: compile(&requested.selectors),
            mode,
            admin_access: requested.admin_access == Some(true),
            problem,
        }
    }
}
