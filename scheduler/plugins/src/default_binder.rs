//! Binds a pod to its node through the API.
//!
//! The call contains the UID of the pod, so that a pod that was deleted and created again under the same name is not
//! bound. The call is sent to the dispatcher, and the binding cycle continues with its result.

use berth_api::{Duration, Str};
use berth_framework::call::PodRef;
use berth_framework::plugin::Bind;
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::stage::{StageContext, Step, Wake, WakeReason};
use berth_framework::{ApiCall, CycleState, PodInfo, Status};

/// The plugin's name.
pub const NAME: &str = "DefaultBinder";

/// The time for which a binding waits for its call. The dispatcher ends every call earlier, so this only limits the
/// wait.
pub const BIND_WAIT_MAX: Duration = Duration::from_secs(15 * 60);

/// Binds pods.
#[derive(Debug, Default)]
pub struct DefaultBinder;

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| Ok(Extensions::of(DefaultBinder).bind().build()))
        .args(ArgsKind::None)
        .by_default(None)
}

impl Bind for DefaultBinder {
    fn bind(
        &self,
        cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step {
        let Some(wake) = wake else {
            let call = ApiCall::BindPod {
                pod: PodRef::of(&pod.pod),
                node: node.clone(),
            };
            return cx.wait_for_call(BIND_WAIT_MAX, call);
        };
        Step::Done(match wake.reason() {
            WakeReason::Call(Ok(_)) => Status::success(),
            WakeReason::Call(Err(error)) => Status::error(error.to_string()),
            _ => Status::error(format!(
                "binding pod {} to node {node}: no answer within {} s",
                pod.pod.key(),
                BIND_WAIT_MAX.as_secs()
            )),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Recorder, World, pod_info};
    use berth_framework::call::{CallError, CallErrorKind, Response};
    use berth_framework::stage::WaitOn;
    use berth_framework::{CallId, Code};
    use serde_json::json;

    /// PL-33: one binding call with the pod's UID; its outcome is the plugin's.
    #[test]
    fn binds_through_one_call_and_waits_for_it() {
        let world = World::new();
        let pod = pod_info("p", json!({}));
        let mut outbox = Recorder::default();
        let mut state = CycleState::default();
        let step = DefaultBinder.bind(
            &mut world.stage(&mut outbox),
            &mut state,
            &pod,
            &"n1".into(),
            None,
        );
        let Step::Wait(wait) = step else {
            panic!("binding waits for its call, got {step:?}");
        };
        assert_eq!(wait.on, WaitOn::Call(CallId(0)));
        assert_eq!(wait.deadline, world.now + BIND_WAIT_MAX);
        assert_eq!(
            outbox.calls,
            [ApiCall::BindPod {
                pod: PodRef::of(&pod.pod),
                node: "n1".into()
            }]
        );
        assert_eq!(outbox.calls[0].key().uid, "p");

        let conflict = CallError::new(
            CallErrorKind::Conflict,
            "pod p is already assigned to node \"n2\"",
        );
        for (wake, code, message) in [
            (WakeReason::Call(Ok(Response::default())), Code::Success, ""),
            (
                WakeReason::Call(Err(conflict)),
                Code::Error,
                "pod p is already assigned to node \"n2\"",
            ),
            (
                WakeReason::Deadline,
                Code::Error,
                "binding pod default/p to node n1: no answer within 900 s",
            ),
        ] {
            let mut outbox = Recorder::default();
            let step = DefaultBinder.bind(
                &mut world.stage(&mut outbox),
                &mut state,
                &pod,
                &"n1".into(),
                Some(wake.into()),
            );
            let Step::Done(status) = step else {
                panic!("{message}: binding is over");
            };
            assert_eq!((status.code(), status.message().as_str()), (code, message));
            assert!(outbox.calls.is_empty());
        }
    }
}
