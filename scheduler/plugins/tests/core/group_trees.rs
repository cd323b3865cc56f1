//! Hierarchies of groups.

use crate::drivers::driver_of;
use crate::groups::{cpus, gates, member, node_of, stated};
use berth_api::Kind;
use berth_framework::Feature;
use berth_framework::cluster::{DEFERRED_QUOTA, GroupKey};
use berth_framework::testing::node;
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

fn driver() -> Driver {
    driver_of(
        gates()
            .with(Feature::TopologyAwareWorkloadScheduling, true)
            .with(Feature::CompositePodGroup, true),
    )
}

fn object(name: &str, parent: &str, policy: Value) -> Value {
    let mut spec = json!({
        "schedulingPolicy": policy,
        "workloadRef": {"workloadName": "w", "templateName": "t"},
    });
    if !parent.is_empty() {
        spec["parentCompositePodGroupName"] = parent.into();
    }
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-group-{name}"), "generation": 1},
        "spec": spec,
    })
}

fn leaf(name: &str, parent: &str, min: i32) -> Value {
    object(name, parent, json!({"gang": {"minCount": min}}))
}

fn composite(name: &str, parent: &str, min: i32) -> Value {
    object(name, parent, json!({"gang": {"minGroupCount": min}}))
}

/// The condition of a composite group.
fn condition(w: &Driver, name: &str) -> String {
    let key = GroupKey::composite(&"default".into(), &name.into());
    let groups = w.scheduler.cache().cluster().groups();
    let group = groups.get(&key).expect("the group exists");
    let condition = group
        .status
        .condition("CompositePodGroupInitiallyScheduled");
    condition.map_or(String::new(), |c| {
        format!("{} {}: {}", c.status, c.reason, c.message)
    })
}

fn placed(w: &Driver, pods: &[&str]) -> Vec<bool> {
    pods.iter().map(|pod| !node_of(w, pod).is_empty()).collect()
}

/// G-3, G-8: pods wait for every ancestor of their group; each that is missing, and a circle, is named.
#[test]
fn pods_wait_for_the_whole_hierarchy() {
    let mut w = driver();
    w.node(cpus("n1", "8"));
    w.pod(member("p1", "g", "1"));
    w.object(Kind::PodGroup, leaf("g", "mid", 1));
    w.object(Kind::CompositePodGroup, composite("top", "", 1));
    assert_eq!(w.scheduler.queue().places().counts().incomplete, 1);
    w.wait(6);
    w.answer_all();
    assert_eq!(
        stated(&w, "p1"),
        "NotReadyForScheduling: compositepodgroup default/mid not found in workload forest"
    );
    w.object(Kind::CompositePodGroup, composite("mid", "top", 1));
    assert_eq!(w.attempts(), ["top: p1 on n1"]);
    w.answer_all();
    assert_eq!(condition(&w, "top"), "True Scheduled: ");
    assert_eq!(condition(&w, "mid"), "True Scheduled: ");
    // A gated hierarchy loses a group, gets it back, and becomes a circle.
    w.object(Kind::PodGroup, leaf("h", "middle", 2));
    w.object(Kind::CompositePodGroup, composite("middle", "root", 1));
    w.object(Kind::CompositePodGroup, composite("root", "", 1));
    w.pod(member("q1", "h", "1"));
    assert_eq!(w.place_of("q1"), Some(QueuedIn::Gated));
    w.object_gone(Kind::CompositePodGroup, &composite("middle", "root", 1));
    assert_eq!(w.scheduler.queue().places().counts().incomplete, 1);
    w.object(Kind::CompositePodGroup, composite("middle", "root", 1));
    assert_eq!(w.scheduler.queue().places().counts().incomplete, 0);
    w.object_gone(Kind::CompositePodGroup, &composite("root", "", 1));
    w.object(Kind::CompositePodGroup, composite("root", "middle", 1));
    assert_eq!(w.scheduler.queue().places().counts().incomplete, 1);
    w.wait(6);
    w.answer_all();
    assert!(
        stated(&w, "q1").contains("cycle detected in hierarchy"),
        "{}",
        stated(&w, "q1")
    );
    w.object_gone(Kind::CompositePodGroup, &composite("root", "middle", 1));
    w.object(Kind::CompositePodGroup, composite("root", "", 1));
    w.pod(member("q2", "h", "1"));
    assert_eq!(w.attempts(), ["root: q1 on n1, q2 on n1"]);
}

