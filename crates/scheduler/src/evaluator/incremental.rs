//! The incremental evaluator: the plain evaluator's decisions, at a cost that follows what has changed.
//!
//! Pods of one **shape** — equal in everything that the profile's plugins read — get equal answers from every node
//! that has not changed. The [`AnswerCache`] keeps the answer and the score of each node, and asks plugins again only
//! where the node table or the nominations have changed since. The answers of plugins that judge nodes one by one are
//! **node answers** (`node_answers`), which shapes share. Plugins that judge topology domains keep **domain counts**
//! (the ledgers of [`berth_framework::keep`]). Nodes with equal raw scores and equal domain counts are a **node class**
//! (`classes`): they get equal verdicts and equal normalised scores, so a decision reads classes, not nodes. The page
//! `docs/contribute/evaluator.md` follows two pods through it.
//!
//! It may be faster than the plain evaluator and differ in nothing else. It leaves a decision to the plain one where it
//! cannot be sure to be equal: a plugin that does not declare what it depends on, a filter that fails, no feasible node
//! where nominated pods change domain counts. It also leaves pods to it that name their nodes: few nodes are checked
//! for them. [`EvaluatorKind::Compared`] makes every decision twice; so does every debug build.

mod answer;
mod classes;
mod examine;
mod fragments;
mod node_answers;
mod plan;
mod scratch;
mod shape;
mod store;
#[cfg(test)]
mod tests;

pub use examine::Examined;

use super::plain::code_of;
use super::{Evaluation, Evaluator, FitError, Found, Placement, SearchLimit, Tally};
use crate::profile::Point;
use berth_api::Str;
use berth_framework::keep::Fragment;
use berth_framework::plugin::{Context, PreFilterResult};
use berth_framework::work::may_keep;
use berth_framework::{Code, Slot, Work};
use fragments::RememberedFragments;
use node_answers::NodeAnswers;
use plan::{Group, Plan};
use scratch::Scratch;
use shape::{DomainCounts, GroupAnswers, Shape, Unkeepable};
use std::fmt;
use std::str::FromStr;
use store::{Kept, Store};

/// The limit of one sort of entries. Entries grow with the cluster: a set of node answers takes 8 bytes per node, a
/// shape about 12. So does the limit, that as many are kept in a large cluster as in a small one.
#[derive(Debug, Clone, Copy)]
struct Limit {
    entries: usize,
    /// The memory that all entries may take, in bytes: for each node, and whatever the number of nodes.
    bytes_per_node: usize,
    bytes_at_least: usize,
}

impl Limit {
    /// Of the node answers of one group.
    const NODE_ANSWERS: Self = Self {
        entries: 1024,
        bytes_per_node: 400,
        bytes_at_least: 32 << 20,
    };
    const SHAPES: Self = Self {
        entries: 4096,
        bytes_per_node: 800,
        bytes_at_least: 64 << 20,
    };

    /// The most entries and bytes for a number of nodes.
    fn with(self, nodes: usize) -> (usize, usize) {
        let bytes = self.bytes_per_node.saturating_mul(nodes);
        (self.entries, bytes.max(self.bytes_at_least))
    }
}

/// The evaluator that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EvaluatorKind {
    /// Node by node, in kube-scheduler's order.
    Plain,
    /// With kept answers. A debug build compares each decision with the plain evaluator's.
    #[default]
    Incremental,
    /// Both, each decision compared: for tests and simulations.
    ///
    /// # Panics
    /// The scheduler panics when they differ, which is a bug.
    Compared,
}

impl EvaluatorKind {
    /// Every kind with its name on the command line.
    pub const ALL: [(&'static str, Self); 3] = [
        ("plain", Self::Plain),
        ("incremental", Self::Incremental),
        ("compared", Self::Compared),
    ];
}

impl fmt::Display for EvaluatorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, kind)| kind == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

/// No evaluator has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no evaluator {0:?}; it is plain, incremental or compared")]
pub struct UnknownEvaluator(pub String);

impl FromStr for EvaluatorKind {
    type Err = UnknownEvaluator;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.iter().find(|(known, _)| *known == name);
        known
            .map(|(_, kind)| *kind)
            .ok_or_else(|| UnknownEvaluator(name.to_owned()))
    }
}

