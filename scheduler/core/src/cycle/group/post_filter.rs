//! PodGroupPostFilter: preemption for a group that cannot start.
//!
//! Pods are removed from the node table as if they had been deleted, the whole group is tried, and the pods are added
//! again. Nothing is published during the trial, and the table is unchanged at the end.

use super::{Cycle, GroupRun, MemberFound};
use crate::core::Framework;
use crate::nominations;
use berth_api::Str;
use berth_evaluator::Evaluation;
use berth_framework::cluster::GroupKey;
use berth_framework::plugin::{
    GroupDryRun, GroupPostFilterResult, Nominating, PodGroupPostFilterContext,
};
use berth_framework::stage::Preemption;
use berth_framework::{Cluster, Code, PodInfo, Slot, Status};
use berth_queue::Nominator;
use berth_telemetry::LogLine;
use berth_telemetry::metrics::Metric;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The nominations of the members after PodGroupPostFilter.
#[derive(Debug, Clone, Default)]
pub(super) enum GroupNominations {
    /// No member is nominated.
    #[default]
    Cleared,
    /// They stay as they are.
    Kept,
    /// These members are nominated, by UID.
    Set(FxHashMap<Str, Str>),
}

impl GroupNominations {
    /// The nomination of a member.
    pub(super) fn of(&self, uid: &str) -> Nominating {
        match self {
            Self::Cleared => Nominating::Set(Str::default()),
            Self::Kept => Nominating::Keep,
            Self::Set(nodes) => Nominating::Set(nodes.get(uid).cloned().unwrap_or_default()),
        }
    }
}

/// The result of PodGroupPostFilter.
pub(super) struct GroupRoom {
    /// The status of the group, with the answers of the plugins.
    pub(super) status: Status,
    pub(super) nominations: GroupNominations,
    /// The preemptions to start.
    pub(super) preemptions: Vec<Preemption>,
}

impl GroupRoom {
    /// No plugin has run.
    pub(super) fn none(status: Status) -> Self {
        Self {
            status,
            nominations: GroupNominations::default(),
            preemptions: Vec::new(),
        }
    }
}

impl Cycle {
    /// Runs PodGroupPostFilter for a rejected group.
    pub(super) fn make_room(
        &mut self,
        framework: &mut Framework,
        nominator: &mut Nominator,
        run: &mut GroupRun,
        status: Status,
    ) -> GroupRoom {
        let profile = run.profile.clone();
        let mut room = GroupRoom::none(status);
        for member in &profile.pod_group_post_filter {
            let began = framework.clock.stage_begin();
            let result = self.dry_run(framework, nominator, run, |cx, root| {
                member.plugin.post_filter_group(cx, root)
            });
            let seconds = framework.clock.seconds_since(began);
            let GroupPostFilterResult {
                status: answer,
                nominations: nominated,
                preemption,
                calls,
                observations,
            } = result;
            if answer.code() == Code::Skip {
                continue;
            }
            // A plugin other than preemption, which evicts no pod, ends PostFilter with this code.
            if answer.code() != Code::UnschedulableAndUnresolvable {
                let result = match answer.code() {
                    Code::Success => "success",
                    Code::Error => "error",
                    _ => "unschedulable",
                };
                framework
                    .metrics
                    .count(Metric::WorkloadPreemptionAttempts, &[result]);
                let labels = [run.root.kind.as_str(), answer.code().as_str()];
                framework
                    .metrics
                    .observe(Metric::PreemptionEvaluationDuration, &labels, seconds);
            }
            framework.count_observations(observations);
            for call in calls {
                framework.requests.call(call);
            }
            room.preemptions.extend(preemption);
            let message = answer.message();
            match answer.code() {
                Code::Error => {
                    let line = LogLine::error("Status after running PodGroupPostFilter plugins");
                    framework.outbound.log.push(
                        line.with("podGroup", run.root.to_string())
                            .with("err", &*message),
                    );
                    room.status = answer;
                    room.nominations = GroupNominations::Cleared;
                    return room;
                }
                _ if message.is_empty() => {}
                _ => room.status.append_reason(message),
            }
            if answer.is_success() {
                room.nominations = match nominated {
                    None => GroupNominations::Kept,
                    Some(nodes) => GroupNominations::Set(nodes.into_iter().collect()),
                };
            }
            let ends = [Code::Success, Code::UnschedulableAndUnresolvable];
            if ends.contains(&answer.code()) {
                break;
            }
        }
        room
    }

