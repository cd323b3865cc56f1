//! From a chosen node to the binding: assume, Reserve, Permit.

use super::{
    AssumedPod, Attempt, Cycle, CycleResult, CycleStep, ParkedAt, deleting, drops_deleting,
};
use crate::core::{Core, Hold, PERMIT_WAIT_MAX, PointRun, Ran};
use crate::failure::{AttemptFailure, fail};
use crate::nominations;
use crate::placement::{
    PermitWait, Permitted, failure_of_stage, run_reserve, stage_failure, undo_placement,
};
use berth_api::{Duration, Str};
use berth_evaluator::{Evaluation, Placement};
use berth_framework::plugin::{DryRun, Nominating, PermitStep};
use berth_framework::stage::WakeReason;
use berth_framework::{Code, Status};
use berth_profile::Point;
use smallvec::SmallVec;

impl Cycle {
    /// Assumes the pod on its node and continues with Reserve.
    pub(super) fn place_on(
        &mut self,
        core: &mut Core,
        attempt: Attempt,
        placement: &Placement,
    ) -> CycleStep {
        let node = placement.name.clone();
        let pod = match core.cache.assume(&attempt.pod.pod, &node) {
            Ok(pod) => pod,
            Err(error) => {
                let status = Status::error(error.to_string());
                let failure = AttemptFailure::of_status(&status, Nominating::Set(Str::default()));
                return CycleStep::Over(fail(core, attempt, failure));
            }
        };
        core.queue.end_turn(attempt.pod.pod.uid());
        nominations::end(core, &attempt.pod.pod, &nominations::End::Placed(&node));
        let run = PointRun::begin(&core.clock, Point::Reserve.as_str());
        let nodes = (placement.evaluated, placement.feasible);
        self.reserve(core, attempt, AssumedPod { pod, node, nodes }, run, None)
    }

    /// Runs Reserve, starting with the waiting plugin if the cycle was parked (F-13).
    fn reserve(
        &mut self,
        core: &mut Core,
        mut attempt: Attempt,
        placed: AssumedPod,
        mut run: PointRun,
        reason: Option<WakeReason>,
    ) -> CycleStep {
        match run_reserve(core, &mut attempt, &placed, &mut run, reason) {
            // The generation shows later whether the node has changed during the wait.
            Ran::Waits(wait) => {
                let generation = core.cache.cluster().nodes.generation();
                let at = ParkedAt::Reserve {
                    run,
                    placed,
                    generation,
                };
                self.park(&mut core.waits, attempt, at, wait)
            }
            Ran::Ended(status) => {
                run.end(&core.clock, &mut core.metrics, &mut attempt, status.code());
                CycleStep::Over(give_up_placement(core, attempt, &placed, &status))
            }
            Ran::Through => {
                run.end(&core.clock, &mut core.metrics, &mut attempt, Code::Success);
                permit(core, attempt, placed)
            }
        }
    }

    /// The wait of a Reserve plugin has ended. If the node has changed since then, the pod may not fit any more.
    pub(super) fn resume_reserve(
        &mut self,
        core: &mut Core,
        mut attempt: Attempt,
        placed: AssumedPod,
        (run, generation): (PointRun, u64),
        reason: WakeReason,
    ) -> CycleStep {
        if deleting(&core.cache, &attempt).is_some() {
            revert_placement(core, &mut attempt, &placed);
            drops_deleting(core, &mut attempt);
            return CycleStep::Over(CycleResult::Skipped);
        }
        if let Some(mut status) = no_longer_fits(core, &attempt, &placed, generation) {
            if status.is_rejected() {
                // The other nodes were not evaluated, so this is not a rejection of the pod, which is retried soon.
                status = Status::error(format!(
                    "node {:?} does not fit any more: {}",
                    placed.node.as_str(),
                    status.message()
                ));
            }
            return CycleStep::Over(give_up_placement(core, attempt, &placed, &status));
        }
        self.reserve(core, attempt, placed, run, Some(reason))
    }
}

/// Returns whether a node that has changed since `generation` rejects the pod now. Its filters run again, without the
/// pod on the node.
fn no_longer_fits(
    core: &mut Core,
    attempt: &Attempt,
    placed: &AssumedPod,
    generation: u64,
) -> Option<Status> {
    let uid = placed.pod.pod.uid();
    if !core.cache.is_assumed(uid) || core.cache.stored(uid).is_none() {
        return Some(Status::error(
            "the pod was deleted, or another scheduler has bound it",
        ));
    }
    let Some(view) = core.cache.cluster().nodes.node(&placed.node) else {
        let node = placed.node.as_str();
        return Some(Status::error(format!("node {node:?} was deleted")));
    };
    // An unchanged node still fits.
    let slot = view.slot();
    if core.cache.cluster().nodes.changed_at(slot) <= generation {
        return None;
    }
    let mut evaluation = Evaluation::default();
    let mut evaluator = core.evaluator_of(
        &attempt.profile,
        &attempt.pod,
        &mut evaluation,
        &attempt.work,
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
pub(super) fn permit(core: &mut Core, mut attempt: Attempt, placed: AssumedPod) -> CycleStep {
    let profile = attempt.profile.clone();
    let now = core.clock.now();
    let mut run = PointRun::begin(&core.clock, Point::Permit.as_str());
    let mut holds: SmallVec<[Hold; 2]> = SmallVec::new();
    let mut waits: SmallVec<[PermitWait; 2]> = SmallVec::new();
    let mut failed = None;
    for (at, member) in profile.permit.iter().enumerate() {
        let mut of_plugin = run.of_plugin(at);
        let step = of_plugin.ask(
            core,
            &mut attempt,
            &member.name,
            None,
            |core, attempt, wake| {
                core.stage(attempt, |cx, state| {
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
    run.end(&core.clock, &mut core.metrics, &mut attempt, code);
    if let Some(status) = failed {
        return CycleStep::Over(give_up_placement(core, attempt, &placed, &status));
    }
    core.activate_wanted(placed.pod.pod.uid());
    CycleStep::Placed(Box::new(Permitted {
        attempt,
        placed,
        holds,
        waits,
    }))
}

fn revert_placement(core: &mut Core, attempt: &mut Attempt, placed: &AssumedPod) {
    let freed = undo_placement(core, attempt, placed);
    // Pods that were rejected while the cycle was parked may have been rejected because of this pod.
    if let Some(pod) = freed.filter(|_| attempt.was_parked) {
        core.placement_freed(&pod, None);
    }
}

/// A stage of the cycle has rejected the placed pod, or failed (C-36 to C-38).
fn give_up_placement(
    core: &mut Core,
    mut attempt: Attempt,
    placed: &AssumedPod,
    status: &Status,
) -> CycleResult {
    revert_placement(core, &mut attempt, placed);
    let failure = failure_of_stage(core.cache.cluster(), placed, status);
    fail(core, attempt, failure)
}
