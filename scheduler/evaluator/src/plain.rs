//! The whole way from a pod to a node, as kube-scheduler goes it (C-14).

use super::choose::choose;
use super::diagnosis::{Diagnosis, FitError};
use super::score::Scores;
use super::search::{SearchLimit, broken};
use super::{Evaluation, Evaluator, Tally};
use berth_api::Str;
use berth_framework::plugin::PreFilterResult;
use berth_framework::{Code, NodeTable, Slot, Status};
use berth_profile::Point;

/// The result of PreFilter for a pod that it did not reject.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PreFiltered {
    /// The only possible nodes by name, sorted; `None` for all.
    pub nodes: Option<Vec<Str>>,
    /// The plugins that left out nodes, sorted.
    pub narrowed_by: Vec<Str>,
}

impl PreFiltered {
    /// Returns whether a node exists and is possible.
    pub(super) fn allows(&self, nodes: &NodeTable, slot: Slot) -> bool {
        let is_left = |name| {
            let left = self.nodes.as_ref();
            left.is_none_or(|names| names.binary_search(name).is_ok())
        };
        nodes.get(slot).is_some_and(|view| is_left(view.name()))
    }
}

/// The feasible nodes, how many nodes were evaluated, and the errors that only excluded their node.
type Feasible = (Vec<Slot>, usize, Vec<Status>);

/// A pod's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The node.
    pub node: Slot,
    /// Its name.
    pub name: Str,
    /// The number of evaluated nodes.
    pub evaluated: usize,
    /// The number of feasible nodes.
    pub feasible: usize,
    /// The scores, where more than one was feasible.
    pub scores: Option<Box<Scores>>,
    /// Filter errors on nodes that kube-scheduler would not have come to: they excluded their node, and belong
    /// into the log.
    pub excluded: Vec<Status>,
}

/// The result of a search for a node.
#[derive(Debug)]
pub enum Found {
    /// A node.
    Placed(Placement),
    /// No node is feasible.
    Unfit(Box<FitError>),
    /// There is no node at all (C-12).
    NoNodes(Status),
    /// Something broke.
    Failed(Status),
}

/// The code that means an answer of PreFilter in the metrics.
pub(super) fn code_of(result: &PreFilterResult) -> Code {
    match result {
        PreFilterResult::Skip => Code::Skip,
        PreFilterResult::Reject(status) => status.code(),
        PreFilterResult::AllNodes | PreFilterResult::Nodes(_) => Code::Success,
    }
}

