//! Pods.

use super::{
    ADDRESSES, APP, APPS, DeviceUse, EXTENDED, GPU, HOLD, HOSTNAME, NAMESPACES, SCHEDULERS, SLOW,
    TAINTS, TEAM, TEAMS, ZONE, bytes, chance, claim_name, count, device_claim_name, group_name,
    group_priority, may_preempt, pick, random_app, random_reason, random_zone,
};
use berth_api::groups::PodSchedulingGroup;
use berth_api::node_selector::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use berth_api::pod::{
    Affinity, Container, ContainerPort, NodeAffinity, PersistentVolumeClaimSource, PodAffinity,
    PodAffinityTerm, PodResourceClaim, SchedulingGate, TopologySpreadConstraint, Volume,
};
use berth_api::taint::TolerationOperator;
use berth_api::{LabelSelector, Labels, Pod, Quantity, Str, Time, Toleration};
use fastrand::Rng;
use std::fmt;

/// A stage at which the simulator's own plugin delays a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slow {
    /// Reserve waits for a timer, and the cycle is parked.
    Reserve,
    /// Permit sometimes makes the pod wait; no plugin allows it, so it is rejected in the end.
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

/// The zones in which a pod may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneRule {
    /// A node selector on the label.
    Selector(&'static str),
    /// A required node affinity to the zone.
    In(&'static str),
    /// A required node affinity away from it.
    NotIn(&'static str),
}

/// A part of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// A node.
    Node,
    /// A zone.
    Zone,
}

impl Domain {
    /// The topology key.
    pub fn key(self) -> &'static str {
        match self {
            Self::Node => HOSTNAME,
            Self::Zone => ZONE,
        }
    }

    fn random(rng: &mut Rng) -> Self {
        if rng.bool() { Self::Node } else { Self::Zone }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "node",
            Self::Zone => "zone",
        })
    }
}

/// Pods near a pod: a required term of (anti-)affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Near {
    /// The label of the other pods.
    pub app: &'static str,
    /// The domain.
    pub domain: Domain,
    /// The team whose namespaces are searched; the pod's own namespace if `None`.
    pub team: Option<&'static str>,
}

impl Near {
    /// Pods of the same namespace on the same node.
    pub fn on_node(app: &'static str) -> Self {
        Self {
            app,
            domain: Domain::Node,
            team: None,
        }
    }

    fn random(rng: &mut Rng) -> Self {
        Self {
            app: random_app(rng),
            domain: Domain::random(rng),
            team: if chance(rng, 30) {
                pick(rng, &TEAMS)
            } else {
                None
            },
        }
    }

    fn term(&self) -> PodAffinityTerm {
        PodAffinityTerm {
            label_selector: Some(selector(APP, self.app)),
            namespace_selector: self.team.map(|team| selector(TEAM, team)),
            topology_key: self.domain.key().into(),
            ..PodAffinityTerm::default()
        }
    }
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.app, self.domain)?;
        match self.team {
            Some(team) => write!(f, " in namespaces of team {team}"),
            None => Ok(()),
        }
    }
}

