//! The API calls that scheduling makes. They are values: the dispatcher orders them, the edge sends them.
//!
//! Every scheduler makes the calls about pods. Everything else is a [`Write`], of a type that the core or a plugin
//! registered.

use crate::cluster::GroupKey;
use crate::object_name::{ObjectKey, ObjectName};
use crate::write::{CallType, POD_BINDING, POD_DELETION, POD_STATUS_PATCH, Write};
use berth_api::{CustomKind, Duration, Kind, Object, Pod, Str};
use std::fmt;
use std::sync::Arc;

/// Identifies a call until its result.
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

/// A condition to write. The edge adds the times.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConditionPatch {
    /// The type, such as `PodScheduled`.
    pub kind: Str,
    /// `True` or `False`.
    pub status: Str,
    /// The reason, for programs.
    pub reason: Str,
    /// The message, for people.
    pub message: Str,
    /// The observed generation of the pod.
    pub observed_generation: Option<i64>,
    /// Whether `status` differs from the current condition of the pod, or the pod has none. If so, the transition time
    /// is set, otherwise it is kept.
    pub status_changes: bool,
}

impl ConditionPatch {
    /// A condition of `pod`, compared with its current one.
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

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Normal operation.
    Normal,
    /// A problem.
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

/// An object that an event names in addition to its pod, such as the preemptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelatedObject {
    /// A pod.
    Pod(PodRef),
    /// A group of pods.
    Group {
        /// The group.
        group: GroupKey,
        /// Its identity.
        uid: Str,
    },
    /// A custom resource.
    Custom {
        /// Its resource.
        resource: CustomKind,
        /// Its kind, such as `DeferredQuota`.
        kind: &'static str,
        /// Its namespace.
        namespace: Str,
        /// Its name.
        name: Str,
        /// Its identity.
        uid: Str,
    },
}

/// An event about a pod. The scheduler adds the reporting component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEvent {
    /// The pod.
    pub regarding: PodRef,
    /// Another object that is related to it.
    pub related: Option<RelatedObject>,
    /// The type.
    pub kind: EventKind,
    /// The reason, such as `FailedScheduling`.
    pub reason: &'static str,
    /// The action, such as `Scheduling`.
    pub action: &'static str,
    /// The note.
    pub note: String,
}

/// A call to the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiCall {
    /// Binds the pod to a node.
    BindPod {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: Str,
    },
    /// Writes conditions, the nominated node, or both into the pod's status.
    PatchPodStatus {
        /// The pod.
        pod: PodRef,
        /// The conditions to set, at most one of each type; of two, the later one counts.
        conditions: Vec<ConditionPatch>,
        /// The nominated node to set (empty to clear it); `None` leaves it.
        nominated_node: Option<Str>,
    },
    /// Removes the PodScheduled condition, whose reason is NotReadyForScheduling (KEP-5501).
    ClearPreEnqueueStatus {
        /// The pod.
        pod: PodRef,
        /// The version of the pod for which the call is valid. The API server answers 409 for any other version, whose
        /// condition may differ. The dispatcher sets it when it sends the call.
        resource_version: Option<Str>,
        /// Conditions of other types to set with it.
        conditions: Vec<ConditionPatch>,
        /// The nominated node to set with it (empty to clear it); `None` leaves it.
        nominated_node: Option<Str>,
    },
    /// Evicts a victim: marks it with a DisruptionTarget condition, then deletes it.
    DeletePod {
        /// The victim.
        pod: PodRef,
        /// The condition with the reason.
        condition: ConditionPatch,
    },
    /// Writes an object of any kind.
    Write(Box<Write>),
}

impl From<Write> for ApiCall {
    fn from(write: Write) -> Self {
        Self::Write(Box::new(write))
    }
}

impl ApiCall {
    /// The pod of the call; `None` for a [`Write`].
    pub fn pod(&self) -> Option<&PodRef> {
        match self {
            Self::BindPod { pod, .. }
            | Self::PatchPodStatus { pod, .. }
            | Self::ClearPreEnqueueStatus { pod, .. }
            | Self::DeletePod { pod, .. } => Some(pod),
            Self::Write(_) => None,
        }
    }

    /// The conditions that the call sets.
    pub fn conditions(&self) -> &[ConditionPatch] {
        match self {
            Self::PatchPodStatus { conditions, .. }
            | Self::ClearPreEnqueueStatus { conditions, .. } => conditions,
            Self::DeletePod { condition, .. } => std::slice::from_ref(condition),
            Self::BindPod { .. } | Self::Write(_) => &[],
        }
    }

    /// The condition of that type that the call sets.
    pub fn condition(&self, kind: &str) -> Option<&ConditionPatch> {
        let mut conditions = self.conditions().iter().rev();
        conditions.find(|condition| condition.kind == *kind)
    }

