//! The sums in the row of a node over its pods.

use super::*;
use crate::pod_info::LabelSignature;
use crate::testing::{NodeBuilder, PodBuilder, node, pod};
use berth_api::pod::Affinity;
use berth_api::{Pod, TaintEffect};

fn table(nodes: impl IntoIterator<Item = NodeBuilder>) -> NodeTable {
    let mut table = NodeTable::default();
    for node in nodes {
        table.set_node(node.arc());
    }
    table
}

fn with_affinity(pod: PodBuilder, json: &str) -> PodBuilder {
    let affinity: Affinity = serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"));
    pod.with(|p| p.spec.affinity = Some(affinity.into()))
}

/// PL-5: sums, ports and lists follow the pods, and are as before when they were removed.
#[test]
fn a_row_follows_its_pods() {
    let mut table = table([node("n")
        .allocatable("example.com/gpu", "4")
        .allocatable("ephemeral-storage", "9")]);
    let look = |table: &NodeTable| {
        let n = table.node("n").unwrap_or_else(|| panic!("it exists"));
        let port = crate::pod_info::HostPort {
            ip: "127.0.0.1".into(),
            protocol: "TCP".into(),
            port: 80,
        };
        (
            ["cpu", "memory", "ephemeral-storage", "example.com/gpu"]
                .map(|name| n.requested_of(name)),
            (n.non_zero_milli_cpu(), n.non_zero_memory()),
            n.port_conflicts(&port),
            (n.pods().len(), n.pods_with_affinity().count()),
        )
    };
    let empty = ([0; 4], (0, 0), false, (0, 0));
    assert_eq!(look(&table), empty);

    let busy = pod("busy")
        .request("cpu", "500m")
        .request("memory", "1Ki")
        .request("ephemeral-storage", "3")
        .request("example.com/gpu", "1")
        .host_port(80);
    let wishes = r#"{"podAffinity": {}}"#;
    let avoids = r#"{"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"topologyKey": "zone", "labelSelector": {}}]}}"#;
    let mib = 1024 * 1024;
    let name = "n".into();
    table.add_pod(&name, busy.info());
    assert_eq!(look(&table), ([500, 1024, 3, 1], (500, 1024), true, (1, 0)));
    // Without requests it counts nothing, except where scores are made.
    table.add_pod(&name, with_affinity(pod("idle"), wishes).info());
    let after = ([500, 1024, 3, 1], (600, 1024 + 200 * mib), true, (2, 1));
    assert_eq!(look(&table), after);
    table.add_pod(&name, with_affinity(pod("shy"), avoids).info());
    assert_eq!(look(&table).3, (3, 2));

    for uid in ["uid-busy", "uid-shy", "uid-idle"] {
        assert!(table.remove_pod("n", uid).is_ok(), "{uid}");
    }
    assert_eq!(look(&table), empty);
}

/// PL-6: a pod is identified by its UID; the removal of a pod that is not on the node is an error.
#[test]
fn pods_are_known_by_their_identity() {
    let mut table = table([node("n")]);
    table.add_pod(&"n".into(), pod("p").uid("one").info());
    for (node, uid) in [("n", "two"), ("elsewhere", "one"), ("n", "")] {
        let missing = table.remove_pod(node, uid).map(|_| ()).unwrap_err();
        let text = missing.to_string();
        assert!(text.contains("no corresponding pod"), "{text}");
    }
    assert!(table.remove_pod("n", "one").is_ok());
}

/// PL-7: pods of a deleted node are kept and hidden, until the node returns or they are deleted.
#[test]
fn pods_outlive_their_node() {
    let mut table = table([node("n")]);
    table.add_pod(&"n".into(), pod("p").request("cpu", "1").info());
    table.remove_node("n");
    assert!(table.node("n").is_none());
    assert_eq!(table.iter().count(), 0);
    table.set_node(node("n").arc());
    let back = table
        .node("n")
        .map(|n| (n.pods().len(), n.requested_of("cpu")));
    assert_eq!(back, Some((1, 1000)));
    table.remove_node("n");
    assert!(table.remove_pod("n", "uid-p").is_ok());
    table.set_node(node("n").arc());
    assert_eq!(table.node("n").map(|n| n.pods().len()), Some(0));
}

