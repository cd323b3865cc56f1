//! Waiting pods: held by Permit, parked in Reserve (F-14, F-15, C-40, C-41).

use super::*;
use crate::ClusterChange;
use berth_api::{Duration, Kind};
use berth_framework::Status;
use berth_framework::object_name::ObjectName;
use berth_framework::plugin::PermitStep;
use berth_framework::stage::{Step, Wait, WaitOn, Wake, WakeReason};
use berth_framework::testing::{FakePlugin, fake, node, pod};
use berth_queue::QueuedIn;
use berth_telemetry::metrics::Metric;

/// Holds `p`; the pod `boss` allows or rejects it.
fn holding(name: &'static str, seconds: u64) -> FakePlugin {
    fake(name)
        .permit(move |cx, pod, _, _| {
            match pod.pod.name().as_str() {
                "p" => return PermitStep::Hold(Duration::from_secs(seconds)),
                "allow" => cx.outbox.allow("uid-p", name),
                "reject" => {
                    cx.outbox.reject("uid-p", name, "the boss refused");
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
            PermitStep::Done(Status::success())
        })
        .events(Vec::new)
}

/// F-14: the first rejection ends Permit, also after another plugin has asked to wait. No pod waits longer than 15
/// minutes.
#[test]
fn permit_ends_with_the_first_refusal() {
    let statement = |name: &'static str, status: Status| {
        fake(name).permit(move |_, _, _, _| PermitStep::Done(status.clone()))
    };
    let waits = |name: &'static str, minutes: u64| {
        fake(name).permit(move |_, _, _, _| PermitStep::Hold(Duration::from_secs(60 * minutes)))
    };
    let never = || fake("Never").permit(|_, _, _, _| panic!("asked after a refusal"));
    for (situation, plugins, outcome, rejector) in [
        (
            "refused while another would wait",
            [
                waits("A", 1),
                statement("B", Status::unresolvable("no")),
                never(),
            ],
            "0/1 nodes are available: 1 no.",
            Some("B"),
        ),
        (
            "broken while another would wait",
            [
                waits("A", 1),
                statement("B", Status::error("oops")),
                never(),
            ],
            "error: running Permit plugin \"B\": oops",
            None,
        ),
        (
            "waits for ever",
            [
                waits("A", 60),
                statement("B", Status::success()),
                waits("C", 90),
            ],
            "on n1",
            Some("A"),
        ),
    ] {
        let mut w = driver(plugins);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        assert_eq!(w.attempt(), outcome, "{situation}");
        w.answer_all();
        if outcome == "on n1" {
            w.advance(Duration::from_secs(15 * 60 - 1));
            assert_eq!(w.on("n1"), ["p"], "{situation}");
            w.events.clear();
            w.advance(Duration::from_secs(1));
            assert_eq!(
                w.events_text(),
                [
                    "Warning FailedScheduling 0/1 nodes are available: 1 rejected due to timeout after waiting \
                     15m0s at plugin A."
                ]
            );
        }
        assert_eq!(w.on("n1"), [""; 0], "{situation}: no room is kept");
        let rejectors: Vec<&str> = rejector.into_iter().collect();
        assert_eq!(w.rejectors_of("p").0, rejectors, "{situation}");
        assert!(w.scheduler.queue().in_flight().is_empty(), "{situation}");
    }
}

