//! Binding: by an extender (F-42, C-43), or by the Bind plugins (F-18).
//!
//! The number of concurrent bindings by extenders is limited. The others wait for their turn, so that the timeout of
//! each request begins when it is sent. While bindings wait, no further pod is tried.

use super::{BindingStage, Bindings};
use crate::core::{Answered, Core, PointRun, Ran, Waiter};
use crate::placement::stage_failure;
use berth_framework::job;
use berth_framework::stage::{Step, Wait, WaitOn, WakeReason};
use berth_framework::{Code, Status};
use berth_profile::Point;
use berth_telemetry::LogLine;
use std::collections::VecDeque;

/// The bindings by extenders.
#[derive(Debug)]
pub(super) struct Binders {
    /// The maximum number of concurrent bindings by extenders.
    max: usize,
    /// The number of them.
    asked: usize,
    /// The bindings that wait for their turn, at most one per placed pod.
    waiting: VecDeque<u64>,
}

impl Binders {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            asked: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Returns whether a further binding would have to wait for its turn.
    pub(super) fn is_saturated(&self) -> bool {
        self.asked >= self.max
    }
}

impl Bindings {
    /// The pod is prepared and ready to be bound.
    pub(super) fn start_bind(&mut self, core: &mut Core, id: u64) {
        self.bind_by_extender(core, id, 0);
    }

    // --- extenders -----------------------------------------------------------------------------------------

    /// Starts the first binding extender from `from` on that is interested in the pod. If there is none, the Bind
    /// plugins bind the pod.
    fn bind_by_extender(&mut self, core: &mut Core, id: u64, from: usize) {
        let Some(binding) = self.by_id.get_mut(&id) else {
            return;
        };
        let extenders = binding.attempt.extenders.clone();
        let pod = &binding.attempt.pod.pod;
        let Some((at, extender)) = extenders.next(from, pod, |spec| spec.binds) else {
            binding.stage = BindingStage::Bind(PointRun::begin(&core.clock, Point::Bind.as_str()));
            self.run_bind(core, id, None);
            return;
        };
        if self.binders.is_saturated() {
            binding.stage = BindingStage::Turn { at };
            self.binders.waiting.push_back(id);
            return;
        }
        self.binders.asked += 1;
        let answer = extender.bind(&binding.attempt.pod_ref(), &binding.placed.node);
        let job = core.outbound.start(job::of(answer));
        binding.stage = BindingStage::Extender { at };
        let wait = Wait {
            on: WaitOn::Job(job),
            deadline: core.clock.now() + extender.spec().timeout,
        };
        core.waits.add(Waiter::Bind(id), wait);
    }

    /// An extender has answered or failed.
    fn extender_answered(&mut self, core: &mut Core, id: u64, at: usize, reason: WakeReason) {
        self.binders.asked = self.binders.asked.saturating_sub(1);
        self.take_answer(core, id, at, reason);
        while !self.binders.is_saturated()
            && let Some(next) = self.binders.waiting.pop_front()
        {
            if let Some(BindingStage::Turn { at }) = self.by_id.get(&next).map(|b| &b.stage) {
                let at = *at;
                self.bind_by_extender(core, next, at);
            }
        }
    }

    fn take_answer(&mut self, core: &mut Core, id: u64, at: usize, reason: WakeReason) {
        let binding = self.by_id.get(&id);
        let extender = binding.and_then(|binding| binding.attempt.extenders.get(at).cloned());
        let Some(extender) = extender else {
            return;
        };
        let spec = extender.spec();
        match spec.answer::<()>(reason.into_value()) {
            Ok(()) => self.bound(core, id),
            Err(error) if spec.ignorable => {
                let line = LogLine::info(spec.skipped(&error));
                core.outbound.log.push(match self.by_id.get(&id) {
                    Some(binding) => line.with("pod", &*binding.placed.pod.pod),
                    None => line,
                });
                self.bind_by_extender(core, id, at + 1);
            }
            Err(error) => self.fail(core, id, &Status::error(error.to_string())),
        }
    }

    /// Checks the number of bindings by extenders, and that every waiting binding is in line for its turn.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(super) fn check_binders(&self) -> Result<(), String> {
        let Binders { asked, waiting, .. } = &self.binders;
        let mut with_extenders = 0;
        for (id, binding) in &self.by_id {
            match binding.stage {
                BindingStage::Extender { .. } => with_extenders += 1,
                BindingStage::Turn { .. } if !waiting.contains(id) => {
                    return Err(format!("binding {id} waits for a turn that never comes"));
                }
                _ => {}
            }
        }
        if with_extenders != *asked {
            return Err(format!(
                "{with_extenders} bindings are with extenders, {asked} are noted"
            ));
        }
        if !waiting.is_empty() && !self.binders.is_saturated() {
            return Err("bindings wait for their turn although no other has it".to_owned());
        }
        Ok(())
    }

    // --- Bind plugins --------------------------------------------------------------------------------------

    /// The wait of the Bind plugin, or of the extender that binds, has ended.
    pub(crate) fn resume_bind(&mut self, core: &mut Core, id: u64, reason: WakeReason) {
        match self.by_id.get(&id).map(|binding| &binding.stage) {
            Some(BindingStage::Bind(_)) => self.run_bind(core, id, Some(reason)),
            Some(BindingStage::Extender { at }) => {
                let at = *at;
                self.extender_answered(core, id, at, reason);
            }
            _ => {}
        }
    }

    /// Runs the Bind plugins, starting with the plugin whose wait has ended, if any.
    fn run_bind(&mut self, core: &mut Core, id: u64, reason: Option<WakeReason>) {
        let Some(binding) = self.by_id.get_mut(&id) else {
            return;
        };
        let (attempt, placed) = (&mut binding.attempt, &binding.placed);
        let BindingStage::Bind(run) = &mut binding.stage else {
            return;
        };
        let profile = attempt.profile.clone();
        let ran = run.go(
            core,
            attempt,
            &profile.bind,
            reason,
            |core, attempt, plugin, wake| {
                core.stage(attempt, |cx, state| {
                    plugin.bind(cx, state, &placed.pod, &placed.node, wake)
                })
            },
            |member, step| match step {
                Step::Wait(wait) => Answered::Wait(wait),
                Step::Done(status) if status.is_skip() => Answered::Next,
                Step::Done(status) if status.is_success() => Answered::End(status),
                Step::Done(status) => Answered::End(stage_failure("Bind", &member.name, &status)),
            },
        );
        let status = match ran {
            Ran::Waits(wait) => {
                core.waits.add(Waiter::Bind(id), wait);
                return;
            }
            Ran::Ended(status) => status,
            // Every plugin has skipped the pod.
            Ran::Through => Status::skip(),
        };
        run.end(&core.clock, &mut core.metrics, attempt, status.code());
        if !status.is_success() {
            core.outbound.log.v(1, "Failed to bind pod", |line| {
                let line = line.with("pod", &*placed.pod.pod);
                line.with("err", status.message())
            });
        }
        match status.code() {
            Code::Success => self.bound(core, id),
            Code::Skip => {
                let status = Status::error("no Bind plugin has bound the pod");
                self.fail(core, id, &status);
            }
            _ => self.fail(core, id, &status),
        }
    }
}
