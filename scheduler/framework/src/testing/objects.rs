//! Pods and nodes, piece by piece.

use crate::pod_info::PodInfo;
use berth_api::node::{ContainerImage, NodeCondition};
use berth_api::pod::{Container, ContainerPort, PodCondition, SchedulingGate};
use berth_api::{
    Node, Object, Pod, PodSchedulingGroup, Quantity, ResourceList, Str, Taint, TaintEffect, Time,
    Toleration,
};
use std::sync::Arc;

fn quantity(text: &str) -> Quantity {
    match text.parse() {
        Ok(quantity) => quantity,
        Err(error) => panic!("quantity {text:?}: {error}"),
    }
}

/// A pending pod `default/<name>` with the UID `uid-<name>`, of the default scheduler, with one container without
/// requests.
pub fn pod(name: &str) -> PodBuilder {
    let mut pod = Pod::default();
    pod.metadata.name = name.into();
    pod.metadata.namespace = "default".into();
    pod.metadata.uid = Str::new(&format!("uid-{name}"));
    pod.metadata.resource_version = "1".into();
    pod.metadata.generation = Some(1);
    pod.spec.scheduler_name = "default-scheduler".into();
    pod.status.phase = "Pending".into();
    pod.spec.containers.push(Container {
        name: "main".into(),
        ..Container::default()
    });
    PodBuilder(pod)
}

/// Builds a pod; see [`pod`].
#[derive(Debug, Clone)]
pub struct PodBuilder(Pod);

impl PodBuilder {
    /// Starts from an existing pod.
    pub fn of(pod: &Pod) -> Self {
        Self(pod.clone())
    }

    /// Sets the namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.0.metadata.namespace = namespace.into();
        self
    }

    /// Sets the UID.
    #[must_use]
    pub fn uid(mut self, uid: &str) -> Self {
        self.0.metadata.uid = uid.into();
        self
    }

    /// Sets the creation time, in seconds.
    #[must_use]
    pub fn created(mut self, seconds: i64) -> Self {
        self.0.metadata.creation_timestamp = Some(Time::from_secs(seconds));
        self
    }

    /// Sets the resource version.
    #[must_use]
    pub fn version(mut self, version: u64) -> Self {
        self.0.metadata.resource_version = Str::new(&version.to_string());
        self
    }

    /// Sets a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0.metadata.labels = self.0.metadata.labels.with(key, value);
        self
    }

    /// Names the scheduler.
    #[must_use]
    pub fn scheduler(mut self, name: &str) -> Self {
        self.0.spec.scheduler_name = name.into();
        self
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.0.spec.priority = Some(priority);
        self
    }

    /// Makes the pod a member of a pod group.
    #[must_use]
    pub fn member_of(mut self, group: &str) -> Self {
        self.0.spec.scheduling_group = Some(PodSchedulingGroup {
            pod_group_name: group.into(),
        });
        self
    }

    /// Puts the pod on a node.
    #[must_use]
    pub fn on(mut self, node: &str) -> Self {
        self.0.spec.node_name = node.into();
        self
    }

    /// Sets the nominated node.
    #[must_use]
    pub fn nominated(mut self, node: &str) -> Self {
        self.0.status.nominated_node_name = node.into();
        self
    }

    /// Sets a request of the first container.
    #[must_use]
    pub fn request(mut self, resource: &str, amount: &str) -> Self {
        if let Some(container) = self.0.spec.containers.first_mut() {
            container
                .resources
                .requests
                .set(resource.into(), quantity(amount));
        }
        self
    }

    /// Takes a TCP port of the node on all its addresses.
    #[must_use]
    pub fn host_port(mut self, port: i32) -> Self {
        if let Some(container) = self.0.spec.containers.first_mut() {
            container.ports.push(ContainerPort {
                host_port: port,
                ..ContainerPort::default()
            });
        }
        self
    }

    /// Adds a scheduling gate.
    #[must_use]
    pub fn gate(mut self, name: &str) -> Self {
        self.0
            .spec
            .scheduling_gates
            .push(SchedulingGate { name: name.into() });
        self
    }

    /// Takes all scheduling gates away.
    #[must_use]
    pub fn ungated(mut self) -> Self {
        self.0.spec.scheduling_gates.clear();
        self
    }

    /// Adds a toleration.
    #[must_use]
    pub fn toleration(mut self, toleration: Toleration) -> Self {
        self.0.spec.tolerations.push(toleration);
        self
    }

    /// Sets the phase.
    #[must_use]
    pub fn phase(mut self, phase: &str) -> Self {
        self.0.status.phase = phase.into();
        self
    }

    /// Sets a condition.
    #[must_use]
    pub fn condition(mut self, kind: &str, status: &str, reason: &str, message: &str) -> Self {
        self.0.status.conditions.retain(|c| c.kind != kind);
        self.0.status.conditions.push(PodCondition {
            kind: kind.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            ..PodCondition::default()
        });
        self
    }

    /// Marks the pod as being deleted since `at`.
    #[must_use]
    pub fn deleting(mut self, at: Time) -> Self {
        self.0.metadata.deletion_timestamp = Some(at);
        self
    }

    /// Changes anything else.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Pod)) -> Self {
        change(&mut self.0);
        self
    }

    /// The pod.
    pub fn build(self) -> Pod {
        self.0
    }

    /// The pod, shared.
    pub fn arc(self) -> Arc<Pod> {
        Arc::new(self.0)
    }

    /// The pod as the core keeps it.
    pub fn info(self) -> Arc<PodInfo> {
        Arc::new(PodInfo::new(self.arc()))
    }

    /// The pod as an object of any kind.
    pub fn object(self) -> Object {
        Object::Pod(self.arc())
    }
}

