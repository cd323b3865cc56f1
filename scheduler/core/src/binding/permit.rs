//! Waiting for Permit plugins that hold a pod (F-14, F-15).

use super::{BindingStage, Bindings, WaitingPlugin, take_waiting};
use crate::attempt::AssumedPod;
use crate::core::{Core, Hold, PERMIT_WAIT_MAX, UnboundPods, WaitId, Waiter, Waits};
use crate::placement::{PermitWait, stage_failure};
use berth_api::{Pod, Str, Time};
use berth_framework::Status;
use berth_framework::plugin::PermitStep;
use berth_framework::stage::{Wait, WaitOn, WakeReason};
use berth_telemetry::metrics::Metric;
use smallvec::SmallVec;
use std::sync::Arc;

/// Holds a pod until each of the plugins allows it.
pub(super) fn hold(
    (waits, unbound): (&mut Waits, &mut UnboundPods),
    id: u64,
    placed: &AssumedPod,
    (holds, again): (SmallVec<[Hold; 2]>, SmallVec<[PermitWait; 2]>),
    now: Time,
) -> BindingStage {
    let deadline = unbound.hold(&placed.pod, &placed.node, holds, now);
    let waiting = again.into_iter().map(|PermitWait { run, wait }| {
        let at = run.at();
        let wait = waits.add(Waiter::Permit { binding: id, at }, wait);
        WaitingPlugin { run, wait }
    });
    let waiting = waiting.collect();
    BindingStage::Permit {
        timer: start_timer(waits, placed.pod.pod.uid(), deadline),
        waiting,
    }
}

fn start_timer(waits: &mut Waits, uid: &Str, deadline: Time) -> WaitId {
    let wait = Wait {
        on: WaitOn::Timer,
        deadline,
    };
    waits.add(Waiter::PermitTimeout(uid.clone()), wait)
}

impl Bindings {
    /// The first deadline of the plugins that hold a pod has passed.
    pub(crate) fn permit_timeout(
        &mut self,
        waits: &mut Waits,
        unbound: &mut UnboundPods,
        uid: &Str,
        now: Time,
    ) {
        if let Some(deadline) = unbound.expire(uid, now)
            && let Some(id) = self.of_pod.get(uid).copied()
        {
            self.set_timer(waits, id, deadline);
        }
    }

    fn set_timer(&mut self, waits: &mut Waits, id: u64, deadline: Time) {
        if let Some(binding) = self.by_id.get_mut(&id)
            && let uid = binding.uid().clone()
            && let BindingStage::Permit { timer, .. } = &mut binding.stage
        {
            waits.end(*timer);
            *timer = start_timer(waits, &uid, deadline);
        }
    }

    /// The wait of a Permit plugin has ended: it is called again if it still holds the pod.
    pub(crate) fn resume_permit(
        &mut self,
        core: &mut Core,
        id: u64,
        at: usize,
        reason: WakeReason,
    ) {
        let Some(binding) = self.by_id.get_mut(&id) else {
            return;
        };
        let BindingStage::Permit { waiting, .. } = &mut binding.stage else {
            return;
        };
        let Some(mut run) = take_waiting(waiting, at) else {
            return;
        };
        let profile = binding.attempt.profile.clone();
        let Some(member) = profile.permit.get(at) else {
            return;
        };
        let placed = binding.placed.clone();
        let uid = placed.pod.pod.uid();
        // Another plugin or a preemption may have decided about the pod during the wait.
        let Some(since) = core.unbound.held_since(uid, &member.name) else {
            return;
        };
        let attempt = &mut binding.attempt;
        let step = run.ask(
            core,
            attempt,
            &member.name,
            Some(reason),
            |core, attempt, wake| {
                core.stage(attempt, |cx, state| {
                    let (pod, node) = (&placed.pod, &placed.node);
                    member.plugin.permit(cx, state, pod, node, wake)
                })
            },
        );
        match step {
            PermitStep::Wait(wait) => {
                let wait = core.waits.add(Waiter::Permit { binding: id, at }, wait);
                if let BindingStage::Permit { waiting, .. } = &mut binding.stage {
                    waiting.push(WaitingPlugin { run, wait });
                }
            }
            PermitStep::Hold(timeout) => {
                // The limit counts from the first hold, so that a plugin cannot extend it repeatedly.
                let until = (core.clock.now() + timeout).min(since + PERMIT_WAIT_MAX);
                if let Some(deadline) = core.unbound.hold_until(uid, &member.name, until) {
                    self.set_timer(&mut core.waits, id, deadline);
                }
            }
            PermitStep::Done(status) if status.is_success() => {
                core.unbound.allow(uid, &member.name);
            }
            PermitStep::Done(status) => {
                let status = stage_failure("Permit", &member.name, &status);
                core.unbound.decide(uid, status);
            }
        }
    }

    /// Continues the bindings of the held or prepared pods about which a plugin has decided. Returns whether there were
    /// any.
    pub(crate) fn take_decided(&mut self, core: &mut Core) -> bool {
        let decided = core.unbound.take_decided();
        for uid in &decided {
            self.decided(core, uid);
        }
        !decided.is_empty()
    }

    /// A pod is deleted: if Permit plugins hold it, it is rejected. Returns the pod as counted on its node.
    pub(crate) fn reject_deleted(&self, unbound: &mut UnboundPods, uid: &str) -> Option<Arc<Pod>> {
        let placed = self.pod(uid)?;
        let is_held = unbound.reject(uid, "", "removed");
        is_held.then(|| placed.pod.clone())
    }

    /// A decision was made about a pod that is held or being prepared.
    fn decided(&mut self, core: &mut Core, uid: &Str) {
        let Some(id) = self.of_pod.get(uid).copied() else {
            return;
        };
        if let Some((verdict, since)) = core.unbound.take_verdict(uid) {
            let waited = core.clock.now().since(since).as_secs_f64();
            let code = [verdict.code().as_str()];
            core.metrics
                .observe(Metric::PermitWaitDuration, &code, waited);
            if verdict.is_success() {
                self.end_waits(&mut core.waits, id);
                self.start_pre_bind(core, id);
            } else if verdict.is_rejected() {
                self.fail(core, id, &verdict);
            } else {
                let text = format!("waiting on permit for pod: {}", verdict.message());
                self.stop(core, id, &Status::error(text));
            }
        } else if let Some(cause) = core.unbound.stopped(uid) {
            let status = Status::error(cause);
            self.stop(core, id, &status);
        }
    }

    /// The binding has no open wait any more.
    pub(super) fn end_waits(&self, waits: &mut Waits, id: u64) {
        match self.by_id.get(&id).map(|binding| &binding.stage) {
            Some(BindingStage::Permit { timer, waiting }) => {
                waits.end(*timer);
                waiting.iter().for_each(|plugin| {
                    waits.end(plugin.wait);
                });
            }
            Some(BindingStage::PreBind { waiting, .. }) => waiting.iter().for_each(|plugin| {
                waits.end(plugin.wait);
            }),
            _ => {}
        }
    }
}
