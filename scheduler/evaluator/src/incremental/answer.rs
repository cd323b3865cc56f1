//! From the classes and blocks of a shape to a decision.

use super::Kept;
use super::cell::{Answer, Cell, FEASIBLE, REJECTED, Rejection};
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

/// Feasible nodes with equal normalised scores: those of one class with one grade in the second column.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveClass {
    class: ClassId,
    grade: Answer,
    nodes: usize,
    /// The place of others of the class, with another grade.
    next: Option<usize>,
}

/// The feasible nodes of a shape at this moment.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) classes: Vec<LiveClass>,
    /// By class: the place of one of its entries in `classes`, if its nodes are feasible.
    of_class: Vec<Option<usize>>,
    /// The number of all of them.
    pub(super) nodes: usize,
}

impl Live {
    fn new(classes: usize) -> Self {
        Self {
            of_class: vec![None; classes],
            ..Self::default()
        }
    }

    fn add(&mut self, class: ClassId, grade: Answer, nodes: usize) {
        self.nodes += nodes;
        if let Some(at) = self.find(class, grade) {
            self.classes[at].nodes += nodes;
            return;
        }
        let next = self.of_class[class as usize].replace(self.classes.len());
        self.classes.push(LiveClass {
            class,
            grade,
            nodes,
            next,
        });
    }

    /// The place of the nodes of a class with a grade, if they are feasible.
    #[inline]
    fn find(&self, class: ClassId, grade: Answer) -> Option<usize> {
        let mut place = *self.of_class.get(class as usize)?;
        while let Some(at) = place
            && self.classes[at].grade != grade
        {
            place = self.classes[at].next;
        }
        place
    }
}

