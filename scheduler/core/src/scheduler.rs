//! The scheduler: one state machine that takes inputs and calls the stages of scheduling a pod.
//!
//! Inputs are changes of the cluster ([`Scheduler::apply`]), results of calls ([`Scheduler::complete`]) and jobs
//! ([`Scheduler::job_done`]), each with the time. Steps are [`Scheduler::schedule_one`] and [`Scheduler::tick`].
//! External actions are collected with [`Scheduler::take_outputs`].
//!
//! **Architecture invariants:** no I/O, no clock, no lock, no global randomness; nothing blocks. The same inputs and
//! the same seed give the same outputs, so any failure can be reproduced.

mod changes;
mod inspect;
mod judge;
mod metrics;
mod observe;
mod options;
mod reconfigure;
#[cfg(test)]
mod tests;

pub use changes::ClusterChange;
pub use judge::PodVerdict;
pub use observe::{ObservedInput, Observer};
pub use options::SchedulerOptions;
pub use reconfigure::{NotReconfigured, Reconfiguration, Reconfigured};

use crate::attempt::CycleResult;
use crate::binding::Bindings;
use crate::broken_groups;
use crate::cache::Cache;
use crate::call_results::{call_ended, note_requests};
use crate::clock::CoreClock;
use crate::core::{Core, Explanation, Outputs, QuotaStatuses, Settings, Waiter};
use crate::cycle::{Cycle, CycleStep, GroupCycle};
use crate::group_status;
use crate::pod_status::{offer_statuses, show_writes, take_pre_enqueue_reports};
use crate::quota_waits::{follow_quotas, write_statuses};
use crate::rejections::follow_rejections;
use berth_api::Time;
use berth_dispatcher::{Dispatcher, DispatcherOptions};
use berth_evaluator::AnswerCache;
use berth_framework::call::{CallError, CallId, CallResult, PodRef, Response};
use berth_framework::cluster::GroupKey;
use berth_framework::extender::Extenders;
use berth_framework::job::{JobId, JobResult};
use berth_framework::registry::Registry;
use berth_framework::stage::{Wait, WakeReason};
use berth_framework::{Feature, FeatureGates};
use berth_profile::{Profile, ProfileError, ProfileErrors, Profiles};
use berth_queue::{ProfileHooks, QueueConfig, SchedulingQueue};
use changes::Intake;
use std::fmt;

/// The result of [`Scheduler::schedule_one`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleOutcome {
    /// There is no pod to try until the next input, or until this time.
    Idle {
        /// The next time at which a pod can become ready without an input.
        next_wake: Option<Time>,
    },
    /// A pod was tried.
    Done {
        /// The pod.
        pod: PodRef,
        /// The result of its cycle.
        result: CycleResult,
    },
    /// A group was tried.
    Group {
        /// The group without parent.
        group: GroupKey,
        /// The results of the cycle for each pod; empty if the group was returned to the queue without an attempt.
        pods: Vec<(PodRef, CycleResult)>,
    },
    /// The cycle is parked, and continues when its wait ends. No other pod is tried until then.
    Parked(Wait),
}

impl ScheduleOutcome {
    /// The pods that were tried, and the results of their cycles.
    pub fn decided(&self) -> impl Iterator<Item = (&PodRef, &CycleResult)> {
        let (one, group) = match self {
            Self::Done { pod, result } => (Some((pod, result)), &[][..]),
            Self::Group { pods, .. } => (None, &pods[..]),
            Self::Idle { .. } | Self::Parked(_) => (None, &[][..]),
        };
        let group = group.iter().map(|(pod, result)| (pod, result));
        one.into_iter().chain(group)
    }

    /// Returns whether a pod or a group was tried, so that there may be another one.
    pub fn is_attempt(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Group { .. })
    }
}

/// The scheduling core: one state machine, driven by timed inputs.
pub struct Scheduler {
    core: Core,
    cycle: Cycle,
    bindings: Bindings,
    /// The label of the last counted event, kept to reuse its memory.
    event_label: String,
    observer: Option<Box<dyn Observer>>,
}

