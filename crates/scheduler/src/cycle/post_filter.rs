//! PostFilter: making room for a pod that fits nowhere (F-10, C-32).

use super::{Attempt, CycleResult, Failure, ParkedAt, Resumed};
use crate::core::{LogLevel, Scheduler};
use crate::evaluator::{Evaluator, FitError, Tally};
use crate::profile::Point;
use berth_api::{Str, Time};
use berth_framework::plugin::{Nominating, PostFilterContext, PostFilterResult, PostFilterStep};
use berth_framework::stage::call_plugin;
use berth_framework::{Code, Status};

/// What the plugins so far have said.
#[derive(Debug, Default)]
pub(super) struct PostFilterSoFar {
    status: Option<Status>,
    nominating: Nominating,
}

impl PostFilterSoFar {
    /// Takes one plugin's answer. Returns it when it ends the point.
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

impl Scheduler {
    /// Runs PostFilter, from the plugin that waited on if the cycle was parked. Then the attempt is over, as a pod for
    /// which room is made has to be evaluated anew. `None` when the cycle was parked (again).
    pub(super) fn run_post_filter(
        &mut self,
        mut attempt: Attempt,
        mut error: Box<FitError>,
        mut so_far: PostFilterSoFar,
        resumed: Option<Resumed>,
        now: Time,
    ) -> Option<CycleResult> {
        let profile = attempt.profile.clone();
        if profile.post_filter.is_empty() {
            self.algorithm_ended(&attempt, now);
            let failure = Failure::unfit(error, Nominating::Set(Str::default()));
            return Some(self.fail(attempt, failure, now));
        }
        let (at, mut timing, mut wake) = match resumed {
            Some(resumed) => (resumed.plugin, resumed.timing, Some(resumed.wake)),
            None => {
                attempt.evaluation.tally.sampled = attempt.is_sampled.then(Box::default);
                (0, self.timing(now), None)
            }
        };
        let mut ended = None;
        for (i, member) in profile.post_filter.iter().enumerate().skip(at) {
            if wake.is_none() {
                timing.call = self.call_begins(attempt.is_sampled, now);
            }
            let effects = self.io.effects(&profile.name, now);
            let mut effects = effects.in_attempt_of(attempt.pod.pod.uid());
            let mut evaluator = Evaluator {
                profile: &profile,
                features: &self.features,
                now,
                cluster: self.cache.cluster_mut(),
                nominated: self.queue.nominator(),
                pod: &attempt.pod,
                evaluation: &mut attempt.evaluation,
                stopwatch: &*self.stopwatch,
            };
            let mut cx = PostFilterContext {
                now,
                features: &self.features,
                outbox: &mut effects,
                dry_run: &mut evaluator,
            };
            let statuses = &error.diagnosis.statuses;
            let step = call_plugin(wake.take(), |wake| {
                let pod = &attempt.pod;
                member.plugin.post_filter(&mut cx, pod, statuses, wake)
            });
            match step {
                PostFilterStep::Wait(wait) => {
                    let at = ParkedAt::PostFilter {
                        plugin: i,
                        timing,
                        error,
                        so_far,
                    };
                    self.park(attempt, at, wait);
                    return None;
                }
                PostFilterStep::Done(result) => {
                    let called = (member.name.as_str(), Point::PostFilter.as_str());
                    self.call_ended(timing.call, called, result.status.code(), now);
                    ended = so_far.take(&member.name, result);
                    if ended.is_some() {
                        break;
                    }
                }
            }
        }
        let (status, nominating) =
            ended.unwrap_or_else(|| (so_far.status.unwrap_or_default(), so_far.nominating));
        self.point_ended("PostFilter", status.code(), &profile, (timing.point, now));
        self.keeper.take_back(&mut attempt.evaluation);
        self.book(&attempt.evaluation.tally, &profile);
        *attempt.evaluation.tally = Tally::default();
        if self.drops_deleting(&attempt) {
            return Some(CycleResult::Skipped);
        }
        if status.code() == Code::Error {
            let pod = attempt.pod.pod.key();
            let text = format!(
                "Status after running PostFilter plugins for pod {pod}: {}",
                status.message()
            );
            self.io.log(LogLevel::Error, text);
        }
        error.diagnosis.post_filter_message = status.message();
        self.algorithm_ended(&attempt, now);
        Some(self.fail(attempt, Failure::unfit(error, nominating), now))
    }
}
