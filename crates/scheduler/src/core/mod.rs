//! The scheduler: one state machine that everything goes through.
//!
//! Inputs are changes of the cluster ([`Scheduler::apply`]), results of calls ([`Scheduler::complete`]) and jobs
//! ([`Scheduler::job_done`]), and the time, which comes with every input. Steps are [`Scheduler::schedule_one`] and
//! [`Scheduler::tick`]. What is to be done outside is taken with [`Scheduler::take_outputs`].
//!
//! **Architecture invariants:** no I/O, no clock, no lock, no global randomness; nothing waits. The same inputs and
//! the same seed give the same outputs, so any failure can be run again.

mod changes;
mod effects;
mod explain;
mod io;
mod numbers;
mod postponed;
mod preemptions;
mod reports;
mod statuses;
mod storage;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod waits;

pub use changes::ClusterChange;
pub use explain::{Explanation, Reason};
pub use io::{Event, LogLevel, LogLine, Outputs};

pub(crate) use explain::{Explanations, reasons};
pub(crate) use io::Io;
pub(crate) use numbers::{Moment, Timing};
pub(crate) use preemptions::Preemptions;
pub(crate) use waits::{WaitId, Waiter, Waits};

use crate::binding::{Binders, Binding};
use crate::cache::Cache;
use crate::cycle::{Outcome, Parked, Returning};
use crate::dispatcher::{Dispatcher, DispatcherOptions};
use crate::evaluator::{EvaluatorKind, Keeper, NoStopwatch, NominatedPods, Stopwatch};
use crate::metrics::{Metrics, Sampler};
use crate::profile::{Profile, ProfileError, ProfileErrors, ProfileSpec, Profiles};
use crate::queue::{Nominator, ProfileHooks, QueueConfig, SchedulingQueue};
use berth_api::{Duration, Str, Time};
use berth_framework::call::{CallError, CallId, Response};
use berth_framework::extender::Extenders;
use berth_framework::plugin::Context;
use berth_framework::registry::Registry;
use berth_framework::stage::{JobId, JobResult, WakeReason};
use berth_framework::{Feature, FeatureGates, PodInfo};
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::Arc;

/// How a scheduler is set up.
pub struct SchedulerOptions {
    /// The profiles; at least one.
    pub profiles: Vec<ProfileSpec>,
    /// The feature gates.
    pub features: FeatureGates,
    /// Where all randomness comes from.
    pub seed: u64,
    /// What profiles take that do not say themselves; see [`ProfileSpec::percentage_of_nodes_to_score`].
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The backoff after the first failure (`podInitialBackoffSeconds`).
    pub pod_initial_backoff: Duration,
    /// The longest backoff (`podMaxBackoffSeconds`).
    pub pod_max_backoff: Duration,
    /// How long a pod waits for an event before it is tried again all the same.
    pub pod_max_in_unschedulable_pods_duration: Duration,
    /// Which evaluator decides.
    pub evaluator: EvaluatorKind,
    /// The dispatcher.
    pub dispatcher: DispatcherOptions,
    /// Who takes part beside the plugins.
    pub extenders: Extenders,
    /// Times what is done, for the metrics alone.
    pub stopwatch: Box<dyn Stopwatch>,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        let queue = QueueConfig::default();
        Self {
            profiles: vec![ProfileSpec::default()],
            features: FeatureGates::default(),
            seed: 0,
            percentage_of_nodes_to_score: None,
            pod_initial_backoff: queue.pod_initial_backoff,
            pod_max_backoff: queue.pod_max_backoff,
            pod_max_in_unschedulable_pods_duration: queue.pod_max_in_unschedulable_pods_duration,
            evaluator: EvaluatorKind::default(),
            dispatcher: DispatcherOptions::default(),
            extenders: Extenders::default(),
            stopwatch: Box::new(NoStopwatch),
        }
    }
}

impl fmt::Debug for SchedulerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerOptions")
            .field("profiles", &self.profiles)
            .field("features", &self.features)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// The scheduling core: one state machine, driven by its inputs and the time that comes with them.
