//! The scheduling cycle: one pod from the queue to its node, or back (sections 5.3 to 5.6 and 5.8).
//!
//! A cycle runs to its end within one step unless a plugin has to wait; then it is **parked** and goes on when the
//! wait ends. One cycle is parked at a time, and no other pod is popped meanwhile.

mod extended;
mod failure;
mod place;
mod post_filter;

pub(crate) use failure::{Failure, Returning};

use crate::core::{LogLevel, Moment, Scheduler, Timing, WaitId};
use crate::evaluator::{
    Evaluation, Evaluator, EvaluatorKind, FitError, Found, Placement, Stopwatch, Tally,
};
use crate::metrics::Metric;
use crate::profile::Profile;
use crate::queue::QueuedPodInfo;
use berth_api::{Pod, Str, Time};
use berth_framework::call::{EventKind, PodEvent, PodRef};
use berth_framework::plugin::Nominating;
use berth_framework::stage::{Wait, WakeReason};
use berth_framework::{PodInfo, Status};
use extended::Search;
use post_filter::PostFilterSoFar;
use std::sync::Arc;

/// What [`Scheduler::schedule_one`] has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There is no pod to try. Ask again after the next input, or at this time.
    Idle {
        /// When time alone may bring one.
        next_wake: Option<Time>,
    },
    /// A pod was dealt with.
    Done {
        /// The pod.
        pod: PodRef,
        /// How.
        result: CycleResult,
    },
    /// The cycle waits, and goes on by itself when the wait ends. No other pod is tried until then.
    Parked(Wait),
}

/// How a scheduling cycle has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CycleResult {
    /// The pod has a node; its binding goes on beside.
    Placed {
        /// The node.
        node: Str,
    },
    /// The pod fits nowhere.
    Unschedulable {
        /// The text of its condition.
        message: String,
    },
    /// Something broke.
    Error {
        /// The text of its condition.
        message: String,
    },
    /// The pod was dropped: it is being deleted, placed already, or nobody's.
    Skipped,
}

/// One attempt to schedule a pod, from the queue until it is bound or given back.
pub(crate) struct Attempt {
    /// The pod's entry in the queue.
    pub(crate) info: QueuedPodInfo,
    /// The pod, without a node.
    pub(crate) pod: Arc<PodInfo>,
    pub(crate) profile: Arc<Profile>,
    pub(crate) evaluation: Evaluation,
    pub(crate) began: Moment,
    /// Whether single calls of plugins are timed.
    pub(crate) is_sampled: bool,
    /// Whether other things happened during the cycle.
    pub(crate) was_parked: bool,
}

impl Attempt {
    /// Seconds since the attempt began.
    pub(crate) fn seconds(&self, now: Time, stopwatch: &dyn Stopwatch) -> f64 {
        self.began.nanos_until(now, stopwatch) as f64 / 1e9
    }

    /// The pod.
    pub(crate) fn pod_ref(&self) -> PodRef {
        PodRef::of(&self.pod.pod)
    }
}

/// A cycle that waits.
pub(crate) struct Parked {
    attempt: Attempt,
    at: ParkedAt,
    wait: Wait,
    id: WaitId,
}

enum ParkedAt {
    Search(Box<Search>),
    PostFilter {
        plugin: usize,
        timing: Timing,
        error: Box<FitError>,
        so_far: PostFilterSoFar,
    },
    Reserve {
        plugin: usize,
        timing: Timing,
        placed: Placed,
        /// The table as it was when the cycle was parked.
        generation: u64,
    },
}

/// Where an extension point goes on after a wait.
struct Resumed {
    /// The place of the plugin that waited.
    plugin: usize,
    timing: Timing,
    /// What it waited for.
    wake: WakeReason,
}

/// A pod that is assumed on a node.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    /// The pod, with its node.
    pub(crate) pod: Arc<PodInfo>,
    /// The node.
    pub(crate) node: Str,
}

impl Parked {
    pub(crate) fn is_about(&self, uid: &str) -> bool {
        self.attempt.pod.pod.uid().as_str() == uid
    }
}

