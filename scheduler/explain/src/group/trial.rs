//! Places a group in a snapshot, as the scheduling cycle of groups does.
//!
//! Every member is evaluated like a single pod and counted on its node for the following members. The cycle ends as
//! soon as a group cannot start; a trial continues with all members if the answer states how many fit.

use crate::answer::{ClosestNode, Domain};
use crate::closest::{closest, listed};
use crate::examine::{examine_nodes, is_possible};
use crate::group::limits::{DOMAINS_TRIED_MAX, MEMBERS_EXAMINED_MAX};
use crate::limits::CLOSEST_MAX;
use crate::snapshot::Snapshot;
use berth_api::{Pod, Str};
use berth_framework::cluster::{GroupKey, GroupKind};
use berth_framework::plugin::{
    GroupDryRun, GroupPlacement, GroupPostFilterResult, GroupProgress, Nominating,
    PodGroupPostFilterContext,
};
use berth_framework::{Cluster, Code, PodInfo, Slot, Status};
use berth_scheduler::evaluator::Found;
use berth_scheduler::profile::Profile;
use std::collections::HashMap;
use std::sync::Arc;

/// The nodes on which members may be placed; `None` for all.
type TrialScope<'a> = Option<&'a [Slot]>;

/// A member that waits.
#[derive(Debug, Clone)]
pub(crate) struct WaitingMember {
    pub(crate) leaf: GroupKey,
    pub(crate) pod: Arc<PodInfo>,
    /// Whether the pod is not in the cluster.
    pub(crate) is_new: bool,
}

/// The best try of a pod group.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeafResult {
    /// The members that were placed, with their nodes.
    pub(crate) placed: Vec<(usize, Str)>,
    /// The missing resources of the closest nodes for members that were not placed.
    pub(crate) unfit: Vec<(usize, Vec<ClosestNode>)>,
}

/// The findings of the placement of a group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings {
    pub(crate) leaves: HashMap<GroupKey, LeafResult>,
    /// The domains of groups with a topology constraint.
    pub(crate) domains: HashMap<GroupKey, Vec<Domain>>,
    /// Whether a limit was reached, so that not everything was tried.
    pub(crate) is_cut: bool,
}

/// A group that is placed in a snapshot. [`Trial::end`] reverts everything.
pub(crate) struct Trial<'a> {
    snapshot: &'a mut Snapshot,
    profile: Arc<Profile>,
    root: GroupKey,
    members: Vec<WaitingMember>,
    /// The placed members, in the order of placement.
    placed: Vec<(usize, Slot)>,
    removed: HashMap<Str, (Slot, Arc<PodInfo>)>,
    nominated: Vec<(Arc<Pod>, Str)>,
    /// The remaining number of node filterings.
    budget: &'a mut usize,
    /// The findings, if all members are tried.
    findings: Option<Findings>,
    rng: fastrand::Rng,
}

impl<'a> Trial<'a> {
    /// The members do not count on the nodes to which they are nominated.
    pub(crate) fn begin(
        snapshot: &'a mut Snapshot,
        profile: &Arc<Profile>,
        root: &GroupKey,
        members: &[WaitingMember],
        budget: &'a mut usize,
    ) -> Self {
        let mut nominated = Vec::new();
        for member in members {
            let pod = &member.pod.pod;
            if let Some(node) = snapshot.nominator.node_of(pod.uid()).cloned() {
                snapshot.nominator.remove(pod.uid());
                nominated.push((pod.clone(), node));
            }
        }
        Self {
            snapshot,
            profile: profile.clone(),
            root: root.clone(),
            members: members.to_vec(),
            placed: Vec::new(),
            removed: HashMap::new(),
            nominated,
            budget,
            findings: None,
            rng: fastrand::Rng::with_seed(1),
        }
    }

    /// Records the findings while the group is placed.
    pub(crate) fn thorough(mut self) -> Self {
        self.findings = Some(Findings::default());
        self
    }

    /// Reverts everything and returns the findings.
    pub(crate) fn end(mut self) -> Findings {
        self.revert(0);
        let mut removed: Vec<(Slot, Arc<PodInfo>)> = self.removed.into_values().collect();
        removed.sort_unstable_by(|(_, a), (_, b)| a.pod.uid().cmp(b.pod.uid()));
        for (slot, pod) in removed {
            self.snapshot.cluster.nodes.add_pod_at(slot, pod);
        }
        for (pod, node) in self.nominated {
            let nominating = Nominating::Set(node);
            let cluster = &self.snapshot.cluster;
            self.snapshot.nominator.add(cluster, &pod, &nominating);
        }
        self.findings.unwrap_or_default()
    }

