//! Preparing the node and the pod's objects before binding (F-16, F-17).

use super::{BindingEnd, BindingStage, Bindings, PodBinding, WaitingPlugin, take_waiting};
use crate::core::{Answered, Framework, PointRun, Ran, Waiter, Waits};
use crate::placement::stage_failure;
use berth_framework::stage::{Step, WakeReason};
use berth_framework::{Code, Feature, Status};
use berth_profile::Point;
use smallvec::SmallVec;

/// The metric label of the check before PreBind.
const PRE_FLIGHT: &str = "PreBindPreFlight";

/// Asks the PreBind plugins whether they have work for the pod. Returns whether one has.
pub(super) fn run_pre_flight(
    framework: &mut Framework,
    binding: &mut PodBinding,
) -> Result<bool, Status> {
    if !framework
        .settings
        .is_on(Feature::NominatedNodeNameForExpectation)
    {
        // The plugins are not asked, so each of them may have work for the pod.
        return Ok(true);
    }
    let PodBinding {
        attempt,
        placed,
        skip_pre_bind,
        ..
    } = binding;
    let profile = attempt.profile.clone();
    let mut has_work = false;
    let mut run = PointRun::begin(&framework.clock, PRE_FLIGHT);
    let ran = run.go(
        framework,
        attempt,
        &profile.pre_bind,
        None,
        |framework, attempt, plugin, _| {
            framework.stage(attempt, |cx, state| {
                plugin.pre_flight(cx, state, &placed.pod, &placed.node)
            })
        },
        |member, status| match status.code() {
            Code::Success => {
                has_work = true;
                Answered::Next
            }
            Code::Skip => {
                skip_pre_bind.insert(member.id);
                Answered::Next
            }
            Code::Error => Answered::End(Status::error(format!(
                "running PreBindPreFlight {:?}: {}",
                member.name.as_str(),
                status.as_error().unwrap_or_default()
            ))),
            other => Answered::End(Status::error(format!(
                "PreBindPreFlight {} returned {:?}, which is unsupported. It is supposed to return Success, Skip, or \
                 Error status",
                member.name,
                other.as_str()
            ))),
        },
    );
    let result = match ran {
        Ran::Ended(status) => Err(status),
        Ran::Through | Ran::Waits(_) => Ok(has_work),
    };
    let code = match &result {
        Ok(true) => Code::Success,
        Ok(false) => Code::Skip,
        Err(status) => status.code(),
    };
    run.end(&framework.clock, &mut framework.metrics, attempt, code);
    result
}

impl Bindings {
    /// The PreBind plugins start.
    pub(super) fn start_pre_bind(
        &mut self,
        framework: &mut Framework,
        waits: &mut Waits,
        id: u64,
    ) -> BindingEnd {
        let Some(binding) = self.by_id.get_mut(&id) else {
            return BindingEnd::Open;
        };
        let mut groups = groups(binding);
        let uid = binding.uid();
        if groups.is_empty() {
            framework.unbound.bind(uid)
        } else {
            framework.unbound.prepare(uid)
        }
        groups.reverse();
        binding.stage = BindingStage::PreBind {
            run: PointRun::begin(&framework.clock, Point::PreBind.as_str()),
            groups,
            waiting: SmallVec::new(),
        };
        self.next_group(framework, waits, id)
    }

    /// Starts the next group. After the last group, binding begins.
    fn next_group(&mut self, framework: &mut Framework, waits: &mut Waits, id: u64) -> BindingEnd {
        loop {
            let Some(binding) = self.by_id.get_mut(&id) else {
                return BindingEnd::Open;
            };
            let binding = &mut **binding;
            let BindingStage::PreBind { run, groups, .. } = &mut binding.stage else {
                return BindingEnd::Open;
            };
            let Some(group) = groups.pop() else {
                run.end(
                    &framework.clock,
                    &mut framework.metrics,
                    &mut binding.attempt,
                    Code::Success,
                );
                // From here on it cannot be stopped (C-42).
                framework.unbound.bind(binding.uid());
                return self.bind_by_extender(framework, waits, id, 0);
            };
            let members: SmallVec<[PointRun; 2]> =
                group.into_iter().map(|at| run.of_plugin(at)).collect();
            let mut is_waiting = false;
            for run in members {
                match pre_bind(framework, waits, id, binding, run, None) {
                    Some(Ok(())) => {}
                    None => is_waiting = true,
                    Some(Err(status)) => return pre_bind_failed(framework, binding, status),
                }
            }
            if is_waiting {
                return BindingEnd::Open;
            }
        }
    }

