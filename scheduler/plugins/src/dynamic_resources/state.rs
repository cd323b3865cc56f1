//! The facts about the claims of a pod during one scheduling cycle.

use super::args::DynamicResourcesArgs;
use super::bind::Reserved;
use super::extended::{self, Extended};
use super::lacking::ExplainedDevices;
use super::shared::SharedResults;
use super::{claims, classes, conditions, filter, node_allocatable, writes};
use berth_api::devices::{
    AllocationMode, AllocationResult, CLAIM_CONSUMERS_MAX, ConsumerReference,
};
use berth_api::node_selector::CompiledNodeSelector;
use berth_api::{Pod, ResourceClaim};
use berth_devices::{ALTERNATIVES_MAX, ClaimRequests};
use berth_framework::allocator::{allocator_features, has_binding_conditions};
use berth_framework::cluster::GroupKey;
use berth_framework::features::Behaviour;
use berth_framework::keep::{Fragment, Kept};
use berth_framework::plugin::Context;
use berth_framework::{Feature, ReasonCode, Slot, Status};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::Arc;

/// Written by PreFilter.
#[derive(Default)]
pub(super) struct ClaimsState {
    /// The claims, in the order of the pod's spec.
    pub(super) claims: Vec<PodClaim>,
    /// The requests of the claims that have no devices, in the same order.
    pub(super) requests: Vec<ClaimRequests>,
    /// The extended resources of the pod, if devices back some of them.
    pub(super) extended: Option<Extended>,
    /// Whether the preferences differ between nodes.
    pub(super) has_lists: bool,
    /// The preference of the claims that have devices.
    pub(super) preference: i64,
    /// Results for nodes that share all their devices with others.
    pub(super) shared: RefCell<SharedResults>,
    /// The claim whose devices PostFilter frees.
    pub(super) freeing: Option<Arc<ResourceClaim>>,
    /// The preference of the alternatives on a node. Filter adds them if there are lists.
    pub(super) preferences: RefCell<FxHashMap<Slot, i64>>,
    /// The decision of Reserve.
    pub(super) reserved: Option<Reserved>,
    /// The values that explanations compute once for all nodes.
    pub(super) explained: ExplainedDevices,
}

/// A claim of the pod.
#[derive(Clone)]
pub(super) struct PodClaim {
    pub(super) claim: Arc<ResourceClaim>,
    /// The nodes that can use the devices of the claim; `None` for all.
    pub(super) node_selector: Option<CompiledNodeSelector>,
    /// The pod or the group for which the claim is reserved.
    pub(super) consumer: ConsumerReference,
}

impl PodClaim {
    pub(super) fn allocation(&self) -> Option<&AllocationResult> {
        self.claim.status.allocation.as_ref()
    }
}

/// Returns whether the API server would reject a reservation of the claim for the pod or group with this UID.
fn is_full_for(claim: &ResourceClaim, uid: &str) -> bool {
    claim.status.reserved_for.len() >= CLAIM_CONSUMERS_MAX && !claims::is_reserved_for(claim, uid)
}

/// Returns whether the devices were chosen for other members of the pod's group, which use the claim together (G-31).
fn is_assumed_for_siblings(cx: &Context<'_>, claim: &ResourceClaim, pod: &Pod) -> bool {
    let root = |pod: &Pod| {
        let leaf = GroupKey::of_pod(pod)?;
        cx.cluster.groups().root_of(&leaf).ok()
    };
    let Some(own) = root(pod).filter(|_| cx.features.enabled(Feature::GenericWorkload)) else {
        return false;
    };
    // All users of assumed devices are siblings, so the first one represents all.
    let first = claim.status.assumed_for.first();
    let first = first.and_then(|uid| cx.cluster.pods.get(uid));
    first.and_then(|pod| root(pod)) == Some(own)
}

/// The preference of the chosen alternatives of a claim that has devices.
fn preference(claim: &ResourceClaim, allocation: &AllocationResult) -> i64 {
    let requests = claim.spec.devices.requests.iter();
    let lists = requests.filter(|request| request.exactly.is_none());
    let alternatives = lists.flat_map(|request| {
        let names = request.first_available.iter().enumerate();
        names.map(|(index, alternative)| (index, format!("{}/{}", request.name, alternative.name)))
    });
    let results = &allocation.devices.results;
    alternatives
        .filter(|(_, name)| results.iter().any(|result| *result.request == **name))
        .map(|(index, _)| ALTERNATIVES_MAX - index as i64)
        .sum()
}