    /// Lets a plugin change the cluster and try the group, and reverts all changes.
    fn dry_run(
        &mut self,
        framework: &mut Framework,
        nominator: &mut Nominator,
        run: &mut GroupRun,
        work: impl FnOnce(&mut PodGroupPostFilterContext<'_>, &GroupKey) -> GroupPostFilterResult,
    ) -> GroupPostFilterResult {
        let root = run.root.clone();
        let statuses = run.statuses.clone();
        let found: Vec<MemberFound> = run
            .members
            .iter_mut()
            .map(|member| std::mem::replace(&mut member.found, MemberFound::Untried))
            .collect();
        let (now, features) = (framework.clock.now(), framework.settings.features);
        let mut dry_run = Trial::begin(self, framework, nominator, run);
        let result = work(
            &mut PodGroupPostFilterContext {
                now,
                features: &features,
                dry_run: &mut dry_run,
            },
            &root,
        );
        dry_run.end();
        for (member, found) in run.members.iter_mut().zip(found) {
            member.found = found;
        }
        run.statuses = statuses;
        result
    }
}

/// A dry run of a group.
struct Trial<'a> {
    cycle: &'a mut Cycle,
    framework: &'a mut Framework,
    nominator: &'a mut Nominator,
    run: &'a mut GroupRun,
    /// The removed pods, by UID.
    removed: FxHashMap<Str, (Slot, Arc<PodInfo>)>,
    /// The nominations of the members.
    nominated: FxHashMap<Str, Str>,
    /// The placed members by node, as indices in the order of placement.
    hosted: FxHashMap<Slot, Vec<usize>>,
    /// Whether the placed members affect only pods on their own nodes.
    are_local: bool,
}

impl<'a> Trial<'a> {
    /// The members do not count on the nodes to which they are nominated, because the trial places all members.
    fn begin(
        cycle: &'a mut Cycle,
        framework: &'a mut Framework,
        nominator: &'a mut Nominator,
        run: &'a mut GroupRun,
    ) -> Self {
        let mut nominated = FxHashMap::default();
        for member in &run.members {
            let uid = member.attempt.pod.pod.uid();
            if let Some(node) = nominations::set_aside(nominator, uid) {
                nominated.insert(uid.clone(), node);
            }
        }
        Self {
            cycle,
            framework,
            nominator,
            run,
            removed: FxHashMap::default(),
            nominated,
            hosted: FxHashMap::default(),
            are_local: true,
        }
    }

    fn end(self) {
        let Self {
            framework,
            nominator,
            run,
            removed,
            nominated,
            ..
        } = self;
        run.revert(framework, nominator, 0);
        let nodes = &mut framework.cache.cluster_mut().nodes;
        let mut removed: Vec<(Slot, Arc<PodInfo>)> = removed.into_values().collect();
        removed.sort_unstable_by(|(_, a), (_, b)| a.pod.uid().cmp(b.pod.uid()));
        for (slot, pod) in removed {
            nodes.add_pod_at(slot, pod);
        }
        for member in &run.members {
            let pod = &member.attempt.pod.pod;
            if let Some(node) = nominated.get(pod.uid()) {
                let nominating = Nominating::Set(node.clone());
                nominator.add(framework.cache.cluster(), pod, &nominating);
            }
        }
    }

    /// Records the nodes of the placed members.
    fn note_hosts(&mut self) {
        let nodes = &self.framework.cache.cluster().nodes;
        self.hosted.clear();
        self.are_local = true;
        for (order, at) in self.run.placed.iter().enumerate() {
            let member = &self.run.members[*at];
            self.are_local &= is_local(&member.attempt.pod);
            if let MemberFound::Placed(placed) = &member.found
                && let Some(slot) = nodes.slot(&placed.node)
            {
                self.hosted.entry(slot).or_default().push(order);
            }
        }
    }

    /// Returns whether members fit on their nodes, one after the other.
    fn fit_in_order(&mut self, members: &[usize]) -> bool {
        let mut places: Vec<(usize, Slot, Arc<PodInfo>)> = Vec::with_capacity(members.len());
        for at in members {
            if let MemberFound::Placed(placed) = &self.run.members[*at].found
                && let Some(slot) = self.framework.cache.cluster().nodes.slot(&placed.node)
            {
                places.push((*at, slot, placed.pod.clone()));
            }
        }
        let nodes = &mut self.framework.cache.cluster_mut().nodes;
        for (_, slot, pod) in &places {
            nodes.remove_pod_at(*slot, pod.pod.uid());
        }
        let mut all_fit = true;
        for (at, slot, pod) in places {
            all_fit = all_fit && self.fits(at, slot);
            self.framework
                .cache
                .cluster_mut()
                .nodes
                .add_pod_at(slot, pod);
        }
        all_fit
    }