    /// The key of the object of the call.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::BindPod { pod, .. }
            | Self::PatchPodStatus { pod, .. }
            | Self::ClearPreEnqueueStatus { pod, .. }
            | Self::DeletePod { pod, .. } => ObjectKey {
                kind: Kind::Pod,
                uid: pod.uid.clone(),
            },
            Self::Write(write) => write.key(),
        }
    }

    /// The name of the object of the call.
    pub fn object(&self) -> ObjectName {
        match self {
            Self::BindPod { pod, .. }
            | Self::PatchPodStatus { pod, .. }
            | Self::ClearPreEnqueueStatus { pod, .. }
            | Self::DeletePod { pod, .. } => ObjectName::new(Kind::Pod, &pod.namespace, &pod.name),
            Self::Write(write) => write.object().clone(),
        }
    }

    /// The type of the call; its name is the `call_type` label of the metrics.
    pub fn call_type(&self) -> &'static CallType {
        match self {
            Self::BindPod { .. } => &POD_BINDING,
            Self::PatchPodStatus { .. } | Self::ClearPreEnqueueStatus { .. } => &POD_STATUS_PATCH,
            Self::DeletePod { .. } => &POD_DELETION,
            Self::Write(write) => write.call_type(),
        }
    }
}

/// The reason why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallErrorKind {
    /// The object does not exist.
    NotFound,
    /// Another client changed the object, or its state forbids the call.
    Conflict,
    /// The server was overloaded, restarting or unreachable. The same call can be retried.
    Unavailable,
    /// The call timed out; it may have been carried out.
    Timeout,
    /// The server refused the call. A retry of the same call fails, too.
    Refused,
    /// The call was dropped before it was sent, because it was no longer needed.
    Skipped,
    /// The call was dropped before it was sent, because a newer one replaced it.
    Overwritten,
}

impl CallErrorKind {
    /// Returns whether the call has certainly changed nothing. After the other failures it may have been carried out by
    /// an attempt without an answer, also if a later attempt conflicts with it.
    pub fn is_definite(self) -> bool {
        matches!(self, Self::NotFound | Self::Refused)
    }

    /// Returns whether the answer to the attempt is unknown: it may have been carried out.
    pub fn may_be_done(self) -> bool {
        matches!(self, Self::Timeout | Self::Unavailable)
    }

    /// Returns whether the call was dropped on purpose: nothing failed (D-10).
    pub fn is_dropped(self) -> bool {
        matches!(self, Self::Skipped | Self::Overwritten)
    }
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The kind of failure.
    pub kind: CallErrorKind,
    /// The message of the server or of the transport.
    pub message: String,
    /// The delay before a retry that the server requests (`Retry-After`), if any.
    pub retry_after: Option<Duration>,
}

impl CallError {
    /// A failure of that kind, without `Retry-After`.
    pub fn new(kind: CallErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }
}

/// The answer of the API server to a successful call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Response {
    /// The version of the object after the call. This version and later versions contain the write. `None` if the
    /// server did not report it.
    pub resource_version: Option<Str>,
    /// The object after the call, as JSON; empty if it is not needed.
    pub body: Arc<[u8]>,
}

impl Response {
    /// The call created this version of its object.
    pub fn written(resource_version: impl Into<Str>) -> Self {
        Self {
            resource_version: Some(resource_version.into()),
            ..Self::default()
        }
    }

    /// The object in the answer.
    ///
    /// # Errors
    /// When the answer has no object of that kind.
    pub fn object(&self, kind: Kind) -> Result<Object, NoObjectError> {
        let decoded = kind.decode(&self.body);
        decoded.map_err(|error| NoObjectError {
            kind: kind.name(),
            error,
        })
    }
}

/// An answer without version and object.
impl From<()> for Response {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// The answer to a call has no object of the kind that is read.
#[derive(Debug, thiserror::Error)]
#[error("failed to decode the {kind} in the answer: {error}")]
pub struct NoObjectError {
    /// The kind.
    pub kind: &'static str,
    /// The fault of the answer.
    pub error: serde_json::Error,
}

/// The outcome of a call.
pub type CallResult = Result<Response, CallError>;

/// The reason why a type of calls cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallTypeError {
    /// Another type has the name.
    #[error("the API call type {name:?} is registered twice, with different settings")]
    Name {
        /// The name.
        name: &'static str,
    },
    /// Another type for the same kind has the same relevance.
    #[error(
        "the API call types {name:?} and {other:?} for {kind} have the same relevance {relevance}; of two calls about \
         one object it would not be clear which takes precedence"
    )]
    Relevance {
        /// The name.
        name: &'static str,
        /// The type that was registered before.
        other: &'static str,
        /// The kind.
        kind: &'static str,
        /// The relevance.
        relevance: u8,
    },
}
