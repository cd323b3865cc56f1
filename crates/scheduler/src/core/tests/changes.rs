//! Taking in changes of the cluster (Q-79 to Q-87).

use super::*;
use crate::ClusterChange;
use crate::metrics::{Metric, Value};
use crate::profile::ProfileSpec;
use crate::queue::QueuedIn;
use crate::{Scheduler, SchedulerOptions};
use berth_api::{CustomKind, Duration, Kind, Object, TaintEffect, Time};
use berth_framework::call::PodRef;
use berth_framework::event::EventRegistration;
use berth_framework::plugin::PermitResult;
use berth_framework::registry::{ArgsError, Registry};
use berth_framework::testing::{FakePlugin, PodBuilder, fake, node, pod};
use berth_framework::{ActionType, ApiCall, EventResource, Hint, Status};

/// Turns every pod named `waits…` down, and hears of one kind of event.
fn hears(resource: EventResource, action: ActionType) -> FakePlugin {
    fake("Hears")
        .filter(|_, pod, _| {
            if pod.pod.name().starts_with("waits") {
                Status::unschedulable("not yet")
            } else {
                Status::success()
            }
        })
        .events(move || vec![EventRegistration::always(resource.clone(), action)])
}

/// A world with a node, an assigned pod, and a pod that waits for the event.
fn waiting_for(resource: EventResource, action: ActionType) -> World {
    let mut w = world([hears(resource, action)]);
    w.applied(node("n1").object());
    w.pod(pod("assigned").on("n1").label("a", "b"));
    w.pod(pod("waits").priority(10));
    w.attempt();
    w.answer_all();
    w
}

/// Q-63, Q-70, Q-79 to Q-82, Q-84 and Q-85, cases 131 and 189: each kind of change raises its own event, and none when
/// nothing has changed that matters.
#[test]
fn changes_wake_who_waits_for_them() {
    use ActionType as A;
    use EventResource as R;
    type Change = fn(&mut World);
    let cases: [(&str, R, A, Change, bool); 16] = [
        (
            "a pod assigned",
            R::Pod,
            A::ADD,
            |w| {
                w.pod(pod("x").on("n1"));
            },
            true,
        ),
        (
            "a pod gone",
            R::Pod,
            A::DELETE,
            |w| w.deleted("assigned"),
            true,
        ),
        (
            "a pod done",
            R::Pod,
            A::DELETE,
            |w| w.change("assigned", |p| p.phase("Succeeded")),
            true,
        ),
        (
            "a label of a pod",
            R::Pod,
            A::UPDATE_POD_LABEL,
            |w| w.change("assigned", |p| p.label("a", "c")),
            true,
        ),
        (
            "another label of a pod",
            R::Pod,
            A::DELETE,
            |w| w.change("assigned", |p| p.label("a", "c")),
            false,
        ),
        (
            "the same version again",
            R::Pod,
            A::UPDATE_POD_LABEL,
            |w| {
                let same = PodBuilder::of(&w.pods["assigned"]).label("a", "c").object();
                w.applied(same);
            },
            false,
        ),
        (
            "a new node",
            R::Node,
            A::ADD,
            |w| {
                w.applied(node("n2").object());
            },
            true,
        ),
        (
            "a node's taint",
            R::Node,
            A::UPDATE_NODE_TAINT,
            |w| {
                w.applied(
                    node("n1")
                        .version(2)
                        .taint("k", "v", TaintEffect::NoSchedule)
                        .object(),
                );
            },
            true,
        ),
        (
            "a heartbeat",
            R::Node,
            A::UPDATE,
            |w| {
                w.applied(node("n1").version(2).object());
            },
            false,
        ),
        (
            "a node gone",
            R::Node,
            A::DELETE,
            |w| {
                w.core
                    .apply(ClusterChange::Deleted(node("n1").object()), w.now);
            },
            true,
        ),
        (
            "a condition that flips",
            R::Node,
            A::UPDATE_NODE_CONDITION,
            |w| {
                let ready = node("n1").version(2).condition("Ready", "True");
                w.applied(ready.object());
            },
            true,
        ),
        (
            "a storage class gone",
            R::StorageClass,
            A::DELETE,
            |w| {
                let class = storage_class(1);
                w.applied(class.clone());
                w.core.apply(ClusterChange::Deleted(class), w.now);
            },
            true,
        ),
        (
            "a storage class changed",
            R::StorageClass,
            A::UPDATE,
            |w| {
                w.applied(storage_class(1)).applied(storage_class(2));
            },
            true,
        ),
        (
            "a storage class told of again",
            R::StorageClass,
            A::UPDATE,
            |w| {
                w.applied(storage_class(1)).applied(storage_class(1));
            },
            false,
        ),
        (
            "a storage class",
            R::StorageClass,
            A::ADD,
            |w| {
                w.applied(storage_class(1));
            },
            true,
        ),
        (
            "a namespace's labels",
            R::Other("namespaces.v1.".into()),
            A::UPDATE,
            |w| {
                for json in [
                    r#"{"metadata":{"name":"ns","resourceVersion":"1"}}"#,
                    r#"{"metadata":{"name":"ns","resourceVersion":"2","labels":{"a":"b"}}}"#,
                ] {
                    w.applied(Kind::Namespace.decode(json.as_bytes()).unwrap());
                }
            },
            true,
        ),
    ];
    for (situation, resource, action, change, woken) in cases {
        let mut w = waiting_for(resource, action);
        assert_eq!(
            w.place_of("waits"),
            Some(QueuedIn::Unschedulable),
            "{situation}"
        );
        change(&mut w);
        w.take();
        let place = if woken {
            QueuedIn::Backoff
        } else {
            QueuedIn::Unschedulable
        };
        assert_eq!(w.place_of("waits"), Some(place), "{situation}");
    }
}