/// G-5, G-29: a hierarchy starts with enough of its children; the others wait with the reason of their group.
#[test]
fn a_hierarchy_starts_with_enough_of_its_children() {
    let mut w = driver();
    w.node(cpus("n1", "8"));
    w.object(Kind::CompositePodGroup, composite("root", "", 1));
    w.object(Kind::CompositePodGroup, composite("sub", "root", 2));
    w.object(Kind::PodGroup, leaf("main", "root", 1));
    w.object(Kind::PodGroup, leaf("a", "sub", 1));
    w.object(Kind::PodGroup, leaf("b", "sub", 2));
    for (name, group) in [("m1", "main"), ("a1", "a"), ("b1", "b")] {
        w.pod(member(name, group, "1"));
    }
    w.attempts();
    w.answer_all();
    assert_eq!(placed(&w, &["m1", "a1", "b1"]), [true, false, false]);
    assert!(
        condition(&w, "sub").starts_with("False Unschedulable"),
        "{}",
        condition(&w, "sub")
    );
    w.object(Kind::PodGroup, leaf("b", "sub", 1));
    w.wait(30);
    w.attempts();
    assert_eq!(placed(&w, &["a1", "b1"]), [true, true]);
    assert_eq!(condition(&w, "sub"), "True Scheduled: ");
}

/// G-29: a child that cannot start leaves its room to the others.
#[test]
fn a_child_that_cannot_start_takes_no_room() {
    let mut w = driver();
    w.node(cpus("n1", "4"));
    w.object(Kind::CompositePodGroup, composite("root", "", 1));
    w.object(Kind::PodGroup, leaf("a", "root", 3));
    w.object(Kind::PodGroup, leaf("b", "root", 2));
    for name in ["a1", "a2", "a3"] {
        w.pod(member(name, "a", "2"));
    }
    for name in ["b1", "b2"] {
        w.pod(member(name, "b", "2"));
    }
    w.attempts();
    assert_eq!(
        placed(&w, &["a1", "a2", "a3", "b1", "b2"]),
        [false, false, false, true, true]
    );
}

/// G-29: each child has its own rack, within the zone of the hierarchy.
#[test]
fn children_are_placed_within_the_placement_of_their_parent() {
    let mut w = driver();
    for (name, zone, rack) in [
        ("n1", "z1", "r1"),
        ("n2", "z1", "r2"),
        ("n3", "z2", "r3"),
        ("n4", "z2", "r4"),
    ] {
        let cpu = if zone == "z1" { "2" } else { "1" };
        w.node(
            node(name)
                .capacity(cpu, "64Gi", "110")
                .label("zone", zone)
                .label("rack", rack),
        );
    }
    let within = |mut group: Value, key: &str| {
        group["spec"]["schedulingConstraints"] = json!({"topology": [{"key": key}]});
        group
    };
    w.object(
        Kind::CompositePodGroup,
        within(composite("root", "", 2), "zone"),
    );
    for name in ["a", "b"] {
        w.object(Kind::PodGroup, within(leaf(name, "root", 2), "rack"));
        for n in 1..=2 {
            w.pod(member(&format!("{name}{n}"), name, "1"));
        }
    }
    w.attempts();
    let nodes: Vec<String> = ["a1", "a2", "b1", "b2"]
        .iter()
        .map(|pod| node_of(&w, pod))
        .collect();
    assert_eq!(nodes[0], nodes[1], "{nodes:?}");
    assert_eq!(nodes[2], nodes[3], "{nodes:?}");
    let mut used = nodes.clone();
    used.sort();
    used.dedup();
    assert_eq!(
        used,
        ["n1", "n2"],
        "both are in the zone with room for both"
    );
}

