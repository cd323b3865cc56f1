//! One scheduler of a run, with its watches, its pending calls and its checker.

use super::Subject;
use crate::checker::{Checker, Violation};
use crate::world::{WATCHED, WatchEvent, Watches};
use berth_api::{Duration, Str, Time};
use berth_framework::FeatureGates;
use berth_framework::call::{ApiCall, CallId, CallResult};
use berth_framework::job::JobId;
use berth_scheduler::evaluator::EvaluatorKind;
use berth_scheduler::{ClusterChange, Scheduler, SchedulerOptions};

/// An interval without end: without the periodic flush, only events requeue pods.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The options with which schedulers of a run are started.
#[derive(Clone, Copy)]
pub(super) struct Setup<'a> {
    pub(super) subject: &'a Subject,
    pub(super) features: FeatureGates,
    pub(super) evaluator: EvaluatorKind,
    pub(super) seed: u64,
    /// The number of the configuration for all schedulers.
    pub(super) configuration: usize,
    /// The number of started instances.
    pub(super) started: u64,
}

/// The current role of a scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It schedules.
    Leads,
    /// It receives all events but no time, and its outputs are not taken.
    Standby,
    /// Another scheduler leads since then. This one does not know, and schedules.
    Deposed(Time),
}

/// A call that was not answered yet.
pub(super) struct RunningCall {
    pub(super) id: CallId,
    pub(super) call: ApiCall,
    /// The answer, if the API has carried it out.
    pub(super) answer: Option<CallResult>,
}

/// One scheduler.
pub(super) struct Instance {
    /// The number of the instance, counted from 1.
    pub(super) number: u64,
    pub(super) role: Role,
    /// The number of its current configuration.
    pub(super) configuration: usize,
    pub(super) scheduler: Scheduler,
    pub(super) checker: Checker,
    pub(super) watches: Watches,
    /// By index in [`WATCHED`]: the time at which each watch had last delivered everything.
    pub(super) up_to_date: [Time; WATCHED.len()],
    pub(super) calls: Vec<RunningCall>,
    pub(super) jobs: Vec<JobId>,
    /// Whether it knew quotas after its last input.
    pub(super) knows_quotas: bool,
}

impl Instance {
    /// A scheduler that knows nothing yet.
    pub(super) fn start(setup: &mut Setup<'_>, role: Role, now: Time) -> Result<Self, Violation> {
        let configuration = setup.subject.configuration(setup.configuration);
        let options = SchedulerOptions {
            profiles: configuration.profiles,
            percentage_of_nodes_to_score: configuration.percentage_of_nodes_to_score,
            pod_initial_backoff: configuration.pod_initial_backoff,
            pod_max_backoff: configuration.pod_max_backoff,
            features: setup.features,
            seed: setup.seed.wrapping_add(setup.started),
            evaluator: setup.evaluator,
            compares_evaluators: true,
            pod_max_in_unschedulable_pods_duration: NEVER,
            ..SchedulerOptions::default()
        };
        setup.started += 1;
        let observe = setup.subject.observe.as_ref();
        let observer = observe.and_then(|observe| observe(&options, now));
        let mut scheduler =
            Scheduler::new(options, &setup.subject.registry, now).map_err(|errors| {
                Violation::InconsistentState(format!("the profile is wrong: {errors}"))
            })?;
        if let Some(observer) = observer {
            scheduler.observe(observer);
        }
        Ok(Self {
            number: setup.started,
            role,
            configuration: setup.configuration,
            scheduler,
            checker: Checker::default(),
            watches: Watches::default(),
            up_to_date: [now; WATCHED.len()],
            calls: Vec::new(),
            jobs: Vec::new(),
            knows_quotas: false,
        })
    }

    pub(super) fn is_active(&self) -> bool {
        self.role != Role::Standby
    }

    /// The nodes that the scheduler keeps free, with the UID of the nominated pod.
    pub(super) fn kept_free(&self) -> impl Iterator<Item = (Str, Str)> {
        let nominator = self.scheduler.queue().nominator();
        nominator.nodes().flat_map(|node| {
            let pods = nominator.pods_on(node).iter();
            pods.map(|info| (info.pod.uid().clone(), node.clone()))
        })
    }
}

pub(super) fn change_of(event: &WatchEvent) -> ClusterChange {
    match event.clone() {
        WatchEvent::Applied(object) => ClusterChange::Applied(object),
        WatchEvent::Deleted(object) => ClusterChange::Deleted(object),
    }
}
