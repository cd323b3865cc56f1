//! Preemption from the first attempt until the preemptor is bound (queue 6 and 9.13).

use crate::drivers::{driver, driver_of, is_deletion, is_status_of, with_spec};
use berth_api::Kind;
use berth_api::Release;
use berth_framework::call::CallErrorKind;
use berth_framework::testing::{PodBuilder, node, pod};
use berth_framework::{Feature, FeatureGates};
use berth_scheduler::metrics::{Metric, SeriesValue};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::json;

const FULL: &str = "Insufficient cpu.";
const WAITS: &str = "preemption: not eligible due to a terminating pod on the nominated node.";

fn small(name: &str) -> PodBuilder {
    pod(name).request("cpu", "1")
}

fn vip(name: &str, cpu: &str) -> PodBuilder {
    pod(name).priority(10).request("cpu", cpu)
}

/// One node of two CPUs, both taken.
fn full(features: FeatureGates) -> Driver {
    let mut w = driver_of(features);
    w.node(node("n1").capacity("2", "1Gi", "10"));
    w.pod(small("a").priority(1).on("n1"));
    w.pod(small("b").on("n1"));
    w
}

/// P-16, P-20 to P-22, edge cases 125 and 243: an event wakes the preemptor while its victims are being evicted.
/// PreEnqueue blocks it until the evictions end. Then it is tried without a further event.
#[test]
fn a_preemptor_is_rejected_until_its_victims_are_evicted() {
    let mut w = full(FeatureGates::default());
    w.pod(vip("vip", "2"));
    assert!(w.attempt_named().ends_with(FULL));
    assert_eq!(w.deletions(), ["a"], "b follows a");
    assert_eq!(w.nominated("vip"), "n1");
    let written = w.calls.iter().find_map(|(_, call)| match call {
        berth_framework::ApiCall::PatchPodStatus {
            pod,
            nominated_node: Some(node),
            ..
        } if pod.name == "vip" => {
            let c = call.condition("PodScheduled")?;
            Some(format!("{} {}, {node}", c.kind, c.reason))
        }
        _ => None,
    });
    assert_eq!(written.as_deref(), Some("PodScheduled Unschedulable, n1"));
    assert_eq!(w.place_of("vip"), Some(QueuedIn::Unschedulable));
    // A node that is not big enough for it is no reason, one that is might be.
    w.node(node("tiny").capacity("1", "1Gi", "10"));
    assert_eq!(w.place_of("vip"), Some(QueuedIn::Unschedulable));
    w.node(node("tainted").capacity("4", "1Gi", "10").taint(
        "k",
        "v",
        berth_api::TaintEffect::NoSchedule,
    ));
    assert_eq!(w.place_of("vip"), Some(QueuedIn::Gated));
    w.wait(5);
    let report = w.calls.iter().find_map(|(_, call)| {
        let stated = call.condition("PodScheduled");
        let stated = stated.filter(|c| c.reason == "NotReadyForScheduling");
        stated.map(|c| c.message.clone())
    });
    assert_eq!(
        report, None,
        "it returned Unschedulable, which is more specific"
    );
    w.answer_which(is_deletion, None, true);
    assert_eq!(w.place_of("vip"), Some(QueuedIn::Gated));
    assert_eq!(w.deletions(), ["b"]);
    w.answer_which(is_deletion, None, true);
    assert_eq!(w.place_of("vip"), Some(QueuedIn::Active));
    let text = w.attempt_named();
    assert!(text.ends_with(WAITS), "{text}");
    w.deleted("a");
    w.deleted("b");
    w.wait(10);
    assert_eq!(w.attempts(), ["vip on n1"]);
    let mut events = w.take_events();
    events.retain(|e| e.starts_with("Pre"));
    assert_eq!(
        events,
        [
            "Preempted Preempted by pod uid-vip on node n1",
            "Preempted Preempted by pod uid-vip on node n1"
        ]
    );
}

