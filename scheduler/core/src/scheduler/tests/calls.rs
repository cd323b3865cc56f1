//! The core and its dispatcher: bursts, retries, writes that the watch has not shown, waits, metrics, and
//! back-pressure.

use super::*;
use berth_api::{Duration, Time};
use berth_dispatcher::DispatcherOptions;
use berth_framework::call::{CallError, CallErrorKind, CallId, ConditionPatch, PodRef, Response};
use berth_framework::event::EventRegistration;
use berth_framework::plugin::{Nominating, PostFilterResult, PostFilterStep};
use berth_framework::testing::{CLAIM_UPDATE, FakePlugin, VOLUME_UPDATE, fake, node, pod};
use berth_framework::{ActionType, ApiCall, EventResource, Feature, FeatureGates, Status};
use berth_queue::QueuedIn;
use berth_telemetry::metrics::{Metric, SeriesValue};

const NONE: [&str; 0] = [];

/// Rejects every pod, and registers for new nodes.
pub(super) fn no() -> FakePlugin {
    fake("No")
        .filter(|_, _, _| Status::unschedulable("no"))
        .events(|| {
            vec![EventRegistration::always(
                EventResource::Node,
                ActionType::ADD,
            )]
        })
}

/// Answers the oldest call with the error that the server is too busy.
pub(super) fn too_busy(w: &mut Driver) {
    let (id, _) = w.calls.remove(0);
    let error = CallError::new(CallErrorKind::Unavailable, "too busy");
    w.complete(id, Err::<(), _>(error));
}

