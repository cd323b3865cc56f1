//! The binding cycle (5.7, 5.9).

use super::*;
use crate::metrics::Metric;
use crate::queue::QueuedIn;
use berth_api::Duration;
use berth_framework::plugin::PermitResult;
use berth_framework::stage::{Step, Wait, WaitOn, Wake};
use berth_framework::testing::{FakePlugin, fake, node, pod};
use berth_framework::{Feature, FeatureGates, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A PreBind plugin that waits for a timer of so many seconds.
fn waits(name: &'static str, seconds: u64) -> FakePlugin {
    fake(name).pre_bind(move |cx, _, _, _, wake| match wake {
        None => Step::Wait(Wait {
            on: WaitOn::Timer,
            deadline: cx.now + Duration::from_secs(seconds),
        }),
        Some(_) => Step::success(),
    })
}

/// C-52, edge case 218.
#[test]
fn a_failed_binding_gives_its_room_back_and_wakes_others() {
    let mut w = world([fits()]);
    w.applied(node("n1").capacity("1", "1Gi", "9").object());
    w.pod(pod("a").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    w.pod(pod("b").request("cpu", "1"));
    assert!(w.attempt().starts_with("0/1"));
    assert_eq!(w.place_of("b"), Some(QueuedIn::Unschedulable));
    w.events.clear();
    w.answer(Some("the API said no"));
    assert_eq!(w.on("n1"), Vec::<String>::new());
    let message = "running Bind plugin \"Binder\": the API said no";
    assert_eq!(
        w.events_text(),
        [format!("Warning FailedScheduling {message}")]
    );
    assert_eq!(
        w.place_of("a"),
        Some(QueuedIn::ErrorBackoff),
        "its own error"
    );
    assert_eq!(
        w.place_of("b"),
        Some(QueuedIn::Backoff),
        "woken by the room"
    );
    assert!(w.calls_text().contains(&format!(
        "patch a PodScheduled=False SchedulerError: {message}"
    )));
    w.answer_all();
    w.advance(Duration::from_secs(3));
    let both = [w.attempt(), w.attempt()];
    assert!(both.contains(&"on n1".to_owned()), "{both:?}");
}

/// F-18, edge case 219.
#[test]
fn bind_plugins_take_turns_until_one_does_not_skip() {
    let skips = |name: &str| fake(name).bind(|_, _, _, _, _| Step::Done(Status::skip()));
    let binds = fake("Binds").bind(|_, _, _, _, _| Step::success());
    let mut w = World::new([skips("A"), binds, skips("B")], FeatureGates::default());
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    assert_eq!(
        w.events_text(),
        ["Normal Scheduled Successfully assigned default/p to n1"]
    );

    let mut w = World::new([skips("A"), skips("B")], FeatureGates::default());
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    assert_eq!(
        w.events_text(),
        ["Warning FailedScheduling no Bind plugin has bound the pod"]
    );
    assert_eq!(w.place_of("p"), Some(QueuedIn::ErrorBackoff));
}

/// F-16, C-39, edge case 215.
#[test]
fn the_node_is_announced_when_binding_takes_time() {
    let working = |status: Status| waits("Slow", 1).pre_flight(move |_, _| status.clone());
    let announced = "patch p nominated=\"n1\"";
    for (situation, plugins, gate, calls, message) in [
        (
            "nothing to do",
            vec![working(Status::skip())],
            true,
            vec!["bind p n1"],
            None,
        ),
        (
            "something to do",
            vec![working(Status::success())],
            true,
            vec![announced],
            None,
        ),
        (
            "gate off",
            vec![working(Status::skip())],
            false,
            vec![],
            None,
        ),
        (
            "pre-flight breaks",
            vec![working(Status::error("oops"))],
            true,
            vec![
                "patch p PodScheduled=False SchedulerError: running PreBindPreFlight \"Slow\": oops",
            ],
            Some("Warning FailedScheduling running PreBindPreFlight \"Slow\": oops"),
        ),
        (
            "pre-flight rejects",
            vec![working(Status::unschedulable("no"))],
            true,
            vec![
                "patch p PodScheduled=False SchedulerError: PreBindPreFlight Slow returned \"Unschedulable\", which is unsupported. It is supposed to return Success, Skip, or Error status",
            ],
            Some(
                "Warning FailedScheduling PreBindPreFlight Slow returned \"Unschedulable\", which is unsupported. It is supposed to return Success, Skip, or Error status",
            ),
        ),
        (
            "held back by Permit",
            vec![fake("Hold").permit(|_, _, _| PermitResult::Wait(Duration::from_secs(9)))],
            true,
            vec![announced],
            None,
        ),
    ] {
        let features = FeatureGates::default().with(Feature::NominatedNodeNameForExpectation, gate);
        let mut w = World::new(plugins.into_iter().chain([binder()]), features);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        assert_eq!(w.attempt(), "on n1", "{situation}");
        assert_eq!(w.calls_text(), calls, "{situation}");
        assert_eq!(
            w.events_text().first().map(String::as_str),
            message,
            "{situation}"
        );
    }
}

/// F-17: groups one after another, parallel neighbours together.
#[test]
fn pre_bind_plugins_work_in_groups() {
    let mut w = world([
        waits("A", 3).parallel(),
        waits("B", 2).parallel(),
        waits("C", 4),
        waits("D", 1).parallel(),
    ]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    w.answer_all();
    let mut bound_after = 0;
    for second in 1..20 {
        w.advance(Duration::from_secs(1));
        if !w.calls.is_empty() {
            bound_after = second;
            break;
        }
    }
    assert_eq!(bound_after, 3 + 4 + 1, "A and B together, then C, then D");
    w.answer_all();
    assert_eq!(w.on("n1"), ["p"]);
}

/// Edge case 216: PreBind's rejection is an error in effect, as no events were kept.
#[test]
fn a_failing_pre_bind_stops_its_siblings() {
    for (status, message) in [
        (Status::error("oops"), "running PreBind plugin \"B\": oops"),
        (
            Status::unschedulable("no"),
            "0/1 nodes are available: 1 no.",
        ),
    ] {
        let resumed = Arc::new(AtomicBool::new(false));
        let seen = resumed.clone();
        let mut w = world([
            fake("A")
                .parallel()
                .pre_bind(move |cx, _, _, _, wake| match wake {
                    None => Step::Wait(Wait {
                        on: WaitOn::Timer,
                        deadline: cx.now + Duration::from_secs(9),
                    }),
                    Some(_) => {
                        seen.store(true, Ordering::Relaxed);
                        Step::success()
                    }
                }),
            fake("B")
                .parallel()
                .pre_bind(move |_, _, _, _, _| Step::Done(status.clone())),
        ]);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        w.attempt();
        assert_eq!(
            w.events_text(),
            [format!("Warning FailedScheduling {message}")]
        );
        assert_eq!(w.on("n1"), Vec::<String>::new());
        let place = w.place_of("p");
        assert!(
            place.is_some_and(QueuedIn::is_backoff),
            "{message}: {place:?}"
        );
        w.advance(Duration::from_secs(9));
        assert!(
            !resumed.load(Ordering::Relaxed),
            "{message}: the sibling's wait is over"
        );
        assert_eq!(w.core.bindings_in_flight(), 0);
    }
}

/// A job's value reaches the plugin that handed it out.
#[test]
fn jobs_come_back_to_their_plugin() {
    let plugin = || {
        fake("Job").pre_bind(|cx, _, _, _, wake| match wake {
            None => {
                let job = cx
                    .outbox
                    .job(Box::pin(async { Ok(Box::new(7_u8) as Box<_>) }));
                Step::Wait(Wait {
                    on: WaitOn::Job(job),
                    deadline: cx.now + Duration::from_secs(60),
                })
            }
            Some(Wake::Job(Ok(value))) if value.downcast_ref() == Some(&7_u8) => Step::success(),
            Some(other) => Step::Done(Status::error(format!("{other:?}"))),
        })
    };
    for (situation, result, bound) in [
        ("in time", Some(Ok(Box::new(7_u8) as Box<_>)), true),
        ("another value", Some(Ok(Box::new(8_u8) as Box<_>)), false),
        ("failed", Some(Err("no".to_owned())), false),
        ("late", None, false),
    ] {
        let mut w = world([plugin()]);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        w.attempt();
        w.answer_all();
        let (id, _) = w.jobs.pop().unwrap();
        let now = w.now;
        match result {
            Some(result) => w.core.job_done(id, result, now),
            None => {
                w.advance(Duration::from_secs(61));
                w.core.job_done(id, Ok(Box::new(7_u8)), now);
            }
        }
        w.take();
        assert_eq!(
            w.calls_text() == ["bind p n1"],
            bound,
            "{situation}: {:?}",
            w.calls_text()
        );
    }
}

/// C-42, edge case 217.
#[test]
fn a_pod_can_be_stopped_until_it_is_being_bound() {
    let preempt = |name: &'static str| {
        fake(name).post_bind(move |cx, pod, _| {
            if pod.pod.name() == "bully" {
                let stopped = cx.outbox.preempt("uid-victim", "DefaultPreemption");
                let note = if stopped { "stopped" } else { "too late" };
                cx.outbox.publish(berth_framework::call::PodEvent {
                    regarding: berth_framework::call::PodRef::of(&pod.pod),
                    related: None,
                    kind: berth_framework::call::EventKind::Normal,
                    reason: "Preempted",
                    action: "Preempting",
                    note: note.to_owned(),
                });
            }
        })
    };
    let slow = || {
        fake("Slow").pre_bind(|cx, _, pod, _, wake| match wake {
            None if pod.pod.name() == "victim" => Step::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_secs(5),
            }),
            _ => Step::success(),
        })
    };
    for (situation, prepared, note, on) in [
        (
            "being prepared",
            false,
            "Normal Preempted stopped",
            vec!["bully"],
        ),
        (
            "being bound",
            true,
            "Normal Preempted too late",
            vec!["bully", "victim"],
        ),
    ] {
        let mut w = world([slow(), preempt("Preempt")]);
        w.applied(node("n1").object());
        w.pod(pod("victim"));
        assert_eq!(w.attempt(), "on n1");
        w.answer_all();
        if prepared {
            w.advance(Duration::from_secs(5));
        }
        w.pod(pod("bully"));
        w.attempt();
        // The victim's binding, if it has got so far, is answered last.
        w.calls
            .sort_by_key(|(_, call)| call.object().name == "victim");
        while w
            .calls
            .iter()
            .any(|(_, call)| call.object().name == "bully")
        {
            w.answer(None);
        }
        let events = w.events_text();
        assert!(events.iter().any(|e| e == note), "{situation}: {events:?}");
        assert_eq!(w.on("n1"), on, "{situation}");
        if !prepared {
            let cause = "Warning FailedScheduling preempted by DefaultPreemption";
            assert!(events.iter().any(|e| e == cause), "{situation}: {events:?}");
            assert_eq!(w.place_of("victim"), Some(QueuedIn::ErrorBackoff));
        }
    }
}

