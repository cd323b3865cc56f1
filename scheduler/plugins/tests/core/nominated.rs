//! Nominated pods that count for topology spread and inter-pod affinity are decided from kept answers.

use crate::drivers::{driver, with_spec};
use berth_api::Kind;
use berth_framework::testing::{node, pod};
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

const HOST: &str = "kubernetes.io/hostname";

fn spread() -> Value {
    json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}}}]})
}

fn required(kind: &str, app: &str) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}]}}})
}

/// C-18: two nodes; `n1` has a nominated pod of the same priority. The last column is the result for the new pod if
/// `n2` is closed.
#[test]
fn the_pod_and_the_nominated_pod_are_judged_together() {
    let none = json!({});
    let away = |app| required("podAntiAffinity", app);
    let near = |app| required("podAffinity", app);
    let of = |name: &str, app: &str, spec: &Value| with_spec(pod(name).label("app", app), spec);
    for (situation, new, nominated, others, end) in [
        (
            "unrelated pods",
            of("p", "a", &none),
            of("v", "a", &none),
            vec![],
            "on n1",
        ),
        (
            "spread",
            of("p", "a", &spread()),
            of("v", "a", &none),
            vec![],
            "rejected",
        ),
        (
            "spread of other pods",
            of("p", "a", &spread()),
            of("v", "b", &none),
            vec![],
            "on n1",
        ),
        (
            "the new pod does not tolerate the other",
            of("p", "b", &away("a")),
            of("v", "a", &none),
            vec![],
            "rejected",
        ),
        // Filter of InterPodAffinity is not called, because PreFilter finds nothing to check.
        (
            "the nominated pod alone has anti-affinity",
            of("p", "b", &none),
            of("v", "a", &away("b")),
            vec![],
            "on n1",
        ),
        (
            "the nominated pod and a placed one have anti-affinity",
            of("p", "b", &none),
            of("v", "a", &away("b")),
            vec![of("o", "c", &away("b")).on("n3")],
            "rejected",
        ),
        // With the nominated pod the affinity is satisfied, without it it is not.
        (
            "the affinity is to the nominated pod",
            of("p", "b", &near("a")),
            of("v", "a", &none),
            vec![],
            "rejected",
        ),
    ] {
        for is_closed in [true, false] {
            let mut w = driver();
            for (name, closed) in [("n1", false), ("n2", is_closed), ("n3", true)] {
                let node = node(name).capacity("4", "8Gi", "10").label(HOST, name);
                w.node(node.unschedulable(closed));
            }
            for other in &others {
                w.pod(other.clone());
            }
            w.pod(new.clone().request("cpu", "1"));
            w.pod(nominated.clone().request("cpu", "1").nominated("n1"));
            let got = w.attempt();
            let is_near = situation.starts_with("the affinity");
            match (end, is_closed) {
                ("rejected", true) => {
                    assert!(
                        got.starts_with("0/3 nodes are available"),
                        "{situation}: {got}"
                    );
                }
                ("rejected", false) if is_near => {
                    assert!(
                        got.starts_with("0/3 nodes are available"),
                        "{situation}: {got}"
                    );
                }
                ("rejected", false) => assert_eq!(got, "on n2", "{situation}"),
                (end, true) => assert_eq!(got, end, "{situation}"),
                (_, false) => assert!(got.starts_with("on n"), "{situation}: {got}"),
            }
            let counts = w.scheduler.answer_cache().counts();
            if got.starts_with("on ") {
                assert_eq!((counts.kept, counts.plain), (1, 0), "{situation}");
            }
        }
    }
}

/// A node that attaches one volume.
fn node_for_one_volume(w: &mut Driver) {
    w.node(node("n1").label(HOST, "n1"));
    let csi_node = json!({"metadata": {"name": "n1"}, "spec": {"drivers": [
        {"name": "csi.example.com", "nodeID": "n1", "allocatable": {"count": 1}}]}});
    w.object(Kind::CsiNode, csi_node);
    let class = json!({"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"});
    w.object(Kind::StorageClass, class);
}

fn volume(name: &str, host: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local", "csi": {"driver": "csi.example.com", "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": HOST, "operator": "In", "values": [host]}]}]}}}})
}

/// A claim that is bound to a volume, or to none.
fn claim(name: &str, volume: &str) -> Value {
    let annotations = match volume {
        "" => json!({}),
        _ => json!({"pv.kubernetes.io/bind-completed": "yes"}),
    };
    json!({"metadata": {"name": name, "namespace": "default", "uid": name, "annotations": annotations},
        "spec": {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "volumeName": volume,
            "resources": {"requests": {"storage": "1Gi"}}}})
}

fn volume_of(claim: &str) -> Value {
    json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]})
}

/// The node attaches one volume. A pod is nominated there whose claim gets a volume after an answer of the node was
/// kept.
#[test]
fn the_claim_of_a_nominated_pod_counts_as_soon_as_it_has_a_volume() {
    let mut w = driver();
    node_for_one_volume(&mut w);
    for name in ["v1", "v2"] {
        w.object(Kind::PersistentVolume, volume(name, "n2"));
        w.object(
            Kind::PersistentVolumeClaim,
            claim(&format!("of-{name}"), name),
        );
    }
    w.object(Kind::PersistentVolume, volume("v3", "n1"));
    w.object(Kind::PersistentVolumeClaim, claim("late", ""));
    let using = |name: &str, claim: &str| with_spec(pod(name), &volume_of(claim));
    w.pod(using("p1", "of-v1"));
    w.pod(using("p2", "of-v2"));
    w.pod(using("nominee", "late").nominated("n1"));
    let message = |reason: &str| {
        format!(
            "0/1 nodes are available: 1 node(s) {reason}. no new claims to deallocate, preemption: 0/1 nodes are available: \
             1 Preemption is not helpful for scheduling."
        )
    };
    let elsewhere = message("didn't match PersistentVolume's node affinity");
    assert_eq!(w.attempt(), elsewhere);
    w.object(Kind::PersistentVolumeClaim, claim("late", "v3"));
    let got = w.attempt();
    assert!(got.contains("1 node(s) exceed max volume count"), "{got}");
}

/// The node attaches one volume, which a pod there uses. With the nominated pod, which uses the volume of the new pod, the
/// new pod needs no further one; without it the node has no room for the volume. The anti-affinity, which is asked later
/// than the limit of volumes, rejects the node both times, so it is the first to do so (C-18).
#[test]
fn a_node_that_passes_a_filter_only_with_the_nominated_pod_is_rejected_by_the_first_pass() {
    let mut w = driver();
    node_for_one_volume(&mut w);
    for name in ["v1", "v2"] {
        w.object(Kind::PersistentVolume, volume(name, "n1"));
        w.object(
            Kind::PersistentVolumeClaim,
            claim(&format!("of-{name}"), name),
        );
    }
    let there = pod("there").label("app", "a").on("n1");
    w.pod(with_spec(there, &volume_of("of-v1")));
    let mut spec = required("podAntiAffinity", "a");
    spec["volumes"] = volume_of("of-v2")["volumes"].clone();
    w.pod(with_spec(pod("new"), &spec));
    w.pod(with_spec(pod("nominee"), &volume_of("of-v2")).nominated("n1"));
    let got = w.attempt();
    let expected = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.";
    assert!(got.starts_with(expected), "{got}");
}
