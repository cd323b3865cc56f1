//! What the user is told of pods that PreEnqueue keeps out (KEP-5501; ).
//!
//! The queue decides *whether* there is something new to tell; writing it, after a delay and merged with other
//! writes, is the dispatcher's.

use super::entry::QueuedPodInfo;
use berth_api::{Pod, Str};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use std::borrow::Cow;
use std::sync::Arc;

pub use berth_framework::plugin::{NOT_READY_FOR_SCHEDULING, SCHEDULING_GATED};

/// The reason that a cycle writes when it found no room; autoscalers act on it.
const UNSCHEDULABLE: &str = "Unschedulable";
/// The condition that tells whether a pod is scheduled.
pub(crate) const POD_SCHEDULED: &str = "PodScheduled";

/// Something to tell the user of a pod that is not ready or has become so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreEnqueueReport {
    /// A plugin keeps the pod out, and says so with a message that the pod does not carry yet.
    Rejected {
        /// The pod.
        pod: Arc<Pod>,
        /// The plugin.
        plugin: Str,
        /// The reason of the condition; see
        /// [`PreEnqueue::condition_reason`](berth_framework::plugin::PreEnqueue::condition_reason).
        reason: &'static str,
        /// Its message.
        message: Str,
    },
    /// Every plugin lets the pod in, and it carries (or is about to carry) a rejection: clear it.
    Passed {
        /// The pod.
        pod: Arc<Pod>,
    },
}

impl PreEnqueueReport {
    /// The pod that the report is about.
    pub fn pod(&self) -> &Arc<Pod> {
        match self {
            Self::Rejected { pod, .. } | Self::Passed { pod } => pod,
        }
    }

    /// The reason of the condition to write; `None` when it is to be cleared. A rejection because of scheduling gates
    /// keeps the API server's reason.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Rejected { reason, .. } => Some(reason),
            Self::Passed { .. } => None,
        }
    }
}

/// The last rejection that the user was told of (KEP-5501's LastPreEnqueueRejectionMessage).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Remembered {
    /// Unknown as yet: what the pod carries counts.
    #[default]
    FromPod,
    /// Nothing, whatever the pod still carries: clearing it is on its way.
    Nothing,
    /// This message, which the pod carries already.
    Carried(Str),
    /// This message, by a report.
    Told(Str),
}

/// Whether a condition of type PodScheduled with this reason tells that a PreEnqueue plugin keeps the pod out.
pub(crate) fn is_report(reason: &str) -> bool {
    matches!(reason, SCHEDULING_GATED | NOT_READY_FOR_SCHEDULING)
}

/// The message that the pod carries, if it is one of ours or the API server's about readiness.
fn message_on(pod: &Pod) -> Option<&Str> {
    let condition = pod.condition(POD_SCHEDULED)?;
    is_report(&condition.reason).then_some(&condition.message)
}

fn carries_not_ready(pod: &Pod) -> bool {
    carries(pod, NOT_READY_FOR_SCHEDULING)
}

fn carries(pod: &Pod, reason: &str) -> bool {
    pod.condition(POD_SCHEDULED)
        .is_some_and(|condition| condition.reason == reason)
}

/// A plugin keeps a pod out.
pub(super) struct Rejection<'a> {
    pub(super) plugin: &'a Str,
    pub(super) reason: &'static str,
    pub(super) message: &'a str,
    /// The rejection is part of an attempt; see
    /// [`PreEnqueue::follows_attempt`](berth_framework::plugin::PreEnqueue::follows_attempt).
    pub(super) follows_attempt: bool,
}

impl Rejection<'_> {
    /// What the user is told. Reporting is mandatory, so a plugin that has no words gets some: without any the
    /// pod's owner could not even see whom to ask.
    fn words(&self) -> Cow<'_, str> {
        if self.message.is_empty() {
            format!("the PreEnqueue plugin {} does not say why", self.plugin).into()
        } else {
            self.message.into()
        }
    }
}

