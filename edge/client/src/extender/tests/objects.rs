//! The objects that are kept as the API has them.

use super::super::raw::{RawObjects, WantedJson};
use super::*;
use berth_api::{Kind, Object};

fn object(kind: Kind, value: &Value) -> (Object, Vec<u8>) {
    let json = value.to_string().into_bytes();
    (kind.decode(&json).expect("an object"), json)
}

fn pod_of(uid: &str, node: Option<&str>) -> (Object, Vec<u8>) {
    let pod = json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": uid, "annotations": {"a": "b"},
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "env": [{"name": "X", "value": "é\n"}]}]},
    });
    object(Kind::Pod, &pod)
}

fn node_of(name: &str) -> (Object, Vec<u8>) {
    object(
        Kind::Node,
        &json!({"metadata": {"name": name}, "status": {"nodeInfo": {"os": "x"}}}),
    )
}

/// Only objects that a request may contain are kept.
#[test]
fn only_what_is_wanted_is_kept() {
    let nothing = WantedJson::default();
    let pending = WantedJson {
        pending_pods: true,
        ..nothing
    };
    let all = WantedJson {
        all_pods: true,
        ..nothing
    };
    let nodes = WantedJson {
        nodes: true,
        ..nothing
    };
    for (situation, wanted, kept) in [
        ("nothing", nothing, [false, false, false]),
        ("pods that wait", pending, [true, false, false]),
        ("all pods", all, [true, true, false]),
        ("nodes", nodes, [false, false, true]),
        ("both", pending.and(nodes), [true, false, true]),
    ] {
        let raw = RawObjects::new(wanted);
        let objects = [pod_of("u1", None), pod_of("u2", Some("n")), node_of("n")];
        let got = objects.map(|(object, json)| raw.of(&object, &json).is_some());
        assert_eq!(got, kept, "{situation}");
    }
}

/// F-38: all fields are kept except managed fields, which kube-scheduler omits, too.
#[test]
fn all_there_is_to_know_is_kept() {
    let raw = RawObjects::new(WantedJson {
        pending_pods: true,
        ..WantedJson::default()
    });
    let (pod, json) = pod_of("u1", None);
    let kept: Value = serde_json::from_str(raw.of(&pod, &json).expect("kept").get()).expect("JSON");
    let mut expected: Value = serde_json::from_slice(&json).expect("JSON");
    expected["metadata"]
        .as_object_mut()
        .expect("an object")
        .remove("managedFields");
    assert_eq!(kept, expected);
}

/// The kept objects follow the cluster: bound pods and deleted objects are removed, and a new list replaces the old
/// one.
#[test]
fn what_is_kept_follows_the_cluster() {
    let wanted = WantedJson {
        pending_pods: true,
        all_pods: false,
        nodes: true,
    };
    let raw = RawObjects::new(wanted);
    let notified = |(object, json): (Object, Vec<u8>)| {
        let json = raw.of(&object, &json);
        (object, json)
    };
    let list = [
        notified(pod_of("u1", None)),
        notified(pod_of("u2", Some("n"))),
    ];
    raw.replace(Kind::Pod, list.iter().map(|(o, json)| (o, json.as_ref())));
    assert_eq!(raw.counts(), (1, 0));
    let apply = |seen: (Object, Vec<u8>)| {
        let (object, json) = notified(seen);
        raw.set(&object, json);
    };
    apply(pod_of("u3", None));
    apply(node_of("n1"));
    apply(node_of("n2"));
    assert_eq!(raw.counts(), (2, 2));
    apply(pod_of("u3", Some("n1")));
    assert_eq!(raw.counts(), (1, 2), "it is bound now");
    assert!(raw.pod("u1").is_ok());
    assert_eq!(
        raw.pod("u3").map_err(|e| e.to_string()).err().as_deref(),
        Some("pod with UID u3 is gone")
    );
    let (gone, _) = node_of("n1");
    raw.set(&gone, None);
    let left = raw.nodes(&names(&["n1", "n2", "n3"]));
    assert_eq!(left.len(), 1, "those that are gone are left out");
    raw.replace(Kind::Pod, std::iter::empty());
    raw.replace(Kind::Namespace, std::iter::empty());
    assert_eq!(raw.counts(), (0, 1));
}