/// P-16: since 1.37, the message of the preemptor names the node and the number of victims, in the condition and in the
/// event.
#[test]
fn the_message_names_the_node_and_the_victims_since_1_37() {
    for (release, cpu, expected) in [
        (Release::V1_36, "2", ""),
        (
            Release::V1_37,
            "2",
            " preemption: found a potential placement for pod on node n1, preempting 2 victims",
        ),
        (
            Release::V1_37,
            "1",
            " preemption: found a potential placement for pod on node n1, preempting 1 victims",
        ),
        (
            Release::V1_38,
            "2",
            " preemption: found a potential placement for pod on node n1, preempting 2 victims",
        ),
    ] {
        for is_async in [true, false] {
            let features =
                FeatureGates::of(release).with(Feature::SchedulerAsyncPreemption, is_async);
            let mut w = full(features);
            w.pod(vip("vip", cpu));
            let _ = w.attempt_named();
            while !w.deletions().is_empty() {
                w.answer_which(is_deletion, None, true);
            }
            let expected = format!("0/1 nodes are available: 1 {FULL}{expected}");
            let messages = w.calls.iter().filter_map(|(_, call)| match call {
                berth_framework::ApiCall::PatchPodStatus { pod, .. } if pod.name == "vip" => {
                    Some(call.condition("PodScheduled")?.message.to_string())
                }
                _ => None,
            });
            let case = format!("{release}, {cpu} CPU, async {is_async}");
            assert_eq!(messages.collect::<Vec<_>>(), [expected.as_str()], "{case}");
            let events = w.take_events();
            let event = format!("FailedScheduling {expected}");
            assert!(events.contains(&event), "{case}: {events:?}");
        }
    }
}

/// P-21, P-22, case 243: the watch shows the last victim terminating before its deletion is answered. The preemptor
/// that PreEnqueue blocked until then is admitted. If the victim is only terminating, no event notifies the preemptor,
/// and it is activated at once. If the victim was deleted, the event moves the preemptor like any other pod.
#[test]
fn a_preemptor_is_admitted_when_its_last_victim_terminates() {
    type Seen = fn(&mut Driver);
    let seen: [(&str, Seen, QueuedIn); 3] = [
        ("nothing", |_| {}, QueuedIn::Gated),
        (
            "terminating",
            |w| {
                let now = w.now;
                w.change("b", |p| p.deleting(now));
            },
            QueuedIn::Active,
        ),
        ("gone", |w| w.deleted("b"), QueuedIn::Backoff),
    ];
    for (situation, seen, place) in seen {
        let mut w = full(FeatureGates::default());
        w.pod(vip("vip", "2"));
        assert!(w.attempt_named().ends_with(FULL), "{situation}");
        w.node(node("big").capacity("4", "1Gi", "10").unschedulable(true));
        w.node(node("big").capacity("4", "1Gi", "10").taint(
            "k",
            "v",
            berth_api::TaintEffect::NoSchedule,
        ));
        assert_eq!(w.place_of("vip"), Some(QueuedIn::Gated), "{situation}");
        w.answer_which(is_deletion, None, true);
        assert_eq!(w.deletions(), ["b"], "{situation}");
        assert_eq!(w.place_of("vip"), Some(QueuedIn::Gated), "{situation}");
        seen(&mut w);
        assert_eq!(w.place_of("vip"), Some(place), "{situation}");
    }
}

/// P-21: the deletion of the last victim is answered before the watch shows it. The preemptor, which an event had woken, is
/// not tried in between: an attempt would fail, because the victim still counts on its node.
#[test]
fn a_preemptor_is_not_tried_before_its_last_victim_is_seen() {
    for is_terminating_first in [false, true] {
        let mut w = full(FeatureGates::default());
        w.pod(vip("vip", "2"));
        assert!(w.attempt_named().ends_with(FULL));
        w.node(node("big").capacity("4", "1Gi", "10").taint(
            "k",
            "v",
            berth_api::TaintEffect::NoSchedule,
        ));
        assert_eq!(w.place_of("vip"), Some(QueuedIn::Gated));
        w.answer_which(is_deletion, None, false);
        let at = w.calls.iter().position(|(_, call)| is_deletion(call));
        let (id, _) = w.calls.remove(at.expect("the last victim is evicted"));
        w.complete(id, Ok(()));
        assert_eq!(w.place_of("vip"), Some(QueuedIn::Gated));
        if is_terminating_first {
            let now = w.now;
            w.change("b", |p| p.deleting(now));
            assert_eq!(w.place_of("vip"), Some(QueuedIn::Active));
        } else {
            w.deleted("b");
            w.wait(10);
            assert_eq!(w.attempt_named(), "vip on n1");
        }
    }
}

