//! The scheduling cycle: one pod from the queue to its node, or back to the queue.
//!
//! [`Cycle::run`] takes a popped pod and searches for a node. Then the pod is placed ([`place`]) or PostFilter runs
//! ([`post_filter`]). These stages run plugins with the [`Framework`] and return their end as a value ([`StageEnd`]), which
//! [`Cycle::apply`] applies. A cycle completes within one step unless a plugin has to wait; then it is **parked** until
//! the wait ends. At most one cycle is parked, and no other pod is popped while it is.

mod extended;
mod group;
mod place;
mod post_filter;
mod resize;

pub(crate) use group::GroupCycle;

use crate::attempt::{AssumedPod, Attempt, CycleResult};
use crate::cache::Cache;
use crate::core::{
    Core, Framework, Outbound, PointRun, SearchBegin, Settings, WaitId, Waiter, Waits,
    activate_wanted, placement_freed, search_took,
};
use crate::failure::{AttemptFailure, fail};
use crate::nominations;
use crate::placement::Permitted;
use berth_api::{Pod, Str};
use berth_evaluator::{AnswerCache, Evaluation, EvaluatorKind, Found, Placement};
use berth_framework::call::PodRef;
use berth_framework::plugin::Nominating;
use berth_framework::stage::{Wait, WakeReason};
use berth_framework::{Cluster, PodInfo, Slot, Work};
use berth_profile::{Point, Profile};
use berth_queue::{Nominator, QueuedPodInfo};
use berth_telemetry::{Log, LogLine};
use extended::ExtendedSearch;
use place::{Permission, assume, reserve, resume_reserve};
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

/// The end of a stage of the cycle, which [`Cycle::apply`] applies. A stage runs plugins with the [`Framework`] and
/// changes neither the queue nor the calls.
enum StageEnd {
    /// A node fits, and the pod is to be placed on it.
    Found(Placement),
    /// No plugin has rejected the placed pod.
    Permitted(AssumedPod, Permission),
    /// The attempt has failed. If its placement was reverted while other inputs were applied: the pod as it was counted
    /// on its node.
    Failed(AttemptFailure, Option<Arc<Pod>>),
    /// The pod leaves the queue: it is terminating, or its node has room for its resize. A placement was reverted as
    /// above.
    Dropped(Option<Arc<Pod>>),
    /// A plugin or an extender waits.
    Waits(ParkedAt, CycleWaits),
}

impl StageEnd {
    /// The attempt has failed without a placement.
    fn failed(failure: AttemptFailure) -> Self {
        Self::Failed(failure, None)
    }
}

/// The open waits of a cycle.
struct CycleWaits {
    first: (Waiter, Wait),
    others: Vec<(Waiter, Wait)>,
}

impl From<Wait> for CycleWaits {
    fn from(wait: Wait) -> Self {
        Self {
            first: (Waiter::Cycle, wait),
            others: Vec::new(),
        }
    }
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

/// The stage of a cycle that waits.
enum ParkedAt {
    /// The search, for extenders.
    Search(Box<ExtendedSearch>),
    /// A PostFilter plugin.
    PostFilter(PostFilterRun),
    /// A Reserve plugin.
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
        let Core {
            framework, queue, ..
        } = core;
        let mut attempt = match begin_attempt(framework, info) {
            Ok(attempt) => attempt,
            Err(uid) => {
                queue.done(&uid);
                return CycleStep::Over(CycleResult::Skipped);
            }
        };
        framework
            .outbound
            .log
            .v(3, "Attempting to schedule pod", |line| {
                line.with("pod", &*attempt.pod.pod)
            });
        log_lost_nomination(
            &mut framework.outbound.log,
            framework.cache.cluster(),
            &attempt,
        );
        attempt.evaluation.tally.sampled = attempt.is_sampled.then(Box::default);
        let nominator = queue.nominator();
        let end = if !attempt.is_resize()
            && extended::takes_part(&framework.settings.extenders, &attempt)
        {
            self.search_extended(framework, nominator, &mut attempt)
        } else {
            let begin = self.search_begin(&framework.settings, &attempt, false);
            let found = self.search(framework, nominator, &mut attempt, None);
            self.conclude(framework, nominator, &mut attempt, found, begin)
        };
        self.apply(core, attempt, end)
    }

