//! Taking in changes of the cluster (Q-79 to Q-87).

use super::*;
use crate::ClusterChange;
use crate::queue::QueuedIn;
use berth_api::{Kind, Object, TaintEffect};
use berth_framework::call::PodRef;
use berth_framework::event::EventRegistration;
use berth_framework::testing::{FakePlugin, PodBuilder, fake, node, pod};
use berth_framework::{ActionType, ApiCall, EventResource, Status};

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

/// Q-79 to Q-82, Q-84 and Q-85: each kind of change raises its own event, and none when nothing has changed that
/// matters; edge cases 131 (of a pod that has a node) and 189.
#[test]
fn changes_wake_who_waits_for_them() {
    use ActionType as A;
    use EventResource as R;
    type Change = fn(&mut World);
    let cases: [(&str, R, A, Change, bool); 12] = [
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
            "a storage class",
            R::StorageClass,
            A::ADD,
            |w| {
                w.applied(
                    Kind::StorageClass
                        .decode(br#"{"metadata":{"name":"fast"}}"#)
                        .unwrap(),
                );
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

/// Q-81, Q-82, edge cases 134 and 135: who had to respect a nomination hears when it ends.
#[test]
fn a_nomination_that_ends_wakes_pods_of_no_higher_priority() {
    type Change = fn(&mut World);
    let cases: [(&str, i32, Change, bool); 5] = [
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
            |w| w.change("nominee", |p| p.label("x", "y")),
            false,
        ),
    ];
    for (situation, priority, change, woken) in cases {
        let mut w = waiting_for(EventResource::Pod, ActionType::DELETE);
        w.pod(pod("nominee").priority(priority).nominated("n1"));
        change(&mut w);
        let place = if woken {
            QueuedIn::Backoff
        } else {
            QueuedIn::Unschedulable
        };
        assert_eq!(w.place_of("waits"), Some(place), "{situation}");
    }
}

/// Q-79, Q-80, Q-82, edge cases 181 to 183, and 187 in its harmless form.
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

/// Edge case 64: a pod that was made anew under its name, the deletion untold.
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

/// Q-63, edge case 131: a pod that is told of again in the same version has not changed, and keeps waiting.
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

/// Q-84, edge cases 190, 191 and 196: cordoning raises no event and uncordoning that of taints; labels and taints that
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
    w.deleted("assigned");
    assert!(w.core.cache().cluster().nodes.is_empty());
}

/// After a gap the list says what there is.
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

/// KEP-5501 as far as the core goes (Q-101, Q-104, Q-106): the report becomes a patch and an event; its failure is told to the queue.
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
