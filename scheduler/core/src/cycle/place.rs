//! From a chosen node to the binding: assume, Reserve, Permit.

use super::{AssumedPod, Attempt, CycleWaits, ParkedAt, StageEnd, deleting, drops_deleting};
use crate::core::{Framework, Hold, PERMIT_WAIT_MAX, PointRun, Ran};
use crate::failure::AttemptFailure;
use crate::placement::{PermitWait, failure_of_stage, run_reserve, stage_failure, undo_placement};
use berth_api::{Duration, Pod, Str};
use berth_evaluator::{Evaluation, Placement};
use berth_framework::plugin::{DryRun, Nominating, PermitStep};
use berth_framework::stage::WakeReason;
use berth_framework::{Code, Status};
use berth_profile::Point;
use berth_queue::Nominator;
use smallvec::SmallVec;
use std::sync::Arc;

/// The Permit plugins that hold a placed pod.
pub(super) struct Permission {
    pub(super) holds: SmallVec<[Hold; 2]>,
    pub(super) waits: SmallVec<[PermitWait; 2]>,
}

/// Assumes the pod on its node.
///
/// # Errors
/// The failure of the attempt, if the pod is already placed.
pub(super) fn assume(
    framework: &mut Framework,
    attempt: &Attempt,
    placement: &Placement,
) -> Result<AssumedPod, AttemptFailure> {
    let node = placement.name.clone();
    match framework.cache.assume(&attempt.pod.pod, &node) {
        Ok(pod) => Ok(AssumedPod {
            pod,
            node,
            nodes: (placement.evaluated, placement.feasible),
        }),
        Err(error) => {
            let status = Status::error(error.to_string());
            let nominating = Nominating::Set(Str::default());
            Err(AttemptFailure::of_status(&status, nominating))
        }
    }
}

/// Runs Reserve, starting with the waiting plugin if the cycle was parked (F-13), and then Permit.
pub(super) fn reserve(
    framework: &mut Framework,
    attempt: &mut Attempt,
    placed: AssumedPod,
    mut run: PointRun,
    reason: Option<WakeReason>,
) -> StageEnd {
    match run_reserve(framework, attempt, &placed, &mut run, reason) {
        // The generation shows later whether the node has changed during the wait.
        Ran::Waits(wait) => {
            let generation = framework.cache.cluster().nodes.generation();
            let at = ParkedAt::Reserve {
                run,
                placed,
                generation,
            };
            StageEnd::Waits(at, CycleWaits::from(wait))
        }
        Ran::Ended(status) => {
            run.end(
                &framework.clock,
                &mut framework.metrics,
                attempt,
                status.code(),
            );
            give_up_placement(framework, attempt, &placed, &status)
        }
        Ran::Through => {
            run.end(
                &framework.clock,
                &mut framework.metrics,
                attempt,
                Code::Success,
            );
            match permit(framework, attempt, &placed) {
                Ok(permission) => StageEnd::Permitted(placed, permission),
                Err(status) => give_up_placement(framework, attempt, &placed, &status),
            }
        }
    }
}

/// The wait of a Reserve plugin has ended. If the node has changed since then, the pod may not fit any more.
pub(super) fn resume_reserve(
    framework: &mut Framework,
    nominator: &Nominator,
    attempt: &mut Attempt,
    placed: AssumedPod,
    run: PointRun,
    generation: u64,
    reason: WakeReason,
) -> StageEnd {
    if deleting(&framework.cache, attempt).is_some() {
        let freed = revert_placement(framework, attempt, &placed);
        drops_deleting(framework, attempt);
        return StageEnd::Dropped(freed);
    }
    if let Some(mut status) = no_longer_fits(framework, nominator, attempt, &placed, generation) {
        if status.is_rejected() {
            // The other nodes were not evaluated, so this is not a rejection of the pod, which is retried soon.
            status = Status::error(format!(
                "node {:?} does not fit any more: {}",
                placed.node.as_str(),
                status.message()
            ));
        }
        return give_up_placement(framework, attempt, &placed, &status);
    }
    reserve(framework, attempt, placed, run, Some(reason))
}