    /// The wait of a PreBind plugin has ended.
    pub(crate) fn resume_pre_bind(
        &mut self,
        framework: &mut Framework,
        waits: &mut Waits,
        id: u64,
        at: usize,
        reason: WakeReason,
    ) -> BindingEnd {
        let Some(binding) = self.by_id.get_mut(&id) else {
            return BindingEnd::Open;
        };
        let BindingStage::PreBind { waiting, .. } = &mut binding.stage else {
            return BindingEnd::Open;
        };
        let Some(run) = take_waiting(waiting, at) else {
            return BindingEnd::Open;
        };
        match pre_bind(framework, waits, id, binding, run, Some(reason)) {
            Some(Err(status)) => pre_bind_failed(framework, binding, status),
            Some(Ok(())) => match &binding.stage {
                BindingStage::PreBind { waiting, .. } if waiting.is_empty() => {
                    self.next_group(framework, waits, id)
                }
                _ => BindingEnd::Open,
            },
            None => BindingEnd::Open,
        }
    }
}

fn pre_bind_failed(
    framework: &mut Framework,
    binding: &mut PodBinding,
    status: Status,
) -> BindingEnd {
    if let BindingStage::PreBind { run, .. } = &binding.stage {
        run.end(
            &framework.clock,
            &mut framework.metrics,
            &mut binding.attempt,
            status.code(),
        );
    }
    BindingEnd::Failed(status)
}

/// Calls one plugin; `None` when it waits.
fn pre_bind(
    framework: &mut Framework,
    waits: &mut Waits,
    id: u64,
    binding: &mut PodBinding,
    mut run: PointRun,
    reason: Option<WakeReason>,
) -> Option<Result<(), Status>> {
    let PodBinding {
        attempt,
        placed,
        stage,
        ..
    } = binding;
    let (profile, at) = (attempt.profile.clone(), run.at());
    let member = profile.pre_bind.get(at)?;
    let step = run.ask(
        framework,
        attempt,
        &member.name,
        reason,
        |framework, attempt, wake| {
            framework.stage(attempt, |cx, state| {
                let (pod, node) = (&placed.pod, &placed.node);
                member.plugin.pre_bind(cx, state, pod, node, wake)
            })
        },
    );
    match step {
        Step::Wait(wait) => {
            let wait = waits.add(Waiter::PreBind { binding: id, at }, wait);
            if let BindingStage::PreBind { waiting, .. } = stage {
                waiting.push(WaitingPlugin { run, wait });
            }
            None
        }
        Step::Done(status) if status.is_success() => Some(Ok(())),
        Step::Done(status) => Some(Err(stage_failure("PreBind", &member.name, &status))),
    }
}

/// The plugins with work to do, in groups that run one after another: neighbours that may run in parallel form one
/// group, every other plugin is a group of its own. A plugin without work is in no group. If it may not run in
/// parallel, it still separates its neighbours.
fn groups(binding: &PodBinding) -> Vec<SmallVec<[usize; 2]>> {
    let mut groups: Vec<SmallVec<[usize; 2]>> = Vec::new();
    let mut joinable = false;
    let (state, pod) = (&binding.attempt.evaluation.state, &binding.placed.pod);
    for (at, member) in binding.attempt.profile.pre_bind.iter().enumerate() {
        let parallel = member.plugin.runs_in_parallel(state, pod);
        if binding.skip_pre_bind.contains(member.id) {
            joinable &= parallel;
            continue;
        }
        match groups.last_mut() {
            Some(group) if parallel && joinable => group.push(at),
            _ => groups.push(SmallVec::from_iter([at])),
        }
        joinable = parallel;
    }
    groups
}
