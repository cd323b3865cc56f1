//! Pod changes that the watch reports (Q-79 to Q-83).

use super::*;
use berth_framework::call::CallErrorKind;

/// Q-81, Q-82, cases 134 and 135: the end of a nomination wakes the pods that had to respect it. A new nomination wakes
/// no pods.
#[test]
fn a_nomination_that_ends_wakes_pods_of_no_higher_priority() {
    type Change = fn(&mut Driver);
    let cases: [(&str, i32, Change, bool); 9] = [
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
        (
            "bound elsewhere by others",
            10,
            |w| w.change("nominee", |p| p.on("n2")),
            true,
        ),
        (
            "a lower pod bound elsewhere by others",
            9,
            |w| w.change("nominee", |p| p.on("n2")),
            false,
        ),
        (
            "bound there by others",
            10,
            |w| w.change("nominee", |p| p.on("n1")),
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
    let mut w = driver([fits()]);
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
        "bound by another scheduler"
    );
    w.scheduler
        .apply(ClusterChange::Deleted(pod("unknown").object()), w.now);
    // The deletion of an older pod of the same name does not apply to this pod.
    w.gone(pod("mine").uid("older").object());
    assert_eq!(w.on("n1"), ["mine", "others"]);
}

/// Q-64: a pod was deleted and created again with the same name, and the watch did not show the deletion.
#[test]
fn a_pod_of_the_same_name_is_another_pod() {
    let mut w = driver([fits()]);
    w.applied(node("n1").object());
    w.pod(pod("p").on("n1"));
    w.pod(pod("p").uid("second"));
    assert_eq!(
        (w.on("n1"), w.place_of("p")),
        (vec![], Some(QueuedIn::Active))
    );
    w.pod(pod("p").uid("third"));
    let (_, info) = w.scheduler.queue().get("default", "p").unwrap();
    assert_eq!(*info.pod.uid(), "third");
}

/// Q-63, case 131: a pod that is received again in the same version has not changed, and keeps waiting.
#[test]
fn a_waiting_pod_that_is_received_again_has_not_changed() {
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

/// Q-82, case 187: the deletion of a pod applies whatever node the deleted object names. The object may be older or
/// newer than the version in the cache.
#[test]
fn a_deletion_names_the_pod_and_not_its_place() {
    let reports = |w: &mut Driver, last: PodBuilder| {
        w.gone(last.object());
    };
    let mut w = waiting_for(EventResource::Pod, ActionType::DELETE);
    reports(&mut w, pod("assigned"));
    assert_eq!(
        w.on("n1"),
        [""; 0],
        "it was assigned, the deletion states that it was not"
    );
    assert_eq!(w.place_of("waits"), Some(QueuedIn::Backoff));
    w.pod(pod("queued"));
    reports(&mut w, pod("queued").on("n1"));
    assert_eq!(
        w.place_of("queued"),
        None,
        "it was not assigned, the deletion states that it was"
    );
    w.pod(pod("placed").priority(99));
    assert_eq!(w.attempt(), "on n1");
    reports(&mut w, pod("placed").on("n1"));
    assert_eq!(w.on("n1"), [""; 0], "it was placed, and perhaps bound");
    w.answer_all();
    w.pod(pod("other").scheduler("else"));
    reports(&mut w, pod("other").on("n1"));
    reports(&mut w, pod("never seen"));
    assert_eq!(
        w.scheduler.queue().places().counts().total(),
        1,
        "only the one that waits"
    );
}

/// Q-81, case 188: one update replaces an assigned pod with another pod of the same name. The old pod is removed and
/// the new one counts, and both changes raise an event.
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
        let cluster = w.scheduler.cache().cluster();
        assert!(cluster.pods.get("uid-assigned").is_none());
        assert!(cluster.pods.get("another").is_some());
        let woke = w.place_of("waits") != Some(QueuedIn::Unschedulable);
        assert_eq!(woke, woken, "{action:?}");
    }
}

