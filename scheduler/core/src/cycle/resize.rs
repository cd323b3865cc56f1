//! The end of an attempt of a pod that has a node and waits for a resize (KEP-5836): there is nothing to bind.

use super::{Attempt, CycleResult};
use crate::core::Core;
use crate::failure::{AttemptFailure, fail};
use crate::placement::stage_failure;
use berth_evaluator::{FitError, Placement};
use berth_framework::plugin::{Nominating, PermitStep};
use berth_framework::{Cluster, Status};

/// The node has room for the resize. A Permit plugin holds the pod until the kubelet has done the resize. Without one,
/// the pod leaves the queue, and returns with its next change.
pub(super) fn fits(core: &mut Core, mut attempt: Attempt, placement: &Placement) -> CycleResult {
    let profile = attempt.profile.clone();
    let pod = attempt.pod.clone();
    for member in &profile.permit {
        let step = core.stage(&mut attempt, |cx, state| {
            member.plugin.permit(cx, state, &pod, &placement.name, None)
        });
        let PermitStep::Done(status) = step else {
            continue;
        };
        if !status.is_success() {
            let status = stage_failure("Permit", &member.name, &status);
            return fail(
                core,
                attempt,
                failure_of(core.cache.cluster(), placement, status),
            );
        }
    }
    let uid = pod.pod.uid();
    core.requests.take_activations(uid);
    core.queue.done(uid);
    CycleResult::Skipped
}

fn failure_of(cluster: &Cluster, placement: &Placement, status: Status) -> AttemptFailure {
    if !status.is_rejected() {
        return AttemptFailure::of_status(&status, Nominating::Keep);
    }
    let node = cluster.nodes.slot(&placement.name);
    let error = FitError::of_one(node, status);
    AttemptFailure::unfit(Box::new(error), Nominating::Keep)
}