/// The counts of ways in which decisions were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnswerCacheCounts {
    /// Decisions from kept answers.
    pub kept: u64,
    /// Decisions left to the plain evaluator.
    pub plain: u64,
    /// The number of times that a group of plugins evaluated all nodes: for pods unlike all before, or after too much
    /// was missed.
    pub group_answers: u64,
    /// The number of times that a shape was made of node answers and domain counts.
    pub built: u64,
}

/// Kept answers, by shape. They follow one cluster and one set of profiles.
#[derive(Default)]
pub struct AnswerCache {
    plans: Vec<(Str, Option<Plan>)>,
    group_answers: NodeAnswerStores,
    shapes: Store<Shape>,
    /// The keys by which the pod at hand equals others: for the two groups of plugins, and in all.
    fragments: [Fragment; 3],
    remembered: RememberedFragments,
    scratch: Scratch,
    counts: AnswerCacheCounts,
}

/// The node answers of each group of plugins.
#[derive(Default)]
struct NodeAnswerStores {
    node: Store<NodeAnswers>,
    pods: Store<NodeAnswers>,
    next: u64,
}

impl NodeAnswerStores {
    /// Brings the node answers of a group for the evaluator's pod up to date; false when nothing can be kept.
    fn refresh(
        &mut self,
        group: Group,
        key: &[u8],
        (evaluator, plan): (&mut Evaluator<'_>, &Plan),
        scratch: &mut Scratch,
        counts: &mut AnswerCacheCounts,
    ) -> bool {
        let store = match group {
            Group::Node => &mut self.node,
            Group::Pods => &mut self.pods,
        };
        match store.refresh(key, |node_answers| {
            node_answers.catch_up(evaluator, scratch)
        }) {
            store::Found::Kept => true,
            store::Found::Unkeepable => false,
            store::Found::Missing => {
                counts.group_answers += 1;
                self.next += 1;
                let node_answers =
                    NodeAnswers::build(self.next, group, evaluator, plan, scratch).ok();
                let is_kept = node_answers.is_some();
                let limit = Limit::NODE_ANSWERS.with(evaluator.cluster.nodes.slots());
                store.insert(key, node_answers.map(Box::new), limit);
                is_kept
            }
        }
    }
}

impl Kept for Shape {
    fn bytes(&self) -> usize {
        Shape::bytes(self)
    }
}

impl Kept for NodeAnswers {
    fn bytes(&self) -> usize {
        NodeAnswers::bytes(self)
    }
}

/// Everything kept about the pods of a shape, up to date.
struct KeptFor<'a> {
    plan: &'a Plan,
    shape: &'a mut Shape,
    group_answers: &'a mut GroupAnswers<'a>,
    /// The shape's place.
    key: &'a [u8],
}

