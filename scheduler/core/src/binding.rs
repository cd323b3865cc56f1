//! The binding cycle: from a placed pod to a bound one, or back.
//!
//! Each binding is a small state machine: it waits for Permit ([`permit`]), then for its PreBind plugins group by group
//! ([`pre_bind`]), then for its Bind plugin or an extender ([`bind`]), and ends ([`end`]). Thousands of bindings can be
//! under way at once; none delays the scheduling cycle. The stages return their end as a value ([`BindingEnd`]).

mod bind;
mod end;
mod permit;
mod pre_bind;

use crate::attempt::{AssumedPod, Attempt};
use crate::core::{Core, PointRun, Settings, UnboundPods, WaitId, Waits};
use crate::placement::Permitted;
use berth_api::Str;
use berth_framework::call::PodRef;
use berth_framework::{ApiCall, Feature, PodInfo, Status};
use berth_profile::{PluginIds, Point};
use bind::Binders;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// A pod that is placed in memory and being bound in the API.
struct PodBinding {
    attempt: Attempt,
    placed: AssumedPod,
    /// PreBind plugins without work for the pod.
    skip_pre_bind: PluginIds,
    stage: BindingStage,
}

impl PodBinding {
    fn uid(&self) -> &Str {
        self.placed.pod.pod.uid()
    }
}

/// The progress of a binding.
enum BindingStage {
    /// Permit plugins hold the pod.
    Permit {
        /// Ends when the first of their deadlines has passed.
        timer: WaitId,
        /// The plugins that are called again.
        waiting: SmallVec<[WaitingPlugin; 2]>,
    },
    /// A group of PreBind plugins is running.
    PreBind {
        run: PointRun,
        /// The remaining groups, last first.
        groups: Vec<SmallVec<[usize; 2]>>,
        /// The waiting plugins of the current group.
        waiting: SmallVec<[WaitingPlugin; 2]>,
    },
    /// An extender binds the pod when it is this binding's turn.
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
    Bind(PointRun),
}

/// The end of a stage of a binding, which [`Bindings::apply`] applies. A stage runs plugins with the [`Framework`](crate::core::Framework)
/// and changes neither the queue nor the calls.
pub(crate) enum BindingEnd {
    /// The binding waits, or has ended before.
    Open,
    /// The API has accepted the binding.
    Bound,
    /// The pod will not be bound.
    Failed(Status),
    /// The pod must not be bound: a preemption or its group has released its node.
    Stopped(Status),
}

/// A Permit or PreBind plugin that waits.
struct WaitingPlugin {
    /// The part of the run for this plugin.
    run: PointRun,
    wait: WaitId,
}

/// Removes and returns the run of the plugin at an index of its extension point, if it waits.
fn take_waiting(waiting: &mut SmallVec<[WaitingPlugin; 2]>, at: usize) -> Option<PointRun> {
    let place = waiting.iter().position(|plugin| plugin.run.at() == at)?;
    Some(waiting.remove(place).run)
}

/// All pods that are being bound.
pub(crate) struct Bindings {
    by_id: FxHashMap<u64, Box<PodBinding>>,
    of_pod: FxHashMap<Str, u64>,
    next: u64,
    /// The bindings by extenders.
    binders: Binders,
}

impl Bindings {
    /// With extenders, at most `binders_max` bindings at once.
    pub(crate) fn new(binders_max: usize) -> Self {
        Self {
            by_id: FxHashMap::default(),
            of_pod: FxHashMap::default(),
            next: 0,
            binders: Binders::new(binders_max),
        }
    }