/// G-30: a hierarchy that is too deep, of two workloads, or mixed in its policies or modes, is an error of all its
/// groups.
#[test]
fn a_hierarchy_of_a_wrong_shape_is_an_error() {
    let deep = [
        (Kind::CompositePodGroup, composite("c1", "", 1)),
        (Kind::CompositePodGroup, composite("c2", "c1", 1)),
        (Kind::CompositePodGroup, composite("c3", "c2", 1)),
        (Kind::CompositePodGroup, composite("c4", "c3", 1)),
        (Kind::PodGroup, leaf("g", "c4", 1)),
    ];
    let mut other = leaf("g", "c1", 1);
    other["spec"]["workloadRef"]["workloadName"] = json!("other");
    let mut whole = composite("c1", "", 1);
    whole["spec"]["disruptionMode"] = json!({"all": {}});
    for (objects, text) in [
        (
            &deep[..],
            "hierarchy depth 5 exceeds maximum allowed depth 4",
        ),
        (
            &[deep[0].clone(), (Kind::PodGroup, other)],
            "all groups of a hierarchy should have the same workload",
        ),
        (
            &[
                deep[0].clone(),
                (Kind::PodGroup, object("g", "c1", json!({"basic": {}}))),
            ],
            "the children of a group with gang policy should have gang policy",
        ),
        (
            &[
                (Kind::CompositePodGroup, whole),
                (Kind::PodGroup, leaf("g", "c1", 1)),
            ],
            "the children of a group with disruption mode all should have this mode",
        ),
    ] {
        let mut w = driver();
        w.node(cpus("n1", "8"));
        for (kind, group) in objects {
            w.object(*kind, group.clone());
        }
        w.pod(member("p1", "g", "1"));
        assert_eq!(w.attempts(), ["c1: p1 error"], "{text}");
        w.answer_all();
        assert!(
            stated(&w, "p1").starts_with(&format!("SchedulerError: {text}")),
            "{}",
            stated(&w, "p1")
        );
        let of_root = condition(&w, "c1");
        assert!(
            of_root.starts_with(&format!("False SchedulerError: {text}")),
            "{of_root}"
        );
    }
}

/// DQ-7, G-8: a hierarchy of groups waits for a deferred quota as a whole, and starts when the limit is raised.
#[test]
fn a_hierarchy_waits_for_a_quota_as_a_whole() {
    let mut w = driver();
    w.node(cpus("n1", "8"));
    let quota = |pods: i64| {
        json!({
            "metadata": {"name": "q", "namespace": "default", "uid": "uid-q"},
            "spec": {"hard": {"pods": pods}},
        })
    };
    let kind = Kind::Custom(DEFERRED_QUOTA);
    w.object(kind, quota(2));
    w.object(Kind::CompositePodGroup, composite("root", "", 2));
    w.object(Kind::PodGroup, leaf("g", "root", 2));
    w.object(Kind::PodGroup, leaf("h", "root", 1));
    let pods = ["g1", "g2", "h1"];
    for name in pods {
        w.pod(member(name, &name[..1], "1"));
    }
    assert_eq!(w.attempt_named(), "idle");
    for name in pods {
        assert_eq!(w.place_of(name), Some(QueuedIn::Gated), "{name}");
    }
    w.object(kind, quota(3));
    w.attempts();
    w.answer_all();
    assert_eq!(placed(&w, &pods), [true; 3]);
    let used = w.scheduler.cache().cluster().quotas();
    let used = used.get(&"default".into(), &"q".into()).expect("the quota");
    assert_eq!(used.amounts[0].used, 3);
}
