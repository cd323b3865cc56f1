//! PostFilter: deallocates a claim whose devices no node can use.

use super::args::DynamicResourcesArgs;
use super::extended::Extended;
use super::state::{ClaimsState, PodClaim};
use super::{NAME, NOTHING_TO_DEALLOCATE, claims, filter, writes};
use berth_api::{Duration, Pod, ResourceClaim};
use berth_framework::call::CallErrorKind;
use berth_framework::plugin::{
    Context, NodeStatuses, Nominating, PostFilterContext, PostFilterStep,
};
use berth_framework::stage::{Wait, WaitOn, Wake, WakeReason};
use berth_framework::{ApiCall, Status};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The time for which PostFilter waits for the write. The dispatcher ends every call sooner.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(60);

const DELETED: &str = "deletion of ResourceClaim completed";
const DEALLOCATED: &str = "deallocation of ResourceClaim completed";
const STILL_NOT_SCHEDULABLE: &str = "still not schedulable";

fn done(status: Status) -> PostFilterStep {
    PostFilterStep::done(status, Nominating::Keep)
}

/// The claim to deallocate: the first one that no other pod uses and that alone rejects a node.
fn to_free(
    args: &DynamicResourcesArgs,
    cx: &mut PostFilterContext<'_>,
    pod: &Pod,
    statuses: &NodeStatuses,
) -> Option<Arc<ResourceClaim>> {
    let state = cx.dry_run.state().read::<ClaimsState>()?;
    let claims = state.claims.iter();
    let claims: Vec<PodClaim> = claims
        .filter(|claim| claim.claim.is_allocated() && !claims::is_used_by_others(&claim.claim, pod))
        .cloned()
        .collect();
    let context = Context {
        now: cx.now,
        cluster: cx.dry_run.cluster(),
        features: cx.features,
        work: None,
    };
    let rejects = |claim: &&PodClaim| {
        let mut is_rejecting = false;
        statuses.each(|slot, status| {
            let is_own = status.plugin().is_some_and(|plugin| **plugin == *NAME);
            // Filter returns this reason only on nodes that have everything else that the pod claims. On other nodes,
            // deallocating the claim would not help.
            if is_own && status.reasons() == [filter::NOT_AVAILABLE] {
                let node = context.cluster.nodes.get(slot);
                is_rejecting =
                    node.is_some_and(|node| !filter::is_usable(args, &context, claim, node));
            }
            if is_rejecting {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        is_rejecting
    };
    claims.iter().find(rejects).map(|claim| claim.claim.clone())
}

/// Returns whether a claim of an earlier attempt was deleted.
fn has_leftover(cx: &mut PostFilterContext<'_>) -> bool {
    let state = cx.dry_run.state().read::<ClaimsState>();
    let extended = state.and_then(|state| state.extended.as_ref());
    extended.is_some_and(|extended| extended.leftover.is_some())
}

/// Frees one claim at a time; the change of the claim queues the pod again.
pub(super) fn post_filter(
    args: &DynamicResourcesArgs,
    cx: &mut PostFilterContext<'_>,
    pod: &Arc<Pod>,
    statuses: &NodeStatuses,
    wake: Option<Wake<'_>>,
) -> PostFilterStep {
    if let Some(wake) = wake {
        let why = match wake.reason() {
            WakeReason::Call(Ok(_)) if has_leftover(cx) => {
                return done(Status::unschedulable(DELETED));
            }
            WakeReason::Call(Ok(_)) => return done(Status::unschedulable(DEALLOCATED)),
            WakeReason::Call(Err(error))
                if error.kind == CallErrorKind::NotFound && has_leftover(cx) =>
            {
                return done(Status::unschedulable(DELETED));
            }
            WakeReason::Call(Err(error)) => error.to_string(),
            _ => "deallocating a ResourceClaim: no answer from the API server".to_owned(),
        };
        // The claim may never change, so the pod must not wait for that.
        let state = cx.dry_run.state().read_mut::<ClaimsState>();
        if let Some(claim) = state.and_then(|state| state.freeing.take()) {
            let write = writes::freed(&claim);
            cx.outbox.assume(write.clone());
            cx.outbox.revert(write);
        }
        return done(Status::error(why));
    }
    let context = Context {
        now: cx.now,
        cluster: cx.dry_run.cluster(),
        features: cx.features,
        work: None,
    };
    let has_claims = claims::resolve(context.cluster, context.features, pod)
        .is_ok_and(|found| !found.is_empty())
        || Extended::of(&context, pod).is_some();
    // Most pods have none. The state is not read then: that would run every PreFilter plugin again.
    if !has_claims {
        return done(Status::unschedulable(NOTHING_TO_DEALLOCATE));
    }
    match cx.dry_run.state().read::<ClaimsState>() {
        Some(state) if state.is_empty() => {
            return done(Status::unschedulable(NOTHING_TO_DEALLOCATE));
        }
        Some(ClaimsState {
            extended:
                Some(Extended {
                    leftover: Some(claim),
                    ..
                }),
            ..
        }) => {
            let [finalizer, deletion] = writes::delete_created(claim);
            cx.outbox.call(ApiCall::from(finalizer));
            let call = cx.outbox.call(ApiCall::from(deletion));
            return PostFilterStep::Wait(Wait {
                on: WaitOn::Call(call),
                deadline: cx.now + WRITE_WAIT_MAX,
            });
        }
        _ => {}
    }
    let Some(claim) = to_free(args, cx, pod, statuses) else {
        return done(Status::unschedulable(STILL_NOT_SCHEDULABLE));
    };
    if let Some(state) = cx.dry_run.state().read_mut::<ClaimsState>() {
        state.freeing = Some(claim.clone());
    }
    let call = cx.outbox.call(ApiCall::from(writes::deallocate(&claim)));
    PostFilterStep::Wait(Wait {
        on: WaitOn::Call(call),
        deadline: cx.now + WRITE_WAIT_MAX,
    })
}
