//! The scheduling cycle: one pod from the queue to its node, or back to the queue.
//!
//! [`Cycle::run`] takes a popped pod and searches for a node. Then it places the pod ([`place`]) or runs PostFilter
//! ([`post_filter`]). A cycle completes within one step unless a plugin has to wait; then it is **parked** until the
//! wait ends. At most one cycle is parked, and no other pod is popped while it is.

mod extended;
mod group;
mod place;
mod post_filter;
mod resize;

pub(crate) use group::GroupCycle;

use crate::attempt::{AssumedPod, Attempt, CycleResult};
use crate::cache::Cache;
use crate::core::{
    Core, Outbound, PointRun, SearchBegin, Settings, WaitId, Waiter, Waits, search_took,
};
use crate::failure::{AttemptFailure, fail};
use crate::placement::Permitted;
use berth_api::{Pod, Str};
use berth_evaluator::{AnswerCache, Evaluation, EvaluatorKind, Found, Placement};
use berth_framework::call::PodRef;
use berth_framework::plugin::Nominating;
use berth_framework::stage::{Wait, WakeReason};
use berth_framework::{Cluster, PodInfo, Slot, Work};
use berth_profile::Profile;
use berth_queue::{QueuedPodInfo, SchedulingQueue};
use berth_telemetry::{Log, LogLine};
use extended::ExtendedSearch;
use post_filter::PostFilterRun;
use std::sync::Arc;

/// The progress of a cycle.
pub(crate) enum CycleStep {
    /// The pod has a node and is to be bound.
    Placed(Box<Permitted>),
    /// The cycle has ended without a node.
    Over(CycleResult),
    /// The cycle is parked.
    Parked(Wait),
}

impl CycleStep {
    /// The result of the cycle, if it has ended.
    pub(crate) fn result(&self) -> Option<CycleResult> {
        match self {
            Self::Placed(permitted) => Some(CycleResult::Placed {
                node: permitted.placed.node.clone(),
            }),
            Self::Over(result) => Some(result.clone()),
            Self::Parked(_) => None,
        }
    }
}

/// A cycle that waits.
struct Parked {
    attempt: Attempt,
    at: ParkedAt,
    wait: Wait,
    id: WaitId,
}

enum ParkedAt {
    Search(Box<ExtendedSearch>),
    PostFilter(PostFilterRun),
    Reserve {
        run: PointRun,
        placed: AssumedPod,
        /// The table of nodes as it was when the cycle was parked.
        generation: u64,
    },
}

/// The scheduling cycle, with its state between pods.
pub(crate) struct Cycle {
    answer_cache: AnswerCache,
    rng: fastrand::Rng,
    /// The position at which the next search for feasible nodes begins.
    start_node: usize,
    parked: Option<Box<Parked>>,
}