/// PL-8: an image has the size that the first node reported, and the number of nodes that have it now.
#[test]
fn images_are_counted_over_all_nodes() {
    let mut table = table([
        node("a").image("web", 10),
        node("b").image("web", 20),
        node("c"),
    ]);
    let image = |table: &NodeTable, node: &str| {
        let state = table.node(node).and_then(|n| n.image("web"));
        state.map(|state| (state.size, state.nodes))
    };
    assert_eq!(image(&table, "a"), Some((10, 2)));
    assert_eq!(image(&table, "b"), Some((10, 2)));
    assert_eq!(image(&table, "c"), None);
    table.remove_node("b");
    assert_eq!(image(&table, "a"), Some((10, 1)));
    table.set_node(node("c").image("web", 30).arc());
    assert_eq!(image(&table, "c"), Some((10, 2)));
    // The size of the node that was first remains until another version of the last node with the image is reported.
    table.remove_node("a");
    assert_eq!(image(&table, "c"), Some((10, 1)));
    let before = table.images().version();
    table.set_node(node("c").image("web", 30).label("a", "b").arc());
    assert_eq!(image(&table, "c"), Some((30, 1)));
    assert_ne!(table.images().version(), before);
}

/// A heartbeat writes a node without changing it.
#[test]
fn another_version_of_a_node_is_no_change() {
    let mut table = table([node("n").version(1).label("a", "b").image("web", 10)]);
    let look = |table: &NodeTable| {
        let slot = table.slot("n").unwrap_or_else(|| panic!("it exists"));
        (
            table.log().end(),
            table.generation(),
            table.changed_at(slot),
        )
    };
    let before = look(&table);
    let next = node("n").version(2).label("a", "b").image("web", 10);
    table.set_node(next.arc());
    assert_eq!(look(&table), before);
    let version = table
        .node("n")
        .map(|n| n.node().metadata.resource_version.clone());
    assert_eq!(version, Some("2".into()));
    for (situation, changed) in [
        ("a label", node("n").label("a", "c")),
        ("a taint", node("n").taint("a", "", TaintEffect::NoSchedule)),
        ("an image", node("n").image("web", 11)),
        ("cordoned", node("n").unschedulable(true)),
        ("capacity", node("n").allocatable("cpu", "1")),
        ("a condition", node("n").condition("Ready", "False")),
        (
            "another node of the name",
            node("n").with(|n| n.metadata.uid = "2".into()),
        ),
    ] {
        let before = look(&table);
        table.set_node(changed.arc());
        let after = look(&table);
        assert_eq!(after.0, before.0 + 1, "{situation}");
        assert!(after.1 > before.1 && after.2 > before.2, "{situation}");
    }
}

/// A version of a pod that another thread has decoded shares no data with the stored one, and replaces it like any
/// other.
#[test]
fn a_pod_whose_version_was_replaced_goes_like_any_other() {
    let terms = r#"{"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}]}}"#;
    let version = |version: u64| with_affinity(pod("p").version(version), terms).info();
    let (old, new) = (version(1), version(2));
    assert!(!Arc::ptr_eq(old.computed(), new.computed()));
    let mut table = table([node("n")]);
    table.add_pod(&"n".into(), old);
    assert!(table.replace_pod("n", &new));
    let removed = table.remove_pod("n", new.pod.uid());
    let shown = removed.map(|info| info.pod.metadata.resource_version.clone());
    assert_eq!(shown, Ok("2".into()), "the newer version was there");
    let other = pod("other").label("app", "a").build();
    let signature = LabelSignature::of(other.namespace(), other.labels());
    assert_eq!(
        table.census().may_mean(signature).count(),
        0,
        "no pod is left"
    );
}

