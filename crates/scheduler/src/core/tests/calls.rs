//! The core and its dispatcher: bursts, retries, writes that nobody has seen, reports, and back-pressure.

use super::*;
use crate::dispatcher::{Dispatcher, DispatcherOptions};
use crate::queue::QueuedIn;
use berth_api::{Duration, Time};
use berth_framework::call::{CallError, CallErrorKind, CallId, ConditionPatch, PodRef};
use berth_framework::event::EventRegistration;
use berth_framework::plugin::{Nominating, PostFilterResult, PostFilterStep};
use berth_framework::testing::{FakePlugin, fake, node, pod};
use berth_framework::{ActionType, ApiCall, EventResource, Feature, FeatureGates, Status};

/// Keeps pods out until they have the label `open`.
fn gate() -> FakePlugin {
    fake("Gate")
        .pre_enqueue(|pod| {
            if pod.labels().contains_key("open") {
                Status::success()
            } else {
                Status::unresolvable("shut")
            }
        })
        .events(|| {
            vec![EventRegistration::always(
                EventResource::Pod,
                ActionType::UPDATE_POD_LABEL,
            )]
        })
}

/// Answers the oldest call: the server is too busy.
fn too_busy(w: &mut World) {
    let (id, _) = w.calls.remove(0);
    let error = CallError::new(CallErrorKind::Unavailable, "too busy");
    w.core.complete(id, Err(error), w.now);
    w.take();
}

const NONE: [&str; 0] = [];

/// KEP-5501; 9.9 #168: no call at all.
#[test]
fn a_rejection_that_passes_in_time_is_not_written() {
    let mut w = world([gate()]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.advance(Duration::from_secs(4));
    w.change("p", |p| p.label("open", "yes"));
    w.advance(Duration::from_secs(60));
    assert_eq!(w.calls_text(), NONE);
    assert_eq!(w.events_text(), NONE);
    assert_eq!(w.attempt(), "on n1");
    assert_eq!(w.calls_text(), ["bind p n1"]);
    assert_eq!(w.core.dispatcher().counts().sent, 1);
}

/// a report that could not be written is made again at the next rejection.
#[test]
fn a_report_that_failed_is_made_again() {
    let mut w = world([gate()]);
    let report = ["patch p PodScheduled=False NotReadyForScheduling: shut"];
    w.pod(pod("p"));
    w.advance(Duration::from_secs(5));
    assert_eq!(w.calls_text(), report);
    w.change("p", |p| p.label("still", "shut"));
    w.advance(Duration::from_secs(60));
    assert_eq!(w.calls.len(), 1, "it says so already");
    w.answer(Some("no"));
    w.change("p", |p| p.label("again", "shut"));
    w.advance(Duration::from_secs(5));
    assert_eq!(w.calls_text(), report);
}

/// KEP-3521, KEP-5501: what a cycle found stands in the status while a plugin only sees that attempt through, so that
/// autoscalers go on acting on it; a pod that is not ready says so instead, as more nodes would not help it.
#[test]
fn a_pod_that_no_node_would_help_stops_asking_for_nodes() {
    let shut = |label: &'static str| {
        move |pod: &berth_api::Pod| match pod.labels().get(label) {
            Some(message) => Status::unresolvable(message.to_owned()),
            None => Status::success(),
        }
    };
    let hears = || {
        vec![EventRegistration::always(
            EventResource::Pod,
            ActionType::UPDATE_POD_LABEL,
        )]
    };
    let unschedulable = "Unschedulable: 0/1 nodes are available: 1 no.";
    for (situation, label, reported) in [
        ("its victims are being told to go", "evicting", None),
        (
            "its claim is gone",
            "unready",
            Some("patch p PodScheduled=False NotReadyForScheduling: waits"),
        ),
    ] {
        let no = fake("No")
            .filter(|_, _, _| Status::unschedulable("no"))
            .events(hears);
        let evicting = fake("Evicting")
            .pre_enqueue(shut("evicting"))
            .following_attempts()
            .events(hears);
        let unready = fake("Unready").pre_enqueue(shut("unready")).events(hears);
        let mut w = world([no, evicting, unready]);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        w.attempt();
        let said = w.calls_text();
        assert_eq!(
            said,
            [format!("patch p PodScheduled=False {unschedulable}")]
        );
        w.answer_all();
        w.change("p", |p| p.label(label, "waits"));
        assert_eq!(w.place_of("p"), Some(QueuedIn::Gated), "{situation}");
        w.advance(Duration::from_millis(4_999));
        assert_eq!(w.calls_text(), NONE, "{situation}: not before 5 s");
        w.advance(Duration::from_secs(60));
        let reports: Vec<String> = reported.into_iter().map(str::to_owned).collect();
        assert_eq!(w.calls_text(), reports, "{situation}");
        w.answer_all();
        w.events.clear();
        // It passes: nothing of ours is left, and what the cycle found stays where it stood.
        w.change("p", |p| p.with(|p| p.metadata.labels = Default::default()));
        assert_ne!(w.place_of("p"), Some(QueuedIn::Gated), "{situation}");
        w.advance(Duration::from_secs(5));
        let cleared: &[&str] = match reported {
            Some(_) => &["clear p"],
            None => &[],
        };
        assert_eq!(w.calls_text(), cleared, "{situation}");
    }
}

