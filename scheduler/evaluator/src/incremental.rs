//! The incremental evaluator: the plain evaluator's decisions, at a cost that follows what has changed.
//!
//! The answers of plugins that judge nodes one by one are in **columns** (`column`): for each group of plugins and
//! all pods that are equal in what these read, the answer and the score of each node. Plugins that judge topology domains
//! keep **domain counts** (the ledgers of [`berth_framework::keep`]). Both follow the log of the node table, and ask again
//! only about nodes that have changed. Pods of one **shape** have the same columns and ledgers. Nodes with equal raw scores
//! and equal domain counts are a **class**: they get equal verdicts and equal normalised scores. A shape knows the greatest
//! sum of each class in each block of 64 nodes and each group of 64 blocks, so a decision is one pass over groups. The page
//! `docs/contribute/evaluator.md` follows two pods through it.
//!
//! It may be faster than the plain evaluator and differ in nothing else. It leaves a decision to the plain one where it
//! cannot be sure to be equal: a plugin that does not declare what it depends on, a filter that fails, no feasible node
//! where nominated pods change domain counts. It also leaves pods to it that name their nodes: few nodes are checked
//! for them. [`EvaluatorKind::Compared`] makes every decision twice; so does every debug build.

mod answer;
mod cell;
mod changes;
mod classes;
mod column;
mod compare;
mod examine;
mod fragments;
mod ledgers;
mod node_classes;
mod plan;
mod rows;
mod scratch;
mod shape;
mod store;
#[cfg(test)]
mod tests;

pub use examine::Examined;

use super::plain::code_of;
use super::{Evaluation, Evaluator, FitError, Found, Placement, SearchLimit, Tally};
use berth_api::Str;
use berth_framework::keep::Fragment;
use berth_framework::plugin::PreFilterResult;
use berth_framework::work::may_keep;
use berth_framework::{Code, Slot};
use berth_profile::Point;
use column::Column;
use fragments::RememberedFragments;
use node_classes::NodeClasses;
use plan::{Group, Plan, Unkeepable};
use rows::Rows;
use scratch::Scratch;
use shape::{PodColumns, Shape};
use std::any::Any;
use std::fmt;
use std::str::FromStr;
use store::{Entry, Keepable, Store};

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

/// Kept answers. They follow one cluster and one set of profiles.
#[derive(Default)]
pub struct AnswerCache {
    plans: Vec<(Str, Option<Plan>)>,
    /// The keys by which the pod at hand equals others: for the two groups of plugins, and for the ledgers.
    fragments: [Fragment; 3],
    remembered: RememberedFragments,
    rows: Rows,
    keeper: Keeper,
}

/// The store, and the state for keeping its entries up to date.
#[derive(Default)]
struct Keeper {
    store: Store,
    /// The number of columns and classes of nodes so far.
    made: u64,
    scratch: Scratch,
    counts: AnswerCacheCounts,
}

/// Everything kept about the pods of a shape, up to date.
struct Kept<'a> {
    plan: &'a Plan,
    columns: &'a PodColumns<'a>,
    classes: &'a mut NodeClasses,
    shape: &'a mut Shape,
    /// The shape's key.
    key: &'a [u8],
}

