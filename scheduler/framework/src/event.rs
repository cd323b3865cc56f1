//! Cluster events, and the registration of events that may help a pod rejected by a plugin.

mod derived;
mod index;
mod registration;
#[cfg(test)]
mod tests;

pub use derived::{Versions, Wanted};
pub use index::{EventIndex, Touched, TouchedFn, WaitKey, Waits, WaitsFn};
pub use registration::{EventRegistration, Hint, HintError, HintFn, Narrowed, PreQueueingHintFn};

use crate::features::{Behaviour, FeatureGates};
use berth_api::{Kind, Object, Pod};
use std::fmt;
use std::sync::Arc;

/// The change of an object, as a set of bits. The numbers are kube-scheduler's: their order decides which
/// registrations a generic update matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ActionType(pub u32);

impl ActionType {
    /// The object is new.
    pub const ADD: Self = Self(1);
    /// The object was deleted.
    pub const DELETE: Self = Self(1 << 1);
    /// The allocatable resources of the node have changed.
    pub const UPDATE_NODE_ALLOCATABLE: Self = Self(1 << 2);
    /// The node's labels have changed.
    pub const UPDATE_NODE_LABEL: Self = Self(1 << 3);
    /// The node's taints have changed, or it was uncordoned.
    pub const UPDATE_NODE_TAINT: Self = Self(1 << 4);
    /// The status of one of the node's conditions has changed.
    pub const UPDATE_NODE_CONDITION: Self = Self(1 << 5);
    /// The node's annotations have changed.
    pub const UPDATE_NODE_ANNOTATION: Self = Self(1 << 6);
    /// The features that the node declares have changed.
    pub const UPDATE_NODE_DECLARED_FEATURE: Self = Self(1 << 7);
    /// The pod preemption policy of the node has changed.
    pub const UPDATE_NODE_PREEMPTION_POLICY: Self = Self(1 << 8);
    /// The pod's labels have changed.
    pub const UPDATE_POD_LABEL: Self = Self(1 << 9);
    /// The pod requests less of something.
    pub const UPDATE_POD_SCALE_DOWN: Self = Self(1 << 10);
    /// The pod requests more of something.
    pub const UPDATE_POD_SCALE_UP: Self = Self(1 << 11);
    /// The number of the pod's tolerations has changed.
    pub const UPDATE_POD_TOLERATION: Self = Self(1 << 12);
    /// The pod's last scheduling gate was removed.
    pub const UPDATE_POD_SCHEDULING_GATES_ELIMINATED: Self = Self(1 << 13);
    /// The pod's generated resource claims have changed.
    pub const UPDATE_POD_GENERATED_RESOURCE_CLAIM: Self = Self(1 << 14);
    /// Every update, the generic one included.
    pub const UPDATE: Self = Self((1 << 15) - 4);
    /// Everything.
    pub const ALL: Self = Self((1 << 15) - 1);

    const NAMES: [(Self, &'static str); 15] = [
        (Self::ADD, "Add"),
        (Self::DELETE, "Delete"),
        (Self::UPDATE_NODE_ALLOCATABLE, "UpdateNodeAllocatable"),
        (Self::UPDATE_NODE_LABEL, "UpdateNodeLabel"),
        (Self::UPDATE_NODE_TAINT, "UpdateNodeTaint"),
        (Self::UPDATE_NODE_CONDITION, "UpdateNodeCondition"),
        (Self::UPDATE_NODE_ANNOTATION, "UpdateNodeAnnotation"),
        (
            Self::UPDATE_NODE_DECLARED_FEATURE,
            "UpdateNodeDeclaredFeature",
        ),
        (
            Self::UPDATE_NODE_PREEMPTION_POLICY,
            "UpdateNodePreemptionPolicy",
        ),
        (Self::UPDATE_POD_LABEL, "UpdatePodLabel"),
        (Self::UPDATE_POD_SCALE_DOWN, "UpdatePodScaleDown"),
        (Self::UPDATE_POD_SCALE_UP, "UpdatePodScaleUp"),
        (Self::UPDATE_POD_TOLERATION, "UpdatePodToleration"),
        (
            Self::UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
            "UpdatePodSchedulingGatesEliminated",
        ),
        (
            Self::UPDATE_POD_GENERATED_RESOURCE_CLAIM,
            "UpdatePodGeneratedResourceClaim",
        ),
    ];

    /// Both sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the sets share a bit.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether every bit of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The single bits of the set, lowest first, with their names.
    pub fn bits(self) -> impl Iterator<Item = (Self, &'static str)> {
        Self::NAMES
            .into_iter()
            .filter(move |(bit, _)| self.intersects(*bit))
    }

    /// The name in event labels, such as `Add`, `Update` or `UpdateNodeTaint`.
    pub fn label(self) -> &'static str {
        match self {
            Self::ALL => "All",
            Self::UPDATE => "Update",
            _ => self.bits().next().map_or("", |(_, name)| name),
        }
    }
}