/// Issue 4: a preemptor whose status write is pending never preempts again, whatever has become of the write and of
/// the deletion, and whatever wakes it.
#[test]
fn a_preemptor_whose_status_is_being_written_does_not_preempt_again() {
    type Step = fn(&mut Driver);
    let writes: [(&str, Step); 4] = [
        ("on its way", |_| {}),
        ("to be repeated", |w| {
            w.answer_which(is_status_of("vip"), Some(CallErrorKind::Unavailable), false);
        }),
        ("perhaps carried out", |w| {
            w.answer_which(is_status_of("vip"), Some(CallErrorKind::Timeout), false);
        }),
        ("written and not seen", |w| {
            let at = w.calls.iter().position(|(_, c)| is_status_of("vip")(c));
            let (id, _) = w.calls.remove(at.expect("the status is written"));
            w.scheduler.complete(id, Ok(()), w.now);
        }),
    ];
    let deletions: [(&str, Step); 3] = [
        ("on its way", |_| {}),
        ("carried out and not seen", |w| {
            let at = w.calls.iter().position(|(_, c)| is_deletion(c));
            let (id, _) = w.calls.remove(at.expect("the victim is notified"));
            w.scheduler.complete(id, Ok(()), w.now);
        }),
        ("the victim is terminating", |w| {
            w.answer_which(is_deletion, None, true);
        }),
    ];
    let wakes: [(&str, Step); 2] = [
        ("an update of the pod", |w| {
            w.change("vip", |p| p.label("touched", "yes"));
        }),
        ("a pod goes elsewhere", |w| w.deleted("tiny-one")),
    ];
    for (write, written) in writes {
        for (deletion, deleted) in deletions {
            for (wake, woken) in wakes {
                let case = format!("status {write}, deletion {deletion}, {wake}");
                let mut w = full(FeatureGates::default());
                w.node(node("n2").capacity("2", "1Gi", "10"));
                w.pod(small("c").on("n2")).pod(small("d").on("n2"));
                w.pod(pod("tiny-one").request("cpu", "0").on("n2"));
                w.pod(vip("vip", "1"));
                assert!(w.attempt_named().ends_with(FULL), "{case}");
                let victims = w.deletions();
                assert_eq!(victims.len(), 1, "{case}");
                let nominated = w.nominated("vip");
                written(&mut w);
                deleted(&mut w);
                woken(&mut w);
                w.wait(10);
                let tried = w.attempts();
                assert!(
                    tried.iter().all(|t| t.ends_with(WAITS)),
                    "{case}: {tried:?}"
                );
                assert!(
                    w.deletions().iter().all(|d| *d == victims[0]),
                    "{case}: no other pod is evicted: {:?}",
                    w.deletions()
                );
                assert_eq!(w.nominated("vip"), nominated, "{case}");
                let metrics = w.scheduler.metrics();
                let Some(SeriesValue::Histogram(chosen)) =
                    metrics.get(Metric::PreemptionVictims, &[])
                else {
                    panic!("{case}: victims were counted");
                };
                assert_eq!((chosen.count(), chosen.sum), (1, 1.0), "{case}");
            }
        }
    }
}

/// P-20, edge case 242: if the deletion of a victim is refused, the preemptor is tried again at once, and may choose
/// other victims.
#[test]
fn a_refused_eviction_is_tried_anew() {
    let mut w = full(FeatureGates::default());
    w.pod(vip("vip", "1"));
    assert!(w.attempt_named().ends_with(FULL));
    let first = w.deletions();
    assert_eq!(first.len(), 1);
    w.answer_which(is_deletion, Some(CallErrorKind::Refused), false);
    assert_eq!(w.place_of("vip"), Some(QueuedIn::Active));
    let events = w.take_events();
    assert!(!events.iter().any(|e| e.starts_with("Preempted")));
    assert!(w.attempt_named().ends_with(FULL));
    assert_eq!(w.deletions(), first, "the least important one still is");
    w.answer_all();
    w.wait(10);
    assert_eq!(w.attempts(), ["vip on n1"]);
}

/// P-19: without SchedulerAsyncPreemption the cycle waits for its victims.
#[test]
fn without_the_gate_the_cycle_waits() {
    let gates = FeatureGates::default().with(Feature::SchedulerAsyncPreemption, false);
    let mut w = full(gates);
    w.pod(vip("vip", "2"));
    assert_eq!(w.attempt_named(), "parked");
    w.answer_which(is_deletion, None, false);
    assert_eq!(w.attempt_named(), "parked", "one after another");
    w.answer_which(is_deletion, None, false);
    assert_eq!(w.nominated("vip"), "n1");
    w.wait(10);
    assert_eq!(w.attempts(), ["vip on n1"]);
}

