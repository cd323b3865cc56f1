//! The pods and nodes of the simulated world: small descriptions that can be drawn at random, printed in a line and
//! turned into objects.

use berth_api::node_selector::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use berth_api::pod::{
    Affinity, Container, ContainerPort, NodeAffinity, PodAffinity, PodAffinityTerm, SchedulingGate,
};
use berth_api::quantity::Format;
use berth_api::taint::TolerationOperator;
use berth_api::{
    LabelSelector, Labels, Node, Pod, Quantity, ResourceList, Str, Taint, TaintEffect, Toleration,
};
use fastrand::Rng;
use std::fmt;

/// The label of a node's host name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The label of a node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The label by which pods know each other.
pub const APP: &str = "app";
/// While a pod has this label, the simulator's PreEnqueue plugin keeps it out.
pub const HOLD: &str = "example.com/hold";
/// What makes the placement of a pod take time; see [`Slow`].
pub const SLOW: &str = "example.com/slow";
/// An extended resource.
pub const GPU: &str = "example.com/gpu";
/// The name of the scheduler of every pod.
pub const SCHEDULER_NAME: &str = "default-scheduler";

const MEBIBYTE: i64 = 1024 * 1024;
const ZONES: [&str; 3] = ["a", "b", "c"];
const APPS: [&str; 3] = ["red", "green", "blue"];
const TAINTS: [&str; 2] = ["dedicated", "maintenance"];
const ADDRESSES: [&str; 3] = ["", "10.0.0.1", "10.0.0.2"];

/// A stage at which the simulator's own plugin takes its time over a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slow {
    /// Reserve waits for a timer, and the cycle is parked.
    Reserve,
    /// Permit holds the pod back now and then; nobody allows it, so it is rejected in the end.
    Permit,
    /// PreBind waits for a timer.
    Timer,
    /// PreBind waits for a job, which may fail.
    Job,
}

impl Slow {
    /// Every stage.
    pub const ALL: [Self; 4] = [Self::Reserve, Self::Permit, Self::Timer, Self::Job];

    /// The value of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Permit => "permit",
            Self::Timer => "timer",
            Self::Job => "job",
        }
    }
}

