//! PostFilter: preemption for a pod that fits nowhere (F-10, C-32).

use super::{Attempt, Cycle, CycleResult, CycleStep, ParkedAt, drops_deleting};
use crate::core::{Answered, Core, PointRun, Ran, search_took};
use crate::failure::{AttemptFailure, fail};
use berth_api::Str;
use berth_evaluator::FitError;
use berth_framework::plugin::{Nominating, PostFilterResult, PostFilterStep};
use berth_framework::stage::WakeReason;
use berth_framework::{Code, Feature, Status};
use berth_profile::Point;
use berth_telemetry::LogLine;
use berth_telemetry::metrics::Metric;

/// The answers of the plugins so far.
#[derive(Debug, Default)]
struct PostFilterSoFar {
    status: Option<Status>,
    nominating: Nominating,
}

impl PostFilterSoFar {
    /// Records one plugin's answer. Returns it if it ends the point.
    fn take(&mut self, plugin: &Str, result: PostFilterResult) -> Option<(Status, Nominating)> {
        let PostFilterResult { status, nominating } = result;
        match status.code() {
            Code::Success | Code::UnschedulableAndUnresolvable => {
                Some((status.from_plugin(plugin), nominating))
            }
            code if code.is_rejected() => {
                if nominating != Nominating::Keep {
                    self.nominating = nominating;
                }
                let sum = self.status.get_or_insert_with(|| {
                    Status::new(Code::Unschedulable, []).from_plugin(plugin)
                });
                for reason in status.reasons() {
                    sum.append_reason(reason.clone());
                }
                None
            }
            _ => Some((
                Status::error(status.message()).from_plugin(plugin),
                Nominating::Keep,
            )),
        }
    }
}

/// A run of PostFilter.
pub(super) struct PostFilterRun {
    run: PointRun,
    error: Box<FitError>,
    so_far: PostFilterSoFar,
}

impl Cycle {
    /// No node fits: runs PostFilter.
    pub(super) fn run_post_filter(
        &mut self,
        core: &mut Core,
        mut attempt: Attempt,
        error: Box<FitError>,
    ) -> CycleStep {
        if attempt.profile.post_filter.is_empty() {
            search_took(&core.clock, &mut core.metrics, &attempt);
            let failure = AttemptFailure::unfit(error, Nominating::Set(Str::default()));
            return CycleStep::Over(fail(core, attempt, failure));
        }
        attempt.evaluation.tally.sampled = attempt.is_sampled.then(Box::default);
        let run = PostFilterRun {
            run: PointRun::begin(&core.clock, Point::PostFilter.as_str()),
            error,
            so_far: PostFilterSoFar::default(),
        };
        self.go_on_with_post_filter(core, attempt, run, None)
    }

    /// Calls the PostFilter plugins, starting with the waiting plugin if the cycle was parked. Then the attempt ends,
    /// because a nominated pod is scheduled in another attempt.
    pub(super) fn go_on_with_post_filter(
        &mut self,
        core: &mut Core,
        mut attempt: Attempt,
        post_filter: PostFilterRun,
        reason: Option<WakeReason>,
    ) -> CycleStep {
        let PostFilterRun {
            mut run,
            mut error,
            mut so_far,
        } = post_filter;
        let profile = attempt.profile.clone();
        let began = core.clock.stage_begin();
        let statuses = &error.diagnosis.statuses;
        let ran = run.go(
            core,
            &mut attempt,
            &profile.post_filter,
            reason,
            |core, attempt, plugin, wake| {
                let pod = attempt.pod.clone();
                core.dry_run(attempt, |cx| plugin.post_filter(cx, &pod, statuses, wake))
            },
            |member, step| match step {
                PostFilterStep::Wait(wait) => Answered::Wait(wait),
                PostFilterStep::Done(result) => match so_far.take(&member.name, result) {
                    Some(end) => Answered::End(end),
                    None => Answered::Next,
                },
            },
        );
        let (status, nominating) = match ran {
            Ran::Waits(wait) => {
                let run = PostFilterRun { run, error, so_far };
                return self.park(&mut core.waits, attempt, ParkedAt::PostFilter(run), wait);
            }
            Ran::Ended(end) => end,
            Ran::Through => (so_far.status.unwrap_or_default(), so_far.nominating),
        };
        run.end(&core.clock, &mut core.metrics, &mut attempt, status.code());
        if core.settings.is_on(Feature::GenericWorkload) {
            let seconds = core.clock.seconds_since(began);
            let labels = ["pod", status.code().as_str()];
            let metric = Metric::PreemptionEvaluationDuration;
            core.metrics.observe(metric, &labels, seconds);
        }
        // PostFilter has ended, so its results about nodes, which the attempt borrowed, return to the cache.
        self.answer_cache.revert(&mut attempt.evaluation);
        core.observe_evaluation(&mut attempt);
        if drops_deleting(core, &mut attempt) {
            return CycleStep::Over(CycleResult::Skipped);
        }
        const MESSAGE: &str = "Status after running PostFilter plugins for pod";
        let describe = |line: LogLine| {
            let line = line.with("pod", &*attempt.pod.pod);
            line.with("status", status.message())
        };
        match status.code() {
            Code::Error => core.outbound.log.push(describe(LogLine::error(MESSAGE))),
            _ => core.outbound.log.v(5, MESSAGE, describe),
        }
        error.diagnosis.post_filter_message = status.message();
        search_took(&core.clock, &mut core.metrics, &attempt);
        let failure = AttemptFailure::unfit(error, nominating);
        CycleStep::Over(fail(core, attempt, failure))
    }
}