    /// Tries the whole group.
    pub(crate) fn run(&mut self) -> Result<(), Status> {
        let root = self.root.clone();
        let status = self.evaluate(&root, None);
        match status.is_success() {
            true if self.placed.is_empty() => {
                Err(Status::unschedulable("no pods were schedulable"))
            }
            true => Ok(()),
            false => Err(status),
        }
    }

    /// Runs the PodGroupPostFilter plugins, without effects.
    pub(crate) fn make_room(&mut self) -> Vec<GroupPostFilterResult> {
        let (profile, root) = (self.profile.clone(), self.root.clone());
        let (now, features) = (self.snapshot.now, self.snapshot.features);
        let results = profile.pod_group_post_filter.iter().map(|member| {
            let cx = &mut PodGroupPostFilterContext {
                now,
                features: &features,
                dry_run: &mut *self,
            };
            member.plugin.post_filter_group(cx, &root)
        });
        // As in a cycle, a plugin without a result returns no message.
        let results = results.filter(|result| result.status.code() != Code::Skip);
        results.collect()
    }

    fn spend(&mut self, runs: usize) {
        *self.budget = self.budget.saturating_sub(runs);
    }

    fn is_spent(&mut self) -> bool {
        let is_spent = *self.budget == 0;
        if is_spent && let Some(findings) = &mut self.findings {
            findings.is_cut = true;
        }
        is_spent
    }

    fn evaluate(&mut self, key: &GroupKey, scope: TrialScope<'_>) -> Status {
        let all: Vec<Slot>;
        let nodes = match scope {
            Some(nodes) => nodes,
            None => {
                all = self.snapshot.cluster.nodes.in_order().to_vec();
                &all
            }
        };
        let placements = match self.placements(key, nodes) {
            Err(status) => return status,
            Ok(None) => return self.evaluate_within(key, nodes),
            Ok(Some(placements)) => placements,
        };
        let mark = self.placed.len();
        let mut best: Option<(usize, usize)> = None;
        let mut domains = Vec::new();
        // The status of the first placement is reported, as in the scheduling cycle.
        let mut first = Status::unschedulable("no feasible placements found");
        for (at, placement) in placements.iter().enumerate() {
            if at >= DOMAINS_TRIED_MAX || self.is_spent() {
                if let Some(findings) = &mut self.findings {
                    findings.is_cut = true;
                }
                break;
            }
            let status = self.evaluate_within(key, &placement.nodes);
            let placed = self.placed.len() - mark;
            if status.is_success() && best.is_none_or(|(_, most)| placed > most) {
                best = Some((at, placed));
            } else if at == 0 {
                first = status;
            }
            self.revert(mark);
            domains.push(Domain {
                name: placement.name.to_string(),
                nodes: placement.nodes.len(),
                places: self.places_on(key, placement),
            });
            // Without findings, only whether the group fits matters.
            if best.is_some() && self.findings.is_none() {
                break;
            }
        }
        domains.sort_by_key(|domain| std::cmp::Reverse(domain.places));
        if let Some(findings) = &mut self.findings {
            let count = placements.len();
            domains.truncate(count);
            findings.domains.insert(key.clone(), domains);
        }
        // All trials were reverted, so the best placement is made again.
        match best {
            Some((at, _)) => self.evaluate_within(key, &placements[at].nodes),
            None => first,
        }
    }

    /// The number of members below a group that fit on a placement.
    fn places_on(&mut self, key: &GroupKey, placement: &GroupPlacement) -> usize {
        if self.findings.is_none() {
            return 0;
        }
        let mark = self.placed.len();
        let leaves = self.snapshot.cluster.groups().leaves(key);
        let members: Vec<usize> = (0..self.members.len())
            .filter(|at| leaves.contains(&self.members[*at].leaf))
            .collect();
        for at in members {
            if self.is_spent() {
                break;
            }
            self.place_member(at, &placement.nodes);
        }
        let places = self.placed.len() - mark;
        self.revert(mark);
        places
    }

    fn placements(
        &self,
        key: &GroupKey,
        nodes: &[Slot],
    ) -> Result<Option<Vec<GroupPlacement>>, Status> {
        let cluster = &self.snapshot.cluster;
        let leaves = cluster.groups().leaves(key);
        let members = leaves
            .iter()
            .filter_map(|leaf| cluster.pods.members(leaf))
            .flat_map(|members| members.scheduled())
            .filter_map(|uid| cluster.pods.get(uid));
        let scheduled: Vec<(String, Str)> = members
            .map(|pod| (pod.key(), pod.spec.node_name.clone()))
            .collect();
        for member in &self.profile.placement_generate {
            let cx = self.snapshot.context();
            let placements = member.plugin.placements(&cx, key, &scheduled, nodes)?;
            if placements.is_some() {
                return Ok(placements);
            }
        }
        Ok(None)
    }