/// P-3: if a preemptor was deleted while its cycle waited, no further victim is evicted for it.
#[test]
fn without_the_gate_no_victim_is_evicted_for_a_deleted_preemptor() {
    let gates = FeatureGates::default().with(Feature::SchedulerAsyncPreemption, false);
    let mut w = full(gates);
    w.pod(vip("vip", "2"));
    assert_eq!(w.attempt_named(), "parked");
    w.deleted("vip");
    w.answer_which(is_deletion, None, false);
    assert_eq!(w.deletions().len(), 0, "the other one stays");
    assert_eq!(w.attempt_named(), "idle");
    assert_eq!(w.place_of("vip"), None);
}

/// edge case 244: the room belongs to the preemptor, except for pods of higher priority.
#[test]
fn nominated_room_is_kept_from_lower_pods_alone() {
    for (priority, placed) in [(5, false), (10, false), (20, true)] {
        let mut w = full(FeatureGates::default());
        w.pod(vip("vip", "2"));
        assert!(w.attempt_named().ends_with(FULL));
        w.answer_which(is_deletion, None, false);
        w.answer_which(is_deletion, None, false);
        // Both victims were deleted, and the preemptor waits for its backoff.
        w.pod(small("other").priority(priority));
        let text = loop {
            let text = w.attempt_named();
            if text.starts_with("other") || text == "idle" {
                break text;
            }
        };
        assert_eq!(text == "other on n1", placed, "priority {priority}: {text}");
    }
}

/// Q-78, P-24, case 246: pods of lower priority lose their nomination and are tried again; pods of equal priority keep
/// it.
#[test]
fn lower_pods_lose_their_nomination() {
    for (priority, keeps) in [(5, false), (10, true)] {
        let mut w = driver();
        w.node(node("n1").capacity("2", "1Gi", "10"));
        w.pod(small("a").on("n1")).pod(small("b").on("n1"));
        w.pod(small("earlier").priority(priority).nominated("n1"));
        assert!(w.attempt_named().ends_with(FULL));
        w.answer_which(is_deletion, None, false);
        assert_eq!(w.nominated("earlier"), "n1");
        // `vip` needs the whole node, but a nominated pod of equal priority reserves a part of it.
        w.pod(vip("vip", "2"));
        assert!(w.attempt_named().starts_with("vip: "));
        assert_eq!(w.nominated("earlier") == "n1", keeps, "priority {priority}");
        assert_eq!(w.nominated("vip") == "n1", !keeps, "priority {priority}");
        if !keeps {
            w.answer_all();
            assert_eq!(w.pods["earlier"].status.nominated_node_name, "");
        }
    }
}

/// P-24: a nomination that is still being written is cleared too, and the pod ends without a nomination.
#[test]
fn a_nomination_that_is_being_written_is_reverted() {
    let mut w = full(FeatureGates::default());
    w.pod(pod("earlier").priority(5).request("cpu", "2"));
    assert!(w.attempt_named().ends_with(FULL));
    assert_eq!(w.nominated("earlier"), "n1");
    assert_eq!(w.pods["earlier"].status.nominated_node_name, "");
    w.pod(vip("vip", "2"));
    let text = w.attempt_named();
    assert!(text.starts_with("vip: "), "{text}");
    assert_eq!(
        (w.nominated("earlier"), w.nominated("vip")),
        ("".into(), "n1".into())
    );
    w.answer_all();
    assert_eq!(w.pods["earlier"].status.nominated_node_name, "");
    assert_eq!(w.pods["vip"].status.nominated_node_name, "n1");
}

/// P-7: every budget that the cluster has now is heeded.
#[test]
fn budgets_of_the_cluster_are_heeded() {
    let budget = |namespace: &str, allowed: u32| {
        json!({
            "metadata": {"name": "b", "namespace": namespace, "uid": "b"},
            "spec": {"selector": {"matchLabels": {"app": "b"}}},
            "status": {"disruptionsAllowed": allowed},
        })
    };
    for (situation, budgets, victim) in [
        ("none", vec![], "b"),
        ("b may not go", vec![budget("default", 0)], "a"),
        ("of others", vec![budget("other", 0)], "b"),
        (
            "b may go now",
            vec![budget("default", 0), budget("default", 1)],
            "b",
        ),
    ] {
        let mut w = driver();
        w.node(node("n1").capacity("2", "1Gi", "10"));
        w.pod(small("a").priority(1).label("app", "a").on("n1"));
        w.pod(small("b").label("app", "b").on("n1"));
        for budget in budgets {
            w.object(Kind::PodDisruptionBudget, budget);
        }
        w.pod(vip("vip", "1"));
        assert!(w.attempt_named().ends_with(FULL), "{situation}");
        assert_eq!(w.deletions(), [victim], "{situation}");
    }
}

