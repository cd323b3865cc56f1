//! The incremental evaluator: the plain evaluator's decisions, at a cost that follows what has changed.
//!
//! The answers of plugins that judge nodes one by one are in **columns** (`column`): for each group of plugins and
//! all pods that are equal in what these read, the answer and the score of each node. Plugins that judge topology domains
//! keep **domain counts** (the ledgers of [`berth_framework::keep`]). Both follow the log of the node table, and ask again
//! only about nodes that have changed. Pods of one **shape** have the same columns and ledgers. Nodes with equal answers of
//! the first column and equal domain counts are a **class**. With equal answers of the second column, too, they get equal
//! verdicts and equal normalised scores: of these a shape knows the greatest sum in each block of 64 nodes and each group of
//! 64 blocks, so a decision is one pass over groups. The page `docs/contribute/evaluator.md` follows two pods through it.
//!
//! It may be faster than the plain evaluator and differ in nothing else. It leaves a decision to the plain one where it
//! cannot be sure to be equal: a plugin that does not declare what it depends on, a filter that fails, no feasible node
//! where nominated pods change domain counts. It also leaves pods to it that name their nodes: few nodes are checked
//! for them. A debug build makes every decision with both.

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
use std::fmt;
use store::Store;

/// The evaluator that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EvaluatorKind {
    /// Node by node, in kube-scheduler's order.
    Plain,
    /// With kept answers. A debug build compares each decision with the plain evaluator's.
    #[default]
    Incremental,
}

impl fmt::Display for EvaluatorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Incremental => "incremental",
        })
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
    store: Store,
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

impl Store {
    /// Hands over everything about the pods with these columns and this fragment of the ledgers.
    fn with_classes<'e, R>(
        &mut self,
        evaluator: &mut Evaluator<'e>,
        plan: &Plan,
        columns: &PodColumns<'_>,
        of_ledgers: &[u8],
        then: impl FnOnce(&mut Evaluator<'e>, Kept<'_>) -> R,
    ) -> Option<R> {
        // Pods that differ in the second column have the same classes of nodes.
        let [mut of_classes, mut of_shape] = <[Fragment; 2]>::default();
        of_classes.put(&(columns.node.id, of_ledgers));
        self.with(
            of_classes.as_bytes(),
            evaluator,
            |store, evaluator| NodeClasses::new(store.made, evaluator, plan),
            |classes, evaluator, scratch| classes.catch_up(evaluator, columns.node, scratch),
            |store, evaluator, classes| {
                of_shape.put(&(classes.id, columns.pods.id));
                let key = of_shape.as_bytes();
                let new = |store: &mut Self, _: &Evaluator<'_>| {
                    store.counts.built += 1;
                    Shape::default()
                };
                let mut shape = store.take(key, evaluator, new, |shape, evaluator, scratch| {
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
                store.put(key, shape, evaluator);
                Some(result)
            },
        )
    }
}

impl AnswerCache {
    /// The counts of decisions so far.
    pub fn counts(&self) -> AnswerCacheCounts {
        self.store.counts
    }

    /// About how much memory the kept answers take, in bytes.
    pub fn bytes(&self) -> usize {
        self.store.bytes()
    }

    /// Forgets every answer and plan, because the profiles are replaced. The counts stay.
    pub fn forget(&mut self) {
        let (made, counts) = (self.store.made, self.store.counts);
        *self = Self::default();
        (self.store.made, self.store.counts) = (made, counts);
    }

    /// Returns whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.store.len() == 0
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
        let decide = |evaluator: &mut Evaluator<'_>, kept: Kept<'_>| {
            let filtered = evaluator.stopwatch.nanos();
            let found = decide(evaluator, kept, scope, percentage_of_nodes, start, rng).ok()?;
            let scored = evaluator.stopwatch.nanos();
            let tally = &mut evaluator.evaluation.tally;
            tally.span(Point::PreFilter, Code::Success, 0);
            tally.span(Point::Filter, Code::Success, filtered.saturating_sub(began));
            if matches!(&found, Found::Placed(placement) if placement.feasible > 1) {
                tally.span(Point::PreScore, Code::Success, 0);
                tally.span(Point::Score, Code::Success, scored.saturating_sub(filtered));
            }
            Some(found)
        };
        let plan = self.prepare(evaluator);
        let found = plan.and_then(|plan| self.with_shape(evaluator, plan, true, decide)?);
        if found.is_some() {
            self.store.counts.kept += 1;
        } else {
            self.store.counts.plain += 1;
            // The plain evaluator runs PreFilter from the beginning, and counts that.
            evaluator.evaluation.tally.pre_filter.clear();
        }
        found
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
            store,
            ..
        } = self;
        let plan = plans[plan].1.as_ref()?;
        let [of_node, of_pods, of_ledgers] = fragments.each_ref().map(Fragment::as_bytes);
        rows.catch_up(evaluator, &mut store.scratch);
        let rows = &*rows;
        let new = |group| {
            move |store: &mut Store, evaluator: &Evaluator<'_>| {
                store.counts.group_answers += 1;
                Column::new(store.made, group, evaluator.pod)
            }
        };
        let catch_up = |column: &mut Column, evaluator: &mut Evaluator<'_>, scratch: &mut _| {
            column.catch_up(evaluator, plan, rows, scratch)
        };
        let (node, pods) = (new(Group::Node), new(Group::Pods));
        store.with(
            of_node,
            evaluator,
            node,
            catch_up,
            |store, evaluator, node| {
                store.with(
                    of_pods,
                    evaluator,
                    pods,
                    catch_up,
                    |store, evaluator, pods| {
                        if for_pod {
                            answer_for_own_nomination(evaluator, rows, &mut store.scratch, pods)
                                .ok()?;
                        }
                        if node.is_broken() || pods.is_broken() {
                            return None;
                        }
                        let columns = PodColumns { node, pods, rows };
                        store.with_classes(evaluator, plan, &columns, of_ledgers, then)
                    },
                )
            },
        )
    }

    /// Stores what PostFilter found about nodes.
    pub fn revert(&mut self, evaluation: &mut Evaluation) {
        if let Some(memos) = evaluation.memos.take()
            && let Some(shape) = self.store.shape(&memos.shape)
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