pub struct Scheduler {
    pub(crate) features: FeatureGates,
    pub(crate) profiles: Profiles,
    pub(crate) percentage_of_nodes_to_score: Option<i32>,
    pub(crate) cache: Cache,
    pub(crate) queue: SchedulingQueue,
    pub(crate) io: Io,
    pub(crate) waits: Waits,
    pub(crate) rng: fastrand::Rng,
    pub(crate) evaluator: EvaluatorKind,
    pub(crate) keeper: Keeper,
    /// Where the next search for feasible nodes begins.
    pub(crate) start_node: usize,
    pub(crate) parked: Option<Box<Parked>>,
    pub(crate) bindings: FxHashMap<u64, Box<Binding>>,
    pub(crate) binding_of: FxHashMap<Str, u64>,
    pub(crate) next_binding: u64,
    /// The bindings that extenders carry out.
    pub(crate) binders: Binders,
    /// Pods that return to the queue when their status is written (gate SchedulerAsyncAPICalls off).
    pub(crate) returning: FxHashMap<CallId, Returning>,
    /// Calls whose failure has to be told to the queue (KEP-5501).
    pub(crate) reporting: FxHashMap<CallId, berth_framework::call::PodRef>,
    /// Reports of PreEnqueue that wait for what a cycle found to be written, or for room.
    pub(crate) postponed: postponed::PostponedReports,
    /// Victims that are being told to go.
    pub(crate) preemptions: Preemptions,
    pub(crate) explanations: Explanations,
    pub(crate) metrics: Metrics,
    /// The label of the event that was counted last; only its memory matters.
    event_label: String,
    pub(crate) stopwatch: Arc<dyn Stopwatch>,
    /// Chooses the cycles in which single plugins are timed.
    pub(crate) sampler: Sampler,
}

impl Scheduler {
    /// A scheduler that knows nothing of a cluster yet.
    ///
    /// # Errors
    /// Everything that is wrong with the profiles.
    pub fn new(
        options: SchedulerOptions,
        registry: &Registry,
        now: Time,
    ) -> Result<Self, ProfileErrors> {
        let features = options.features;
        let profiles = Profiles::build(&options.profiles, registry, &features)?;
        let hooks = profiles.iter().map(|p| hooks_of(p, &features));
        let hooks = match options.extenders.is_empty() {
            true => hooks.collect(),
            false => hooks.map(ProfileHooks::with_extenders).collect(),
        };
        let config = QueueConfig {
            pod_initial_backoff: options.pod_initial_backoff,
            pod_max_backoff: options.pod_max_backoff,
            pod_max_in_unschedulable_pods_duration: options.pod_max_in_unschedulable_pods_duration,
            features,
            ..QueueConfig::default()
        };
        let stopwatch: Arc<dyn Stopwatch> = options.stopwatch.into();
        let mut dispatcher = Dispatcher::new(DispatcherOptions {
            asynchronous: features.enabled(Feature::SchedulerAsyncAPICalls),
            seed: options.seed,
            ..options.dispatcher
        });
        register_calls(&profiles, &mut dispatcher)?;
        Ok(Self {
            profiles,
            percentage_of_nodes_to_score: options.percentage_of_nodes_to_score,
            cache: Cache::default(),
            queue: SchedulingQueue::new(config, hooks, now).timed_by(stopwatch.clone()),
            io: Io::new(dispatcher, options.extenders),
            waits: Waits::default(),
            rng: fastrand::Rng::with_seed(options.seed),
            evaluator: options.evaluator,
            keeper: Keeper::default(),
            start_node: 0,
            parked: None,
            bindings: FxHashMap::default(),
            binding_of: FxHashMap::default(),
            next_binding: 0,
            binders: Binders::new(options.dispatcher.in_flight_max),
            returning: FxHashMap::default(),
            reporting: FxHashMap::default(),
            postponed: postponed::PostponedReports::default(),
            preemptions: Preemptions::default(),
            explanations: Explanations::default(),
            metrics: Metrics::default(),
            event_label: String::new(),
            stopwatch,
            sampler: Sampler::default(),
            features,
        })
    }

    // --- inputs --------------------------------------------------------------------------------------------

