//! Changes of the cluster (Q-79 to Q-87).

mod custom;
mod nodes;
mod pods;

use super::*;
use crate::ClusterChange;
use berth_api::{Duration, Kind, Object, TaintEffect};
use berth_framework::call::CallErrorKind;
use berth_framework::event::EventRegistration;
use berth_framework::plugin::PermitStep;
use berth_framework::testing::{FakePlugin, PodBuilder, fake, node, pod};
use berth_framework::{ActionType, ApiCall, EventResource, Hint, Status};
use berth_queue::QueuedIn;
use berth_telemetry::Stopwatch;
use berth_telemetry::metrics::{Metric, SeriesValue};
use std::sync::atomic::{AtomicU64, Ordering};

/// Rejects every pod named `waits…`, and registers for one kind of event.
fn receives(resource: EventResource, action: ActionType) -> FakePlugin {
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
fn waiting_for(resource: EventResource, action: ActionType) -> Driver {
    let mut w = driver([receives(resource, action)]);
    w.applied(node("n1").object());
    w.pod(pod("assigned").on("n1").label("a", "b"));
    w.pod(pod("waits").priority(10));
    w.attempt();
    w.answer_all();
    w
}

/// Q-63, Q-70, Q-79 to Q-82, Q-84 and Q-85, cases 131 and 189: each kind of change raises its own event, and a change
/// that is irrelevant for scheduling raises none.
#[test]
fn changes_wake_the_pods_that_wait_for_them() {
    use ActionType as A;
    use EventResource as R;
    type Change = fn(&mut Driver);
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
                w.scheduler
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
                w.scheduler.apply(ClusterChange::Deleted(class), w.now);
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
            "a storage class that is reported again",
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

/// Q-87: each change is applied completely before the next one, in the order in which the core receives them.
#[test]
fn changes_are_taken_in_one_after_the_other() {
    let mut w = driver([fits()]);
    w.applied(node("n1").object());
    let mut notified = Vec::new();
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
        w.scheduler.apply(change, w.now);
        w.scheduler
            .check()
            .unwrap_or_else(|e| panic!("{version}: {e}"));
        let queued = w.scheduler.queue().get("default", "p");
        let queued = queued.and_then(|(_, info)| info.pod.labels().get("version"));
        notified.push(match (queued, w.on("n1").is_empty()) {
            (Some(of), true) => format!("{version} queued {of}"),
            (None, false) => format!("{version} assigned"),
            (None, true) => format!("{version} gone"),
            (Some(_), false) => format!("{version} in two places"),
        });
    }
    for (at, notified) in notified.iter().enumerate() {
        let version = at + 1;
        let expected = match version % 10 {
            9 => format!("{version} gone"),
            5..=8 => format!("{version} assigned"),
            _ => format!("{version} queued {version}"),
        };
        assert_eq!(*notified, expected);
    }
}

/// Q-86: every change is timed under the label of each of its events, each with its own time; updates of pods also
/// under the plain label.
#[test]
fn handled_changes_are_timed_by_event() {
    let watch = HandWatch::default();
    // The hint for labels takes a second, the hint for taints two, and the hint for a pod's labels four.
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
    let mut w = driver_with([picky, binder()], |options| {
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
    w.scheduler.reset_metrics();
    let handled = |w: &Driver| -> Vec<String> {
        let metrics = w.scheduler.metrics();
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
            let SeriesValue::Histogram(times) = handled else {
                return None;
            };
            Some(format!("{event} {}x {}s", times.count(), times.sum))
        })
        .collect()
    };
    type Change = fn(&mut Driver);
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
            "a new pod that another scheduler binds",
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
        (
            "another scheduler's pod deleted",
            |w| w.deleted("others"),
            &[],
        ),
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
        w.scheduler.reset_metrics();
    }
}

/// Q-82, Q-85, case 187: after a gap the list has the current objects.
#[test]
fn a_list_replaces_what_was_known() {
    let mut w = driver([fits()]);
    w.applied(node("n1").object()).applied(node("n2").object());
    w.pod(pod("gone").on("n1"));
    w.pod(pod("queued-and-gone"));
    w.pod(pod("stays").on("n2"));
    let replace = |w: &mut Driver, kind, objects: Vec<Object>| {
        w.scheduler
            .apply(ClusterChange::Replaced(kind, objects), w.now);
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
        .scheduler
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
        w.scheduler.cache().identities(Kind::Namespace),
        [("".into(), "b".into(), "".into())]
    );
    for (kind, dropped) in [("pods", 2.0), ("nodes", 1.0), ("namespaces", 1.0)] {
        let counted = w.metric(Metric::ObjectsDroppedByList, &[kind]);
        assert_eq!(counted, dropped, "{kind}");
    }
}

