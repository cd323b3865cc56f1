//! Waiting pods of one template: an event wakes one of them, and the next one follows it.

use super::*;
use berth_api::Duration;
use berth_framework::testing::{PodBuilder, node, pod};
use berth_queue::QueuedIn;
use berth_telemetry::metrics::Metric;

/// A node that is full with `count` pods, and the same number of waiting pods, `p0` first.
fn full(count: usize) -> Driver {
    let mut w = driver([fits_alike()]);
    let cpu = count.to_string();
    w.applied(node("n1").capacity(&cpu, "1Gi", "9999").object());
    for n in 0..count {
        let filler = pod(&format!("filler{n}")).request("cpu", "1");
        w.pod(filler.on("n1"));
    }
    for n in 0..count {
        w.pod(waiting(n));
        w.advance(Duration::from_millis(1));
        assert_eq!(w.attempt(), "0/1 nodes are available: 1 Insufficient cpu.");
        w.answer_all();
    }
    w.advance(Duration::from_secs(5));
    w
}

fn waiting(n: usize) -> PodBuilder {
    pod(&format!("p{n}")).request("cpu", "1")
}

/// The attempts until no pod can be tried.
fn attempts(w: &mut Driver) -> Vec<String> {
    let mut attempts = Vec::new();
    while w.scheduler.has_pod_to_try() {
        attempts.push(w.attempt());
    }
    w.answer_all();
    attempts
}

/// independent of the number of waiting pods of a template, a free slot costs two evaluations, one of them an
/// attempt, and the pods get their slots in the order of the queue.
#[test]
fn a_freed_slot_is_offered_to_one_waiting_pod_after_another() {
    for count in [3, 40] {
        let mut w = full(count);
        for n in 0..count {
            w.deleted(&format!("filler{n}"));
            let next = "0/1 nodes are available: 1 Insufficient cpu.";
            let expected = if n + 1 == count {
                vec!["on n1"]
            } else {
                vec!["on n1", next]
            };
            assert_eq!(attempts(&mut w), expected, "slot {n} of {count}");
            assert!(
                w.pods[&format!("p{n}")].is_assigned(),
                "slot {n} of {count}"
            );
        }
        let scheduled = w.metric(
            Metric::ScheduleAttempts,
            &["scheduled", "default-scheduler"],
        );
        let rejected = w.metric(
            Metric::ScheduleAttempts,
            &["unschedulable", "default-scheduler"],
        );
        let avoided = w.metric(Metric::AttemptsAvoided, &["default-scheduler"]);
        let counted = (scheduled, rejected, avoided);
        let expected = count as f64;
        assert_eq!(counted, (expected, expected, expected - 1.0));
    }
}

/// free resources for several pods are used at once.
#[test]
fn waiting_pods_of_a_template_use_all_room_that_is_freed() {
    let mut w = full(5);
    w.applied(node("n2").capacity("3", "1Gi", "9999").object());
    let tried = attempts(&mut w);
    assert_eq!(tried[..3], ["on n2"; 3]);
    assert_eq!(tried.len(), 4, "{tried:?}");
    assert_eq!(w.on("n2"), ["p0", "p1", "p2"]);
}

/// if a woken pod does not use its turn, the next pod gets it.
#[test]
fn the_next_pod_of_a_template_is_tried_when_the_woken_one_is_not_placed() {
    type Change = fn(&mut Driver);
    let cases: [(&str, Change); 6] = [
        ("deleted", |w| w.deleted("p0")),
        ("terminating", |w| {
            let now = w.now;
            w.change("p0", |p| p.deleting(now));
        }),
        ("grown", |w| {
            w.change("p0", |_| waiting(0).request("cpu", "9"))
        }),
        ("gated", |w| {
            w.change("p0", |p| p.nominated("n9").request("cpu", "9"))
        }),
        ("bound elsewhere", |w| w.change("p0", |p| p.on("n9"))),
        ("another uid", |w| {
            w.pod(waiting(0).uid("another").request("cpu", "9"));
        }),
    ];
    for (situation, change) in cases {
        for woken_before in [true, false] {
            let mut w = full(3);
            if !woken_before {
                change(&mut w);
            }
            w.deleted("filler0");
            if woken_before {
                change(&mut w);
            }
            attempts(&mut w);
            let placed = w.pods["p1"].is_assigned();
            assert!(placed, "{situation}, woken before: {woken_before}");
            assert!(!w.pods["p2"].is_assigned());
            // Events still wake the other pods.
            w.deleted("filler1");
            attempts(&mut w);
            assert!(w.pods["p2"].is_assigned(), "{situation}, later");
        }
    }
}

/// the resources of a failed binding are offered to the next pod.
#[test]
fn the_next_pod_of_a_template_gets_the_room_of_a_failed_binding() {
    let mut w = full(2);
    w.deleted("filler0");
    assert_eq!(w.attempt(), "on n1");
    while w.scheduler.has_pod_to_try() {
        w.attempt();
    }
    w.fail(berth_framework::call::CallErrorKind::Refused);
    assert_eq!(w.attempt(), "on n1");
    w.answer_all();
    assert!(w.pods["p1"].is_assigned());
    assert_eq!(w.place_of("p0"), Some(QueuedIn::ErrorBackoff));
}