/// P-12: a pod that is only about to be bound may have to go, too.
#[test]
fn pods_on_their_way_to_the_node_are_victims_too() {
    let mut w = driver();
    w.node(node("n1").capacity("1", "1Gi", "10"));
    w.pod(small("late"));
    assert_eq!(w.attempt_named(), "late on n1");
    w.pod(vip("vip", "1"));
    assert!(w.attempt_named().ends_with(FULL));
    assert_eq!(w.nominated("vip"), "n1");
    w.answer_all();
    assert!(
        !w.pods.contains_key("late"),
        "it is bound first, then deleted"
    );
    w.wait(10);
    assert_eq!(w.attempts(), ["vip on n1"]);
}

/// edge case 248: the nominated node is deleted, and the preemptor is placed on another node.
#[test]
fn a_preemptor_whose_node_is_gone_goes_elsewhere() {
    let mut w = full(FeatureGates::default());
    w.pod(vip("vip", "1"));
    assert!(w.attempt_named().ends_with(FULL));
    w.answer_which(is_deletion, None, true);
    w.gone(node("n1").object());
    w.node(node("n2").capacity("2", "1Gi", "10"));
    w.wait(10);
    assert_eq!(w.attempts(), ["vip on n2"]);
}

/// Two preemptors need the same resources: a terminating victim is not evicted twice, and the more important preemptor
/// gets the node.
#[test]
fn terminating_victims_are_not_evicted_twice() {
    let mut w = full(FeatureGates::default());
    w.pod(vip("vip", "2"));
    assert!(w.attempt_named().ends_with(FULL));
    w.answer_which(is_deletion, None, true);
    w.answer_which(is_deletion, None, true);
    assert_eq!(w.deletions().len(), 0);
    w.pod(pod("boss").priority(50).request("cpu", "2"));
    let text = w.attempt_named();
    assert!(text.starts_with("boss: ") && text.ends_with(FULL), "{text}");
    assert_eq!(w.deletions().len(), 0, "they go already");
    assert_eq!(w.nominated("boss"), "n1");
    w.deleted("a");
    w.deleted("b");
    w.wait(10);
    let tried = w.attempts();
    assert_eq!(tried[0], "boss on n1", "{tried:?}");
    assert!(!tried.iter().any(|t| t == "vip on n1"));
}

/// P-12: nominated pods of equal or higher priority count in the dry run, so more victims are needed.
#[test]
fn nominated_pods_count_in_the_dry_run() {
    for (nominee, expected) in [(None, 1), (Some(5), 1), (Some(10), 2), (Some(50), 2)] {
        let mut w = full(FeatureGates::default());
        if let Some(priority) = nominee {
            // It is nominated, and waits for something else: a volume that does not exist.
            let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]);
            w.pod(
                small("nominee")
                    .priority(priority)
                    .nominated("n1")
                    .with(|p| {
                        p.spec.volumes = serde_json::from_value(volumes).expect("volumes");
                    }),
            );
            w.attempt_named();
            // The failed attempt clears the nomination; the test sets it again.
            w.answer_all();
            w.change("nominee", |p| p.nominated("n1"));
            assert_eq!(w.nominated("nominee"), "n1");
        }
        w.pod(vip("vip", "1"));
        while !w.attempt_named().starts_with("vip") {}
        let mut notified = w.deletions();
        while !w.deletions().is_empty() {
            w.answer_which(is_deletion, None, false);
            notified.extend(w.deletions());
        }
        assert_eq!(notified.len(), expected, "{nominee:?}: {notified:?}");
    }
}