impl fmt::Debug for AnswerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerCache")
            .field("shapes", &self.shapes())
            .field("bytes", &self.bytes())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl Keeper {
    /// Takes the entry of a key, or a new entry, brought up to date; `None` if no answers can be kept.
    fn take<'e, T: Keepable>(
        &mut self,
        key: &[u8],
        evaluator: &mut Evaluator<'e>,
        new: impl FnOnce(&mut Self, &Evaluator<'e>) -> T,
        catch_up: impl Fn(&mut T, &mut Evaluator<'e>, &mut Scratch) -> Result<(), Unkeepable>,
    ) -> Option<Box<T>> {
        let lent = self.store.lend(key);
        if let Some(None) = lent {
            self.put(key, None, evaluator);
            return None;
        }
        let known = lent.flatten().map(|kept| kept as Box<dyn Any>);
        if let Some(Ok(mut known)) = known.map(|kept| kept.downcast::<T>())
            && catch_up(&mut known, evaluator, &mut self.scratch).is_ok()
        {
            return Some(known);
        }
        // It has missed too much, if there was any.
        self.made += 1;
        let mut new = Box::new(new(self, evaluator));
        let is_kept = catch_up(&mut new, evaluator, &mut self.scratch).is_ok();
        if !is_kept {
            self.put(key, None, evaluator);
        }
        is_kept.then_some(new)
    }

    fn put(&mut self, key: &[u8], entry: Entry, evaluator: &Evaluator<'_>) {
        let limit = store::limit(evaluator.cluster.nodes.slots());
        self.store.put(key, entry, limit);
    }

    /// Hands over what [`Keeper::take`] takes, and puts it back.
    fn with<'e, T: Keepable, R>(
        &mut self,
        key: &[u8],
        evaluator: &mut Evaluator<'e>,
        new: impl FnOnce(&mut Self, &Evaluator<'e>) -> T,
        catch_up: impl Fn(&mut T, &mut Evaluator<'e>, &mut Scratch) -> Result<(), Unkeepable>,
        then: impl FnOnce(&mut Self, &mut Evaluator<'e>, &mut T) -> Option<R>,
    ) -> Option<R> {
        let mut kept = self.take(key, evaluator, new, catch_up)?;
        let result = then(self, evaluator, &mut kept);
        self.put(key, Some(kept), evaluator);
        result
    }

    /// Hands over everything about the pods with these columns and this fragment of the ledgers.
    fn with_classes<'e, R>(
        &mut self,
        evaluator: &mut Evaluator<'e>,
        plan: &Plan,
        columns: &PodColumns<'_>,
        of_ledgers: &[u8],
        then: impl FnOnce(&mut Evaluator<'e>, Kept<'_>) -> R,
    ) -> Option<R> {
        // Pods that differ in a column by row have the same classes of nodes.
        let by_slot = (!columns.pods.is_by_row).then_some(columns.pods.id);
        let [mut of_classes, mut of_shape] = <[Fragment; 2]>::default();
        of_classes.put(&(columns.node.id, by_slot, of_ledgers));
        self.with(
            of_classes.as_bytes(),
            evaluator,
            |keeper, evaluator| NodeClasses::new(keeper.made, evaluator, plan),
            |classes, evaluator, scratch| classes.catch_up(evaluator, columns, scratch),
            |keeper, evaluator, classes| {
                of_shape.put(&(classes.id, columns.pods.id));
                let key = of_shape.as_bytes();
                let new = |keeper: &mut Self, _: &Evaluator<'_>| {
                    keeper.counts.built += 1;
                    Shape::default()
                };
                let mut shape = keeper.take(key, evaluator, new, |shape, evaluator, scratch| {
                    shape.catch_up(evaluator, columns, classes, scratch)
                })?;
                let kept = Kept {
                    plan,
                    columns,
                    classes,
                    shape: &mut shape,
                    key,
                };
                let result = then(evaluator, kept);
                keeper.put(key, Some(shape), evaluator);
                Some(result)
            },
        )
    }
}

impl AnswerCache {
    /// The counts of decisions so far.
    pub fn counts(&self) -> AnswerCacheCounts {
        self.keeper.counts
    }

    /// About how much memory the kept answers take, in bytes.
    pub fn bytes(&self) -> usize {
        self.keeper.store.bytes()
    }

    /// Forgets every answer and plan, because the profiles are replaced. The counts stay.
    pub fn forget(&mut self) {
        let (made, counts) = (self.keeper.made, self.keeper.counts);
        *self = Self::default();
        (self.keeper.made, self.keeper.counts) = (made, counts);
    }

    /// The number of shapes that are kept.
    pub fn shapes(&self) -> usize {
        self.keeper.store.shapes()
    }

    /// Finds a node for the evaluator's pod as [`Evaluator::find`] does or, with a scope, [`Evaluator::find_within`], from
    /// kept answers. `None` when the plain evaluator has to decide; the generator has not been touched then.
    fn find(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        scope: Option<&[Slot]>,
        percentage_of_nodes: Option<i32>,
        start: &mut usize,
        rng: &mut fastrand::Rng,
    ) -> Option<Found> {
        let began = evaluator.stopwatch.last_nanos();
        let Some(plan) = self.prepare(evaluator) else {
            return self.leave_to_plain(evaluator);
        };
        let found = self.with_shape(evaluator, plan, true, |evaluator, kept| {
            let filtered = evaluator.stopwatch.nanos();
            let found = decide(evaluator, kept, scope, percentage_of_nodes, start, rng);
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
                self.keeper.counts.kept += 1;
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
        self.keeper.counts.plain += 1;
        // It runs PreFilter from the beginning, and counts that.
        evaluator.evaluation.tally.pre_filter.clear();
        None
    }

    /// Reads what makes the evaluator's pod alike to others. Returns the place of the plan; `None` when the plain evaluator
    /// has to decide.
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
        let cx = evaluator.context();
        let (profile, pod) = (evaluator.profile, evaluator.pod);
        let write = |fragments: &mut [Fragment; 3]| plan.write(profile, &cx, pod, fragments);
        let version = plan.fragment_version(&cx);
        let is_known = match pod.template_key().zip(version) {
            Some((template, version)) => {
                let fragments = &mut self.fragments;
                self.remembered
                    .find((at, template), version, pod, fragments, write)
            }
            None => write(&mut self.fragments),
        };
        is_known.then_some(at)
    }

    /// Brings everything about the shape of the evaluator's pod up to date, and hands it over: after
    /// [`AnswerCache::prepare`], with the plan's place. With `for_pod`, the pod's own nomination does not count. `None` when
    /// the plain evaluator has to decide.
    fn with_shape<T>(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        plan: usize,
        for_pod: bool,
        then: impl FnOnce(&mut Evaluator<'_>, Kept<'_>) -> T,
    ) -> Option<T> {
        let Self {
            plans,
            fragments,
            rows,
            keeper,
            ..
        } = self;
        let plan = plans[plan].1.as_ref()?;
        let [of_node, of_pods, of_ledgers] = fragments.each_ref().map(Fragment::as_bytes);
        rows.catch_up(evaluator, &mut keeper.scratch);
        let rows = &*rows;
        let new = |group| {
            move |keeper: &mut Keeper, evaluator: &Evaluator<'_>| {
                keeper.counts.group_answers += 1;
                Column::new(keeper.made, group, evaluator.pod)
            }
        };
        let catch_up = |column: &mut Column, evaluator: &mut Evaluator<'_>, scratch: &mut _| {
            column.catch_up(evaluator, plan, rows, scratch)
        };
        let (node, pods) = (new(Group::Node), new(Group::Pods));
        keeper.with(
            of_node,
            evaluator,
            node,
            catch_up,
            |keeper, evaluator, node| {
                keeper.with(
                    of_pods,
                    evaluator,
                    pods,
                    catch_up,
                    |keeper, evaluator, pods| {
                        if for_pod {
                            answer_for_own_nomination(evaluator, rows, &mut keeper.scratch, pods)
                                .ok()?;
                        }
                        if node.is_broken() || pods.is_broken() {
                            return None;
                        }
                        let columns = PodColumns { node, pods, rows };
                        keeper.with_classes(evaluator, plan, &columns, of_ledgers, then)
                    },
                )
            },
        )
    }

    /// Stores what PostFilter found about nodes.
    pub fn revert(&mut self, evaluation: &mut Evaluation) {
        if let Some(memos) = evaluation.memos.take()
            && let Some(shape) = self.keeper.store.shape(&memos.shape)
        {
            shape.revert(memos);
        }
    }
}

