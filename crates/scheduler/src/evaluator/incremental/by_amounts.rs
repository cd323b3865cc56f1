//! Nodes for pods unlike all before, without asking about every node.
//!
//! Where all that the plugins read of a node's pods is how much they request, a node's answer follows from its amounts.
//! The nodes that the first group of plugins answers alike are filed by amounts ([`tree`]), and follow the changes of
//! the table. A decision reads bounds of whole regions of similar nodes, and goes into those alone that may hold a best
//! node and are not all alike ([`search`]).
//!
//! Ledgers distinguish nodes as well. Where the domains of few topology keys do that, and some single nodes, the nodes are
//! filed by [`partition`] and the single ones are judged one by one ([`verdicts`]).

mod exceptions;
mod known_bounds;
mod partition;
mod row_nodes;
mod search;
#[cfg(test)]
mod tests;
mod tree;
mod verdicts;

use super::classes::{FEASIBLE, Sum};
use super::node_answers::{Grade, NodeAnswers};
use super::plan::{Group, Plan};
use super::scratch::Scratch;
use super::shape::{DomainCounts, Unkeepable};
use super::store::{self, Kept};
use super::{AnswerCache, Limit};
use crate::evaluator::{Evaluation, Evaluator, Found, Placement, break_tie};
use crate::profile::Point;
use berth_framework::plugin::{Context, MAX_NODE_SCORE, PreFilterResult};
use berth_framework::table::TableChange;
use berth_framework::table::Topology;
use berth_framework::{Code, NodeTable, Slot};
use exceptions::Exceptions;
use known_bounds::BoundsByRequests;
use partition::{Partition, PartitionKeys};
use row_nodes::ShortLists;
use rustc_hash::{FxHashMap, FxHasher};
use search::{Apart, Judges, Search};
use std::collections::VecDeque;
use std::hash::Hasher;
use std::sync::Arc;
use tree::Tree;
use verdicts::Verdicts;

/// The number of indexes that are kept: for the pods that the first group of plugins distinguishes most often.
const INDEXES_MAX: usize = 6;
/// The number of new kinds of pods before nodes are filed for them.
const NEW_KINDS_MIN: u32 = 6;
/// A kind of pods that comes again within so many new ones gets answers of its own: these cost less.
const RECENT_MAX: usize = 64;
/// So many nodes may differ from their parts in a cluster of any size.
const EXCEPTIONS_ALWAYS: usize = 256;
/// In a large cluster, at most one of so many nodes may. Otherwise kept answers cost less.
const NODES_PER_EXCEPTION_MIN: usize = 4;
/// There is no gain where so few nodes offer the same.
const NODES_PER_OFFER_MIN: usize = 8;
/// So many different offers never matter.
const OFFERS_ALWAYS: usize = 16;

/// The feasible nodes of one set of node answers of the first group, by amounts.
struct Index {
    /// Of the node answers.
    id: u64,
    resources: usize,
    partition: Partition,
    tree: Tree,
    /// The number of feasible nodes with these raw scores and this sum of scores.
    alike: FxHashMap<(Grade, Sum), usize>,
    /// By slot: what is counted there.
    counted: Vec<Option<(Grade, Sum)>>,
    /// The ends of the changes of the table and of the node answers that have been taken in.
    seen: (u64, u64),
    bounds: BoundsByRequests,
}

/// The indexes, and which pods were new lately.
#[derive(Default)]
pub(super) struct Indexes {
    indexes: Vec<Index>,
    keys: PartitionKeys,
    /// For each of the last sets of node answers: how many new kinds of pods came.
    new_kinds: VecDeque<(u64, u32)>,
    recent: VecDeque<u64>,
    /// The nodes that the pod at hand distinguishes one by one.
    apart: Apart,
    /// A buffer whose memory is reused.
    short: ShortLists,
    /// The fragment of the pod at hand for the second group: what it requests.
    requests: Vec<u8>,
}

