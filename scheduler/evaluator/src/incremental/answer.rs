//! From the classes and blocks of a shape to a decision.

use super::Kept;
use super::cell::{Answer, FEASIBLE, Rejection};
use super::classes::{ClassId, NO_CLASS};
use super::plan::Unkeepable;
use super::rows::RowId;
use super::shape::{BLOCK, BlockBest, Entries, slots_of};
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

impl Kept<'_> {
    /// The classes whose nodes are feasible.
    ///
    /// # Errors
    /// When a ledger breaks: the plain evaluator has to determine the result.
    pub(super) fn live(&self) -> Result<Live, Unkeepable> {
        let mut nodes = vec![0; self.classes.len()];
        for of in self.shape.entries() {
            if of.answer == FEASIBLE {
                nodes[of.class as usize] += usize::from(of.all);
            }
        }
        let mut live = Live::default();
        for (id, nodes) in (0..).zip(nodes) {
            if nodes == 0 || !self.classes.is_feasible(id) {
                continue;
            }
            match self.rejection_by_ledgers(id) {
                None => {
                    live.classes.push((id, nodes));
                    live.nodes += nodes;
                }
                Some(rejection) if rejection.status.is_rejected() => {}
                Some(_) => return Err(Unkeepable),
            }
        }
        Ok(live)
    }

    fn rejection_by_ledgers(&self, class: ClassId) -> Option<Rejection> {
        let numbers = self.classes.numbers(class);
        self.classes.ledgers.rejection(self.plan, numbers)
    }

    /// Returns whether a node is feasible.
    pub(super) fn fits(&self, slot: Slot) -> bool {
        let class = self.classes.of(slot);
        self.classes.is_feasible(class)
            && self.columns.answer_by_row(slot) == FEASIBLE
            && self.rejection_by_ledgers(class).is_none()
    }

    /// The score of a node of a class beyond its own sum, per scoring plugin: the plugin's place among the
    /// scorers, and the normalised score of each of the live classes.
    ///
    /// # Errors
    /// When a plugin breaks or a score is out of range.
    pub(super) fn class_scores(
        &self,
        evaluator: &Evaluator<'_>,
        live: &Live,
    ) -> Result<Vec<(usize, Vec<i64>)>, Unkeepable> {
        let mut all = Vec::new();
        let cx = evaluator.context();
        for (at, column) in self.columns.both().into_iter().enumerate() {
            for (place, scorer) in column.normalized.iter().enumerate() {
                // By class: no plugin reads which node has a score.
                let raw = live.classes.iter().map(|(id, _)| {
                    let raw = column.grade(self.classes.grade(*id, at));
                    let class = Slot::from_index(u32::from(*id));
                    (class, raw.get(place).copied().unwrap_or(0))
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
        for of in &self.classes.ledgers.all {
            let Some(scorer) = self.plan.domains[of.member].scorer else {
                continue;
            };
            let feasible = live.classes.iter().map(|(id, nodes)| FeasibleClass {
                class: &self.classes.numbers(*id)[of.numbers.clone()],
                nodes: *nodes,
            });
            let feasible: SmallVec<[FeasibleClass<'_>; 16]> = feasible.collect();
            let mut scores = vec![0; feasible.len()];
            if of.ledger.score(&feasible, &mut scores) {
                all.push((scorer, scores));
            }
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
        live: &Live,
        scores: &[(usize, Vec<i64>)],
    ) -> Vec<Option<i64>> {
        let mut sums = vec![None; self.classes.len()];
        for (at, (id, _)) in live.classes.iter().enumerate() {
            let weighted = scores
                .iter()
                .map(|(scorer, scores)| evaluator.profile.score[*scorer].weight * scores[at]);
            sums[*id as usize] = Some(weighted.sum());
        }
        sums
    }

    /// A node with the greatest total, chosen at random among several: the choice of the plain evaluator with the same
    /// generator.
    ///
    /// # Errors
    /// See [`Kept::class_scores`].
    pub(super) fn choose(
        &self,
        evaluator: &Evaluator<'_>,
        live: &Live,
        rng: &mut fastrand::Rng,
    ) -> Result<Slot, Unkeepable> {
        let scores = match live.nodes {
            1 => Vec::new(),
            _ => self.class_scores(evaluator, live)?,
        };
        let sums = self.class_sums(evaluator, live, &scores);
        // The total of nodes of a class with a sum and an answer of a column by row; `None` if they are not feasible.
        let total = |class: ClassId, answer: Answer, sum: i32| {
            let of_class = sums.get(class as usize).copied().flatten();
            of_class
                .filter(|_| answer == FEASIBLE)
                .map(|of_class| i64::from(sum) + of_class)
        };
        let (mut greatest, mut nodes) = (None, 0);
        for best in self.shape.entries() {
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
        // The group of the chosen node among the best, then its block, then the node.
        let mut chosen = break_tie(nodes, rng);
        let is_best = |of: &&BlockBest| total(of.class, of.answer, of.sum) == greatest;
        let best_of = |entries: &Entries| {
            let best = entries.iter().filter(is_best);
            best.map(|of| usize::from(of.nodes)).sum::<usize>()
        };
        for (at, group) in self.shape.groups.iter().enumerate() {
            let here = best_of(group);
            if chosen >= here && !group.is_empty() {
                chosen -= here;
                continue;
            }
            let start = at * BLOCK;
            let blocks = (start..).zip(&self.shape.blocks[start..]).take(BLOCK);
            for (at, block) in blocks {
                let here = best_of(block);
                if chosen >= here {
                    chosen -= here;
                    continue;
                }
                let is_best = |slot: &Slot| {
                    let (class, columns) = (self.classes.of(*slot), &self.columns);
                    class != NO_CLASS
                        && total(class, columns.answer_by_row(*slot), columns.sum(*slot))
                            == greatest
                };
                return slots_of(at).filter(is_best).nth(chosen).ok_or(Unkeepable);
            }
        }
        Err(Unkeepable)
    }

    /// The feasible nodes that a search in kube-scheduler's order finds before it ends (C-19), each with its class, and how
    /// many nodes the search visits.
    pub(super) fn found_in_order(
        &self,
        live: &Live,
        nodes: impl Iterator<Item = Slot>,
        stop_at: usize,
    ) -> (Vec<(Slot, ClassId)>, usize) {
        let mut is_live = vec![false; self.classes.len()];
        for (id, _) in &live.classes {
            is_live[*id as usize] = true;
        }
        let (mut found, mut visited) = (Vec::with_capacity(stop_at.min(live.nodes)), 0);
        for slot in nodes {
            if found.len() >= stop_at {
                break;
            }
            visited += 1;
            let class = self.classes.of(slot);
            let is_live = is_live.get(class as usize) == Some(&true);
            if is_live && self.columns.answer_by_row(slot) == FEASIBLE {
                found.push((slot, class));
            }
        }
        (found, visited)
    }

    /// Chooses among some of the feasible nodes, given with their classes, as [`Kept::choose`] does among all.
    ///
    /// # Errors
    /// See [`Kept::class_scores`].
    pub(super) fn choose_among(
        &self,
        evaluator: &Evaluator<'_>,
        found: &[(Slot, ClassId)],
        rng: &mut fastrand::Rng,
    ) -> Result<Slot, Unkeepable> {
        if let [(only, _)] = found {
            return Ok(*only);
        }
        // Only the classes of these nodes count for the scores.
        let mut nodes = vec![0; self.classes.len()];
        for (_, class) in found {
            nodes[*class as usize] += 1;
        }
        let some = Live {
            classes: (0..).zip(nodes).filter(|(_, nodes)| *nodes > 0).collect(),
            nodes: found.len(),
        };
        let scores = self.class_scores(evaluator, &some)?;
        let sums = self.class_sums(evaluator, &some, &scores);
        let total = |(slot, class): &(Slot, ClassId)| {
            let of_class = sums[*class as usize].unwrap_or(0);
            (*slot, i64::from(self.columns.sum(*slot)) + of_class)
        };
        let totals: Vec<(Slot, i64)> = found.iter().map(total).collect();
        choose(&totals, rng).ok_or(Unkeepable)
    }

    /// The reason why each node was rejected.
    pub(super) fn statuses(&self) -> Statuses {
        let pods = &self.columns.pods;
        let mut statuses = Statuses {
            class_of: self.classes.class_of.clone(),
            by_row: pods.is_by_row.then(|| {
                let answers = pods.cells().iter().map(|cell| cell.answer());
                (self.columns.rows.by_slot().clone(), answers.collect())
            }),
            of: FxHashMap::default(),
            totals: Vec::new(),
            nodes: 0,
        };
        for of in self.shape.entries() {
            let entry = statuses.of.entry((of.class, of.answer));
            let status = entry.or_insert_with(|| {
                let all = [
                    self.rejection_by_ledgers(of.class),
                    self.classes.rejection(self.columns, of.class).cloned(),
                    pods.rejection(of.answer).cloned(),
                ];
                // The first filter that rejects a node decides.
                let first = all.into_iter().flatten().min_by_key(|of| of.filter);
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
    pub(super) fn diagnosis(&self) -> Diagnosis {
        let statuses = self.statuses();
        let mut diagnosis = Diagnosis::default();
        for (status, _) in &statuses.totals {
            diagnosis.add_plugin_of(status);
        }
        diagnosis.statuses = NodeStatuses::kept(Arc::new(statuses));
        diagnosis
    }
}

/// The answer of every node at one moment.
#[derive(Debug)]
pub(super) struct Statuses {
    class_of: Arc<Vec<ClassId>>,
    /// The row of each slot, and the answers of a column by row.
    by_row: Option<(Arc<Vec<RowId>>, Vec<Answer>)>,
    /// By class and answer of a column by row.
    of: FxHashMap<(ClassId, Answer), Option<Status>>,
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
