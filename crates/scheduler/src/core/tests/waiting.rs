//! Pods that wait: held back by Permit, parked in Reserve (F-14, F-15, C-40, C-41).

use super::*;
use crate::metrics::Metric;
use crate::queue::QueuedIn;
use berth_api::Duration;
use berth_framework::Status;
use berth_framework::plugin::PermitResult;
use berth_framework::stage::{Step, Wait, WaitOn, Wake};
use berth_framework::testing::{FakePlugin, fake, node, pod};

/// Holds back `p`; the pod `boss` allows or rejects it.
fn holding(name: &'static str, seconds: u64) -> FakePlugin {
    fake(name)
        .permit(move |cx, pod, _| {
            match pod.pod.name().as_str() {
                "p" => return PermitResult::Wait(Duration::from_secs(seconds)),
                "allow" => cx.outbox.allow("uid-p", name),
                "reject" => {
                    cx.outbox.reject("uid-p", name, "the boss said no");
                }
                "look" => {
                    let waiting = cx.outbox.waiting_pods();
                    assert_eq!(waiting.len(), 1);
                    assert_eq!(
                        (&*waiting[0].node, waiting[0].pending_plugins.len()),
                        ("n1", 2)
                    );
                }
                _ => {}
            }
            PermitResult::Done(Status::success())
        })
        .events(Vec::new)
}

/// Edge cases 213 and 214.
#[test]
fn a_pod_that_is_held_back_goes_on_rejects_or_times_out() {
    type Case = (
        &'static str,
        &'static [&'static str],
        u64,
        &'static str,
        Option<QueuedIn>,
    );
    let cases: [Case; 4] = [
        ("looked at", &["look"], 0, "", None),
        (
            "allowed by both",
            &["allow"],
            0,
            "Normal Scheduled Successfully assigned default/p to n1",
            None,
        ),
        (
            "rejected",
            &["reject"],
            0,
            "Warning FailedScheduling 0/1 nodes are available: 1 the boss said no.",
            Some(QueuedIn::Unschedulable),
        ),
        (
            "too late",
            &[],
            60,
            "Warning FailedScheduling 0/1 nodes are available: 1 rejected due to timeout after waiting 1m0s at plugin B.",
            Some(QueuedIn::Unschedulable),
        ),
    ];
    for (situation, bosses, seconds, event, place) in cases {
        let mut w = world([holding("A", 90), holding("B", 60)]);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        assert_eq!(w.attempt(), "on n1", "{situation}");
        assert_eq!(w.calls_text(), ["patch p nominated=\"n1\""], "{situation}");
        w.answer_all();
        assert_eq!(w.on("n1"), ["p"], "{situation}: it keeps its room");
        for boss in bosses {
            w.pod(pod(boss));
            w.attempt();
            w.answer_all();
        }
        w.advance(Duration::from_secs(seconds));
        w.answer_all();
        let mut events = w.events_text();
        events.retain(|e| !bosses.iter().any(|b| e.contains(&format!("default/{b} "))));
        assert_eq!(events.join("; "), event, "{situation}");
        assert_eq!(w.place_of("p"), place, "{situation}");
        let held = situation == "looked at";
        assert_eq!(
            w.core.queue().in_flight_len(),
            usize::from(held),
            "{situation}"
        );
        let results = w.core.metrics();
        let observed = ["Success", "Unschedulable"]
            .iter()
            .filter(|code| results.get(Metric::PermitWaitDuration, &[code]).is_some())
            .count();
        assert_eq!(observed, usize::from(!held), "{situation}");
    }
}

/// C-52: a rejection wakes others, not the rejected pod itself.
#[test]
fn a_rejected_wait_wakes_others() {
    let hold = fake("Hold").permit(|_, pod, _| {
        if pod.pod.name() == "p" {
            PermitResult::Wait(Duration::from_secs(5))
        } else {
            PermitResult::Done(Status::success())
        }
    });
    let mut w = world([fits(), hold]);
    w.applied(node("n1").capacity("1", "1Gi", "9").object());
    w.pod(pod("p").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    w.pod(pod("other").request("cpu", "1"));
    assert!(w.attempt().starts_with("0/1"));
    w.advance(Duration::from_secs(5));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Unschedulable));
    assert_eq!(
        w.place_of("other"),
        Some(QueuedIn::Active),
        "its backoff is over"
    );
}

