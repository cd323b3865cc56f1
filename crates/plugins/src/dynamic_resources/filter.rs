//! Filter and Score: whether a node has the devices that the claims need.

use super::args::DynamicResourcesArgs;
use super::conditions::{self, Readiness};
use super::state::{PodClaim, State, has_binding_conditions};
use berth_devices::{AllocateError, Budget};
use berth_framework::plugin::Context;
use berth_framework::{Feature, FeatureGates, NodeView, Status};

/// The reason on a node that cannot use the devices of a claim.
pub(super) const NOT_AVAILABLE: &str = "resourceclaim not available on the node";
/// The reason on a node that does not have the devices.
pub(super) const CANNOT_ALLOCATE: &str = "cannot allocate all claims";

/// How much work the search on one node may take.
pub(super) fn budget(args: &DynamicResourcesArgs, features: &FeatureGates) -> Budget {
    match features.enabled(Feature::DRASchedulerFilterTimeout) {
        true => Budget::of_timeout(args.filter_timeout.as_duration()),
        false => Budget::unlimited(),
    }
}

/// The status for a search that ended without an answer. It fails the cycle, except where only this node is concerned.
pub(super) fn failed(error: AllocateError, node: &str) -> Status {
    match error {
        // An error, so that the pod is retried after a backoff and does not wait for an event.
        AllocateError::OutOfSteps => {
            Status::error(format!("node {node}: timed out trying to allocate devices"))
        }
        AllocateError::InvalidPools => Status::unresolvable(error.to_string()),
        AllocateError::Failed(why) => Status::error(why),
    }
}

/// Whether the pod can use the devices of a claim on a node; true if the claim has none.
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
    state: &State,
    node: NodeView<'_>,
) -> Status {
    let extended = match &state.extended {
        Some(extended) => match extended.on_node(cx, node) {
            Ok(variant) => variant,
            Err(status) => return status,
        },
        None => None,
    };
    let mut claims = state.claims.iter();
    let is_unavailable = claims.any(|claim| !is_usable(args, cx, claim, node));
    if !state.requests.is_empty() || extended.is_some() {
        let extended = extended.as_ref().map(|variant| &variant.requests);
        match state.search(args, cx, extended, node) {
            Err(error) => return failed(error, node.name()),
            Ok(None) => return Status::unresolvable(CANNOT_ALLOCATE),
            Ok(Some(preference)) if state.has_lists => {
                let mut preferences = state.preferences.borrow_mut();
                preferences.insert(node.slot(), preference);
            }
            Ok(Some(_)) => {}
        }
    }
    match is_unavailable {
        true => Status::unresolvable(NOT_AVAILABLE),
        false => Status::success(),
    }
}
