//! Kept answers laid open node by node and plugin by plugin, to be compared with what is known.

use super::AnswerCache;
use super::KeptFor;
use super::shape::Unkeepable;
use crate::evaluator::{Evaluator, PluginScores, Scores};
use crate::profile::PluginId;
use berth_framework::Slot;
use berth_framework::plugin::{Context, NodeStatuses};

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
        self.with_shape(evaluator, plan, |evaluator, kept| {
            examine(evaluator, kept).ok()
        })?
    }
}

fn examine(evaluator: &Evaluator<'_>, kept: KeptFor<'_>) -> Result<Examined, Unkeepable> {
    let KeptFor {
        plan,
        shape,
        group_answers,
        ..
    } = kept;
    if shape.is_entangled() {
        return Err(Unkeepable);
    }
    let live = shape.live(plan)?;
    let mut examined = Examined {
        statuses: NodeStatuses::kept(shape.statuses(plan)),
        feasible: Vec::new(),
        scores: Scores::default(),
    };
    if live.nodes == 0 {
        return Ok(examined);
    }
    let class_scores = shape.class_scores(evaluator, plan, group_answers, &live)?;
    // By node: its slot and the place of its class among the live ones.
    let mut nodes: Vec<(Slot, usize)> = Vec::with_capacity(live.nodes);
    for (at, (id, _)) in live.classes.iter().enumerate() {
        let set = shape.classes.get(*id);
        nodes.extend(set.feasible_nodes().map(|slot| (slot, at)));
    }
    nodes.sort_unstable();
    examined.feasible = nodes.iter().map(|(slot, _)| *slot).collect();
    let totals = nodes.iter().map(|(slot, class)| {
        let of_class = class_scores
            .iter()
            .map(|(scorer, scores)| evaluator.profile.score[*scorer].weight * scores[*class]);
        (
            *slot,
            i64::from(shape.scores[slot.index()]) + of_class.sum::<i64>(),
        )
    });
    examined.scores.nodes = totals.collect();
    let cx = Context {
        now: evaluator.now,
        cluster: evaluator.cluster,
        features: evaluator.features,
        work: evaluator.work,
    };
    let is_skipped = |id: PluginId| {
        let mut skipped = group_answers
            .both()
            .map(|node_answers| node_answers.evaluation.skip_score)
            .into_iter();
        skipped.all(|skipped| skipped.contains(id))
    };
    for member in &evaluator.profile.pre_score {
        let scorers = &evaluator.profile.score;
        let by_class = class_scores
            .iter()
            .any(|(scorer, _)| scorers[*scorer].member.id == member.id);
        if is_skipped(member.id) && !by_class {
            examined.scores.skipped.push(member.name.clone());
        }
    }
    for (at, scorer) in evaluator.profile.score.iter().enumerate() {
        let by_class = class_scores.iter().find(|(scorer, _)| *scorer == at);
        let mut raw = Vec::new();
        if let Some((_, scores)) = by_class {
            raw.extend(nodes.iter().map(|(_, class)| scores[*class]));
        } else {
            let id = scorer.member.id;
            let of_group = group_answers
                .both()
                .into_iter()
                .find(|node_answers| node_answers.is_scored_by(at));
            let Some(node_answers) = of_group.filter(|_| !is_skipped(id)) else {
                continue;
            };
            let state = &node_answers.evaluation.state;
            let plugin = &scorer.member.plugin;
            plugin
                .score_many(&cx, state, &node_answers.pod, &examined.feasible, &mut raw)
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
