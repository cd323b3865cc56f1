//! Groups with topology constraints: the placements of a group, and the best one (KEP-5732).
//!
//! The result is the same as with a trial of every placement and a score for each one on which the group can start. The
//! search tries them in the order of their best possible scores, which are derived from sums over their nodes. When a
//! placement holds all members and no other one can have a better score, the remaining ones are not tried.

use super::{Cycle, GroupRun, MemberFound, Scope};
use crate::cache::Cache;
use crate::core::Framework;
use berth_api::Str;
use berth_framework::cluster::{GroupKey, GroupKind};
use berth_framework::plugin::{Context, GroupPlacement, GroupProposal};
use berth_framework::{Cluster, Code, PodInfo, Slot, Status};
use berth_queue::Nominator;
use berth_telemetry::metrics::Metric;
use rustc_hash::FxHashSet;
use std::cmp::Reverse;
use std::sync::Arc;

/// A placement that was tried successfully.
struct Tried {
    /// Its place among the placements.
    at: usize,
    /// The raw scores, one for each plugin.
    raw: Vec<i64>,
    /// Whether all members are placed.
    is_full: bool,
    /// The random generator and the first node at the start of the trial.
    began: (fastrand::Rng, usize),
}

/// The constant state of the trials of the placements of a group.
struct Search {
    key: GroupKey,
    /// The waiting members, by their index in the run.
    members: Vec<usize>,
    /// Their pods.
    pods: Vec<Arc<PodInfo>>,
    /// The number of members with a node.
    scheduled: usize,
    placements: Vec<GroupPlacement>,
    /// The best possible raw scores of each placement.
    bounds: Vec<Vec<i64>>,
}

impl Cycle {
    /// Finds the best placement on which a group can start, and places its members there.
    pub(super) fn evaluate_placements(
        &mut self,
        framework: &mut Framework,
        nominator: &mut Nominator,
        run: &mut GroupRun,
        key: &GroupKey,
        scope: Scope<'_>,
    ) -> Status {
        let placements = match placements(&framework.context(), run, key, scope) {
            Err(status) => return status,
            Ok(placements) => placements,
        };
        let Some((generator, placements)) = placements else {
            let status = self.evaluate_within(framework, nominator, run, key, scope);
            return if is_rejection(&status) {
                none_available(1, &status)
            } else {
                status
            };
        };
        // A node that joins or leaves a domain may help the group.
        run.rejectors.insert(generator);
        if placements.is_empty() {
            return Status::unschedulable("no feasible placements found");
        }
        let profile = run.profile.name.clone();
        let generated = placements.len() as f64;
        let metric = Metric::GeneratedPlacements;
        framework
            .metrics
            .add(metric, &[profile.as_str()], generated);
        let search = Search::new(&framework.context(), run, key, placements);
        let mut tried: Vec<Tried> = Vec::new();
        let mut first: Option<(Status, Vec<(usize, MemberFound)>)> = None;
        let mark = run.placed.len();
        let order = search.order(framework.cache.cluster(), nominator, run);
        let mut open: Vec<usize> = order.clone();
        for at in order {
            open.retain(|other| *other != at);
            let is_nominated = search.is_nominated(framework.cache.cluster(), nominator, at);
            if !search.may_have_room(&framework.context(), run, at) {
                continue;
            }
            let began = (self.rng.clone(), self.start_node);
            let status = self.try_placement(framework, nominator, run, &search, at);
            match status.code() {
                Code::Error => return status,
                Code::Success => {}
                _ => {
                    if at == 0 {
                        first = Some((status, search.take_found(run)));
                    }
                    continue;
                }
            }
            let placed: Vec<Arc<PodInfo>> = search.placed(run);
            let result = Tried {
                at,
                raw: search.raw(&framework.cache, &framework.context(), run, at, &placed),
                is_full: placed.len() == search.pods.len(),
                began,
            };
            let is_alone = tried.is_empty();
            tried.push(result);
            if is_nominated && !placed.is_empty() || search.is_best(run, &tried, &open) && is_alone
            {
                return status;
            }
            run.revert(framework, nominator, mark);
            if search.is_decided(run, &tried, &open) {
                break;
            }
        }
        match search.best(run, &tried) {
            Some(best) => {
                // The same random numbers give the same nodes.
                (self.rng, self.start_node) = best.began.clone();
                self.try_placement(framework, nominator, run, &search, best.at)
            }
            None => {
                let (status, found) = match first {
                    Some(first) => first,
                    // It was skipped because of its sums, but the members need their reasons.
                    None => {
                        let status = self.try_placement(framework, nominator, run, &search, 0);
                        if status.is_success() || status.code() == Code::Error {
                            return status;
                        }
                        (status, search.take_found(run))
                    }
                };
                for (at, found) in found {
                    run.members[at].found = found;
                }
                none_available(search.placements.len(), &status)
            }
        }
    }

