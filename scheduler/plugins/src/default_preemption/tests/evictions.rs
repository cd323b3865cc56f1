//! The eviction of victims, and the rejection of the preemptor by PreEnqueue during it.

use super::*;
use berth_framework::call::{CallError, CallErrorKind, RelatedObject, Response};
use berth_framework::stage::Disruption;
use berth_framework::{ApiCall, Feature, WakeReason};

/// P-17, P-20, P-24: the calls and events of a preemption. The core deletes the victims and publishes their events.
#[test]
fn the_condition_of_a_victim_gives_the_reason() {
    let mut lower = plain("lower", 5, 1);
    lower.status.nominated_node_name = "n".into();
    let mut equal = plain("equal", 10, 1);
    equal.status.nominated_node_name = "n".into();
    let mut elsewhere = plain("elsewhere", 5, 1);
    elsewhere.status.nominated_node_name = "m".into();
    let nodes = vec![("n", vec![plain("b", 1, 2), plain("a", 2, 2)])];
    let outcome = attempt(world(nodes), plain("p", 10, 4))
        .nominated(vec![lower, equal, elsewhere])
        .run();
    assert_eq!(outcome.text(), "n: a b");
    let [
        ApiCall::PatchPodStatus {
            pod,
            conditions,
            nominated_node: Some(cleared),
        },
    ] = &outcome.outbox.calls[..]
    else {
        panic!("a nomination reverted: {:?}", outcome.outbox.calls);
    };
    assert!(conditions.is_empty(), "{conditions:?}");
    assert_eq!((pod.name.as_str(), cleared.as_str()), ("lower", ""));
    let [preemption] = &outcome.outbox.preemptions[..] else {
        panic!("one preemption: {:?}", outcome.outbox.preemptions);
    };
    assert_eq!(preemption.preemptor.name, "p");
    assert_eq!(preemption.plugin, NAME);
    let names: Vec<&str> = preemption
        .victims
        .iter()
        .map(|victim| victim.event.regarding.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"], "the most important first");
    let condition = &preemption.victims[0].condition;
    assert_eq!(
        [
            &condition.kind,
            &condition.status,
            &condition.reason,
            &condition.message
        ]
        .map(|s| s.as_str()),
        [
            "DisruptionTarget",
            "True",
            "PreemptionByScheduler",
            "default-scheduler: preempting to accommodate a higher priority pod"
        ]
    );
    let event = &preemption.victims[0].event;
    assert_eq!(event.kind.as_str(), "Normal");
    assert_eq!(
        [event.reason, event.action, &event.note],
        ["Preempted", "Preempting", "Preempted by pod p on node n"]
    );
    let related = match &event.related {
        Some(RelatedObject::Pod(pod)) => Some(pod.name.as_str()),
        _ => None,
    };
    assert_eq!(related, Some("p"));
    assert_eq!(
        outcome.outbox.events,
        [],
        "nothing is reported before it is so"
    );
}

/// P-17: the condition of the victim names the scheduler.
#[test]
fn the_condition_names_the_scheduler() {
    let mut preemptor = plain("p", 10, 4);
    preemptor.spec.scheduler_name = "second".into();
    let nodes = vec![("n", vec![plain("a", 1, 4)])];
    let outcome = attempt(world(nodes), preemptor).run();
    assert_eq!(
        outcome.outbox.preemptions[0].victims[0].condition.message,
        "second: preempting to accommodate a higher priority pod"
    );
}

/// The number of pods that are chosen for a pod.
fn chosen(victims: usize) -> Observation {
    Observation::Preemption(Disruption {
        preemptor: "pod",
        victims,
        units: victims,
        violations: 0,
    })
}

/// P-1, P-19, P-20: every attempt counts, and so do all victims, unless every one is terminating already.
#[test]
fn attempts_and_victims_are_counted() {
    use Observation::PreemptionAttempt;
    let going = |name: &str| {
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        pod(name, 1, 2, deleted)
    };
    let mut never = plain("p", 10, 4);
    never.spec.preemption_policy = Some("Never".into());
    let two = || vec![plain("a", 1, 2), plain("b", 2, 2)];
    for (name, there, preemptor, expected) in [
        ("not allowed to", two(), never, vec![PreemptionAttempt]),
        (
            "without effect",
            two(),
            plain("p", 1, 4),
            vec![PreemptionAttempt],
        ),
        (
            "two victims",
            two(),
            plain("p", 10, 4),
            vec![PreemptionAttempt, chosen(2)],
        ),
        (
            "one of them goes already",
            vec![plain("a", 1, 2), going("b")],
            plain("p", 10, 4),
            vec![PreemptionAttempt, chosen(2)],
        ),
        (
            "both do",
            vec![going("a"), going("b")],
            plain("p", 10, 4),
            vec![PreemptionAttempt],
        ),
    ] {
        let world = world(vec![("n", there)]);
        let outcome = attempt(world, preemptor).run();
        assert_eq!(outcome.outbox.observations, expected, "{name}");
        let notified = outcome.outbox.preemptions.len();
        assert_eq!(
            notified,
            usize::from(name.contains("victim") || name.contains("one")),
            "{name}"
        );
    }
}

/// P-12, P-19: without the gate every eviction is waited for, the more important victim first; one that fails ends it,
/// and the events about a victim are published when it is deleted.
#[test]
fn without_the_gate_evictions_are_waited_for() {
    let failed = |kind: CallErrorKind| WakeReason::Call(Err(CallError::new(kind, "no")));
    for (second, expected, notified) in [
        (WakeReason::Call(Ok(Response::default())), Ok("n"), 2),
        (failed(CallErrorKind::NotFound), Ok("n"), 1),
        (failed(CallErrorKind::Refused), Err("preemption: no"), 1),
        (
            WakeReason::Deadline,
            Err("preemption: no answer to an eviction within 300 s"),
            1,
        ),
    ] {
        let mut world = world(vec![("n", vec![plain("a", 1, 2), plain("b", 2, 2)])]);
        world.features = world
            .features
            .with(Feature::SchedulerAsyncPreemption, false);
        let pod = PodInfo::new(Arc::new(plain("p", 10, 4)));
        world.cluster.pods.insert("p".into(), pod.pod.clone());
        let (now, features) = (world.now, world.features);
        let mut trial = Trial::new(&mut world, &pod);
        let before = trial.statuses();
        let mut outbox = Recorder::default();
        let plugin = DefaultPreemption::default();
        let mut cx = PostFilterContext {
            now,
            features: &features,
            outbox: &mut outbox,
            dry_run: &mut trial,
        };
        let step = plugin.post_filter(&mut cx, &pod, &before, None);
        assert!(matches!(step, PostFilterStep::Wait(_)), "{step:?}");
        let step = plugin.post_filter(
            &mut cx,
            &pod,
            &before,
            Some(WakeReason::Call(Ok(Response::default())).into()),
        );
        assert!(matches!(step, PostFilterStep::Wait(_)), "{step:?}");
        let PostFilterStep::Done(result) =
            plugin.post_filter(&mut cx, &pod, &before, Some(second.into()))
        else {
            panic!("it is over");
        };
        match expected {
            Ok(node) => assert_eq!(result.nominating, Nominating::Set(node.into())),
            Err(message) => {
                assert_eq!(result.status.message(), message);
                assert_eq!(result.nominating, Nominating::Keep);
            }
        }
        let reported_for_eviction = outbox.calls.iter().map(|call| call.object().name);
        assert_eq!(reported_for_eviction.collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(outbox.events.len(), notified);
        assert_eq!(outbox.preemptions.len(), 0);
    }
}

/// P-3: without the gate, no further victim is evicted for a preemptor that is deleted during the wait for an eviction.
#[test]
fn without_the_gate_no_victim_is_evicted_for_a_deleted_preemptor() {
    let mut world = world(vec![("n", vec![plain("a", 1, 2), plain("b", 2, 2)])]);
    world.features = world
        .features
        .with(Feature::SchedulerAsyncPreemption, false);
    let pod = PodInfo::new(Arc::new(plain("p", 10, 4)));
    world.cluster.pods.insert("p".into(), pod.pod.clone());
    let (now, features) = (world.now, world.features);
    let mut trial = Trial::new(&mut world, &pod);
    let before = trial.statuses();
    let mut outbox = Recorder::default();
    let plugin = DefaultPreemption::default();
    let mut cx = PostFilterContext {
        now,
        features: &features,
        outbox: &mut outbox,
        dry_run: &mut trial,
    };
    let step = plugin.post_filter(&mut cx, &pod, &before, None);
    assert!(matches!(step, PostFilterStep::Wait(_)), "{step:?}");
    trial.world.cluster.pods.remove("p");
    let mut cx = PostFilterContext {
        now,
        features: &features,
        outbox: &mut outbox,
        dry_run: &mut trial,
    };
    let step = plugin.post_filter(
        &mut cx,
        &pod,
        &before,
        Some(WakeReason::Call(Ok(Response::default())).into()),
    );
    let PostFilterStep::Done(result) = step else {
        panic!("it is over: {step:?}");
    };
    assert_eq!(result.status.message(), "preemption: pod \"p\" not found");
    assert_eq!(result.nominating, Nominating::Keep);
    assert_eq!((outbox.calls.len(), outbox.events.len()), (1, 1));
}

/// P-19, P-24, case 241: without the gate, too, a victim that is being deleted already is not evicted again, and all
/// victims are counted. The nominations of lower pods end when all victims have been evicted, but not when an eviction
/// fails.
#[test]
fn without_the_gate_nominations_end_when_all_victims_are_evicted() {
    for (answer, ended) in [
        (WakeReason::Call(Ok(Response::default())), true),
        (
            WakeReason::Call(Err(CallError::new(CallErrorKind::Refused, "no"))),
            false,
        ),
    ] {
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let there = vec![plain("a", 1, 2), pod("going", 2, 2, deleted)];
        let mut world = world(vec![("n", there)]);
        world.features = world
            .features
            .with(Feature::SchedulerAsyncPreemption, false);
        let pod = PodInfo::new(Arc::new(plain("p", 10, 4)));
        world.cluster.pods.insert("p".into(), pod.pod.clone());
        let (now, features) = (world.now, world.features);
        let mut trial = Trial::new(&mut world, &pod);
        let mut lower = plain("lower", 5, 1);
        lower.status.nominated_node_name = "n".into();
        trial.nominated = vec![Arc::new(PodInfo::new(Arc::new(lower)))];
        let before = trial.statuses();
        let mut outbox = Recorder::default();
        let mut cx = PostFilterContext {
            now,
            features: &features,
            outbox: &mut outbox,
            dry_run: &mut trial,
        };
        let plugin = DefaultPreemption::default();
        let step = plugin.post_filter(&mut cx, &pod, &before, None);
        assert!(matches!(step, PostFilterStep::Wait(_)), "{step:?}");
        let step = plugin.post_filter(&mut cx, &pod, &before, Some(answer.into()));
        assert!(matches!(step, PostFilterStep::Done(_)), "{step:?}");
        let calls: Vec<String> = outbox
            .calls
            .iter()
            .map(|call| match call {
                ApiCall::DeletePod { pod, .. } => format!("delete {}", pod.name),
                ApiCall::PatchPodStatus {
                    pod,
                    nominated_node: Some(node),
                    ..
                } => format!("{} is nominated to {node:?}", pod.name),
                other => format!("{other:?}"),
            })
            .collect();
        let all = ["delete a", "lower is nominated to \"\""];
        assert_eq!(calls, all[..if ended { 2 } else { 1 }]);
        assert!(outbox.observations.contains(&chosen(2)));
    }
}

/// P-17: victims that are not bound yet are stopped without an API call, and the event is the same.
#[test]
fn without_the_gate_pods_are_stopped_in_memory_too() {
    let mut world = world(vec![("n", vec![plain("victim", 1, 4)])]);
    world.features = world
        .features
        .with(Feature::SchedulerAsyncPreemption, false);
    let pod = PodInfo::new(Arc::new(plain("p", 10, 4)));
    world.cluster.pods.insert("p".into(), pod.pod.clone());
    let (now, features) = (world.now, world.features);
    let mut trial = Trial::new(&mut world, &pod);
    let before = trial.statuses();
    let mut outbox = Recorder {
        in_memory: true,
        ..Recorder::default()
    };
    let mut cx = PostFilterContext {
        now,
        features: &features,
        outbox: &mut outbox,
        dry_run: &mut trial,
    };
    let step = DefaultPreemption::default().post_filter(&mut cx, &pod, &before, None);
    let PostFilterStep::Done(result) = step else {
        panic!("there is nothing to wait for: {step:?}");
    };
    assert!(result.status.is_success());
    assert_eq!(outbox.calls, []);
    assert_eq!(
        outbox.events[0].note,
        "Preempted by pod p on node n (in kube-scheduler memory)."
    );
}

/// P-21, P-22: with the gate, PreEnqueue blocks a pod whose victims are being evicted, and a pod deletion wakes no pod
/// for this plugin. If the message can reach the pod's status, it is written for users.
#[test]
fn a_preemptor_is_rejected_while_its_victims_are_evicted() {
    let preemptor = plain("p", 10, 1);
    let for_users =
        "Waiting for the eviction of the pods of lower priority that make room for this pod";
    let as_there = "waiting for the preemption for this pod to be finished";
    for (preempting, gate, in_status, expected) in [
        (false, true, true, None),
        (true, true, true, Some(for_users)),
        (true, true, false, Some(as_there)),
        (true, false, true, None),
    ] {
        let mut world = World::new();
        world.features = world
            .features
            .with(Feature::SchedulerAsyncPreemption, gate)
            .with(Feature::SchedulerPreEnqueuePodStatus, in_status);
        if preempting {
            world.cluster.preempting.insert("p".into());
        }
        world.cluster.preempting.insert("another".into());
        let status = DefaultPreemption::default().pre_enqueue(&world.context(), &preemptor);
        match expected {
            None => assert!(status.is_success()),
            Some(message) => {
                assert_eq!(status.code(), Code::UnschedulableAndUnresolvable);
                assert_eq!(status.message(), message);
            }
        }
    }
    assert!(
        DefaultPreemption::default().follows_attempt(),
        "a pod that is Unschedulable keeps its condition meanwhile"
    );
    let got = crate::testing::hint(
        DefaultPreemption::default(),
        &World::new(),
        EventResource::Pod,
        ActionType::DELETE,
        &preemptor,
        crate::testing::delete(plain("o", 1, 1)),
    );
    assert_eq!(got, Ok(Hint::Skip));
}

/// P-5: a pod is judged with Berth's own pending writes, but counted on its node as the API shows it.
#[test]
fn a_victim_goes_from_when_its_deletion_is_handed_over() {
    let mut preemptor = plain("p", 10, 4);
    preemptor.status.nominated_node_name = "n".into();
    let mut world = world(vec![("n", vec![plain("victim", 1, 4)])]);
    let going = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        ]},
    });
    let going = Arc::new(pod("victim", 1, 4, going));
    world.cluster.pods.insert("victim".into(), going);
    let outcome = attempt(world, preemptor).run();
    assert_eq!(
        outcome.text(),
        "preemption: not eligible due to a terminating pod on the nominated node."
    );
}