impl ClaimsState {
    /// Looks up the claims of a pod and prepares the claims without an allocation.
    ///
    /// # Errors
    /// The reason why the pod cannot be scheduled on any node.
    pub(super) fn prepare(
        args: &DynamicResourcesArgs,
        cx: &Context<'_>,
        pod: &Arc<Pod>,
    ) -> Result<Self, Status> {
        let found = claims::resolve_all(cx.cluster, cx.features, pod);
        let found = found.map_err(|lack| {
            Status::unresolvable(ReasonCode::ClaimMissing.reason(lack.to_string()))
        })?;
        let features = allocator_features(cx.features);
        let mut state = Self {
            extended: Extended::of(cx, pod),
            ..Self::default()
        };
        for found in found {
            let claim = found.claim;
            let mut node_selector = None;
            match &claim.status.allocation {
                // A cycle that was parked in Reserve checks its node again, so its own assumed allocation is no
                // conflict.
                Some(_)
                    if claim.status.is_assumed
                        && !writes::is_assumed_for(claim, pod)
                        && !is_assumed_for_siblings(cx, claim, pod) =>
                {
                    let why = format!(
                        "resource claim {} is in the process of being allocated",
                        claim.key()
                    );
                    return Err(Status::unresolvable(ReasonCode::ClaimMissing.reason(why)));
                }
                Some(_) if is_full_for(claim, found.consumer_uid(pod)) => {
                    return Err(Status::unresolvable(
                        ReasonCode::ClaimMissing.reason("resourceclaim in use"),
                    ));
                }
                Some(allocation) => {
                    if let Some(selector) = &allocation.node_selector {
                        let compiled = CompiledNodeSelector::compile_strict(selector, "");
                        let compiled = compiled.map_err(|why| Status::error(why.to_string()))?;
                        node_selector = Some(compiled);
                    }
                    state.preference += preference(claim, allocation);
                }
                None => {
                    classes::check_requests(cx.cluster, claim)?;
                    let class = |name: &str| cx.cluster.devices().classes().get(name).cloned();
                    let bytes = ClaimRequests::expressions_bytes(claim, class);
                    if filter::search(args, cx, |budget| budget.compile(bytes)).is_err() {
                        return Err(Status::error(format!(
                            "claim {}: timed out compiling the selectors of the pod's claims",
                            claim.key()
                        )));
                    }
                    let requests = ClaimRequests::new(claim, features, class);
                    state.requests.push(requests);
                }
            }
            let requests = &claim.spec.devices.requests;
            state.has_lists |= requests.iter().any(|r| !r.first_available.is_empty());
            state.claims.push(PodClaim {
                claim: claim.clone(),
                node_selector,
                consumer: found.into_consumer(pod),
            });
        }
        Ok(state)
    }

    /// Writes the values that the answers about a pod depend on, other than the nodes and their devices. Answers are
    /// not kept if PreFilter rejects the pod, or if they depend on the time.
    pub(super) fn fragment(cx: &Context<'_>, pod: &Pod, fragment: &mut Fragment) -> Kept {
        let Ok(claims) = claims::resolve_all(cx.cluster, cx.features, pod) else {
            return Kept::Never;
        };
        let length = fragment.as_bytes().len();
        if extended::fragment(cx, pod, fragment) == Kept::Never {
            return Kept::Never;
        }
        let has_extended = fragment.as_bytes().len() > length;
        if claims.is_empty() && !has_extended {
            return Kept::ByAmounts;
        }
        if node_allocatable::may_matter(cx.features, cx.cluster) {
            // The answer also depends on the free devices of the node.
            return Kept::Never;
        }
        if !has_extended {
            fragment.put(&false);
        }
        fragment.put(&claims.len());
        let mut needs_devices = has_extended;
        for found in claims {
            let claim = found.claim;
            if let Some(allocation) = &claim.status.allocation {
                let depends_on_time =
                    has_binding_conditions(cx.features) && conditions::must_report(allocation);
                if claim.status.is_assumed
                    || is_full_for(claim, found.consumer_uid(pod))
                    || depends_on_time
                {
                    return Kept::Never;
                }
                let preference = preference(claim, allocation);
                let skips = filter::skips_any_operation(allocation);
                fragment.put(&(true, &allocation.node_selector, preference, skips));
                continue;
            }
            needs_devices = true;
            fragment.put(&(false, &*claim.spec));
            for request in &claim.spec.devices.requests {
                for requested in request.exactly.iter().chain(&request.first_available) {
                    let class = cx
                        .cluster
                        .devices()
                        .classes()
                        .get(&requested.device_class_name);
                    let Some(class) = class else {
                        return Kept::Never;
                    };
                    let meta = &class.metadata;
                    fragment.put(&(&meta.name, &meta.uid, &meta.resource_version));
                    // The reason on a node with an unusable pool names the claim.
                    if requested.allocation_mode == AllocationMode::All
                        && cx.features.has(Behaviour::IncompletePoolsRejectTheirNode)
                    {
                        let meta = &claim.metadata;
                        fragment.put(&(&meta.namespace, &meta.name));
                    }
                }
            }
        }
        if needs_devices {
            fragment.put(&cx.cluster.devices().inventory().shared_slices_version());
        }
        Kept::ByFragment
    }

    /// The raw score of a node: how much the alternatives are preferred that the claims have or get there.
    pub(super) fn score(&self, node: Slot) -> i64 {
        let preferences = self.preferences.borrow();
        self.preference + preferences.get(&node).copied().unwrap_or(0)
    }

    /// Returns whether the pod has no claims, and none is created for it.
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.extended.is_none()
    }

    /// The requests for the allocator, requests for extended resources last.
    pub(super) fn requests<'a>(
        &'a self,
        extended: Option<&'a ClaimRequests>,
    ) -> Vec<&'a ClaimRequests> {
        self.requests.iter().chain(extended).collect()
    }
}
