//! The binding cycle: from a placed pod to a bound one (section 5.7), or back (5.9).
//!
//! Each binding is a small state machine: it waits for Permit, then for its PreBind plugins group by group, then for
//! its Bind plugin. Thousands go on at once; none holds up the scheduling cycle.

mod extender;
mod permits;
mod pre_bind;

pub(crate) use extender::Binders;
pub(crate) use permits::{Holding, PERMIT_WAIT_MAX, Permits};

use crate::core::{LogLevel, Moment, Scheduler, WaitId, Waiter};
use crate::cycle::{Attempt, Placed, stage_failure};
use crate::metrics::Metric;
use crate::profile::{PluginIds, Point};
use berth_api::{Duration, Str, Time};
use berth_framework::call::{EventKind, PodEvent, PodRef};
use berth_framework::plugin::PermitStep;
use berth_framework::stage::{Answer, StageContext, Step, Wait, WaitOn, WakeReason, call_plugin};
use berth_framework::{ApiCall, Code, Feature, PodInfo, Status};
use smallvec::SmallVec;
use std::sync::Arc;

/// From this many attempts on, all are counted as one.
const ATTEMPTS_TOLD_MAX: u32 = 15;

/// A pod on its way from a node in memory to a node in the API.
pub(crate) struct Binding {
    attempt: Attempt,
    placed: Placed,
    /// PreBind plugins that have nothing to do.
    skip_pre_bind: PluginIds,
    stage: Stage,
    /// When the present extension point began.
    stage_began: Moment,
}

/// Where a binding stands.
enum Stage {
    /// Permit plugins hold the pod.
    Permit {
        /// Ends when the first of them has held it for long enough.
        timer: WaitId,
        /// Those that are called again.
        waiting: SmallVec<[Running; 2]>,
    },
    /// A group of PreBind plugins is at work.
    PreBind {
        /// The groups that have not begun, last first.
        groups: Vec<SmallVec<[usize; 2]>>,
        /// Those of the present group that wait.
        running: SmallVec<[Running; 2]>,
    },
    /// An extender is to bind the pod when it is this binding's turn.
    Turn {
        /// Its place.
        at: usize,
    },
    /// An extender binds the pod.
    Extender {
        /// Its place.
        at: usize,
    },
    /// A Bind plugin is at work.
    Bind {
        /// Its place in the profile.
        at: usize,
        /// When it was called, if that is timed.
        called: Option<Moment>,
    },
}

/// A Permit or PreBind plugin that waits.
struct Running {
    /// Its place in the profile.
    at: usize,
    wait: WaitId,
    /// When it was called, if that is timed.
    called: Option<Moment>,
}

/// A Permit plugin that waits to be called again.
pub(crate) struct PermitWait {
    /// Its place in the profile.
    pub(crate) at: usize,
    pub(crate) wait: Wait,
    /// When it was called, if that is timed.
    pub(crate) called: Option<Moment>,
}

impl Binding {
    /// The pod, with its node.
    pub(crate) fn pod(&self) -> &Arc<PodInfo> {
        &self.placed.pod
    }
}

impl Scheduler {
    /// Starts the binding of a placed pod, which `holding` plugins hold back.
    pub(crate) fn start_binding(
        &mut self,
        attempt: Attempt,
        placed: Placed,
        (holding, waiting): (SmallVec<[Holding; 2]>, SmallVec<[PermitWait; 2]>),
        now: Time,
    ) {
        let uid = placed.pod.pod.uid().clone();
        let id = self.next_binding;
        self.next_binding += 1;
        let mut binding = Box::new(Binding {
            attempt,
            placed,
            skip_pre_bind: PluginIds::default(),
            stage: Stage::Bind {
                at: 0,
                called: None,
            },
            stage_began: self.moment(now),
        });
        self.binding_of.insert(uid.clone(), id);
        let held = !holding.is_empty();
        if held {
            let permits = &mut self.io.permits;
            let deadline = permits.hold(&binding.placed.pod, &binding.placed.node, holding, now);
            let waiting = waiting.into_iter().map(|PermitWait { at, wait, called }| {
                let wait = self.waits.add(Waiter::Permit { binding: id, at }, wait);
                Running { at, wait, called }
            });
            binding.stage = Stage::Permit {
                waiting: waiting.collect(),
                timer: self.permit_timeout(&uid, deadline),
            };
        }
        match self.run_pre_flight(&mut binding, now) {
            Err(status) => {
                self.bindings.insert(id, binding);
                self.fail_binding(id, status, now);
                return;
            }
            Ok(has_work) if has_work || held => self.announce_node(&binding, now),
            Ok(_) => {}
        }
        self.bindings.insert(id, binding);
        if !held {
            self.start_pre_bind(id, now);
        }
    }