impl std::ops::BitOr for ActionType {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.or(other)
    }
}

/// The kind of object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventResource {
    /// Pods. It matches the four following kinds.
    Pod,
    /// A pod with a node.
    AssignedPod,
    /// A pod without a node, until Kubernetes 1.36. Only raised, never registered for.
    UnschedulablePod,
    /// Another pod without a node, since Kubernetes 1.37.
    UnscheduledPod,
    /// The waiting pod itself, since Kubernetes 1.37. A registration for it receives
    /// [`EventResource::UnschedulablePod`] in older releases.
    TargetPod,
    /// Nodes.
    Node,
    /// Persistent volumes.
    PersistentVolume,
    /// Persistent volume claims.
    PersistentVolumeClaim,
    /// CSI nodes.
    CsiNode,
    /// CSI drivers.
    CsiDriver,
    /// Volume attachments.
    VolumeAttachment,
    /// CSI storage capacities.
    CsiStorageCapacity,
    /// Storage classes.
    StorageClass,
    /// Resource claims.
    ResourceClaim,
    /// Resource slices.
    ResourceSlice,
    /// Device classes.
    DeviceClass,
    /// Pod groups.
    PodGroup,
    /// Composite pod groups.
    CompositePodGroup,
    /// The remembered rejections by the kubelet of a node; not an object of the API. See
    /// [`Rejections`](crate::cluster::Rejections).
    KubeletRejections,
    /// Every kind.
    Wildcard,
    /// Any other kind, written `plural.version.group`.
    Other(Arc<str>),
}

impl EventResource {
    /// The resource of events on objects of a kind; for pods [`EventResource::Pod`], with or without a node.
    pub fn of_kind(kind: Kind) -> Self {
        match kind {
            Kind::Pod => Self::Pod,
            Kind::Node => Self::Node,
            Kind::PersistentVolume => Self::PersistentVolume,
            Kind::PersistentVolumeClaim => Self::PersistentVolumeClaim,
            Kind::StorageClass => Self::StorageClass,
            Kind::CsiNode => Self::CsiNode,
            Kind::CsiDriver => Self::CsiDriver,
            Kind::CsiStorageCapacity => Self::CsiStorageCapacity,
            Kind::VolumeAttachment => Self::VolumeAttachment,
            Kind::DeviceClass => Self::DeviceClass,
            Kind::ResourceClaim => Self::ResourceClaim,
            Kind::ResourceSlice => Self::ResourceSlice,
            Kind::PodGroup => Self::PodGroup,
            Kind::CompositePodGroup => Self::CompositePodGroup,
            other => {
                let (group, version, plural) = other.resource();
                Self::Other(format!("{plural}.{version}.{group}").into())
            }
        }
    }

