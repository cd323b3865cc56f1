//! The binding cycle.

use super::*;
use berth_api::Duration;
use berth_framework::call::Response;
use berth_framework::plugin::PermitStep;
use berth_framework::stage::{Step, Wait, WaitOn, Wake, WakeReason};
use berth_framework::testing::{FakePlugin, fake, node, pod};
use berth_framework::{Feature, FeatureGates, Status};
use berth_queue::QueuedIn;
use berth_telemetry::metrics::Metric;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A PreBind plugin that waits for a timer; the time is in seconds.
fn waits(name: &'static str, seconds: u64) -> FakePlugin {
    fake(name).pre_bind(move |cx, _, _, _, wake| match wake {
        None => Step::Wait(Wait {
            on: WaitOn::Timer,
            deadline: cx.now + Duration::from_secs(seconds),
        }),
        Some(_) => Step::success(),
    })
}

/// C-7: the version in the answer to a binding ends the assumption. The watch may be late with earlier versions; a
/// version from then on without a node means that the binding was undone, and the pod is tried again.
#[test]
fn the_version_of_a_binding_confirms_the_pod() {
    let mut w = driver([fits()]);
    w.applied(node("n1").capacity("1", "1Gi", "9").object());
    w.pod(pod("p").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    assert_eq!(w.scheduler.cache().assumed_pods(), 1);
    let (id, _) = w.calls.remove(0);
    let shown = |w: &Driver| -> u64 {
        let version = w.pods["p"].metadata.resource_version.parse();
        version.expect("a number")
    };
    let bound_in = shown(&w) + 2;
    w.complete(id, Ok(Response::written(bound_in.to_string())));
    assert_eq!(w.scheduler.cache().assumed_pods(), 0, "it is bound");
    assert_eq!(w.on("n1"), ["p"]);
    // An update from before the binding.
    w.change("p", |p| p.label("a", "b"));
    assert_eq!(shown(&w), bound_in - 1);
    assert_eq!((w.on("n1"), w.place_of("p")), (vec!["p".to_owned()], None));
    // From the version of the binding on, the API decides.
    w.change("p", |p| p.label("a", "c"));
    assert_eq!(shown(&w), bound_in);
    assert_eq!(w.on("n1"), Vec::<String>::new());
    assert_eq!(w.place_of("p"), Some(QueuedIn::Active));
    assert_eq!(w.attempt(), "on n1");
}

/// C-43, C-52, C-53, case 218: the event for the resources that the pod releases is raised before its own failure is
/// handled, and wakes all other pods. The pod has left the log of events before, and returns with a backoff.
#[test]
fn a_failed_binding_gives_its_room_back_and_wakes_others() {
    let mut w = driver([fits()]);
    w.applied(node("n1").capacity("1", "1Gi", "9").object());
    w.pod(pod("a").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    w.pod(pod("b").request("cpu", "1"));
    assert!(w.attempt().starts_with("0/1"));
    assert_eq!(w.place_of("b"), Some(QueuedIn::Unschedulable));
    w.events.clear();
    w.scheduler.set_log_verbosity(1);
    w.answer(Some("the API refused"));
    assert_eq!(w.on("n1"), Vec::<String>::new());
    let message = "running Bind plugin \"Binder\": the API refused";
    let line = format!("Failed to bind pod pod=default/a err={message}");
    assert_eq!(
        w.logged("Failed to bind"),
        [(crate::LogLevel::Info(1), line)]
    );
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
    let mut w = driver_of([skips("A"), binds, skips("B")], FeatureGates::default());
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    assert_eq!(
        w.events_text(),
        ["Normal Scheduled Successfully assigned default/p to n1"]
    );

    let mut w = driver_of([skips("A"), skips("B")], FeatureGates::default());
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    assert_eq!(
        w.events_text(),
        ["Warning FailedScheduling no Bind plugin has bound the pod"]
    );
    assert_eq!(w.place_of("p"), Some(QueuedIn::ErrorBackoff));
}

/// F-18: a rejection is reported under the plugin's name, and no further plugin runs.
#[test]
fn a_bind_plugin_may_turn_the_pod_down() {
    let no = fake("No").bind(|_, _, _, _, _| Step::Done(Status::unschedulable("not mine")));
    let never = fake("Never").bind(|_, _, _, _, _| panic!("asked after a refusal"));
    let mut w = driver_of([no, never], FeatureGates::default());
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    assert_eq!(
        w.events_text(),
        ["Warning FailedScheduling 0/1 nodes are available: 1 not mine."]
    );
    assert_eq!(w.rejectors_of("p").0, ["No"]);
    assert!(w.place_of("p").is_some_and(QueuedIn::is_backoff), "C-41");
}

/// F-16, C-39: only plugins whose PreBindPreFlight returns work run in PreBind. With the gate off all of them run
/// without PreBindPreFlight.
#[test]
fn pre_bind_runs_only_plugins_that_have_work() {
    for (gate, worked) in [(true, "B"), (false, "A B")] {
        let (send, receive) = std::sync::mpsc::sync_channel(10);
        let works = |name: &'static str, pre_flight: Status| {
            let (send, asked) = (send.clone(), send.clone());
            fake(name)
                .pre_flight(move |_, _| {
                    let _ = asked.try_send(format!("{name}?"));
                    pre_flight.clone()
                })
                .pre_bind(move |_, _, _, _, _| {
                    let _ = send.try_send(name.to_owned());
                    Step::success()
                })
        };
        let plugins = [works("A", Status::skip()), works("B", Status::success())];
        let features = FeatureGates::default().with(Feature::NominatedNodeNameForExpectation, gate);
        let mut w = driver_of(plugins.into_iter().chain([binder()]), features);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        w.attempt();
        let received: Vec<String> = receive.try_iter().collect();
        let asked = if gate { "A? B? " } else { "" };
        assert_eq!(received.join(" "), format!("{asked}{worked}"), "{gate}");
    }
}

/// C-39: if the nomination before the binding fails, the binding continues.
#[test]
fn a_failed_announcement_is_only_logged() {
    let mut w = driver([waits("Slow", 1)]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    assert_eq!(w.calls_text(), ["patch p nominated=\"n1\""]);
    w.answer(Some("no"));
    assert_eq!(w.logged("Failed to write an object pod=default/p").len(), 1);
    w.advance(Duration::from_secs(1));
    w.answer_all();
    assert_eq!(w.on("n1"), ["p"]);
    assert_eq!(w.scheduler.bindings_in_flight(), 0);
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
            vec![fake("Hold").permit(|_, _, _, _| PermitStep::Hold(Duration::from_secs(9)))],
            true,
            vec![announced],
            None,
        ),
    ] {
        let features = FeatureGates::default().with(Feature::NominatedNodeNameForExpectation, gate);
        let mut w = driver_of(plugins.into_iter().chain([binder()]), features);
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
    let mut w = driver([
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

/// F-17: a plugin that PreBindPreFlight skips is in no group; it separates its neighbours only if it runs alone.
#[test]
fn plugins_with_nothing_to_do_are_left_out_of_their_groups() {
    for (situation, idle, seconds) in [
        ("one that works alone", waits("Idle", 50), 3 + 2),
        ("one of many", waits("Idle", 50).parallel(), 3),
    ] {
        let mut w = driver([
            waits("A", 3).parallel(),
            idle.pre_flight(|_, _| Status::skip()),
            waits("B", 2).parallel(),
        ]);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        w.attempt();
        w.answer_all();
        let bound_after = (1..20).find(|_| {
            w.advance(Duration::from_secs(1));
            !w.calls.is_empty()
        });
        assert_eq!(bound_after, Some(seconds), "{situation}");
    }
}

/// C-41, edge case 216: a rejection by PreBind has the effect of an error, because no events were kept.
#[test]
fn a_failing_pre_bind_stops_its_siblings() {
    for (status, message) in [
        (Status::error("oops"), "running PreBind plugin \"B\": oops"),
        (
            Status::unschedulable("no"),
            "0/1 nodes are available: 1 no.",
        ),
    ] {
        let status_rejects = status.is_rejected();
        let resumed = Arc::new(AtomicBool::new(false));
        let seen = resumed.clone();
        let mut w = driver([
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
        assert_eq!(w.scheduler.queue().in_flight().len(), 0, "{message}");
        assert_eq!(
            w.events_text(),
            [format!("Warning FailedScheduling {message}")]
        );
        let rejectors = if status_rejects {
            vec!["B".to_owned()]
        } else {
            vec![]
        };
        assert_eq!(w.rejectors_of("p").0, rejectors);
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
        assert_eq!(w.scheduler.bindings_in_flight(), 0);
    }
}

/// A job's result is passed to the plugin that started it.
#[test]
fn jobs_come_back_to_their_plugin() {
    let plugin = || {
        fake("Job").pre_bind(|cx, _, _, _, wake| match wake.map(Wake::reason) {
            None => {
                let job = cx
                    .outbox
                    .job(Box::pin(async { Ok(Box::new(7_u8) as Box<_>) }));
                Step::Wait(Wait {
                    on: WaitOn::Job(job),
                    deadline: cx.now + Duration::from_secs(60),
                })
            }
            Some(WakeReason::Job(Ok(value))) if value.downcast_ref() == Some(&7_u8) => {
                Step::success()
            }
            Some(other) => Step::Done(Status::error(format!("{other:?}"))),
        })
    };
    for (situation, result, bound) in [
        ("in time", Some(Ok(Box::new(7_u8) as Box<_>)), true),
        ("another value", Some(Ok(Box::new(8_u8) as Box<_>)), false),
        ("failed", Some(Err("no".into())), false),
        ("late", None, false),
    ] {
        let mut w = driver([plugin()]);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        w.attempt();
        w.answer_all();
        let (id, _) = w.jobs.pop().unwrap();
        let now = w.now;
        match result {
            Some(result) => w.scheduler.job_done(id, result, now),
            None => {
                w.advance(Duration::from_secs(61));
                w.scheduler.job_done(id, Ok(Box::new(7_u8)), now);
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
        let mut w = driver([slow(), preempt("Preempt")]);
        w.applied(node("n1").object());
        w.pod(pod("victim"));
        assert_eq!(w.attempt(), "on n1");
        w.answer_all();
        if prepared {
            w.advance(Duration::from_secs(5));
        }
        w.pod(pod("bully"));
        w.attempt();
        // The victim's binding, if it has been sent, is answered last.
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
    let mut w = driver([fake("Gate").filter(move |_, _, _| {
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
    // No event reports the change: the periodic flush moves the pod.
    w.advance(Duration::from_secs(400));
    assert_eq!(w.attempt(), "on n1");
    w.answer_all();
    assert_eq!(w.metric(Metric::PodScheduledAfterFlush, &[]), 1.0);
    let metrics = w.scheduler.metrics();
    let Some(berth_telemetry::metrics::SeriesValue::Histogram(sli)) =
        metrics.get(Metric::PodSchedulingSliDuration, &["2"])
    else {
        panic!("the second attempt succeeded");
    };
    assert_eq!((sli.count(), sli.sum), (1, 400.0));
}

/// C-44: attempts have a label each up to fourteen, and one common label from fifteen on.
#[test]
fn many_attempts_are_counted_as_fifteen_and_more() {
    for (attempts, label) in [(1, "1"), (14, "14"), (15, "15+"), (16, "15+")] {
        let left = Arc::new(std::sync::atomic::AtomicU32::new(attempts - 1));
        let count = left.clone();
        let gate = fake("Gate").events(|| vec![node_changes()]);
        let mut w = driver([gate.filter(move |_, _, _| {
            match count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) {
                Ok(_) => Status::unschedulable("shut"),
                Err(_) => Status::success(),
            }
        })]);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        for _ in 1..attempts {
            assert!(w.attempt().starts_with("0/1"));
            w.answer_all();
            w.advance(Duration::from_secs(400));
        }
        assert_eq!(w.attempt(), "on n1");
        w.advance(Duration::from_secs(2));
        w.answer_all();
        let metrics = w.scheduler.metrics();
        let histogram = |metric, labels: &[&str]| match metrics.get(metric, labels) {
            Some(berth_telemetry::metrics::SeriesValue::Histogram(h)) => (h.count(), h.sum),
            _ => (0, 0.0),
        };
        let waited = f64::from(400 * (attempts - 1) + 2);
        let sli = histogram(Metric::PodSchedulingSliDuration, &[label]);
        assert_eq!(sli, (1, waited), "{attempts}");
        let all = histogram(Metric::PodSchedulingAttempts, &[]);
        assert_eq!(all, (1, f64::from(attempts)));
        let labels = ["scheduled", "default-scheduler"];
        assert_eq!(w.metric(Metric::ScheduleAttempts, &labels), 1.0);
        let latency = histogram(Metric::SchedulingAttemptDuration, &labels);
        assert_eq!(latency, (1, 2.0), "from this cycle until it was bound");
        let flushed = w.metric(Metric::PodScheduledAfterFlush, &[]);
        assert_eq!(flushed, if attempts > 1 { 1.0 } else { 0.0 });
    }
}

/// C-1.
#[test]
fn thousands_are_bound_at_once() {
    let mut w = driver([waits("Slow", 10)]);
    w.applied(node("n1").object());
    for i in 0..2000 {
        w.scheduler.apply(
            crate::ClusterChange::Applied(pod(&format!("p{i}")).object()),
            w.now,
        );
    }
    for _ in 0..2000 {
        w.scheduler.schedule_one(w.now);
    }
    assert_eq!(w.scheduler.bindings_in_flight(), 2000);
    assert_eq!(
        w.scheduler.next_wake(w.now),
        Some(w.now + Duration::from_secs(10))
    );
    while !w.scheduler.dispatcher().is_empty() {
        let now = w.now;
        for (id, _) in w.scheduler.take_outputs(now).calls {
            w.scheduler.complete(id, Ok(()), now);
        }
    }
    w.scheduler.tick(w.now + Duration::from_secs(10));
    assert_eq!(
        w.scheduler.dispatcher().len(),
        2000,
        "all bindings are on their way"
    );
}