/// PL-111: a claim that only one pod may use is freed, whatever room there is.
#[test]
fn a_claim_for_one_pod_is_freed() {
    let mut w = driver();
    w.node(node("n1"));
    w.object(
        Kind::PersistentVolumeClaim,
        json!({
            "metadata": {"name": "data", "namespace": "default", "uid": "data",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOncePod"]},
            "status": {"phase": "Bound"},
        }),
    );
    w.object(Kind::PersistentVolume, json!({"metadata": {"name": "pv"}}));
    let uses = |pod: PodBuilder| {
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
        pod.with(|p| p.spec.volumes = serde_json::from_value(volumes).expect("volumes"))
    };
    w.pod(uses(pod("user")).on("n1"));
    w.pod(pod("bystander").on("n1"));
    w.pod(uses(pod("vip").priority(10)));
    let reason = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use \
                  by another pod";
    let text = w.attempt_named();
    assert!(text.contains(reason), "{text}");
    assert_eq!(w.deletions(), ["user"]);
    w.answer_which(is_deletion, None, false);
    w.wait(10);
    assert_eq!(w.attempts(), ["vip on n1"]);
}

/// P-1, edge case 247: the whole message of a pod that cannot preempt, and its nomination.
#[test]
fn the_message_of_a_pod_that_cannot_preempt() {
    let nowhere = "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption \
                   is not helpful for scheduling.";
    let never = "preemption: not eligible due to preemptionPolicy=Never.";
    for (policy, why, nominated) in [(None, nowhere, ""), (Some("Never"), never, "n1")] {
        let mut w = driver();
        w.node(node("n1").capacity("2", "1Gi", "10"));
        w.node(node("n2").capacity("1", "1Gi", "10"));
        w.pod(small("a").priority(10).on("n1"));
        w.pod(vip("vip", "2").nominated("n1").with(|p| {
            p.spec.preemption_policy = policy.map(Into::into);
        }));
        assert_eq!(
            w.attempt_named(),
            format!(
                "vip: 0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, {why}"
            )
        );
        assert_eq!(w.nominated("vip"), nominated);
        assert_eq!(w.metric(Metric::PreemptionAttempts, &[]), 1.0);
    }
}

/// PL-53: two pods of a node hold the same host port, which happens with `spec.nodeName` or a second scheduler. The
/// port is free once both are deleted: no pod is evicted without need, and none is bound to a port that is in use.
#[test]
fn a_host_port_with_two_holders_is_free_when_both_are_removed() {
    let holder = |name: &str, priority| pod(name).priority(priority).host_port(80).on("n1");
    for (situation, other, evicted) in [
        ("the other holder is more important", 20, &[][..]),
        ("both are less important", 0, &["a", "b"][..]),
    ] {
        let mut w = driver();
        w.node(node("n1"));
        w.pod(holder("a", 0));
        w.pod(holder("b", other));
        w.pod(pod("vip").priority(10).host_port(80));
        let text = w.attempt_named();
        assert!(text.contains("free ports"), "{situation}: {text}");
        for name in evicted {
            assert_eq!(w.deletions(), [*name], "{situation}");
            w.answer_which(is_deletion, None, true);
        }
        assert!(w.deletions().is_empty(), "{situation}");
        for (at, name) in evicted.iter().enumerate() {
            w.deleted(name);
            w.wait(10);
            let bound = if at + 1 == evicted.len() {
                vec!["vip on n1".to_owned()]
            } else {
                Vec::new()
            };
            let tried = w.attempts();
            let placed: Vec<String> = tried
                .into_iter()
                .filter(|t| t.ends_with(" on n1"))
                .collect();
            assert_eq!(placed, bound, "{situation}: {name} is gone");
        }
    }
}

/// Another plugin rejects a pod in PreFilter before DynamicResources runs: no pod is preempted for it, and its
/// nomination is kept.
#[test]
fn a_pod_that_prefilter_rejects_neither_preempts_nor_loses_its_nomination() {
    let claim = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    let mut w = full(FeatureGates::default());
    w.pod(with_spec(vip("vip", "2"), &claim).nominated("n1"));
    assert_eq!(
        w.attempt_named(),
        "vip: 0/1 nodes are available: persistentvolumeclaim \"c\" not found."
    );
    assert_eq!(w.nominated("vip"), "n1");
    assert_eq!(w.metric(Metric::PreemptionAttempts, &[]), 0.0);
    assert!(w.deletions().is_empty());
    let cleared = w.calls.iter().any(|(_, call)| match call {
        berth_framework::ApiCall::PatchPodStatus { nominated_node, .. } => nominated_node.is_some(),
        _ => false,
    });
    assert!(!cleared, "{:?}", w.calls);
}
