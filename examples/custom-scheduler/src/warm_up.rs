//! Makes a node prepare for a pod before the pod is bound to it, for example pull an image or load a model.
//!
//! ```text
//! pod with example.com/warm-up=llm, node n selected
//!     → PATCH nodes/n: annotation warm-up.example.com/llm=requested, through the API dispatcher
//!     → wait until an agent on the node sets the annotation warm-up.example.com/llm=done
//!     → bind
//! ```
//!
//! A node prepares once. Later pods with the same label are bound without waiting.

use berth_api::{Duration, Kind, Node, ObjectMeta, Str, Time};
use berth_framework::object_name::ObjectName;
use berth_framework::plugin::PreBind;
use berth_framework::registry::{ArgsError, Extensions, FactoryContext};
use berth_framework::stage::{StageContext, Step, Wait, WaitOn, Wake, WakeReason};
use berth_framework::write::{CallType, Merge, Write};
use berth_framework::{CycleState, PodInfo, Status};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The plugin's name.
pub const NAME: &str = "WarmUp";

/// The label of a pod; its value names the preparation that the node must perform.
pub const WARM_UP: &str = "example.com/warm-up";
/// The prefix of node annotations that contain the state of a preparation.
pub const ANNOTATION: &str = "warm-up.example.com/";
/// The preparation is requested.
pub const REQUESTED: &str = "requested";
/// The preparation is done.
pub const DONE: &str = "done";

/// The time limit of the call that requests a preparation. The dispatcher ends every call before that.
const CALL_MAX: Duration = Duration::from_secs(60);

/// The call type of this plugin: annotations of nodes. Two waiting calls for one node become one request.
pub static NODE_WARM_UP: CallType =
    CallType::new("node_warm_up", Kind::Node).merging(Merge::Patches);

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WarmUpArgs {
    /// The time limit of a preparation, in seconds.
    pub timeout_seconds: u32,
}

impl Default for WarmUpArgs {
    fn default() -> Self {
        Self {
            timeout_seconds: 600,
        }
    }
}

/// Creates the plugin from its arguments.
///
/// # Errors
/// The arguments are invalid.
pub fn make(cx: &FactoryContext<'_>) -> Result<Extensions, ArgsError> {
    let args: WarmUpArgs = cx.decode_args("WarmUpArgs")?;
    if args.timeout_seconds == 0 {
        let problem = "Invalid value: 0: must be greater than 0".to_owned();
        return Err(ArgsError::at("timeoutSeconds", problem));
    }
    let timeout = Duration::from_secs(u64::from(args.timeout_seconds));
    Ok(Extensions::of(WarmUp { timeout })
        .pre_bind()
        .calls(&[&NODE_WARM_UP])
        .build())
}

/// Makes nodes prepare for pods.
#[derive(Debug)]
pub struct WarmUp {
    timeout: Duration,
}

/// The progress for a pod; stored in the state of the cycle between calls of the plugin.
struct WarmUpProgress {
    /// The time at which the node must be ready.
    deadline: Time,
}

/// The preparation that the node needs.
fn wanted(pod: &PodInfo) -> Option<&str> {
    pod.pod.labels().get(WARM_UP)
}

/// The state of the preparation on the node.
fn progress_of<'n>(node: &'n Node, what: &str) -> Option<&'n str> {
    node.metadata
        .annotations
        .get(&format!("{ANNOTATION}{what}"))
}

impl PreBind for WarmUp {
    fn pre_flight(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        _node: &Str,
    ) -> Status {
        match wanted(pod) {
            Some(_) => Status::success(),
            None => Status::skip(),
        }
    }

    fn pre_bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step {
        let Some(what) = wanted(pod) else {
            return Step::success();
        };
        match wake.map(Wake::reason) {
            Some(WakeReason::Call(Err(error))) => {
                return Step::Done(Status::error(format!("node {node}: {error}")));
            }
            Some(WakeReason::Deadline) => {
                let seconds = self.timeout.as_secs();
                let text = format!("node {node} has not prepared {what:?} within {seconds} s");
                return Step::Done(Status::error(text));
            }
            // The first call of the plugin, its API call has succeeded, or the node has changed.
            _ => {}
        }
        let Some(view) = cx.cluster.nodes.node(node) else {
            return Step::Done(Status::error(format!("node {node} was deleted")));
        };
        if progress_of(view.node(), what) == Some(DONE) {
            return Step::success();
        }
        let Some(progress) = state.read::<WarmUpProgress>() else {
            let deadline = cx.now + self.timeout;
            state.write(WarmUpProgress { deadline });
            return cx.wait_for_call(CALL_MAX, request(&view.node().metadata, what));
        };
        Step::Wait(Wait {
            on: WaitOn::Objects(vec![ObjectName::new(Kind::Node, &Str::default(), node)]),
            deadline: progress.deadline,
        })
    }
}