impl Remembered {
    /// Whether the pod tells what its last cycle found, as far as the queue knows: then a rejection that only sees
    /// that attempt through has nothing to add.
    fn leaves_the_verdict(&self, pod: &Pod, attempts: u32) -> bool {
        let tells_not_ready = match self {
            Self::Told(_) | Self::Carried(_) => true,
            Self::Nothing => false,
            Self::FromPod => carries_not_ready(pod),
        };
        !tells_not_ready && (attempts > 0 || carries(pod, UNSCHEDULABLE))
    }
}

/// Reports that nobody has taken yet: at most one per pod, the latest.
#[derive(Debug, Default)]
pub(super) struct Reports {
    by_uid: IndexMap<Str, PreEnqueueReport, FxBuildHasher>,
}

impl Reports {
    /// A plugin keeps the pod out.
    pub(super) fn rejected(
        &mut self,
        remembered: &mut Remembered,
        pod: &Arc<Pod>,
        attempts: u32,
        rejection: &Rejection<'_>,
    ) {
        if rejection.follows_attempt && remembered.leaves_the_verdict(pod, attempts) {
            return;
        }
        let message = rejection.words();
        let told = match remembered {
            Remembered::Told(told) | Remembered::Carried(told) => Some(&*told),
            Remembered::Nothing => None,
            Remembered::FromPod => message_on(pod),
        };
        if told.is_some_and(|told| *told.as_str() == *message) {
            if *remembered == Remembered::FromPod {
                *remembered = Remembered::Carried(Str::new(&message));
            }
            return;
        }
        let message = Str::new(&message);
        *remembered = Remembered::Told(message.clone());
        self.by_uid.insert(
            pod.uid().clone(),
            PreEnqueueReport::Rejected {
                pod: pod.clone(),
                plugin: rejection.plugin.clone(),
                reason: rejection.reason,
                message,
            },
        );
    }

    /// Every plugin lets the pod in. A pod that carries only the API server's word about its gates has nothing of
    /// ours to clear, unless a report of ours is on its way.
    pub(super) fn passed(&mut self, remembered: &mut Remembered, pod: &Arc<Pod>) {
        let clear = match remembered {
            Remembered::Nothing => return,
            Remembered::FromPod | Remembered::Carried(_) => carries_not_ready(pod),
            Remembered::Told(_) => true,
        };
        if !clear {
            *remembered = Remembered::FromPod;
            return;
        }
        *remembered = Remembered::Nothing;
        self.by_uid.insert(
            pod.uid().clone(),
            PreEnqueueReport::Passed { pod: pod.clone() },
        );
    }

    /// A pod that is kept out shows what another scheduler, which led before, said of it, or nothing any more of what it
    /// was told: it is told anew what keeps it out here. Should that be the doing of an older call of ours, the dispatcher
    /// knows that the newer one is on its way.
    pub(super) fn shown(&mut self, info: &mut QueuedPodInfo, new: &Arc<Pod>) {
        let Some(plugin) = info
            .gating_plugin
            .as_ref()
            .filter(|_| info.pod.uid() == new.uid())
        else {
            return;
        };
        let (was, is) = (message_on(&info.pod), message_on(new));
        let told = match &info.remembered {
            Remembered::Told(told) | Remembered::Carried(told) => Some(told),
            Remembered::Nothing | Remembered::FromPod => None,
        };
        let is_lost = is.is_none() && new.condition(POD_SCHEDULED).is_none();
        let Some(message) = told
            .filter(|told| was != is && (is_lost || is.is_some_and(|is| is != *told)))
            .cloned()
        else {
            return;
        };
        let report = PreEnqueueReport::Rejected {
            pod: new.clone(),
            plugin: plugin.clone(),
            reason: info.gating_reason,
            message: message.clone(),
        };
        info.remembered = Remembered::Told(message);
        self.by_uid.insert(new.uid().clone(), report);
    }

    /// The pod is gone: nothing is left to tell.
    pub(super) fn forget(&mut self, uid: &str) {
        self.by_uid.shift_remove(uid);
    }

    /// The reports since the last time, in the order in which their pods were first reported.
    pub(super) fn take(&mut self) -> Vec<PreEnqueueReport> {
        std::mem::take(&mut self.by_uid).into_values().collect()
    }
}
