//! The handling of pods whose attempt fails: PostFilter, Reserve, Permit, and the failure handler.

use super::*;
use crate::LogLevel;
use berth_api::Duration;
use berth_framework::call::CallErrorKind;
use berth_framework::plugin::{Nominating, PermitStep, PostFilterResult, PostFilterStep};
use berth_framework::stage::Step;
use berth_framework::testing::{FakePlugin, fake, node, pod};
use berth_framework::{Feature, FeatureGates, Status};
use berth_queue::QueuedIn;
use berth_telemetry::metrics::{Metric, SeriesValue};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn post_filter(name: &str, status: Status, nominating: Nominating) -> FakePlugin {
    fake(name).post_filter(move |_, _, _, _| {
        PostFilterStep::Done(PostFilterResult {
            status: status.clone(),
            nominating: nominating.clone(),
        })
    })
}

/// F-10, C-30, C-32.
#[test]
fn post_filter_adds_its_word_and_nominates() {
    let no = || fake("No").filter(|_, _, _| Status::unschedulable("no"));
    let set = |node: &str| Nominating::Set(node.into());
    let base = "0/1 nodes are available: 1 no.";
    for (situation, plugins, message, nominated) in [
        ("no plugin tries", vec![], base.to_owned(), Some("")),
        (
            "success nominates",
            vec![post_filter("A", Status::success(), set("n1"))],
            base.to_owned(),
            Some("n1"),
        ),
        (
            "all state why not",
            vec![
                post_filter(
                    "A",
                    Status::unschedulable("nothing to free"),
                    Nominating::Keep,
                ),
                post_filter("B", Status::unschedulable("preemption: no"), set("")),
            ],
            format!("{base} nothing to free, preemption: no"),
            Some(""),
        ),
        (
            "the first success ends it",
            vec![
                post_filter("A", Status::success(), set("n1")),
                post_filter("B", Status::unschedulable("not asked"), set("n2")),
            ],
            base.to_owned(),
            Some("n1"),
        ),
        (
            "unresolvable ends it",
            vec![
                post_filter("A", Status::unresolvable("never"), Nominating::Keep),
                post_filter("B", Status::success(), set("n1")),
            ],
            format!("{base} never"),
            None,
        ),
        (
            "an error is only logged",
            vec![post_filter("A", Status::error("broken"), set("n1"))],
            format!("{base} broken"),
            None,
        ),
        (
            "after an error no plugin is asked",
            vec![
                post_filter("A", Status::error("broken"), Nominating::Keep),
                post_filter("B", Status::success(), set("n1")),
            ],
            format!("{base} broken"),
            None,
        ),
        (
            "who has no opinion leaves that of another",
            vec![
                post_filter("A", Status::unschedulable("a"), set("n1")),
                post_filter("B", Status::pending("b"), Nominating::Keep),
            ],
            format!("{base} a, b"),
            Some("n1"),
        ),
        (
            "the last opinion counts",
            vec![
                post_filter("A", Status::unschedulable("a"), set("n1")),
                post_filter("B", Status::unschedulable("b"), set("n2")),
            ],
            format!("{base} a, b"),
            Some("n2"),
        ),
    ] {
        let mut w = driver([no()].into_iter().chain(plugins));
        w.applied(node("n1").object());
        w.pod(pod("p").nominated("n0"));
        assert_eq!(w.attempt(), message, "{situation}");
        let mut patch = format!("patch p PodScheduled=False Unschedulable: {message}");
        if let Some(node) = nominated {
            patch += &format!(" nominated={node:?}");
        }
        assert_eq!(w.calls_text(), [patch], "{situation}");
        let complaint = w.logged("Status after running PostFilter").len();
        assert_eq!(
            complaint,
            usize::from(message.contains("broken")),
            "{situation}"
        );
        let labels = ["unschedulable", "default-scheduler"];
        let unschedulable = w.metric(berth_telemetry::metrics::Metric::ScheduleAttempts, &labels);
        assert_eq!(unschedulable, 1.0, "{situation}");
        assert_eq!(w.rejectors_of("p").0, ["No"], "{situation}");
        let expected = nominated.unwrap_or("n0");
        let nominator = w.scheduler.queue().nominator();
        let node = nominator.node_of("uid-p").map_or("", |n| n.as_str());
        assert_eq!(node, expected, "{situation}");
    }
}

