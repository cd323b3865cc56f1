//! PreEnqueue: decides whether a pod is rejected, and the expected message of its status.

use super::claim_names;
use crate::shapes::{APP, CLOSED, HOLD, SCHEDULERS, SHUT_OUT, closed_text, hold_text};
use crate::world::Others;
use berth_api::Pod;
use std::fmt;

/// The reason by the API server for a pod with scheduling gates.
pub(crate) const GATED: &str = "SchedulingGated";
/// The message of the API server for such a pod.
pub(crate) const GATE_TEXT: &str = "Scheduling is blocked due to non-empty scheduling gates";
/// The reason by a scheduler for a pod that is rejected for any other reason.
pub(crate) const NOT_READY: &str = "NotReadyForScheduling";

/// The beginning of the message for a pod that waits for a deferred quota. The amounts may be old.
pub(crate) const QUOTA_TEXT: &str = "deferred quota ";

/// A reason for which PreEnqueue rejects a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocked {
    /// The reason of its condition.
    pub(crate) reason: &'static str,
    /// The message of its condition, or the beginning of the message.
    pub(crate) message: Message,
}

/// The message of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// The whole message.
    Exact(String),
    /// The beginning of the message; the rest may be older than the cluster.
    Begins(&'static str),
}

impl Message {
    /// Returns whether a text is this message.
    pub(crate) fn is(&self, text: &str) -> bool {
        match self {
            Self::Exact(message) => message == text,
            Self::Begins(with) => text.starts_with(with),
        }
    }
}

impl Blocked {
    /// Returns whether the condition states this.
    pub(crate) fn is_reported(&self, reason: &str, message: &str) -> bool {
        self.reason == reason && self.message.is(message)
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Message::Exact(message) => write!(f, "{} {message:?}", self.reason),
            Message::Begins(with) => write!(f, "{} {with:?}…", self.reason),
        }
    }
}

/// Returns whether the pod belongs to the judged scheduler.
pub(crate) fn is_ours(pod: &Pod) -> bool {
    SCHEDULERS[..2].contains(&pod.spec.scheduler_name.as_str())
}

/// All reasons for which the pod is rejected, in the order of the plugins; empty if it is admitted.
///
/// The first rejecting plugin is reported until it admits the pod: another plugin that starts to reject the pod is not
/// called before.
pub(crate) fn blocked(pod: &Pod, others: &Others) -> Vec<Blocked> {
    let (gated, held, shut_out) = (gated(pod), held(pod), shut_out(pod, others));
    let (claims, quotas) = (lacks_claim(pod, others), lacks_room(pod, others));
    let all = if pod.spec.scheduler_name == SCHEDULERS[1] {
        // The second scheduler has another order of plugins.
        [shut_out, held, gated, claims, quotas]
    } else {
        [gated, claims, quotas, held, shut_out]
    };
    all.into_iter().flatten().collect()
}

/// Returns whether a condition states a rejection of the pod itself.
pub(crate) fn is_reason_of_pod(reason: &str, message: &str) -> bool {
    let beginnings = [
        "Waiting for a resource claim to be created from ",
        "Waiting for resource claim ",
        "Resource claim ",
        "the pod is held until ",
        "namespace ",
        QUOTA_TEXT,
    ];
    let is_ready_report = reason == NOT_READY;
    reason == GATED || is_ready_report && beginnings.iter().any(|text| message.starts_with(text))
}

/// The pod that a member of a group waits for according to its message, and the message of the plugin that rejects that
/// pod.
pub(crate) fn awaited_member(message: &str) -> Option<(&str, &str)> {
    let rest = message.strip_prefix("waiting for pod \"")?;
    let (name, rest) = rest.split_once("\" of the group, which ")?;
    let (_, message) = rest.split_once(" rejects: ")?;
    Some((name, message))
}

/// Returns whether anything rejects the pod.
pub(crate) fn is_blocked(pod: &Pod, others: &Others) -> bool {
    !blocked(pod, others).is_empty()
}

fn gated(pod: &Pod) -> Option<Blocked> {
    (!pod.spec.scheduling_gates.is_empty()).then(|| Blocked {
        reason: GATED,
        message: Message::Exact(GATE_TEXT.to_owned()),
    })
}

fn held(pod: &Pod) -> Option<Blocked> {
    let reason = pod.labels().get(HOLD)?;
    Some(Blocked {
        reason: NOT_READY,
        message: Message::Exact(hold_text(reason)),
    })
}

/// The first claim for devices that the pod waits for.
fn lacks_claim(pod: &Pod, others: &Others) -> Option<Blocked> {
    let names = pod.spec.resource_claims.iter().zip(claim_names(pod));
    let mut lacks = names.filter_map(|(entry, name)| {
        let Some(name) = name else {
            let template = entry.resource_claim_template_name.as_deref()?;
            return Some(format!(
                "Waiting for a resource claim to be created from ResourceClaimTemplate {template:?}"
            ));
        };
        match others.device_claim(pod.namespace(), name) {
            None => Some(format!(
                "Waiting for resource claim {:?} to be present",
                name.as_str()
            )),
            Some(claim) if claim.metadata.deletion_timestamp.is_some() => Some(format!(
                "Resource claim {:?} is being deleted: waiting for a new one of that name",
                name.as_str()
            )),
            Some(_) => None,
        }
    });
    lacks.next().map(|message| Blocked {
        reason: NOT_READY,
        message: Message::Exact(message),
    })
}

/// The deferred quotas that do not admit the pod.
fn lacks_room(pod: &Pod, others: &Others) -> Option<Blocked> {
    others.waits_for_quota(pod.uid()).then_some(Blocked {
        reason: NOT_READY,
        message: Message::Begins(QUOTA_TEXT),
    })
}

fn shut_out(pod: &Pod, others: &Others) -> Option<Blocked> {
    let namespace = others.namespace(pod.namespace())?;
    let reason = namespace.metadata.labels.get(CLOSED)?;
    (pod.labels().get(APP) == Some(SHUT_OUT)).then(|| Blocked {
        reason: NOT_READY,
        message: Message::Exact(closed_text(pod.namespace(), reason)),
    })
}