    /// Writes the node into the pod's status before a binding that takes time (KEP-5278, C-39).
    fn announce_node(&mut self, binding: &Binding, now: Time) {
        if !self
            .features
            .enabled(Feature::NominatedNodeNameForExpectation)
        {
            return;
        }
        let pod = &binding.attempt.pod.pod;
        if pod.status.nominated_node_name == binding.placed.node {
            return;
        }
        let call = ApiCall::PatchPodStatus {
            pod: PodRef::of(pod),
            condition: None,
            nominated_node: Some(binding.placed.node.clone()),
        };
        self.io.call(call, Duration::ZERO, now);
    }

    // --- waiting for Permit --------------------------------------------------------------------------------

    fn permit_timeout(&mut self, uid: &Str, deadline: Time) -> WaitId {
        let wait = Wait {
            on: WaitOn::Timer,
            deadline,
        };
        self.waits.add(Waiter::PermitTimeout(uid.clone()), wait)
    }

    /// The time has come for a plugin that holds a pod back.
    pub(crate) fn permit_timer(&mut self, uid: &Str, now: Time) {
        if let Some(deadline) = self.io.permits.expire(uid, now) {
            let next = self.permit_timeout(uid, deadline);
            let id = self.binding_of.get(uid);
            if let Some(binding) = id.and_then(|id| self.bindings.get_mut(id))
                && let Stage::Permit { timer, .. } = &mut binding.stage
            {
                *timer = next;
            }
        }
    }

    /// The wait of a Permit plugin has ended: it is called again, if it still holds the pod.
    pub(crate) fn resume_permit(&mut self, id: u64, at: usize, reason: WakeReason, now: Time) {
        let Some(binding) = self.bindings.get_mut(&id) else {
            return;
        };
        let Stage::Permit { waiting, timer } = &mut binding.stage else {
            return;
        };
        let (called, timer) = match waiting.iter().position(|running| running.at == at) {
            Some(place) => (waiting.remove(place).called, *timer),
            None => return,
        };
        let profile = binding.attempt.profile.clone();
        let Some(member) = profile.permit.get(at) else {
            return;
        };
        let (pod, node) = (&binding.placed.pod, &binding.placed.node);
        let uid = pod.pod.uid().clone();
        let Some(since) = self.io.permits.held_since(&uid, &member.name) else {
            return;
        };
        let effects = self.io.effects(&profile.name, now);
        let mut effects = effects.in_attempt_of(&uid);
        let mut cx = StageContext {
            now,
            cluster: self.cache.cluster(),
            features: &self.features,
            outbox: &mut effects,
        };
        let state = &mut binding.attempt.evaluation.state;
        let step = call_plugin(Some(reason), |wake| {
            member.plugin.permit(&mut cx, state, pod, node, wake)
        });
        if !matches!(step, PermitStep::Wait(_)) {
            let what = (member.name.as_str(), Point::Permit.as_str());
            self.call_ended(called, what, step.code(), now);
        }
        match step {
            PermitStep::Wait(wait) => {
                let wait = self.waits.add(Waiter::Permit { binding: id, at }, wait);
                if let Some(binding) = self.bindings.get_mut(&id)
                    && let Stage::Permit { waiting, .. } = &mut binding.stage
                {
                    waiting.push(Running { at, wait, called });
                }
            }
            PermitStep::Hold(timeout) => {
                let until = (now + timeout).min(since + PERMIT_WAIT_MAX);
                if let Some(deadline) = self.io.permits.hold_until(&uid, &member.name, until) {
                    self.waits.end(timer);
                    let next = self.permit_timeout(&uid, deadline);
                    if let Some(binding) = self.bindings.get_mut(&id)
                        && let Stage::Permit { timer, .. } = &mut binding.stage
                    {
                        *timer = next;
                    }
                }
            }
            PermitStep::Done(status) if status.is_success() => {
                self.io.permits.allow(&uid, &member.name);
            }
            PermitStep::Done(status) => {
                let status = stage_failure("Permit", &member.name, &status);
                self.io.permits.decide(&uid, status);
            }
        }
    }

    /// Something was decided about a pod that is held back or being prepared.
    pub(crate) fn permit_news(&mut self, uid: &Str, now: Time) {
        let Some(id) = self.binding_of.get(uid).copied() else {
            return;
        };
        if let Some((verdict, since)) = self.io.permits.verdict(uid) {
            let waited = now.since(since).as_secs_f64();
            let code = [verdict.code().as_str()];
            self.metrics
                .observe(Metric::PermitWaitDuration, &code, waited);
            self.end_permit_waits(id);
            if verdict.is_success() {
                self.start_pre_bind(id, now);
            } else if verdict.is_rejected() {
                self.fail_binding(id, verdict, now);
            } else {
                let text = format!("waiting on permit for pod: {}", verdict.message());
                self.fail_binding(id, Status::error(text), now);
            }
            return;
        }
        if let Some(cause) = self.io.permits.stopped(uid) {
            let status = Status::error(cause);
            self.fail_binding(id, status, now);
        }
    }

