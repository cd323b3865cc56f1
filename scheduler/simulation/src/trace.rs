//! The input of a simulation: pods that arrive and end, nodes that join and leave, and the latencies of the environment
//! of the scheduler.
//!
//! Times are offsets from [`Trace::start`], durations are virtual. The readers of [`crate::text`] and importers of
//! other formats create a [`Trace`]; [`crate::simulate`] plays it.

pub mod generate;

use crate::distribution::Distribution;
use berth_api::pod::{Container, SchedulingGate};
use berth_api::{
    Duration, Labels, Node, Object, Pod, PodDisruptionBudget, PodSchedulingGroup, ResourceClaim,
    ResourceList, ResourceSlice, Str, Time,
};
use generate::Generator;
use std::sync::Arc;

/// The virtual time at which a trace without absolute times begins: Monday, 5 January 2026, 00:00 UTC.
pub const DEFAULT_START: Time = Time::from_secs(1_767_571_200);

/// The annotation of a pod with its `terminationGracePeriodSeconds`, which [`Pod`] does not have because the scheduler
/// does not read it. 30 unless stated. Traces state it as [`PodShape::grace_period`].
pub const GRACE_PERIOD_ANNOTATION: &str = "simulation.berth.dev/termination-grace-period-seconds";

/// All inputs of a simulation except the configuration of the scheduler.
#[derive(Default, Debug, Clone, PartialEq)]
pub struct Trace {
    /// The virtual time of offset zero, if the trace has dates; see [`Trace::start`].
    pub start: Option<Time>,
    /// The pods, in any order. Pods that arrive at the same time arrive in this order.
    pub pods: Vec<TracePod>,
    /// Generators of pods from the seed of a run.
    pub generators: Vec<Generator>,
    /// The groups that pods name.
    pub groups: Vec<TraceGroup>,
    /// The nodes.
    pub nodes: Vec<TraceNode>,
    /// Groups of nodes that grow and shrink.
    pub node_groups: Vec<NodeGroup>,
    /// Room that node groups keep for pods that do not exist yet. The scheduler ignores it.
    pub buffers: Vec<CapacityBuffer>,
    /// The quotas.
    pub quotas: Vec<Quota>,
    /// The DaemonSets.
    pub daemon_sets: Vec<DaemonSet>,
    /// The ResourceClaimTemplates: each is a claim with the namespace and name of the template.
    pub claim_templates: Vec<Arc<ResourceClaim>>,
    /// The disruption budgets. The simulation keeps their status.
    pub budgets: Vec<DisruptionBudget>,
    /// Objects that exist from the start and do not change by themselves: namespaces, storage classes, device classes
    /// and other kinds that the scheduler reads.
    pub objects: Vec<Object>,
    /// The latencies of the environment.
    pub world: World,
}

impl Trace {
    /// The virtual time of offset zero: [`DEFAULT_START`] for a trace without dates.
    pub fn start(&self) -> Time {
        self.start.unwrap_or(DEFAULT_START)
    }

    /// Adds all parts of another trace. If both have dates, the dates are kept; otherwise, the offsets are. The
    /// latencies of the other trace take precedence if it states any.
    pub fn merge(&mut self, mut other: Self) {
        if let (Some(own), Some(start)) = (self.start, other.start) {
            let earlier = own.min(start);
            self.shift(own.since(earlier));
            other.shift(start.since(earlier));
            self.start = Some(earlier);
        } else {
            self.start = self.start.or(other.start);
        }
        self.pods.append(&mut other.pods);
        self.generators.append(&mut other.generators);
        self.groups.append(&mut other.groups);
        self.nodes.append(&mut other.nodes);
        self.node_groups.append(&mut other.node_groups);
        self.buffers.append(&mut other.buffers);
        self.quotas.append(&mut other.quotas);
        self.daemon_sets.append(&mut other.daemon_sets);
        self.claim_templates.append(&mut other.claim_templates);
        self.budgets.append(&mut other.budgets);
        self.objects.append(&mut other.objects);
        if other.world != World::default() {
            self.world = other.world;
        }
    }

