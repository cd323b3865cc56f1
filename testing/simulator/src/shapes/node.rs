//! Nodes.

use super::{DRIVER, GPU, HOSTNAME, TAINTS, ZONE, bytes, chance, count, random_taint, random_zone};
use berth_api::storage::{CsiNode, CsiNodeDriver, CsiNodeSpec, VolumeNodeResources};
use berth_api::{Labels, Node, Quantity, ResourceList, Taint, TaintEffect};
use fastrand::Rng;
use std::fmt;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeShape {
    /// CPU in thousandths.
    pub cpu_milli: i64,
    /// Memory in MiB.
    pub memory_mebibytes: i64,
    /// The number of pods of the node.
    pub pods: i64,
    /// Devices.
    pub gpus: i64,
    /// The zone; some nodes have none.
    pub zone: Option<&'static str>,
    /// A taint with effect NoSchedule.
    pub taint: Option<&'static str>,
    /// Whether it is cordoned.
    pub cordoned: bool,
    /// The number of volumes that can be attached, if there is a limit.
    pub attachable: Option<i32>,
}

impl NodeShape {
    /// Any node.
    pub fn random(rng: &mut Rng) -> Self {
        Self {
            cpu_milli: [1000, 2000, 4000][rng.usize(..3)],
            memory_mebibytes: [1024, 4096][rng.usize(..2)],
            pods: [3, 6, 110][rng.usize(..3)],
            gpus: [0, 0, 2][rng.usize(..3)],
            zone: chance(rng, 85).then(|| random_zone(rng)),
            taint: chance(rng, 10).then(|| TAINTS[rng.usize(..TAINTS.len())]),
            cordoned: chance(rng, 8),
            attachable: chance(rng, 50).then(|| rng.i32(1..3)),
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

    /// The CSINode of the node, with its volume limits.
    pub fn build_csi(&self, name: &str) -> Option<CsiNode> {
        let limit = self.attachable?;
        let mut csi = CsiNode {
            spec: CsiNodeSpec {
                drivers: vec![CsiNodeDriver {
                    name: DRIVER.into(),
                    allocatable: Some(VolumeNodeResources { count: Some(limit) }),
                }],
            },
            ..CsiNode::default()
        };
        csi.metadata.name = name.into();
        Some(csi)
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
        if let Some(limit) = self.attachable {
            write!(f, ", attaches {limit} volumes")?;
        }
        Ok(())
    }
}

/// A change of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeChange {
    /// Its CPU, in thousandths.
    Cpu(i64),
    /// The number of pods that it takes.
    Pods(i64),
    /// The number of its devices.
    Gpus(i64),
    /// It is in another zone.
    Zone(&'static str),
    /// A taint with this effect is added or removed.
    Taint(&'static str, TaintEffect),
    /// It loses all taints.
    NoTaints,
    /// It is cordoned, or not any more.
    Cordoned(bool),
    /// The number of volumes that it attaches.
    Attachable(i32),
    /// Its kubelet writes a heartbeat, which does not affect scheduling.
    Heartbeat,
}

impl NodeChange {
    /// Any change.
    pub fn random(rng: &mut Rng) -> Self {
        match rng.u32(..11) {
            0 | 1 => Self::Cpu([500, 1000, 2000, 4000, 8000][rng.usize(..5)]),
            2 => Self::Pods([2, 6, 110][rng.usize(..3)]),
            3 => Self::Gpus(rng.i64(0..4)),
            4 => Self::Zone(random_zone(rng)),
            5 => {
                let effects = [
                    TaintEffect::NoSchedule,
                    TaintEffect::NoExecute,
                    TaintEffect::PreferNoSchedule,
                ];
                Self::Taint(random_taint(rng), effects[rng.usize(..3)])
            }
            6 => Self::NoTaints,
            7 => Self::Cordoned(true),
            8 => Self::Cordoned(false),
            9 => Self::Attachable(rng.i32(0..4)),
            _ => Self::Heartbeat,
        }
    }

    /// Applies the change, as far as it concerns the node object.
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
            Self::Attachable(_) | Self::Heartbeat => {}
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
            Self::Attachable(n) => write!(f, "attaches {n} volumes"),
            Self::Heartbeat => f.write_str("heartbeat"),
        }
    }
}