    /// Takes in a change of the cluster.
    pub fn apply(&mut self, change: ClusterChange, now: Time) {
        self.take_in(change, now);
        self.settle(now);
    }

    /// A call of [`Outputs::calls`] has ended. Unknown ids are ignored.
    pub fn complete(
        &mut self,
        call: CallId,
        result: Result<impl Into<Response>, CallError>,
        now: Time,
    ) {
        self.io.dispatcher.complete(call, result, now);
        self.settle(now);
    }

    /// A job of [`Outputs::jobs`] has ended. Unknown ids are ignored.
    pub fn job_done(&mut self, job: JobId, result: JobResult, now: Time) {
        if let Some(waiter) = self.waits.by_job(job) {
            self.wake(waiter, WakeReason::Job(result), now);
        }
        self.settle(now);
    }

    /// Time has passed: deadlines, backoffs and flushes that are due.
    pub fn tick(&mut self, now: Time) {
        while let Some((waiter, reason)) = self.waits.due(now) {
            self.wake(waiter, reason, now);
        }
        let cx = Context {
            now,
            cluster: self.cache.cluster(),
            features: &self.features,
        };
        self.queue.run_due(&cx);
        for uid in self.io.dispatcher.expire(now) {
            self.show_writes(&uid, now);
        }
        self.offer_statuses(now);
        self.settle(now);
    }

    /// Tries to place the pod whose turn it is. Never waits: a cycle that has to is parked, and goes on by itself when
    /// its wait ends.
    pub fn schedule_one(&mut self, now: Time) -> Outcome {
        self.tick(now);
        let outcome = self.run_cycle(now);
        self.settle(now);
        outcome
    }

    /// The scheduler stops: events are not kept for pods any more, and no call is made. What is on its way may still be
    /// answered.
    pub fn close(&mut self, now: Time) {
        self.queue.close();
        self.io.dispatcher.close(now);
        // Whoever made them would only make others.
        self.io.dispatcher.take_finished();
    }

    // --- outputs -------------------------------------------------------------------------------------------

    /// What is to be done outside, since the last time.
    pub fn take_outputs(&mut self, now: Time) -> Outputs {
        let mut outputs = self.io.take(now);
        // Calls that turned out to be needless have ended without being sent: what follows goes out as well.
        while self.io.dispatcher.has_finished() {
            self.settle(now);
            outputs.append(self.io.take(now));
        }
        outputs
    }

    /// When [`Scheduler::tick`] has something to do next, if nothing else happens before.
    pub fn next_wake(&self, now: Time) -> Option<Time> {
        let times = [
            self.waits.next_deadline(),
            self.queue.next_wake(now),
            self.io.dispatcher.next_wake(),
            self.io.owed.next_due(),
        ];
        times.into_iter().flatten().min().map(|time| time.max(now))
    }

    /// Whether [`Scheduler::schedule_one`] would try a pod now.
    pub fn has_pod_to_try(&self) -> bool {
        self.parked.is_none() && !self.is_saturated() && self.queue.is_poppable()
    }

    /// Whether so much is on its way that no pod is tried: its calls would be refused, its binding would have to wait.
    pub(crate) fn is_saturated(&self) -> bool {
        self.io.dispatcher.is_saturated() || self.binders.is_saturated()
    }

    // --- to look at ----------------------------------------------------------------------------------------

    /// What is known of the cluster.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The pods that wait.
    pub fn queue(&self) -> &SchedulingQueue {
        &self.queue
    }

