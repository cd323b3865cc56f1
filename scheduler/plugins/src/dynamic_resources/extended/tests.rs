//! The claim for extended resources: its requests, mappings and name.

use super::*;
use crate::testing::{World, namespaced, pod};
use berth_framework::Feature;

fn class(name: &str, resource: &str) -> DeviceClass {
    namespaced(name, json!({"spec": {"extendedResourceName": resource}}))
}

fn container(name: &str, requests: Value) -> Value {
    json!({"name": name, "resources": {"requests": requests}})
}

fn sidecar(name: &str, requests: Value) -> Value {
    let mut sidecar = container(name, requests);
    sidecar["restartPolicy"] = json!("Always");
    sidecar
}

/// The claim for a node without any of the resources: requests as `name count class`, and mappings as
/// `container resource request`.
fn claim_of(init: Value, containers: Value) -> (Vec<String>, Vec<String>) {
    let world = World::new()
        .node("n", json!({}))
        .with(class("gpu-class", "example.com/gpu"))
        .with(class("nic-class", "example.com/nic"));
    let spec = json!({"initContainers": init, "containers": containers});
    let pod = Arc::new(pod("p", spec));
    let cx = world.context();
    let extended = Extended::of(&cx, &pod).expect("a class backs a resource");
    let node = world.cluster.nodes.node("n").expect("the node");
    let variant = extended.on_node(&cx, node).expect("it can run there");
    let variant = variant.expect("devices are needed");
    let requests = variant.requests.claim().spec.devices.requests.iter();
    let requests = requests.map(|request| {
        let exactly = request.exactly.as_ref().expect("a count");
        format!(
            "{} {} {}",
            request.name, exactly.count, exactly.device_class_name
        )
    });
    let mappings = variant.mappings.iter();
    let mappings = mappings.map(|m| format!("{} {} {}", m.container, m.resource, m.request));
    (requests.collect(), mappings.collect())
}

/// PL-171: a claim has at most 32 requests. Beyond that, init containers are not mapped to the requests of the others:
/// the lists would multiply.
#[test]
fn too_many_requests_are_not_mapped_to_init_containers() {
    let gpus = |name: &str, count: usize| -> Value {
        let one = json!({"example.com/gpu": 1});
        let containers = (0..count).map(|n| container(&format!("{name}{n}"), one.clone()));
        containers.collect()
    };
    for (count, mapped) in [(30, 30 + 30), (100, 100)] {
        let (requests, mappings) = claim_of(gpus("i", count), gpus("c", count));
        assert_eq!((requests.len(), mappings.len()), (count, mapped));
    }
}

/// PL-171: containers are counted with the init containers first, resources by name among all requests.
#[test]
fn each_container_has_requests_of_its_own() {
    let gpu = |count: i64| json!({"cpu": 1, "example.com/gpu": count});
    for (situation, init, containers, requests, mappings) in [
        (
            "one container",
            json!([]),
            json!([container("a", gpu(2))]),
            vec!["container-0-request-1 2 gpu-class"],
            vec!["a example.com/gpu container-0-request-1"],
        ),
        (
            "two resources, one by the name of its class",
            json!([]),
            json!([container(
                "a",
                json!({"example.com/nic": 1, "deviceclass.resource.kubernetes.io/gpu-class": 3})
            )]),
            vec![
                "container-0-request-0 3 gpu-class",
                "container-0-request-1 1 nic-class",
            ],
            vec![
                "a deviceclass.resource.kubernetes.io/gpu-class container-0-request-0",
                "a example.com/nic container-0-request-1",
            ],
        ),
        (
            "an init container uses the devices of later containers",
            json!([container("i", gpu(2))]),
            json!([container("a", gpu(1)), container("b", gpu(2))]),
            vec![
                "container-1-request-1 1 gpu-class",
                "container-2-request-1 2 gpu-class",
            ],
            vec![
                "a example.com/gpu container-1-request-1",
                "b example.com/gpu container-2-request-1",
                "i example.com/gpu container-1-request-1",
                "i example.com/gpu container-2-request-1",
            ],
        ),
        (
            "only the largest additional request of an init container is requested",
            json!([container("i", gpu(2)), container("j", gpu(4))]),
            json!([container("a", gpu(1))]),
            vec![
                "container-1-request-1 3 gpu-class",
                "container-2-request-1 1 gpu-class",
            ],
            vec![
                "a example.com/gpu container-2-request-1",
                "i example.com/gpu container-2-request-1",
                "i example.com/gpu container-1-request-1",
                "j example.com/gpu container-2-request-1",
                "j example.com/gpu container-1-request-1",
            ],
        ),
        (
            "a sidecar keeps its devices; one that has started before is of no use",
            json!([sidecar("s", gpu(1)), container("i", gpu(1))]),
            json!([container("a", json!({"cpu": 1}))]),
            vec![
                "container-0-request-1 1 gpu-class",
                "container-1-request-1 1 gpu-class",
            ],
            vec![
                "s example.com/gpu container-0-request-1",
                "i example.com/gpu container-1-request-1",
            ],
        ),
    ] {
        let got = claim_of(init, containers);
        let expected = (
            requests.into_iter().map(str::to_owned).collect(),
            mappings.into_iter().map(str::to_owned).collect(),
        );
        assert_eq!(got, expected, "{situation}");
    }
}

