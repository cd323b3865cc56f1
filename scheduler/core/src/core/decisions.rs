//! The last decisions, to explain why a pod is on its node.
//!
//! A decision is kept with its inputs, not with its scores: the pod, the profile, the random generator, and the
//! position in the node table's log of changes. An explanation takes a copy of the cluster back to that position and
//! decides again. So a decision costs a few references, and scores are computed only on request.

use super::Framework;
use crate::attempt::Attempt;
use berth_api::{Str, Time};
use berth_evaluator::Placement;
use berth_framework::PodInfo;
use berth_profile::Profile;
use berth_queue::Nominator;
use std::collections::VecDeque;
use std::sync::Arc;

/// The number of recorded decisions.
pub const DECISIONS_MAX: usize = 4096;

/// A pod was given a node.
#[derive(Debug, Clone)]
pub struct PodDecision {
    /// The time.
    pub at: Time,
    /// The pod as it was then.
    pub pod: Arc<PodInfo>,
    /// The profile that scheduled it.
    pub profile: Arc<Profile>,
    /// The percentage of scored nodes; `None` for all.
    pub percentage_of_nodes: Option<i32>,
    /// The node.
    pub node: Str,
    /// The number of filtered nodes.
    pub evaluated: usize,
    /// The number of feasible nodes.
    pub feasible: usize,
    /// The generator before the choice among equal nodes.
    pub rng: fastrand::Rng,
    /// The position at which the search began in the order of the nodes.
    pub start_node: usize,
    /// Whether extenders participated. An explanation does not call them again.
    pub has_extenders: bool,
    /// The end of the node table's log at the time of the decision; see
    /// [`ChangeLog::since`](berth_framework::table::ChangeLog::since).
    pub changes_end: u64,
    /// The end of the nominator's log at that time.
    pub nominations_end: u64,
}

/// The start of a search, recorded before it runs.
#[derive(Debug, Clone)]
pub(crate) struct SearchBegin {
    pub(crate) rng: fastrand::Rng,
    pub(crate) start_node: usize,
    pub(crate) percentage_of_nodes: Option<i32>,
    pub(crate) has_extenders: bool,
}

/// The last decisions, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    kept: VecDeque<PodDecision>,
}

impl Decisions {
    pub(super) fn note(&mut self, decision: PodDecision) {
        if self.kept.len() >= DECISIONS_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(decision);
    }

    /// The last decision about a pod, if it is recorded.
    pub(crate) fn of(&self, uid: &str) -> Option<&PodDecision> {
        let mut latest_first = self.kept.iter().rev();
        latest_first.find(|decision| decision.pod.pod.uid() == uid)
    }

    /// The number of bytes of the records, without the objects that the decisions refer to.
    pub(crate) fn bytes(&self) -> usize {
        self.kept.capacity() * size_of::<PodDecision>()
    }

    pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = &PodDecision> {
        self.kept.iter()
    }
}

impl Framework {
    /// Records the decision of an attempt with its inputs.
    pub(crate) fn note_decision(
        &mut self,
        nominator: &Nominator,
        attempt: &Attempt,
        placement: &Placement,
        begin: SearchBegin,
    ) {
        self.decisions.note(PodDecision {
            at: self.clock.now(),
            pod: attempt.pod.clone(),
            profile: attempt.profile.clone(),
            percentage_of_nodes: begin.percentage_of_nodes,
            node: placement.name.clone(),
            evaluated: placement.evaluated,
            feasible: placement.feasible,
            rng: begin.rng,
            start_node: begin.start_node,
            has_extenders: begin.has_extenders,
            changes_end: self.cache.cluster().nodes.log().end(),
            nominations_end: nominator.changes_end(),
        });
    }
}
