//! The parts of the scheduler that all stages use: the cluster, the queue, the calls, the waits, the outputs.
//!
//! Each part owns its fields and is changed through its methods alone; the parts themselves are private. A stage
//! asks about one pod or setting (`core/lookups.rs`), and changes parts by methods of [`Core`] that are named after the change:
//! a pod is assumed on a node (`core/objects.rs`), pods are woken (`core/waking.rs`), a call is made (`core/outside.rs`). A
//! stage that reads much of a part, or makes most of its changes, gets the part (`core/parts.rs`).
//!
//! The stages are modules of functions: [`pod_status`](crate::pod_status), [`nominations`](crate::nominations),
//! [`cycle`](crate::cycle), [`preemptions`](crate::preemptions), [`binding`](crate::binding),
//! [`failure`](crate::failure). [`Scheduler`](crate::Scheduler) takes inputs and calls one stage after the other.

mod calls;
mod clock;
mod configuration;
mod decisions;
mod explain;
mod gates;
mod lookups;
mod measure;
mod objects;
mod outbound;
mod outside;
mod parts;
mod plugin_run;
mod progress;
mod requests;
mod text;
mod trace;
mod waits;
mod waking;

pub use decisions::{DECISIONS_MAX, PodDecision};
pub use explain::{EarlierAttempt, Explanation, RejectionReason};
pub use gates::GateRemovals;
pub use outbound::{ApiEvent, GroupEvent, Outputs};
pub use progress::{Progress, RunningPreemption};
pub use trace::{AttemptTrace, TracedPoint};

pub(crate) use calls::{CallObject, Calls};
pub(crate) use clock::{CoreClock, Moment};
pub(crate) use decisions::SearchBegin;
pub(crate) use explain::{Explanations, reasons};
pub(crate) use outbound::Outbound;
pub(crate) use plugin_run::{Answered, PointRun, Ran};
pub(crate) use requests::{Assumption, PluginRequests};
pub(crate) use text::{event_note, go_duration};
pub(crate) use waits::{WaitId, Waiter, Waits};
pub(crate) use waking::ASSIGNED_POD_DELETE;

use crate::binding::UnboundPods;
use crate::broken_groups::BrokenGroups;
use crate::cache::Cache;
use crate::evaluator::EvaluatorKind;
use crate::preemptions::OpenPreemptions;
use berth_dispatcher::Dispatcher;
use berth_framework::extender::Extenders;
use berth_framework::{Feature, FeatureGates};
use berth_profile::Profiles;
use berth_queue::SchedulingQueue;
use berth_telemetry::metrics::Metrics;

/// The settings. A new configuration replaces the profiles, the share of nodes and the extenders together; the rest does
/// not change while the scheduler runs.
pub(crate) struct Settings {
    pub(crate) features: FeatureGates,
    pub(crate) profiles: Profiles,
    /// For profiles that do not set their own; see
    /// [`ProfileSpec::percentage_of_nodes_to_score`](berth_profile::ProfileSpec).
    pub(crate) percentage_of_nodes_to_score: Option<i32>,
    pub(crate) evaluator: EvaluatorKind,
    pub(crate) extenders: Extenders,
    /// The profiles for pods with a node that wait for a resize, if preemption for them is on.
    pub(crate) resizes: Option<Profiles>,
}

impl Settings {
    pub(crate) fn new(
        features: FeatureGates,
        evaluator: EvaluatorKind,
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
            extenders,
        }
    }

    pub(crate) fn is_on(&self, feature: Feature) -> bool {
        self.features.enabled(feature)
    }
}

/// The parts; see the [module](self).
pub(crate) struct Core {
    settings: Settings,
    clock: CoreClock,
    metrics: Metrics,
    cache: Cache,
    queue: SchedulingQueue,
    calls: Calls,
    waits: Waits,
    outbound: Outbound,
    unbound: UnboundPods,
    requests: PluginRequests,
    preemptions: OpenPreemptions,
    broken_groups: BrokenGroups,
    explanations: Explanations,
}

impl Core {
    pub(crate) fn new(
        settings: Settings,
        clock: CoreClock,
        queue: SchedulingQueue,
        dispatcher: Dispatcher,
    ) -> Self {
        let mut cache = Cache::default();
        cache.cluster_mut().follow(&settings.features);
        let schedulers = settings.profiles.names();
        cache.cluster_mut().pods.count_members_of(schedulers);
        Self {
            settings,
            clock,
            metrics: Metrics::default(),
            cache,
            queue,
            calls: Calls::new(dispatcher),
            waits: Waits::default(),
            outbound: Outbound::default(),
            unbound: UnboundPods::default(),
            requests: PluginRequests::default(),
            preemptions: OpenPreemptions::default(),
            broken_groups: BrokenGroups::default(),
            explanations: Explanations::default(),
        }
    }
}
