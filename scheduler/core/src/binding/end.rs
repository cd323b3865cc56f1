//! The end of a binding: the pod is bound (C-43, C-44), or everything is reverted (C-52).

use super::{Bindings, PodBinding};
use crate::attempt::AssumedPod;
use crate::core::{Answered, Core, Framework, PointRun, activate_wanted, placement_freed};
use crate::failure::fail;
use crate::placement::{failure_of_stage, undo_placement};
use crate::pod_status::correct_status;
use berth_api::{Pod, Time};
use berth_framework::call::{EventKind, PodEvent};
use berth_framework::plugin::Nominating;
use berth_framework::{Code, Feature, Status};
use berth_profile::Point;
use berth_queue::QueuedPodInfo;
use berth_telemetry::metrics::{Metric, Metrics};

/// From this number of attempts on, all pods have the same label in metrics.
const ATTEMPTS_LABEL_MAX: u32 = 15;

impl Bindings {
    /// The API has accepted the binding.
    pub(super) fn bound(&mut self, core: &mut Core, id: u64) {
        let Core {
            framework,
            queue,
            calls,
            waits,
            broken_groups,
            explanations,
            ..
        } = core;
        let Some(mut binding) = self.take(waits, &mut framework.unbound, id) else {
            return;
        };
        framework
            .outbound
            .log
            .v(2, "Successfully bound pod to node", |line| {
                let AssumedPod { node, nodes, .. } = &binding.placed;
                let line = line
                    .with("pod", &*binding.placed.pod.pod)
                    .with("node", node);
                line.with("evaluatedNodes", nodes.0)
                    .with("feasibleNodes", nodes.1)
            });
        let event = scheduled_event(&binding);
        framework
            .outbound
            .publish(event, &binding.attempt.profile.name);
        explanations.forget(binding.uid());
        let pod = &binding.placed.pod.pod;
        broken_groups.bound(&framework.cache, waits, pod);
        framework.attempt_took(&binding.attempt, "scheduled");
        let now = framework.clock.now();
        count_scheduled(&mut framework.metrics, &binding.attempt.info, now);
        run_post_bind(framework, &mut binding);
        calls.make_requested(&mut framework.requests, now);
        let PodBinding {
            attempt, placed, ..
        } = &mut *binding;
        framework.trace_ended(attempt, "scheduled", Some(&placed.node), "");
        activate_wanted(framework, queue, binding.uid());
        // The API may show the pod as bound already, with a status that could not be written during the binding.
        let stored = framework.cache.stored(binding.uid());
        if let Some(stored) = stored.filter(|pod| pod.is_assigned()) {
            correct_status(calls, stored, now);
        }
    }

    /// The pod will not be bound. `is_given_up` is set if a preemption or its group has released its node.
    pub(super) fn undo(&mut self, core: &mut Core, id: u64, status: &Status, is_given_up: bool) {
        let Core {
            framework,
            queue,
            waits,
            broken_groups,
            ..
        } = core;
        let Some(binding) = self.take(waits, &mut framework.unbound, id) else {
            return;
        };
        let PodBinding {
            mut attempt,
            placed,
            ..
        } = *binding;
        let freed = undo_placement(framework, &mut attempt, &placed);
        let mut failure = failure_of_stage(framework.cache.cluster(), &placed, status);
        let has_groups = framework.settings.is_on(Feature::GenericWorkload);
        if has_groups
            && !is_given_up
            && broken_groups.binding_failed(
                &framework.cache,
                waits,
                &attempt.pod.pod,
                &placed.node,
                status.is_rejected(),
                framework.clock.now(),
            )
        {
            failure = failure.nominating(Nominating::Set(placed.node.clone()));
        }
        if status.is_rejected() {
            // The pod returns to the queue before its node is released: in flight, it would receive the event about
            // itself and be retried at once. After an error it is retried after its backoff in any case.
            fail(core, attempt, failure);
            if let Some(pod) = freed {
                let uid = pod.uid().clone();
                let others = move |other: &Pod| *other.uid() != uid;
                placement_freed(&core.framework, &mut core.queue, &pod, Some(&others));
            }
        } else {
            if let Some(pod) = freed {
                placement_freed(framework, queue, &pod, None);
            }
            fail(core, attempt, failure);
        }
    }
}

fn scheduled_event(binding: &PodBinding) -> PodEvent {
    let pod = binding.attempt.pod_ref();
    let note = format!("Successfully assigned {pod} to {}", binding.placed.node);
    PodEvent {
        regarding: pod,
        related: None,
        kind: EventKind::Normal,
        reason: "Scheduled",
        action: "Binding",
        note,
    }
}

fn run_post_bind(framework: &mut Framework, binding: &mut PodBinding) {
    let PodBinding {
        attempt, placed, ..
    } = binding;
    let profile = attempt.profile.clone();
    let mut run = PointRun::begin(&framework.clock, Point::PostBind.as_str());
    run.go(
        framework,
        attempt,
        &profile.post_bind,
        None,
        |framework, attempt, plugin, _| {
            framework.stage(attempt, |cx, state| {
                plugin.post_bind(cx, state, &placed.pod, &placed.node);
            });
        },
        |_, ()| Answered::<()>::Next,
    );
    run.end(
        &framework.clock,
        &mut framework.metrics,
        attempt,
        Code::Success,
    );
}

fn count_scheduled(metrics: &mut Metrics, info: &QueuedPodInfo, now: Time) {
    let attempts = f64::from(info.attempts);
    metrics.observe(Metric::PodSchedulingAttempts, &[], attempts);
    if let Some(since) = info.initial_attempt_timestamp {
        let label = match info.attempts {
            attempts if attempts < ATTEMPTS_LABEL_MAX => attempts.to_string(),
            _ => format!("{ATTEMPTS_LABEL_MAX}+"),
        };
        let waited = now.since(since).as_secs_f64();
        metrics.observe(Metric::PodSchedulingSliDuration, &[&label], waited);
    }
    if info.was_flushed_from_unschedulable {
        metrics.count(Metric::PodScheduledAfterFlush, &[]);
    }
}