    /// The name in event labels.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pod => "Pod",
            Self::AssignedPod => "AssignedPod",
            Self::UnschedulablePod => "UnschedulablePod",
            Self::UnscheduledPod => "UnscheduledPod",
            Self::TargetPod => "TargetPod",
            Self::Node => "Node",
            Self::PersistentVolume => "PersistentVolume",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::CsiNode => "storage.k8s.io/CSINode",
            Self::CsiDriver => "storage.k8s.io/CSIDriver",
            Self::VolumeAttachment => "storage.k8s.io/VolumeAttachment",
            Self::CsiStorageCapacity => "storage.k8s.io/CSIStorageCapacity",
            Self::StorageClass => "storage.k8s.io/StorageClass",
            Self::ResourceClaim => "resource.k8s.io/ResourceClaim",
            Self::ResourceSlice => "resource.k8s.io/ResourceSlice",
            Self::DeviceClass => "resource.k8s.io/DeviceClass",
            Self::PodGroup => "scheduling.k8s.io/PodGroup",
            Self::CompositePodGroup => "scheduling.k8s.io/CompositePodGroup",
            Self::KubeletRejections => "KubeletRejections",
            Self::Wildcard => "*",
            Self::Other(name) => name,
        }
    }

    /// Returns whether a registration for this resource receives events on `raised`.
    pub fn matches(&self, raised: &Self) -> bool {
        self == raised
            || match self {
                Self::Wildcard => true,
                Self::Pod => raised.is_pod(),
                Self::UnscheduledPod | Self::TargetPod => *raised == Self::UnschedulablePod,
                _ => false,
            }
    }

    /// Returns whether events of this resource are about pods.
    pub fn is_pod(&self) -> bool {
        matches!(
            self,
            Self::Pod
                | Self::AssignedPod
                | Self::UnschedulablePod
                | Self::UnscheduledPod
                | Self::TargetPod
        )
    }

    /// The resource of events on pods without a node: of the waiting pod itself, or of another one.
    pub fn of_unassigned(features: &FeatureGates, is_itself: bool) -> Self {
        match (features.has(Behaviour::PodEventsNameTheTarget), is_itself) {
            (false, _) => Self::UnschedulablePod,
            (true, true) => Self::TargetPod,
            (true, false) => Self::UnscheduledPod,
        }
    }
}

/// A change in the cluster, or a set of changes that a plugin registers for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClusterEvent {
    /// The kind of the object.
    pub resource: EventResource,
    /// The action.
    pub action: ActionType,
    /// A name of its own instead of resource and action, for events that no object causes.
    pub custom_label: Option<&'static str>,
}

impl ClusterEvent {
    /// A node is no longer excluded for the pods of a template.
    pub const REJECTIONS_OVER: Self =
        Self::new(EventResource::KubeletRejections, ActionType::UPDATE);

    /// An event named after its resource and action.
    pub const fn new(resource: EventResource, action: ActionType) -> Self {
        Self {
            resource,
            action,
            custom_label: None,
        }
    }

    /// An event on everything, under a name of its own.
    pub const fn wildcard(label: &'static str) -> Self {
        Self {
            resource: EventResource::Wildcard,
            action: ActionType::ALL,
            custom_label: Some(label),
        }
    }

    /// Returns whether this is an event on everything.
    pub fn is_wildcard(&self) -> bool {
        self.resource == EventResource::Wildcard && self.action == ActionType::ALL
    }

    /// Returns whether a registration for this event receives `raised`.
    pub fn matches(&self, raised: &Self) -> bool {
        self.is_wildcard()
            || (self.resource.matches(&raised.resource)
                && self.action.intersects(raised.action)
                && raised.action <= self.action)
    }

    /// The label of the event in metrics, such as `AssignedPodAdd`.
    pub fn label(&self) -> String {
        let mut label = String::new();
        self.write_label(&mut label);
        label
    }

    /// Replaces a text with [`ClusterEvent::label`]. Its memory is reused, because every change of every object needs a
    /// label.
    pub fn write_label(&self, text: &mut String) {
        text.clear();
        match self.custom_label {
            Some(label) => text.push_str(label),
            None => {
                text.push_str(self.resource.as_str());
                text.push_str(self.action.label());
            }
        }
    }
}

impl fmt::Display for ClusterEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

/// An object before and after a change: `old` is absent if it was added, `new` if it was deleted.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Before.
    pub old: Option<&'a Object>,
    /// After.
    pub new: Option<&'a Object>,
}

impl<'a> Change<'a> {
    /// The pod before the change, if the object is a pod.
    pub fn old_pod(&self) -> Option<&'a Pod> {
        Some(self.old?.as_pod()?)
    }

    /// The pod after the change, if the object is a pod.
    pub fn new_pod(&self) -> Option<&'a Pod> {
        Some(self.new?.as_pod()?)
    }

    /// Returns whether the change is about this pod or an earlier version of it.
    pub fn is_about(&self, pod: &Pod) -> bool {
        let changed = self.new_pod().or_else(|| self.old_pod());
        changed.is_some_and(|changed| changed.uid() == pod.uid())
    }

    /// The namespace after the change, if the object is a namespace.
    pub fn new_namespace(&self) -> Option<&'a berth_api::Namespace> {
        Some(self.new?.as_namespace()?)
    }

    /// The node after the change, if the object is a node.
    pub fn new_node(&self) -> Option<&'a berth_api::Node> {
        Some(self.new?.as_node()?)
    }
}
