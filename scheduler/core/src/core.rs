//! The parts of the scheduler that the stages use: the framework, the queue, the calls, the waits and the records.
//!
//! Each part owns its fields and is changed only through its methods. A function takes the parts that it reads and
//! changes, so its signature states its effects.
//!
//! The [`Framework`] contains the parts that a run of plugins needs. The stages of the cycle and of bindings run plugins
//! with it and return their end as a value: [`StageEnd`](crate::cycle::StageEnd) and
//! [`BindingEnd`](crate::binding::BindingEnd). The functions that take the whole [`Core`] apply these values to the
//! queue, the calls and the records, or begin the next stage. The methods of [`Core`] change several parts together: an
//! object in the cache and in the dispatcher (`core/objects.rs`), queued pods according to the current cluster
//! (`core/waking.rs`).
//!
//! The stages are modules of functions: [`pod_status`](crate::pod_status), [`nominations`](crate::nominations),
//! [`cycle`](crate::cycle), [`preemptions`](crate::preemptions), [`binding`](crate::binding),
//! [`failure`](crate::failure). [`Scheduler`](crate::Scheduler) takes inputs and calls the stages in order.

mod broken_groups;
mod calls;
mod configuration;
mod decisions;
mod explain;
mod framework;
mod gates;
mod measure;
mod objects;
mod open_preemptions;
mod outbound;
mod plugin_run;
mod progress;
mod quota_statuses;
mod requests;
mod run_times;
mod text;
mod unbound;
mod waits;
mod waking;

pub use decisions::{DECISIONS_MAX, PodDecision};
pub use explain::{EarlierAttempt, Explanation, RejectionReason};
pub use gates::GateRemovals;
pub use outbound::{ApiEvent, GroupEvent, Outputs};
pub use progress::{Progress, RunningPreemption};
pub use run_times::RunTimes;

pub(crate) use broken_groups::BrokenGroups;
pub(crate) use calls::{CallObject, Calls};
pub(crate) use configuration::{nominated_without, pods_of_others, waiting_without};
pub(crate) use decisions::SearchBegin;
pub(crate) use explain::{Explanations, reasons};
pub(crate) use framework::Framework;
pub(crate) use measure::search_took;
pub(crate) use open_preemptions::{OpenPreemption, OpenPreemptions};
pub(crate) use outbound::Outbound;
pub(crate) use plugin_run::{Answered, PointRun, Ran};
pub(crate) use quota_statuses::QuotaStatuses;
pub(crate) use requests::{Assumption, PluginRequests};
pub(crate) use text::{event_note, go_duration};
pub(crate) use unbound::{Hold, PERMIT_WAIT_MAX, UnboundPods};
pub(crate) use waits::{WaitId, Waiter, Waits};
pub(crate) use waking::{
    ASSIGNED_POD_DELETE, activate_wanted, give_back, is_responsible, placement_freed, recheck,
};

use crate::clock::CoreClock;
use berth_api::Pod;
use berth_dispatcher::Dispatcher;
use berth_evaluator::EvaluatorKind;
use berth_framework::extender::Extenders;
use berth_framework::{Feature, FeatureGates};
use berth_profile::Profiles;
use berth_queue::SchedulingQueue;
use configuration::follow_profiles;

/// The settings. A new configuration replaces the profiles, the share of nodes and the extenders together; the rest is
/// constant while the scheduler runs.
pub(crate) struct Settings {
    pub(crate) features: FeatureGates,
    pub(crate) profiles: Profiles,
    /// For profiles that do not set their own; see
    /// [`ProfileSpec::percentage_of_nodes_to_score`](berth_profile::ProfileSpec).
    pub(crate) percentage_of_nodes_to_score: Option<i32>,
    pub(crate) evaluator: EvaluatorKind,
    /// See [`SchedulerOptions::compares_evaluators`](crate::SchedulerOptions).
    pub(crate) compares_evaluators: bool,
    pub(crate) extenders: Extenders,
    /// The profiles for pods with a node that wait for a resize, if preemption for them is on.
    pub(crate) resizes: Option<Profiles>,
}

impl Settings {
    pub(crate) fn new(
        features: FeatureGates,
        evaluator: EvaluatorKind,
        compares_evaluators: bool,
        profiles: Profiles,
        percentage_of_nodes_to_score: Option<i32>,
        extenders: Extenders,
    ) -> Self {
        let preempts_for_resizes =
            features.enabled(Feature::InPlacePodVerticalScalingSchedulerPreemption);
        Self {
            features,
            resizes: preempts_for_resizes.then(|| profiles.of_resizes()),
            profiles,
            percentage_of_nodes_to_score,
            evaluator,
            compares_evaluators,
            extenders,
        }
    }

    pub(crate) fn is_on(&self, feature: Feature) -> bool {
        self.features.enabled(feature)
    }

    /// Returns whether a profile schedules the pod.
    pub(crate) fn has_profile(&self, pod: &Pod) -> bool {
        self.profiles.get(&pod.spec.scheduler_name).is_some()
    }

    /// Returns whether the pod has a node and is still in the queue, because it waits for a resize.
    pub(crate) fn makes_room_for_resize(&self, pod: &Pod) -> bool {
        let profiles = self.resizes.as_ref();
        let is_ours = profiles.is_some_and(|p| p.get(&pod.spec.scheduler_name).is_some());
        is_ours && pod.has_deferred_resize() && !pod.is_terminating() && !pod.is_terminal()
    }
}

/// The parts; see the [module](self).
pub(crate) struct Core {
    pub(crate) framework: Framework,
    pub(crate) queue: SchedulingQueue,
    pub(crate) calls: Calls,
    pub(crate) waits: Waits,
    pub(crate) preemptions: OpenPreemptions,
    pub(crate) broken_groups: BrokenGroups,
    pub(crate) explanations: Explanations,
    pub(crate) quota_statuses: QuotaStatuses,
}

impl Core {
    pub(crate) fn new(
        settings: Settings,
        clock: CoreClock,
        queue: SchedulingQueue,
        dispatcher: Dispatcher,
    ) -> Self {
        Self {
            framework: Framework::new(settings, clock, dispatcher.ids()),
            queue,
            calls: Calls::new(dispatcher),
            waits: Waits::default(),
            preemptions: OpenPreemptions::default(),
            broken_groups: BrokenGroups::default(),
            explanations: Explanations::default(),
            quota_statuses: QuotaStatuses::default(),
        }
    }
}
