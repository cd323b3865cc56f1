//! The simulator's own plugins. They make the scheduler go through what the in-tree plugins rarely do: PreEnqueue
//! rejections besides gates, parked cycles, waits for permits, timers and jobs.

use crate::shapes::{HOLD, SLOW, Slow};
use berth_api::{Duration, Pod, Str};
use berth_framework::event::{EventRegistration, Hint};
use berth_framework::plugin::{
    Context, EnqueueExtensions, Permit, PermitResult, Plugin, PreBind, PreEnqueue, Reserve,
};
use berth_framework::registry::Extensions;
use berth_framework::stage::{StageContext, Step, Wait, WaitOn, Wake};
use berth_framework::{ActionType, CycleState, EventResource, FeatureGates, PodInfo, Status};
use std::sync::Arc;

/// The name of the plugin that keeps labelled pods out of the queue.
pub const HOLDS: &str = "SimulatedHolds";
/// The name of the plugin that takes its time.
pub const STAGES: &str = "SimulatedStages";

/// Keeps pods with the label [`HOLD`] out of the queue.
#[derive(Debug, Default)]
pub struct Holds;

impl Holds {
    /// The plugin with its extension points.
    pub fn extensions() -> Extensions {
        Extensions::of(Self).pre_enqueue().events().build()
    }
}

impl Plugin for Holds {
    fn name(&self) -> &str {
        HOLDS
    }
}

impl PreEnqueue for Holds {
    fn pre_enqueue(&self, _cx: &Context<'_>, pod: &Pod) -> Status {
        if pod.labels().contains_key(HOLD) {
            Status::unresolvable("the pod is on hold")
        } else {
            Status::success()
        }
    }
}

impl EnqueueExtensions for Holds {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![own_label_change(|pod| !pod.labels().contains_key(HOLD))]
    }
}

/// A change of the pod's own labels, when `helps` likes the outcome.
fn own_label_change(helps: fn(&Pod) -> bool) -> EventRegistration {
    EventRegistration::with_hint(
        EventResource::Pod,
        ActionType::UPDATE_POD_LABEL,
        move |_, pod, change| {
            let own = change.new_pod().filter(|new| new.uid() == pod.uid());
            Ok(if own.is_some_and(helps) {
                Hint::Queue
            } else {
                Hint::Skip
            })
        },
    )
}

/// Takes its time over pods with the label [`SLOW`].
#[derive(Debug, Default)]
pub struct Stages;

impl Stages {
    /// The plugin with its extension points.
    pub fn extensions() -> Extensions {
        Extensions::of(Self)
            .reserve()
            .permit()
            .pre_bind()
            .events()
            .build()
    }
}

fn is_slow_at(pod: &Pod, stage: Slow) -> bool {
    pod.labels().get(SLOW) == Some(stage.as_str())
}

impl Plugin for Stages {
    fn name(&self) -> &str {
        STAGES
    }
}

impl Reserve for Stages {
    fn reserve(
        &self,
        cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        _node: &Str,
    ) -> Step {
        if is_slow_at(&pod.pod, Slow::Reserve) {
            Step::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_millis(400),
            })
        } else {
            Step::success()
        }
    }

    fn unreserve(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        _pod: &PodInfo,
        _node: &Str,
    ) {
    }
}

impl Permit for Stages {
    fn permit(
        &self,
        cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        _node: &Str,
    ) -> PermitResult {
        if is_slow_at(&pod.pod, Slow::Permit) && cx.now.as_millis() / 1000 % 3 != 0 {
            PermitResult::Wait(Duration::from_secs(2))
        } else {
            PermitResult::Done(Status::success())
        }
    }
}

impl PreBind for Stages {
    fn pre_flight(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        _node: &Str,
    ) -> Status {
        if is_slow_at(&pod.pod, Slow::Timer) || is_slow_at(&pod.pod, Slow::Job) {
            Status::success()
        } else {
            Status::skip()
        }
    }

    fn pre_bind(
        &self,
        cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        _node: &Str,
    ) -> Step {
        let on = if is_slow_at(&pod.pod, Slow::Job) {
            // The simulator answers for the job; nobody polls it.
            WaitOn::Job(cx.outbox.job(Box::pin(std::future::pending())))
        } else {
            WaitOn::Timer
        };
        Step::Wait(Wait {
            on,
            deadline: cx.now + Duration::from_secs(1),
        })
    }

    fn resume_pre_bind(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        _node: &Str,
        wake: Wake,
    ) -> Step {
        match wake {
            Wake::Job(Err(error)) => Step::Done(Status::error(error)),
            Wake::Deadline if is_slow_at(&pod.pod, Slow::Job) => {
                Step::Done(Status::error("the job has not ended in time"))
            }
            _ => Step::success(),
        }
    }
}

impl EnqueueExtensions for Stages {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        // A pod that Permit has rejected may pass when it is not slow any more.
        vec![own_label_change(|pod| !is_slow_at(pod, Slow::Permit))]
    }
}
