//! The simulation: a queue of events in virtual time around the scheduling core.
//!
//! | module | contents |
//! |---|---|
//! | `plan` | the trace of one seed: every pod, every shape of pod, the resources |
//! | `events` | the events, ordered by time |
//! | `pods` | pods that arrive, are bound, run, end, are evicted and replaced; gates; groups |
//! | `nodes` | nodes that join, fail, are drained and leave |
//! | `node_groups` | groups of nodes that grow and shrink |
//! | `buffers` | capacity that node groups keep for capacity buffers |
//! | `quotas` | pods that wait for room in a quota |
//! | `evictions` | pods that are deleted, evicted by drains, or end with their node |
//! | `daemons` | the pods of DaemonSets |
//! | `budgets` | disruption budgets |
//! | `calls` | the calls of the scheduler: their latency, and the reactions of controllers and kubelets |
//! | `measure` | integrals over time, and the course of the simulation |
//! | `outcome` | the result |
//!
//! Time advances from event to event, so time without events costs nothing. [`Engine`] of `berth-explain` performs the
//! calls of the scheduler, and has the controllers of claims and volumes.

mod budgets;
mod buffers;
mod calls;
mod daemons;
mod events;
mod evictions;
mod measure;
mod node_groups;
mod nodes;
mod outcome;
mod plan;
mod pods;
mod quotas;
#[cfg(test)]
mod tests;

use crate::report::Run;
use crate::trace::Trace;
use berth_api::{Duration, Namespace, Object, Time};
use berth_explain::Packing;
use berth_explain::engine::{ClaimTemplates, Engine};
use berth_framework::registry::Registry;
use berth_scheduler::profile::ProfileErrors;
use berth_scheduler::{CycleResult, ScheduleOutcome, Scheduler, SchedulerOptions};
use budgets::Budgets;
use buffers::Buffers;
use daemons::Daemons;
use events::{Event, EventQueue};
use measure::Measure;
use node_groups::NodeGroups;
use nodes::Nodes;
use plan::Plan;
use pods::{Pods, acknowledge};
use quotas::Quotas;
use std::sync::Arc;

/// The time without any event after which a simulation ends: longer than every backoff.
const REST_MAX: Duration = Duration::from_secs(15 * 60);
/// The number of steps between two reports of progress.
const STEPS_PER_PROGRESS: u64 = 4096;
/// The latest simulated time, in the year 2255, a few years before nanoseconds since the epoch overflow.
const END_MAX: Time = Time::from_secs(9_000_000_000);
/// The shortest step if the scheduler requests the current time again.
const STEP_MIN: Duration = Duration::from_micros(1);

/// The options of a simulation.
#[derive(Debug)]
pub struct SimulationOptions {
    /// The options of the scheduler. Extenders are not called.
    pub scheduler: SchedulerOptions,
    /// The name of the configuration in the report.
    pub config: String,
    /// The seed of all random choices: decisions among equal nodes, drawn pods, durations and latencies.
    pub seed: u64,
    /// The offset from the start of the trace at which the simulation ends, if it has not ended before.
    pub until: Option<Duration>,
    /// Whether the report has a row for each pod.
    pub pods: bool,
    /// Whether pods that no node accepts are tried again after `podMaxInUnschedulablePodsDuration` without an event, as
    /// in production. Such an attempt has the same result as the previous one, unless a plugin misses an event.
    pub retry_without_events: bool,
}

/// The state of a running simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The virtual time.
    pub now: Time,
    /// Pods that have arrived.
    pub arrived: usize,
    /// All pods.
    pub pods: usize,
}

/// The reason why a trace cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The configuration of the scheduler is invalid.
    #[error("{0}")]
    Profiles(#[from] ProfileErrors),
    /// A pod names a group that the trace does not have.
    #[error("pod {pod} names group {group}, which the trace does not define; add it to the groups")]
    UnknownGroup {
        /// The pod, `namespace/name`.
        pod: String,
        /// The group, `namespace/name`.
        group: String,
    },
    /// A gate waits for the end of a pod that the trace does not have.
    #[error(
        "gate {gate} of pod {pod} waits for the end of pod {awaited}, which the trace does not have; \
         name one of its pods as NAMESPACE/NAME"
    )]
    UnknownPod {
        /// The name of the gate.
        gate: String,
        /// The pod with the gate, `namespace/name`.
        pod: String,
        /// The pod whose end removes the gate, `namespace/name`.
        awaited: String,
    },
    /// Pods wait for the end of each other.
    #[error(
        "gate {gate} of pod {pod} waits for the end of pod {awaited}, which waits in turn for the end of {pod}, so that \
         neither starts; remove one of the gates"
    )]
    GateCycle {
        /// The name of the gate.
        gate: String,
        /// The pod with the gate, `namespace/name`.
        pod: String,
        /// The pod whose end removes the gate, `namespace/name`.
        awaited: String,
    },
    /// Two nodes, pods or capacity buffers have the same name.
    #[error("two {kind} of the trace have the name {name}; give each a name of its own")]
    SameName {
        /// `pods`, `nodes or node groups` or `capacity buffers`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// There are too many pods.
    #[error("the trace has {pods} pods; at most {max} are simulated", max = plan::PODS_MAX)]
    TooManyPods {
        /// The number.
        pods: u64,
    },
    /// The trace has no nodes.
    #[error("the trace has no nodes; add some, or give --nodes N")]
    NoNodes,
}

