//! From the classes and blocks of a shape to a decision.

use super::classes::{ClassId, NO_CLASS};
use super::node_answers::{FEASIBLE, Known, NodeAnswer};
use super::node_classes::NodeClasses;
use super::plan::{Plan, Unkeepable};
use super::rows::RowId;
use super::shape::{BlockBest, Parts, Shape, slots_of};
use crate::{Diagnosis, Evaluator, break_tie, choose};
use berth_framework::keep::FeasibleClass;
use berth_framework::plugin::{KeptStatuses, MAX_NODE_SCORE, NodeStatuses};
use berth_framework::{Slot, Status};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The feasible classes of a shape at this moment.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Them, with the number of their nodes.
    pub(super) classes: Vec<(ClassId, usize)>,
    /// The nodes of all of them.
    pub(super) nodes: usize,
}

impl Shape {
    /// The classes whose nodes are feasible.
    ///
    /// # Errors
    /// When a ledger breaks: the plain evaluator has to determine the result.
    pub(super) fn live(
        &self,
        plan: &Plan,
        parts: &Parts,
        classes: &NodeClasses,
    ) -> Result<Live, Unkeepable> {
        let mut nodes = vec![0; classes.len()];
        for of in self.blocks.iter().flatten() {
            if of.answer == FEASIBLE {
                nodes[of.class as usize] += usize::from(of.all);
            }
        }
        let mut live = Live::default();
        for (id, nodes) in (0..).zip(nodes) {
            if nodes == 0 || !classes.is_feasible(id) {
                continue;
            }
            match parts.ledgers.rejection(plan, classes.numbers(id)) {
                None => {
                    live.classes.push((id, nodes));
                    live.nodes += nodes;
                }
                Some(known) if known.status.is_rejected() => {}
                Some(_) => return Err(Unkeepable),
            }
        }
        Ok(live)
    }
}

