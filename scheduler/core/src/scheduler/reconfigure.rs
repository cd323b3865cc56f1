//! Replaces the configuration between two scheduling cycles.
//!
//! The profiles, the share of nodes to score, the extenders and the backoffs are replaced together or not at all: the
//! new profiles are built and checked first. An attempt ends with the profile and the extenders with which it began.
//! State derived from the former configuration is dropped or computed again: cached answers, the queueing hints and
//! PreEnqueue answers of waiting pods, the events kept for pods in flight, the counted members of pod groups. The state
//! of the cluster is kept: nominations of pods that still have a profile, assumed pods, calls and preemptions under
//! way.

use super::{ObservedInput, Scheduler, hooks_of, register_calls};
use crate::core::{Calls, Framework, nominated_without, pods_of_others, waiting_without};
use crate::nominations;
use crate::pod_status::correct_status;
use berth_api::{Duration, Pod, Time};
use berth_framework::extender::Extenders;
use berth_framework::registry::Registry;
use berth_profile::{ProfileErrors, ProfileSpec, Profiles};
use berth_queue::SchedulingQueue;
use std::fmt;
use std::sync::Arc;

/// The part of a configuration that a running scheduler can apply.
#[derive(Clone)]
pub struct Reconfiguration {
    /// The profiles; at least one.
    pub profiles: Vec<ProfileSpec>,
    /// The default for profiles without a value; see [`ProfileSpec::percentage_of_nodes_to_score`].
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The backoff after the first failure (`podInitialBackoffSeconds`).
    pub pod_initial_backoff: Duration,
    /// The maximum backoff (`podMaxBackoffSeconds`).
    pub pod_max_backoff: Duration,
    /// The extenders.
    pub extenders: Extenders,
    /// The complete configuration as JSON, for a recording of the inputs.
    pub source: Arc<str>,
}

impl fmt::Debug for Reconfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconfiguration")
            .field("profiles", &self.profiles)
            .finish_non_exhaustive()
    }
}

/// The effect of a new configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reconfigured {
    /// The number of waiting pods that left the queue, because no profile has their scheduler name any more.
    pub left: usize,
    /// The number of pods that entered the queue, because a profile has their scheduler name now.
    pub joined: usize,
}

/// The reason why a configuration was not applied. The former configuration stays in effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReconfigured {
    /// A scheduling cycle waits for a plugin or an extender and must end with the configuration with which it began.
    /// The caller tries again after the next input.
    #[error("a scheduling cycle is under way")]
    Busy,
    /// The profiles are wrong.
    #[error(transparent)]
    Invalid(#[from] ProfileErrors),
}

impl Scheduler {
    /// Applies a new configuration to all cycles from the next one on.
    ///
    /// Every waiting pod is evaluated again: its PreEnqueue plugins are called, and an unschedulable pod is tried again
    /// after its backoff, because no event announces that a new configuration may accept it. Pods keep their attempts,
    /// timestamps and backoff. Pods in flight continue; if they fail, they are tried again after their backoff.
    ///
    /// # Errors
    /// When a cycle is parked, or the profiles are invalid. Nothing is changed in these cases.
    pub fn reconfigure(
        &mut self,
        new: &Reconfiguration,
        registry: &Registry,
        now: Time,
    ) -> Result<Reconfigured, NotReconfigured> {
        if self.cycle.waits_for().is_some() {
            return Err(NotReconfigured::Busy);
        }
        let features = *self.features();
        let profiles = Profiles::build(&new.profiles, registry, &features)?;
        let hooks = hooks_of(&profiles, &features, &new.extenders);
        // A registered but unused type has no effect, so a failure half-way changes nothing.
        register_calls(&profiles, self.core.calls.dispatcher_mut())?;
        self.observed(now, ObservedInput::Reconfigure(new));
        self.core.framework.begin_step(now);

        let core = &mut self.core;
        let left = waiting_without(&core.queue, &profiles);
        left.iter().for_each(|pod| core.leave_to_others(pod));
        // Another scheduler decides about the status of such a pod.
        for uid in nominated_without(&core.queue, &profiles) {
            nominations::set_aside(core.queue.nominator_mut(), &uid);
        }
        let others = pods_of_others(&core.framework.cache, &core.framework.settings);
        let percentage = new.percentage_of_nodes_to_score;
        core.set_configuration(profiles, percentage, new.extenders.clone());
        self.cycle.forget_answers();
        // The queue follows the profiles.
        let (queue, cx) = core.queue_with_context();
        queue.reconfigure(&cx, new.pod_initial_backoff, new.pod_max_backoff, hooks);
        let joined = enqueue_newcomers(&core.framework, &mut core.queue, &mut core.calls, others);
        self.settle();
        Ok(Reconfigured {
            left: left.len(),
            joined,
        })
    }
}

/// Queues the pods that have a profile now, the oldest first. A pod with an attempt under way, which began with a
/// profile of an earlier configuration, returns to the queue if it fails. The status of a pod that was bound while it
/// had no profile is corrected.
fn enqueue_newcomers(
    framework: &Framework,
    queue: &mut SchedulingQueue,
    calls: &mut Calls,
    mut pods: Vec<Arc<Pod>>,
) -> usize {
    let Framework {
        settings,
        cache,
        unbound,
        clock,
        ..
    } = framework;
    for pod in &pods {
        if pod.is_assigned() && settings.has_profile(pod) {
            correct_status(calls, pod, clock.now());
        }
    }
    let is_under_way = |uid: &str| queue.in_flight().contains(uid) || unbound.contains(uid);
    pods.retain(|pod| {
        let waits = settings.has_profile(pod)
            && (!pod.is_assigned() || settings.makes_room_for_resize(pod));
        waits && !cache.is_assumed(pod.uid()) && !is_under_way(pod.uid())
    });
    pods.sort_by(|a, b| {
        let age = |pod: &Pod| pod.metadata.creation_timestamp;
        let name = |pod: &Pod| (pod.namespace().clone(), pod.name().clone());
        (age(a), name(a)).cmp(&(age(b), name(b)))
    });
    for pod in &pods {
        let effective = cache.effective(pod.uid()).unwrap_or(pod);
        queue.add(&framework.context(), effective.clone());
    }
    pods.len()
}
