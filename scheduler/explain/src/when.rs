//! The estimated start of a waiting pod: the core runs forward in virtual time over a copy of the cluster.
//!
//! In this play, pods end by the usual run times of their templates, and at their deadlines. There are two plays: an
//! optimistic one with short run times, and a pessimistic one with long run times. No other changes are predicted, so
//! the answer lists its assumptions, and states why there is no estimate if the pod starts in neither play.

use crate::answer::when::{PlayedStart, RunningPods, WhenAnswer};
use crate::what_if::WhatIfWorld;
use berth_api::{Duration, Object, Pod, Time};
use berth_scheduler::profile::Profiles;
use berth_scheduler::{RunTimes, Scheduler, SchedulerOptions};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The percentiles of run times in the optimistic and the pessimistic play.
const PERCENTILES: [usize; 2] = [10, 90];
/// The minimum number of run times from which the usual run time of a template is known.
pub(crate) const SAMPLES_MIN: usize = 3;
/// The virtual time that is played.
const HORIZON: Duration = Duration::from_secs(30 * 24 * 3600);
/// The maximum number of ends of pods in a play.
const ENDS_MAX: usize = 1_000;
/// The maximum number of attempts to place a pod in a play.
const ATTEMPTS_MAX: usize = 10_000;

/// The facts of a scheduler from which the start of a pod is estimated.
#[derive(Debug)]
pub struct WhenFacts {
    pod: Arc<Pod>,
    objects: Vec<Object>,
    run_times: RunTimes,
    profiles: Profiles,
    features: berth_framework::FeatureGates,
    has_extenders: bool,
    now: Time,
}

impl WhenFacts {
    /// Copies the facts; `None` if the scheduler does not know the pod. The cost grows with the number of objects: a
    /// reference for each.
    pub fn take(scheduler: &Scheduler, namespace: &str, name: &str, now: Time) -> Option<Self> {
        let cache = scheduler.cache();
        let stored = cache.stored_by_name(namespace, name)?;
        let pod = stored.clone();
        // There is no play for a pod that does not wait.
        let waits = !pod.is_assigned() && pod.spec.scheduling_gates.is_empty();
        Some(Self {
            objects: if waits {
                cache.stored_objects()
            } else {
                Vec::new()
            },
            run_times: scheduler.run_times().clone(),
            profiles: scheduler.profiles().clone(),
            features: *scheduler.features(),
            has_extenders: scheduler.has_extenders(),
            pod,
            now,
        })
    }
}

/// The reason why a pod ends at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownBy {
    RunTimes,
    Deadline,
}

