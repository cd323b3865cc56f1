//! Finding a node for a pod.
//!
//! [`Evaluator`] runs the extension points from PreFilter to Score for one pod against the cluster. By itself it is the
//! plain evaluator: node by node in kube-scheduler's order. That *defines* what Berth decides. With a [`AnswerCache`]
//! it is the incremental one, which decides the same from kept answers.
//!
//! It can be asked step by step (as conformance does) or all at once ([`Evaluator::find`], as the cycle does).
//! Nothing is cloned: where nominated pods or preemption change the cluster, the change is made in place and
//! reverted.

mod choose;
mod diagnosis;
mod dry_run;
mod incremental;
mod memos;
mod plain;
mod score;
mod search;
mod tally;
#[cfg(test)]
mod tests;

pub use berth_framework::nominated::{NoNominations, NominatedPods};
pub use diagnosis::{Diagnosis, FitError};
pub use incremental::{AnswerCache, AnswerCacheCounts, EvaluatorKind, Examined};
pub use plain::{Found, Placement, PreFiltered};
pub use score::{PluginScores, Scores};
pub use search::{SearchLimit, nodes_to_find};
pub use tally::{Span, Tally};

use choose::break_tie;
pub use choose::choose;
pub use diagnosis::insert_sorted;
pub use plain::unfit;

pub(crate) use memos::Memos;

use berth_api::Time;
use berth_framework::{Cluster, CycleState, FeatureGates, PodInfo, Status, Work};
use berth_profile::{PluginIds, Profile};
use berth_telemetry::Stopwatch;
use std::sync::Arc;

/// The state of the plugins about one pod in one cycle, and the plugins that have no answer about it.
#[derive(Default)]
pub struct Evaluation {
    /// The plugins' values.
    pub state: CycleState,
    /// Plugins whose PreFilter returned Skip.
    pub skip_filter: PluginIds,
    /// Plugins whose PreScore returned Skip.
    pub skip_score: PluginIds,
    /// The counts, for the metrics. Boxed: a binding takes the evaluation along for as long as it lasts.
    pub tally: Box<Tally>,
    /// The findings of PostFilter about nodes for pods of this shape.
    memos: Option<Memos>,
    /// Set when no node fits by kept answers: those of all plugins follow from what they read of the pod.
    pub is_kept: bool,
    /// Set when a decision was made without PreFilter: it has to run before filters are called.
    unprepared: bool,
    supposed: Vec<dry_run::Supposed>,
    /// Set when a plugin did not revert an assumption: its values cannot be trusted any more.
    broken: Option<Status>,
}

impl Evaluation {
    /// The state of the plugins is outdated: all of it is discarded, except the counts for the metrics.
    pub fn begin_anew(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        *self = Self {
            tally,
            ..Self::default()
        };
    }
}

impl std::fmt::Debug for Evaluation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evaluation").finish_non_exhaustive()
    }
}

/// One pod, to be placed by one profile.
pub struct Evaluator<'a> {
    /// The pod's profile.
    pub profile: &'a Profile,
    /// The feature gates.
    pub features: &'a FeatureGates,
    /// The time of the decision.
    pub now: Time,
    /// The cluster; as it was when the evaluator is done.
    pub cluster: &'a mut Cluster,
    /// The nominated pods.
    pub nominated: &'a dyn NominatedPods,
    /// The pod.
    pub pod: &'a Arc<PodInfo>,
    /// The kept evaluation.
    pub evaluation: &'a mut Evaluation,
    /// The work of the attempt; `None` to search without a limit on the sum.
    pub work: Option<&'a Work>,
    /// Times the extension points, for the metrics alone.
    pub stopwatch: &'a dyn Stopwatch,
}

impl Evaluator<'_> {
    /// Returns whether the searches of the attempt have used up their budget.
    fn has_used_up(&self) -> bool {
        self.work.is_some_and(Work::is_used_up)
    }

    /// Returns whether the attempt may not look at more items of the pod.
    fn is_out_of_items(&self) -> bool {
        self.work.is_some_and(Work::is_out_of_items)
    }
}

impl std::fmt::Debug for Evaluator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evaluator")
            .field("profile", &self.profile.name)
            .field("pod", &self.pod.pod.key())
            .finish_non_exhaustive()
    }
}