/// a nominated pod reserves its resources from pods of no higher priority at once.
#[test]
fn a_nomination_counts_before_it_is_written() {
    let nominate = fake("Preempt").post_filter(|_, pod, _, _| {
        let high = pod.pod.priority() > 0;
        PostFilterStep::Done(PostFilterResult {
            status: if high {
                Status::success()
            } else {
                Status::unschedulable("no")
            },
            nominating: if high {
                Nominating::Set("n1".into())
            } else {
                Nominating::Keep
            },
        })
    });
    let mut w = driver([fits(), nominate]);
    w.applied(node("n1").capacity("2", "1Gi", "10").object());
    w.pod(pod("running").request("cpu", "1").on("n1"));
    w.pod(pod("high").request("cpu", "2").priority(10));
    assert!(w.attempt().starts_with("0/1"));
    w.pod(pod("low").request("cpu", "1"));
    assert_eq!(
        w.attempt(),
        "0/1 nodes are available: 1 Insufficient cpu. no"
    );
    w.deleted("running");
    assert_eq!(w.place_of("high"), Some(QueuedIn::Backoff));
    w.advance(Duration::from_secs(3));
    w.answer_all();
    assert_eq!(w.attempt(), "on n1", "the nominee goes first");
    assert_eq!(w.on("n1"), ["high"]);
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Records the order of the calls of Reserve and Unreserve.
fn reserving(
    name: &'static str,
    log: &Arc<std::sync::mpsc::SyncSender<String>>,
    status: Status,
) -> FakePlugin {
    let (a, b) = (log.clone(), log.clone());
    fake(name)
        .reserve(move |_, _, pod, node, _| {
            assert_eq!(
                pod.pod.spec.node_name, *node,
                "Reserve sees the assumed pod"
            );
            let _ = a.try_send(format!("+{name}"));
            Step::Done(status.clone())
        })
        .unreserve(move |_, _| {
            let _ = b.try_send(format!("-{name}"));
        })
}

/// F-13, F-14, C-29, C-36 to C-38, edge case 212: Unreserve is also called for plugins that have reserved nothing.
#[test]
fn reserve_and_permit_failures_take_everything_back() {
    type Case = (
        &'static str,
        Status,
        Option<Status>,
        &'static str,
        &'static str,
        QueuedIn,
        (&'static [&'static str], &'static [&'static str]),
    );
    let cases: [Case; 5] = [
        (
            "Reserve rejects",
            Status::unschedulable("taken"),
            None,
            "0/1 nodes are available: 1 taken.",
            "+A +B -C -B -A",
            QueuedIn::Unschedulable,
            (&["B"], &[]),
        ),
        (
            "Reserve waits for something",
            Status::pending("soon"),
            None,
            "0/1 nodes are available: 1 soon.",
            "+A +B -C -B -A",
            QueuedIn::Unschedulable,
            (&[], &["B"]),
        ),
        (
            "Reserve breaks",
            Status::error("oops"),
            None,
            "error: running Reserve plugin \"B\": oops",
            "+A +B -C -B -A",
            QueuedIn::ErrorBackoff,
            (&[], &[]),
        ),
        (
            "Permit rejects",
            Status::success(),
            Some(Status::unschedulable("not now")),
            "0/1 nodes are available: 1 not now.",
            "+A +B +C -C -B -A",
            QueuedIn::Unschedulable,
            (&["P"], &[]),
        ),
        (
            "Permit breaks",
            Status::success(),
            Some(Status::error("oops")),
            "error: running Permit plugin \"P\": oops",
            "+A +B +C -C -B -A",
            QueuedIn::ErrorBackoff,
            (&[], &[]),
        ),
    ];
    for (situation, reserve, permit, outcome, order, place, rejectors) in cases {
        let (send, receive) = std::sync::mpsc::sync_channel(100);
        let send = Arc::new(send);
        let mut plugins = vec![
            reserving("A", &send, Status::success()),
            reserving("B", &send, reserve),
            reserving("C", &send, Status::success()),
        ];
        if let Some(status) = permit {
            plugins.push(fake("P").permit(move |_, _, _, _| PermitStep::Done(status.clone())));
        }
        let mut w = driver(plugins);
        // Two nodes, but the message is about one: these points do not evaluate the other.
        w.applied(node("n1").object()).applied(node("n2").object());
        w.pod(pod("p").nominated("n1"));
        assert_eq!(w.attempt(), outcome, "{situation}");
        let (turned_down, wait) = w.rejectors_of("p");
        assert_eq!(
            (&turned_down[..], &wait[..]),
            (&owned(rejectors.0)[..], &owned(rejectors.1)[..]),
            "{situation}"
        );
        let calls: Vec<String> = receive.try_iter().collect();
        assert_eq!(calls.join(" "), order, "{situation}");
        assert_eq!(w.on("n1"), Vec::<String>::new(), "{situation}: forgotten");
        assert_eq!(w.place_of("p"), Some(place), "{situation}");
        assert!(
            w.calls_text()[0].ends_with("nominated=\"\""),
            "{situation}: nomination cleared"
        );
    }
}

