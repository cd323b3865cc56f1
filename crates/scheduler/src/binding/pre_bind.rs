//! Preparing the node and the pod's objects before binding (F-16, F-17).

use super::{Binding, Running, Stage};
use crate::core::{Moment, Scheduler, Waiter};
use crate::cycle::stage_failure;
use crate::profile::Point;
use berth_api::Time;
use berth_framework::stage::{StageContext, Step, WakeReason, call_plugin};
use berth_framework::{Code, Feature, Status};
use smallvec::SmallVec;

/// The label of the metrics for what is asked before PreBind.
const PRE_FLIGHT: &str = "PreBindPreFlight";

impl Scheduler {
    /// Asks the PreBind plugins whether they have something to do. Returns whether one has.
    pub(super) fn run_pre_flight(
        &mut self,
        binding: &mut Binding,
        now: Time,
    ) -> Result<bool, Status> {
        if !self
            .features
            .enabled(Feature::NominatedNodeNameForExpectation)
        {
            return Ok(true);
        }
        let profile = binding.attempt.profile.clone();
        let began = self.moment(now);
        let mut result = Ok(false);
        for member in &profile.pre_bind {
            let call = self.call_begins(binding.attempt.is_sampled, now);
            let (pod, node) = (&binding.placed.pod, &binding.placed.node);
            let effects = self.io.effects(&profile.name, now);
            let mut effects = effects.in_attempt_of(pod.pod.uid());
            let mut cx = StageContext {
                now,
                cluster: self.cache.cluster(),
                features: &self.features,
                outbox: &mut effects,
            };
            let state = &mut binding.attempt.evaluation.state;
            let status = member.plugin.pre_flight(&mut cx, state, pod, node);
            let called = (member.name.as_str(), PRE_FLIGHT);
            self.call_ended(call, called, status.code(), now);
            match status.code() {
                Code::Success => result = Ok(true),
                Code::Skip => binding.skip_pre_bind.insert(member.id),
                Code::Error => {
                    let text = format!(
                        "running PreBindPreFlight {:?}: {}",
                        member.name.as_str(),
                        status.as_error().unwrap_or_default()
                    );
                    result = Err(Status::error(text));
                    break;
                }
                other => {
                    let text = format!(
                        "PreBindPreFlight {} returned {:?}, which is unsupported. It is supposed to return Success, \
                         Skip, or Error status",
                        member.name,
                        other.as_str()
                    );
                    result = Err(Status::error(text));
                    break;
                }
            }
        }
        let code = match &result {
            Ok(true) => Code::Success,
            Ok(false) => Code::Skip,
            Err(status) => status.code(),
        };
        self.point_ended(PRE_FLIGHT, code, &profile, (began, now));
        result
    }

    /// Nobody holds the pod back (any more): its PreBind plugins start. Events need not be kept for it from here on
    /// (C-41).
    pub(super) fn start_pre_bind(&mut self, id: u64, now: Time) {
        let Some(binding) = self.bindings.get_mut(&id) else {
            return;
        };
        let uid = binding.placed.pod.pod.uid();
        self.queue.done(uid);
        self.io.permits.release(uid);
        let mut groups = groups(binding);
        if !groups.is_empty() {
            self.io.permits.prepare(uid);
        }
        groups.reverse();
        binding.stage = Stage::PreBind {
            groups,
            running: SmallVec::new(),
        };
        binding.stage_began = Moment::new(now, &*self.stopwatch);
        self.next_group(id, now);
    }

    /// Starts the next group, or goes on to bind when there is none.
    fn next_group(&mut self, id: u64, now: Time) {
        loop {
            let Some(binding) = self.bindings.get_mut(&id) else {
                return;
            };
            let Stage::PreBind { groups, .. } = &mut binding.stage else {
                return;
            };
            let Some(group) = groups.pop() else {
                self.book_stage(id, Point::PreBind, Code::Success, now);
                self.start_bind(id, now);
                return;
            };
            let mut waiting = false;
            for at in group {
                match self.step(id, at, None, now) {
                    Some(Ok(())) => {}
                    None => waiting = true,
                    Some(Err(status)) => {
                        self.pre_bind_failed(id, status, now);
                        return;
                    }
                }
            }
            if waiting {
                return;
            }
        }
    }

    /// The wait of a PreBind plugin has ended.
    pub(crate) fn resume_pre_bind(&mut self, id: u64, at: usize, wake: WakeReason, now: Time) {
        let Some(binding) = self.bindings.get_mut(&id) else {
            return;
        };
        let Stage::PreBind { running, .. } = &mut binding.stage else {
            return;
        };
        let called = match running.iter().position(|running| running.at == at) {
            Some(place) => running.remove(place).called,
            None => None,
        };
        match self.step(id, at, Some((wake, called)), now) {
            Some(Err(status)) => self.pre_bind_failed(id, status, now),
            Some(Ok(())) => {
                let stage = self.bindings.get(&id).map(|b| &b.stage);
                if let Some(Stage::PreBind { running, .. }) = stage
                    && running.is_empty()
                {
                    self.next_group(id, now);
                }
            }
            None => {}
        }
    }

    /// One step of one plugin; `None` when it waits.
    fn step(
        &mut self,
        id: u64,
        at: usize,
        resumed: Option<(WakeReason, Option<Moment>)>,
        now: Time,
    ) -> Option<Result<(), Status>> {
        let binding = self.bindings.get_mut(&id)?;
        let (wake, called) = match resumed {
            Some((wake, called)) => (Some(wake), called),
            None => {
                let is_timed = binding.attempt.is_sampled;
                (None, is_timed.then(|| Moment::new(now, &*self.stopwatch)))
            }
        };
        let profile = binding.attempt.profile.clone();
        let member = profile.pre_bind.get(at)?;
        let (pod, node) = (&binding.placed.pod, &binding.placed.node);
        let effects = self.io.effects(&profile.name, now);
        let mut effects = effects.in_attempt_of(pod.pod.uid());
        let mut cx = StageContext {
            now,
            cluster: self.cache.cluster(),
            features: &self.features,
            outbox: &mut effects,
        };
        let state = &mut binding.attempt.evaluation.state;
        let step = call_plugin(wake, |wake| {
            member.plugin.pre_bind(&mut cx, state, pod, node, wake)
        });
        match step {
            Step::Wait(wait) => {
                let wait = self.waits.add(Waiter::PreBind { binding: id, at }, wait);
                if let Stage::PreBind { running, .. } = &mut binding.stage {
                    running.push(Running { at, wait, called });
                }
                None
            }
            Step::Done(status) => {
                let what = (member.name.as_str(), Point::PreBind.as_str());
                self.call_ended(called, what, status.code(), now);
                Some(if status.is_success() {
                    Ok(())
                } else {
                    Err(stage_failure("PreBind", &member.name, &status))
                })
            }
        }
    }

    fn pre_bind_failed(&mut self, id: u64, status: Status, now: Time) {
        self.book_stage(id, Point::PreBind, status.code(), now);
        self.fail_binding(id, status, now);
    }
}

/// The plugins that have something to do, in groups that work one after another: neighbours that may work beside each
/// other form one, every other plugin is one by itself. A plugin with nothing to do is in none; if it must work alone,
/// it still parts its neighbours.
fn groups(binding: &Binding) -> Vec<SmallVec<[usize; 2]>> {
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