/// A simulation that runs.
pub struct Simulation {
    engine: Engine,
    start: Time,
    /// The time of the last event that was not the scheduler's own.
    last_event: Time,
    rng: fastrand::Rng,
    plan: Plan,
    events: EventQueue,
    pods: Pods,
    nodes: Nodes,
    node_groups: NodeGroups,
    /// The copy of the cluster for trials of node groups and buffers; kept to reuse its memory.
    packing: Option<Packing>,
    buffers: Buffers,
    budgets: Budgets,
    daemons: Daemons,
    quotas: Quotas,
    measure: Measure,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("now", &self.engine.now())
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// Plays a trace.
///
/// # Errors
/// When the configuration or the trace is wrong.
pub fn simulate(
    trace: &Trace,
    options: SimulationOptions,
    registry: &Registry,
    progress: &mut dyn FnMut(Progress),
) -> Result<Run, SimulationError> {
    let mut simulation = Simulation::new(
        trace,
        options.scheduler,
        options.seed,
        options.retry_without_events,
        registry,
    )?;
    let until = options.until.map(|offset| trace.start() + offset);
    simulation.run(until.unwrap_or(END_MAX).min(END_MAX), progress);
    let mut run = simulation.outcome(options.pods);
    run.config = options.config;
    run.seed = options.seed;
    Ok(run)
}

impl Simulation {
    fn new(
        trace: &Trace,
        mut options: SchedulerOptions,
        seed: u64,
        retry_without_events: bool,
        registry: &Registry,
    ) -> Result<Self, SimulationError> {
        options.seed = seed;
        if !retry_without_events {
            // Longer than any simulation.
            options.pod_max_in_unschedulable_pods_duration =
                Duration::from_secs(300 * 365 * 86_400);
        }
        let start = trace.start();
        let plan = Plan::new(trace, seed)?;
        let measure = Measure::new(&plan, start);
        let mut simulation = Self {
            engine: Engine::new(
                Scheduler::new(options, registry, start)?,
                start,
                acknowledge,
            ),
            start,
            last_event: start,
            rng: fastrand::Rng::with_seed(seed ^ 0x5bd1_e995),
            events: EventQueue::default(),
            pods: Pods::new(trace, &plan)?,
            nodes: Nodes::default(),
            node_groups: NodeGroups::new(trace),
            packing: None,
            buffers: Buffers::new(trace)?,
            budgets: Budgets::new(trace, &plan),
            daemons: Daemons::new(trace, &plan),
            quotas: Quotas::new(trace, &plan),
            measure,
            plan,
        };
        simulation.add_objects(trace);
        simulation.add_nodes(trace)?;
        if !trace.buffers.is_empty() {
            simulation.plan_first_scan();
        }
        Ok(simulation)
    }

    /// The objects that exist from the start, and the namespaces of all pods.
    fn add_objects(&mut self, trace: &Trace) {
        for name in self.plan.namespaces.clone() {
            let mut namespace = Namespace::default();
            namespace.metadata.labels =
                berth_api::Labels::from_pairs([("kubernetes.io/metadata.name", name.clone())]);
            namespace.metadata.name = name;
            self.engine.set(Object::Namespace(Arc::new(namespace)));
        }
        self.engine.load(trace.objects.iter().cloned());
        self.add_budgets();
        self.engine.provision_at_once();
        let templates = trace.claim_templates.iter().cloned();
        self.engine
            .set_claim_templates(ClaimTemplates::new(templates));
        self.create_claims_of_chunks();
    }