    fn end_permit_waits(&mut self, id: u64) {
        if let Some(Stage::Permit { timer, waiting }) = self.bindings.get(&id).map(|b| &b.stage) {
            self.waits.end(*timer);
            for running in waiting {
                self.waits.end(running.wait);
            }
        }
    }

    // --- Bind ----------------------------------------------------------------------------------------------

    /// The pod is prepared: binds it (F-18).
    fn start_bind(&mut self, id: u64, now: Time) {
        let Some(binding) = self.bindings.get_mut(&id) else {
            return;
        };
        // From here on nobody can stop it (C-42).
        self.io.permits.release(binding.placed.pod.pod.uid());
        self.bind_by_extender(id, 0, now);
    }

    /// No extender binds the pod: the Bind plugins do.
    fn bind_by_plugins(&mut self, id: u64, now: Time) {
        if let Some(binding) = self.bindings.get_mut(&id) {
            binding.stage_began = Moment::new(now, &*self.stopwatch);
            self.run_bind(id, 0, None, now);
        }
    }

    /// The wait of the Bind plugin, or of the extender that binds, has ended.
    pub(crate) fn resume_bind(&mut self, id: u64, wake: WakeReason, now: Time) {
        match self.bindings.get(&id).map(|binding| &binding.stage) {
            Some(Stage::Bind { at, called }) => {
                let (at, called) = (*at, *called);
                self.run_bind(id, at, Some((wake, called)), now);
            }
            Some(Stage::Extender { at }) => {
                let at = *at;
                self.extender_has_bound(id, at, wake, now);
            }
            _ => {}
        }
    }

    /// Runs Bind from the plugin at `at` on, which may have waited.
    fn run_bind(
        &mut self,
        id: u64,
        at: usize,
        mut resumed: Option<(WakeReason, Option<Moment>)>,
        now: Time,
    ) {
        let Some(binding) = self.bindings.get_mut(&id) else {
            return;
        };
        let profile = binding.attempt.profile.clone();
        let mut result = Status::skip();
        for (i, member) in profile.bind.iter().enumerate().skip(at) {
            let Some(binding) = self.bindings.get_mut(&id) else {
                return;
            };
            let (wake, called) = match resumed.take() {
                Some((wake, called)) => (Some(wake), called),
                None => {
                    let is_timed = binding.attempt.is_sampled;
                    let called = is_timed.then(|| Moment::new(now, &*self.stopwatch));
                    (None, called)
                }
            };
            let (pod, node) = (&binding.placed.pod, &binding.placed.node);
            let effects = self.io.effects(&profile.name, now);
            let mut effects = effects.in_attempt_of(pod.pod.uid());
            let mut cx = StageContext {
                now,
                cluster: self.cache.cluster(),
                features: &self.features,
                outbox: &mut effects,
            };
            let state = &mut binding.attempt.evaluation.state;
            let step = call_plugin(wake, |wake| {
                member.plugin.bind(&mut cx, state, pod, node, wake)
            });
            match step {
                Step::Wait(wait) => {
                    binding.stage = Stage::Bind { at: i, called };
                    self.waits.add(Waiter::Bind(id), wait);
                    return;
                }
                Step::Done(status) => {
                    let what = (member.name.as_str(), Point::Bind.as_str());
                    self.call_ended(called, what, status.code(), now);
                    if status.is_skip() {
                        continue;
                    }
                    result = if status.is_success() {
                        status
                    } else {
                        stage_failure("Bind", &member.name, &status)
                    };
                    break;
                }
            }
        }
        self.book_stage(id, Point::Bind, result.code(), now);
        if !result.is_success()
            && let Some(binding) = self.bindings.get(&id)
        {
            let pod = binding.placed.pod.pod.key();
            let text = format!("Failed to bind pod {pod}: {}", result.message());
            self.io.log(LogLevel::Debug, text);
        }
        match result.code() {
            Code::Success => self.bound(id, now),
            Code::Skip => {
                let status = Status::error("no Bind plugin has bound the pod");
                self.fail_binding(id, status, now);
            }
            _ => self.fail_binding(id, result, now),
        }
    }