/// Q-82: an API server that returns with an empty store has other objects of the same names, at lower versions. All
/// state of the old objects is dropped and counted: nodes are free, calls for the old pods affect no new pod, and every
/// new pod is placed.
#[test]
fn a_new_store_replaces_everything() {
    let mut w = driver([fits()]);
    for name in ["n1", "n2"] {
        w.applied(node(name).capacity("2", "8Gi", "10").version(100).object());
    }
    for name in ["a", "b"] {
        w.pod(pod(name).request("cpu", "2").version(100));
    }
    // One is bound, the binding of the other one is in flight, a third one waits.
    let first = w.attempt();
    w.answer(None);
    let second = w.attempt();
    assert_ne!(first, second);
    w.pod(pod("c").request("cpu", "2").version(100));
    w.attempt();
    assert_eq!(w.place_of("c"), Some(QueuedIn::Unschedulable));
    // The new store lists nodes last.
    let new = |name: &str| {
        let uid = format!("new-{name}");
        let pod = pod(name).uid(&uid).request("cpu", "2").version(3);
        pod.object()
    };
    let pods = ["a", "b", "d"].map(new).to_vec();
    let nodes = ["n1", "n2", "n3"].map(|name| {
        let node = node(name).capacity("2", "8Gi", "10").version(2);
        node.with(|node| node.metadata.uid = format!("new-{name}").as_str().into())
            .object()
    });
    for (kind, objects) in [(Kind::Pod, pods), (Kind::Node, nodes.to_vec())] {
        w.scheduler
            .apply(ClusterChange::Replaced(kind, objects), w.now);
        w.take();
    }
    assert_eq!(w.place_of("c"), None, "it is not in the new store");
    assert_eq!(w.metric(Metric::ObjectsDroppedByList, &["pods"]), 3.0);
    assert_eq!(w.metric(Metric::ObjectsDroppedByList, &["nodes"]), 2.0);
    // The old call fails, because the pod of that name has another identity.
    let is_old = |call: &ApiCall| call.pod().is_some_and(|pod| !pod.uid.starts_with("new-"));
    while w.calls.iter().any(|(_, call)| is_old(call)) {
        w.answer_which(is_old, Some(CallErrorKind::NotFound), false);
    }
    w.wait(30);
    let mut placed = w.attempts();
    placed.sort();
    assert_eq!(placed.len(), 3, "{placed:?}");
    let bound: Vec<String> = w
        .calls
        .iter()
        .filter_map(|(_, call)| match call {
            ApiCall::BindPod { pod, .. } => Some(pod.uid.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(bound.len(), 3, "{bound:?}");
    assert!(bound.iter().all(|uid| uid.starts_with("new-")), "{bound:?}");
}

/// Q-86: the time of a change includes its application and each of its events.
#[test]
fn taking_a_change_in_is_part_of_its_time() {
    /// A stopwatch that advances by a second at each reading.
    #[derive(Debug, Default)]
    struct Looks(AtomicU64);

    impl Stopwatch for Looks {
        fn nanos(&self) -> u64 {
            self.0.fetch_add(1_000_000_000, Ordering::Relaxed)
        }
    }

    let mut w = driver_with([binder()], |options| {
        options.stopwatch = Box::new(Looks::default());
    });
    w.applied(node("n1").object());
    let n1 = node("n1").version(2).label("a", "b");
    w.applied(n1.taint("k", "v", TaintEffect::NoSchedule).object());
    for event in ["NodeUpdateNodeLabel", "NodeUpdateNodeTaint"] {
        let metrics = w.scheduler.metrics();
        let handled = metrics.get(Metric::EventHandlingDuration, &[event]);
        let Some(SeriesValue::Histogram(times)) = handled else {
            panic!("{event} was timed");
        };
        assert_eq!((times.count(), times.sum), (1, 2.0), "{event}");
    }
}
