//! The conditions and events of pods that PreEnqueue plugins block (KEP-5501), from the queue to the API calls.

use super::calls::too_busy;
use super::*;
use berth_api::Duration;
use berth_framework::call::{CallErrorKind, PodRef};
use berth_framework::event::EventRegistration;
use berth_framework::testing::{FakePlugin, PodBuilder, fake, node, pod};
use berth_framework::{ActionType, ApiCall, EventResource, Status};
use berth_queue::QueuedIn;

const NONE: [&str; 0] = [];

fn seconds(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Blocks pods at PreEnqueue until they have the label `open`.
fn gate() -> FakePlugin {
    fake("Gate")
        .pre_enqueue(|pod| {
            if pod.labels().contains_key("open") {
                Status::success()
            } else {
                Status::unresolvable("shut")
            }
        })
        .events(|| {
            vec![EventRegistration::always(
                EventResource::Pod,
                ActionType::UPDATE_POD_LABEL,
            )]
        })
}

/// the report becomes a patch after 5 s, and an event after the patch is written.
#[test]
fn what_pre_enqueue_states_is_reported() {
    let mut w = driver([gate()]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
    w.advance(seconds(6));
    assert_eq!(
        w.calls_text(),
        ["patch p PodScheduled=False NotReadyForScheduling: shut"]
    );
    assert!(w.events.is_empty(), "not before the status is written");
    w.answer_all();
    assert_eq!(w.events_text(), ["Warning NotReadyForScheduling shut"]);
    w.change("p", |p| p.label("open", "yes"));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Active));
    w.advance(seconds(6));
    assert_eq!(w.calls_text(), ["clear p"]);
}

