//! The eviction of victims outside of the scheduling loop: order, events, failures, numbers (P-17, P-20 to P-23).

use super::fakes::profile_with;
use super::*;
use berth_api::{Duration, Pod};
use berth_framework::Status;
use berth_framework::call::{
    CallErrorKind, ConditionPatch, EventKind, PodEvent, PodRef, RelatedObject,
};
use berth_framework::plugin::{Nominating, PermitStep, PostFilterResult, PostFilterStep};
use berth_framework::stage::{Disruption, Eviction, Observation, Preemption, Step, Wait, WaitOn};
use berth_framework::testing::{FakePlugin, fake, node, pod};
use berth_queue::QueuedIn;
use berth_telemetry::metrics::{Metric, SeriesValue};

fn eviction(victim: &Pod, preemptor: &Pod) -> Eviction {
    Eviction {
        condition: ConditionPatch::of(victim, "DisruptionTarget", "True", "Because", ""),
        event: PodEvent {
            regarding: PodRef::of(victim),
            related: Some(RelatedObject::Pod(PodRef::of(preemptor))),
            kind: EventKind::Normal,
            reason: "Preempted",
            action: "Preempting",
            note: format!("{} goes", victim.name()),
        },
    }
}

/// Evicts these pods, in this order, once, for a pod that fits no node.
fn preempts(victims: &'static [&'static str]) -> FakePlugin {
    fake("Preempt").post_filter(move |cx, pod, _, _| {
        cx.outbox.observe(Observation::PreemptionAttempt);
        if !pod.pod.status.nominated_node_name.is_empty() {
            return PostFilterStep::Done(PostFilterResult {
                status: Status::unschedulable("once is enough"),
                nominating: Nominating::Keep,
            });
        }
        let cluster = cx.dry_run.cluster();
        let found = victims.iter().filter_map(|name| {
            let victim = cluster.pods.get(format!("uid-{name}").as_str())?;
            Some(eviction(victim, &pod.pod))
        });
        let victims: Vec<Eviction> = found.collect();
        cx.outbox.observe(Observation::Preemption(Disruption {
            preemptor: "pod",
            victims: victims.len(),
            units: victims.len(),
            violations: 0,
        }));
        cx.outbox.start_preemption(Preemption {
            preemptor: PodRef::of(&pod.pod),
            kind: "pod",
            plugin: "Preempt".into(),
            victims,
        });
        PostFilterStep::Done(PostFilterResult {
            status: Status::success(),
            nominating: Nominating::Set("n1".into()),
        })
    })
}

/// A node full of pods a, b and c, and a pod that requests all of its resources.
fn full(victims: &'static [&'static str]) -> Driver {
    let mut w = driver([fits(), preempts(victims)]);
    w.applied(node("n1").capacity("3", "1Gi", "10").object());
    for name in ["a", "b", "c"] {
        w.pod(pod(name).on("n1").request("cpu", "1"));
    }
    w.pod(pod("vip").priority(5).request("cpu", "3"));
    assert!(w.attempt().starts_with("0/1"));
    w.events.clear();
    w
}

fn deletions(w: &Driver) -> Vec<String> {
    let calls = w.calls_text().into_iter();
    calls.filter(|call| call.starts_with("delete")).collect()
}

/// Answers the deletion of a pod.
fn deletion_ends(w: &mut Driver, name: &str, refusal: Option<CallErrorKind>) {
    let text = format!("delete {name}");
    let at = w.calls_text().iter().position(|call| *call == text);
    w.calls.swap(0, at.expect("the deletion is on its way"));
    match refusal {
        None => {
            w.answer(None);
        }
        Some(kind) => w.fail(kind),
    }
}

fn is_preempting(w: &Driver) -> bool {
    w.scheduler.cache().cluster().preempting.contains("uid-vip")
}

const NONE: [&str; 0] = [];