    fn try_placement(
        &mut self,
        framework: &mut Framework,
        nominator: &mut Nominator,
        run: &mut GroupRun,
        search: &Search,
        at: usize,
    ) -> Status {
        // The results of the previous placement must not be taken for results of this one.
        for member in &search.members {
            run.members[*member].found = MemberFound::Untried;
        }
        let placement = &search.placements[at];
        framework
            .outbound
            .log
            .v(4, "Assuming placement in snapshot", |line| {
                line.with("placement", &placement.name)
            });
        let began = framework.clock.stage_begin();
        let status = self.evaluate_within(
            framework,
            nominator,
            run,
            &search.key,
            Some(&placement.nodes),
        );
        let result = match status.code() {
            Code::Success => "feasible",
            Code::Error => return status,
            _ => "infeasible",
        };
        let labels = [result, run.profile.name.as_str()];
        let seconds = framework.clock.seconds_since(began);
        framework
            .metrics
            .count(Metric::PlacementEvaluations, &labels);
        framework
            .metrics
            .observe(Metric::PlacementEvaluationDuration, &labels, seconds);
        status
    }
}

fn is_rejection(status: &Status) -> bool {
    status.code().is_rejected()
}

fn none_available(placements: usize, first: &Status) -> Status {
    let text = format!(
        "0/{placements} placements are available, first placement status: {}",
        first.message()
    );
    let status = Status::unschedulable(text);
    match first.plugin() {
        Some(plugin) => status.from_plugin(plugin),
        None => status,
    }
}

/// The placements of a group, and the plugin that generated them; `None` if it may be placed anywhere in the scope.
fn placements(
    cx: &Context<'_>,
    run: &GroupRun,
    key: &GroupKey,
    scope: Scope<'_>,
) -> Result<Option<(Str, Vec<GroupPlacement>)>, Status> {
    let cluster = cx.cluster;
    let is_constrained = cluster
        .groups()
        .spec(key)
        .is_some_and(|spec| spec.topology_key().is_some());
    if !is_constrained {
        return Ok(None);
    }
    let all;
    let nodes: &[Slot] = match scope {
        Some(nodes) => nodes,
        None => {
            let nodes = cluster.nodes.iter();
            all = nodes.map(|node| node.slot()).collect::<Vec<Slot>>();
            &all
        }
    };
    let leaves = cluster.groups().leaves(key);
    // Members placed in this cycle can still move, so only the other members fix the domain.
    let trial: FxHashSet<&Str> = run
        .placed
        .iter()
        .map(|at| run.members[*at].attempt.pod.pod.uid())
        .collect();
    let scheduled = leaves.iter().filter_map(|leaf| cluster.pods.members(leaf));
    let scheduled = scheduled.flat_map(|members| members.scheduled());
    let scheduled = scheduled
        .filter(|uid| !trial.contains(uid))
        .filter_map(|uid| cluster.pods.get(uid));
    let mut scheduled: Vec<(String, Str)> = scheduled
        .map(|pod| (pod.key(), pod.spec.node_name.clone()))
        .collect();
    // Sorted, because the first member without a domain is named in the status.
    scheduled.sort_unstable();
    // The first plugin that restricts the group determines the placements.
    for member in &run.profile.placement_generate {
        let placements = member
            .plugin
            .placements(cx, key, &scheduled, nodes)
            .map_err(|status| status.from_plugin(&member.name))?;
        if placements.is_some() {
            return Ok(placements.map(|placements| (member.name.clone(), placements)));
        }
    }
    Ok(None)
}

