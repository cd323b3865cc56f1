//! From a chosen node to the binding: assume, Reserve, Permit (section 5.6).

use super::{Attempt, CycleResult, Failure, ParkedAt, Placed, Resumed, stage_failure};
use crate::binding::{Holding, PERMIT_WAIT_MAX, PermitWait};
use crate::core::{LogLevel, Scheduler};
use crate::evaluator::{Evaluation, Evaluator, FitError};
use crate::profile::Point;
use berth_api::{Duration, Str, Time};
use berth_framework::plugin::{DryRun, Nominating, PermitStep};
use berth_framework::stage::{Answer, StageContext, Step, call_plugin};
use berth_framework::{Code, Status};
use smallvec::SmallVec;

impl Scheduler {
    /// Gives the pod its node, in memory, and goes on. `None` when the cycle was parked.
    pub(super) fn place_on(
        &mut self,
        attempt: Attempt,
        node: Str,
        now: Time,
    ) -> Option<CycleResult> {
        let pod = match self.cache.assume(&attempt.pod.pod, &node) {
            Ok(pod) => pod,
            Err(error) => {
                let status = Status::error(error.to_string());
                let failure = Failure::of_status(&status, Nominating::Set(Str::default()));
                return Some(self.fail(attempt, failure, now));
            }
        };
        let uid = pod.pod.uid();
        let promised = self.queue.nominator().node_of(uid);
        let is_elsewhere = promised.is_some_and(|promised| *promised != node);
        self.queue.delete_nominated_pod(uid);
        if is_elsewhere {
            self.promise_ended(&attempt.pod.pod, now);
        }
        self.run_reserve(attempt, Placed { pod, node }, None, now)
    }

    /// Runs Reserve, from the plugin that waited on if the cycle was parked (F-13).
    fn run_reserve(
        &mut self,
        mut attempt: Attempt,
        placed: Placed,
        resumed: Option<Resumed>,
        now: Time,
    ) -> Option<CycleResult> {
        let profile = attempt.profile.clone();
        let (at, mut timing, mut wake) = match resumed {
            Some(resumed) => (resumed.plugin, resumed.timing, Some(resumed.wake)),
            None => (0, self.timing(now), None),
        };
        let mut failed = None;
        for (i, member) in profile.reserve.iter().enumerate().skip(at) {
            if wake.is_none() {
                timing.call = self.call_begins(attempt.is_sampled, now);
            }
            let effects = self.io.effects(&profile.name, now);
            let mut effects = effects.in_attempt_of(placed.pod.pod.uid());
            let mut cx = StageContext {
                now,
                cluster: self.cache.cluster(),
                features: &self.features,
                outbox: &mut effects,
            };
            let state = &mut attempt.evaluation.state;
            let plugin = &member.plugin;
            let step = call_plugin(wake.take(), |wake| {
                plugin.reserve(&mut cx, state, &placed.pod, &placed.node, wake)
            });
            let called = (member.name.as_str(), Point::Reserve.as_str());
            if let Step::Done(status) = &step {
                self.call_ended(timing.call, called, status.code(), now);
            }
            match step {
                Step::Wait(wait) => {
                    let generation = self.cache.cluster().nodes.generation();
                    let at = ParkedAt::Reserve {
                        plugin: i,
                        timing,
                        placed,
                        generation,
                    };
                    self.park(attempt, at, wait);
                    return None;
                }
                Step::Done(status) if status.is_success() => {}
                Step::Done(status) => {
                    failed = Some(stage_failure("Reserve", &member.name, &status));
                    break;
                }
            }
        }
        let code = failed.as_ref().map_or(Code::Success, Status::code);
        self.point_ended("Reserve", code, &profile, (timing.point, now));
        match failed {
            Some(status) => Some(self.give_up_placement(attempt, &placed, status, now)),
            None => self.run_permit(attempt, placed, now),
        }
    }

