//! The scheduling cycle of a group: all of its members in one step (KEP-4671, KEP-6012).
//!
//! ```text
//! a gang of 4, nodes for 3     → three members are placed in memory, the fourth fits nowhere: all is reverted
//! nodes for 4                  → four members are placed in memory, then all are bound
//! ```
//!
//! Each member is evaluated like a single pod, placed in memory and reserved, so that the next member, the plugins and the
//! cached answers see it on its node. After each member, PlacementFeasible plugins decide whether the group can start, may
//! still start, or cannot: in the last case no further member is tried. Nothing about a group leaves the core before it can
//! start: the placement is all or nothing.

mod post_filter;
mod submit;
mod topology;

use super::extended;
use super::{AssumedPod, Attempt, Cycle, CycleResult, begin_attempt, log_excluded};
use crate::call_results::note_trial;
use crate::core::{Core, Framework, PointRun, Ran, search_took};
use crate::group_checks;
use crate::group_status::{self, AttemptEnd};
use crate::nominations;
use crate::placement::{Permitted, run_reserve, stage_failure, undo_placement};
use crate::preemptions;
use berth_api::{Pod, Str};
use berth_evaluator::{FitError, Found, Placement};
use berth_framework::call::PodRef;
use berth_framework::cluster::{GroupKey, GroupKind};
use berth_framework::plugin::{Context, GroupProgress, Nominating};
use berth_framework::{Cluster, Code, Feature, Slot, Status};
use berth_profile::{Point, Profile};
use berth_queue::{GroupEnd, Nominator, PluginSet, QueuedPodInfo, SchedulingQueue};
use berth_telemetry::metrics::Metric;
use post_filter::{GroupNominations, GroupRoom};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use submit::submit;

/// The result of the cycle of a group.
pub(crate) struct GroupCycle {
    /// The members that are to be bound.
    pub(crate) permitted: Vec<Permitted>,
    /// The result for each member.
    pub(crate) results: Vec<(PodRef, CycleResult)>,
}

/// A member in the cycle of its group.
pub(super) struct Member {
    attempt: Attempt,
    leaf: GroupKey,
    found: MemberFound,
    /// Its nominated node before it was placed.
    nominated: Option<Str>,
}

/// The result for one member so far.
enum MemberFound {
    /// It was not tried.
    Untried,
    /// It is placed in memory.
    Placed(Box<AssumedPod>),
    /// It fits nowhere.
    Unfit(Box<FitError>),
    /// It was rejected before any node was evaluated.
    Rejected(Status),
    /// An error occurred.
    Failed(Status),
}

/// The members of a group, and the results for the groups of its hierarchy.
pub(super) struct GroupRun {
    root: GroupKey,
    profile: Arc<Profile>,
    members: Vec<Member>,
    /// The placed members, in the order of placement.
    placed: Vec<usize>,
    /// The result of each group that was evaluated.
    statuses: FxHashMap<GroupKey, Status>,
    /// The plugins that rejected members or placements.
    rejectors: BTreeSet<Str>,
    /// Whether the group had no candidate node. No plugin registered for events that change this.
    has_no_nodes: bool,
}

/// The nodes on which members may be placed; `None` for all.
type Scope<'a> = Option<&'a [Slot]>;

