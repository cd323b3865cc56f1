//! The things that a node lacks for a pod, as values: each taint, each resource with its amounts, each label, each port.
//!
//! A filter rejects a node with a [`Status`](crate::Status), whose reasons are constant texts, because it rejects
//! thousands of nodes in one attempt. For the few nodes of an explanation,
//! [`Filter::lacking`](crate::plugin::Filter::lacking) returns the values behind the rejection. Explanations, tried
//! changes and programs read these values; [`Lack`] prints them for people.

mod text;

use crate::pod_info::HostPort;
use crate::reason::ReasonCode;
use berth_api::node_selector::NodeSelector;
use berth_api::resources::PODS;
use berth_api::{Str, Taint, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Something that a node lacks for a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Lack {
    /// Too little of a resource is free.
    Resource {
        /// The resource; `pods` for a place on the node.
        resource: Str,
        /// The amount that the pod requests: milli-CPU for `cpu`, otherwise in the unit of the resource.
        wanted: i64,
        /// The amount that is free, below zero if more is requested than the node has.
        free: i64,
    },
    /// The pod does not tolerate a taint.
    Taint(Taint),
    /// The node is cordoned.
    Cordon,
    /// The node does not have a label of the pod's node selector.
    Label {
        /// The key of the label.
        key: Str,
        /// The value that the pod requires.
        value: Str,
        /// The value that the node has.
        found: Option<Str>,
    },
    /// The node does not match the required node affinity of the pod.
    NodeAffinity {
        /// The terms. The node must match at least one.
        required: NodeSelector,
    },
    /// A host port is in use.
    Port {
        /// The port that the pod wants.
        #[serde(flatten)]
        port: HostPort,
        /// The pod that uses it, `namespace/name`.
        holder: Option<Str>,
    },
    /// The pod names another node.
    NodeName {
        /// The name of that node.
        name: Str,
    },
    /// A volume of the pod cannot be used on the node.
    Volume(VolumeLack),
    /// The node can attach too few volumes of a driver.
    Volumes {
        /// The CSI driver.
        driver: Str,
        /// The number of volumes that the pod adds.
        wanted: usize,
        /// The number of attached volumes.
        attached: usize,
        /// The number of volumes that the driver can attach to the node.
        limit: i64,
    },
    /// The node does not have a CSI driver.
    CsiDriver {
        /// The driver.
        driver: Str,
    },
    /// The node does not declare a feature.
    Feature {
        /// The feature.
        feature: Str,
    },
    /// The topology domain would have too many pods.
    Spread(SpreadLack),
    /// A rule about the pods of a topology domain is violated.
    PodAffinity {
        /// The rule.
        rule: PodAffinityRule,
        /// The label that defines the domain.
        topology_key: Str,
        /// The domain of the node.
        domain: Option<Str>,
    },
    /// Too few devices can be allocated for a request.
    Devices(DeviceShortage),
    /// There are enough devices for each request, but none that satisfy a constraint together.
    DeviceConstraint {
        /// The claim, `namespace/name`.
        claim: Str,
        /// The constraint, such as `matchAttribute dra.example.com/numa`.
        constraint: String,
    },
    /// There are enough devices for each single request, but several requests require the same devices.
    DeviceCompetition {
        /// The claim, `namespace/name`.
        claim: Str,
        /// The request.
        request: Str,
    },
    /// There are enough devices for each request, but not for all of them together.
    DevicesTogether,
    /// A claim has devices that the node cannot use.
    DevicesElsewhere {
        /// The claim, `namespace/name`.
        claim: Str,
    },
    /// The devices of the node could not be searched.
    DeviceSearch {
        /// The error.
        error: String,
    },
    /// The kubelet of the node rejected pods of the template, and the node is excluded for them.
    KubeletRejections {
        /// The number of remembered rejections.
        rejections: usize,
        /// The reason of the last one, such as `OutOfcpu`.
        reason: Str,
        /// The end of the exclusion.
        until: Time,
    },
    /// A reason that only the plugin can describe.
    Other {
        /// The missing item, for people.
        text: String,
        /// The same for programs.
        values: BTreeMap<Str, Str>,
    },
}

/// The reasons for which a volume of a pod cannot be used on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "problem",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum VolumeLack {
    /// The node cannot access the volume of a claim.
    NodeAffinity {
        /// The volume.
        volume: Str,
    },
    /// The volume of a claim does not exist.
    Missing,
    /// No volume can be found or provisioned for a claim.
    Unavailable {
        /// The claim.
        claim: Str,
    },
    /// Too little storage is free for a claim.
    Storage {
        /// The claim.
        claim: Str,
    },
    /// A volume is in other zones or regions.
    Zone {
        /// The label of the zone or region.
        key: Str,
        /// The values that the volume allows.
        allowed: Vec<Str>,
        /// The value that the node has.
        found: Option<Str>,
    },
    /// Another pod uses a disk that cannot be shared.
    DiskInUse {
        /// The disk.
        disk: Str,
        /// The pod, `namespace/name`.
        holder: Str,
    },
    /// Another pod uses a claim that only one pod may use.
    ClaimInUse {
        /// The claim.
        claim: Str,
        /// The pod, `namespace/name`.
        holder: Option<Str>,
    },
}

impl VolumeLack {
    fn code(&self) -> ReasonCode {
        match self {
            Self::NodeAffinity { .. } => ReasonCode::VolumeNodeAffinity,
            Self::Missing => ReasonCode::VolumeMissing,
            Self::Unavailable { .. } => ReasonCode::VolumeUnavailable,
            Self::Storage { .. } => ReasonCode::StorageFull,
            Self::Zone { .. } => ReasonCode::VolumeZoneMismatch,
            Self::DiskInUse { .. } => ReasonCode::DiskTaken,
            Self::ClaimInUse { .. } => ReasonCode::ReadWriteOncePodTaken,
        }
    }
}

