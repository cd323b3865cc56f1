//! Statuses that the API rejected are offered again, and bound pods do not keep a wrong condition.

use super::*;
use berth_api::Duration;
use berth_framework::call::CallErrorKind::{self, Conflict, Refused, Timeout, Unavailable};
use berth_framework::event::EventRegistration;
use berth_framework::testing::{fake, node, pod};
use berth_framework::{ActionType, EventResource, FeatureGates, Status};

const NONE: [&str; 0] = [];

fn seconds(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Fails every attempt of the call in flight until it is given up.
fn fail_for_good(w: &mut Driver, kind: CallErrorKind) {
    let retries = w.scheduler.dispatcher().counts().retried;
    while !w.calls.is_empty() {
        w.fail(kind);
        w.advance(seconds(6));
        assert!(w.scheduler.dispatcher().counts().retried < retries + 20);
    }
}

/// A world with a pod that fits nowhere.
fn too_big() -> Driver {
    let mut w = driver([fits()]);
    w.applied(node("n1").allocatable("cpu", "1").object());
    w.pod(pod("p").request("cpu", "2"));
    assert_eq!(w.attempt(), "0/1 nodes are available: 1 Insufficient cpu.");
    w
}

/// A world with a pod that fits on no node: nodes with the label `closed` reject it for another reason than nodes
/// without it.
fn full_or_closed() -> Driver {
    let fits = fits().filter(|_, _, node| match node.labels().get("closed") {
        None => Status::unschedulable("Insufficient cpu"),
        Some(_) => Status::unschedulable("closed"),
    });
    let mut w = driver([fits]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w
}

const UNSCHEDULABLE: &str =
    "patch p PodScheduled=False Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.";

/// D-14: the calls have ended, and their content is still valid.
#[test]
fn a_status_that_was_refused_every_time_is_offered_again() {
    for (kind, offered) in [
        (Unavailable, true),
        (Timeout, true),
        (Conflict, true),
        // The API will not change its mind.
        (Refused, false),
    ] {
        let mut w = too_big();
        fail_for_good(&mut w, kind);
        assert_eq!(w.calls_text(), NONE, "{kind:?}: given up");
        w.advance(seconds(40));
        let expected = if offered {
            vec![format!("{UNSCHEDULABLE} nominated=\"\"")]
        } else {
            Vec::new()
        };
        // An attempt without an answer may have been performed, so the whole status is written.
        let calls: Vec<String> = w.calls_text();
        let calls: Vec<String> = calls
            .iter()
            .map(|call| {
                if call.contains("nominated") {
                    call.clone()
                } else {
                    format!("{call} nominated=\"\"")
                }
            })
            .collect();
        assert_eq!(calls, expected, "{kind:?}");
        w.answer_all();
        w.advance(seconds(300));
        assert_eq!(w.calls_text(), NONE, "{kind:?}: settled");
    }
}

/// D-14.
#[test]
fn an_owed_status_that_is_not_true_any_more_is_not_written() {
    for (what, happens) in [
        (
            "the pod is gone",
            (|w: &mut Driver| w.deleted("p")) as fn(&mut Driver),
        ),
        ("another scheduler bound it", |w| {
            w.change("p", |p| p.on("n1"));
        }),
        ("another client wrote the same", |w| {
            let message = "0/1 nodes are available: 1 Insufficient cpu.";
            w.change("p", |p| {
                p.condition("PodScheduled", "False", "Unschedulable", message)
            });
        }),
    ] {
        let mut w = too_big();
        fail_for_good(&mut w, Unavailable);
        happens(&mut w);
        w.advance(seconds(40));
        assert_eq!(w.calls_text(), NONE, "{what}");
    }
}

/// D-14: the report that gates block a pod is retried only while they do. If the retries end with a failure, the next
/// rejection is reported again.
#[test]
fn a_pod_without_its_gates_is_not_stated_to_have_them() {
    for opens in [true, false] {
        let plugin = |name: &'static str| {
            fake(name)
                .pre_enqueue(move |pod| {
                    if pod.labels().contains_key(name) {
                        Status::unresolvable(format!("{name} is shut"))
                    } else {
                        Status::success()
                    }
                })
                .events(|| {
                    vec![EventRegistration::always(
                        EventResource::Pod,
                        ActionType::UPDATE_POD_LABEL,
                    )]
                })
        };
        let mut w = driver([plugin("SchedulingGates"), plugin("Other")]);
        w.pod(pod("p").label("SchedulingGates", ""));
        w.advance(seconds(5));
        let gated = "patch p PodScheduled=False SchedulingGated: SchedulingGates is shut";
        assert_eq!(w.calls_text(), [gated]);
        fail_for_good(&mut w, Unavailable);
        if opens {
            w.change("p", |p| p.with(|p| p.metadata.labels = Default::default()));
        }
        w.advance(seconds(40));
        let calls = w.calls_text();
        let states_gated = calls.iter().any(|call| call.starts_with(gated));
        assert_eq!(states_gated, !opens, "opens: {opens}: {calls:?}");
        if !opens {
            w.fail(Refused);
            w.change("p", |p| p.label("again", "shut"));
            w.advance(seconds(5));
            assert!(w.calls_text()[0].starts_with(gated), "reported again");
        }
    }
}

/// D-14: the retries of the first status end while the second is already waiting.
#[test]
fn a_status_that_a_newer_one_has_overtaken_is_not_offered_again() {
    let mut w = full_or_closed();
    assert_eq!(w.attempt(), "0/1 nodes are available: 1 Insufficient cpu.");
    w.applied(node("n2").label("closed", "").object());
    w.advance(seconds(2));
    let newer = "0/2 nodes are available: 1 Insufficient cpu, 1 closed.";
    assert_eq!(w.attempt(), newer);
    assert_eq!(w.calls_text(), [UNSCHEDULABLE], "the second one waits");
    while w.calls_text() == [UNSCHEDULABLE] {
        w.fail(Unavailable);
        w.advance(seconds(6));
    }
    let newer = format!("patch p PodScheduled=False Unschedulable: {newer}");
    assert_eq!(w.calls_text(), [newer]);
    w.answer_all();
    w.advance(seconds(60));
    assert_eq!(w.calls_text(), NONE);
}

/// D-14: the API shows the first status, and the second may have been written without an answer. A third status equal
/// to the first is written nevertheless.
#[test]
fn a_status_is_written_again_after_one_that_may_have_been() {
    for (kind, shown, expected) in [
        (Timeout, false, 1),
        (Unavailable, false, 1),
        (Conflict, false, 0),
        // The watch has shown the second status.
        (Timeout, true, 1),
    ] {
        let mut w = full_or_closed();
        w.attempt();
        w.answer_all();
        let first = "0/1 nodes are available: 1 Insufficient cpu.";
        w.change("p", |p| {
            p.condition("PodScheduled", "False", "Unschedulable", first)
        });

        w.applied(node("n2").label("closed", "").object());
        w.advance(seconds(2));
        let second = w.attempt();
        assert_eq!(
            second,
            "0/2 nodes are available: 1 Insufficient cpu, 1 closed."
        );
        fail_for_good(&mut w, kind);
        if shown {
            w.change("p", |p| {
                p.condition("PodScheduled", "False", "Unschedulable", &second)
            });
        }

        w.gone(node("n1").object());
        w.gone(node("n2").object());
        w.applied(node("n3").object());
        w.advance(seconds(4));
        assert_eq!(w.attempt(), first);
        let calls = w.calls_text();
        assert_eq!(calls.len(), expected, "{kind:?}, shown: {shown}: {calls:?}");
        assert!(
            calls.iter().all(|call| call.starts_with(UNSCHEDULABLE)),
            "{calls:?}"
        );
        w.answer_all();
        w.advance(seconds(90));
        assert_eq!(w.calls_text(), NONE, "{kind:?}, shown: {shown}");
    }
}

/// D-22: a status write that was dropped because of a binding, or arrived after it, leaves no wrong condition.
#[test]
fn the_condition_of_a_bound_pod_is_corrected() {
    let denied = || pod("p").condition("PodScheduled", "False", "SchedulerError", "no answer");
    let right = ["patch p PodScheduled=True : "];
    for (what, scheduler, first, then, expected) in [
        (
            "seen first",
            "default-scheduler",
            denied().on("n1"),
            None,
            &right[..],
        ),
        (
            "seen later",
            "default-scheduler",
            denied(),
            Some("n1"),
            &right[..],
        ),
        ("not ours", "other", denied().on("n1"), None, &NONE[..]),
    ] {
        let mut w = driver([]);
        w.applied(node("n1").object());
        w.pod(first.scheduler(scheduler));
        if let Some(node) = then {
            w.change("p", |p| p.on(node));
        }
        assert_eq!(w.calls_text(), expected, "{what}");
        w.answer_all();
        w.advance(seconds(60));
        assert_eq!(w.calls_text(), NONE, "{what}: once");
    }
}

/// D-14, D-22.
#[test]
fn a_correction_is_repeated_while_it_is_needed() {
    for (what, happens, offered) in [
        ("nothing", (|_: &mut Driver| {}) as fn(&mut Driver), 1),
        (
            "the kubelet was faster",
            |w| w.change("p", |p| p.condition("PodScheduled", "True", "", "")),
            0,
        ),
        ("the pod is gone", |w| w.deleted("p"), 0),
    ] {
        let mut w = driver([]);
        w.applied(node("n1").object());
        let denied = pod("p").condition("PodScheduled", "False", "SchedulerError", "no answer");
        w.pod(denied.on("n1"));
        fail_for_good(&mut w, Unavailable);
        happens(&mut w);
        w.advance(seconds(40));
        assert_eq!(w.calls.len(), offered, "{what}");
    }
}

/// The answers are lost but the pod is bound, and the status patch of the failure arrives after the binding.
#[test]
fn a_lost_binding_leaves_no_wrong_status() {
    let mut w = driver_of([binder()], FeatureGates::default());
    w.applied(node("n1").object());
    w.pod(pod("p"));
    assert_eq!(w.attempt(), "on n1");
    assert_eq!(w.calls_text(), ["bind p n1"]);
    for _ in 0..8 {
        w.fail(Timeout);
        w.advance(seconds(6));
    }
    assert_eq!(
        w.calls_text(),
        ["patch p PodScheduled=False SchedulerError: running Bind plugin \"Binder\": Timeout"]
    );
    w.answer(None);
    w.change("p", |p| p.on("n1"));
    assert_eq!(w.calls_text(), ["patch p PodScheduled=True : "]);
}