    /// The wait of a Reserve plugin has ended. If the node changed meanwhile, the pod may not fit any more.
    pub(super) fn resume_reserve(
        &mut self,
        mut attempt: Attempt,
        placed: Placed,
        generation: u64,
        resumed: Resumed,
        now: Time,
    ) {
        if self.deleting(&attempt).is_some() {
            self.take_back_placement(&mut attempt, &placed, now);
            self.drops_deleting(&attempt);
            return;
        }
        if let Some(mut status) = self.no_longer_fits(&mut attempt, &placed, generation, now) {
            if status.is_rejected() {
                // Nobody has asked the other nodes: this is no verdict on the pod, which is tried again soon.
                status = Status::error(format!(
                    "node {:?} does not fit any more: {}",
                    placed.node.as_str(),
                    status.message()
                ));
            }
            self.give_up_placement(attempt, &placed, status, now);
            return;
        }
        self.run_reserve(attempt, placed, Some(resumed), now);
    }

    /// Whether a node that changed since `generation` turns the pod down now; its filters are asked anew, as if the
    /// pod were not there yet.
    fn no_longer_fits(
        &mut self,
        attempt: &mut Attempt,
        placed: &Placed,
        generation: u64,
        now: Time,
    ) -> Option<Status> {
        let uid = placed.pod.pod.uid();
        let stored = self.cache.stored(uid);
        if !self.cache.is_assumed(uid) || stored.is_none() {
            return Some(Status::error(
                "the pod is gone, or was bound by somebody else",
            ));
        }
        let Some(view) = self.cache.cluster().nodes.node(&placed.node) else {
            return Some(Status::error(format!(
                "node {:?} is gone",
                placed.node.as_str()
            )));
        };
        let slot = view.slot();
        if self.cache.cluster().nodes.changed_at(slot) <= generation {
            return None;
        }
        let mut evaluation = Evaluation::default();
        let mut evaluator = Evaluator {
            profile: &attempt.profile,
            features: &self.features,
            now,
            cluster: self.cache.cluster_mut(),
            nominated: self.queue.nominator(),
            pod: &attempt.pod,
            evaluation: &mut evaluation,
            stopwatch: &*self.stopwatch,
        };
        evaluator.cluster.nodes.begin();
        evaluator
            .cluster
            .nodes
            .remove_pod_at(slot, placed.pod.pod.uid());
        let status = match evaluator.pre_filter() {
            Ok(possible) => match possible.nodes {
                Some(names) if names.binary_search(&placed.node).is_err() => {
                    Status::unresolvable("node(s) didn't satisfy the PreFilter plugins any more")
                }
                _ => evaluator.filter(slot),
            },
            Err((status, _)) => status,
        };
        evaluator.cluster.nodes.rollback();
        (!status.is_success()).then_some(status)
    }

    /// Asks the Permit plugins (F-14), then hands the pod over to its binding.
    fn run_permit(
        &mut self,
        mut attempt: Attempt,
        placed: Placed,
        now: Time,
    ) -> Option<CycleResult> {
        let profile = attempt.profile.clone();
        let began = self.moment(now);
        let mut holding: SmallVec<[Holding; 2]> = SmallVec::new();
        let mut waiting: SmallVec<[PermitWait; 2]> = SmallVec::new();
        let mut failed = None;
        for (at, member) in profile.permit.iter().enumerate() {
            let call = self.call_begins(attempt.is_sampled, now);
            let effects = self.io.effects(&profile.name, now);
            let mut effects = effects.in_attempt_of(placed.pod.pod.uid());
            let mut cx = StageContext {
                now,
                cluster: self.cache.cluster(),
                features: &self.features,
                outbox: &mut effects,
            };
            let state = &mut attempt.evaluation.state;
            let (pod, node) = (&placed.pod, &placed.node);
            let step = call_plugin(None, |wake| {
                member.plugin.permit(&mut cx, state, pod, node, wake)
            });
            if !matches!(step, PermitStep::Wait(_)) {
                let called = (member.name.as_str(), Point::Permit.as_str());
                self.call_ended(call, called, step.code(), now);
            }
            let holds = |timeout: Duration| Holding {
                plugin: member.name.clone(),
                until: now + timeout.min(PERMIT_WAIT_MAX),
            };
            match step {
                PermitStep::Hold(timeout) => holding.push(holds(timeout)),
                PermitStep::Wait(wait) => {
                    holding.push(holds(PERMIT_WAIT_MAX));
                    waiting.push(PermitWait {
                        at,
                        wait,
                        called: call,
                    });
                }
                PermitStep::Done(status) if status.is_success() => {}
                PermitStep::Done(status) => {
                    failed = Some(stage_failure("Permit", &member.name, &status));
                    break;
                }
            }
        }
        let code = match &failed {
            Some(status) => status.code(),
            None if holding.is_empty() => Code::Success,
            None => Code::Wait,
        };
        self.point_ended("Permit", code, &profile, (began, now));
        if let Some(status) = failed {
            return Some(self.give_up_placement(attempt, &placed, status, now));
        }
        self.activate_wanted(placed.pod.pod.uid(), now);
        let node = placed.node.clone();
        self.start_binding(attempt, placed, (holding, waiting), now);
        Some(CycleResult::Placed { node })
    }

