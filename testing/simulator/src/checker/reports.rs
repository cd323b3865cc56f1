//! Judges the status that a scheduler writes for pods that PreEnqueue rejects (KEP-5501).

use super::{Checker, Violation};
use crate::rules::{GATED, NOT_READY, blocked, group_of, is_blocked, is_ours};
use berth_api::{Duration, Pod, Str, Time};
use berth_framework::call::CallResult;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The delay of reports about a rejection.
const DELAY: Duration = Duration::from_secs(5);

/// The message of preemption for a pod that it rejects during the eviction of its victims. Only the scheduler knows how
/// long this takes.
const MAKES_ROOM: &str =
    "Waiting for the eviction of the pods of lower priority that make room for this pod";

/// The time since which each pod has been rejected, by UID, as far as the scheduler can know.
pub(super) type BlockedSince = BTreeMap<Str, Time>;

/// The conditions that the scheduler has sent and not received yet, by UID.
pub(super) type Sent = BTreeMap<Str, SentStatus>;

/// A condition that was sent.
#[derive(Debug)]
pub(super) struct SentStatus {
    reason: String,
    message: String,
    /// Whether the scheduler has received the success of the write.
    is_written: bool,
    /// The version of the pod after the write, if the scheduler knows it.
    version: Option<Str>,
    /// The version of the pod that the scheduler knew when it sent the condition or, if it does not know the version
    /// after the write, when it received the answer. A repeated version of the pod has no information.
    since: Str,
}

impl Checker {
    /// The state of a pod has changed.
    pub(super) fn note_readiness(&mut self, pod: &Arc<Pod>, now: Time) {
        let condition = pod.condition("PodScheduled");
        let shown = self.sent.get(pod.uid()).is_some_and(|sent| {
            let shows =
                condition.is_some_and(|c| *c.reason == *sent.reason && *c.message == *sent.message);
            let shows = shows || (condition.is_none() && sent.reason.is_empty());
            let meta = &pod.metadata;
            let version = sent.version.as_deref();
            let is_before = version.is_some_and(|version| {
                *meta.resource_version != *version && !meta.is_newer_than(version)
            });
            sent.is_written && shows && meta.resource_version != sent.since && !is_before
        });
        if shown {
            self.sent.remove(pod.uid());
        }
        let waits = !pod.is_assigned() && is_blocked(pod, &self.others);
        if waits {
            self.blocked.entry(pod.uid().clone()).or_insert(now);
        } else {
            self.blocked.remove(pod.uid());
        }
    }

    /// Updates the readiness of all pods, because many pods or their dependencies have changed.
    pub(super) fn note_all_readiness(&mut self, now: Time) {
        let pods: Vec<Arc<Pod>> = self.pods.values().cloned().collect();
        pods.iter().for_each(|pod| self.note_readiness(pod, now));
        let known = &self.pods;
        self.blocked.retain(|uid, _| known.contains_key(uid));
        self.sent.retain(|uid, _| known.contains_key(uid));
        self.making_room.retain(|uid, _| known.contains_key(uid));
    }

    /// The scheduler sends a condition of type PodScheduled for a pod.
    ///
    /// # Errors
    /// When the pod belongs to another scheduler; when the message states that the pod is rejected, but that is wrong,
    /// outdated, for another reason, too recent, or already in its condition. A call that also nominates the pod need
    /// not wait.
    pub fn status_sent(
        &mut self,
        uid: &Str,
        reason: &str,
        message: &str,
        nominates: bool,
        now: Time,
    ) -> Result<(), Violation> {
        // A sent status that has not been received may have been written, and in any order.
        let is_shown = self.note_sent(uid, reason, message);
        // The API will refuse a write for a deleted pod.
        let Some(pod) = self.pods.get(uid) else {
            return Ok(());
        };
        if !is_ours(pod) {
            return Err(Violation::ForeignPod {
                pod: pod.name().clone(),
            });
        }
        if reason != NOT_READY && reason != GATED {
            return Ok(());
        }
        let incorrect = |expected: String| {
            Err(Violation::IncorrectReport {
                pod: pod.name().clone(),
                statement: format!("{reason} {message:?}"),
                expected,
            })
        };
        if pod.is_assigned() {
            return incorrect("nothing, as it has a node".to_owned());
        }
        // The message of a member of a group depends on the other members.
        if message == MAKES_ROOM || (group_of(pod).is_some() && !message.is_empty()) {
            return Ok(());
        }
        let why = blocked(pod, &self.others);
        let Some(first) = why.first() else {
            return incorrect("nothing, as PreEnqueue admits it".to_owned());
        };
        if !why.iter().any(|why| why.is_reported(reason, message)) {
            return incorrect(first.to_string());
        }
        let condition = pod.condition("PodScheduled");
        if is_shown && condition.is_some_and(|c| c.reason == reason && c.message == message) {
            return incorrect("nothing, as its status has this condition".to_owned());
        }
        let since = [self.blocked.get(uid), self.making_room.get(uid)];
        let since = since.into_iter().flatten().min();
        let since = since.map(|since| now.since(*since));
        match since {
            _ if nominates => Ok(()),
            Some(since) if since >= DELAY => Ok(()),
            since => incorrect(format!(
                "nothing yet, as PreEnqueue has rejected it for {} ms only",
                since.map_or(0, |since| since.as_millis())
            )),
        }
    }

    /// The scheduler writes the status of a pod without a node.
    ///
    /// # Errors
    /// When its configuration has no profile for the pod any more, and no earlier binding is in progress. A binding of
    /// a pod that is being deleted is about to end.
    pub fn check_profile(&self, uid: &str, schedulers: &[Str]) -> Result<(), Violation> {
        match self.pods.get(uid) {
            Some(pod)
                if !schedulers.contains(&pod.spec.scheduler_name)
                    && !pod.is_assigned()
                    && !pod.is_terminating()
                    && self.placement(uid).is_none() =>
            {
                Err(Violation::ForeignPod {
                    pod: pod.name().clone(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Pods are evicted for these pods.
    pub fn makes_room(&mut self, uids: &[Str], now: Time) {
        let making = uids.iter().map(|uid| (uid.clone(), now));
        self.making_room.extend(making);
    }

    /// The scheduler clears its report about a rejected pod.
    pub fn status_cleared(&mut self, uid: &Str) {
        self.note_sent(uid, "", "");
    }

    /// Returns whether all previously sent conditions were received as sent.
    fn note_sent(&mut self, uid: &Str, reason: &str, message: &str) -> bool {
        let known = self.pods.get(uid);
        let sent = SentStatus {
            reason: reason.to_owned(),
            message: message.to_owned(),
            is_written: false,
            version: None,
            since: known.map_or_else(Str::default, |pod| pod.metadata.resource_version.clone()),
        };
        self.sent.insert(uid.clone(), sent).is_none()
    }

    /// The scheduler receives the result of a status write.
    pub fn status_answered(&mut self, uid: &str, answer: &CallResult) {
        if let Some(sent) = self.sent.get_mut(uid) {
            sent.is_written = answer.is_ok();
            let response = answer.as_ref().ok();
            sent.version = response.and_then(|response| response.resource_version.clone());
            // Without the version, any version received before the answer may be older than the write.
            if sent.version.is_none()
                && let Some(known) = self.pods.get(uid)
            {
                sent.since = known.metadata.resource_version.clone();
            }
        }
    }
}
