//! From the classes of a shape to a decision.

use super::classes::{Best, ClassId, FEASIBLE};
use super::node_answers::Known;
use super::plan::Plan;
use super::shape::{Columns, GroupAnswers, Shape, Unkeepable};
use crate::evaluator::{Diagnosis, Evaluator, break_tie, choose};
use berth_framework::keep::FeasibleClass;
use berth_framework::plugin::{Context, KeptStatuses, MAX_NODE_SCORE, NodeStatuses};
use berth_framework::{Slot, Status};
use smallvec::SmallVec;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The answer of the ledgers about a class.
#[derive(Debug, Clone, Default)]
struct Verdict {
    /// The answer, and the filter that gave it; `None` when no ledger turned the class down.
    rejected: Option<(usize, Status)>,
}

/// The feasible classes of a shape at this moment.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Them, with the number of their feasible nodes.
    pub(super) classes: Vec<(ClassId, usize)>,
    /// The feasible nodes of all of them.
    pub(super) nodes: usize,
}

impl Shape {
    /// The answer of the ledgers about a class: the first filter that rejects it
    fn verdict(&self, plan: &Plan, id: ClassId) -> Verdict {
        let key = &self.classes.get(id).key;
        let mut verdict = Verdict::default();
        for counts in &self.domain_counts {
            let member = &plan.domains[counts.member];
            let Some(filter) = member.filter else {
                continue;
            };
            if verdict
                .rejected
                .as_ref()
                .is_some_and(|(at, _)| *at < filter)
            {
                continue;
            }
            let own = &key[counts.offset..counts.offset + counts.ledger.width()];
            if let Err(status) = counts.ledger.filter(own) {
                verdict.rejected = Some((filter, status.from_plugin(&member.name)));
            }
        }
        verdict
    }

    /// The classes with feasible nodes.
    ///
    /// # Errors
    /// When a ledger breaks: the plain evaluator has to determine the result.
    pub(super) fn live(&self, plan: &Plan) -> Result<Live, Unkeepable> {
        let mut live = Live::default();
        for (id, set) in self.classes.iter() {
            if set.feasible == 0 {
                continue;
            }
            match self.verdict(plan, id).rejected {
                None => {
                    live.classes.push((id, set.feasible));
                    live.nodes += set.feasible;
                }
                Some((_, status)) if status.is_rejected() => {}
                Some(_) => return Err(Unkeepable),
            }
        }
        Ok(live)
    }