impl Evaluator<'_> {
    /// Runs PreFilter (F-8).
    ///
    /// # Errors
    /// How the pod was rejected on every node, with the plugins that had left out nodes by then; or what broke.
    pub fn pre_filter(&mut self) -> Result<PreFiltered, (Status, Vec<Str>)> {
        let began = self.stopwatch.last_nanos();
        let result = self.run_pre_filter();
        let code = match &result {
            Ok(_) => Code::Success,
            Err((status, _)) => status.code(),
        };
        let nanos = self.stopwatch.nanos().saturating_sub(began);
        self.evaluation.tally.span(Point::PreFilter, code, nanos);
        result
    }

    pub(super) fn run_pre_filter(&mut self) -> Result<PreFiltered, (Status, Vec<Str>)> {
        let mut so_far = PreFiltered::default();
        let mut turned_down = None;
        let (profile, pod, stopwatch) = (self.profile, self.pod, self.stopwatch);
        let (cx, evaluation) = self.split();
        for (at, member) in profile.pre_filter.iter().enumerate() {
            let Evaluation { state, tally, .. } = &mut *evaluation;
            let (name, point) = (&member.name, Point::PreFilter.as_str());
            let result = tally.timed(stopwatch, name, point, code_of, || {
                member.plugin.pre_filter(&cx, state, pod)
            });
            if !matches!(result, PreFilterResult::Skip) {
                Tally::count(&mut tally.pre_filter, at);
            }
            match result {
                PreFilterResult::AllNodes => {}
                PreFilterResult::Skip => evaluation.skip_filter.insert(member.id),
                PreFilterResult::Nodes(mut names) => {
                    names.sort_unstable();
                    names.dedup();
                    if let Some(before) = &so_far.nodes {
                        names.retain(|name| before.binary_search(name).is_ok());
                    }
                    super::insert_sorted(&mut so_far.narrowed_by, &member.name);
                    if names.is_empty() {
                        let text = match &so_far.narrowed_by[..] {
                            [one] => format!("node(s) didn't satisfy plugin {one}"),
                            several => format!(
                                "node(s) didn't satisfy plugin(s) {} simultaneously",
                                bracketed(several)
                            ),
                        };
                        return Err((Status::unresolvable(text), so_far.narrowed_by));
                    }
                    so_far.nodes = Some(names);
                }
                PreFilterResult::Reject(status) => match status.code() {
                    Code::UnschedulableAndUnresolvable => {
                        return Err((status.from_plugin(&member.name), Vec::new()));
                    }
                    // The others still run: PostFilter needs their results.
                    Code::Unschedulable => turned_down = Some(status.from_plugin(&member.name)),
                    _ => {
                        let what = format!("running PreFilter plugin {:?}", member.name.as_str());
                        return Err((broken(&what, &member.name, &status), Vec::new()));
                    }
                },
            }
        }
        match turned_down {
            Some(status) => Err((status, so_far.narrowed_by)),
            None => Ok(so_far),
        }
    }

    /// Finds a node for the pod. `start` is where the search begins among all nodes, and where the next one is to
    /// begin afterwards (C-22).
    pub fn find(
        &mut self,
        percentage_of_nodes: Option<i32>,
        start: &mut usize,
        rng: &mut fastrand::Rng,
    ) -> Found {
        let (possible, mut diagnosis) = match self.possible() {
            Ok(possible) => possible,
            Err(found) => return found,
        };
        let is_scored = !self.profile.score.is_empty();
        let found = match self.nominated_node(&mut diagnosis) {
            Some(node) => Ok((vec![node], 1, Vec::new())),
            None => self.feasible(
                possible,
                percentage_of_nodes,
                is_scored,
                start,
                &mut diagnosis,
            ),
        };
        self.choose_among(found, self.cluster.nodes.len(), diagnosis, rng)
    }

    /// Scores the feasible ones of `nodes` nodes, and chooses.
    fn choose_among(
        &mut self,
        found: Result<Feasible, Status>,
        nodes: usize,
        diagnosis: Diagnosis,
        rng: &mut fastrand::Rng,
    ) -> Found {
        let (feasible, evaluated, excluded) = match found {
            Ok(found) => found,
            Err(status) => return Found::Failed(status),
        };
        let (chosen, scores) = match feasible[..] {
            [] => return unfit(nodes, diagnosis),
            // C-24: a single node is not scored.
            [only] => (Some(only), None),
            _ => match self.score(&feasible) {
                Ok(scores) => (choose(&scores.nodes, rng), Some(Box::new(scores))),
                Err(status) => return Found::Failed(status),
            },
        };
        match chosen.and_then(|node| self.cluster.nodes.get(node)) {
            Some(view) => Found::Placed(Placement {
                node: view.slot(),
                name: view.name().clone(),
                evaluated,
                feasible: feasible.len(),
                scores,
                excluded,
            }),
            None => unfit(nodes, diagnosis),
        }
    }

    /// Finds a node for the pod among some nodes, as if there were no others; plugins read all of them.
    pub fn find_within(
        &mut self,
        nodes: &[Slot],
        percentage_of_nodes: Option<i32>,
        start: &mut usize,
        rng: &mut fastrand::Rng,
    ) -> Found {
        let (possible, mut diagnosis) = match self.possible() {
            Ok(possible) => possible,
            Err(Found::Unfit(mut error)) => {
                error.nodes = nodes.len();
                return Found::Unfit(error);
            }
            Err(found) => return found,
        };
        let nominated = &self.pod.pod.status.nominated_node_name;
        let nominated = self.cluster.nodes.slot(nominated);
        let is_nominated = nominated.is_some_and(|slot| nodes.contains(&slot));
        let found = match self.nominated_node(&mut diagnosis).filter(|_| is_nominated) {
            Some(node) => Ok((vec![node], 1, Vec::new())),
            None => {
                self.feasible_within(nodes, &possible, percentage_of_nodes, start, &mut diagnosis)
            }
        };
        self.choose_among(found, nodes.len(), diagnosis, rng)
    }

    /// The feasible ones of some nodes; errors that only excluded their node are not reported.
    fn feasible_within(
        &mut self,
        nodes: &[Slot],
        possible: &PreFiltered,
        percentage_of_nodes: Option<i32>,
        start: &mut usize,
        diagnosis: &mut Diagnosis,
    ) -> Result<Feasible, Status> {
        let table = &self.cluster.nodes;
        let left = nodes.iter().copied();
        let left: Vec<Slot> = left.filter(|slot| possible.allows(table, *slot)).collect();
        if left.len() < nodes.len() {
            diagnosis.statuses.absent = unsatisfied(&diagnosis.unschedulable_plugins);
        }
        let is_scored = !self.profile.score.is_empty();
        let limit = SearchLimit::new(left.len(), percentage_of_nodes, is_scored);
        let found = self
            .search(&left, *start, limit, diagnosis)
            .map_err(|(status, _)| status)?;
        *start = start.wrapping_add(found.visited) % nodes.len().max(1);
        Ok((found.feasible, found.visited, Vec::new()))
    }

    /// Runs PreFilter. Returns the possible nodes, and the diagnosis so far.
    ///
    /// # Errors
    /// The result of the search, if it is over already.
    pub fn possible(&mut self) -> Result<(PreFiltered, Diagnosis), Found> {
        let all = self.cluster.nodes.len();
        if all == 0 {
            return Err(Found::NoNodes(
                Status::new(Code::UnschedulableAndUnresolvable, [])
                    .with_error("no nodes available to schedule pods"),
            ));
        }
        let mut diagnosis = Diagnosis::default();
        match self.pre_filter() {
            Ok(possible) => {
                diagnosis.unschedulable_plugins = possible.narrowed_by.clone();
                Ok((possible, diagnosis))
            }
            Err((status, narrowed_by)) if status.is_rejected() => {
                diagnosis.unschedulable_plugins = narrowed_by;
                diagnosis.add_plugin_of(&status);
                diagnosis.statuses.absent = status.clone();
                diagnosis.pre_filter = Some(status);
                Err(unfit(all, diagnosis))
            }
            Err((status, _)) => Err(Found::Failed(status)),
        }
    }

    /// The feasible nodes, how many nodes were evaluated, and the errors that only excluded their node. If no plugin
    /// scores, the search stops at the first feasible node (C-20).
    pub fn feasible(
        &mut self,
        possible: PreFiltered,
        percentage_of_nodes: Option<i32>,
        is_scored: bool,
        start: &mut usize,
        diagnosis: &mut Diagnosis,
    ) -> Result<Feasible, Status> {
        let all = self.cluster.nodes.in_order();
        let narrowed: Option<Vec<Slot>> = possible.nodes.as_ref().map(|names| {
            names
                .iter()
                .filter_map(|name| Some(self.cluster.nodes.node(name)?.slot()))
                .collect()
        });
        if let Some(slots) = &narrowed
            && slots.len() < all.len()
        {
            diagnosis.statuses.absent = unsatisfied(&diagnosis.unschedulable_plugins);
        }
        diagnosis.pre_filter_nodes = possible.nodes;
        let nodes = narrowed.as_deref().unwrap_or(&all);
        let limit = SearchLimit::new(nodes.len(), percentage_of_nodes, is_scored);
        let (result, visited) = match self.search(nodes, *start, limit, diagnosis) {
            Ok(found) => {
                let visited = found.visited;
                (Ok((found.feasible, visited, found.excluded)), visited)
            }
            Err((status, visited)) => (Err(status), visited),
        };
        // By the evaluated nodes, also after an error (C-22).
        *start = start.wrapping_add(visited) % all.len().max(1);
        result
    }

    /// The pod's nominated node, if it is feasible now: it is not looked further then (C-16).
    pub fn nominated_node(&mut self, diagnosis: &mut Diagnosis) -> Option<Slot> {
        let name = &self.pod.pod.status.nominated_node_name;
        if name.is_empty() {
            return None;
        }
        let node = self.cluster.nodes.node(name)?.slot();
        let limit = SearchLimit {
            stop_at: 1,
            errors_count_until: 1,
        };
        let found = self.search(&[node], 0, limit, diagnosis).ok()?;
        found.feasible.first().copied()
    }
}

/// The result of a search in which none of this number of nodes fits.
pub fn unfit(nodes: usize, diagnosis: Diagnosis) -> Found {
    Found::Unfit(Box::new(FitError { nodes, diagnosis }))
}

/// The status of nodes that PreFilter of these plugins left out.
fn unsatisfied(plugins: &[Str]) -> Status {
    let plugins = bracketed(plugins);
    Status::unresolvable(format!("node(s) didn't satisfy plugin(s) {plugins}"))
}

/// Names as Go prints a list: `[A B]`.
fn bracketed(names: &[Str]) -> String {
    let names: Vec<&str> = names.iter().map(Str::as_str).collect();
    format!("[{}]", names.join(" "))
}