impl Cycle {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            answer_cache: AnswerCache::default(),
            rng: fastrand::Rng::with_seed(seed),
            start_node: 0,
            parked: None,
        }
    }

    /// The wait of the parked cycle, if there is one.
    pub(crate) fn waits_for(&self) -> Option<&Wait> {
        self.parked.as_ref().map(|parked| &parked.wait)
    }

    /// The pod whose cycle is parked, if there is one.
    pub(crate) fn parked_pod(&self) -> Option<PodRef> {
        self.parked.as_ref().map(|parked| parked.attempt.pod_ref())
    }

    /// Returns whether the cycle of the pod is parked.
    pub(crate) fn is_about(&self, uid: &str) -> bool {
        let parked = self.parked.as_ref();
        parked.is_some_and(|parked| parked.attempt.pod.pod.uid().as_str() == uid)
    }

    /// The cache of the incremental evaluator.
    pub(crate) fn answer_cache(&self) -> &AnswerCache {
        &self.answer_cache
    }

    /// The profiles were replaced. Cached answers depend on the plugins and arguments of a profile and are looked up by
    /// its name, so they are dropped.
    pub(crate) fn forget_answers(&mut self) {
        self.answer_cache.forget();
    }

    /// Begins with a popped pod.
    pub(crate) fn run(&mut self, core: &mut Core, info: QueuedPodInfo) -> CycleStep {
        let Some(mut attempt) = begin_attempt(core, info) else {
            return CycleStep::Over(CycleResult::Skipped);
        };
        core.outbound
            .log
            .v(3, "Attempting to schedule pod", |line| {
                line.with("pod", &*attempt.pod.pod)
            });
        log_lost_nomination(&mut core.outbound.log, core.cache.cluster(), &attempt);
        attempt.evaluation.tally.sampled = attempt.is_sampled.then(Box::default);
        if !attempt.is_resize() && extended::takes_part(&core.settings.extenders, &attempt) {
            return self.search_extended(core, attempt);
        }
        let begin = self.search_begin(&core.settings, &attempt, false);
        let found = self.search(core, &mut attempt, None);
        self.conclude(core, attempt, found, begin)
    }

    fn search(&mut self, core: &mut Core, attempt: &mut Attempt, scope: Option<&[Slot]>) -> Found {
        let percentage = percentage_of_nodes(&core.settings, attempt);
        let (start, rng) = (&mut self.start_node, &mut self.rng);
        // For a pod with a node, only this node is evaluated.
        let kind = if attempt.is_resize() {
            EvaluatorKind::Plain
        } else {
            core.settings.evaluator
        };
        let mut evaluator = core.evaluator(attempt);
        match kind {
            EvaluatorKind::Plain => evaluator.find_plainly(scope, percentage, start, rng),
            EvaluatorKind::Incremental | EvaluatorKind::Compared => {
                let with = (&mut self.answer_cache, kind == EvaluatorKind::Compared);
                evaluator.find_with(with, scope, percentage, start, rng)
            }
        }
    }

    /// The start of the search, to explain its result.
    fn search_begin(
        &self,
        settings: &Settings,
        attempt: &Attempt,
        has_extenders: bool,
    ) -> SearchBegin {
        SearchBegin {
            rng: self.rng.clone(),
            start_node: self.start_node,
            percentage_of_nodes: percentage_of_nodes(settings, attempt),
            has_extenders,
        }
    }

    /// The search for a node is over.
    fn conclude(
        &mut self,
        core: &mut Core,
        mut attempt: Attempt,
        found: Found,
        begin: SearchBegin,
    ) -> CycleStep {
        core.log_if_slow(&attempt);
        core.observe_evaluation(&mut attempt);
        match found {
            Found::Placed(placement) if attempt.is_resize() => {
                search_took(&core.clock, &mut core.metrics, &attempt);
                CycleStep::Over(resize::fits(core, attempt, &placement))
            }
            Found::Placed(placement) => {
                search_took(&core.clock, &mut core.metrics, &attempt);
                log_excluded(&mut core.outbound.log, &attempt, &placement);
                core.note_decision(&attempt, &placement, begin);
                self.place_on(core, attempt, &placement)
            }
            Found::Unfit(error) => self.run_post_filter(core, attempt, error),
            Found::NoNodes(status) | Found::Failed(status) => {
                search_took(&core.clock, &mut core.metrics, &attempt);
                let failure = AttemptFailure::of_status(&status, Nominating::Set(Str::default()));
                CycleStep::Over(fail(core, attempt, failure))
            }
        }
    }

    // --- parking -------------------------------------------------------------------------------------------

    fn park(&mut self, waits: &mut Waits, attempt: Attempt, at: ParkedAt, wait: Wait) -> CycleStep {
        let id = waits.add(Waiter::Cycle, wait.clone());
        self.park_on(attempt, at, wait, id)
    }

    fn park_on(&mut self, attempt: Attempt, at: ParkedAt, wait: Wait, id: WaitId) -> CycleStep {
        let step = CycleStep::Parked(wait.clone());
        self.parked = Some(Box::new(Parked {
            attempt: Attempt {
                was_parked: true,
                ..attempt
            },
            at,
            wait,
            id,
        }));
        step
    }

    /// The wait of the parked cycle has ended.
    pub(crate) fn resume(&mut self, core: &mut Core, reason: WakeReason) -> Option<CycleStep> {
        let Parked {
            attempt, at, id, ..
        } = *self.parked.take()?;
        core.waits.end(id);
        Some(match at {
            ParkedAt::Search(search) => self.resume_search(core, attempt, search, reason),
            ParkedAt::PostFilter(run) => {
                self.go_on_with_post_filter(core, attempt, run, Some(reason))
            }
            ParkedAt::Reserve {
                run,
                placed,
                generation,
            } => self.resume_reserve(core, attempt, placed, (run, generation), reason),
        })
    }
}