    /// Applies the end of a stage of the cycle: to the calls, to the queue, and to the waits. The next stage begins if
    /// there is one.
    fn apply(&mut self, core: &mut Core, mut attempt: Attempt, end: StageEnd) -> CycleStep {
        core.make_requested_calls();
        let Core {
            framework, queue, ..
        } = core;
        match end {
            StageEnd::Found(placement) => {
                let placed = match assume(framework, &attempt, &placement) {
                    Ok(placed) => placed,
                    Err(failure) => return CycleStep::Over(fail(core, attempt, failure)),
                };
                let pod = &attempt.pod.pod;
                queue.end_turn(pod.uid());
                nominations::end(
                    framework,
                    queue,
                    pod,
                    &nominations::End::Placed(&placed.node),
                );
                let run = PointRun::begin(&framework.clock, Point::Reserve.as_str());
                let end = reserve(framework, &mut attempt, placed, run, None);
                self.apply(core, attempt, end)
            }
            StageEnd::Permitted(placed, Permission { holds, waits }) => {
                activate_wanted(framework, queue, placed.pod.pod.uid());
                CycleStep::Placed(Box::new(Permitted {
                    attempt,
                    placed,
                    holds,
                    waits,
                }))
            }
            StageEnd::Failed(failure, freed) => {
                // Pods that were rejected while the cycle was parked may have been rejected because of this pod.
                if let Some(pod) = freed {
                    placement_freed(framework, queue, &pod, None);
                }
                CycleStep::Over(fail(core, attempt, failure))
            }
            StageEnd::Dropped(freed) => {
                if let Some(pod) = freed {
                    placement_freed(framework, queue, &pod, None);
                }
                queue.done(attempt.pod.pod.uid());
                CycleStep::Over(CycleResult::Skipped)
            }
            StageEnd::Waits(at, waits) => self.park(&mut core.waits, attempt, at, waits),
        }
    }

