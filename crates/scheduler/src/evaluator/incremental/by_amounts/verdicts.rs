//! The answers of ledgers about the nodes of an index: one for each part of the nodes, and one for each node that differs
//! from its part.

use super::partition::PartId;
use super::search::{Apart, Filed, Judges, Search};
use super::tree::Tree;
use crate::evaluator::incremental::plan::Plan;
use crate::evaluator::incremental::shape::{DomainCounts, GRADES};
use berth_api::Str;
use berth_framework::Slot;
use berth_framework::keep::{Class, FeasibleClass};
use berth_framework::plugin::{Context, MAX_NODE_SCORE};
use rustc_hash::FxHashMap;

/// So many nodes may differ from their parts in a cluster of any size.
const EXCEPTIONS_ALWAYS: usize = 256;
/// In a large cluster, at most one of so many nodes may. Otherwise kept answers cost less.
const NODES_PER_EXCEPTION_MIN: usize = 4;

/// A class of nodes to which the ledgers answer the same.
#[derive(Debug)]
struct NodeClass {
    /// The numbers of all ledgers, with room for the grades.
    key: Class,
    is_rejected: bool,
    /// The sum of the ledgers' scores, weights included.
    score: i64,
}

/// See the [module](self).
pub(super) struct Verdicts<'a> {
    plan: &'a Plan,
    domain_counts: &'a [DomainCounts],
    /// All ledgers accept every node and prefer none.
    is_indifferent: bool,
    pub(super) topology_keys: Vec<Str>,
    /// In slot order, each once.
    exceptions: Vec<Slot>,
    classes: Vec<NodeClass>,
    ids: FxHashMap<Class, usize>,
    /// The class that was asked for last.
    latest: usize,
    /// A buffer whose memory is reused.
    key: Class,
    /// The class of each part, and of each node apart.
    of_parts: Vec<Option<usize>>,
    of_apart: Vec<usize>,
    /// By part: see [`Filed::parts`].
    parts: Vec<Option<i64>>,
}

impl<'a> Verdicts<'a> {
    /// `None` when the ledgers distinguish too many nodes.
    pub(super) fn new(
        cx: &Context<'_>,
        plan: &'a Plan,
        domain_counts: &'a [DomainCounts],
    ) -> Option<Self> {
        let mut verdicts = Self {
            plan,
            domain_counts,
            is_indifferent: true,
            topology_keys: Vec::new(),
            exceptions: Vec::new(),
            classes: Vec::new(),
            ids: FxHashMap::default(),
            latest: 0,
            key: Class::new(),
            of_parts: Vec::new(),
            of_apart: Vec::new(),
            parts: Vec::new(),
        };
        let nodes = cx.cluster.nodes.len();
        for domain in domain_counts {
            if domain.ledger.is_indifferent() {
                continue;
            }
            verdicts.is_indifferent = false;
            let outline = domain.ledger.outline(cx)?;
            verdicts.topology_keys.extend(outline.topology_keys);
            verdicts.exceptions.extend(outline.exceptions);
        }
        verdicts.exceptions.sort_unstable();
        verdicts.exceptions.dedup();
        let most = EXCEPTIONS_ALWAYS.max(nodes / NODES_PER_EXCEPTION_MIN);
        (verdicts.exceptions.len() <= most).then_some(verdicts)
    }

    /// The nodes of the tree that differ from their parts, in slot order.
    pub(super) fn take_exceptions(&mut self, tree: &Tree) -> Vec<Slot> {
        let mut exceptions = std::mem::take(&mut self.exceptions);
        exceptions.retain(|slot| tree.row_of(*slot).is_some());
        exceptions
    }