    /// Makes everything happen later.
    fn shift(&mut self, by: Duration) {
        if by.is_zero() {
            return;
        }
        for pod in &mut self.pods {
            pod.arrival += by;
            for gate in &mut pod.gates {
                if let GateRemoval::At(offset) = &mut gate.removal {
                    *offset += by;
                }
            }
        }
        for generator in &mut self.generators {
            generator.from += by;
            generator.until += by;
        }
        for node in &mut self.nodes {
            // Nodes that exist at the start of the other trace exist from the start.
            if !node.joins.is_zero() {
                node.joins += by;
            }
            if let Some(leaves) = &mut node.leaves {
                *leaves += by;
            }
            for outage in &mut node.outages {
                outage.at += by;
            }
        }
    }
}

/// The latencies of calls and kubelets.
#[derive(Debug, Clone, PartialEq)]
pub struct World {
    /// From a call of the scheduler to its effect and answer. 20 ms unless stated.
    pub api_latency: Distribution,
    /// From the binding of a pod to the start of its containers. One second unless stated.
    pub start_latency: Distribution,
    /// From the end of a pod by eviction, or by the end of its node, to the arrival of its replacement. One second
    /// unless stated.
    pub recreate_latency: Distribution,
}

impl Default for World {
    fn default() -> Self {
        let second = Distribution::Constant(Duration::from_secs(1));
        Self {
            api_latency: Distribution::Constant(Duration::from_millis(20)),
            start_latency: second.clone(),
            recreate_latency: second,
        }
    }
}

/// A pod, or several alike.
#[derive(Debug, Clone, PartialEq)]
pub struct TracePod {
    /// The name. With a count above one, the pods are `NAME-0`, `NAME-1`, ….
    pub name: Str,
    /// Namespace, labels and spec. Name, UID and status are not read. With a node in its spec, the pod is on that node
    /// when it arrives. Equal pods share it.
    pub pod: Arc<Pod>,
    /// The arrival, as an offset from the start of the trace.
    pub arrival: Duration,
    /// The time between the arrivals of two pods of an item with a count.
    pub every: Duration,
    /// From the start of the containers to the end of the pod; `None` for a pod that does not end.
    pub duration: Option<Distribution>,
    /// The number of pods.
    pub count: u32,
    /// The gates of the pod, each with its removal. They are added to the spec.
    pub gates: Vec<Gate>,
    /// Whether a controller replaces the pod when it is evicted or its node leaves.
    pub recreated: bool,
}

impl TracePod {
    /// One pod that arrives at the start, does not end and is not replaced.
    pub fn new(name: impl Into<Str>, pod: impl Into<Arc<Pod>>) -> Self {
        Self {
            name: name.into(),
            pod: pod.into(),
            arrival: Duration::ZERO,
            every: Duration::ZERO,
            duration: None,
            count: 1,
            gates: Vec::new(),
            recreated: false,
        }
    }
}

/// A gate of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// The name.
    pub name: Str,
    /// The cause of its removal.
    pub removal: GateRemoval,
}

/// The cause of the removal of a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateRemoval {
    /// This time after the arrival of the pod.
    After(Duration),
    /// This time after the start of the trace.
    At(Duration),
    /// Another pod, `NAMESPACE/NAME`, has run to its end.
    Ended(Str),
    /// The quotas of the namespace have room for the pod. Until then, the pod exists, but its quotas do not count it.
    Quota,
}

/// A group of pods that are scheduled together. Its pods name it in `spec.schedulingGroup.podGroupName`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceGroup {
    /// The namespace.
    pub namespace: Str,
    /// The name.
    pub name: Str,
    /// The number of pods that must be able to run at the same time for any of them to start.
    pub minimum: u32,
    /// The label that must have the same value on the nodes of all pods of the group.
    pub topology: Option<Str>,
    /// The priority.
    pub priority: Option<i32>,
    /// The priority class of a group without a priority, empty for the default class; `None` for the class of its pods.
    pub priority_class: Option<Str>,
}