impl fmt::Debug for AnswerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerCache")
            .field("shapes", &self.shapes.len())
            .field("bytes", &self.bytes())
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl AnswerCache {
    /// The counts of decisions so far.
    pub fn counts(&self) -> AnswerCacheCounts {
        self.counts
    }

    /// About how much memory the kept answers take, in bytes.
    pub fn bytes(&self) -> usize {
        let group_answers = self.group_answers.node.bytes() + self.group_answers.pods.bytes();
        self.shapes.bytes() + group_answers
    }

    /// The number of shapes that are kept.
    pub fn shapes(&self) -> usize {
        self.shapes.len()
    }

    /// Finds a node for the evaluator's pod as [`Evaluator::find`] does or, with a scope, [`Evaluator::find_within`], from
    /// kept answers. `None` when the plain evaluator has to decide; the generator has not been touched then.
    fn find(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        scope: Option<&[Slot]>,
        search: (Option<i32>, &mut usize),
        rng: &mut fastrand::Rng,
    ) -> Option<Found> {
        let began = evaluator.stopwatch.last_nanos();
        let Some(plan) = self.prepare(evaluator) else {
            return self.leave_to_plain(evaluator);
        };
        let found = self.with_shape(evaluator, plan, |evaluator, kept| {
            let filtered = evaluator.stopwatch.nanos();
            let found = match scope {
                None => decide(evaluator, kept, search, rng),
                Some(nodes) => decide_within(evaluator, kept, nodes, search, rng),
            };
            let nanos = evaluator.stopwatch.nanos().saturating_sub(filtered);
            if let Ok(Found::Placed(placement)) = &found
                && placement.feasible > 1
            {
                let is_scored = !evaluator.profile.score.is_empty();
                let tally = &mut evaluator.evaluation.tally;
                if is_scored {
                    tally.span(Point::PreScore, Code::Success, 0);
                    tally.span(Point::Score, Code::Success, nanos);
                }
            }
            (found, filtered)
        });
        match found {
            Some((Ok(found), filtered)) => {
                self.counts.kept += 1;
                let tally = &mut evaluator.evaluation.tally;
                let nanos = filtered.saturating_sub(began);
                tally.span(Point::PreFilter, Code::Success, 0);
                tally.span(Point::Filter, Code::Success, nanos);
                Some(found)
            }
            _ => self.leave_to_plain(evaluator),
        }
    }

    fn leave_to_plain(&mut self, evaluator: &mut Evaluator<'_>) -> Option<Found> {
        self.counts.plain += 1;
        // It runs PreFilter from the beginning, and counts that.
        evaluator.evaluation.tally.pre_filter.clear();
        None
    }

    /// Reads what makes the evaluator's pod alike to others, and brings the first group's node answers up to date.
    /// Returns the place of the plan; `None` when the plain evaluator has to decide.
    fn prepare(&mut self, evaluator: &mut Evaluator<'_>) -> Option<usize> {
        let nodes = &evaluator.cluster.nodes;
        if nodes.is_empty() || nodes.is_supposing() {
            return None;
        }
        // The plain evaluator can stop after some nodes.
        if !may_keep(evaluator.pod.items(), nodes.len()) {
            return None;
        }
        let name = &evaluator.profile.name;
        let at = match self.plans.iter().position(|(known, _)| known == name) {
            Some(at) => at,
            None => {
                let plan = Plan::new(evaluator.profile);
                self.plans.push((name.clone(), plan));
                self.plans.len() - 1
            }
        };
        let plan = self.plans[at].1.as_ref()?;
        if !run_unkept_pre_filters(evaluator, plan) {
            return None;
        }
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
            work: evaluator.work,
        };
        let (profile, pod) = (evaluator.profile, evaluator.pod);
        let write = |fragments: &mut [Fragment; 3]| plan.write(profile, &cx, pod, fragments);
        let version = plan.fragment_version(&cx);
        let is_known = match pod.template_key().zip(version) {
            Some((template, version)) => {
                let key = (at, template, version);
                self.remembered.find(key, pod, &mut self.fragments, write)
            }
            None => write(&mut self.fragments),
        };
        if !is_known {
            return None;
        }
        let group_answers = &mut self.group_answers;
        let (group, key) = (Group::Node, self.fragments[0].as_bytes());
        let (scratch, counts) = (&mut self.scratch, &mut self.counts);
        let is_kept = group_answers.refresh(group, key, (evaluator, plan), scratch, counts);
        is_kept.then_some(at)
    }

    /// Brings everything about the shape of the evaluator's pod up to date, and hands it over: after
    /// [`AnswerCache::prepare`], with the plan's place. `None` when the plain evaluator has to decide.
    fn with_shape<T>(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        plan: usize,
        then: impl FnOnce(&mut Evaluator<'_>, KeptFor<'_>) -> T,
    ) -> Option<T> {
        let plan = self.plans[plan].1.as_ref()?;
        let Self {
            group_answers,
            shapes,
            fragments: [of_node, of_pods, of_shape],
            scratch,
            counts,
            ..
        } = self;
        let (group, key) = (Group::Pods, of_pods.as_bytes());
        if !group_answers.refresh(group, key, (evaluator, plan), scratch, counts) {
            return None;
        }
        let mut group_answers = GroupAnswers {
            node: group_answers.node.get_mut(of_node.as_bytes())?,
            pods: group_answers.pods.get_mut(of_pods.as_bytes())?,
        };
        // A shape of other node answers is out of date, and has another key.
        of_shape.put(&(group_answers.node.id, group_answers.pods.id));
        let key = of_shape.as_bytes();
        match shapes.refresh(key, |shape| {
            shape.catch_up(evaluator, &group_answers, scratch)
        }) {
            store::Found::Kept => {}
            store::Found::Unkeepable => return None,
            store::Found::Missing => {
                counts.built += 1;
                let opened = DomainCounts::open(evaluator, plan);
                let shape = Shape::build(evaluator, opened, &group_answers).ok();
                let limit = Limit::SHAPES.with(evaluator.cluster.nodes.slots());
                shapes.insert(key, shape.map(Box::new), limit);
            }
        }
        let shape = shapes.get_mut(key)?;
        let both = group_answers.both();
        if both.iter().any(|node_answers| node_answers.is_broken()) {
            return None;
        }
        let kept = KeptFor {
            plan,
            shape,
            group_answers: &mut group_answers,
            key,
        };
        Some(then(evaluator, kept))
    }

    /// Stores what PostFilter found about nodes.
    pub(crate) fn revert(&mut self, evaluation: &mut Evaluation) {
        if let Some(memos) = evaluation.memos.take()
            && let Some(shape) = self.shapes.get_mut(&memos.shape)
        {
            shape.revert(memos);
        }
    }
}

