//! Whole cycles: from the queue to a bound pod, or why not.

use super::*;
use crate::Outcome;
use crate::metrics::Metric;
use crate::queue::QueuedIn;
use berth_api::Duration;
use berth_framework::Status;
use berth_framework::call::EventKind;
use berth_framework::plugin::PreFilterResult;
use berth_framework::testing::{fake, node, pod};

#[test]
fn a_pod_is_placed_bound_and_confirmed() {
    let mut w = world([fits()]);
    w.applied(node("n1").capacity("4", "8Gi", "10").object());
    w.pod(pod("web").request("cpu", "2"));
    assert_eq!(w.attempt(), "on n1");
    assert_eq!(w.on("n1"), ["web"], "counted before the API knows");
    assert_eq!(
        w.calls_text(),
        ["bind web n1"],
        "no nomination for a binding at once"
    );
    assert_eq!(w.core.bindings_in_flight(), 1);
    assert_eq!(w.events_text(), Vec::<String>::new());

    w.answer_all();
    assert_eq!(w.core.bindings_in_flight(), 0);
    assert_eq!(w.core.cache().assumed_pods(), 0);
    assert_eq!(w.on("n1"), ["web"]);
    let event = &w.events[0];
    assert_eq!(event.reporting_controller, "default-scheduler");
    assert_eq!(
        (event.event.kind, event.event.action),
        (EventKind::Normal, "Binding")
    );
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
    assert_eq!(w.core.queue().in_flight_len(), 0);
    assert!(matches!(w.schedule(), Outcome::Idle { next_wake: None }));
}

/// C-1, C-35.
#[test]
fn placed_pods_take_room_before_they_are_bound() {
    let mut w = world([fits()]);
    w.applied(node("n1").capacity("3", "8Gi", "10").object());
    for name in ["a", "b", "c", "d"] {
        w.pod(pod(name).request("cpu", "1"));
        w.advance(Duration::from_millis(1));
    }
    let outcomes: Vec<String> = (0..4).map(|_| w.attempt()).collect();
    assert_eq!(outcomes[..3], ["on n1", "on n1", "on n1"]);
    assert_eq!(outcomes[3], "0/1 nodes are available: 1 Insufficient cpu.");
    assert_eq!(w.core.bindings_in_flight(), 3);
}

/// C-32, C-46 to C-49.
#[test]
fn a_pod_that_fits_nowhere_is_told_why_and_waits_for_an_event() {
    let mut w = world([fits()]);
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
    let explanation = w.core.explanation("uid-big").unwrap();
    assert_eq!(explanation.unschedulable_plugins, ["Fits"]);
    assert_eq!(explanation.reasons[0].examples, ["n1"]);
    w.answer_all();

    // A second failure says the same: an event, but no write.
    w.applied(node("n2").capacity("1", "8Gi", "10").object());
    assert_eq!(w.place_of("big"), Some(QueuedIn::Backoff));
    w.change("big", |p| p.label("x", "y"));
    w.advance(Duration::from_secs(3));
    assert!(w.attempt().starts_with("0/2"));
    assert_eq!(w.calls.len(), 1, "the message has changed");
    w.answer_all();
    w.deleted("nobody");
    w.applied(node("n3").capacity("2", "8Gi", "10").object());
    w.advance(Duration::from_secs(5));
    assert_eq!(w.attempt(), "on n3");
    w.answer_all();
    assert!(w.core.explanation("uid-big").is_none());
}

/// C-50, edge case 228.
#[test]
fn what_the_pod_says_already_is_not_written_again() {
    let mut w = world([fake("No").filter(|_, _, _| Status::unschedulable("no"))]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    w.answer_all();
    w.events.clear();
    w.advance(Duration::from_secs(301));
    w.advance(Duration::from_secs(31));
    assert_eq!(w.attempt(), "0/1 nodes are available: 1 no.");
    assert_eq!(w.calls_text(), Vec::<String>::new());
    assert_eq!(w.events.len(), 1, "people are told all the same");
}

/// C-12, edge case 197.
#[test]
fn without_nodes_a_pod_is_retried_by_backoff() {
    let mut w = world([fits()]);
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
    w.answer_all();
    w.applied(node("n1").object());
    assert_eq!(w.attempt(), "idle");
    w.advance(Duration::from_secs(3));
    assert_eq!(w.attempt(), "on n1");
}

/// C-33, edge case 226: a broken plugin is an error, and the nomination ends.
#[test]
fn errors_are_retried_and_end_the_nomination() {
    let broken =
        fake("Broken").pre_filter(|_, _, _| PreFilterResult::Reject(Status::error("oops")));
    let mut w = world([broken]);
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
        w.core
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
    let mut w = world([fits()]);
    w.applied(node("n1").object());
    w.pod(pod("deleting").deleting(w.now));
    assert_eq!(w.attempt(), "skipped");
    assert_eq!(
        w.events_text(),
        ["Warning FailedScheduling skip schedule deleting pod: default/deleting"]
    );
    w.pod(pod("other").scheduler("somebody-else"));
    assert_eq!(w.attempt(), "idle");
    assert_eq!(w.core.queue().in_flight_len(), 0);
}

/// C-45.
#[test]
fn the_metrics_can_be_rendered() {
    let mut w = world([fits()]);
    w.applied(node("n1").capacity("1", "8Gi", "10").object());
    w.pod(pod("a").request("cpu", "1"));
    w.pod(pod("b").request("cpu", "1"));
    w.attempt();
    w.attempt();
    let text = w.core.metrics().render();
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
