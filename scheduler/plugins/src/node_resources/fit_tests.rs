//! The nodes that NodeResourcesFit rejects, and the scores of the others.

#[path = "fit_hint_tests.rs"]
mod hint_tests;

use super::*;
use crate::testing::{Answer, World, pod_info, unresolvable, unschedulable};
use berth_framework::reason::TOO_MANY_PODS;
use serde_json::{Value, json};

fn requesting(requests: Value) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": requests}}]})
}

fn offering(allocatable: Value) -> Value {
    let mut all = json!({"pods": 110});
    for (name, amount) in allocatable.as_object().expect("an object") {
        all[name] = amount.clone();
    }
    json!({"status": {"allocatable": all}})
}

fn plugin(args: Value) -> NodeResourcesFit {
    NodeResourcesFit::new(FitArgs::decode(&args).expect("arguments"))
}

fn several(code: Code, reasons: &[&str]) -> Answer {
    Some((code, reasons.iter().map(ToString::to_string).collect()))
}

/// PL-60: the insufficient resources, and whether preemption may help. The node offers 4 CPU, 8 Gi and 2
/// example.com/gpu; a pod uses 3 CPU, 4 Gi and 1.
#[test]
fn shortages_are_named() {
    let world = || {
        World::new()
            .node("n", offering(json!({"cpu": "4", "memory": "8Gi", "example.com/gpu": 2, "hugepages-2Mi": "64Mi"})))
            .bound("n", "other", requesting(json!({"cpu": "3", "memory": "4Gi", "example.com/gpu": 1})))
    };
    let unsolvable = Code::UnschedulableAndUnresolvable;
    for (requests, args, expected) in [
        (json!({}), json!(null), None),
        (
            json!({"cpu": "1", "memory": "4Gi", "example.com/gpu": 1}),
            json!(null),
            None,
        ),
        (
            json!({"cpu": "1001m"}),
            json!(null),
            unschedulable("Insufficient cpu"),
        ),
        (
            json!({"cpu": "4"}),
            json!(null),
            unschedulable("Insufficient cpu"),
        ),
        (
            json!({"cpu": "4001m"}),
            json!(null),
            unresolvable("Insufficient cpu"),
        ),
        (
            json!({"memory": "5Gi"}),
            json!(null),
            unschedulable("Insufficient memory"),
        ),
        (
            json!({"ephemeral-storage": "1"}),
            json!(null),
            unresolvable("Insufficient ephemeral-storage"),
        ),
        (
            json!({"cpu": "2", "memory": "9Gi", "ephemeral-storage": 1, "hugepages-2Mi": "128Mi", "example.com/gpu": 2}),
            json!(null),
            several(
                unsolvable,
                &[
                    "Insufficient cpu",
                    "Insufficient memory",
                    "Insufficient ephemeral-storage",
                    "Insufficient example.com/gpu",
                    "Insufficient hugepages-2Mi",
                ],
            ),
        ),
        (
            json!({"example.com/gpu": 2}),
            json!(null),
            unschedulable("Insufficient example.com/gpu"),
        ),
        // Unknown to the node.
        (
            json!({"example.com/x": 1}),
            json!(null),
            unresolvable("Insufficient example.com/x"),
        ),
        (json!({"example.com/x": 0}), json!(null), None),
        // Ignored by name and by group; only extended resources can be.
        (
            json!({"example.com/x": 1}),
            json!({"ignoredResources": ["example.com/x"]}),
            None,
        ),
        (
            json!({"example.com/x": 1}),
            json!({"ignoredResourceGroups": ["example.com"]}),
            None,
        ),
        (
            json!({"example.org/x": 1}),
            json!({"ignoredResourceGroups": ["example.com"]}),
            unresolvable("Insufficient example.org/x"),
        ),
        (
            json!({"hugepages-2Mi": "128Mi"}),
            json!({"ignoredResources": ["hugepages-2Mi"]}),
            unresolvable("Insufficient hugepages-2Mi"),
        ),
        // A name that scheduling does not track.
        (json!({"bandwidth": 5}), json!(null), None),
    ] {
        let pod = pod_info("p", requesting(requests.clone()));
        assert_eq!(
            world().filter(&plugin(args), &pod),
            Ok(vec![expected]),
            "{requests}"
        );
    }
}