impl Live {
    /// The score of a node of a class beyond its own sum, per scoring plugin: the plugin's place among the
    /// scorers, and the normalised score of each of the live classes.
    ///
    /// # Errors
    /// When a plugin breaks or a score is out of range.
    pub(super) fn class_scores(
        &self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        parts: &Parts,
        classes: &NodeClasses,
    ) -> Result<Vec<(usize, Vec<i64>)>, Unkeepable> {
        let mut all = Vec::new();
        let cx = evaluator.context();
        for (group, column) in parts.columns().into_iter().enumerate() {
            for (scale, scorer) in column.scales.iter().enumerate() {
                // By class: no plugin reads which node has a score.
                let raw = self.classes.iter().map(|(id, _)| {
                    let class = Slot::from_index(u32::from(*id));
                    (class, classes.raw(parts, *id, group, scale))
                });
                let mut scores: SmallVec<[(Slot, i64); 16]> = raw.collect();
                let plugin = &evaluator.profile.score[*scorer].member.plugin;
                let state = &column.evaluation.state;
                let status = plugin.normalize(&cx, state, &column.pod, &mut scores);
                if !status.is_success() {
                    return Err(Unkeepable);
                }
                let scores = scores.into_iter().map(|(_, score)| score).collect();
                all.push((*scorer, scores));
            }
        }
        for of in &parts.ledgers.all {
            let member = &plan.domains[of.member];
            if member.weight.is_none() {
                continue;
            }
            let feasible = self.classes.iter().map(|(id, nodes)| FeasibleClass {
                class: &classes.numbers(*id)[of.numbers.clone()],
                nodes: *nodes,
            });
            let feasible: SmallVec<[FeasibleClass<'_>; 16]> = feasible.collect();
            let mut scores = vec![0; feasible.len()];
            if !of.ledger.score(&feasible, &mut scores) {
                continue;
            }
            let mut scorers = evaluator.profile.score.iter();
            let scorer = scorers
                .position(|s| s.member.id == member.id)
                .ok_or(Unkeepable)?;
            all.push((scorer, scores));
        }
        let in_range = |score: &i64| (0..=MAX_NODE_SCORE).contains(score);
        if all.iter().all(|(_, scores)| scores.iter().all(in_range)) {
            Ok(all)
        } else {
            Err(Unkeepable)
        }
    }

    /// The weighted sum of these scores by class; `None` for infeasible classes.
    pub(super) fn class_sums(
        &self,
        evaluator: &Evaluator<'_>,
        classes: &NodeClasses,
        scores: &[(usize, Vec<i64>)],
    ) -> Vec<Option<i64>> {
        let mut sums = vec![None; classes.len()];
        for (at, (id, _)) in self.classes.iter().enumerate() {
            let weighted = scores
                .iter()
                .map(|(scorer, scores)| evaluator.profile.score[*scorer].weight * scores[at]);
            sums[*id as usize] = Some(weighted.sum());
        }
        sums
    }

    /// A node with the greatest total, each of several with the same chance: the one that the plain evaluator
    /// chooses with the same generator.
    ///
    /// # Errors
    /// See [`Live::class_scores`].
    pub(super) fn choose(
        &self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        parts: &Parts,
        (classes, shape): (&NodeClasses, &Shape),
        rng: &mut fastrand::Rng,
    ) -> Result<Slot, Unkeepable> {
        let scores = match self.nodes {
            1 => Vec::new(),
            _ => self.class_scores(evaluator, plan, parts, classes)?,
        };
        let sums = self.class_sums(evaluator, classes, &scores);
        // The total of nodes of a class with a sum and an answer of a column by row; `None` if they are not feasible.
        let total = |class: ClassId, answer: NodeAnswer, sum: i32| {
            let of_class = sums.get(class as usize).copied().flatten();
            of_class
                .filter(|_| answer == FEASIBLE)
                .map(|of_class| i64::from(sum) + of_class)
        };
        let (mut greatest, mut nodes) = (None, 0);
        for best in shape.blocks.iter().flatten() {
            let total = total(best.class, best.answer, best.sum);
            if total > greatest {
                (greatest, nodes) = (total, usize::from(best.nodes));
            } else if total == greatest {
                nodes += usize::from(best.nodes);
            }
        }
        if greatest.is_none() {
            return Err(Unkeepable);
        }
        let mut chosen = break_tie(nodes, rng);
        for (at, block) in shape.blocks.iter().enumerate() {
            let is_best = |of: &&BlockBest| total(of.class, of.answer, of.sum) == greatest;
            let best = block.iter().filter(is_best);
            let here = best.map(|of| usize::from(of.nodes)).sum();
            if chosen >= here {
                chosen -= here;
                continue;
            }
            let is_best = |slot: &Slot| {
                let class = classes.of(*slot);
                class != NO_CLASS
                    && total(class, parts.answer_by_row(*slot), parts.sum(*slot)) == greatest
            };
            return slots_of(at).filter(is_best).nth(chosen).ok_or(Unkeepable);
        }
        Err(Unkeepable)
    }

    /// The feasible nodes that a search in kube-scheduler's order finds before it ends (C-19), each with its class, and how
    /// many nodes the search visits.
    pub(super) fn found_in_order(
        &self,
        parts: &Parts,
        classes: &NodeClasses,
        nodes: impl Iterator<Item = Slot>,
        stop_at: usize,
    ) -> (Vec<(Slot, ClassId)>, usize) {
        let mut is_live = vec![false; classes.len()];
        for (id, _) in &self.classes {
            is_live[*id as usize] = true;
        }
        let (mut found, mut visited) = (Vec::with_capacity(stop_at), 0);
        for slot in nodes {
            if found.len() >= stop_at {
                break;
            }
            visited += 1;
            let class = classes.of(slot);
            if is_live.get(class as usize) == Some(&true) && parts.answer_by_row(slot) == FEASIBLE {
                found.push((slot, class));
            }
        }
        (found, visited)
    }
}

/// Chooses among some of the feasible nodes, given with their classes, as [`Live::choose`] does among all.
///
/// # Errors
/// See [`Live::class_scores`].
pub(super) fn choose_among(
    evaluator: &Evaluator<'_>,
    plan: &Plan,
    parts: &Parts,
    classes: &NodeClasses,
    found: &[(Slot, ClassId)],
    rng: &mut fastrand::Rng,
) -> Result<Slot, Unkeepable> {
    if let [(only, _)] = found {
        return Ok(*only);
    }
    // Only the classes of these nodes count for the scores.
    let mut nodes = vec![0; classes.len()];
    for (_, class) in found {
        nodes[*class as usize] += 1;
    }
    let some = Live {
        classes: (0..).zip(nodes).filter(|(_, nodes)| *nodes > 0).collect(),
        nodes: found.len(),
    };
    let scores = some.class_scores(evaluator, plan, parts, classes)?;
    let sums = some.class_sums(evaluator, classes, &scores);
    let total = |(slot, class): &(Slot, ClassId)| {
        let of_class = sums[*class as usize].unwrap_or(0);
        (*slot, i64::from(parts.sum(*slot)) + of_class)
    };
    let totals: Vec<(Slot, i64)> = found.iter().map(total).collect();
    choose(&totals, rng).ok_or(Unkeepable)
}

impl Shape {
    /// The reason why each node was rejected.
    pub(super) fn statuses(&self, plan: &Plan, parts: &Parts, classes: &NodeClasses) -> Statuses {
        let mut statuses = Statuses {
            class_of: classes.class_of.clone(),
            by_row: parts.pods.is_by_row.then(|| {
                let answers = parts.pods.cells().iter().map(|cell| cell.answer);
                (parts.row_of.clone(), answers.collect())
            }),
            of: FxHashMap::default(),
            totals: Vec::new(),
            nodes: 0,
        };
        for of in self.blocks.iter().flatten() {
            let kind = (of.class, of.answer);
            let entry = statuses.of.entry(kind);
            let status = entry.or_insert_with(|| {
                // The first filter that rejects a node decides.
                let of_class = classes.answer_of(parts, of.class).cloned();
                let of_row = parts.pods.known.get(usize::from(of.answer)).cloned();
                let of_ledgers = parts.ledgers.rejection(plan, classes.numbers(of.class));
                let all = [
                    of_ledgers,
                    of_class,
                    of_row.filter(|_| of.answer != FEASIBLE),
                ];
                let first: Option<Known> = all.into_iter().flatten().min_by_key(|of| of.filter);
                first.map(|first| first.status)
            });
            let (Some(status), nodes) = (status, usize::from(of.all)) else {
                continue;
            };
            statuses.nodes += nodes;
            match statuses.totals.iter_mut().find(|(s, _)| s == status) {
                Some((_, all)) => *all += nodes,
                None => statuses.totals.push((status.clone(), nodes)),
            }
        }
        statuses
    }

