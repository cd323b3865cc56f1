//! Filtering: which nodes are feasible, and the reasons of the others.

use super::diagnosis::Diagnosis;
use super::{Evaluation, Evaluator, Tally};
use berth_api::Str;
use berth_framework::plugin::{Context, DryRun};
use berth_framework::{Code, Lack, PodInfo, Slot, Status};
use berth_profile::Point;
use smallvec::SmallVec;
use std::sync::Arc;

/// Below this many nodes, all of them are looked for.
const MIN_FEASIBLE_NODES: usize = 100;
/// The least per cent of nodes that kube-scheduler looks for by its own choice.
const MIN_FEASIBLE_PERCENT: usize = 5;

/// The number of feasible nodes that kube-scheduler looks for among `nodes` (C-19). A percentage of zero or less is its
/// own choice: `50 − nodes/125`, at least 5.
pub fn nodes_to_find(nodes: usize, percentage: i32) -> usize {
    if nodes < MIN_FEASIBLE_NODES {
        return nodes;
    }
    let percentage = match usize::try_from(percentage) {
        Ok(given @ 1..) => given,
        _ => 50_usize
            .saturating_sub(nodes / 125)
            .max(MIN_FEASIBLE_PERCENT),
    };
    if percentage >= 100 {
        return nodes;
    }
    (nodes.saturating_mul(percentage) / 100).max(MIN_FEASIBLE_NODES)
}

/// The time at which the search for feasible nodes ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchLimit {
    /// The number of feasible nodes after which the search stops.
    pub stop_at: usize,
    /// The number of feasible nodes up to which an error on a node ends the search. A later error only excludes its node,
    /// because kube-scheduler would not have reached it.
    pub errors_count_until: usize,
}

impl SearchLimit {
    /// The limit for a search among `nodes` nodes.
    ///
    /// Without a percentage, all nodes are evaluated. Without a Score plugin, the first feasible node is enough (C-20).
    pub fn new(nodes: usize, percentage: Option<i32>, scored: bool) -> Self {
        if !scored {
            return Self {
                stop_at: 1,
                errors_count_until: 1,
            };
        }
        let upstream = nodes_to_find(nodes, percentage.unwrap_or(0));
        Self {
            stop_at: if percentage.is_some() {
                upstream
            } else {
                nodes
            },
            errors_count_until: upstream,
        }
    }
}

/// The error of a plugin, with what it was called for.
pub(super) fn broken(what: &str, plugin: &Str, status: &Status) -> Status {
    let error = status.as_error().unwrap_or_default();
    Status::error(format!("{what}: {error}")).from_plugin(plugin)
}

/// The result of a search.
pub(super) struct Searched {
    /// The feasible nodes in the order of the visit.
    pub(super) feasible: Vec<Slot>,
    /// The number of evaluated nodes.
    pub(super) visited: usize,
    /// Errors that only excluded their node.
    pub(super) excluded: Vec<Status>,
}

