//! The API calls that scheduling makes. They are values: the dispatcher orders them, the edge sends them.

use crate::storage::StorageWrite;
use berth_api::{Duration, Kind, Object, Pod, Str};
use std::fmt;

/// Names a call from when it is made until its result is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// The pod that a call is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
    /// Its identity.
    pub uid: Str,
}

impl PodRef {
    /// A reference to `pod`.
    pub fn of(pod: &Pod) -> Self {
        Self {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        }
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The name of an object: there is at most one object of that name at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
}

impl ObjectName {
    /// The object of that name.
    pub fn new(kind: Kind, namespace: &Str, name: &Str) -> Self {
        Self {
            kind,
            namespace: namespace.clone(),
            name: name.clone(),
        }
    }

    /// The name of `object`.
    pub fn of(object: &Object) -> Self {
        let meta = object.metadata();
        Self::new(object.kind(), &meta.namespace, &meta.name)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, _, plural) = self.kind.resource();
        if self.namespace.is_empty() {
            write!(f, "{plural}/{}", self.name)
        } else {
            write!(f, "{plural}/{}/{}", self.namespace, self.name)
        }
    }
}

/// What calls go by: those with equal keys are about one object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// The object's kind.
    pub kind: Kind,
    /// The object's identity.
    pub uid: Str,
}

/// A condition as it is to be written. Times are added by whoever writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConditionPatch {
    /// The type, such as `PodScheduled`.
    pub kind: Str,
    /// `True` or `False`.
    pub status: Str,
    /// Why, for programs.
    pub reason: Str,
    /// Why, for people.
    pub message: Str,
    /// The generation of the pod that this speaks of.
    pub observed_generation: Option<i64>,
    /// Whether the pod said another `status` before, or none: then the transition time is set, else it stays.
    pub status_changes: bool,
}

impl ConditionPatch {
    /// A condition of `pod` as it is now to read.
    pub fn of(pod: &Pod, kind: &str, status: &str, reason: &str, message: &str) -> Self {
        Self {
            kind: kind.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            observed_generation: pod.metadata.generation,
            status_changes: pod.condition(kind).is_none_or(|c| c.status != status),
        }
    }
}

/// How grave an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Things go their way.
    Normal,
    /// Somebody may have to look.
    Warning,
}

impl EventKind {
    /// The `type` of the API's event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Something that happened to a pod, to be published for people. Who reports it is added by the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEvent {
    /// The pod.
    pub regarding: PodRef,
    /// Another pod that had a part in it.
    pub related: Option<PodRef>,
    /// How grave it is.
    pub kind: EventKind,
    /// Why, for programs, such as `FailedScheduling`.
    pub reason: &'static str,
    /// What was being done, such as `Scheduling`.
    pub action: &'static str,
    /// What happened, for people.
    pub note: String,
}

/// A call to the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiCall {
    /// Gives the pod its node.
    BindPod {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: Str,
    },
    /// Writes a condition, the nominated node, or both into the pod's status.
    PatchPodStatus {
        /// The pod.
        pod: PodRef,
        /// The condition to set, if any.
        condition: Option<ConditionPatch>,
        /// The nominated node to set (empty to clear it); `None` leaves it.
        nominated_node: Option<Str>,
    },
    /// Removes the PodScheduled condition where its reason is NotReadyForScheduling (KEP-5501).
    ClearPreEnqueueStatus {
        /// The pod.
        pod: PodRef,
        /// The nominated node to set on the way (empty to clear it); `None` leaves it.
        nominated_node: Option<Str>,
    },
    /// Evicts a victim: marks it with a DisruptionTarget condition, then deletes it.
    DeletePod {
        /// The victim.
        pod: PodRef,
        /// The condition that tells why.
        condition: ConditionPatch,
    },
    /// Writes into a volume or a claim.
    UpdateStorage(StorageWrite),
}

impl ApiCall {
    /// The pod that the call is about, if it is about a pod.
    pub fn pod(&self) -> Option<&PodRef> {
        match self {
            Self::BindPod { pod, .. }
            | Self::PatchPodStatus { pod, .. }
            | Self::ClearPreEnqueueStatus { pod, .. }
            | Self::DeletePod { pod, .. } => Some(pod),
            Self::UpdateStorage(_) => None,
        }
    }

    /// What the call is about.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::BindPod { pod, .. }
            | Self::PatchPodStatus { pod, .. }
            | Self::ClearPreEnqueueStatus { pod, .. }
            | Self::DeletePod { pod, .. } => ObjectKey {
                kind: Kind::Pod,
                uid: pod.uid.clone(),
            },
            Self::UpdateStorage(write) => write.key(),
        }
    }

    /// The name of what the call is about.
    pub fn object(&self) -> ObjectName {
        match self {
            Self::BindPod { pod, .. }
            | Self::PatchPodStatus { pod, .. }
            | Self::ClearPreEnqueueStatus { pod, .. }
            | Self::DeletePod { pod, .. } => ObjectName::new(Kind::Pod, &pod.namespace, &pod.name),
            Self::UpdateStorage(write) => write.object.clone(),
        }
    }

    /// The `call_type` label of the metrics.
    pub fn call_type(&self) -> &'static str {
        match self {
            Self::BindPod { .. } => "pod_binding",
            Self::PatchPodStatus { .. } | Self::ClearPreEnqueueStatus { .. } => "pod_status_patch",
            Self::DeletePod { .. } => "pod_deletion",
            Self::UpdateStorage(write) if write.object.kind == Kind::PersistentVolume => {
                "persistent_volume_update"
            }
            Self::UpdateStorage(_) => "persistent_volume_claim_update",
        }
    }
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallErrorKind {
    /// The object is not there (any more).
    NotFound,
    /// Somebody else wrote first, or the state of the object forbids the call.
    Conflict,
    /// The server was too busy, restarting or out of reach: worth another try as it is.
    Unavailable,
    /// The call took too long; it may have been carried out.
    Timeout,
    /// The server refused: not worth repeating unchanged.
    Refused,
    /// The call was dropped before it was sent, as it had become needless.
    Skipped,
    /// The call was dropped before it was sent, as a newer one took its place.
    Overwritten,
}

impl CallErrorKind {
    /// Whether the call was dropped on purpose: nothing failed (D-10).
    pub fn is_dropped(self) -> bool {
        matches!(self, Self::Skipped | Self::Overwritten)
    }
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// What kind of failure.
    pub kind: CallErrorKind,
    /// The server's words, or those of the transport.
    pub message: String,
    /// How long the server asks to be left alone before another try (`Retry-After`); `None` when it does not say.
    pub retry_after: Option<Duration>,
}

impl CallError {
    /// A failure of that kind, of a server that names no time for another try.
    pub fn new(kind: CallErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }
}

/// The outcome of a call, for whoever waits for it.
pub type CallResult = Result<(), CallError>;

/// What the edge brings back of a call that it has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAnswer {
    /// How it went.
    pub result: CallResult,
    /// The version that the call made of its object, as the server told: an update that shows this version or a later
    /// one shows what was written. `None` when the server did not tell.
    pub resource_version: Option<Str>,
}

impl CallAnswer {
    /// The call has made this version of its object.
    pub fn written(resource_version: impl Into<Str>) -> Self {
        Self {
            result: Ok(()),
            resource_version: Some(resource_version.into()),
        }
    }
}

/// An answer that tells no version.
impl From<CallResult> for CallAnswer {
    fn from(result: CallResult) -> Self {
        Self {
            result,
            resource_version: None,
        }
    }
}
