//! The waiters and their events: results of calls and jobs, changes of objects, and the time.

use berth_api::{Str, Time};
use berth_framework::call::{CallId, CallResult};
use berth_framework::cluster::GroupKey;
use berth_framework::job::{JobId, JobResult};
use berth_framework::object_name::ObjectName;
use berth_framework::stage::{Wait, WaitOn, WakeReason};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};

/// Names a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WaitId(u64);

/// The step that continues when a wait ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// The parked cycle.
    Cycle,
    /// The parked cycle, for the scores of the extender at this place among others.
    Prioritizer(usize),
    /// A pod that Permit plugins hold, by UID: their first deadline has passed.
    PermitTimeout(Str),
    /// A Permit plugin of a binding.
    Permit {
        /// The binding.
        binding: u64,
        /// The plugin's place in the profile.
        at: usize,
    },
    /// A PreBind plugin of a binding.
    PreBind {
        /// The binding.
        binding: u64,
        /// The plugin's place in the profile.
        at: usize,
    },
    /// The Bind plugin of a binding.
    Bind(u64),
    /// The kept nodes of a group with a failed binding expire.
    BrokenGroup(GroupKey),
}

/// All waits. Each ends once: with its event or at its deadline.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    next: u64,
    waiting: FxHashMap<WaitId, (Waiter, Wait)>,
    calls: FxHashMap<CallId, WaitId>,
    jobs: FxHashMap<JobId, WaitId>,
    /// The waits for a change of an object, in the order of their start.
    objects: FxHashMap<ObjectName, Vec<WaitId>>,
    deadlines: BTreeSet<(Time, WaitId)>,
    /// The waiters whose wait has ended and that have not been resumed yet.
    woken: VecDeque<(Waiter, WakeReason)>,
}

impl Waits {
    pub(crate) fn add(&mut self, waiter: Waiter, wait: Wait) -> WaitId {
        let id = WaitId(self.next);
        self.next += 1;
        match &wait.on {
            WaitOn::Call(call) => {
                self.calls.insert(*call, id);
            }
            WaitOn::Job(job) => {
                self.jobs.insert(*job, id);
            }
            WaitOn::Objects(objects) => {
                for object in objects {
                    self.objects.entry(object.clone()).or_default().push(id);
                }
            }
            WaitOn::Timer => {}
        }
        self.deadlines.insert((wait.deadline, id));
        self.waiting.insert(id, (waiter, wait));
        id
    }

    /// Ends a wait of any kind.
    pub(crate) fn end(&mut self, id: WaitId) -> Option<Waiter> {
        let (waiter, wait) = self.waiting.remove(&id)?;
        self.deadlines.remove(&(wait.deadline, id));
        match &wait.on {
            WaitOn::Call(call) if self.calls.get(call) == Some(&id) => {
                self.calls.remove(call);
            }
            WaitOn::Job(job) if self.jobs.get(job) == Some(&id) => {
                self.jobs.remove(job);
            }
            WaitOn::Objects(objects) => {
                for object in objects {
                    if let Some(ids) = self.objects.get_mut(object) {
                        ids.retain(|other| *other != id);
                        if ids.is_empty() {
                            self.objects.remove(object);
                        }
                    }
                }
            }
            _ => {}
        }
        Some(waiter)
    }

    /// A call has ended. Returns whether this ended a wait.
    pub(crate) fn call_ended(&mut self, call: CallId, result: CallResult) -> bool {
        let id = self.calls.get(&call).copied();
        let waiter = id.and_then(|id| self.end(id));
        let woken = waiter.map(|waiter| (waiter, WakeReason::Call(result)));
        let any = woken.is_some();
        self.woken.extend(woken);
        any
    }

    /// A job has ended.
    pub(crate) fn job_ended(&mut self, job: JobId, result: JobResult) {
        let id = self.jobs.get(&job).copied();
        if let Some(waiter) = id.and_then(|id| self.end(id)) {
            self.woken.push_back((waiter, WakeReason::Job(result)));
        }
    }

    /// An object is new, changed or deleted: the waits for it end, in the order in which they began.
    pub(crate) fn object_changed(&mut self, object: &ObjectName) {
        for id in self.objects.get(object).cloned().unwrap_or_default() {
            if let Some(waiter) = self.end(id) {
                self.woken.push_back((waiter, WakeReason::Object));
            }
        }
    }

    /// Ends the waits whose deadline has passed.
    pub(crate) fn time_passed(&mut self, now: Time) {
        while let Some((deadline, id)) = self.deadlines.first().copied()
            && deadline <= now
        {
            let reason = match self.waiting.get(&id).map(|(_, wait)| &wait.on) {
                Some(WaitOn::Timer) => WakeReason::Timer,
                _ => WakeReason::Deadline,
            };
            if let Some(waiter) = self.end(id) {
                self.woken.push_back((waiter, reason));
            }
        }
    }

    /// The next waiter to resume.
    pub(crate) fn take_woken(&mut self) -> Option<(Waiter, WakeReason)> {
        self.woken.pop_front()
    }

    /// Returns whether any wait for a change of an object is open.
    pub(crate) fn any_for_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    /// The next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::call::Response;

    fn wait(on: WaitOn, secs: i64) -> Wait {
        Wait {
            on,
            deadline: Time::from_secs(secs),
        }
    }

    /// The resumed waiters, each with its reason.
    fn woken(waits: &mut Waits) -> Vec<String> {
        let woken = std::iter::from_fn(|| waits.take_woken());
        let texts = woken.map(|(waiter, reason)| format!("{waiter:?} {reason:?}"));
        texts.collect()
    }

    #[test]
    fn a_wait_ends_once() {
        let mut waits = Waits::default();
        waits.add(Waiter::Bind(1), wait(WaitOn::Call(CallId(7)), 10));
        waits.add(Waiter::Bind(2), wait(WaitOn::Job(JobId(7)), 5));
        waits.add(Waiter::Cycle, wait(WaitOn::Timer, 8));
        assert_eq!(waits.next_deadline(), Some(Time::from_secs(5)));
        assert!(waits.call_ended(CallId(7), Ok(Response::default())));
        assert!(!waits.call_ended(CallId(7), Ok(Response::default())));
        waits.time_passed(Time::from_secs(4));
        assert_eq!(woken(&mut waits).len(), 1);
        waits.time_passed(Time::from_secs(8));
        waits.job_ended(JobId(7), Err("late".into()));
        assert_eq!(woken(&mut waits), ["Bind(2) Deadline", "Cycle Timer"]);
        assert!(waits.waiting.is_empty());
        assert_eq!(waits.next_deadline(), None);
    }

    #[test]
    fn a_wait_for_one_of_several_objects_ends_with_the_first() {
        let mut waits = Waits::default();
        let node = |name: &str| ObjectName::new(berth_api::Kind::Node, &"".into(), &name.into());
        let on = |names: &[&str]| WaitOn::Objects(names.iter().map(|name| node(name)).collect());
        assert!(!waits.any_for_objects());
        let both = waits.add(Waiter::Bind(1), wait(on(&["a", "b"]), 9));
        waits.add(Waiter::Bind(2), wait(on(&["b"]), 9));
        assert!(waits.any_for_objects());
        waits.object_changed(&node("a"));
        assert_eq!(woken(&mut waits), ["Bind(1) Object"]);
        assert_eq!(waits.end(both), None);
        waits.time_passed(Time::from_secs(9));
        waits.object_changed(&node("b"));
        assert_eq!(woken(&mut waits), ["Bind(2) Deadline"]);
        assert!(!waits.any_for_objects());
    }
}