/// The domain counts for all pods with one fragment of the ledgers.
pub(super) struct KeptCounts {
    domain_counts: Vec<DomainCounts>,
    /// Present when they have been asked for, and are up to date.
    exceptions: Option<Exceptions>,
    /// The end of the changes that were taken in.
    seen: u64,
}

impl Kept for KeptCounts {
    fn bytes(&self) -> usize {
        let ledgers = self.domain_counts.iter().map(|of| of.ledger.bytes());
        let exceptions = self.exceptions.as_ref().map_or(0, Exceptions::bytes);
        size_of::<Self>() + ledgers.sum::<usize>() + exceptions
    }
}

impl KeptCounts {
    /// The counts, and the nodes that they distinguish one by one; `None` when these are too many.
    fn exceptions(&mut self, cx: &Context<'_>) -> Option<(&[DomainCounts], &mut Exceptions)> {
        let counts = &self.domain_counts;
        let outlines = exceptions::outlines(cx, counts)?;
        self.exceptions.take_if(|known| !known.are_from(&outlines));
        let exceptions = self
            .exceptions
            .get_or_insert_with(|| Exceptions::new(cx, counts, outlines));
        let most = EXCEPTIONS_ALWAYS.max(cx.cluster.nodes.len() / NODES_PER_EXCEPTION_MIN);
        (exceptions.len() <= most).then_some((counts, exceptions))
    }

    /// Takes in what has changed.
    fn catch_up(
        &mut self,
        evaluator: &Evaluator<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let cx = context(evaluator);
        scratch.begin(cx.cluster.nodes.slots());
        DomainCounts::follow_all(&mut self.domain_counts, &cx, self.seen, scratch)?;
        self.seen = cx.cluster.nodes.log().end();
        let counts = &self.domain_counts;
        self.exceptions
            .take_if(|exceptions| exceptions.follow(&cx, counts, scratch.noted()));
        Ok(())
    }
}

impl AnswerCache {
    /// Finds a node for a pod unlike those before by the amounts of the nodes. `None` when kept answers are to decide:
    /// what was counted of domains by then is left in `opened`.
    pub(super) fn find_by_amounts(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        (plan, opened): (usize, &mut Option<Vec<DomainCounts>>),
        rng: &mut fastrand::Rng,
    ) -> Option<Found> {
        let [of_node, of_pods, of_shape] = &self.fragments;
        let nominated = &evaluator.pod.pod.status.nominated_node_name;
        if !evaluator.nominated.is_empty() || evaluator.cluster.nodes.node(nominated).is_some() {
            return None;
        }
        let plan = self.plans[plan].1.as_ref()?;
        let node_answers = self.group_answers.node.get_mut(of_node.as_bytes())?;
        let indexes = &mut self.indexes;
        let kind = [of_pods.as_bytes(), of_shape.as_bytes()];
        if node_answers.is_broken() || !indexes.is_meant_for(node_answers.id, kind) {
            return None;
        }
        let began = evaluator.stopwatch.last_nanos();
        let (store, scratch) = (&mut self.domain_counts, &mut self.scratch);
        let key = of_shape.as_bytes();
        match store.refresh(key, |kept| kept.catch_up(evaluator, scratch)) {
            store::Found::Kept => {}
            store::Found::Unkeepable => return None,
            store::Found::Missing => {
                let kept = KeptCounts {
                    domain_counts: DomainCounts::open(evaluator, plan),
                    exceptions: None,
                    seen: evaluator.cluster.nodes.log().end(),
                };
                let limit = Limit::DOMAIN_COUNTS.with(evaluator.cluster.nodes.slots());
                store.insert(key, Some(Box::new(kept)), limit);
            }
        }
        let kept = store.get_mut(key)?;
        let Some(found) = indexes.find(evaluator, (plan, kept), node_answers, rng) else {
            *opened = store.take(key).map(|kept| kept.domain_counts);
            return None;
        };
        self.counts.kept += 1;
        self.counts.by_amounts += 1;
        let nanos = evaluator.stopwatch.nanos().saturating_sub(began);
        let tally = &mut evaluator.evaluation.tally;
        tally.span(Point::PreFilter, Code::Success, 0);
        tally.span(Point::Filter, Code::Success, nanos);
        if matches!(&found, Found::Placed(placement) if placement.feasible > 1) {
            tally.span(Point::PreScore, Code::Success, 0);
            tally.span(Point::Score, Code::Success, 0);
        }
        Some(found)
    }
}