impl Scheduler {
    pub(crate) fn run_cycle(&mut self, now: Time) -> Outcome {
        if let Some(parked) = &self.parked {
            return Outcome::Parked(parked.wait.clone());
        }
        let Some(info) = (!self.is_saturated())
            .then(|| self.queue.pop(now))
            .flatten()
        else {
            return Outcome::Idle {
                next_wake: self.next_wake(now),
            };
        };
        let pod = PodRef::of(&info.pod);
        match self.begin_attempt(info, now) {
            Some(attempt) => {
                let result = self.place(attempt, now);
                match (result, &self.parked) {
                    (Some(result), _) => Outcome::Done { pod, result },
                    (None, Some(parked)) => Outcome::Parked(parked.wait.clone()),
                    // Not parked after all: its wait had ended before it began.
                    (None, None) => Outcome::Done {
                        pod,
                        result: CycleResult::Skipped,
                    },
                }
            }
            None => Outcome::Done {
                pod,
                result: CycleResult::Skipped,
            },
        }
    }

    /// Starts with a popped pod, unless it is to be dropped (C-4, C-5).
    fn begin_attempt(&mut self, info: QueuedPodInfo, now: Time) -> Option<Attempt> {
        let uid = info.pod.uid().clone();
        let pod = match self.cache.effective(&uid) {
            Some(pod) => pod.clone(),
            None => info.pod.clone(),
        };
        let Some(profile) = self.profiles.get(&pod.spec.scheduler_name).cloned() else {
            self.queue.done(&uid);
            let name = &pod.spec.scheduler_name;
            let text = format!("profile not found for scheduler name {:?}", name.as_str());
            self.io.log(LogLevel::Error, text);
            return None;
        };
        if pod.is_terminating() {
            self.drop_deleting(&pod, &profile);
            return None;
        }
        // A pod that is still being bound, though it is not counted any more, comes back by itself if that fails.
        if pod.is_assigned() || self.binding_of.contains_key(&uid) {
            self.queue.done(&uid);
            return None;
        }
        Some(Attempt {
            info,
            pod: Arc::new(PodInfo::new(pod)),
            profile,
            evaluation: Evaluation::default(),
            began: self.moment(now),
            is_sampled: self.sampler.choose(),
            was_parked: false,
        })
    }

    fn drop_deleting(&mut self, pod: &Pod, profile: &Profile) {
        self.queue.done(pod.uid());
        let note = format!("skip schedule deleting pod: {}", pod.key());
        self.failed_scheduling_event(&PodRef::of(pod), profile, &note);
    }

    /// The pod of an attempt, if it began to go while the cycle was parked.
    fn deleting(&self, attempt: &Attempt) -> Option<Arc<Pod>> {
        let pod = self.cache.effective(attempt.pod.pod.uid());
        let deleting = pod.filter(|pod| attempt.was_parked && pod.is_terminating());
        deleting.cloned()
    }

    /// Drops the attempt if its pod began to go while the cycle was parked, as if it had done so before (C-5).
    fn drops_deleting(&mut self, attempt: &Attempt) -> bool {
        let Some(pod) = self.deleting(attempt) else {
            return false;
        };
        self.book(&attempt.evaluation.tally, &attempt.profile);
        self.io.take_activations(pod.uid());
        self.drop_deleting(&pod, &attempt.profile);
        true
    }

    /// Finds a node and goes on with it. `None` when the cycle was parked.
    fn place(&mut self, mut attempt: Attempt, now: Time) -> Option<CycleResult> {
        let percentage = attempt
            .profile
            .percentage_of_nodes_to_score
            .or(self.percentage_of_nodes_to_score);
        self.log_lost_nomination(&attempt);
        attempt.evaluation.tally.sampled = attempt.is_sampled.then(Box::default);
        if self.is_extended(&attempt) {
            return self.search_extended(attempt, now);
        }
        let (mut start, mut rng) = (self.start_node, self.rng.clone());
        let kind = self.evaluator;
        let mut keeper = std::mem::take(&mut self.keeper);
        let mut evaluator = self.evaluator(&mut attempt, now);
        let found = match kind {
            EvaluatorKind::Plain => evaluator.find(percentage, &mut start, &mut rng),
            EvaluatorKind::Incremental | EvaluatorKind::Compared => {
                let compare = kind == EvaluatorKind::Compared;
                evaluator.find_with(&mut keeper, compare, percentage, &mut start, &mut rng)
            }
        };
        self.keeper = keeper;
        (self.start_node, self.rng) = (start, rng);
        self.conclude(attempt, found, now)
    }