impl Scheduler {
    /// A scheduler with an empty cluster.
    ///
    /// # Errors
    /// All problems of the profiles.
    pub fn new(
        options: SchedulerOptions,
        registry: &Registry,
        now: Time,
    ) -> Result<Self, ProfileErrors> {
        let profiles = Profiles::build(&options.profiles, registry, &options.features)?;
        Self::of_profiles(options, profiles, now)
    }

    /// A scheduler with these profiles instead of the profiles of the options. Another scheduler may use the same
    /// plugins.
    ///
    /// # Errors
    /// When two plugins register the same type of calls.
    pub fn of_profiles(
        options: SchedulerOptions,
        profiles: Profiles,
        now: Time,
    ) -> Result<Self, ProfileErrors> {
        let features = options.features;
        let hooks = hooks_of(&profiles, &features, &options.extenders);
        let config = QueueConfig {
            pod_initial_backoff: options.pod_initial_backoff,
            pod_max_backoff: options.pod_max_backoff,
            pod_max_in_unschedulable_pods_duration: options.pod_max_in_unschedulable_pods_duration,
            features,
            ..QueueConfig::default()
        };
        let mut dispatcher = Dispatcher::new(DispatcherOptions {
            asynchronous: features.enabled(Feature::SchedulerAsyncAPICalls),
            seed: options.seed,
            ..options.dispatcher
        });
        register_calls(&profiles, &mut dispatcher)?;
        if features.enabled(Feature::GenericWorkload) {
            group_status::register(&mut dispatcher);
        }
        QuotaStatuses::register(&mut dispatcher);
        let clock = CoreClock::new(now, options.stopwatch);
        let queue = SchedulingQueue::new(config, hooks, now).timed_by(clock.shared_laps());
        let settings = Settings::new(
            features,
            options.evaluator,
            options.compares_evaluators,
            profiles,
            options.percentage_of_nodes_to_score,
            options.extenders,
        );
        Ok(Self {
            core: Core::new(settings, clock, queue, dispatcher),
            cycle: Cycle::new(options.seed),
            bindings: Bindings::new(options.dispatcher.in_flight_max),
            event_label: String::new(),
            observer: None,
        })
    }

    /// From now on, `observer` receives every input, decision and output.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    // --- inputs --------------------------------------------------------------------------------------------

    /// Applies a change of the cluster.
    pub fn apply(&mut self, change: ClusterChange, now: Time) {
        self.observed(now, ObservedInput::Apply(&change));
        self.core.framework.begin_step(now);
        let intake = &mut Intake {
            core: &mut self.core,
            cycle: &self.cycle,
            bindings: &self.bindings,
            event_label: &mut self.event_label,
        };
        intake.take_in(change);
        self.resume_woken();
        self.settle();
    }

    /// A call of [`Outputs::calls`] has ended. Unknown ids are ignored.
    pub fn complete(
        &mut self,
        call: CallId,
        result: Result<impl Into<Response>, CallError>,
        now: Time,
    ) {
        let result: CallResult = result.map(Into::into);
        self.observed(now, ObservedInput::Complete(call, &result));
        self.core.framework.begin_step(now);
        self.core.calls.dispatcher_mut().complete(call, result, now);
        self.settle();
    }

    /// A job of [`Outputs::jobs`] has ended. Unknown ids are ignored.
    pub fn job_done(&mut self, job: JobId, result: JobResult, now: Time) {
        self.observed(now, ObservedInput::JobDone(job, &result));
        self.core.framework.begin_step(now);
        self.core.waits.job_ended(job, result);
        self.settle();
    }

    /// Time has passed: handles due deadlines, backoffs and flushes.
    pub fn tick(&mut self, now: Time) {
        self.observed(now, ObservedInput::Tick);
        self.tick_unobserved(now);
    }