/// Runs the PreFilter plugins that nothing is known about. They may do as they like as long as all nodes stay
/// possible; otherwise false.
fn run_unkept_pre_filters(evaluator: &mut Evaluator<'_>, plan: &Plan) -> bool {
    let cx = Context {
        now: evaluator.now,
        cluster: evaluator.cluster,
        features: evaluator.features,
        work: evaluator.work,
    };
    for at in &plan.unkept {
        let member = &evaluator.profile.pre_filter[*at];
        let Evaluation { state, tally, .. } = &mut *evaluator.evaluation;
        let began = tally.begin(evaluator.stopwatch);
        let result = member.plugin.pre_filter(&cx, state, evaluator.pod);
        let called = (member.name.as_str(), Point::PreFilter.as_str());
        tally.called(began, evaluator.stopwatch, called, code_of(&result));
        match result {
            PreFilterResult::AllNodes => Tally::count(&mut tally.pre_filter, *at),
            PreFilterResult::Skip => evaluator.evaluation.skip_filter.insert(member.id),
            PreFilterResult::Nodes(_) | PreFilterResult::Reject(_) => return false,
        }
    }
    true
}

/// Decides from a shape that is up to date; see [`Evaluator::find`] about the percentage of nodes and the start.
fn decide(
    evaluator: &mut Evaluator<'_>,
    kept: KeptFor<'_>,
    (percentage_of_nodes, start): (Option<i32>, &mut usize),
    rng: &mut fastrand::Rng,
) -> Result<Found, Unkeepable> {
    let KeptFor {
        plan,
        shape,
        group_answers,
        key,
    } = kept;
    answer_for_own_nomination(evaluator, shape, group_answers)?;
    shape.count_nominated(evaluator, plan)?;
    let name = &evaluator.pod.pod.status.nominated_node_name;
    if let Some(view) = evaluator.cluster.nodes.node(name)
        && shape.fits(plan, view.slot())
    {
        return placed(evaluator, view.slot(), 1, 1);
    }
    let live = shape.live(plan)?;
    let limit = SearchLimit::new(shape.nodes, percentage_of_nodes, true);
    if limit.stop_at <= live.nodes && percentage_of_nodes.is_some() {
        let all = evaluator.cluster.nodes.in_order();
        let (passed, ahead) = all.split_at(*start % all.len().max(1));
        let nodes = ahead.iter().chain(passed).copied();
        let (found, visited) = shape.found_in_order(&live, nodes, limit.stop_at);
        let feasible = found.len();
        let node = shape.choose_among(evaluator, plan, group_answers, &live, &found, rng)?;
        *start = start.wrapping_add(visited) % all.len().max(1);
        return placed(evaluator, node, visited, feasible);
    }
    if live.nodes == 0 && shape.is_entangled() {
        // The order of several filters, with nominated pods or without, is not kept.
        return Err(Unkeepable);
    }
    *start %= shape.nodes.max(1);
    if live.nodes == 0 {
        evaluator.evaluation.unprepared = true;
        evaluator.evaluation.is_kept = true;
        // None of them decreases, so the sum is the same only if each of them is.
        let followed = group_answers.both().map(NodeAnswers::followed);
        let version = evaluator.cluster.budgets().version() + followed.iter().sum::<u64>();
        evaluator.evaluation.memos = shape.lend_memos(key, version);
        return Ok(Found::Unfit(Box::new(FitError {
            nodes: shape.nodes,
            diagnosis: shape.diagnosis(plan),
        })));
    }
    let node = shape.choose(evaluator, plan, group_answers, &live, rng)?;
    placed(evaluator, node, shape.nodes, live.nodes)
}

