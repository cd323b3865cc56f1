//! What becomes of a pod whose plugin names the wrong pods for an event (KEP-6132).

use super::world::{World, world};
use crate::metrics::Metric;
use crate::queue::QueuedIn;
use berth_api::Duration;
use berth_framework::event::{EventRegistration, Narrowed, Touched};
use berth_framework::testing::{fake, node, pod};
use berth_framework::{ActionType, EventResource, Hint, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A node that `p` fits on only once `open` says so, and a plugin that is told of it by `registration`.
fn shut_out(registration: EventRegistration) -> (World, Arc<AtomicBool>) {
    let gate = Arc::new(AtomicBool::new(false));
    let open = gate.clone();
    let mut w = world([fake("Narrow")
        .filter(move |_, _, _| match open.load(Ordering::Relaxed) {
            true => Status::success(),
            false => Status::unschedulable("shut"),
        })
        .events(move || vec![registration.clone()])]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    (w, gate)
}

fn on_new_nodes() -> EventRegistration {
    EventRegistration::with_hint(EventResource::Node, ActionType::ADD, |_, _, _| {
        Ok(Hint::Queue)
    })
}

/// with its fix: a wrong PreQueueingHint, or a wrong key, loses the pod; the flush rescues it and
/// counts it. A right one wakes it, and nothing is counted.
#[test]
fn a_pod_that_an_event_should_have_named_is_rescued_and_counted() {
    let named = |name: &'static str| {
        on_new_nodes()
            .narrowed_by(move |_, _| Ok(Narrowed::Pods(vec![("default".into(), name.into())])))
    };
    for (situation, registration, narrowed, rescued) in [
        ("named", named("p"), 1.0, 0.0),
        ("another one named", named("q"), 1.0, 1.0),
        (
            "touched",
            on_new_nodes().touching(|_, _| Touched::everything()),
            0.0,
            0.0,
        ),
        (
            "not touched",
            on_new_nodes().touching(|_, _| Touched::nobody()),
            0.0,
            1.0,
        ),
    ] {
        let (mut w, gate) = shut_out(registration);
        gate.store(true, Ordering::Relaxed);
        w.advance(Duration::from_secs(10));
        w.applied(node("n2").object());
        let woken = w.place_of("p") == Some(QueuedIn::Active);
        assert_eq!(woken, rescued == 0.0, "{situation}");
        w.advance(Duration::from_secs(400));
        assert!(w.attempt().starts_with("on n"), "{situation}");
        w.answer_all();
        let labels = ["Narrow", "narrowed"];
        let evaluations = w.metric(Metric::PreQueueingHintEvaluations, &labels);
        assert_eq!(evaluations, narrowed, "{situation}");
        let rescues = w.metric(Metric::PodScheduledAfterFlush, &[]);
        assert_eq!(rescues, rescued, "{situation}");
    }
}