    /// The API has the pod's node now (C-43, C-44).
    fn bound(&mut self, id: u64, now: Time) {
        let Some(mut binding) = self.take_binding(id) else {
            return;
        };
        let profile = binding.attempt.profile.clone();
        let pod = binding.attempt.pod_ref();
        let note = format!("Successfully assigned {pod} to {}", binding.placed.node);
        let event = PodEvent {
            regarding: pod,
            related: None,
            kind: EventKind::Normal,
            reason: "Scheduled",
            action: "Binding",
            note,
        };
        self.io.publish(event, &profile.name);
        self.explanations.forget(binding.placed.pod.pod.uid());
        self.count_scheduled(&binding, now);
        let began = self.moment(now);
        for member in &profile.post_bind {
            let call = self.call_begins(binding.attempt.is_sampled, now);
            let (pod, node) = (&binding.placed.pod, &binding.placed.node);
            let effects = self.io.effects(&profile.name, now);
            let mut effects = effects.in_attempt_of(pod.pod.uid());
            let mut cx = StageContext {
                now,
                cluster: self.cache.cluster(),
                features: &self.features,
                outbox: &mut effects,
            };
            let state = &mut binding.attempt.evaluation.state;
            member.plugin.post_bind(&mut cx, state, pod, node);
            let called = (member.name.as_str(), Point::PostBind.as_str());
            self.call_ended(call, called, Code::Success, now);
        }
        let point = Point::PostBind.as_str();
        self.point_ended(point, Code::Success, &profile, (began, now));
        self.activate_wanted(binding.placed.pod.pod.uid(), now);
        // The pod may be seen bound already, with a status that nobody could write to meanwhile.
        let stored = self.cache.stored(binding.placed.pod.pod.uid());
        if let Some(stored) = stored.filter(|pod| pod.is_assigned()).cloned() {
            self.put_right(&stored, now);
        }
    }

    fn count_scheduled(&mut self, binding: &Binding, now: Time) {
        let attempt = &binding.attempt;
        let info = &attempt.info;
        let labels = ["scheduled", attempt.profile.name.as_str()];
        self.metrics.count(Metric::ScheduleAttempts, &labels);
        let seconds = attempt.seconds(now, &*self.stopwatch);
        self.metrics
            .observe(Metric::SchedulingAttemptDuration, &labels, seconds);
        let attempts = f64::from(info.attempts);
        self.metrics
            .observe(Metric::PodSchedulingAttempts, &[], attempts);
        if let Some(since) = info.initial_attempt_timestamp {
            let label = if info.attempts >= ATTEMPTS_TOLD_MAX {
                format!("{ATTEMPTS_TOLD_MAX}+")
            } else {
                info.attempts.to_string()
            };
            let waited = now.since(since).as_secs_f64();
            self.metrics
                .observe(Metric::PodSchedulingSliDuration, &[&label], waited);
        }
        if info.was_flushed_from_unschedulable {
            self.metrics.count(Metric::PodScheduledAfterFlush, &[]);
        }
    }

    // --- giving up -----------------------------------------------------------------------------------------

    fn take_binding(&mut self, id: u64) -> Option<Box<Binding>> {
        let binding = self.bindings.remove(&id)?;
        let uid = binding.placed.pod.pod.uid();
        self.binding_of.remove(uid);
        self.io.permits.release(uid);
        match &binding.stage {
            Stage::Permit { timer, waiting } => {
                self.waits.end(*timer);
                for running in waiting {
                    self.waits.end(running.wait);
                }
            }
            Stage::PreBind { running, .. } => {
                for running in running {
                    self.waits.end(running.wait);
                }
            }
            Stage::Turn { .. } | Stage::Extender { .. } | Stage::Bind { .. } => {}
        }
        Some(binding)
    }

    /// The pod will not be bound: everything is taken back (C-52).
    fn fail_binding(&mut self, id: u64, status: Status, now: Time) {
        let Some(binding) = self.take_binding(id) else {
            return;
        };
        let Binding {
            mut attempt,
            placed,
            ..
        } = *binding;
        let freed = self.undo_placement(&mut attempt, &placed, now);
        let failure = self.failure_of_stage(&placed, &status);
        if status.is_rejected() {
            self.fail(attempt, failure, now);
            if let Some(pod) = freed {
                let uid = pod.uid().clone();
                let others = move |other: &berth_api::Pod| *other.uid() != uid;
                self.placement_freed(&pod, Some(&others), now);
            }
        } else {
            if let Some(pod) = freed {
                self.placement_freed(&pod, None, now);
            }
            self.fail(attempt, failure, now);
        }
    }

    fn book_stage(&mut self, id: u64, point: Point, code: Code, now: Time) {
        let Some(binding) = self.bindings.get(&id) else {
            return;
        };
        let (began, profile) = (binding.stage_began, binding.attempt.profile.clone());
        self.point_ended(point.as_str(), code, &profile, (began, now));
    }
}
