//! From the classes and blocks of a shape to a decision.

use super::classes::{ClassId, NO_CLASS};
use super::plan::{Plan, Unkeepable};
use super::shape::{Parts, Shape};
use crate::evaluator::{Diagnosis, Evaluator, break_tie, choose};
use berth_framework::keep::FeasibleClass;
use berth_framework::plugin::{KeptStatuses, MAX_NODE_SCORE, NodeStatuses};
use berth_framework::{Slot, Status};
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
    pub(super) fn live(&self, plan: &Plan, parts: &Parts) -> Result<Live, Unkeepable> {
        let mut live = Live::default();
        for (id, class) in self.classes.iter() {
            if !self.is_feasible(id) {
                continue;
            }
            match parts.ledgers.rejection(plan, self.numbers(id)) {
                None => {
                    live.classes.push((id, class.nodes));
                    live.nodes += class.nodes;
                }
                Some(known) if known.status.is_rejected() => {}
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
        parts: &Parts,
        live: &Live,
    ) -> Result<Vec<(usize, Vec<i64>)>, Unkeepable> {
        let mut all = Vec::new();
        let cx = evaluator.context();
        for (group, column) in parts.columns().into_iter().enumerate() {
            for (scale, scorer) in column.scales.iter().enumerate() {
                // By class: no plugin reads which node has a score.
                let raw = live.classes.iter().map(|(id, _)| {
                    let class = Slot::from_index(u32::from(*id));
                    (class, self.raw(parts, *id, group, scale))
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
            let classes: SmallVec<[FeasibleClass<'_>; 16]> = live
                .classes
                .iter()
                .map(|(id, nodes)| FeasibleClass {
                    class: &self.numbers(*id)[of.numbers.clone()],
                    nodes: *nodes,
                })
                .collect();
            let mut scores = vec![0; classes.len()];
            if !of.ledger.score(&classes, &mut scores) {
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

    /// A node with the greatest total, each of several with the same chance: the one that the plain evaluator
    /// chooses with the same generator.
    ///
    /// # Errors
    /// See [`Shape::class_scores`].
    pub(super) fn choose(
        &self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        parts: &Parts,
        live: &Live,
        rng: &mut fastrand::Rng,
    ) -> Result<Slot, Unkeepable> {
        let scores = match live.nodes {
            1 => Vec::new(),
            _ => self.class_scores(evaluator, plan, parts, live)?,
        };
        let sums = self.class_sums(evaluator, live, &scores);
        let (mut greatest, mut nodes) = (i64::MIN, 0);
        for best in self.blocks.iter().flatten() {
            let Some(of_class) = sums[best.class as usize] else {
                continue;
            };
            let total = i64::from(best.sum) + of_class;
            if total > greatest {
                (greatest, nodes) = (total, usize::from(best.nodes));
            } else if total == greatest {
                nodes += usize::from(best.nodes);
            }
        }
        let mut chosen = break_tie(nodes, rng);
        for (at, block) in self.blocks.iter().enumerate() {
            let is_best = |class: ClassId, sum: i32| {
                let of_class = sums.get(class as usize).copied().flatten();
                of_class.is_some_and(|of_class| i64::from(sum) + of_class == greatest)
            };
            let best = block.iter().filter(|of| is_best(of.class, of.sum));
            let here = best.map(|of| usize::from(of.nodes)).sum();
            if chosen >= here {
                chosen -= here;
                continue;
            }
            let nodes = self.nodes_of(at);
            let mut best = nodes.filter(|(slot, class)| is_best(*class, parts.sum(*slot)));
            return best.nth(chosen).map(|(slot, _)| slot).ok_or(Unkeepable);
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
        let (mut found, mut visited) = (Vec::with_capacity(stop_at), 0);
        for slot in nodes {
            if found.len() >= stop_at {
                break;
            }
            visited += 1;
            let class = self.class_of(slot);
            if is_live.get(class as usize) == Some(&true) {
                found.push((slot, class));
            }
        }
        (found, visited)
    }

    /// Chooses among some of the feasible nodes, given with their classes, as [`Shape::choose`] does among all.
    ///
    /// # Errors
    /// See [`Shape::class_scores`].
    pub(super) fn choose_among(
        &self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        parts: &Parts,
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
        let classes = (0..).zip(nodes).filter(|(_, nodes)| *nodes > 0);
        let some = Live {
            classes: classes.collect(),
            nodes: found.len(),
        };
        let scores = self.class_scores(evaluator, plan, parts, &some)?;
        let sums = self.class_sums(evaluator, &some, &scores);
        let total = |(slot, class): &(Slot, ClassId)| {
            let of_class = sums[*class as usize].unwrap_or(0);
            (*slot, i64::from(parts.sum(*slot)) + of_class)
        };
        let totals: Vec<(Slot, i64)> = found.iter().map(total).collect();
        choose(&totals, rng).ok_or(Unkeepable)
    }

    fn class_of(&self, slot: Slot) -> ClassId {
        let class = self.class_of.get(slot.index());
        class.copied().unwrap_or(NO_CLASS)
    }

    /// Returns whether a node is feasible.
    pub(super) fn fits(&self, plan: &Plan, parts: &Parts, slot: Slot) -> bool {
        let class = self.class_of(slot);
        self.is_feasible(class) && parts.ledgers.rejection(plan, self.numbers(class)).is_none()
    }

    /// The reason why each node was rejected.
    pub(super) fn statuses(&self, plan: &Plan, parts: &Parts) -> Statuses {
        let mut statuses = Statuses {
            class_of: self.class_of.clone(),
            of_classes: vec![None; self.classes.len()],
            totals: Vec::new(),
            nodes: 0,
        };
        for (id, class) in self.classes.iter() {
            let own = self.answer_of(parts, id);
            let by_ledgers = parts.ledgers.rejection(plan, self.numbers(id));
            // The first filter that rejects a node decides.
            let status = match (own, &by_ledgers) {
                (Some(own), Some(other)) if own.filter < other.filter => &own.status,
                (_, Some(other)) => &other.status,
                (Some(own), None) => &own.status,
                (None, None) => continue,
            };
            statuses.nodes += class.nodes;
            match statuses.totals.iter_mut().find(|(s, _)| s == status) {
                Some((_, nodes)) => *nodes += class.nodes,
                None => statuses.totals.push((status.clone(), class.nodes)),
            }
            statuses.of_classes[id as usize] = Some(status.clone());
        }
        statuses
    }

    /// The diagnosis of a pod that fits nowhere.
    pub(super) fn diagnosis(&self, plan: &Plan, parts: &Parts) -> Diagnosis {
        let statuses = self.statuses(plan, parts);
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
    of_classes: Vec<Option<Status>>,
    totals: Vec<(Status, usize)>,
    nodes: usize,
}

impl KeptStatuses for Statuses {
    fn get(&self, node: Slot) -> Option<&Status> {
        let class = *self.class_of.get(node.index())?;
        self.of_classes.get(class as usize)?.as_ref()
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
