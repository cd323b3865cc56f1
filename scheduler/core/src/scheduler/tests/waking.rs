//! Plugins that wait and are called again (F-45, F-46).

use super::*;
use berth_api::{Duration, Object, Time};
use berth_framework::call::{CallErrorKind, CallId};
use berth_framework::plugin::{Nominating, PermitStep, PostFilterStep};
use berth_framework::stage::{StageContext, Step, Wait, WaitOn, Wake, WakeReason};
use berth_framework::testing::{CLAIM_UPDATE, FakePlugin, annotate, fake, node, pod};
use berth_framework::{ApiCall, Status};
use std::sync::Arc;

/// Makes a call and waits up to a minute for it.
fn call(cx: &mut StageContext<'_>) -> Wait {
    wait_for(cx.outbox.call(write()), cx.now)
}

fn write() -> ApiCall {
    let claim = Object::PersistentVolumeClaim(Arc::default());
    annotate(&claim, "selected-node", "n1").into()
}

fn wait_for(call: CallId, now: Time) -> Wait {
    Wait {
        on: WaitOn::Call(call),
        deadline: now + Duration::from_secs(60),
    }
}

/// Makes a call at the point, waits for it, and then, with `looks`, returns an error unless it succeeded.
fn waits_at(point: &'static str, looks: bool) -> FakePlugin {
    let result = move |wake: Wake<'_>| {
        if !looks {
            return Status::success();
        }
        match wake.reason() {
            WakeReason::Call(Ok(_)) => Status::success(),
            other => Status::error(format!("{other:?}")),
        }
    };
    let step = move |cx: &mut StageContext<'_>, wake: Option<Wake<'_>>| match wake {
        None => Step::Wait(call(cx)),
        Some(wake) => Step::Done(result(wake)),
    };
    let plugin = fake("Caller").calls(&[&CLAIM_UPDATE]);
    match point {
        "PostFilter" => plugin
            .filter(|_, _, _| Status::unschedulable("full"))
            .post_filter(move |cx, _, _, wake| match wake {
                None => PostFilterStep::Wait(wait_for(cx.outbox.call(write()), cx.now)),
                Some(wake) => PostFilterStep::done(result(wake), Nominating::Keep),
            }),
        "Reserve" => plugin.reserve(move |cx, _, _, _, wake| step(cx, wake)),
        "Permit" => plugin.permit(move |cx, _, _, wake| match wake {
            None => PermitStep::Wait(call(cx)),
            Some(wake) => PermitStep::Done(result(wake)),
        }),
        "PreBind" => plugin.pre_bind(move |cx, _, _, _, wake| step(cx, wake)),
        "Bind" => plugin.bind(move |cx, _, _, _, wake| step(cx, wake)),
        other => panic!("no plugin waits at {other}"),
    }
}

/// F-45: a plugin that ignores the failure of the call that it waits for has failed; the pod is not bound.
#[test]
fn a_failed_call_is_never_a_success() {
    let unread =
        "the plugin was called again after a wait and did not look at how the wait had ended";
    for point in ["PostFilter", "Reserve", "Permit", "PreBind", "Bind"] {
        for looks in [false, true] {
            let plugins: Vec<FakePlugin> = match point {
                "Bind" => vec![waits_at(point, looks)],
                _ => vec![waits_at(point, looks), binder()],
            };
            let mut w = driver_of(plugins, berth_framework::FeatureGates::default());
            w.applied(node("n1").object());
            w.pod(pod("p"));
            w.attempt();
            let made = w
                .calls_text()
                .iter()
                .position(|call| call.starts_with("write"));
            let made = w
                .calls
                .remove(made.unwrap_or_else(|| panic!("{point} makes no call")));
            w.calls.insert(0, made);
            w.fail(CallErrorKind::Refused);
            let case = format!("{point}, looks: {looks}: {:?}", w.calls_text());
            assert!(
                !w.calls_text().iter().any(|call| call.starts_with("bind")),
                "{case}"
            );
            let events = w.events_text().join("; ");
            let expected = if looks { "Refused" } else { unread };
            assert!(events.contains(expected), "{case}: {events}");
            assert_eq!(w.on("n1"), [""; 0], "{case}");
        }
    }
}

/// F-46: a waiting Permit plugin is called again, holds the pod until then, and decides in the end.
#[test]
fn a_permit_plugin_is_called_again() {
    let timer = |cx: &StageContext<'_>, seconds| {
        PermitStep::Wait(Wait {
            on: WaitOn::Timer,
            deadline: cx.now + Duration::from_secs(seconds),
        })
    };
    type Again = fn() -> PermitStep;
    let cases: [(&str, Again, usize, &str); 4] = [
        (
            "permits",
            || PermitStep::Done(Status::success()),
            5,
            "Normal Scheduled Successfully assigned default/p to n1",
        ),
        (
            "rejects",
            || PermitStep::Done(Status::unschedulable("no")),
            5,
            "Warning FailedScheduling 0/1 nodes are available: 1 no.",
        ),
        (
            "fails",
            || PermitStep::Done(Status::error("oops")),
            5,
            "Warning FailedScheduling waiting on permit for pod: running Permit plugin \"Slow\": oops",
        ),
        (
            "holds",
            || PermitStep::Hold(Duration::from_secs(20)),
            25,
            "Warning FailedScheduling 0/1 nodes are available: 1 rejected due to timeout after waiting 25s at \
             plugin Slow.",
        ),
    ];
    for (case, again, seconds, notified) in cases {
        let slow = fake("Slow").permit(move |cx, _, _, wake| match wake {
            None => timer(cx, 5),
            Some(_) => again(),
        });
        let mut w = driver([slow]);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        assert_eq!(w.attempt(), "on n1", "{case}");
        for _ in 1..seconds {
            w.advance(Duration::from_secs(1));
            assert_eq!(w.events_text(), [""; 0], "{case}");
        }
        w.advance(Duration::from_secs(1)).answer_all();
        assert_eq!(w.events_text(), [notified], "{case}");
    }
}

/// F-46: a Permit plugin that waits repeatedly holds the pod for 15 minutes in total; a pod that is allowed earlier
/// does not wait for it.
#[test]
fn a_permit_plugin_does_not_wait_for_ever() {
    let slow = || {
        fake("Slow").permit(|cx, pod, _, _| match pod.pod.name().as_str() {
            "boss" => {
                cx.outbox.allow("uid-p", "Slow");
                PermitStep::Done(Status::success())
            }
            _ => PermitStep::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_secs(60),
            }),
        })
    };
    let mut w = driver([slow()]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    for _ in 1..15 {
        w.advance(Duration::from_secs(60));
        assert_eq!(w.events_text(), [""; 0]);
    }
    w.advance(Duration::from_secs(60));
    assert_eq!(
        w.events_text(),
        [
            "Warning FailedScheduling 0/1 nodes are available: 1 rejected due to timeout after waiting 15m0s at \
             plugin Slow."
        ]
    );

    let mut w = driver([slow()]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    w.pod(pod("boss"));
    w.attempt();
    w.answer_all();
    assert_eq!(w.on("n1"), ["boss", "p"]);
    assert!(
        w.events_text()
            .iter()
            .any(|e| e.contains("default/p to n1"))
    );
}