/// Edge cases 185 and 186.
#[test]
fn a_placed_pod_that_is_deleted_gives_up_its_room() {
    let hold = || fake("Hold").permit(|_, _, _| PermitResult::Wait(Duration::from_secs(500)));
    let slow = || {
        fake("Slow").pre_bind(|cx, _, _, _, wake| match wake {
            None => Step::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_secs(500),
            }),
            Some(_) => Step::success(),
        })
    };
    type Change = fn(&mut World);
    let cases: [(&str, FakePlugin, Change, usize); 4] = [
        ("held back, deleted", hold(), |w| w.deleted("p"), 0),
        (
            "held back, terminating",
            hold(),
            |w| {
                let now = w.now;
                w.change("p", |p| p.deleting(now));
            },
            0,
        ),
        ("being prepared, deleted", slow(), |w| w.deleted("p"), 1),
        (
            "being prepared, terminating",
            slow(),
            |w| {
                let now = w.now;
                w.change("p", |p| p.deleting(now));
            },
            1,
        ),
    ];
    for (situation, plugin, change, bindings) in cases {
        let mut w = world([plugin, fits()]);
        w.applied(node("n1").capacity("1", "1Gi", "9").object());
        w.pod(pod("p").request("cpu", "1"));
        assert_eq!(w.attempt(), "on n1", "{situation}");
        w.answer_all();
        w.pod(pod("other").request("cpu", "1"));
        assert!(w.attempt().starts_with("0/1"), "{situation}");
        change(&mut w);
        assert_eq!(w.on("n1"), Vec::<String>::new(), "{situation}");
        assert_eq!(
            w.core.bindings_in_flight(),
            bindings,
            "{situation}: one that is prepared fails by itself"
        );
        assert_eq!(w.place_of("other"), Some(QueuedIn::Backoff), "{situation}");
        w.answer_all();
        w.advance(Duration::from_secs(501));
        while !w.calls.is_empty() {
            w.answer(Some("pods \"p\" not found"));
        }
        assert_eq!(w.core.bindings_in_flight(), 0, "{situation}");
        assert_eq!(w.on("n1"), Vec::<String>::new(), "{situation}");
    }
}

/// An update of a placed pod that changes nothing about its placement is ignored.
#[test]
fn updates_of_a_placed_pod_do_not_queue_it() {
    let mut w = world([fits()]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    w.change("p", |p| p.label("a", "b"));
    assert_eq!((w.place_of("p"), w.attempt()), (None, "idle".to_owned()));
    w.answer_all();
    assert_eq!(w.on("n1"), ["p"]);
}

/// While a cycle is parked in Reserve the world goes on; the node is looked at again when it goes on.
#[test]
fn a_parked_reserve_looks_at_its_node_again() {
    type Change = fn(&mut World);
    let cases: [(&str, Change, &str); 5] = [
        ("nothing happened", |_| {}, "bind p n1"),
        (
            "somebody else came, there is room",
            |w| {
                w.pod(pod("x").request("cpu", "1").on("n1"));
            },
            "bind p n1",
        ),
        (
            "somebody else took the room",
            |w| {
                w.pod(pod("x").request("cpu", "3").on("n1"));
            },
            "patch p PodScheduled=False SchedulerError: node \"n1\" does not fit any more: Insufficient cpu",
        ),
        (
            "the node is gone",
            |w| {
                let node = node("n1").object();
                w.core.apply(crate::ClusterChange::Deleted(node), w.now);
                w.take();
            },
            "patch p PodScheduled=False SchedulerError: node \"n1\" is gone",
        ),
        ("the pod is gone", |w| w.deleted("p"), ""),
    ];
    for (situation, change, call) in cases {
        let reserve = fake("Slow").reserve(|cx, _, _, _, wake| match wake {
            None => Step::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_secs(1),
            }),
            Some(Wake::Deadline) => Step::success(),
            Some(other) => Step::Done(Status::error(format!("{other:?}"))),
        });
        let mut w = world([fits(), reserve]);
        w.applied(node("n1").capacity("4", "1Gi", "9").object());
        w.pod(pod("p").request("cpu", "2"));
        assert_eq!(w.attempt(), "parked", "{situation}");
        change(&mut w);
        w.advance(Duration::from_secs(1));
        let calls = w.calls_text();
        if situation == "the pod is gone" {
            assert_eq!(calls, [""; 0], "{situation}");
            assert!(!w.on("n1").contains(&"p".to_owned()), "{situation}");
        } else {
            assert_eq!(calls, [call], "{situation}");
        }
        assert_eq!(w.core.queue().in_flight_len(), 0, "{situation}");
    }
}
