//! The waiting pods that each event moves (Q-43 to; edge cases 74 to 95, 108).

use super::script::{event_of, profile};
use super::{fields, setup};
use crate::{ProfileHooks, default_registrations};
use berth_framework::event::{Change, EventRegistration};
use berth_framework::features::Behaviour;
use berth_framework::plugin::{PermitStep, PreFilterResult};
use berth_framework::stage::Step;
use berth_framework::testing::{fake, node, pod};
use berth_framework::{ActionType, ClusterEvent, EventResource, FeatureGates, Status};

/// cases 74 to 77, 87, 88 and 108: the effect of hints on pods with and without a running
/// backoff.
#[test]
fn an_event_moves_the_pods_whose_plugins_state_so() {
    for (rejected_by, event, moved, asked) in [
        ("A", "Node/Add helps=A", true, "A:Queue=1"),
        ("A", "Node/Add helps=B", false, "A:QueueSkip=1"),
        ("A", "Node/Add helps=error", true, "A:Error=1"),
        ("A", "Node/UpdateNodeTaint helps=all", false, ""),
        ("A", "Node/Delete helps=all", false, ""),
        ("B", "AssignedPod/Delete helps=B", true, "B:Queue=1"),
        ("B", "UnschedulablePod/Delete helps=B", true, "B:Queue=1"),
        ("A,B", "Node/Add helps=B", true, "A:QueueSkip=1 B:Queue=1"),
        ("A,B", "Node/Add helps=all", true, "A:Queue=1"),
        (
            "A,B",
            "Node/Add helps=none",
            false,
            "A:QueueSkip=1 B:QueueSkip=1",
        ),
        (
            "Always",
            "Node/UpdateNodeAllocatable helps=none",
            true,
            "Always:Queue=1",
        ),
        ("Mute", "Node/Add helps=all", false, ""),
        ("Unknown", "Node/Add helps=all", false, ""),
        ("Mute,A", "Node/Add helps=A", true, "A:Queue=1"),
    ] {
        for (wait, place) in [(0, "backoff: a"), (2000, "active: a")] {
            let mut bench = setup().run(&format!("add a\npop\nfail a {rejected_by}\n+{wait}"));
            bench.run(&format!("event {event}"));
            let place = if moved { place } else { "unschedulable: a" };
            let case = format!("{rejected_by} · {event} · after {wait} ms");
            assert_eq!(bench.places(), place, "{case}");
            assert_eq!(bench.hints(), asked, "{case}");
        }
    }
    let mut bench = setup().run("add a\npop\nfail a A\nevent Node/Add helps=error");
    assert_eq!(
        bench.logged(),
        [
            "QueueingHintFn returns error, the pod is queued plugin=A event=NodeAdd pod=default/a err=hint failed"
        ]
    );
}

/// cases 78 and 79.
#[test]
fn what_a_plugin_waits_for_needs_no_backoff() {
    let plugins = &[("A", "Node/Add"), ("P", "Node/Add"), ("R", "Node/Add")];
    for (rejected_by, helps, place, asked) in [
        ("pending=P", "P", "active: a", "P:Queue=1"),
        ("pending=P", "none", "unschedulable: a", "P:QueueSkip=1"),
        ("A pending=P", "A", "backoff: a", "A:Queue=1 P:QueueSkip=1"),
        ("A pending=P", "A+P", "active: a", "A:Queue=1 P:Queue=1"),
        (
            "A pending=P,R",
            "R",
            "active: a",
            "A:QueueSkip=1 P:QueueSkip=1 R:Queue=1",
        ),
        ("R pending=P", "P", "active: a", "P:Queue=1"),
        ("A pending=P", "error", "active: a", "A:Error=1 P:Error=1"),
    ] {
        let mut bench = setup()
            .plugins(plugins)
            .run(&format!("add a\npop\nfail a {rejected_by}"));
        bench.run(&format!("event Node/Add helps={helps}"));
        let case = format!("{rejected_by} · helps {helps}");
        assert_eq!(bench.places(), place, "{case}");
        assert_eq!(bench.hints(), asked, "{case}");
    }
}

