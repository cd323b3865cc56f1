//! Events for pods in flight, and for pods whose plugin names the wrong pods for an event (KEP-6132).

use super::fakes::{driver, fits};
use crate::testing::Driver;
use berth_api::{Duration, Pod};
use berth_framework::event::{EventRegistration, Narrowed, Touched};
use berth_framework::plugin::{Nominating, PermitStep, PostFilterResult, PostFilterStep};
use berth_framework::stage::{Step, Wait, WaitOn};
use berth_framework::testing::{PodBuilder, fake, node, pod};
use berth_framework::{ActionType, EventResource, Hint, Status};
use berth_queue::QueuedIn;
use berth_telemetry::metrics::Metric;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A node that fits `p` only once `open` is set, and a plugin that receives this change through `registration`.
fn shut_out(registration: EventRegistration) -> (Driver, Arc<AtomicBool>) {
    let gate = Arc::new(AtomicBool::new(false));
    let open = gate.clone();
    let mut w = driver([fake("Narrow")
        .filter(move |_, _, _| {
            if open.load(Ordering::Relaxed) {
                Status::success()
            } else {
                Status::unschedulable("shut")
            }
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

/// with its fix: with a wrong PreQueueingHint or key, no event wakes the pod; the flush does, and
/// counts it. A correct one wakes the pod, and nothing is counted.
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
            on_new_nodes().touching(|_, _| Touched::no_pod()),
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

/// a nomination ends when the pod is placed, because the cluster counts it from then on, and when it is deleted.
#[test]
fn a_nomination_ends_when_the_pod_is_placed_or_gone() {
    type Change = fn(&mut Driver);
    let cases: [(&str, Change); 2] = [
        ("placed", |w| assert_eq!(w.attempt(), "on n1")),
        ("gone", |w| w.deleted("p")),
    ];
    for (situation, change) in cases {
        let mut w = driver([fits()]);
        w.applied(node("n1").object());
        w.pod(pod("p").nominated("n1"));
        let nominated = |w: &Driver| w.scheduler.queue().nominator().pods_on("n1").len();
        assert_eq!(nominated(&w), 1);
        change(&mut w);
        assert_eq!(nominated(&w), 0, "{situation}");
    }
}

/// a pod is in flight as long as an event may still help it: until it is returned to the queue, skipped or
/// deleted, or Permit allows it. Afterwards no events are kept for it.
#[test]
fn a_flight_lasts_while_events_may_help() {
    let permit = || {
        let held = |pod: &Pod| pod.labels().contains_key("held");
        fake("Permit")
            .permit(move |_, pod, _, _| {
                if held(&pod.pod) {
                    PermitStep::Hold(Duration::from_secs(60))
                } else {
                    PermitStep::Done(Status::success())
                }
            })
            .events(Vec::new)
    };
    let slow = || {
        fake("Slow").pre_bind(|cx, _, _, _, wake| match wake {
            None => Step::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_secs(60),
            }),
            Some(_) => Step::success(),
        })
    };
    type Change = fn(&mut Driver);
    let cases: [(&str, PodBuilder, Change, usize, Option<QueuedIn>); 8] = [
        (
            "fits nowhere",
            pod("p").request("cpu", "9"),
            |_| {},
            0,
            Some(QueuedIn::Unschedulable),
        ),
        ("held back", pod("p").label("held", ""), |_| {}, 1, None),
        (
            "held back for too long",
            pod("p").label("held", ""),
            |w| {
                w.advance(Duration::from_secs(61));
            },
            0,
            Some(QueuedIn::Unschedulable),
        ),
        (
            "held back, then gone",
            pod("p").label("held", ""),
            |w| w.deleted("p"),
            0,
            None,
        ),
        ("being prepared", pod("p"), |_| {}, 0, None),
        (
            "being prepared, then gone",
            pod("p"),
            |w| w.deleted("p"),
            0,
            None,
        ),
        (
            "being bound",
            pod("p"),
            |w| {
                w.advance(Duration::from_secs(61));
            },
            0,
            None,
        ),
        (
            "notified before it was tried",
            pod("p").deleting(berth_api::Time::EPOCH),
            |_| {},
            0,
            None,
        ),
    ];
    for (situation, p, change, in_flight, place) in cases {
        let mut w = driver([fits(), permit(), slow()]);
        w.applied(node("n1").capacity("2", "1Gi", "9").object());
        w.pod(p);
        w.attempt();
        w.answer_all();
        change(&mut w);
        w.answer_all();
        assert_eq!(
            w.scheduler.queue().in_flight().len(),
            in_flight,
            "{situation}"
        );
        assert_eq!(w.place_of("p"), place, "{situation}");
        w.pod(pod("x").on("n1"));
        w.deleted("x");
        let logged = w.scheduler.queue().in_flight().events_len();
        assert_eq!(
            logged > 0,
            in_flight > 0,
            "{situation}: {logged} events kept"
        );
    }
}

/// a nominated pod that is placed on another node, or fails permanently, does not need its nominated node
/// any more. Pods of no higher priority that had to respect the nomination are tried again at once, not only when the
/// watch shows its end.
#[test]
fn a_pod_that_a_nomination_blocked_is_woken_when_it_ends() {
    #[derive(Clone, Copy, PartialEq)]
    enum Mood {
        Unfit,
        Fits,
        Breaks,
    }
    for (mood, outcome) in [
        (Mood::Unfit, "0/2"),
        (Mood::Fits, "on n1"),
        (Mood::Breaks, "error"),
    ] {
        let changed = Arc::new(AtomicBool::new(false));
        let has_changed = changed.clone();
        // The nominee is rejected on n2, and at first on n1; the other pod is rejected on n1.
        let picky = fake("Picky")
            .filter(move |_, pod, node| {
                let mood = if has_changed.load(Ordering::Relaxed) {
                    mood
                } else {
                    Mood::Unfit
                };
                match (pod.pod.name().as_str(), node.name().as_str(), mood) {
                    ("nominee", _, Mood::Breaks) => Status::error("oops"),
                    ("nominee", "n1", Mood::Fits) | ("other", "n2", _) => Status::success(),
                    _ => Status::unschedulable("no"),
                }
            })
            .post_filter(|_, _, _, _| {
                PostFilterStep::Done(PostFilterResult {
                    status: Status::unschedulable("no room to make"),
                    nominating: Nominating::Keep,
                })
            })
            .events(Vec::new);
        let mut w = driver([fits(), picky]);
        w.applied(node("n1").capacity("1", "1Gi", "9").object());
        w.applied(node("n2").capacity("1", "1Gi", "9").object());
        w.pod(
            pod("nominee")
                .priority(5)
                .nominated("n2")
                .request("cpu", "1"),
        );
        assert!(w.attempt().starts_with("0/2"));
        w.pod(pod("other").priority(1).request("cpu", "1"));
        assert!(w.attempt().starts_with("0/2"));
        w.pod(pod("above").priority(9).request("cpu", "2"));
        assert!(w.attempt().starts_with("0/2"));
        w.answer_all();
        assert_eq!(w.place_of("other"), Some(QueuedIn::Unschedulable));
        changed.store(true, Ordering::Relaxed);
        let nominee = w.scheduler.cache().effective("uid-nominee").cloned();
        let (queue, cx) = w.scheduler.core.queue_with_context();
        queue.activate(&cx, &[nominee.expect("it is stored")]);
        assert!(w.attempt().starts_with(outcome));
        let place = match mood {
            Mood::Unfit => QueuedIn::Unschedulable,
            Mood::Fits | Mood::Breaks => QueuedIn::Backoff,
        };
        assert_eq!(w.place_of("other"), Some(place), "{outcome}");
        let above = w.place_of("above");
        assert_eq!(above, Some(QueuedIn::Unschedulable), "{outcome}");
    }
}