/// PL-170: resources that a node offers itself are left to NodeResourcesFit.
#[test]
fn the_claim_has_what_a_node_does_not_offer() {
    let offering = |allocatable: Value| json!({"status": {"allocatable": allocatable}});
    let world = World::new()
        .node(
            "all",
            offering(json!({"example.com/gpu": 4, "example.com/fpga": 4})),
        )
        .node("fpga", offering(json!({"example.com/fpga": 4})))
        .node(
            "zero",
            offering(json!({"example.com/gpu": 0, "example.com/fpga": 0})),
        )
        .node("none", json!({}))
        .with(class("gpu-class", "example.com/gpu"));
    let requests = json!({"example.com/gpu": 1, "example.com/fpga": 1});
    let pod = Arc::new(pod("p", json!({"containers": [container("a", requests)]})));
    let cx = world.context();
    let extended = Extended::of(&cx, &pod).expect("a class backs a resource");
    for (node, expected) in [
        ("all", Ok(0)),
        ("fpga", Ok(1)),
        ("zero", Ok(1)),
        ("none", Err(Status::unresolvable(CANNOT_FIT))),
    ] {
        let view = world.cluster.nodes.node(node).expect("a node");
        let variant = extended.on_node(&cx, view);
        let count = variant
            .map(|variant| variant.map_or(0, |v| v.requests.claim().spec.devices.requests.len()));
        assert_eq!(count, expected, "{node}");
    }
    let off = World::new().with(class("gpu-class", "example.com/gpu"));
    let features = off.features.with(Feature::DRAExtendedResource, false);
    let cx = Context {
        features: &features,
        ..off.context()
    };
    assert!(Extended::of(&cx, &pod).is_none(), "the gate is off");
}

/// The name fits into a label of the API whatever the pod is called, and differs from attempt to attempt.
#[test]
fn names_of_claims_are_short_and_differ() {
    for (name, start) in [
        ("web-0".to_owned(), "web-0-extended-resources-".to_owned()),
        ("p".repeat(200), "p".repeat(58)),
    ] {
        let world = World::new()
            .with(class("c", "example.com/gpu"))
            .node("n", json!({}));
        let requests = json!({"example.com/gpu": 1});
        let pod = Arc::new(pod(
            &name,
            json!({"containers": [container("a", requests)]}),
        ));
        let cx = world.context();
        let extended = Extended::of(&cx, &pod).expect("a class backs it");
        let view = world.cluster.nodes.node("n").expect("a node");
        let variant = extended.on_node(&cx, view).ok().flatten().expect("a claim");
        let at = |second| {
            let claim = named(&variant, &pod, Time::from_secs(second));
            claim.metadata.name.to_string()
        };
        let first = at(1);
        let end = first.strip_prefix(&start).expect("the start");
        assert_eq!(end.len(), GENERATED_END_LEN);
        assert_ne!(first, at(2));
    }
}