/// cases 80 and 81: events that match a registration, and events that do not.
#[test]
fn a_registration_matches_what_it_covers() {
    for (registered, event, matching) in [
        ("Node/Add|UpdateNodeLabel", "Node/UpdateNodeLabel", true),
        ("Node/Add|UpdateNodeLabel", "Node/Add", true),
        ("Node/Add|UpdateNodeLabel", "Node/UpdateNodeTaint", false),
        ("Node/Update", "Node/UpdateNodeCondition", true),
        ("Node/Update", "Node/Add", false),
        ("*/Add", "Node/Add", true),
        ("*/Add", "Node/Delete", false),
        ("*/All", "Pod/Delete", true),
        ("Pod/Add", "AssignedPod/Add", true),
        ("Pod/Add", "UnschedulablePod/Add", true),
        ("Pod/Add", "Node/Add", false),
        ("Pod/Update", "UnschedulablePod/Update", true),
        ("Pod/UpdatePodLabel", "UnschedulablePod/Update", false),
    ] {
        let mut bench = setup()
            .plugins(&[("X", registered)])
            .run("add a\npop\nfail a X\n+2000");
        bench.run(&format!("event {event} helps=X"));
        let place = if matching {
            "active: a"
        } else {
            "unschedulable: a"
        };
        assert_eq!(bench.places(), place, "{registered} receives {event}");
    }
}

/// cases 82 and 83: a wildcard event calls no hint, and gated pods stay gated.
#[test]
fn a_wildcard_event_asks_no_plugin() {
    let everything = ClusterEvent::wildcard("SomethingHappened");
    let (a, other) = (pod("a").object(), pod("other").object());
    for (target, place) in [
        (None, "active: a b; gated: g"),
        (Some(&a), "active: a; unschedulable: b; gated: g"),
        (Some(&other), "unschedulable: a b; gated: g"),
    ] {
        let mut bench = setup()
            .run("add a\n+1\nadd b\nadd g gates=x\npop\npop\nfail a A\n+1\nfail b Mute\n+3000");
        let (queue, cx) = fields!(bench);
        let change = Change {
            old: None,
            new: target,
        };
        queue.move_all(&cx, &everything, change, None);
        assert_eq!(bench.places(), place);
        assert_eq!(bench.hints(), "");
        bench.queue.check().expect("consistent");
    }
}

/// if no profile has the scheduler name of a pod, every event that any plugin registered for moves the pod.
#[test]
fn a_pod_without_a_profile_is_retried_at_any_event() {
    let mut bench = setup().run(
        "
        add a scheduler=nobody
        pop -> a
        fail a A                => unschedulable: a
        +2000
        event Node/Delete       => unschedulable: a
        event Node/Add          => active: a
        ",
    );
    assert_eq!(
        bench.logged(),
        [
            "no profile for the scheduler name of a pod, which is retried profile=nobody pod=default/a"
        ]
    );
}

/// Q-67, case 86: hints are not called for pods that fail the pre-check.
#[test]
fn a_pre_check_limits_the_pods_that_are_considered() {
    let script = "
        add p1 priority=1
        add p2 priority=2
        add p3 priority=3
        pop
        pop
        pop
        fail p1 A
        fail p2 A
        fail p3 A
        +2000
    ";
    type Check = fn(&berth_api::Pod) -> bool;
    let checks: [(Check, &str, usize); 3] = [
        (
            |pod| pod.priority() <= 2,
            "active: p2 p1; unschedulable: p3",
            2,
        ),
        (
            |pod| pod.priority() % 2 == 1,
            "active: p3 p1; unschedulable: p2",
            2,
        ),
        (|_| false, "unschedulable: p1 p2 p3", 0),
    ];
    for (check, places, examined) in checks {
        let mut bench = setup().run(script);
        let object = node("n").label("helps", "A").object();
        let change = Change {
            old: None,
            new: Some(&object),
        };
        let (queue, cx) = fields!(bench);
        let moved = queue.move_all(&cx, &event_of("Node/Add"), change, Some(&check));
        assert_eq!(bench.places(), places);
        assert_eq!(
            (moved.examined, moved.hints, moved.active),
            (examined, examined as u64, examined)
        );
    }
}

/// Q-48, case 90.
#[test]
fn plugins_that_register_for_new_nodes_receive_their_taints() {
    for (registered, implicit, asked) in [
        ("Node/Add", true, "X:Queue=1"),
        ("Node/Add", false, ""),
        ("Node/Add|UpdateNodeLabel", true, "X:Queue=1"),
        ("Node/Add|UpdateNodeTaint", true, "X:QueueSkip=1"),
        ("Node/Add Node/UpdateNodeTaint", true, "X:QueueSkip=1"),
        ("Node/UpdateNodeLabel", true, ""),
        ("Pod/Add", true, ""),
    ] {
        let mut bench = setup()
            .plugins(&[("X", registered)])
            .behaviour(Behaviour::NodeAddDoesNotImplyTaints, !implicit)
            .run("add a\npop\nfail a X\n+2000");
        bench.run("event Node/UpdateNodeTaint helps=none");
        assert_eq!(bench.hints(), asked, "{registered}, implicit {implicit}");
        let place = if asked.contains("Queue=") {
            "active: a"
        } else {
            "unschedulable: a"
        };
        assert_eq!(bench.places(), place, "{registered}, implicit {implicit}");
    }
}