/// The spread of pods: a hard constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// The label of the pods that are counted.
    pub app: &'static str,
    /// The domain over which pods are spread.
    pub domain: Domain,
    /// The maximum skew between domains.
    pub max_skew: i32,
    /// The least number of domains.
    pub min_domains: Option<i32>,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            app,
            domain,
            max_skew,
            ..
        } = self;
        write!(f, "{app} by {domain}, skew {max_skew}")?;
        match self.min_domains {
            Some(domains) => write!(f, " over {domains} domains"),
            None => Ok(()),
        }
    }
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodShape {
    /// The namespace; [`NAMESPACES`]`[0]` if empty.
    pub namespace: &'static str,
    /// Requested CPU in thousandths.
    pub cpu_milli: i64,
    /// Requested memory in MiB.
    pub memory_mebibytes: i64,
    /// The CPU request of an init container, in thousandths.
    pub init_cpu_milli: i64,
    /// Requested devices.
    pub gpus: i64,
    /// The number of its initial scheduling gates.
    pub gates: usize,
    /// The zones in which it may run.
    pub zone: Option<ZoneRule>,
    /// The taints that it tolerates.
    pub tolerates: Option<&'static str>,
    /// Address and number of a port of the node.
    pub host_port: Option<(&'static str, i32)>,
    /// The claim that it uses, by number.
    pub claim: Option<usize>,
    /// Its devices.
    pub devices: Option<DeviceUse>,
    /// The priority.
    pub priority: i32,
    /// Whether it never preempts other pods.
    pub meek: bool,
    /// The label by which others know it.
    pub app: Option<&'static str>,
    /// The pods near which it must run.
    pub near: Option<Near>,
    /// The pods near which it must not run.
    pub apart_from: Option<Near>,
    /// Its spread constraint.
    pub spread: Option<Spread>,
    /// The reason why a PreEnqueue plugin of the simulator rejects it.
    pub held: Option<&'static str>,
    /// The scheduler of [`SCHEDULERS`] that it names.
    pub scheduler: usize,
    /// The label that slows down its placement.
    pub slow: Option<Slow>,
    /// The group of which it is a member, by number.
    pub group: Option<usize>,
    /// Its creation time, in seconds since the epoch.
    pub created: Option<i64>,
}

impl PodShape {
    /// A random pod. `claims` is the number of possible claims.
    pub fn random(rng: &mut Rng, claims: usize) -> Self {
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
            let zone = random_zone(rng);
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
        if chance(rng, 15) {
            shape.namespace = NAMESPACES[1];
        } else if chance(rng, 20) {
            shape.claim = Some(rng.usize(..=claims));
        }
        if chance(rng, 20) {
            let has_claims = shape.namespace.is_empty();
            shape.devices = Some(DeviceUse::random(rng, claims, has_claims));
        }
        shape.meek = chance(rng, 5);
        if chance(rng, 50) {
            shape.app = pick(rng, &APPS);
        }
        if chance(rng, 10) {
            shape.near = Some(Near::random(rng));
        }
        if chance(rng, 12) {
            shape.apart_from = Some(Near::random(rng));
        }
        if chance(rng, 12) {
            shape.spread = Some(Spread {
                // Usually, the counted pods are the pods to be spread.
                app: shape.app.filter(|_| chance(rng, 75)).unwrap_or(APPS[0]),
                domain: Domain::random(rng),
                max_skew: rng.i32(1..3),
                min_domains: chance(rng, 25).then(|| rng.i32(2..4)),
            });
        }
        if chance(rng, 10) {
            shape.held = Some(random_reason(rng));
        }
        shape.scheduler = match rng.u32(..100) {
            0..70 => 0,
            70..97 => 1,
            _ => 2,
        };
        if chance(rng, 16) {
            shape.slow = pick(rng, &Slow::ALL);
        }
        shape
    }

    /// A random member of a group. Members are alike except for gates and other reasons of rejection.
    pub fn member(rng: &mut Rng, group: usize) -> Self {
        let kind = group % 3;
        let mut shape = Self {
            cpu_milli: [250, 1000, 2000][kind],
            memory_mebibytes: [64, 256, 1024][kind],
            scheduler: kind % 2,
            tolerates: (kind == 1).then_some(TAINTS[0]),
            gpus: i64::from(kind == 2),
            priority: group_priority(group),
            meek: !may_preempt(group),
            group: Some(group),
            ..Self::default()
        };
        if chance(rng, 8) {
            shape.gates = 1;
        }
        if chance(rng, 5) {
            shape.held = Some(random_reason(rng));
        }
        if chance(rng, 10) {
            shape.slow = pick(rng, &[Slow::Timer, Slow::Job]);
        }
        shape
    }

    /// The pod, without name and identity.
    pub fn build(&self) -> Pod {
        let mut pod = Pod::default();
        if !self.namespace.is_empty() {
            pod.metadata.namespace = self.namespace.into();
        }
        pod.metadata.creation_timestamp = self.created.map(Time::from_secs);
        pod.spec.scheduler_name = SCHEDULERS[self.scheduler % SCHEDULERS.len()].into();
        pod.spec.priority = Some(self.priority);
        if self.meek {
            pod.spec.preemption_policy = Some("Never".into());
        }
        let mut labels = Vec::new();
        if let Some(app) = self.app {
            labels.push((APP, app));
        }
        if let Some(reason) = self.held {
            labels.push((HOLD, reason));
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
        pod.spec.scheduling_group = self.group.map(|group| PodSchedulingGroup {
            pod_group_name: group_name(group).into(),
        });
        pod.spec.tolerations.extend(self.tolerates.map(tolerate));
        pod.spec.affinity = self.affinity().map(Box::new);
        let spread = self.spread.map(|spread| TopologySpreadConstraint {
            max_skew: spread.max_skew,
            topology_key: spread.domain.key().into(),
            when_unsatisfiable: "DoNotSchedule".into(),
            label_selector: Some(selector(APP, spread.app)),
            min_domains: spread.min_domains,
            ..TopologySpreadConstraint::default()
        });
        pod.spec.topology_spread_constraints.extend(spread);
        let volume = self.claim.map(|claim| Volume {
            name: "data".into(),
            persistent_volume_claim: Some(PersistentVolumeClaimSource {
                claim_name: claim_name(claim),
            }),
            ..Volume::default()
        });
        pod.spec.volumes.extend(volume);
        let (claim, template) = match self.devices {
            Some(DeviceUse::Claim(number)) => (Some(device_claim_name(number).into()), None),
            Some(DeviceUse::Template(want)) => (None, Some(want.template().into())),
            Some(DeviceUse::Extended(_)) | None => return pod,
        };
        pod.spec.resource_claims.push(PodResourceClaim {
            name: "devices".into(),
            resource_claim_name: claim,
            resource_claim_template_name: template,
        });
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
        if let Some(DeviceUse::Extended(devices)) = self.devices {
            requests.set(EXTENDED.into(), count(devices));
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
            required: Some(zone_selector(operator, zone)),
            preferred: Vec::new(),
        };
        let node_affinity = match self.zone {
            Some(ZoneRule::In(zone)) => Some(required("In", zone)),
            Some(ZoneRule::NotIn(zone)) => Some(required("NotIn", zone)),
            _ => None,
        };
        let terms = |near: Near| PodAffinity {
            required: vec![near.term()],
            preferred: Vec::new(),
        };
        let affinity = Affinity {
            node_affinity,
            pod_affinity: self.near.map(terms),
            pod_anti_affinity: self.apart_from.map(terms),
        };
        let is_empty = affinity.node_affinity.is_none()
            && affinity.pod_affinity.is_none()
            && affinity.pod_anti_affinity.is_none();
        (!is_empty).then_some(affinity)
    }
}

fn selector(key: &str, value: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Labels::from_pairs([(key, value)]),
        match_expressions: Vec::new(),
    }
}

fn zone_selector(operator: &str, zone: &str) -> NodeSelector {
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: vec![NodeSelectorRequirement {
                key: ZONE.into(),
                operator: operator.into(),
                values: vec![zone.into()],
            }],
            match_fields: Vec::new(),
        }],
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
        if let Some(group) = self.group {
            write!(f, ", of group {}", group_name(group))?;
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
        if let Some(claim) = self.claim {
            write!(f, ", claim {}", claim_name(claim))?;
        }
        if let Some(devices) = self.devices {
            write!(f, ", {devices}")?;
        }
        if !self.namespace.is_empty() {
            write!(f, ", in namespace {}", self.namespace)?;
        }
        if self.priority != 0 {
            write!(f, ", priority {}", self.priority)?;
        }
        if self.meek {
            f.write_str(", never preempts")?;
        }
        if let Some(app) = self.app {
            write!(f, ", app {app}")?;
        }
        if let Some(near) = self.near {
            write!(f, ", near {near}")?;
        }
        if let Some(near) = self.apart_from {
            write!(f, ", apart from {near}")?;
        }
        if let Some(spread) = self.spread {
            write!(f, ", spreads {spread}")?;
        }
        if let Some(reason) = self.held {
            write!(f, ", held for {reason}")?;
        }
        if self.scheduler > 0 {
            write!(f, ", of {}", SCHEDULERS[self.scheduler % SCHEDULERS.len()])?;
        }
        if let Some(slow) = self.slow {
            write!(f, ", slow at {}", slow.as_str())?;
        }
        if let Some(created) = self.created {
            write!(f, ", created at {created} s")?;
        }
        Ok(())
    }
}