/// A node that takes 110 pods, with 32 CPUs and 64 GiB of memory, labelled with its host name.
pub fn node(name: &str) -> NodeBuilder {
    let mut node = Node::default();
    node.metadata.name = name.into();
    node.metadata.uid = Str::new(&format!("uid-{name}"));
    node.metadata.resource_version = "1".into();
    NodeBuilder(node)
        .capacity("32", "64Gi", "110")
        .label("kubernetes.io/hostname", name)
}

/// Builds a node; see [`node`].
#[derive(Debug, Clone)]
pub struct NodeBuilder(Node);

impl NodeBuilder {
    /// Starts from an existing node.
    pub fn of(node: &Node) -> Self {
        Self(node.clone())
    }

    /// Sets the capacity of CPU, memory and pods.
    #[must_use]
    pub fn capacity(mut self, cpu: &str, memory: &str, pods: &str) -> Self {
        self.0.status.allocatable = ResourceList::from_pairs([
            ("cpu", quantity(cpu)),
            ("memory", quantity(memory)),
            ("pods", quantity(pods)),
        ]);
        self
    }

    /// Sets the capacity of one resource.
    #[must_use]
    pub fn allocatable(mut self, resource: &str, amount: &str) -> Self {
        self.0
            .status
            .allocatable
            .set(resource.into(), quantity(amount));
        self
    }

    /// Sets the resource version.
    #[must_use]
    pub fn version(mut self, version: u64) -> Self {
        self.0.metadata.resource_version = Str::new(&version.to_string());
        self
    }

    /// Sets a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0.metadata.labels = self.0.metadata.labels.with(key, value);
        self
    }

    /// Sets an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0.metadata.annotations = self.0.metadata.annotations.with(key, value);
        self
    }

    /// Adds a taint.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: TaintEffect) -> Self {
        self.0.spec.taints.push(Taint::new(key, value, effect));
        self
    }

    /// Cordons the node, or not.
    #[must_use]
    pub fn unschedulable(mut self, unschedulable: bool) -> Self {
        self.0.spec.unschedulable = unschedulable;
        self
    }

    /// Sets the status of a condition.
    #[must_use]
    pub fn condition(mut self, kind: &str, status: &str) -> Self {
        self.0.status.conditions.retain(|c| c.kind != kind);
        self.0.status.conditions.push(NodeCondition {
            kind: kind.into(),
            status: status.into(),
        });
        self
    }

    /// Adds an image; its size is in bytes.
    #[must_use]
    pub fn image(mut self, name: &str, size_bytes: i64) -> Self {
        let image = ContainerImage {
            names: vec![name.into()],
            size_bytes,
        };
        self.0.status.images.push(image.into());
        self
    }

    /// Changes anything else.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Node)) -> Self {
        change(&mut self.0);
        self
    }

    /// The node.
    pub fn build(self) -> Node {
        self.0
    }

    /// The node, shared.
    pub fn arc(self) -> Arc<Node> {
        Arc::new(self.0)
    }

    /// The node as an object of any kind.
    pub fn object(self) -> Object {
        Object::Node(self.arc())
    }
}