/// Q-104, case 168: no call at all.
#[test]
fn a_rejection_that_passes_in_time_is_not_written() {
    let mut w = driver([gate()]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.advance(Duration::from_secs(4));
    w.change("p", |p| p.label("open", "yes"));
    w.advance(Duration::from_secs(60));
    assert_eq!(w.calls_text(), NONE);
    assert_eq!(w.events_text(), NONE);
    assert_eq!(w.attempt(), "on n1");
    assert_eq!(w.calls_text(), ["bind p n1"]);
    assert_eq!(w.scheduler.dispatcher().counts().sent, 1);
}

/// D-11, Q-102: when the dispatcher is full of reports, further ones wait for a place and keep their age; none is
/// refused, and an outdated report is dropped.
#[test]
fn reports_wait_for_room() {
    let mut w = driver_with([gate(), binder()], |options| {
        options.dispatcher.tracked_max = 8;
    });
    for name in ["a", "b", "c", "d", "e"] {
        w.pod(pod(name));
    }
    w.advance(seconds(4));
    w.change("c", |p| p.label("open", "yes"));
    w.deleted("d");
    w.advance(seconds(1));
    let report =
        |name: &str| format!("patch {name} PodScheduled=False NotReadyForScheduling: shut");
    assert_eq!(w.calls_text(), ["a", "b"].map(report));
    w.advance(Duration::ZERO);
    assert_eq!(w.calls_text(), ["a", "b", "e"].map(report), "at once");
    w.answer_all();
    w.advance(seconds(60));
    assert_eq!(w.calls_text(), NONE);
    assert_eq!(w.scheduler.dispatcher().counts().refused, 0);
    assert_eq!(w.events_text(), ["Warning NotReadyForScheduling shut"; 3]);
}

/// a report that could not be written is made again at the next rejection.
#[test]
fn a_report_that_failed_is_made_again() {
    let mut w = driver([gate()]);
    let report = ["patch p PodScheduled=False NotReadyForScheduling: shut"];
    w.pod(pod("p"));
    w.advance(Duration::from_secs(5));
    assert_eq!(w.calls_text(), report);
    w.change("p", |p| p.label("still", "shut"));
    w.advance(Duration::from_secs(60));
    assert_eq!(w.calls.len(), 1, "it states this already");
    w.answer(Some("no"));
    w.change("p", |p| p.label("again", "shut"));
    w.advance(Duration::from_secs(5));
    assert_eq!(w.calls_text(), report);
}

/// a waiting report becomes part of another patch of the pod, and is sent with it at once. If the patch
/// succeeds, the event is recorded; if it fails, the report has failed.
#[test]
fn a_report_goes_with_another_patch_of_the_pod() {
    for fails in [false, true] {
        let mut w = driver([gate()]);
        w.pod(pod("p"));
        let nominate = ApiCall::PatchPodStatus {
            pod: PodRef::of(&w.pods["p"]),
            conditions: Vec::new(),
            nominated_node: Some("n1".into()),
        };
        w.call(nominate);
        w.advance(Duration::ZERO);
        let report = "patch p PodScheduled=False NotReadyForScheduling: shut";
        let both = format!("{report} nominated=\"n1\"");
        assert_eq!(w.calls_text(), [both]);
        let notified: &[&str] = if fails {
            w.fail(CallErrorKind::Refused);
            &[]
        } else {
            w.answer(None);
            &["Warning NotReadyForScheduling shut"]
        };
        assert_eq!(w.events_text(), notified, "fails: {fails}");
        w.change("p", |p| p.label("still", "shut"));
        w.advance(seconds(5));
        let again: &[&str] = if fails { &[report] } else { &[] };
        assert_eq!(w.calls_text(), again, "fails: {fails}");
    }
}

/// Q-113, KEP-3521, KEP-5501: the result of a scheduling cycle stays in the status while PreEnqueue blocks the pod only
/// until that attempt's evictions end, so that autoscalers still act on it. Evictions that last for 30 s are reported.
/// For a pod that is not ready, the report replaces the result after 5 s, because more nodes would not help it.
#[test]
fn a_pod_that_no_node_would_help_stops_asking_for_nodes() {
    let shut = |label: &'static str| {
        move |pod: &berth_api::Pod| match pod.labels().get(label) {
            Some(message) => Status::unresolvable(message.to_owned()),
            None => Status::success(),
        }
    };
    let receives = || {
        vec![EventRegistration::always(
            EventResource::Pod,
            ActionType::UPDATE_POD_LABEL,
        )]
    };
    let unschedulable = "Unschedulable: 0/1 nodes are available: 1 no.";
    let report = "patch p PodScheduled=False NotReadyForScheduling: waits";
    for (situation, label, millis, is_reported) in [
        ("its victims are evicted in time", "evicting", 29_999, false),
        ("its evictions last", "evicting", 30_000, true),
        ("its claim was deleted", "unready", 5_000, true),
    ] {
        let no = fake("No")
            .filter(|_, _, _| Status::unschedulable("no"))
            .events(receives);
        let evicting = fake("Evicting")
            .pre_enqueue(shut("evicting"))
            .following_attempts()
            .events(receives);
        let unready = fake("Unready")
            .pre_enqueue(shut("unready"))
            .events(receives);
        let mut w = driver([no, evicting, unready]);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        w.attempt();
        let stated = w.calls_text();
        assert_eq!(
            stated,
            [format!("patch p PodScheduled=False {unschedulable}")]
        );
        w.answer_all();
        w.change("p", |p| p.label(label, "waits"));
        assert_eq!(w.place_of("p"), Some(QueuedIn::Gated), "{situation}");
        w.advance(Duration::from_millis(4_999));
        assert_eq!(w.calls_text(), NONE, "{situation}: not before 5 s");
        w.advance(Duration::from_millis(millis - 4_999));
        let reports: &[&str] = if is_reported { &[report] } else { &[] };
        assert_eq!(w.calls_text(), reports, "{situation}");
        w.answer_all();
        w.events.clear();
        // PreEnqueue accepts the pod: the report is cleared, and the result of the cycle stays in the status.
        w.change("p", |p| p.with(|p| p.metadata.labels = Default::default()));
        assert_ne!(w.place_of("p"), Some(QueuedIn::Gated), "{situation}");
        w.advance(Duration::from_secs(5));
        let cleared: &[&str] = if is_reported { &["clear p"] } else { &[] };
        assert_eq!(w.calls_text(), cleared, "{situation}");
    }
}