/// The same among some nodes, as if there were no others. If none of them is feasible, the plain evaluator gives the
/// reasons.
fn decide_within(
    evaluator: &mut Evaluator<'_>,
    kept: KeptFor<'_>,
    nodes: &[Slot],
    (percentage_of_nodes, start): (Option<i32>, &mut usize),
    rng: &mut fastrand::Rng,
) -> Result<Found, Unkeepable> {
    let KeptFor {
        plan,
        shape,
        group_answers,
        ..
    } = kept;
    answer_for_own_nomination(evaluator, shape, group_answers)?;
    shape.count_nominated(evaluator, plan)?;
    let name = &evaluator.pod.pod.status.nominated_node_name;
    if let Some(view) = evaluator.cluster.nodes.node(name)
        && nodes.contains(&view.slot())
        && shape.fits(plan, view.slot())
    {
        return placed(evaluator, view.slot(), 1, 1);
    }
    let live = shape.live(plan)?;
    let limit = SearchLimit::new(nodes.len(), percentage_of_nodes, true);
    let (passed, ahead) = nodes.split_at(*start % nodes.len().max(1));
    let in_order = ahead.iter().chain(passed).copied();
    let (found, visited) = shape.found_in_order(&live, in_order, limit.stop_at);
    if found.is_empty() {
        return Err(Unkeepable);
    }
    let feasible = found.len();
    let node = shape.choose_among(evaluator, plan, group_answers, &live, &found, rng)?;
    *start = start.wrapping_add(visited) % nodes.len().max(1);
    placed(evaluator, node, visited, feasible)
}

fn placed(
    evaluator: &Evaluator<'_>,
    node: Slot,
    evaluated: usize,
    feasible: usize,
) -> Result<Found, Unkeepable> {
    let view = evaluator.cluster.nodes.get(node).ok_or(Unkeepable)?;
    Ok(Found::Placed(Placement {
        node,
        name: view.name().clone(),
        evaluated,
        feasible,
        scores: None,
        excluded: Vec::new(),
    }))
}

/// The nomination of the pod itself does not count for the pod, but for others of its shape: its node is examined
/// again. If the node that its status names is feasible, it is not looked further (C-16).
fn answer_for_own_nomination(
    evaluator: &mut Evaluator<'_>,
    shape: &mut Shape,
    group_answers: &mut GroupAnswers<'_>,
) -> Result<(), Unkeepable> {
    let name = evaluator.nominated.node_of(evaluator.pod.pod.uid());
    let node = name.and_then(|name| evaluator.cluster.nodes.node(name));
    match node.map(|node| node.slot()) {
        Some(slot) => shape.answer_for_now(evaluator, group_answers, slot),
        None => Ok(()),
    }
}