    /// Asks the ledgers about each of the parts and each node apart; `None` when a filter fails.
    pub(super) fn judge(&mut self, tree: &Tree, parts: usize, apart: &Apart) -> Option<()> {
        if self.is_indifferent {
            self.parts = vec![Some(0); parts];
            return Some(());
        }
        for part in 0..parts {
            let is_usual = |slot: Slot| apart.nodes.binary_search(&slot).is_err();
            let part = PartId::try_from(part).ok()?;
            let class = match tree.some_node_of(part, is_usual) {
                Some(slot) => Some(self.class_of(slot)?),
                None => None,
            };
            self.of_parts.push(class);
        }
        for slot in &apart.nodes {
            let class = self.class_of(*slot)?;
            self.of_apart.push(class);
        }
        self.note_parts();
        Some(())
    }

    /// The class of a node, judged if it is new; `None` when a filter fails.
    fn class_of(&mut self, slot: Slot) -> Option<usize> {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        key.resize(GRADES, 0);
        let ledgers = self.domain_counts.iter().map(|domain| &domain.ledger);
        ledgers.for_each(|ledger| ledger.class(slot, &mut key));
        // Most of the nodes that differ do so in the same way.
        let class = match self.classes.get(self.latest) {
            Some(latest) if latest.key == key => self.latest,
            _ => match self.ids.get(&key).copied() {
                Some(class) => class,
                None => self.add_class(&key)?,
            },
        };
        (self.key, self.latest) = (key, class);
        Some(class)
    }

    /// Adds a class; `None` when a filter fails.
    fn add_class(&mut self, key: &Class) -> Option<usize> {
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
        self.ids.insert(key.clone(), self.classes.len());
        self.classes.push(NodeClass {
            key: key.clone(),
            is_rejected,
            score: 0,
        });
        Some(self.classes.len() - 1)
    }

    /// Adds the ledgers' scores to classes, which may depend on the feasible nodes of all; `None` when one is out of
    /// range, or a plugin was not exact.
    pub(super) fn score(&mut self, tree: &Tree, apart: &Apart, judges: &Judges<'_>) -> Option<()> {
        if self.is_indifferent {
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
        let mut feasible = vec![0; self.classes.len()];
        for (part, class) in (0..).zip(&self.of_parts) {
            if let Some(class) = class.filter(|class| !self.classes[*class].is_rejected) {
                let search = Search::new(self.filed(tree, apart), judges);
                feasible[class] += search.feasible_in(part)?;
            }
        }
        let mut search = Search::new(self.filed(tree, apart), judges);
        for (slot, class) in apart.nodes.iter().zip(&self.of_apart) {
            if !self.classes[*class].is_rejected && search.fits(*slot)? {
                feasible[*class] += 1;
            }
        }
        let live = (0..self.classes.len()).filter(|class| feasible[*class] > 0);
        let live: Vec<usize> = live.collect();
        for (domain, weight) in scorers {
            let classes: Vec<FeasibleClass<'_>> = live
                .iter()
                .map(|class| FeasibleClass {
                    class: own(domain, &self.classes[*class].key),
                    nodes: feasible[*class],
                })
                .collect();
            let mut scores = vec![0; classes.len()];
            domain.ledger.score(&classes, &mut scores);
            for (class, score) in live.iter().zip(scores) {
                if !(0..=MAX_NODE_SCORE).contains(&score) {
                    return None;
                }
                self.classes[*class].score += weight * score;
            }
        }
        self.note_parts();
        Some(())
    }

    fn note_parts(&mut self) {
        let further = |class: &Option<usize>| self.further_of((*class)?);
        self.parts = self.of_parts.iter().map(further).collect();
    }

    /// The further score of the nodes of a class; `None` when they are rejected.
    fn further_of(&self, class: usize) -> Option<i64> {
        let class = &self.classes[class];
        (!class.is_rejected).then_some(class.score)
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
        all.filter_map(|(slot, class)| Some((*slot, self.further_of(*class)?)))
            .collect()
    }
}

/// The numbers of a ledger in the key of a class.
fn own<'k>(domain: &DomainCounts, key: &'k Class) -> &'k [i64] {
    &key[domain.offset..domain.offset + domain.ledger.width()]
}
