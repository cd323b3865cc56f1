//! Kept answers by node, for the comparison with recorded decisions.

use super::answer::class_sums;
use super::plan::Unkeepable;
use super::{AnswerCache, Kept};
use crate::Evaluator;
use berth_framework::Slot;
use berth_framework::plugin::NodeStatuses;
use std::sync::Arc;

/// The kept answers about a pod.
#[derive(Debug)]
pub struct Examined {
    /// The reasons why nodes were rejected.
    pub statuses: NodeStatuses,
    /// The feasible nodes in slot order, with their totals.
    pub feasible: Vec<(Slot, i64)>,
}

impl AnswerCache {
    /// The answers that would decide about the evaluator's pod; `None` when the plain evaluator would. The pod's own
    /// nomination is not taken into account.
    pub fn examine(&mut self, evaluator: &mut Evaluator<'_>) -> Option<Examined> {
        let plan = self.prepare(evaluator)?;
        self.with_shape(evaluator, plan, false, |evaluator, kept| {
            examine(evaluator, &kept).ok()
        })?
    }
}

fn examine(evaluator: &Evaluator<'_>, kept: &Kept<'_>) -> Result<Examined, Unkeepable> {
    if kept.shape.is_entangled() {
        return Err(Unkeepable);
    }
    let live = kept.live()?;
    let sums = class_sums(evaluator, &live, &kept.class_scores(evaluator, &live)?);
    let nodes = evaluator.cluster.nodes.occupied();
    let feasible = nodes.filter_map(|slot| {
        let (at, sum) = kept.find(&live, slot)?;
        Some((slot, sum + sums[at]))
    });
    Ok(Examined {
        statuses: NodeStatuses::kept(Arc::new(kept.statuses())),
        feasible: feasible.collect(),
    })
}
