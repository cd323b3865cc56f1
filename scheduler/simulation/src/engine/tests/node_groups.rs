//! The groups that grow for pods with constraints. The nodes of the trace are full, and the groups are in the order of
//! their prices.

use super::*;
use berth_api::devices::Device;
use berth_api::{Kind, Object, ResourceSlice};
use serde_json::{Value, json};

pub(super) fn object(kind: Kind, value: &Value) -> Object {
    let decoded = kind.decode(value.to_string().as_bytes());
    decoded.unwrap_or_else(|e| panic!("{value}: {e}"))
}

/// A pod of the application `web` with this spec that requests 100m.
pub(super) fn web(spec: Value) -> Pod {
    let mut spec = spec;
    spec["schedulerName"] = "default-scheduler".into();
    if spec["containers"].is_null() {
        spec["containers"] = json!([{}]);
    }
    spec["containers"][0]["name"] = "c".into();
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    let pod = json!({"metadata": {"namespace": "default", "labels": {"app": "web"}}, "spec": spec});
    match object(Kind::Pod, &pod) {
        Object::Pod(pod) => Pod::clone(&pod),
        other => panic!("{other:?}"),
    }
}

pub(super) fn zoned(cpu: &str, zone: &str) -> Node {
    let mut node = node(cpu);
    node.metadata.labels = Labels::from_pairs([("topology.kubernetes.io/zone", zone)]);
    node
}

/// A node without room in each of the zones `a` and `b`, a pod of the application `web` on the one in zone `a`, and
/// groups of up to five nodes in both zones.
fn two_zones(pods: Vec<TracePod>) -> Trace {
    let mut running = web(json!({}));
    running.spec.node_name = "n-a".into();
    let mut all = vec![TracePod::new("running", running)];
    all.extend(pods);
    Trace {
        nodes: [("a", "100m"), ("b", "50m")]
            .map(|(zone, cpu)| TraceNode::new(format!("n-{zone}"), zoned(cpu, zone)))
            .into(),
        node_groups: ["a", "b"]
            .map(|zone| NodeGroup {
                name: format!("g-{zone}").into(),
                node: zoned("2", zone).into(),
                price_per_hour: if zone == "a" { 1.0 } else { 2.0 },
                ..group_of(0, 5)
            })
            .into(),
        pods: all,
        ..Trace::default()
    }
}