/// Q-83, cases 185 and 186: an assumed pod that waits in Permit is rejected when its deletion is requested, and its
/// binding cycle ends by itself. A pod that is bound by then is not an assumed pod any more.
#[test]
fn a_placed_pod_that_terminates_is_rejected() {
    let hold = fake("Hold")
        .permit(|_, pod, _, _| {
            if pod.pod.name().starts_with("held") {
                PermitStep::Hold(Duration::from_secs(500))
            } else {
                PermitStep::Done(Status::success())
            }
        })
        .events(Vec::new);
    let mut w = driver([hold, receives(EventResource::Pod, ActionType::DELETE)]);
    w.applied(node("n1").object());
    w.pod(pod("waits"));
    w.attempt();
    w.pod(pod("held"));
    assert_eq!(w.attempt(), "on n1");
    w.answer_all();
    w.events_text();
    let now = w.now;
    w.change("held", |p| p.deleting(now));
    assert_eq!(
        w.place_of("waits"),
        Some(QueuedIn::Backoff),
        "others receive it"
    );
    assert_eq!((w.on("n1").len(), w.scheduler.bindings_in_flight()), (0, 0));
    assert_eq!(
        w.events_text(),
        ["Warning FailedScheduling 0/1 nodes are available: 1 removed."]
    );
    w.answer_all();
    w.deleted("held");
    assert_eq!(w.place_of("held"), None);

    // The pod is bound, then its deletion is requested: this is only an update of an assigned pod.
    let mut w = waiting_for(EventResource::Pod, ActionType::DELETE);
    w.pod(pod("bound").priority(99));
    assert_eq!(w.attempt(), "on n1");
    w.answer_all();
    w.change("bound", |p| p.deleting(now));
    assert_eq!(w.on("n1"), ["assigned", "bound"]);
    assert_eq!(w.place_of("waits"), Some(QueuedIn::Unschedulable));
}

/// Q-79: fields of a pod that the scheduler does not read are not kept.
#[test]
fn managed_fields_are_not_kept() {
    let decode = |json: &str| Kind::Pod.decode(json.as_bytes()).unwrap();
    assert_eq!(
        decode(r#"{"metadata":{"name":"p","managedFields":[{"manager":"kubectl"}]}}"#),
        decode(r#"{"metadata":{"name":"p"}}"#)
    );
}

/// Q-81, case 185: a change of a pod that waits in Permit is kept, and counts if the pod is rejected afterwards. This
/// includes updates that would not move any other pod.
#[test]
fn a_change_of_a_pod_that_is_held_back_is_not_lost() {
    type Change = fn(&mut Driver);
    let changes: [(&str, Change, QueuedIn); 3] = [
        ("nothing", |_| {}, QueuedIn::Unschedulable),
        (
            "a label",
            |w| w.change("p", |p| p.label("a", "b")),
            QueuedIn::Backoff,
        ),
        (
            "an annotation, for example",
            |w| w.change("p", |p| p),
            QueuedIn::Backoff,
        ),
    ];
    for (what, change, place) in changes {
        let hold = fake("Hold")
            .permit(|_, _, _, _| PermitStep::Hold(Duration::from_secs(5)))
            .events(|| {
                vec![EventRegistration::always(
                    EventResource::Pod,
                    ActionType::UPDATE,
                )]
            });
        let mut w = driver([hold]);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        assert_eq!(w.attempt(), "on n1");
        let (id, _) = w.calls.remove(0);
        w.complete(id, Ok(()));
        change(&mut w);
        assert_eq!((w.on("n1").len(), w.place_of("p")), (1, None));
        w.advance(Duration::from_secs(5));
        assert_eq!(w.place_of("p"), Some(place), "{what}");
    }
}

/// Q-81, case 184: the watch shows the pod on another node than the scheduler chose. The pod counts on that node, and
/// its resources on the chosen node are free for waiting pods.
#[test]
fn a_pod_that_is_bound_elsewhere_frees_the_node_it_was_placed_on() {
    let mut w = driver([fits()]);
    w.applied(node("n1").capacity("1", "1Gi", "9").object());
    w.pod(pod("p").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    w.applied(node("n2").capacity("1", "1Gi", "9").object());
    w.pod(pod("full").on("n2").request("cpu", "1"));
    w.pod(pod("other").request("cpu", "1"));
    assert!(w.attempt().starts_with("0/2"));
    w.change("p", |p| p.on("n2"));
    assert_eq!(w.on("n1"), [""; 0]);
    assert_eq!(w.on("n2"), ["full", "p"]);
    assert_eq!(
        w.place_of("other"),
        Some(QueuedIn::Backoff),
        "it receives it"
    );
    let bind = w.calls_text().iter().position(|c| c == "bind p n1");
    w.calls.swap(0, bind.expect("our binding is on its way"));
    w.fail(CallErrorKind::Conflict);
    assert_eq!(w.on("n2"), ["full", "p"], "the API is right");
    assert_eq!(
        (w.place_of("p"), w.scheduler.bindings_in_flight()),
        (None, 0)
    );
}

/// The reason for the last failed attempt is available while the pod waits.
#[test]
fn nothing_is_explained_of_a_pod_that_waits_no_more() {
    type Change = fn(&mut Driver);
    let changes: [(&str, Change); 2] = [
        ("bound by another scheduler", |w| {
            w.change("waits", |p| p.on("n1"));
        }),
        ("gone", |w| w.deleted("waits")),
    ];
    for (situation, change) in changes {
        let mut w = waiting_for(EventResource::Node, ActionType::ADD);
        let explained = |w: &Driver| w.scheduler.explanation("uid-waits").is_some();
        assert!(explained(&w));
        change(&mut w);
        assert!(!explained(&w), "{situation}");
    }
}