impl Kept<'_> {
    /// The nodes that are feasible.
    ///
    /// # Errors
    /// When a ledger breaks: the plain evaluator has to determine the result.
    pub(super) fn live(&self) -> Result<Live, Unkeepable> {
        let mut live = Live::new(self.classes.len());
        let mut judged = vec![None; self.classes.len()];
        for of in self.shape.entries() {
            if of.answer >= REJECTED {
                continue;
            }
            let class = of.class as usize;
            let is_feasible = match judged[class] {
                Some(is_feasible) => is_feasible,
                None => *judged[class].insert(self.is_feasible(of.class)?),
            };
            if is_feasible {
                live.add(of.class, of.answer, of.all.into());
            }
        }
        Ok(live)
    }

    fn rejection_by_ledgers(&self, class: ClassId) -> Option<Rejection> {
        let numbers = self.classes.numbers(class);
        self.classes.ledgers.rejection(self.plan, numbers)
    }

    /// Returns whether the nodes of a class are feasible, if the second column does not reject them.
    fn is_feasible(&self, class: ClassId) -> Result<bool, Unkeepable> {
        if self.classes.grade(class).is_none() {
            return Ok(false);
        }
        match self.rejection_by_ledgers(class) {
            Some(rejection) if !rejection.status.is_rejected() => Err(Unkeepable),
            rejection => Ok(rejection.is_none()),
        }
    }

    /// Returns whether a node is feasible.
    pub(super) fn fits(&self, slot: Slot) -> bool {
        let (class, (answer, _)) = (self.classes.of(slot), self.columns.of(slot));
        class != NO_CLASS && answer < REJECTED && self.is_feasible(class) == Ok(true)
    }

    /// The scores of nodes beyond their own sums, per scoring plugin: the plugin's place among the scorers, and the normalised
    /// score of each of the classes.
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
        for (group, column) in self.columns.both().into_iter().enumerate() {
            for (place, scorer) in column.normalized.iter().enumerate() {
                // By class: no plugin reads which node has a score.
                let raw = (0..).zip(&live.classes).map(|(at, of)| {
                    let of_node = self.classes.grade(of.class).unwrap_or(FEASIBLE);
                    let raw = column.grade([of_node, of.grade][group]);
                    (Slot::from_index(at), raw.get(place).copied().unwrap_or(0))
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
            let feasible = live.classes.iter().map(|live| FeasibleClass {
                class: &self.classes.numbers(live.class)[of.numbers.clone()],
                nodes: live.nodes,
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
        let sums = class_sums(evaluator, live, &scores);
        // The total of nodes with a sum; `None` if they are not feasible.
        let total = |class: ClassId, answer: Answer, sum: i32| {
            let live = live.find(class, answer);
            live.map(|at| i64::from(sum) + sums[at])
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
                    let found = self.find(live, *slot);
                    found.map(|(at, sum)| sum + sums[at]) == greatest
                };
                return slots_of(at).filter(is_best).nth(chosen).ok_or(Unkeepable);
            }
        }
        Err(Unkeepable)
    }

    /// The place of a feasible node's class, and the sum of its scores that are not normalised; `None` if it is not feasible.
    #[inline]
    pub(super) fn find(&self, live: &Live, slot: Slot) -> Option<(usize, i64)> {
        let (answer, sum) = self.columns.of(slot);
        let at = live.find(self.classes.of(slot), answer)?;
        Some((at, sum.into()))
    }

    /// The feasible nodes that a search in kube-scheduler's order finds before it ends (C-19), and how many nodes the search
    /// visits.
    pub(super) fn found_in_order(
        &self,
        live: &Live,
        nodes: impl Iterator<Item = Slot>,
        stop_at: usize,
    ) -> (Vec<Slot>, usize) {
        let (mut found, mut visited) = (Vec::with_capacity(stop_at.min(live.nodes)), 0);
        for slot in nodes {
            if found.len() >= stop_at {
                break;
            }
            visited += 1;
            if self.find(live, slot).is_some() {
                found.push(slot);
            }
        }
        (found, visited)
    }

    /// Chooses among some of the feasible nodes, as [`Kept::choose`] does among all.
    ///
    /// # Errors
    /// See [`Kept::class_scores`].
    pub(super) fn choose_among(
        &self,
        evaluator: &Evaluator<'_>,
        found: &[Slot],
        rng: &mut fastrand::Rng,
    ) -> Result<Slot, Unkeepable> {
        if let [only] = found {
            return Ok(*only);
        }
        // Only the classes of these nodes count for the scores.
        let mut some = Live::new(self.classes.len());
        for slot in found {
            let (answer, _) = self.columns.of(*slot);
            some.add(self.classes.of(*slot), answer, 1);
        }
        let scores = self.class_scores(evaluator, &some)?;
        let sums = class_sums(evaluator, &some, &scores);
        let totals = found.iter().filter_map(|slot| {
            let (at, sum) = self.find(&some, *slot)?;
            Some((*slot, sum + sums[at]))
        });
        let totals: Vec<(Slot, i64)> = totals.collect();
        choose(&totals, rng).ok_or(Unkeepable)
    }

    /// The reason why each node was rejected.
    pub(super) fn statuses(&self) -> Statuses {
        let pods = &self.columns.pods;
        let mut statuses = Statuses {
            class_of: self.classes.class_of.clone(),
            row_of: pods.is_by_row.then(|| self.columns.rows.row_of.clone()),
            of_pods: pods.cells.to_vec(),
            of: FxHashMap::default(),
            totals: Vec::new(),
        };
        for of in self.shape.entries() {
            let rejection = pods.rejection(of.answer);
            let answer = rejection.map_or(FEASIBLE, |_| of.answer);
            let entry = statuses.of.entry((of.class, answer));
            let status = entry.or_insert_with(|| {
                let all = [
                    self.rejection_by_ledgers(of.class),
                    self.classes.rejection(self.columns.node, of.class).cloned(),
                    rejection.cloned(),
                ];
                // The first filter that rejects a node decides.
                let first = all.into_iter().flatten().min_by_key(|of| of.filter);
                first.map(|first| first.status)
            });
            let (Some(status), nodes) = (status, usize::from(of.all)) else {
                continue;
            };
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

/// The weighted sum of these scores for each of the classes.
pub(super) fn class_sums(
    evaluator: &Evaluator<'_>,
    live: &Live,
    scores: &[(usize, Vec<i64>)],
) -> Vec<i64> {
    let mut sums = vec![0; live.classes.len()];
    for (scorer, scores) in scores {
        let weight = evaluator.profile.score[*scorer].weight;
        for (sum, score) in sums.iter_mut().zip(scores) {
            *sum += weight * score;
        }
    }
    sums
}

/// The answer of every node at one moment.
#[derive(Debug)]
pub(super) struct Statuses {
    class_of: Arc<Vec<ClassId>>,
    /// The row of each slot, if the second column is by row.
    row_of: Option<Arc<Vec<RowId>>>,
    /// The second column.
    of_pods: Vec<Cell>,
    /// By class and rejection of the second column, or [`FEASIBLE`].
    of: FxHashMap<(ClassId, Answer), Option<Status>>,
    totals: Vec<(Status, usize)>,
}

impl KeptStatuses for Statuses {
    fn get(&self, node: Slot) -> Option<&Status> {
        let class = *self.class_of.get(node.index())?;
        let place = match &self.row_of {
            Some(row_of) => *row_of.get(node.index())? as usize,
            None => node.index(),
        };
        let answer = self.of_pods.get(place)?.answer();
        self.of.get(&(class, answer))?.as_ref()
    }

    fn len(&self) -> usize {
        self.totals.iter().map(|(_, nodes)| nodes).sum()
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
