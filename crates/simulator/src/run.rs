//! One run: a scheduler in its world, step by step, under the eyes of the checker.

mod rest;

use crate::api::{Api, FaithfulApi, answer};
use crate::checker::{Checker, Violation};
use crate::plugins::{HOLDS, Holds, STAGES, Stages};
use crate::script::{Answer, Script, Step, Watched, node_name, pod_name};
use crate::shapes::{HOLD, SLOW, tolerate};
use crate::world::{WatchEvent, World};
use berth_api::{Duration, Kind, Object, Pod, Str, Time};
use berth_framework::call::{ApiCall, CallId};
use berth_framework::registry::{AlreadyRegistered, Registry};
use berth_framework::stage::JobId;
use berth_framework::{Feature, FeatureGates};
use berth_scheduler::profile::{EnabledPlugin, ProfileSpec};
use berth_scheduler::{ClusterChange, CycleResult, Outcome, Outputs, Scheduler, SchedulerOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// What is judged: the scheduler's plugins and how they are set up, and the API it talks to.
#[derive(Clone)]
pub struct Subject {
    /// The plugins.
    pub registry: Registry,
    /// The profile.
    pub profile: ProfileSpec,
    /// The API.
    pub api: Arc<dyn Api>,
}

impl Subject {
    /// The in-tree plugins in their default profile, with those of the simulator, and a faithful API.
    ///
    /// # Errors
    /// When an in-tree plugin has the name of one of the simulator's.
    pub fn in_tree() -> Result<Self, AlreadyRegistered> {
        let mut registry = berth_plugins::in_tree();
        registry.register(HOLDS, |_| Ok(Holds::extensions()))?;
        registry.register(STAGES, |_| Ok(Stages::extensions()))?;
        let mut profile = ProfileSpec::default();
        let wanted = &mut profile.plugins.multi_point.enabled;
        wanted.extend([EnabledPlugin::new(HOLDS), EnabledPlugin::new(STAGES)]);
        Ok(Self {
            registry,
            profile,
            api: Arc::new(FaithfulApi),
        })
    }
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Pods that were created.
    pub pods_created: u64,
    /// Attempts to place a pod.
    pub attempts: u64,
    /// Placements that were judged.
    pub placements: u64,
    /// Bindings that the API accepted.
    pub bindings: u64,
    /// Calls that the scheduler made.
    pub calls: u64,
    /// Calls that failed though nothing was wrong with them.
    pub faults: u64,
    /// How often the scheduler was restarted.
    pub restarts: u64,
    /// Pods that were deleted to make room.
    pub preemptions: u64,
    /// Rounds until everything had come to rest.
    pub rounds_to_rest: u64,
}

impl Tally {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.pods_created += other.pods_created;
        self.attempts += other.attempts;
        self.placements += other.placements;
        self.bindings += other.bindings;
        self.calls += other.calls;
        self.faults += other.faults;
        self.restarts += other.restarts;
        self.preemptions += other.preemptions;
        self.rounds_to_rest += other.rounds_to_rest;
    }
}

/// A run that has shown a violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The step, counted from 0; the number of steps when everything was to come to rest.
    pub step: usize,
    /// What was wrong.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.violation)
    }
}

/// How long a watch may keep an event back. Longer than this, it would be taken for broken.
const LAG_MAX: Duration = Duration::from_secs(20);
/// So long that it never ends: without the periodic flush, only events bring pods back.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Hears what happens in a run, line by line.
pub type Listener<'a> = &'a mut dyn FnMut(&str);

/// Runs a script.
///
/// # Errors
/// The first violation.
pub fn run(subject: &Subject, script: &Script) -> Result<Tally, Failure> {
    run_with(subject, script, None)
}

/// Runs a script and tells what happens: steps, what the scheduler is told, what it chooses and calls.
///
/// # Errors
/// The first violation.
pub fn tell(subject: &Subject, script: &Script, listener: Listener<'_>) -> Result<Tally, Failure> {
    run_with(subject, script, Some(listener))
}

