//! Filter and Score: whether a node has the devices that the claims need.

use super::args::DynamicResourcesArgs;
use super::conditions::{self, Readiness};
use super::node_allocatable;
use super::state::{ClaimsState, PodClaim};
use berth_api::Pod;
use berth_api::devices::AllocationResult;
use berth_devices::{AllocateError, SearchBudget};
use berth_framework::allocator::{has_binding_conditions, skips_operations};
use berth_framework::plugin::Context;
use berth_framework::{Code, Feature, FeatureGates, NodeView, ReasonCode, Status};

/// The reason on a node that cannot use the devices of a claim.
pub(super) const NOT_AVAILABLE: &str = "resourceclaim not available on the node";
/// The reason on a node that does not have the devices.
pub(super) const CANNOT_ALLOCATE: &str = "cannot allocate all claims";

/// The budget of a search that belongs to no attempt, and of all attempts of a pod together.
pub(super) fn budget(args: &DynamicResourcesArgs, features: &FeatureGates) -> SearchBudget {
    if features.enabled(Feature::DRASchedulerFilterTimeout) {
        SearchBudget::of_timeout(args.filter_timeout.as_duration())
    } else {
        SearchBudget::unlimited()
    }
}

/// Searches within the budget of the attempt, which all its nodes share.
pub(super) fn search<T>(
    args: &DynamicResourcesArgs,
    cx: &Context<'_>,
    search: impl FnOnce(&mut SearchBudget) -> T,
) -> T {
    let budget = budget(args, cx.features);
    match cx.work {
        Some(work) => work.search(budget.of_attempt_after(work.used_up_before()), search),
        None => search(&mut { budget }),
    }
}

/// The status for a search that ended without an answer. It fails the cycle, unless only this node is affected.
pub(super) fn failed(error: AllocateError, node: &str) -> Status {
    match error {
        // An error, so that the pod is retried after a backoff and does not wait for an event.
        AllocateError::OutOfSteps => {
            Status::error(format!("node {node}: timed out trying to allocate devices"))
        }
        AllocateError::InvalidPools => {
            Status::unresolvable(ReasonCode::ClaimMissing.reason(error.to_string()))
        }
        AllocateError::Skipped(why) => {
            let code = ReasonCode::DevicesUnavailable;
            let reasons = [code.reason(CANNOT_ALLOCATE), code.reason(why.to_string())];
            Status::new(Code::UnschedulableAndUnresolvable, reasons)
        }
        // The driver is about to complete the pool.
        AllocateError::UnusablePool(why) => {
            Status::unschedulable(ReasonCode::DevicesUnavailable.reason(why))
        }
        AllocateError::Failed(why) => Status::error(why),
    }
}

/// Returns whether the kubelet must be able to skip operations for devices of the allocation.
pub(super) fn skips_any_operation(allocation: &AllocationResult) -> bool {
    let mut results = allocation.devices.results.iter();
    results.any(|result| !result.skip_node_operations.is_empty())
}

/// Returns whether the pod can use the devices of a claim on a node; true if the claim has none.
pub(super) fn is_usable(
    args: &DynamicResourcesArgs,
    cx: &Context<'_>,
    claim: &PodClaim,
    node: NodeView<'_>,
) -> bool {
    let Some(allocation) = claim.allocation() else {
        return true;
    };
    let selector = claim.node_selector.as_ref();
    let is_reachable = selector.is_none_or(|s| s.matches(node.labels(), node.name()) == Ok(true));
    is_reachable
        && (skips_operations(node) || !skips_any_operation(allocation))
        && (!has_binding_conditions(cx.features)
            || match conditions::readiness(&claim.claim) {
                Readiness::Ready => true,
                Readiness::Pending => {
                    !conditions::is_late(allocation, args.binding_timeout, cx.now)
                }
                Readiness::Failed(_) => false,
            })
}

/// Filters one node.
pub(super) fn filter(
    args: &DynamicResourcesArgs,
    cx: &Context<'_>,
    state: &ClaimsState,
    pod: &Pod,
    node: NodeView<'_>,
) -> Status {
    let extended = match &state.extended {
        Some(extended) => match extended.on_node(cx, node) {
            Ok(variant) => variant,
            Err(status) => return status,
        },
        None => None,
    };
    // As upstream, an unavailable allocated claim is reported only if the other claims can be allocated. PostFilter
    // relies on that: it deallocates a claim only if this helps on a node.
    let mut claims = state.claims.iter();
    let is_unavailable = claims.any(|claim| !is_usable(args, cx, claim, node));
    if !state.requests.is_empty() || extended.is_some() {
        let extended = extended.as_ref().map(|variant| &variant.requests);
        match state.search(args, cx, extended, node) {
            Err(error) => return failed(error, node.name()),
            Ok(None) => {
                return Status::unresolvable(
                    ReasonCode::DevicesUnavailable.reason(CANNOT_ALLOCATE),
                );
            }
            Ok(Some(preference)) if state.has_lists => {
                let mut preferences = state.preferences.borrow_mut();
                preferences.insert(node.slot(), preference);
            }
            Ok(Some(_)) => {}
        }
    }
    if is_unavailable {
        return Status::unresolvable(ReasonCode::DevicesUnavailable.reason(NOT_AVAILABLE));
    }
    if node_allocatable::may_matter(cx.features, cx.cluster) {
        let extended = extended.as_ref();
        let extended = extended.map(|variant| (&variant.requests, variant.containers()));
        node_allocatable::filter(args, cx, state, pod, extended, node)
    } else {
        Status::success()
    }
}