    fn tick_unobserved(&mut self, now: Time) {
        self.core.framework.begin_step(now);
        let now = self.core.framework.clock.now();
        loop {
            self.core.waits.time_passed(now);
            if !self.resume_woken() {
                break;
            }
        }
        let (queue, cx) = self.core.queue_with_context();
        queue.run_due(&cx);
        for uid in self.core.calls.dispatcher_mut().expire(now) {
            show_writes(&mut self.core, &uid);
        }
        let core = &mut self.core;
        offer_statuses(&mut core.calls, &core.framework.cache, &core.queue, now);
        write_statuses(
            &mut core.framework,
            &mut core.queue,
            &mut core.calls,
            &mut core.quota_statuses,
        );
        self.settle();
    }

    /// Tries the next pod of the queue. Never blocks: a cycle that has to wait is parked, and continues when its wait
    /// ends.
    pub fn schedule_one(&mut self, now: Time) -> ScheduleOutcome {
        self.observed(now, ObservedInput::ScheduleOne);
        self.tick_unobserved(now);
        let outcome = self.run_cycle();
        if let Some(observer) = &mut self.observer {
            for (pod, result) in outcome.decided() {
                observer.decided(pod, result);
            }
        }
        self.settle();
        outcome
    }

    /// The scheduler stops: events are not kept for pods any more, and no call is made. Calls in flight may still be
    /// answered.
    pub fn close(&mut self, now: Time) {
        self.observed(now, ObservedInput::Close);
        self.core.queue.close();
        let dispatcher = self.core.calls.dispatcher_mut();
        dispatcher.close(now);
        // A component that waits for these calls would only make further calls.
        dispatcher.take_finished();
    }

    // --- outputs -------------------------------------------------------------------------------------------

    /// The outputs since the last call.
    pub fn take_outputs(&mut self, now: Time) -> Outputs {
        self.observed(now, ObservedInput::TakeOutputs);
        self.core.framework.clock.set(now);
        let mut outputs = self.new_outputs(now);
        // Unnecessary calls have ended without being sent. Their results can cause more outputs.
        while self.core.calls.dispatcher().has_finished() {
            self.settle();
            outputs.append(self.new_outputs(now));
        }
        if let Some(observer) = &mut self.observer {
            observer.outputs(&outputs);
        }
        outputs
    }

    /// The next time at which [`Scheduler::tick`] has work to do, without further inputs.
    pub fn next_wake(&self, now: Time) -> Option<Time> {
        let times = [
            self.core.waits.next_deadline(),
            self.core.queue.next_wake(now),
            self.core.calls.dispatcher().next_wake(),
            self.core.quota_statuses.next_due(),
            self.core.framework.cache.cluster().rejections().next_end(),
        ];
        times.into_iter().flatten().min().map(|time| time.max(now))
    }

    /// Returns whether [`Scheduler::schedule_one`] would try a pod now.
    pub fn has_pod_to_try(&self) -> bool {
        self.cycle.waits_for().is_none() && !self.is_saturated() && self.core.queue.is_poppable()
    }

    /// Returns whether no pod is tried because of the number of calls or bindings under way: its calls would be
    /// refused, or its binding would have to wait.
    fn is_saturated(&self) -> bool {
        self.core.calls.dispatcher().is_saturated() || self.bindings.is_saturated()
    }

    // --- views ---------------------------------------------------------------------------------------------

    /// The view of the cluster.
    pub fn cache(&self) -> &Cache {
        &self.core.framework.cache
    }

    /// The pods that wait.
    pub fn queue(&self) -> &SchedulingQueue {
        &self.core.queue
    }

    /// The calls that have not ended.
    pub fn dispatcher(&self) -> &Dispatcher {
        self.core.calls.dispatcher()
    }

    /// The cache of the incremental evaluator.
    pub fn answer_cache(&self) -> &AnswerCache {
        self.cycle.answer_cache()
    }

    /// The profiles.
    pub fn profiles(&self) -> &Profiles {
        &self.core.framework.settings.profiles
    }