/// Starts with a popped pod, unless it must be dropped (C-4, C-5).
fn begin_attempt(core: &mut Core, info: QueuedPodInfo) -> Option<Attempt> {
    let uid = info.pod.uid().clone();
    let pod = core.cache.effective(&uid).unwrap_or(&info.pod).clone();
    let is_resize = core.settings.makes_room_for_resize(&pod);
    let profiles = match &core.settings.resizes {
        Some(resizes) if is_resize => resizes,
        _ => &core.settings.profiles,
    };
    let Some(profile) = profiles.get(&pod.spec.scheduler_name).cloned() else {
        core.queue.done(&uid);
        let name = &pod.spec.scheduler_name;
        let line = LogLine::error("profile not found for the scheduler name of a pod");
        core.outbound
            .log
            .push(line.with("pod", &*pod).with("profile", name));
        return None;
    };
    if pod.is_terminating() {
        drop_deleting(&mut core.queue, &mut core.outbound, &pod, &profile);
        return None;
    }
    // A pod whose binding is under way is not tried again, even if it is no longer counted on its node: a failed
    // binding returns it to the queue.
    if (pod.is_assigned() && !is_resize) || core.unbound.contains(&uid) {
        core.queue.done(&uid);
        return None;
    }
    Some(Attempt {
        work: Work::after(info.in_a_row.used_up),
        info,
        pod: Arc::new(PodInfo::new(pod)),
        profile,
        extenders: core.settings.extenders.clone(),
        evaluation: Evaluation::default(),
        began: core.clock.stage_begin(),
        is_sampled: core.clock.chooses_attempt(),
        was_parked: false,
        trace: core.outbound.begin_trace(),
    })
}

fn drop_deleting(
    queue: &mut SchedulingQueue,
    outbound: &mut Outbound,
    pod: &Pod,
    profile: &Profile,
) {
    queue.done(pod.uid());
    outbound.log.v(3, "Skip schedule deleting pod", |line| {
        line.with("pod", pod)
    });
    let note = format!("skip schedule deleting pod: {}", pod.key());
    outbound.publish_failure(&PodRef::of(pod), profile, &note);
}

/// The pod of an attempt, if it began to terminate while the cycle was parked.
fn deleting(cache: &Cache, attempt: &Attempt) -> Option<Arc<Pod>> {
    let pod = cache.effective(attempt.pod.pod.uid());
    let deleting = pod.filter(|pod| attempt.was_parked && pod.is_terminating());
    deleting.cloned()
}

/// Drops the attempt if its pod began to terminate while the cycle was parked, as if it had been terminating before
/// (C-5).
fn drops_deleting(core: &mut Core, attempt: &mut Attempt) -> bool {
    let Some(pod) = deleting(&core.cache, attempt) else {
        return false;
    };
    core.observe_evaluation(attempt);
    core.requests.take_activations(pod.uid());
    drop_deleting(&mut core.queue, &mut core.outbound, &pod, &attempt.profile);
    true
}

/// The percentage of nodes to score. Zero means that none is configured.
fn percentage_of_nodes(settings: &Settings, attempt: &Attempt) -> Option<i32> {
    let of_profile = attempt.profile.percentage_of_nodes_to_score;
    let given = of_profile.or(settings.percentage_of_nodes_to_score);
    given.filter(|percentage| *percentage != 0)
}

/// The status of the pod names a node that does not exist (C-16): all other nodes are evaluated, as without a
/// nomination.
fn log_lost_nomination(log: &mut Log, cluster: &Cluster, attempt: &Attempt) {
    let pod = &attempt.pod.pod;
    let node = &pod.status.nominated_node_name;
    let nodes = &cluster.nodes;
    if node.is_empty() || nodes.is_empty() || nodes.slot(node).is_some() {
        return;
    }
    let line = LogLine::error("Pod is nominated to a node that does not exist");
    log.push(line.with("pod", &**pod).with("node", node));
}

fn log_excluded(log: &mut Log, attempt: &Attempt, placement: &Placement) {
    for status in &placement.excluded {
        let line = LogLine::error("A node is left out, because a Filter plugin failed");
        log.push(
            line.with("pod", &*attempt.pod.pod)
                .with("err", status.message()),
        );
    }
}