/// P-17, P-20, P-22: the last victim is evicted after the others, each event follows its deletion, and the preemptor
/// counts as preempting during that time.
#[test]
fn the_last_victim_is_evicted_last() {
    let mut w = full(&["a", "b", "c"]);
    assert_eq!(deletions(&w), ["delete a", "delete b"]);
    assert_eq!(w.events_text(), NONE, "no victim has been notified yet");
    deletion_ends(&mut w, "a", None);
    assert_eq!(w.events_text(), ["Normal Preempted a goes"]);
    assert_eq!(deletions(&w), ["delete b"]);
    assert!(is_preempting(&w));
    deletion_ends(&mut w, "b", None);
    assert_eq!(deletions(&w), ["delete c"]);
    assert!(is_preempting(&w), "the last one is not seen going yet");
    deletion_ends(&mut w, "c", None);
    assert_eq!(
        w.events_text(),
        ["Normal Preempted b goes", "Normal Preempted c goes"]
    );
    assert!(!is_preempting(&w));
    w.advance(Duration::from_secs(10));
    assert_eq!(w.attempt(), "on n1");
}

/// P-20: the profile of the preemptor is removed while its victims are evicted.
#[test]
fn the_last_victim_of_a_removed_profile_stays() {
    let mut w = full(&["a", "b", "c"]);
    let (registry, mut profile) = profile_with([fits(), binder()]);
    profile.scheduler_name = "another".to_owned();
    let new = crate::Reconfiguration {
        profiles: vec![profile],
        percentage_of_nodes_to_score: None,
        pod_initial_backoff: Duration::from_secs(1),
        pod_max_backoff: Duration::from_secs(10),
        extenders: berth_framework::extender::Extenders::default(),
        source: "{}".into(),
    };
    let taken_over = w.scheduler.reconfigure(&new, &registry, w.now);
    assert!(taken_over.is_ok(), "{taken_over:?}");
    w.take();
    deletion_ends(&mut w, "a", None);
    deletion_ends(&mut w, "b", None);
    assert_eq!(deletions(&w), NONE);
    assert!(!is_preempting(&w));
}

/// P-17, edge case 241: a victim that is already deleted counts as evicted, without an event.
#[test]
fn a_victim_that_is_gone_is_no_failure() {
    let mut w = full(&["a", "b", "c"]);
    deletion_ends(&mut w, "a", Some(CallErrorKind::NotFound));
    deletion_ends(&mut w, "b", None);
    assert_eq!(deletions(&w), ["delete c"]);
    deletion_ends(&mut w, "c", Some(CallErrorKind::NotFound));
    assert_eq!(w.events_text(), ["Normal Preempted b goes"]);
    assert!(!is_preempting(&w));
    assert_eq!(w.log.len(), 0, "{:?}", w.log);
    let labels = ["pod_deletion", "success"];
    assert_eq!(w.metric(Metric::AsyncApiCallExecutions, &labels), 3.0);
    assert_eq!(
        w.metric(Metric::PreemptionGoroutinesExecutions, &["success"]),
        1.0
    );
}

/// P-20, P-23, case 242: if the eviction of one victim is refused, the last one is not evicted and the preemptor is
/// retried.
#[test]
fn a_refusal_spares_the_last_victim() {
    for (refuses, notified, spared) in [("a", vec!["b"], "c"), ("b", vec!["a"], "c")] {
        let mut w = full(&["a", "b", "c"]);
        deletion_ends(&mut w, refuses, Some(CallErrorKind::Refused));
        for name in notified {
            deletion_ends(&mut w, name, None);
        }
        assert_eq!(deletions(&w), NONE, "{refuses} refuses: {spared} stays");
        assert_eq!(w.place_of("vip"), Some(QueuedIn::Active), "{refuses}");
        assert!(!is_preempting(&w), "{refuses}");
        let goes = w.events_text();
        let notified = |e: &String| e.ends_with(&format!("{refuses} goes"));
        assert!(!goes.iter().any(notified), "{goes:?}");
        assert!(
            w.log.iter().any(|line| line.to_string().contains(&format!(
                "Failed to preempt pod preemptor=default/vip victim=default/{refuses}"
            ))),
            "{:?}",
            w.log
        );
        let counted = |result| w.metric(Metric::PreemptionGoroutinesExecutions, &[result]);
        assert_eq!((counted("error"), counted("success")), (1.0, 0.0));
    }
}