    /// Places the members of a group on some nodes. If the group cannot start, all placements are reverted.
    fn evaluate_within(&mut self, key: &GroupKey, nodes: &[Slot]) -> Status {
        let mark = self.placed.len();
        let status = match key.kind {
            GroupKind::PodGroup => self.evaluate_leaf(key, nodes),
            GroupKind::CompositePodGroup => self.evaluate_composite(key, nodes),
        };
        if !status.is_success() {
            self.revert(mark);
        }
        status
    }

    fn evaluate_composite(&mut self, key: &GroupKey, nodes: &[Slot]) -> Status {
        let children = self.snapshot.cluster.groups().children(key);
        let mut started = 0;
        let mut answer = self.feasible(key, 0, children.len());
        for (at, child) in children.iter().enumerate() {
            if !goes_on(&answer) && self.findings.is_none() {
                break;
            }
            let status = self.evaluate(child, Some(nodes));
            if status.code() == Code::Error {
                return status;
            }
            started += usize::from(status.is_success());
            answer = self.feasible(key, started, children.len() - at - 1);
        }
        settled(answer)
    }

    fn evaluate_leaf(&mut self, key: &GroupKey, nodes: &[Slot]) -> Status {
        let members: Vec<usize> = (0..self.members.len())
            .filter(|at| self.members[*at].leaf == *key)
            .collect();
        let mark = self.placed.len();
        let mut unfit = Vec::new();
        let mut answer = self.feasible(key, self.scheduled(key), members.len());
        for (tried, at) in members.iter().enumerate() {
            if !goes_on(&answer) && self.findings.is_none() {
                break;
            }
            if self.is_spent() {
                break;
            }
            if !self.place_member(*at, nodes) {
                unfit.push(*at);
            }
            let untried = members.len() - tried - 1;
            answer = self.feasible(key, self.scheduled(key), untried);
        }
        self.note(key, mark, &unfit, nodes);
        settled(answer)
    }

    fn scheduled(&self, key: &GroupKey) -> usize {
        let members = self.snapshot.cluster.pods.members(key);
        members.map_or(0, |members| members.scheduled().len())
    }

    /// Records the result of a pod group if it is the best one so far.
    fn note(&mut self, key: &GroupKey, mark: usize, unfit: &[usize], nodes: &[Slot]) {
        let Some(findings) = &self.findings else {
            return;
        };
        let places = self.placed.len() - mark;
        let known = findings.leaves.get(key);
        // An equally good placement adds no information.
        if known.is_some_and(|known| known.placed.len() >= places) {
            return;
        }
        let cluster = &self.snapshot.cluster;
        let placed = self.placed[mark..].iter().filter_map(|(at, slot)| {
            let view = cluster.nodes.get(*slot)?;
            Some((*at, view.name().clone()))
        });
        let placed = placed.collect();
        let mut lacking = Vec::new();
        for at in unfit.iter().take(MEMBERS_EXAMINED_MAX) {
            // The budget of the whole explanation is used up.
            if self.is_spent() {
                break;
            }
            self.spend(nodes.len());
            let pod = self.members[*at].pod.clone();
            let examination = examine_nodes(self.snapshot, &self.profile, &pod, Some(nodes));
            let profile = self.profile.clone();
            let closest = closest(self.snapshot, &profile, &pod, &examination, CLOSEST_MAX);
            lacking.push((*at, listed(self.snapshot, &closest)));
        }
        let result = LeafResult {
            placed,
            unfit: lacking,
        };
        if let Some(findings) = &mut self.findings {
            findings.leaves.insert(key.clone(), result);
        }
    }

    /// The answer of the PlacementFeasible plugins about a group, from the numbers of its scheduled and untried
    /// members.
    fn feasible(&self, group: &GroupKey, scheduled: usize, remaining: usize) -> Status {
        let cx = self.snapshot.context();
        let progress = GroupProgress {
            group,
            scheduled,
            remaining,
        };
        let mut answer = Status::success();
        for member in &self.profile.placement_feasible {
            let status = member.plugin.placement_feasible(&cx, &progress);
            match status.code() {
                Code::Success | Code::Skip => {}
                Code::Wait => answer = status,
                _ => return status,
            }
        }
        answer
    }