/// PL-60: a pod can request thousands of resources. The node offers 100, all of them in use, so that preemption may help,
/// unless the pod also requests one that the node does not offer.
#[test]
fn a_rejection_names_so_many_resources() {
    let each = |count: usize| -> Value {
        let each = (0..count).map(|i| (format!("example.com/r-{i:03}"), json!(1)));
        Value::Object(each.collect())
    };
    for (requested, code) in [
        (100, Code::Unschedulable),
        (101, Code::UnschedulableAndUnresolvable),
    ] {
        let world =
            World::new()
                .node("n", offering(each(100)))
                .bound("n", "other", requesting(each(100)));
        let pod = pod_info("p", requesting(each(requested)));
        let mut got = world
            .filter(&NodeResourcesFit::default(), &pod)
            .expect("an answer");
        let (got, reasons) = got.remove(0).expect("a rejection");
        assert_eq!(got, code, "{requested}");
        assert_eq!(reasons.len(), REASONS_MAX + 1);
        assert_eq!(reasons[63], "Insufficient example.com/r-063");
        let others = requested - REASONS_MAX;
        let last = format!("{others} other resources are insufficient");
        assert_eq!(reasons[64], last);
    }
}

/// PL-61: the number of pods counts for every pod, and preemption may always help.
#[test]
fn a_node_takes_so_many_pods() {
    for (allowed, requests, expected) in [
        (2, json!({}), None),
        (1, json!({}), unschedulable(TOO_MANY_PODS)),
        (0, json!({}), unschedulable(TOO_MANY_PODS)),
        (
            1,
            json!({"cpu": "1"}),
            several(Code::Unschedulable, &[TOO_MANY_PODS, "Insufficient cpu"]),
        ),
        (
            1,
            json!({"cpu": "9"}),
            several(
                Code::UnschedulableAndUnresolvable,
                &[TOO_MANY_PODS, "Insufficient cpu"],
            ),
        ),
    ] {
        let world = World::new()
            .node("n", offering(json!({"cpu": "1", "pods": allowed})))
            .bound("n", "other", requesting(json!({"cpu": "1"})));
        let got = world.filter(
            &NodeResourcesFit::default(),
            &pod_info("p", requesting(requests.clone())),
        );
        assert_eq!(got, Ok(vec![expected]), "{allowed} {requests}");
    }
}

/// PL-62: on an overcommitted node a request of zero passes, any other fails.
#[test]
fn overcommitted_nodes_take_only_zero_requests() {
    let world = || {
        World::new()
            .node("n", offering(json!({"cpu": "1", "memory": "1Gi"})))
            .bound("n", "other", requesting(json!({"cpu": "2"})))
    };
    for (requests, expected) in [
        (json!({"memory": "1Gi"}), None),
        (json!({"cpu": "0"}), None),
        (json!({"cpu": "1m"}), unschedulable("Insufficient cpu")),
    ] {
        let got = world().filter(
            &NodeResourcesFit::default(),
            &pod_info("p", requesting(requests.clone())),
        );
        assert_eq!(got, Ok(vec![expected]), "{requests}");
    }
}

/// PL-11: init containers, sidecars, pod-level resources and overhead. The node offers 5 CPU and 1 Gi.
#[test]
fn the_whole_pod_is_counted() {
    let container =
        |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let sidecar = |cpu: &str| {
        let mut container = container("s", cpu);
        container["restartPolicy"] = json!("Always");
        container
    };
    for (name, spec, expected) in [
        (
            "init container beyond the node",
            json!({"initContainers": [container("i", "6")], "containers": [container("c", "1")]}),
            unresolvable("Insufficient cpu"),
        ),
        (
            "init container that just fits",
            json!({"initContainers": [container("i", "5")], "containers": [container("c", "1")]}),
            None,
        ),
        // A sidecar listed before the init container runs in parallel with it: 1 + 5. Listed after it, it does not.
        (
            "sidecar first",
            json!({"initContainers": [sidecar("1"), container("i", "5")], "containers": [container("c", "2")]}),
            unresolvable("Insufficient cpu"),
        ),
        (
            "sidecar last",
            json!({"initContainers": [container("i", "5"), sidecar("1")], "containers": [container("c", "2")]}),
            None,
        ),
        (
            "pod-level CPU",
            json!({"resources": {"requests": {"cpu": "10"}}, "containers": [container("c", "2")]}),
            unresolvable("Insufficient cpu"),
        ),
        (
            "pod-level memory, CPU of the containers",
            json!({"resources": {"requests": {"memory": "2Gi"}}, "containers": [container("c", "6")]}),
            several(
                Code::UnschedulableAndUnresolvable,
                &["Insufficient cpu", "Insufficient memory"],
            ),
        ),
        (
            "pod-level limits alone",
            json!({"resources": {"limits": {"cpu": "10"}}, "containers": [container("c", "2")]}),
            None,
        ),
        (
            "overhead",
            json!({"overhead": {"cpu": "4"}, "containers": [container("c", "2")]}),
            unresolvable("Insufficient cpu"),
        ),
    ] {
        let world = World::new().node("n", offering(json!({"cpu": "5", "memory": "1Gi"})));
        let got = world.filter(&NodeResourcesFit::default(), &pod_info("p", spec));
        assert_eq!(got, Ok(vec![expected]), "{name}");
    }
}

