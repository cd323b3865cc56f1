//! The answers of ledgers about the nodes of an index: one for each part of the nodes, and one for each class of the nodes
//! that differ from their parts.

use super::exceptions::{ClassId, Exceptions};
use super::partition::PartId;
use super::search::{Apart, Filed, Judges, Search};
use super::tree::Tree;
use crate::evaluator::incremental::plan::Plan;
use crate::evaluator::incremental::shape::DomainCounts;
use berth_framework::Slot;
use berth_framework::keep::{Class, FeasibleClass};
use berth_framework::plugin::MAX_NODE_SCORE;

/// The answers of the ledgers about the nodes of a class.
#[derive(Debug, Clone, Copy)]
struct Verdict {
    is_rejected: bool,
    /// The sum of the ledgers' scores, weights included.
    score: i64,
}

/// See the [module](self).
pub(super) struct Verdicts<'a> {
    plan: &'a Plan,
    domain_counts: &'a [DomainCounts],
    exceptions: &'a mut Exceptions,
    /// By class; `None` for classes without nodes.
    of_classes: Vec<Option<Verdict>>,
    /// The class of each part, and of each node apart.
    of_parts: Vec<Option<ClassId>>,
    of_apart: Vec<ClassId>,
    /// By part: see [`Filed::parts`].
    parts: Vec<Option<i64>>,
}

impl<'a> Verdicts<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        domain_counts: &'a [DomainCounts],
        exceptions: &'a mut Exceptions,
    ) -> Self {
        Self {
            plan,
            domain_counts,
            exceptions,
            of_classes: Vec::new(),
            of_parts: Vec::new(),
            of_apart: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Takes the exceptions that are in the tree out of their rows.
    pub(super) fn set_apart(&mut self, tree: &Tree, apart: &mut Apart) {
        let of_apart = &mut self.of_apart;
        let filed = self.exceptions.nodes().filter_map(|(slot, class)| {
            let row = tree.row_of(slot)?;
            of_apart.push(class);
            Some((slot, row))
        });
        apart.set(tree, filed);
    }

    /// Asks the ledgers about each of the parts and each class of nodes apart; `None` when a filter fails.
    pub(super) fn judge(&mut self, tree: &Tree, parts: usize, apart: &Apart) -> Option<()> {
        if self.exceptions.are_of_indifferent() {
            self.parts = vec![Some(0); parts];
            return Some(());
        }
        for part in 0..parts {
            let is_usual = |slot: Slot| apart.nodes.binary_search(&slot).is_err();
            let part = PartId::try_from(part).ok()?;
            let node = tree.some_node_of(part, is_usual);
            let classes = &mut self.exceptions.classes;
            self.of_parts
                .push(node.map(|slot| classes.of(self.domain_counts, slot)));
        }
        self.of_classes = vec![None; self.exceptions.classes.len()];
        for class in self.of_parts.iter().flatten().chain(&self.of_apart) {
            if self.of_classes[*class as usize].is_none() {
                let verdict = self.verdict_on(*class)?;
                self.of_classes[*class as usize] = Some(verdict);
            }
        }
        self.note_parts();
        Some(())
    }

    /// The answer of the filters; `None` when one fails.
    fn verdict_on(&self, class: ClassId) -> Option<Verdict> {
        let key = self.exceptions.classes.key(class);
        let mut is_rejected = false;
        for domain in self.domain_counts {
            if self.plan.domains[domain.member].filter.is_none() {
                continue;
            }
            if let Err(status) = domain.ledger.filter(own(domain, key)) {
                if !status.is_rejected() {
                    return None;
                }
                is_rejected = true;
            }
        }
        Some(Verdict {
            is_rejected,
            score: 0,
        })
    }

    /// Adds the ledgers' scores to classes, which may depend on the feasible nodes of all; `None` when one is out of
    /// range, or a plugin was not exact.
    pub(super) fn score(&mut self, tree: &Tree, apart: &Apart, judges: &Judges<'_>) -> Option<()> {
        if self.exceptions.are_of_indifferent() {
            return Some(());
        }
        let scorers = self.domain_counts.iter().filter_map(|domain| {
            let weight = self.plan.domains[domain.member].weight?;
            let has_preference = domain.ledger.score(&[], &mut []);
            has_preference.then_some((domain, weight))
        });
        let scorers: Vec<(&DomainCounts, i64)> = scorers.collect();
        if scorers.is_empty() {
            return Some(());
        }
        let mut feasible = vec![0; self.of_classes.len()];
        for (part, class) in (0..).zip(&self.of_parts) {
            if let Some(class) = class.filter(|class| self.accepted(*class).is_some()) {
                let search = Search::new(self.filed(tree, apart), judges);
                feasible[class as usize] += search.feasible_in(part)?;
            }
        }
        let search = Search::new(self.filed(tree, apart), judges);
        for (slot, class) in apart.nodes.iter().zip(&self.of_apart) {
            if self.accepted(*class).is_some() && search.fits(*slot)? {
                feasible[*class as usize] += 1;
            }
        }
        let live = (0..).zip(&feasible).filter(|(_, nodes)| **nodes > 0);
        let live: Vec<ClassId> = live.map(|(class, _)| class).collect();
        for (domain, weight) in scorers {
            let classes: Vec<FeasibleClass<'_>> = live
                .iter()
                .map(|class| FeasibleClass {
                    class: own(domain, self.exceptions.classes.key(*class)),
                    nodes: feasible[*class as usize],
                })
                .collect();
            let mut scores = vec![0; classes.len()];
            domain.ledger.score(&classes, &mut scores);
            for (class, score) in live.iter().zip(scores) {
                if !(0..=MAX_NODE_SCORE).contains(&score) {
                    return None;
                }
                if let Some(verdict) = &mut self.of_classes[*class as usize] {
                    verdict.score += weight * score;
                }
            }
        }
        self.note_parts();
        Some(())
    }

    fn note_parts(&mut self) {
        let further = |class: &Option<ClassId>| self.accepted((*class)?);
        self.parts = self.of_parts.iter().map(further).collect();
    }

    /// The further score of the nodes of a class; `None` when they are rejected.
    fn accepted(&self, class: ClassId) -> Option<i64> {
        let verdict = self.of_classes.get(class as usize).copied().flatten()?;
        (!verdict.is_rejected).then_some(verdict.score)
    }

    /// The nodes of the tree with these answers.
    pub(super) fn filed<'f>(&'f self, tree: &'f Tree, apart: &'f Apart) -> Filed<'f> {
        Filed {
            tree,
            parts: &self.parts,
            apart,
        }
    }

    /// The nodes apart that are not rejected, with their further scores.
    pub(super) fn further(&self, apart: &Apart) -> Vec<(Slot, i64)> {
        let all = apart.nodes.iter().zip(&self.of_apart);
        all.filter_map(|(slot, class)| Some((*slot, self.accepted(*class)?)))
            .collect()
    }
}

/// The numbers of a ledger in the key of a class.
fn own<'k>(domain: &DomainCounts, key: &'k Class) -> &'k [i64] {
    &key[domain.offset..domain.offset + domain.ledger.width()]
}
