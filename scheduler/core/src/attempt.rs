//! One attempt to schedule a pod: the state shared by all its stages.

use crate::clock::Moment;
use crate::trace::TracedPoint;
use berth_api::Str;
use berth_evaluator::Evaluation;
use berth_framework::call::PodRef;
use berth_framework::extender::Extenders;
use berth_framework::{PodInfo, Work};
use berth_profile::Profile;
use berth_queue::QueuedPodInfo;
use std::sync::Arc;

/// The result of a scheduling cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CycleResult {
    /// The pod has a node. Its binding continues outside of the cycle.
    Placed {
        /// The node.
        node: Str,
    },
    /// No node fits the pod.
    Unschedulable {
        /// The text of its condition.
        message: String,
    },
    /// An internal error.
    Error {
        /// The text of its condition.
        message: String,
    },
    /// The pod was dropped: it is being deleted, is placed already, or has no profile.
    Skipped,
}

/// One attempt to schedule a pod, from the queue until it is bound or returned to the queue.
pub(crate) struct Attempt {
    /// The pod's entry in the queue.
    pub(crate) info: QueuedPodInfo,
    /// The pod, without a node.
    pub(crate) pod: Arc<PodInfo>,
    /// The profile at the beginning of the attempt. It is used until the attempt ends, also if the configuration is
    /// replaced.
    pub(crate) profile: Arc<Profile>,
    /// The extenders with which the attempt began.
    pub(crate) extenders: Extenders,
    pub(crate) evaluation: Evaluation,
    pub(crate) work: Work,
    pub(crate) began: Moment,
    /// Whether single plugins are timed.
    pub(crate) is_sampled: bool,
    /// Whether the cycle was parked, so that other inputs were applied during it.
    pub(crate) was_parked: bool,
    /// Its extension points so far, if tracing is enabled.
    pub(crate) trace: Option<Vec<TracedPoint>>,
}

impl Attempt {
    /// The pod.
    pub(crate) fn pod_ref(&self) -> PodRef {
        PodRef::of(&self.pod.pod)
    }

    /// Returns whether the pod has a node and waits for a resize, so that only this node is evaluated.
    pub(crate) fn is_resize(&self) -> bool {
        self.pod.pod.is_assigned()
    }
}

/// A pod that is assumed on a node.
#[derive(Debug, Clone)]
pub(crate) struct AssumedPod {
    /// The pod, with its node.
    pub(crate) pod: Arc<PodInfo>,
    /// The node.
    pub(crate) node: Str,
    /// The number of evaluated nodes, and the number of feasible ones.
    pub(crate) nodes: (usize, usize),
}
