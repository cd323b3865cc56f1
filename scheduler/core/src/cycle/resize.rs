//! The end of an attempt of a pod that has a node and waits for a resize (KEP-5836): there is nothing to bind.

use super::{Attempt, StageEnd};
use crate::core::Framework;
use crate::failure::AttemptFailure;
use crate::placement::stage_failure;
use berth_evaluator::{FitError, Placement};
use berth_framework::plugin::{Nominating, PermitStep};
use berth_framework::{Cluster, Status};

/// The node has room for the resize. A Permit plugin holds the pod until the kubelet has done the resize. Without one,
/// the pod leaves the queue, and returns with its next change.
pub(super) fn fits(
    framework: &mut Framework,
    attempt: &mut Attempt,
    placement: &Placement,
) -> StageEnd {
    let profile = attempt.profile.clone();
    let pod = attempt.pod.clone();
    for member in &profile.permit {
        let step = framework.stage(attempt, |cx, state| {
            member.plugin.permit(cx, state, &pod, &placement.name, None)
        });
        let PermitStep::Done(status) = step else {
            continue;
        };
        if !status.is_success() {
            let status = stage_failure("Permit", &member.name, &status);
            let cluster = framework.cache.cluster();
            return StageEnd::failed(failure_of(cluster, placement, status));
        }
    }
    framework.requests.take_activations(pod.pod.uid());
    StageEnd::Dropped(None)
}

fn failure_of(cluster: &Cluster, placement: &Placement, status: Status) -> AttemptFailure {
    if !status.is_rejected() {
        return AttemptFailure::of_status(&status, Nominating::Keep);
    }
    let node = cluster.nodes.slot(&placement.name);
    let error = FitError::of_one(node, status);
    AttemptFailure::unfit(Box::new(error), Nominating::Keep)
}