    fn search(
        &mut self,
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
        scope: Option<&[Slot]>,
    ) -> Found {
        let percentage = percentage_of_nodes(&framework.settings, attempt);
        let (start, rng) = (&mut self.start_node, &mut self.rng);
        // For a pod with a node, only this node is evaluated.
        let kind = if attempt.is_resize() {
            EvaluatorKind::Plain
        } else {
            framework.settings.evaluator
        };
        let compares = framework.settings.compares_evaluators;
        let mut evaluator = framework.evaluator(nominator, attempt);
        match kind {
            EvaluatorKind::Plain => evaluator.find_plainly(scope, percentage, start, rng),
            EvaluatorKind::Incremental => {
                let cache = &mut self.answer_cache;
                evaluator.find_with(cache, compares, scope, percentage, start, rng)
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
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
        found: Found,
        begin: SearchBegin,
    ) -> StageEnd {
        framework.log_if_slow(attempt);
        framework.observe_evaluation(attempt);
        match found {
            Found::Placed(placement) if attempt.is_resize() => {
                search_took(&framework.clock, &mut framework.metrics, attempt);
                resize::fits(framework, attempt, &placement)
            }
            Found::Placed(placement) => {
                search_took(&framework.clock, &mut framework.metrics, attempt);
                log_excluded(&mut framework.outbound.log, attempt, &placement);
                framework.note_decision(nominator, attempt, &placement, begin);
                StageEnd::Found(placement)
            }
            Found::Unfit(error) => self.run_post_filter(framework, nominator, attempt, error),
            Found::NoNodes(status) | Found::Failed(status) => {
                search_took(&framework.clock, &mut framework.metrics, attempt);
                let failure = AttemptFailure::of_status(&status, Nominating::Set(Str::default()));
                StageEnd::failed(failure)
            }
        }
    }

    // --- parking -------------------------------------------------------------------------------------------

    /// Parks the cycle until the wait with the latest deadline ends, because all others have ended by then.
    fn park(
        &mut self,
        waits: &mut Waits,
        attempt: Attempt,
        at: ParkedAt,
        open: CycleWaits,
    ) -> CycleStep {
        let (waiter, mut wait) = open.first;
        let mut id = waits.add(waiter, wait.clone());
        for (waiter, other) in open.others {
            let is_later = wait.deadline < other.deadline;
            let other_id = waits.add(waiter, other.clone());
            if is_later {
                (wait, id) = (other, other_id);
            }
        }
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
            mut attempt,
            at,
            id,
            ..
        } = *self.parked.take()?;
        core.waits.end(id);
        let Core {
            framework, queue, ..
        } = core;
        let (nominator, attempting) = (queue.nominator(), &mut attempt);
        let end = match at {
            ParkedAt::Search(search) => {
                self.resume_search(framework, nominator, attempting, search, reason)
            }
            ParkedAt::PostFilter(run) => {
                self.go_on_with_post_filter(framework, nominator, attempting, run, Some(reason))
            }
            ParkedAt::Reserve {
                run,
                placed,
                generation,
            } => resume_reserve(
                framework, nominator, attempting, placed, run, generation, reason,
            ),
        };
        Some(self.apply(core, attempt, end))
    }
}

/// Starts with a popped pod, unless it must be dropped (C-4, C-5).
///
/// # Errors
/// The UID of a dropped pod, which leaves the queue.
fn begin_attempt(framework: &mut Framework, info: QueuedPodInfo) -> Result<Attempt, Str> {
    let uid = info.pod.uid().clone();
    let pod = framework.cache.effective(&uid).unwrap_or(&info.pod).clone();
    let settings = &framework.settings;
    let is_resize = settings.makes_room_for_resize(&pod);
    let profiles = match &settings.resizes {
        Some(resizes) if is_resize => resizes,
        _ => &settings.profiles,
    };
    let Some(profile) = profiles.get(&pod.spec.scheduler_name).cloned() else {
        let name = &pod.spec.scheduler_name;
        let line = LogLine::error("profile not found for the scheduler name of a pod");
        let line = line.with("pod", &*pod).with("profile", name);
        framework.outbound.log.push(line);
        return Err(uid);
    };
    if pod.is_terminating() {
        skip_deleting(&mut framework.outbound, &pod, &profile);
        return Err(uid);
    }
    // A pod whose binding is under way is not tried again, even if it is no longer counted on its node: a failed
    // binding returns it to the queue.
    if (pod.is_assigned() && !is_resize) || framework.unbound.contains(&uid) {
        return Err(uid);
    }
    Ok(Attempt {
        work: Work::after(info.in_a_row.used_up),
        info,
        pod: Arc::new(PodInfo::new(pod)),
        profile,
        extenders: framework.settings.extenders.clone(),
        evaluation: Evaluation::default(),
        began: framework.clock.stage_begin(),
        is_sampled: framework.clock.chooses_attempt(),
        was_parked: false,
        trace: framework.outbound.begin_trace(),
    })
}

fn skip_deleting(outbound: &mut Outbound, pod: &Pod, profile: &Profile) {
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

/// Returns whether the attempt is dropped, because its pod began to terminate while the cycle was parked, as if it had
/// been terminating before (C-5).
fn drops_deleting(framework: &mut Framework, attempt: &mut Attempt) -> bool {
    let Some(pod) = deleting(&framework.cache, attempt) else {
        return false;
    };
    framework.observe_evaluation(attempt);
    framework.requests.take_activations(pod.uid());
    skip_deleting(&mut framework.outbound, &pod, &attempt.profile);
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
