//! A plugin with slow stages: Reserve, Permit and PreBind.

use super::own_label_change;
use crate::shapes::{SLOW, Slow};
use berth_api::{Duration, Pod, Str};
use berth_framework::event::EventRegistration;
use berth_framework::plugin::{EnqueueExtensions, Permit, PermitStep, PreBind, Reserve};
use berth_framework::registry::Extensions;
use berth_framework::stage::{StageContext, Step, Wait, WaitOn, Wake, WakeReason};
use berth_framework::{CycleState, FeatureGates, PodInfo, Status};
use std::sync::Arc;

/// Delays the placement of pods with the label [`SLOW`].
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

impl Reserve for Stages {
    fn reserve(
        &self,
        cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        _node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step {
        if wake.is_none() && is_slow_at(&pod.pod, Slow::Reserve) {
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
        _wake: Option<Wake<'_>>,
    ) -> PermitStep {
        if is_slow_at(&pod.pod, Slow::Permit) && cx.now.as_millis() / 1000 % 3 != 0 {
            PermitStep::Hold(Duration::from_secs(2))
        } else {
            PermitStep::Done(Status::success())
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
        wake: Option<Wake<'_>>,
    ) -> Step {
        match wake.map(Wake::reason) {
            None => {}
            Some(WakeReason::Job(Err(error))) => {
                return Step::Done(Status::error(error.to_string()));
            }
            Some(WakeReason::Deadline) => {
                return Step::Done(Status::error("the job has not ended in time"));
            }
            Some(_) => return Step::success(),
        }
        let on = if is_slow_at(&pod.pod, Slow::Job) {
            // The simulator completes the job; it is not polled.
            WaitOn::Job(cx.outbox.job(Box::pin(std::future::pending())))
        } else {
            WaitOn::Timer
        };
        Step::Wait(Wait {
            on,
            deadline: cx.now + Duration::from_secs(1),
        })
    }
}

impl EnqueueExtensions for Stages {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        // A pod that Permit has rejected may pass after its label was removed.
        vec![own_label_change(SLOW, |slow| {
            slow != Some(Slow::Permit.as_str())
        })]
    }
}