/// D-11, case 166: a burst of status patches never delays a binding, and no event waits for either.
#[test]
fn a_binding_does_not_wait_for_status_patches() {
    let mut w = driver([fits()]);
    w.applied(node("n1").capacity("1", "1Gi", "200").object());
    for i in 0..100 {
        w.pod(pod(&format!("big{i}")).request("cpu", "2"));
        assert!(w.attempt().starts_with("0/1"));
    }
    let limit = DispatcherOptions::default().lanes.status.max;
    assert_eq!(w.calls.len(), limit, "the rest waits");
    assert_eq!(w.events_text().len(), 100, "events do not");
    w.pod(pod("small").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    let last = w.calls_text().pop();
    assert_eq!(last.as_deref(), Some("bind small n1"));
    w.answer_all();
    assert!(w.scheduler.dispatcher().is_empty());
}

/// D-17: a pod that made room sees its nomination while the write is waiting, is retried, or has not been shown yet.
#[test]
fn a_nomination_is_seen_from_the_start() {
    let preempt = fake("Preempt").post_filter(|_, _, _, _| {
        PostFilterStep::Done(PostFilterResult {
            status: Status::success(),
            nominating: Nominating::Set("n1".into()),
        })
    });
    let no = fake("No").filter(|_, _, _| Status::unschedulable("no"));
    let mut w = driver([no, preempt]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    let nominated = |w: &Driver| {
        let pod = w.scheduler.cache().effective("uid-p").cloned();
        pod.map(|pod| pod.status.nominated_node_name.to_string())
    };
    let n1 = Some("n1".to_owned());
    assert_eq!(nominated(&w), n1, "on its way");
    too_busy(&mut w);
    assert_eq!(
        (nominated(&w), w.calls.len()),
        (n1.clone(), 0),
        "to be repeated"
    );
    let wake = w.scheduler.next_wake(w.now).unwrap_or(Time::MAX);
    assert!(wake.since(w.now) <= Duration::from_millis(11), "{wake}");
    w.advance(Duration::from_millis(11));
    let (id, _) = w.calls.remove(0);
    w.complete(id, Ok(()));
    assert_eq!(nominated(&w), n1, "written, not seen");
    w.change("p", |p| p.label("too", "early"));
    assert_eq!(nominated(&w), n1);
    w.advance(Duration::from_secs(30));
    assert_eq!(
        nominated(&w),
        Some(String::new()),
        "another client must have overwritten it"
    );
}

/// P-20: without the deletion of the victim, no event would wake the pod.
#[test]
fn a_failed_eviction_wakes_pods_that_were_nominated_to_the_node() {
    let preempt = || {
        fake("Preempt").post_filter(|cx, _, _, _| {
            let victim = cx.dry_run.cluster().pods.get("uid-victim").cloned();
            if let Some(victim) = victim {
                cx.outbox.call(ApiCall::DeletePod {
                    pod: PodRef::of(&victim),
                    condition: ConditionPatch::of(
                        &victim,
                        "DisruptionTarget",
                        "True",
                        "PreemptionByScheduler",
                        "",
                    ),
                });
            }
            PostFilterStep::Done(PostFilterResult {
                status: Status::success(),
                nominating: Nominating::Set("n1".into()),
            })
        })
    };
    for (refusal, place) in [
        (Some("an admission webhook refuses"), QueuedIn::Active),
        // The deletion raises an event, and the plugin is registered for it.
        (None, QueuedIn::Backoff),
    ] {
        let mut w = driver([fits(), preempt()]);
        w.applied(node("n1").capacity("1", "1Gi", "10").object());
        w.pod(pod("victim").on("n1").request("cpu", "1"));
        w.pod(pod("vip").priority(5).request("cpu", "1"));
        w.attempt();
        assert_eq!(w.place_of("vip"), Some(QueuedIn::Unschedulable));
        let at = w
            .calls
            .iter()
            .position(|(_, call)| matches!(call, ApiCall::DeletePod { .. }))
            .expect("the victim is to go");
        w.calls.swap(0, at);
        w.answer(refusal);
        assert_eq!(w.place_of("vip"), Some(place), "{refusal:?}");
    }
}

/// D-1, D-19: also without the gate, a call with nothing left to write ends without a request.
#[test]
fn a_call_with_nothing_left_to_do_ends_by_itself() {
    let features = FeatureGates::default()
        .with(Feature::SchedulerAsyncAPICalls, false)
        .with(Feature::SchedulerPreEnqueuePodStatus, false);
    let no = fake("No").filter(|_, _, _| Status::unschedulable("no"));
    let mut w = driver_of([no, binder()], features);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    // As if an earlier call in flight had written it.
    let before = ApiCall::PatchPodStatus {
        pod: berth_framework::call::PodRef::of(&w.pods["p"]),
        conditions: Vec::new(),
        nominated_node: Some("n1".into()),
    };
    let first: CallId = w.call(before.clone());
    let second: CallId = w.call(before);
    w.advance(Duration::ZERO);
    assert_eq!(w.calls.len(), 1);
    w.complete(first, Ok(()));
    assert!(w.calls.iter().all(|(id, _)| *id != second));
    let dispatcher = w.scheduler.dispatcher();
    assert!(dispatcher.is_empty() && !dispatcher.has_finished());
}

/// D-11: while the limit of calls is reached, no further pod is tried.
#[test]
fn a_full_dispatcher_holds_back_the_queue() {
    let mut w = driver_with([binder()], |options| {
        options.dispatcher.tracked_max = 4;
    });
    w.applied(node("n1").object());
    for name in ["a", "b", "c", "d"] {
        w.pod(pod(name));
    }
    for _ in 0..3 {
        assert_eq!(w.attempt(), "on n1");
    }
    assert!(!w.scheduler.has_pod_to_try());
    assert_eq!(w.attempt(), "idle");
    w.answer(None);
    assert!(w.scheduler.has_pod_to_try());
    assert_eq!(w.attempt(), "on n1");
}

/// The gate SchedulerAsyncAPICalls on and off, each with answers before and after the watch shows the write.
fn roll_backs() -> impl Iterator<Item = (FeatureGates, bool)> {
    let gates = |on: bool| {
        FeatureGates::default()
            .with(Feature::SchedulerAsyncAPICalls, on)
            .with(Feature::SchedulerPreEnqueuePodStatus, on)
    };
    [true, false]
        .into_iter()
        .flat_map(move |on| [false, true].map(|is_shown_first| (gates(on), is_shown_first)))
}

/// D-1: a pod is back in the queue before its status is written, with the gate, which is on by default, and without it.
/// It waits for its backoff or for an event, independent of the order of the answer and the watch.
#[test]
fn a_pod_is_back_in_the_queue_before_its_status_is_written() {
    assert!(FeatureGates::default().enabled(Feature::SchedulerAsyncAPICalls));
    let fails = || fake("No").filter(|_, _, _| Status::error("it broke"));
    for (features, is_shown_first) in roll_backs() {
        for (plugin, message, place) in [
            (no(), "0/1", QueuedIn::Unschedulable),
            (fails(), "running", QueuedIn::ErrorBackoff),
        ] {
            let on = features.enabled(Feature::SchedulerAsyncAPICalls);
            let what = format!("{message}, gate: {on}, watch first: {is_shown_first}");
            let mut w = driver_of([plugin, binder()], features);
            w.is_shown_first = is_shown_first;
            w.applied(node("n1").object());
            w.pod(pod("p"));
            let ended = w.attempt();
            assert!(ended.contains(message), "{what}: {ended}");
            assert_eq!(w.calls.len(), 1, "{what}");
            assert_eq!(w.place_of("p"), Some(place), "{what}");
            w.pod(pod("other"));
            assert!(w.attempt().contains(message), "{what}: the loop goes on");
            w.answer_all();
            assert_eq!(w.place_of("p"), Some(place), "{what}");
            assert_eq!(w.attempt(), "idle", "{what}: it waits");
            assert!(
                w.logged("Pod is not given back to the queue").is_empty(),
                "{what}"
            );
            w.wait(2);
            let is_retried = w.attempt().contains(message);
            assert_eq!(is_retried, place == QueuedIn::ErrorBackoff, "{what}");
        }
    }
}

/// D-1, C-52: the same after a binding that was refused.
#[test]
fn a_refused_binding_is_repeated_after_its_backoff() {
    for (features, is_shown_first) in roll_backs() {
        let on = features.enabled(Feature::SchedulerAsyncAPICalls);
        let what = format!("gate: {on}, watch first: {is_shown_first}");
        let mut w = driver_of([binder()], features);
        w.is_shown_first = is_shown_first;
        w.applied(node("n1").object());
        w.pod(pod("p"));
        assert_eq!(w.attempt(), "on n1", "{what}");
        w.answer(Some("the binding is refused"));
        assert_eq!(w.place_of("p"), Some(QueuedIn::ErrorBackoff), "{what}");
        w.answer_all();
        assert_eq!(w.attempt(), "idle", "{what}");
        assert!(
            w.logged("Pod is not given back to the queue").is_empty(),
            "{what}"
        );
        w.wait(2);
        assert_eq!(w.attempt(), "on n1", "{what}");
    }
}

/// D-1: the same two calls with the gate and without it: merged into one, or each separately, one after another.
#[test]
fn without_the_gate_every_call_is_made() {
    for (on, first, second) in [
        (true, "patch p nominated=\"n2\"", None),
        (
            false,
            "patch p nominated=\"n1\"",
            Some("patch p nominated=\"n2\""),
        ),
    ] {
        let features = FeatureGates::default()
            .with(Feature::SchedulerAsyncAPICalls, on)
            .with(Feature::SchedulerPreEnqueuePodStatus, on);
        let mut w = driver_of([no(), binder()], features);
        w.pod(pod("p"));
        for node in ["n1", "n2"] {
            let call = ApiCall::PatchPodStatus {
                pod: PodRef::of(&w.pods["p"]),
                conditions: Vec::new(),
                nominated_node: Some(node.into()),
            };
            w.call(call);
        }
        w.advance(Duration::ZERO);
        assert_eq!(w.calls_text(), [first], "gate: {on}");
        w.answer(None);
        let rest: Vec<&str> = second.into_iter().collect();
        assert_eq!(w.calls_text(), rest, "gate: {on}");
    }
}

/// D-17: the server returned the version of the nomination. Until the watch shows that version, the nomination counts;
/// from then on the API object takes precedence.
#[test]
fn a_nomination_of_a_known_version_counts_until_it_is_shown() {
    let preempt = fake("Preempt").post_filter(|_, _, _, _| {
        PostFilterStep::Done(PostFilterResult {
            status: Status::success(),
            nominating: Nominating::Set("n1".into()),
        })
    });
    let mut w = driver([no(), preempt]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    let (id, _) = w.calls.remove(0);
    let version = "12";
    assert_eq!(w.pods["p"].metadata.resource_version, "11");
    w.complete(id, Ok(Response::written(version)));
    let nominated = |w: &Driver| {
        let pod = w.scheduler.cache().effective("uid-p").cloned();
        pod.map(|pod| pod.status.nominated_node_name.to_string())
            .unwrap_or_default()
    };
    w.advance(Duration::from_secs(120));
    assert_eq!(nominated(&w), "n1", "the watch is slow");
    // Another client cleared the nomination in version 12 or later: the pod has none.
    w.change("p", |p| p.label("touched", "yes"));
    assert_eq!(w.pods["p"].metadata.resource_version, version);
    assert_eq!(nominated(&w), "");
}

/// D-13, D-20, case 161: each call is counted and timed once by type and result when it ends, including its retries.
#[test]
fn calls_are_counted_and_timed() {
    type Answers = &'static [Option<CallErrorKind>];
    let patch = |w: &Driver| ApiCall::PatchPodStatus {
        pod: PodRef::of(&w.pods["p"]),
        conditions: Vec::new(),
        nominated_node: Some("n1".into()),
    };
    let bind = |w: &Driver| ApiCall::BindPod {
        pod: PodRef::of(&w.pods["p"]),
        node: "n1".into(),
    };
    let delete = |w: &Driver| ApiCall::DeletePod {
        pod: PodRef::of(&w.pods["p"]),
        condition: ConditionPatch::of(&w.pods["p"], "DisruptionTarget", "True", "r", ""),
    };
    type Make<'a> = &'a dyn Fn(&Driver) -> ApiCall;
    let cases: [(Make<'_>, Answers, [&str; 2]); 7] = [
        (&patch, &[None], ["pod_status_patch", "success"]),
        (
            &patch,
            &[Some(CallErrorKind::Refused)],
            ["pod_status_patch", "error"],
        ),
        (
            &patch,
            &[Some(CallErrorKind::Unavailable), None],
            ["pod_status_patch", "success"],
        ),
        // The pod was deleted during the call, so no status is missing.
        (
            &patch,
            &[Some(CallErrorKind::NotFound)],
            ["pod_status_patch", "success"],
        ),
        (&bind, &[None], ["pod_binding", "success"]),
        (
            &bind,
            &[Some(CallErrorKind::NotFound)],
            ["pod_binding", "error"],
        ),
        // The pod to delete was already deleted.
        (
            &delete,
            &[Some(CallErrorKind::NotFound)],
            ["pod_deletion", "success"],
        ),
    ];
    for (make, answers, labels) in cases {
        let what = format!("{labels:?} after {answers:?}");
        let mut w = driver([no()]);
        w.pod(pod("p"));
        let call = make(&w);
        w.call(call);
        let pending = [Metric::PendingAsyncApiCalls];
        assert_eq!(w.metric(pending[0], &labels[..1]), 1.0, "{what}");
        w.take();
        assert_eq!(w.metric(pending[0], &labels[..1]), 0.0, "{what}: sent");
        for answer in answers {
            w.advance(Duration::from_secs(1));
            match answer {
                None => {
                    w.answer(None);
                }
                Some(kind) => w.fail(*kind),
            }
        }
        w.advance(Duration::from_secs(60));
        assert_eq!(
            w.metric(Metric::AsyncApiCallExecutions, &labels),
            1.0,
            "{what}"
        );
        let metrics = w.scheduler.metrics();
        let Some(SeriesValue::Histogram(times)) =
            metrics.get(Metric::AsyncApiCallDuration, &labels)
        else {
            panic!("{what}: it was timed");
        };
        let seconds = answers.len() as f64;
        assert_eq!((times.count(), times.sum), (1, seconds), "{what}");
    }
}

/// D-20: unsent calls are not counted as executed; waiting calls are pending, including delayed reports; and every
/// registered type has its number.
#[test]
fn only_what_was_sent_is_counted() {
    let gate = fake("Gate")
        .pre_enqueue(|_| Status::unresolvable("shut"))
        .calls(&[&CLAIM_UPDATE, &VOLUME_UPDATE]);
    let mut w = driver([gate]);
    w.pod(pod("p"));

    assert_eq!(
        w.metric(Metric::PendingAsyncApiCalls, &["pod_status_patch"]),
        1.0
    );
    w.deleted("p");
    w.advance(Duration::from_secs(60));
    assert_eq!(w.calls_text(), NONE);
    let text = w.scheduler.metrics().render();
    for call_type in ["pod_status_patch", "pod_binding", "pod_deletion"] {
        let line = format!("scheduler_pending_async_api_calls{{call_type=\"{call_type}\"}} 0");
        assert!(text.contains(&line), "{line}");
    }
    assert!(!text.contains("scheduler_async_api_call_execution_total{"));
}

/// D-21, D-22, case 162: a wait for a call has a deadline. The status patch for the timeout is dropped because the
/// binding is still in flight. Event, backoff and queue are the same as after any failure.
#[test]
fn a_wait_for_a_call_has_a_deadline() {
    let mut w = driver([]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    assert_eq!(w.attempt(), "on n1");
    assert_eq!(w.calls_text(), ["bind p n1"]);
    w.advance(Duration::from_secs(59));
    assert_eq!(w.scheduler.bindings_in_flight(), 1);
    w.advance(Duration::from_secs(1));
    assert_eq!(w.scheduler.bindings_in_flight(), 0);
    assert_eq!(w.place_of("p"), Some(QueuedIn::ErrorBackoff));
    assert_eq!(
        w.events_text(),
        ["Warning FailedScheduling running Bind plugin \"Binder\": no answer"]
    );
    assert_eq!(w.calls_text(), ["bind p n1"], "the status is not written");
    assert_eq!(w.scheduler.dispatcher().counts().skipped, 1);
    let seen = w.scheduler.cache().effective("uid-p").cloned();
    assert!(seen.is_some_and(|p| p.status.conditions.is_empty()));
    // The late answer.
    w.answer(None);
    assert_eq!((w.place_of("p"), w.on("n1")), (None, vec!["p".to_owned()]));
}

/// D-10, D-21, case 162: a status patch that a binding replaces is no failure, and no error is logged.
#[test]
fn giving_way_is_no_failure() {
    let mut w = driver([fits()]);
    w.applied(node("n1").capacity("1", "1Gi", "9").object());
    w.pod(pod("p").request("cpu", "2"));
    w.attempt();
    let first = w.calls_text();
    // The nomination and then the binding are requested while the first call is in flight.
    let nominate = ApiCall::PatchPodStatus {
        pod: PodRef::of(&w.pods["p"]),
        conditions: Vec::new(),
        nominated_node: Some("n2".into()),
    };
    w.call(nominate);
    w.applied(node("n2").capacity("4", "1Gi", "9").object());
    w.advance(Duration::from_secs(3));
    assert_eq!(w.attempt(), "on n2");
    assert_eq!(w.calls_text(), first, "one at a time");
    assert_eq!(w.scheduler.dispatcher().counts().overwritten, 1);
    w.answer(None);
    assert_eq!(w.calls_text(), ["bind p n2"]);
    w.answer(None);
    assert_eq!(w.on("n2"), ["p"]);
    assert_eq!(w.logged("Failed to write an object"), []);
}

/// D-16, D-28: a closed scheduler makes no call any more, including delayed ones; answers may still arrive.
#[test]
fn a_scheduler_that_stops_makes_no_calls() {
    let mut w = driver([]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    assert_eq!(w.attempt(), "on n1");
    w.pod(pod("q")).pod(pod("r"));
    let call = ApiCall::PatchPodStatus {
        pod: PodRef::of(&w.pods["q"]),
        conditions: Vec::new(),
        nominated_node: Some("n1".into()),
    };
    w.call(call);
    let report = ApiCall::PatchPodStatus {
        pod: PodRef::of(&w.pods["r"]),
        conditions: vec![ConditionPatch::of(
            &w.pods["r"],
            "PodScheduled",
            "False",
            "NotReadyForScheduling",
            "shut",
        )],
        nominated_node: None,
    };
    let due = w.now + Duration::from_secs(5);
    w.scheduler.core.calls.report(report, due, w.now);
    let (id, _) = w.calls.remove(0);
    w.scheduler.close(w.now);
    w.scheduler.complete(id, Ok(()), w.now);
    w.advance(Duration::from_secs(60));
    assert_eq!(w.calls_text(), NONE);
    assert!(w.scheduler.dispatcher().is_empty());
}

/// D-1, Q-77: another scheduler clears a nomination while the condition of the pod is written. Also without
/// asynchronous calls, the pod is not nominated in memory any more.
#[test]
fn a_nomination_that_others_clear_ends() {
    for cleared in [false, true] {
        let features = FeatureGates::default()
            .with(Feature::SchedulerAsyncAPICalls, false)
            .with(Feature::SchedulerPreEnqueuePodStatus, false);
        let nominates = fake("Nominates").post_filter(|_, _, _, _| {
            PostFilterStep::done(Status::success(), Nominating::Set("n1".into()))
        });
        let mut w = driver_of([no(), nominates, binder()], features);
        w.applied(node("n1").object());
        w.pod(pod("p").nominated("n1"));
        assert!(w.attempt().starts_with("0/1"));
        assert_eq!(w.calls.len(), 1, "its condition is written");
        if cleared {
            w.change("p", |p| p.nominated(""));
        }
        w.answer(None);
        assert!(w.place_of("p").is_some(), "cleared: {cleared}");
        let effective = w.scheduler.cache().effective("uid-p").map(|pod| {
            let node = &pod.status.nominated_node_name;
            node.to_string()
        });
        let nominated_to = w.scheduler.queue().nominator().node_of("uid-p");
        let nominated_to = nominated_to.map_or("", |node| node.as_str());
        assert_eq!(
            effective.as_deref(),
            Some(nominated_to),
            "cleared: {cleared}"
        );
        assert_eq!(nominated_to.is_empty(), cleared);
    }
}
