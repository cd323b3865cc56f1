//! The parts of controllers that pods need: DaemonSets, resource claims, volumes.

use super::node_groups::{object, web, zoned};
use super::*;
use crate::trace::DaemonSet;
use berth_api::{Kind, Object};
use berth_explain::engine::VOLUME_CLAIM_TEMPLATES_ANNOTATION;
use serde_json::{Value, json};

fn with(mut of: TracePod, spec: Value) -> TracePod {
    let requests = of.pod.spec.containers[0].resources.requests.clone();
    let mut pod = web(spec);
    pod.spec.containers[0].resources.requests = requests;
    of.pod = pod.into();
    of
}

fn daemon_set(cpu: &str, spec: Value) -> DaemonSet {
    let pod = with(pod("agent", cpu, 0, 0), spec).pod;
    DaemonSet {
        name: "agent".into(),
        pod,
    }
}

#[test]
fn new_nodes_of_groups_have_the_pods_of_daemon_sets() {
    let on_ssd = json!({"nodeSelector": {"disk": "ssd"}});
    // Two pods of one core on nodes of two cores.
    for (situation, sets, added) in [
        ("no DaemonSet", vec![], 1),
        ("half a core", vec![daemon_set("500m", json!({}))], 2),
        ("for other nodes", vec![daemon_set("500m", on_ssd)], 1),
        (
            "no room for the pods",
            vec![daemon_set("1500m", json!({}))],
            0,
        ),
        (
            "too large for the node",
            vec![daemon_set("3", json!({}))],
            1,
        ),
    ] {
        let mut of = trace(&[], vec![pod("a", "1", 5, 600), pod("b", "1", 5, 600)]);
        of.node_groups = vec![group_of(0, 5)];
        of.daemon_sets = sets;
        let run = play(&of);
        let summary = &run.summary;
        assert_eq!(summary.nodes_added, added, "{situation}");
        // The pods of DaemonSets keep no node.
        assert_eq!(summary.nodes_removed, added, "{situation}");
        assert_eq!(summary.arrived, 2, "{situation}");
    }
}

#[test]
fn a_daemon_set_has_its_pod_on_a_node_again_after_a_failure() {
    let mut of = trace(&["2"], vec![pod("a", "2", 0, 60), pod("b", "1", 100, 60)]);
    of.daemon_sets = vec![daemon_set("1", json!({}))];
    of.nodes[0].outages = vec![Outage {
        at: Duration::from_secs(10),
        length: Some(Duration::from_secs(10)),
        drain: false,
    }];
    let run = play(&of);
    // Its resources are never available to a pod of the trace.
    assert_eq!(row(&run, "a").bound, None);
    assert_times(&run, "b", 100.02, 161.02);
    let cpu = &run.summary.resources["cpu"];
    assert_eq!((cpu.allocated_end, run.summary.nodes_used_max), (1.0, 1));
}

#[test]
fn a_pod_of_a_daemon_set_can_be_preempted() {
    let high = TracePod {
        pod: pod_of("2", 100).into(),
        ..pod("high", "2", 10, 60)
    };
    let mut of = trace(&["2"], vec![high]);
    of.daemon_sets = vec![daemon_set("1", json!({}))];
    let run = play(&of);
    assert_eq!(run.summary.finished, 1, "{:?}", row(&run, "high"));
}