/// F-15: a pod that does not wait in Permit is not counted in the metric of waits. A plugin that makes no pod wait may
/// still allow one.
#[test]
fn only_pods_that_wait_show_in_the_metric_of_waits() {
    let generous = fake("Generous").permit(|cx, _, _, _| {
        cx.outbox.allow("uid-p", "Generous");
        cx.outbox.allow("uid-nobody", "Generous");
        assert!(!cx.outbox.reject("uid-nobody", "Generous", "no"));
        PermitStep::Done(Status::success())
    });
    let mut w = driver([generous]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    assert_eq!(w.attempt(), "on n1");
    w.answer_all();
    assert_eq!(w.on("n1"), ["p"]);
    let waited = w.scheduler.metrics();
    assert!(
        waited
            .get(Metric::PermitWaitDuration, &["Success"])
            .is_none()
    );
}

/// F-15, C-40, C-53: a pod that is preempted while it waits in Permit fails with an error without a rejecting plugin.
/// It returns with a backoff, although the log of events was still kept for it.
#[test]
fn a_stopped_wait_is_an_error() {
    let holds = fake("Holds").permit(|cx, pod, _, _| match pod.pod.name().as_str() {
        "p" => PermitStep::Hold(Duration::from_secs(60)),
        _ => {
            assert!(cx.outbox.preempt("uid-p", "Bully"), "it is held back");
            assert!(!cx.outbox.preempt("uid-p", "Bully"), "once is enough");
            assert!(!cx.outbox.reject("uid-p", "Bully", "no"));
            PermitStep::Done(Status::success())
        }
    });
    let mut w = driver([holds, fits()]);
    w.applied(node("n1").capacity("2", "1Gi", "9").object());
    w.pod(pod("p").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    w.pod(pod("other").request("cpu", "2"));
    assert!(w.attempt().starts_with("0/1"));
    assert_eq!(w.scheduler.queue().in_flight().len(), 1);
    w.answer_all();
    w.events.clear();
    w.pod(pod("bully").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    let events = w.events_text();
    assert_eq!(events.len(), 1);
    assert!(
        events[0].starts_with("Warning FailedScheduling ") && events[0].contains("preempted"),
        "{events:?}"
    );
    assert_eq!(w.place_of("p"), Some(QueuedIn::ErrorBackoff));
    assert_eq!(w.rejectors_of("p"), (vec![], vec![]));
    assert_eq!(w.scheduler.queue().in_flight().len(), 0);
    let woken = w.place_of("other");
    assert!(woken.is_some_and(QueuedIn::is_backoff), "C-52: {woken:?}");
    let results = w.scheduler.metrics();
    assert!(
        results
            .get(Metric::PermitWaitDuration, &["Error"])
            .is_some()
    );
}

/// F-15, C-40, edge cases 213 and 214.
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
            "Warning FailedScheduling 0/1 nodes are available: 1 the boss refused.",
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
        let mut w = driver([holding("A", 90), holding("B", 60)]);
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
        let rejector = match situation {
            "rejected" => &["A"][..],
            "too late" => &["B"],
            _ => &[],
        };
        assert_eq!(w.rejectors_of("p").0, rejector, "{situation}");
        let held = situation == "looked at";
        assert_eq!(
            w.scheduler.queue().in_flight().len(),
            usize::from(held),
            "{situation}"
        );
        let results = w.scheduler.metrics();
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
    let hold = fake("Hold").permit(|_, pod, _, _| {
        if pod.pod.name() == "p" {
            PermitStep::Hold(Duration::from_secs(5))
        } else {
            PermitStep::Done(Status::success())
        }
    });
    let mut w = driver([fits(), hold]);
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
    let hold = || fake("Hold").permit(|_, _, _, _| PermitStep::Hold(Duration::from_secs(500)));
    let slow = || {
        fake("Slow").pre_bind(|cx, _, _, _, wake| match wake {
            None => Step::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_secs(500),
            }),
            Some(_) => Step::success(),
        })
    };
    type Change = fn(&mut Driver);
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
        let mut w = driver([plugin, fits()]);
        w.applied(node("n1").capacity("1", "1Gi", "9").object());
        w.pod(pod("p").request("cpu", "1"));
        assert_eq!(w.attempt(), "on n1", "{situation}");
        w.answer_all();
        w.pod(pod("other").request("cpu", "1"));
        assert!(w.attempt().starts_with("0/1"), "{situation}");
        change(&mut w);
        assert_eq!(w.on("n1"), Vec::<String>::new(), "{situation}");
        assert_eq!(
            w.scheduler.bindings_in_flight(),
            bindings,
            "{situation}: one that is prepared fails by itself"
        );
        let notified = w.events_text().join("; ");
        let removed = notified.ends_with("0/1 nodes are available: 1 removed.");
        assert_eq!(removed, bindings == 0, "{situation}: F-15: {notified}");
        assert_eq!(w.place_of("other"), Some(QueuedIn::Backoff), "{situation}");
        w.answer_all();
        w.advance(Duration::from_secs(501));
        while !w.calls.is_empty() {
            w.answer(Some("pods \"p\" not found"));
        }
        assert_eq!(w.scheduler.bindings_in_flight(), 0, "{situation}");
        assert_eq!(w.on("n1"), Vec::<String>::new(), "{situation}");
    }
}

