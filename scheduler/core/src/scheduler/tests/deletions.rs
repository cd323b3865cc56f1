//! Pods that are deleted while a call for them is waiting or in flight.

use super::calls::no;
use super::*;
use berth_api::Duration;
use berth_framework::call::{CallErrorKind, ConditionPatch, PodRef};
use berth_framework::plugin::PermitStep;
use berth_framework::stage::{Step, Wait, WaitOn};
use berth_framework::testing::{fake, node, pod};
use berth_framework::{ApiCall, Feature, FeatureGates};
use berth_queue::QueuedIn;
use berth_telemetry::metrics::Metric;

/// A pod is deleted during its placement. D-25; C-46, C-48, C-49 and C-52, cases 222, 229: it counts as a failed
/// attempt with an event, as in kube-scheduler; nothing is written to it, all of its state is removed, and its
/// resources are free at once.
#[test]
fn a_pod_that_is_deleted_while_it_is_bound_leaves_nothing_behind() {
    let hold = || fake("Hold").permit(|_, _, _, _| PermitStep::Hold(Duration::from_secs(500)));
    let slow = || {
        fake("Slow").pre_bind(|cx, _, _, _, wake| match wake {
            None => Step::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_secs(100),
            }),
            Some(_) => Step::success(),
        })
    };
    let quick = || fake("Quick");
    let bind = "running Bind plugin \"Binder\": ";
    let missing = format!("{bind}pods \"p\" not found");
    let dropped = format!("{bind}the object is gone: call skipped");
    let fits_nowhere = "0/1 nodes are available: 1 removed.".to_owned();
    for (situation, plugin, busy, result, message) in [
        ("held back", hold(), false, "unschedulable", fits_nowhere),
        ("being prepared", slow(), false, "error", missing.clone()),
        ("about to be bound", quick(), true, "error", dropped),
        ("being bound", quick(), false, "error", missing),
    ] {
        let mut w = driver([plugin, fits()]);
        w.applied(node("n1").capacity("1", "1Gi", "9").object());
        w.pod(pod("p").request("cpu", "1"));
        if busy {
            let call = ApiCall::PatchPodStatus {
                pod: PodRef::of(&w.pods["p"]),
                conditions: Vec::new(),
                nominated_node: Some("n1".into()),
            };
            w.call(call);
            w.take();
        }
        assert_eq!(w.attempt(), "on n1", "{situation}");
        w.pod(pod("other").request("cpu", "1"));
        assert!(w.attempt().starts_with("0/1"), "{situation}");
        w.events.clear();
        w.deleted("p");
        assert_eq!(w.on("n1"), Vec::<String>::new(), "{situation}: room");
        assert_eq!(w.place_of("other"), Some(QueuedIn::Backoff), "{situation}");
        let not_found = |w: &mut Driver| {
            while !w.calls.is_empty() {
                let is_other = w.calls_text()[0].contains("other");
                w.answer((!is_other).then_some("pods \"p\" not found"));
            }
        };
        not_found(&mut w);
        w.advance(Duration::from_secs(101));
        not_found(&mut w);
        let labels = |result| [result, "default-scheduler"];
        for counted in ["scheduled", "unschedulable", "error"] {
            // The other pod was rejected once.
            let others = f64::from(u8::from(counted == "unschedulable"));
            let own = f64::from(u8::from(counted == result));
            assert_eq!(
                w.metric(Metric::ScheduleAttempts, &labels(counted)),
                own + others,
                "{situation}: {counted}"
            );
        }
        assert_eq!(
            w.events_text(),
            [format!("Warning FailedScheduling {message}")],
            "{situation}"
        );
        assert_eq!(w.place_of("p"), None, "{situation}");
        assert_eq!(w.scheduler.queue().in_flight().len(), 0, "{situation}");
        assert_eq!(w.scheduler.bindings_in_flight(), 0, "{situation}");
        assert_eq!(w.scheduler.cache().assumed_pods(), 0, "{situation}");
        assert_eq!(w.scheduler.queue().nominator().node_of("uid-p"), None);
        assert!(w.scheduler.dispatcher().is_empty(), "{situation}");
        assert_eq!(w.attempt(), "on n1", "{situation}: the other has the room");
    }
}