/// Returns whether a node that has changed since `generation` rejects the pod now. Its filters run again, without the
/// pod on the node.
fn no_longer_fits(
    framework: &mut Framework,
    nominator: &Nominator,
    attempt: &Attempt,
    placed: &AssumedPod,
    generation: u64,
) -> Option<Status> {
    let uid = placed.pod.pod.uid();
    if !framework.cache.is_assumed(uid) || framework.cache.stored(uid).is_none() {
        return Some(Status::error(
            "the pod was deleted, or another scheduler has bound it",
        ));
    }
    let Some(view) = framework.cache.cluster().nodes.node(&placed.node) else {
        let node = placed.node.as_str();
        return Some(Status::error(format!("node {node:?} was deleted")));
    };
    // An unchanged node still fits.
    let slot = view.slot();
    if framework.cache.cluster().nodes.changed_at(slot) <= generation {
        return None;
    }
    let mut evaluation = Evaluation::default();
    let mut evaluator = framework.evaluator_of(
        nominator,
        &attempt.profile,
        &attempt.pod,
        &attempt.work,
        &mut evaluation,
    );
    // The filters must not count the pod itself, so it is removed for the check.
    evaluator.cluster.nodes.begin();
    evaluator.cluster.nodes.remove_pod_at(slot, uid);
    let status = match evaluator.pre_filter() {
        Ok(possible) => match possible.nodes {
            Some(names) if names.binary_search(&placed.node).is_err() => {
                Status::unresolvable("node(s) didn't satisfy the PreFilter plugins any more")
            }
            _ => evaluator.filter(slot),
        },
        Err((status, _)) => status,
    };
    evaluator.cluster.nodes.rollback();
    (!status.is_success()).then_some(status)
}

/// Calls the Permit plugins (F-14). A plugin that waits is called again separately, while the pod is held.
///
/// # Errors
/// The status of the plugin that rejects the pod or fails.
pub(super) fn permit(
    framework: &mut Framework,
    attempt: &mut Attempt,
    placed: &AssumedPod,
) -> Result<Permission, Status> {
    let profile = attempt.profile.clone();
    let now = framework.clock.now();
    let mut run = PointRun::begin(&framework.clock, Point::Permit.as_str());
    let mut holds: SmallVec<[Hold; 2]> = SmallVec::new();
    let mut waits: SmallVec<[PermitWait; 2]> = SmallVec::new();
    let mut failed = None;
    for (at, member) in profile.permit.iter().enumerate() {
        let mut of_plugin = run.of_plugin(at);
        let step = of_plugin.ask(
            framework,
            attempt,
            &member.name,
            None,
            |framework, attempt, wake| {
                framework.stage(attempt, |cx, state| {
                    let (pod, node) = (&placed.pod, &placed.node);
                    member.plugin.permit(cx, state, pod, node, wake)
                })
            },
        );
        let hold = |timeout: Duration| Hold {
            plugin: member.name.clone(),
            until: now + timeout.min(PERMIT_WAIT_MAX),
        };
        match step {
            PermitStep::Hold(timeout) => holds.push(hold(timeout)),
            // The plugin decides when it is called again. Until then, the duration of its hold is unknown.
            PermitStep::Wait(wait) => {
                holds.push(hold(PERMIT_WAIT_MAX));
                waits.push(PermitWait {
                    run: of_plugin,
                    wait,
                });
            }
            PermitStep::Done(status) if status.is_success() => {}
            PermitStep::Done(status) => {
                failed = Some(stage_failure("Permit", &member.name, &status));
                break;
            }
        }
    }
    let code = match &failed {
        Some(status) => status.code(),
        None if holds.is_empty() => Code::Success,
        None => Code::Wait,
    };
    run.end(&framework.clock, &mut framework.metrics, attempt, code);
    match failed {
        Some(status) => Err(status),
        None => Ok(Permission { holds, waits }),
    }
}

/// Reverts a placement. Returns the pod as it was counted on its node, if other pods may have been rejected because of
/// it while the cycle was parked.
fn revert_placement(
    framework: &mut Framework,
    attempt: &mut Attempt,
    placed: &AssumedPod,
) -> Option<Arc<Pod>> {
    let freed = undo_placement(framework, attempt, placed);
    freed.filter(|_| attempt.was_parked)
}

/// A stage of the cycle has rejected the placed pod, or failed (C-36 to C-38).
pub(super) fn give_up_placement(
    framework: &mut Framework,
    attempt: &mut Attempt,
    placed: &AssumedPod,
    status: &Status,
) -> StageEnd {
    let freed = revert_placement(framework, attempt, placed);
    let failure = failure_of_stage(framework.cache.cluster(), placed, status);
    StageEnd::Failed(failure, freed)
}