/// P-20, case 242: a preemptor that an event has moved to backoffQ during its preemption does not wait for its backoff.
#[test]
fn a_refusal_brings_the_preemptor_back_from_backoff() {
    let mut w = full(&["a", "b"]);
    w.applied(node("n2").capacity("1", "1Gi", "10").object());
    assert_eq!(w.place_of("vip"), Some(QueuedIn::Backoff));
    deletion_ends(&mut w, "a", Some(CallErrorKind::Refused));
    assert_eq!(w.place_of("vip"), Some(QueuedIn::Active));
}

/// P-21, edge case 243: the wait ends when the watch shows the last victim as terminating, even before its deletion is
/// answered.
#[test]
fn a_last_victim_seen_going_ends_the_wait() {
    type See = fn(&mut Driver);
    let cases: [(&str, See, bool); 4] = [
        ("nothing", |_| {}, true),
        ("another one goes", |w| w.deleted("a"), true),
        ("it is gone", |w| w.deleted("c"), false),
        (
            "it is terminating",
            |w| {
                let now = w.now;
                w.change("c", |p| p.deleting(now));
            },
            false,
        ),
    ];
    for (situation, see, preempting) in cases {
        let mut w = full(&["b", "c"]);
        deletion_ends(&mut w, "b", None);
        assert_eq!(deletions(&w), ["delete c"], "{situation}");
        see(&mut w);
        assert_eq!(is_preempting(&w), preempting, "{situation}");
        deletion_ends(&mut w, "c", Some(CallErrorKind::NotFound));
        assert!(!is_preempting(&w), "{situation}");
    }
}

/// P-20: a preemptor that was deleted needs no resources: its last victim is not evicted.
#[test]
fn no_victim_is_evicted_for_a_deleted_preemptor() {
    let mut w = full(&["a", "b"]);
    w.deleted("vip");
    deletion_ends(&mut w, "a", None);
    assert_eq!(deletions(&w), NONE);
    assert!(!is_preempting(&w));
}

/// P-5: a nominated pod is retried when a victim of lower priority leaves its node, independent of the plugin that
/// rejected the pod. No event of its plugins would wake it, and its nomination would block other pods forever.
#[test]
fn a_nominated_pod_is_retried_when_a_victim_was_deleted() {
    type End = fn(&mut Driver);
    let deleted: End = |w| w.deleted("victim");
    let stays: End = |w| {
        w.advance(Duration::from_secs(60));
    };
    for (situation, priority, end, refused) in [
        ("it is deleted", 5, deleted, None),
        (
            "its eviction is refused",
            5,
            deleted,
            Some(CallErrorKind::Refused),
        ),
        ("no watch shows its deletion", 5, stays, None),
        ("it is as important", 0, deleted, None),
    ] {
        let no = fake("No")
            .filter(|_, pod, _| match pod.pod.name().as_str() {
                "nominee" => Status::unschedulable("no"),
                _ => Status::success(),
            })
            .events(Vec::new);
        let mut w = driver([no, preempts(&["victim"])]);
        w.applied(node("n1").capacity("3", "1Gi", "10").object());
        w.pod(pod("victim").on("n1"));
        w.pod(pod("nominee").priority(priority));
        assert!(w.attempt().starts_with("0/1"), "{situation}");
        assert_eq!(w.place_of("nominee"), Some(QueuedIn::Unschedulable));
        match refused {
            Some(_) => deletion_ends(&mut w, "victim", refused),
            None => {
                let at = w.calls_text().iter().position(|c| c == "delete victim");
                let (id, _) = w.calls.remove(at.expect("it is reported"));
                w.complete(id, Ok(()));
                assert_eq!(w.place_of("nominee"), Some(QueuedIn::Unschedulable));
                end(&mut w);
            }
        }
        let place = w.place_of("nominee");
        assert_eq!(place, Some(QueuedIn::Active), "{situation}");
    }
}