    /// The feature gates.
    pub fn features(&self) -> &FeatureGates {
        &self.core.framework.settings.features
    }

    /// The number of pods that have been placed and are not bound yet.
    pub fn bindings_in_flight(&self) -> usize {
        self.bindings.len()
    }

    /// The reason why the last attempt of a pod failed, while it is recorded.
    pub fn explanation(&self, uid: &str) -> Option<&Explanation> {
        self.core.explanations.get(uid)
    }

    /// From now on, the log contains information up to this level, as klog's. The initial level is 0.
    pub fn set_log_verbosity(&mut self, verbosity: u8) {
        self.core.queue.log_mut().set_verbosity(verbosity);
        self.core.framework.outbound.log.set_verbosity(verbosity);
    }

    /// From now on, the outputs contain a trace of each attempt that has ended.
    pub fn trace_attempts(&mut self) {
        self.core.framework.outbound.trace_attempts();
    }

    /// Checks the consistency of the core. Walks everything: for tests and the simulator.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<(), String> {
        let core = &self.core;
        core.framework.cache.check()?;
        core.queue.check()?;
        core.preemptions.check()?;
        self.bindings.check(&core.framework.unbound)?;
        for pod in core.queue.in_flight().pods() {
            let uid = pod.uid();
            let is_held = self.cycle.is_about(uid) || core.framework.unbound.contains(uid);
            if !is_held {
                return Err(format!("{} is in flight and no stage has it", pod.key()));
            }
        }
        Ok(())
    }

    // --- inside --------------------------------------------------------------------------------------------

    fn observed(&mut self, now: Time, input: ObservedInput<'_>) {
        if let Some(observer) = &mut self.observer {
            observer.input(now, input, &self.core.framework.cache);
        }
    }

    fn new_outputs(&mut self, now: Time) -> Outputs {
        let calls = self.core.calls.dispatcher_mut().next_calls(now);
        self.core.framework.outbound.take(calls)
    }

    /// Pops the next pod and runs its cycle.
    fn run_cycle(&mut self) -> ScheduleOutcome {
        if let Some(wait) = self.cycle.waits_for() {
            return ScheduleOutcome::Parked(wait.clone());
        }
        let now = self.core.framework.clock.now();
        let popped = if self.is_saturated() {
            // A popped pod is in flight and collects events, while waiting in the queue costs nothing.
            None
        } else {
            self.core.queue.pop(now)
        };
        let Some(info) = popped else {
            let next_wake = self.next_wake(now);
            return ScheduleOutcome::Idle { next_wake };
        };
        if let Some(group) = info.group() {
            let group = group.key().clone();
            let GroupCycle { permitted, results } = self.cycle.run_group(&mut self.core, info);
            for member in permitted {
                self.bindings.start(&mut self.core, member);
            }
            return ScheduleOutcome::Group {
                group,
                pods: results,
            };
        }
        let pod = PodRef::of(&info.pod);
        match self.cycle.run(&mut self.core, info) {
            CycleStep::Parked(wait) => ScheduleOutcome::Parked(wait),
            CycleStep::Over(result) => ScheduleOutcome::Done { pod, result },
            CycleStep::Placed(permitted) => {
                let node = permitted.placed.node.clone();
                self.bindings.start(&mut self.core, *permitted);
                let result = CycleResult::Placed { node };
                ScheduleOutcome::Done { pod, result }
            }
        }
    }

    /// Resumes the stages whose wait has ended. Returns whether there were any.
    fn resume_woken(&mut self) -> bool {
        let mut any = false;
        while let Some((waiter, reason)) = self.core.waits.take_woken() {
            any = true;
            self.resume(waiter, reason);
        }
        any
    }

    fn resume(&mut self, waiter: Waiter, reason: WakeReason) {
        let Self {
            core,
            cycle,
            bindings,
            observer,
            ..
        } = self;
        let pod = observer.is_some().then(|| cycle.parked_pod()).flatten();
        let (framework, waits) = (&mut core.framework, &mut core.waits);
        let step = match waiter {
            Waiter::Cycle => cycle.resume(core, reason),
            Waiter::Prioritizer(at) => cycle.resume_prioritizer(core, at, reason),
            Waiter::PermitTimeout(uid) => {
                let now = framework.clock.now();
                return bindings.permit_timeout(waits, &mut framework.unbound, &uid, now);
            }
            Waiter::Permit { binding, at } => {
                bindings.resume_permit(framework, waits, binding, at, reason);
                return core.make_requested_calls();
            }
            Waiter::PreBind { binding, at } => {
                let end = bindings.resume_pre_bind(framework, waits, binding, at, reason);
                return bindings.apply(core, binding, end);
            }
            Waiter::Bind(binding) => return bindings.resume_bind(core, binding, reason),
            Waiter::BrokenGroup(key) => return broken_groups::time_is_over(core, &key),
        };
        if let (Some(observer), Some(pod), Some(step)) = (observer, pod, &step)
            && let Some(result) = step.result()
        {
            observer.decided(&pod, &result);
        }
        if let Some(CycleStep::Placed(permitted)) = step {
            bindings.start(core, *permitted);
        }
    }

    /// Handles the consequences of the last step until none is left.
    fn settle(&mut self) {
        loop {
            note_requests(&mut self.core);
            let core = &mut self.core;
            let (framework, queue) = (&mut core.framework, &mut core.queue);
            let mut any = follow_quotas(framework, queue, &mut core.quota_statuses);
            any |= follow_rejections(framework, queue);
            let now = core.framework.clock.now();
            any |= take_pre_enqueue_reports(
                &mut core.queue,
                &mut core.calls,
                &core.framework.cache,
                now,
            );
            any |= self.resume_woken();
            for finished in self.core.calls.dispatcher_mut().take_finished() {
                any = true;
                call_ended(&mut self.core, finished);
                self.resume_woken();
            }
            any |= self.bindings.take_decided(&mut self.core);
            let (queue, cx) = self.core.queue_with_context();
            any |= queue.wake_next_of_templates(&cx);
            if !any {
                break;
            }
        }
        self.core
            .framework
            .outbound
            .log
            .append(self.core.queue.log_mut());
    }
}