impl Index {
    /// Files all nodes; `None` when they are in too many parts.
    fn new(node_answers: &NodeAnswers, table: &NodeTable, keys: &PartitionKeys) -> Option<Self> {
        let mut index = Self {
            id: node_answers.id,
            resources: table.columns().resources(),
            partition: Partition::new(keys, table),
            tree: Tree::default(),
            alike: FxHashMap::default(),
            counted: Vec::new(),
            seen: (table.log().end(), node_answers.changes_end()),
            bounds: BoundsByRequests::default(),
        };
        let topologies = index.partition.topologies(table);
        for slot in table.occupied() {
            index.put(node_answers, table, &topologies, slot)?;
        }
        Some(index)
    }

    /// Takes in what has changed; `None` when it cannot be known, the amounts are others, or there are too many parts.
    fn catch_up(&mut self, node_answers: &NodeAnswers, table: &NodeTable) -> Option<()> {
        let seen = (table.log().end(), node_answers.changes_end());
        if self.resources != table.columns().resources() {
            return None;
        }
        if seen == self.seen {
            return Some(());
        }
        let changes = table.log().since(self.seen.0)?;
        let answered = node_answers.changes_since(self.seen.1)?;
        let topologies = self.partition.topologies(table);
        for change in changes {
            match change {
                TableChange::Node(slot)
                | TableChange::PodAdded(slot, _)
                | TableChange::PodRemoved(slot, _) => {
                    self.put(node_answers, table, &topologies, *slot)?;
                }
                TableChange::Storage(_) | TableChange::Claim { .. } => {}
            }
        }
        for slot in answered {
            self.put(node_answers, table, &topologies, slot)?;
        }
        self.seen = seen;
        self.tree.balance();
        Some(())
    }

    /// Files a node as it is now; `None` when there are too many parts.
    fn put(
        &mut self,
        node_answers: &NodeAnswers,
        table: &NodeTable,
        topologies: &[Arc<Topology>],
        slot: Slot,
    ) -> Option<()> {
        let cell = node_answers.cell(slot);
        let is_in = cell.answer == FEASIBLE && table.get(slot).is_some();
        let scores = is_in.then_some((cell.grade, cell.score));
        if self.counted.len() <= slot.index() {
            self.counted.resize(slot.index() + 1, None);
        }
        let before = std::mem::replace(&mut self.counted[slot.index()], scores);
        if before != scores {
            if let Some(before) = before
                && let Some(count) = self.alike.get_mut(&before)
            {
                *count -= 1;
                if *count == 0 {
                    self.alike.remove(&before);
                }
            }
            if let Some(scores) = scores {
                *self.alike.entry(scores).or_default() += 1;
            }
        }
        let part = if is_in {
            Some(self.partition.part_of(topologies, slot)?)
        } else {
            None
        };
        self.tree.put(table.columns(), slot, part);
        Some(())
    }

    /// Whether the nodes differ in nothing but their amounts, and in few enough offers; then what the first group of
    /// plugins has scored them all.
    fn common_grade(&self) -> Option<Grade> {
        let most = OFFERS_ALWAYS.max(self.tree.nodes() / NODES_PER_OFFER_MIN);
        let most = most * self.partition.len().max(1);
        let mut alike = self.alike.keys();
        match (alike.next(), alike.next()) {
            (Some((grade, _)), None) if self.tree.offers.len() <= most => Some(*grade),
            _ => None,
        }
    }
}

