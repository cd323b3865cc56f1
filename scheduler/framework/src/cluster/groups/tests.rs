use super::*;
use crate::cluster::Cluster;
use crate::features::{Feature, FeatureGates};
use crate::testing::{PodBuilder, pod};
use serde_json::json;

fn cluster() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.follow(&FeatureGates::default().with(Feature::GenericWorkload, true));
    cluster
        .pods
        .count_members_of(vec!["default-scheduler".into()]);
    cluster
}

fn object(kind: Kind, name: &str, min: Option<i32>, parent: &str) -> Object {
    let policy = match min {
        Some(min) => json!({"gang": {"minCount": min}}),
        None => json!({"basic": {}}),
    };
    let json = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"schedulingPolicy": policy, "parentCompositePodGroupName": parent},
    });
    kind.decode(json.to_string().as_bytes()).unwrap()
}

fn group(name: &str, min: i32, parent: &str) -> Object {
    object(Kind::PodGroup, name, Some(min), parent)
}

fn composite(name: &str, min: i32, parent: &str) -> Object {
    object(Kind::CompositePodGroup, name, Some(min), parent)
}

fn leaf(name: &str) -> GroupKey {
    GroupKey::pod_group(&"default".into(), &name.into())
}

fn of_group(name: &str, group: &str) -> PodBuilder {
    pod(name).member_of(group)
}

fn show(cluster: &mut Cluster, pod: PodBuilder) {
    let pod = pod.arc();
    cluster.pods.insert(pod.uid().clone(), pod);
}

/// The known and the scheduled members of a group.
fn counts(cluster: &Cluster, name: &str) -> (usize, usize) {
    let members = cluster.pods.members(&leaf(name));
    members.map_or((0, 0), |m| (m.known(), m.scheduled().len()))
}

/// G-2: members are counted when they are created, get a node and are deleted. Terminating pods and pending pods of
/// other schedulers do not count.
#[test]
fn members_are_counted_by_state() {
    let mut cluster = cluster();
    show(&mut cluster, of_group("a", "g"));
    show(&mut cluster, of_group("b", "g"));
    assert_eq!(counts(&cluster, "g"), (2, 0));
    show(&mut cluster, of_group("b", "g").on("n1"));
    assert_eq!(counts(&cluster, "g"), (2, 1));
    show(&mut cluster, of_group("c", "g").scheduler("other"));
    assert_eq!(counts(&cluster, "g"), (2, 1), "of another scheduler");
    show(&mut cluster, of_group("c", "g").scheduler("other").on("n1"));
    assert_eq!(counts(&cluster, "g"), (3, 2));
    show(
        &mut cluster,
        of_group("a", "g").deleting(berth_api::Time::EPOCH),
    );
    assert_eq!(
        counts(&cluster, "g"),
        (2, 2),
        "a pending pod that terminates"
    );
    cluster.pods.remove("uid-b");
    cluster.pods.remove("uid-c");
    assert_eq!(counts(&cluster, "g"), (0, 0));
    cluster.pods.remove("uid-a");
    assert!(
        cluster.pods.members(&leaf("g")).is_none(),
        "nothing is left over"
    );
}

/// G-1: without the gate no member is counted.
#[test]
fn without_the_gate_no_member_is_counted() {
    let mut cluster = Cluster::default();
    cluster.follow(&FeatureGates::default());
    show(&mut cluster, of_group("a", "g"));
    assert_eq!(counts(&cluster, "g"), (0, 0));
}

/// G-3: the root is found through all ancestors; a missing one and a circle are named.
#[test]
fn the_root_is_found_or_the_reason_is_known() {
    let mut cluster = cluster();
    cluster.set(&group("g", 1, "mid"));
    cluster.set(&composite("mid", 1, "top"));
    let root = |cluster: &Cluster| {
        let root = cluster.groups().root_of(&leaf("g"));
        root.map_or_else(|no| no.to_string(), |key| key.to_string())
    };
    assert_eq!(
        root(&cluster),
        "compositepodgroup default/top not found in workload forest"
    );
    cluster.set(&composite("top", 1, ""));
    assert_eq!(root(&cluster), "compositepodgroup/default/top");
    cluster.set(&composite("top", 1, "mid"));
    assert!(
        root(&cluster).starts_with("cycle detected in hierarchy"),
        "{}",
        root(&cluster)
    );
    cluster.unset(&composite("top", 1, "mid"));
    cluster.set(&composite("top", 1, ""));
    assert_eq!(root(&cluster), "compositepodgroup/default/top");
    let top = cluster.groups().root_of(&leaf("g")).unwrap();
    let tree: Vec<String> = cluster
        .groups()
        .tree(&top)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        tree,
        [
            "compositepodgroup/default/top",
            "compositepodgroup/default/mid",
            "podgroup/default/g"
        ]
    );
}

/// G-4, G-5: a pod group is ready with enough known members, a composite one with enough ready children.
#[test]
fn a_tree_is_ready_when_enough_of_its_children_are() {
    let mut cluster = cluster();
    cluster.set(&composite("top", 2, ""));
    for (name, min) in [("one", 1), ("two", 2), ("three", 3)] {
        cluster.set(&group(name, min, "top"));
    }
    cluster.set(&object(Kind::PodGroup, "basic", None, ""));
    let top = GroupKey::composite(&"default".into(), &"top".into());
    let mut ready = Vec::new();
    for (name, of) in [("a", "one"), ("b", "two"), ("c", "three"), ("d", "two")] {
        show(&mut cluster, of_group(name, of));
        ready.push(cluster.is_ready(&top));
    }
    assert_eq!(ready, [false, false, false, true]);
    assert!(!cluster.is_ready(&leaf("basic")));
    show(&mut cluster, of_group("e", "basic"));
    assert!(cluster.is_ready(&leaf("basic")));
}