/// A node, or several alike.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceNode {
    /// The name. With a count above one, the nodes are `NAME-0`, `NAME-1`, ….
    pub name: Str,
    /// Labels, taints, allocatable resources. Its name and UID are not read.
    pub node: Arc<Node>,
    /// The number of nodes.
    pub count: u32,
    /// The time at which the nodes join, as an offset from the start of the trace.
    pub joins: Duration,
    /// The time at which the nodes leave permanently.
    pub leaves: Option<Duration>,
    /// The outages of the nodes.
    pub outages: Vec<Outage>,
    /// The price for an hour of each node, in any currency.
    pub price_per_hour: f64,
}

impl TraceNode {
    /// One node, from the start to the end.
    pub fn new(name: impl Into<Str>, node: impl Into<Arc<Node>>) -> Self {
        Self {
            name: name.into(),
            node: node.into(),
            count: 1,
            joins: Duration::ZERO,
            leaves: None,
            outages: Vec::new(),
            price_per_hour: 0.0,
        }
    }
}

/// An outage of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// Its beginning, as an offset from the start of the trace.
    pub at: Duration,
    /// Its length; `None` for a node that does not return.
    pub length: Option<Duration>,
    /// Whether the node is drained: it is cordoned, its pods are evicted as their disruption budgets allow, and it
    /// stays. Otherwise it fails: it leaves, and its pods end with it.
    pub drain: bool,
}

/// Nodes of one shape whose number follows the waiting pods.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeGroup {
    /// The name. The nodes are `NAME-0`, `NAME-1`, ….
    pub name: Str,
    /// Labels, taints, allocatable resources.
    pub node: Arc<Node>,
    /// The ResourceSlices that device drivers publish for each node. Their names, nodes and pools are derived from the
    /// node.
    pub slices: Vec<Arc<ResourceSlice>>,
    /// The number of nodes at the start, and the smallest number later.
    pub minimum: u32,
    /// The largest number of nodes.
    pub maximum: u32,
    /// From the decision to add a node to its joining.
    pub boot: Distribution,
    /// The time without a pod after which a node is removed.
    pub idle: Duration,
    /// The price for an hour of a node, from its joining to its end, in any currency.
    pub price_per_hour: f64,
}

/// The most chunks of a buffer.
pub const CHUNKS_MAX: u32 = 10_000;

/// A CapacityBuffer (`autoscaling.x-k8s.io`): room for a number of equal pods that node groups keep.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacityBuffer {
    /// The namespace.
    pub namespace: Str,
    /// The name.
    pub name: Str,
    /// The pod with the shape of a chunk.
    pub pod: Arc<Pod>,
    /// The number of chunks, at most [`CHUNKS_MAX`].
    pub chunks: u32,
}

/// The maximum total requests of the pods of a namespace. A pod that exceeds them is created when there is room, in the
/// order of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// The namespace.
    pub namespace: Str,
    /// The amounts, by resource without `requests.`; `pods` for the number of pods.
    pub hard: ResourceList,
}

/// A DaemonSet: a pod on each node that its template allows.
#[derive(Debug, Clone, PartialEq)]
pub struct DaemonSet {
    /// The name.
    pub name: Str,
    /// The pod, with the namespace of the set and the tolerations that all pods of DaemonSets have.
    pub pod: Arc<Pod>,
}

/// A PodDisruptionBudget, which drains respect and preemption prefers to respect.
#[derive(Debug, Clone, PartialEq)]
pub struct DisruptionBudget {
    /// Namespace, name and selector. Its status is not read.
    pub object: Arc<PodDisruptionBudget>,
    /// The pods that it keeps.
    pub bound: BudgetBound,
}

/// The number of pods that a disruption budget protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetBound {
    /// At least this number runs.
    MinAvailable(PodShare),
    /// At most this number does not run.
    MaxUnavailable(PodShare),
}