fn run_with(
    subject: &Subject,
    script: &Script,
    listener: Option<Listener<'_>>,
) -> Result<Tally, Failure> {
    let mut step = 0;
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut run = Run::new(subject, script, listener)?;
        for at in &script.steps {
            run.say(|| format!("--- {at}"));
            run.step(at)?;
            run.check_books()?;
            step += 1;
        }
        run.come_to_rest()?;
        run.tally.placements = run.checker.decisions();
        Ok(run.tally)
    }));
    let violation = match ended {
        Ok(Ok(tally)) => return Ok(tally),
        Ok(Err(violation)) => violation,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Violation::Panic(text.unwrap_or_else(|| "without a message".to_owned()))
        }
    };
    Err(Failure { step, violation })
}

struct Run<'a, 'l> {
    subject: &'a Subject,
    listener: Option<Listener<'l>>,
    features: FeatureGates,
    world: World,
    checker: Checker,
    scheduler: Scheduler,
    now: Time,
    /// When each watch, of pods and of nodes, had last delivered everything.
    up_to_date: [Time; 2],
    calls: Vec<(CallId, ApiCall)>,
    jobs: Vec<JobId>,
    /// UIDs of pods whose binding was carried out though the scheduler was told that it was not.
    untold: BTreeSet<Str>,
    /// By UID, how often in a row the API would not take the status of a pod.
    refused: BTreeMap<Str, u32>,
    seed: u64,
    tally: Tally,
}

fn start(
    subject: &Subject,
    features: FeatureGates,
    seed: u64,
    now: Time,
) -> Result<Scheduler, Violation> {
    let options = SchedulerOptions {
        profiles: vec![subject.profile.clone()],
        features,
        seed,
        pod_max_in_unschedulable_pods_duration: NEVER,
        ..SchedulerOptions::default()
    };
    Scheduler::new(options, &subject.registry, now)
        .map_err(|errors| Violation::Books(format!("the profile is wrong: {errors}")))
}

fn change_of(event: &WatchEvent) -> ClusterChange {
    match event.clone() {
        WatchEvent::PodApplied(pod) => ClusterChange::Applied(Object::Pod(pod)),
        WatchEvent::PodDeleted(pod) => ClusterChange::Deleted(Object::Pod(pod)),
        WatchEvent::NodeApplied(node) => ClusterChange::Applied(Object::Node(node)),
        WatchEvent::NodeDeleted(node) => ClusterChange::Deleted(Object::Node(node)),
    }
}

/// A call in a line.
fn in_short(call: &ApiCall) -> String {
    let pod = &call.object().name;
    match call {
        ApiCall::BindPod { node, .. } => format!("bind {pod} to {node}"),
        ApiCall::PatchPodStatus {
            condition,
            nominated_node,
            ..
        } => {
            let mut text = format!("patch {pod}");
            if let Some(c) = condition {
                text += &format!(" {}={} {}: {}", c.kind, c.status, c.reason, c.message);
            }
            if let Some(node) = nominated_node {
                text += &format!(" nominated {:?}", node.as_str());
            }
            text
        }
        ApiCall::ClearPreEnqueueStatus { .. } => format!("clear the status of {pod}"),
        ApiCall::DeletePod { .. } => format!("delete {pod}"),
        ApiCall::UpdateStorage(_) => format!("write {pod}"),
    }
}

impl<'a, 'l> Run<'a, 'l> {
    fn new(
        subject: &'a Subject,
        script: &Script,
        listener: Option<Listener<'l>>,
    ) -> Result<Self, Violation> {
        let now = Time::from_secs(1_000_000);
        let (features, seed) = (script.features, script.seed);
        Ok(Self {
            subject,
            listener,
            features,
            world: World::default(),
            checker: Checker::default(),
            scheduler: start(subject, features, seed, now)?,
            now,
            up_to_date: [now; 2],
            calls: Vec::new(),
            jobs: Vec::new(),
            untold: BTreeSet::new(),
            refused: BTreeMap::new(),
            seed,
            tally: Tally::default(),
        })
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(listener) = &mut self.listener {
            listener(&what());
        }
    }

    // --- steps ---------------------------------------------------------------------------------------------