/// Requests a preparation. The write applies only to this node, not to a later node with the same name.
fn request(node: &ObjectMeta, what: &str) -> Write {
    let annotations = BTreeMap::from([(format!("{ANNOTATION}{what}"), REQUESTED)]);
    let body = serde_json::json!({"metadata": {"annotations": annotations}});
    Write::patch(&NODE_WARM_UP, "", &node.name, body).of(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::ApiCall;
    use berth_framework::call::{CallError, CallErrorKind, Response};
    use berth_framework::testing::{NodeBuilder, Recorder, World, node, pod};
    use berth_framework::write::Action;
    use serde_json::json;

    const PLUGIN: WarmUp = WarmUp {
        timeout: Duration::from_secs(30),
    };

    fn with(progress: &'static str) -> NodeBuilder {
        node("n1").with(move |node| {
            let key = format!("{ANNOTATION}llm");
            node.metadata.annotations = node.metadata.annotations.with(&key, progress);
        })
    }

    /// Calls the plugin. Returns its step in a word, or its message.
    fn step(
        node: NodeBuilder,
        state: &mut CycleState,
        recorder: &mut Recorder,
        reason: Option<WakeReason>,
    ) -> String {
        let world = World::default().node(node);
        let pod = pod("p").label(WARM_UP, "llm").info();
        let mut cx = world.stage(recorder);
        match PLUGIN.pre_bind(&mut cx, state, &pod, &"n1".into(), reason.map(Into::into)) {
            Step::Wait(Wait { on, deadline }) => match on {
                WaitOn::Call(_) => "calls".to_owned(),
                WaitOn::Objects(_) => {
                    assert_eq!(deadline, world.now + Duration::from_secs(30));
                    "waits".to_owned()
                }
                other => format!("{other:?}"),
            },
            Step::Done(status) if status.is_success() => "done".to_owned(),
            Step::Done(status) => status.message(),
        }
    }

    #[test]
    fn a_node_is_requested_once_and_awaited() {
        let (mut state, mut recorder) = (CycleState::default(), Recorder::default());
        let called = Some(WakeReason::Call(Ok(Response::default())));
        for (node, reason, expected) in [
            (node("n1"), None, "calls"),
            (node("n1"), called, "waits"),
            (with(REQUESTED), Some(WakeReason::Object), "waits"),
            (with(DONE), Some(WakeReason::Object), "done"),
        ] {
            assert_eq!(step(node, &mut state, &mut recorder, reason), expected);
        }
        let [ApiCall::Write(write)] = &recorder.calls[..] else {
            panic!("one call: {:?}", recorder.calls);
        };
        let body = json!({"metadata": {"annotations": {"warm-up.example.com/llm": "requested"}}});
        assert_eq!(write.action(), &Action::Patch(body));
    }

    #[test]
    fn a_ready_node_is_not_requested() {
        let (mut state, mut recorder) = (CycleState::default(), Recorder::default());
        assert_eq!(step(with(DONE), &mut state, &mut recorder, None), "done");
        assert_eq!(recorder.calls, []);
    }

    #[test]
    fn failures_end_it() {
        let refused = CallError::new(CallErrorKind::Refused, "nodes is forbidden");
        for (reason, expected) in [
            (
                WakeReason::Call(Err(refused)),
                "node n1: nodes is forbidden",
            ),
            (
                WakeReason::Deadline,
                "node n1 has not prepared \"llm\" within 30 s",
            ),
        ] {
            let (mut state, mut recorder) = (CycleState::default(), Recorder::default());
            step(node("n1"), &mut state, &mut recorder, None);
            let got = step(node("n1"), &mut state, &mut recorder, Some(reason));
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn two_requests_for_one_node_become_one() {
        let node = node("n1").arc();
        let (first, second) = (
            request(&node.metadata, "llm"),
            request(&node.metadata, "gpu"),
        );
        let both = second.after(&first).expect("patches merge");
        let body = json!({"metadata": {"annotations": {
            "warm-up.example.com/gpu": "requested",
            "warm-up.example.com/llm": "requested",
        }}});
        assert_eq!(both.action(), &Action::Patch(body));
    }
}