impl Indexes {
    /// About how much memory they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let each = self.indexes.iter().map(|index| {
            let counted = index.counted.capacity() * size_of::<Option<(Grade, Sum)>>();
            index.tree.bytes() + counted + index.bounds.bytes()
        });
        each.sum()
    }

    /// Returns whether nodes should be found by amounts for a pod with these fragments, the pod at hand from now on: not if
    /// they are among those of the last kinds of pods.
    fn is_meant_for(&mut self, node_answers: u64, kind: [&[u8]; 2]) -> bool {
        self.requests.clear();
        self.requests.extend_from_slice(kind[0]);
        let mut hasher = FxHasher::default();
        hasher.write_u64(node_answers);
        kind.iter().for_each(|fragment| hasher.write(fragment));
        let kind = hasher.finish();
        if self.recent.contains(&kind) {
            return false;
        }
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(kind);
        if let Some((_, kinds)) = self
            .new_kinds
            .iter_mut()
            .find(|(id, _)| *id == node_answers)
        {
            *kinds = kinds.saturating_add(1);
            return *kinds > NEW_KINDS_MIN;
        }
        if self.new_kinds.len() >= RECENT_MAX {
            self.new_kinds.pop_front();
        }
        self.new_kinds.push_back((node_answers, 1));
        false
    }

    /// Finds a node for the evaluator's pod as the plain evaluator would. `None` when the answers about it depend on more
    /// than amounts and outlines, or when it fits on no node. The generator has not been touched then.
    fn find(
        &mut self,
        evaluator: &Evaluator<'_>,
        (plan, kept): (&Plan, &mut KeptCounts),
        node_answers: &NodeAnswers,
        rng: &mut fastrand::Rng,
    ) -> Option<Found> {
        let cx = context(evaluator);
        let table = &cx.cluster.nodes;
        let (domain_counts, exceptions) = kept.exceptions(&cx)?;
        let evaluation = prepared(evaluator, plan)?;
        let judges = judges(evaluator, plan, &evaluation)?;
        if !self.keys.cover(exceptions.topology_keys(), table) {
            return None;
        }
        let at = self.refresh(node_answers, table)?;
        let index = &mut self.indexes[at];
        let grade = index.common_grade()?;
        if !is_scaled_well(evaluator, node_answers, grade, index) {
            return None;
        }
        let tree = &index.tree;
        let mut verdicts = Verdicts::new(plan, domain_counts, exceptions);
        verdicts.set_apart(tree, &mut self.apart);
        verdicts.judge(tree, index.partition.len(), &self.apart)?;
        verdicts.score(tree, &self.apart, &judges)?;
        let filed = verdicts.filed(tree, &self.apart);
        let known = index.bounds.of(&self.requests, tree.size());
        let search = Search::new(filed, &judges).knowing(known);
        let best = search.run(&verdicts.further(&self.apart))?;
        let nodes = best.nodes(filed);
        let chosen = break_tie(nodes, rng);
        let node = best.nth(filed, chosen, &mut self.short)?;
        let view = table.get(node)?;
        Some(Found::Placed(Placement {
            node,
            name: view.name().clone(),
            evaluated: table.len(),
            feasible: best.feasible,
            scores: None,
            excluded: Vec::new(),
        }))
    }

    /// Brings the index for node answers up to date, and returns its place; `None` when the nodes are in too many parts.
    /// The index that was used last comes last.
    fn refresh(&mut self, node_answers: &NodeAnswers, table: &NodeTable) -> Option<usize> {
        let known = self
            .indexes
            .iter()
            .position(|index| index.id == node_answers.id);
        let known = known.map(|at| self.indexes.remove(at));
        let known = known.filter(|index| index.partition.is_by(&self.keys));
        let known = known.and_then(|mut index| {
            index.catch_up(node_answers, table)?;
            Some(index)
        });
        let index = known.or_else(|| Index::new(node_answers, table, &self.keys));
        let Some(index) = index else {
            self.keys.clear();
            self.indexes.clear();
            return None;
        };
        if self.indexes.len() >= INDEXES_MAX {
            self.indexes.remove(0);
        }
        self.indexes.push(index);
        Some(self.indexes.len() - 1)
    }
}

