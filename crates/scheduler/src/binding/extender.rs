//! Binding by an extender in place of the Bind plugins (F-42, C-43).

use super::Stage;
use crate::core::{LogLevel, Scheduler, Waiter};
use berth_api::Time;
use berth_framework::Status;
use berth_framework::extender::job;
use berth_framework::stage::{Outbox, Wait, WaitOn, Wake};

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
            self.run_bind(id, 0, None, now);
            return;
        };
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
    pub(super) fn extender_has_bound(&mut self, id: u64, at: usize, wake: Wake, now: Time) {
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
}