/// a pod is kept out right after its attempt, while what that found is still to be written, is written
/// or is written again. That is written as it is; the report follows after its 5 s, and not at all when the pod
/// passes before.
#[test]
fn a_report_does_not_overtake_what_a_cycle_found() {
    let no = || {
        fake("No")
            .filter(|_, _, _| Status::unschedulable("no"))
            .events(|| {
                vec![EventRegistration::always(
                    EventResource::Pod,
                    ActionType::UPDATE_POD_LABEL,
                )]
            })
    };
    let report = ["patch p PodScheduled=False NotReadyForScheduling: shut"];
    let verdict = ["patch p PodScheduled=False Unschedulable: 0/1 nodes are available: 1 no."];
    for (situation, busy_for, passes) in [
        ("written at once", 0, false),
        ("written at the second try", 1, false),
        ("passes in time", 0, true),
    ] {
        let mut w = world([gate(), no()]);
        w.applied(node("n1").object());
        w.pod(pod("p").label("open", "yes"));
        w.attempt();
        assert_eq!(w.calls_text(), verdict, "{situation}");
        w.change("p", |p| p.with(|p| p.metadata.labels = Default::default()));
        assert_eq!(w.place_of("p"), Some(QueuedIn::Gated), "{situation}");
        for _ in 0..busy_for {
            too_busy(&mut w);
            w.advance(Duration::from_millis(11));
            assert_eq!(w.calls_text(), verdict, "{situation}");
        }
        w.advance(Duration::from_secs(2));
        w.answer_all();
        if passes {
            w.change("p", |p| p.label("open", "again"));
        }
        w.advance(Duration::from_millis(2_900));
        assert_eq!(w.calls_text(), NONE, "{situation}: not before 5 s");
        w.advance(Duration::from_millis(100));
        let expected: &[&str] = if passes { &[] } else { &report };
        assert_eq!(w.calls_text(), expected, "{situation}");
    }
}