impl Evaluator<'_> {
    /// Finds a node for the pod as [`Evaluator::find`] does or, with a scope, [`Evaluator::find_within`], from kept answers
    /// where there are any.
    ///
    /// # Panics
    /// When `compare` is set (and always in a debug build) and the plain evaluator decides otherwise: a bug.
    pub fn find_with(
        &mut self,
        (answer_cache, compare): (&mut AnswerCache, bool),
        scope: Option<&[Slot]>,
        percentage_of_nodes: Option<i32>,
        start: &mut usize,
        rng: &mut fastrand::Rng,
    ) -> Found {
        let before = (rng.clone(), *start);
        match answer_cache.find(self, scope, (percentage_of_nodes, &mut *start), rng) {
            Some(found) => {
                if compare || cfg!(debug_assertions) {
                    let after = self.compare(&found, scope, percentage_of_nodes, before);
                    assert!(
                        after.is_none_or(|after| after == (rng.clone(), *start)),
                        "the evaluators have used the generator or the start differently for pod {}",
                        self.pod.pod.key()
                    );
                }
                found
            }
            None => {
                // The plain evaluator decides the same whatever was asked before.
                if let Some(work) = self.work {
                    work.restart();
                }
                self.find_plainly(scope, percentage_of_nodes, start, rng)
            }
        }
    }

    /// Calls the plugins on every node, or on every node of the scope.
    pub fn find_plainly(
        &mut self,
        scope: Option<&[Slot]>,
        percentage_of_nodes: Option<i32>,
        start: &mut usize,
        rng: &mut fastrand::Rng,
    ) -> Found {
        match scope {
            None => self.find(percentage_of_nodes, start, rng),
            Some(nodes) => self.find_within(nodes, percentage_of_nodes, start, rng),
        }
    }

    /// Makes the decision once more, plainly. Returns the generator and the start after that; `None` if the budget of the
    /// attempt is used up, which kept answers do not need.
    fn compare(
        &mut self,
        found: &Found,
        scope: Option<&[Slot]>,
        percentage_of_nodes: Option<i32>,
        (mut rng, mut start): (fastrand::Rng, usize),
    ) -> Option<(fastrand::Rng, usize)> {
        let mut evaluation = Evaluation::default();
        let work = Work::after(self.work.map_or(0, Work::used_up_before));
        let plain = Evaluator {
            profile: self.profile,
            features: self.features,
            now: self.now,
            cluster: self.cluster,
            nominated: self.nominated,
            pod: self.pod,
            evaluation: &mut evaluation,
            work: self.work.map(|_| &work),
            stopwatch: self.stopwatch,
        }
        .find_plainly(scope, percentage_of_nodes, &mut start, &mut rng);
        if work.is_used_up() {
            return None;
        }
        if let Some(difference) = difference(found, &plain) {
            panic!(
                "the incremental evaluator differs from the plain one about pod {}: {difference}",
                self.pod.pod.key()
            );
        }
        Some((rng, start))
    }
}

/// The difference of two decisions about one pod.
fn difference(found: &Found, plain: &Found) -> Option<String> {
    match (found, plain) {
        (Found::Placed(found), Found::Placed(plain)) => {
            let stated = |placement: &Placement| {
                let Placement {
                    name,
                    evaluated,
                    feasible,
                    ..
                } = placement;
                format!("{name}, {feasible} of {evaluated} feasible")
            };
            let (found, plain) = (stated(found), stated(plain));
            (found != plain).then(|| format!("{found} instead of {plain}"))
        }
        (Found::Unfit(found), Found::Unfit(plain)) => {
            let (text, plainly) = (found.to_string(), plain.to_string());
            if text != plainly {
                return Some(format!("{text:?} instead of {plainly:?}"));
            }
            let (found, plain) = (&found.diagnosis, &plain.diagnosis);
            if found.unschedulable_plugins != plain.unschedulable_plugins
                || found.pending_plugins != plain.pending_plugins
            {
                return Some(format!(
                    "{:?} and {:?} rejected it instead of {:?} and {:?}",
                    found.unschedulable_plugins,
                    found.pending_plugins,
                    plain.unschedulable_plugins,
                    plain.pending_plugins
                ));
            }
            let mut differs = None;
            plain.statuses.each(|slot, status| {
                let got = found.statuses.get(slot);
                if got == status {
                    return std::ops::ControlFlow::Continue(());
                }
                differs = Some(format!("slot {slot:?}: {got:?} instead of {status:?}"));
                std::ops::ControlFlow::Break(())
            });
            differs
        }
        (found, plain) => Some(format!("{found:?} instead of {plain:?}")),
    }
}