/// Runs the PreFilter plugins that nothing is known about. They may do as they like as long as all nodes stay
/// possible; otherwise false.
fn run_unkept_pre_filters(evaluator: &mut Evaluator<'_>, plan: &Plan) -> bool {
    let (profile, pod, stopwatch) = (evaluator.profile, evaluator.pod, evaluator.stopwatch);
    let (cx, evaluation) = evaluator.split();
    for at in &plan.unkept {
        let member = &profile.pre_filter[*at];
        let Evaluation { state, tally, .. } = &mut *evaluation;
        let (name, point) = (&member.name, Point::PreFilter.as_str());
        let result = tally.timed(stopwatch, name, point, code_of, || {
            member.plugin.pre_filter(&cx, state, pod)
        });
        match result {
            PreFilterResult::AllNodes => Tally::count(&mut tally.pre_filter, *at),
            PreFilterResult::Skip => evaluation.skip_filter.insert(member.id),
            PreFilterResult::Nodes(_) | PreFilterResult::Reject(_) => return false,
        }
    }
    true
}

/// Decides from a shape that is up to date; see [`Evaluator::find`] about the percentage of nodes and the start. With a
/// scope, as if there were no other nodes; the plain evaluator gives the reasons if none of them is feasible.
fn decide(
    evaluator: &mut Evaluator<'_>,
    kept: Kept<'_>,
    scope: Option<&[Slot]>,
    percentage_of_nodes: Option<i32>,
    start: &mut usize,
    rng: &mut fastrand::Rng,
) -> Result<Found, Unkeepable> {
    let (columns, classes) = (kept.columns, &mut *kept.classes);
    let shape = &mut *kept.shape;
    shape.count_nominated(evaluator, kept.plan, columns, classes)?;
    // If the node that the pod's status names is feasible, it is not looked further (C-16).
    let name = &evaluator.pod.pod.status.nominated_node_name;
    let nominated = evaluator.cluster.nodes.node(name).map(|view| view.slot());
    if let Some(slot) = nominated
        && scope.is_none_or(|nodes| nodes.contains(&slot))
        && kept.fits(slot)
    {
        return placed(evaluator, slot, 1, 1);
    }
    let live = kept.live()?;
    let nodes = scope.map_or(evaluator.cluster.nodes.len(), <[Slot]>::len);
    let limit = SearchLimit::new(nodes, percentage_of_nodes, true);
    let ends_early = percentage_of_nodes.is_some() && limit.stop_at <= live.nodes;
    if scope.is_some() || ends_early {
        let in_order = evaluator.cluster.nodes.in_order();
        let all = scope.unwrap_or(&in_order);
        let (passed, ahead) = all.split_at(*start % all.len().max(1));
        let in_order = ahead.iter().chain(passed).copied();
        let (found, visited) = kept.found_in_order(&live, in_order, limit.stop_at);
        let feasible = found.len();
        let node = kept.choose_among(evaluator, &found, rng)?;
        *start = start.wrapping_add(visited) % all.len().max(1);
        return placed(evaluator, node, visited, feasible);
    }
    if live.nodes == 0 && kept.shape.is_entangled() {
        // The order of several filters, with nominated pods or without, is not kept.
        return Err(Unkeepable);
    }
    *start %= nodes.max(1);
    if live.nodes == 0 {
        evaluator.evaluation.unprepared = true;
        evaluator.evaluation.is_kept = true;
        // None of them decreases, so the sum is the same only if each of them is.
        let followed = columns.node.followed + columns.pods.followed;
        let version = evaluator.cluster.budgets().version() + followed;
        let memos = kept
            .shape
            .lend_memos(&kept.classes.ledgers, kept.key, version);
        evaluator.evaluation.memos = memos;
        return Ok(Found::Unfit(Box::new(FitError {
            nodes,
            diagnosis: kept.diagnosis(),
        })));
    }
    let node = kept.choose(evaluator, &live, rng)?;
    placed(evaluator, node, nodes, live.nodes)
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
    rows: &Rows,
    scratch: &mut Scratch,
    pods: &mut Column,
) -> Result<(), Unkeepable> {
    let name = evaluator.nominated.node_of(evaluator.pod.pod.uid());
    let node = name.and_then(|name| evaluator.cluster.nodes.node(name));
    match node.map(|node| node.slot()) {
        Some(slot) => pods.answer_for_now(evaluator, rows, scratch, slot),
        None => Ok(()),
    }
}