/// A topology spread constraint that a node violates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpreadLack {
    /// The label that defines the domains.
    pub topology_key: Str,
    /// The domain of the node; `None` if the node does not have the label.
    pub domain: Option<Str>,
    /// The number of pods in that domain, before the pod is added.
    pub pods: i64,
    /// The number of pods in the domain with the fewest.
    pub fewest: i64,
    /// The greatest difference between two domains.
    pub max_skew: i64,
}

/// The rules about the pods of a topology domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PodAffinityRule {
    /// The pod requires pods in the domain.
    Affinity,
    /// The pod excludes domains with certain pods.
    AntiAffinity,
    /// A pod in the domain excludes the pod.
    ExistingAntiAffinity,
}

/// A device request and the matching devices of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceShortage {
    /// The claim, `namespace/name`.
    pub claim: Str,
    /// The request, or `request/alternative`.
    pub request: Str,
    /// The number of devices that are requested; `None` for all.
    pub wanted: Option<usize>,
    /// The number of devices of the class.
    pub exist: usize,
    /// The number of these devices that the selectors of the request match.
    pub matching: usize,
    /// The number of these devices that can be allocated.
    pub free: usize,
    /// The matching devices that are allocated.
    pub held: Vec<HeldDevice>,
    /// The matching devices with a taint that the request does not tolerate.
    pub tainted: Vec<TaintedDevice>,
    /// The number of matching devices with too little capacity left.
    pub without_capacity: usize,
    /// The number of matching devices whose counters are used up by others.
    pub without_counters: usize,
}

/// A device that is allocated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldDevice {
    /// The device, `driver/pool/device`.
    pub device: String,
    /// The claim that holds it, `namespace/name`, if it is known.
    pub claim: Option<Str>,
    /// The pods for which the claim is reserved, `namespace/name`.
    pub pods: Vec<Str>,
}

/// A device with a taint that a request does not tolerate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaintedDevice {
    /// The device, `driver/pool/device`.
    pub device: String,
    /// The key of the taint.
    pub key: Str,
    /// The value of the taint; may be empty.
    pub value: Str,
}

impl DeviceShortage {
    /// The number of devices that are missing.
    pub fn missing(&self) -> usize {
        match self.wanted {
            Some(wanted) => wanted.saturating_sub(self.free),
            // All devices are needed, and one at least.
            None => self.matching.max(1) - self.free.min(self.matching),
        }
    }
}

impl Lack {
    /// The code of a rejection for this.
    pub fn code(&self) -> ReasonCode {
        match self {
            Self::Resource { resource, .. } if *resource == PODS => ReasonCode::TooManyPods,
            Self::Resource { .. } => ReasonCode::InsufficientResource,
            Self::Taint(_) => ReasonCode::UntoleratedTaint,
            Self::Cordon => ReasonCode::NodeCordoned,
            Self::Label { .. } | Self::NodeAffinity { .. } => ReasonCode::NodeAffinityMismatch,
            Self::Port { .. } => ReasonCode::HostPortTaken,
            Self::NodeName { .. } => ReasonCode::NodeNameMismatch,
            Self::Volume(lack) => lack.code(),
            Self::Volumes { .. } | Self::CsiDriver { .. } => ReasonCode::VolumeLimit,
            Self::Feature { .. } => ReasonCode::FeatureMissing,
            Self::Spread(spread) if spread.domain.is_none() => ReasonCode::TopologyLabelMissing,
            Self::Spread(_) => ReasonCode::TopologySpread,
            Self::PodAffinity { rule, .. } => match rule {
                PodAffinityRule::Affinity => ReasonCode::PodAffinity,
                PodAffinityRule::AntiAffinity => ReasonCode::PodAntiAffinity,
                PodAffinityRule::ExistingAntiAffinity => ReasonCode::ExistingPodsAntiAffinity,
            },
            Self::Devices(_)
            | Self::DeviceConstraint { .. }
            | Self::DeviceCompetition { .. }
            | Self::DevicesTogether
            | Self::DevicesElsewhere { .. }
            | Self::DeviceSearch { .. } => ReasonCode::DevicesUnavailable,
            Self::KubeletRejections { .. } => ReasonCode::KubeletRejections,
            Self::Other { .. } => ReasonCode::Other,
        }
    }

    /// The amount of a resource that is missing; zero for anything else.
    pub fn short(&self) -> i64 {
        match self {
            Self::Resource { wanted, free, .. } => wanted.saturating_sub(*free),
            _ => 0,
        }
    }

    /// Returns whether the node lacks it for the volumes of the pod.
    pub fn is_of_volumes(&self) -> bool {
        matches!(
            self,
            Self::Volume(_) | Self::Volumes { .. } | Self::CsiDriver { .. }
        )
    }

    /// The distance from the requested value, in thousandths of that value. Nodes that lack the same number of things
    /// are ordered by it.
    pub fn per_mille(&self) -> i64 {
        match self {
            Self::Resource { wanted, .. } => self.short().saturating_mul(1000) / (*wanted).max(1),
            Self::Devices(shortage) => {
                let wanted = shortage.wanted.unwrap_or(shortage.matching).max(1);
                let per_mille = shortage.missing().saturating_mul(1000) / wanted;
                i64::try_from(per_mille).unwrap_or(i64::MAX)
            }
            Self::DeviceConstraint { .. }
            | Self::DeviceCompetition { .. }
            | Self::DevicesTogether
            | Self::DevicesElsewhere { .. }
            | Self::DeviceSearch { .. } => 1000,
            _ => 0,
        }
    }
}