fn storage_class(version: u32) -> Object {
    let json = format!(r#"{{"metadata":{{"name":"fast","resourceVersion":"{version}"}}}}"#);
    Kind::StorageClass.decode(json.as_bytes()).unwrap()
}

/// Q-81, Q-82, cases 134 and 135: who had to respect a nomination hears when it ends, and nobody when one is given.
#[test]
fn a_nomination_that_ends_wakes_pods_of_no_higher_priority() {
    type Change = fn(&mut World);
    let cases: [(&str, i32, Change, bool); 6] = [
        (
            "cleared",
            10,
            |w| w.change("nominee", |p| p.nominated("")),
            true,
        ),
        (
            "moved",
            20,
            |w| w.change("nominee", |p| p.nominated("n2")),
            true,
        ),
        ("deleted", 10, |w| w.deleted("nominee"), true),
        (
            "of a lower pod",
            9,
            |w| w.change("nominee", |p| p.nominated("")),
            false,
        ),
        (
            "given",
            20,
            |w| w.change("nominee", |p| p.nominated("n1")),
            false,
        ),
        (
            "kept",
            20,
            |w| w.change("nominee", |p| p.label("x", "y")),
            false,
        ),
    ];
    for (situation, priority, change, woken) in cases {
        let mut w = waiting_for(EventResource::Pod, ActionType::DELETE);
        let nominee = pod("nominee").priority(priority);
        w.pod(match situation {
            "given" => nominee,
            _ => nominee.nominated("n1"),
        });
        change(&mut w);
        let place = if woken {
            QueuedIn::Backoff
        } else {
            QueuedIn::Unschedulable
        };
        assert_eq!(w.place_of("waits"), Some(place), "{situation}");
    }
}

/// Q-79, Q-80, Q-82, cases 181 to 183.
#[test]
fn pods_are_queued_counted_or_ignored() {
    let mut w = world([fits()]);
    w.applied(node("n1").object());
    w.pod(pod("other").scheduler("else"));
    w.pod(pod("others").scheduler("else").on("n1"));
    w.pod(pod("done").phase("Failed").on("n1"));
    w.pod(pod("mine"));
    assert_eq!(
        (w.place_of("other"), w.place_of("mine")),
        (None, Some(QueuedIn::Active))
    );
    assert_eq!(w.on("n1"), ["others"]);

    w.change("mine", |p| p.on("n1"));
    assert_eq!(
        (w.place_of("mine"), w.on("n1").len()),
        (None, 2),
        "bound by somebody else"
    );
    w.core
        .apply(ClusterChange::Deleted(pod("unknown").object()), w.now);
    // A deletion that tells of an older pod of the name does not mean this one.
    w.core.apply(
        ClusterChange::Deleted(pod("mine").uid("older").object()),
        w.now,
    );
    w.take();
    assert_eq!(w.on("n1"), ["mine", "others"]);
}

/// Q-64: a pod that was made anew under its name, the deletion untold.
#[test]
fn a_pod_of_the_same_name_is_another_pod() {
    let mut w = world([fits()]);
    w.applied(node("n1").object());
    w.pod(pod("p").on("n1"));
    w.pod(pod("p").uid("second"));
    assert_eq!(
        (w.on("n1"), w.place_of("p")),
        (vec![], Some(QueuedIn::Active))
    );
    w.pod(pod("p").uid("third"));
    let (_, info) = w.core.queue().get("default", "p").unwrap();
    assert_eq!(*info.pod.uid(), "third");
}

/// Q-63, case 131: a pod that is told of again in the same version has not changed, and keeps waiting.
#[test]
fn a_waiting_pod_told_of_again_has_not_changed() {
    for (version, woken) in [(None, false), (Some(99), true)] {
        let mut w = waiting_for(EventResource::Pod, ActionType::UPDATE_POD_LABEL);
        let mut again = PodBuilder::of(&w.pods["waits"]).label("a", "b");
        if let Some(version) = version {
            again = again.version(version);
        }
        w.applied(again.object());
        let woke = w.place_of("waits") != Some(QueuedIn::Unschedulable);
        assert_eq!(woke, woken, "version {version:?}");
    }
}

/// Q-84, cases 190, 191 and 196: cordoning raises no event and uncordoning that of taints; labels and taints that
/// change at once raise both; a node that goes before its pods is not there any more.
#[test]
fn what_changes_of_a_node_says_which_events_it_raises() {
    type Change = fn(&mut World);
    let cordon: Change = |w| {
        w.applied(node("n1").version(2).unschedulable(true).object());
    };
    let uncordon: Change = |w| {
        w.applied(node("n1").version(2).unschedulable(true).object());
        w.applied(node("n1").version(3).object());
    };
    let both: Change = |w| {
        let changed = node("n1").version(2).label("a", "b");
        w.applied(changed.taint("k", "v", TaintEffect::NoSchedule).object());
    };
    for (situation, action, change, woken) in [
        ("cordoned", ActionType::UPDATE_NODE_TAINT, cordon, false),
        ("uncordoned", ActionType::UPDATE_NODE_TAINT, uncordon, true),
        ("both: label", ActionType::UPDATE_NODE_LABEL, both, true),
        ("both: taint", ActionType::UPDATE_NODE_TAINT, both, true),
    ] {
        let mut w = waiting_for(EventResource::Node, action);
        change(&mut w);
        let woke = w.place_of("waits") != Some(QueuedIn::Unschedulable);
        assert_eq!(woke, woken, "{situation}");
    }
    let mut w = waiting_for(EventResource::Node, ActionType::DELETE);
    let gone = ClusterChange::Deleted(node("n1").object());
    w.core.apply(gone, w.now);
    w.take();
    assert!(w.core.cache().cluster().nodes.is_empty());
    w.pod(pod("late").on("n1"));
    assert!(w.core.cache().cluster().nodes.is_empty());
    w.applied(node("n1").version(2).object());
    assert_eq!(w.on("n1"), ["assigned", "late"], "its pods were remembered");
    let gone = ClusterChange::Deleted(node("n1").object());
    w.core.apply(gone, w.now);
    w.deleted("assigned");
    w.deleted("late");
    assert!(w.core.cache().cluster().nodes.is_empty());
}

/// Q-84: hints of a new node find it in the cluster, and those of one that goes find it still there.
#[test]
fn a_node_is_there_when_its_events_are_told() {
    for action in [ActionType::ADD, ActionType::DELETE] {
        let picky = fake("Picky")
            .filter(|_, _, _| Status::unschedulable("no"))
            .events(move || {
                vec![EventRegistration::with_hint(
                    EventResource::Node,
                    action,
                    |cluster, _, _| match cluster.nodes.node("n2") {
                        Some(_) => Ok(Hint::Queue),
                        None => Ok(Hint::Skip),
                    },
                )]
            });
        let mut w = world([picky]);
        w.applied(node("n1").object());
        if action == ActionType::DELETE {
            w.applied(node("n2").object());
        }
        w.pod(pod("waits"));
        w.attempt();
        w.answer_all();
        match action {
            ActionType::ADD => w.applied(node("n2").object()),
            _ => {
                let gone = ClusterChange::Deleted(node("n2").object());
                w.core.apply(gone, w.now);
                &mut w
            }
        };
        assert_eq!(w.place_of("waits"), Some(QueuedIn::Backoff), "{action:?}");
    }
}

/// Q-82, case 187: the deletion of a pod is believed whatever it says of the pod's node: it may tell of a version that is
/// older than what we have seen, or newer.
#[test]
fn a_deletion_tells_of_a_pod_and_not_of_its_place() {
    let tells = |w: &mut World, last: PodBuilder| {
        w.core.apply(ClusterChange::Deleted(last.object()), w.now);
        w.take();
    };
    let mut w = waiting_for(EventResource::Pod, ActionType::DELETE);
    tells(&mut w, pod("assigned"));
    assert_eq!(
        w.on("n1"),
        [""; 0],
        "it was assigned, the deletion says not"
    );
    assert_eq!(w.place_of("waits"), Some(QueuedIn::Backoff));
    w.pod(pod("queued"));
    tells(&mut w, pod("queued").on("n1"));
    assert_eq!(
        w.place_of("queued"),
        None,
        "it was not assigned, the deletion says so"
    );
    w.pod(pod("placed").priority(99));
    assert_eq!(w.attempt(), "on n1");
    tells(&mut w, pod("placed").on("n1"));
    assert_eq!(w.on("n1"), [""; 0], "it was placed, and perhaps bound");
    w.answer_all();
    w.pod(pod("other").scheduler("else"));
    tells(&mut w, pod("other").on("n1"));
    tells(&mut w, pod("never seen"));
    assert_eq!(
        w.core.queue().counts().total(),
        1,
        "only the one that waits"
    );
}

/// Q-81, case 188: another pod under the name of an assigned one, in one update: the old one is gone and the new one
/// counts, and both are told.
#[test]
fn an_assigned_pod_that_was_made_anew_is_two_events() {
    for (action, woken) in [
        (ActionType::DELETE, true),
        (ActionType::ADD, true),
        (ActionType::UPDATE_POD_TOLERATION, false),
    ] {
        let mut w = waiting_for(EventResource::Pod, action);
        w.applied(node("n2").object());
        w.pod(pod("assigned").uid("another").on("n2"));
        assert_eq!((w.on("n1").len(), w.on("n2").len()), (0, 1));
        let cluster = w.core.cache().cluster();
        assert!(cluster.pods.get("uid-assigned").is_none());
        assert!(cluster.pods.get("another").is_some());
        let woke = w.place_of("waits") != Some(QueuedIn::Unschedulable);
        assert_eq!(woke, woken, "{action:?}");
    }
}

/// Q-83, cases 185 and 186: a placed pod that Permit holds back is rejected when it is told to go, and the rest of its way
/// ends by itself; one that is bound by now is no placed pod any more.
#[test]
fn a_placed_pod_that_is_told_to_go_is_rejected() {
    let hold = fake("Hold")
        .permit(|_, pod, _| match pod.pod.name().starts_with("held") {
            true => PermitResult::Wait(Duration::from_secs(500)),
            false => PermitResult::Done(Status::success()),
        })
        .events(Vec::new);
    let mut w = world([hold, hears(EventResource::Pod, ActionType::DELETE)]);
    w.applied(node("n1").object());
    w.pod(pod("waits"));
    w.attempt();
    w.pod(pod("held"));
    assert_eq!(w.attempt(), "on n1");
    w.answer_all();
    w.events_text();
    let now = w.now;
    w.change("held", |p| p.deleting(now));
    assert_eq!(w.place_of("waits"), Some(QueuedIn::Backoff), "others hear");
    assert_eq!((w.on("n1").len(), w.core.bindings_in_flight()), (0, 0));
    assert_eq!(
        w.events_text(),
        ["Warning FailedScheduling 0/1 nodes are available: 1 removed."]
    );
    w.answer_all();
    w.deleted("held");
    assert_eq!(w.place_of("held"), None);

    // Bound, then told to go: an update of an assigned pod, and nothing else.
    let mut w = waiting_for(EventResource::Pod, ActionType::DELETE);
    w.pod(pod("bound").priority(99));
    assert_eq!(w.attempt(), "on n1");
    w.answer_all();
    w.change("bound", |p| p.deleting(now));
    assert_eq!(w.on("n1"), ["assigned", "bound"]);
    assert_eq!(w.place_of("waits"), Some(QueuedIn::Unschedulable));
}

/// Q-79: what nobody reads of a pod is not kept.
#[test]
fn managed_fields_are_not_kept() {
    let decode = |json: &str| Kind::Pod.decode(json.as_bytes()).unwrap();
    assert_eq!(
        decode(r#"{"metadata":{"name":"p","managedFields":[{"manager":"kubectl"}]}}"#),
        decode(r#"{"metadata":{"name":"p"}}"#)
    );
}

/// Q-87: each change is taken in whole before the next one, in the order in which they are told.
#[test]
fn changes_are_taken_in_one_after_the_other() {
    let mut w = world([fits()]);
    w.applied(node("n1").object());
    let mut told = Vec::new();
    for version in 1..=50 {
        let p = pod("p")
            .uid(&format!("uid-{}", version / 10))
            .version(version);
        let p = p.label("version", &version.to_string());
        let p = if version % 10 >= 5 { p.on("n1") } else { p };
        let change = match version % 10 {
            9 => ClusterChange::Deleted(p.object()),
            _ => ClusterChange::Applied(p.object()),
        };
        w.core.apply(change, w.now);
        w.core.check().unwrap_or_else(|e| panic!("{version}: {e}"));
        let queued = w.core.queue().get("default", "p");
        let queued = queued.and_then(|(_, info)| info.pod.labels().get("version"));
        told.push(match (queued, w.on("n1").is_empty()) {
            (Some(of), true) => format!("{version} queued {of}"),
            (None, false) => format!("{version} assigned"),
            (None, true) => format!("{version} gone"),
            (Some(_), false) => format!("{version} in two places"),
        });
    }
    for (at, told) in told.iter().enumerate() {
        let version = at + 1;
        let expected = match version % 10 {
            9 => format!("{version} gone"),
            5..=8 => format!("{version} assigned"),
            _ => format!("{version} queued {version}"),
        };
        assert_eq!(*told, expected);
    }
}

/// Q-44, Q-85, cases 109 and 195: a plugin hears of custom resources, as added, updated and deleted, and sees what is in
/// them. One that is not written `plural.version.group` is told as an error, and everything else works.
#[test]
fn plugins_hear_of_custom_resources() {
    let foos = CustomKind::of("foos.v1.example.com").unwrap();
    let foo = |version: u32, ready: bool| {
        let json = format!(
            r#"{{"metadata":{{"name":"f","namespace":"s","resourceVersion":"{version}"}},"spec":{{"ready":{ready}}}}}"#
        );
        Kind::Custom(foos).decode(json.as_bytes()).unwrap()
    };
    for (action, woken_by) in [
        (ActionType::ADD, Some("added")),
        (ActionType::UPDATE, Some("ready")),
        (ActionType::DELETE, Some("deleted")),
    ] {
        let picky = fake("Picky")
            .filter(|_, _, _| Status::unschedulable("no"))
            .events(move || {
                let hears = |resource: &str| {
                    let resource = EventResource::Other(resource.into());
                    EventRegistration::with_hint(resource, action, move |cluster, _, change| {
                        let foo = change.new.or(change.old).and_then(|o| o.as_custom());
                        let foo = foo.ok_or("not a custom object")?;
                        let known = cluster.custom.get(&foo.kind).and_then(|f| f.get("s", "f"));
                        assert_eq!(known.is_some(), change.new.is_some());
                        let ready = foo.value["spec"]["ready"] == true;
                        let queue = action != ActionType::UPDATE || ready;
                        Ok(if queue { Hint::Queue } else { Hint::Skip })
                    })
                };
                vec![
                    hears("foos.v1.example.com"),
                    hears("foos.v1"),
                    hears("bars"),
                ]
            });
        let mut w = world([picky]);
        let kinds: Vec<Kind> = w.core.queue().custom_kinds().into_iter().collect();
        assert_eq!(kinds, [Kind::Custom(foos)]);
        w.applied(node("n1").object());
        let errors: Vec<&str> = w.log.iter().map(|line| line.message.as_str()).collect();
        assert_eq!(
            errors,
            [
                "Incorrect event registration of Picky, which will hear of nothing there: \"bars\" is no resource: write plural.version.group, such as \"foos.v1.example.com\"",
                "Incorrect event registration of Picky, which will hear of nothing there: \"foos.v1\" is no resource: write plural.version.group, such as \"foos.v1.example.com\"",
            ]
        );
        w.pod(pod("waits"));
        w.attempt();
        w.answer_all();
        let mut woke = None;
        type Step<'a> = (&'static str, Box<dyn Fn(&mut World) + 'a>);
        let steps: [Step<'_>; 4] = [
            (
                "added",
                Box::new(|w| {
                    w.applied(foo(1, false));
                }),
            ),
            (
                "not ready",
                Box::new(|w| {
                    w.applied(foo(2, false));
                }),
            ),
            (
                "ready",
                Box::new(|w| {
                    w.applied(foo(3, true));
                }),
            ),
            (
                "deleted",
                Box::new(|w| {
                    w.core.apply(ClusterChange::Deleted(foo(3, true)), w.now);
                    w.take();
                }),
            ),
        ];
        for (what, step) in steps {
            step(&mut w);
            if w.place_of("waits") != Some(QueuedIn::Unschedulable) {
                woke = woke.or(Some(what));
            }
        }
        assert_eq!(woke, woken_by, "{action:?}");
        let metrics = w.core.metrics();
        let label = format!("foos.v1.example.com{}", action.label());
        let counted = metrics.number(Metric::QueueIncomingPods, &["backoff", &label]);
        assert_eq!(counted, 1.0, "{label}");
    }
}

/// Case 89: a plugin that cannot say what it hears of fails when it is made, and start-up tells which one and why.
#[test]
fn a_plugin_that_cannot_register_fails_start_up() {
    let mut registry = Registry::default();
    registry
        .register("Picky", |_| {
            Err(ArgsError::at("events", "the list is empty"))
        })
        .unwrap();
    let options = SchedulerOptions {
        profiles: vec![ProfileSpec::of_plugins("default-scheduler", ["Picky"])],
        ..SchedulerOptions::default()
    };
    let errors = Scheduler::new(options, &registry, Time::EPOCH).unwrap_err();
    let errors = errors.to_string();
    assert!(
        errors.contains("Picky") && errors.contains("events: the list is empty"),
        "{errors}"
    );
}

/// Q-86: every change is timed under the label of each of its events, each with its own time; updates of pods also under
/// the plain label.
#[test]
fn handled_changes_are_timed_by_event() {
    let watch = HandWatch::default();
    // Who is told of labels thinks for a second, of taints for two, of a pod's labels for four.
    let slow = watch.clone();
    let thinks = move || {
        [
            (EventResource::Node, ActionType::UPDATE_NODE_LABEL, 1),
            (EventResource::Node, ActionType::UPDATE_NODE_TAINT, 2),
            (EventResource::Pod, ActionType::UPDATE_POD_LABEL, 4),
        ]
        .map(|(resource, action, takes)| {
            let slow = slow.clone();
            EventRegistration::with_hint(resource, action, move |_, _, _| {
                slow.go(takes * 1000);
                Ok(Hint::Skip)
            })
        })
        .to_vec()
    };
    let picky = fake("Picky")
        .filter(|_, pod, _| match pod.pod.name().as_str() {
            "waits" => Status::unschedulable("no"),
            _ => Status::success(),
        })
        .events(thinks);
    let mut w = World::with([picky, binder()], |options| {
        options.stopwatch = Box::new(watch);
    });
    w.applied(node("n1").object());
    w.pod(pod("assigned").on("n1"));
    w.pod(pod("mine"));
    w.pod(pod("others").scheduler("else"));
    assert_eq!(w.attempt(), "on n1");
    w.pod(pod("waits"));
    w.attempt();
    w.answer_all();
    w.core.reset_metrics();
    let handled = |w: &World| -> Vec<String> {
        let metrics = w.core.metrics();
        [
            "AssignedPodAdd",
            "AssignedPodDelete",
            "AssignedPodUpdate",
            "AssignedPodUpdatePodLabel",
            "NodeAdd",
            "NodeDelete",
            "NodeUpdateNodeLabel",
            "NodeUpdateNodeTaint",
            "UnschedulablePodAdd",
            "UnschedulablePodDelete",
            "UnschedulablePodUpdate",
            "UnschedulablePodUpdatePodLabel",
            "storage.k8s.io/StorageClassAdd",
        ]
        .into_iter()
        .filter_map(|event| {
            let handled = metrics.get(Metric::EventHandlingDuration, &[event])?;
            let Value::Histogram(times) = handled else {
                return None;
            };
            Some(format!("{event} {}x {}s", times.count(), times.sum))
        })
        .collect()
    };
    type Change = fn(&mut World);
    let changes: [(&str, Change, &[&str]); 11] = [
        (
            "labels and taints of a node",
            |w| {
                let n1 = node("n1").version(2).label("a", "b");
                w.applied(n1.taint("k", "v", TaintEffect::NoSchedule).object());
            },
            &["NodeUpdateNodeLabel 1x 1s", "NodeUpdateNodeTaint 1x 2s"],
        ),
        (
            "a heartbeat",
            |w| {
                let n1 = node("n1").version(3).label("a", "b");
                w.applied(n1.taint("k", "v", TaintEffect::NoSchedule).object());
            },
            &[],
        ),
        (
            "labels of an assigned pod",
            |w| w.change("assigned", |p| p.label("a", "b")),
            &["AssignedPodUpdate 1x 4s", "AssignedPodUpdatePodLabel 1x 4s"],
        ),
        (
            "nothing much of an assigned pod",
            |w| w.change("assigned", |p| p),
            &["AssignedPodUpdate 1x 0s"],
        ),
        (
            "labels of a waiting pod",
            |w| w.change("waits", |p| p.label("a", "b")),
            &[
                "UnschedulablePodUpdate 1x 4s",
                "UnschedulablePodUpdatePodLabel 1x 4s",
            ],
        ),
        (
            "nothing much of a waiting pod",
            |w| w.change("waits", |p| p),
            &["UnschedulablePodUpdate 1x 0s"],
        ),
        (
            "a new pod that somebody else binds",
            |w| {
                w.pod(pod("new"));
                w.change("new", |p| p.on("n1"));
            },
            &[
                "AssignedPodAdd 1x 0s",
                "UnschedulablePodAdd 1x 0s",
                "UnschedulablePodDelete 1x 0s",
            ],
        ),
        (
            "a pod gone",
            |w| w.deleted("assigned"),
            &["AssignedPodDelete 1x 0s"],
        ),
        (
            "a waiting pod gone",
            |w| w.deleted("waits"),
            &["UnschedulablePodDelete 1x 0s"],
        ),
        ("somebody else's pod gone", |w| w.deleted("others"), &[]),
        (
            "a storage class",
            |w| {
                w.applied(storage_class(1));
            },
            &["storage.k8s.io/StorageClassAdd 1x 0s"],
        ),
    ];
    for (situation, change, expected) in changes {
        change(&mut w);
        assert_eq!(handled(&w), expected, "{situation}");
        w.core.reset_metrics();
    }
}

/// Q-82, Q-85, case 187: after a gap the list says what there is.
#[test]
fn a_list_replaces_what_was_known() {
    let mut w = world([fits()]);
    w.applied(node("n1").object()).applied(node("n2").object());
    w.pod(pod("gone").on("n1"));
    w.pod(pod("queued-and-gone"));
    w.pod(pod("stays").on("n2"));
    let replace = |w: &mut World, kind, objects: Vec<Object>| {
        w.core.apply(ClusterChange::Replaced(kind, objects), w.now);
        w.take();
    };
    let stays = PodBuilder::of(&w.pods["stays"]).object();
    replace(
        &mut w,
        Kind::Pod,
        vec![stays, pod("new").version(99).object()],
    );
    assert_eq!((w.on("n1"), w.on("n2")), (vec![], vec!["stays".to_owned()]));
    assert_eq!(w.place_of("queued-and-gone"), None);
    assert_eq!(w.place_of("new"), Some(QueuedIn::Active));
    replace(
        &mut w,
        Kind::Node,
        vec![node("n2").object(), node("n3").object()],
    );
    let mut names: Vec<String> = w
        .core
        .cache()
        .cluster()
        .nodes
        .iter()
        .map(|n| n.name().to_string())
        .collect();
    names.sort();
    assert_eq!(names, ["n2", "n3"]);
    let namespace = |name: &str| {
        let json = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        Kind::Namespace.decode(json.as_bytes()).unwrap()
    };
    replace(
        &mut w,
        Kind::Namespace,
        vec![namespace("a"), namespace("b")],
    );
    replace(&mut w, Kind::Namespace, vec![namespace("b")]);
    assert_eq!(
        w.core.cache().names(Kind::Namespace),
        [("".into(), "b".into())]
    );
}

/// Q-101, Q-102, Q-104, Q-106: the report becomes a patch after 5 s, and an event once that is written.
#[test]
fn what_pre_enqueue_says_is_reported() {
    let gate = fake("Gate")
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
        });
    let mut w = world([gate]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
    w.advance(berth_api::Duration::from_secs(6));
    assert_eq!(
        w.calls_text(),
        ["patch p PodScheduled=False NotReadyForScheduling: shut"]
    );
    assert!(w.events.is_empty(), "not before the status is written");
    w.answer_all();
    assert_eq!(w.events_text(), ["Warning NotReadyForScheduling shut"]);
    w.change("p", |p| p.label("open", "yes"));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Active));
    w.advance(berth_api::Duration::from_secs(6));
    assert!(
        matches!(&w.calls[..], [(_, ApiCall::ClearPreEnqueueStatus { pod: p, .. })]
        if *p == PodRef::of(&pod("p").build()))
    );
}