    /// The score of a node of a class beyond its own sum, per scoring plugin: the plugin's place among the
    /// scorers, and the normalised score of each of the live classes.
    ///
    /// # Errors
    /// When a plugin breaks or a score is out of range.
    pub(super) fn class_scores(
        &self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        group_answers: &GroupAnswers<'_>,
        live: &Live,
    ) -> Result<Vec<(usize, Vec<i64>)>, Unkeepable> {
        let mut all = Vec::new();
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
            work: evaluator.work,
        };
        for (at, node_answers) in group_answers.both().into_iter().enumerate() {
            for (scale, scorer) in node_answers.scorers.scales.iter().enumerate() {
                let mut scores: SmallVec<[(Slot, i64); 16]> = SmallVec::new();
                for (id, _) in &live.classes {
                    let node = self.classes.get(*id).any().ok_or(Unkeepable)?;
                    scores.push((node, self.raw(group_answers, *id, at, scale)));
                }
                let plugin = &evaluator.profile.score[*scorer].member.plugin;
                let state = &node_answers.evaluation.state;
                let status = plugin.normalize(&cx, state, &node_answers.pod, &mut scores);
                if !status.is_success() {
                    return Err(Unkeepable);
                }
                let scores = scores.into_iter().map(|(_, score)| score).collect();
                all.push((*scorer, scores));
            }
        }
        for counts in &self.domain_counts {
            let member = &plan.domains[counts.member];
            if member.weight.is_none() {
                continue;
            }
            let width = counts.ledger.width();
            let classes: SmallVec<[FeasibleClass<'_>; 16]> = live
                .classes
                .iter()
                .map(|(id, nodes)| FeasibleClass {
                    class: &self.classes.get(*id).key[counts.offset..counts.offset + width],
                    nodes: *nodes,
                })
                .collect();
            let mut scores = vec![0; classes.len()];
            if !counts.ledger.score(&classes, &mut scores) {
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

    /// A node with the greatest total, each of several with the same chance: the one that the plain evaluator
    /// chooses with the same generator.
    ///
    /// # Errors
    /// See [`Shape::class_scores`].
    pub(super) fn choose(
        &mut self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        group_answers: &GroupAnswers<'_>,
        live: &Live,
        rng: &mut fastrand::Rng,
    ) -> Result<Slot, Unkeepable> {
        if live.nodes == 1 {
            let (only, _) = live.classes.first().ok_or(Unkeepable)?;
            return self.classes.get(*only).any().ok_or(Unkeepable);
        }
        let scores = self.class_scores(evaluator, plan, group_answers, live)?;
        let mut tied: SmallVec<[(ClassId, Best); 8]> = SmallVec::new();
        let mut greatest = i64::MIN;
        for (at, (id, _)) in live.classes.iter().enumerate() {
            let best = self.classes.get_mut(*id).summit().ok_or(Unkeepable)?;
            let of_class: i64 = scores
                .iter()
                .map(|(scorer, scores)| evaluator.profile.score[*scorer].weight * scores[at])
                .sum();
            let total = i64::from(best.score) + of_class;
            if total > greatest {
                greatest = total;
                tied.clear();
            }
            if total == greatest {
                tied.push((*id, best));
            }
        }
        let nodes: u32 = tied.iter().map(|(_, best)| best.nodes).sum();
        let chosen = break_tie(nodes as usize, rng) as u32;
        self.classes.nth_of_best(&tied, chosen).ok_or(Unkeepable)
    }

    /// The feasible nodes that a search in kube-scheduler's order finds before it ends (C-19), each with the place of
    /// its class in `live`, and how many nodes the search visits.
    pub(super) fn found_in_order(
        &self,
        live: &Live,
        nodes: impl Iterator<Item = Slot>,
        stop_at: usize,
    ) -> (Vec<(Slot, usize)>, usize) {
        let last = live.classes.iter().map(|(id, _)| usize::from(*id)).max();
        let mut places = vec![usize::MAX; last.map_or(0, |last| last + 1)];
        for (at, (id, _)) in live.classes.iter().enumerate() {
            places[usize::from(*id)] = at;
        }
        let (mut found, mut visited) = (Vec::with_capacity(stop_at), 0);
        for slot in nodes {
            if found.len() >= stop_at {
                break;
            }
            visited += 1;
            if self.columns.answer(slot) == Some(FEASIBLE) {
                let class = usize::from(self.columns.class_of[slot.index()]);
                let place = places.get(class).copied().unwrap_or(usize::MAX);
                if place != usize::MAX {
                    found.push((slot, place));
                }
            }
        }
        (found, visited)
    }

    /// Chooses among some of the feasible nodes, as [`Shape::choose`] does among all. `found` has the place of the
    /// class of each in `live`.
    ///
    /// # Errors
    /// See [`Shape::class_scores`].
    pub(super) fn choose_among(
        &self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        group_answers: &GroupAnswers<'_>,
        live: &Live,
        found: &[(Slot, usize)],
        rng: &mut fastrand::Rng,
    ) -> Result<Slot, Unkeepable> {
        if let [(only, _)] = found {
            return Ok(*only);
        }
        // Only the classes of these nodes count for the scores.
        let mut nodes = vec![0; live.classes.len()];
        for (_, place) in found {
            nodes[*place] += 1;
        }
        let classes = live.classes.iter().zip(&nodes);
        let classes = classes.map(|((id, _), nodes)| (*id, *nodes));
        let some = Live {
            classes: classes.filter(|(_, nodes)| *nodes > 0).collect(),
            nodes: found.len(),
        };
        let scores = self.class_scores(evaluator, plan, group_answers, &some)?;
        let mut of_class = vec![0; live.classes.len()];
        let places = (0..nodes.len()).filter(|place| nodes[*place] > 0);
        for (at, place) in places.enumerate() {
            let weighted = scores
                .iter()
                .map(|(scorer, scores)| evaluator.profile.score[*scorer].weight * scores[at]);
            of_class[place] = weighted.sum();
        }
        let total = |(slot, place): &(Slot, usize)| {
            let own = i64::from(self.scores[slot.index()]);
            (*slot, own + of_class[*place])
        };
        let totals: Vec<(Slot, i64)> = found.iter().map(total).collect();
        choose(&totals, rng).ok_or(Unkeepable)
    }

    /// Returns whether a node is feasible.
    pub(super) fn fits(&self, plan: &Plan, slot: Slot) -> bool {
        let class = || self.columns.class_of[slot.index()];
        self.columns.answer(slot) == Some(FEASIBLE)
            && self.verdict(plan, class()).rejected.is_none()
    }

    /// The reason why each node was rejected.
    pub(super) fn statuses(&self, plan: &Plan) -> Arc<Statuses> {
        let mut statuses = Statuses {
            columns: self.columns.clone(),
            known: self.known.clone(),
            classes: Vec::new(),
            totals: Vec::new(),
            nodes: 0,
        };
        for (id, set) in self.classes.iter() {
            let rejected = self.verdict(plan, id).rejected;
            if statuses.classes.len() <= id as usize {
                statuses.classes.resize(id as usize + 1, None);
            }
            let own = set.rejected.iter().copied();
            let feasible = u32::try_from(set.feasible).unwrap_or(u32::MAX);
            for (answer, nodes) in own.chain([(FEASIBLE, feasible)]) {
                let known = &self.known[usize::from(answer)];
                let by_class = rejected.as_ref().filter(|(at, _)| *at < known.filter);
                let status = match by_class {
                    Some((_, status)) => status,
                    None if answer == FEASIBLE => continue,
                    None => &known.status,
                };
                if nodes == 0 {
                    continue;
                }
                statuses.nodes += nodes as usize;
                match statuses.totals.iter_mut().find(|(s, _)| s == status) {
                    Some((_, count)) => *count += nodes as usize,
                    None => statuses.totals.push((status.clone(), nodes as usize)),
                }
            }
            statuses.classes[id as usize] = rejected;
        }
        Arc::new(statuses)
    }

    /// The diagnosis of a pod that fits nowhere.
    pub(super) fn diagnosis(&self, plan: &Plan) -> Diagnosis {
        let statuses = self.statuses(plan);
        let mut diagnosis = Diagnosis::default();
        for (status, _) in &statuses.totals {
            diagnosis.add_plugin_of(status);
        }
        diagnosis.statuses = NodeStatuses::kept(statuses);
        diagnosis
    }
}

/// The answer of every node: the kept answers at one moment, shared.
#[derive(Debug)]
pub(super) struct Statuses {
    columns: Arc<Columns>,
    known: Arc<Vec<Known>>,
    /// By class: the ledgers' answer and the filter that gave it.
    classes: Vec<Option<(usize, Status)>>,
    totals: Vec<(Status, usize)>,
    nodes: usize,
}

impl KeptStatuses for Statuses {
    fn get(&self, node: Slot) -> Option<&Status> {
        let answer = self.columns.answer(node)?;
        let known = self.known.get(usize::from(answer))?;
        let class = *self.columns.class_of.get(node.index())?;
        match self.classes.get(class as usize)? {
            Some((filter, status)) if *filter < known.filter => Some(status),
            _ if answer == FEASIBLE => None,
            _ => Some(&known.status),
        }
    }

    fn len(&self) -> usize {
        self.nodes
    }

    fn each(&self, visit: &mut dyn FnMut(Slot, &Status) -> ControlFlow<()>) {
        for slot in (0..).map(Slot::from_index).take(self.columns.answers.len()) {
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