/// PL-14: pod-level requests replace the requests of the containers, for pages as well. The node offers 5 CPU and 64Mi
/// of pages; another pod uses 3 CPU and no pages.
#[test]
fn pod_level_requests_are_what_counts() {
    let requests = |requests: Value| json!({"requests": requests});
    for (name, pod_level, container, expected) in [
        (
            "more CPU than is free",
            json!({"cpu": "4"}),
            json!({"cpu": "1"}),
            unschedulable("Insufficient cpu"),
        ),
        (
            "as much as is free",
            json!({"cpu": "2"}),
            json!({"cpu": "1"}),
            None,
        ),
        (
            "more CPU than there is",
            json!({"cpu": "6"}),
            json!({"cpu": "1"}),
            unresolvable("Insufficient cpu"),
        ),
        (
            "more pages than there are",
            json!({"hugepages-2Mi": "128Mi"}),
            json!({"hugepages-2Mi": "32Mi"}),
            unresolvable("Insufficient hugepages-2Mi"),
        ),
        (
            "as many pages as there are",
            json!({"hugepages-2Mi": "64Mi"}),
            json!({"hugepages-2Mi": "32Mi"}),
            None,
        ),
        // Pod-level requests cannot contain devices, so the containers' requests count.
        (
            "a device",
            json!({"cpu": "1", "example.com/gpu": 1}),
            json!({"example.com/gpu": 2}),
            unresolvable("Insufficient example.com/gpu"),
        ),
    ] {
        let offered = json!({"cpu": "5", "hugepages-2Mi": "64Mi", "example.com/gpu": 1});
        let world = World::new().node("n", offering(offered)).bound(
            "n",
            "other",
            requesting(json!({"cpu": "3"})),
        );
        let containers = json!([{"name": "c", "resources": requests(container)}]);
        let spec = json!({"resources": requests(pod_level), "containers": containers});
        let got = world.filter(&NodeResourcesFit::default(), &pod_info("p", spec));
        assert_eq!(got, Ok(vec![expected]), "{name}");
    }
}

/// PL-68: pods of the node that request nothing count with the defaults, 100m and 200 MiB.
#[test]
fn pods_without_requests_count_on_their_node() {
    let mib: i64 = 1024 * 1024;
    let world = World::new()
        .node("n", offering(json!({"cpu": "1", "memory": 1000 * mib})))
        .bound("n", "other", json!({"containers": [{"name": "c"}]}));
    let pod = pod_info("p", requesting(json!({"cpu": "100m", "memory": 200 * mib})));
    // 200m of 1000m and 400 of 1000 MiB: (80 + 60)/2.
    let got = world.scores(&NodeResourcesFit::default(), &pod);
    assert_eq!(got, Some(vec![70]));
}

/// A node without allocatable resources takes no pod, and no error occurs.
#[test]
fn a_node_without_allocatable_takes_no_pod() {
    let world = World::new().node("n", json!({}));
    let got = world.filter(
        &NodeResourcesFit::default(),
        &pod_info("p", requesting(json!({"cpu": "1"}))),
    );
    let expected = several(
        Code::UnschedulableAndUnresolvable,
        &[TOO_MANY_PODS, "Insufficient cpu"],
    );
    assert_eq!(got, Ok(vec![expected]));
}

/// Amounts at the limits of 64 bits neither wrap nor panic.
#[test]
fn amounts_at_the_limit() {
    let huge = || json!({"memory": "9223372036854775807", "cpu": "9223372036854775807"});
    let world = World::new()
        .node("n", offering(huge()))
        .bound("n", "a", requesting(huge()))
        .bound("n", "b", requesting(huge()));
    let pod = pod_info("p", requesting(huge()));
    let expected = several(
        Code::Unschedulable,
        &["Insufficient cpu", "Insufficient memory"],
    );
    assert_eq!(
        world.filter(&NodeResourcesFit::default(), &pod),
        Ok(vec![expected])
    );
    assert_eq!(
        world.scores(&NodeResourcesFit::default(), &pod),
        Some(vec![0])
    );
}

