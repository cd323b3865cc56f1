//! Queueing hints: decide whether an event justifies another attempt of a pod. The hints of the plugins that rejected
//! the pod are called only for the pods that the event can help (KEP-6132; ).

use super::entry::{EntryId, QueuedPodInfo};
use super::hooks::{Matched, ProfileId, QueueProfile};
use super::metrics::QueueMetrics;
use super::outputs::QueueOutputs;
use berth_api::Str;
use berth_framework::event::{Change, HintError, HintFn, Touched};
use berth_framework::plugin::Context;
use berth_framework::{Cluster, Hint};
use berth_telemetry::Stopwatch;
use berth_telemetry::metrics::{Families as _, HistogramValue, Metric, MetricKind};
use berth_telemetry::{Log, LogLine};
use smallvec::SmallVec;
use std::sync::Arc;

/// The values of the `hint` label: another attempt can succeed.
const QUEUE: &str = "Queue";
/// No attempt can succeed.
const SKIP: &str = "QueueSkip";
/// The hint failed, which counts as [`QUEUE`].
const ERROR: &str = "Error";
/// The hint returned Skip, with a known gap; see
/// [`EventRegistration::supplement`](berth_framework::event::EventRegistration::supplement).
const SUPPLEMENTED: &str = "QueueSupplemented";

/// The effect of an event on a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoveStrategy {
    /// The pod continues to wait.
    Skip,
    /// The pod is retried after its backoff.
    AfterBackoff,
    /// The pod is retried immediately: a plugin waited for this event.
    Immediately,
}

/// The counted results of the hints of each plugin for one event, and their duration.
pub(super) struct HintTally {
    stopwatch: Arc<dyn Stopwatch>,
    took: SmallVec<[(Str, &'static str, HistogramValue); 4]>,
    /// The end of the last call, or the start of the first.
    last: Option<u64>,
}

impl HintTally {
    pub(super) fn new(stopwatch: Arc<dyn Stopwatch>) -> Self {
        Self {
            last: None,
            stopwatch,
            took: SmallVec::new(),
        }
    }

    /// Starts the measurement. Most events call no hint and need no time.
    fn begin(&mut self) {
        if self.last.is_none() {
            self.last = Some(self.stopwatch.nanos());
        }
    }

    /// Records a call. The time since the previous call counts as its duration: two clock readings per call would cost
    /// as much as most hints.
    fn count(&mut self, plugin: &Str, outcome: &'static str) {
        let now = self.stopwatch.nanos();
        let began = self.last.replace(now).unwrap_or(now);
        let seconds = now.saturating_sub(began) as f64 / 1e9;
        let MetricKind::Histogram(buckets) = Metric::QueueingHintExecutionDuration.family().kind
        else {
            return;
        };
        let mut took = self.took.iter_mut();
        match took.find(|(of, hint, _)| (of, *hint) == (plugin, outcome)) {
            Some((_, _, histogram)) => histogram.observe(buckets, seconds),
            None => {
                let mut histogram = HistogramValue::new(buckets);
                histogram.observe(buckets, seconds);
                self.took.push((plugin.clone(), outcome, histogram));
            }
        }
    }

    /// The number of called hints.
    pub(super) fn total(&self) -> u64 {
        self.took.iter().map(|(_, _, took)| took.count()).sum()
    }

    /// Adds the counts to the metrics.
    pub(super) fn record(self, event: &Str, metrics: &mut QueueMetrics) {
        for (plugin, hint, took) in &self.took {
            metrics.hints_took([plugin, event, hint], took);
        }
    }
}

/// The pods that one registration examines for an event.
#[derive(Debug)]
pub(super) enum AskedPods {
    /// Every pod that its plugin rejected.
    All,
    /// The pods that its PreQueueingHint named, sorted.
    Listed(Vec<EntryId>),
    /// The pods that wait for the changed object or amount. Additional pods can be examined, too: the hint returns Skip
    /// for them.
    Waiting(Touched),
}

impl AskedPods {
    fn includes(&self, id: EntryId) -> bool {
        match self {
            Self::Listed(pods) => pods.binary_search(&id).is_ok(),
            Self::All | Self::Waiting(_) => true,
        }
    }
}

/// An event for the pods of one profile.
#[derive(Clone, Copy)]
pub(super) struct EventQuestion<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) matched: &'a Matched,
    pub(super) change: Change<'a>,
    /// The pods' profile.
    pub(super) profile: Option<(ProfileId, &'a QueueProfile)>,
    /// For each entry of [`Self::matching`], the pods to examine; empty for every pod.
    pub(super) narrowed: &'a [AskedPods],
}

impl<'a> EventQuestion<'a> {
    /// An event that is evaluated for one pod. Narrowing does not apply.
    pub(super) fn about(
        cx: &Context<'a>,
        matched: &'a Matched,
        change: Change<'a>,
        profile: Option<(ProfileId, &'a QueueProfile)>,
    ) -> Self {
        Self {
            cluster: cx.cluster,
            matched,
            change,
            profile,
            narrowed: &[],
        }
    }

    /// The registrations of the profile that match the event, as indexes.
    pub(super) fn matching(&self) -> &'a [usize] {
        let matched = self.matched;
        self.profile.map_or(&[], |(id, _)| matched.of(id))
    }