/// Q-72, F-23: pods that a plugin activates move to activeQ also when the binding succeeds, and not when it fails.
#[test]
fn plugins_can_activate_pods_at_the_end_of_a_binding() {
    for (situation, refusal, place) in [
        ("bound", None, QueuedIn::Active),
        ("failed", Some("no"), QueuedIn::Unschedulable),
    ] {
        let gang = fake("Gang")
            .events(Vec::new)
            .filter(|_, pod, _| match pod.pod.name().as_str() {
                "sibling" => Status::unschedulable("alone"),
                _ => Status::success(),
            })
            .pre_bind(|cx, _, _, _, wake| match wake {
                None => Step::Wait(berth_framework::stage::Wait {
                    on: berth_framework::stage::WaitOn::Timer,
                    deadline: cx.now + Duration::from_secs(1),
                }),
                Some(_) => {
                    cx.outbox.activate(&"default".into(), &"sibling".into());
                    Step::success()
                }
            });
        let mut w = driver([gang]);
        w.applied(node("n1").object());
        w.pod(pod("sibling"));
        w.attempt();
        w.answer_all();
        w.pod(pod("p"));
        w.attempt();
        w.answer_all();
        w.advance(Duration::from_secs(1));
        assert_eq!(
            w.place_of("sibling"),
            Some(QueuedIn::Unschedulable),
            "not yet"
        );
        w.answer(refusal);
        assert_eq!(w.place_of("sibling"), Some(place), "{situation}");
    }
}

