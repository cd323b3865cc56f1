//! The API calls that scheduling makes. They are values: the dispatcher orders them, the edge sends them.
//!
//! About pods there are the calls that every scheduler makes. Everything else is a [`Write`], of a type that the core or
//! a plugin has registered.

use crate::write::{CallType, POD_BINDING, POD_DELETION, POD_STATUS_PATCH, Write};
use berth_api::{Duration, Kind, Object, Pod, Str};
use std::fmt;
use std::sync::Arc;

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
    /// Writes an object of any kind.
    Write(Box<Write>),
}

impl From<Write> for ApiCall {
    fn from(write: Write) -> Self {
        Self::Write(Box::new(write))
    }
}

impl ApiCall {
    /// The pod that the call is about, if it is one of those that every scheduler makes.
    pub fn pod(&self) -> Option<&PodRef> {
        match self {
            Self::BindPod { pod, .. }
            | Self::PatchPodStatus { pod, .. }
            | Self::ClearPreEnqueueStatus { pod, .. }
            | Self::DeletePod { pod, .. } => Some(pod),
            Self::Write(_) => None,
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
            Self::Write(write) => write.key(),
        }
    }

    /// The name of what the call is about.
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

/// What the API server answered to a call that it carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Response {
    /// The version of the object that the call made: an update that shows this version or a later one shows what was
    /// written. `None` when the server did not say.
    pub resource_version: Option<Str>,
    /// The object as the server has it now, as JSON; empty when nobody needs it.
    pub body: Arc<[u8]>,
}

impl Response {
    /// The call has made this version of its object.
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
    pub fn object(&self, kind: Kind) -> Result<Object, String> {
        kind.decode(&self.body).map_err(|error| {
            format!(
                "failed to decode the {} in the answer: {error}",
                kind.name()
            )
        })
    }
}

/// An answer that says nothing but that the call was carried out.
impl From<()> for Response {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// The outcome of a call.
pub type CallResult = Result<Response, CallError>;