/// An update of a placed pod that does not affect its placement is ignored.
#[test]
fn updates_of_a_placed_pod_do_not_queue_it() {
    let mut w = driver([fits()]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    w.change("p", |p| p.label("a", "b"));
    assert_eq!((w.place_of("p"), w.attempt()), (None, "idle".to_owned()));
    w.answer_all();
    assert_eq!(w.on("n1"), ["p"]);
}

/// C-11, C-38: the cluster may change while a cycle is parked in Reserve. The cycle checks the node again when it
/// continues, and a pod that another client has bound stays bound.
#[test]
fn a_parked_reserve_looks_at_its_node_again() {
    type Change = fn(&mut Driver);
    let cases: [(&str, Change, &str); 6] = [
        ("nothing happened", |_| {}, "bind p n1"),
        (
            "another pod was added, there is room",
            |w| {
                w.pod(pod("x").request("cpu", "1").on("n1"));
            },
            "bind p n1",
        ),
        (
            "another pod took the room",
            |w| {
                w.pod(pod("x").request("cpu", "3").on("n1"));
            },
            "patch p PodScheduled=False SchedulerError: node \"n1\" does not fit any more: Insufficient cpu",
        ),
        (
            "the node is gone",
            |w| {
                let node = node("n1").object();
                w.gone(node);
            },
            "patch p PodScheduled=False SchedulerError: node \"n1\" was deleted",
        ),
        ("the pod is gone", |w| w.deleted("p"), ""),
        (
            "another scheduler has bound the pod",
            |w| {
                w.change("p", |p| {
                    p.on("n1").condition("PodScheduled", "True", "", "")
                })
            },
            "",
        ),
    ];
    for (situation, change, call) in cases {
        let reserve = fake("Slow").reserve(|cx, _, _, _, wake| match wake.map(Wake::reason) {
            None => Step::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_secs(1),
            }),
            Some(WakeReason::Timer) => Step::success(),
            Some(other) => Step::Done(Status::error(format!("{other:?}"))),
        });
        let mut w = driver([fits(), reserve]);
        w.applied(node("n1").capacity("4", "1Gi", "9").object());
        w.pod(pod("p").request("cpu", "2"));
        assert_eq!(w.attempt(), "parked", "{situation}");
        change(&mut w);
        w.advance(Duration::from_secs(1));
        let calls = w.calls_text();
        if call.is_empty() {
            assert_eq!(calls, [""; 0], "{situation}");
            let is_bound = situation != "the pod is gone";
            assert_eq!(w.on("n1").contains(&"p".to_owned()), is_bound);
            let notified = w.logged("ForgetPod failed").len();
            assert_eq!(notified, usize::from(is_bound), "{situation}: {:?}", w.log);
            assert_eq!(w.place_of("p"), None, "{situation}");
        } else {
            assert_eq!(calls, [call], "{situation}");
        }
        assert_eq!(w.scheduler.queue().in_flight().len(), 0, "{situation}");
    }
}

/// F-17: a PreBind plugin that waits for objects is woken only by a watch event of one of them, or by its deadline.
#[test]
fn a_wait_for_objects_ends_only_with_these_objects() {
    type Change = fn(&mut Driver);
    let full = |name: &str| node(name).capacity("0", "1Gi", "9");
    let changes: [(&str, Change, bool); 5] = [
        (
            "another one",
            |w| {
                w.applied(node("n3").capacity("0", "1Gi", "9").object());
            },
            false,
        ),
        (
            "changed",
            |w| {
                w.applied(node("n2").version(2).label("a", "b").object());
            },
            true,
        ),
        (
            "gone",
            |w| {
                let gone = node("n2").object();
                w.gone(gone);
            },
            true,
        ),
        (
            "not listed after a gap",
            |w| {
                let listed = vec![node("n1").capacity("1", "1Gi", "9").object()];
                let all = ClusterChange::Replaced(Kind::Node, listed);
                w.scheduler.apply(all, w.now);
                w.take();
            },
            true,
        ),
        (
            "nothing happened in time",
            |w| {
                w.advance(Duration::from_secs(60));
            },
            true,
        ),
    ];
    for (situation, change, goes_on) in changes {
        let waits = fake("Waits").pre_bind(|cx, _, _, _, wake| match wake.map(Wake::reason) {
            None => Step::Wait(Wait {
                on: WaitOn::Objects(
                    ["n9", "n2"]
                        .map(|name| ObjectName::new(Kind::Node, &"".into(), &name.into()))
                        .to_vec(),
                ),
                deadline: cx.now + Duration::from_secs(60),
            }),
            Some(_) => Step::success(),
        });
        let mut w = driver([fits(), waits]);
        w.applied(node("n1").capacity("1", "1Gi", "9").object());
        w.applied(full("n2").object());
        w.pod(pod("p").request("cpu", "1"));
        assert_eq!(w.attempt(), "on n1", "{situation}");
        w.answer_all();
        change(&mut w);
        let is_bound = w.calls_text() == ["bind p n1"];
        assert_eq!(is_bound, goes_on, "{situation}: {:?}", w.calls_text());
    }
}