    /// The number of pods that are being bound.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The pod that is being bound, with its node.
    pub(crate) fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        let binding = self.by_id.get(self.of_pod.get(uid)?)?;
        Some(&binding.placed.pod)
    }

    /// Returns whether a further binding would have to wait for its turn with an extender.
    pub(crate) fn is_saturated(&self) -> bool {
        self.binders.is_saturated()
    }

    /// Starts the binding of a placed pod, which Permit plugins may hold.
    pub(crate) fn start(&mut self, core: &mut Core, permitted: Permitted) {
        let Permitted {
            attempt,
            placed,
            holds,
            waits,
        } = permitted;
        let framework = &mut core.framework;
        let uid = placed.pod.pod.uid().clone();
        let id = self.next;
        self.next += 1;
        let mut binding = Box::new(PodBinding {
            attempt,
            placed,
            skip_pre_bind: PluginIds::default(),
            stage: BindingStage::Bind(PointRun::begin(&framework.clock, Point::Bind.as_str())),
        });
        framework.unbound.add(&uid);
        self.of_pod.insert(uid, id);
        let is_held = !holds.is_empty();
        if is_held {
            let now = framework.clock.now();
            let (timers, unbound) = (&mut core.waits, &mut framework.unbound);
            binding.stage = permit::hold(timers, unbound, id, &binding.placed, holds, waits, now);
        }
        let has_work = pre_bind::run_pre_flight(framework, &mut binding);
        core.make_requested_calls();
        // A pod that is bound at once is not announced, which saves a call.
        if matches!(has_work, Ok(has_work) if has_work || is_held)
            && let Some(call) = node_announcement(&core.framework.settings, &binding)
        {
            core.call(call);
        }
        self.by_id.insert(id, binding);
        match has_work {
            Err(status) => self.apply(core, id, BindingEnd::Failed(status)),
            Ok(_) if is_held => {}
            Ok(_) => self.go_on(core, id),
        }
    }

    /// No Permit plugin holds the pod: it is prepared and bound. From here on, events are not kept for it (C-41).
    fn go_on(&mut self, core: &mut Core, id: u64) {
        let Some(binding) = self.by_id.get(&id) else {
            return;
        };
        core.queue.done(binding.uid());
        let end = self.start_pre_bind(&mut core.framework, &mut core.waits, id);
        self.apply(core, id, end);
    }

    /// Applies the end of a stage of a binding.
    pub(crate) fn apply(&mut self, core: &mut Core, id: u64, end: BindingEnd) {
        core.make_requested_calls();
        match end {
            BindingEnd::Open => {}
            BindingEnd::Bound => self.bound(core, id),
            BindingEnd::Failed(status) => self.undo(core, id, &status, false),
            BindingEnd::Stopped(status) => self.undo(core, id, &status, true),
        }
    }

    /// Removes a binding that has ended.
    fn take(
        &mut self,
        waits: &mut Waits,
        unbound: &mut UnboundPods,
        id: u64,
    ) -> Option<Box<PodBinding>> {
        self.end_waits(waits, id);
        let binding = self.by_id.remove(&id)?;
        self.of_pod.remove(binding.uid());
        unbound.remove(binding.uid());
        Some(binding)
    }

    /// Checks the consistency of the bindings with the other parts.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(crate) fn check(&self, unbound: &UnboundPods) -> Result<(), String> {
        let (bindings, pods) = (self.by_id.len(), self.of_pod.len());
        if bindings != pods {
            return Err(format!(
                "{bindings} bindings, {pods} pods that are being bound"
            ));
        }
        unbound.check(self.of_pod.keys())?;
        self.check_binders()
    }
}

/// The patch that writes the node into the pod's status before a binding that takes time (KEP-5278, C-39).
fn node_announcement(settings: &Settings, binding: &PodBinding) -> Option<ApiCall> {
    if !settings.is_on(Feature::NominatedNodeNameForExpectation) {
        return None;
    }
    let pod = &binding.attempt.pod.pod;
    if pod.status.nominated_node_name == binding.placed.node {
        return None;
    }
    Some(ApiCall::PatchPodStatus {
        pod: PodRef::of(pod),
        conditions: Vec::new(),
        nominated_node: Some(binding.placed.node.clone()),
    })
}