/// Which zones a pod may run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneRule {
    /// A node selector on the label.
    Selector(&'static str),
    /// A required node affinity to the zone.
    In(&'static str),
    /// A required node affinity away from it.
    NotIn(&'static str),
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodShape {
    /// Requested CPU in thousandths.
    pub cpu_milli: i64,
    /// Requested memory in MiB.
    pub memory_mebibytes: i64,
    /// What an init container requests of CPU, in thousandths.
    pub init_cpu_milli: i64,
    /// Requested devices.
    pub gpus: i64,
    /// How many scheduling gates it begins with.
    pub gates: usize,
    /// Where it may run.
    pub zone: Option<ZoneRule>,
    /// The taints that it tolerates.
    pub tolerates: Option<&'static str>,
    /// Address and number of a port of the node.
    pub host_port: Option<(&'static str, i32)>,
    /// The priority.
    pub priority: i32,
    /// The label by which others know it.
    pub app: Option<&'static str>,
    /// The pods with which it shares no node.
    pub apart_from: Option<&'static str>,
    /// Whether the simulator's PreEnqueue plugin keeps it out.
    pub held: bool,
    /// What makes its placement take time.
    pub slow: Option<Slow>,
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> Option<T> {
    (!of.is_empty()).then(|| of[rng.usize(..of.len())])
}

/// True `percent` times in a hundred.
pub(crate) fn chance(rng: &mut Rng, percent: u32) -> bool {
    rng.u32(..100) < percent
}

impl PodShape {
    /// Any pod.
    pub fn random(rng: &mut Rng) -> Self {
        let mut shape = Self {
            cpu_milli: [0, 100, 250, 500, 1000, 2000][rng.usize(..6)],
            memory_mebibytes: [0, 64, 256, 1024][rng.usize(..4)],
            priority: [0, 0, 0, 10, 100, -5][rng.usize(..6)],
            ..Self::default()
        };
        if chance(rng, 15) {
            shape.gates = rng.usize(1..4);
        }
        if chance(rng, 8) {
            shape.init_cpu_milli = 1500;
        }
        if chance(rng, 12) {
            shape.gpus = rng.i64(1..3);
        }
        if chance(rng, 20) {
            let zone = ZONES[rng.usize(..ZONES.len())];
            shape.zone = Some(match rng.u32(..3) {
                0 => ZoneRule::Selector(zone),
                1 => ZoneRule::In(zone),
                _ => ZoneRule::NotIn(zone),
            });
        }
        if chance(rng, 15) {
            shape.tolerates = pick(rng, &TAINTS);
        }
        if chance(rng, 12) {
            shape.host_port = pick(rng, &ADDRESSES).map(|ip| (ip, rng.i32(8080..8082)));
        }
        if chance(rng, 40) {
            shape.app = pick(rng, &APPS);
        }
        if chance(rng, 12) {
            shape.apart_from = pick(rng, &APPS);
        }
        if chance(rng, 10) {
            shape.held = true;
        }
        if chance(rng, 16) {
            shape.slow = pick(rng, &Slow::ALL);
        }
        shape
    }

    /// The pod, without name and identity.
    pub fn build(&self) -> Pod {
        let mut pod = Pod::default();
        pod.spec.scheduler_name = SCHEDULER_NAME.into();
        pod.spec.priority = Some(self.priority);
        let mut labels = Vec::new();
        if let Some(app) = self.app {
            labels.push((APP, app));
        }
        if self.held {
            labels.push((HOLD, "yes"));
        }
        if let Some(slow) = self.slow {
            labels.push((SLOW, slow.as_str()));
        }
        pod.metadata.labels = Labels::from_pairs(labels);
        let gates = (0..self.gates).map(|n| SchedulingGate {
            name: Str::from(format!("example.com/gate-{n}")),
        });
        pod.spec.scheduling_gates = gates.collect();
        pod.spec.containers.push(self.container());
        if self.init_cpu_milli > 0 {
            let mut init = Container {
                name: "init".into(),
                ..Container::default()
            };
            let cpu = Quantity::from_milli(self.init_cpu_milli);
            init.resources.requests.set("cpu".into(), cpu);
            pod.spec.init_containers.push(init);
        }
        if let Some(ZoneRule::Selector(zone)) = self.zone {
            pod.spec.node_selector = Some(Labels::from_pairs([(ZONE, zone)]));
        }
        pod.spec.tolerations.extend(self.tolerates.map(tolerate));
        pod.spec.affinity = self.affinity().map(Box::new);
        pod
    }

    fn container(&self) -> Container {
        let mut container = Container {
            name: "main".into(),
            ..Container::default()
        };
        let requests = &mut container.resources.requests;
        if self.cpu_milli > 0 {
            requests.set("cpu".into(), Quantity::from_milli(self.cpu_milli));
        }
        if self.memory_mebibytes > 0 {
            requests.set("memory".into(), bytes(self.memory_mebibytes));
        }
        if self.gpus > 0 {
            requests.set(GPU.into(), count(self.gpus));
        }
        if let Some((ip, port)) = self.host_port {
            container.ports.push(ContainerPort {
                host_port: port,
                host_ip: ip.into(),
                ..ContainerPort::default()
            });
        }
        container
    }

    fn affinity(&self) -> Option<Affinity> {
        let required = |operator: &str, zone: &str| NodeAffinity {
            required: Some(NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm {
                    match_expressions: vec![NodeSelectorRequirement {
                        key: ZONE.into(),
                        operator: operator.into(),
                        values: vec![zone.into()],
                    }],
                    match_fields: Vec::new(),
                }],
            }),
            preferred: Vec::new(),
        };
        let node_affinity = match self.zone {
            Some(ZoneRule::In(zone)) => Some(required("In", zone)),
            Some(ZoneRule::NotIn(zone)) => Some(required("NotIn", zone)),
            _ => None,
        };
        let pod_anti_affinity = self.apart_from.map(|app| PodAffinity {
            required: vec![PodAffinityTerm {
                label_selector: Some(LabelSelector {
                    match_labels: Labels::from_pairs([(APP, app)]),
                    match_expressions: Vec::new(),
                }),
                topology_key: HOSTNAME.into(),
                ..PodAffinityTerm::default()
            }],
            preferred: Vec::new(),
        });
        if node_affinity.is_none() && pod_anti_affinity.is_none() {
            return None;
        }
        Some(Affinity {
            node_affinity,
            pod_affinity: None,
            pod_anti_affinity,
        })
    }
}

/// A toleration of every taint of that key.
pub fn tolerate(key: &str) -> Toleration {
    Toleration {
        key: key.into(),
        operator: TolerationOperator::Exists,
        ..Toleration::default()
    }
}

fn bytes(mebibytes: i64) -> Quantity {
    Quantity::from_value(mebibytes * MEBIBYTE, Format::BinarySI)
}

fn count(n: i64) -> Quantity {
    Quantity::from_value(n, Format::DecimalSI)
}

impl fmt::Display for PodShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cpu {}m, memory {}Mi",
            self.cpu_milli, self.memory_mebibytes
        )?;
        if self.init_cpu_milli > 0 {
            write!(f, ", init cpu {}m", self.init_cpu_milli)?;
        }
        if self.gpus > 0 {
            write!(f, ", {} gpus", self.gpus)?;
        }
        if self.gates > 0 {
            write!(f, ", {} gates", self.gates)?;
        }
        match self.zone {
            Some(ZoneRule::Selector(zone)) => write!(f, ", selects zone {zone}")?,
            Some(ZoneRule::In(zone)) => write!(f, ", requires zone {zone}")?,
            Some(ZoneRule::NotIn(zone)) => write!(f, ", not in zone {zone}")?,
            None => {}
        }
        if let Some(taint) = self.tolerates {
            write!(f, ", tolerates {taint}")?;
        }
        if let Some((ip, port)) = self.host_port {
            write!(f, ", host port {ip}:{port}")?;
        }
        if self.priority != 0 {
            write!(f, ", priority {}", self.priority)?;
        }
        if let Some(app) = self.app {
            write!(f, ", app {app}")?;
        }
        if let Some(app) = self.apart_from {
            write!(f, ", apart from {app}")?;
        }
        if self.held {
            f.write_str(", held")?;
        }
        if let Some(slow) = self.slow {
            write!(f, ", slow at {}", slow.as_str())?;
        }
        Ok(())
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeShape {
    /// CPU in thousandths.
    pub cpu_milli: i64,
    /// Memory in MiB.
    pub memory_mebibytes: i64,
    /// How many pods it takes.
    pub pods: i64,
    /// Devices.
    pub gpus: i64,
    /// The zone; some nodes have none.
    pub zone: Option<&'static str>,
    /// A taint with effect NoSchedule.
    pub taint: Option<&'static str>,
    /// Whether it is cordoned.
    pub cordoned: bool,
}

impl NodeShape {
    /// Any node.
    pub fn random(rng: &mut Rng) -> Self {
        Self {
            cpu_milli: [1000, 2000, 4000][rng.usize(..3)],
            memory_mebibytes: [1024, 4096][rng.usize(..2)],
            pods: [3, 6, 110][rng.usize(..3)],
            gpus: [0, 0, 2][rng.usize(..3)],
            zone: chance(rng, 85).then(|| ZONES[rng.usize(..ZONES.len())]),
            taint: chance(rng, 10).then(|| TAINTS[rng.usize(..TAINTS.len())]),
            cordoned: chance(rng, 8),
        }
    }

    /// The node, without identity.
    pub fn build(&self, name: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = name.into();
        node.metadata.labels = Labels::from_pairs([(HOSTNAME, name)]);
        if let Some(zone) = self.zone {
            node.metadata.labels = node.metadata.labels.with(ZONE, zone);
        }
        node.status.allocatable = ResourceList::from_pairs([
            ("cpu", Quantity::from_milli(self.cpu_milli)),
            ("memory", bytes(self.memory_mebibytes)),
            ("pods", count(self.pods)),
        ]);
        if self.gpus > 0 {
            node.status.allocatable.set(GPU.into(), count(self.gpus));
        }
        let taint = |key| Taint::new(key, "", TaintEffect::NoSchedule);
        node.spec.taints.extend(self.taint.map(taint));
        node.spec.unschedulable = self.cordoned;
        node
    }
}

impl fmt::Display for NodeShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cpu {}m, memory {}Mi, {} pods",
            self.cpu_milli, self.memory_mebibytes, self.pods
        )?;
        if self.gpus > 0 {
            write!(f, ", {} gpus", self.gpus)?;
        }
        if let Some(zone) = self.zone {
            write!(f, ", zone {zone}")?;
        }
        if let Some(taint) = self.taint {
            write!(f, ", taint {taint}")?;
        }
        if self.cordoned {
            f.write_str(", cordoned")?;
        }
        Ok(())
    }
}