    fn fits(&mut self, at: usize, slot: Slot) -> bool {
        let attempt = &self.run.members[at].attempt;
        let mut evaluation = Evaluation::default();
        let framework = &mut *self.framework;
        let mut evaluator = framework.evaluator_of(
            self.nominator,
            &attempt.profile,
            &attempt.pod,
            &attempt.work,
            &mut evaluation,
        );
        match evaluator.pre_filter() {
            Err(_) => false,
            Ok(possible) => {
                let view = evaluator.cluster.nodes.get(slot);
                let is_possible = match (possible.nodes, view) {
                    (_, None) => false,
                    (None, Some(_)) => true,
                    (Some(names), Some(view)) => names.binary_search(view.name()).is_ok(),
                };
                is_possible && evaluator.fits_on(slot)
            }
        }
    }
}

/// Returns whether a pod only affects pods on its own node, and is only affected by them.
fn is_local(pod: &PodInfo) -> bool {
    let spec = &pod.pod.spec;
    !pod.has_affinity()
        && spec.topology_spread_constraints.is_empty()
        && spec.volumes.is_empty()
        && spec.resource_claims.is_empty()
}

impl GroupDryRun for Trial<'_> {
    fn cluster(&self) -> &Cluster {
        self.framework.cache.cluster()
    }

    fn members(&self) -> Vec<Arc<PodInfo>> {
        let members = self.run.members.iter();
        members.map(|member| member.attempt.pod.clone()).collect()
    }

    fn nominated_node(&self, uid: &str) -> Option<Str> {
        self.nominated.get(uid).cloned()
    }

    fn nominated_to(&self, node: &str) -> Vec<Arc<PodInfo>> {
        self.nominator.pods_on(node).to_vec()
    }

    fn remove_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) {
        let nodes = &mut self.framework.cache.cluster_mut().nodes;
        if let Some(removed) = nodes.remove_pod_at(node, pod.pod.uid()) {
            self.removed.insert(pod.pod.uid().clone(), (node, removed));
        }
    }

    fn add_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) {
        if let Some((_, removed)) = self.removed.remove(pod.pod.uid()) {
            self.framework
                .cache
                .cluster_mut()
                .nodes
                .add_pod_at(node, removed);
        }
    }

    fn place(&mut self) -> Result<(), Status> {
        let root = self.run.root.clone();
        let rejectors = self.run.rejectors.clone();
        let (framework, nominator) = (&mut *self.framework, &mut *self.nominator);
        let status = self
            .cycle
            .evaluate_group(framework, nominator, self.run, &root, None);
        // A rejection in a cluster without the victims is not a reason for the group to wait, so its plugins are not
        // recorded.
        self.run.rejectors = rejectors;
        match status.is_success() {
            true if self.run.placed.is_empty() => {
                Err(Status::unschedulable("no pods were schedulable"))
            }
            true => {
                self.note_hosts();
                Ok(())
            }
            false => Err(status),
        }
    }

    fn placed(&self) -> Vec<(Arc<PodInfo>, Slot)> {
        let nodes = &self.framework.cache.cluster().nodes;
        let placed = self.run.placed.iter().filter_map(|at| {
            let member = &self.run.members[*at];
            let MemberFound::Placed(placed) = &member.found else {
                return None;
            };
            Some((member.attempt.pod.clone(), nodes.slot(&placed.node)?))
        });
        placed.collect()
    }

    fn still_fits(&mut self, changed: &[(Slot, Arc<PodInfo>)]) -> bool {
        if !self.are_local || !changed.iter().all(|(_, pod)| is_local(pod)) {
            let placed = self.run.placed.clone();
            return self.fit_in_order(&placed);
        }
        let touched: BTreeSet<Slot> = changed.iter().map(|(slot, _)| *slot).collect();
        let hosted = touched.iter().filter_map(|slot| self.hosted.get(slot));
        let mut affected: Vec<usize> = hosted.flatten().copied().collect();
        affected.sort_unstable();
        for place in &mut affected {
            *place = self.run.placed[*place];
        }
        self.fit_in_order(&affected)
    }
}