/// P-17, case 245: a victim that is only about to be bound is stopped without a call, and fails with the reason.
#[test]
fn a_victim_that_is_not_bound_is_stopped_in_memory() {
    let holds = || {
        fake("Slow").permit(|_, pod, _, _| match pod.pod.name().as_str() {
            "b" => PermitStep::Hold(Duration::from_secs(60)),
            _ => PermitStep::Done(Status::success()),
        })
    };
    let prepares = || {
        fake("Slow").pre_bind(|cx, _, pod, _, wake| match wake {
            None if pod.pod.name() == "b" => Step::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_secs(5),
            }),
            _ => Step::success(),
        })
    };
    for (situation, slow, failure) in [
        (
            "held back by Permit",
            holds(),
            "waiting on permit for pod: preempted",
        ),
        ("being prepared", prepares(), "preempted by Preempt"),
    ] {
        let mut w = driver([fits(), slow, preempts(&["a", "b"])]);
        w.applied(node("n1").capacity("2", "1Gi", "10").object());
        w.pod(pod("a").on("n1").request("cpu", "1"));
        w.pod(pod("b").request("cpu", "1"));
        assert_eq!(w.attempt(), "on n1", "{situation}");
        w.pod(pod("vip").priority(5).request("cpu", "2"));
        assert!(w.attempt().starts_with("0/1"), "{situation}");
        w.events.clear();
        assert_eq!(deletions(&w), ["delete a"], "{situation}");
        deletion_ends(&mut w, "a", None);
        assert_eq!(deletions(&w), NONE, "{situation}");
        let events = w.events_text();
        for text in [
            "Normal Preempted a goes".to_owned(),
            "Normal Preempted b goes (in kube-scheduler memory).".to_owned(),
            format!("Warning FailedScheduling {failure}"),
        ] {
            assert!(events.contains(&text), "{situation}: {text}: {events:?}");
        }
        assert!(!is_preempting(&w), "{situation}");
        assert_eq!(w.on("n1"), NONE, "{situation}");
    }
}