/// A change of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeChange {
    /// It offers so much CPU, in thousandths.
    Cpu(i64),
    /// It takes so many pods.
    Pods(i64),
    /// It has so many devices.
    Gpus(i64),
    /// It is in another zone.
    Zone(&'static str),
    /// It gets a taint with this effect, or loses it.
    Taint(&'static str, TaintEffect),
    /// It loses all taints.
    NoTaints,
    /// It is cordoned, or not any more.
    Cordoned(bool),
    /// Its kubelet writes a heartbeat: nothing that matters changes.
    Heartbeat,
}

impl NodeChange {
    /// Any change.
    pub fn random(rng: &mut Rng) -> Self {
        match rng.u32(..10) {
            0 | 1 => Self::Cpu([500, 1000, 2000, 4000, 8000][rng.usize(..5)]),
            2 => Self::Pods([2, 6, 110][rng.usize(..3)]),
            3 => Self::Gpus(rng.i64(0..4)),
            4 => Self::Zone(ZONES[rng.usize(..ZONES.len())]),
            5 => {
                let effects = [
                    TaintEffect::NoSchedule,
                    TaintEffect::NoExecute,
                    TaintEffect::PreferNoSchedule,
                ];
                Self::Taint(TAINTS[rng.usize(..TAINTS.len())], effects[rng.usize(..3)])
            }
            6 => Self::NoTaints,
            7 => Self::Cordoned(true),
            8 => Self::Cordoned(false),
            _ => Self::Heartbeat,
        }
    }

    /// Makes the change.
    pub fn apply_to(&self, node: &mut Node) {
        let allocatable = &mut node.status.allocatable;
        match self {
            Self::Cpu(milli) => allocatable.set("cpu".into(), Quantity::from_milli(*milli)),
            Self::Pods(n) => allocatable.set("pods".into(), count(*n)),
            Self::Gpus(n) => allocatable.set(GPU.into(), count(*n)),
            Self::Zone(zone) => node.metadata.labels = node.metadata.labels.with(ZONE, zone),
            Self::Taint(key, effect) => {
                let taints = &mut node.spec.taints;
                let before = taints.len();
                taints.retain(|t| !(t.key == *key && t.effect == *effect));
                if taints.len() == before {
                    taints.push(Taint::new(key, "", *effect));
                }
            }
            Self::NoTaints => node.spec.taints.clear(),
            Self::Cordoned(cordoned) => node.spec.unschedulable = *cordoned,
            Self::Heartbeat => {}
        }
    }
}

impl fmt::Display for NodeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(milli) => write!(f, "cpu {milli}m"),
            Self::Pods(n) => write!(f, "{n} pods"),
            Self::Gpus(n) => write!(f, "{n} gpus"),
            Self::Zone(zone) => write!(f, "zone {zone}"),
            Self::Taint(key, effect) => write!(f, "taint {key}:{} on or off", effect.as_str()),
            Self::NoTaints => f.write_str("no taints"),
            Self::Cordoned(true) => f.write_str("cordoned"),
            Self::Cordoned(false) => f.write_str("not cordoned"),
            Self::Heartbeat => f.write_str("heartbeat"),
        }
    }
}

/// Another label by which pods may be known.
pub(crate) fn random_app(rng: &mut Rng) -> &'static str {
    APPS[rng.usize(..APPS.len())]
}

/// A taint that nodes may have.
pub(crate) fn random_taint(rng: &mut Rng) -> &'static str {
    TAINTS[rng.usize(..TAINTS.len())]
}
