//! Waiting for Permit plugins that hold a pod (F-14, F-15).

use super::{BindingEnd, BindingStage, Bindings, WaitingPlugin, take_waiting};
use crate::attempt::AssumedPod;
use crate::core::{Core, Framework, Hold, PERMIT_WAIT_MAX, UnboundPods, WaitId, Waiter, Waits};
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
    waits: &mut Waits,
    unbound: &mut UnboundPods,
    id: u64,
    placed: &AssumedPod,
    holds: SmallVec<[Hold; 2]>,
    again: SmallVec<[PermitWait; 2]>,
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
        framework: &mut Framework,
        waits: &mut Waits,
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
        let Some(since) = framework.unbound.held_since(uid, &member.name) else {
            return;
        };
        let attempt = &mut binding.attempt;
        let step = run.ask(
            framework,
            attempt,
            &member.name,
            Some(reason),
            |framework, attempt, wake| {
                framework.stage(attempt, |cx, state| {
                    let (pod, node) = (&placed.pod, &placed.node);
                    member.plugin.permit(cx, state, pod, node, wake)
                })
            },
        );
        match step {
            PermitStep::Wait(wait) => {
                let wait = waits.add(Waiter::Permit { binding: id, at }, wait);
                if let BindingStage::Permit { waiting, .. } = &mut binding.stage {
                    waiting.push(WaitingPlugin { run, wait });
                }
            }
            PermitStep::Hold(timeout) => {
                // The limit counts from the first hold, so that a plugin cannot extend it repeatedly.
                let until = (framework.clock.now() + timeout).min(since + PERMIT_WAIT_MAX);
                if let Some(deadline) = framework.unbound.hold_until(uid, &member.name, until) {
                    self.set_timer(waits, id, deadline);
                }
            }
            PermitStep::Done(status) if status.is_success() => {
                framework.unbound.allow(uid, &member.name);
            }
            PermitStep::Done(status) => {
                let status = stage_failure("Permit", &member.name, &status);
                framework.unbound.decide(uid, status);
            }
        }
    }

    /// Continues the bindings of the held or prepared pods about which a plugin has decided. Returns whether there were
    /// any.
    pub(crate) fn take_decided(&mut self, core: &mut Core) -> bool {
        let decided = core.framework.unbound.take_decided();
        for uid in &decided {
            let Some(id) = self.of_pod.get(uid).copied() else {
                continue;
            };
            match self.decided(&mut core.framework, &mut core.waits, uid, id) {
                Some(end) => self.apply(core, id, end),
                None => self.go_on(core, id),
            }
        }
        !decided.is_empty()
    }

    /// A pod is deleted: if Permit plugins hold it, it is rejected. Returns the pod as counted on its node.
    pub(crate) fn reject_deleted(&self, unbound: &mut UnboundPods, uid: &str) -> Option<Arc<Pod>> {
        let placed = self.pod(uid)?;
        let is_held = unbound.reject(uid, "", "removed");
        is_held.then(|| placed.pod.clone())
    }

    /// A decision was made about a pod that is held or being prepared. Returns `None` if the plugins allow it.
    fn decided(
        &self,
        framework: &mut Framework,
        waits: &mut Waits,
        uid: &Str,
        id: u64,
    ) -> Option<BindingEnd> {
        let Some((verdict, since)) = framework.unbound.take_verdict(uid) else {
            let cause = framework.unbound.stopped(uid);
            let end = cause.map(|cause| BindingEnd::Stopped(Status::error(cause)));
            return Some(end.unwrap_or(BindingEnd::Open));
        };
        let waited = framework.clock.now().since(since).as_secs_f64();
        let code = [verdict.code().as_str()];
        framework
            .metrics
            .observe(Metric::PermitWaitDuration, &code, waited);
        if verdict.is_success() {
            self.end_waits(waits, id);
            None
        } else if verdict.is_rejected() {
            Some(BindingEnd::Failed(verdict))
        } else {
            let text = format!("waiting on permit for pod: {}", verdict.message());
            Some(BindingEnd::Stopped(Status::error(text)))
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