    /// Evaluates the event for one pod and records the calls.
    pub(super) fn put_once(&self, info: &QueuedPodInfo, out: &mut QueueOutputs) -> MoveStrategy {
        let mut tally = HintTally::new(out.stopwatch.clone());
        let strategy = self.put_to(info, None, &mut tally, &mut out.log);
        tally.record(&self.matched.label, &mut out.metrics);
        strategy
    }

    /// Q-53, for one pod. `id` identifies it if the event was narrowed.
    pub(super) fn put_to(
        &self,
        info: &QueuedPodInfo,
        id: Option<EntryId>,
        tally: &mut HintTally,
        log: &mut Log,
    ) -> MoveStrategy {
        if !info.has_rejectors() {
            return MoveStrategy::AfterBackoff;
        }
        if self.matched.is_wildcard {
            let is_its = |uid: &Str| match &info.own.group {
                None => uid == info.pod.uid(),
                Some(group) => group.members.contains_key(uid),
            };
            return match self.change.new {
                Some(new) if new.as_pod().is_none_or(|pod| !is_its(pod.uid())) => {
                    MoveStrategy::Skip
                }
                _ => MoveStrategy::AfterBackoff,
            };
        }
        let Some((_, profile)) = self.profile else {
            let line =
                LogLine::warning("no profile for the scheduler name of a pod, which is retried");
            let line = line.with("profile", &info.pod.spec.scheduler_name);
            log.push(line.with("pod", &*info.pod));
            return MoveStrategy::AfterBackoff;
        };
        let mut strategy = MoveStrategy::Skip;
        for (at, registration) in self.matching().iter().enumerate() {
            let Some(registration) = profile.registrations.get(*registration) else {
                continue;
            };
            let plugin = &registration.plugin;
            if !info.is_rejected_by(plugin) || !self.is_asked(profile, at, id) {
                continue;
            }
            tally.begin();
            let ask = |hint: &HintFn| self.ask(hint, info);
            let supplement = registration.on.supplement.as_ref();
            let outcome = match registration.on.hint.as_ref().map_or(Ok(Hint::Queue), ask) {
                Ok(Hint::Queue) => QUEUE,
                Ok(Hint::Skip) if supplement.map(ask) == Some(Ok(Hint::Queue)) => SUPPLEMENTED,
                Ok(Hint::Skip) => SKIP,
                Err(error) => {
                    let line = LogLine::error("QueueingHintFn returns error, the pod is queued")
                        .with("plugin", plugin)
                        .with("event", &self.matched.label)
                        .with("pod", &*info.pod)
                        .with("err", error.to_string());
                    log.push(line);
                    ERROR
                }
            };
            tally.count(plugin, outcome);
            if outcome == SKIP {
                continue;
            }
            // only a pending plugin can make the pod active immediately, so without one the other hints need not
            // be called.
            if info.pending_plugins.contains(plugin) {
                return MoveStrategy::Immediately;
            }
            if info.pending_plugins.is_empty() {
                return MoveStrategy::AfterBackoff;
            }
            strategy = MoveStrategy::AfterBackoff;
        }
        strategy
    }

    /// Returns whether a PreEnqueue plugin rejects the pod regardless of the event; the hints are then not called.
    /// Groups are always evaluated, because one answer does not apply to all members.
    pub(super) fn is_rejected_regardless(&self, info: &QueuedPodInfo) -> bool {
        let plugins = self.profile.map_or(&[][..], |known| &known.1.pre_enqueue);
        info.own.group.is_none()
            && !self.matched.is_wildcard
            && (plugins.iter())
                .any(|(_, plugin)| plugin.rejects_regardless(self.cluster, &info.pod, &self.change))
    }

    /// Calls a hint for a pod, or for a group: for the members that represent it, and for the changed member.
    fn ask(&self, hint: &HintFn, info: &QueuedPodInfo) -> Result<Hint, HintError> {
        let Some(group) = &info.own.group else {
            return hint(self.cluster, &info.pod, self.change);
        };
        if group.is_woken_by_anything() {
            return Ok(Hint::Queue);
        }
        let changed = self.change.new_pod().or_else(|| self.change.old_pod());
        let changed = changed.and_then(|pod| group.members.get(pod.uid()));
        let asked = group.asked().chain(changed.map(|info| &info.pod));
        for pod in asked {
            if hint(self.cluster, pod, self.change)? == Hint::Queue {
                return Ok(Hint::Queue);
            }
        }
        Ok(Hint::Skip)
    }

    /// returns whether the hint of the `at`-th matching registration is called for the pod: if any registration
    /// of the same plugin names it, because their results are merged.
    fn is_asked(&self, profile: &QueueProfile, at: usize, id: Option<EntryId>) -> bool {
        let (Some(own), Some(id)) = (self.narrowed.get(at), id) else {
            return true;
        };
        let plugin_of = |at: usize| {
            let registration = profile.registrations.get(*self.matching().get(at)?)?;
            Some(&registration.plugin)
        };
        let mut all = self.narrowed.iter().enumerate();
        own.includes(id)
            || all.any(|(other, asked)| plugin_of(other) == plugin_of(at) && asked.includes(id))
    }
}