/// Issue 4: a burst of status patches never holds up a binding.
#[test]
fn a_binding_does_not_wait_for_status_patches() {
    let mut w = world([fits()]);
    w.applied(node("n1").capacity("1", "1Gi", "200").object());
    for i in 0..100 {
        w.pod(pod(&format!("big{i}")).request("cpu", "2"));
        assert!(w.attempt().starts_with("0/1"));
    }
    let limit = DispatcherOptions::default().lanes.status.max;
    assert_eq!(w.calls.len(), limit, "the rest waits");
    w.pod(pod("small").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    let last = w.calls_text().pop();
    assert_eq!(last.as_deref(), Some("bind small n1"));
    w.answer_all();
    assert!(w.core.dispatcher().is_empty());
}

/// Issue 4: a pod that made room sees its nomination while the write of it waits, is repeated, or was not seen yet.
#[test]
fn a_nomination_is_seen_from_the_start() {
    let preempt = fake("Preempt").post_filter(|_, _, _, _| {
        PostFilterStep::Done(PostFilterResult {
            status: Status::success(),
            nominating: Nominating::Set("n1".into()),
        })
    });
    let no = fake("No").filter(|_, _, _| Status::unschedulable("no"));
    let mut w = world([no, preempt]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    let nominated = |w: &World| {
        let pod = w.core.cache().effective("uid-p").cloned();
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
    let wake = w.core.next_wake(w.now).unwrap_or(Time::MAX);
    assert!(wake.since(w.now) <= Duration::from_millis(11), "{wake}");
    w.advance(Duration::from_millis(11));
    let (id, _) = w.calls.remove(0);
    w.core.complete(id, Ok(()), w.now);
    w.take();
    assert_eq!(nominated(&w), n1, "written, not seen");
    w.change("p", |p| p.label("too", "early"));
    assert_eq!(nominated(&w), n1);
    w.advance(Duration::from_secs(30));
    assert_eq!(
        nominated(&w),
        Some(String::new()),
        "somebody must have overwritten it"
    );
}

/// P-20: nothing else would tell the pod that its victim stays.
#[test]
fn a_failed_eviction_wakes_whoever_was_promised_the_node() {
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
        (Some("an admission webhook says no"), QueuedIn::Active),
        // The deletion is an event, and the plugin hears of it.
        (None, QueuedIn::Backoff),
    ] {
        let mut w = world([fits(), preempt()]);
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

/// A call whose answer is that it was needless is not waited for.
#[test]
fn a_call_with_nothing_left_to_do_ends_by_itself() {
    let features = FeatureGates::default()
        .with(Feature::SchedulerAsyncAPICalls, false)
        .with(Feature::SchedulerPreEnqueuePodStatus, false);
    let no = fake("No").filter(|_, _, _| Status::unschedulable("no"));
    let mut w = World::new([no, binder()], features);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    // As if it had been said by an earlier call that is still on its way.
    let before = ApiCall::PatchPodStatus {
        pod: berth_framework::call::PodRef::of(&w.pods["p"]),
        condition: None,
        nominated_node: Some("n1".into()),
    };
    let first: CallId = w.core.io.call(before.clone(), Duration::ZERO, w.now);
    let second: CallId = w.core.io.call(before, Duration::ZERO, w.now);
    w.advance(Duration::ZERO);
    assert_eq!(w.calls.len(), 1);
    w.core.complete(first, Ok(()), w.now);
    w.take();
    assert!(w.calls.iter().all(|(id, _)| *id != second));
    let dispatcher = w.core.dispatcher();
    assert!(dispatcher.is_empty() && !dispatcher.has_finished());
}

/// While calls pile up, no further pod is tried.
#[test]
fn a_full_dispatcher_holds_back_the_queue() {
    let mut w = world([]);
    w.core.io.dispatcher = Dispatcher::new(DispatcherOptions {
        tracked_max: 4,
        ..DispatcherOptions::default()
    });
    w.applied(node("n1").object());
    for name in ["a", "b", "c", "d"] {
        w.pod(pod(name));
    }
    for _ in 0..3 {
        assert_eq!(w.attempt(), "on n1");
    }
    assert!(!w.core.has_pod_to_try());
    assert_eq!(w.attempt(), "idle");
    w.answer(None);
    assert!(w.core.has_pod_to_try());
    assert_eq!(w.attempt(), "on n1");
}