    /// The search for a node is over.
    fn conclude(&mut self, mut attempt: Attempt, found: Found, now: Time) -> Option<CycleResult> {
        self.tell_if_slow(&attempt, now);
        self.book(&attempt.evaluation.tally, &attempt.profile);
        *attempt.evaluation.tally = Tally::default();
        match found {
            Found::Placed(placement) => {
                self.algorithm_ended(&attempt, now);
                self.log_excluded(&placement);
                self.place_on(attempt, placement.name, now)
            }
            Found::Unfit(error) => {
                let so_far = PostFilterSoFar::default();
                self.run_post_filter(attempt, error, so_far, None, now)
            }
            Found::NoNodes(status) | Found::Failed(status) => {
                self.algorithm_ended(&attempt, now);
                let failure = Failure::of_status(&status, Nominating::Set(Str::default()));
                Some(self.fail(attempt, failure, now))
            }
        }
    }

    /// The evaluator for the pod of an attempt.
    fn evaluator<'a>(&'a mut self, attempt: &'a mut Attempt, now: Time) -> Evaluator<'a> {
        Evaluator {
            profile: &attempt.profile,
            features: &self.features,
            now,
            cluster: self.cache.cluster_mut(),
            nominated: self.queue.nominator(),
            pod: &attempt.pod,
            evaluation: &mut attempt.evaluation,
            stopwatch: &*self.stopwatch,
        }
    }

    /// C-34.
    fn algorithm_ended(&mut self, attempt: &Attempt, now: Time) {
        let seconds = attempt.seconds(now, &*self.stopwatch);
        self.metrics
            .observe(Metric::SchedulingAlgorithmDuration, &[], seconds);
    }

    /// A pod whose status names a node that is not there (C-16): all others are looked at, as if it named none.
    fn log_lost_nomination(&mut self, attempt: &Attempt) {
        let pod = &attempt.pod.pod;
        let node = &pod.status.nominated_node_name;
        let nodes = &self.cache.cluster().nodes;
        if node.is_empty() || nodes.is_empty() || nodes.slot(node).is_some() {
            return;
        }
        let (pod, node) = (pod.key(), node.as_str());
        let text = format!("Node {node:?}, which was promised to pod {pod}, is not there");
        self.io.log(LogLevel::Error, text);
    }

    fn log_excluded(&mut self, placement: &Placement) {
        for status in &placement.excluded {
            let text = format!("a node was left out: {}", status.message());
            self.io.log(LogLevel::Error, text);
        }
    }

    fn failed_scheduling_event(&mut self, pod: &PodRef, profile: &Profile, message: &str) {
        let event = PodEvent {
            regarding: pod.clone(),
            related: None,
            kind: EventKind::Warning,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: crate::core::text::note(message),
        };
        self.io.publish(event, &profile.name);
    }

    // --- parking -------------------------------------------------------------------------------------------

    fn park(&mut self, attempt: Attempt, at: ParkedAt, wait: Wait) {
        let id = self.waits.add(crate::core::Waiter::Cycle, wait.clone());
        self.park_on(attempt, at, wait, id);
    }

    fn park_on(&mut self, mut attempt: Attempt, at: ParkedAt, wait: Wait, id: WaitId) {
        attempt.was_parked = true;
        self.parked = Some(Box::new(Parked {
            attempt,
            at,
            wait,
            id,
        }));
    }

    /// The wait of the parked cycle has ended.
    pub(crate) fn resume_cycle(&mut self, wake: WakeReason, now: Time) {
        let Some(parked) = self.parked.take() else {
            return;
        };
        let Parked {
            attempt, at, id, ..
        } = *parked;
        self.waits.end(id);
        match at {
            ParkedAt::Search(search) => self.resume_search(attempt, search, wake, now),
            ParkedAt::PostFilter {
                plugin,
                timing,
                error,
                so_far,
            } => {
                let resumed = Resumed {
                    plugin,
                    timing,
                    wake,
                };
                self.run_post_filter(attempt, error, so_far, Some(resumed), now);
            }
            ParkedAt::Reserve {
                plugin,
                timing,
                placed,
                generation,
            } => {
                let resumed = Resumed {
                    plugin,
                    timing,
                    wake,
                };
                self.resume_reserve(attempt, placed, generation, resumed, now);
            }
        }
    }
}

/// The pod was turned down by a stage, or a stage broke: what its status is to be (C-36, C-37).
pub(crate) fn stage_failure(what: &str, plugin: &Str, status: &Status) -> Status {
    if status.is_rejected() {
        return status.clone().from_plugin(plugin);
    }
    let text = format!(
        "running {what} plugin {:?}: {}",
        plugin.as_str(),
        status.as_error().unwrap_or_default()
    );
    Status::error(text).from_plugin(plugin)
}