/// PreEnqueue blocks a pod right after its attempt, while the result of the attempt is waiting, in flight
/// or retried. The result is written unchanged. The report follows after its 5 s, or not at all if the pod passes
/// before.
#[test]
fn a_report_does_not_overtake_what_a_cycle_found() {
    let no = || {
        fake("No")
            .filter(|_, _, _| Status::unschedulable("no"))
            .events(|| {
                vec![EventRegistration::always(
                    EventResource::Pod,
                    ActionType::UPDATE_POD_LABEL,
                )]
            })
    };
    let report = ["patch p PodScheduled=False NotReadyForScheduling: shut"];
    let verdict = ["patch p PodScheduled=False Unschedulable: 0/1 nodes are available: 1 no."];
    for (situation, busy_for, passes) in [
        ("written at once", 0, ""),
        ("written at the second try", 1, ""),
        ("passes in time", 0, "open"),
        (
            "passes and is shut again, which starts anew",
            0,
            "open, shut",
        ),
    ] {
        let mut w = driver([gate(), no()]);
        w.applied(node("n1").object());
        w.pod(pod("p").label("open", "yes"));
        w.attempt();
        assert_eq!(w.calls_text(), verdict, "{situation}");
        w.change("p", |p| p.with(|p| p.metadata.labels = Default::default()));
        assert_eq!(w.place_of("p"), Some(QueuedIn::Gated), "{situation}");
        for _ in 0..busy_for {
            too_busy(&mut w);
            w.advance(Duration::from_millis(11));
            assert_eq!(w.calls_text(), verdict, "{situation}");
        }
        w.advance(Duration::from_secs(2));
        if passes == "open, shut" {
            w.change("p", |p| p.label("open", "again"));
            w.attempt();
            w.change("p", |p| p.with(|p| p.metadata.labels = Default::default()));
            assert_eq!(w.place_of("p"), Some(QueuedIn::Gated), "{situation}");
            w.answer_all();
            w.advance(Duration::from_secs(2));
        }
        w.answer_all();
        if passes == "open" {
            w.change("p", |p| p.label("open", "again"));
        }
        w.advance(Duration::from_millis(2_900));
        assert_eq!(w.calls_text(), NONE, "{situation}: not before 5 s");
        w.advance(Duration::from_millis(100));
        let expected: &[&str] = if passes == "open" { &[] } else { &report };
        assert_eq!(w.calls_text(), expected, "{situation}");
    }
}

/// The gate, and its message for pods with the label `says`.
fn reporting_gate(name: &'static str) -> FakePlugin {
    fake(name)
        .pre_enqueue(|pod| match pod.labels().get("says") {
            Some(message) => Status::unresolvable(message.to_owned()),
            None => Status::success(),
        })
        .events(|| {
            vec![EventRegistration::always(
                EventResource::Pod,
                ActionType::UPDATE_POD_LABEL,
            )]
        })
}

/// The pod passes.
fn open(pod: PodBuilder) -> PodBuilder {
    pod.with(|p| p.metadata.labels = Default::default())
}

/// D-23, D-24, cases 167 and 170: one call 5 s after the first rejection, with the last message. The same message again
/// causes no call; a new message causes a new call, after its own 5 s.
#[test]
fn the_latest_message_is_reported_once() {
    let report = |message: &str| {
        vec![format!(
            "patch p PodScheduled=False NotReadyForScheduling: {message}"
        )]
    };
    let mut w = driver([reporting_gate("Gate")]);
    w.pod(pod("p").label("says", "one"));
    w.advance(seconds(3));
    w.change("p", |p| p.label("says", "two"));
    w.advance(Duration::from_millis(1_999));
    assert_eq!(w.calls_text(), NONE, "not before 5 s");
    w.advance(Duration::from_millis(1));
    assert_eq!(w.calls_text(), report("two"), "and not later for that");
    w.answer_all();
    for _ in 0..3 {
        w.change("p", |p| p.label("touched", "again"));
        w.advance(seconds(60));
        assert_eq!(w.calls_text(), NONE, "it states this already");
    }
    w.change("p", |p| p.label("says", "three"));
    w.advance(Duration::from_millis(4_999));
    assert_eq!(w.calls_text(), NONE);
    w.advance(Duration::from_millis(1));
    assert_eq!(w.calls_text(), report("three"));
    w.answer_all();
    assert_eq!(
        w.events_text(),
        [
            "Warning NotReadyForScheduling two",
            "Warning NotReadyForScheduling three"
        ]
    );
}