/// Registers the types of API calls of all plugins.
fn register_calls(profiles: &Profiles, dispatcher: &mut Dispatcher) -> Result<(), ProfileErrors> {
    let mut errors = Vec::new();
    for (at, profile) in profiles.iter().enumerate() {
        for plugin in &profile.plugins {
            for call_type in &plugin.calls {
                if let Err(source) = dispatcher.register(call_type) {
                    let plugin = plugin.name.clone();
                    errors.push((at, ProfileError::CallType { plugin, source }));
                }
            }
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ProfileErrors(errors))
    }
}

/// The contribution of the profiles to the queue.
fn hooks_of(
    profiles: &Profiles,
    features: &FeatureGates,
    extenders: &Extenders,
) -> Vec<ProfileHooks> {
    let hooks = profiles.iter().map(|p| hooks_of_profile(p, features));
    if extenders.is_empty() {
        hooks.collect()
    } else {
        hooks.map(ProfileHooks::with_extenders).collect()
    }
}

fn hooks_of_profile(profile: &Profile, features: &FeatureGates) -> ProfileHooks {
    let sort = profile.queue_sort.plugin.clone();
    let mut hooks = ProfileHooks::new(profile.name.clone(), sort);
    for member in &profile.pre_enqueue {
        hooks = hooks.with_pre_enqueue(member.name.clone(), member.plugin.clone());
    }
    for plugin in &profile.plugins {
        hooks = hooks.with_plugin(plugin, features);
    }
    hooks
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("profiles", self.profiles())
            .field("queue", self.queue())
            .field("bindings", &self.bindings.len())
            .finish_non_exhaustive()
    }
}