/// case 91: the plugins that get registrations, and the default registrations, which extenders get as well.
#[test]
fn plugins_that_reject_get_registrations() {
    let features = FeatureGates::default();
    let own = || {
        vec![EventRegistration::always(
            EventResource::Node,
            ActionType::ADD,
        )]
    };
    let defaults: Vec<ClusterEvent> = default_registrations()
        .into_iter()
        .map(|r| r.event)
        .collect();
    for (plugin, expected) in [
        (fake("X").filter(|_, _, _| Status::success()), Some(10)),
        (fake("X").pre_enqueue(|_| Status::success()), Some(10)),
        (
            fake("X").filter(|_, _, _| Status::success()).events(own),
            Some(1),
        ),
        (
            fake("X")
                .filter(|_, _, _| Status::success())
                .events(Vec::new),
            Some(0),
        ),
        (
            fake("X").pre_filter(|_, _, _| PreFilterResult::AllNodes),
            Some(10),
        ),
        (fake("X").reserve(|_, _, _, _, _| Step::success()), Some(10)),
        (
            fake("X").permit(|_, _, _, _| PermitStep::Done(Status::success())),
            Some(10),
        ),
        (fake("X").score(|_, _, _| Ok(0)), None),
        (fake("X").score(|_, _, _| Ok(0)).events(own), None),
        (fake("X").pre_bind(|_, _, _, _, _| Step::success()), None),
        (fake("X").bind(|_, _, _, _, _| Step::success()), None),
        (fake("X").post_bind(|_, _, _| ()), None),
    ] {
        let hooks = ProfileHooks::new("s", std::sync::Arc::new(super::script::ByPriority))
            .with_plugin(&plugin.build(), &features);
        let got = hooks
            .events
            .first()
            .map(|events| events.registrations.len());
        assert_eq!(got, expected);
    }
    let labels: Vec<String> = defaults.iter().map(ClusterEvent::label).collect();
    assert_eq!(
        labels,
        [
            "PodAll",
            "NodeAll",
            "PersistentVolumeAll",
            "PersistentVolumeClaimAll",
            "storage.k8s.io/CSINodeAll",
            "storage.k8s.io/CSIDriverAll",
            "storage.k8s.io/CSIStorageCapacityAll",
            "storage.k8s.io/StorageClassAll",
            "resource.k8s.io/ResourceClaimAll",
            "resource.k8s.io/DeviceClassAll",
        ]
    );
    let has_no_hint = |r: &EventRegistration| r.hint.is_none() && r.pre_queueing_hint.is_none();
    assert!(default_registrations().iter().all(has_no_hint));
    for (event, place) in [
        ("ResourceClaim/Update", "active: a"),
        ("Node/UpdateNodeAnnotation", "active: a"),
        ("AssignedPod/Delete", "active: a"),
    ] {
        let hooks = profile("default-scheduler", &[]).with_extenders();
        let mut bench = setup()
            .profiles(vec![hooks])
            .run("add a\npop\nfail a Extender\n+2000");
        bench.run(&format!("event {event}"));
        assert_eq!(bench.places(), place, "{event}");
    }
}

/// Q-69, cases 88 and 92 to 95: the flag is set, backoff is respected, and a duration of zero moves every pod.
#[test]
fn long_waiting_pods_are_brought_back() {
    let mut bench = setup().run(
        "
        add low priority=1
        add high priority=9
        add gated gates=x
        pop
        pop
        fail low Mute
        fail high Mute          => unschedulable: high low; gated: gated
        at 300000
        flush-leftover          => unschedulable: high low; gated: gated
        at 300001
        flush-leftover          => active: high low; gated: gated
        ",
    );
    assert!(bench.info("low").was_flushed_from_unschedulable);
    assert!(
        !bench.info("gated").was_flushed_from_unschedulable,
        "a gated pod is not brought back, so nothing is counted for it"
    );
    bench.run("update gated => active: high low gated");

    let mut bench = setup()
        .config(|config| config.pod_max_in_unschedulable_pods_duration = std::time::Duration::ZERO)
        .run("add a\npop\nfail a Mute\n+1\nflush-leftover => backoff: a");
    assert!(bench.info("a").was_flushed_from_unschedulable);
    bench.run("at 2000\nflush => active: a");
}