#[test]
fn the_filters_of_the_profile_decide_which_group_grows() {
    let zone = "topology.kubernetes.io/zone";
    let host = "kubernetes.io/hostname";
    let to_web =
        |key: &str| json!([{"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let apart = |key: &str| json!({"affinity": {"podAntiAffinity": {required: to_web(key)}}});
    let in_zone = |zones: Value| {
        let zones = json!([{"key": zone, "operator": "In", "values": zones}]);
        json!({"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": zones}]}}}})
    };
    let spread = |key: &str| {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}}}]})
    };
    let port = json!({"containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}]});
    let volume = |zone: &str| json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": format!("in-{zone}")}}]});
    let claim = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]});
    // The situation, the spec of each of the pods, their number, and the nodes that the groups add in zone `a` and `b`.
    for (situation, spec, pods, added) in [
        ("no constraint", json!({}), 3, [1, 0]),
        ("anti-affinity in the zone", apart(zone), 1, [0, 1]),
        (
            "anti-affinity in the zone, for two pods",
            apart(zone),
            2,
            [0, 1],
        ),
        ("anti-affinity on the node", apart(host), 3, [3, 0]),
        (
            "affinity to the pods of a zone",
            json!({"affinity": {"podAffinity": {required: to_web(zone)}}}),
            3,
            [1, 0],
        ),
        (
            "the dearer zone by node affinity",
            in_zone(json!(["b"])),
            3,
            [0, 1],
        ),
        ("a zone without a group", in_zone(json!(["c"])), 3, [0, 0]),
        ("spread over zones", spread(zone), 1, [0, 1]),
        ("spread over zones, several pods", spread(zone), 4, [1, 1]),
        ("one host port", port, 3, [3, 0]),
        ("a volume of zone b", volume("b"), 1, [0, 1]),
        ("a claim that does not exist", volume("c"), 1, [0, 0]),
        ("a claim for devices that no group offers", claim, 1, [0, 0]),
    ] {
        let pods = (0..pods).map(|number| TracePod::new(format!("p{number}"), web(spec.clone())));
        let mut of = two_zones(pods.collect());
        let in_b = json!([{"key": zone, "operator": "In", "values": ["b"]}]);
        of.objects = vec![
            object(
                Kind::StorageClass,
                &json!({"metadata": {"name": "disks"}, "provisioner": "example.com/disks"}),
            ),
            object(
                Kind::PersistentVolume,
                &json!({"metadata": {"name": "v"}, "spec": {"storageClassName": "disks",
                "claimRef": {"namespace": "default", "name": "in-b"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": in_b}]}}}}),
            ),
            object(
                Kind::PersistentVolumeClaim,
                &json!({"metadata": {"namespace": "default", "name": "in-b",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"volumeName": "v", "storageClassName": "disks"}}),
            ),
            object(
                Kind::ResourceClaim,
                &json!({"metadata": {"namespace": "default", "name": "gpu", "uid": "gpu"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}),
            ),
        ];
        let run = play(&of);
        let nodes = run.pods.iter().filter_map(|pod| pod.node.as_deref());
        let nodes: std::collections::BTreeSet<&str> = nodes.collect();
        let used =
            ["g-a", "g-b"].map(|group| nodes.iter().filter(|node| node.starts_with(group)).count());
        let all = run.summary.nodes_added;
        assert_eq!(
            (used, all),
            (added, added.iter().sum::<usize>() as u64),
            "{situation}"
        );
    }
}

#[test]
fn a_group_of_pods_causes_the_nodes_that_it_lacks() {
    let member = |name: &str| TracePod {
        pod: PodShape {
            requests: amounts(&[("cpu", "1")]),
            group: Some("ring".into()),
            ..PodShape::default()
        }
        .pod()
        .into(),
        ..pod(name, "1", 5, 60)
    };
    // Two of five pods have room on a present node, two on a new one each.
    let members = ["m0", "m1", "m2", "m3", "m4"].map(member);
    let mut of = trace(&["2"], members.into());
    of.node_groups = vec![group_of(0, 5)];
    of.groups = vec![TraceGroup {
        namespace: "default".into(),
        name: "ring".into(),
        minimum: 5,
        topology: None,
        priority: None,
        priority_class: None,
    }];
    let run = play(&of);
    assert_eq!((run.summary.nodes_added, run.summary.finished), (2, 5));
}

#[test]
fn a_simulation_without_nodes_ends_when_no_group_helps() {
    let mut of = trace(&[], vec![pod("huge", "4", 5, 60)]);
    of.node_groups = vec![group_of(0, 5)];
    let run = play(&of);
    assert_eq!((run.summary.nodes_added, run.summary.never_bound), (0, 1));
    assert!(run.seconds < 3600.0, "{}", run.seconds);
}

#[test]
fn pods_that_fit_on_a_present_node_or_wait_for_victims_cause_no_node() {
    // The low pod ends by preemption before a node would have booted.
    let low = TracePod::new("low", pod_of("2", 0));
    let high = TracePod {
        arrival: Duration::from_secs(9),
        ..TracePod::new("high", pod_of("2", 100))
    };
    let mut of = trace(&["2"], vec![low, high]);
    of.node_groups = vec![group_of(0, 5)];
    let run = play(&of);
    assert_eq!((run.summary.nodes_added, run.summary.preempted), (0, 1));
    assert_eq!(row(&run, "high").node.as_deref(), Some("n0"));
}

/// The spec of a claim for one device.
fn one_gpu() -> Value {
    json!({"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}})
}

/// A group of nodes with devices in two slices each, and pods with a claim of a template each.
#[test]
fn claims_cause_nodes_whose_slices_have_their_devices() {
    let template =
        json!({"metadata": {"namespace": "default", "name": "one-gpu"}, "spec": one_gpu()});
    let slices = ["a", "b"].map(|name| {
        let mut slice = ResourceSlice::default();
        slice.spec.driver = "gpu.example.com".into();
        (
            slice.spec.pool.generation,
            slice.spec.pool.resource_slice_count,
        ) = (1, 2);
        slice.spec.devices = vec![Device {
            name: name.into(),
            ..Device::default()
        }];
        Arc::new(slice)
    });
    let pods = |count: u32| TracePod {
        count,
        duration: Some(Distribution::Constant(Duration::from_secs(600))),
        ..TracePod::new(
            "p",
            web(
                json!({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}),
            ),
        )
    };
    // The CPU has room for 20 pods. The number of pods, the maximum of the group, and the nodes and pods that result.
    for (count, maximum, nodes, finished) in
        [(1, 5, 1, 1), (2, 5, 1, 2), (5, 5, 3, 5), (9, 2, 2, 9)]
    {
        let mut of = trace(&["2"], vec![pods(count)]);
        of.objects = vec![object(
            Kind::DeviceClass,
            &json!({"metadata": {"name": "gpu"}}),
        )];
        if let Object::ResourceClaim(claim) = object(Kind::ResourceClaim, &template) {
            of.claim_templates = vec![claim];
        }
        let without_devices = NodeGroup {
            name: "cheap".into(),
            price_per_hour: 0.1,
            ..group_of(0, 5)
        };
        let with_devices = NodeGroup {
            slices: slices.to_vec(),
            ..group_of(0, maximum)
        };
        of.node_groups = vec![without_devices, with_devices];
        let run = play(&of);
        let summary = &run.summary;
        assert_eq!(
            (summary.nodes_added, summary.nodes_removed, summary.finished),
            (nodes, nodes, finished),
            "{count} pods, {maximum} nodes at most"
        );
        // The nodes of one scan boot together: the pods of all of them are bound within the scan interval.
        let bound = run.pods.iter().filter_map(|pod| pod.bound);
        let first = bound.filter(|bound| *bound < 100.0).count();
        assert_eq!(first, finished.min(2 * nodes) as usize, "{count} pods");
        let nodes = run.pods.iter().filter_map(|pod| pod.node.as_deref());
        for node in nodes {
            assert!(node.starts_with("pool-"), "{node}");
        }
    }
}

/// A pod on a node that boots has its devices, and a claim that two pods share is one device.
#[test]
fn pods_that_share_a_claim_cause_one_node() {
    let claim = json!({"metadata": {"namespace": "default", "name": "shared", "uid": "shared"}, "spec": one_gpu()});
    let pod = web(json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]}));
    let pods = TracePod {
        count: 3,
        every: Duration::from_secs(20),
        duration: Some(Distribution::Constant(Duration::from_secs(600))),
        ..TracePod::new("p", pod)
    };
    let mut of = trace(&["2"], vec![pods]);
    of.objects = vec![
        object(Kind::DeviceClass, &json!({"metadata": {"name": "gpu"}})),
        object(Kind::ResourceClaim, &claim),
    ];
    let mut slice = ResourceSlice::default();
    slice.spec.driver = "gpu.example.com".into();
    (
        slice.spec.pool.generation,
        slice.spec.pool.resource_slice_count,
    ) = (1, 1);
    slice.spec.devices = vec![Device {
        name: "a".into(),
        ..Device::default()
    }];
    of.node_groups = vec![NodeGroup {
        slices: vec![slice.into()],
        ..group_of(0, 5)
    }];
    let run = play(&of);
    assert_eq!((run.summary.nodes_added, run.summary.finished), (1, 3));
}