    /// The calls that have not ended.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.io.dispatcher
    }

    /// The answers that are kept, when the evaluator is the incremental one.
    pub fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// The profiles.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// The feature gates.
    pub fn features(&self) -> &FeatureGates {
        &self.features
    }

    /// How many pods have been placed and are not bound yet.
    pub fn bindings_in_flight(&self) -> usize {
        self.bindings.len()
    }

    /// Why the last attempt of a pod failed, as long as that is remembered.
    pub fn explanation(&self, uid: &str) -> Option<&Explanation> {
        self.explanations.get(uid)
    }

    /// Checks that the core's own books agree. Walks everything: for tests and the simulator.
    ///
    /// # Errors
    /// What does not agree.
    pub fn check(&self) -> Result<(), String> {
        self.cache.check()?;
        self.queue.check()?;
        self.preemptions.check()?;
        self.check_binders()?;
        if self.bindings.len() != self.binding_of.len() {
            return Err(format!(
                "{} bindings, {} pods that are being bound",
                self.bindings.len(),
                self.binding_of.len()
            ));
        }
        for pod in self.queue.in_flight_pods() {
            let uid = pod.uid();
            let cycle = self.parked.as_ref().is_some_and(|p| p.is_about(uid));
            let returning = self.returning.values().any(|r| r.is_about(uid));
            if !cycle && !returning && !self.binding_of.contains_key(uid) {
                return Err(format!("{} is in flight and nobody has it", pod.key()));
            }
        }
        Ok(())
    }

    // --- inside --------------------------------------------------------------------------------------------

    /// Somebody's wait has ended.
    fn wake(&mut self, waiter: Waiter, wake: WakeReason, now: Time) {
        match waiter {
            Waiter::Cycle => self.resume_cycle(wake, now),
            Waiter::Prioritizer(at) => self.resume_prioritizer(at, wake, now),
            Waiter::PermitTimeout(uid) => self.permit_timer(&uid, now),
            Waiter::Permit { binding, at } => self.resume_permit(binding, at, wake, now),
            Waiter::PreBind { binding, at } => self.resume_pre_bind(binding, at, wake, now),
            Waiter::Bind(binding) => self.resume_bind(binding, wake, now),
        }
    }

    /// Carries through what follows from the last step, until nothing follows any more.
    fn settle(&mut self, now: Time) {
        loop {
            self.note_calls(now);
            let mut any = self.report_pre_enqueue(now);
            for finished in self.io.dispatcher.take_finished() {
                any = true;
                self.call_finished(finished, now);
            }
            for uid in self.io.permits.take_news() {
                any = true;
                self.permit_news(&uid, now);
            }
            if !any {
                break;
            }
        }
        self.pass_on_notices();
    }
}

/// Registers the types of API calls of all plugins.
fn register_calls(profiles: &Profiles, dispatcher: &mut Dispatcher) -> Result<(), ProfileErrors> {
    let mut errors = Vec::new();
    for (at, profile) in profiles.iter().enumerate() {
        for plugin in profile.plugins() {
            for call_type in &plugin.calls {
                if let Err(source) = dispatcher.register(call_type) {
                    let plugin = plugin.name.clone();
                    errors.push((at, ProfileError::CallType { plugin, source }));
                }
            }
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ProfileErrors(errors)),
    }
}

/// What a profile contributes to the queue.
fn hooks_of(profile: &Profile, features: &FeatureGates) -> ProfileHooks {
    let sort = profile.queue_sort.plugin.clone();
    let mut hooks = ProfileHooks::new(profile.name.clone(), sort);
    for member in &profile.pre_enqueue {
        hooks = hooks.with_pre_enqueue(member.plugin.clone());
    }
    for plugin in profile.plugins() {
        hooks = hooks.with_plugin(plugin, features);
    }
    hooks
}

impl NominatedPods for Nominator {
    fn is_empty(&self) -> bool {
        Nominator::is_empty(self)
    }

    fn on_node(&self, node: &Str, each: &mut dyn FnMut(&Arc<PodInfo>)) {
        self.pods_on(node).iter().for_each(each);
    }

    fn node_of(&self, uid: &str) -> Option<&Str> {
        Nominator::node_of(self, uid)
    }

    fn changes_end(&self) -> u64 {
        Nominator::changes_end(self)
    }

    fn changed_since(&self, since: u64, each: &mut dyn FnMut(&Str)) -> bool {
        let changes = self.changes_since(since);
        let is_known = changes.is_some();
        changes.into_iter().flatten().for_each(each);
        is_known
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("profiles", &self.profiles)
            .field("queue", &self.queue)
            .field("bindings", &self.bindings.len())
            .finish_non_exhaustive()
    }
}