impl Cycle {
    /// Tries a popped group.
    pub(crate) fn run_group(&mut self, core: &mut Core, mut info: QueuedPodInfo) -> GroupCycle {
        let mut ended = GroupCycle {
            permitted: Vec::new(),
            results: Vec::new(),
        };
        let Core {
            framework, queue, ..
        } = &mut *core;
        if queue.is_rejected_now(&framework.context(), &info) {
            queue.group_untried(&framework.context(), info);
            return ended;
        }
        let Some(group) = info.take_group() else {
            return ended;
        };
        let root = group.key().clone();
        let began = framework.clock.stage_begin();
        let members = begin_members(framework, queue, group.into_ordered(), &mut ended.results);
        let Some(profile) = members.first().map(|member| member.attempt.profile.clone()) else {
            queue.group_ended(&framework.context(), info, &root, &GroupEnd::Success);
            return ended;
        };
        framework
            .outbound
            .log
            .v(3, "Attempting to schedule pod group", |line| {
                line.with("podGroup", root.to_string())
            });
        let name = profile.name.clone();
        let mut run = GroupRun {
            root: root.clone(),
            profile,
            members,
            placed: Vec::new(),
            statuses: FxHashMap::default(),
            rejectors: BTreeSet::new(),
            has_no_nodes: false,
        };
        let pending: Vec<&Arc<Pod>> = run.members.iter().map(|m| &m.attempt.pod.pod).collect();
        let searched = framework.clock.stage_begin();
        let status = match group_checks::check(&framework.context(), &root, &pending) {
            Err(text) => Status::error(text),
            Ok(()) => {
                let status =
                    self.evaluate_group(framework, queue.nominator_mut(), &mut run, &root, None);
                if status.is_success() && run.placed.is_empty() {
                    Status::unschedulable("no pods were schedulable")
                } else {
                    status
                }
            }
        };
        let seconds = framework.clock.seconds_since(searched);
        let metric = Metric::PodGroupSchedulingAlgorithmDuration;
        framework.metrics.observe(metric, &[], seconds);
        let room = match status.code() {
            Code::Unschedulable => {
                self.make_room(framework, queue.nominator_mut(), &mut run, status)
            }
            _ => GroupRoom::none(status),
        };
        core.make_requested_calls();
        for preemption in room.preemptions {
            preemptions::start(core, preemption, name.clone());
        }
        let (status, nominations) = (room.status, room.nominations);
        let rejectors = std::mem::take(&mut run.rejectors);
        let has_no_nodes = run.has_no_nodes;
        let is_decided = matches!(status.code(), Code::Unschedulable | Code::Success);
        if is_decided && !has_no_nodes {
            // A member without a node also waits for the plugins that rejected other nodes for the group.
            let all: PluginSet = rejectors.iter().chain(status.plugin()).cloned().collect();
            let is_placed = |member: &Member| matches!(member.found, MemberFound::Placed(_));
            for member in run.members.iter_mut().filter(|m| !is_placed(m)) {
                member.attempt.info.set_group_rejectors(all.clone());
            }
        }
        let status = submit(core, run, status, &nominations, &mut ended);
        let end = match status.code() {
            Code::Success => GroupEnd::Success,
            Code::Error => GroupEnd::Error,
            // Like a single pod, the group is tried again after its backoff.
            _ if has_no_nodes => GroupEnd::Error,
            _ => GroupEnd::Rejected(rejectors.iter().chain(status.plugin()).cloned().collect()),
        };
        let is_waiting = !matches!(nominations, GroupNominations::Cleared);
        let attempt = AttemptEnd {
            root: &root,
            status: &status,
            is_waiting: is_waiting && !status.is_success(),
            seconds: core.framework.clock.seconds_since(began),
            profile: &name,
        };
        let (log, metrics) = (
            &mut core.framework.outbound.log,
            &mut core.framework.metrics,
        );
        group_status::attempt_ended(log, metrics, &attempt, &ended.results);
        let (queue, cx) = core.queue_with_context();
        queue.group_ended(&cx, info, &root, &end);
        ended
    }

    /// Determines whether a group can start with the members that fit, and places them. If the group cannot start, all
    /// placements are reverted.
    fn evaluate_group(
        &mut self,
        framework: &mut Framework,
        nominator: &mut Nominator,
        run: &mut GroupRun,
        key: &GroupKey,
        scope: Scope<'_>,
    ) -> Status {
        let is_topological = framework
            .settings
            .is_on(Feature::TopologyAwareWorkloadScheduling);
        let status = if is_topological {
            self.evaluate_placements(framework, nominator, run, key, scope)
        } else {
            self.evaluate_within(framework, nominator, run, key, scope)
        };
        run.statuses.insert(key.clone(), status.clone());
        status
    }

    /// The same on these nodes.
    fn evaluate_within(
        &mut self,
        framework: &mut Framework,
        nominator: &mut Nominator,
        run: &mut GroupRun,
        key: &GroupKey,
        scope: Scope<'_>,
    ) -> Status {
        let mark = run.placed.len();
        let status = match key.kind {
            GroupKind::PodGroup => self.evaluate_leaf(framework, nominator, run, key, scope),
            GroupKind::CompositePodGroup => {
                self.evaluate_composite(framework, nominator, run, key, scope)
            }
        };
        if !status.is_success() {
            run.revert(framework, nominator, mark);
        }
        status
    }

    fn evaluate_composite(
        &mut self,
        framework: &mut Framework,
        nominator: &mut Nominator,
        run: &mut GroupRun,
        key: &GroupKey,
        scope: Scope<'_>,
    ) -> Status {
        let children = framework.cache.cluster().groups().children(key);
        let mut started = 0;
        let mut answer = feasible(&framework.context(), &run.profile, key, 0, children.len());
        for (at, child) in children.iter().enumerate() {
            if !goes_on(&answer) {
                break;
            }
            let status = self.evaluate_group(framework, nominator, run, child, scope);
            // An error says nothing about the quorum, so it fails the whole group.
            if status.code() == Code::Error {
                return Status::error(format!(
                    "composite pod group evaluation failed due to child error: {}",
                    status.message()
                ));
            }
            started += usize::from(status.is_success());
            answer = feasible(
                &framework.context(),
                &run.profile,
                key,
                started,
                children.len() - at - 1,
            );
        }
        settled(answer)
    }