/// A number of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodShare {
    /// The number.
    Pods(u32),
    /// A share of all pods, rounded up.
    Percent(u32),
}

/// The common fields of pods in traces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodShape {
    /// The namespace; empty is `default`.
    pub namespace: Str,
    /// The labels.
    pub labels: Labels,
    /// The priority.
    pub priority: Option<i32>,
    /// The name of the priority class; empty for none. Without a priority, it replaces a priority of the pod under the
    /// shape.
    pub priority_class: Str,
    /// The requests.
    pub requests: ResourceList,
    /// The group, in the namespace of the pod.
    pub group: Option<Str>,
    /// The name of the scheduler; empty is `default-scheduler`.
    pub scheduler_name: Str,
    /// Labels that the node must have.
    pub node_selector: Labels,
    /// The grace period of the containers of a deleted pod, in whole seconds.
    pub grace_period: Option<Duration>,
}

impl PodShape {
    /// The pod of this shape, without a name.
    pub fn pod(self) -> Pod {
        self.over(Pod::default())
    }

    /// A pod with the stated fields of this shape; requests replace those of its first container.
    pub fn over(self, mut pod: Pod) -> Pod {
        if !self.namespace.is_empty() {
            pod.metadata.namespace = self.namespace;
        }
        if pod.metadata.namespace.is_empty() {
            pod.metadata.namespace = "default".into();
        }
        let labels = pod.metadata.labels.iter().chain(self.labels.iter());
        pod.metadata.labels = Labels::from_pairs(labels.map(|(k, v)| (k.clone(), v.clone())));
        if !self.priority_class.is_empty() {
            pod.spec.priority_class_name = self.priority_class;
            pod.spec.priority = None;
        }
        if self.priority.is_some() {
            pod.spec.priority = self.priority;
        }
        if !self.scheduler_name.is_empty() {
            pod.spec.scheduler_name = self.scheduler_name;
        }
        if pod.spec.scheduler_name.is_empty() {
            pod.spec.scheduler_name = "default-scheduler".into();
        }
        if !self.node_selector.is_empty() {
            pod.spec.node_selector = Some(self.node_selector);
        }
        if let Some(grace) = self.grace_period {
            let annotations = &mut pod.metadata.annotations;
            let seconds = grace.as_secs().to_string();
            *annotations = annotations.with(GRACE_PERIOD_ANNOTATION, &seconds);
        }
        if let Some(group) = self.group {
            pod.spec.scheduling_group = Some(PodSchedulingGroup {
                pod_group_name: group,
            });
        }
        if pod.spec.containers.is_empty() {
            pod.spec.containers.push(Container {
                name: "main".into(),
                ..Container::default()
            });
        }
        let requests = &mut pod.spec.containers[0].resources.requests;
        for (resource, amount) in self.requests.iter() {
            requests.set(resource.clone(), *amount);
        }
        pod
    }
}

/// The common fields of nodes in traces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeShape {
    /// The allocatable resources; 110 `pods` unless stated.
    pub resources: ResourceList,
    /// The labels.
    pub labels: Labels,
    /// The taints.
    pub taints: Vec<berth_api::Taint>,
}

impl NodeShape {
    /// The node of this shape, without a name.
    pub fn node(mut self) -> Node {
        let pods: Str = berth_api::resources::PODS.into();
        if self.resources.get(&pods).is_none() {
            let most = berth_api::Quantity::from_value(110, Default::default());
            self.resources.set(pods, most);
        }
        let mut node = Node::default();
        node.metadata.labels = self.labels;
        node.spec.taints = self.taints;
        node.status.allocatable = self.resources;
        node.status.conditions = vec![berth_api::node::NodeCondition {
            kind: "Ready".into(),
            status: "True".into(),
        }]
        .into();
        node
    }
}

/// The gates of a pod in the format of its spec.
pub(crate) fn scheduling_gates(gates: &[Gate]) -> impl Iterator<Item = SchedulingGate> {
    gates.iter().map(|gate| SchedulingGate {
        name: gate.name.clone(),
    })
}
