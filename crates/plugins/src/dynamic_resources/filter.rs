//! Filter and Score: whether a node has the devices that the claims need.

use super::args::DynamicResourcesArgs;
use super::conditions::{self, Readiness};
use super::state::{State, allocator_features, has_binding_conditions};
use berth_devices::{AllocateError, Allocator, Budget, TargetNode};
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
    let mut is_unavailable = false;
    for (index, claim) in state.claims.iter().enumerate() {
        let Some(allocation) = claim.allocation() else {
            continue;
        };
        let selector = claim.node_selector.as_ref();
        let is_reachable =
            selector.is_none_or(|s| s.matches(node.labels(), node.name()) == Ok(true));
        let is_usable = is_reachable
            && (!has_binding_conditions(cx.features)
                || match conditions::readiness(&claim.claim) {
                    Readiness::Ready => true,
                    Readiness::Pending => {
                        !conditions::is_late(allocation, args.binding_timeout, cx.now)
                    }
                    Readiness::Failed(_) => false,
                });
        if !is_usable {
            state.unavailable.borrow_mut().insert(index);
            is_unavailable = true;
        }
    }
    let requests = state.requests(extended.as_ref().map(|variant| &variant.requests));
    if !requests.is_empty() {
        let allocator = Allocator::new(&cx.cluster.devices, allocator_features(cx.features));
        let target = TargetNode {
            name: node.name(),
            labels: node.labels(),
        };
        let budget = &mut budget(args, cx.features);
        match allocator.preference(target, &requests, budget) {
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