    /// The diagnosis of a pod that fits nowhere.
    pub(super) fn diagnosis(&self, plan: &Plan, parts: &Parts, classes: &NodeClasses) -> Diagnosis {
        let statuses = self.statuses(plan, parts, classes);
        let mut diagnosis = Diagnosis::default();
        for (status, _) in &statuses.totals {
            diagnosis.add_plugin_of(status);
        }
        diagnosis.statuses = NodeStatuses::kept(Arc::new(statuses));
        diagnosis
    }
}

/// Returns whether a node is feasible.
pub(super) fn fits(plan: &Plan, parts: &Parts, classes: &NodeClasses, slot: Slot) -> bool {
    let class = classes.of(slot);
    classes.is_feasible(class)
        && parts.answer_by_row(slot) == FEASIBLE
        && parts
            .ledgers
            .rejection(plan, classes.numbers(class))
            .is_none()
}

/// The answer of every node at one moment.
#[derive(Debug)]
pub(super) struct Statuses {
    class_of: Arc<Vec<ClassId>>,
    /// The row of each slot, and the answers of a column by row.
    by_row: Option<(Arc<Vec<RowId>>, Vec<NodeAnswer>)>,
    /// By class and answer of a column by row.
    of: FxHashMap<(ClassId, NodeAnswer), Option<Status>>,
    totals: Vec<(Status, usize)>,
    nodes: usize,
}

impl KeptStatuses for Statuses {
    fn get(&self, node: Slot) -> Option<&Status> {
        let class = *self.class_of.get(node.index())?;
        let answer = match &self.by_row {
            Some((row_of, answers)) => *answers.get(*row_of.get(node.index())? as usize)?,
            None => FEASIBLE,
        };
        self.of.get(&(class, answer))?.as_ref()
    }

    fn len(&self) -> usize {
        self.nodes
    }

    fn each(&self, visit: &mut dyn FnMut(Slot, &Status) -> ControlFlow<()>) {
        for slot in (0..).map(Slot::from_index).take(self.class_of.len()) {
            if let Some(status) = self.get(slot)
                && visit(slot, status).is_break()
            {
                return;
            }
        }
    }

    fn totals(&self, visit: &mut dyn FnMut(&Status, usize)) {
        for (status, nodes) in &self.totals {
            visit(status, *nodes);
        }
    }
}