/// D-1, D-25: without the gate, a pod that is deleted, or bound by another scheduler, while its status write is in
/// flight or waiting leaves the queue; unsent calls are dropped.
#[test]
fn without_the_gate_a_pod_may_go_during_its_status_call() {
    type Change = fn(&mut Driver);
    let changes: [(&str, Change, Option<QueuedIn>); 3] = [
        ("deleted", |w| w.deleted("p"), None),
        (
            "bound by another scheduler",
            |w| w.change("p", |p| p.on("n1")),
            None,
        ),
        (
            "changed",
            |w| w.change("p", |p| p.label("a", "b")),
            Some(QueuedIn::Unschedulable),
        ),
    ];
    for (situation, change, place) in changes {
        for behind_another in [true, false] {
            let what = format!("{situation}, behind another call: {behind_another}");
            let features = FeatureGates::default()
                .with(Feature::SchedulerAsyncAPICalls, false)
                .with(Feature::SchedulerPreEnqueuePodStatus, false);
            let mut w = driver_of([no(), binder()], features);
            w.applied(node("n1").object());
            w.pod(pod("p"));
            if behind_another {
                let call = ApiCall::PatchPodStatus {
                    pod: PodRef::of(&w.pods["p"]),
                    conditions: Vec::new(),
                    nominated_node: Some("n1".into()),
                };
                w.call(call);
            }
            assert!(w.attempt().starts_with("0/1"), "{what}");
            change(&mut w);
            while !w.calls.is_empty() {
                w.fail(CallErrorKind::NotFound);
            }
            assert_eq!(w.scheduler.queue().in_flight().len(), 0, "{what}");
            assert_eq!(w.place_of("p"), place, "{what}");
            assert!(w.scheduler.dispatcher().is_empty(), "{what}");
        }
    }
}

/// D-7, D-10: the deletion of a pod replaces its waiting binding. The binding fails and its resources are released. If
/// the deletion is refused, the pod is tried again.
#[test]
fn a_binding_that_gives_way_to_a_deletion_has_failed() {
    for refused in [true, false] {
        let mut w = driver([fits()]);
        w.applied(node("n1").capacity("1", "1Gi", "9").object());
        w.pod(pod("p").request("cpu", "1"));
        let nominate = ApiCall::PatchPodStatus {
            pod: PodRef::of(&w.pods["p"]),
            conditions: Vec::new(),
            nominated_node: Some("n1".into()),
        };
        w.call(nominate);
        w.take();
        assert_eq!(w.attempt(), "on n1");
        assert_eq!(w.calls.len(), 1, "the binding waits for the patch");
        let victim = w.pods["p"].clone();
        let delete = ApiCall::DeletePod {
            pod: PodRef::of(&victim),
            condition: ConditionPatch::of(
                &victim,
                "DisruptionTarget",
                "True",
                "PreemptionByScheduler",
                "",
            ),
        };
        w.call(delete);
        w.advance(Duration::ZERO);
        assert_eq!(w.scheduler.bindings_in_flight(), 0);
        assert_eq!(w.on("n1"), Vec::<String>::new());
        assert_eq!(
            w.events_text(),
            [
                "Warning FailedScheduling running Bind plugin \"Binder\": a more relevant call was enqueued for this \
                 object: call overwritten"
            ]
        );
        w.answer(None);
        assert_eq!(w.calls_text(), ["delete p"], "and nothing else");
        w.answer(refused.then_some("an admission webhook refuses"));
        w.advance(Duration::from_secs(10));
        let expected = if refused { "on n1" } else { "idle" };
        assert_eq!(w.attempt(), expected, "refused: {refused}");
    }
}

/// P-20: a pod is not tried while its eviction is in flight. If the eviction is refused, the pod is tried again, even
/// if it was popped during the eviction.
#[test]
fn a_pod_that_is_spared_is_tried_again() {
    for refused in [true, false] {
        let mut w = driver([fits()]);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        let victim = w.pods["p"].clone();
        let delete = ApiCall::DeletePod {
            pod: PodRef::of(&victim),
            condition: ConditionPatch::of(&victim, "DisruptionTarget", "True", "Because", ""),
        };
        w.call(delete);
        w.advance(Duration::ZERO);
        assert_eq!(w.attempt(), "skipped");
        assert_eq!(w.place_of("p"), None);
        w.answer(refused.then_some("an admission webhook refuses"));
        let expected = if refused { "on n1" } else { "idle" };
        assert_eq!(w.attempt(), expected, "refused: {refused}");
    }
}