    /// Tries the members of a pod group in sequence. Members with a node count from the beginning.
    fn evaluate_leaf(
        &mut self,
        framework: &mut Framework,
        nominator: &mut Nominator,
        run: &mut GroupRun,
        key: &GroupKey,
        scope: Scope<'_>,
    ) -> Status {
        let members: Vec<usize> = (0..run.members.len())
            .filter(|at| run.members[*at].leaf == *key)
            .collect();
        let scheduled = |cluster: &Cluster| {
            let members = cluster.pods.members(key);
            members.map_or(0, |members| members.scheduled().len())
        };
        let placed = scheduled(framework.cache.cluster());
        let mut answer = feasible(
            &framework.context(),
            &run.profile,
            key,
            placed,
            members.len(),
        );
        for (tried, at) in members.iter().enumerate() {
            if !goes_on(&answer) {
                break;
            }
            self.try_member(framework, nominator, run, *at, scope);
            if let MemberFound::Failed(status) = &run.members[*at].found {
                let text = status.message();
                return Status::error(format!(
                    "failed to schedule other pod from a pod group: {text}"
                ));
            }
            // Counted again: a member that was just placed is a scheduled member of the cluster.
            let placed = scheduled(framework.cache.cluster());
            let untried = members.len() - tried - 1;
            answer = feasible(&framework.context(), &run.profile, key, placed, untried);
        }
        settled(answer)
    }

    /// Evaluates a member like a single pod, and places it in memory if a node fits.
    fn try_member(
        &mut self,
        framework: &mut Framework,
        nominator: &mut Nominator,
        run: &mut GroupRun,
        at: usize,
        scope: Scope<'_>,
    ) {
        let member = &mut run.members[at];
        let attempt = &mut member.attempt;
        framework.outbound.log.v(
            4,
            "Attempting to schedule a pod belonging to a pod group",
            |line| line.with("pod", &*attempt.pod.pod),
        );
        attempt.began = framework.clock.stage_begin();
        if extended::takes_part(&framework.settings.extenders, attempt) {
            let text = "extenders cannot take part in the scheduling of pod groups";
            member.found = MemberFound::Failed(Status::error(text));
            return;
        }
        // It may have been tried on other nodes before.
        attempt.evaluation.begin_anew();
        attempt.evaluation.tally.sampled = attempt.is_sampled.then(Box::default);
        let begin = self.search_begin(&framework.settings, attempt, false);
        let found = self.search(framework, nominator, attempt, scope);
        framework.log_if_slow(attempt);
        framework.observe_evaluation(attempt);
        search_took(&framework.clock, &mut framework.metrics, attempt);
        member.found = match found {
            Found::Placed(placement) => {
                log_excluded(&mut framework.outbound.log, attempt, &placement);
                framework.note_decision(nominator, attempt, &placement, begin);
                run.place(framework, nominator, at, &placement);
                return;
            }
            Found::Unfit(error) => {
                self.answer_cache.revert(&mut attempt.evaluation);
                let diagnosis = &error.diagnosis;
                let plugins = diagnosis.unschedulable_plugins.iter();
                run.rejectors
                    .extend(plugins.chain(&diagnosis.pending_plugins).cloned());
                MemberFound::Unfit(error)
            }
            Found::NoNodes(status) => {
                run.has_no_nodes = true;
                MemberFound::Rejected(status)
            }
            Found::Failed(status) => MemberFound::Failed(status),
        };
    }
}

/// The result for each member.
type Ended = Vec<(PodRef, CycleResult)>;

/// Begins an attempt of each member, except of terminating members and of members with a node.
fn begin_members(
    framework: &mut Framework,
    queue: &mut SchedulingQueue,
    infos: Vec<QueuedPodInfo>,
    ended: &mut Ended,
) -> Vec<Member> {
    let mut members = Vec::with_capacity(infos.len());
    for info in infos {
        let pod = PodRef::of(&info.pod);
        let leaf = GroupKey::of_pod(&info.pod);
        let begun = begin_attempt(framework, info).map_err(|uid| queue.done(&uid));
        match begun.ok().zip(leaf) {
            Some((attempt, leaf)) => members.push(Member {
                attempt,
                leaf,
                found: MemberFound::Untried,
                nominated: None,
            }),
            None => ended.push((pod, CycleResult::Skipped)),
        }
    }
    members
}

