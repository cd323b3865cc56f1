//! Generated clusters.

use berth_api::{Labels, Object};
use berth_api::{Node, Pod, Quantity, ResourceList, Time};
use std::sync::Arc;

/// How many zones the nodes are spread over.
const ZONES: usize = 3;

/// An amount that is written in the program.
fn amount(text: &str) -> Quantity {
    text.parse().unwrap_or_default()
}

/// A node as the benchmarks of kube-scheduler have it: 4 CPU, 32 GiB, 110 pods.
pub(crate) fn node(index: usize) -> Object {
    let mut node = Node::default();
    let name = format!("node-{index}");
    node.metadata.name = name.as_str().into();
    node.metadata.uid = format!("uid-of-{name}").into();
    node.metadata.resource_version = "1".into();
    node.metadata.labels = Labels::from_pairs([
        ("kubernetes.io/hostname", name.as_str()),
        (
            "topology.kubernetes.io/zone",
            ["zone-a", "zone-b", "zone-c"][index % ZONES],
        ),
    ]);
    node.status.allocatable = ResourceList::from_pairs([
        ("cpu", amount("4")),
        ("memory", amount("32Gi")),
        ("pods", amount("110")),
    ]);
    Object::Node(Arc::new(node))
}

/// A pod without constraints; what it requests is drawn from a few sizes, as templates have them.
pub(crate) fn pod(index: usize, rng: &mut fastrand::Rng) -> Pod {
    let mut pod = Pod::default();
    let name = format!("pod-{index}");
    pod.metadata.name = name.as_str().into();
    pod.metadata.namespace = "default".into();
    pod.metadata.uid = format!("uid-of-{name}").into();
    pod.metadata.resource_version = "1".into();
    pod.metadata.generation = Some(1);
    pod.metadata.creation_timestamp = Some(Time::EPOCH);
    pod.spec.scheduler_name = "default-scheduler".into();
    pod.status.phase = "Pending".into();
    let (cpu, memory) = [("50m", "100Mi"), ("100m", "500Mi"), ("200m", "1Gi")][rng.usize(0..3)];
    let mut container = berth_api::pod::Container {
        name: "main".into(),
        image: "registry.example/pause:3.6".into(),
        ..Default::default()
    };
    container.resources.requests =
        ResourceList::from_pairs([("cpu", amount(cpu)), ("memory", amount(memory))]);
    pod.spec.containers.push(container);
    pod
}
