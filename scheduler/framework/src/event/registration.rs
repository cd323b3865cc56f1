//! The events that a plugin registers, and its answers for the pods that it rejected.

use super::{ActionType, Change, ClusterEvent, EventIndex, EventResource, Touched, Waits};
use crate::cluster::Cluster;
use berth_api::{Kind, Pod, Str};
use std::fmt;
use std::sync::Arc;

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
    Pods(Vec<(Str, Str)>),
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
            hint: Some(Arc::new(hint)),
            ..Self::always(resource, action)
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
