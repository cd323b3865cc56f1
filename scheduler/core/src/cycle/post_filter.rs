//! PostFilter: preemption for a pod that fits nowhere (F-10, C-32).

use super::{Attempt, Cycle, CycleWaits, ParkedAt, StageEnd, drops_deleting};
use crate::core::{Answered, Framework, PointRun, Ran, search_took};
use crate::failure::AttemptFailure;
use berth_api::Str;
use berth_evaluator::FitError;
use berth_framework::plugin::{Nominating, PostFilterResult, PostFilterStep};
use berth_framework::stage::WakeReason;
use berth_framework::{Code, Feature, Status};
use berth_profile::Point;
use berth_queue::Nominator;
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
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
        error: Box<FitError>,
    ) -> StageEnd {
        if attempt.profile.post_filter.is_empty() {
            search_took(&framework.clock, &mut framework.metrics, attempt);
            let failure = AttemptFailure::unfit(error, Nominating::Set(Str::default()));
            return StageEnd::failed(failure);
        }
        attempt.evaluation.tally.sampled = attempt.is_sampled.then(Box::default);
        let run = PostFilterRun {
            run: PointRun::begin(&framework.clock, Point::PostFilter.as_str()),
            error,
            so_far: PostFilterSoFar::default(),
        };
        self.go_on_with_post_filter(framework, nominator, attempt, run, None)
    }

    /// Calls the PostFilter plugins, starting with the waiting plugin if the cycle was parked. Then the attempt ends,
    /// because a nominated pod is scheduled in another attempt.
    pub(super) fn go_on_with_post_filter(
        &mut self,
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
        post_filter: PostFilterRun,
        reason: Option<WakeReason>,
    ) -> StageEnd {
        let PostFilterRun {
            mut run,
            mut error,
            mut so_far,
        } = post_filter;
        let profile = attempt.profile.clone();
        let began = framework.clock.stage_begin();
        let statuses = &error.diagnosis.statuses;
        let ran = run.go(
            framework,
            attempt,
            &profile.post_filter,
            reason,
            |framework, attempt, plugin, wake| {
                let pod = attempt.pod.clone();
                framework.dry_run(nominator, attempt, |cx| {
                    plugin.post_filter(cx, &pod, statuses, wake)
                })
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
                return StageEnd::Waits(ParkedAt::PostFilter(run), CycleWaits::from(wait));
            }
            Ran::Ended(end) => end,
            Ran::Through => (so_far.status.unwrap_or_default(), so_far.nominating),
        };
        run.end(
            &framework.clock,
            &mut framework.metrics,
            attempt,
            status.code(),
        );
        if framework.settings.is_on(Feature::GenericWorkload) {
            let seconds = framework.clock.seconds_since(began);
            let labels = ["pod", status.code().as_str()];
            let metric = Metric::PreemptionEvaluationDuration;
            framework.metrics.observe(metric, &labels, seconds);
        }
        // PostFilter has ended, so its results about nodes, which the attempt borrowed, return to the cache.
        self.answer_cache.revert(&mut attempt.evaluation);
        framework.observe_evaluation(attempt);
        if drops_deleting(framework, attempt) {
            return StageEnd::Dropped(None);
        }
        const MESSAGE: &str = "Status after running PostFilter plugins for pod";
        let describe = |line: LogLine| {
            let line = line.with("pod", &*attempt.pod.pod);
            line.with("status", status.message())
        };
        match status.code() {
            Code::Error => framework
                .outbound
                .log
                .push(describe(LogLine::error(MESSAGE))),
            _ => framework.outbound.log.v(5, MESSAGE, describe),
        }
        error.diagnosis.post_filter_message = status.message();
        search_took(&framework.clock, &mut framework.metrics, attempt);
        let failure = AttemptFailure::unfit(error, nominating);
        StageEnd::failed(failure)
    }
}
