//! Whether an event makes a pod worth another try: the hints of the plugins that rejected it, asked only
//! of the pods that the event can help at all (KEP-6132; ).

use super::entry::{EntryId, QueuedPodInfo};
use super::hooks::{Matched, QueueProfile};
use super::metrics::QueueMetrics;
use crate::evaluator::Stopwatch;
use crate::log::{Log, LogLine};
use crate::metrics::{Families as _, HistogramValue, Metric, MetricKind};
use berth_api::Str;
use berth_framework::event::{Change, HintError, HintFn, Touched};
use berth_framework::{Cluster, Hint};
use smallvec::SmallVec;
use std::sync::Arc;

/// The answer of a hint, as in the `hint` label of its metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HintOutcome {
    /// The pod is worth another try.
    Queue,
    /// It is not.
    Skip,
    /// The hint failed, which counts as the first.
    Error,
    /// The hint states that it is not, and is known to miss this; see
    /// [`EventRegistration::supplement`](berth_framework::event::EventRegistration::supplement).
    Supplemented,
}

impl HintOutcome {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Queue => "Queue",
            Self::Skip => "QueueSkip",
            Self::Error => "Error",
            Self::Supplemented => "QueueSupplemented",
        }
    }
}

/// The handling of a pod when an event comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoveStrategy {
    /// It goes on waiting.
    Skip,
    /// It is tried again once its backoff is over.
    AfterBackoff,
    /// It is tried again at once: a plugin waited for exactly this.
    Immediately,
}

/// The answers of the hints of each plugin for one event, counted, and their duration.
pub(super) struct HintTally {
    stopwatch: Arc<dyn Stopwatch>,
    took: SmallVec<[(Str, HintOutcome, HistogramValue); 4]>,
    /// The time at which the last call ended, or the first began.
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

    /// Hints are asked from now on. Most events ask none, and need no time.
    fn begin(&mut self) {
        if self.last.is_none() {
            self.last = Some(self.stopwatch.nanos());
        }
    }

    /// A hint was asked. What lay between it and the one before counts as its time: reading the time twice a call
    /// would cost as much as most hints.
    fn count(&mut self, plugin: &Str, outcome: HintOutcome) {
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

    /// The number of hints that were asked.
    pub(super) fn total(&self) -> u64 {
        self.took.iter().map(|(_, _, took)| took.count()).sum()
    }

    /// Adds the counts to the metrics.
    pub(super) fn record(self, event: &Str, metrics: &mut QueueMetrics) {
        for (plugin, hint, took) in &self.took {
            metrics.hints_took([plugin, event, hint.label()], took);
        }
    }
}

/// The pods that one registration asks when an event occurs.
#[derive(Debug)]
pub(super) enum AskedPods<'a> {
    /// Every pod that its plugin rejected.
    All,
    /// The pods that its PreQueueingHint named, sorted.
    Listed(Vec<EntryId>),
    /// The pods that wait for what the event touches. Those that are found otherwise may be asked, too: the hint
    /// returns Skip.
    Waiting(&'a Touched),
}

/// An event as it is put to the pods of one profile.
#[derive(Clone, Copy)]
pub(super) struct EventQuestion<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) matched: &'a Matched,
    pub(super) change: Change<'a>,
    /// The pods' profile, and which of its registrations match the event.
    pub(super) profile: Option<&'a QueueProfile>,
    pub(super) matching: &'a [usize],
    /// Per entry of `matching`, the pods to ask.
    pub(super) narrowed: &'a [AskedPods<'a>],
}

impl EventQuestion<'_> {
    /// Q-53, for one pod. `id` names it where the question was narrowed.
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
        let Some(profile) = self.profile else {
            let line =
                LogLine::warning("no profile for the scheduler name of a pod, which is retried");
            let line = line.with("profile", &info.pod.spec.scheduler_name);
            log.push(line.with("pod", &*info.pod));
            return MoveStrategy::AfterBackoff;
        };
        let mut strategy = MoveStrategy::Skip;
        for (at, registration) in self.matching.iter().enumerate() {
            let Some(registration) = profile.registrations.get(*registration) else {
                continue;
            };
            let plugin = &registration.plugin;
            if !info.is_rejected_by(plugin) || !self.is_asked(profile, at, id) {
                continue;
            }
            tally.begin();
            let ask = |hint: &HintFn| self.ask(hint, info);
            let answer = registration.on.hint.as_ref().map_or(Ok(Hint::Queue), ask);
            let supplement = registration.on.supplement.as_ref();
            match answer {
                Ok(Hint::Skip) if supplement.map(ask) == Some(Ok(Hint::Queue)) => {
                    tally.count(plugin, HintOutcome::Supplemented);
                }
                Ok(Hint::Skip) => {
                    tally.count(plugin, HintOutcome::Skip);
                    continue;
                }
                Ok(Hint::Queue) => tally.count(plugin, HintOutcome::Queue),
                Err(error) => {
                    tally.count(plugin, HintOutcome::Error);
                    let line = LogLine::error("QueueingHintFn returns error, the pod is queued")
                        .with("plugin", plugin)
                        .with("event", &self.matched.label)
                        .with("pod", &*info.pod)
                        .with("err", error.to_string());
                    log.push(line);
                }
            }
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

    /// Returns whether a PreEnqueue plugin rejects the pod, so that the hints need not be asked. Groups are always asked:
    /// one answer does not hold for all members.
    pub(super) fn is_rejected_regardless(&self, info: &QueuedPodInfo) -> bool {
        let plugins = self.profile.map_or(&[][..], |profile| &profile.pre_enqueue);
        info.own.group.is_none()
            && !self.matched.is_wildcard
            && (plugins.iter())
                .any(|plugin| plugin.rejects_regardless(self.cluster, &info.pod, &self.change))
    }

    /// Asks a hint about a pod, or about a group: about those of its members that are asked on behalf of all, and the
    /// one that has changed.
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

    /// whether the hint of the `at`-th registration that matches the event is put to the pod: if any registration
    /// of the same plugin wants it, as what these name is merged.
    fn is_asked(&self, profile: &QueueProfile, at: usize, id: Option<EntryId>) -> bool {
        let wants = |asked: &AskedPods<'_>, id: EntryId| match asked {
            AskedPods::Listed(pods) => pods.binary_search(&id).is_ok(),
            AskedPods::All | AskedPods::Waiting(_) => true,
        };
        let (Some(own), Some(id)) = (self.narrowed.get(at), id) else {
            return true;
        };
        let plugin_of = |at: usize| {
            let registration = profile.registrations.get(*self.matching.get(at)?)?;
            Some(&registration.plugin)
        };
        let mut all = self.narrowed.iter().enumerate();
        wants(own, id)
            || all.any(|(other, asked)| plugin_of(other) == plugin_of(at) && wants(asked, id))
    }
}