/// PL-70: the worked scores, from objects to numbers. Pods request 3000m and 5000 bytes.
#[test]
fn the_worked_scores() {
    let two = |a: (i64, i64), b: (i64, i64)| {
        let node = |(cpu, memory): (i64, i64)| {
            offering(json!({"cpu": format!("{cpu}m"), "memory": memory}))
        };
        World::new().node("n1", node(a)).node("n2", node(b))
    };
    let requests =
        |cpu: i64, memory: i64| requesting(json!({"cpu": format!("{cpu}m"), "memory": memory}));
    let in_use = |world: World| {
        world
            .bound("n1", "cpu", requests(3000, 0))
            .bound("n2", "both", requests(3000, 5000))
    };
    let strategy = |kind: &str, memory_weight: i64| {
        json!({"scoringStrategy": {"type": kind, "resources":
            [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": memory_weight}]}})
    };
    for (name, world, args, scores) in [
        (
            "least, empty",
            two((4000, 10000), (6000, 10000)),
            json!(null),
            vec![37, 50],
        ),
        (
            "least, memory twice",
            two((4000, 10000), (6000, 10000)),
            strategy("LeastAllocated", 2),
            vec![41, 50],
        ),
        (
            "least, in use",
            in_use(two((10000, 20000), (10000, 20000))),
            json!(null),
            vec![57, 45],
        ),
        (
            "least, in use, other sizes",
            in_use(two((10000, 20000), (10000, 50000))),
            json!(null),
            vec![57, 60],
        ),
        (
            "most, empty",
            two((4000, 10000), (6000, 10000)),
            strategy("MostAllocated", 1),
            vec![62, 50],
        ),
        (
            "most, memory twice",
            two((4000, 10000), (6000, 10000)),
            strategy("MostAllocated", 2),
            vec![58, 50],
        ),
        // Over capacity in CPU: 0 and 50; clamped to 100 and 50.
        (
            "least, over capacity",
            two((2000, 10000), (6000, 10000)),
            json!(null),
            vec![25, 50],
        ),
        (
            "most, over capacity",
            two((2000, 10000), (6000, 10000)),
            strategy("MostAllocated", 1),
            vec![75, 50],
        ),
    ] {
        let pod = pod_info("p", requests(3000, 5000));
        assert_eq!(world.scores(&plugin(args), &pod), Some(scores), "{name}");
    }
}

/// PL-12: containers without requests count as 100m and 200 MiB each, an explicit zero as zero.
#[test]
fn containers_without_requests_count_when_scored() {
    let gib: i64 = 1024 * 1024 * 1024;
    for (name, containers, score) in [
        // 1000m and 1000 MiB offered: (90 + 80)/2, (80 + 60)/2.
        ("one container", json!([{"name": "a"}]), 85),
        ("two containers", json!([{"name": "a"}, {"name": "b"}]), 70),
        (
            "explicit zeros",
            json!([{"name": "a", "resources": {"requests": {"cpu": "0", "memory": "0"}}}]),
            100,
        ),
        // 1000m requested of CPU: 0 and 80.
        (
            "only CPU",
            json!([{"name": "a", "resources": {"requests": {"cpu": "1"}}}]),
            40,
        ),
    ] {
        let world = World::new().node(
            "n",
            offering(json!({"cpu": "1", "memory": gib / 1024 * 1000})),
        );
        let pod = pod_info("p", json!({"containers": containers}));
        assert_eq!(
            world.scores(&NodeResourcesFit::default(), &pod),
            Some(vec![score]),
            "{name}"
        );
    }
}

/// PL-69: a scalar resource counts when the pod requests it and the node offers it; pod-level
/// requests of the pod do not count when it is scored.
#[test]
fn which_resources_are_scored() {
    let args = json!({"scoringStrategy": {"type": "MostAllocated", "resources":
        [{"name": "cpu"}, {"name": "example.com/gpu"}, {"name": "pods"}]}});
    let world = || {
        World::new()
            .node("gpu", offering(json!({"cpu": "4", "example.com/gpu": 4})))
            .node("none", offering(json!({"cpu": "4"})))
            .bound(
                "gpu",
                "other",
                requesting(json!({"cpu": "0", "example.com/gpu": 1})),
            )
            .bound("none", "another", requesting(json!({"cpu": "0"})))
    };
    for (name, spec, scores) in [
        // CPU 50; GPUs (1 + 2)/4 = 75.
        (
            "requested",
            requesting(json!({"cpu": "2", "example.com/gpu": 2})),
            vec![62, 50],
        ),
        (
            "not requested",
            requesting(json!({"cpu": "2"})),
            vec![50, 50],
        ),
        (
            "pod-level",
            json!({"resources": {"requests": {"cpu": "4"}}, "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}),
            vec![50, 50],
        ),
    ] {
        assert_eq!(
            world().scores(&plugin(args.clone()), &pod_info("p", spec)),
            Some(scores),
            "{name}"
        );
    }
}

/// A class of devices.
fn class(name: &str, resource: Option<&str>) -> berth_api::DeviceClass {
    let fields = json!({"metadata": {"name": name}, "spec": {"extendedResourceName": resource}});
    serde_json::from_value(fields).expect("a class")
}

/// PL-63: resources that devices provide are left to them, where the node offers none itself.
#[test]
fn devices_stand_in_for_extended_resources() {
    let world = |on: bool| {
        let mut world = World::new()
            .node("none", offering(json!({})))
            .node("some", offering(json!({"example.com/gpu": 1})))
            .with(class("gpu", Some("example.com/gpu")));
        world.features = world
            .features
            .with(berth_framework::Feature::DRAExtendedResource, on);
        world
    };
    let short = || unresolvable("Insufficient example.com/gpu");
    for (name, on, request, expected) in [
        ("one", true, json!({"example.com/gpu": 1}), vec![None, None]),
        (
            "more than the node's own",
            true,
            json!({"example.com/gpu": 2}),
            vec![None, short()],
        ),
        (
            "without the gate",
            false,
            json!({"example.com/gpu": 2}),
            vec![short(), short()],
        ),
        (
            "by the name of the class",
            true,
            json!({"deviceclass.resource.kubernetes.io/gpu": 1}),
            vec![None, None],
        ),
    ] {
        let got = world(on).filter(
            &NodeResourcesFit::default(),
            &pod_info("p", requesting(request)),
        );
        assert_eq!(got, Ok(expected), "{name}");
    }
}

/// PL-177: scores count the devices of nodes that do not offer the resource themselves. Worked by hand: `busy` has four
/// devices of the class, two of them allocated, and one of another class; `own` offers the resource itself.
#[test]
fn scores_count_devices() {
    let slice = |node: &str, devices: usize| -> berth_api::ResourceSlice {
        let named = (0..devices)
            .map(|i| json!({"name": format!("d{i}"), "attributes": {"kind": {"string": "gpu"}}}));
        let mut all: Vec<Value> = named.collect();
        all.push(json!({"name": "other", "attributes": {"kind": {"string": "nic"}}}));
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": "d", "pool": pool, "nodeName": node, "devices": all});
        serde_json::from_value(json!({"metadata": {"name": node}, "spec": spec})).expect("a slice")
    };
    let result =
        |device: &str| json!({"request": "r", "driver": "d", "pool": "busy", "device": device});
    let taken: berth_api::ResourceClaim = serde_json::from_value(json!({
        "metadata": {"name": "taken", "namespace": "default"},
        "status": {"allocation": {"devices": {"results": [result("d0"), result("d3"), result("other")]}}},
    }))
    .expect("a claim");
    let mut class = class("gpu", Some("example.com/gpu"));
    let selector = json!([{"cel": {"expression": "device.attributes['d'].kind == 'gpu'"}}]);
    class.spec.selectors = serde_json::from_value(selector).expect("selectors");
    let world = World::new()
        .node("busy", offering(json!({})))
        .node("free", offering(json!({})))
        .node("own", offering(json!({"example.com/gpu": 2})))
        .node("none", offering(json!({})))
        .with(class)
        .with(slice("busy", 4))
        .with(slice("free", 4))
        .with(slice("own", 4))
        .with(taken);
    let spec = || requesting(json!({"example.com/gpu": 1}));
    for (kind, expected) in [
        ("MostAllocated", vec![75, 25, 50, 0]),
        ("LeastAllocated", vec![25, 75, 50, 0]),
    ] {
        let args = json!({"scoringStrategy": {"type": kind, "resources":
            [{"name": "example.com/gpu", "weight": 1}]}});
        let scores = world.raw_scores(&plugin(args), &pod_info("p", spec()));
        assert_eq!(scores, expected, "{kind}");
    }
}