/// D-14, D-25: between two attempts of a report, the answer of the plugin may change. The repeated call states its
/// current answer; after an attempt that may have been performed, this includes that the plugin accepts the pod.
#[test]
fn a_repeated_report_states_what_is_true_by_then() {
    let two = ["patch p PodScheduled=False NotReadyForScheduling: two"];
    for (situation, change, failure, expected) in [
        (
            "another message",
            (|p| p.label("says", "two")) as fn(PodBuilder) -> PodBuilder,
            CallErrorKind::Conflict,
            &two[..],
        ),
        ("it passes", open, CallErrorKind::Conflict, &[]),
        (
            "it passes and may report it",
            open,
            CallErrorKind::Timeout,
            &["clear p"],
        ),
    ] {
        let mut w = driver([reporting_gate("Gate")]);
        w.pod(pod("p").label("says", "one"));
        w.advance(seconds(5));
        w.fail(failure);
        w.change("p", change);
        w.advance(seconds(10));
        assert_eq!(w.calls_text(), expected, "{situation}");
        w.answer_all();
        w.advance(seconds(60));
        assert_eq!(w.calls_text(), NONE, "{situation}");
    }
}

/// D-27, case 169: a written report is cleared 5 s after the pod has passed, unless the binding, which sets the
/// condition to True, or the result of a cycle precedes it.
#[test]
fn a_report_is_reverted_when_the_pod_passes() {
    for (situation, room, expected) in [
        ("it is not tried", None, "clear p"),
        ("it is bound", Some("1"), "bind p n1"),
        (
            "it fits nowhere",
            Some("0"),
            "patch p PodScheduled=False Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
        ),
    ] {
        let mut w = driver([reporting_gate("Gate"), fits()]);
        w.applied(
            node("n1")
                .capacity(room.unwrap_or("1"), "1Gi", "9")
                .object(),
        );
        w.pod(pod("p").label("says", "shut").request("cpu", "1"));
        w.advance(seconds(5));
        w.answer_all();
        w.change("p", open);
        if room.is_some() {
            w.attempt();
        } else {
            w.advance(Duration::from_millis(4_999));
            assert_eq!(w.calls_text(), NONE, "{situation}: not before 5 s");
            w.advance(Duration::from_millis(1));
        }
        assert_eq!(w.calls_text(), [expected], "{situation}");
        w.answer_all();
        w.advance(seconds(60));
        assert_eq!(w.calls_text(), NONE, "{situation}: nothing else");
    }
}

/// Case 171: the API server writes the plugin's message into gated pods, so the scheduler sends no patch, and does not
/// clear the condition. If the condition contains another plugin's message, the scheduler writes the reason of the
/// gates.
#[test]
fn scheduling_gates_need_no_patch() {
    let message = "Scheduling is blocked due to non-empty scheduling gates";
    for (situation, reason, stated, expected) in [
        ("as created", "SchedulingGated", message, None),
        (
            "another plugin was first",
            "NotReadyForScheduling",
            "shut",
            Some(format!(
                "patch p PodScheduled=False SchedulingGated: {message}"
            )),
        ),
    ] {
        let mut w = driver([reporting_gate("SchedulingGates")]);
        w.pod(
            pod("p")
                .label("says", message)
                .condition("PodScheduled", "False", reason, stated),
        );
        assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
        w.advance(seconds(60));
        let expected: Vec<String> = expected.into_iter().collect();
        assert_eq!(w.calls_text(), expected, "{situation}");
        w.answer_all();
        w.change("p", open);
        w.advance(seconds(60));
        assert_eq!(
            w.calls_text(),
            NONE,
            "{situation}: no report of ours to clear"
        );
    }
}