/// The answer of the PlacementFeasible plugins about a group, from the numbers of its scheduled and untried members.
fn feasible(
    cx: &Context<'_>,
    profile: &Profile,
    group: &GroupKey,
    scheduled: usize,
    remaining: usize,
) -> Status {
    let progress = GroupProgress {
        group,
        scheduled,
        remaining,
    };
    let mut answer = Status::success();
    for member in &profile.placement_feasible {
        let status = member.plugin.placement_feasible(cx, &progress);
        match status.code() {
            Code::Success | Code::Skip => {}
            Code::Wait => answer = status.from_plugin(&member.name),
            code if code.is_rejected() => return status.from_plugin(&member.name),
            _ => {
                return Status::error(format!(
                    "failed to evaluate placement feasibility: {}",
                    status.message()
                ));
            }
        }
    }
    answer
}

/// Returns whether further members are tried after this answer.
fn goes_on(answer: &Status) -> bool {
    matches!(answer.code(), Code::Success | Code::Wait)
}

/// The last answer as the result: a group that would have to wait is unschedulable in this cycle.
fn settled(answer: Status) -> Status {
    match answer.code() {
        Code::Wait => {
            let plugin = answer.plugin().cloned();
            let status = Status::new(Code::Unschedulable, answer.reasons().iter().cloned());
            match plugin {
                Some(plugin) => status.from_plugin(&plugin),
                None => status,
            }
        }
        _ => answer,
    }
}

impl GroupRun {
    /// Assumes a member on its node, and runs Reserve.
    fn place(
        &mut self,
        framework: &mut Framework,
        nominator: &mut Nominator,
        at: usize,
        placement: &Placement,
    ) {
        let member = &mut self.members[at];
        let attempt = &mut member.attempt;
        let pod = match framework.cache.assume(&attempt.pod.pod, &placement.name) {
            Ok(pod) => pod,
            Err(error) => {
                member.found = MemberFound::Failed(Status::error(error.to_string()));
                return;
            }
        };
        // It counts only on its node, not on its nominated node.
        member.nominated = nominations::set_aside(nominator, attempt.pod.pod.uid());
        let placed = AssumedPod {
            pod,
            node: placement.name.clone(),
            nodes: (placement.evaluated, placement.feasible),
        };
        match reserve(framework, attempt, &placed) {
            None => {
                note_trial(framework);
                member.found = MemberFound::Placed(Box::new(placed));
                self.placed.push(at);
            }
            Some(status) => {
                member.found = if status.is_rejected() {
                    let node = framework.cache.cluster().nodes.slot(&placed.node);
                    MemberFound::Unfit(Box::new(FitError::of_one(node, status)))
                } else {
                    MemberFound::Failed(status)
                };
                member.unplace(framework, nominator, &placed);
            }
        }
    }

    /// Reverts the placements after the first `keep`, the last one first.
    fn revert(&mut self, framework: &mut Framework, nominator: &mut Nominator, keep: usize) {
        while self.placed.len() > keep
            && let Some(at) = self.placed.pop()
        {
            let member = &mut self.members[at];
            let found = std::mem::replace(&mut member.found, MemberFound::Untried);
            if let MemberFound::Placed(placed) = found {
                member.unplace(framework, nominator, &placed);
            }
        }
    }
}

impl Member {
    fn unplace(
        &mut self,
        framework: &mut Framework,
        nominator: &mut Nominator,
        placed: &AssumedPod,
    ) {
        undo_placement(framework, &mut self.attempt, placed);
        note_trial(framework);
        if let Some(node) = self.nominated.take() {
            let nominating = Nominating::Set(node);
            nominator.add(
                framework.cache.cluster(),
                &self.attempt.pod.pod,
                &nominating,
            );
        }
    }
}

/// Runs Reserve. Returns the status of a rejection or an error.
fn reserve(
    framework: &mut Framework,
    attempt: &mut Attempt,
    placed: &AssumedPod,
) -> Option<Status> {
    let mut run = PointRun::begin(&framework.clock, Point::Reserve.as_str());
    let failed = match run_reserve(framework, attempt, placed, &mut run, None) {
        Ran::Through => None,
        Ran::Ended(status) => Some(status),
        Ran::Waits(_) => attempt.profile.reserve.get(run.at()).map(|member| {
            let status = Status::error("Reserve cannot wait for a member of a pod group");
            stage_failure("Reserve", &member.name, &status)
        }),
    };
    let code = failed.as_ref().map_or(Code::Success, Status::code);
    run.end(&framework.clock, &mut framework.metrics, attempt, code);
    failed
}
