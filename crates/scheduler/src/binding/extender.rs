//! Binding by an extender in place of the Bind plugins (F-42, C-43).
//!
//! A limited number of bindings is with extenders at once. The others wait for their turn, so that the time of each
//! question begins when it is asked, and meanwhile no further pod is tried.

use super::Stage;
use crate::core::{LogLevel, Scheduler, Waiter};
use berth_api::Time;
use berth_framework::Status;
use berth_framework::extender::job;
use berth_framework::stage::{Outbox, Wait, WaitOn, WakeReason};
use std::collections::VecDeque;

/// The bindings that extenders carry out.
#[derive(Debug)]
pub(crate) struct Binders {
    /// How many may be with them at once.
    max: usize,
    /// How many are.
    asked: usize,
    /// Those that wait for their turn. They have been placed, so there are never more than pods.
    waiting: VecDeque<u64>,
}

impl Binders {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            asked: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Whether a further binding would have to wait for its turn.
    pub(crate) fn is_saturated(&self) -> bool {
        self.asked >= self.max
    }
}

impl Scheduler {
    /// Lets the first extender from `from` on bind that does so and is interested in the pod. Without one the Bind
    /// plugins do.
    pub(super) fn bind_by_extender(&mut self, id: u64, from: usize, now: Time) {
        let Some(binding) = self.bindings.get_mut(&id) else {
            return;
        };
        let extenders = self.io.extenders.clone();
        let pod = &binding.attempt.pod.pod;
        let Some((at, extender)) = extenders.next(from, pod, |spec| spec.binds) else {
            self.bind_by_plugins(id, now);
            return;
        };
        if self.binders.is_saturated() {
            binding.stage = Stage::Turn { at };
            self.binders.waiting.push_back(id);
            return;
        }
        self.binders.asked += 1;
        let spec = extender.spec();
        let answer = extender.bind(&binding.attempt.pod_ref(), &binding.placed.node);
        let job = self.io.effects(&spec.name, now).job(job(answer));
        binding.stage = Stage::Extender { at };
        let wait = Wait {
            on: WaitOn::Job(job),
            deadline: now + spec.timeout,
        };
        self.waits.add(Waiter::Bind(id), wait);
    }

    /// The extender that binds has answered, or failed to.
    pub(super) fn extender_has_bound(&mut self, id: u64, at: usize, wake: WakeReason, now: Time) {
        self.binders.asked = self.binders.asked.saturating_sub(1);
        self.take_answer(id, at, wake, now);
        // Whoever comes next.
        while !self.binders.is_saturated()
            && let Some(next) = self.binders.waiting.pop_front()
        {
            if let Some(Stage::Turn { at }) = self.bindings.get(&next).map(|b| &b.stage) {
                let at = *at;
                self.bind_by_extender(next, at, now);
            }
        }
    }

    fn take_answer(&mut self, id: u64, at: usize, wake: WakeReason, now: Time) {
        let Some(extender) = self.io.extenders.get(at).cloned() else {
            return;
        };
        let spec = extender.spec();
        match spec.answer::<()>(wake) {
            Ok(()) => self.bound(id, now),
            Err(error) if spec.ignorable => {
                self.io.log(LogLevel::Info, spec.skipped(&error));
                self.bind_by_extender(id, at + 1, now);
            }
            Err(error) => self.fail_binding(id, Status::error(error), now),
        }
    }

    /// Checks that as many bindings are with extenders as is noted, and that none waits for nothing.
    ///
    /// # Errors
    /// What does not agree.
    pub(crate) fn check_binders(&self) -> Result<(), String> {
        let Binders { asked, waiting, .. } = &self.binders;
        let mut with_extenders = 0;
        for (id, binding) in &self.bindings {
            match binding.stage {
                Stage::Extender { .. } => with_extenders += 1,
                Stage::Turn { .. } if !waiting.contains(id) => {
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
            return Err("bindings wait for a turn that nobody has".to_owned());
        }
        Ok(())
    }
}