/// C-44, Q-6 with its fix, edge cases 93 and 144.
#[test]
fn what_is_scheduled_is_counted() {
    let gate = Arc::new(AtomicBool::new(false));
    let open = gate.clone();
    let mut w = world([fake("Gate").filter(move |_, _, _| {
        if open.load(Ordering::Relaxed) {
            Status::success()
        } else {
            Status::unschedulable("shut")
        }
    })]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    gate.store(true, Ordering::Relaxed);
    // Nobody says so: the periodic flush finds out.
    w.advance(Duration::from_secs(400));
    assert_eq!(w.attempt(), "on n1");
    w.answer_all();
    assert_eq!(w.metric(Metric::PodScheduledAfterFlush, &[]), 1.0);
    let metrics = w.core.metrics();
    let Some(crate::metrics::Value::Histogram(sli)) =
        metrics.get(Metric::PodSchedulingSliDuration, &["2"])
    else {
        panic!("the second attempt succeeded");
    };
    assert_eq!((sli.count(), sli.sum), (1, 400.0));
}

/// C-1.
#[test]
fn thousands_are_bound_at_once() {
    let mut w = world([waits("Slow", 10)]);
    w.applied(node("n1").object());
    for i in 0..2000 {
        w.core.apply(
            crate::ClusterChange::Applied(pod(&format!("p{i}")).object()),
            w.now,
        );
    }
    for _ in 0..2000 {
        w.core.schedule_one(w.now);
    }
    assert_eq!(w.core.bindings_in_flight(), 2000);
    assert_eq!(
        w.core.next_wake(w.now),
        Some(w.now + Duration::from_secs(10))
    );
    while !w.core.dispatcher().is_empty() {
        let now = w.now;
        for (id, _) in w.core.take_outputs(now).calls {
            w.core.complete(id, Ok(()), now);
        }
    }
    w.core.tick(w.now + Duration::from_secs(10));
    assert_eq!(
        w.core.dispatcher().len(),
        2000,
        "all bindings are on their way"
    );
}
