//! Rejects a pod in PreEnqueue while it has `spec.schedulingGates` (KEP-3521).
//!
//! ```text
//! schedulingGates: [{name: example.com/quota}]   → not queued at all
//! schedulingGates: []                            → queued
//! ```

use berth_api::Pod;
use berth_framework::condition::SCHEDULING_GATED;
use berth_framework::event::{ActionType, EventRegistration};
use berth_framework::plugin::{Context, EnqueueExtensions, PreEnqueue};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::{Feature, FeatureGates, ReasonCode, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "SchedulingGates";

/// The message that the API server writes into the condition of a gated pod. If PreEnqueue rejections are written to
/// the pod (KEP-5501), Berth uses the same, so that nothing is written twice.
pub const MESSAGE_IN_STATUS: &str = "Scheduling is blocked due to non-empty scheduling gates";

/// Scheduling gates.
#[derive(Debug, Default)]
pub struct SchedulingGates;

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(SchedulingGates)
            .pre_enqueue()
            .events()
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

impl PreEnqueue for SchedulingGates {
    fn pre_enqueue(&self, cx: &Context<'_>, pod: &Pod) -> Status {
        let gates = &pod.spec.scheduling_gates;
        if gates.is_empty() {
            return Status::success();
        }
        if cx.features.enabled(Feature::SchedulerPreEnqueuePodStatus) {
            return Status::unresolvable(ReasonCode::SchedulingGate.reason(MESSAGE_IN_STATUS));
        }
        let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
        let text = format!("waiting for scheduling gates: [{}]", names.join(" "));
        Status::unresolvable(ReasonCode::SchedulingGate.reason(text))
    }

    fn condition_reason(&self) -> &'static str {
        SCHEDULING_GATED
    }
}

impl EnqueueExtensions for SchedulingGates {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![EventRegistration::when_itself(
            ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
            |_, _| true,
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, hint, pod, update};
    use berth_framework::Code;
    use berth_framework::{EventResource, Hint};
    use serde_json::json;

    /// Q-28, Q-101, PL-30: the text of 1.36, or the API server's when rejections are written to the pod.
    #[test]
    fn a_gate_holds_the_pod_back() {
        let gated =
            json!({"schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/b"}]});
        for (spec, on, message) in [
            (json!({}), true, None),
            (json!({"schedulingGates": []}), false, None),
            (
                gated.clone(),
                true,
                Some("Scheduling is blocked due to non-empty scheduling gates"),
            ),
            (
                gated,
                false,
                Some("waiting for scheduling gates: [example.com/a example.com/b]"),
            ),
        ] {
            let mut world = World::new();
            world.features = world
                .features
                .with(Feature::SchedulerPreEnqueuePodStatus, on);
            let pod = pod("p", spec.clone());
            let status = SchedulingGates.pre_enqueue(&world.context(), &pod);
            match message {
                None => assert!(status.is_success(), "{spec}"),
                Some(message) => {
                    assert_eq!(status.code(), Code::UnschedulableAndUnresolvable, "{spec}");
                    assert_eq!(status.message(), message, "{spec}");
                }
            }
        }
    }

    /// Q-29, PL-31: only the pod's own last gate helps it.
    #[test]
    fn only_the_pod_itself_is_woken() {
        let waiting = pod("p", json!({"schedulingGates": [{"name": "g"}]}));
        for (other, expected) in [("p", Hint::Queue), ("q", Hint::Skip)] {
            let old = pod(other, json!({"schedulingGates": [{"name": "g"}]}));
            let new = pod(other, json!({}));
            let got = hint(
                SchedulingGates,
                &World::new(),
                EventResource::Pod,
                ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
                &waiting,
                update(old, new),
            );
            assert_eq!(got, Ok(expected), "{other}");
        }
    }
}
