//! What the queue logs.

use super::SchedulingQueue;
use berth_api::Str;
use std::fmt;

/// How many notices are kept between two visits; further ones are only counted.
const NOTICES_MAX: usize = 256;

/// Something worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A popped pod was in flight already, and was dropped.
    DiscardedPod {
        /// `namespace/name`.
        pod: String,
    },
    /// A pod was given back that is not in flight; it is tried again after its backoff.
    NotInFlight {
        /// `namespace/name`.
        pod: String,
    },
    /// A PreEnqueue plugin failed; the pod is rejected.
    PreEnqueueError {
        /// The plugin.
        plugin: Str,
        /// `namespace/name`.
        pod: String,
        /// What went wrong.
        error: String,
    },
    /// A hint failed; the pod is queued.
    HintError {
        /// The plugin.
        plugin: Str,
        /// The event.
        event: Str,
        /// `namespace/name`.
        pod: String,
        /// What went wrong.
        error: String,
    },
    /// A PreQueueingHint failed; all pods are asked.
    PreQueueingHintError {
        /// The plugin.
        plugin: Str,
        /// The event.
        event: Str,
        /// What went wrong.
        error: String,
    },
    /// A PreQueueingHint named the pods that an event can help; a detail.
    Narrowed {
        /// The plugin.
        plugin: Str,
        /// The event.
        event: Str,
        /// How many pods it named.
        pods: usize,
    },
    /// A plugin registered for something that is no resource: it matches no event.
    IncorrectRegistration {
        /// The plugin.
        plugin: Str,
        /// What is wrong with the resource.
        error: String,
    },
    /// A pod's scheduler has no profile; any event brings it back.
    NoProfile {
        /// The `schedulerName`.
        scheduler_name: Str,
        /// `namespace/name`.
        pod: String,
    },
    /// The event log was full and has been replaced by one entry for anything.
    EventLogCollapsed {
        /// How many events it held.
        events: usize,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DiscardedPod { pod } => write!(
                f,
                "Discarding the popped pod: the same pod is tracked in multiple places in the scheduler: {pod}"
            ),
            Self::NotInFlight { pod } => write!(
                f,
                "in flight Pod isn't found in the scheduling queue. If you see this error log, it's likely a bug in the scheduler: {pod}"
            ),
            Self::PreEnqueueError { plugin, pod, error } => write!(
                f,
                "Unexpected error running PreEnqueue plugin {plugin} for pod {pod}: {error}"
            ),
            Self::HintError {
                plugin,
                event,
                pod,
                error,
            } => write!(
                f,
                "QueueingHintFn of {plugin} failed for event {event} and pod {pod}, which is queued: {error}"
            ),
            Self::PreQueueingHintError {
                plugin,
                event,
                error,
            } => write!(
                f,
                "PreQueueingHintFn of {plugin} failed for event {event}, so all pods are asked: {error}"
            ),
            Self::Narrowed {
                plugin,
                event,
                pods,
            } => write!(
                f,
                "PreQueueingHint narrowed pod set: plugin {plugin}, event {event}, {pods} pods"
            ),
            Self::IncorrectRegistration { plugin, error } => write!(
                f,
                "Incorrect event registration of {plugin}, which matches no event: {error}"
            ),
            Self::NoProfile {
                scheduler_name,
                pod,
            } => write!(
                f,
                "no profile for scheduler name {scheduler_name:?}, so pod {pod} is retried at any event"
            ),
            Self::EventLogCollapsed { events } => write!(
                f,
                "{events} events came while pods were in flight, more than are kept: each of those pods that fails is retried after its backoff"
            ),
        }
    }
}

/// The notices since the last visit.
#[derive(Debug, Default)]
pub(super) struct Notices {
    kept: Vec<Notice>,
    dropped: usize,
    details: bool,
}

impl SchedulingQueue {
    /// Whether notices are given of what happens all the time, for debugging.
    pub fn log_details(&mut self, details: bool) {
        self.notices.details = details;
    }
}

impl Notices {
    pub(super) fn push(&mut self, notice: impl FnOnce() -> Notice) {
        if self.kept.len() < NOTICES_MAX {
            self.kept.push(notice());
        } else {
            self.dropped += 1;
        }
    }

    /// A notice of what happens all the time, if those are wanted.
    pub(super) fn detail(&mut self, notice: impl FnOnce() -> Notice) {
        if self.details {
            self.push(notice);
        }
    }

    pub(super) fn take(&mut self) -> (Vec<Notice>, usize) {
        (
            std::mem::take(&mut self.kept),
            std::mem::take(&mut self.dropped),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_beyond_the_limit_are_counted() {
        let mut notices = Notices::default();
        for n in 0..NOTICES_MAX + 3 {
            notices.push(|| Notice::DiscardedPod {
                pod: format!("default/p{n}"),
            });
        }
        let (kept, dropped) = notices.take();
        assert_eq!((kept.len(), dropped), (NOTICES_MAX, 3));
        assert_eq!(notices.take(), (Vec::new(), 0));
    }
}
