//! The placement of a pod on a node, from Reserve to the binding: shared by the scheduling cycle and the binding cycle.

use crate::attempt::{AssumedPod, Attempt};
use crate::core::{Answered, Framework, Hold, PointRun, Ran};
use crate::failure::AttemptFailure;
use berth_api::{Pod, Str};
use berth_evaluator::FitError;
use berth_framework::plugin::Nominating;
use berth_framework::stage::{Step, Wait, WakeReason};
use berth_framework::{Cluster, Code, Status};
use berth_telemetry::LogLine;
use smallvec::SmallVec;
use std::sync::Arc;

/// A placed pod to bind, with the Permit plugins that hold it.
pub(crate) struct Permitted {
    pub(crate) attempt: Attempt,
    pub(crate) placed: AssumedPod,
    pub(crate) holds: SmallVec<[Hold; 2]>,
    pub(crate) waits: SmallVec<[PermitWait; 2]>,
}

/// A waiting Permit plugin.
pub(crate) struct PermitWait {
    /// The run of this plugin.
    pub(crate) run: PointRun,
    pub(crate) wait: Wait,
}

/// Calls the Reserve plugins, starting with the waiting plugin if the cycle was parked.
pub(crate) fn run_reserve(
    framework: &mut Framework,
    attempt: &mut Attempt,
    placed: &AssumedPod,
    run: &mut PointRun,
    reason: Option<WakeReason>,
) -> Ran<Status> {
    let profile = attempt.profile.clone();
    run.go(
        framework,
        attempt,
        &profile.reserve,
        reason,
        |framework, attempt, plugin, wake| {
            framework.stage(attempt, |cx, state| {
                plugin.reserve(cx, state, &placed.pod, &placed.node, wake)
            })
        },
        |member, step| match step {
            Step::Wait(wait) => Answered::Wait(wait),
            Step::Done(status) if status.is_success() => Answered::Next,
            Step::Done(status) => Answered::End(stage_failure("Reserve", &member.name, &status)),
        },
    )
}

/// Reverts a placement: Unreserve of all plugins in reverse order, then the assumption. Returns the pod as it was
/// counted.
pub(crate) fn undo_placement(
    framework: &mut Framework,
    attempt: &mut Attempt,
    placed: &AssumedPod,
) -> Option<Arc<Pod>> {
    let profile = attempt.profile.clone();
    let mut run = PointRun::begin(&framework.clock, "Unreserve");
    for member in profile.reserve.iter().rev() {
        run.ask(
            framework,
            attempt,
            &member.name,
            None,
            |framework, attempt, _| {
                framework.stage(attempt, |cx, state| {
                    let (pod, node) = (&placed.pod, &placed.node);
                    member.plugin.unreserve(cx, state, pod, node);
                });
            },
        );
    }
    run.end(
        &framework.clock,
        &mut framework.metrics,
        attempt,
        Code::Success,
    );
    match framework.cache.forget(placed.pod.pod.uid(), &placed.node) {
        Ok(pod) => pod,
        Err(error) => {
            // The pod has been bound since it was assumed: by another scheduler, or by this one with a lost answer.
            let stored = framework.cache.stored(placed.pod.pod.uid());
            let line = if stored.is_some_and(|pod| pod.is_assigned()) {
                LogLine::info("ForgetPod failed")
            } else {
                LogLine::error("ForgetPod failed")
            };
            let line = line
                .with("pod", &*placed.pod.pod)
                .with("node", &placed.node);
            framework
                .outbound
                .log
                .push(line.with("err", error.to_string()));
            None
        }
    }
}

/// The status for a pod that a stage rejected, or whose stage failed with an error (C-36, C-37).
pub(crate) fn stage_failure(what: &str, plugin: &Str, status: &Status) -> Status {
    if status.is_rejected() {
        return status.clone().from_plugin(plugin);
    }
    let text = format!(
        "running {what} plugin {:?}: {}",
        plugin.as_str(),
        status.as_error().unwrap_or_default()
    );
    Status::error(text).from_plugin(plugin)
}

/// The failure of a pod that had a node.
pub(crate) fn failure_of_stage(
    cluster: &Cluster,
    placed: &AssumedPod,
    status: &Status,
) -> AttemptFailure {
    let cleared = Nominating::Set(Str::default());
    if !status.is_rejected() {
        return AttemptFailure::of_status(status, cleared);
    }
    let node = cluster.nodes.slot(&placed.node);
    AttemptFailure::unfit(Box::new(FitError::of_one(node, status.clone())), cleared)
}
