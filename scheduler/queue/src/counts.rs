//! The number of queued pods.

use std::fmt;

/// The number of waiting pods by place: `pending_pods{queue}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueCounts {
    /// Ready to be popped.
    pub active: usize,
    /// Waiting for their backoff.
    pub backoff: usize,
    /// Waiting for an event.
    pub unschedulable: usize,
    /// Rejected by a PreEnqueue plugin.
    pub gated: usize,
    /// Members of missing groups, or of groups with missing ancestors.
    pub incomplete: usize,
    /// Members that were added during an attempt of their group.
    pub pending: usize,
}

impl QueueCounts {
    /// All of them.
    pub fn total(&self) -> usize {
        self.active
            + self.backoff
            + self.unschedulable
            + self.gated
            + self.incomplete
            + self.pending
    }
}

/// kube-scheduler's summary of its queues; gated pods count as unschedulable.
impl fmt::Display for QueueCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "activeQ:{}; backoffQ:{}; unschedulablePods:{}",
            self.active,
            self.backoff,
            self.unschedulable + self.gated
        )?;
        match self.pending + self.incomplete {
            0 => Ok(()),
            _ => write!(
                f,
                "; pendingPodGroupMemberPods:{}; incompletePodGroupPods:{}",
                self.pending, self.incomplete
            ),
        }
    }
}