/// A pod on a node can name thousands of resources. There are columns only for resources that nodes offer, and they
/// count the pods that were on nodes before.
#[test]
fn resources_that_no_node_offers_have_no_column() {
    let mut table = table([node("n").allocatable("example.com/gpu", "4"), node("m")]);
    let known = table.columns().resources();
    let greedy = (0..1_000).fold(pod("greedy"), |pod, i| {
        pod.request(&format!("example.com/r-{i}"), "1")
    });
    let greedy = greedy.request("example.com/gpu", "2");
    table.add_pod(&"n".into(), greedy.info());
    assert_eq!(table.columns().resources(), known);
    let requested = |table: &NodeTable, name: &str| {
        let node = table.node("n").unwrap_or_else(|| panic!("it exists"));
        node.requested_of(name)
    };
    assert_eq!(requested(&table, "example.com/gpu"), 2);
    assert_eq!(requested(&table, "example.com/r-7"), 0);
    table.set_node(node("m").allocatable("example.com/r-7", "4").arc());
    assert_eq!(table.columns().resources(), known + 1);
    assert_eq!(requested(&table, "example.com/r-7"), 1);
    assert!(table.remove_pod("n", "uid-greedy").is_ok());
    assert_eq!(requested(&table, "example.com/r-7"), 0);
    assert_eq!(requested(&table, "example.com/gpu"), 0);
}

/// Q-87c: the sum of requests is at most the largest number, and right again once fewer are counted.
#[test]
fn sums_beyond_the_largest_number_are_right_again() {
    let mut table = table([node("n")]);
    let memory = |name: &str, amount: &str| pod(name).request("memory", amount).info();
    table.add_pod(&"n".into(), memory("a", "9223372036854775807"));
    table.add_pod(&"n".into(), memory("b", "1Gi"));
    table.add_pod(&"n".into(), memory("c", "9223372036854775807"));
    let held = |table: &NodeTable| {
        let view = table.node("n").expect("a node");
        (view.requested(ResourceId::MEMORY), view.non_zero_memory())
    };
    assert_eq!(held(&table), (i64::MAX, i64::MAX));
    table.begin();
    for name in ["a", "c"] {
        let uid = pod(name).info().pod.uid().clone();
        table.remove_pod("n", &uid).expect("a pod");
    }
    assert_eq!(held(&table), (1 << 30, 1 << 30));
    table.rollback();
    assert_eq!(held(&table), (i64::MAX, i64::MAX));
    let uid = pod("a").info().pod.uid().clone();
    table.remove_pod("n", &uid).expect("a pod");
    assert_eq!(held(&table), (i64::MAX, i64::MAX));
}

/// Q-87b: a node with an unparsable pod accepts no pod until that pod is removed, in either order of the events.
#[test]
fn a_node_with_a_pod_that_cannot_be_read_has_no_place() {
    let substitute = || {
        let known = pod("p").build();
        let pod = Pod::in_place_of_unreadable(known.metadata, "n".into());
        Arc::new(PodInfo::new(Arc::new(pod)))
    };
    let places = |table: &NodeTable| {
        let view = table.node("n").expect("a node");
        view.allocatable(ResourceId::PODS)
    };
    let mut table = table([node("n").allocatable("pods", "110")]);
    assert_eq!(places(&table), 110);
    table.add_pod(&"n".into(), substitute());
    assert_eq!(places(&table), 0);
    table.set_node(node("n").allocatable("pods", "50").version(2).arc());
    assert_eq!(places(&table), 0);
    let uid = substitute().pod.uid().clone();
    table.remove_pod("n", &uid).expect("a pod");
    assert_eq!(places(&table), 50);
    let mut table = NodeTable::default();
    table.add_pod(&"n".into(), substitute());
    table.set_node(node("n").allocatable("pods", "110").arc());
    assert_eq!(places(&table), 0);
}
