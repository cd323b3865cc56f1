//! Judges the actions of a scheduler, and its records.

use super::instance::{Instance, RunningCall};
use super::{Run, in_short};
use crate::checker::{Unplaced, Violation};
use berth_api::{Pod, Str};
use berth_framework::call::ApiCall;
use berth_framework::stage::Eviction;
use berth_scheduler::Outputs;
use std::collections::BTreeSet;

impl Run<'_, '_> {
    /// Judges the actions of a scheduler after its last input: choices, calls, jobs. `failed` is the pod or group that
    /// it just failed to place.
    pub(super) fn after_input(
        &mut self,
        at: usize,
        failed: Option<&Unplaced>,
    ) -> Result<(), Violation> {
        self.note_quotas(at, true)?;
        if !self.instances[at].is_active() {
            return Ok(());
        }
        let now = self.now;
        let Outputs {
            calls,
            jobs,
            events,
            log,
            ..
        } = self.instances[at].scheduler.take_outputs(now);
        // Pods without a node are not deleted.
        let in_memory = events.into_iter().map(|event| event.event).filter(|event| {
            event.reason == "Preempted" && event.note.ends_with(Eviction::IN_MEMORY)
        });
        let in_memory: Vec<Str> = in_memory.map(|event| event.regarding.uid).collect();
        // First, because it was decided before its victims gave up their placements.
        self.judge_preemption(at, failed, &in_memory)?;
        self.judge_choices(at)?;
        let number = self.instances[at].number;
        for line in log {
            self.print_line(|| {
                format!(
                    "scheduler {number} logs: {:?}: {}",
                    line.level, line.message
                )
            });
        }
        for (id, call) in calls {
            self.tally.calls += 1;
            self.print_line(|| format!("scheduler {number} calls: {}", in_short(&call)));
            let instance = &mut self.instances[at];
            if let ApiCall::PatchPodStatus { pod, .. } | ApiCall::ClearPreEnqueueStatus { pod, .. } =
                &call
                && call
                    .condition("PodScheduled")
                    .is_none_or(|c| c.status != "True")
            {
                let profiles = instance.scheduler.profiles();
                instance
                    .checker
                    .check_profile(&pod.uid, &profiles.names())?;
            }
            match &call {
                ApiCall::BindPod { pod, node } => instance.checker.bind_sent(&pod.uid, node)?,
                ApiCall::PatchPodStatus {
                    pod,
                    nominated_node,
                    ..
                } => {
                    if let Some(c) = call.condition("PodScheduled") {
                        instance.checker.status_sent(
                            &pod.uid,
                            &c.reason,
                            &c.message,
                            nominated_node.is_some(),
                            now,
                        )?;
                    }
                }
                ApiCall::ClearPreEnqueueStatus { pod, .. } => {
                    instance.checker.status_cleared(&pod.uid)
                }
                _ => {}
            }
            instance.calls.push(RunningCall {
                id,
                call,
                answer: None,
            });
        }
        let instance = &mut self.instances[at];
        instance.jobs.extend(jobs.into_iter().map(|(id, _)| id));
        let kept_free: Vec<(Str, Str)> = instance.kept_free().collect();
        instance.checker.keeps_free(kept_free);
        Ok(())
    }

    /// Judges the pods that are being deleted for the scheduler but not for the API: victims of a preemption.
    /// `in_memory` are victims that were stopped before their binding.
    fn judge_preemption(
        &mut self,
        at: usize,
        failed: Option<&Unplaced>,
        in_memory: &[Str],
    ) -> Result<(), Violation> {
        let now = self.now;
        let instance = &mut self.instances[at];
        let cache = instance.scheduler.cache();
        let dying = |pod: &Pod| {
            cache
                .effective(pod.uid())
                .is_some_and(|p| p.is_terminating())
        };
        let (victims, spared): (Vec<Str>, Vec<Str>) = {
            let uids = |ends: bool| {
                let pods = instance.checker.living_pods();
                let pods = pods.filter(|pod| dying(pod) == ends);
                pods.map(|pod| pod.uid().clone()).collect()
            };
            (uids(true), uids(false))
        };
        for uid in &spared {
            instance.checker.spared(uid);
        }
        let preemptors: &[Str] = match failed {
            Some(Unplaced::Pod(uid)) => std::slice::from_ref(uid),
            Some(Unplaced::Group(plan)) => &plan.members,
            None => &[],
        };
        instance.checker.tried(preemptors);
        let scheduler = &instance.scheduler;
        let running = preemptors
            .iter()
            .flat_map(|uid| scheduler.preemptions_for(uid));
        let last = running.filter_map(|running| Some(running.last?.uid));
        let last: Vec<Str> = last.collect();
        let checker = &mut instance.checker;
        let new = checker.preempts(&victims, &last, in_memory, failed)?;
        if new > 0 {
            instance.checker.makes_room(preemptors, now);
        }
        self.tally.preemptions += new as u64;
        if let Some(Unplaced::Group(_)) = failed {
            self.tally.group_preemptions += new as u64;
        }
        if new > 0 {
            self.print_line(|| format!("preempted: {}", victims.join(", ")));
        }
        Ok(())
    }