/// P-17: if another client has bound a victim while its binding cycle runs, the victim runs on its node and has to be
/// deleted.
#[test]
fn a_victim_that_another_client_has_bound_is_deleted() {
    let prepares = fake("Slow").pre_bind(|cx, _, _, _, _| {
        Step::Wait(Wait {
            on: WaitOn::Timer,
            deadline: cx.now + Duration::from_secs(5),
        })
    });
    let mut w = driver([fits(), prepares, preempts(&["b"])]);
    w.applied(node("n1").capacity("1", "1Gi", "10").object());
    w.pod(pod("b").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    w.answer_all();
    w.change("b", |p| p.on("n1"));
    w.pod(pod("vip").priority(5).request("cpu", "1"));
    assert!(w.attempt().starts_with("0/1"));
    assert_eq!(deletions(&w), ["delete b"]);
}

/// P-21: a preemptor that preempts again before its first victims are evicted counts as preempting until the victims of
/// both preemptions are evicted.
#[test]
fn two_preemptions_of_one_pod_end_with_the_later() {
    for (first_ends_first, is_seen) in [(true, false), (false, false), (true, true)] {
        let again = fake("Again").post_filter(|cx, pod, _, _| {
            let name = if pod.pod.status.nominated_node_name.is_empty() {
                "uid-a"
            } else {
                "uid-b"
            };
            let victim = cx.dry_run.cluster().pods.get(name).cloned();
            let victim = victim.expect("one of the victims");
            cx.outbox.start_preemption(Preemption {
                preemptor: PodRef::of(&pod.pod),
                kind: "pod",
                plugin: "Again".into(),
                victims: vec![eviction(&victim, &pod.pod)],
            });
            PostFilterStep::Done(PostFilterResult {
                status: Status::success(),
                nominating: Nominating::Set("n1".into()),
            })
        });
        let mut w = driver([fits(), again]);
        w.applied(node("n1").capacity("2", "1Gi", "10").object());
        w.pod(pod("a").on("n1").request("cpu", "1"));
        w.pod(pod("b").on("n1").request("cpu", "1"));
        w.pod(pod("vip").priority(5).request("cpu", "2"));
        assert!(w.attempt().starts_with("0/1"));
        w.applied(node("n2").capacity("1", "1Gi", "10").object());
        w.advance(Duration::from_secs(3));
        assert!(w.attempt().starts_with("0/2"));
        let mut names = ["a", "b"];
        if !first_ends_first {
            names.reverse();
        }
        assert_eq!(deletions(&w).len(), 2);
        let notified = |w: &mut Driver, name: &str| {
            let text = format!("delete {name}");
            let at = w.calls_text().iter().position(|call| *call == text);
            let (id, _) = w.calls.remove(at.expect("the deletion is on its way"));
            w.complete(id, Ok(()));
        };
        if is_seen {
            // Before its deletion is answered.
            w.deleted(names[0]);
            assert!(is_preempting(&w), "{} is not seen going", names[1]);
        }
        notified(&mut w, names[0]);
        assert!(is_preempting(&w), "{} has not been notified", names[1]);
        notified(&mut w, names[1]);
        assert!(is_preempting(&w), "{} is not seen going", names[1]);
        w.deleted(names[1]);
        assert!(!is_preempting(&w), "all have been notified");
    }
}

/// P-17, P-18, edge case 245: a victim whose binding is in flight can only be deleted, and is deleted after its
/// binding.
#[test]
fn a_victim_that_is_being_bound_is_deleted() {
    let mut w = driver([fits(), preempts(&["b"])]);
    w.applied(node("n1").capacity("1", "1Gi", "10").object());
    w.pod(pod("b").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    w.pod(pod("vip").priority(5).request("cpu", "1"));
    assert!(w.attempt().starts_with("0/1"));
    assert_eq!(deletions(&w), NONE, "one call about a pod at a time");
    assert!(is_preempting(&w));
    w.answer(None);
    assert_eq!(deletions(&w), ["delete b"]);
    deletion_ends(&mut w, "b", None);
    assert!(!is_preempting(&w));
    let events = w.events_text();
    assert!(
        events.contains(&"Normal Preempted b goes".to_owned()),
        "{events:?}"
    );
}

/// P-1, P-20, P-23: the metrics count the victims when they are chosen, and the duration when they have been evicted.
#[test]
fn preemptions_are_counted() {
    let mut w = full(&["a", "b", "c"]);
    assert_eq!(w.metric(Metric::PreemptionAttempts, &[]), 1.0);
    let executions = |w: &Driver| w.metric(Metric::PreemptionGoroutinesExecutions, &["success"]);
    assert_eq!(executions(&w), 0.0, "it goes on");
    let metrics = w.scheduler.metrics();
    let Some(SeriesValue::Histogram(victims)) = metrics.get(Metric::PreemptionVictims, &[]) else {
        panic!("the victims were counted");
    };
    assert_eq!((victims.count(), victims.sum), (1, 3.0));
    w.advance(Duration::from_secs(3));
    for name in ["a", "b", "c"] {
        deletion_ends(&mut w, name, None);
    }
    let metrics = w.scheduler.metrics();
    let took = metrics.get(Metric::PreemptionGoroutinesDuration, &["success"]);
    let Some(SeriesValue::Histogram(took)) = took else {
        panic!("the time was taken");
    };
    assert_eq!((took.count(), took.sum), (1, 3.0));
    assert_eq!(executions(&w), 1.0);

    let mut w = full(&["a", "b"]);
    w.advance(Duration::from_secs(2));
    deletion_ends(&mut w, "a", Some(CallErrorKind::Refused));
    let metrics = w.scheduler.metrics();
    let took = metrics.get(Metric::PreemptionGoroutinesDuration, &["error"]);
    let Some(SeriesValue::Histogram(took)) = took else {
        panic!("the time of a failure is taken, too");
    };
    assert_eq!((took.count(), took.sum), (1, 2.0));
}