    /// Runs until no further event is planned, or until a time.
    fn run(&mut self, until: Time, progress: &mut dyn FnMut(Progress)) {
        let mut steps = 0_u64;
        let mut wake = self.schedule();
        loop {
            let event = self.next_event();
            // A scan of node groups follows an attempt, and an attempt without a node follows a backoff: these two
            // alone would continue forever.
            let is_resting = !self.has_events();
            if is_resting && self.engine.now() > self.last_event + REST_MAX {
                break;
            }
            let wake_at = wake.filter(|at| *at <= self.last_event + REST_MAX || !is_resting);
            let Some(next) = event.into_iter().chain(wake_at).min() else {
                break;
            };
            if next > until {
                self.advance_to(until);
                break;
            }
            if event.is_some_and(|at| at <= next) {
                self.advance_to(next);
                if !is_resting {
                    self.last_event = next;
                }
                self.happen();
            } else {
                // An attempt alone changes no measurement: if nothing follows, the simulation has ended.
                self.engine.advance(next);
            }
            // For example, the scheduler does not read the start of a container.
            if self.engine.has_input() || wake.is_some_and(|at| at <= self.engine.now()) {
                wake = self.schedule();
            }
            steps += 1;
            if steps.is_multiple_of(STEPS_PER_PROGRESS) {
                progress(self.progress());
            }
        }
        progress(self.progress());
    }

    fn progress(&self) -> Progress {
        Progress {
            now: self.engine.now(),
            arrived: self.pods.arrived(),
            pods: self.pods.len(),
        }
    }

    /// Returns whether a pod will arrive, or an event other than a scan of node groups is planned.
    fn has_events(&self) -> bool {
        let scans = usize::from(self.node_groups.is_scan_planned);
        self.pods.next_arrival().is_some() || self.events.len() > scans
    }

    /// The time of the next arrival or event.
    fn next_event(&self) -> Option<Time> {
        let arrival = self.pods.next_arrival();
        arrival.into_iter().chain(self.events.next_time()).min()
    }

    /// Time passes without an event.
    fn advance_to(&mut self, next: Time) {
        while let Some(end) = self.measure.interval_end().filter(|end| *end <= next) {
            self.measure.advance(end);
            let fragmentation = self.fragmentation();
            self.measure.close_interval(fragmentation);
        }
        self.measure.advance(next);
        self.measure_buffers(next);
        self.engine.advance(next);
    }

    /// Handles all events that are due now.
    fn happen(&mut self) {
        while let Some(event) = self.events.pop_due(self.engine.now()) {
            match event {
                Event::Answer(answer) => self.answer(*answer),
                Event::Start { pod, incarnation } => self.pod_starts(pod, incarnation),
                Event::End { pod, incarnation } => self.pod_ends(pod, incarnation),
                Event::Replace { pod } => self.pod_arrives(pod),
                Event::RemoveGate {
                    pod,
                    incarnation,
                    gate,
                } => self.remove_gate(pod, incarnation, usize::from(gate)),
                Event::NodeJoins { node } => self.node_joins(node),
                Event::NodeLeaves { node } => self.node_leaves(node),
                Event::NodeDrains { node } => self.node_drains(node),
                Event::RetryDrain { node } => self.drain(node),
                Event::Terminated { pod, incarnation } => self.pod_terminated(pod, incarnation),
                Event::BindVolume(claim) => self.engine.bind_volume(&claim),
                Event::NodeReturns { node } => self.node_returns(node),
                Event::Scan => self.scan(),
                Event::IdleCheck { node } => self.idle_check(node),
            }
        }
        while let Some(pod) = self.pods.pop_arrival(self.engine.now()) {
            self.pod_arrives(pod);
        }
    }

    /// Runs the scheduler until it waits. Returns the time of its next step.
    fn schedule(&mut self) -> Option<Time> {
        loop {
            let outcome = self.attempt();
            self.note_attempts(&outcome);
            match outcome {
                ScheduleOutcome::Idle { next_wake } => {
                    return next_wake.map(|at| at.max(self.engine.now() + STEP_MIN));
                }
                ScheduleOutcome::Parked(wait) => {
                    return Some(wait.deadline.max(self.engine.now() + STEP_MIN));
                }
                ScheduleOutcome::Done { .. } | ScheduleOutcome::Group { .. } => {}
            }
        }
    }

    fn note_attempts(&mut self, outcome: &ScheduleOutcome) {
        for (pod, result) in outcome.decided() {
            let Some(index) = self.pods.index_of(&pod.uid) else {
                continue;
            };
            let is_failure = !matches!(result, CycleResult::Placed { .. } | CycleResult::Skipped);
            self.pods.note_attempt(index);
            self.measure.note_attempt(is_failure);
            if is_failure {
                self.note_unschedulable(index);
            }
        }
    }
}