/// Q-72, F-23: attempts overlap. Pods that the plugins of one attempt activate do not move when another attempt
/// succeeds, and are not forgotten when another attempt fails.
#[test]
fn what_one_attempt_wants_tried_is_no_business_of_another() {
    for other_fails in [true, false] {
        let gang = fake("Gang")
            .events(Vec::new)
            .filter(|_, pod, _| match pod.pod.name().as_str() {
                "sibling" | "misfit" => Status::unschedulable("alone"),
                _ => Status::success(),
            })
            .pre_bind(|cx, _, pod, _, _| {
                if pod.pod.name() == "p" {
                    cx.outbox.activate(&"default".into(), &"sibling".into());
                }
                Step::success()
            });
        let mut w = driver([gang]);
        w.applied(node("n1").object());
        w.pod(pod("sibling"));
        w.attempt();
        w.answer_all();
        w.pod(pod("p"));
        assert_eq!(w.attempt(), "on n1");
        w.pod(pod(if other_fails { "misfit" } else { "fits" }));
        assert_eq!(w.attempt().starts_with("0/1"), other_fails);
        let at = w.calls_text().iter().position(|call| call == "bind p n1");
        let binding = w.calls.remove(at.expect("p is being bound"));
        w.answer_all();
        assert_eq!(
            w.place_of("sibling"),
            Some(QueuedIn::Unschedulable),
            "not yet: {other_fails}"
        );
        w.calls.push(binding);
        w.answer_all();
        assert_eq!(
            w.place_of("sibling"),
            Some(QueuedIn::Active),
            "{other_fails}"
        );
    }
}

/// Q-72, F-23: pods that a plugin activates move to activeQ when the scheduling cycle succeeds.
#[test]
fn plugins_can_activate_pods() {
    for (situation, fails, place) in [
        ("placed", false, QueuedIn::Active),
        ("rejected", true, QueuedIn::Unschedulable),
    ] {
        let gang = fake("Gang")
            .filter(|_, pod, _| {
                if pod.pod.name() == "sibling" {
                    Status::unschedulable("alone")
                } else {
                    Status::success()
                }
            })
            .permit(move |cx, _, _, _| {
                cx.outbox.activate(&"default".into(), &"sibling".into());
                PermitStep::Done(if fails {
                    Status::unschedulable("no")
                } else {
                    Status::success()
                })
            });
        let mut w = driver([gang]);
        w.applied(node("n1").object());
        w.pod(pod("sibling"));
        w.attempt();
        w.pod(pod("p"));
        w.attempt();
        assert_eq!(w.place_of("sibling"), Some(place), "{situation}");
    }
}

