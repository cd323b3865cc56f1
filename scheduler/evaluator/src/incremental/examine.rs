//! Kept answers laid open node by node and plugin by plugin, to be compared with what is known.

use super::node_answers::FEASIBLE;
use super::plan::Unkeepable;
use super::shape::Parts;
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
    /// Their scores. The totals are the kept ones; what each plugin contributed is worked out anew.
    pub scores: Scores,
}

impl AnswerCache {
    /// Lays open what would decide about the evaluator's pod; `None` when the plain evaluator would. The pod's own
    /// nomination is not taken into account.
    pub fn examine(&mut self, evaluator: &mut Evaluator<'_>) -> Option<Examined> {
        let plan = self.prepare(evaluator)?;
        self.with_shape(evaluator, plan, false, |evaluator, kept| {
            examine(evaluator, kept).ok()
        })?
    }
}

fn examine(evaluator: &Evaluator<'_>, kept: Kept<'_>) -> Result<Examined, Unkeepable> {
    let Kept {
        plan,
        parts,
        classes,
        shape,
        ..
    } = kept;
    if shape.is_entangled() {
        return Err(Unkeepable);
    }
    let live = shape.live(plan, parts, classes)?;
    let mut examined = Examined {
        statuses: NodeStatuses::kept(Arc::new(shape.statuses(plan, parts, classes))),
        feasible: Vec::new(),
        scores: Scores::default(),
    };
    if live.nodes == 0 {
        return Ok(examined);
    }
    let class_scores = live.class_scores(evaluator, plan, parts, classes)?;
    let sums = live.class_sums(evaluator, classes, &class_scores);
    // By node: the place of its class among the live ones.
    let mut places = Vec::with_capacity(live.nodes);
    for (slot, class) in (0..).map(Slot::from_index).zip(classes.class_of.iter()) {
        if parts.answer_by_row(slot) != FEASIBLE {
            continue;
        }
        let place = live.classes.iter().position(|(id, _)| id == class);
        let Some((place, of_class)) = place.zip(sums.get(*class as usize).copied().flatten())
        else {
            continue;
        };
        places.push(place);
        examined.feasible.push(slot);
        let total = i64::from(parts.sum(slot)) + of_class;
        examined.scores.nodes.push((slot, total));
    }
    for member in &evaluator.profile.pre_score {
        let scorers = &evaluator.profile.score;
        let mut by_class = class_scores.iter();
        let is_by_class = by_class.any(|(scorer, _)| scorers[*scorer].member.id == member.id);
        if is_skipped(parts, member.id) && !is_by_class {
            examined.scores.skipped.push(member.name.clone());
        }
    }
    for (at, scorer) in evaluator.profile.score.iter().enumerate() {
        let by_class = class_scores.iter().find(|(scorer, _)| *scorer == at);
        let mut raw = Vec::new();
        if let Some((_, scores)) = by_class {
            raw.extend(places.iter().map(|place| scores[*place]));
        } else {
            let mut columns = parts.columns().into_iter();
            let column = columns.find(|column| column.is_scored_by(at));
            let Some(column) = column.filter(|_| !is_skipped(parts, scorer.member.id)) else {
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
fn is_skipped(parts: &Parts, id: PluginId) -> bool {
    let mut columns = parts.columns().into_iter();
    columns.all(|column| column.evaluation.skip_score.contains(id))
}