    /// An attempt of the pod with that UID has gone well so far: makes the pods active that its plugins asked for (F-23).
    pub(crate) fn activate_wanted(&mut self, attempt_of: &Str, now: Time) {
        let wanted = self.io.take_activations(attempt_of);
        if wanted.is_empty() {
            return;
        }
        let pods: Vec<_> = wanted
            .iter()
            .filter_map(|(namespace, name)| self.cache.stored_by_name(namespace, name))
            .filter_map(|pod| self.cache.effective(pod.uid()))
            .collect();
        let cx = berth_framework::plugin::Context {
            now,
            cluster: self.cache.cluster(),
            features: &self.features,
        };
        self.queue.activate(&cx, pods);
    }

    /// Takes back what a placement has booked: Unreserve of all plugins in reverse, then the assumption. Returns the
    /// pod as it was counted.
    pub(crate) fn undo_placement(
        &mut self,
        attempt: &mut Attempt,
        placed: &Placed,
        now: Time,
    ) -> Option<std::sync::Arc<berth_api::Pod>> {
        let profile = attempt.profile.clone();
        let began = self.moment(now);
        for member in profile.reserve.iter().rev() {
            let call = self.call_begins(attempt.is_sampled, now);
            let effects = self.io.effects(&profile.name, now);
            let mut effects = effects.in_attempt_of(placed.pod.pod.uid());
            let mut cx = StageContext {
                now,
                cluster: self.cache.cluster(),
                features: &self.features,
                outbox: &mut effects,
            };
            let state = &mut attempt.evaluation.state;
            member
                .plugin
                .unreserve(&mut cx, state, &placed.pod, &placed.node);
            let called = (member.name.as_str(), "Unreserve");
            self.call_ended(call, called, Code::Success, now);
        }
        self.point_ended("Unreserve", Code::Success, &profile, (began, now));
        match self.cache.forget(placed.pod.pod.uid(), &placed.node) {
            Ok(pod) => pod,
            Err(error) => {
                // Somebody else has bound the pod meanwhile: another scheduler, or this one before an answer was lost.
                let stored = self.cache.stored(placed.pod.pod.uid());
                let level = match stored.is_some_and(|pod| pod.is_assigned()) {
                    true => LogLevel::Info,
                    false => LogLevel::Error,
                };
                self.io.log(level, format!("ForgetPod failed: {error}"));
                None
            }
        }
    }

    fn take_back_placement(&mut self, attempt: &mut Attempt, placed: &Placed, now: Time) {
        let freed = self.undo_placement(attempt, placed, now);
        // Whoever was told no while the cycle was parked may have been told so because of this pod.
        if let Some(pod) = freed.filter(|_| attempt.was_parked) {
            self.placement_freed(&pod, None, now);
        }
    }

    /// A stage of the cycle turned the placed pod down, or broke (C-36 to C-38).
    fn give_up_placement(
        &mut self,
        mut attempt: Attempt,
        placed: &Placed,
        status: Status,
        now: Time,
    ) -> CycleResult {
        self.take_back_placement(&mut attempt, placed, now);
        let failure = self.failure_of_stage(placed, &status);
        self.fail(attempt, failure, now)
    }

    /// The failure of a pod that had a node.
    pub(crate) fn failure_of_stage(&self, placed: &Placed, status: &Status) -> Failure {
        let cleared = Nominating::Set(Str::default());
        if !status.is_rejected() {
            return Failure::of_status(status, cleared);
        }
        let node = self.cache.cluster().nodes.slot(&placed.node);
        Failure::unfit(Box::new(FitError::of_one(node, status.clone())), cleared)
    }
}