impl Search {
    fn new(
        cx: &Context<'_>,
        run: &GroupRun,
        key: &GroupKey,
        placements: Vec<GroupPlacement>,
    ) -> Self {
        let cluster = cx.cluster;
        let leaves: FxHashSet<GroupKey> = cluster.groups().leaves(key).into_iter().collect();
        let scheduled = leaves.iter().filter_map(|leaf| cluster.pods.members(leaf));
        let scheduled = scheduled.map(|members| members.scheduled().len()).sum();
        let members = (0..run.members.len()).filter(|at| leaves.contains(&run.members[*at].leaf));
        let members: Vec<usize> = members.collect();
        let pods = members
            .iter()
            .map(|at| run.members[*at].attempt.pod.clone());
        let mut search = Self {
            key: key.clone(),
            pods: pods.collect(),
            members,
            scheduled,
            placements,
            bounds: Vec::new(),
        };
        search.bounds = search.bounds(cx, run);
        search
    }

    fn proposal<'a>(&'a self, at: usize, pods: &'a [&'a PodInfo]) -> GroupProposal<'a> {
        GroupProposal {
            nodes: &self.placements[at].nodes,
            pods,
            scheduled: self.scheduled,
        }
    }

    /// The best possible raw scores of each placement: with all members, before any of them is placed.
    fn bounds(&self, cx: &Context<'_>, run: &GroupRun) -> Vec<Vec<i64>> {
        let pods: Vec<&PodInfo> = self.pods.iter().map(|pod| &**pod).collect();
        let mut bounds = vec![Vec::new(); self.placements.len()];
        for (member, _) in &run.profile.placement_score {
            let (plugin, placements) = (&member.plugin, &self.placements);
            let scores = plugin.placement_scores(cx, &pods, self.scheduled, placements);
            for (bound, score) in bounds.iter_mut().zip(scores) {
                bound.push(score);
            }
        }
        bounds
    }

    /// The raw scores of a placement with these pods, as if none of them were on its nodes.
    fn raw(
        &self,
        cache: &Cache,
        cx: &Context<'_>,
        run: &GroupRun,
        at: usize,
        pods: &[Arc<PodInfo>],
    ) -> Vec<i64> {
        let is_there = |pod: &&Arc<PodInfo>| !cache.is_assumed(pod.pod.uid());
        let pods: Vec<&PodInfo> = pods.iter().filter(is_there).map(|pod| &**pod).collect();
        let here = self.placed(run);
        // The members placed in this trial are already included in the sums of the nodes.
        let counted = here
            .iter()
            .filter(|pod| cache.is_assumed(pod.pod.uid()))
            .count();
        let proposal = GroupProposal {
            scheduled: self.scheduled + counted,
            ..self.proposal(at, &pods)
        };
        let scores = run.profile.placement_score.iter();
        scores
            .map(|(member, _)| member.plugin.placement_score(cx, &proposal))
            .collect()
    }

    /// The members that are placed.
    fn placed(&self, run: &GroupRun) -> Vec<Arc<PodInfo>> {
        let members = self.members.iter().map(|at| &run.members[*at]);
        let placed = members.filter(|member| matches!(member.found, MemberFound::Placed(_)));
        placed.map(|member| member.attempt.pod.clone()).collect()
    }

    /// The results for the members, which are discarded.
    fn take_found(&self, run: &mut GroupRun) -> Vec<(usize, MemberFound)> {
        let found = self.members.iter().map(|at| {
            let found = &mut run.members[*at].found;
            (*at, std::mem::replace(found, MemberFound::Untried))
        });
        found.collect()
    }

    /// The order of the trials: the placement with the most nominated members first, then by bounds, then by name.
    fn order(&self, cluster: &Cluster, nominator: &Nominator, run: &GroupRun) -> Vec<usize> {
        let totals = totals(run, &self.bounds);
        let nominated: Vec<usize> = (0..self.placements.len())
            .map(|at| self.nominated_to(cluster, nominator, at))
            .collect();
        let mut order: Vec<usize> = (0..self.placements.len()).collect();
        order.sort_by_key(|at| (Reverse(nominated[*at]), Reverse(totals[*at]), *at));
        order
    }

    /// The number of members of a root pod group that are nominated to nodes of a placement.
    fn nominated_to(&self, cluster: &Cluster, nominator: &Nominator, at: usize) -> usize {
        if nominator.is_empty() {
            return 0;
        }
        let is_alone =
            self.key.kind == GroupKind::PodGroup && cluster.groups().parent(&self.key).is_none();
        if !is_alone {
            return 0;
        }
        let nodes = &cluster.nodes;
        let is_here = |pod: &&Arc<PodInfo>| {
            let node = nominator.node_of(pod.pod.uid());
            let slot = node.and_then(|node| nodes.slot(node));
            slot.is_some_and(|slot| self.placements[at].nodes.contains(&slot))
        };
        self.pods.iter().filter(is_here).count()
    }

    /// Returns whether members are nominated to the placement, and no other placement has more of them.
    fn is_nominated(&self, cluster: &Cluster, nominator: &Nominator, at: usize) -> bool {
        let nominated_to = |at: usize| self.nominated_to(cluster, nominator, at);
        let own = nominated_to(at);
        own > 0 && (0..self.placements.len()).all(|other| nominated_to(other) <= own)
    }

    /// Returns whether the pods that the group needs may fit on the nodes together. Otherwise, the denying plugin
    /// rejects the group.
    fn may_have_room(&self, cx: &Context<'_>, run: &mut GroupRun, at: usize) -> bool {
        if self.key.kind != GroupKind::PodGroup {
            return true;
        }
        let spec = cx.cluster.groups().spec(&self.key);
        let min = spec.map_or(0, |spec| spec.min());
        let needed = min.saturating_sub(self.scheduled);
        let are_alike = || {
            let mut pods = self.pods.windows(2);
            pods.all(|pair| pair[0].pod.spec.template == pair[1].pod.spec.template)
        };
        if needed == 0 || needed > self.pods.len() || (needed < self.pods.len() && !are_alike()) {
            return true;
        }
        let pods: Vec<&PodInfo> = self.pods[..needed].iter().map(|pod| &**pod).collect();
        let proposal = self.proposal(at, &pods);
        let scores = run.profile.placement_score.iter();
        let lacking = scores
            .map(|(member, _)| member)
            .find(|member| !member.plugin.may_have_room(cx, &proposal));
        if let Some(member) = lacking {
            run.rejectors.insert(member.name.clone());
        }
        lacking.is_none()
    }

    /// Returns whether the only tried placement holds all members, and no other one can be better.
    fn is_best(&self, run: &GroupRun, tried: &[Tried], open: &[usize]) -> bool {
        tried.len() == 1 && self.is_decided(run, tried, open)
    }

    /// Returns whether no untried placement can be better than the best tried one. The numbers of members can be
    /// compared only if the best one holds all members.
    fn is_decided(&self, run: &GroupRun, tried: &[Tried], open: &[usize]) -> bool {
        if !tried.iter().any(|tried| tried.is_full) {
            return false;
        }
        let raws = tried.iter().map(|tried| tried.raw.clone());
        let bounds = open.iter().map(|at| self.bounds[*at].clone());
        let raws: Vec<Vec<i64>> = raws.chain(bounds).collect();
        let totals = totals(run, &raws);
        let rank = |index: usize, at: usize| (Reverse(totals[index]), at);
        let best = tried
            .iter()
            .enumerate()
            .map(|(index, tried)| rank(index, tried.at))
            .min();
        let offset = tried.len();
        let others = open
            .iter()
            .enumerate()
            .map(|(index, at)| rank(offset + index, *at));
        others
            .min()
            .is_none_or(|other| best.is_some_and(|best| best < other))
    }

    /// The best of the tried placements.
    fn best<'t>(&self, run: &GroupRun, tried: &'t [Tried]) -> Option<&'t Tried> {
        let raws: Vec<Vec<i64>> = tried.iter().map(|tried| tried.raw.clone()).collect();
        let totals = totals(run, &raws);
        let best = tried.iter().enumerate();
        let best = best.min_by_key(|(index, tried)| (Reverse(totals[*index]), tried.at));
        best.map(|(_, tried)| tried)
    }
}

/// The sums of the normalized scores of placements, by weight.
fn totals(run: &GroupRun, raws: &[Vec<i64>]) -> Vec<i64> {
    let mut totals = vec![0_i64; raws.len()];
    for (index, (member, weight)) in run.profile.placement_score.iter().enumerate() {
        let mut scores: Vec<i64> = raws.iter().map(|raw| raw[index]).collect();
        member.plugin.normalize_placements(&mut scores);
        for (total, score) in totals.iter_mut().zip(scores) {
            *total = total.saturating_add(score.saturating_mul(*weight));
        }
    }
    totals
}
