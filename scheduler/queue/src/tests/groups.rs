//! Groups in the queue during an attempt of a group. The tests of the default profile check everything else.

use super::{fields, setup};
use crate::{GroupEnd, QueuedIn};
use berth_api::{Kind, Object, Pod};
use berth_framework::Feature;
use berth_framework::testing::pod;
use serde_json::json;
use std::sync::Arc;

fn gang() -> Object {
    let json = json!({
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    });
    let group = Kind::PodGroup.decode(json.to_string().as_bytes());
    group.expect("a group")
}

fn member(name: &str) -> Arc<Pod> {
    pod(name).member_of("g").arc()
}

/// G-9: a member that is added during an attempt of its group is pending, and joins the other members when the group
/// returns.
#[test]
fn a_member_that_comes_meanwhile_is_pending() {
    let mut bench = setup().feature(Feature::GenericWorkload, true).build();
    bench.cluster.set(&gang());
    let counts = |bench: &super::Bench| bench.queue.places().counts();
    {
        let (queue, cx) = fields!(bench);
        queue.add(&cx, member("a"));
    }
    assert_eq!(counts(&bench).active, 1);
    let now = bench.now;
    let mut popped = bench.queue.pop(now).expect("the group");
    let group = popped.own.group.take().expect("it is a group");
    let key = group.key().clone();
    let members = group.into_ordered();
    assert_eq!(members.len(), 1);
    {
        let (queue, cx) = fields!(bench);
        queue.add(&cx, member("b"));
    }
    assert_eq!((counts(&bench).active, counts(&bench).pending), (0, 1));
    let returned = members.into_iter().map(|mut info| {
        info.unschedulable_plugins = ["A"].into_iter().collect();
        info
    });
    let returned: Vec<_> = returned.collect();
    let (queue, cx) = fields!(bench);
    for info in returned {
        queue
            .add_unschedulable(&cx, info)
            .expect("it is not queued");
    }
    let end = GroupEnd::Rejected(Vec::new());
    // The new member can complete the group, so the group is retried.
    assert_eq!(
        queue.group_ended(&cx, popped, &key, &end),
        Some(QueuedIn::Backoff)
    );
    queue.check().expect("the records agree");
    assert_eq!((counts(&bench).backoff, counts(&bench).pending), (2, 0));
    assert!(bench.queue.in_flight().is_empty());
}

/// G-9: a group none of whose members returns is forgotten; a later member starts a new entry.
#[test]
fn a_group_without_members_is_forgotten() {
    let mut bench = setup().feature(Feature::GenericWorkload, true).build();
    bench.cluster.set(&gang());
    let (queue, cx) = fields!(bench);
    queue.add(&cx, member("a"));
    let mut popped = queue.pop(cx.now).expect("the group");
    let group = popped.own.group.take().expect("it is a group");
    queue.done("uid-a");
    let ended = queue.group_ended(&cx, popped, group.key(), &GroupEnd::Success);
    assert_eq!(ended, None);
    assert_eq!(queue.places().counts().total(), 0);
    queue.add(&cx, member("b"));
    assert_eq!(queue.places().counts().active, 1);
    queue.check().expect("the records agree");
}

/// G-12: a member that returns after its group was retried without it wakes the group, because it can complete the
/// group.
#[test]
fn a_member_that_comes_back_late_wakes_its_group() {
    let mut bench = setup().feature(Feature::GenericWorkload, true).build();
    bench.cluster.set(&gang());
    {
        let (queue, cx) = fields!(bench);
        queue.add(&cx, member("late"));
        queue.add(&cx, member("a"));
    }
    let (queue, cx) = fields!(bench);
    let end = GroupEnd::Rejected(Vec::new());
    let mut late = None;
    for attempt in 0..2 {
        let mut popped = queue.pop(cx.now).expect("the group");
        let group = popped.own.group.take().expect("it is a group");
        let key = group.key().clone();
        for mut info in group.into_ordered() {
            info.unschedulable_plugins = ["A"].into_iter().collect();
            match info.pod.name().as_str() {
                "late" => late = Some(info),
                _ => drop(
                    queue
                        .add_unschedulable(&cx, info)
                        .expect("it is not queued"),
                ),
            }
        }
        let ended = queue.group_ended(&cx, popped, &key, &end);
        assert_eq!(ended, Some(QueuedIn::Unschedulable), "attempt {attempt}");
        if attempt == 0 {
            // Activating a pod activates its group.
            queue.activate(&cx, &[member("a")]);
        }
    }
    let place = queue.add_unschedulable(&cx, late.expect("the late member"));
    assert_eq!(place.expect("it is not queued"), QueuedIn::Backoff);
    queue.check().expect("the records agree");
}
