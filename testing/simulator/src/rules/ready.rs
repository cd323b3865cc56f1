//! Whether a pod is rejected by PreEnqueue, and what its status must state.

use super::claim_names;
use crate::shapes::{APP, CLOSED, HOLD, SCHEDULERS, SHUT_OUT, words_of_closed, words_of_hold};
use crate::world::Others;
use berth_api::Pod;
use std::fmt;

/// The reason that the API server gives for a pod with scheduling gates.
pub(crate) const GATED: &str = "SchedulingGated";
/// The message of the API server for such a pod.
pub(crate) const GATE_TEXT: &str = "Scheduling is blocked due to non-empty scheduling gates";
/// The reason that a scheduler gives for a pod that anything else rejects.
pub(crate) const NOT_READY: &str = "NotReadyForScheduling";

/// Something that keeps a pod out of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocked {
    /// The reason of its condition.
    pub(crate) reason: &'static str,
    /// The message of its condition.
    pub(crate) message: String,
}

impl Blocked {
    /// Returns whether the condition states this.
    pub(crate) fn is_reported(&self, reason: &str, message: &str) -> bool {
        self.reason == reason && self.message == message
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.reason, self.message)
    }
}

/// Returns whether the pod is meant for the scheduler that is judged.
pub(crate) fn is_ours(pod: &Pod) -> bool {
    SCHEDULERS[..2].contains(&pod.spec.scheduler_name.as_str())
}

/// Everything that rejects the pod, in the order in which the plugins are asked; nothing if it is admitted.
///
/// The first that rejected the pod is reported until it changes its mind: no plugin is called again when another one
/// would turn the pod down as well by now.
pub(crate) fn blocked(pod: &Pod, others: &Others) -> Vec<Blocked> {
    let (gated, held, shut_out) = (gated(pod), held(pod), shut_out(pod, others));
    let claims = lacks_claim(pod, others);
    let all = if pod.spec.scheduler_name == SCHEDULERS[1] {
        // The second scheduler asks in another order.
        [shut_out, held, gated, claims]
    } else {
        [gated, claims, held, shut_out]
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
    ];
    let is_ready_report = reason == NOT_READY;
    reason == GATED || is_ready_report && beginnings.iter().any(|text| message.starts_with(text))
}

/// The pod that a member of a group states to wait for, and the message of the plugin that rejects that pod.
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
        message: GATE_TEXT.to_owned(),
    })
}

fn held(pod: &Pod) -> Option<Blocked> {
    let reason = pod.labels().get(HOLD)?;
    Some(Blocked {
        reason: NOT_READY,
        message: words_of_hold(reason),
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
        message,
    })
}

fn shut_out(pod: &Pod, others: &Others) -> Option<Blocked> {
    let namespace = others.namespace(pod.namespace())?;
    let reason = namespace.metadata.labels.get(CLOSED)?;
    (pod.labels().get(APP) == Some(SHUT_OUT)).then(|| Blocked {
        reason: NOT_READY,
        message: words_of_closed(pod.namespace(), reason),
    })
}