/// A node with one device.
fn one_device(pods: Vec<TracePod>) -> Trace {
    let devices = json!({"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}});
    let claim = |name: &str| {
        let metadata = json!({"namespace": "default", "name": name, "uid": name});
        object(
            Kind::ResourceClaim,
            &json!({"metadata": metadata, "spec": devices}),
        )
    };
    let mut of = trace(&["4"], pods);
    of.objects = vec![
        object(
            Kind::DeviceClass,
            &json!({"metadata": {"name": "gpu"}, "spec": {}}),
        ),
        object(
            Kind::ResourceSlice,
            &json!({"metadata": {"name": "s"}, "spec": {"driver": "gpu.example.com",
            "nodeName": "n0", "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "g0"}]}}),
        ),
        claim("one"),
        claim("two"),
    ];
    if let Object::ResourceClaim(template) = claim("template") {
        of.claim_templates = vec![template];
    }
    of
}

#[test]
fn devices_are_released_when_the_pods_of_a_claim_have_ended() {
    let by = |name: &str, source: Value, arrival: u64| {
        let entry = json!({"resourceClaims": [source]});
        with(pod(name, "1", arrival, 60), entry)
    };
    let template = |name: &str| json!({"name": "gpu", "resourceClaimTemplateName": name});
    let claim = |name: &str| json!({"name": "gpu", "resourceClaimName": name});
    // The pod arrives 10 s after `a`. The expected result is a start during the run of `a`, after it, or never.
    for (situation, first, second, expected) in [
        (
            "claims from a template",
            template("template"),
            template("template"),
            "after",
        ),
        ("two claims", claim("one"), claim("two"), "after"),
        (
            "a template, then a claim",
            template("template"),
            claim("one"),
            "after",
        ),
        ("one claim", claim("one"), claim("one"), "beside"),
        (
            "no template",
            template("template"),
            template("other"),
            "never",
        ),
    ] {
        let run = play(&one_device(vec![by("a", first, 0), by("b", second, 10)]));
        let (a, b) = (row(&run, "a"), row(&run, "b"));
        let is = match (a.ended, b.bound) {
            (Some(ended), Some(bound)) if bound >= ended => "after",
            (Some(_), Some(_)) => "beside",
            (_, None) => "never",
            (None, _) => "a does not end",
        };
        assert_eq!(is, expected, "{situation}");
    }
}

#[test]
fn an_evicted_pod_gets_a_claim_of_its_own_again() {
    let entry =
        json!({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "template"}]});
    let mut of = one_device(vec![with(
        TracePod {
            recreated: true,
            ..pod("a", "1", 0, 60)
        },
        entry,
    )]);
    of.nodes[0].outages = vec![Outage {
        at: Duration::from_secs(30),
        length: Some(Duration::from_secs(10)),
        drain: true,
    }];
    let run = play(&of);
    // The device is free at the end of the grace period.
    let ended = row(&run, "a").ended.unwrap_or_default();
    assert!((121.0..122.0).contains(&ended), "{:?}", row(&run, "a"));
}

#[test]
fn volumes_are_provisioned_where_the_first_pod_runs() {
    let class = |name: &str, provisioner: &str, mode: &str| {
        object(
            Kind::StorageClass,
            &json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}),
        )
    };
    let wait = "WaitForFirstConsumer";
    let zones = json!([{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]);
    // The nodes of the two pods. The second pod arrives when an empty node in zone `a` has joined.
    for (situation, claim_class, nodes) in [
        ("no claim", "", [Some("n-b"), Some("n-a")]),
        (
            "provisioned for the first pod",
            "late",
            [Some("n-b"), Some("n-b")],
        ),
        (
            "provisioned at once, without a zone",
            "early",
            [Some("n-b"), Some("n-a")],
        ),
        (
            "a present volume in zone b",
            "local",
            [Some("n-b"), Some("n-b")],
        ),
        ("no provisioner and no volume", "none", [None, None]),
    ] {
        let volume =
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
        let spec = if claim_class.is_empty() {
            json!({})
        } else {
            volume
        };
        let mut of = Trace {
            nodes: ["a", "b"]
                .map(|zone| TraceNode::new(format!("n-{zone}"), zoned("4", zone)))
                .into(),
            pods: vec![
                with(pod("p0", "1", 0, 60), spec.clone()),
                pod("filler", "1", 0, 600),
                with(pod("p1", "1", 100, 60), spec),
            ],
            ..Trace::default()
        };
        of.nodes[0].joins = Duration::from_secs(50);
        of.objects = vec![
            class("late", "example.com/disks", wait),
            class("early", "example.com/disks", "Immediate"),
            class("local", "kubernetes.io/no-provisioner", wait),
            class("none", "kubernetes.io/no-provisioner", wait),
            object(
                Kind::PersistentVolume,
                &json!({"metadata": {"name": "v", "uid": "v"}, "spec": {
                "storageClassName": "local", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": zones}]}}},
                "status": {"phase": "Available"}}),
            ),
            object(
                Kind::PersistentVolumeClaim,
                &json!({"metadata": {"namespace": "default", "name": "c", "uid": "c"},
                "spec": {"storageClassName": claim_class, "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}}}),
            ),
        ];
        let run = play(&of);
        let used = ["p0", "p1"].map(|name| row(&run, name).node.as_deref());
        assert_eq!(used, nodes, "{situation}");
    }
}

/// A pod with an ephemeral volume has a separate claim, whose zone does not restrict the next pod. The claim and its
/// volume end with the pod.
#[test]
fn ephemeral_volumes_end_with_their_pod() {
    let wait = "WaitForFirstConsumer";
    for (situation, stated, mode, is_default, nodes) in [
        (
            "after the decision",
            true,
            wait,
            "false",
            [Some("n-b"), Some("n-a")],
        ),
        (
            "at once",
            true,
            "Immediate",
            "false",
            [Some("n-b"), Some("n-a")],
        ),
        (
            "the default class",
            false,
            wait,
            "true",
            [Some("n-b"), Some("n-a")],
        ),
        ("no class", false, wait, "false", [None, None]),
    ] {
        let mut claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        if stated {
            claim["storageClassName"] = "disks".into();
        }
        let templates =
            json!({"scratch": {"metadata": {"labels": {"a": "b"}}, "spec": claim}}).to_string();
        let ephemeral = |of: TracePod| {
            let mut of = with(
                of,
                json!({"volumes": [{"name": "scratch", "ephemeral": {}}]}),
            );
            let mut pod = Pod::clone(&of.pod);
            let annotations = &mut pod.metadata.annotations;
            *annotations = annotations.with(VOLUME_CLAIM_TEMPLATES_ANNOTATION, &templates);
            of.pod = pod.into();
            of
        };
        let mut of = Trace {
            nodes: ["a", "b"]
                .map(|zone| TraceNode::new(format!("n-{zone}"), zoned("4", zone)))
                .into(),
            pods: vec![
                ephemeral(pod("p0", "1", 0, 60)),
                pod("filler", "1", 0, 600),
                ephemeral(pod("p1", "1", 100, 60)),
            ],
            ..Trace::default()
        };
        of.nodes[0].joins = Duration::from_secs(50);
        let class = json!({"metadata": {"name": "disks", "uid": "disks",
                "annotations": {"storageclass.kubernetes.io/is-default-class": is_default}},
            "provisioner": "example.com/disks", "volumeBindingMode": mode});
        of.objects = vec![object(Kind::StorageClass, &class)];
        let run = play(&of);
        let used = ["p0", "p1"].map(|name| row(&run, name).node.as_deref());
        assert_eq!(used, nodes, "{situation}");
        let SimulationOptions { scheduler, .. } = options(1);
        let simulation = Simulation::new(&of, scheduler, 1, false, &berth_plugins::in_tree());
        let mut simulation = simulation.unwrap_or_else(|e| panic!("{e}"));
        simulation.run(END_MAX, &mut |_| {});
        let cache = simulation.engine.scheduler().cache();
        let kinds = [Kind::PersistentVolumeClaim, Kind::PersistentVolume];
        let volumes = kinds.iter().flat_map(|kind| cache.identities(*kind));
        // Pods that wait forever keep their claims.
        let left = if nodes[0].is_some() { 0 } else { 2 };
        assert_eq!(volumes.count(), left, "{situation}");
    }
}