/// Runs PreFilter and PreScore of the second group for the pod; `None` when the plain evaluator has to
/// decide.
fn prepared(evaluator: &Evaluator<'_>, plan: &Plan) -> Option<Evaluation> {
    let cx = context(evaluator);
    let mut evaluation = Evaluation::default();
    let profile = evaluator.profile;
    for member in &profile.pre_filter {
        if plan.group(member.id) != Some(Group::Pods) {
            continue;
        }
        let state = &mut evaluation.state;
        match member.plugin.pre_filter(&cx, state, evaluator.pod) {
            PreFilterResult::AllNodes => {}
            PreFilterResult::Skip => evaluation.skip_filter.insert(member.id),
            PreFilterResult::Nodes(_) | PreFilterResult::Reject(_) => return None,
        }
    }
    for member in &profile.pre_score {
        if plan.group(member.id) != Some(Group::Pods) {
            continue;
        }
        let state = &mut evaluation.state;
        let status = member.plugin.pre_score(&cx, state, evaluator.pod, &[]);
        if status.is_skip() {
            evaluation.skip_score.insert(member.id);
        } else if !status.is_success() {
            return None;
        }
    }
    Some(evaluation)
}

/// The answers of the second group of plugins about amounts; `None` when one of them reads more.
fn judges<'a>(
    evaluator: &Evaluator<'a>,
    plan: &Plan,
    evaluation: &'a Evaluation,
) -> Option<Judges<'a>> {
    let mut judges = Judges::default();
    let profile = evaluator.profile;
    for member in &profile.filter {
        if plan.group(member.id) == Some(Group::Pods) && !evaluation.skip_filter.contains(member.id)
        {
            let plugin = profile.plugins[member.id.index()].by_amounts.as_ref()?;
            judges.fits.push(plugin.fits(&evaluation.state)?);
        }
    }
    for scorer in &profile.score {
        let id = scorer.member.id;
        if plan.group(id) != Some(Group::Pods) || evaluation.skip_score.contains(id) {
            continue;
        }
        let plugin = profile.plugins[id.index()].by_amounts.as_ref()?;
        if plugin.is_indifferent(&evaluation.state) {
            continue;
        }
        if plan.normalizes(id) || scorer.weight < 0 {
            return None;
        }
        let scores = plugin.scores(&evaluation.state)?;
        judges.scores.push((scorer.weight, scores));
    }
    Some(judges)
}

/// Whether the plugins of the first group bring their equal raw scores to scale without a failure.
fn is_scaled_well(
    evaluator: &Evaluator<'_>,
    node_answers: &NodeAnswers,
    grade: Grade,
    index: &Index,
) -> bool {
    let cx = context(evaluator);
    let Some(some) = index.tree.some_node() else {
        return false;
    };
    let raw = node_answers.grade(grade);
    let mut scales = node_answers.scorers.scales.iter().enumerate();
    scales.all(|(at, scorer)| {
        let mut scores = [(some, raw.get(at).copied().unwrap_or(0))];
        let plugin = &evaluator.profile.score[*scorer].member.plugin;
        let state = &node_answers.evaluation.state;
        let status = plugin.normalize(&cx, state, &node_answers.pod, &mut scores);
        status.is_success() && (0..=MAX_NODE_SCORE).contains(&scores[0].1)
    })
}

fn context<'a>(evaluator: &'a Evaluator<'_>) -> Context<'a> {
    Context {
        now: evaluator.now,
        cluster: evaluator.cluster,
        features: evaluator.features,
        work: evaluator.work,
    }
}
