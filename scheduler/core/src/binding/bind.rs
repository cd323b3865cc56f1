//! Binding: by an extender (F-42, C-43), or by the Bind plugins (F-18).
//!
//! The number of concurrent bindings by extenders is limited. The others wait for their turn, so that the timeout of
//! each request begins when it is sent. While bindings wait, no further pod is tried.

use super::{BindingEnd, BindingStage, Bindings};
use crate::core::{Answered, Core, Framework, PointRun, Ran, Waiter, Waits};
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
    // --- extenders -----------------------------------------------------------------------------------------

    /// Starts the first binding extender from `from` on that is interested in the pod. If there is none, the Bind
    /// plugins bind the pod.
    pub(super) fn bind_by_extender(
        &mut self,
        framework: &mut Framework,
        waits: &mut Waits,
        id: u64,
        from: usize,
    ) -> BindingEnd {
        let Some(binding) = self.by_id.get_mut(&id) else {
            return BindingEnd::Open;
        };
        let extenders = binding.attempt.extenders.clone();
        let pod = &binding.attempt.pod.pod;
        let Some((at, extender)) = extenders.next(from, pod, |spec| spec.binds) else {
            let run = PointRun::begin(&framework.clock, Point::Bind.as_str());
            binding.stage = BindingStage::Bind(run);
            return self.run_bind(framework, waits, id, None);
        };
        if self.binders.is_saturated() {
            binding.stage = BindingStage::Turn { at };
            self.binders.waiting.push_back(id);
            return BindingEnd::Open;
        }
        self.binders.asked += 1;
        let answer = extender.bind(&binding.attempt.pod_ref(), &binding.placed.node);
        let job = framework.outbound.start(job::of(answer));
        binding.stage = BindingStage::Extender { at };
        let wait = Wait {
            on: WaitOn::Job(job),
            deadline: framework.clock.now() + extender.spec().timeout,
        };
        waits.add(Waiter::Bind(id), wait);
        BindingEnd::Open
    }

    /// The extender at this place has answered or failed.
    fn take_answer(
        &mut self,
        framework: &mut Framework,
        waits: &mut Waits,
        id: u64,
        at: usize,
        reason: WakeReason,
    ) -> BindingEnd {
        self.binders.asked = self.binders.asked.saturating_sub(1);
        let binding = self.by_id.get(&id);
        let extender = binding.and_then(|binding| binding.attempt.extenders.get(at).cloned());
        let Some(extender) = extender else {
            return BindingEnd::Open;
        };
        let spec = extender.spec();
        match spec.answer::<()>(reason.into_value()) {
            Ok(()) => BindingEnd::Bound,
            Err(error) if spec.ignorable => {
                let line = LogLine::info(spec.skipped(&error));
                framework.outbound.log.push(match self.by_id.get(&id) {
                    Some(binding) => line.with("pod", &*binding.placed.pod.pod),
                    None => line,
                });
                self.bind_by_extender(framework, waits, id, at + 1)
            }
            Err(error) => BindingEnd::Failed(Status::error(error.to_string())),
        }
    }

    /// The next binding whose turn it is, with the place of its extender.
    fn next_turn(&mut self) -> Option<(u64, usize)> {
        while !self.binders.is_saturated()
            && let Some(next) = self.binders.waiting.pop_front()
        {
            if let Some(BindingStage::Turn { at }) = self.by_id.get(&next).map(|b| &b.stage) {
                return Some((next, *at));
            }
        }
        None
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
        let stage = self.by_id.get(&id).map(|binding| &binding.stage);
        let (framework, waits) = (&mut core.framework, &mut core.waits);
        match stage {
            Some(BindingStage::Bind(_)) => {
                let end = self.run_bind(framework, waits, id, Some(reason));
                self.apply(core, id, end);
            }
            Some(BindingStage::Extender { at }) => {
                let at = *at;
                let end = self.take_answer(framework, waits, id, at, reason);
                self.apply(core, id, end);
                while let Some((next, at)) = self.next_turn() {
                    let (framework, waits) = (&mut core.framework, &mut core.waits);
                    let end = self.bind_by_extender(framework, waits, next, at);
                    self.apply(core, next, end);
                }
            }
            _ => {}
        }
    }

    /// Runs the Bind plugins, starting with the plugin whose wait has ended, if any.
    fn run_bind(
        &mut self,
        framework: &mut Framework,
        waits: &mut Waits,
        id: u64,
        reason: Option<WakeReason>,
    ) -> BindingEnd {
        let Some(binding) = self.by_id.get_mut(&id) else {
            return BindingEnd::Open;
        };
        let (attempt, placed) = (&mut binding.attempt, &binding.placed);
        let BindingStage::Bind(run) = &mut binding.stage else {
            return BindingEnd::Open;
        };
        let profile = attempt.profile.clone();
        let ran = run.go(
            framework,
            attempt,
            &profile.bind,
            reason,
            |framework, attempt, plugin, wake| {
                framework.stage(attempt, |cx, state| {
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
                waits.add(Waiter::Bind(id), wait);
                return BindingEnd::Open;
            }
            Ran::Ended(status) => status,
            // Every plugin has skipped the pod.
            Ran::Through => Status::skip(),
        };
        run.end(
            &framework.clock,
            &mut framework.metrics,
            attempt,
            status.code(),
        );
        if !status.is_success() {
            framework.outbound.log.v(1, "Failed to bind pod", |line| {
                let line = line.with("pod", &*placed.pod.pod);
                line.with("err", status.message())
            });
        }
        match status.code() {
            Code::Success => BindingEnd::Bound,
            Code::Skip => BindingEnd::Failed(Status::error("no Bind plugin has bound the pod")),
            _ => BindingEnd::Failed(status),
        }
    }
}