/// D-17, D-25, case 172: a waiting report is dropped when the pod is deleted, bound, or has the same condition already.
/// A report that was sent is not retried for a deleted pod.
#[test]
fn a_report_that_is_not_needed_any_more_is_dropped() {
    type Change = fn(&mut Driver);
    let cases: [(&str, Change); 3] = [
        ("deleted", |w| w.deleted("p")),
        ("bound by another scheduler", |w| {
            w.change("p", |p| p.on("n1"))
        }),
        ("another client wrote the same", |w| {
            w.change("p", |p| {
                p.condition("PodScheduled", "False", "NotReadyForScheduling", "shut")
            });
        }),
    ];
    for (situation, change) in cases {
        let mut w = driver([reporting_gate("Gate")]);
        w.pod(pod("p").label("says", "shut"));
        assert_eq!(w.scheduler.dispatcher().len(), 1, "{situation}");
        w.advance(seconds(4));
        change(&mut w);
        assert_eq!(w.scheduler.dispatcher().len(), 0, "{situation}");
        w.advance(seconds(60));
        assert_eq!(w.calls_text(), NONE, "{situation}");
        assert_eq!(w.events_text(), NONE, "{situation}");
    }
    let mut w = driver([reporting_gate("Gate")]);
    w.pod(pod("p").label("says", "shut"));
    w.advance(seconds(5));
    w.deleted("p");
    too_busy(&mut w);
    w.advance(seconds(60));
    assert_eq!(w.calls_text(), NONE);
    assert!(w.scheduler.dispatcher().is_empty());
}

/// Case 173: a restarted scheduler reads the last report from the pod. It does not write the same message again, but it
/// writes another message, and it clears the condition when the pod passes.
#[test]
fn a_new_scheduler_goes_on_from_what_the_pod_states() {
    let patch = "patch p PodScheduled=False NotReadyForScheduling: ";
    for (stated, statement, expected) in [
        ("shut", "shut", None),
        ("shut", "still shut", Some(format!("{patch}still shut"))),
        ("", "shut", Some(format!("{patch}shut"))),
    ] {
        let mut w = driver([reporting_gate("Gate")]);
        let mut waiting = pod("p").label("says", statement);
        if !stated.is_empty() {
            waiting = waiting.condition("PodScheduled", "False", "NotReadyForScheduling", stated);
        }
        w.pod(waiting);
        w.advance(seconds(60));
        let expected: Vec<String> = expected.into_iter().collect();
        assert_eq!(w.calls_text(), expected, "{stated:?}, then {statement:?}");
        w.answer_all();
        w.change("p", open);
        w.advance(seconds(60));
        assert_eq!(
            w.calls_text(),
            ["clear p"],
            "{stated:?}, then {statement:?}"
        );
    }
}

/// cases 168 and 170: the written reports follow the answers of the plugins, also across attempts.
#[test]
fn reports_follow_the_plugins() {
    let receives = || {
        vec![EventRegistration::always(
            EventResource::Pod,
            ActionType::UPDATE_POD_LABEL,
        )]
    };
    let no = fake("No")
        .filter(|_, _, _| Status::unschedulable("no"))
        .events(receives);
    let mut w = driver([reporting_gate("Gate"), no]);
    w.applied(node("n1").object());
    w.pod(pod("p").label("says", "one"));
    let ready =
        |message: &str| format!("patch p PodScheduled=False NotReadyForScheduling: {message}");
    let verdict = "patch p PodScheduled=False Unschedulable: 0/1 nodes are available: 1 no.";
    type Act = fn(&mut Driver);
    let steps: [(&str, Act, Vec<String>); 6] = [
        ("rejected", |_| (), vec![ready("one")]),
        (
            "rejected again with the same message",
            |w| w.change("p", |p| p.label("touched", "a")),
            vec![],
        ),
        (
            "another message",
            |w| w.change("p", |p| p.label("says", "two")),
            vec![ready("two")],
        ),
        (
            "it passes, and its attempt fails",
            |w| {
                w.change("p", open);
                w.attempt();
            },
            vec![verdict.to_owned()],
        ),
        (
            "rejected after the attempt, with the message of before",
            |w| w.change("p", |p| p.label("says", "two")),
            vec![ready("two")],
        ),
        (
            "it passes",
            |w| w.change("p", open),
            vec!["clear p".to_owned()],
        ),
    ];
    for (situation, act, expected) in steps {
        act(&mut w);
        w.advance(seconds(5));
        assert_eq!(w.calls_text(), expected, "{situation}");
        w.answer_all();
        if w.place_of("p") == Some(QueuedIn::Gated) {
            w.advance(seconds(60));
            assert_eq!(w.calls_text(), NONE, "{situation}: once");
        }
    }
}