/// The end of a pod that runs since `start`: by the run times of its template that are longer than its run time so far,
/// and no later than its deadline. `None` if it has neither.
fn end_of(
    pod: &Pod,
    start: Time,
    facts: &WhenFacts,
    percentile: usize,
    now: Time,
) -> Option<(Time, KnownBy)> {
    if let Some(deletion) = pod.metadata.deletion_timestamp {
        // The kubelet stops it at the end of its grace period at the latest.
        return Some((deletion.max(now), KnownBy::Deadline));
    }
    let mut times: Vec<Duration> = facts.run_times.of(pod).collect();
    let is_known = times.len() >= SAMPLES_MIN;
    times.retain(|time| is_known && start + *time > now);
    times.sort_unstable();
    let by_run_time =
        at_percentile(&times, percentile).map(|time| (start + time, KnownBy::RunTimes));
    let deadline = pod.spec.active_deadline_seconds;
    let deadline = deadline.and_then(|seconds| u64::try_from(seconds).ok());
    let by_deadline = deadline.map(|seconds| {
        let deadline = start + Duration::from_secs(seconds);
        (deadline.max(now), KnownBy::Deadline)
    });
    match (by_run_time, by_deadline) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// The value at a percentile of sorted values, by nearest rank.
fn at_percentile(sorted: &[Duration], percentile: usize) -> Option<Duration> {
    let rank = (sorted.len() * percentile).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// The result of a play.
struct Played {
    start: Option<PlayedStart>,
    /// The reason why the pod has no node at the end.
    reason: String,
    /// Whether the play was stopped at a limit.
    is_cut: bool,
}

fn play(facts: &WhenFacts, percentile: usize) -> Option<Played> {
    let options = SchedulerOptions {
        features: facts.features,
        ..SchedulerOptions::default()
    };
    let scheduler = Scheduler::of_profiles(options, facts.profiles.clone(), facts.now).ok()?;
    let mut world = WhatIfWorld::over(scheduler, &facts.objects, facts.now);
    let mut ends: BTreeSet<(Time, String)> = BTreeSet::new();
    let running = facts.objects.iter().filter_map(running_pod);
    for (pod, start) in running {
        let end = end_of(
            pod,
            start.unwrap_or(facts.now),
            facts,
            percentile,
            facts.now,
        );
        ends.extend(end.map(|(at, _)| (at, pod.key())));
    }
    let target = facts.pod.key();
    let mut planned: BTreeSet<String> = BTreeSet::new();
    let (mut ended, mut last) = (0, None);
    loop {
        world.run();
        if let Some(node) = world.node_of(&target) {
            let at = world.now();
            return Some(Played {
                start: Some(PlayedStart {
                    at: at.rfc3339(),
                    seconds: at.since(facts.now).as_secs(),
                    node: node.to_owned(),
                    ended_pods: ended,
                    after: last,
                }),
                reason: String::new(),
                is_cut: false,
            });
        }
        // Pods that were placed end, too.
        let now = world.now();
        for pod in world.placed_pods() {
            if planned.insert(pod.key()) {
                let end = end_of(pod, now, facts, percentile, now);
                ends.extend(end.map(|(at, _)| (at, pod.key())));
            }
        }
        let is_cut = ended >= ENDS_MAX || world.attempts() >= ATTEMPTS_MAX;
        let next = ends.pop_first();
        let next = next.filter(|(at, _)| !is_cut && at.since(facts.now) <= HORIZON);
        let Some((at, pod)) = next else {
            let reason = world.reason_of(&target);
            return Some(Played {
                start: None,
                reason,
                is_cut,
            });
        };
        world.advance(at);
        world.end(&pod);
        (ended, last) = (ended + 1, Some(pod));
        // Pods that end at the same time free their resources together.
        while let Some((_, pod)) = ends.first().filter(|(next, _)| *next <= at).cloned() {
            ends.pop_first();
            world.end(&pod);
            (ended, last) = (ended + 1, Some(pod));
        }
    }
}

/// A running pod on a node, with its start.
fn running_pod(object: &Object) -> Option<(&Arc<Pod>, Option<Time>)> {
    let pod = object.as_pod()?;
    (pod.is_assigned() && !pod.is_terminal()).then_some((pod, pod.status.start_time))
}

/// The numbers of running pods by the source of their estimated end.
fn running_pods(facts: &WhenFacts) -> RunningPods {
    let mut pods = RunningPods::default();
    for (pod, start) in facts.objects.iter().filter_map(running_pod) {
        let end = end_of(
            pod,
            start.unwrap_or(facts.now),
            facts,
            PERCENTILES[1],
            facts.now,
        );
        match end {
            Some((_, KnownBy::RunTimes)) => pods.by_run_times += 1,
            Some((_, KnownBy::Deadline)) => pods.by_deadline += 1,
            None if facts.run_times.of(pod).count() >= SAMPLES_MIN => pods.overdue += 1,
            None => pods.without_end += 1,
        }
    }
    pods
}

/// The reason why no play is necessary for a pod.
fn known_without_play(facts: &WhenFacts) -> Option<String> {
    let pod = &facts.pod;
    if pod.is_terminating() {
        return Some("the pod is being deleted".to_owned());
    }
    if pod.is_assigned() {
        return Some(format!("the pod is on node {} already", pod.spec.node_name));
    }
    if facts.profiles.get(&pod.spec.scheduler_name).is_none() {
        let scheduler = &pod.spec.scheduler_name;
        return Some(format!("another scheduler, {scheduler}, schedules the pod"));
    }
    let gates = pod.spec.scheduling_gates.iter();
    let gates: Vec<&str> = gates.map(|gate| gate.name.as_str()).collect();
    (!gates.is_empty()).then(|| {
        let gates = gates.join(", ");
        format!("the pod has scheduling gates ({gates}), and it is not known when their controllers remove them")
    })
}

/// Estimates when a pod starts.
pub fn explain_when(facts: &WhenFacts) -> WhenAnswer {
    let mut answer = WhenAnswer {
        namespace: facts.pod.namespace().to_string(),
        name: facts.pod.name().to_string(),
        at: facts.now.rfc3339(),
        ..WhenAnswer::default()
    };
    if let Some(unknown) = known_without_play(facts) {
        answer.unknown = Some(unknown);
        return answer;
    }
    answer.running = running_pods(facts);
    let plays = PERCENTILES.map(|percentile| play(facts, percentile));
    let [Some(optimistic), Some(pessimistic)] = plays else {
        answer.unknown = Some("the configuration of the scheduler cannot be played".to_owned());
        return answer;
    };
    let limits = [&optimistic, &pessimistic].map(|play| play.start.is_none() && play.is_cut);
    // With shorter run times, another pod may get the resources, so that the pod starts later.
    let mut starts = [optimistic.start, pessimistic.start];
    if let [Some(first), Some(second)] = &starts
        && second.seconds < first.seconds
    {
        starts.reverse();
    }
    let [earliest, latest] = starts;
    if latest.is_none() || earliest.is_none() {
        let reason = if earliest.is_none() {
            &optimistic.reason
        } else {
            &pessimistic.reason
        };
        answer.unknown = Some(why_unknown(&answer.running, reason, limits[0] || limits[1]));
    }
    (answer.earliest, answer.latest) = match (earliest, latest) {
        // It starts only in the pessimistic play.
        (None, Some(only)) => (Some(only), None),
        both => both,
    };
    answer.assumptions = assumptions(facts, &answer.running);
    answer
}

fn why_unknown(running: &RunningPods, reason: &str, is_cut: bool) -> String {
    let mut text = if is_cut {
        format!("the play was given up after {ENDS_MAX} ends of pods or {ATTEMPTS_MAX} attempts")
    } else if running.without_end + running.overdue > 0 {
        match running.without_end + running.overdue {
            1 => "1 running pod has no known end, and the pod does not start while it runs"
                .to_owned(),
            pods => format!(
                "{pods} running pods have no known end, and the pod does not start while they run"
            ),
        }
    } else {
        "the pod does not start when all running pods have ended".to_owned()
    };
    if !reason.is_empty() {
        text += &format!(": {reason}");
    }
    text
}

fn assumptions(facts: &WhenFacts, running: &RunningPods) -> Vec<String> {
    let [low, high] = PERCENTILES;
    let mut all = vec![format!(
        "Pods end after the {low}th percentile (optimistic) and the {high}th percentile (pessimistic) of the run times of \
         pods of their template, as far as these are longer than they run already."
    )];
    if running.by_deadline > 0 {
        all.push("Pods without known run times end at their deadline or at the end of their grace period.".to_owned());
    }
    if running.without_end > 0 {
        all.push(format!(
            "Pods of a template with fewer than {SAMPLES_MIN} ended pods and without a deadline do not end."
        ));
    }
    if running.overdue > 0 {
        all.push(
            "Pods that run longer than all earlier pods of their template do not end.".to_owned(),
        );
    }
    all.push(
        "No pods are created, no pods are deleted, and no nodes are added, removed or changed."
            .to_owned(),
    );
    if facts.has_extenders {
        all.push("Extenders are not asked.".to_owned());
    }
    all
}
