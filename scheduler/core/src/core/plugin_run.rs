//! Runs plugins at the extension points that may have effects: PostFilter, Reserve, Permit, PreBind, Bind and PostBind.
//!
//! Common to these points are the context of the attempt, the outbox, the durations of the point and of single plugins
//! (F-7), and the wake-up of waiting plugins (F-45).

use super::Framework;
use super::measure::{point_took, trace_point};
use super::requests::CallOutbox;
use crate::attempt::Attempt;
use crate::clock::{CoreClock, Moment};
use berth_api::Str;
use berth_evaluator::Evaluator;
use berth_framework::plugin::{DryRun, PostFilterContext};
use berth_framework::stage::{Answer, StageContext, Wait, Wake, WakeReason, call_plugin};
use berth_framework::{Code, CycleState};
use berth_profile::Member;
use berth_queue::Nominator;
use berth_telemetry::metrics::Metrics;

/// The meaning of the answer of a plugin for the run of its extension point.
pub(crate) enum Answered<T> {
    /// The next plugin is called.
    Next,
    /// The point has ended.
    End(T),
    /// The plugin waits. The run continues with it.
    Wait(Wait),
}

/// The result of a run of an extension point.
pub(crate) enum Ran<T> {
    /// Every plugin was called.
    Through,
    /// A plugin has ended it.
    Ended(T),
    /// A plugin waits.
    Waits(Wait),
}

/// A run of an extension point. It is kept while a plugin waits.
#[derive(Debug, Clone)]
pub(crate) struct PointRun {
    /// The name of the point in metrics.
    point: &'static str,
    began: Moment,
    /// The index of the next plugin, or of the waiting plugin.
    at: usize,
    /// The start of the call of the waiting plugin, if single plugins are timed. The duration of the call includes the
    /// wait.
    called: Option<Moment>,
    /// Whether any plugin was called.
    is_begun: bool,
}

impl PointRun {
    /// A run that begins now.
    pub(crate) fn begin(clock: &CoreClock, point: &'static str) -> Self {
        Self {
            point,
            began: clock.stage_begin(),
            at: 0,
            called: None,
            is_begun: false,
        }
    }

    /// The part of the run that calls the plugin at this index, in parallel with others.
    pub(crate) fn of_plugin(&mut self, at: usize) -> Self {
        self.is_begun = true;
        Self {
            at,
            called: None,
            ..self.clone()
        }
    }

    /// The index of the waiting plugin.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Calls the plugins in order, starting with the waiting plugin, if any, until one ends the run or waits.
    pub(crate) fn go<P: ?Sized, A: Answer, T>(
        &mut self,
        framework: &mut Framework,
        attempt: &mut Attempt,
        members: &[Member<P>],
        mut reason: Option<WakeReason>,
        mut ask: impl FnMut(&mut Framework, &mut Attempt, &P, Option<Wake<'_>>) -> A,
        mut judge: impl FnMut(&Member<P>, A) -> Answered<T>,
    ) -> Ran<T> {
        while let Some(member) = members.get(self.at) {
            let answer = self.ask(
                framework,
                attempt,
                &member.name,
                reason.take(),
                |framework, attempt, wake| ask(framework, attempt, &member.plugin, wake),
            );
            match judge(member, answer) {
                Answered::Next => {}
                Answered::End(end) => return Ran::Ended(end),
                Answered::Wait(wait) => return Ran::Waits(wait),
            }
            self.at += 1;
        }
        Ran::Through
    }

    /// Calls one plugin, and times it if single plugins are timed in the attempt.
    pub(crate) fn ask<A: Answer>(
        &mut self,
        framework: &mut Framework,
        attempt: &mut Attempt,
        plugin: &Str,
        reason: Option<WakeReason>,
        ask: impl FnOnce(&mut Framework, &mut Attempt, Option<Wake<'_>>) -> A,
    ) -> A {
        self.is_begun = true;
        if reason.is_none() {
            self.called = attempt.is_sampled.then(|| framework.clock.read());
        }
        let answer = call_plugin(reason, |wake| ask(framework, attempt, wake));
        if !answer.waits()
            && let Some(called) = self.called.take()
        {
            let nanos = framework.clock.nanos_since(called);
            framework
                .metrics
                .observe_plugin(plugin, self.point, answer.code(), nanos);
        }
        answer
    }

    /// The run has ended. A run without called plugins has no duration, and no clock is read for it.
    pub(crate) fn end(
        &self,
        clock: &CoreClock,
        metrics: &mut Metrics,
        attempt: &mut Attempt,
        code: Code,
    ) {
        let nanos = if self.is_begun {
            clock.nanos_since(self.began)
        } else {
            clock.nanos_until_last(self.began)
        };
        point_took(metrics, self.point, code, &attempt.profile, nanos);
        if self.is_begun {
            trace_point(clock, attempt, self.point, code, nanos, 0);
        }
    }
}

impl Framework {
    /// Calls a plugin for the pod of an attempt, at a point from Reserve to PostBind.
    pub(crate) fn stage<R>(
        &mut self,
        attempt: &mut Attempt,
        work: impl FnOnce(&mut StageContext<'_>, &mut CycleState) -> R,
    ) -> R {
        let now = self.clock.now();
        let mut outbox = CallOutbox {
            outbound: &mut self.outbound,
            unbound: &mut self.unbound,
            requests: &mut self.requests,
            extenders: &self.settings.extenders,
            reporter: &attempt.profile.name,
            attempt_of: attempt.pod.pod.uid(),
        };
        let mut cx = StageContext {
            now,
            cluster: self.cache.cluster(),
            features: &self.settings.features,
            outbox: &mut outbox,
        };
        work(&mut cx, &mut attempt.evaluation.state)
    }

    /// Calls a PostFilter plugin for the pod of an attempt.
    pub(crate) fn dry_run<R>(
        &mut self,
        nominated: &Nominator,
        attempt: &mut Attempt,
        work: impl FnOnce(&mut PostFilterContext<'_>) -> R,
    ) -> R {
        let now = self.clock.now();
        let mut outbox = CallOutbox {
            outbound: &mut self.outbound,
            unbound: &mut self.unbound,
            requests: &mut self.requests,
            extenders: &self.settings.extenders,
            reporter: &attempt.profile.name,
            attempt_of: attempt.pod.pod.uid(),
        };
        let mut evaluator = Evaluator {
            profile: &attempt.profile,
            features: &self.settings.features,
            now,
            // Mutable, because plugins remove victims and add them again in a dry run.
            cluster: self.cache.cluster_mut(),
            nominated,
            pod: &attempt.pod,
            evaluation: &mut attempt.evaluation,
            work: Some(&attempt.work),
            stopwatch: self.clock.laps(),
        };
        let dry_run: &mut dyn DryRun = &mut evaluator;
        work(&mut PostFilterContext {
            now,
            features: &self.settings.features,
            outbox: &mut outbox,
            dry_run,
        })
    }
}
