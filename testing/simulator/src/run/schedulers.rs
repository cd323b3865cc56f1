//! The inputs and actions of schedulers in a run, and their starts and exits.

use super::instance::{Instance, Role, RunningCall, change_of};
use super::{LEADER, OTHER, Run, in_short};
use crate::api::{answer_of, full_answer_of, is_carried_out};
use crate::checker::{GroupPlan, Unplaced, Violation};
use crate::rules::{NOT_READY, conflict};
use crate::script::{CallAnswer, Step};
use crate::world::{Refusal, WATCHED, WatchEvent};
use berth_api::{Duration, Kind, Str};
use berth_framework::call::{ApiCall, CallId, CallResult};
use berth_scheduler::{ClusterChange, CycleResult, NotReconfigured, ScheduleOutcome};
use std::collections::BTreeMap;

/// The maximum delay of an event of a watch. A watch with a longer delay would be regarded as broken.
const LAG_MAX: Duration = Duration::from_secs(20);
/// The time for which a scheduler may believe that it leads after another one took over: then it notices that it could
/// not renew its lease.
const OVERLAP_MAX: Duration = Duration::from_secs(10);

/// The pod and its nominated node, if the call writes one; a binding clears it.
fn nominated_by(call: &ApiCall) -> Option<(&Str, Str)> {
    match call {
        ApiCall::PatchPodStatus {
            pod,
            nominated_node: Some(node),
            ..
        }
        | ApiCall::ClearPreEnqueueStatus {
            pod,
            nominated_node: Some(node),
            ..
        } => Some((&pod.uid, node.clone())),
        ApiCall::BindPod { pod, .. } => Some((&pod.uid, Str::default())),
        _ => None,
    }
}

impl Run<'_, '_> {
    /// A step of one scheduler. A scheduler on standby only receives.
    pub(super) fn drive(&mut self, at: usize, step: &Step) -> Result<(), Violation> {
        let is_active = self.instances[at].is_active();
        match step {
            Step::Deliver(kind, count) => {
                for _ in 0..*count {
                    self.deliver(at, *kind)?;
                }
            }
            Step::Repeat(kind) => {
                if let Some(event) = self.instances[at].watches.last(*kind).cloned() {
                    self.notify(at, &event)?;
                }
            }
            Step::Relist(kind) => self.relist(at, *kind)?,
            Step::Schedule(count) if is_active => {
                for _ in 0..*count {
                    self.schedule(at)?;
                }
            }
            Step::Answer(first, count, answer) if is_active => {
                for _ in 0..*count {
                    self.answer(at, *first, *answer)?;
                }
            }
            Step::CarryOut(first, count) if is_active => {
                for n in 0..*count {
                    self.carry_out_early(at, first + n)?;
                }
            }
            Step::EndJob(job, well) if is_active => self.end_job(at, *job, *well)?,
            _ => {}
        }
        Ok(())
    }

    pub(super) fn all(&self) -> std::ops::Range<usize> {
        0..self.instances.len()
    }

    // --- time ----------------------------------------------------------------------------------------------

    /// Time passes for all instances.
    pub(super) fn advance(&mut self, span: Duration) -> Result<(), Violation> {
        self.now = self.now + span;
        for at in self.all() {
            self.tick(at)?;
        }
        for at in self.all() {
            self.deliver_late(at)?;
        }
        let other = self.instances.get(OTHER).map(|other| other.role);
        if let Some(Role::Deposed(since)) = other
            && self.now.since(since) > OVERLAP_MAX
        {
            self.step_down()?;
        }
        Ok(())
    }

    pub(super) fn tick(&mut self, at: usize) -> Result<(), Violation> {
        if self.instances[at].is_active() {
            let now = self.now;
            self.instances[at].scheduler.tick(now);
            self.after_input(at, None)?;
        }
        Ok(())
    }

    /// A watch lags, but not for ever.
    fn deliver_late(&mut self, at: usize) -> Result<(), Violation> {
        for (place, kind) in WATCHED.into_iter().enumerate() {
            let instance = &mut self.instances[at];
            if instance.watches.undelivered(&self.world, kind) == 0 {
                instance.up_to_date[place] = self.now;
            } else if self.now.since(instance.up_to_date[place]) > LAG_MAX {
                while self.deliver(at, kind)? {}
                self.instances[at].up_to_date[place] = self.now;
            }
        }
        Ok(())
    }

    // --- inputs of schedulers -----------------------------------------------------------------------------