impl Evaluator<'_> {
    /// Asks all filters about one node, twice when pods of no lower priority are nominated to it: with them, then
    /// without (C-18).
    pub fn filter_node(&mut self, node: Slot) -> Status {
        self.filter_in_passes(node).0
    }

    /// As [`Evaluator::filter_node`]; with it, whether the node was rejected although it passes with the pods that are
    /// nominated to it.
    pub(super) fn filter_in_passes(&mut self, node: Slot) -> (Status, bool) {
        if let Some(status) = &self.evaluation.broken {
            return (status.clone(), false);
        }
        let nominated = self.nominated_to(node);
        if nominated.is_empty() {
            return (self.run_filters(node), false);
        }
        let mut status = self.add_all(node, &nominated);
        if status.is_success() {
            status = self.run_filters(node);
        }
        self.rollback();
        if !status.is_success() {
            return (status, false);
        }
        let status = self.run_filters(node);
        let needs_nominated = !status.is_success();
        (status, needs_nominated)
    }

    /// Supposes pods on a node, until a plugin fails.
    fn add_all(&mut self, node: Slot, pods: &[Arc<PodInfo>]) -> Status {
        self.begin();
        let mut statuses = pods.iter().map(|pod| self.add_pod(node, pod));
        let failed = statuses.find(|status| !status.is_success());
        failed.unwrap_or_else(Status::success)
    }

    /// The pods of this or a higher priority that were nominated to the node.
    pub(super) fn nominated_to(&self, node: Slot) -> SmallVec<[Arc<PodInfo>; 2]> {
        let mut pods = SmallVec::new();
        if self.nominated.is_empty() {
            return pods;
        }
        let Some(view) = self.cluster.nodes.get(node) else {
            return pods;
        };
        let this = &self.pod.pod;
        self.nominated.on_node(view.name(), &mut |pod| {
            let on_node = || view.pods().iter().any(|p| p.pod.uid() == pod.pod.uid());
            if pod.pod.priority() >= this.priority() && pod.pod.uid() != this.uid() && !on_node() {
                pods.push(pod.clone());
            }
        });
        pods
    }

    /// Asks all filters about one node as it is; the first that rejects it decides (F-9).
    fn run_filters(&mut self, node: Slot) -> Status {
        let (profile, pod, stopwatch) = (self.profile, self.pod, self.stopwatch);
        let (cx, evaluation) = self.split();
        let Some(view) = cx.cluster.nodes.get(node) else {
            return Status::error("the node is gone");
        };
        // Plugins look at most items of the pod for each node.
        if let Err(status) = cx.look_at(pod.items(), 1) {
            return status;
        }
        for (at, member) in profile.filter.iter().enumerate() {
            if evaluation.skip_filter.contains(member.id) {
                continue;
            }
            let Evaluation { state, tally, .. } = &mut *evaluation;
            Tally::count(&mut tally.filter, at);
            let (name, point) = (&member.name, Point::Filter.as_str());
            let status = tally.timed(stopwatch, name, point, Status::code, || {
                member.plugin.filter(&cx, state, pod, view)
            });
            if status.is_success() {
                continue;
            }
            if status.is_rejected() {
                return status.from_plugin(&member.name);
            }
            let what = format!("running {:?} filter plugin", member.name.as_str());
            return broken(&what, &member.name, &status);
        }
        Status::success()
    }

    /// Returns whether the pod, whose PreFilter was run, fits on a node.
    pub fn fits_on(&mut self, node: Slot) -> bool {
        self.filter_node(node).is_success()
    }

    /// Asks every filter about one node and returns all rejections, where [`Evaluator::filter_node`] stops at the
    /// first. Filters that fail count as rejections. Pods of no lower priority that are nominated to the node are
    /// counted on it.
    pub fn filter_node_by_all(&mut self, node: Slot) -> Vec<Status> {
        let nominated = self.nominated_to(node);
        let status = self.add_all(node, &nominated);
        if !status.is_success() {
            self.rollback();
            return vec![status];
        }
        let statuses = self.run_all_filters(node);
        self.rollback();
        if statuses.is_empty() && !nominated.is_empty() {
            self.run_all_filters(node)
        } else {
            statuses
        }
    }

    /// The values behind rejections that [`Evaluator::filter_node_by_all`] has returned for a node, for each of them:
    /// none from a plugin that has no values. Pods that are nominated to the node are counted, unless it lacks nothing
    /// with them.
    pub fn lacking(&mut self, node: Slot, rejections: &[Status]) -> Vec<Vec<Lack>> {
        let nominated = self.nominated_to(node);
        let are_added = self.add_all(node, &nominated).is_success();
        let lacks = self.lacks_now(node, rejections);
        self.rollback();
        let is_explained = are_added && lacks.iter().any(|lacks| !lacks.is_empty());
        if is_explained || nominated.is_empty() {
            lacks
        } else {
            self.lacks_now(node, rejections)
        }
    }

    /// The context of calls, and the evaluation, which takes what they return.
    pub(super) fn split(&mut self) -> (Context<'_>, &mut Evaluation) {
        let cx = Context {
            now: self.now,
            cluster: self.cluster,
            features: self.features,
            work: self.work,
        };
        (cx, self.evaluation)
    }

    pub(super) fn context(&self) -> Context<'_> {
        Context {
            now: self.now,
            cluster: self.cluster,
            features: self.features,
            work: self.work,
        }
    }

    fn lacks_now(&self, node: Slot, rejections: &[Status]) -> Vec<Vec<Lack>> {
        let cx = self.context();
        let lacks = rejections.iter().map(|status| {
            let mut filters = self.profile.filter.iter();
            let member = filters.find(|member| Some(&member.name) == status.plugin())?;
            let view = cx.cluster.nodes.get(node)?;
            let state = &self.evaluation.state;
            Some(member.plugin.lacking(&cx, state, self.pod, view))
        });
        lacks.map(Option::unwrap_or_default).collect()
    }

    fn run_all_filters(&self, node: Slot) -> Vec<Status> {
        let cx = self.context();
        let Some(view) = cx.cluster.nodes.get(node) else {
            return vec![Status::error("the node is gone")];
        };
        let state = &self.evaluation.state;
        let filters = self.profile.filter.iter();
        filters
            .filter(|member| !self.evaluation.skip_filter.contains(member.id))
            .map(|member| {
                let status = member.plugin.filter(&cx, state, self.pod, view);
                status.from_plugin(&member.name)
            })
            .filter(|status| !status.is_success())
            .collect()
    }

    /// Looks for feasible nodes among `nodes`, starting at `start`; the reasons of the others go into `diagnosis`.
    ///
    /// # Errors
    /// When a filter breaks. Also returns how many nodes had answered by then.
    pub(super) fn search(
        &mut self,
        nodes: &[Slot],
        start: usize,
        limit: SearchLimit,
        diagnosis: &mut Diagnosis,
    ) -> Result<Searched, (Status, usize)> {
        let began = self.stopwatch.last_nanos();
        let mut found = Searched {
            feasible: Vec::new(),
            visited: 0,
            excluded: Vec::new(),
        };
        let (passed, ahead) = nodes.split_at(start % nodes.len().max(1));
        let mut failed = None;
        for node in ahead.iter().chain(passed) {
            if found.feasible.len() >= limit.stop_at {
                break;
            }
            found.visited += 1;
            let status = self.filter_node(*node);
            if status.is_success() {
                found.feasible.push(*node);
            } else if status.is_rejected() {
                diagnosis.reject(*node, status);
            } else if self.is_out_of_items() && !found.feasible.is_empty() {
                // The nodes that were evaluated decide.
                found.visited -= 1;
                break;
            } else if found.feasible.len() < limit.errors_count_until
                && (found.feasible.is_empty() || !self.has_used_up())
            {
                failed = Some(status);
                break;
            } else {
                // When the budget of the attempt is used up, the nodes that were searched before decide.
                found.excluded.push(status);
            }
        }
        // As in kube-scheduler: that no node is feasible shows in the result of the attempt.
        let code = failed.as_ref().map_or(Code::Success, |_| Code::Error);
        let nanos = self.stopwatch.nanos().saturating_sub(began);
        self.evaluation.tally.span(Point::Filter, code, nanos);
        match failed {
            // The node that broke the search does not count as visited, as it has no answer.
            Some(status) => Err((status, found.visited - 1)),
            None => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-19, edge case 199.
    #[test]
    fn the_number_of_nodes_to_find_is_upstreams() {
        for (nodes, percentage, expected) in [
            (50, 0, 50),
            (99, 5, 99),
            (100, 40, 100),
            (1000, 0, 420),
            (6000, 0, 300),
            (1000, 40, 400),
            (1000, 100, 1000),
            (1000, 1, 100),
            (5000, 0, 500),
            (20_000, 0, 1000),
        ] {
            assert_eq!(
                nodes_to_find(nodes, percentage),
                expected,
                "{nodes} nodes, {percentage} %"
            );
        }
    }

    /// C-19, C-20, C-23: where the search ends, and up to where a filter that breaks ends it.
    #[test]
    fn every_node_is_looked_at_unless_a_percentage_is_set() {
        let limit = |stop_at, errors_count_until| SearchLimit {
            stop_at,
            errors_count_until,
        };
        for (nodes, percentage, scored, expected) in [
            (1000, None, true, limit(1000, 420)),
            (1000, Some(0), true, limit(420, 420)),
            (1000, Some(40), true, limit(400, 400)),
            (1000, None, false, limit(1, 1)),
        ] {
            assert_eq!(SearchLimit::new(nodes, percentage, scored), expected);
        }
    }
}
