//! Whole cycles: from the queue to a bound pod, or to the reason for the failure.

use super::*;
use crate::{LogLevel, ScheduleOutcome};
use berth_api::Duration;
use berth_evaluator::EvaluatorKind;
use berth_framework::Status;
use berth_framework::call::EventKind;
use berth_framework::plugin::PreFilterResult;
use berth_framework::testing::{fake, node, pod};
use berth_queue::QueuedIn;
use berth_telemetry::metrics::Metric;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// C-1, C-2, C-43: without a pod to try the loop is idle, and it continues with the next pod.
#[test]
fn a_pod_is_placed_bound_and_confirmed() {
    let mut w = driver([fits()]);
    w.applied(node("n1").capacity("4", "8Gi", "10").object());
    w.pod(pod("web").request("cpu", "2"));
    assert_eq!(w.attempt(), "on n1");
    assert_eq!(w.on("n1"), ["web"], "counted before the API knows");
    assert_eq!(
        w.calls_text(),
        ["bind web n1"],
        "no nomination for a binding at once"
    );
    assert_eq!(w.scheduler.bindings_in_flight(), 1);
    assert_eq!(w.events_text(), Vec::<String>::new());

    w.answer_all();
    assert_eq!(w.scheduler.bindings_in_flight(), 0);
    assert_eq!(w.scheduler.cache().assumed_pods(), 0);
    assert_eq!(w.on("n1"), ["web"]);
    let event = &w.events[0];
    assert_eq!(event.reporting_controller, "default-scheduler");
    assert_eq!(
        (event.event.kind, event.event.action),
        (EventKind::Normal, "Binding")
    );
    assert!(w.logged("Failed to bind").is_empty());
    assert_eq!(
        w.events_text(),
        ["Normal Scheduled Successfully assigned default/web to n1"]
    );
    assert_eq!(
        w.metric(
            Metric::ScheduleAttempts,
            &["scheduled", "default-scheduler"]
        ),
        1.0
    );
    assert_eq!(w.scheduler.queue().in_flight().len(), 0);
    assert!(matches!(
        w.schedule(),
        ScheduleOutcome::Idle { next_wake: None }
    ));
    w.pod(pod("next").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
}

/// C-1: a scheduler that stops completes the bindings in flight, and receives their results.
#[test]
fn what_is_on_its_way_ends_after_the_stop() {
    let mut w = driver([fits()]);
    w.applied(node("n1").capacity("1", "8Gi", "10").object());
    w.pod(pod("a").request("cpu", "1"));
    w.pod(pod("b").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    w.scheduler.close(w.now);
    w.answer_all();
    assert_eq!(
        (w.on("n1"), w.scheduler.bindings_in_flight()),
        (vec!["a".to_owned()], 0)
    );
    assert_eq!(w.events_text().len(), 1, "the binding was notified");
}

/// C-35: the pod counts on its node at once, although the stored object is unchanged, and its nomination has ended.
#[test]
fn an_assumed_pod_has_its_node_in_memory_only() {
    let hold = fake("Hold")
        .permit(|_, _, _, _| berth_framework::plugin::PermitStep::Hold(Duration::from_secs(9)));
    let mut w = driver([fits(), hold]);
    w.applied(node("n1").object());
    w.pod(pod("p").nominated("n1"));
    assert!(w.scheduler.queue().nominator().node_of("uid-p").is_some());
    assert_eq!(w.attempt(), "on n1");
    assert!(w.scheduler.queue().nominator().node_of("uid-p").is_none());
    let cache = w.scheduler.cache();
    assert!(cache.is_assumed("uid-p"));
    assert_eq!(cache.stored("uid-p").unwrap().spec.node_name, "");
    assert_eq!(cache.effective("uid-p").unwrap().spec.node_name, "n1");
}

/// C-1, C-35.
#[test]
fn placed_pods_take_room_before_they_are_bound() {
    let mut w = driver([fits()]);
    w.applied(node("n1").capacity("3", "8Gi", "10").object());
    for name in ["a", "b", "c", "d"] {
        w.pod(pod(name).request("cpu", "1"));
        w.advance(Duration::from_millis(1));
    }
    let outcomes: Vec<String> = (0..4).map(|_| w.attempt()).collect();
    assert_eq!(outcomes[..3], ["on n1", "on n1", "on n1"]);
    assert_eq!(outcomes[3], "0/1 nodes are available: 1 Insufficient cpu.");
    assert_eq!(w.scheduler.bindings_in_flight(), 3);
}

/// C-32, C-46 to C-49.
#[test]
fn a_pod_that_fits_nowhere_reports_the_reason_and_waits_for_an_event() {
    let mut w = driver([fits()]);
    w.applied(node("n1").capacity("1", "8Gi", "10").object());
    w.pod(pod("big").request("cpu", "2"));
    let message = "0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(w.attempt(), message);
    assert_eq!(w.place_of("big"), Some(QueuedIn::Unschedulable));
    assert_eq!(
        w.calls_text(),
        [format!(
            "patch big PodScheduled=False Unschedulable: {message}"
        )]
    );
    assert_eq!(
        w.events_text(),
        [format!("Warning FailedScheduling {message}")]
    );
    let labels = ["unschedulable", "default-scheduler"];
    assert_eq!(w.metric(Metric::ScheduleAttempts, &labels), 1.0);
    let metrics = w.scheduler.metrics();
    let took = metrics.get(Metric::SchedulingAttemptDuration, &labels);
    assert!(took.is_some(), "C-46: how long it took is observed");
    let explanation = w.scheduler.explanation("uid-big").unwrap();
    assert_eq!(explanation.unschedulable_plugins, ["Fits"]);
    assert_eq!(explanation.reasons[0].examples, ["n1"]);
    w.answer_all();

    // Another node that is too small is not a new reason: the status is not written again.
    w.applied(node("n2").capacity("1", "8Gi", "10").object());
    assert_eq!(w.place_of("big"), Some(QueuedIn::Backoff));
    w.change("big", |p| p.label("x", "y"));
    w.advance(Duration::from_secs(3));
    assert!(w.attempt().starts_with("0/2"));
    assert_eq!(w.calls_text(), Vec::<String>::new());
    w.deleted("nobody");
    w.applied(node("n3").capacity("2", "8Gi", "10").object());
    w.advance(Duration::from_secs(5));
    assert_eq!(w.attempt(), "on n3");
    w.answer_all();
    assert!(w.scheduler.explanation("uid-big").is_none());
}

/// C-50, edge case 228.
#[test]
fn what_the_pod_states_already_is_not_written_again() {
    let no = fake("No").events(|| vec![node_changes()]);
    let mut w = driver([no.filter(|_, _, _| Status::unschedulable("no"))]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    w.answer_all();
    w.events.clear();
    w.advance(Duration::from_secs(301));
    w.advance(Duration::from_secs(31));
    assert_eq!(w.attempt(), "0/1 nodes are available: 1 no.");
    assert_eq!(w.calls_text(), Vec::<String>::new());
    assert_eq!(w.events.len(), 1, "users are notified all the same");
}

/// C-58: an event wakes a pod that is rejected for the same reasons as before. This is not an attempt.
#[test]
fn an_event_without_need_makes_no_attempt() {
    let room = Arc::new(AtomicBool::new(false));
    let has_room = room.clone();
    let plugin = fake("Room").events(|| vec![node_changes()]);
    let mut w = driver([plugin.filter(move |_, _, node| {
        match (has_room.load(Ordering::Relaxed), node.labels().get("small")) {
            (true, _) => Status::success(),
            (false, None) => Status::unschedulable("no room"),
            (false, Some(_)) => Status::unschedulable("too small"),
        }
    })]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    w.answer_all();
    w.events.clear();
    let unschedulable = ["unschedulable", "default-scheduler"];
    let avoided = ["default-scheduler"];
    for count in 1..4 {
        let changed = node("n1")
            .version(count + 1)
            .label("changed", &count.to_string());
        w.applied(changed.object());
        assert_ne!(w.place_of("p"), Some(QueuedIn::Unschedulable), "{count}");
        assert_eq!(w.attempt(), "0/1 nodes are available: 1 no room.");
        assert_eq!(w.calls_text(), Vec::<String>::new(), "{count}");
        assert_eq!(w.events.len(), 0, "{count}");
        assert_eq!(w.metric(Metric::ScheduleAttempts, &unschedulable), 1.0);
        let metric = w.metric(Metric::AttemptsAvoided, &avoided);
        assert_eq!(metric, count as f64);
        assert_eq!(w.place_of("p"), Some(QueuedIn::Unschedulable), "{count}");
    }
    // A different number of nodes is not a new reason.
    w.applied(node("n2").object());
    assert_eq!(w.attempt(), "0/2 nodes are available: 2 no room.");
    assert_eq!(w.metric(Metric::AttemptsAvoided, &avoided), 4.0);
    assert_eq!(w.calls_text(), Vec::<String>::new());
    let explanation = w.scheduler.explanation("uid-p").unwrap();
    assert_eq!(explanation.attempts, 1);
    assert_eq!(explanation.reasons[0].nodes, 2);
    // A new reason is an attempt, and the next event wakes the pod as before.
    w.applied(node("n3").label("small", "").object());
    assert!(w.attempt().starts_with("0/3"));
    assert_eq!(w.metric(Metric::ScheduleAttempts, &unschedulable), 2.0);
    assert_eq!(w.events.len(), 1);
    w.answer_all();
    room.store(true, Ordering::Relaxed);
    w.applied(node("n2").version(9).label("changed", "again").object());
    w.advance(Duration::from_secs(5));
    assert!(w.attempt().starts_with("on n"));
}

/// C-50, case 228: a new message of the same status, or a new nomination, keeps the transition time; a new status
/// changes it.
#[test]
fn a_condition_keeps_the_time_of_its_transition() {
    for (situation, before, moves) in [
        ("none", None, true),
        ("the same status", Some("False"), false),
        ("another status", Some("True"), true),
    ] {
        let mut w = driver([fake("No").filter(|_, _, _| Status::unschedulable("no"))]);
        w.applied(node("n1").object());
        w.pod(match before {
            Some(status) => pod("p").condition("PodScheduled", status, "Earlier", "earlier"),
            None => pod("p"),
        });
        w.attempt();
        let condition = w.calls[0].1.condition("PodScheduled").expect("a condition");
        assert_eq!(condition.status_changes, moves, "{situation}");
    }
}

/// C-51: the condition contains the observed generation of the pod.
#[test]
fn a_condition_states_the_generation_that_it_is_about() {
    let mut w = driver([fake("No").filter(|_, _, _| Status::unschedulable("no"))]);
    w.applied(node("n1").object());
    w.pod(pod("p").with(|p| p.metadata.generation = Some(7)));
    w.attempt();
    let notified = w.calls[0].1.condition("PodScheduled");
    let notified = notified.and_then(|c| c.observed_generation);
    assert_eq!(notified, Some(7));
}

/// C-49, case 227: the message of an event is limited to 1024 bytes, the message of the condition is complete.
#[test]
fn long_messages_are_cut_in_events_only() {
    let long = "x".repeat(2000);
    let reason = long.clone();
    let mut w = driver([fake("No").filter(move |_, _, _| Status::unschedulable(reason.clone()))]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    let message = format!("0/1 nodes are available: 1 {long}.");
    assert_eq!(w.attempt(), message);
    let note = &w.events[0].event.note;
    assert_eq!(note.len(), 1024);
    assert_eq!(*note, format!("{} ...", &message[..1020]));
    assert!(w.calls_text()[0].ends_with(&message), "the whole of it");
}

/// C-16, case 204: the nominated node is tried alone. If it does not fit, or does not exist, all other nodes are tried.
#[test]
fn a_nominated_node_comes_first_with_every_evaluator() {
    for kind in [EvaluatorKind::Plain, EvaluatorKind::Incremental] {
        for (nominated, outcome, asked, complaint) in [
            ("n1", "on n1", 1.0, None),
            ("n2", "on n1", 4.0, None),
            (
                "n9",
                "on n1",
                3.0,
                Some("Pod is nominated to a node that does not exist pod=default/p node=n9"),
            ),
        ] {
            let picky = fake("Picky")
                .filter(|_, _, node| match node.name().as_str() {
                    "n1" => Status::success(),
                    _ => Status::unschedulable("no"),
                })
                .score(|_, _, _| Ok(0));
            let mut w = driver_with([picky, binder()], |options| options.evaluator = kind);
            for name in ["n0", "n1", "n2"] {
                w.applied(node(name).object());
            }
            w.pod(pod("p").nominated(nominated));
            assert_eq!(w.attempt(), outcome, "{kind}, {nominated}");
            let labels = ["Picky", "Filter", "default-scheduler"];
            let calls = w.metric(Metric::PluginEvaluation, &labels);
            assert_eq!(calls, asked, "{kind}, {nominated}");
            let complaints = w.logged("Pod ");
            let expected: Vec<_> = complaint
                .map(|c| (LogLevel::Error, c.to_owned()))
                .into_iter()
                .collect();
            assert_eq!(complaints, expected, "{kind}, {nominated}");
        }
    }
}

/// C-19, case 199: a profile's own percentage takes precedence over the global one. Zero means all nodes.
#[test]
fn a_profile_states_how_many_nodes_to_look_for() {
    for (common, own, asked) in [
        (None, None, 300.0),
        (Some(50), None, 150.0),
        (Some(100), Some(40), 120.0),
        (Some(40), Some(0), 300.0),
        (Some(0), None, 300.0),
    ] {
        let plugin = fake("A")
            .filter(|_, _, _| Status::success())
            .score(|_, _, _| Ok(0));
        let mut w = driver_with([plugin, binder()], |options| {
            options.percentage_of_nodes_to_score = common;
            options.profiles[0].percentage_of_nodes_to_score = own;
        });
        for i in 0..300 {
            w.applied(node(&format!("n{i}")).object());
        }
        w.pod(pod("p"));
        w.attempt();
        let labels = ["A", "Filter", "default-scheduler"];
        let calls = w.metric(Metric::PluginEvaluation, &labels);
        assert_eq!(calls, asked, "{common:?}, {own:?}");
    }
}

/// C-10, C-11: there is no copy of the cluster that could be outdated: a decision includes all earlier inputs, and the
/// order of the nodes follows additions and deletions.
#[test]
fn a_decision_knows_what_arrived_before_it() {
    let mut w = driver([fits()]);
    w.applied(node("n1").capacity("1", "1Gi", "9").object());
    w.pod(pod("a").request("cpu", "1"));
    w.pod(pod("b").request("cpu", "1"));
    w.pod(pod("c").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    // Neither the binding nor its confirmation is needed for the next decision, but a new node is.
    w.applied(node("n2").capacity("1", "1Gi", "9").object());
    assert_eq!(w.attempt(), "on n2");
    let gone = node("n1").object();
    w.gone(gone);
    assert_eq!(w.attempt(), "0/1 nodes are available: 1 Insufficient cpu.");
    let order = |w: &Driver| -> Vec<String> {
        let nodes = &w.scheduler.cache().cluster().nodes;
        let views = nodes.iter().map(|view| view.name().to_string());
        views.collect()
    };
    assert_eq!(order(&w), ["n2"]);
    w.applied(node("n1").capacity("1", "1Gi", "9").object());
    assert_eq!(order(&w).len(), 2);
    assert_eq!(w.on("n1"), ["a"], "its pod had stayed");
}

/// C-12, edge case 197: no plugin rejected the pod, and PostFilter does not run.
#[test]
fn without_nodes_a_pod_is_retried_by_backoff() {
    let tries = fake("Tries").post_filter(|_, _, _, _| panic!("there is no node to make room on"));
    let mut w = driver([fits(), tries]);
    w.pod(pod("p"));
    let message = "no nodes available to schedule pods";
    assert_eq!(w.attempt(), message);
    assert_eq!(
        w.calls_text(),
        [format!(
            "patch p PodScheduled=False Unschedulable: {message}"
        )]
    );
    assert_eq!(w.place_of("p"), Some(QueuedIn::ErrorBackoff));
    assert_eq!(w.rejectors_of("p"), (vec![], vec![]));
    let (_, info) = w.scheduler.queue().get("default", "p").unwrap();
    assert_eq!((info.in_a_row.errors, info.unschedulable_count), (1, 0));
    let labels = ["unschedulable", "default-scheduler"];
    assert_eq!(w.metric(Metric::ScheduleAttempts, &labels), 1.0);
    w.answer_all();
    w.applied(node("n1").object());
    assert_eq!(w.attempt(), "idle");
    w.advance(Duration::from_secs(3));
    assert_eq!(w.attempt(), "on n1");
}

/// C-33, edge case 226: the failure of a plugin is an error, and the nomination ends.
#[test]
fn errors_are_retried_and_end_the_nomination() {
    let broken =
        fake("Broken").pre_filter(|_, _, _| PreFilterResult::Reject(Status::error("oops")));
    let mut w = driver([broken]);
    w.applied(node("n1").object());
    w.pod(pod("p").nominated("n1"));
    let message = "running PreFilter plugin \"Broken\": oops";
    assert_eq!(w.attempt(), format!("error: {message}"));
    assert_eq!(
        w.calls_text(),
        [format!(
            "patch p PodScheduled=False SchedulerError: {message} nominated=\"\""
        )]
    );
    assert_eq!(w.place_of("p"), Some(QueuedIn::ErrorBackoff));
    assert_eq!(
        w.metric(Metric::ScheduleAttempts, &["error", "default-scheduler"]),
        1.0
    );
    assert!(
        w.scheduler
            .cache()
            .effective("uid-p")
            .unwrap()
            .status
            .nominated_node_name
            .is_empty()
    );
}

/// C-5, edge cases 220, 221 and 230.
#[test]
fn pods_that_need_no_node_are_dropped() {
    let mut w = driver([fits()]);
    w.applied(node("n1").object());
    w.pod(pod("deleting").deleting(w.now));
    assert_eq!(w.attempt(), "skipped");
    assert_eq!(
        w.events_text(),
        ["Warning FailedScheduling skip schedule deleting pod: default/deleting"]
    );
    w.pod(pod("other").scheduler("somebody-else"));
    assert_eq!(w.attempt(), "idle");
    assert_eq!(w.scheduler.queue().in_flight().len(), 0);
}

/// C-4, case 230: if no profile has the scheduler name of a pod any more when the pod is popped, the pod is dropped and
/// an error is logged.
#[test]
fn a_pod_of_no_profile_is_dropped() {
    let mut w = driver([fits()]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.change("p", |p| p.scheduler("nobody"));
    assert_eq!(w.attempt(), "skipped");
    let line = "profile not found for the scheduler name of a pod pod=default/p profile=nobody";
    assert_eq!(
        w.logged("profile not found"),
        [(LogLevel::Error, line.to_owned())]
    );
    assert_eq!(
        (w.place_of("p"), w.scheduler.queue().in_flight().len()),
        (None, 0)
    );
    assert!(w.calls.is_empty() && w.events.is_empty());
}

/// C-5, case 221: a pod that was queued again although it is placed is dropped silently; its binding continues.
#[test]
fn a_pod_that_is_placed_already_is_dropped_silently() {
    let mut w = driver([fits()]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    assert_eq!(w.attempt(), "on n1");
    let stored = w.scheduler.cache().stored("uid-p").unwrap().clone();
    let (queue, cx) = w.scheduler.core.queue_with_context();
    queue.add(&cx, stored);
    assert_eq!(w.place_of("p"), Some(QueuedIn::Active));
    assert_eq!(w.attempt(), "skipped");
    assert_eq!(
        (w.place_of("p"), w.scheduler.queue().in_flight().len()),
        (None, 0)
    );
    assert!(w.log.is_empty() && w.events.is_empty());
    w.answer_all();
    assert_eq!(w.on("n1"), ["p"]);
}

/// C-45: the gauge of bindings increases and decreases, whatever their result.
#[test]
fn bindings_are_counted_while_they_last() {
    let mut w = driver([fits()]);
    w.applied(node("n1").object());
    let binding = |w: &Driver| w.metric(Metric::Goroutines, &["binding"]);
    w.pod(pod("a"));
    w.pod(pod("b"));
    w.attempt();
    w.attempt();
    assert_eq!(binding(&w), 2.0);
    w.answer(None);
    assert_eq!(binding(&w), 1.0);
    w.answer(Some("no"));
    assert_eq!(binding(&w), 0.0);
}

/// C-45.
#[test]
fn the_metrics_can_be_rendered() {
    let mut w = driver([fits()]);
    w.applied(node("n1").capacity("1", "8Gi", "10").object());
    w.pod(pod("a").request("cpu", "1"));
    w.pod(pod("b").request("cpu", "1"));
    w.attempt();
    w.attempt();
    let text = w.scheduler.metrics().render();
    for line in [
        "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"unschedulable\"} 1",
        "scheduler_pending_pods{queue=\"unschedulable\"} 1",
        "scheduler_cache_size{type=\"assumed_pods\"} 1",
        "scheduler_goroutines{operation=\"binding\"} 1",
        "scheduler_plugin_evaluation_total{extension_point=\"Filter\",plugin=\"Fits\",profile=\"default-scheduler\"} 2",
        "scheduler_queue_incoming_pods_total{event=\"UnschedulablePodAdd\",queue=\"active\"} 2",
        "scheduler_unschedulable_pods{plugin=\"Fits\",profile=\"default-scheduler\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}