    pub(super) fn deliver(&mut self, at: usize, kind: Kind) -> Result<bool, Violation> {
        match self.instances[at].watches.next(&self.world, kind) {
            Some(event) => self.notify(at, &event).map(|()| true),
            None => Ok(false),
        }
    }

    fn notify(&mut self, at: usize, event: &WatchEvent) -> Result<(), Violation> {
        self.note_late_quotas(at, event.kind());
        let now = self.now;
        let instance = &mut self.instances[at];
        let number = instance.number;
        instance.checker.watched(event, now);
        for change in self.subject.api.notify(change_of(event)) {
            instance.scheduler.apply(change, now);
        }
        self.print_line(|| format!("scheduler {number} receives: {event}"));
        self.after_input(at, None)
    }

    fn relist(&mut self, at: usize, kind: Kind) -> Result<(), Violation> {
        self.note_late_quotas(at, kind);
        let now = self.now;
        let instance = &mut self.instances[at];
        let objects = instance.watches.relist(&self.world, kind);
        instance.checker.reported_all(kind, objects.clone(), now);
        let change = ClusterChange::Replaced(kind, objects);
        for change in self.subject.api.notify(change) {
            instance.scheduler.apply(change, now);
        }
        // Many changes: each was judged by the quotas at its time.
        self.note_quotas(at, false)?;
        self.after_input(at, None)
    }

    /// Everything is listed: how a scheduler begins.
    fn list_all(&mut self, at: usize, backwards: bool) -> Result<(), Violation> {
        let mut kinds = WATCHED;
        if backwards {
            kinds.reverse();
        }
        kinds.into_iter().try_for_each(|kind| self.relist(at, kind))
    }

    // --- calls and jobs ------------------------------------------------------------------------------------

    /// The API carries out a call.
    fn carry_out(
        &mut self,
        call: &ApiCall,
        foreign: bool,
    ) -> Result<Result<(), Refusal>, Violation> {
        let assigned = call.pod().and_then(|pod| {
            let stored = self.world.pods().get(&pod.name)?;
            (*stored.uid() == pod.uid && stored.is_assigned()).then(|| stored.clone())
        });
        let outcome = self.subject.api.carry_out(&mut self.world, call, self.now);
        if let Some((pod, node)) = nominated_by(call).filter(|_| outcome.is_ok()) {
            self.nominations.insert(pod.clone(), node);
        }
        match call {
            ApiCall::BindPod { pod, node } => {
                if let (Ok(()), Some(assigned)) = (&outcome, assigned) {
                    return Err(Violation::DoubleBind {
                        pod: pod.name.clone(),
                        first: assigned.spec.node_name.clone(),
                        second: node.clone(),
                    });
                }
                self.tally.bindings += u64::from(outcome.is_ok());
                self.tally.refused += u64::from(outcome.is_err());
            }
            ApiCall::PatchPodStatus {
                pod,
                conditions,
                nominated_node,
            } => {
                if !conditions.is_empty() {
                    self.foreign.condition_written(&pod.uid, foreign);
                }
                if nominated_node.is_some() {
                    self.foreign.nomination_written(&pod.uid, foreign);
                }
            }
            ApiCall::ClearPreEnqueueStatus {
                pod,
                nominated_node,
                ..
            } if outcome.is_ok() => {
                self.foreign.condition_written(&pod.uid, foreign);
                // One call can withdraw the report and state the node of a pod that is about to be bound.
                if nominated_node.is_some() {
                    self.foreign.nomination_written(&pod.uid, foreign);
                }
            }
            ApiCall::Write(write) => {
                let is_volume = matches!(
                    write.object().kind,
                    Kind::PersistentVolume | Kind::PersistentVolumeClaim
                );
                self.tally.volumes += u64::from(outcome.is_ok() && is_volume);
                // Another scheduler or calls of an exited one may allocate the same device.
                let is_alone = self.tally.restarts == 0 && self.tally.failovers == 0;
                if let Some(what) = conflict(self.world.others()).filter(|_| is_alone) {
                    return Err(Violation::SharedDevice { what });
                }
            }
            ApiCall::ClearPreEnqueueStatus { .. } | ApiCall::DeletePod { .. } => {}
        }
        Ok(outcome)
    }