    fn step(&mut self, step: &Step) -> Result<(), Violation> {
        match step {
            Step::Deliver(kind, count) => {
                for _ in 0..*count {
                    self.deliver(*kind)?;
                }
            }
            Step::Repeat(kind) => {
                let event = match kind {
                    Watched::Pods => self.world.last_pod_event().cloned(),
                    Watched::Nodes => self.world.last_node_event().cloned(),
                };
                if let Some(event) = event {
                    self.tell(&event)?;
                }
            }
            Step::Relist(kind) => self.relist(*kind)?,
            Step::Advance(span) => {
                self.now = self.now + *span;
                self.scheduler.tick(self.now);
                self.after_input(None)?;
                self.deliver_late()?;
            }
            Step::Schedule(count) => {
                for _ in 0..*count {
                    self.schedule()?;
                }
            }
            Step::Answer(first, count, answer) => {
                for _ in 0..*count {
                    self.answer(*first, *answer)?;
                }
            }
            Step::EndJob(job, well) => self.end_job(*job, *well)?,
            Step::Restart(done) => self.restart(*done)?,
            change => self.change_world(change),
        }
        Ok(())
    }

    fn change_world(&mut self, step: &Step) {
        let world = &mut self.world;
        match step {
            Step::CreatePod(pod, shape) => {
                if world.create_pod(&pod_name(*pod), shape.build()) {
                    self.tally.pods_created += 1;
                }
            }
            Step::ReplacePod(pod, shape) => {
                let name = pod_name(*pod);
                if world.delete_pod(&name) && world.create_pod(&name, shape.build()) {
                    self.tally.pods_created += 1;
                }
            }
            Step::PlacePod(pod, shape, node) => {
                let node = node_name(*node);
                if world.nodes().contains_key(node.as_str()) {
                    let mut object = shape.build();
                    object.spec.node_name = Str::from(node);
                    world.create_pod(&pod_name(*pod), object);
                }
            }
            Step::RemoveGate(pod, gate) => world.remove_gate(&pod_name(*pod), *gate),
            Step::Hold(pod, true) => world.label_pod(&pod_name(*pod), HOLD, "yes"),
            Step::Hold(pod, false) => world.unlabel_pod(&pod_name(*pod), HOLD),
            Step::Slow(pod, Some(slow)) => world.label_pod(&pod_name(*pod), SLOW, slow.as_str()),
            Step::Slow(pod, None) => world.unlabel_pod(&pod_name(*pod), SLOW),
            Step::Relabel(pod, app) => world.label_pod(&pod_name(*pod), crate::shapes::APP, app),
            Step::Tolerate(pod, taint) => world.add_toleration(&pod_name(*pod), tolerate(taint)),
            Step::TerminatePod(pod) => world.terminate_pod(&pod_name(*pod), self.now),
            Step::DeletePod(pod) => {
                world.delete_pod(&pod_name(*pod));
            }
            Step::FinishPod(pod) => world.finish_pod(&pod_name(*pod)),
            Step::Reap => world.reap(),
            Step::CreateNode(node, shape) => world.create_node(shape.build(&node_name(*node))),
            Step::ChangeNode(node, change) => {
                world.change_node(&node_name(*node), |node| change.apply_to(node));
            }
            Step::DeleteNode(node) => world.delete_node(&node_name(*node)),
            Step::CollectGarbage => world.collect_garbage(),
            Step::Deliver(..)
            | Step::Repeat(_)
            | Step::Relist(_)
            | Step::Advance(_)
            | Step::Schedule(_)
            | Step::Answer(..)
            | Step::EndJob(..)
            | Step::Restart(_) => {}
        }
    }

    // --- what the scheduler is told ------------------------------------------------------------------------

    fn deliver(&mut self, kind: Watched) -> Result<bool, Violation> {
        let event = match kind {
            Watched::Pods => self.world.next_pod_event(),
            Watched::Nodes => self.world.next_node_event(),
        };
        match event {
            Some(event) => self.tell(&event).map(|()| true),
            None => Ok(false),
        }
    }

    /// A watch lags, but not for ever.
    fn deliver_late(&mut self) -> Result<(), Violation> {
        for (at, kind) in [Watched::Pods, Watched::Nodes].into_iter().enumerate() {
            if self.world.undelivered_of(kind == Watched::Pods) == 0 {
                self.up_to_date[at] = self.now;
            } else if self.now.since(self.up_to_date[at]) > LAG_MAX {
                while self.deliver(kind)? {}
                self.up_to_date[at] = self.now;
            }
        }
        Ok(())
    }

    fn tell(&mut self, event: &WatchEvent) -> Result<(), Violation> {
        self.say(|| format!("told: {event}"));
        self.checker.told(event);
        self.scheduler.apply(change_of(event), self.now);
        self.after_input(None)
    }