/// D-1, D-20: also with the gate off, a failed pod is back in the queue before its status is written, and the loop
/// continues during the write. The metrics of the feature have no values.
#[test]
fn without_async_calls_the_loop_does_not_wait() {
    let features = FeatureGates::default()
        .with(Feature::SchedulerAsyncAPICalls, false)
        .with(Feature::SchedulerPreEnqueuePodStatus, false);
    let mut w = driver_of([fits(), binder()], features);
    w.applied(node("n1").capacity("1", "1Gi", "10").object());
    w.pod(pod("big").request("cpu", "2"));
    assert!(w.attempt().starts_with("0/1"));
    assert_eq!(w.place_of("big"), Some(QueuedIn::Unschedulable));
    assert_eq!(w.scheduler.queue().in_flight().len(), 0);
    assert_eq!(w.metric(Metric::PendingPods, &["unschedulable"]), 1.0);
    let text = w.scheduler.metrics().render();
    for family in ["execution_total", "execution_duration_seconds_count"] {
        assert!(!text.contains(&format!("scheduler_async_api_call_{family}{{")));
    }
    assert!(!text.contains("scheduler_pending_async_api_calls{"));
    w.pod(pod("small").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1", "the loop does not wait");
    // An event during the call is not lost.
    w.applied(node("n2").capacity("4", "1Gi", "10").object());
    w.answer(Some("the server is busy"));
    assert_eq!(w.place_of("big"), Some(QueuedIn::Backoff));
    assert_eq!(
        w.logged("Failed to write an object pod=default/big").len(),
        1
    );
    w.answer_all();
    w.advance(Duration::from_secs(3));
    assert_eq!(w.attempt(), "on n2");
}

/// The failed status patch of a pod that was deleted during the call is not logged as an error.
#[test]
fn only_writes_that_should_have_worked_are_errors_in_the_log() {
    let cases = [
        (CallErrorKind::NotFound, LogLevel::Info(4)),
        (CallErrorKind::Refused, LogLevel::Error),
    ];
    for (kind, level) in cases {
        let mut w = driver([fits()]);
        w.applied(node("n1").capacity("1", "1Gi", "10").object());
        w.pod(pod("big").request("cpu", "2"));
        w.attempt();
        w.scheduler.set_log_verbosity(4);
        w.fail(kind);
        let line = w
            .log
            .iter()
            .find(|l| l.message == "Failed to write an object");
        assert_eq!(line.map(|l| l.level), Some(level), "{kind:?}");
    }
}

/// C-47: the rejecting plugins of the previous attempt are removed when an attempt fails for another reason or with an
/// error.
#[test]
fn every_failure_has_its_own_rejectors() {
    let mood = Arc::new(AtomicUsize::new(0));
    let seen = mood.clone();
    let statement = |name: &'static str, at: usize, status: Status| {
        let mood = seen.clone();
        fake(name).filter(move |_, _, _| {
            if mood.load(Ordering::Relaxed) == at {
                status.clone()
            } else {
                Status::success()
            }
        })
    };
    let mut w = driver([
        statement("A", 0, Status::unschedulable("a")),
        statement("B", 1, Status::pending("b")),
        statement("C", 2, Status::error("c")),
    ]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    for (now, rejectors) in [
        (0, (vec!["A".to_owned()], vec![])),
        (1, (vec![], vec!["B".to_owned()])),
        (2, (vec![], vec![])),
    ] {
        mood.store(now, Ordering::Relaxed);
        w.attempt();
        assert_eq!(w.rejectors_of("p"), rejectors);
        w.answer_all();
        w.advance(Duration::from_secs(400));
    }
}

/// C-46, C-48, C-49, edge cases 222 to 225. The pod changes while its cycle is parked. The attempt and its duration
/// count, whatever the new state of the pod is.
#[test]
fn the_failure_handler_looks_at_the_pod_as_it_is_now() {
    type Change = fn(&mut Driver);
    let cases: [(&str, Change, Option<QueuedIn>, usize, bool); 5] = [
        ("nothing", |_| {}, Some(QueuedIn::Unschedulable), 1, true),
        (
            "updated",
            |w| w.change("p", |p| p.label("new", "yes")),
            Some(QueuedIn::Backoff),
            1,
            true,
        ),
        ("deleted", |w| w.deleted("p"), None, 0, true),
        (
            "recreated",
            |w| {
                w.deleted("p");
                w.pod(pod("p").uid("another"));
            },
            Some(QueuedIn::Active),
            0,
            false,
        ),
        // No patch, unlike in kube-scheduler: it would state that a bound pod is not scheduled.
        (
            "bound by another scheduler",
            |w| {
                w.change("p", |p| {
                    p.on("n2").condition("PodScheduled", "True", "", "")
                })
            },
            None,
            0,
            true,
        ),
    ];
    for (situation, change, place, patches, event) in cases {
        let slow = fake("Slow")
            .filter(|_, _, _| Status::unschedulable("no"))
            .post_filter(|cx, _, _, wake| match wake {
                None => PostFilterStep::Wait(berth_framework::stage::Wait {
                    on: berth_framework::stage::WaitOn::Timer,
                    deadline: cx.now + Duration::from_secs(1),
                }),
                Some(_) => PostFilterStep::Done(PostFilterResult {
                    status: Status::unschedulable("tried"),
                    nominating: Nominating::Set("n1".into()),
                }),
            });
        let mut w = driver([slow]);
        w.applied(node("n1").object()).applied(node("n2").object());
        w.pod(pod("p"));
        assert_eq!(w.attempt(), "parked", "{situation}");
        assert_eq!(w.attempt(), "parked", "{situation}: no other pod is tried");
        change(&mut w);
        w.advance(Duration::from_secs(1));
        assert_eq!(w.place_of("p"), place, "{situation}");
        assert_eq!(w.calls.len(), patches, "{situation}: {:?}", w.calls_text());
        assert_eq!(!w.events_text().is_empty(), event, "{situation}");
        let why = match situation {
            "deleted" => "Pod is gone and not tried again pod=default/p",
            "bound by another scheduler" => {
                "Pod has been assigned to node. Abort adding it back to queue. pod=default/p"
            }
            _ => "",
        };
        let notified: Vec<String> = w.logged("Pod ").into_iter().map(|(_, line)| line).collect();
        assert_eq!(notified.join(""), why, "{situation}");
        let nominated = w.scheduler.queue().nominator().node_of("uid-p").is_some();
        assert_eq!(
            nominated,
            place.is_some() && patches > 0,
            "{situation}: C-49"
        );
        assert_eq!(w.scheduler.queue().in_flight().len(), 0, "{situation}");
        let metrics = w.scheduler.metrics();
        let labels = ["unschedulable", "default-scheduler"];
        let took = metrics.get(Metric::SchedulingAttemptDuration, &labels);
        let Some(SeriesValue::Histogram(took)) = took else {
            panic!("{situation}: the attempt was timed");
        };
        assert_eq!((took.count(), took.sum), (1, 1.0), "{situation}");
        let counted = metrics.number(Metric::ScheduleAttempts, &labels);
        assert_eq!(counted, 1.0, "{situation}");
        if situation == "updated" {
            let (_, info) = w.scheduler.queue().get("default", "p").unwrap();
            assert_eq!(info.pod.labels().get("new"), Some("yes"));
        }
    }
}

/// Events during an attempt are not lost, whether the cycle is parked or not.
#[test]
fn an_event_during_a_parked_cycle_brings_the_pod_back() {
    let slow = fake("Slow").post_filter(|cx, _, _, wake| match wake {
        None => PostFilterStep::Wait(berth_framework::stage::Wait {
            on: berth_framework::stage::WaitOn::Timer,
            deadline: cx.now + Duration::from_secs(5),
        }),
        Some(_) => PostFilterStep::Done(PostFilterResult {
            status: Status::unschedulable("tried"),
            nominating: Nominating::Keep,
        }),
    });
    let mut w = driver([fits(), slow]);
    w.applied(node("n1").capacity("1", "1Gi", "9").object());
    w.pod(pod("p").request("cpu", "2"));
    assert_eq!(w.attempt(), "parked");
    w.applied(node("n2").capacity("4", "1Gi", "9").object());
    w.advance(Duration::from_secs(5));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Backoff));
}