/// the condition of a pod is NotReadyForScheduling while its attempt fails, because another scheduler has
/// written it or because its removal has not been written yet. The result of the attempt is written, then the next
/// rejection.
#[test]
fn a_rejection_after_an_attempt_is_reported_though_the_pod_still_states_so() {
    let no = || {
        fake("No")
            .filter(|_, _, _| Status::unschedulable("no"))
            .events(|| {
                vec![EventRegistration::always(
                    EventResource::Pod,
                    ActionType::UPDATE_POD_LABEL,
                )]
            })
    };
    let carrying =
        |p: PodBuilder| p.condition("PodScheduled", "False", "NotReadyForScheduling", "shut");
    for was_rejected_here in [true, false] {
        let mut w = driver([reporting_gate("Gate"), no()]);
        w.applied(node("n1").object());
        if was_rejected_here {
            w.pod(carrying(pod("p").label("says", "shut")));
            w.change("p", open);
        } else {
            w.pod(pod("p"));
            w.change("p", carrying);
        }
        w.attempt();
        w.change("p", |p| p.label("says", "shut"));
        assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
        let verdict = "patch p PodScheduled=False Unschedulable: 0/1 nodes are available: 1 no.";
        assert_eq!(
            w.calls_text(),
            [verdict],
            "rejected here: {was_rejected_here}"
        );
        w.answer_all();
        w.advance(seconds(5));
        let report = "patch p PodScheduled=False NotReadyForScheduling: shut";
        assert_eq!(
            w.calls_text(),
            [report],
            "rejected here: {was_rejected_here}"
        );
    }
}

/// another scheduler, the former leader, writes the status of a pod that PreEnqueue rejects, or a client removes
/// the condition. The scheduler writes the correct condition again.
#[test]
fn a_status_that_others_write_is_corrected() {
    let report = ["patch p PodScheduled=False NotReadyForScheduling: shut"];
    type Change = fn(PodBuilder) -> PodBuilder;
    let cases: [(&str, Change, &[&str]); 4] = [
        (
            "another message",
            |p| {
                p.condition(
                    "PodScheduled",
                    "False",
                    "NotReadyForScheduling",
                    "G0 is shut",
                )
            },
            &report,
        ),
        (
            "removed",
            |p| p.with(|p| p.status.conditions.clear()),
            &report,
        ),
        (
            "the result of an attempt of the scheduler that led before",
            |p| p.condition("PodScheduled", "False", "Unschedulable", "no room"),
            &report,
        ),
        (
            "the same message",
            |p| p.condition("PodScheduled", "False", "NotReadyForScheduling", "shut"),
            &[],
        ),
    ];
    for (situation, change, expected) in cases {
        let mut w = driver([reporting_gate("Gate")]);
        w.pod(pod("p").label("says", "shut"));
        w.advance(seconds(5));
        w.answer_all();
        w.change("p", change);
        w.advance(seconds(5));
        assert_eq!(w.calls_text(), expected, "{situation}");
        w.answer_all();
        w.advance(seconds(60));
        assert_eq!(w.calls_text(), NONE, "{situation}: once");
    }
}