    pub(super) fn answer(
        &mut self,
        at: usize,
        first: usize,
        how: CallAnswer,
    ) -> Result<(), Violation> {
        let instance = &mut self.instances[at];
        if instance.calls.is_empty() {
            return Ok(());
        }
        let place = first % instance.calls.len();
        let RunningCall { id, call, answer } = instance.calls.remove(place);
        let number = instance.number;
        // A call that was executed can only lose its answer.
        let how = match &answer {
            Some(_) if how != CallAnswer::TimeoutAfter => CallAnswer::Honest,
            _ => how,
        };
        let result = match (answer, how) {
            (Some(answer), CallAnswer::Honest) => answer,
            (Some(_), how) => answer_of(how, None),
            (None, how) if is_carried_out(how) => {
                let outcome = self.carry_out(&call, at != LEADER)?;
                self.answer_in_full(id, &call, answer_of(how, Some(outcome)))
            }
            (None, how) => answer_of(how, None),
        };
        self.tally.faults += u64::from(how != CallAnswer::Honest);
        self.print_line(|| {
            let call = in_short(&call);
            match &result {
                Ok(_) => format!("scheduler {number} is answered: {call}: done"),
                Err(error) => format!("scheduler {number} is answered: {call}: {error} ({how})"),
            }
        });
        let (answer, now) = (result, self.now);
        let instance = &mut self.instances[at];
        let (checker, success) = (&mut instance.checker, answer.is_ok());
        match &call {
            ApiCall::BindPod { pod, node } => checker.bind_answered(&pod.uid, node, success),
            ApiCall::PatchPodStatus { pod, .. } | ApiCall::ClearPreEnqueueStatus { pod, .. } => {
                checker.status_answered(&pod.uid, &answer);
            }
            _ => {}
        }
        instance.scheduler.complete(id, answer, now);
        self.after_input(at, None)
    }

    /// Executes a call that is answered later.
    fn carry_out_early(&mut self, at: usize, first: usize) -> Result<(), Violation> {
        let calls = &self.instances[at].calls;
        let running = calls.get(first % calls.len().max(1));
        let Some((id, call)) = running
            .filter(|running| running.answer.is_none())
            .map(|running| (running.id, running.call.clone()))
        else {
            return Ok(());
        };
        let outcome = self.carry_out(&call, at != LEADER)?;
        let answer = self.answer_in_full(id, &call, answer_of(CallAnswer::Honest, Some(outcome)));
        let number = self.instances[at].number;
        self.print_line(|| {
            format!(
                "a call of scheduler {number} is carried out: {}",
                in_short(&call)
            )
        });
        let mut calls = self.instances[at].calls.iter_mut();
        if let Some(running) = calls.find(|running| running.id == id) {
            running.answer = Some(answer);
        }
        Ok(())
    }

    /// The answer with the version that the call has created. A quarter of the answers have no version.
    fn answer_in_full(&self, id: CallId, call: &ApiCall, result: CallResult) -> CallResult {
        match id.0 % 4 {
            0 => result,
            _ => full_answer_of(&self.world, call, result),
        }
    }

    /// A call of a scheduler that has exited arrives. No scheduler receives the answer.
    pub(super) fn land(&mut self, at: usize) -> Result<(), Violation> {
        if self.orphans.is_empty() {
            return Ok(());
        }
        let call = self.orphans.remove(at % self.orphans.len());
        let outcome = self.carry_out(&call, true)?;
        self.print_line(|| {
            format!(
                "a dead scheduler's call arrives: {}: {outcome:?}",
                in_short(&call)
            )
        });
        Ok(())
    }

    pub(super) fn end_job(&mut self, at: usize, first: usize, well: bool) -> Result<(), Violation> {
        let now = self.now;
        let instance = &mut self.instances[at];
        if instance.jobs.is_empty() {
            return Ok(());
        }
        let place = first % instance.jobs.len();
        let job = instance.jobs.remove(place);
        let result = if well {
            Ok(Box::new(()) as _)
        } else {
            Err("the job has failed".into())
        };
        instance.scheduler.job_done(job, result, now);
        self.after_input(at, None)
    }

    pub(super) fn schedule(&mut self, at: usize) -> Result<bool, Violation> {
        // The effects of time are judged separately, to distinguish a reverted choice from a new one.
        self.tick(at)?;
        let now = self.now;
        let outcome = self.instances[at].scheduler.schedule_one(now);
        let failed = match &outcome {
            ScheduleOutcome::Done {
                pod,
                result: CycleResult::Unschedulable { .. },
            } => Some(Unplaced::Pod(pod.uid.clone())),
            ScheduleOutcome::Group { pods, .. } => {
                let tried = pods
                    .iter()
                    .filter(|(_, result)| *result != CycleResult::Skipped);
                let members: Vec<Str> = tried.map(|(pod, _)| pod.uid.clone()).collect();
                let mut nominated = BTreeMap::from_iter(self.instances[at].kept_free());
                nominated.retain(|uid, _| members.contains(uid));
                Some(Unplaced::Group(GroupPlan { members, nominated }))
            }
            _ => None,
        };
        let tried = outcome.is_attempt();
        if tried {
            self.print_line(|| format!("tried: {outcome:?}"));
        }
        self.after_input(at, failed.as_ref())?;
        self.tally.attempts += u64::from(tried);
        Ok(tried)
    }

