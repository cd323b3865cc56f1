//! Started groups with failing bindings.

use crate::groups::{cpus, driver, driver_and, gang, group, is_bind_of, member, node_of, stated};
use berth_api::{Duration, Kind};
use berth_framework::Status;
use berth_framework::call::CallErrorKind;
use berth_framework::stage::{Step, Wait, WaitOn};
use berth_framework::testing::{fake, pod};
use berth_scheduler::testing::Driver;

/// G-20: a member whose binding fails keeps its room and is tried again, together with the bound members.
#[test]
fn a_failed_binding_keeps_its_room() {
    let mut w = driver();
    w.node(cpus("n1", "3"));
    w.object(Kind::PodGroup, group("g", gang(3)));
    for name in ["p1", "p2", "p3"] {
        w.pod(member(name, "g", "1"));
    }
    assert_eq!(w.attempts(), ["g: p1 on n1, p2 on n1, p3 on n1"]);
    w.answer_which(is_bind_of("p2"), Some(CallErrorKind::Refused), false);
    w.answer_all();
    assert_eq!(w.nominated("p2"), "n1");
    w.pod(pod("thief").request("cpu", "1"));
    let attempts = w.attempts();
    assert!(
        !attempts.iter().any(|a| a.starts_with("thief on")),
        "{attempts:?}"
    );
    w.wait(10);
    assert!(w.attempts().contains(&"g: p2 on n1".to_owned()));
    w.answer_all();
    assert_eq!(node_of(&w, "p2"), "n1");
}

/// G-20: a member whose binding fails repeatedly gives up its room to other pods.
#[test]
fn a_binding_that_goes_on_failing_holds_no_room() {
    let mut w = driver();
    w.node(cpus("n1", "2"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    for name in ["p1", "p2"] {
        w.pod(member(name, "g", "1"));
    }
    assert_eq!(w.attempts(), ["g: p1 on n1, p2 on n1"]);
    refuse(&mut w, "p2", 5);
    assert_eq!(w.nominated("p2"), "n1");
    for _ in 0..60 {
        refuse(&mut w, "p2", 1);
    }
    // It is tried again and again, and others may use the room in between.
    for _ in 0..20 {
        refuse(&mut w, "p2", 1);
        assert_eq!(w.nominated("p2"), "");
    }
}

/// G-20: a group that is held back by a gate gives the kept node to others in time.
#[test]
fn a_group_that_is_gated_meanwhile_holds_no_room() {
    let mut w = driver();
    w.node(cpus("n1", "2"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    for name in ["p1", "p2"] {
        w.pod(member(name, "g", "1"));
    }
    assert_eq!(w.attempts(), ["g: p1 on n1, p2 on n1"]);
    w.answer_which(is_bind_of("p2"), Some(CallErrorKind::Refused), false);
    w.answer_all();
    w.pod(member("p3", "g", "1").gate("quota"));
    w.pod(pod("other").request("cpu", "1"));
    w.wait(20);
    assert!(!w.attempts().contains(&"other on n1".to_owned()));
    assert_eq!(w.nominated("p2"), "n1");
    w.wait(11);
    w.answer_all();
    assert_eq!(w.nominated("p2"), "");
    assert_eq!(w.attempts(), ["other on n1"]);
    assert_eq!(w.pods["p2"].status.nominated_node_name.as_str(), "");
    let events: Vec<&str> = w.group_events.iter().map(|e| &*e.note).collect();
    assert_eq!(
        events,
        [
            "1 of 2 pods of pod group g have a node, and 1 pod could not be bound for 30 s: no node is kept any longer"
        ]
    );
}

/// An event of the group states why it cannot start, once for each reason.
#[test]
fn a_group_has_events() {
    let mut w = driver();
    w.node(cpus("n1", "1"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    w.pod(member("p1", "g", "1")).pod(member("p2", "g", "1"));
    assert_eq!(w.attempts().len(), 1);
    w.answer_all();
    let events: Vec<String> = w
        .group_events
        .iter()
        .map(|e| format!("{} {} {}", e.group, e.reason, e.note))
        .collect();
    assert_eq!(
        events,
        [
            "podgroup/default/g FailedScheduling minCount (2) cannot be satisfied: 1 scheduled, 0 remaining, pod group preemption: No preemption victims found for incoming preemptor"
        ]
    );
    // The next attempt gives the same reason.
    w.node(cpus("n2", "0"));
    w.pod(pod("other"));
    w.wait(400);
    w.attempts();
    w.answer_all();
    assert_eq!(w.group_events.len(), 1);
}

/// A scheduler where preparing these pods takes two minutes.
fn driver_with_slow(slow: &'static [&'static str]) -> Driver {
    let extra = fake("Extra").pre_bind(move |cx, _, pod, _, wake| {
        if wake.is_some() || !slow.contains(&pod.pod.name().as_str()) {
            return Step::Done(Status::success());
        }
        Step::Wait(Wait {
            on: WaitOn::Timer,
            deadline: cx.now + Duration::from_secs(120),
        })
    });
    driver_and(extra.build())
}

/// Refuses each binding of this pod for a time in seconds.
fn refuse(w: &mut Driver, name: &'static str, seconds: u64) {
    for _ in 0..seconds {
        w.attempts();
        if w.calls.iter().any(|(_, call)| is_bind_of(name)(call)) {
            w.answer_which(is_bind_of(name), Some(CallErrorKind::Refused), false);
        }
        w.answer_all();
        w.wait(1);
    }
}

/// G-20: a gang that stays short gives back the nodes of the members that are not bound yet, and tries all of them again.
#[test]
fn a_gang_that_stays_short_releases_its_members() {
    let mut w = driver_with_slow(&["p1"]);
    w.node(cpus("n1", "2"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    for name in ["p1", "p2"] {
        w.pod(member(name, "g", "1"));
    }
    assert_eq!(w.attempts(), ["g: p1 on n1, p2 on n1"]);
    refuse(&mut w, "p2", 20);
    assert_eq!(node_of(&w, "p1"), "n1");
    refuse(&mut w, "p2", 11);
    let events: Vec<&str> = w.group_events.iter().map(|e| &*e.note).collect();
    assert!(
        events
            .iter()
            .any(|note| note
                .contains("no node is kept any longer, and 1 pod not bound yet released")),
        "{events:?}"
    );
    assert!(
        stated(&w, "p1").contains("1 pod could not be bound for 30 s"),
        "{}",
        stated(&w, "p1")
    );
    // Both are queued again, and start once the API accepts the binding.
    w.wait(120);
    for _ in 0..40 {
        w.attempts();
        w.answer_all();
        w.wait(10);
    }
    assert_eq!(
        (node_of(&w, "p1"), node_of(&w, "p2")),
        ("n1".into(), "n1".into())
    );
}

/// G-20: a gang with enough members keeps them.
#[test]
fn a_gang_with_enough_members_releases_none() {
    let mut w = driver_with_slow(&["p1"]);
    w.node(cpus("n1", "3"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    for name in ["p1", "p2", "p3"] {
        w.pod(member(name, "g", "1"));
    }
    refuse(&mut w, "p3", 40);
    assert_eq!(node_of(&w, "p1"), "n1");
    w.wait(90);
    w.answer_all();
    assert!(w.pods["p1"].is_assigned());
}
