//! Kept answers by node and by plugin, for the comparison with the plain evaluator.

use super::plan::Unkeepable;
use super::shape::PodColumns;
use super::{AnswerCache, Kept};
use crate::{Evaluator, PluginScores, Scores};
use berth_framework::Slot;
use berth_framework::plugin::NodeStatuses;
use berth_profile::PluginId;
use std::sync::Arc;

/// The statement of the kept answers about a pod.
#[derive(Debug)]
pub struct Examined {
    /// The reason why nodes were rejected.
    pub statuses: NodeStatuses,
    /// The feasible nodes in slot order.
    pub feasible: Vec<Slot>,
    /// The scores of the feasible nodes: the kept totals, and the score of each plugin, computed for the explanation.
    pub scores: Scores,
}

impl AnswerCache {
    /// Lays open what would decide about the evaluator's pod; `None` when the plain evaluator would. The pod's own
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
    let (columns, live) = (&kept.columns, kept.live()?);
    let mut examined = Examined {
        statuses: NodeStatuses::kept(Arc::new(kept.statuses())),
        feasible: Vec::new(),
        scores: Scores::default(),
    };
    if live.nodes == 0 {
        return Ok(examined);
    }
    let class_scores = kept.class_scores(evaluator, &live)?;
    let sums = kept.class_sums(evaluator, &live, &class_scores);
    // By node: the place of its class among the live ones.
    let mut places = Vec::with_capacity(live.nodes);
    let all = evaluator.cluster.nodes.occupied();
    let (in_slot_order, _) = kept.found_in_order(&live, all, usize::MAX);
    for (slot, class) in in_slot_order {
        places.extend(live.classes.iter().position(|(id, _)| *id == class));
        examined.feasible.push(slot);
        let total = i64::from(columns.sum(slot)) + sums[class as usize].unwrap_or(0);
        examined.scores.nodes.push((slot, total));
    }
    for member in &evaluator.profile.pre_score {
        let scorers = &evaluator.profile.score;
        let mut by_class = class_scores.iter();
        let is_by_class = by_class.any(|(scorer, _)| scorers[*scorer].member.id == member.id);
        if is_skipped(columns, member.id) && !is_by_class {
            examined.scores.skipped.push(member.name.clone());
        }
    }
    for (at, scorer) in evaluator.profile.score.iter().enumerate() {
        let by_class = class_scores.iter().find(|(scorer, _)| *scorer == at);
        let mut raw = Vec::new();
        if let Some((_, scores)) = by_class {
            raw.extend(places.iter().map(|place| scores[*place]));
        } else {
            let mut columns = columns.both().into_iter();
            let Some(column) = columns.find(|column| column.summed.contains(&at)) else {
                continue;
            };
            let state = &column.evaluation.state;
            let cx = evaluator.context();
            let plugin = &scorer.member.plugin;
            plugin
                .score_many(&cx, state, &column.pod, &examined.feasible, &mut raw)
                .map_err(|_| Unkeepable)?;
        }
        examined.scores.plugins.push(PluginScores {
            plugin: scorer.member.name.clone(),
            weight: scorer.weight,
            raw: Vec::new(),
            weighted: raw.into_iter().map(|s| s * scorer.weight).collect(),
        });
    }
    Ok(examined)
}

/// Returns whether PreScore of a plugin returned Skip, in whichever group it is.
fn is_skipped(columns: &PodColumns<'_>, id: PluginId) -> bool {
    let mut columns = columns.both().into_iter();
    columns.all(|column| column.evaluation.skip_score.contains(id))
}