    // --- configurations ------------------------------------------------------------------------------------

    /// Applies the configuration of the setup to every scheduler without a parked cycle.
    pub(super) fn take_over_all(&mut self) -> Result<(), Violation> {
        for at in self.all() {
            self.take_over(at)?;
        }
        Ok(())
    }

    fn take_over(&mut self, at: usize) -> Result<(), Violation> {
        let (wanted, now) = (self.setup.configuration, self.now);
        if self.instances[at].configuration == wanted {
            return Ok(());
        }
        let new = self.subject.configuration(wanted);
        let registry = &self.subject.registry;
        let instance = &mut self.instances[at];
        match instance.scheduler.reconfigure(&new, registry, now) {
            Ok(_) => instance.configuration = wanted,
            Err(NotReconfigured::Busy) => return Ok(()),
            Err(NotReconfigured::Invalid(errors)) => {
                let text = format!("configuration {wanted} is wrong: {errors}");
                return Err(Violation::InconsistentState(text));
            }
        }
        let number = instance.number;
        self.tally.configurations += 1;
        self.print_line(|| format!("scheduler {number} takes over configuration {wanted}"));
        self.note_quotas(at, false)?;
        self.after_input(at, None)
    }

    // --- restarts and fail-overs ---------------------------------------------------------------------------

    /// Replaces an exited scheduler with a new one. `fate` determines the results of its calls.
    fn replace(
        &mut self,
        at: usize,
        role: Role,
        mut fate: impl FnMut(usize) -> u64,
        backwards: bool,
    ) -> Result<(), Violation> {
        let new = Instance::start(&mut self.setup, role, self.now)?;
        let dead = std::mem::replace(&mut self.instances[at], new);
        self.tally.placements += dead.checker.decisions();
        // No scheduler receives the answers of executed calls.
        let running = dead.calls.into_iter().filter(|call| call.answer.is_none());
        for (n, RunningCall { call, .. }) in running.enumerate() {
            match fate(n) {
                0 => {}
                1 => {
                    // No scheduler receives the answer; the next one sees the result.
                    let _ = self.carry_out(&call, false)?;
                }
                _ => self.orphans.push(call),
            }
        }
        self.list_all(at, backwards)
    }

    /// The leader exits, and another scheduler replaces it.
    pub(super) fn restart(&mut self, fate: u64) -> Result<(), Violation> {
        self.tally.restarts += 1;
        let of_call = |n: usize| fate >> (2 * (n % 32)) & 3;
        self.replace(LEADER, Role::Leads, of_call, fate & 1 == 1)
    }

    /// The scheduler on standby begins to lead; the former leader does not know yet.
    pub(super) fn fail_over(&mut self) -> Result<(), Violation> {
        if self.instances.get(OTHER).map(|other| other.role) != Some(Role::Standby) {
            return Ok(());
        }
        self.instances.swap(LEADER, OTHER);
        self.instances[LEADER].role = Role::Leads;
        self.instances[OTHER].role = Role::Deposed(self.now);
        self.tally.failovers += 1;
        // The new leader cannot revert a nomination or report of the former one that it has not received yet.
        if self.instances[LEADER]
            .watches
            .undelivered(&self.world, Kind::Pod)
            > 0
        {
            for pod in self.world.pods().values() {
                if !pod.status.nominated_node_name.is_empty() {
                    self.foreign.nomination_written(pod.uid(), true);
                }
                if pod
                    .condition("PodScheduled")
                    .is_some_and(|c| *c.reason == *NOT_READY)
                {
                    self.foreign.condition_written(pod.uid(), true);
                }
            }
        }
        // Run the requested work of the new leader.
        self.tick(LEADER)
    }

    /// A former leader notices the new leader and exits. Another scheduler starts on standby.
    pub(super) fn step_down(&mut self) -> Result<(), Violation> {
        match self.instances.get(OTHER).map(|other| other.role) {
            Some(Role::Deposed(_)) => self.replace(OTHER, Role::Standby, |_| 2, false),
            _ => Ok(()),
        }
    }
}