    /// Judges the pods with a node for the scheduler but not for the API: the scheduler has chosen the node.
    fn judge_choices(&mut self, at: usize) -> Result<(), Violation> {
        let instance = &mut self.instances[at];
        let (cache, checker) = (instance.scheduler.cache(), &mut instance.checker);
        let given_up: Vec<Str> = checker
            .placed()
            .filter(|uid| !cache.is_assumed(uid))
            .cloned()
            .collect();
        let chosen: Vec<(Str, Str)> = checker
            .waiting_pods()
            .filter(|pod| !pod.is_terminating() && cache.is_assumed(pod.uid()))
            .filter_map(|pod| Some((pod.uid(), &cache.effective(pod.uid())?.spec.node_name)))
            .filter(|(uid, node)| checker.placement(uid) != Some(*node))
            .map(|(uid, node)| (uid.clone(), node.clone()))
            .collect();
        for uid in &given_up {
            checker.gave_up(uid);
        }
        let started = checker.started_groups();
        let number = instance.number;
        for uid in &given_up {
            self.print_line(|| format!("scheduler {number} gives up the place of {uid}"));
        }
        for (uid, node) in &chosen {
            self.print_line(|| format!("scheduler {number} chooses {node} for {uid}"));
            self.instances[at].checker.decided(uid, node)?;
        }
        let instance = &mut self.instances[at];
        self.tally.groups += instance.checker.check_quorums(&chosen, &started)?;
        let claims = instance
            .scheduler
            .cache()
            .cluster()
            .devices()
            .claims()
            .iter();
        let assumed: Vec<_> = claims
            .filter(|claim| claim.status.is_assumed)
            .cloned()
            .collect();
        self.tally.devices += instance.checker.devices_chosen(&assumed)?;
        Ok(())
    }

    /// The books of every scheduler.
    pub(super) fn check_books(&self) -> Result<(), Violation> {
        self.instances.iter().try_for_each(|one| self.check_of(one))
    }

    /// Checks the scheduler's own records, and that every waiting pod is in exactly one place.
    fn check_of(&self, instance: &Instance) -> Result<(), Violation> {
        let Instance {
            scheduler, checker, ..
        } = instance;
        scheduler.check().map_err(Violation::InconsistentState)?;
        let queue = scheduler.queue();
        let mut queued = BTreeSet::new();
        for (place, info) in queue.places().pods() {
            let uid = info.pod.uid();
            if !queued.insert(uid) || queue.in_flight().contains(uid) {
                let text = format!("pod {} is in {place:?} and elsewhere", info.pod.name());
                return Err(Violation::InconsistentState(text));
            }
        }
        // A pod waiting for its binding may no longer be counted on its node.
        let may_be_held = scheduler.bindings_in_flight() > 0;
        // A pod that the scheduler is about to delete need not be attempted.
        let cache = scheduler.cache();
        let is_being_deleted = |uid: &Str| cache.effective(uid).is_some_and(|p| p.is_terminating());
        // A configuration may have no profile for a pod.
        let profiles = scheduler.profiles();
        let has_profile = |pod: &Pod| profiles.get(&pod.spec.scheduler_name).is_some();
        for pod in checker.waiting_pods() {
            let uid = pod.uid();
            if queued.contains(uid) && !has_profile(pod) {
                let text = format!("pod {} is queued without a profile", pod.name());
                return Err(Violation::InconsistentState(text));
            }
            let somewhere = queued.contains(uid)
                || queue.in_flight().contains(uid)
                || checker.placement(uid).is_some()
                || pod.is_terminating()
                || is_being_deleted(uid)
                || !has_profile(pod);
            if !somewhere && !may_be_held {
                let text = format!(
                    "pod {} is neither queued nor in flight nor placed",
                    pod.name()
                );
                return Err(Violation::InconsistentState(text));
            }
        }
        Ok(())
    }
}