    /// Finds a node for a member and counts the member on it.
    fn place_member(&mut self, at: usize, nodes: &[Slot]) -> bool {
        let pod = self.members[at].pod.clone();
        let (profile, rng) = (self.profile.clone(), &mut self.rng);
        let found = self.snapshot.evaluate(&profile, &pod, |evaluator| {
            evaluator.find_within(nodes, None, &mut 0, rng)
        });
        let placement = match found {
            Found::Placed(placement) => placement,
            Found::Unfit(_) | Found::NoNodes(_) | Found::Failed(_) => {
                self.spend(nodes.len());
                return false;
            }
        };
        self.spend(placement.evaluated);
        let mut assigned = Pod::clone(&pod.pod);
        assigned.spec.node_name = placement.name;
        let assigned = Arc::new(assigned);
        let uid = assigned.uid().clone();
        let cluster = &mut self.snapshot.cluster;
        let info = Arc::new(PodInfo::new(assigned.clone()));
        cluster.nodes.add_pod_at(placement.node, info);
        cluster.set_pod(uid, assigned);
        self.placed.push((at, placement.node));
        true
    }

    /// Reverts all placements except the first `keep`, the last one first.
    fn revert(&mut self, keep: usize) {
        while self.placed.len() > keep
            && let Some((at, slot)) = self.placed.pop()
        {
            let WaitingMember { pod, is_new, .. } = &self.members[at];
            let pod = &pod.pod;
            let cluster = &mut self.snapshot.cluster;
            cluster.nodes.remove_pod_at(slot, pod.uid());
            if *is_new {
                cluster.unset_pod(pod.uid())
            } else {
                cluster.set_pod(pod.uid().clone(), pod.clone())
            };
        }
    }

    fn fits(&mut self, at: usize, slot: Slot) -> bool {
        self.spend(1);
        let pod = self.members[at].pod.clone();
        let profile = self.profile.clone();
        self.snapshot.evaluate(&profile, &pod, |evaluator| {
            let Ok(possible) = evaluator.pre_filter() else {
                return false;
            };
            is_possible(evaluator.cluster, &possible.nodes, slot)
                && evaluator.filter_node(slot).is_success()
        })
    }
}

impl GroupDryRun for Trial<'_> {
    fn cluster(&self) -> &Cluster {
        &self.snapshot.cluster
    }

    fn members(&self) -> Vec<Arc<PodInfo>> {
        let members = self.members.iter();
        members.map(|member| member.pod.clone()).collect()
    }

    fn nominated_node(&self, uid: &str) -> Option<Str> {
        let mut nominated = self.nominated.iter();
        let (_, node) = nominated.find(|(pod, _)| *pod.uid() == *uid)?;
        Some(node.clone())
    }

    fn nominated_to(&self, node: &str) -> Vec<Arc<PodInfo>> {
        self.snapshot.nominator.pods_on(node).to_vec()
    }

    fn remove_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) {
        let nodes = &mut self.snapshot.cluster.nodes;
        if let Some(removed) = nodes.remove_pod_at(node, pod.pod.uid()) {
            self.removed.insert(pod.pod.uid().clone(), (node, removed));
        }
    }

    fn add_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) {
        if let Some((_, removed)) = self.removed.remove(pod.pod.uid()) {
            self.snapshot.cluster.nodes.add_pod_at(node, removed);
        }
    }

    fn place(&mut self) -> Result<(), Status> {
        self.run()
    }

    fn placed(&self) -> Vec<(Arc<PodInfo>, Slot)> {
        let placed = self.placed.iter();
        placed
            .map(|(at, slot)| (self.members[*at].pod.clone(), *slot))
            .collect()
    }

    fn still_fits(&mut self, _changed: &[(Slot, Arc<PodInfo>)]) -> bool {
        if self.is_spent() {
            return false;
        }
        let mut infos = Vec::with_capacity(self.placed.len());
        for (at, slot) in self.placed.clone() {
            let uid = self.members[at].pod.pod.uid().clone();
            let removed = self.snapshot.cluster.nodes.remove_pod_at(slot, &uid);
            infos.extend(removed.map(|info| (at, slot, info)));
        }
        let mut all_fit = true;
        for (at, slot, info) in infos {
            all_fit = all_fit && self.fits(at, slot);
            self.snapshot.cluster.nodes.add_pod_at(slot, info);
        }
        all_fit
    }
}

/// Returns whether further members are tried after this answer.
fn goes_on(answer: &Status) -> bool {
    matches!(answer.code(), Code::Success | Code::Wait)
}

/// The last answer as the result.
fn settled(answer: Status) -> Status {
    match answer.code() {
        Code::Wait => Status::new(Code::Unschedulable, answer.reasons().iter().cloned()),
        _ => answer,
    }
}