    fn relist(&mut self, kind: Watched) -> Result<(), Violation> {
        let change = match kind {
            Watched::Pods => {
                let pods = self.world.relist_pods();
                self.checker.told_all_pods(&pods);
                ClusterChange::Replaced(Kind::Pod, pods.into_iter().map(Object::Pod).collect())
            }
            Watched::Nodes => {
                let nodes = self.world.relist_nodes();
                self.checker.told_all_nodes(&nodes);
                ClusterChange::Replaced(Kind::Node, nodes.into_iter().map(Object::Node).collect())
            }
        };
        self.scheduler.apply(change, self.now);
        self.after_input(None)
    }

    fn answer(&mut self, at: usize, how: Answer) -> Result<(), Violation> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let (id, call) = self.calls.remove(at % self.calls.len());
        let result = answer(&*self.subject.api, &mut self.world, &call, how, self.now);
        self.tally.faults += u64::from(how != Answer::Honest);
        self.say(|| match &result {
            Ok(()) => format!("answered: {}: done", in_short(&call)),
            Err(error) => format!("answered: {}: {error}", in_short(&call)),
        });
        if let ApiCall::BindPod { pod, node } = &call {
            self.checker.bind_answered(&pod.uid, node, result.is_ok());
            self.tally.bindings += u64::from(result.is_ok());
            if how == Answer::TimeoutAfter {
                self.untold.insert(pod.uid.clone());
            }
        } else if how == Answer::Honest {
            self.refused.remove(&call.key().uid);
        } else {
            *self.refused.entry(call.key().uid).or_default() += 1;
        }
        self.scheduler.complete(id, result, self.now);
        self.after_input(None)
    }

    fn end_job(&mut self, at: usize, well: bool) -> Result<(), Violation> {
        if self.jobs.is_empty() {
            return Ok(());
        }
        let job = self.jobs.remove(at % self.jobs.len());
        let result = if well {
            Ok(Box::new(()) as _)
        } else {
            Err("the job has failed".to_owned())
        };
        self.scheduler.job_done(job, result, self.now);
        self.after_input(None)
    }

    fn schedule(&mut self) -> Result<bool, Violation> {
        // What time brings is seen on its own, so that a choice that is given up and one that is made are told apart.
        self.scheduler.tick(self.now);
        self.after_input(None)?;
        let outcome = self.scheduler.schedule_one(self.now);
        let failed = match &outcome {
            Outcome::Done {
                pod,
                result: CycleResult::Unschedulable { .. },
            } => Some(pod.uid.clone()),
            _ => None,
        };
        self.after_input(failed.as_ref())?;
        let tried = matches!(outcome, Outcome::Done { .. });
        if tried {
            self.say(|| format!("tried: {outcome:?}"));
        }
        self.tally.attempts += u64::from(tried);
        Ok(tried)
    }

    /// The scheduler dies. What it has sent is carried out or not; the next one lists everything.
    fn restart(&mut self, done: u64) -> Result<(), Violation> {
        for (n, (_, call)) in std::mem::take(&mut self.calls).iter().enumerate() {
            if done >> (n % 64) & 1 == 1 {
                // Nobody is left to hear the answer.
                let _ = self.subject.api.carry_out(&mut self.world, call, self.now);
            }
        }
        self.jobs.clear();
        self.tally.restarts += 1;
        self.seed = self.seed.wrapping_add(1);
        self.checker.restarted();
        self.scheduler = start(self.subject, self.features, self.seed, self.now)?;
        let kinds = if done & 1 == 0 {
            [Watched::Nodes, Watched::Pods]
        } else {
            [Watched::Pods, Watched::Nodes]
        };
        kinds.into_iter().try_for_each(|kind| self.relist(kind))
    }

    // --- what the scheduler does ---------------------------------------------------------------------------

    /// Looks at what the scheduler has done with its last input: choices, calls, jobs. `failed` is the pod for which
    /// it has just found no node.
    fn after_input(&mut self, failed: Option<&Str>) -> Result<(), Violation> {
        let Outputs { calls, jobs, .. } = self.scheduler.take_outputs(self.now);
        // First, as it was decided before its victims gave their places up.
        self.judge_preemption(failed)?;
        self.judge_choices()?;
        for (id, call) in calls {
            self.tally.calls += 1;
            self.say(|| format!("called: {}", in_short(&call)));
            match &call {
                ApiCall::BindPod { pod, node } => self.checker.bind_sent(&pod.uid, node)?,
                ApiCall::DeletePod { .. }
                | ApiCall::PatchPodStatus { .. }
                | ApiCall::ClearPreEnqueueStatus { .. }
                | ApiCall::UpdateStorage(_) => {}
            }
            self.calls.push((id, call));
        }
        self.jobs.extend(jobs.into_iter().map(|(id, _)| id));
        let nominator = self.scheduler.queue().nominator();
        let nominated = nominator.nodes().flat_map(|node| {
            let pods = nominator.pods_on(node).iter();
            pods.map(|info| (info.pod.uid().clone(), node.clone()))
        });
        self.checker.keeps_free(nominated);
        Ok(())
    }

    /// A pod that is being deleted for the scheduler but not for the API: it makes room for another one.
    fn judge_preemption(&mut self, failed: Option<&Str>) -> Result<(), Violation> {
        let cache = self.scheduler.cache();
        let dying = |pod: &Pod| {
            cache
                .effective(pod.uid())
                .is_some_and(|p| p.is_terminating())
        };
        let (victims, spared): (Vec<Str>, Vec<Str>) = {
            let uids = |dies: bool| {
                let pods = self.checker.living_pods().filter(|pod| dying(pod) == dies);
                pods.map(|pod| pod.uid().clone()).collect()
            };
            (uids(true), uids(false))
        };
        for uid in &spared {
            self.checker.spared(uid);
        }
        for uid in &victims {
            if self.checker.preempts(uid, failed.map(Str::as_str))? {
                self.tally.preemptions += 1;
                self.say(|| format!("preempted: {uid}"));
            }
        }
        Ok(())
    }

    /// A pod that has a node for the scheduler but not for the API: it has chosen one.
    fn judge_choices(&mut self) -> Result<(), Violation> {
        let cache = self.scheduler.cache();
        let given_up: Vec<Str> = self
            .checker
            .placed()
            .filter(|uid| !cache.is_assumed(uid))
            .cloned()
            .collect();
        let chosen: Vec<(Str, Str)> = self
            .checker
            .waiting_pods()
            .filter(|pod| !pod.is_terminating() && cache.is_assumed(pod.uid()))
            .filter_map(|pod| Some((pod.uid(), &cache.effective(pod.uid())?.spec.node_name)))
            .filter(|(uid, node)| self.checker.placement(uid) != Some(*node))
            .map(|(uid, node)| (uid.clone(), node.clone()))
            .collect();
        for uid in &given_up {
            self.checker.gave_up(uid);
        }
        for uid in &given_up {
            self.say(|| format!("given up: the place of {uid}"));
        }
        for (uid, node) in &chosen {
            self.say(|| format!("chosen: {node} for {uid}"));
            self.checker.decided(uid, node)?;
        }
        Ok(())
    }

    /// The scheduler's own books, and that every waiting pod is somewhere and nowhere twice.
    fn check_books(&self) -> Result<(), Violation> {
        self.scheduler.check().map_err(Violation::Books)?;
        let queue = self.scheduler.queue();
        let mut queued = BTreeSet::new();
        for (place, info) in queue.pending_pods() {
            let uid = info.pod.uid();
            if !queued.insert(uid) || queue.is_in_flight(uid) {
                let text = format!("pod {} is in {place:?} and elsewhere", info.pod.name());
                return Err(Violation::Books(text));
            }
        }
        // A binding may hold a pod that is not counted on its node any more, and without asynchronous calls a pod comes
        // back when its status is written.
        let waits_for_calls = !self.features.enabled(Feature::SchedulerAsyncAPICalls);
        let may_be_held = self.scheduler.bindings_in_flight() > 0
            || (waits_for_calls && !self.scheduler.dispatcher().is_empty());
        // A pod that the scheduler is about to delete need not be tried.
        let cache = self.scheduler.cache();
        let is_being_deleted = |uid: &Str| cache.effective(uid).is_some_and(|p| p.is_terminating());
        for pod in self.checker.waiting_pods() {
            let uid = pod.uid();
            let somewhere = queued.contains(uid)
                || queue.is_in_flight(uid)
                || self.checker.placement(uid).is_some()
                || pod.is_terminating()
                || is_being_deleted(uid);
            if !somewhere && !may_be_held {
                let text = format!(
                    "pod {} is neither queued nor in flight nor placed",
                    pod.name()
                );
                return Err(Violation::Books(text));
            }
        }
        Ok(())
    }
}