/// A dry run of a plugin in PostFilter leaves the cluster unchanged.
#[test]
fn post_filter_can_try_what_would_be() {
    let tried = Arc::new(AtomicUsize::new(0));
    let seen = tried.clone();
    let preempt = fake("Preempt").post_filter(move |cx, _, statuses, _| {
        let dry = &mut *cx.dry_run;
        let mut first = None;
        statuses.each(|node, _| {
            first = Some(node);
            ControlFlow::Break(())
        });
        let node = first.expect("one node has answered");
        let victims: Vec<_> = dry
            .cluster()
            .nodes
            .get(node)
            .expect("the node")
            .pods()
            .to_vec();
        dry.begin();
        for victim in &victims {
            assert!(dry.remove_pod(node, victim).is_success());
        }
        if dry.filter(node).is_success() {
            seen.fetch_add(1, Ordering::Relaxed);
        }
        dry.rollback();
        PostFilterStep::Done(PostFilterResult {
            status: Status::success(),
            nominating: Nominating::Set("n1".into()),
        })
    });
    let mut w = driver([fits(), preempt]);
    w.applied(node("n1").capacity("2", "1Gi", "9").object());
    w.pod(pod("victim").request("cpu", "2").on("n1"));
    w.pod(pod("p").request("cpu", "1"));
    w.attempt();
    assert_eq!(tried.load(Ordering::Relaxed), 1);
    assert_eq!(w.on("n1"), ["victim"]);
}
