//! Cluster events, and the registration of events that may help a pod rejected by a plugin.

mod derived;
mod index;

pub use derived::{Versions, Wanted};
pub use index::{EventIndex, Touched, TouchedFn, WaitKey, Waits, WaitsFn};

use crate::cluster::Cluster;
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

/// Whether a pod is queued for another attempt because of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hint {
    /// It may help.
    Queue,
    /// It cannot help.
    Skip,
}

impl Hint {
    /// [`Hint::Queue`] if the event may help, [`Hint::Skip`] otherwise.
    pub fn queue_if(helps: bool) -> Self {
        if helps { Self::Queue } else { Self::Skip }
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

/// The reason why a hint has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HintError {
    /// The change is about an object of another kind.
    #[error("expected {expected}, got a {found:?}")]
    OtherKind {
        /// The kind of the registration, with its article.
        expected: &'static str,
        /// The kind of the object.
        found: Kind,
    },
    /// The change has no object.
    #[error("expected {expected}, got no object")]
    NoObject {
        /// The kind of the registration, with its article.
        expected: &'static str,
    },
    /// The change has no object before it, or none after it.
    #[error("expected two versions of {expected}")]
    OneVersion {
        /// The kind of the registration, with its article.
        expected: &'static str,
    },
    /// The waiting pod or the changed pod cannot be parsed.
    #[error("{place} {pod}: {error}")]
    Pod {
        /// The part of the pod.
        place: &'static str,
        /// The pod, `namespace/name`.
        pod: String,
        /// The fault.
        error: String,
    },
    /// The plugin failed.
    #[error("{0}")]
    Failed(String),
}

impl From<&str> for HintError {
    fn from(text: &str) -> Self {
        Self::Failed(text.to_owned())
    }
}

/// Decides whether a change may help `pod`. An error counts as [`Hint::Queue`] and is logged.
pub type HintFn = Arc<dyn Fn(&Cluster, &Pod, Change<'_>) -> Result<Hint, HintError> + Send + Sync>;

/// The pods that a change can help (KEP-6132).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Narrowed {
    /// Any pod.
    AllPods,
    /// Only these pods, as namespace and name. No hint is called for other pods.
    Pods(Vec<(berth_api::Str, berth_api::Str)>),
}

/// Names the pods that a change can help, once per event and registration. An error counts as
/// [`Narrowed::AllPods`] and is logged.
pub type PreQueueingHintFn =
    Arc<dyn Fn(&Cluster, Change<'_>) -> Result<Narrowed, HintError> + Send + Sync>;

/// The registration of a plugin: an event, and its answer for a pod when the event occurs.
#[derive(Clone)]
pub struct EventRegistration {
    /// The events.
    pub event: ClusterEvent,
    /// Decides per pod; without one the answer is [`Hint::Queue`].
    pub hint: Option<HintFn>,
    /// Called if `hint` returns Skip, for cases that kube-scheduler's hint misses. `hint` alone gives kube-scheduler's
    /// answer.
    pub supplement: Option<HintFn>,
    /// Whether kube-scheduler's plugin does not receive these events, so that only `supplement` decides.
    pub is_supplementary: bool,
    /// Limits the pods for which `hint` is called.
    pub pre_queueing_hint: Option<PreQueueingHintFn>,
    /// Whether `pre_queueing_hint` applies without the gate SchedulerPreQueueingHints as well.
    pub always_narrows: bool,
    /// Selects the pods for which `hint` is called by the keys that they wait for.
    pub index: Option<EventIndex>,
}

impl EventRegistration {
    /// Every such event queues every pod that the plugin rejected.
    pub fn always(resource: EventResource, action: ActionType) -> Self {
        Self {
            event: ClusterEvent::new(resource, action),
            hint: None,
            supplement: None,
            is_supplementary: false,
            pre_queueing_hint: None,
            always_narrows: false,
            index: None,
        }
    }

    /// Such an event queues the pods for which `hint` returns Queue.
    pub fn with_hint(
        resource: EventResource,
        action: ActionType,
        hint: impl Fn(&Cluster, &Pod, Change<'_>) -> Result<Hint, HintError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            event: ClusterEvent::new(resource, action),
            hint: Some(Arc::new(hint)),
            supplement: None,
            is_supplementary: false,
            pre_queueing_hint: None,
            always_narrows: false,
            index: None,
        }
    }

    /// Such an event queues the pods for which `supplement` returns Queue. For events that no plugin of kube-scheduler
    /// receives; see [`EventRegistration::supplement`].
    pub fn supplementary(
        resource: EventResource,
        action: ActionType,
        supplement: impl Fn(&Cluster, &Pod, Change<'_>) -> Result<Hint, HintError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let registration =
            Self::with_hint(resource, action, |_, _, _| Ok(Hint::Skip)).supplemented_by(supplement);
        Self {
            is_supplementary: true,
            ..registration
        }
    }

    /// Adds an answer for cases that the hint misses; see [`EventRegistration::supplement`].
    #[must_use]
    pub fn supplemented_by(
        mut self,
        supplement: impl Fn(&Cluster, &Pod, Change<'_>) -> Result<Hint, HintError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.supplement = Some(Arc::new(supplement));
        self
    }
}

impl EventRegistration {
    /// Limits an event to the pods that `narrow` returns (KEP-6132). Other pods are not queued, so `narrow` must return
    /// every pod that the event can help.
    #[must_use]
    pub fn narrowed_by(
        mut self,
        narrow: impl Fn(&Cluster, Change<'_>) -> Result<Narrowed, HintError> + Send + Sync + 'static,
    ) -> Self {
        self.pre_queueing_hint = Some(Arc::new(narrow));
        self
    }

    /// Narrows the pods without SchedulerPreQueueingHints, too: for events that kube-scheduler does not have.
    #[must_use]
    pub fn with_every_version(mut self) -> Self {
        self.always_narrows = true;
        self
    }

    /// Indexes each pod by the keys that it waits for. The hint is called only for pods with a key that the event
    /// touches, and other pods are not queued. The index must therefore find every pod that the hint or its supplement
    /// would queue; see [`Waits`] and [`Touched`].
    #[must_use]
    pub fn found_by(
        mut self,
        waits: impl Fn(&Pod) -> Waits + Send + Sync + 'static,
        touched: impl Fn(&Cluster, Change<'_>) -> Touched + Send + Sync + 'static,
    ) -> Self {
        self.index = Some(EventIndex {
            waits: Some(Arc::new(waits)),
            touched: Arc::new(touched),
        });
        self
    }

    /// As [`EventRegistration::found_by`], if the change alone determines the pods: all, none, or one.
    #[must_use]
    pub fn touching(
        mut self,
        touched: impl Fn(&Cluster, Change<'_>) -> Touched + Send + Sync + 'static,
    ) -> Self {
        self.index = Some(EventIndex {
            waits: None,
            touched: Arc::new(touched),
        });
        self
    }
}

impl fmt::Debug for EventRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRegistration")
            .field("event", &self.event)
            .field("has_hint", &self.hint.is_some())
            .field("narrows", &self.pre_queueing_hint.is_some())
            .field("index", &self.index)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(resource: EventResource, action: ActionType) -> ClusterEvent {
        ClusterEvent::new(resource, action)
    }

    /// resource equal, bits overlap, and the incoming action is numerically covered.
    #[test]
    fn a_registration_matches_what_it_covers() {
        use ActionType as A;
        use EventResource as R;
        for (registered, raised, received) in [
            (
                event(R::Pod, A::DELETE),
                event(R::AssignedPod, A::DELETE),
                true,
            ),
            (
                event(R::Pod, A::ADD),
                event(R::AssignedPod, A::DELETE),
                false,
            ),
            (
                event(R::Node, A::ADD | A::UPDATE_NODE_TAINT),
                event(R::Node, A::UPDATE_NODE_TAINT),
                true,
            ),
            (event(R::Node, A::ADD), event(R::Pod, A::ADD), false),
            (
                event(R::Pod, A::UPDATE_POD_LABEL),
                event(R::UnschedulablePod, A::UPDATE),
                false,
            ),
            (
                event(R::Pod, A::UPDATE),
                event(R::UnschedulablePod, A::UPDATE),
                true,
            ),
            (event(R::Wildcard, A::ALL), event(R::Node, A::ADD), true),
        ] {
            assert_eq!(
                registered.matches(&raised),
                received,
                "{registered:?} receives {raised:?}"
            );
        }
    }

    /// the numbers are kube-scheduler's, because their order decides which registration receives an event.
    #[test]
    fn actions_are_bits() {
        let numbers: Vec<u32> = ActionType::ALL.bits().map(|(bit, _)| bit.0).collect();
        assert_eq!(
            numbers,
            [
                1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384
            ]
        );
        let names: Vec<&str> = ActionType::ALL.bits().map(|(_, name)| name).collect();
        assert_eq!(
            names.join(" "),
            "Add Delete UpdateNodeAllocatable UpdateNodeLabel UpdateNodeTaint UpdateNodeCondition UpdateNodeAnnotation UpdateNodeDeclaredFeature UpdateNodePreemptionPolicy UpdatePodLabel UpdatePodScaleDown UpdatePodScaleUp UpdatePodToleration UpdatePodSchedulingGatesEliminated UpdatePodGeneratedResourceClaim"
        );
        assert_eq!((ActionType::UPDATE.0, ActionType::ALL.0), (32764, 32767));
        assert_eq!(ActionType::default().0, 0);
        assert_eq!(ActionType::UPDATE.bits().count(), 13);
    }

    /// the names of resources, and which events a registration for each receives.
    #[test]
    fn resources_have_names() {
        use EventResource as R;
        let other = R::Other("foos.v1.example.com".into());
        for (resource, name) in [
            (R::Pod, "Pod"),
            (R::AssignedPod, "AssignedPod"),
            (R::UnschedulablePod, "UnschedulablePod"),
            (R::UnscheduledPod, "UnscheduledPod"),
            (R::TargetPod, "TargetPod"),
            (R::Node, "Node"),
            (R::PersistentVolume, "PersistentVolume"),
            (R::PersistentVolumeClaim, "PersistentVolumeClaim"),
            (R::CsiNode, "storage.k8s.io/CSINode"),
            (R::CsiDriver, "storage.k8s.io/CSIDriver"),
            (R::VolumeAttachment, "storage.k8s.io/VolumeAttachment"),
            (R::CsiStorageCapacity, "storage.k8s.io/CSIStorageCapacity"),
            (R::StorageClass, "storage.k8s.io/StorageClass"),
            (R::ResourceClaim, "resource.k8s.io/ResourceClaim"),
            (R::ResourceSlice, "resource.k8s.io/ResourceSlice"),
            (R::DeviceClass, "resource.k8s.io/DeviceClass"),
            (R::PodGroup, "scheduling.k8s.io/PodGroup"),
            (R::CompositePodGroup, "scheduling.k8s.io/CompositePodGroup"),
            (R::Wildcard, "*"),
            (other.clone(), "foos.v1.example.com"),
        ] {
            assert_eq!(resource.as_str(), name);
            assert!(resource.matches(&resource) && R::Wildcard.matches(&resource));
            let is_pod = name.ends_with("Pod");
            assert_eq!(R::Pod.matches(&resource), is_pod, "{name}");
            assert_eq!(resource.is_pod(), is_pod, "{name}");
        }
        assert!(
            R::TargetPod.matches(&R::UnschedulablePod) && !R::TargetPod.matches(&R::UnscheduledPod)
        );
        assert!(!R::AssignedPod.matches(&R::UnschedulablePod));
        assert_eq!(R::of_kind(Kind::Pod), R::Pod);
        for kind in Kind::ALL {
            let known = !matches!(R::of_kind(*kind), R::Other(_));
            let (group, version, plural) = kind.resource();
            let name = R::of_kind(*kind);
            let named = known || name.as_str() == format!("{plural}.{version}.{group}");
            assert!(named, "{kind:?}: {name:?}");
        }
    }

    ///
    #[test]
    fn labels_are_those_of_the_metrics() {
        for (event, label) in [
            (
                event(EventResource::AssignedPod, ActionType::ADD),
                "AssignedPodAdd",
            ),
            (
                event(EventResource::UnschedulablePod, ActionType::UPDATE),
                "UnschedulablePodUpdate",
            ),
            (
                event(EventResource::Node, ActionType::UPDATE_NODE_LABEL),
                "NodeUpdateNodeLabel",
            ),
            (
                ClusterEvent::wildcard("UnschedulableTimeout"),
                "UnschedulableTimeout",
            ),
        ] {
            assert_eq!(event.label(), label);
        }
    }
}
